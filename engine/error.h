/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - a failure's one line, on its way to the caller
 *
 * The first function that knows what went wrong writes the line with kvp_fail
 * and returns its status; callers pass the status on. Where `err` ends up
 * (kvp_error_message, a log line, a frame to a peer) is control's business.
 */
#ifndef KVP_ENGINE_ERROR_H
#define KVP_ENGINE_ERROR_H

#include <kvpush/status.h>

#include "compiler.h"

#define KVP_ERROR_TEXT_MAX 256

struct kvp_error {
	char text[KVP_ERROR_TEXT_MAX]; /* one line, no newline, "" when nothing failed */
};

/* Write the line (cut at KVP_ERROR_TEXT_MAX) and return `status`. `err` may be NULL. */
KVP_COLD kvp_status
kvp_fail(struct kvp_error *err, kvp_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* KVP_ENGINE_ERROR_H */
