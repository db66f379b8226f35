/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the demo writes into blocks and what it finds wrong.
 * links: perf/demo/content.o engine/check.o
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../perf/demo/content.h"

#define PIECE 8192U

static const struct demo_content right = {.seed = 1, .key = 77, .epoch = 3, .tensor = 5};

static unsigned char piece[PIECE + 64];

static void
fill__any_size_and_alignment_checks_out(void **state)
{
	static const size_t sizes[] = {1, 7, 8, 15, 16, 17, 24, 31, 33, 4096, 4099, PIECE};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t shift = 0; shift < 3; shift++) {
			memset(piece, 0xEE, sizeof(piece));
			demo_content_fill(&right, piece + shift, sizes[i]);
			assert_int_equal(demo_content_wrong(&right, piece + shift, sizes[i]), 0);
			for (size_t after = shift + sizes[i]; after < sizeof(piece); after++)
				assert_int_equal(piece[after], 0xEE);
		}
	}
}

static void
wrong__every_single_byte_is_seen(void **state)
{
	(void)state;
	demo_content_fill(&right, piece, 1029);
	for (size_t i = 0; i < 1029; i++) {
		piece[i] ^= 1;
		assert_int_equal(demo_content_wrong(&right, piece, 1029), 1);
		piece[i] ^= 1;
	}
	demo_content_fill(&right, piece, PIECE);
	for (size_t i = 0; i < PIECE; i += 61) {
		piece[i] ^= 0x80;
		assert_int_equal(demo_content_wrong(&right, piece, PIECE), 1);
		piece[i] ^= 0x80;
	}
}

/* Nearly all bytes of another block differ: 1 in 256 is equal by chance. */
static void
assert_differs(const struct demo_content *other)
{
	demo_content_fill(other, piece, PIECE);
	assert_true(demo_content_wrong(&right, piece, PIECE) > PIECE * 98 / 100);
}

static void
wrong__other_blocks_are_seen(void **state)
{
	struct demo_content other = right;

	(void)state;
	other.seed++;
	assert_differs(&other);
	other = right;
	other.key++;
	assert_differs(&other);
	other = right;
	other.epoch--; /* the same block of an earlier computation */
	assert_differs(&other);
	other = right;
	other.tensor ^= 1; /* K for V */
	assert_differs(&other);
	other = right;
	other.key = right.epoch; /* fields do not stand in for each other */
	other.epoch = right.key;
	assert_differs(&other);
}

static void
wrong__shifted_and_torn_pieces_are_seen(void **state)
{
	static unsigned char moved[PIECE];
	struct demo_content old = right;

	(void)state;
	demo_content_fill(&right, piece, PIECE);
	memcpy(moved + 8, piece, PIECE - 8);
	memcpy(moved, piece + PIECE - 8, 8);
	assert_true(demo_content_wrong(&right, moved, PIECE) > PIECE * 98 / 100);
	old.epoch = 2;
	demo_content_fill(&old, moved, PIECE);
	memcpy(moved, piece, PIECE - 64); /* the last line is still the old one */
	assert_in_range(demo_content_wrong(&right, moved, PIECE), 32, 64);
}

static void
spoil__a_right_piece_is_wrong_in_every_page(void **state)
{
	(void)state;
	for (size_t bytes = 1; bytes <= PIECE; bytes = bytes * 2 + 1) {
		demo_content_fill(&right, piece, bytes);
		piece[bytes] = 0x5A;
		demo_content_spoil(piece, bytes);
		assert_int_equal(piece[bytes], 0x5A);
		assert_true(demo_content_wrong(&right, piece, bytes) > 0);
	}
	demo_content_fill(&right, piece, PIECE);
	demo_content_spoil(piece, PIECE);
	for (size_t page = 0; page < PIECE; page += 4096) {
		demo_content_fill(&right, piece, page); /* everything before it has arrived */
		assert_true(demo_content_wrong(&right, piece, PIECE) > 0);
	}
	demo_content_fill(&right, piece, PIECE);
	demo_content_spoil(piece, PIECE);
	demo_content_fill(&right, piece, PIECE - 8); /* all but the end */
	assert_in_range(demo_content_wrong(&right, piece, PIECE), 1, 8);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fill__any_size_and_alignment_checks_out),
		cmocka_unit_test(wrong__every_single_byte_is_seen),
		cmocka_unit_test(wrong__other_blocks_are_seen),
		cmocka_unit_test(wrong__shifted_and_torn_pieces_are_seen),
		cmocka_unit_test(spoil__a_right_piece_is_wrong_in_every_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
