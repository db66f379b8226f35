/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks between caches of one engine: every byte, and every refusal. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK  4096U
#define BLOCKS 16U

static const uint64_t some_src[] = {1, 5, 6, 7, 2};
static const uint64_t some_dst[] = {3, 0, 9, 10, 15};
static const uint64_t more_dst[] = {4, 11, 12, 13, 14};
static const struct pair_move some = {some_src, some_dst, 5, 0, 0, 4};
static const struct pair_move more = {some_src, more_dst, 5, 0, 0, 4};

static const struct pair_shape shapes[] = {
	{.tensors = 4, .blocks = BLOCKS, .block_bytes = BLOCK, .is_shareable = true},
	{.tensors = 4,
	 .blocks = BLOCKS,
	 .block_bytes = BLOCK,
	 .pad_bytes = 64,
	 .layout = PAIR_PADDED},
	{.tensors = 4,
	 .per_layer = 2,
	 .blocks = BLOCKS,
	 .block_bytes = BLOCK,
	 .layout = PAIR_INTERLEAVED},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static struct kvp_engine *engine;

static int
setup(void **state)
{
	static const char *const settings[] = {"cluster_id=1", "transports=shm", "log_level=1"};

	(void)state;
	return kvp_open_settings(settings, 3, &engine) == KVP_SUCCESS ? 0 : -1;
}

static int
teardown(void **state)
{
	(void)state;
	kvp_close(engine);
	return 0;
}

static void
open_both(size_t i, size_t j, struct pair_cache *src, struct pair_cache *dst)
{
	pair_cache_open(src, engine, &shapes[i], 1);
	pair_cache_open(dst, engine, &shapes[j], 2);
}

static void
close_both(struct pair_cache *src, struct pair_cache *dst)
{
	pair_cache_check(src, "source");
	pair_cache_check(dst, "destination");
	pair_cache_close(src);
	pair_cache_close(dst);
}

static struct kvp_copy
copy_of(const struct pair_cache *src, const struct pair_cache *dst, const uint64_t *const *lists,
	size_t count)
{
	return (struct kvp_copy){.src_cache = src->id,
				 .dst_cache = dst->id,
				 .src_blocks = some_src,
				 .dst_blocks = lists,
				 .lists = count,
				 .count = 5};
}

/* From any layout to any, to one list and to two. */
static void
copy_blocks__between_caches(void **state)
{
	const uint64_t *const lists[] = {some_dst, more_dst};

	(void)state;
	for (size_t i = 0; i < SHAPES * SHAPES; i++) {
		struct pair_cache src, dst;
		struct kvp_copy copy;

		open_both(i / SHAPES, i % SHAPES, &src, &dst);
		copy = copy_of(&src, &dst, lists, 1);
		assert_ok(kvp_copy_blocks(engine, &copy));
		pair_model_move(&dst, &src, &some);
		pair_cache_check(&dst, "destination");
		pair_cache_fill(&src, 7);
		copy.lists = 2;
		assert_ok(kvp_copy_blocks(engine, &copy));
		pair_model_move(&dst, &src, &some);
		pair_model_move(&dst, &src, &more);
		close_both(&src, &dst);
	}
}

static void
copy_blocks__within_a_cache(void **state)
{
	const uint64_t *const lists[] = {some_dst, more_dst};
	const uint64_t *const bad[] = {more_dst, some_src};
	struct pair_cache cache;
	struct kvp_copy copy;

	(void)state;
	pair_cache_open(&cache, engine, &shapes[1], 3);
	copy = copy_of(&cache, &cache, lists, 2);
	assert_ok(kvp_copy_blocks(engine, &copy));
	pair_model_move(&cache, &cache, &some);
	pair_model_move(&cache, &cache, &more);
	pair_cache_check(&cache, "cache");
	copy.dst_blocks = bad;
	assert_refused(KVP_PARAM_INVALID, "is source and destination",
		       kvp_copy_blocks(engine, &copy));
	pair_cache_check(&cache, "cache");
	pair_cache_close(&cache);
}

/* Bytes [offset, offset + bytes) of a batch slot, as CopyKvCache. */
static void
copy_blocks__parts_of_blocks(void **state)
{
	static const struct {
		uint64_t offset, bytes;
	} part[] = {{0, 1}, {0, BLOCK}, {100, 0}, {BLOCK - 1, 1}, {1000, 2000}};
	const uint64_t *const lists[] = {some_dst};
	struct pair_cache src, dst;
	struct kvp_copy copy;

	(void)state;
	open_both(0, 1, &src, &dst);
	for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		uint64_t bytes = part[i].bytes == 0 ? BLOCK - part[i].offset : part[i].bytes;

		pair_cache_fill(&src, i + 10);
		copy = copy_of(&src, &dst, lists, 1);
		copy.offset = part[i].offset;
		copy.bytes_per_block = part[i].bytes;
		assert_ok(kvp_copy_blocks(engine, &copy));
		for (size_t t = 0; t < 4; t++) {
			for (size_t b = 0; b < 5; b++) {
				uint8_t *from = (uint8_t *)src.tensor[t].base +
						some_src[b] * src.tensor[t].block_stride;
				uint8_t *to = (uint8_t *)dst.tensor[t].base +
					      some_dst[b] * dst.tensor[t].block_stride;

				memcpy(dst.model + (to - dst.memory) + part[i].offset,
				       src.model + (from - src.memory) + part[i].offset, bytes);
			}
		}
		pair_cache_check(&dst, "destination");
	}
	copy.offset = BLOCK;
	assert_refused(KVP_PARAM_INVALID, "offset is 4096", kvp_copy_blocks(engine, &copy));
	copy.offset = 1;
	copy.bytes_per_block = BLOCK;
	assert_refused(KVP_PARAM_INVALID, "bytes_per_block is 4096",
		       kvp_copy_blocks(engine, &copy));
	close_both(&src, &dst);
}

