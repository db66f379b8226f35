/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_state.h - what a lane is made of; for dataplane/lane_*.c and tests
 *
 *   lane_fast.c    the loop body: parts from the ring to their end
 *   lane_poll.c    what the loop does with the kernel: readiness, sleep, dead connections
 *   lane_calls.c   what other threads ask of a lane
 *   lane_setup.c   memory, thread, start and end
 *
 * Invariant:  an endpoint is in busy[] exactly while it has active parts, in
 *             polled[] exactly while it has no fd and has not failed
 * Threads:    [L] the lane; a lane without a thread (kvp_lane_prepare) is driven by
 *             the one thread that calls kvp_lane_run_once and everything else on it
 */
#ifndef KVP_DATAPLANE_LANE_STATE_H
#define KVP_DATAPLANE_LANE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "lane.h"

struct rte_ring;

#define KVP_LANE_BURST     32U /* parts taken off the ring, endpoints served, events read per loop */
#define KVP_LANE_NAME_MAX  16U /* of a thread, with its NUL */
#define KVP_LANE_CACHE_BIN 2048U
#define KVP_LANE_NOWHERE   UINT32_MAX

_Static_assert((KVP_LANE_CACHE_BIN & (KVP_LANE_CACHE_BIN - 1)) == 0 &&
		       KVP_LANE_CACHE_BIN >= 2 * KVP_CACHES_MAX,
	       "half of a table with a mask is free");

/* What the lane knows of an endpoint; the endpoint's lane_slot is its index. */
struct kvp_lane_slot {
	struct kvp_endpoint *endpoint;
	int fd; /* as attached; -1 = polled */
	bool is_watched;
	bool wants_write;
	uint32_t polled_idx; /* in polled[], or KVP_LANE_NOWHERE */
	uint32_t busy_idx;   /* in busy[], while it has parts */
};

/* Room for endpoints: made by who attaches, so that the lane allocates nothing. */
struct kvp_lane_table {
	uint32_t room;
	struct kvp_lane_slot *slot;
	struct kvp_endpoint **polled;
	struct kvp_endpoint **busy;
};

struct kvp_lane_cache {
	int64_t id;
	const struct kvp_local_cache *cache; /* NULL = free */
};

/* A part that a transport's function was given, and whether it ended in there. */
struct kvp_lane_hand {
	const struct kvp_part *part; /* NULL: ended */
	struct kvp_lane_hand *outer;
};

enum kvp_lane_op {
	KVP_LANE_ATTACH,
	KVP_LANE_DOWN,
	KVP_LANE_DETACH,
	KVP_LANE_CACHE_ADD,
	KVP_LANE_CACHE_REMOVE,
	KVP_LANE_STOP_VIEW,
	KVP_LANE_END,
};

/* A message to the lane, on the stack of who waits for it. */
struct kvp_lane_call {
	enum kvp_lane_op op;
	struct kvp_endpoint *endpoint;
	const struct kvp_local_cache *cache;
	const struct kvp_view *view;
	int64_t cache_id;
	kvp_status why;
	struct kvp_lane_table *table; /* in: a larger one, or NULL. out: the one to free, or NULL */
	kvp_status status;
	struct kvp_error *err;
	_Atomic uint32_t done;
};

struct kvp_lane {
	/* const after start */
	struct kvp_lane_config config;
	char name[KVP_LANE_NAME_MAX];
	struct rte_ring *ring;
	int event_fd;
	int epoll_fd;
	bool has_thread; /* also: transfers end at the clock's time, not at the loop's */
	uint32_t owner;
	uint64_t idle_ns;
	pthread_t thread;
	struct kvp_lane_cache *cache; /* [KVP_LANE_CACHE_BIN] */

	/* lane: rw */
	KVP_SPAN_START struct kvp_lane_slot *slot;
	struct kvp_endpoint **polled;
	struct kvp_endpoint **busy;
	uint32_t polled_count;
	uint32_t polled_next;
	uint32_t busy_count;
	uint32_t busy_next;
	uint32_t fds;     /* endpoints in the epoll set */
	uint32_t fd_rest; /* loops until the epoll set is looked at while other work is there */
	uint32_t parts;   /* active */
	uint32_t slots;   /* attached */
	struct kvp_lane_hand *hand;
	struct kvp_lane_table *table;
	int64_t cache_newest; /* ids only grow: one that is older and not there was removed */
	uint64_t idle_since_ns;
	uint32_t empty_loops;
	uint32_t arm_refusals; /* since there was work */
	uint32_t caches;
	bool is_ending;

