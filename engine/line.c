/* SPDX-License-Identifier: Apache-2.0 */
#include "line.h"

#include <stdarg.h>
#include <stdio.h>

struct kvp_line
kvp_line_start(char *text, size_t size)
{
	if (size > 0)
		text[0] = '\0';
	return (struct kvp_line){.text = text, .size = size};
}

void
kvp_line_add(struct kvp_line *line, const char *format, ...)
{
	size_t room = line->size - line->used;
	va_list args;
	int bytes;

	if (line->size == 0)
		return;
	va_start(args, format);
	bytes = vsnprintf(line->text + line->used, room, format, args);
	va_end(args);
	if (bytes > 0)
		line->used += (size_t)bytes < room ? (size_t)bytes : room - 1;
}