/* More than the CPU's caches hold, in random order. */
static void
copy_blocks__many(void **state)
{
	const struct pair_shape big = {
		.tensors = 2, .blocks = 2048, .block_bytes = BLOCK + 8, .is_shareable = true};
	uint64_t *from = malloc(2048 * sizeof(*from)), *to = malloc(2048 * sizeof(*to)), seed = 5;
	const uint64_t *const lists[] = {to};
	struct pair_cache src, dst;

	(void)state;
	assert_true(from != NULL && to != NULL);
	pair_shuffle(from, 2048, &seed);
	pair_shuffle(to, 2048, &seed);
	pair_cache_open(&src, engine, &big, 1);
	pair_cache_open(&dst, engine, &big, 2);
	assert_ok(kvp_copy_blocks(engine, &(struct kvp_copy){.src_cache = src.id,
							     .dst_cache = dst.id,
							     .src_blocks = from,
							     .dst_blocks = lists,
							     .lists = 1,
							     .count = 2048}));
	pair_model_move(&dst, &src, &(struct pair_move){from, to, 2048, 0, 0, 2});
	close_both(&src, &dst);
	free(from);
	free(to);
}

/* The same memory in two caches: what overlaps is moved, not torn. */
static void
copy_blocks__of_memory_registered_twice(void **state)
{
	uint64_t from[] = {2, 3, 4}, to[] = {3, 4, 5};
	const uint64_t *const lists[] = {to};
	struct kvp_tensor tensor = {.num_blocks = 8, .block_bytes = 64, .block_stride = 64};
	struct kvp_copy copy = {.src_blocks = from, .dst_blocks = lists, .lists = 1, .count = 3};
	uint8_t memory[512], model[512];

	(void)state;
	pair_fill(memory, sizeof(memory), 1);
	memcpy(model, memory, sizeof(model));
	memmove(model + 192, model + 128, 192);
	tensor.base = memory;
	assert_ok(kvp_cache_register(engine, &tensor, 1, &copy.src_cache));
	assert_ok(kvp_cache_register(engine, &tensor, 1, &copy.dst_cache));
	assert_ok(kvp_copy_blocks(engine, &copy));
	assert_memory_equal(memory, model, sizeof(memory));
	assert_ok(kvp_cache_release(engine, copy.src_cache));
	assert_ok(kvp_cache_release(engine, copy.dst_cache));
}

static void
copy_blocks__refusals(void **state)
{
	const uint64_t *lists[] = {some_dst, more_dst};
	const uint64_t outside[] = {3, 0, 16, 10, 15};
	struct pair_shape other = shapes[0];
	struct pair_cache src, dst, three;
	struct kvp_copy copy;

	(void)state;
	open_both(0, 0, &src, &dst);
	other.tensors = 3;
	other.block_bytes = 64;
	pair_cache_open(&three, engine, &other, 4);
	copy = copy_of(&src, &dst, lists, 2);
	assert_refused(KVP_FAILED, "engine", kvp_copy_blocks(NULL, &copy));
	assert_refused(KVP_PARAM_INVALID, "copy is NULL", kvp_copy_blocks(engine, NULL));
#define WITH(field, value, status, word)                                         \
	do {                                                                     \
		struct kvp_copy bad = copy;                                      \
                                                                                 \
		bad.field = (value);                                             \
		assert_refused((status), (word), kvp_copy_blocks(engine, &bad)); \
	} while (0)
	WITH(src_blocks, NULL, KVP_PARAM_INVALID, "src_blocks is NULL");
	WITH(dst_blocks, NULL, KVP_PARAM_INVALID, "dst_blocks is NULL");
	WITH(count, 0, KVP_PARAM_INVALID, "count is 0");
	WITH(lists, 0, KVP_PARAM_INVALID, "lists 0");
	WITH(count, KVP_BLOCKS_MAX, KVP_PARAM_INVALID, "product");
	WITH(lists, SIZE_MAX, KVP_PARAM_INVALID, "product");
	WITH(src_cache, 99, KVP_CACHE_NOT_EXIST, "src_cache 99");
	WITH(dst_cache, 0, KVP_CACHE_NOT_EXIST, "dst_cache 0");
	WITH(dst_cache, three.id, KVP_PARAM_INVALID, "tensors");
	WITH(src_blocks, outside, KVP_PARAM_INVALID, "src_blocks[2] is 16; src_cache has 16");
	lists[1] = NULL;
	WITH(count, 5, KVP_PARAM_INVALID, "dst_blocks[1] is NULL");
	lists[1] = some_dst;
	WITH(count, 5, KVP_PARAM_INVALID, "only once"); /* a destination in both lists */
	lists[1] = outside;
	WITH(count, 5, KVP_PARAM_INVALID, "16; dst_cache has 16");
	pair_cache_close(&three);
	close_both(&src, &dst);
}

