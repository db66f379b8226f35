/* SPDX-License-Identifier: Apache-2.0 */
#include "cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "fuzz/plan_model.h"

#define SLICE_SEEDS 2000U
#define GIB         (1ULL << 30)

/* 2 dense tensors folded, then 1 padded; 6 blocks in 3 runs. 6 x (20 + 6) = 156 bytes. */
static struct kvp_run runs[3] = {{10, 0, 3, 0}, {20, 5, 1, 3}, {30, 8, 2, 4}};
static struct kvp_group groups[2] = {
	{0x1000, 20, 20, 20, 4, 2, true},
	{0x8000, 8, 10, 6, 6, 1, false},
};
static const struct kvp_plan plan = {
	.run = runs,
	.group = groups,
	.runs = 3,
	.groups = 2,
	.blocks = 6,
	.pieces = 18,
	.extents = 9,
	.bytes = 156,
};

static const struct kvp_extent whole[9] = {
	{(uint8_t *)0x1000 + 200, 0, 4, 60},   {(uint8_t *)0x1000 + 400, 100, 4, 20},
	{(uint8_t *)0x1000 + 600, 160, 4, 40}, {(uint8_t *)0x8000 + 80, 0, 6, 6},
	{(uint8_t *)0x8000 + 88, 10, 6, 6},    {(uint8_t *)0x8000 + 96, 20, 6, 6},
	{(uint8_t *)0x8000 + 160, 50, 6, 6},   {(uint8_t *)0x8000 + 240, 80, 6, 6},
	{(uint8_t *)0x8000 + 248, 90, 6, 6},
};

static void
assert_extent(const struct kvp_extent *is, const struct kvp_extent *want, uint64_t from,
	      uint64_t bytes)
{
	assert_ptr_equal(is->local, want->local + from);
	assert_int_equal(is->remote_offset, want->remote_offset + from);
	assert_int_equal(is->remote_tensor, want->remote_tensor);
	assert_int_equal(is->bytes, bytes);
}

static void
next__nothing_left(void **state)
{
	struct kvp_extent extent[2];
	struct kvp_cursor cursor;

	(void)state;
	kvp_cursor_init(&cursor, &plan, 0, 0);
	assert_int_equal(kvp_cursor_next(&cursor, 2, UINT64_MAX, extent), 0);
	kvp_cursor_init(&cursor, &plan, 77, 0);
	assert_int_equal(kvp_cursor_next(&cursor, 2, UINT64_MAX, extent), 0);
	kvp_cursor_init(&cursor, &plan, 156, 0);
	assert_int_equal(kvp_cursor_next(&cursor, 2, UINT64_MAX, extent), 0);
	assert_int_equal(kvp_cursor_next(&cursor, 2, UINT64_MAX, extent), 0);
}

static void
next__whole_plan(void **state)
{
	struct kvp_extent extent[16];
	struct kvp_cursor cursor;

	(void)state;
	kvp_cursor_init(&cursor, &plan, 0, 156);
	assert_int_equal(kvp_cursor_next(&cursor, 16, UINT64_MAX, extent), 9);
	for (int i = 0; i < 9; i++)
		assert_extent(&extent[i], &whole[i], 0, whole[i].bytes);
	assert_int_equal(cursor.left, 0);
	assert_int_equal(kvp_cursor_next(&cursor, 16, UINT64_MAX, extent), 0);
}

/* A run of a dense group is one extent; every block of a padded one is its own. */
static void
next__at_most_max(void **state)
{
	struct kvp_extent extent[9];
	struct kvp_cursor cursor;

	(void)state;
	for (uint32_t max = 1; max <= 9; max++) {
		uint32_t at = 0, count;

		kvp_cursor_init(&cursor, &plan, 0, 156);
		while ((count = kvp_cursor_next(&cursor, max, UINT64_MAX, extent)) > 0) {
			assert_int_equal(count, 9 - at < max ? 9 - at : max);
			for (uint32_t i = 0; i < count; i++, at++)
				assert_extent(&extent[i], &whole[at], 0, whole[at].bytes);
		}
		assert_int_equal(at, 9);
	}
}

