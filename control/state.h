/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.h - struct kvp_engine and what hangs off it; private to control/
 *
 * One lock guards all tables. The control thread holds it while it runs a
 * callback, application threads while they look something up; nobody holds it
 * while waiting for a peer, only (briefly) for a lane. Lanes never take it.
 * Waiters sleep on `changed` and look again.
 *
 * Ownership:  links, caches and regions belong to the engine. What a running
 *             transfer uses is counted in `holds` (transfer.h) and outlives it.
 * Threads:    [C] control thread, lock held  [A] application, lock held
 */
#ifndef KVP_CONTROL_STATE_H
#define KVP_CONTROL_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvpush/kvpush.h>

#include "channel.h"
#include "inbox.h"
#include "lane.h"
#include "reactor.h"
#include "region.h"
#include "tally.h"
#include "transport.h"
#include "wire.h"

#define KVP_PENDING_MAX  64U   /* connections that have not said who they are */
#define KVP_HANDSHAKE_MS 2000U /* for them to say it */

/* Shareable memory of this engine. */
struct kvp_shared {
	struct kvp_shared *next;
	struct kvp_region *region;
	uint32_t caches; /* registered inside */
	bool is_cache;   /* made by kvp_cache_allocate: goes with its cache */
};

/* A cache of this engine. */
struct kvp_cache {
	struct kvp_local_cache local; /* what lanes see */
	struct kvp_tensor *tensors;
	struct kvp_span *spans;
	struct kvp_shared **shared;        /* per tensor; NULL = private memory */
	const struct kvp_region **regions; /* the same, as lanes and transports see it */
	struct kvp_device_memory memory;   /* of local.memory */
	bool is_leaving;                   /* release began: no new transfers, not announced */
	_Atomic uint32_t holds;            /* transfers that use it */
};

/* A cache of the peer. */
struct kvp_remote {
	struct kvp_remote_cache cache;
	struct kvp_remote_tensor *announced;
	struct kvp_tensor *tensors; /* the same, plain, for the planner */
	struct kvp_view *view;
	kvp_status view_status; /* IN_PROGRESS until its regions came */
	struct kvp_error view_error;
	bool is_gone; /* the peer released it: waits for holds to reach 0 */
	_Atomic uint32_t holds;
};

enum kvp_link_step {
	KVP_STEP_CONNECT = 0, /* initiator: TCP connection under way */
	KVP_STEP_HELLO,       /* initiator: waits for WELCOME */
	KVP_STEP_PATH,        /* initiator: waits for the peer's PATH; acceptor: the initiator's */
	KVP_STEP_CATALOGUE,   /* path coming up, catalogues crossing */
	KVP_STEP_READY,
	KVP_STEP_CLOSING, /* no new transfers; waits for holds, then freed */
};

struct kvp_link {
	struct kvp_link *next;
	struct kvp_engine *engine;
	struct kvp_channel channel;
	struct kvp_path *path;
	enum kvp_link_step step;
	bool is_initiator;
	bool is_attached;   /* endpoints are known to their lanes */
	bool has_catalogue; /* the peer's CATALOGUE_END came */
	bool has_sent_ready;
	bool is_peer_ready;
	bool is_silent;    /* lanes move nothing for it any more */
	bool is_unlinking; /* we sent UNLINK or BYE */
	uint32_t
		watchers; /* callers of kvp_link, kvp_unlink that hold the pointer: not freed before */
	bool is_merged; /* lost against the peer's own link to us */
	bool was_ready;
	uint32_t waiting; /* catalogue entries whose view is IN_PROGRESS */
	uint64_t cluster_id;
	bool has_cluster;
	uint64_t boot_id;
	uint32_t role;
	uint32_t peer_lanes;
	uint64_t dead_ns; /* silence after which the peer is lost */
	uint64_t last_sent_ns;
	uint64_t deadline_ns;  /* of the handshake */
	struct kvp_hello peer; /* rails, until the path is chosen */
	char address[64];
	char not_over[256]; /* transports preferred to the path's, and why they were not taken */
	kvp_status doubt;   /* handshake: something broke; the peer's REFUSE may still say why */
	kvp_status status;  /* why it ended */
	struct kvp_error error;
	uint64_t sync_asked, sync_sent, sync_acked;
	uint32_t *regions_shared; /* ids already given to the path */
	uint32_t regions;
	int64_t *gone_sent; /* our caches whose CACHE_GONE the peer has not confirmed */
	uint32_t gone;
	struct kvp_remote *remote[KVP_CACHES_MAX]; /* open addressing by id */
	uint32_t remotes;
	_Atomic uint32_t holds;
	struct kvp_tally *tally; /* per lane: its own transfers */
};

