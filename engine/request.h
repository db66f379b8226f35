/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request.h - is this transfer allowed, and over which tensors does it run?
 *
 * The rules of LLM-DataDist's PushKvBlocks (its layer-range table), with the
 * differences listed in <kvpush/transfer.h>. Everything that can be refused is
 * refused here or by kvp_plan_prepare, before a byte moves.
 */
#ifndef KVP_ENGINE_REQUEST_H
#define KVP_ENGINE_REQUEST_H

#include <kvpush/transfer.h>

#include "plan.h"

struct kvp_request {
	bool is_push;
	const uint64_t *src_blocks;
	const uint64_t *dst_blocks;
	size_t count;
	struct kvp_layers src_layers;
	struct kvp_layers dst_layers;
	uint32_t tensors_per_layer;
	uint64_t bytes_per_block; /* 0 = all */
};

/* One side's cache; `name` goes into messages ("local cache 1", "cache 1 of cluster 7"). */
struct kvp_side {
	const struct kvp_tensor *tensors;
	uint32_t num_tensors;
	const char *name;
};

/*
 * What can be said without knowing the caches: lists, bounds, widths, t. In this order:
 * src_blocks/dst_blocks NULL, count 0 or > KVP_BLOCKS_MAX, src bounds, dst bounds (< -1, first > last),
 * only one bound -1, "all" on one side only, widths, t = 0. All PARAM_INVALID.
 */
KVP_MUST_USE kvp_status
kvp_request_check(const struct kvp_request *request, struct kvp_error *err);

/*
 * The rest, once both caches are known (kvp_request_check passed), remote side first as upstream:
 * remote: t <= N, t divides N, range inside N/t layers, every block < num_blocks; local: the same;
 * all layers: equal tensor counts; block_bytes equal pair by pair, or bytes_per_block within both. PARAM_INVALID, or SUCCESS and
 * *pairing_out (borrows the request's lists and the sides' tensors).
 */
KVP_MUST_USE kvp_status
kvp_request_pair(const struct kvp_request *request, const struct kvp_side *src,
		 const struct kvp_side *dst, struct kvp_pairing *pairing_out,
		 struct kvp_error *err);

#endif /* KVP_ENGINE_REQUEST_H */
