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
	uint32_t pieces_max;        /* memory pieces of one request; 0 = 1: each run has its own */
	uint32_t is_pull;           /* 0: a push, dst is the peer's; else src is */
	/* The cost model: are neighbours that touch on the peer's side gathered into one request? A
	   request takes no further piece once it has bytes_preferred bytes. */
	uint32_t request_ns; /* of a request with its first piece, without its bytes; 0 = 190 */
	uint32_t piece_ns;   /* of each further piece; 0 = 15 */
	uint64_t bytes_preferred; /* 0 = 256 KiB */
};

struct kvp_plan_report {
	uint64_t bytes, pieces;
	uint64_t runs;          /* contiguous on both sides */
	uint64_t requests;      /* under the limits and the costs of the query */
	uint64_t gathered;      /* memory pieces that they list, all together */
	uint64_t request_bytes; /* mean */
	uint64_t gather_ns;     /* modelled, without the bytes: runs gathered into requests */
	uint64_t single_ns;     /* ... and a request for each run */
	uint64_t plan_bytes;    /* memory of the plan itself */
	uint32_t block_runs;    /* runs of block numbers, before tensors multiply them */
	uint32_t groups;        /* tensors after folding neighbours */
	uint32_t folded;        /* tensors that disappeared into a neighbour */
	uint32_t sorted;        /* 1: the planner had to sort the block pairs */
	char why[640];          /* one line: what limits merging, and what gathering */
};

/* Errors as kvp_push_blocks from "PARAM_INVALID: a bound < -1" on; *report_out only on SUCCESS. */
KVP_API kvp_status
kvp_plan_explain(const struct kvp_plan_query *query, struct kvp_plan_report *report_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_PLAN_H */
