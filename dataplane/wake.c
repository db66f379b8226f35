/* SPDX-License-Identifier: Apache-2.0 */
#include "wake.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000U

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "the kernel reads a plain word");

void
kvp_wake_fd(int event_fd)
{
	const uint64_t one = 1;
	ssize_t rc;

	/* EAGAIN: the counter is full, so the other side is awake already. */
	do {
		rc = write(event_fd, &one, sizeof(one));
	} while (rc < 0 && errno == EINTR);
}

void
kvp_wake_word(_Atomic uint32_t *word)
{
	/* A private futex is found by its address alone; the kernel does not read *word. */
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void
kvp_sleep_word(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
				   .tv_nsec = (long)(timeout_ns % NS_PER_S)};

	(void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
		      timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

uint64_t
kvp_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}
