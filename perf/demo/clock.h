/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the clocks the demo measures with */
#ifndef DEMO_CLOCK_H
#define DEMO_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
demo_clock_ns(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static inline uint64_t
demo_now_ns(void)
{
	return demo_clock_ns(CLOCK_MONOTONIC);
}

/* CPU time of the calling thread. */
static inline uint64_t
demo_thread_cpu_ns(void)
{
	return demo_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* CPU time of all threads of this process. */
static inline uint64_t
demo_process_cpu_ns(void)
{
	return demo_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

#endif /* DEMO_CLOCK_H */
