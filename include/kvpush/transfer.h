/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - pushing and pulling blocks
 *
 * A transfer moves blocks[i] -> blocks[i] of every tensor of a layer range, and
 * ends exactly once with one terminal status. After that no byte of it lands
 * any more and its source is no longer read.
 *
 * Rules (LLM-DataDist PushKvBlocks, with four deliberate differences):
 *  - everything below is checked before the first byte; upstream leaves the
 *    layers before a bad one written;
 *  - block_bytes of every pair of tensors must be equal (unless bytes_per_block
 *    says how much of each moves), and for "all layers" the tensor counts;
 *    upstream writes with the local size unseen. Strides may differ: each side's
 *    own is applied;
 *  - a block that is a destination twice is refused; upstream leaves the winner
 *    unspecified. One source for several destinations is fine;
 *  - a range with only one bound -1, or "all" on one side only, is refused;
 *    upstream ignores one of the ranges.
 *
 * Threads:    any; the arrays are borrowed for the call, source memory is read
 *             until the terminal status
 */
#ifndef KVPUSH_TRANSFER_H
#define KVPUSH_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_NOTIFY_BYTES_MAX 256U

/* Inclusive. {-1, -1} = all layers of the cache. */
struct kvp_layers {
	int32_t first;
	int32_t last;
};

struct kvp_cache_ref {
	uint64_t cluster; /* a linked peer */
	int64_t cache;    /* its cache id */
};

/* An event for the receiver after every byte is visible to it. */
struct kvp_notify {
	uint32_t enabled;       /* 1: send it */
	uint32_t payload_bytes; /* [0, KVP_NOTIFY_BYTES_MAX] */
	const void *payload;    /* borrowed for the call */
	uint64_t tag;           /* the caller's, any value */
	uint32_t layers; /* kvp_push_open with `enabled`: 1: an event for each layer as well */
};

/*
 * Push: src is this engine's cache, dst a peer's. One batch slot of LLM-DataDist's PushKvCache is one block:
 * src_blocks {src_batch_index}, dst_blocks {batch_index}, and `size` is bytes_per_block.
 */
struct kvp_push {
	int64_t src_cache;
	struct kvp_cache_ref dst;
	const uint64_t *src_blocks; /* count of them */
	const uint64_t *dst_blocks; /* count of them, no block twice */
	size_t count;               /* >= 1, <= KVP_BLOCKS_MAX */
	struct kvp_layers src_layers;
	struct kvp_layers dst_layers; /* as wide as src_layers */
	uint32_t
		tensors_per_layer; /* t, [1, tensors of the cache]; divides both tensor counts; usually 2, MLA 1 */
	uint32_t timeout_ms; /* whole call; 0 = the engine's */
	uint64_t
		bytes_per_block; /* from the start of each, at most block_bytes of both sides; 0 = all */
	struct kvp_notify notify;
};

/* Pull: src is a peer's cache, dst this engine's. */
struct kvp_pull {
	struct kvp_cache_ref src;
	int64_t dst_cache;
	const uint64_t *src_blocks;
	const uint64_t *dst_blocks;
	size_t count;
	struct kvp_layers src_layers;
	struct kvp_layers dst_layers;
	uint32_t tensors_per_layer;
	uint32_t timeout_ms;
	uint64_t bytes_per_block;
};

struct kvp_transfer; /* opaque */

