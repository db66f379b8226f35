/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - the seam: everything above it asks a table, never a name
 *
 *   path      the share of one link that one transport carries; control thread
 *   endpoint  one data connection of a path; owned by one lane
 *   view      a path's handle of one cache of the peer, made once per cache
 *   region    local memory that can be shared with peers on this host
 *
 * Life of a path: create -> offer (goes to the peer in a PATH frame) ->
 * connect (with the peer's offer) -> [accept] -> UP (control attaches its
 * endpoints to lanes) ... -> endpoints detached, nothing in flight -> destroy.
 *
 * Threads:    [C] control thread, never waits  [L] lane of the endpoint
 *             [A] any thread
 */
#ifndef KVP_DATAPLANE_TRANSPORT_H
#define KVP_DATAPLANE_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include "caps.h"
#include "error.h"
#include "layout.h"
#include "total.h"
#include "transfer.h"
#include "wire.h"

#define KVP_ENDPOINTS_MAX KVP_PARTS_MAX
#define KVP_TRANSPORTS    3U /* entries of kvp_transports[] */
#define KVP_NOTE_MAX      KVP_FRAME_BODY_MAX

struct kvp_config;
struct kvp_device_memory;
struct kvp_inbox;
struct kvp_lane;
struct kvp_path;
struct kvp_reactor;
struct kvp_view;

/* What the data plane of one engine shares. Filled by control before any path; const then. */
struct kvp_dataplane {
	const struct kvp_config *config; /* settings of single transports are read here */
	uint64_t cluster_id;
	uint64_t boot_id;
	struct kvp_reactor *reactor; /* the control thread's */
	struct kvp_inbox *inbox;
	struct kvp_lane **lane; /* [lanes] */
	uint32_t lanes;
	uint32_t streams; /* tcp streams per link */
	uint32_t window_requests;
	uint64_t window_bytes;
	uint32_t log_level;
	void *state[KVP_TRANSPORTS]; /* each transport's own, from start */
};

/* Shareable local memory: a sealed memfd. Immutable while known to paths. */
struct kvp_region {
	uint32_t id; /* >= 1 */
	int fd;
	void *base;
	uint64_t bytes;
};

/* A cache of this engine, as lanes need it to check what peers ask for. Immutable. */
struct kvp_local_cache {
	int64_t id;
	uint32_t num_tensors;
	const struct kvp_tensor *tensors;
	const struct kvp_span *spans; /* per tensor */
	/* Per tensor: the shareable region around it, or NULL. Itself NULL: of none. */
	const struct kvp_region *const *regions;
	const struct kvp_device_memory
		*memory; /* NULL: ordinary memory; else the CPU cannot touch it */
	void *held
		[KVP_TRANSPORTS]; /* what each transport registered for it, by its slot; may be NULL */
};

/* A cache of the peer, as its catalogue says; checked. Immutable, kept until view_close. */
struct kvp_remote_cache {
	int64_t id;
	uint32_t num_tensors;
	const struct kvp_remote_tensor *tensors;
};

enum kvp_path_state {
	KVP_PATH_CONNECTING = 0,
	KVP_PATH_UP = 1,
	KVP_PATH_FAILED = 2, /* `error` says why */
};

struct kvp_path_config {
	struct kvp_dataplane *dataplane;
	bool is_initiator;            /* this side asked for the link */
	struct sockaddr_storage peer; /* of the control connection */
	socklen_t peer_bytes;
	uint64_t peer_cluster;
	const struct kvp_blob *peer_rail; /* the peer's description; only during path_create */
	uint32_t endpoints;               /* [1, KVP_ENDPOINTS_MAX], both sides the same */
	uint32_t first_lane;              /* endpoint i goes to lane (first_lane + i) % lanes */
	void (*changed)(struct kvp_path *path,
			void *ctx); /* [C] state left CONNECTING, or a region came: try
							      pending views again. Never from inside a call
							      into the path but path_tick. */
	/* [C] Send a note to the peer's path, in order with everything else of the control connection.
	   bytes <= KVP_NOTE_MAX. False: the link is ending. */
	bool (*note)(struct kvp_path *path, const uint8_t *body, uint32_t bytes, void *ctx);
	/* [C] A line for the log, at a level of kvp_config.log_level. May be NULL. */
	void (*say)(struct kvp_path *path, uint32_t level, const char *text, void *ctx);
	void *ctx;
};

