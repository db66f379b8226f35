/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cursor.h"
#include "fuzz/plan_model.h"

#define SEEDS         6000U
#define LLAMA_PAIRS   1864U
#define LLAMA_TENSORS 64U

/* A plan and everything behind it; tensors as given, blocks as given. */
struct built {
	struct kvp_pairing pairing;
	struct kvp_plan plan;
	void *scratch;
	void *memory;
};

static kvp_status
prepare(struct built *b, struct kvp_error *err)
{
	b->scratch = malloc(kvp_plan_scratch_bytes(b->pairing.count));
	b->memory = NULL;
	assert_non_null(b->scratch);
	return kvp_plan_prepare(&b->pairing, b->scratch, &b->plan, err);
}

static void
build(struct built *b)
{
	struct kvp_error err = {""};

	if (prepare(b, &err) != KVP_SUCCESS)
		fail_msg("prepare: %s", err.text);
	assert_null(b->plan.run);
	assert_null(b->plan.group);
	b->memory = malloc(kvp_plan_bytes(&b->plan));
	assert_non_null(b->memory);
	kvp_plan_fill(&b->pairing, b->scratch, b->memory, &b->plan);
	/* The order is not needed any more. */
	memset(b->scratch, 0xEE, kvp_plan_scratch_bytes(b->pairing.count));
}

static void
drop(struct built *b)
{
	free(b->scratch);
	free(b->memory);
}

static struct kvp_tensor
tensor(uint64_t base, uint64_t blocks, uint64_t bytes, uint64_t stride)
{
	return (struct kvp_tensor){(void *)(uintptr_t)base, blocks, bytes, stride};
}

static const struct kvp_tensor one_src = {(void *)0x10000, 1000, 16, 16};
static const struct kvp_tensor one_dst = {(void *)0x90000, 1000, 16, 16};

static struct kvp_pairing
pairing_of(const uint64_t *src, const uint64_t *dst, uint32_t count)
{
	return (struct kvp_pairing){
		.local = &one_src,
		.remote = &one_dst,
		.remote_tensor = 5,
		.tensors = 1,
		.local_blocks = src,
		.remote_blocks = dst,
		.count = count,
		.is_push = true,
	};
}

static void
prepare__twice_is_refused(void **state)
{
	static const struct {
		uint64_t dst[5];
		const char *text;
	} rows[] = {
		{{7, 7, 8, 9, 10}, "dst_blocks[0] and dst_blocks[1] are both 7;"},
		{{1, 2, 3, 3, 4}, "dst_blocks[2] and dst_blocks[3] are both 3;"},
		{{9, 8, 7, 6, 6}, "dst_blocks[3] and dst_blocks[4] are both 6;"},
		{{42, 1, 7, 3, 42}, "dst_blocks[0] and dst_blocks[4] are both 42;"},
		{{0, 0, 0, 0, 0}, "dst_blocks[0] and dst_blocks[1] are both 0;"},
	};
	const uint64_t src[5] = {0, 1, 2, 3, 4};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvp_error err = {""};
		struct built b = {.pairing = pairing_of(src, rows[i / 2].dst, 5)};

		if (i % 2 == 1) { /* a pull into the same blocks */
			b.pairing.is_push = false;
			b.pairing.local_blocks = rows[i / 2].dst;
			b.pairing.remote_blocks = src;
		}
		b.plan.runs = 77;
		assert_int_equal(prepare(&b, &err), KVP_PARAM_INVALID);
		assert_int_equal(b.plan.runs, 77);
		assert_memory_equal(err.text, rows[i / 2].text, strlen(rows[i / 2].text));
		drop(&b);
	}
}

static void
prepare__twice_in_a_long_list_is_refused(void **state)
{
	static uint64_t src[5000], dst[5000];
	struct kvp_error err = {""};
	struct built b = {.pairing = pairing_of(src, dst, 5000)};

	(void)state;
	for (uint32_t i = 0; i < 5000; i++)
		dst[i] = (i * 7919ULL) % 5003 * 800001; /* 5003 is prime: all differ */
	assert_int_equal(prepare(&b, NULL), KVP_SUCCESS);
	drop(&b);
	dst[4321] = dst[1234];
	assert_int_equal(prepare(&b, &err), KVP_PARAM_INVALID);
	assert_non_null(strstr(err.text, "dst_blocks[1234] and dst_blocks[4321]"));
	drop(&b);
}