/* --- swap ------------------------------------------------------------------------- */

static void
model_swap(struct pair_cache *a, struct pair_cache *b, const struct pair_move *move)
{
	struct pair_move back = {move->dst_blocks, move->src_blocks, move->count, 0, 0, 4};
	struct pair_cache old = *a;

	old.model = malloc(a->bytes);
	assert_non_null(old.model);
	memcpy(old.model, a->model, a->bytes);
	pair_model_move(a, b, &back);
	pair_model_move(b, &old, move);
	free(old.model);
}

static void
swap_blocks__exchanges(void **state)
{
	(void)state;
	for (size_t i = 0; i < SHAPES * SHAPES; i++) {
		struct pair_cache src, dst;
		struct kvp_swap swap;

		open_both(i / SHAPES, i % SHAPES, &src, &dst);
		swap = (struct kvp_swap){src.id, dst.id, some_src, some_dst, 5};
		assert_ok(kvp_swap_blocks(engine, &swap));
		model_swap(&src, &dst, &some);
		pair_cache_check(&src, "source");
		pair_cache_check(&dst, "destination");
		/* Within one cache, and twice is as before. */
		swap = (struct kvp_swap){src.id, src.id, some_src, more_dst, 5};
		assert_ok(kvp_swap_blocks(engine, &swap));
		model_swap(&src, &src, &more);
		pair_cache_check(&src, "source");
		assert_ok(kvp_swap_blocks(engine, &swap));
		model_swap(&src, &src, &more);
		close_both(&src, &dst);
	}
}

static void
swap_blocks__refusals(void **state)
{
	const uint64_t twice[] = {1, 2, 3, 2, 8};
	struct pair_shape small = shapes[0];
	struct pair_cache src, dst, other;

	(void)state;
	open_both(0, 1, &src, &dst);
	small.block_bytes = 64;
	pair_cache_open(&other, engine, &small, 4);
#define SWAP(a, b, a_blocks, b_blocks, count) \
	kvp_swap_blocks(engine, &(struct kvp_swap){(a), (b), (a_blocks), (b_blocks), (count)})
	assert_refused(KVP_FAILED, "engine", kvp_swap_blocks(NULL, NULL));
	assert_refused(KVP_PARAM_INVALID, "swap is NULL", kvp_swap_blocks(engine, NULL));
	assert_refused(KVP_PARAM_INVALID, "src_blocks is NULL",
		       SWAP(src.id, dst.id, NULL, twice, 5));
	assert_refused(KVP_PARAM_INVALID, "dst_blocks is NULL",
		       SWAP(src.id, dst.id, twice, NULL, 5));
	assert_refused(KVP_PARAM_INVALID, "count is 0",
		       SWAP(src.id, dst.id, some_src, some_dst, 0));
	assert_refused(KVP_CACHE_NOT_EXIST, "src_cache 77",
		       SWAP(77, dst.id, some_src, some_dst, 5));
	assert_refused(KVP_CACHE_NOT_EXIST, "dst_cache 78",
		       SWAP(src.id, 78, some_src, some_dst, 5));
	assert_refused(KVP_PARAM_INVALID, "src_blocks has block 2 twice",
		       SWAP(src.id, dst.id, twice, some_dst, 5));
	assert_refused(KVP_PARAM_INVALID, "dst_blocks has block 2 twice",
		       SWAP(src.id, dst.id, some_src, twice, 5));
	assert_refused(KVP_PARAM_INVALID, "in src_blocks and in dst_blocks",
		       SWAP(src.id, src.id, some_src, some_src, 5));
	assert_refused(KVP_PARAM_INVALID, "must be equal",
		       SWAP(src.id, other.id, some_src, some_dst, 5));
	pair_cache_close(&other);
	close_both(&src, &dst);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_blocks__between_caches),
		cmocka_unit_test(copy_blocks__within_a_cache),
		cmocka_unit_test(copy_blocks__parts_of_blocks),
		cmocka_unit_test(copy_blocks__many),
		cmocka_unit_test(copy_blocks__of_memory_registered_twice),
		cmocka_unit_test(copy_blocks__refusals),
		cmocka_unit_test(swap_blocks__exchanges),
		cmocka_unit_test(swap_blocks__refusals),
	};

	return cmocka_run_group_tests_name("copy", tests, setup, teardown);
}
