/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - a transport in memory: seeded, slow on purpose, and able to fail
 *
 * Requests copy into the memory of a fake view when they complete, a seeded
 * number of progress calls after they were posted; so a byte that lands after
 * its transfer's terminal status is really there to be seen.
 *
 * Ownership:  endpoints and transfers are made and freed by the test
 * Threads:    [T] test, any time  [I] before attach; the rest runs on the lane
 */
#ifndef KVP_FAKE_TRANSPORT_H
#define KVP_FAKE_TRANSPORT_H

#include "lane.h"

#define KVP_FAKE_FLIGHT_MAX 64U
#define KVP_FAKE_ALWAYS     UINT32_MAX

/* What endpoint->... of a real transport would be to the peer: the peer's tensors. */
struct kvp_fake_view {
	uint8_t *tensor[4];
};

struct kvp_fake_config {
	struct kvp_lane *lane;
	uint64_t seed;
	uint32_t
		delay_max; /* progress calls until a request completes: [0, delay_max]; 0 = in post */
	uint32_t step_bytes;      /* of one request, >= 1 */
	uint32_t window;          /* requests in flight per part, >= 1 */
	bool has_fd;              /* an eventfd that kvp_fake_poke makes readable, else polled */
	uint32_t fail_after;      /* completions until the connection dies; 0 = never */
	uint32_t notify_refusals; /* notify calls that answer "not yet" */
	bool is_notify_fatal;     /* notify answers -1 */
};

struct kvp_fake_flight {
	struct kvp_part *part;
	struct kvp_extent extent;
	uint64_t due; /* tick */
};

struct kvp_fake_endpoint {
	struct kvp_endpoint base;
	struct kvp_fake_config config; /* [I] */

	/* lane: rw */
	struct kvp_fake_flight flight[KVP_FAKE_FLIGHT_MAX];
	uint32_t flights;
	uint64_t random;
	uint64_t tick;
	uint32_t completed;
	uint32_t refusals_left;

	/* [T] rw */
	_Atomic bool is_stalled; /* completes and delivers nothing */

	/* lane: wo. [T] ro */
	_Atomic uint64_t posts;
	_Atomic uint64_t stops; /* calls of stop_part */
	_Atomic uint64_t notified;
	_Atomic uint64_t progressed;
	_Atomic uint64_t arms;
	_Atomic uint64_t disarms;
	_Atomic uint64_t downs;
	_Atomic uint64_t attaches;
	_Atomic uint64_t detaches;
	_Atomic int64_t gone; /* last cache_gone */
};

extern const struct kvp_transport kvp_fake_transport;

/* Aborts when memory or descriptors run out. */
struct kvp_fake_endpoint *
kvp_fake_endpoint_create(const struct kvp_fake_config *config);
void
kvp_fake_endpoint_destroy(struct kvp_fake_endpoint *fake);
/* [T] Make the fd readable; the endpoint's progress runs once for it. */
void
kvp_fake_poke(const struct kvp_fake_endpoint *fake);

/* One transfer of `bytes` as one block, split evenly over endpoints. */
struct kvp_fake_transfer {
	struct kvp_transfer transfer; /* first member */
	struct kvp_run run;
	struct kvp_group group;
	struct kvp_fake_view view;
	uint32_t splits;
};

struct kvp_fake_order {
	uint8_t *src; /* bytes of them, read */
	uint8_t *dst; /* bytes of them, written */
	uint32_t bytes;
	uint64_t submit_ns;
	uint64_t deadline_ns;
	bool has_notify;
	int64_t local_cache;
	_Atomic uint32_t *hold;                    /* counted down at the end, or NULL */
	struct kvp_fake_endpoint *const *endpoint; /* splits of them */
	uint32_t splits;                           /* parts, [1, KVP_PARTS_MAX] */
};

struct kvp_fake_transfer *
kvp_fake_transfer_create(const struct kvp_fake_order *order);
void
kvp_fake_transfer_destroy(struct kvp_fake_transfer *fake);
/* Submit all parts, each to its endpoint's lane; neighbours on one lane together. False: a ring is full. */
bool
kvp_fake_transfer_submit(struct kvp_fake_transfer *fake);
/* Next number of a seeded sequence. */
uint64_t
kvp_fake_random(uint64_t *state);

#endif /* KVP_FAKE_TRANSPORT_H */
