/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - blocks from one of this engine's caches to another, on the caller's thread
 *
 * A copy is planned as a push is: the destination takes the peer's place. So
 * block numbers, sizes and duplicates are checked by the same code, and runs are
 * found by the same code.
 */
#include "copy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/copy.h>

#include "cursor.h"
#include "report.h"
#include "request.h"
#include "state.h"

#define SWAP_BYTES 8192U /* exchanged at once: three of them fit the first-level cache */
#define EXTENTS    32U

/* The two caches of a call, held. `from` and `to` may be one. */
struct sides {
	struct kvp_cache *from;
	struct kvp_cache *to;
};

static kvp_status
find_one(struct kvp_engine *engine, const char *name, int64_t id, struct kvp_cache **cache_out,
	 struct kvp_error *err)
{
	struct kvp_cache *cache = kvp_cache_find(engine, id);

	if (cache == NULL || cache->is_leaving)
		return kvp_fail(err, KVP_CACHE_NOT_EXIST, "%s %" PRId64 " is not registered here",
				name, id);
	if (cache->local.memory != NULL)
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"%s %" PRId64 " lies in device memory, which the CPU cannot copy",
				name, id);
	*cache_out = cache;
	return KVP_SUCCESS;
}

static kvp_status
sides_hold(struct kvp_engine *engine, const char *from_name, int64_t from, const char *to_name,
	   int64_t to, struct sides *sides, struct kvp_error *err)
{
	kvp_status status;

	pthread_mutex_lock(&engine->lock);
	status = find_one(engine, from_name, from, &sides->from, err);
	if (status == KVP_SUCCESS)
		status = find_one(engine, to_name, to, &sides->to, err);
	if (status == KVP_SUCCESS) {
		atomic_fetch_add_explicit(&sides->from->holds, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&sides->to->holds, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&engine->lock);
	return status;
}

static void
sides_let_go(struct sides *sides)
{
	atomic_fetch_sub_explicit(&sides->from->holds, 1, memory_order_release);
	atomic_fetch_sub_explicit(&sides->to->holds, 1, memory_order_release);
}

static int
by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* A value that `list` has twice. `sorted` gets the list in order. */
static bool
has_twice(const uint64_t *list, size_t count, uint64_t *sorted, uint64_t *value_out)
{
	memcpy(sorted, list, count * sizeof(*list));
	qsort(sorted, count, sizeof(*sorted), by_value);
	for (size_t i = 1; i < count; i++) {
		if (sorted[i] == sorted[i - 1]) {
			*value_out = sorted[i];
			return true;
		}
	}
	return false;
}

static bool
has_any(const uint64_t *list, size_t count, const uint64_t *sorted, size_t sorted_count,
	uint64_t *value_out)
{
	for (size_t i = 0; i < count; i++) {
		if (bsearch(&list[i], sorted, sorted_count, sizeof(*sorted), by_value) == NULL)
			continue;
		*value_out = list[i];
		return true;
	}
	return false;
}

/* --- planning ------------------------------------------------------------------- */

/* A copy in the form of a push, and its plan. One allocation. */
struct work {
	struct kvp_request request;
	struct kvp_side src, dst;
	struct kvp_plan plan;
	void *memory;
	void *scratch;
};

static void
work_free(struct work *work)
{
	free(work->memory);
	free(work->scratch);
}

/* Tensors that begin `offset` bytes later in every slot. */
static kvp_status
shift(struct kvp_tensor *to, const struct kvp_cache *cache, const char *name, uint64_t offset,
      struct kvp_error *err)
{
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		to[i] = cache->tensors[i];
		if (offset >= to[i].block_bytes)
			return kvp_fail(err, KVP_PARAM_INVALID,
					"offset is %" PRIu64
					"; a block of tensor %u of %s has %" PRIu64
					" bytes, so less than that",
					offset, i, name, to[i].block_bytes);
		to[i].base = (uint8_t *)to[i].base + offset;
		to[i].block_bytes -= offset;
	}
	return KVP_SUCCESS;
}

static kvp_status
plan_make(struct work *work, struct kvp_error *err)
{
	struct kvp_pairing pairing;
	kvp_status status = kvp_request_check(&work->request, err);

	if (status == KVP_SUCCESS)
		status = kvp_request_pair(&work->request, &work->src, &work->dst, &pairing, err);
	if (status != KVP_SUCCESS)
		return status;
	work->scratch = malloc(kvp_plan_scratch_bytes(pairing.count));
	if (work->scratch == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to plan %u blocks",
				pairing.count);
	status = kvp_plan_prepare(&pairing, work->scratch, &work->plan, err);
	if (status != KVP_SUCCESS)
		return status;
	work->memory = malloc(kvp_plan_bytes(&work->plan));
	if (work->memory == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a plan of %u runs",
				work->plan.runs);
	kvp_plan_fill(&pairing, work->scratch, work->memory, &work->plan);
	return KVP_SUCCESS;
}

