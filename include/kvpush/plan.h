/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - what the planner makes of a transfer, without a peer
 *
 * For tuning layouts and block allocators: needs no engine, touches no memory
 * behind the tensors, and uses the code that real transfers use.
 */
#ifndef KVPUSH_PLAN_H
#define KVPUSH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvp_plan_query {
	const struct kvp_tensor *src, *dst; /* whole caches */
	uint32_t src_tensors, dst_tensors;
	uint32_t tensors_per_layer;
	const uint64_t *src_blocks, *dst_blocks;
	size_t count;
	struct kvp_layers src_layers, dst_layers;
	uint64_t request_bytes_max; /* of one request; 0 = 1 MiB */
	uint32_t pieces_max;        /* memory pieces one request can gather; 0 = 1 */
};

struct kvp_plan_report {
	uint64_t bytes, pieces;
	uint64_t runs;       /* contiguous on both sides */
	uint64_t requests;   /* under the two limits of the query */
	uint64_t plan_bytes; /* memory of the plan itself */
	uint32_t block_runs; /* runs of block numbers, before tensors multiply them */
	uint32_t groups;     /* tensors after folding neighbours */
	uint32_t folded;     /* tensors that disappeared into a neighbour */
	uint32_t sorted;     /* 1: the planner had to sort the block pairs */
	char why[256];       /* one line: what limits merging */
};

/* Errors as kvp_push_blocks from "PARAM_INVALID: a bound < -1" on; *report_out only on SUCCESS. */
KVP_API kvp_status
kvp_plan_explain(const struct kvp_plan_query *query, struct kvp_plan_report *report_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_PLAN_H */
