/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct kvp_error here;

struct kvp_error *
kvp_error_here(void)
{
	return &here;
}

const char *
kvp_error_message(void)
{
	return here.text;
}

void
kvp_log(uint32_t limit, uint32_t level, const char *format, ...)
{
	static const char *const name[] = {"", "error", "warning", "info", "debug"};
	char line[512];
	va_list args;

	if (level == 0 || level > limit || level > 4)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* One call, so that lines of several threads and processes do not mix. */
	fprintf(stderr, "kvpush: %s: %s\n", name[level], line);
}
