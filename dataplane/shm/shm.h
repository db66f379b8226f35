/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm.h - the shm transport: peers on this host, through mapped memory
 *
 * A path is one UNIX connection between two engines. Over it each sends the
 * memory of the rings it reads, an eventfd per endpoint to wake its lane, and
 * its regions. After that bytes move by plain copies, and nothing else of the
 * connection is needed: when it closes, the path stays up.
 *
 *   shm_setup.c    the table; start, stop; the listener; is the peer on this host?
 *   shm_path.c     a path from create to destroy
 *   shm_socket.c   the UNIX connection: queue, send, receive, check
 *   shm_region.c   our regions to the peer, the peer's regions mapped here; views
 *   shm_foreign.c  the peer's private memory, by process_vm_readv/writev
 *   shm_ring_fast.c, shm_fast.c   what lanes run
 *
 * Threads:    [C] control thread  [L] lane of the endpoint
 */
#ifndef KVP_SHM_H
#define KVP_SHM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "copy.h"
#include "reactor.h"
#include "shm_ring.h"
#include "shm_wire.h"
#include "transport.h"

#define KVP_SHM_FDS_MAX     (1U + KVP_ENDPOINTS_MAX)
#define KVP_SHM_PENDING_MAX 64U   /* connections that have not said yet whose they are */
#define KVP_SHM_REGIONS_MAX 4096U /* of one peer */
#define KVP_SHM_BATCH       64U   /* extents in one go, and in one process_vm call */

struct kvp_shm_path;
struct kvp_shm_state;

/* A region of the peer, mapped here. */
struct kvp_shm_region {
	struct kvp_shm_region *next;
	uint32_t id;
	bool is_gone;  /* the peer withdrew it; unmapped with its last view */
	uint8_t *base; /* NULL: mapping it failed with `error` */
	int error;
	uint64_t bytes;
	uint64_t populated; /* bytes whose pages are in our page table for sure */
	uint64_t uses;      /* tensors of open views */
};

/* A message on its way out. Its descriptors are borrowed. */
struct kvp_shm_outgoing {
	struct kvp_shm_outgoing *next;
	struct kvp_shm_message message;
	int fd[KVP_SHM_FDS_MAX];
	uint32_t fds;
};

/* The way into the peer's private memory. */
struct kvp_shm_foreign {
	pid_t pid;
	int pid_fd; /* readable once the peer is dead, so that its pid may be another's; or -1 */
	kvp_status status; /* SUCCESS: usable */
	char why[192];     /* else why not, and what to change */
	/* [L] kvp_shm_foreign_move; through a pointer: the only lane code here that enters the kernel. */
	kvp_status (*move)(const struct kvp_shm_foreign *foreign, bool is_push,
			   const struct iovec *local, const struct iovec *remote, uint32_t count);
};

struct kvp_shm_endpoint {
	struct kvp_endpoint base;

	/* const after attach */
	KVP_SPAN_START const struct kvp_copy_kernels *kernels;
	struct kvp_shm_path *path;
	struct kvp_inbox *inbox;
	int peer_event_fd; /* wakes the peer's lane */

	/* lane: rw */
	struct kvp_shm_reader reader;
	struct kvp_shm_writer writer;
	bool is_broken; /* the peer broke a ring: neither is used any more */

	/* lane: wo. tests: ro. */
	_Atomic uint64_t notes_dropped; /* for caches that are gone */
};
_Static_assert(offsetof(struct kvp_shm_endpoint, kernels) % KVP_SHARE_SPAN == 0,
	       "readers of the totals must not pull the lane's line away");

/* A tensor of the peer, as lanes reach it. */
struct kvp_shm_tensor {
	uint8_t *mapped;  /* block 0 here, or NULL: at `address` in the peer's private memory */
	uint64_t limit;   /* bytes from block 0 to the end of what may be touched */
	uint64_t address; /* block 0 over there */
	struct kvp_shm_region *region;
};

/* Const between open and close. */
struct kvp_view {
	uint32_t num_tensors;
	struct kvp_shm_tensor tensor[];
};

struct kvp_shm_path {
	struct kvp_path base;
	struct kvp_shm_state *state;
	struct kvp_shm_path *next; /* of the state */
	uint8_t token[KVP_TOKEN_BYTES];
	uint8_t peer_token[KVP_TOKEN_BYTES]; /* initiator: what to attach with */
	struct kvp_watch watch;              /* of the connection; fd -1: none */
	bool is_closed; /* the connection came and went: no more regions come */
	struct kvp_shm_outgoing *out_first;
	struct kvp_shm_outgoing *out_last;
	struct kvp_region *rings; /* ours: what the peer writes into */
	uint8_t *peer_rings;      /* the peer's: what we write into */
	uint64_t peer_rings_bytes;
	struct kvp_shm_foreign foreign;
	struct kvp_shm_region *regions;
	uint32_t num_regions;
	struct kvp_shm_endpoint endpoint[]; /* [config.endpoints] */
};

/* Every path of this transport was made by kvp_shm_path_create, which aligned it. */
static inline struct kvp_shm_path *
kvp_shm_path_of(struct kvp_path *base)
{
	return (struct kvp_shm_path *)(void *)base;
}

struct kvp_shm_pending {
	struct kvp_watch watch; /* fd -1: free */
	struct kvp_shm_state *state;
};

