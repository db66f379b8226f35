/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define SEEDS 20000U
#define SPACE 512U

static struct kvp_tensor many[KVP_TENSORS_MAX + 1];

static struct kvp_tensor
tensor(uint64_t base, uint64_t blocks, uint64_t bytes, uint64_t stride)
{
	return (struct kvp_tensor){(void *)(uintptr_t)base, blocks, bytes, stride};
}

static void
assert_refused(const struct kvp_tensor *tensors, uint32_t num_tensors, bool may_lack_base,
	       const char *text)
{
	struct kvp_error err = {""};

	assert_int_equal(kvp_layout_check(tensors, num_tensors, may_lack_base, &err),
			 KVP_PARAM_INVALID);
	if (strcmp(err.text, text) != 0)
		fail_msg("message is   \"%s\"\n          not  \"%s\"", err.text, text);
	assert_int_equal(kvp_layout_check(tensors, num_tensors, may_lack_base, NULL),
			 KVP_PARAM_INVALID);
}

static void
assert_accepted(const struct kvp_tensor *tensors, uint32_t num_tensors)
{
	struct kvp_error err = {""};

	if (kvp_layout_check(tensors, num_tensors, false, &err) != KVP_SUCCESS)
		fail_msg("refused: %s", err.text);
	assert_string_equal(err.text, "");
}

static void
check__counts(void **state)
{
	(void)state;
	for (uint32_t i = 0; i <= KVP_TENSORS_MAX; i++)
		many[i] = tensor(0x100000 + i * 0x1000, 4, 1024, 1024);
	assert_refused(NULL, 1, false, "tensors is NULL");
	assert_refused(many, 0, false, "num_tensors is 0; it must be in [1, 4096]");
	assert_refused(many, KVP_TENSORS_MAX + 1, false,
		       "num_tensors is 4097; it must be in [1, 4096]");
	assert_accepted(many, KVP_TENSORS_MAX);
	assert_accepted(many, 1);
}

