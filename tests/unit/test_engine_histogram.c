/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VALUE_MAX ((UINT64_C(1) << 40) - 1)

static struct kvp_histogram a, b, both;

static int
reset(void **state)
{
	(void)state;
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	memset(&both, 0, sizeof(both));
	return 0;
}

/* Never below the value, and at most 1 % above it: value <= got <= value * 1.01. */
static void
assert_near(uint64_t got, uint64_t value)
{
	assert_true(got >= value);
	assert_true((got - value) * 100 <= value);
}

/* The median of {value, value, the largest}: `max` does not hide the bucket's edge. */
static uint64_t
read_back(uint64_t value)
{
	uint64_t got;

	kvp_histogram_add(&a, value);
	kvp_histogram_add(&a, value);
	kvp_histogram_add(&a, VALUE_MAX);
	got = kvp_histogram_at(&a, 0.5);
	memset(&a, 0, sizeof(a));
	return got;
}

static void
at__empty(void **state)
{
	(void)state;
	assert_int_equal(kvp_histogram_at(&a, 0.0), 0);
	assert_int_equal(kvp_histogram_at(&a, 0.5), 0);
	assert_int_equal(kvp_histogram_at(&a, 1.0), 0);
}

static void
at__small_values_are_exact(void **state)
{
	(void)state;
	for (uint64_t value = 0; value < 256; value++)
		assert_int_equal(read_back(value), value);
}

static void
at__error_at_every_power(void **state)
{
	(void)state;
	for (uint32_t power = 1; power < 40; power++) {
		uint64_t base = UINT64_C(1) << power;

		/* Both ends of a bucket are where the error is largest. */
		for (uint64_t value = base - 1; value <= base + 1; value++)
			assert_near(read_back(value), value);
		assert_near(read_back(base + base / 3), base + base / 3);
	}
	assert_int_equal(read_back(VALUE_MAX), VALUE_MAX);
}

static void
at__edges_ascend(void **state)
{
	uint64_t last = 0;

	(void)state;
	/* In steps of 0.1 %, through all buckets. */
	for (uint64_t value = 1; value <= VALUE_MAX; value += 1 + value / 1000) {
		uint64_t got = read_back(value);

		assert_near(got, value);
		assert_true(got >= last);
		last = got;
	}
	assert_true(last > VALUE_MAX - VALUE_MAX / 50);
}

static void
add__beyond_range_counts_as_largest(void **state)
{
	(void)state;
	kvp_histogram_add(&a, VALUE_MAX + 1);
	kvp_histogram_add(&a, UINT64_MAX);
	assert_int_equal(a.count, 2);
	assert_int_equal(a.max, VALUE_MAX);
	assert_int_equal(a.sum, 2 * VALUE_MAX);
	assert_int_equal(a.bucket[KVP_HISTOGRAM_BUCKETS - 1], 2);
	assert_int_equal(kvp_histogram_at(&a, 0.5), VALUE_MAX);
}

static void
add__totals(void **state)
{
	uint64_t in_buckets = 0;

	(void)state;
	for (uint64_t value = 1; value <= 1000; value++)
		kvp_histogram_add(&a, value);
	assert_int_equal(a.count, 1000);
	assert_int_equal(a.sum, 500500);
	assert_int_equal(a.max, 1000);
	for (uint32_t i = 0; i < KVP_HISTOGRAM_BUCKETS; i++)
		in_buckets += a.bucket[i];
	assert_int_equal(in_buckets, 1000);
}

static void
at__ranks(void **state)
{
	(void)state;
	for (uint64_t value = 1; value <= 100; value++)
		kvp_histogram_add(&a, value); /* all exact */
	assert_int_equal(kvp_histogram_at(&a, -1.0), 1);
	assert_int_equal(kvp_histogram_at(&a, 0.0), 1);
	for (uint64_t percent = 1; percent <= 100; percent++)
		assert_int_equal(kvp_histogram_at(&a, (double)percent / 100.0), percent);
	assert_int_equal(kvp_histogram_at(&a, 0.501), 51);
	assert_int_equal(kvp_histogram_at(&a, 7.0), 100);
}

static void
at__never_above_max(void **state)
{
	(void)state;
	kvp_histogram_add(&a, 1000000);
	assert_int_equal(kvp_histogram_at(&a, 0.5), 1000000);
	assert_int_equal(kvp_histogram_at(&a, 0.999), 1000000);
}

static int
compare(const void *left, const void *right)
{
	uint64_t l, r;

	memcpy(&l, left, sizeof(l));
	memcpy(&r, right, sizeof(r));
	return l < r ? -1 : l > r;
}

/* Against the sorted values themselves, over nine orders of magnitude. */
static void
at__against_sorted_values(void **state)
{
	enum {
		COUNT = 20000
	};
	static const double share[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999};
	static uint64_t value[COUNT];
	uint64_t seed = 42;

	(void)state;
	for (size_t i = 0; i < COUNT; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
		value[i] = (seed >> 34) >> (seed % 30);
		kvp_histogram_add(&a, value[i]);
	}
	qsort(value, COUNT, sizeof(value[0]), compare);
	for (size_t i = 0; i < sizeof(share) / sizeof(share[0]); i++)
		assert_near(kvp_histogram_at(&a, share[i]),
			    value[(size_t)(share[i] * COUNT + 0.5) - 1]);
	assert_int_equal(kvp_histogram_at(&a, 1.0), value[COUNT - 1]);
}

static void
merge__is_as_if_added(void **state)
{
	(void)state;
	for (uint64_t value = 1; value < 5000; value += 7) {
		kvp_histogram_add(&a, value * 3);
		kvp_histogram_add(&both, value * 3);
		kvp_histogram_add(&b, value * 1000);
		kvp_histogram_add(&both, value * 1000);
	}
	kvp_histogram_merge(&a, &b);
	assert_memory_equal(&a, &both, sizeof(a));
}

static void
merge__keeps_larger_max(void **state)
{
	(void)state;
	kvp_histogram_add(&a, 900);
	kvp_histogram_add(&b, 20);
	kvp_histogram_merge(&a, &b);
	assert_int_equal(a.max, 900);
	kvp_histogram_merge(&b, &a);
	assert_int_equal(b.max, 900);
	assert_int_equal(b.count, 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(at__empty, reset),
		cmocka_unit_test_setup(at__small_values_are_exact, reset),
		cmocka_unit_test_setup(at__error_at_every_power, reset),
		cmocka_unit_test_setup(at__edges_ascend, reset),
		cmocka_unit_test_setup(add__beyond_range_counts_as_largest, reset),
		cmocka_unit_test_setup(add__totals, reset),
		cmocka_unit_test_setup(at__ranks, reset),
		cmocka_unit_test_setup(at__never_above_max, reset),
		cmocka_unit_test_setup(at__against_sorted_values, reset),
		cmocka_unit_test_setup(merge__is_as_if_added, reset),
		cmocka_unit_test_setup(merge__keeps_larger_max, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