static void
prepare__twice_as_source_is_fine(void **state)
{
	const uint64_t src[4] = {3, 3, 3, 3}, dst[4] = {0, 1, 2, 3};
	struct built b = {.pairing = pairing_of(src, dst, 4)};

	(void)state;
	build(&b);
	assert_int_equal(b.plan.runs, 4);
	drop(&b);
}

static void
prepare__too_many_bytes_is_refused(void **state)
{
	const uint64_t src[2] = {0, 1}, dst[2] = {0, 1};
	const struct kvp_tensor wide[2] = {tensor(0x1000, 2, 1ULL << 63, 1ULL << 63),
					   tensor(0x1000, 2, 1ULL << 63, 1ULL << 63)};
	struct built b = {.pairing = pairing_of(src, dst, 2)};
	struct kvp_error err = {""};

	(void)state;
	b.pairing.local = b.pairing.remote = wide;
	assert_int_equal(prepare(&b, &err), KVP_PARAM_INVALID);
	assert_non_null(strstr(err.text, "2 blocks"));
	drop(&b);
	b.pairing.count = 1;
	b.pairing.tensors = 2;
	assert_int_equal(prepare(&b, &err), KVP_PARAM_INVALID);
	assert_non_null(strstr(err.text, "2 tensors"));
	drop(&b);
}