static void
next__cut_by_bytes_max(void **state)
{
	struct kvp_extent extent[4];
	struct kvp_cursor cursor;

	(void)state;
	kvp_cursor_init(&cursor, &plan, 0, 156);
	assert_int_equal(kvp_cursor_next(&cursor, 4, 50, extent), 1);
	assert_extent(&extent[0], &whole[0], 0, 50);
	assert_int_equal(cursor.left, 106);
	assert_int_equal(kvp_cursor_next(&cursor, 4, 11, extent), 2);
	assert_extent(&extent[0], &whole[0], 50, 10);
	assert_extent(&extent[1], &whole[1], 0, 1);
	assert_int_equal(kvp_cursor_next(&cursor, 4, 61, extent), 3);
	assert_extent(&extent[0], &whole[1], 1, 19);
	assert_extent(&extent[1], &whole[2], 0, 40);
	assert_extent(&extent[2], &whole[3], 0, 2);
	assert_int_equal(kvp_cursor_next(&cursor, 4, 1, extent), 1);
	assert_extent(&extent[0], &whole[3], 2, 1);
	assert_int_equal(kvp_cursor_next(&cursor, 1, 100, extent), 1);
	assert_extent(&extent[0], &whole[3], 3, 3);
	assert_int_equal(kvp_cursor_next(&cursor, 1, 6, extent), 1);
	assert_extent(&extent[0], &whole[4], 0, 6);
	assert_int_equal(cursor.left, 24);
}

/* Long extents in portions of each_max from their start; the sum still ends at bytes_max. */
static void
next_each__cuts_every_extent(void **state)
{
	static const struct {
		uint32_t from, bytes, of;
	} want[] = {{0, 25, 0}, {25, 25, 0}, {50, 10, 0}, {0, 20, 1},
		    {0, 25, 2}, {25, 15, 2}, {0, 6, 3}};
	struct kvp_extent extent[9];
	struct kvp_cursor cursor;

	(void)state;
	kvp_cursor_init(&cursor, &plan, 0, 156);
	assert_int_equal(kvp_cursor_next_each(&cursor, 7, UINT64_MAX, 25, extent), 7);
	for (int i = 0; i < 7; i++)
		assert_extent(&extent[i], &whole[want[i].of], want[i].from, want[i].bytes);
	assert_int_equal(cursor.left, 30);
	kvp_cursor_init(&cursor, &plan, 0, 156);
	assert_int_equal(kvp_cursor_next_each(&cursor, 9, 70, 25, extent), 4);
	assert_extent(&extent[2], &whole[0], 50, 10);
	assert_extent(&extent[3], &whole[1], 0, 10);
	assert_int_equal(kvp_cursor_next_each(&cursor, 9, 70, 1, extent), 9);
	assert_extent(&extent[8], &whole[1], 18, 1);
	assert_int_equal(cursor.left, 77);
}

/* `left` alone says where a part ends, also when its owner shortens it. */
static void
next__ends_where_left_says(void **state)
{
	struct kvp_extent extent[9];
	struct kvp_cursor cursor;

	(void)state;
	kvp_cursor_init(&cursor, &plan, 0, 156);
	cursor.left = 65;
	assert_int_equal(kvp_cursor_next(&cursor, 9, UINT64_MAX, extent), 2);
	assert_extent(&extent[1], &whole[1], 0, 5);
	assert_int_equal(cursor.left, 0);
	assert_int_equal(kvp_cursor_next(&cursor, 9, UINT64_MAX, extent), 0);
	cursor.left = 15;
	assert_int_equal(kvp_cursor_next(&cursor, 9, UINT64_MAX, extent), 1);
	assert_extent(&extent[0], &whole[1], 5, 15);
}

