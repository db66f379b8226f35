/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather.h - which neighbours of a plan share one request, and what that costs
 *
 * A request of a device names one contiguous range of the peer's memory and a
 * list of local pieces. Extents whose remote sides follow each other can share
 * one: a WRITE then gathers, a READ scatters. Runs ascend by remote block
 * (plan.h), so what can be gathered is neighbours in the order of the cursor.
 *
 * Rule:       kvp_gather_fits, in the posting loop and in the counter alike, over extents that
 *             are asked from the cursor with at most bytes_max bytes each (kvp_cursor_next for one,
 *             kvp_cursor_next_each for many at once)
 * Invariant:  1 <= pieces_max, 1 <= bytes_stop <= bytes_max <= KVP_EXTENT_BYTES_MAX
 * Threads:    pure
 */
#ifndef KVP_ENGINE_GATHER_H
#define KVP_ENGINE_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"
#include "cursor.h"
#include "plan.h"

/*
 * Defaults. A request of its own costs a 100 Gb/s port about 190 ns more than its bytes take,
 * whatever their number (requests of 4 KiB reach 8.0 of 12.5 GB/s). A further piece is 16 bytes of
 * descriptor and one more address to fetch. At 256 KiB, 21 us on the wire, another request is
 * below 1 %.
 */
#define KVP_COST_REQUEST_NS      190U
#define KVP_COST_PIECE_NS        15U
#define KVP_COST_BYTES_PREFERRED (256U << 10)
#define KVP_COST_BYTES_MAX       (1U << 20)

/*
 * What requests cost and may be. 0 in a field: its default above; 1 for pieces_max. A request that
 * holds bytes_preferred takes no further piece, since more requests go over more connections at
 * once; but no extent is cut for it.
 */
struct kvp_cost {
	uint32_t request_ns; /* of a request with its first piece, beyond the time of its bytes */
	uint32_t piece_ns;   /* of every further piece */
	uint32_t pieces_max; /* local pieces that one request can have */
	uint64_t bytes_preferred;
	uint64_t bytes_max; /* of a request; a longer extent is cut */
};

/* What the posting loop needs of it, from kvp_gather_limits_of. */
struct kvp_gather_limits {
	uint32_t pieces_max;
	uint32_t bytes_stop;
	uint32_t bytes_max;
};

/* The same with every 0 replaced by its default. */
struct kvp_cost
kvp_cost_complete(const struct kvp_cost *cost);

/* Of any cost, also a partly filled one. Pieces that cost as much as requests are not gathered. */
struct kvp_gather_limits
kvp_gather_limits_of(const struct kvp_cost *cost);

/*
 * Does `extent` go into the open request, which has `pieces` pieces (0: there is none) of together
 * `bytes` bytes and whose remote range ends at `end_offset` of remote tensor `tensor`? Else it
 * starts the next one.
 */
static inline bool
kvp_gather_fits(const struct kvp_gather_limits *limits, uint32_t pieces, uint32_t bytes,
		uint64_t end_offset, uint32_t tensor, const struct kvp_extent *extent)
{
	return extent->remote_offset == end_offset && extent->remote_tensor == tensor &&
	       pieces != 0 && pieces < limits->pieces_max && bytes < limits->bytes_stop &&
	       extent->bytes <= limits->bytes_max - bytes;
}

/* A whole plan, posted when no window interrupts that. */
struct kvp_gather_tally {
	uint64_t requests;
	uint64_t pieces; /* in them, together */
	/* Requests after which the next begins because */
	uint64_t gaps;  /* its remote side does not follow */
	uint64_t large; /* they have bytes_stop bytes, or would come to more than bytes_max */
	uint64_t full;  /* they have pieces_max pieces */
};

void
kvp_gather_tally(const struct kvp_plan *plan, const struct kvp_gather_limits *limits,
		 struct kvp_gather_tally *tally_out);

/* Only the first two numbers. */
void
kvp_gather_count(const struct kvp_plan *plan, const struct kvp_gather_limits *limits,
		 uint64_t *requests_out, uint64_t *pieces_out);

/* Modelled time of so many requests and pieces, without that of their bytes. */
uint64_t
kvp_cost_ns(const struct kvp_cost *cost, uint64_t requests, uint64_t pieces);

#endif /* KVP_ENGINE_GATHER_H */
