/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference.h - the program to compare with: ib_write_bw of perftest, both ends on this host
 *
 * perftest counts processor cycles and asks /proc/cpuinfo for their frequency. Where that names none
 * (user-mode Linux) it prints "inf"; there it is given, in a mount namespace of its own, a file with
 * the frequency measured here, which it checks against its own measurement.
 * Its processor time is what both processes used, less what they use for 5 iterations: connecting,
 * and measuring the frequency.
 *
 * Threads:    one
 */
#ifndef BENCH_REFERENCE_H
#define BENCH_REFERENCE_H

#include <stdint.h>

struct bench_reference {
	const char *program; /* found on PATH, or a path */
	const char *sender_device;
	const char *receiver_device;
	int32_t gid_index; /* -1: let it choose */
	uint32_t qps;
	uint32_t post_list; /* requests per doorbell; 1 is its default */
	uint32_t port;      /* of its own connection; each run takes the next */
};

struct bench_reference_run {
	double bytes_per_s;
	uint64_t bytes;
	uint64_t cpu_ns; /* of both processes, whole */
};

/* Find out whether it can run here at all. 0, or -1 with a line on stderr. */
int
bench_reference_look(const struct bench_reference *reference);

/*
 * Write `bytes` in requests of `size` bytes, at least 5 per QP; 0 bytes: for its processor time alone. 0, or -1 with a line, and what the program
 * said, on stderr.
 */
int
bench_reference_run(struct bench_reference *reference, uint64_t size, uint64_t bytes,
		    struct bench_reference_run *run_out);

#endif /* BENCH_REFERENCE_H */