/* Extents larger than their 32-bit field go out in portions; no memory is touched. */
static void
next__cuts_what_does_not_fit_the_field(void **state)
{
	struct kvp_run run = {1, 2, 3, 0};
	struct kvp_group group = {1ULL << 40, 5 * GIB, 5 * GIB, 5 * GIB, 9, 1, true};
	struct kvp_plan large = {.run = &run,
				 .group = &group,
				 .runs = 1,
				 .groups = 1,
				 .blocks = 3,
				 .bytes = 15 * GIB};

	(void)state;
	for (int dense = 0; dense < 2; dense++) {
		struct kvp_cursor cursor;
		struct kvp_extent extent;
		uint64_t at = 0, first = 0;

		group.is_dense = dense == 1;
		group.local_stride = dense == 1 ? 5 * GIB : 8 * GIB;
		kvp_cursor_init(&cursor, &large, 0, 15 * GIB);
		for (; kvp_cursor_next(&cursor, 1, UINT64_MAX, &extent) == 1; at += extent.bytes) {
			assert_true(extent.bytes >= GIB);
			first = first == 0 ? extent.bytes : first;
			assert_int_equal((uintptr_t)extent.local,
					 (1ULL << 40) + group.local_stride +
						 at / (5 * GIB) * group.local_stride +
						 at % (5 * GIB));
			assert_int_equal(extent.remote_offset, 10 * GIB + at);
		}
		assert_int_equal(at, 15 * GIB);
		assert_int_equal(first % 4096, 0);
	}
}

/* Where the bytes from `first` on are, in terms of the whole list. */
static void
assert_slice(uint64_t first, uint64_t bytes)
{
	struct kvp_extent extent[9];
	struct kvp_cursor cursor;
	uint32_t count, at = 0, i = 0;

	kvp_cursor_init(&cursor, &plan, first, bytes);
	count = kvp_cursor_next(&cursor, 9, UINT64_MAX, extent);
	while (first >= whole[at].bytes)
		first -= whole[at++].bytes;
	for (; bytes > 0; i++, at++) {
		uint64_t here = whole[at].bytes - first < bytes ? whole[at].bytes - first : bytes;

		assert_true(i < count);
		assert_extent(&extent[i], &whole[at], first, here);
		bytes -= here;
		first = 0;
	}
	assert_int_equal(i, count);
}

static void
init__at_every_byte(void **state)
{
	(void)state;
	for (uint64_t first = 0; first < 156; first++) {
		for (uint64_t bytes = 1; bytes <= 156 - first; bytes++)
			assert_slice(first, bytes);
	}
}

/* Byte-exact walks of other layouts than in the planner's test. */
static void
next__as_the_model_for_all_seeds(void **state)
{
	struct model_stats seen = {0};
	uint8_t bytes[700];

	(void)state;
	for (uint64_t seed = 1000001; seed <= 1000000 + SLICE_SEEDS; seed++) {
		uint64_t random = seed;
		const char *wrong;

		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)model_random(&random);
		wrong = plan_model_run(bytes, sizeof(bytes), &seen);
		if (wrong != NULL)
			fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
	}
	assert_true(seen.cut_extents > SLICE_SEEDS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(init__at_every_byte),
		cmocka_unit_test(next__nothing_left),
		cmocka_unit_test(next__whole_plan),
		cmocka_unit_test(next__at_most_max),
		cmocka_unit_test(next__cut_by_bytes_max),
		cmocka_unit_test(next_each__cuts_every_extent),
		cmocka_unit_test(next__ends_where_left_says),
		cmocka_unit_test(next__cuts_what_does_not_fit_the_field),
		cmocka_unit_test(next__as_the_model_for_all_seeds),
	};

	return cmocka_run_group_tests_name("engine_cursor", tests, NULL, NULL);
}
