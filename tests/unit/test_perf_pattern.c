/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmark of the verbs transport moves, and what it finds wrong.
 * links: perf/verbs/pattern.o perf/demo/content.o engine/check.o
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../perf/verbs/pattern.h"

#define COUNT_MAX 4096U
#define COUNT     16U
#define PIECE     512U

static uint64_t src[COUNT_MAX], dst[COUNT_MAX];
static unsigned char sender[2 * COUNT * PIECE], receiver[2 * COUNT * PIECE];

static const uint64_t counts[] = {2, 3, 4, 15, 16, 17, 100, 1000, COUNT_MAX};

/* No slot twice, none past the end. */
static void
check_list(const uint64_t *list, uint64_t count)
{
	unsigned char *seen = calloc(bench_slots(count), 1);

	assert_non_null(seen);
	for (uint64_t i = 0; i < count; i++) {
		assert_true(list[i] < bench_slots(count));
		assert_int_equal(seen[list[i]], 0);
		seen[list[i]] = 1;
	}
	free(seen);
}

static void
lists__no_slot_twice(void **state)
{
	(void)state;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (uint32_t p = 0; p < BENCH_PATTERNS; p++) {
			bench_lists((enum bench_pattern)p, counts[c], src, dst);
			check_list(src, counts[c]);
			check_list(dst, counts[c]);
		}
	}
}

static void
lists__neighbours_are_what_the_names_say(void **state)
{
	(void)state;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (uint64_t i = 1; i < counts[c]; i++) {
			bench_lists(BENCH_SCATTERED, counts[c], src, dst);
			assert_true(dst[i] > dst[i - 1] + 1);
			assert_true(src[i] != src[i - 1] + 1);
			bench_lists(BENCH_GATHERED, counts[c], src, dst);
			assert_true(dst[i] == dst[i - 1] + 1);
			assert_true(src[i] != src[i - 1] + 1);
			bench_lists(BENCH_MERGED, counts[c], src, dst);
			assert_true(dst[i] == dst[i - 1] + 1);
			assert_true(src[i] == src[i - 1] + 1);
		}
		if (counts[c] > 100)
			return; /* the rest takes quadratic time */
	}
}

/* What a right transport does. */
static void
push(enum bench_pattern pattern)
{
	for (uint64_t slot = 0; slot < bench_slots(COUNT); slot++) {
		bench_fill(true, slot, sender + slot * PIECE, PIECE);
		bench_fill(false, slot, receiver + slot * PIECE, PIECE);
	}
	bench_lists(pattern, COUNT, src, dst);
	for (uint64_t i = 0; i < COUNT; i++)
		memcpy(receiver + dst[i] * PIECE, sender + src[i] * PIECE, PIECE);
}

static void
wrong__a_right_push_passes(void **state)
{
	(void)state;
	for (uint32_t p = 0; p < BENCH_PATTERNS; p++) {
		push((enum bench_pattern)p);
		assert_int_equal(bench_wrong((enum bench_pattern)p, COUNT, receiver, PIECE), 0);
	}
}

static void
wrong__every_flipped_byte_is_seen(void **state)
{
	(void)state;
	push(BENCH_SCATTERED);
	for (size_t i = 0; i < sizeof(receiver); i++) { /* in and outside the push */
		receiver[i] ^= 0x10;
		assert_int_equal(bench_wrong(BENCH_SCATTERED, COUNT, receiver, PIECE), 1);
		receiver[i] ^= 0x10;
	}
}

static void
wrong__two_pieces_exchanged_and_one_missing_are_seen(void **state)
{
	unsigned char piece[PIECE];

	(void)state;
	push(BENCH_GATHERED);
	memcpy(piece, receiver, PIECE);
	memcpy(receiver, receiver + PIECE, PIECE);
	memcpy(receiver + PIECE, piece, PIECE);
	assert_true(bench_wrong(BENCH_GATHERED, COUNT, receiver, PIECE) > PIECE);
	push(BENCH_GATHERED);
	bench_fill(false, dst[7], receiver + dst[7] * PIECE, PIECE);
	assert_true(bench_wrong(BENCH_GATHERED, COUNT, receiver, PIECE) > PIECE / 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists__no_slot_twice),
		cmocka_unit_test(lists__neighbours_are_what_the_names_say),
		cmocka_unit_test(wrong__a_right_push_passes),
		cmocka_unit_test(wrong__every_flipped_byte_is_seen),
		cmocka_unit_test(wrong__two_pieces_exchanged_and_one_missing_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
