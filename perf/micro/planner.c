/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planner.c - what a plan and a walk over it cost
 *
 * W1: a 32-layer model, K and V tensors of 32 KiB blocks, 64 blocks per transfer
 * in the allocator's shuffled order. Each line is the median, best and 99th
 * percentile of many rounds; no memory behind the tensors is touched.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cursor.h"
#include "histogram.h"
#include "plan.h"
#include "request.h"

#define TENSORS     64U
#define NUM_BLOCKS  65536U
#define BLOCK_BYTES 32768U
#define LONG_PAIRS  1864U
#define PAIRS_MAX   65536U
#define BATCH       16U /* extents per call, as a transport asks */
#define ROUNDS      400U

static struct kvp_tensor local_tensors[TENSORS], remote_tensors[TENSORS];
static uint64_t src_blocks[PAIRS_MAX], dst_blocks[PAIRS_MAX];
static struct kvp_histogram times;
static volatile uint64_t sink; /* keeps the walks from being optimised away */
static bool is_push = true;

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static uint64_t
next_random(void)
{
	static uint64_t state = 1;
	uint64_t z = state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return z ^ z >> 31;
}

static void
shuffle(uint64_t *list, uint32_t count)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t j = (uint32_t)(next_random() % i);
		uint64_t keep = list[i - 1];

		list[i - 1] = list[j];
		list[j] = keep;
	}
}

/* `count` pairs in stretches of `run` blocks that are adjacent on both sides. */
static void
blocks_fill(uint32_t count, uint32_t run)
{
	for (uint32_t i = 0; i < count; i++) {
		src_blocks[i] = i / run * (run + 1) % NUM_BLOCKS + i % run;
		dst_blocks[i] = i / run * (run + 3) % NUM_BLOCKS + i % run;
	}
}

static struct kvp_pairing
pairing_of(uint32_t count)
{
	return (struct kvp_pairing){
		.local = local_tensors,
		.remote = remote_tensors,
		.tensors = TENSORS,
		.local_blocks = src_blocks,
		.remote_blocks = dst_blocks,
		.count = count,
		.is_push = true,
	};
}

static void *
room(size_t bytes)
{
	void *memory = malloc(bytes);

	if (memory == NULL) {
		fprintf(stderr, "planner: no memory for %zu bytes\n", bytes);
		exit(EXIT_FAILURE);
	}
	return memory;
}

static void
print_line(const char *name, const char *unit, double per)
{
	printf("%-44s %9.2f %9.2f %9.2f %s\n", name, (double)kvp_histogram_at(&times, 0.5) / per,
	       (double)kvp_histogram_at(&times, 0.0) / per,
	       (double)kvp_histogram_at(&times, 0.99) / per, unit);
	times = (struct kvp_histogram){0};
}

/* Checks, planning and filling, as a submit does them. */
static void
plan_once(uint32_t count, void *scratch, void *memory, struct kvp_plan *plan)
{
	const struct kvp_request request = {
		.is_push = is_push,
		.src_blocks = src_blocks,
		.dst_blocks = dst_blocks,
		.count = count,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 2,
	};
	const struct kvp_side src = {local_tensors, TENSORS, "src"};
	const struct kvp_side dst = {remote_tensors, TENSORS, "dst"};
	struct kvp_error err = {""};
	struct kvp_pairing pairing;

	if (kvp_request_check(&request, &err) != KVP_SUCCESS ||
	    kvp_request_pair(&request, &src, &dst, &pairing, &err) != KVP_SUCCESS ||
	    kvp_plan_prepare(&pairing, scratch, plan, &err) != KVP_SUCCESS) {
		fprintf(stderr, "planner: %s\n", err.text);
		exit(EXIT_FAILURE);
	}
	kvp_plan_fill(&pairing, scratch, memory, plan);
}

static void
measure_plan(const char *name, uint32_t count, uint32_t rounds)
{
	const struct kvp_pairing pairing = pairing_of(count);
	void *scratch = room(kvp_plan_scratch_bytes(pairing.count));
	void *memory = room(count * sizeof(struct kvp_run) + TENSORS * sizeof(struct kvp_group));
	struct kvp_plan plan;

	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t start = now_ns();

		plan_once(count, scratch, memory, &plan);
		kvp_histogram_add(&times, now_ns() - start);
	}
	sink += plan.runs;
	print_line(name, "us", 1e3);
	free(scratch);
	free(memory);
}

static void
measure_walk(const char *name, uint32_t count)
{
	void *scratch = room(kvp_plan_scratch_bytes(count));
	void *memory = room(count * sizeof(struct kvp_run) + TENSORS * sizeof(struct kvp_group));
	struct kvp_extent extent[BATCH];
	struct kvp_plan plan;

	plan_once(count, scratch, memory, &plan);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct kvp_cursor cursor;
		uint64_t start = now_ns(), sum = 0;
		uint32_t given;

		kvp_cursor_init(&cursor, &plan, 0, plan.bytes);
		while ((given = kvp_cursor_next(&cursor, BATCH, UINT64_MAX, extent)) > 0)
			sum += extent[given - 1].remote_offset;
		kvp_histogram_add(&times, now_ns() - start);
		sink += sum;
	}
	print_line(name, "ns per piece", (double)plan.pieces);
	free(scratch);
	free(memory);
}

int
main(void)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		uint64_t step = (uint64_t)NUM_BLOCKS * 2 * BLOCK_BYTES;

		local_tensors[i] = (struct kvp_tensor){(void *)(uintptr_t)((i + 1) * step),
						       2 * NUM_BLOCKS, BLOCK_BYTES, BLOCK_BYTES};
		remote_tensors[i] = local_tensors[i];
		remote_tensors[i].base = (void *)(uintptr_t)((i + 100) * step);
	}

	printf("%-44s %9s %9s %9s\n", "planner", "median", "best", "p99");
	blocks_fill(LONG_PAIRS, 1);
	measure_walk("walk, scattered pieces", LONG_PAIRS);
	blocks_fill(LONG_PAIRS, 8);
	measure_walk("walk, runs of 8 blocks", LONG_PAIRS);

	blocks_fill(64, 1);
	measure_plan("plan W1, ascending", 64, 20 * ROUNDS);
	shuffle(dst_blocks, 64);
	measure_plan("plan W1, shuffled", 64, 20 * ROUNDS);
	blocks_fill(LONG_PAIRS, 1);
	shuffle(dst_blocks, LONG_PAIRS);
	measure_plan("plan 1864 blocks, shuffled (119296 pieces)", LONG_PAIRS, 2 * ROUNDS);
	blocks_fill(16384, 1);
	shuffle(dst_blocks, 16384);
	measure_plan("plan 16384 blocks, shuffled", 16384, ROUNDS / 2);

	/* Pulls are sorted by source; their destinations are looked through for duplicates. */
	is_push = false;
	blocks_fill(64, 1);
	measure_plan("plan W1 as a pull, ascending", 64, 20 * ROUNDS);
	shuffle(src_blocks, 64);
	measure_plan("plan W1 as a pull, sources shuffled", 64, 20 * ROUNDS);
	shuffle(dst_blocks, 64);
	measure_plan("plan W1 as a pull, both shuffled", 64, 20 * ROUNDS);
	blocks_fill(LONG_PAIRS, 1);
	shuffle(src_blocks, LONG_PAIRS);
	shuffle(dst_blocks, LONG_PAIRS);
	measure_plan("plan 1864 blocks as a pull, both shuffled", LONG_PAIRS, 2 * ROUNDS);
	return EXIT_SUCCESS;
}