/* --- moving --------------------------------------------------------------------- */

/* The same memory may be registered in two caches. */
static bool
overlap(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	return a < b + bytes && b < a + bytes;
}

static void
exchange(uint8_t *a, uint8_t *b, size_t bytes)
{
	uint8_t kept[SWAP_BYTES];

	for (size_t at = 0; at < bytes; at += SWAP_BYTES) {
		size_t part = bytes - at < SWAP_BYTES ? bytes - at : SWAP_BYTES;

		memcpy(kept, a + at, part);
		memmove(a + at, b + at, part);
		memcpy(b + at, kept, part);
	}
}

static void
plan_run(const struct work *work, bool is_exchange)
{
	const struct kvp_copy_kernels *kernels = kvp_copy_kernels();
	kvp_copy_fn copy = work->plan.bytes <= KVP_COPY_HOT_BYTES ? kernels->hot : kernels->cold;
	struct kvp_extent extent[EXTENTS];
	struct kvp_cursor cursor;
	uint32_t count;

	kvp_cursor_init(&cursor, &work->plan, 0, work->plan.bytes);
	while ((count = kvp_cursor_next(&cursor, EXTENTS, UINT64_MAX, extent)) > 0) {
		for (uint32_t i = 0; i < count; i++) {
			const struct kvp_tensor *to = &work->dst.tensors[extent[i].remote_tensor];
			uint8_t *dst = (uint8_t *)to->base + extent[i].remote_offset;

			if (is_exchange)
				exchange(extent[i].local, dst, extent[i].bytes);
			else if (overlap(dst, extent[i].local, extent[i].bytes))
				memmove(dst, extent[i].local, extent[i].bytes);
			else
				copy(dst, extent[i].local, extent[i].bytes);
		}
	}
	kvp_copy_fence();
}

/* --- kvp_copy_blocks ------------------------------------------------------------- */

static kvp_status
copy_check(const struct kvp_copy *copy, struct kvp_error *err)
{
	if (copy == NULL || copy->src_blocks == NULL || copy->dst_blocks == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				copy == NULL               ? "copy"
				: copy->src_blocks == NULL ? "src_blocks"
							   : "dst_blocks");
	if (copy->count == 0 || copy->lists == 0 || copy->count > KVP_BLOCKS_MAX / copy->lists)
		return kvp_fail(
			err, KVP_PARAM_INVALID,
			"count is %zu and lists %zu; both are at least 1, and their product "
			"at most %u",
			copy->count, copy->lists, KVP_BLOCKS_MAX);
	for (size_t i = 0; i < copy->lists; i++) {
		if (copy->dst_blocks[i] == NULL)
			return kvp_fail(err, KVP_PARAM_INVALID, "dst_blocks[%zu] is NULL", i);
	}
	return KVP_SUCCESS;
}

static kvp_status
copy_planned(const struct kvp_copy *copy, const struct sides *sides, struct kvp_tensor *tensors,
	     uint64_t *blocks, struct kvp_error *err)
{
	uint32_t from_tensors = sides->from->local.num_tensors;
	uint64_t *src = blocks, *dst = src + copy->lists * copy->count;
	struct work work = {
		.request = {.is_push = true,
			    .src_blocks = src,
			    .dst_blocks = dst,
			    .count = copy->lists * copy->count,
			    .src_layers = {-1, -1},
			    .dst_layers = {-1, -1},
			    .tensors_per_layer = 1,
			    .bytes_per_block = copy->bytes_per_block},
		.src = {tensors, from_tensors, "src_cache"},
		.dst = {tensors + from_tensors, sides->to->local.num_tensors, "dst_cache"}};
	uint64_t block = 0;
	kvp_status status = shift(tensors, sides->from, "src_cache", copy->offset, err);

	if (status == KVP_SUCCESS)
		status = shift(tensors + from_tensors, sides->to, "dst_cache", copy->offset, err);
	if (status != KVP_SUCCESS)
		return status;
	for (size_t i = 0; i < copy->lists; i++) {
		memcpy(src + i * copy->count, copy->src_blocks, copy->count * sizeof(*src));
		memcpy(dst + i * copy->count, copy->dst_blocks[i], copy->count * sizeof(*dst));
	}
	status = plan_make(&work, err);
	if (status == KVP_SUCCESS && sides->from == sides->to) {
		qsort(src, copy->count, sizeof(*src), by_value); /* the plan has its own */
		if (has_any(dst, work.request.count, src, copy->count, &block))
			status = kvp_fail(err, KVP_PARAM_INVALID,
					  "block %" PRIu64 " of cache %" PRId64
					  " is source and destination",
					  block, copy->src_cache);
	}
	if (status == KVP_SUCCESS)
		plan_run(&work, false);
	work_free(&work);
	return status;
}

