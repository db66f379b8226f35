/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - the compact description of a transfer
 *
 * A plan is runs of block numbers x groups of tensors, and never lists pieces:
 * 119,296 scattered pieces of 64 tensors cost 1,864 runs and 64 groups. Lanes
 * expand it on the fly with a cursor (cursor.h).
 *
 * Shape:      run = [local, local+count) <-> [remote, remote+count), at least 1
 *             group = neighbouring tensors whose slots touch on both sides
 *                     (a [blocks][2][...] layout), moved as one wider tensor;
 *                     one tensor where only the beginning of each block moves
 * Invariant:  runs ascend by remote block, so that one request can hold neighbours whose
 *             remote sides follow each other (gather.h); no destination block occurs
 *             twice, while a pull may read a remote block for several; no two
 *             neighbouring runs could be one; ordinal = blocks in the runs before
 * Ownership:  the caller owns scratch and plan memory; a plan holds no pointer
 *             into the pairing, so that may go after kvp_plan_fill
 * Threads:    pure; a filled plan is const
 */
#ifndef KVP_ENGINE_PLAN_H
#define KVP_ENGINE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/cache.h>

#include "compiler.h"
#include "error.h"

/* What moves where; ranges, block numbers and sizes already checked (request.h). */
struct kvp_pairing {
	const struct kvp_tensor *local;  /* first of `tensors` neighbours in this engine's cache */
	const struct kvp_tensor *remote; /* the same in the peer's; base is an address over there */
	uint32_t remote_tensor;          /* number of remote[0] within its cache */
	uint32_t tensors;                /* >= 1 */
	const uint64_t *local_blocks;    /* count of them */
	const uint64_t *remote_blocks;   /* count of them */
	uint32_t count;                  /* >= 1 */
	uint64_t bytes_per_block;        /* from its start; 0 = all of block_bytes */
	uint32_t fold; /* groups end at multiples of so many tensors; 0 = nowhere */
	bool is_push;  /* the destination is remote (push) or local (pull) */
};

struct kvp_run {
	uint32_t local;   /* first block */
	uint32_t remote;  /* first block */
	uint32_t count;   /* blocks */
	uint32_t ordinal; /* blocks in earlier runs */
};
_Static_assert(sizeof(struct kvp_run) == 16, "four runs per cache line");

struct kvp_group {
	uint64_t local_base; /* address of block 0 of the first tensor */
	uint64_t local_stride;
	uint64_t remote_stride;
	uint64_t block_bytes;   /* of all tensors of the group together */
	uint32_t remote_tensor; /* first; offsets are relative to its base */
	uint32_t tensors;       /* folded into this group, >= 1 */
	bool is_dense;          /* block_bytes == both strides: a run is one extent */
};

struct kvp_plan {
	struct kvp_run *run;
	struct kvp_group *group;
	uint32_t runs;
	uint32_t groups;
	uint32_t blocks;    /* pairs */
	uint32_t is_sorted; /* remote blocks neither ascend nor descend in the caller's order */
	uint64_t pieces;    /* blocks x tensors */
	uint64_t extents; /* contiguous on both sides: what a transport that splits nothing moves */
	uint64_t bytes;
};

/* Bytes of scratch that kvp_plan_prepare and _fill need for `count` pairs. */
size_t
kvp_plan_scratch_bytes(uint32_t count);

/*
 * Sort by remote block (only when those neither ascend nor descend: linear otherwise), refuse
 * duplicate destinations (for a pull a second sort, unless its local blocks ascend or descend),
 * count runs and groups. Fills every number of *plan; run and group stay NULL. `scratch` (8-byte
 * aligned) carries the order to kvp_plan_fill. Returns KVP_SUCCESS, or KVP_PARAM_INVALID naming
 * the block that is a destination twice (*plan untouched).
 */
KVP_MUST_USE kvp_status
kvp_plan_prepare(const struct kvp_pairing *pairing, void *scratch, struct kvp_plan *plan,
		 struct kvp_error *err);

/* Bytes of memory a prepared plan's runs and groups need. */
size_t
kvp_plan_bytes(const struct kvp_plan *plan);

/* Write runs and groups into `memory` (8-byte aligned, kvp_plan_bytes) and point *plan there. */
void
kvp_plan_fill(const struct kvp_pairing *pairing, const void *scratch, void *memory,
	      struct kvp_plan *plan);

/*
 * The next `tensors` tensors of the plan from group *group_at_inout on, as a plan of its own that shares
 * runs and groups; *group_at_inout moves on. Groups must end there: pairing.fold.
 */
void
kvp_plan_slice(const struct kvp_plan *plan, uint32_t tensors, uint32_t *group_at_inout,
	       struct kvp_plan *slice_out);

/*
 * Cut the plan into at most `parts_max` shares of nearly equal bytes, none
 * smaller than `bytes_min` (so small transfers stay whole), cut between pieces.
 * first_byte[0..n] gets n+1 ascending positions from 0 to plan->bytes. Returns n >= 1.
 */
uint32_t
kvp_plan_split(const struct kvp_plan *plan, uint32_t parts_max, uint64_t bytes_min,
	       uint64_t *first_byte);

#endif /* KVP_ENGINE_PLAN_H */
