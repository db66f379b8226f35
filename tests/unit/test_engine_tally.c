/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "histogram.h"

static struct kvp_tally tally;

static int
setup(void **state)
{
	(void)state;
	memset(&tally, 0, sizeof(tally));
	return 0;
}

static void
add__successes(void **state)
{
	const struct kvp_tally_item push = {KVP_SUCCESS, true, 100, 5, 3, 2, 1000};
	const struct kvp_tally_item pull = {KVP_SUCCESS, false, 50, 4, 4, 1, 3000};

	(void)state;
	kvp_tally_add(&tally, &push);
	kvp_tally_add(&tally, &push);
	kvp_tally_add(&tally, &pull);
	assert_int_equal(atomic_load(&tally.pushes), 2);
	assert_int_equal(atomic_load(&tally.pulls), 1);
	assert_int_equal(atomic_load(&tally.bytes), 250);
	assert_int_equal(atomic_load(&tally.pieces), 14);
	assert_int_equal(atomic_load(&tally.runs), 10);
	assert_int_equal(atomic_load(&tally.requests), 5);
	assert_int_equal(atomic_load(&tally.latency_sum), 5000);
	assert_int_equal(atomic_load(&tally.latency_max), 3000);
	assert_int_equal(atomic_load(&tally.bucket[kvp_bucket_of(1000, KVP_TALLY_STEPS_LOG2)]), 2);
	assert_int_equal(atomic_load(&tally.bucket[kvp_bucket_of(3000, KVP_TALLY_STEPS_LOG2)]), 1);
}

/* What failed has bytes and requests, but no latency: a timeout says nothing about speed. */
static void
add__failures(void **state)
{
	struct kvp_tally_item item = {KVP_TIMEOUT, true, 7, 5, 3, 2, 1000};

	(void)state;
	kvp_tally_add(&tally, &item);
	item.status = 0x12345678; /* nobody's */
	kvp_tally_add(&tally, &item);
	assert_int_equal(atomic_load(&tally.ended[kvp_tally_reason(KVP_TIMEOUT)]), 1);
	assert_int_equal(atomic_load(&tally.ended[kvp_tally_reason(KVP_FAILED)]), 1);
	assert_int_equal(atomic_load(&tally.bytes), 14);
	assert_int_equal(atomic_load(&tally.requests), 4);
	assert_int_equal(atomic_load(&tally.pieces), 0);
	assert_int_equal(atomic_load(&tally.latency_sum), 0);
	assert_int_equal(atomic_load(&tally.pushes) + atomic_load(&tally.pulls), 0);
}

static void
add__any_latency_has_a_bucket(void **state)
{
	struct kvp_tally_item item = {KVP_SUCCESS, true, 0, 0, 0, 0, 0};
	uint64_t count = 0;

	(void)state;
	for (uint32_t bit = 0; bit < 64; bit++) {
		item.latency_ns = (UINT64_C(1) << bit) - 1;
		kvp_tally_add(&tally, &item);
		item.latency_ns = UINT64_C(1) << bit;
		kvp_tally_add(&tally, &item);
	}
	for (uint32_t i = 0; i < KVP_TALLY_BUCKETS; i++)
		count += atomic_load(&tally.bucket[i]);
	assert_int_equal(count, 128);
	assert_int_equal(atomic_load(&tally.latency_max), (UINT64_C(1) << 40) - 1);
	assert_true(atomic_load(&tally.bucket[KVP_TALLY_BUCKETS - 1]) >= 24);
}

static void
reason__and_back(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++)
		assert_int_equal(kvp_tally_reason(kvp_tally_status(i)), i);
	assert_int_equal(kvp_tally_status(KVP_STATS_REASONS - 1), KVP_FAILED);
	assert_int_equal(kvp_tally_reason(KVP_PROTOCOL), KVP_STATS_REASONS - 1);
}

/* Edges contain their values, for the widths in use. */
static void
bucket__edge_is_the_last_value(void **state)
{
	(void)state;
	for (uint32_t steps_log2 = 4; steps_log2 <= 7; steps_log2 += 3) {
		for (uint64_t value = 0; value < 100000; value++) {
			uint32_t bucket = kvp_bucket_of(value, steps_log2);
			uint64_t edge = kvp_bucket_edge(bucket, steps_log2);

			assert_true(edge >= value);
			assert_true(edge - value <= value >> steps_log2);
			assert_int_equal(kvp_bucket_of(edge, steps_log2), bucket);
			assert_int_equal(kvp_bucket_of(edge + 1, steps_log2), bucket + 1);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(add__successes, setup),
		cmocka_unit_test_setup(add__failures, setup),
		cmocka_unit_test_setup(add__any_latency_has_a_bucket, setup),
		cmocka_unit_test(reason__and_back),
		cmocka_unit_test(bucket__edge_is_the_last_value),
	};

	return cmocka_run_group_tests_name("engine_tally", tests, NULL, NULL);
}
