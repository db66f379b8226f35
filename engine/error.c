/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

kvp_status
kvp_fail(struct kvp_error *err, kvp_status status, const char *format, ...)
{
	va_list args;

	if (err == NULL)
		return status;
	va_start(args, format);
	if (vsnprintf(err->text, sizeof(err->text), format, args) < 0)
		err->text[0] = '\0';
	va_end(args);

	/* Names and texts of peers may be part of it: keep it one printable line. */
	for (char *c = err->text; *c != '\0'; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7F)
			*c = ' ';
	}
	return status;
}
