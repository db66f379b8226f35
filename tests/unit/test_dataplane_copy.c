/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "copy.h"
#include "copy_kernels.h"

#define GUARD_BYTES 128U
#define SHIFTS      64U
#define SMALL_MAX   600U
#define LARGE_MAX   (3U << 20)
#define ROOM        (LARGE_MAX + SHIFTS + 2 * GUARD_BYTES)
#define GUARD       0xA5
/* ThreadSanitizer makes this single-threaded test ten times slower. */
#if defined(__SANITIZE_THREAD__)
#define FROM_STEP 7U
#else
#define FROM_STEP 1U
#endif

static uint8_t *source;
static uint8_t *target;
static uint8_t guard[GUARD_BYTES];

static int
buffers_setup(void **state)
{
	(void)state;
	source = aligned_alloc(4096, (ROOM + 4095U) & ~4095U);
	target = aligned_alloc(4096, (ROOM + 4095U) & ~4095U);
	if (source == NULL || target == NULL)
		return -1;
	memset(guard, GUARD, sizeof(guard));
	/* Period 251 is prime: a copy shifted by any power of two differs. */
	for (size_t i = 0; i < ROOM; i++)
		source[i] = (uint8_t)(i % 251U);
	return 0;
}

static int
buffers_teardown(void **state)
{
	(void)state;
	free(source);
	free(target);
	return 0;
}

static void
check_guard(const uint8_t *at, const char *name, size_t bytes)
{
	if (memcmp(at, guard, GUARD_BYTES) != 0)
		fail_msg("%s wrote outside a copy of %zu bytes", name, bytes);
}

static void
copy_and_check(const struct kvp_copy_kernels *kernels, size_t to, size_t from, size_t bytes)
{
	uint8_t *dst = target + GUARD_BYTES + to;
	const uint8_t *src = source + GUARD_BYTES + from;

	memset(dst - GUARD_BYTES, GUARD, bytes + 2 * GUARD_BYTES);
	kernels->cold(dst, src, bytes);
	kvp_copy_fence();
	if (memcmp(dst, src, bytes) != 0)
		fail_msg("%s: wrong bytes, size %zu, dst +%zu, src +%zu", kernels->name, bytes, to,
			 from);
	check_guard(dst - GUARD_BYTES, kernels->name, bytes);
	check_guard(dst + bytes, kernels->name, bytes);
}

static void
cold__every_small_size_and_shift(const struct kvp_copy_kernels *kernels)
{
	for (size_t bytes = 0; bytes <= SMALL_MAX; bytes++) {
		for (size_t to = 0; to < SHIFTS; to++) {
			for (size_t from = 0; from < SHIFTS; from += FROM_STEP)
				copy_and_check(kernels, to, from, bytes);
		}
	}
}

static void
cold__large_sizes(const struct kvp_copy_kernels *kernels)
{
	static const size_t sizes[] = {4095, 4096, 4097, 65536 + 127, 262144 - 1, LARGE_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		copy_and_check(kernels, 0, 0, sizes[i]);
		copy_and_check(kernels, 1, 0, sizes[i]);
		copy_and_check(kernels, 0, 1, sizes[i]);
		copy_and_check(kernels, 63, 33, sizes[i]);
	}
}

static void
run_kernel(unsigned int index, void (*test)(const struct kvp_copy_kernels *))
{
	const struct kvp_copy_kernels *kernels = kvp_copy_kernels_at(index);

	if (kernels == NULL)
		skip(); /* this CPU lacks it */
	test(kernels);
}

static void
copy_avx512__small(void **state)
{
	(void)state;
	run_kernel(0, cold__every_small_size_and_shift);
}

static void
copy_avx512__large(void **state)
{
	(void)state;
	run_kernel(0, cold__large_sizes);
}

static void
copy_avx2__small(void **state)
{
	(void)state;
	run_kernel(1, cold__every_small_size_and_shift);
}

static void
copy_avx2__large(void **state)
{
	(void)state;
	run_kernel(1, cold__large_sizes);
}

static void
copy_sse2__small(void **state)
{
	(void)state;
	run_kernel(2, cold__every_small_size_and_shift);
}

static void
copy_sse2__large(void **state)
{
	(void)state;
	run_kernel(2, cold__large_sizes);
}

static void
copy_plain__small(void **state)
{
	(void)state;
	run_kernel(3, cold__every_small_size_and_shift);
}

static void
kernels_at__out_of_range(void **state)
{
	(void)state;
	assert_null(kvp_copy_kernels_at(KVP_COPY_KERNELS));
	assert_non_null(kvp_copy_kernels_at(KVP_COPY_KERNELS - 1)); /* plain is everywhere */
}

static void
kernels_choose__unknown_name_gives_the_best(void **state)
{
	const struct kvp_copy_kernels *best = kvp_copy_kernels_choose(NULL);

	(void)state;
	assert_non_null(best);
	assert_ptr_equal(kvp_copy_kernels_choose("neon"), best);
	assert_ptr_equal(kvp_copy_kernels_choose(""), best);
}

static void
kernels_choose__by_name(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < KVP_COPY_KERNELS; i++) {
		const struct kvp_copy_kernels *one = kvp_copy_kernels_at(i);

		if (one != NULL)
			assert_ptr_equal(kvp_copy_kernels_choose(one->name), one);
	}
	assert_string_equal(kvp_copy_kernels_choose("plain")->name, "plain");
}

static void
kernels__chosen_once_from_the_environment(void **state)
{
	const struct kvp_copy_kernels *first;

	(void)state;
	assert_int_equal(setenv("KVP_COPY", "plain", 1), 0);
	first = kvp_copy_kernels();
	assert_string_equal(first->name, "plain");
	assert_int_equal(unsetenv("KVP_COPY"), 0);
	assert_ptr_equal(kvp_copy_kernels(), first);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copy_avx512__small),
		cmocka_unit_test(copy_avx512__large),
		cmocka_unit_test(copy_avx2__small),
		cmocka_unit_test(copy_avx2__large),
		cmocka_unit_test(copy_sse2__small),
		cmocka_unit_test(copy_sse2__large),
		cmocka_unit_test(copy_plain__small),
		cmocka_unit_test(kernels_at__out_of_range),
		cmocka_unit_test(kernels_choose__unknown_name_gives_the_best),
		cmocka_unit_test(kernels_choose__by_name),
		cmocka_unit_test(kernels__chosen_once_from_the_environment),
	};

	return cmocka_run_group_tests(tests, buffers_setup, buffers_teardown);
}
