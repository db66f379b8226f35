/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rights.h"

static void
parse__words_in_any_order(void **state)
{
	static const struct {
		const char *text;
		uint32_t rights;
	} good[] = {
		{"", 0},
		{"push", KVP_RIGHT_PUSH},
		{"pull", KVP_RIGHT_PULL},
		{"push,pull", KVP_RIGHTS_ALL},
		{"pull,push", KVP_RIGHTS_ALL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		uint32_t rights = 99;

		assert_true(kvp_rights_parse(good[i].text, &rights));
		assert_int_equal(rights, good[i].rights);
		assert_int_equal(kvp_rights_of(good[i].text), good[i].rights);
	}
}

static void
parse__refuses_the_rest(void **state)
{
	static const char *const bad[] = {
		",",   "push,",     ",push", "push,push", "push, pull",     "PUSH",      "pushpull",
		"pus", "push;pull", "none",  " ",         "push,pull,push", "push,,pull"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint32_t rights = 99;

		assert_false(kvp_rights_parse(bad[i], &rights));
		assert_int_equal(rights, 99);
		/* A text that nobody checked gives nothing away. */
		assert_int_equal(kvp_rights_of(bad[i]), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__words_in_any_order),
		cmocka_unit_test(parse__refuses_the_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
