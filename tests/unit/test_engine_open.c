/* SPDX-License-Identifier: Apache-2.0 */
#include "open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 5U

static struct kvp_transfer whole;
static void *memory;

static int
setup(void **state)
{
	(void)state;
	memory = aligned_alloc(KVP_SHARE_SPAN, kvp_open_bytes(LAYERS, 2));
	memset(&whole, 0, sizeof(whole));
	whole.open = kvp_open_create(memory, LAYERS, 2);
	for (uint32_t i = 0; i < LAYERS; i++) {
		struct kvp_transfer *layer = kvp_open_layer(whole.open, i);

		memset(layer, 0, kvp_open_step(2));
		layer->whole = &whole;
		layer->parts = 2;
	}
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	free(memory);
	return 0;
}

/* Layers lie apart, aligned, inside the memory. */
static void
create__places(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LAYERS; i++) {
		uint8_t *at = (uint8_t *)kvp_open_layer(whole.open, i);

		assert_int_equal((uintptr_t)at % KVP_SHARE_SPAN, 0);
		assert_true(at >= (uint8_t *)memory + sizeof(struct kvp_open));
		assert_true((uintptr_t)at + offsetof(struct kvp_transfer, part) +
				    2 * sizeof(struct kvp_part) <=
			    (uintptr_t)whole.open->mark);
		assert_true(i == 0 || at - (uint8_t *)kvp_open_layer(whole.open, i - 1) ==
					      (ptrdiff_t)kvp_open_step(2));
	}
	assert_true((uintptr_t)(whole.open->mark + LAYERS) <=
		    (uintptr_t)memory + kvp_open_bytes(LAYERS, 2));
	assert_false(kvp_open_has_ended(&whole));
}

static void
mark__once(void **state)
{
	(void)state;
	assert_int_equal(kvp_open_mark(whole.open, 3), KVP_LAYER_UNMARKED);
	assert_int_equal(kvp_open_mark(whole.open, 3), KVP_LAYER_READY);
	assert_int_equal(kvp_open_mark(whole.open, 4), KVP_LAYER_UNMARKED);
}

static void
layer_end__counts_and_says_the_last(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LAYERS; i++) {
		struct kvp_transfer *layer = kvp_open_layer(whole.open, i);

		assert_int_equal(kvp_open_mark(whole.open, i), KVP_LAYER_UNMARKED);
		atomic_store(&layer->moved, 10);
		atomic_store(&layer->requests, 3);
		assert_int_equal(kvp_open_layer_end(layer), i == LAYERS - 1);
	}
	assert_true(kvp_open_has_ended(&whole));
	assert_int_equal(atomic_load(&whole.moved), LAYERS * 10);
	assert_int_equal(atomic_load(&whole.requests), LAYERS * 3);
}

/* What is under way is stopped and still awaited; what is not never starts. */
static void
stop__abandons_the_rest(void **state)
{
	(void)state;
	assert_int_equal(kvp_open_mark(whole.open, 1), KVP_LAYER_UNMARKED);
	assert_true(kvp_transfer_stop(&whole, KVP_TIMEOUT));
	kvp_open_stop(&whole);
	kvp_open_stop(&whole); /* by another lane */
	assert_int_equal(atomic_load(&whole.open->left), 1);
	assert_true(kvp_transfer_is_stopped(kvp_open_layer(whole.open, 1)));
	assert_false(kvp_transfer_is_stopped(kvp_open_layer(whole.open, 0)));
	assert_int_equal(kvp_open_mark(whole.open, 0), KVP_LAYER_ABANDONED);
	assert_int_equal(kvp_open_mark(whole.open, 1), KVP_LAYER_READY);
	assert_false(kvp_open_has_ended(&whole));
	assert_true(kvp_open_layer_end(kvp_open_layer(whole.open, 1)));
	assert_true(kvp_open_has_ended(&whole));
}

static void
has_ended__of_any_other_transfer(void **state)
{
	(void)state;
	assert_true(kvp_open_has_ended(kvp_open_layer(whole.open, 0)));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(create__places, setup, teardown),
		cmocka_unit_test_setup_teardown(mark__once, setup, teardown),
		cmocka_unit_test_setup_teardown(layer_end__counts_and_says_the_last, setup,
						teardown),
		cmocka_unit_test_setup_teardown(stop__abandons_the_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(has_ended__of_any_other_transfer, setup, teardown),
	};

	return cmocka_run_group_tests_name("engine_open", tests, NULL, NULL);
}
