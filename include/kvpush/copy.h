/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - moving blocks between this engine's own caches
 *
 * Both calls run on the caller's thread and return when every byte is in its
 * place; they need no link. All tensors take part: both caches have equally many.
 *
 * Rules (LLM-DataDist CopyKvCache, CopyKvBlocks; Python swap_blocks):
 *  - everything is checked before the first byte;
 *  - a block is a destination once, and within one cache not a source as well:
 *    the result would depend on an order that upstream leaves open;
 *  - upstream's swap_blocks copies, from one cache to the other: that is
 *    kvp_copy_blocks with one list. kvp_swap_blocks exchanges.
 *
 * Threads:    any; the lists are borrowed for the call. Nobody else may use these
 *             blocks meanwhile, transfers included.
 */
#ifndef KVPUSH_COPY_H
#define KVPUSH_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* src_blocks[i] -> dst_blocks[l][i] for every list l. One batch slot of CopyKvCache is one block. */
struct kvp_copy {
	int64_t src_cache;
	int64_t dst_cache;                 /* may be src_cache */
	const uint64_t *src_blocks;        /* count of them */
	const uint64_t *const *dst_blocks; /* `lists` lists of count each */
	size_t lists;                      /* >= 1 */
	size_t count;                      /* >= 1; lists x count <= KVP_BLOCKS_MAX */
	uint64_t offset;                   /* of the first byte that moves, within each block */
	uint64_t bytes_per_block;          /* from there on; 0 = the rest, equal on both sides */
};

/*
 * FAILED: engine NULL, closed, or of the parent process. CACHE_NOT_EXIST: either
 * cache. FEATURE_NOT_ENABLED: one lies in device memory. PARAM_INVALID: NULL, an
 * empty list, tensor counts unequal, a block number, offset or size out of
 * range, a destination twice, a block that is source and destination.
 * OUT_OF_MEMORY. Nothing is written after an error.
 */
KVP_API kvp_status
kvp_copy_blocks(struct kvp_engine *engine, const struct kvp_copy *copy);

/* Block src_blocks[i] of one cache and block dst_blocks[i] of the other exchange their content. */
struct kvp_swap {
	int64_t src_cache;
	int64_t dst_cache; /* may be src_cache */
	const uint64_t *src_blocks;
	const uint64_t *dst_blocks;
	size_t count; /* >= 1 */
};

/* Errors as kvp_copy_blocks; every block occurs once. Sizes of blocks must be equal. */
KVP_API kvp_status
kvp_swap_blocks(struct kvp_engine *engine, const struct kvp_swap *swap);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_COPY_H */
