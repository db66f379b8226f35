/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - where failures of public calls end up, and the log
 *
 * Threads:    any; the error line is thread-local
 */
#ifndef KVP_CONTROL_REPORT_H
#define KVP_CONTROL_REPORT_H

#include <stdint.h>

#include "error.h"

/* The calling thread's error line: what kvp_error_message returns. Public calls pass it down as `err`. */
struct kvp_error *
kvp_error_here(void);

/* One line on stderr, "kvpush: <level>: ...", when `level` (1 error .. 4 debug) <= `limit`. */
void
kvp_log(uint32_t limit, uint32_t level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif /* KVP_CONTROL_REPORT_H */