/* One bad tensor behind good ones is found and named. */
static void
check__one_tensor(void **state)
{
	static const struct {
		uint64_t base, blocks, bytes, stride;
		const char *text;
	} rows[] = {
		{0, 8, 64, 64, "tensors[2].base is NULL"},
		{0x9000, 0, 64, 64, "tensors[2].num_blocks is 0; it must be in [1, 4294967294]"},
		{0x9000, 0xFFFFFFFF, 64, 64,
		 "tensors[2].num_blocks is 4294967295; it must be in [1, 4294967294]"},
		{0x9000, 7, 64, 64,
		 "tensors[2].num_blocks is 7 but tensors[0].num_blocks is 8; all tensors of "
		 "a cache have "
		 "equally many"},
		{0x9000, 8, 0, 64, "tensors[2].block_bytes is 0; it must be at least 1"},
		{0x9000, 8, 64, 0,
		 "tensors[2].block_stride is 0; it must be at least block_bytes, 64"},
		{0x9000, 8, 64, 63,
		 "tensors[2].block_stride is 63; it must be at least block_bytes, 64"},
		{0x9000, 8, 64, UINT64_MAX / 7 + 1,
		 "tensors[2] wraps the address space: base 0x9000, 8 blocks, block_stride "
		 "2635249153387078803"},
		{0x9000, 8, UINT64_MAX, UINT64_MAX,
		 "tensors[2] wraps the address space: base 0x9000, 8 blocks, block_stride "
		 "18446744073709551615"},
		{UINT64_MAX - 511, 8, 64, 64,
		 "tensors[2] wraps the address space: base 0xfffffffffffffe00, 8 blocks, "
		 "block_stride 64"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvp_tensor tensors[3] = {
			tensor(0x1000, 8, 64, 64), tensor(0x2000, 8, 64, 64),
			tensor(rows[i].base, rows[i].blocks, rows[i].bytes, rows[i].stride)};

		assert_refused(tensors, 3, false, rows[i].text);
	}

	/* The last bytes of the address space but one can be used. */
	const struct kvp_tensor last = tensor(UINT64_MAX - 512, 8, 64, 64);

	assert_accepted(&last, 1);
}

static void
check__lacking_base(void **state)
{
	struct kvp_tensor tensors[3] = {tensor(0, 8, 64, 64), tensor(0, 8, 64, 64),
					tensor(0x5000, 8, 64, 64)};

	(void)state;
	assert_refused(tensors, 3, true,
		       "tensors[2].base is 0x5000; it must be NULL, the engine chooses it");
	tensors[2].base = NULL;
	assert_int_equal(kvp_layout_check(tensors, 3, true, NULL), KVP_SUCCESS);
	assert_refused(tensors, 3, false, "tensors[0].base is NULL");
	tensors[1].block_bytes = 0;
	assert_refused(tensors, 3, true, "tensors[1].block_bytes is 0; it must be at least 1");

	/* Each fits the address space, together they do not, nor with a page each. */
	for (int i = 0; i < 3; i++)
		tensors[i] = tensor(0, 1, UINT64_MAX / 3, UINT64_MAX / 3);
	assert_refused(tensors, 3, true,
		       "tensors[0] to tensors[2] together are more than 2^64 bytes");
	assert_int_equal(kvp_layout_check(tensors, 2, true, NULL), KVP_SUCCESS);
	tensors[0] = tensor(0, 1, UINT64_MAX, UINT64_MAX);
	assert_refused(tensors, 1, true,
		       "tensors[0] to tensors[0] together are more than 2^64 bytes");
}

static void
check__overlap_is_refused(void **state)
{
	static const struct {
		struct kvp_tensor tensors[2];
		const char *text;
	} rows[] = {
		{{{(void *)0x1000, 8, 64, 64}, {(void *)0x1000, 8, 64, 64}},
		 "tensors[0] and tensors[1] overlap: block 0 of the one (0x1000 + 0) and "
		 "block 0 of the "
		 "other (0x1000)"},
		{{{(void *)0x11FF, 8, 64, 64}, {(void *)0x1000, 8, 64, 64}},
		 "tensors[1] and tensors[0] overlap: block 7 of the one (0x1000 + 448) and "
		 "block 0 of the "
		 "other (0x11ff)"},
		{{{(void *)0x1000, 8, 64, 128}, {(void *)0x103F, 8, 64, 128}},
		 "tensors[0] and tensors[1] overlap: block 0 of the one (0x1000 + 0) and "
		 "block 0 of the "
		 "other (0x103f)"},
		{{{(void *)0x1000, 8, 64, 128}, {(void *)0x1041, 8, 64, 128}},
		 "tensors[0] and tensors[1] overlap: block 1 of the one (0x1000 + 128) and "
		 "block 0 of the "
		 "other (0x1041)"},
		{{{(void *)0x1000, 1, 64, 64}, {(void *)0x103F, 1, 8, 4096}},
		 "tensors[0] and tensors[1] overlap: block 0 of the one (0x1000 + 0) and "
		 "block 0 of the "
		 "other (0x103f)"},
		{{{(void *)0x1000, 8, 64, 128}, {(void *)0x1040, 8, 64, 256}},
		 "tensors[0] and tensors[1] interleave with different block_stride, 128 and "
		 "256; tensors "
		 "may share an address range only with equal strides"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_refused(rows[i].tensors, 2, false, rows[i].text);
}

static void
check__interleaved_is_fine(void **state)
{
	(void)state;
	/* [blocks][2], also the other way round */
	many[0] = tensor(0x1000, 64, 64, 128);
	many[1] = tensor(0x1040, 64, 64, 128);
	assert_accepted(many, 2);
	many[1] = tensor(0x1000 - 64, 64, 64, 128);
	assert_accepted(many, 2);
	/* [blocks][layers][2], unequal sizes, a padded slot, scrambled order */
	for (uint32_t i = 0; i < 128; i++)
		many[i * 77 % 128] =
			tensor(0x100000 + i * 96, 64, i % 2 == 0 ? 64 : 32, 128 * 96 + 8);
	assert_accepted(many, 128);
	many[100].block_bytes = 96;
	assert_accepted(many, 128);
	many[100].block_bytes = 97;
	assert_int_equal(kvp_layout_check(many, 128, false, NULL), KVP_PARAM_INVALID);
	/* as many as can be, all within each other */
	for (uint32_t i = 0; i < KVP_TENSORS_MAX; i++)
		many[i] = tensor(0x100000 + i * 16, 64, 16, KVP_TENSORS_MAX * 16);
	assert_accepted(many, KVP_TENSORS_MAX);
	many[KVP_TENSORS_MAX - 1].base = (uint8_t *)many[KVP_TENSORS_MAX - 1].base + 1;
	assert_int_equal(kvp_layout_check(many, KVP_TENSORS_MAX, false, NULL), KVP_PARAM_INVALID);
	/* one block each: strides do not matter */
	many[0] = tensor(0x1000, 1, 64, 4096);
	many[1] = tensor(0x1040, 1, 64, 8192);
	assert_accepted(many, 2);
}

static uint64_t
next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return z ^ z >> 31;
}

/* Bytes on which two tensors' blocks meet. */
static bool
meet_bytewise(const struct kvp_tensor *tensors, uint32_t num_tensors)
{
	uint8_t owner[SPACE] = {0};

	for (uint32_t t = 0; t < num_tensors; t++) {
		for (uint64_t block = 0; block < tensors[t].num_blocks; block++) {
			uint64_t at = (uintptr_t)tensors[t].base + block * tensors[t].block_stride;

			for (uint64_t byte = at; byte < at + tensors[t].block_bytes; byte++) {
				if (owner[byte]++ != 0)
					return true;
			}
		}
	}
	return false;
}

static bool
ranges_meet(const struct kvp_tensor *a, const struct kvp_tensor *b)
{
	uint64_t a_base = (uintptr_t)a->base, b_base = (uintptr_t)b->base;

	return a_base < b_base + kvp_tensor_extent(b) && b_base < a_base + kvp_tensor_extent(a);
}

/* Small random layouts against a map of bytes; exact but for unequal strides that interleave. */
static void
check__as_the_byte_map(void **state)
{
	uint32_t accepted = 0, refused = 0, interleaved = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		uint64_t random = seed, blocks = 1 + next_random(&random) % 5;
		uint64_t stride = 1 + next_random(&random) % 24;
		uint32_t num_tensors = 2 + (uint32_t)(next_random(&random) % 2);
		bool is_unsure = false, has_met, is_accepted;
		struct kvp_tensor t[3];

		for (uint32_t i = 0; i < num_tensors; i++) {
			if (next_random(&random) % 8 == 0)
				stride = 1 + next_random(&random) % 24;
			t[i] = tensor(1 + next_random(&random) % 100, blocks,
				      1 + next_random(&random) % stride, stride);
			for (uint32_t j = 0; j < i; j++)
				is_unsure |= blocks > 1 && ranges_meet(&t[i], &t[j]) &&
					     t[i].block_stride != t[j].block_stride;
		}
		has_met = meet_bytewise(t, num_tensors);
		is_accepted = kvp_layout_check(t, num_tensors, false, NULL) == KVP_SUCCESS;
		if (is_accepted != (!has_met && !is_unsure))
			fail_msg("seed %llu: accepted %d, met %d, unsure %d",
				 (unsigned long long)seed, is_accepted, has_met, is_unsure);
		accepted += is_accepted;
		refused += has_met;
		interleaved += is_accepted && blocks > 1 && ranges_meet(&t[0], &t[1]);
	}
	assert_true(accepted > SEEDS / 50);
	assert_true(refused > SEEDS / 50);
	assert_true(interleaved > SEEDS / 200);
}

static void
bytes__and_extent(void **state)
{
	const struct kvp_tensor tensors[3] = {tensor(0x1000, 8, 64, 128),
					      tensor(0x1040, 8, 32, 128), tensor(0x9000, 8, 1, 1)};

	(void)state;
	assert_int_equal(kvp_layout_bytes(tensors, 3), 8 * (64 + 32 + 1));
	assert_int_equal(kvp_layout_bytes(tensors, 1), 512);
	assert_int_equal(kvp_tensor_extent(&tensors[0]), 7 * 128 + 64);
	assert_int_equal(kvp_tensor_extent(&tensors[2]), 8);
	many[0] = tensor(0x1000, 1, 64, UINT64_MAX);
	assert_int_equal(kvp_tensor_extent(&many[0]), 64);
	many[0] = tensor(0x1000, KVP_BLOCKS_MAX, 1ULL << 20, 1ULL << 20);
	assert_true(kvp_layout_bytes(many, 1) == (uint64_t)KVP_BLOCKS_MAX << 20);
}

static void
assert_span(const struct kvp_span *span, uint64_t base, uint64_t stride, uint64_t bytes,
	    uint64_t count)
{
	assert_int_equal(span->base, base);
	assert_int_equal(span->stride, stride);
	assert_int_equal(span->bytes, bytes);
	assert_int_equal(span->count, count);
}

static void
spans__neighbours_share_one(void **state)
{
	const struct kvp_tensor tensors[] = {
		tensor(0x1000, 8, 64, 256),      tensor(0x1040, 8, 32, 256),
		tensor(0x1060, 8, 16, 256),      tensor(0x1080, 8, 16, 256), /* a gap before it */
		tensor(0x9000, 8, 16, 256),                                  /* apart */
		tensor(0x9010, 8, 16, 512),                                  /* another stride */
		tensor(0x9000 - 16, 8, 16, 256),                             /* the other order */
	};
	struct kvp_span spans[7];

	(void)state;
	kvp_layout_spans(tensors, 7, spans);
	for (int i = 0; i < 3; i++)
		assert_span(&spans[i], 0x1000, 256, 112, 8);
	assert_span(&spans[3], 0x1080, 256, 16, 8);
	assert_span(&spans[4], 0x9000, 256, 16, 8);
	assert_span(&spans[5], 0x9010, 512, 16, 8);
	assert_span(&spans[6], 0x8FF0, 256, 16, 8);

	/* One block each: neighbours may be longer together than their stride. */
	many[0] = tensor(0x1000, 1, 64, 100);
	many[1] = tensor(0x1040, 1, 64, 100);
	kvp_layout_spans(many, 2, spans);
	assert_span(&spans[0], 0x1000, 128, 128, 1);
	assert_span(&spans[1], 0x1000, 128, 128, 1);
}

static void
span__holds_not(void **state)
{
	const struct kvp_span padded = {0x1000, 100, 64, 10}, dense = {0x1000, 64, 64, 10};
	const struct kvp_span last = {UINT64_MAX - 640, 64, 64, 10};

	(void)state;
	assert_false(kvp_span_holds(&padded, 0x1000, 0));
	assert_false(kvp_span_holds(&padded, 0xFFF, 1));
	assert_false(kvp_span_holds(&padded, 0xFFF, 2));
	assert_false(kvp_span_holds(&padded, 0x1000, 65));
	assert_false(kvp_span_holds(&padded, 0x1000 + 64, 1));
	assert_false(kvp_span_holds(&padded, 0x1000 + 99, 1));
	assert_false(kvp_span_holds(&padded, 0x1000 + 1000, 1));
	assert_false(kvp_span_holds(&padded, 0x1000, UINT64_MAX));
	assert_false(kvp_span_holds(&padded, 0x1001, UINT64_MAX));
	assert_false(kvp_span_holds(&padded, 0x1020, UINT64_MAX - 0x20));
	assert_false(kvp_span_holds(&padded, UINT64_MAX, 1));
	assert_false(kvp_span_holds(&padded, UINT64_MAX, UINT64_MAX));
	assert_false(kvp_span_holds(&padded, 0, 0x1001));
	assert_false(kvp_span_holds(&dense, 0x1000, 641));
	assert_false(kvp_span_holds(&dense, 0x1000 + 640, 1));
	assert_false(kvp_span_holds(&dense, 0xFFF, 640));
	assert_false(kvp_span_holds(&dense, 0x1001, UINT64_MAX));
	assert_false(kvp_span_holds(&last, UINT64_MAX - 1, 2));
	assert_false(kvp_span_holds(&last, 0, 1));
	assert_true(kvp_span_holds(&last, UINT64_MAX - 1, 1));
	assert_true(kvp_span_holds(&last, UINT64_MAX - 640, 640));
}

/* All ranges in and around small spans, against a map of bytes. */
static void
span__holds_as_the_byte_map(void **state)
{
	static const struct kvp_span spans[] = {
		{20, 7, 3, 5}, {20, 7, 7, 5}, {20, 5, 4, 1}, {20, 1, 1, 9}, {20, 8, 1, 6}};
	uint32_t held = 0;

	(void)state;
	for (size_t s = 0; s < sizeof(spans) / sizeof(spans[0]); s++) {
		uint8_t map[100] = {0};

		for (uint64_t i = 0; i < spans[s].count; i++)
			memset(map + spans[s].base + i * spans[s].stride, 1, spans[s].bytes);
		for (uint64_t at = 0; at < 80; at++) {
			bool is_inside = true;

			for (uint64_t bytes = 1; bytes < 20; bytes++) {
				is_inside = is_inside && map[at + bytes - 1] == 1;
				if (kvp_span_holds(&spans[s], at, bytes) != is_inside)
					fail_msg("span %zu: %u bytes at %u", s, (uint32_t)bytes,
						 (uint32_t)at);
				held += is_inside;
			}
		}
	}
	assert_true(held > 100);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check__counts),
		cmocka_unit_test(check__one_tensor),
		cmocka_unit_test(check__lacking_base),
		cmocka_unit_test(check__overlap_is_refused),
		cmocka_unit_test(check__interleaved_is_fine),
		cmocka_unit_test(check__as_the_byte_map),
		cmocka_unit_test(bytes__and_extent),
		cmocka_unit_test(spans__neighbours_share_one),
		cmocka_unit_test(span__holds_not),
		cmocka_unit_test(span__holds_as_the_byte_map),
	};

	return cmocka_run_group_tests_name("engine_layout", tests, NULL, NULL);
}
