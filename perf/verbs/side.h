/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.h - the two processes that hold the engines: one sends, one receives
 *
 * The measuring process never opens an engine; it asks the sides over a socket pair, one question at
 * a time, and so can fork the program to compare with whenever it likes. A side keeps up to
 * BENCH_PAIRS engines: two of them compare two settings in alternating runs.
 *
 * Ownership:  bench_side_start makes process and socket, bench_side_end takes both back
 * Threads:    one in the measuring process; a side answers on its main thread
 */
#ifndef BENCH_SIDE_H
#define BENCH_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/types.h>

#include "pattern.h"

#define BENCH_NAME         "kvpush-verbs"
#define BENCH_PAIRS        2U
#define BENCH_SETTINGS_MAX 4096U
#define BENCH_INFLIGHT_MAX 64U

enum bench_question {
	BENCH_OPEN = 1, /* an engine with `settings`; R: answers its port */
	BENCH_LINK,     /* S: to `port` */
	BENCH_CACHE, /* a cache for pushes of `count` pieces, filled. The engine's former one is released */
	BENCH_FILL,    /* the side's own content into every slot of the cache */
	BENCH_PUSH,    /* S: one push with notification into `cache` */
	BENCH_CHECK,   /* R: its event must come; then every byte is compared */
	BENCH_MEASURE, /* S: pushes of `pattern` for `run_ns` */
	BENCH_USAGE,   /* CPU time of the process so far */
	BENCH_CLOSE,
};

struct bench_ask {
	uint32_t question; /* enum bench_question */
	uint32_t pair;     /* which engine of the side */
	uint32_t pattern;  /* enum bench_pattern */
	uint32_t inflight; /* pushes at once */
	uint64_t count;    /* pieces of a push */
	uint64_t piece_bytes;
	uint64_t run_ns;
	int64_t cache; /* the receiver's */
	uint32_t port;
	char settings[BENCH_SETTINGS_MAX]; /* key=value, one a line */
};

/* Counted by the sender's link during a run. */
struct bench_totals {
	uint64_t requests, pieces, doorbells, gathered, completions, replayed;
};

struct bench_answer {
	int32_t rc; /* 0, or -1 and `text` says why */
	uint32_t port;
	int64_t cache;
	uint64_t elapsed_ns; /* MEASURE: first submit to last end */
	uint64_t bytes;
	uint64_t cpu_ns; /* USAGE: so far; MEASURE: of the run */
	uint64_t wrong_bytes;
	struct bench_totals totals;
	char text[1024]; /* LINK: the path */
};

struct bench_side {
	pid_t pid;
	int fd;
	bool is_sender;
};

/* Fork the side. 0, or -1 with a line on stderr. Call before anything else starts threads. */
int
bench_side_start(struct bench_side *side, bool is_sender);

/* Ask and wait for the answer. 0, or -1 with a line on stderr: the side is gone, or failed. */
int
bench_side_ask(struct bench_side *side, const struct bench_ask *ask,
	       struct bench_answer *answer_out);

/* Ends the process too. 0 when it ended well. A side that never started is a no-op. */
int
bench_side_end(struct bench_side *side);

#endif /* BENCH_SIDE_H */
