/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's block allocator.
 * links: perf/demo/pool.o engine/check.o
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../../perf/demo/mix.h"
#include "../../perf/demo/pool.h"

#define SLOTS 8U

struct run {
	uint64_t keys[SLOTS * 2];
	uint32_t slots[SLOTS * 2];
	uint8_t is_new[SLOTS * 2];
	uint32_t count, anonymous;
};

/* keys first..first+count-1 and `anonymous` slots without one */
static int
acquire(struct demo_pool *pool, struct run *run, uint64_t first, uint32_t count, uint32_t anonymous)
{
	struct demo_pool_want want = {.keys = run->keys, .count = count, .anonymous = anonymous};
	int rc;

	for (uint32_t i = 0; i < count; i++)
		run->keys[i] = first + i;
	run->count = count;
	run->anonymous = anonymous;
	rc = demo_pool_acquire(pool, &want, run->slots, run->is_new);
	assert_true(demo_pool_ok(pool));
	return rc;
}

static void
release(struct demo_pool *pool, const struct run *run)
{
	demo_pool_release(pool, run->slots, run->count + run->anonymous);
	assert_true(demo_pool_ok(pool));
}

static uint32_t
new_count(const struct run *run)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < run->count; i++)
		count += run->is_new[i];
	return count;
}

static int
set_up(void **state)
{
	*state = demo_pool_create(SLOTS);
	return *state == NULL;
}

static int
tear_down(void **state)
{
	demo_pool_destroy(*state);
	return 0;
}

static void
create__refuses_sizes(void **state)
{
	(void)state;
	assert_null(demo_pool_create(0));
	assert_null(demo_pool_create((1U << 30) + 1));
	demo_pool_destroy(NULL);
}

static void
acquire__refuses_what_does_not_fit_and_pins_nothing(void **state)
{
	struct demo_pool *pool = *state;
	struct run a, b;

	assert_int_equal(acquire(pool, &a, 1, 8, 1), -EAGAIN);
	assert_int_equal(acquire(pool, &a, 1, 0, 9), -EAGAIN);
	assert_int_equal(pool->num_unpinned, SLOTS);
	assert_int_equal(acquire(pool, &a, 1, 5, 0), 0);
	assert_int_equal(acquire(pool, &b, 4, 6, 0), -EAGAIN); /* 4, 5 are there; 4 new, 3 free */
	assert_int_equal(pool->num_unpinned, 3);
	assert_int_equal(acquire(pool, &b, 4, 5, 0), 0);
	assert_int_equal(pool->num_unpinned, 0);
	release(pool, &a);
	assert_int_equal(pool->num_unpinned, 3); /* 4, 5 are still pinned by b */
	release(pool, &b);
	assert_int_equal(pool->num_unpinned, SLOTS);
}

static void
acquire__shares_a_prefix(void **state)
{
	struct demo_pool *pool = *state;
	struct run a, b;

	assert_int_equal(acquire(pool, &a, 1, 4, 0), 0);
	assert_int_equal(new_count(&a), 4);
	assert_int_equal(acquire(pool, &b, 1, 6, 0), 0);
	assert_int_equal(new_count(&b), 2);
	assert_memory_equal(a.slots, b.slots, 4 * sizeof(a.slots[0]));
	assert_int_equal(pool->slots[a.slots[0]].pins, 2);
	assert_int_equal(pool->hits, 4);
	assert_int_equal(pool->misses, 6);
	release(pool, &a);
	release(pool, &b);
	assert_int_equal(acquire(pool, &a, 1, 6, 0), 0); /* found again without pins */
	assert_int_equal(new_count(&a), 0);
	assert_memory_equal(a.slots, b.slots, 6 * sizeof(a.slots[0]));
	assert_int_equal(pool->evictions, 0);
}

static void
acquire__gives_each_allocation_its_epoch(void **state)
{
	struct demo_pool *pool = *state;
	struct run a;
	uint64_t first;

	assert_int_equal(acquire(pool, &a, 1, 1, 0), 0);
	first = pool->slots[a.slots[0]].epoch;
	pool->slots[a.slots[0]].is_filled = 1;
	release(pool, &a);
	assert_int_equal(acquire(pool, &a, 1, 1, 0), 0);
	assert_int_equal(pool->slots[a.slots[0]].epoch, first);
	assert_int_equal(pool->slots[a.slots[0]].is_filled, 1);
	release(pool, &a);
	assert_int_equal(acquire(pool, &a, 100, 8, 0), 0); /* evicts it */
	release(pool, &a);
	assert_int_equal(acquire(pool, &a, 1, 1, 0), 0);
	assert_true(pool->slots[a.slots[0]].epoch > first);
	assert_int_equal(pool->slots[a.slots[0]].is_filled, 0);
}