/* First member of a transport's own path. */
struct kvp_path {
	const struct kvp_transport *transport;
	struct kvp_path_config config;
	enum kvp_path_state state; /* [C] */
	bool is_silent; /* [C] set before its endpoints go down for good: nothing is built any more */
	bool wants_lanes; /* [C] CONNECTING, and its endpoints must be attached to get any further */
	struct kvp_error error;
	char text
		[384]; /* what moves the bytes, for kvp_link_info.path; [C] may change it any time */
	struct kvp_endpoint *endpoint[KVP_ENDPOINTS_MAX];
};

/* First member of a transport's own endpoint, which is laid out by writer. */
struct kvp_endpoint {
	/* const after create */
	const struct kvp_transport *transport;
	struct kvp_path *path;
	struct kvp_lane *lane;
	uint32_t index; /* within the path */
	int fd; /* progress is called when it is readable or writable; -1: progress in every loop */

	/* lane: rw */
	struct kvp_part *active; /* ring of parts, the next to serve; NULL none */
	uint32_t parts;
	uint32_t lane_slot; /* its place in the lane's table */
	bool is_down;       /* lane: parts that arrive are failed with `down_status` */
	kvp_status down_status;

	/* lane: wo. control, application: ro. Totals, never reset. */
	KVP_SPAN_START _Atomic uint64_t requests;
	_Atomic uint64_t pieces;
	_Atomic uint64_t bytes_out;
	_Atomic uint64_t bytes_in; /* pulled */
	_Atomic uint32_t
		failed; /* kvp_status: the connection is dead; the control thread was woken */
};

/* For kvp_link_info. */
struct kvp_totals {
	uint64_t doorbells, gathered, completions, replayed;
};

struct kvp_transport {
	const char *name;
	struct kvp_caps caps;

	/* [C] Once per engine. *state_out is this engine's own, given to stop. NO_TRANSPORT: this machine
	   lacks what it needs, so it may be left out where others are allowed and it is not required. */
	kvp_status (*start)(struct kvp_dataplane *dataplane, void **state_out,
			    struct kvp_error *err);
	void (*stop)(void *state);
	/* Does a setting ask for more than its name in the list? NULL: never. */
	bool (*is_required)(const struct kvp_config *config);

	/* [C] What a peer needs to judge reachability; goes into HELLO. */
	void (*describe)(struct kvp_dataplane *dataplane, struct kvp_blob *blob_out);
	/* [C] Judge a peer's description. SUCCESS, or NO_TRANSPORT with the reason. */
	kvp_status (*reachable)(struct kvp_dataplane *dataplane, const struct kvp_blob *peer,
				struct kvp_error *err);
	/* [C] Endpoints to use when both sides have these numbers of lanes. */
	uint32_t (*endpoints)(struct kvp_dataplane *dataplane, uint32_t peer_lanes);

	kvp_status (*path_create)(const struct kvp_path_config *config, struct kvp_path **path_out,
				  struct kvp_error *err);
	void (*path_offer)(struct kvp_path *path, struct kvp_blob *blob_out);
	kvp_status (*path_connect)(struct kvp_path *path, const struct kvp_blob *peer,
				   struct kvp_error *err);
	/* A data connection with this STREAM frame came to the engine's listener. True: it was this
	   path's and the fd is taken over. */
	bool (*path_accept)(struct kvp_path *path, int fd, const struct kvp_stream_frame *stream);
	void (*path_destroy)(struct kvp_path *path);
	/* [C] A note of the peer's path. A failure ends the link. May be NULL: notes are PROTOCOL. */
	kvp_status (*path_note)(struct kvp_path *path, const uint8_t *body, uint32_t bytes,
				struct kvp_error *err);
	/* [C] Timers, and what lanes left to do: after every wake-up. Returns nanoseconds until it wants
	   to run again, UINT64_MAX: no wish. May be NULL. */
	uint64_t (*path_tick)(struct kvp_path *path, uint64_t now_ns);