/* Order of the caller, what the planner makes of it. */
static void
prepare__order_and_runs(void **state)
{
	static const struct {
		uint32_t count, runs, is_sorted;
		uint64_t src[6], dst[6];
	} rows[] = {
		{1, 1, 0, {9}, {4}},
		{4, 1, 0, {5, 6, 7, 8}, {1, 2, 3, 4}},
		{4, 2, 0, {5, 6, 7, 8}, {1, 2, 4, 5}},
		{4, 2, 0, {5, 6, 8, 9}, {1, 2, 3, 4}},
		{4, 4, 0, {5, 5, 5, 5}, {1, 2, 3, 4}},
		{4, 1, 0, {8, 7, 6, 5}, {4, 3, 2, 1}}, /* backward: reversed, not sorted */
		{4, 4, 0, {5, 6, 7, 8}, {4, 3, 2, 1}},
		{4, 4, 0, {8, 7, 6, 5}, {1, 2, 3, 4}},
		{6, 1, 1, {3, 1, 6, 2, 5, 4}, {13, 11, 16, 12, 15, 14}}, /* merges when sorted */
		{6, 2, 1, {4, 5, 6, 1, 2, 3}, {14, 15, 16, 1, 2, 3}},
		{6, 1, 1, {4, 5, 6, 1, 2, 3}, {14, 15, 16, 11, 12, 13}},
		{2, 1, 0, {0xFFFFFFFC, 0xFFFFFFFD}, {0xFFFFFFFC, 0xFFFFFFFD}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct built b = {.pairing = pairing_of(rows[i].src, rows[i].dst, rows[i].count)};

		build(&b);
		if (b.plan.runs != rows[i].runs || b.plan.is_sorted != rows[i].is_sorted)
			fail_msg("row %zu: %u runs, sorted %u", i, b.plan.runs, b.plan.is_sorted);
		assert_int_equal(b.plan.blocks, rows[i].count);
		assert_int_equal(b.plan.pieces, rows[i].count);
		assert_int_equal(b.plan.extents, rows[i].runs);
		assert_int_equal(b.plan.bytes, rows[i].count * 16);
		drop(&b);
	}
}

/* A pull's runs ascend by what it reads, and it may read a block for several destinations. */
static void
prepare__order_of_a_pull(void **state)
{
	static const struct {
		uint32_t count, runs, is_sorted;
		uint64_t src[6], dst[6];
		struct kvp_run run[6];
	} rows[] = {
		{3, 1, 0, {5, 6, 7}, {1, 2, 3}, {{1, 5, 3, 0}}},
		{3, 1, 0, {7, 6, 5}, {3, 2, 1}, {{1, 5, 3, 0}}},
		{3, 2, 0, {5, 6, 7}, {3, 1, 2}, {{3, 5, 1, 0}, {1, 6, 2, 1}}},
		{3, 3, 0, {7, 6, 5}, {1, 2, 3}, {{3, 5, 1, 0}, {2, 6, 1, 1}, {1, 7, 1, 2}}},
		{3, 3, 1, {6, 5, 7}, {1, 2, 3}, {{2, 5, 1, 0}, {1, 6, 1, 1}, {3, 7, 1, 2}}},
		{4, 2, 1, {8, 9, 5, 6}, {1, 2, 3, 4}, {{3, 5, 2, 0}, {1, 8, 2, 2}}},
		{4, 2, 1, {8, 9, 5, 6}, {3, 4, 1, 2}, {{1, 5, 2, 0}, {3, 8, 2, 2}}},
		{4, 1, 1, {7, 5, 8, 6}, {3, 1, 4, 2}, {{1, 5, 4, 0}}},
		{3, 3, 0, {5, 5, 5}, {1, 2, 3}, {{1, 5, 1, 0}, {2, 5, 1, 1}, {3, 5, 1, 2}}},
		{4, 3, 0, {5, 5, 6, 6}, {0, 1, 2, 9}, {{0, 5, 1, 0}, {1, 5, 2, 1}, {9, 6, 1, 3}}},
		{3, 2, 0, {6, 5, 5}, {2, 1, 4}, {{4, 5, 1, 0}, {1, 5, 2, 1}}},
		{4,
		 4,
		 1,
		 {5, 4, 5, 4},
		 {1, 9, 3, 7},
		 {{7, 4, 1, 0}, {9, 4, 1, 1}, {1, 5, 1, 2}, {3, 5, 1, 3}}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct built b = {.pairing = pairing_of(rows[i].dst, rows[i].src, rows[i].count)};

		b.pairing.is_push = false; /* so the local blocks are the destinations */
		build(&b);
		if (b.plan.runs != rows[i].runs || b.plan.is_sorted != rows[i].is_sorted)
			fail_msg("row %zu: %u runs, sorted %u", i, b.plan.runs, b.plan.is_sorted);
		if (memcmp(b.plan.run, rows[i].run, b.plan.runs * sizeof(b.plan.run[0])) != 0)
			fail_msg("row %zu: first run %u <- %u", i, b.plan.run[0].local,
				 b.plan.run[0].remote);
		drop(&b);
	}
}

/* Local blocks of long pulls in any order: one that comes twice is found, and nothing else is. */
static void
prepare__twice_in_a_long_pull(void **state)
{
	static uint64_t src[5000], dst[5000];
	struct built b = {.pairing = pairing_of(dst, src, 5000)};
	struct kvp_error err = {""};

	(void)state;
	b.pairing.is_push = false;
	for (int order = 0; order < 3; order++) { /* up, down, mixed */
		for (uint32_t i = 0; i < 5000; i++) {
			src[i] = (i * 4001ULL) % 5003 / 2; /* nearly each twice */
			dst[i] = order == 0   ? i * 3
				 : order == 1 ? 20000 - i * 3
					      : (i * 7919ULL) % 5003;
		}
		assert_int_equal(prepare(&b, &err), KVP_SUCCESS);
		assert_int_equal(b.plan.is_sorted, 1);
		drop(&b);
		dst[4321] = dst[1234];
		assert_int_equal(prepare(&b, &err), KVP_PARAM_INVALID);
		assert_non_null(strstr(err.text, "dst_blocks[1234] and dst_blocks[4321]"));
		drop(&b);
	}
	b.pairing.remote_blocks = dst; /* the very same list for both */
	dst[4321] = 6000;
	assert_int_equal(prepare(&b, &err), KVP_SUCCESS);
	drop(&b);
}

static int
compare_u64(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

/* All counts around the change of method, all ranges of block numbers, against qsort. */
static void
fill__sorts_as_qsort(void **state)
{
	static const uint32_t counts[] = {2, 3, 31, 32, 33, 64, 100, 1000, 4097, 70000};
	static const uint64_t spaces[] = {80000, 1ULL << 21, KVP_BLOCKS_MAX};
	uint64_t *want = malloc(70000 * sizeof(*want));
	uint64_t *src = malloc(70000 * sizeof(*src)), *dst = malloc(70000 * sizeof(*dst));
	uint64_t random = 4711;

	(void)state;
	assert_true(want != NULL && src != NULL && dst != NULL);
	for (size_t c = 0; c < 60; c++) {
		uint32_t count = counts[c / 6], at = 0;
		uint64_t space = spaces[c % 3];
		struct built b = {.pairing = pairing_of(src, dst, count)};

		b.pairing.is_push = c % 6 < 3; /* else `dst` is read and `src` must differ too */

		for (uint32_t i = 0; i < count; i++) {
			dst[i] = space - 1 - i * (space / count); /* all differ */
			src[i] = b.pairing.is_push ? model_random(&random) % KVP_BLOCKS_MAX
						   : (i * 3ULL) ^ 1;
		}
		for (uint32_t i = 0; i < count; i++) {
			uint32_t j = (uint32_t)(model_random(&random) % count);
			uint64_t keep = dst[i];

			dst[i] = dst[j];
			dst[j] = keep;
		}
		for (uint32_t i = 0; i < count; i++)
			want[i] = dst[i] << 32 | src[i];
		qsort(want, count, sizeof(*want), compare_u64);
		build(&b);
		for (uint32_t r = 0; r < b.plan.runs; r++) {
			const struct kvp_run *run = &b.plan.run[r];

			assert_int_equal(run->ordinal, at);
			for (uint32_t i = 0; i < run->count; i++, at++)
				assert_true(want[at] ==
					    ((uint64_t)(run->remote + i) << 32 | (run->local + i)));
		}
		assert_int_equal(at, count);
		drop(&b);
	}
	free(want);
	free(src);
	free(dst);
}

static struct kvp_plan
groups_of(const struct kvp_tensor *local, const struct kvp_tensor *remote, uint32_t tensors,
	  struct kvp_group *group_out)
{
	const uint64_t blocks[3] = {1, 2, 3};
	struct built b = {.pairing = pairing_of(blocks, blocks, 3)};
	struct kvp_plan plan;

	b.pairing.local = local;
	b.pairing.remote = remote;
	b.pairing.tensors = tensors;
	build(&b);
	plan = b.plan;
	memcpy(group_out, b.plan.group, b.plan.groups * sizeof(*group_out));
	drop(&b);
	return plan;
}

static void
group__not_folded(void **state)
{
	const struct kvp_tensor pair[2] = {tensor(0x1000, 8, 16, 32), tensor(0x1010, 8, 16, 32)};
	const struct kvp_tensor others[][2] = {
		{tensor(0x9000, 8, 16, 32), tensor(0x9011, 8, 16, 33)}, /* gap, stride */
		{tensor(0x9000, 8, 16, 48), tensor(0x9011, 8, 16, 48)}, /* gap */
		{tensor(0x9000, 8, 16, 32), tensor(0x9010, 8, 16, 48)}, /* strides differ */
		{tensor(0x9010, 8, 16, 32), tensor(0x9000, 8, 16, 32)}, /* the other order */
		{tensor(0x9000, 8, 16, 16), tensor(0xA000, 8, 16, 16)}, /* apart */
		{tensor(0x9000, 8, 16, 32), tensor(0x9010, 9, 16, 32)}, /* more blocks */
	};
	struct kvp_group group[2];

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_int_equal(groups_of(pair, others[i], 2, group).groups, 2);
		assert_int_equal(groups_of(others[i], pair, 2, group).groups, 2);
		assert_int_equal(group[0].tensors, 1);
		assert_int_equal(group[0].block_bytes, 16);
		assert_int_equal(group[0].remote_tensor, 5);
		assert_int_equal(group[1].remote_tensor, 6);
		assert_false(group[0].is_dense);
	}
}

static void
group__folded(void **state)
{
	const struct kvp_tensor dense[2] = {tensor(0x1000, 8, 16, 32), tensor(0x1010, 8, 16, 32)};
	const struct kvp_tensor loose[2] = {tensor(0x9000, 8, 16, 40), tensor(0x9010, 8, 16, 40)};
	struct kvp_group group[2];
	struct kvp_plan plan;

	(void)state;
	plan = groups_of(dense, dense, 2, group);
	assert_int_equal(plan.groups, 1);
	assert_int_equal(plan.extents, 1);
	assert_int_equal(plan.pieces, 6);
	assert_int_equal(plan.bytes, 96);
	assert_int_equal(group[0].tensors, 2);
	assert_int_equal(group[0].block_bytes, 32);
	assert_int_equal(group[0].local_base, 0x1000);
	assert_true(group[0].is_dense);

	/* Strides may differ between the sides; a padded one keeps blocks apart. */
	plan = groups_of(dense, loose, 2, group);
	assert_int_equal(plan.groups, 1);
	assert_int_equal(plan.extents, 3);
	assert_int_equal(group[0].local_stride, 32);
	assert_int_equal(group[0].remote_stride, 40);
	assert_false(group[0].is_dense);
	plan = groups_of(loose, dense, 2, group);
	assert_int_equal(plan.extents, 3);
	assert_false(group[0].is_dense);
}

/* Groups end where layers do, and a layer is a slice of the plan. */
static void
slice__layer_by_layer(void **state)
{
	const uint64_t blocks[4] = {1, 2, 3, 6};
	struct kvp_tensor all[6];
	struct built b = {.pairing = pairing_of(blocks, blocks, 4)};
	uint32_t at = 0;

	(void)state;
	/* One row of six tensors per block: without layers they fold into one. */
	for (uint64_t i = 0; i < 6; i++)
		all[i] = tensor(0x1000 + i * 16, 8, 16, 96);
	b.pairing.local = b.pairing.remote = all;
	b.pairing.tensors = 6;
	build(&b);
	assert_int_equal(b.plan.groups, 1);
	drop(&b);

	b.pairing.fold = 2;
	build(&b);
	assert_int_equal(b.plan.groups, 3);
	for (uint32_t layer = 0; layer < 3; layer++) {
		struct kvp_plan slice;

		kvp_plan_slice(&b.plan, 2, &at, &slice);
		assert_int_equal(at, layer + 1);
		assert_ptr_equal(slice.run, b.plan.run);
		assert_int_equal(slice.runs, 2);
		assert_int_equal(slice.groups, 1);
		assert_int_equal(slice.group->remote_tensor, 5 + layer * 2);
		assert_int_equal(slice.group->local_base, 0x1000 + layer * 32);
		assert_int_equal(slice.pieces, 8);
		assert_int_equal(slice.bytes, 4 * 32);
		assert_int_equal(slice.extents, 4); /* padded by the other layers */
	}
	assert_int_equal(b.plan.extents, 12);
	drop(&b);
	b.pairing.fold = 4; /* does not divide: the last group is shorter */
	build(&b);
	assert_int_equal(b.plan.groups, 2);
	assert_int_equal(b.plan.group[1].tensors, 2);
	drop(&b);
}

/* The beginning of each block: a tensor is a group, and a run is dense only when it is all of the block. */
static void
group__part_of_a_block(void **state)
{
	const struct kvp_tensor pair[2] = {tensor(0x1000, 8, 16, 32), tensor(0x1010, 8, 16, 32)};
	const struct kvp_tensor tight = tensor(0x9000, 8, 16, 16);
	const uint64_t blocks[3] = {1, 2, 3};
	struct built b = {.pairing = pairing_of(blocks, blocks, 3)};

	(void)state;
	b.pairing.local = b.pairing.remote = pair;
	b.pairing.tensors = 2;
	b.pairing.bytes_per_block = 12;
	build(&b);
	assert_int_equal(b.plan.groups, 2);
	assert_int_equal(b.plan.extents, 6);
	assert_int_equal(b.plan.bytes, 72);
	assert_int_equal(b.plan.group[1].block_bytes, 12);
	assert_int_equal(b.plan.group[1].local_base, 0x1010);
	assert_false(b.plan.group[0].is_dense);
	drop(&b);

	b.pairing.local = b.pairing.remote = &tight;
	b.pairing.tensors = 1;
	b.pairing.bytes_per_block = 15;
	build(&b);
	assert_int_equal(b.plan.extents, 3);
	assert_false(b.plan.group[0].is_dense);
	drop(&b);
	b.pairing.bytes_per_block = 16;
	build(&b);
	assert_int_equal(b.plan.extents, 1);
	assert_true(b.plan.group[0].is_dense);
	drop(&b);
}

/* [blocks][layers][2]: everything is one tensor. And two chains with a gap between are two. */
static void
group__chains(void **state)
{
	struct kvp_tensor all[64];
	struct kvp_group group[64];
	struct kvp_plan plan;

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		all[i] = tensor(0x100000 + i * 16, 8, 16, 64 * 16);
	plan = groups_of(all, all, 64, group);
	assert_int_equal(plan.groups, 1);
	assert_int_equal(plan.extents, 1);
	assert_int_equal(plan.pieces, 192);
	assert_int_equal(group[0].tensors, 64);

	for (uint32_t i = 0; i < 64; i++)
		all[i] = tensor(0x100000 + i * 16 + (i >= 20 ? 8 : 0), 8, 16, 64 * 16 + 8);
	plan = groups_of(all, all, 64, group);
	assert_int_equal(plan.groups, 2);
	assert_int_equal(plan.extents, 6);
	assert_int_equal(group[0].tensors, 20);
	assert_int_equal(group[1].tensors, 44);
	assert_int_equal(group[1].remote_tensor, 25);
	assert_int_equal(group[1].local_base, 0x100000 + 20 * 16 + 8);
}

/* 64 tensors x 1,864 scattered blocks: 119,296 pieces that the plan never lists. */
static void
plan__llama_is_small(void **state)
{
	static struct kvp_tensor local[LLAMA_TENSORS], remote[LLAMA_TENSORS];
	static uint64_t src[LLAMA_PAIRS], dst[LLAMA_PAIRS], src_of[2 * LLAMA_PAIRS];
	struct built b = {.pairing = pairing_of(src, dst, LLAMA_PAIRS)};
	struct kvp_extent extent[7];
	struct kvp_cursor cursor;
	uint64_t extents = 0, random = 1;
	uint32_t count;

	(void)state;
	for (uint32_t i = 0; i < LLAMA_TENSORS; i++) {
		local[i] = tensor(0x100000000 + i * 0x10000000ULL, 4000, 32768, 32768);
		remote[i] = tensor(0x7F0000000000 + i * 0x10000000ULL, 4000, 32768, 32768);
	}
	for (uint32_t i = 0; i < LLAMA_PAIRS; i++) {
		src[i] = 2 * i;
		dst[i] = 2 * i + 1;
	}
	for (uint32_t i = 0; i < LLAMA_PAIRS; i++) {
		uint32_t j = (uint32_t)(model_random(&random) % LLAMA_PAIRS);
		uint64_t keep = dst[i];

		dst[i] = dst[j];
		dst[j] = keep;
	}
	for (uint32_t i = 0; i < LLAMA_PAIRS; i++)
		src_of[dst[i]] = src[i];
	b.pairing.local = local;
	b.pairing.remote = remote;
	b.pairing.tensors = LLAMA_TENSORS;
	build(&b);
	assert_int_equal(b.plan.pieces, 119296);
	assert_int_equal(b.plan.extents, 119296);
	assert_int_equal(b.plan.runs, LLAMA_PAIRS);
	assert_int_equal(b.plan.groups, LLAMA_TENSORS);
	assert_int_equal(b.plan.bytes, 119296ULL * 32768);
	assert_true(kvp_plan_bytes(&b.plan) <= 16 * LLAMA_PAIRS + 64 * LLAMA_TENSORS);

	kvp_cursor_init(&cursor, &b.plan, 0, b.plan.bytes);
	while ((count = kvp_cursor_next(&cursor, 7, UINT64_MAX, extent)) > 0) {
		for (uint32_t i = 0; i < count; i++, extents++) {
			uint32_t t = (uint32_t)(extents / LLAMA_PAIRS);
			uint64_t block = extent[i].remote_offset / 32768;

			assert_int_equal(extent[i].bytes, 32768);
			assert_int_equal(extent[i].remote_tensor, 5 + t);
			assert_int_equal(extent[i].remote_offset % 32768, 0);
			assert_int_equal((uintptr_t)extent[i].local,
					 (uintptr_t)local[t].base + src_of[block] * 32768);
		}
	}
	assert_int_equal(extents, 119296);
	drop(&b);
}

static void
split__table(void **state)
{
	/* Two groups of 4 blocks: slots of 10 and of 100 bytes, together 440. */
	const struct kvp_tensor tensors[2] = {tensor(0x1000, 9, 10, 10),
					      tensor(0x9000, 9, 100, 100)};
	static const struct {
		uint32_t parts_max;
		uint64_t bytes_min;
		uint32_t parts;
		uint64_t first[9];
	} rows[] = {
		{1, 0, 1, {0, 440}},
		{2, 441, 1, {0, 440}},
		{2, 440, 1, {0, 440}},
		{2, 221, 1, {0, 440}},
		{2, 220, 1, {0, 440}}, /* 240 + 200: no cut leaves 220 on both sides */
		{2, 200, 2, {0, 240, 440}},
		{2, 0, 2, {0, 240, 440}},
		{4, 0, 4, {0, 140, 240, 340, 440}},
		{8, 0, 5, {0, 40, 140, 240, 340, 440}},
		{2, UINT64_MAX, 1, {0, 440}},
	};
	const uint64_t blocks[4] = {0, 2, 4, 6};
	struct built b = {.pairing = pairing_of(blocks, blocks, 4)};
	uint64_t first[9];

	(void)state;
	b.pairing.local = b.pairing.remote = tensors;
	b.pairing.tensors = 2;
	build(&b);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t parts =
			kvp_plan_split(&b.plan, rows[i].parts_max, rows[i].bytes_min, first);

		if (parts != rows[i].parts ||
		    memcmp(first, rows[i].first, (parts + 1) * sizeof(first[0])) != 0)
			fail_msg("row %zu: %u parts, first cut at %llu", i, parts,
				 (unsigned long long)first[1]);
	}
	drop(&b);
}

/* Equal slots: no share is more than one slot above another, and every allowed part is used. */
static void
split__shares_are_nearly_equal(void **state)
{
	const struct kvp_tensor wide[3] = {tensor(0x100000, 64, 4096, 4096),
					   tensor(0x200000, 64, 4096, 4096),
					   tensor(0x300000, 64, 4096, 4096)};
	uint64_t blocks[64], first[17];

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		blocks[i] = i;
	for (uint32_t count = 1; count <= 64; count++) {
		struct built b = {.pairing = pairing_of(blocks, blocks, count)};

		b.pairing.local = b.pairing.remote = wide;
		b.pairing.tensors = 3;
		build(&b);
		for (uint32_t max = 1; max <= 16; max++) {
			uint32_t parts = kvp_plan_split(&b.plan, max, 4096, first);
			uint64_t least = UINT64_MAX, most = 0;

			assert_int_equal(parts, max < 3 * count ? max : 3 * count);
			for (uint32_t i = 0; i < parts; i++) {
				uint64_t share = first[i + 1] - first[i];

				assert_int_equal(share % 4096, 0);
				least = share < least ? share : least;
				most = share > most ? share : most;
			}
			assert_true(most - least <= 4096);
		}
		drop(&b);
	}
}

static void
plan__as_the_model_for_all_seeds(void **state)
{
	struct model_stats seen = {0};
	uint8_t bytes[1500];

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		uint64_t random = seed;
		const char *wrong;

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)model_random(&random);
		wrong = plan_model_run(bytes, sizeof(bytes), &seen);
		if (wrong != NULL)
			fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
	}
	/* The seeds came by everything that they are there for. */
	assert_in_range(seen.refused, SEEDS / 50, SEEDS);
	assert_in_range(seen.sorted, SEEDS / 10, SEEDS);
	assert_in_range(seen.backward, SEEDS / 10, SEEDS);
	assert_in_range(seen.folded, SEEDS / 10, UINT32_MAX);
	assert_in_range(seen.dense_runs, SEEDS / 10, UINT32_MAX);
	assert_in_range(seen.cut_extents, SEEDS, UINT32_MAX);
	assert_in_range(seen.split, SEEDS / 10, SEEDS);
	assert_in_range(seen.pulls, SEEDS / 10, SEEDS);
	assert_in_range(seen.ranges, SEEDS / 10, SEEDS);
	assert_in_range(seen.reread, SEEDS / 10, UINT32_MAX);
	assert_in_range(seen.gathered, SEEDS, UINT32_MAX);
	assert_in_range(seen.large, SEEDS, UINT32_MAX);
	assert_in_range(seen.full, SEEDS, UINT32_MAX);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prepare__twice_is_refused),
		cmocka_unit_test(prepare__twice_in_a_long_list_is_refused),
		cmocka_unit_test(prepare__twice_as_source_is_fine),
		cmocka_unit_test(prepare__too_many_bytes_is_refused),
		cmocka_unit_test(prepare__order_and_runs),
		cmocka_unit_test(prepare__order_of_a_pull),
		cmocka_unit_test(prepare__twice_in_a_long_pull),
		cmocka_unit_test(fill__sorts_as_qsort),
		cmocka_unit_test(group__not_folded),
		cmocka_unit_test(group__folded),
		cmocka_unit_test(group__part_of_a_block),
		cmocka_unit_test(slice__layer_by_layer),
		cmocka_unit_test(group__chains),
		cmocka_unit_test(plan__llama_is_small),
		cmocka_unit_test(split__table),
		cmocka_unit_test(split__shares_are_nearly_equal),
		cmocka_unit_test(plan__as_the_model_for_all_seeds),
	};

	return cmocka_run_group_tests_name("engine_plan", tests, NULL, NULL);
}
