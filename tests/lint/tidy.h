/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tidy.h - tells the static analyser that kvp_fail returns the status it is given
 *
 * The analyser sees one file at a time; without this it follows paths on which
 * a failure is SUCCESS and outputs are read that nobody wrote.
 */
#ifndef KVP_TESTS_LINT_TIDY_H
#define KVP_TESTS_LINT_TIDY_H

#include "error.h"

#define kvp_fail(err, status, ...) ((void)(kvp_fail)((err), (status), __VA_ARGS__), (status))

#endif /* KVP_TESTS_LINT_TIDY_H */
