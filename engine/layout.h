/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - is this list of tensors a cache, and which bytes belong to it?
 *
 * Shape:      span = count slots of `bytes`, `stride` apart from `base`: what the
 *             blocks of one tensor, or of neighbouring interleaved tensors, cover
 * Threads:    pure
 */
#ifndef KVP_ENGINE_LAYOUT_H
#define KVP_ENGINE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include <kvpush/cache.h>

#include "compiler.h"
#include "error.h"

struct kvp_span {
	uint64_t base;   /* address */
	uint64_t stride; /* bytes */
	uint64_t bytes;  /* of one slot, <= stride */
	uint64_t count;  /* slots */
};

/*
 * The rules of kvp_cache_register except "overlap" when `may_lack_base` (an
 * allocation to come: bases must all be NULL). PARAM_INVALID naming the tensor.
 */
KVP_MUST_USE kvp_status
kvp_layout_check(const struct kvp_tensor *tensors, uint32_t num_tensors, bool may_lack_base,
		 struct kvp_error *err);

/* Sum of num_blocks x block_bytes. */
uint64_t
kvp_layout_bytes(const struct kvp_tensor *tensors, uint32_t num_tensors);

/* Bytes from the first to one past the last byte of a tensor: (num_blocks-1)*stride + block_bytes. */
uint64_t
kvp_tensor_extent(const struct kvp_tensor *tensor);

/*
 * spans[i] = the span that tensor i's blocks lie in: neighbouring tensors that
 * interleave without a gap share one wide span, others have their own.
 */
void
kvp_layout_spans(const struct kvp_tensor *tensors, uint32_t num_tensors, struct kvp_span *spans);

/*
 * Do all of [address, address + bytes) belong to blocks of the span? `bytes` >= 1.
 * Any value may come from a peer: overflow-safe.
 */
KVP_HOT bool
kvp_span_holds(const struct kvp_span *span, uint64_t address, uint64_t bytes);

#endif /* KVP_ENGINE_LAYOUT_H */
