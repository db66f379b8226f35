/* SPDX-License-Identifier: Apache-2.0 */
/*
 * line.h - a text for people that grows clause by clause and is cut where its buffer ends
 *
 * Invariant:  text[used] is the NUL, used < size; nothing is written when size is 0
 * Ownership:  the buffer is the caller's
 * Threads:    one owner
 */
#ifndef KVP_ENGINE_LINE_H
#define KVP_ENGINE_LINE_H

#include <stddef.h>

struct kvp_line {
	char *text;
	size_t size;
	size_t used;
};

/* An empty one over `text`, which may be NULL when size is 0. */
struct kvp_line
kvp_line_start(char *text, size_t size);

void
kvp_line_add(struct kvp_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* KVP_ENGINE_LINE_H */