struct kvp_shm_state {
	struct kvp_dataplane *dataplane;
	struct kvp_shm_description here;
	char name[KVP_SHM_NAME_BYTES];
	struct kvp_watch listener;
	struct kvp_watch
		populate; /* an eventfd that is always readable, watched while there is work */
	bool is_populating;
	uint64_t probe; /* random; peers read it to see that they reach this process */
	struct kvp_shm_path *paths;
	struct kvp_shm_pending pending[KVP_SHM_PENDING_MAX];
	uint32_t pending_next; /* the slot to take when all are taken */
};

/* shm_setup.c */

/* This engine's state, from its data plane. */
struct kvp_shm_state *
kvp_shm_state_of(const struct kvp_dataplane *dataplane);

/* shm_path.c */
kvp_status
kvp_shm_path_create(const struct kvp_path_config *config, struct kvp_path **path_out,
		    struct kvp_error *err);
void
kvp_shm_path_offer(struct kvp_path *base, struct kvp_blob *blob_out);
kvp_status
kvp_shm_path_connect(struct kvp_path *base, const struct kvp_blob *peer, struct kvp_error *err);
bool
kvp_shm_path_accept(struct kvp_path *base, int fd, const struct kvp_stream_frame *stream);
void
kvp_shm_path_destroy(struct kvp_path *base);

/*
 * The peer's first message came on `sock` with its descriptors, for this path. Takes over the
 * socket and the descriptors it needs (sets them to -1). Ends UP or FAILED; calls `changed` last,
 * so the path may be gone afterwards.
 */
void
kvp_shm_path_attached(struct kvp_shm_path *path, int sock, const struct kvp_shm_message *message,
		      int *fd);

/* The path's own connection has something to read, or room to write. */
void
kvp_shm_path_ready(struct kvp_watch *watch, uint32_t events);

/* FAILED with `format` as error; closes the connection. The caller calls `changed` later. */
KVP_COLD void
kvp_shm_path_fail(struct kvp_shm_path *path, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* shm_socket.c */

/* Start to watch the connected `sock` for the path. 0, or -errno (the socket is the caller's). */
KVP_MUST_USE int
kvp_shm_socket_open(struct kvp_shm_path *path, int sock);
/* Close the connection, drop what was queued. */
void
kvp_shm_socket_close(struct kvp_shm_path *path);
/* Queue a message with `fds` borrowed descriptors. OUT_OF_MEMORY. */
KVP_MUST_USE kvp_status
kvp_shm_socket_queue(struct kvp_shm_path *path, const struct kvp_shm_message *message,
		     const int *fd, uint32_t fds, struct kvp_error *err);
/* Drop the queued message that announces this region. True when there was one. */
bool
kvp_shm_socket_unqueue(struct kvp_shm_path *path, uint32_t region);
/* Send what the socket takes, wait for room for the rest. 0, or -errno: the connection is dead. */
KVP_MUST_USE int
kvp_shm_socket_flush(struct kvp_shm_path *path);

/*
 * Take one message off `sock`. 1: it is well-formed, and its descriptors, exactly as many as its
 * type needs, are in fd[0..*fds_out), the caller's. 0: none yet. -EPIPE: the peer closed.
 * -EPROTO: malformed, all its descriptors are closed. Else -errno.
 */
KVP_MUST_USE int
kvp_shm_socket_receive(int sock, struct kvp_shm_message *message_out, int *fd, uint32_t *fds_out);

/* Is the peer of `sock` of our user? Its pid (0: not visible from here) to *pid_out. */
bool
kvp_shm_socket_is_trusted(int sock, pid_t *pid_out, uint32_t *uid_out);

/* shm_region.c */

/*
 * Map a descriptor of the peer: a memfd of `bytes` bytes, sealed against shrinking. Returns 0, or
 * -EPROTO: not that; else -errno of mmap.
 */
KVP_MUST_USE int
kvp_shm_map(int fd, uint64_t bytes, uint8_t **base_out);
/* The peer announced a region. 0, or -EPROTO. */
KVP_MUST_USE int
kvp_shm_region_came(struct kvp_shm_path *path, const struct kvp_shm_message *message, int fd);
/* The peer withdrew a region. */
void
kvp_shm_region_left(struct kvp_shm_path *path, uint32_t id);
void
kvp_shm_regions_free(struct kvp_shm_path *path);
/* The `populate` watch: puts the next few pages of mapped regions into our page table. */
void
kvp_shm_populate_ready(struct kvp_watch *watch, uint32_t events);

kvp_status
kvp_shm_region_add(struct kvp_path *base, const struct kvp_region *region, struct kvp_error *err);
void
kvp_shm_region_gone(struct kvp_path *base, uint32_t region_id);
kvp_status
kvp_shm_view_open(struct kvp_path *base, const struct kvp_remote_cache *cache,
		  struct kvp_view **view_out, struct kvp_error *err);
void
kvp_shm_view_close(struct kvp_path *base, struct kvp_view *view);

/* shm_foreign.c */

/* Find out whether process `pid`, which says that it has `value` at `address`, can be reached. */
void
kvp_shm_foreign_open(struct kvp_shm_foreign *foreign, pid_t pid, uint64_t address, uint64_t value);
void
kvp_shm_foreign_close(struct kvp_shm_foreign *foreign);

/* shm_fast.c */
KVP_HOT uint32_t
kvp_shm_progress(struct kvp_endpoint *base, uint64_t now_ns);
KVP_HOT uint32_t
kvp_shm_post(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns);
int
kvp_shm_notify(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns);
bool
kvp_shm_stop_part(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns);
bool
kvp_shm_arm(struct kvp_endpoint *base);
void
kvp_shm_disarm(struct kvp_endpoint *base);

#endif /* KVP_SHM_H */
