/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.h - one polling thread: serves the endpoints it owns
 *
 * kvp_lane_run_once drains the submit ring and the control ring, lets every
 * endpoint progress, and gives every active part of every endpoint one bounded
 * step, round robin, so that no transfer starves another. It takes no lock, and
 * makes no system call unless an endpoint has an fd or somebody sleeps.
 *
 * Threads:    [A] any  [C] control thread  [L] the lane itself
 */
#ifndef KVP_DATAPLANE_LANE_H
#define KVP_DATAPLANE_LANE_H

#include <stdint.h>

#include "error.h"
#include "transport.h"

struct kvp_lane_config {
	uint32_t index; /* within the engine */
	int cpu;        /* -1 = not pinned */
	uint32_t idle;  /* enum kvp_idle */
	uint32_t idle_us;
	uint32_t ring_parts;         /* submit ring, power of two */
	struct kvp_reactor *reactor; /* woken when an endpoint failed */
	const char *name;            /* of the thread, <= 15 characters */
};

/* [C] Create and start the thread (an lcore). NO_RESOURCE, OUT_OF_MEMORY. */
KVP_MUST_USE kvp_status
kvp_lane_create(const struct kvp_lane_config *config, struct kvp_lane **lane_out,
		struct kvp_error *err);
/* [C] Stop and join; all endpoints must be detached and no part queued. NULL is a no-op. */
void
kvp_lane_destroy(struct kvp_lane *lane);

/*
 * [A] Hand over part[0..count) of one transfer, all or none, all for endpoints of this lane. One mutex, uncontended unless two
 * threads submit to the same lane. False: ring full, nothing handed over.
 */
bool
kvp_lane_submit(struct kvp_lane *lane, struct kvp_part *const *part, uint32_t count);
/* [A] Make a sleeping lane look again (a transfer was stopped). */
void
kvp_lane_kick(struct kvp_lane *lane);

/* [C] All of these run on the lane and return when it did them. */
KVP_MUST_USE kvp_status
kvp_lane_attach(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_error *err);
/*
 * The link ended: parts end with `why`, those that still arrive too, and nothing is written or read
 * for the peer once this returns. The endpoint stays known to the lane until _detach.
 */
void
kvp_lane_down(struct kvp_lane *lane, struct kvp_endpoint *endpoint, kvp_status why);
/* After the path's transfers have all ended: the lane forgets the endpoint. */
void
kvp_lane_detach(struct kvp_lane *lane, struct kvp_endpoint *endpoint);
/* Make a cache known to this lane's endpoints. NO_RESOURCE: KVP_CACHES_MAX. */
KVP_MUST_USE kvp_status
kvp_lane_cache_add(struct kvp_lane *lane, const struct kvp_local_cache *cache,
		   struct kvp_error *err);
/* Forget it: nothing is written into it after this returns; transfers from or into it are stopped (CACHE_NOT_EXIST). */
void
kvp_lane_cache_remove(struct kvp_lane *lane, int64_t cache_id);
/* Stop transfers that use this view (the peer's cache is gone). Repeat until its hold is 0. */
void
kvp_lane_stop_view(struct kvp_lane *lane, const struct kvp_view *view, kvp_status why);

/* [L] For transports. */
const struct kvp_local_cache *
kvp_lane_cache_find(const struct kvp_lane *lane, int64_t cache_id);
uint32_t
kvp_lane_index(const struct kvp_lane *lane);
/* All bytes of the part have landed: retires it, or makes it the notifying one. The part may be gone afterwards. */
KVP_HOT void
kvp_lane_part_moved(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
/* The endpoint's connection is dead: fail its parts, tell control. */
KVP_COLD void
kvp_lane_endpoint_failed(struct kvp_endpoint *endpoint, kvp_status why, uint64_t now_ns);
/* Wait for writability too (or no longer) on the endpoint's fd. */
void
kvp_lane_want_write(struct kvp_endpoint *endpoint, bool is_wanted);
/* This fd wakes the lane when it is readable, without saying for what: whoever added it empties it. 0, or -errno. */
int
kvp_lane_wake_add(struct kvp_lane *lane, int fd);
void
kvp_lane_wake_remove(struct kvp_lane *lane, int fd);
/* An eventfd that wakes this lane; for a peer on this host. */
int
kvp_lane_event_fd(const struct kvp_lane *lane);

/* Totals. [A] */
struct kvp_lane_totals {
	uint64_t loops, busy_loops, sleeps;
	uint64_t gap_max_ns; /* longest time between two loops while not asleep */
};
void
kvp_lane_totals(const struct kvp_lane *lane, struct kvp_lane_totals *totals_out);

#endif /* KVP_DATAPLANE_LANE_H */