/*
 * Submit and wait. Order of the checks, so of the errors (spec of PushKvBlocks):
 *   FAILED             engine NULL, closed, or of the parent process
 *   PARAM_INVALID      request NULL, lists NULL or empty, notify too long
 *   PARAM_INVALID      a bound < -1, first > last, widths unequal, t = 0
 *   FAILED             the engine's role forbids it (role_rule=strict)
 *   CACHE_NOT_EXIST    local cache
 *   NOT_YET_LINK       cluster not linked, or link closing
 *   CACHE_NOT_EXIST    remote cache (the catalogue is refreshed once before this)
 *   PARAM_INVALID      t against both tensor counts, ranges, block numbers,
 *                      duplicates, sizes
 *   QUEUE_FULL         max_transfers in flight
 * All leave everything untouched. Once it runs: SUCCESS; TIMEOUT, CANCELLED,
 * PEER_LOST, NOT_YET_LINK (unlinked), CACHE_NOT_EXIST (released), NO_CREDIT
 * (receiver does not poll its events), FEATURE_NOT_ENABLED (the path cannot reach
 * that memory): some bytes may have landed, none will.
 */
KVP_API kvp_status
kvp_push_blocks(struct kvp_engine *engine, const struct kvp_push *push);
KVP_API kvp_status
kvp_pull_blocks(struct kvp_engine *engine, const struct kvp_pull *pull);

/* As above without waiting; *transfer_out (on SUCCESS only) is freed by the caller. */
KVP_API kvp_status
kvp_push_submit(struct kvp_engine *engine, const struct kvp_push *push,
		struct kvp_transfer **transfer_out);
KVP_API kvp_status
kvp_pull_submit(struct kvp_engine *engine, const struct kvp_pull *pull,
		struct kvp_transfer **transfer_out);

/*
 * A push whose layers move one by one, as the caller makes them ready: everything
 * is checked, planned and told to the lanes now, nothing moves before
 * kvp_push_layer. Ends with SUCCESS when all layers have landed; with TIMEOUT when
 * one was not made ready by the deadline. notify: one event when all have
 * landed, and with notify.layers one for each, in the order in which they landed and before the
 * last. *transfer_out is as of kvp_push_submit. Errors as kvp_push_submit.
 */
KVP_API kvp_status
kvp_push_open(struct kvp_engine *engine, const struct kvp_push *push,
	      struct kvp_transfer **transfer_out);

/*
 * Source layer `layer` is complete in memory: move it. In any order, from any
 * thread, also while others wait for the transfer. PARAM_INVALID: NULL, not of
 * kvp_push_open, a layer outside src_layers, or one that was made ready before. When the
 * transfer has ended or is being stopped: why; the layer does not move. */
KVP_API kvp_status
kvp_push_layer(struct kvp_transfer *transfer, int32_t layer);

/* The terminal status, or IN_PROGRESS. PARAM_INVALID: NULL. Never waits. */
KVP_API kvp_status
kvp_transfer_test(struct kvp_transfer *transfer);

/* Wait at most `wait_ms` (UINT32_MAX: until the end, which its own deadline bounds). As _test. */
KVP_API kvp_status
kvp_transfer_wait(struct kvp_transfer *transfer, uint32_t wait_ms);

/* Ask for an early end (CANCELLED, or what came first). Does not wait. SUCCESS, PARAM_INVALID: NULL. */
KVP_API kvp_status
kvp_transfer_cancel(struct kvp_transfer *transfer);

/* Cancel if running, wait for the terminal status, free. NULL is a no-op. */
KVP_API void
kvp_transfer_free(struct kvp_transfer *transfer);

struct kvp_transfer_info {
	uint64_t id;       /* per engine, from 1 */
	uint64_t bytes;    /* asked for */
	uint64_t moved;    /* known to have landed */
	uint64_t pieces;   /* blocks x tensors */
	uint64_t runs;     /* contiguous on both sides */
	uint64_t requests; /* handed to the transport so far */
	uint32_t parts;    /* endpoints used */
	kvp_status status; /* IN_PROGRESS or terminal */
	uint64_t plan_ns;  /* checks and planning on the caller's thread */
	uint64_t total_ns; /* submit to terminal status; 0 while running */
};

/* PARAM_INVALID: NULL. */
KVP_API kvp_status
kvp_transfer_query(struct kvp_transfer *transfer, struct kvp_transfer_info *info_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_TRANSFER_H */