kvp_status
kvp_copy_blocks(struct kvp_engine *engine, const struct kvp_copy *copy)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_tensor *tensors;
	struct sides sides;
	uint64_t *blocks;

	if (status == KVP_SUCCESS)
		status = copy_check(copy, err);
	if (status == KVP_SUCCESS)
		status = sides_hold(engine, "src_cache", copy->src_cache, "dst_cache",
				    copy->dst_cache, &sides, err);
	if (status != KVP_SUCCESS)
		return status;
	tensors = calloc(sides.from->local.num_tensors + sides.to->local.num_tensors,
			 sizeof(*tensors));
	blocks = calloc(copy->lists * copy->count, 2 * sizeof(*blocks));
	if (tensors == NULL || blocks == NULL)
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to copy %zu blocks",
				  copy->lists * copy->count);
	else
		status = copy_planned(copy, &sides, tensors, blocks, err);
	free(tensors);
	free(blocks);
	sides_let_go(&sides);
	return status;
}

/* --- kvp_swap_blocks ------------------------------------------------------------- */

static kvp_status
once_check(const struct kvp_swap *swap, uint64_t *sorted, struct kvp_error *err)
{
	uint64_t block = 0;

	if (has_twice(swap->src_blocks, swap->count, sorted, &block))
		return kvp_fail(err, KVP_PARAM_INVALID, "src_blocks has block %" PRIu64 " twice",
				block);
	if (swap->src_cache == swap->dst_cache &&
	    has_any(swap->dst_blocks, swap->count, sorted, swap->count, &block))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"block %" PRIu64 " of cache %" PRId64
				" is in src_blocks and in dst_blocks",
				block, swap->src_cache);
	if (has_twice(swap->dst_blocks, swap->count, sorted, &block))
		return kvp_fail(err, KVP_PARAM_INVALID, "dst_blocks has block %" PRIu64 " twice",
				block);
	return KVP_SUCCESS;
}

static kvp_status
swap_planned(const struct kvp_swap *swap, const struct sides *sides, uint64_t *sorted,
	     struct kvp_error *err)
{
	struct work work = {
		.request = {.is_push = true,
			    .src_blocks = swap->src_blocks,
			    .dst_blocks = swap->dst_blocks,
			    .count = swap->count,
			    .src_layers = {-1, -1},
			    .dst_layers = {-1, -1},
			    .tensors_per_layer = 1},
		.src = {sides->from->tensors, sides->from->local.num_tensors, "src_cache"},
		.dst = {sides->to->tensors, sides->to->local.num_tensors, "dst_cache"}};
	kvp_status status = once_check(swap, sorted, err);

	if (status == KVP_SUCCESS)
		status = plan_make(&work, err);
	if (status == KVP_SUCCESS)
		plan_run(&work, true);
	work_free(&work);
	return status;
}

kvp_status
kvp_swap_blocks(struct kvp_engine *engine, const struct kvp_swap *swap)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct sides sides;
	uint64_t *sorted;

	if (status != KVP_SUCCESS)
		return status;
	if (swap == NULL || swap->src_blocks == NULL || swap->dst_blocks == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				swap == NULL               ? "swap"
				: swap->src_blocks == NULL ? "src_blocks"
							   : "dst_blocks");
	if (swap->count == 0 || swap->count > KVP_BLOCKS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "count is %zu; it is in [1, %u]",
				swap->count, KVP_BLOCKS_MAX);
	status = sides_hold(engine, "src_cache", swap->src_cache, "dst_cache", swap->dst_cache,
			    &sides, err);
	if (status != KVP_SUCCESS)
		return status;
	sorted = calloc(swap->count, sizeof(*sorted));
	if (sorted == NULL)
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to swap %zu blocks",
				  swap->count);
	else
		status = swap_planned(swap, &sides, sorted, err);
	free(sorted);
	sides_let_go(&sides);
	return status;
}
