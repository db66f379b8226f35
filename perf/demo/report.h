/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - progress on stderr, the result on stdout */
#ifndef DEMO_REPORT_H
#define DEMO_REPORT_H

#include <stdio.h>

#include "demo.h"

/* Zero but for `total`. */
struct demo_progress {
	size_t total; /* requests */
	uint64_t start_ns, shown_ns;
	int is_terminal; /* 0: not yet looked, 1 yes, -1 no */
};

/* A bar ten times a second on a terminal, a line every two seconds otherwise. */
void
demo_progress_show(struct demo_progress *progress, size_t done, const struct demo_replay *replay);

/* The last state, and a newline on a terminal. */
void
demo_progress_end(struct demo_progress *progress, size_t done, const struct demo_replay *replay);

/* Did every byte of every part arrive as it was written? */
bool
demo_report_is_right(const struct demo_replay *replay, const struct demo_w1_result *w1);

void
demo_report_table(FILE *out, const struct demo_options *options, const struct demo_replay *replay,
		  const struct demo_w1_result *w1);

/* The same numbers as one line of JSON. 0, or -1: no memory or `out` failed. */
int
demo_report_json(FILE *out, const struct demo_options *options, const struct demo_replay *replay,
		 const struct demo_w1_result *w1);

#endif /* DEMO_REPORT_H */
