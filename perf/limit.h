/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h - what this machine can do without an engine (of limits.c; under the name of the
 * C library's limits.h it would be found instead of that)
 *
 * Plain loops over the same pieces that an engine moves, to compare it with.
 * Neither plans, checks or notifies anything.
 */
#ifndef PERF_LIMIT_H
#define PERF_LIMIT_H

#include <stddef.h>
#include <stdint.h>

/* pieces at src[i] go to dst[i]; a sender needs no dst, a receiver no src. */
struct limit_pieces {
	const void *const *src;
	void *const *dst;
	size_t count;
	size_t piece_bytes;
};

/* Copy all pieces with the cold (non-temporal) kernel on this thread. Returns ns. */
uint64_t
limit_copy(const struct limit_pieces *pieces);

/*
 * A TCP connection over loopback: cubic or reno, blocking, no call waits longer
 * than 20 s. listen gives its port; each returns a descriptor or -errno.
 */
int
limit_tcp_listen(uint16_t *port_out);
int
limit_tcp_accept(int listener);
int
limit_tcp_connect(uint16_t port);

/*
 * Send all pieces with writev, 64 a call, and wait for the receiver's byte.
 * Returns 0 and *elapsed_ns_out, or -errno.
 */
int
limit_tcp_send(int fd, const struct limit_pieces *pieces, uint64_t *elapsed_ns_out);

/* Receive all pieces with readv straight into their places, then send a byte. 0 or -errno. */
int
limit_tcp_receive(int fd, const struct limit_pieces *pieces);

/* Memory that can be had without hurting others: MemAvailable, less where a cgroup says so. */
uint64_t
limit_memory_available(void);

#endif /* PERF_LIMIT_H */
