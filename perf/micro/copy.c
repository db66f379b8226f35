/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - GB/s of the copy kernels by piece size
 *
 * Pieces go from random slots of one pool to random slots of another. Cold: two
 * pools of 512 MiB (argument 1: MiB), so that nothing is in a cache. Hot: two of
 * 1 MiB. Time is CPU time of the thread, so that a neighbour on the core does
 * not count. Each cell is the best of several runs, since what else goes on in
 * memory only ever slows one down. Kernels take turns, so that all see the same
 * minutes of a noisy machine. About 10 s.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "check.h"
#include "copy.h"
#include "copy_kernels.h"

#define SIZES     6U
#define ROUNDS    3U
#define CELL_NS   50000000U
#define COLD_MIB  512U
#define HOT_BYTES (1U << 20)
#define BURST     16U /* copies between two looks at the clock */
#define NS_PER_S  1000000000U

static const size_t sizes[SIZES] = {4096, 8192, 16384, 32768, 131072, 1048576};

struct pool {
	uint8_t *src;
	uint8_t *dst;
	size_t bytes;
};

static uint64_t
cpu_ns(void)
{
	struct timespec now;

	KVP_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static uint64_t
random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Shared pages, as the transport's; touched, so that no fault is measured. */
static uint8_t *
pool_map(size_t bytes, int value)
{
	uint8_t *base =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED) {
		fprintf(stderr, "copy: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	memset(base, value, bytes);
	return base;
}

/* GB/s of one kernel and size, the fence included. */
static double
measure(const struct pool *pool, kvp_copy_fn copy, size_t bytes, uint64_t seed)
{
	uint64_t slots = pool->bytes / bytes, copied = 0, start = cpu_ns(), spent;

	do {
		for (uint32_t i = 0; i < BURST; i++) {
			uint64_t from = random_next(&seed) % slots;
			uint64_t to = random_next(&seed) % slots;

			copy(pool->dst + to * bytes, pool->src + from * bytes, bytes);
		}
		kvp_copy_fence();
		copied += BURST * bytes;
		spent = cpu_ns() - start;
	} while (spent < CELL_NS);
	return (double)copied / (double)spent;
}

static void
table(const char *title, const struct pool *pool)
{
	double best[KVP_COPY_KERNELS][SIZES] = {{0}};

	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t k = 0; k < KVP_COPY_KERNELS; k++) {
			const struct kvp_copy_kernels *kernels = kvp_copy_kernels_at(k);

			for (uint32_t s = 0; kernels != NULL && s < SIZES; s++) {
				double now = measure(pool, kernels->cold, sizes[s], 1 + round);

				best[k][s] = now > best[k][s] ? now : best[k][s];
			}
		}
	}
	printf("%s\n%-8s", title, "GB/s");
	for (uint32_t s = 0; s < SIZES; s++)
		printf(" %6zuK", sizes[s] / 1024);
	printf("\n");
	for (uint32_t k = 0; k < KVP_COPY_KERNELS; k++) {
		const struct kvp_copy_kernels *kernels = kvp_copy_kernels_at(k);

		if (kernels == NULL)
			continue;
		printf("%-8s", strcmp(kernels->name, "plain") == 0 ? "memcpy" : kernels->name);
		for (uint32_t s = 0; s < SIZES; s++)
			printf(" %7.2f", best[k][s]);
		printf("\n");
	}
}

int
main(int argc, char **argv)
{
	unsigned long cold_mib = argc > 1 ? strtoul(argv[1], NULL, 10) : COLD_MIB;
	struct pool pool;
	char title[64];

	if (cold_mib < 1 || cold_mib > 65536) {
		fprintf(stderr, "usage: %s [MiB of each cold pool, 1 to 65536]\n", argv[0]);
		return 2;
	}
	pool.bytes = cold_mib << 20;
	pool.src = pool_map(pool.bytes, 1);
	pool.dst = pool_map(pool.bytes, 2);
	snprintf(title, sizeof(title), "cold: two pools of %lu MiB", cold_mib);
	table(title, &pool);
	pool.bytes = HOT_BYTES;
	table("hot: two pools of 1 MiB", &pool);
	printf("chosen: %s\n", kvp_copy_kernels()->name);
	return 0;
}
