/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void
fail__without_a_place(void **state)
{
	(void)state;
	assert_int_equal(kvp_fail(NULL, KVP_TIMEOUT, "%d", 7), KVP_TIMEOUT);
}

static void
fail__is_cut(void **state)
{
	struct {
		struct kvp_error err;
		char behind;
	} box = {.behind = 'x'};

	(void)state;
	assert_int_equal(kvp_fail(&box.err, KVP_FAILED, "%0*d", 400, 7), KVP_FAILED);
	assert_int_equal(strlen(box.err.text), KVP_ERROR_TEXT_MAX - 1);
	assert_int_equal(box.behind, 'x');
}

static void
fail__is_one_line(void **state)
{
	struct kvp_error err = {"old"};

	(void)state;
	assert_int_equal(kvp_fail(&err, KVP_PROTOCOL, "%s: %u\n", "a\nb\rc\x1b[2J\x7f", 3U),
			 KVP_PROTOCOL);
	assert_string_equal(err.text, "a b c [2J : 3 ");
	assert_int_equal(kvp_fail(&err, KVP_FAILED, "caf\xc3\xa9"), KVP_FAILED);
	assert_string_equal(err.text, "caf\xc3\xa9");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fail__without_a_place),
		cmocka_unit_test(fail__is_cut),
		cmocka_unit_test(fail__is_one_line),
	};

	return cmocka_run_group_tests_name("engine_error", tests, NULL, NULL);
}