	/* [A] Make a cache's memory usable by devices, before anybody hears of the cache; *held_out goes to
	   cache->held and back to cache_forget, after nobody uses it any more. May take long. May be NULL. */
	kvp_status (*cache_hold)(struct kvp_dataplane *dataplane,
				 const struct kvp_local_cache *cache, void **held_out,
				 struct kvp_error *err);
	void (*cache_forget)(struct kvp_dataplane *dataplane, void *held);
	/* [C] Tell the peer's path what it needs to reach this cache; before its CACHE_ADD. May be NULL. */
	kvp_status (*cache_offer)(struct kvp_path *path, const struct kvp_local_cache *cache,
				  struct kvp_error *err);

	/* Share a region with the peer; sent before any CACHE_ADD that names it. */
	kvp_status (*region_add)(struct kvp_path *path, const struct kvp_region *region,
				 struct kvp_error *err);
	void (*region_gone)(struct kvp_path *path, uint32_t region_id);
	/* SUCCESS; IN_PROGRESS (a region is still on its way: `changed` will be called); else an
	   error that the transfers into this cache will show. */
	kvp_status (*view_open)(struct kvp_path *path, const struct kvp_remote_cache *cache,
				struct kvp_view **view_out, struct kvp_error *err);
	void (*view_close)(struct kvp_path *path, struct kvp_view *view);

	/* [L] After attach to / before detach from the lane. May be NULL. */
	void (*attached)(struct kvp_endpoint *endpoint);
	void (*detached)(struct kvp_endpoint *endpoint);
	/* [L] Poll what came in: acknowledgements, notifications, the peer's requests. Returns work done. */
	uint32_t (*progress)(struct kvp_endpoint *endpoint, uint64_t now_ns);
	/* [L] Turn some of part's cursor into work, inside its window, one bounded step. Returns work done;
	   calls kvp_lane_part_moved when all its bytes have landed. A part of an open push has none: its
	   layers have landed, and once their arrival is told as far as the transport has to, it has moved. */
	uint32_t (*post)(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
	/* [L] Deliver part's notification (part->is_refused is set before; clear it when 0 has another
	   reason than the receiver): 1 delivered, 0 not yet (called again), -1 the endpoint failed. */
	int (*notify)(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
	/* [L] Part is stopping: post nothing new. True once nothing of it is in flight. */
	bool (*stop_part)(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
	/* [L] This cache was withdrawn: write nothing into it any more. May be NULL. */
	void (*cache_gone)(struct kvp_endpoint *endpoint, int64_t local_cache_id);
	/* [L] The link ended: neither write nor read for the peer any more (refuse what it asks for
	   with NOT_YET_LINK). Own parts still drain. May be NULL. */
	void (*down)(struct kvp_endpoint *endpoint);
	/* [L] The lane is about to sleep in epoll: make the peer wake it. True: there is work, do not. */
	bool (*arm)(struct kvp_endpoint *endpoint);
	void (*disarm)(struct kvp_endpoint *endpoint);
	/* [C] Add what the endpoint's device did. May be NULL: there is none. */
	void (*totals)(const struct kvp_endpoint *endpoint, struct kvp_totals *totals);

	/* [A] Without an engine: what it would find here with this configuration and what it would take, as
	   lines for people; SUCCESS when it could start, else also why not. May be NULL: it always can. */
	kvp_status (*explain)(const struct kvp_config *config, char *text, size_t size);
};

/* In no order; a configuration gives the order by names. */
extern const struct kvp_transport *const kvp_transports[KVP_TRANSPORTS];

/* The transport called `name`, or NULL; *slot_out its index in kvp_transports (may be NULL). */
const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out);

#endif /* KVP_DATAPLANE_TRANSPORT_H */
