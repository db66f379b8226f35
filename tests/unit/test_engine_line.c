/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void
add__grows(void **state)
{
	char text[32];
	struct kvp_line line = kvp_line_start(text, sizeof(text));

	(void)state;
	assert_string_equal(text, "");
	kvp_line_add(&line, "%u ports", 2U);
	kvp_line_add(&line, "; %s", "none up");
	assert_string_equal(text, "2 ports; none up");
	assert_int_equal(line.used, strlen(text));
}

/* Of every size: what fits is there, with its NUL, and the byte behind it is untouched. */
static void
add__is_cut(void **state)
{
	static const char whole[] = "abcdefghij";

	(void)state;
	for (size_t size = 1; size <= sizeof(whole) + 1; size++) {
		char text[sizeof(whole) + 2];
		struct kvp_line line;

		memset(text, 'x', sizeof(text));
		line = kvp_line_start(text, size);
		kvp_line_add(&line, "abcde");
		kvp_line_add(&line, "fghij");
		kvp_line_add(&line, "%s", "");
		assert_int_equal(line.used, size <= 10 ? size - 1 : 10);
		assert_memory_equal(text, whole, line.used);
		assert_int_equal(text[line.used], '\0');
		assert_int_equal(text[size], 'x');
	}
}

static void
add__without_a_buffer(void **state)
{
	struct kvp_line line = kvp_line_start(NULL, 0);

	(void)state;
	kvp_line_add(&line, "nobody reads this");
	assert_int_equal(line.used, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(add__grows),
		cmocka_unit_test(add__is_cut),
		cmocka_unit_test(add__without_a_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
