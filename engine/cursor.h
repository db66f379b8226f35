/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.h - a position in a plan, and the memory extents from there on
 *
 * The order is: groups, in a group runs, in a run blocks; so "byte position"
 * is well defined and parts are byte ranges of the plan.
 *
 * Invariant:  left <= bytes between the position and the end of the plan
 * Threads:    one owner (the lane of the part); the plan is const
 */
#ifndef KVP_ENGINE_CURSOR_H
#define KVP_ENGINE_CURSOR_H

#include <stdint.h>

#include "plan.h"

/* Fits the field of an extent; a power of two keeps what follows aligned. */
#define KVP_EXTENT_BYTES_MAX 0x80000000U

struct kvp_cursor {
	const struct kvp_plan *plan;
	uint32_t group;
	uint32_t run;
	uint32_t block;  /* within the run; stays 0 in a dense group */
	uint64_t offset; /* bytes already given out of the current extent */
	uint64_t left;   /* bytes until the end of the part */
};

/* Contiguous on both sides. */
struct kvp_extent {
	uint8_t *local;         /* address here */
	uint64_t remote_offset; /* from the base of remote_tensor */
	uint32_t remote_tensor;
	uint32_t bytes;
};

/* Start at byte `first` of the plan for `bytes` bytes; first + bytes <= plan->bytes. O(groups + log runs). */
void
kvp_cursor_init(struct kvp_cursor *cursor, const struct kvp_plan *plan, uint64_t first,
		uint64_t bytes);

/*
 * Write the next extents to `out`: at most `max` of them, together at most
 * `bytes_max` bytes (>= 1; the last one is cut when it does not fit, and goes on
 * next time). Returns how many, 0 only at the end.
 */
KVP_HOT uint32_t
kvp_cursor_next(struct kvp_cursor *cursor, uint32_t max, uint64_t bytes_max,
		struct kvp_extent *out);

/* The same with extents of at most `each_max` bytes, in [1, KVP_EXTENT_BYTES_MAX]. */
KVP_HOT uint32_t
kvp_cursor_next_each(struct kvp_cursor *cursor, uint32_t max, uint64_t bytes_max, uint32_t each_max,
		     struct kvp_extent *out);

#endif /* KVP_ENGINE_CURSOR_H */
