/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - pairs of engines, and single runs of them and of ib_write_bw
 *
 * Each function returns 0, or -1 with a line on stderr.
 *
 * Ownership:  bench_run has the one struct bench
 * Threads:    one
 */
#ifndef BENCH_RUNS_H
#define BENCH_RUNS_H

#include "bench.h"
#include "reference.h"

struct bench {
	const struct bench_options *options;
	struct bench_side sender, receiver;
	struct bench_reference reference;
	int64_t cache[BENCH_PAIRS]; /* the receiver's */
	char path[512];
	bool is_slow; /* a row missed --at-least */
	bool has_head;
};

/* Pieces of one push. */
uint64_t
bench_pieces(const struct bench *bench, uint64_t piece_bytes);

/* An engine on each side, linked. `setting` (may be NULL) is for both. */
int
bench_pair_open(struct bench *bench, uint32_t pair, uint32_t qps, const char *setting);
int
bench_pair_close(struct bench *bench, uint32_t pair);
/* New caches on both sides, in place of the former ones. */
int
bench_pair_caches(struct bench *bench, uint32_t pair, uint64_t piece_bytes);
/* One push into memory filled with other content, and a look at every byte. */
int
bench_pair_verify(struct bench *bench, uint32_t pair, enum bench_pattern pattern);

/* One more run into *runs. */
int
bench_run_engine(struct bench *bench, uint32_t pair, enum bench_pattern pattern,
		 struct bench_runs *runs);
int
bench_run_reference(struct bench *bench, uint64_t size, uint64_t bytes,
		    const struct bench_reference_run *idle, struct bench_runs *runs);
int
bench_idle_reference(struct bench *bench, uint64_t size, struct bench_reference_run *idle_out);

/* duel.c: measure and print it. */
int
bench_duel_run(struct bench *bench, uint32_t qps);

#endif /* BENCH_RUNS_H */