/* A connection that has not said who it is. */
struct kvp_pending {
	struct kvp_pending *next;
	struct kvp_engine *engine;
	struct kvp_channel channel;
	uint64_t deadline_ns;
};

/* Something for the control thread to do while a caller waits. */
struct kvp_command {
	struct kvp_command *next;
	void (*run)(struct kvp_engine *engine, void *arg);
	void *arg;
	bool is_done;
};

struct kvp_engine {
	struct kvp_config config; /* role and listen: under the lock, kvp_set_role changes them */
	uint32_t fork_generation;
	uint32_t transports; /* in order of preference, those that started */
	char left_out[256];  /* "verbs: why": configured, but this machine has not got it */
	const struct kvp_transport *transport[KVP_TRANSPORTS];
	struct kvp_dataplane dataplane;
	struct kvp_lane *lane[KVP_LANES_MAX];
	struct kvp_inbox *inbox;
	struct kvp_reactor reactor;
	pthread_t thread;
	struct kvp_watch listener;
	_Atomic uint16_t port;  /* 0: not listening */
	_Atomic uint32_t holds; /* transfers in flight */
	_Atomic uint64_t next_transfer;
	_Atomic uint64_t refused[KVP_STATS_REASONS]; /* submits that failed, any thread */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_stopping;
	struct kvp_command *commands;
	struct kvp_command **commands_end;
	struct kvp_link *links;
	uint32_t link_count;
	struct kvp_pending *pending;
	uint32_t pending_count;
	struct kvp_event_backlog *backlog; /* events that found the inbox full */
	struct kvp_event_backlog **backlog_end;
	struct kvp_shared *shared;
	uint32_t next_region;
	struct kvp_cache *cache[KVP_CACHES_MAX]; /* open addressing by id */
	uint32_t caches;
	int64_t next_cache;
	struct kvp_tally past; /* of links that are gone */
	uint64_t now_ns;       /* [C] read once per loop */
};

/* engine.c: SUCCESS, or FAILED when `engine` is NULL, closed, or of the process before fork. */
kvp_status
kvp_engine_check(const struct kvp_engine *engine, struct kvp_error *err);

/* loop.c */
void *
kvp_loop_main(void *engine);
/* [A] without lock: run `run(engine, arg)` on the control thread and wait for it. */
void
kvp_loop_call(struct kvp_engine *engine, void (*run)(struct kvp_engine *engine, void *arg),
	      void *arg);
/* [A] lock held: wait until something changed or `deadline_ns`. False when the deadline passed. */
bool
kvp_engine_wait(struct kvp_engine *engine, uint64_t deadline_ns);
/* [C] Tell waiters. */
void
kvp_engine_changed(struct kvp_engine *engine);

/* event.c: [C] queue an event; kept and retried when the inbox is full. */
void
kvp_event_raise(struct kvp_engine *engine, const struct kvp_event *event);
/* [C] Try the kept ones again. */
void
kvp_event_flush(struct kvp_engine *engine);
void
kvp_event_drop_all(struct kvp_engine *engine);

/* shared.c. Lock held: at, unlink. [A] without lock: create, take. */
/* The region that has all of these bytes, or NULL. */
struct kvp_shared *
kvp_shared_at(struct kvp_engine *engine, uint64_t address, uint64_t bytes);
struct kvp_shared *
kvp_shared_create(struct kvp_engine *engine, uint64_t bytes, kvp_status *status_out,
		  struct kvp_error *err);
/* [C] Nobody knows it any more; peers' mappings go when their views do. */
void
kvp_shared_unlink(struct kvp_engine *engine, struct kvp_shared *gone);
/* Unlink the region that starts at `memory`: a cache's own, or the application's. NULL: none, or busy. */
struct kvp_shared *
kvp_shared_take(struct kvp_engine *engine, void *memory, bool is_cache, bool *is_busy_out);
void
kvp_shared_destroy(struct kvp_shared *shared);

/* stats.c */
/* [A][C] Lock held. Add what the link's lanes counted. */
void
kvp_link_tally(const struct kvp_link *link, struct kvp_tally *into);
/* [A] A call for a transfer was refused. */
void
kvp_tally_refused(struct kvp_engine *engine, kvp_status status);