	/* lane: wo. application: ro. Totals, never reset. */
	KVP_SPAN_START _Atomic uint64_t loops;
	_Atomic uint64_t busy_loops;
	_Atomic uint64_t sleeps;
	_Atomic uint64_t gap_max_ns;

	/* application: rw. Producers of the ring, one at a time. */
	KVP_SPAN_START pthread_mutex_t submit_mutex;

	/* lane and application: rw, by read-modify-write only, so that each releases to the next */
	KVP_SPAN_START _Atomic uint32_t is_asleep; /* 1: write event_fd after giving it something */

	/* control: wo, under call_mutex. lane: looks once per loop, clears. */
	KVP_SPAN_START _Atomic(struct kvp_lane_call *) call;
	_Atomic uint32_t started; /* 0 not yet, 1 runs, 2 failed with start_error */
	struct kvp_error start_error;

	/* control: rw, under itself */
	KVP_SPAN_START pthread_mutex_t call_mutex;
	uint32_t room;     /* of the lane's table */
	uint32_t attached; /* endpoints */
};
_Static_assert(offsetof(struct kvp_lane, slot) % KVP_SHARE_SPAN == 0, "the lane's own");
_Static_assert(offsetof(struct kvp_lane, empty_loops) <
		       offsetof(struct kvp_lane, slot) + KVP_SHARE_SPAN,
	       "what the loop touches fits one span");
_Static_assert(offsetof(struct kvp_lane, loops) % KVP_SHARE_SPAN == 0,
	       "readers of the totals must not pull the lane's fields away");
_Static_assert(offsetof(struct kvp_lane, submit_mutex) % KVP_SHARE_SPAN == 0 &&
		       offsetof(struct kvp_lane, is_asleep) % KVP_SHARE_SPAN == 0 &&
		       offsetof(struct kvp_lane, call) % KVP_SHARE_SPAN == 0 &&
		       offsetof(struct kvp_lane, call_mutex) % KVP_SHARE_SPAN == 0,
	       "one span per writer");

/* [C] Everything of a lane but its thread: for tests, which then run the loop body themselves. */
KVP_MUST_USE kvp_status
kvp_lane_prepare(const struct kvp_lane_config *config, struct kvp_lane **lane_out,
		 struct kvp_error *err);
/* [C] Undo kvp_lane_prepare. */
void
kvp_lane_release(struct kvp_lane *lane);

/* [L] One loop. Returns the work done, 0 when there was none. */
KVP_HOT uint32_t
kvp_lane_run_once(struct kvp_lane *lane, uint64_t now_ns);
/* [L] Take at most KVP_LANE_BURST parts off the submit ring. Returns how many. */
KVP_HOT uint32_t
kvp_lane_drain(struct kvp_lane *lane, uint64_t now_ns);
/* [L] Stop a transfer and make the lanes of its other parts look. */
KVP_COLD void
kvp_lane_stop_transfer(struct kvp_lane *lane, struct kvp_transfer *transfer, kvp_status why);
/* [L] End a part of which nothing is in flight: off its endpoint, retired, published if the last. */
void
kvp_lane_part_end(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
/* [L] As part_end, for a stopped transfer; a part that waits for layers stays until they have ended. */
KVP_COLD void
kvp_lane_part_abort(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
/* [L] Take an endpoint out of polled[]; ignored when it is not there. */
void
kvp_lane_polled_remove(struct kvp_lane *lane, struct kvp_endpoint *endpoint);

/* [L] Let the endpoints progress whose fds are ready. Returns the work done. */
uint32_t
kvp_lane_poll_fds(struct kvp_lane *lane, uint64_t now_ns);
/* [L] Nothing was done: spin, pause, yield or sleep. True: it slept. */
bool
kvp_lane_idle(struct kvp_lane *lane, uint64_t now_ns);
/* [L] The endpoint's fd into / out of the epoll set. 0, or -errno. */
KVP_MUST_USE int
kvp_lane_watch(struct kvp_lane *lane, struct kvp_lane_slot *slot);
void
kvp_lane_unwatch(struct kvp_lane *lane, struct kvp_lane_slot *slot);

/* [L] Do what another thread waits for. Returns 1. */
KVP_COLD uint32_t
kvp_lane_obey(struct kvp_lane *lane, uint64_t now_ns);
/* [C] Give the lane a call and wait until it was done. */
void
kvp_lane_ask(struct kvp_lane *lane, struct kvp_lane_call *call);

static inline bool
kvp_endpoint_is_dead(const struct kvp_endpoint *endpoint)
{
	return atomic_load_explicit(&endpoint->failed, memory_order_relaxed) != KVP_SUCCESS;
}

#endif /* KVP_DATAPLANE_LANE_STATE_H */
