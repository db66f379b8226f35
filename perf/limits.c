/* SPDX-License-Identifier: Apache-2.0 */
#include "limit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "copy.h"

#define PIECES_PER_CALL 64U
#define WAIT_S          20
#define DONE_BYTE       'K'

static uint64_t
now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

uint64_t
limit_copy(const struct limit_pieces *pieces)
{
	const kvp_copy_fn copy = kvp_copy_kernels()->cold;
	uint64_t start = now_ns();

	for (size_t i = 0; i < pieces->count; i++)
		copy(pieces->dst[i], pieces->src[i], pieces->piece_bytes);
	kvp_copy_fence();
	return now_ns() - start;
}

/* Loopback has no bottleneck to probe: bbr would pace it, so ask for cubic or reno. */
static int
set_up(int fd)
{
	const struct timeval wait = {.tv_sec = WAIT_S};
	const int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic")) != 0 &&
	    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno")) != 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0)
		return -errno;
	return 0;
}

static int
open_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -errno;
	rc = set_up(fd);
	if (rc == 0)
		return fd;
	(void)close(fd);
	return rc;
}

int
limit_tcp_listen(uint16_t *port_out)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t at_bytes = sizeof(at);
	int fd = open_socket();
	int rc;

	if (fd < 0)
		return fd;
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 1) != 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &at_bytes) != 0) {
		rc = -errno;
		(void)close(fd);
		return rc;
	}
	*port_out = ntohs(at.sin_port);
	return fd;
}

int
limit_tcp_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int rc;

	if (fd < 0)
		return -errno;
	rc = set_up(fd);
	if (rc == 0)
		return fd;
	(void)close(fd);
	return rc;
}

int
limit_tcp_connect(uint16_t port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = open_socket();
	int rc;

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	rc = -errno;
	(void)close(fd);
	return rc;
}

/* Move all of iov[count] by writev or readv; both may do less than asked. */
static int
move_all(int fd, struct iovec *iov, size_t count, bool is_send)
{
	while (count > 0) {
		ssize_t n = is_send ? writev(fd, iov, (int)count) : readv(fd, iov, (int)count);
		size_t moved;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (n == 0)
			return -EPIPE;
		moved = (size_t)n;
		while (count > 0 && moved >= iov->iov_len) {
			moved -= iov->iov_len;
			iov++;
			count--;
		}
		if (count > 0) {
			iov->iov_base = (char *)iov->iov_base + moved;
			iov->iov_len -= moved;
		}
	}
	return 0;
}

static void *
place_of(const struct limit_pieces *pieces, size_t index, bool is_send)
{
	/* writev does not write through it, but struct iovec has no const. */
	union {
		const void *in;
		void *out;
	} place = {.in = is_send ? pieces->src[index] : pieces->dst[index]};

	return place.out;
}

static int
move_pieces(int fd, const struct limit_pieces *pieces, bool is_send)
{
	struct iovec iov[PIECES_PER_CALL];
	size_t next = 0;

	while (next < pieces->count) {
		size_t count = 0;
		int rc;

		for (; count < PIECES_PER_CALL && next < pieces->count; count++, next++)
			iov[count] = (struct iovec){
				.iov_base = place_of(pieces, next, is_send),
				.iov_len = pieces->piece_bytes,
			};
		rc = move_all(fd, iov, count, is_send);
		if (rc != 0)
			return rc;
	}
	return 0;
}

int
limit_tcp_send(int fd, const struct limit_pieces *pieces, uint64_t *elapsed_ns_out)
{
	uint64_t start = now_ns();
	char done = 0;
	struct iovec ack = {.iov_base = &done, .iov_len = 1};
	int rc = move_pieces(fd, pieces, true);

	if (rc == 0)
		rc = move_all(fd, &ack, 1, false);
	if (rc != 0)
		return rc;
	if (done != DONE_BYTE)
		return -EPROTO;
	*elapsed_ns_out = now_ns() - start;
	return 0;
}

int
limit_tcp_receive(int fd, const struct limit_pieces *pieces)
{
	char done = DONE_BYTE;
	struct iovec ack = {.iov_base = &done, .iov_len = 1};
	int rc = move_pieces(fd, pieces, false);

	return rc != 0 ? rc : move_all(fd, &ack, 1, true);
}

/* A number that follows `key` in a file, times `unit`; UINT64_MAX when there is none. */
static uint64_t
read_number(const char *path, const char *key, uint64_t unit)
{
	uint64_t value = UINT64_MAX;
	unsigned long long number;
	char line[128];
	FILE *file = fopen(path, "re");

	if (file == NULL)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		if (sscanf(line + strlen(key), "%llu", &number) == 1)
			value = number * unit;
		break;
	}
	(void)fclose(file);
	return value;
}

uint64_t
limit_memory_available(void)
{
	uint64_t available = read_number("/proc/meminfo", "MemAvailable:", 1024);
	uint64_t limit = read_number("/sys/fs/cgroup/memory.max", "", 1);
	uint64_t used = read_number("/sys/fs/cgroup/memory.current", "", 1);

	if (available == UINT64_MAX)
		return 0;
	if (limit == UINT64_MAX || used == UINT64_MAX)
		return available;
	if (used > limit)
		return 0;
	return limit - used < available ? limit - used : available;
}