/* cache.c: [A][C] */
struct kvp_cache *
kvp_cache_find(struct kvp_engine *engine, int64_t cache_id);
/* Transports let go of all caches: before they stop. */
void
kvp_cache_forget_all(struct kvp_engine *engine);
void
kvp_cache_free_all(struct kvp_engine *engine);

/* listen.c: [C] */
/* Listen there instead of where it listened before; "" = nowhere. After an error all is as before. */
KVP_MUST_USE kvp_status
kvp_listen_open(struct kvp_engine *engine, const char *listen, struct kvp_error *err);
void
kvp_listen_close(struct kvp_engine *engine);
void
kvp_listen_tick(struct kvp_engine *engine);

/* handshake.c: [C] */
/* Begin to link to `peer`. The link is watched; NULL with `err` when it cannot even begin. */
struct kvp_link *
kvp_link_begin(struct kvp_engine *engine, const struct sockaddr_storage *peer, socklen_t peer_bytes,
	       const char *address, uint64_t deadline_ns, kvp_status *status_out,
	       struct kvp_error *err);
/* A connection said HELLO: refuse it, or make it a link (takes the channel over). True when taken. */
bool
kvp_link_accept(struct kvp_engine *engine, struct kvp_channel *channel, const char *address,
		const struct kvp_hello *hello);
/* Send REFUSE, as far as the socket takes it. */
void
kvp_channel_refuse(struct kvp_channel *channel, kvp_status status, const char *text);
/* A frame of a link that is not READY yet, or that belongs to the handshake. */
void
kvp_link_handshake_frame(struct kvp_link *link, uint8_t type, const uint8_t *body, uint32_t bytes);
/* Send READY when everything is there; READY on both sides makes the link usable. */
void
kvp_link_advance(struct kvp_link *link);

/* catalogue.c: [C] */
void
kvp_catalogue_send_all(struct kvp_link *link);
void
kvp_catalogue_announce(struct kvp_link *link, const struct kvp_cache *cache);
void
kvp_catalogue_add(struct kvp_link *link, const uint8_t *body, uint32_t bytes);
void
kvp_catalogue_gone(struct kvp_link *link, int64_t cache_id);
/* Views whose regions have come since. */
void
kvp_catalogue_retry(struct kvp_link *link);
/* Free remote caches that are gone and no longer used; acknowledges them. True while some wait. */
bool
kvp_catalogue_reap(struct kvp_link *link);
struct kvp_remote *
kvp_remote_find(struct kvp_link *link, int64_t cache_id);
void
kvp_catalogue_free(struct kvp_link *link);

/* link.c: [C] unless said */
struct kvp_link *
kvp_link_find(struct kvp_engine *engine, uint64_t cluster_id); /* [A][C]; CLOSING ones not */
void
kvp_link_send(struct kvp_link *link, uint8_t type);
void
kvp_link_send_value(struct kvp_link *link, uint8_t type, uint64_t value);
void
kvp_link_frame(struct kvp_channel *channel, uint8_t type, const uint8_t *body, uint32_t bytes);
void
kvp_link_closed(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error);
void
kvp_link_path_changed(struct kvp_path *path, void *ctx);
void
kvp_link_say(struct kvp_path *path, uint32_t level, const char *text, void *ctx);
/* The path's way to the peer's path. */
bool
kvp_link_note(struct kvp_path *path, const uint8_t *body, uint32_t bytes, void *ctx);
/* End the link for `status`: transfers get `transfer_status`. Never frees at once: links are reaped by the tick. */
void
kvp_link_end(struct kvp_link *link, kvp_status status, kvp_status transfer_status,
	     const char *text);
/* Own transfers end with `why`, the peer's are refused: nothing lands here once this returns. */
void
kvp_link_silence(struct kvp_link *link, kvp_status why);
/*
 * Something of the link broke. It ends in a moment, unless the peer's own reason arrives
 * before: a data connection is seen closing before the BYE that was sent first.
 */
void
kvp_link_broke(struct kvp_link *link, kvp_status status, const char *text);
/* Heartbeats, deadlines, reaping. Returns nanoseconds until it wants to run again. */
uint64_t
kvp_link_tick(struct kvp_engine *engine);

#endif /* KVP_CONTROL_STATE_H */
