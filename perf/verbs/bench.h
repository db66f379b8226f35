/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - pushes over one rail beside ib_write_bw on the same rail
 *
 *   row    one pattern, piece size and number of QPs: runs of the engine and of ib_write_bw in turn
 *   duel   a gather list against one piece per request: the same pushes by two engines in turn
 *
 * Invariant:  no number is printed for a push whose bytes have not been verified: each row's push is
 *             made once with a notification and compared, byte for byte, before any clock runs
 * Threads:    one
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <kvpush/plan.h>

#include "pattern.h"
#include "side.h"

#define BENCH_SIZES_MAX 32U
#define BENCH_QPS_MAX   8U
#define BENCH_RUNS_MAX  101U
#define BENCH_EXTRA_MAX 32U

struct bench_options {
	const char *transport;
	const char *sender_device;
	const char *receiver_device;
	const char *reference;              /* the program */
	const char *extra[BENCH_EXTRA_MAX]; /* key=value for both engines */
	uint32_t extras;
	uint64_t size[BENCH_SIZES_MAX];
	uint32_t sizes;
	uint32_t qps[BENCH_QPS_MAX];
	uint32_t qps_count;
	bool has_pattern[BENCH_PATTERNS];
	bool has_duel;
	bool has_reference;
	bool is_json;
	uint32_t runs;
	uint32_t inflight;
	uint64_t run_ns;
	uint64_t push_bytes;
	uint32_t reference_port;
	uint32_t post_list; /* of ib_write_bw in the rows; in duels it is the engine's chain */
	int32_t gid_index;
	double at_least; /* ratio that pieces >= BENCH_LARGE must reach; 0: none */
};

#define BENCH_LARGE 16384U

/* Runs of one program, [runs] of bytes per second, and what they counted in sum. */
struct bench_runs {
	double bytes_per_s[BENCH_RUNS_MAX];
	uint32_t runs;
	uint64_t bytes;
	uint64_t cpu_ns; /* both processes */
	struct bench_totals totals;
};

struct bench_row {
	enum bench_pattern pattern;
	uint64_t piece_bytes;
	uint32_t qps;
	struct bench_runs engine;
	struct bench_runs reference; /* runs 0: not measured */
};

struct bench_duel {
	uint64_t piece_bytes;
	uint32_t qps;
	struct bench_runs gathered, single;
	struct kvp_plan_report plan; /* with what requests cost here, as fitted */
	uint64_t single_requests;    /* of the same plan, one piece each */
	/* ib_write_bw with requests as long as in the two plans, chained as the engine chains them */
	struct bench_runs gathered_reference, single_reference;
	double request_ns,
		byte_ns;  /* of ib_write_bw: a request of n bytes takes request_ns + n byte_ns */
	double predicted; /* factor; 0: nothing to fit */
};

double
bench_median(const struct bench_runs *runs);

/*
 * Median of the ratios of neighbouring runs, which other load on the machine moves less than the
 * ratio of medians; 0 when either has no run.
 */
double
bench_ratio(const struct bench_runs *one, const struct bench_runs *other);

/* `amount` for each GiB that the runs moved. */
double
bench_per_gib(const struct bench_runs *runs, double amount);

/* Exit status: EXIT_SUCCESS, or EXIT_FAILURE with a line on stderr. */
int
bench_run(const struct bench_options *options);

/* table.c: each prints to stdout */
void
bench_print_head(const struct bench_options *options, const char *path);
void
bench_print_row(const struct bench_options *options, const struct bench_row *row);
void
bench_print_duel(const struct bench_options *options, const struct bench_duel *duel);

/* options.c: ends the process on bad usage, as argp does. */
void
bench_options_parse(struct bench_options *options, int argc, char **argv);

#endif /* BENCH_BENCH_H */