static void
acquire__takes_a_key_twice_in_one_slot(void **state)
{
	struct demo_pool *pool = *state;
	const uint64_t keys[] = {5, 6, 5, 5};
	struct demo_pool_want want = {.keys = keys, .count = 4};
	uint32_t slots[4];
	uint8_t is_new[4];

	assert_int_equal(demo_pool_acquire(pool, &want, slots, is_new), 0);
	assert_int_equal(slots[0], slots[2]);
	assert_int_equal(slots[0], slots[3]);
	assert_int_not_equal(slots[0], slots[1]);
	assert_int_equal(is_new[0] + is_new[1] + is_new[2] + is_new[3], 2);
	assert_int_equal(pool->num_unpinned, SLOTS - 2);
	demo_pool_release(pool, slots, 4);
	assert_int_equal(pool->num_unpinned, SLOTS);
	assert_true(demo_pool_ok(pool));
}

static void
release__evicts_the_least_recent_and_the_end_of_a_prefix_first(void **state)
{
	struct demo_pool *pool = *state;
	struct run old, recent, more;

	assert_int_equal(acquire(pool, &old, 1, 4, 0), 0);
	assert_int_equal(acquire(pool, &recent, 11, 4, 0), 0);
	release(pool, &recent);
	release(pool, &old); /* now 11..14 are the least recent */
	assert_int_equal(acquire(pool, &more, 21, 2, 0), 0);
	assert_int_equal(pool->evictions, 2);
	release(pool, &more);
	assert_int_equal(acquire(pool, &recent, 11, 2, 0), 0); /* the start is still there */
	assert_int_equal(new_count(&recent), 0);
	release(pool, &recent);
	assert_int_equal(acquire(pool, &old, 1, 4, 0), 0);
	assert_int_equal(new_count(&old), 0);
}

static void
release__anonymous_slots_go_first(void **state)
{
	struct demo_pool *pool = *state;
	struct run a, b;

	assert_int_equal(acquire(pool, &a, 1, 4, 4), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(pool->slots[a.slots[4 + i]].key, 0);
	release(pool, &a);
	assert_int_equal(acquire(pool, &b, 11, 4, 0), 0);
	assert_int_equal(pool->evictions, 0); /* nothing that could be found was lost */
	release(pool, &b);
	assert_int_equal(acquire(pool, &b, 1, 4, 0), 0);
	assert_int_equal(new_count(&b), 0);
}

/* Every slot's owner is known here as well; the pool must agree with that. */
static void
random__pins_are_never_given_twice(void **state)
{
	struct demo_pool *pool = *state;
	uint64_t random = 42;
	struct run runs[4];
	bool is_held[4] = {false};

	for (int step = 0; step < 20000; step++) {
		size_t at = (size_t)demo_random_below(&random, 4);
		uint32_t pins[SLOTS] = {0};

		if (is_held[at])
			release(pool, &runs[at]);
		is_held[at] =
			!is_held[at] && acquire(pool, &runs[at], 1 + demo_random_below(&random, 12),
						(uint32_t)demo_random_below(&random, 5),
						(uint32_t)demo_random_below(&random, 3)) == 0;
		for (size_t r = 0; r < 4; r++) {
			for (uint32_t i = 0; is_held[r] && i < runs[r].count + runs[r].anonymous;
			     i++) {
				const struct demo_pool_slot *s = &pool->slots[runs[r].slots[i]];

				assert_int_equal(s->key, i < runs[r].count ? runs[r].keys[i] : 0);
				pins[runs[r].slots[i]]++;
			}
		}
		for (uint32_t i = 0; i < SLOTS; i++)
			assert_int_equal(pool->slots[i].pins, pins[i]);
	}
	assert_true(pool->evictions > 1000);
	assert_true(pool->hits > 1000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create__refuses_sizes),
		cmocka_unit_test_setup_teardown(acquire__refuses_what_does_not_fit_and_pins_nothing,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(acquire__shares_a_prefix, set_up, tear_down),
		cmocka_unit_test_setup_teardown(acquire__gives_each_allocation_its_epoch, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(acquire__takes_a_key_twice_in_one_slot, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			release__evicts_the_least_recent_and_the_end_of_a_prefix_first, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(release__anonymous_slots_go_first, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(random__pins_are_never_given_twice, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
