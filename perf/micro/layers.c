/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c - what making a layer ready costs its caller, against a push of its own
 *
 * W5: Llama-3-8B, 32 layers of 2 tensors, 64 blocks of 32 KiB to shuffled places, one layer at a time, between two
 * engines of this process over shm. Two ways, taking turns:
 *
 *   calls    32 x kvp_push_submit, each of one layer, then 32 x kvp_transfer_wait and _free
 *   layers   kvp_push_open, 32 x kvp_push_layer, one kvp_transfer_wait and _free
 *
 * Each line is CPU time of the calling thread per layer, median and best of the rounds; waiting is left out, since the
 * caller sleeps or spins through the same copying either way. The first of a round fetches cold lines, as in a program
 * that computes between its calls: the caller walks through 8 MiB of its own before each layer.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvpush/kvpush.h>

#include "check.h"
#include "histogram.h"

#define LAYERS  32U
#define TENSORS (2U * LAYERS)
#define BLOCKS  64U
#define BYTES   32768U
#define POOL    256U /* blocks of each tensor */
#define ROUNDS  60U
#define OTHER   (8U << 20)

static struct kvp_engine *from, *to;
static int64_t src_cache, dst_cache;
static uint64_t src_blocks[BLOCKS], dst_blocks[BLOCKS];
static uint8_t *other;

static uint64_t
cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* What a program does between two layers. */
static void
compute(void)
{
	for (size_t i = 0; i < OTHER; i += 64)
		other[i]++;
}

static void
must(kvp_status status, const char *what)
{
	if (status == KVP_SUCCESS)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvp_status_name(status), kvp_error_message());
	exit(EXIT_FAILURE);
}

static struct kvp_engine *
open_one(const char *cluster)
{
	const char *const settings[] = {cluster, "transports=shm", "listen=127.0.0.1:0",
					"log_level=1"};
	struct kvp_engine *engine;

	must(kvp_open_settings(settings, 4, &engine), "open");
	return engine;
}

static int64_t
cache_of(struct kvp_engine *engine)
{
	struct kvp_tensor tensor[TENSORS];
	int64_t id;

	for (uint32_t i = 0; i < TENSORS; i++)
		tensor[i] = (struct kvp_tensor){NULL, POOL, BYTES, BYTES};
	must(kvp_cache_allocate(engine, tensor, TENSORS, &id), "allocate");
	return id;
}

static void
blocks_shuffle(void)
{
	uint64_t place[POOL], seed = 88172645463325252U;

	for (uint64_t i = 0; i < POOL; i++)
		place[i] = i;
	for (uint64_t i = POOL; i > 1; i--) {
		uint64_t kept = place[i - 1], at;

		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		at = seed % i;
		place[i - 1] = place[at];
		place[at] = kept;
	}
	for (uint64_t i = 0; i < BLOCKS; i++) {
		src_blocks[i] = i;
		dst_blocks[i] = place[i];
	}
}

static struct kvp_push
push_of(int32_t first, int32_t last)
{
	return (struct kvp_push){
		.src_cache = src_cache,
		.dst = {.cluster = 2, .cache = dst_cache},
		.src_blocks = src_blocks,
		.dst_blocks = dst_blocks,
		.count = BLOCKS,
		.src_layers = {first, last},
		.dst_layers = {first, last},
		.tensors_per_layer = 2,
		.timeout_ms = 60000,
	};
}

static uint64_t
round_calls(void)
{
	struct kvp_transfer *transfer[LAYERS];
	uint64_t spent = 0, start;

	for (uint32_t i = 0; i < LAYERS; i++) {
		struct kvp_push push = push_of((int32_t)i, (int32_t)i);

		compute();
		start = cpu_ns();
		must(kvp_push_submit(from, &push, &transfer[i]), "submit");
		spent += cpu_ns() - start;
	}
	for (uint32_t i = 0; i < LAYERS; i++)
		must(kvp_transfer_wait(transfer[i], UINT32_MAX), "wait");
	start = cpu_ns();
	for (uint32_t i = 0; i < LAYERS; i++)
		kvp_transfer_free(transfer[i]);
	return spent + cpu_ns() - start;
}

static uint64_t
round_layers(uint64_t *open_out)
{
	struct kvp_push push = push_of(0, LAYERS - 1);
	struct kvp_transfer *transfer;
	uint64_t spent = 0, start;

	compute();
	start = cpu_ns();
	must(kvp_push_open(from, &push, &transfer), "open");
	*open_out = cpu_ns() - start;
	for (uint32_t i = 0; i < LAYERS; i++) {
		compute();
		start = cpu_ns();
		must(kvp_push_layer(transfer, (int32_t)i), "layer");
		spent += cpu_ns() - start;
	}
	must(kvp_transfer_wait(transfer, UINT32_MAX), "wait");
	start = cpu_ns();
	kvp_transfer_free(transfer);
	*open_out += cpu_ns() - start;
	return spent;
}

static uint64_t
clock_cost(void)
{
	uint64_t start = cpu_ns();

	for (uint32_t i = 0; i < 1000; i++)
		(void)cpu_ns();
	return (cpu_ns() - start) / 1000;
}

static double
per_layer(const struct kvp_histogram *times, double share, uint64_t clock_ns)
{
	double ns = (double)kvp_histogram_at(times, share) / LAYERS - (double)clock_ns;

	return ns > 0 ? ns : 0;
}

int
main(void)
{
	static struct kvp_histogram calls, layers, whole;
	uint64_t clock_ns = clock_cost(), opening;
	char address[32];

	other = malloc(OTHER);
	KVP_CHECK(other != NULL);
	memset(other, 0, OTHER);
	from = open_one("cluster_id=1");
	to = open_one("cluster_id=2");
	snprintf(address, sizeof(address), "127.0.0.1:%u", kvp_port(to));
	must(kvp_link(from, address, 5000, NULL), "link");
	src_cache = cache_of(from);
	dst_cache = cache_of(to);
	blocks_shuffle();
	(void)round_calls();
	(void)round_layers(&opening);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t spent;

		kvp_histogram_add(&calls, round_calls());
		spent = round_layers(&opening);
		kvp_histogram_add(&layers, spent);
		kvp_histogram_add(&whole, spent + opening);
	}
	printf("%-44s %9s %9s %7s\n", "W5, ns of the caller per layer", "median", "best", "share");
	printf("%-44s %9.0f %9.0f %7.2f\n", "kvp_push_submit + _free per layer",
	       per_layer(&calls, 0.5, clock_ns), per_layer(&calls, 0, clock_ns), 1.0);
	printf("%-44s %9.0f %9.0f %7.2f\n", "kvp_push_layer", per_layer(&layers, 0.5, clock_ns),
	       per_layer(&layers, 0, clock_ns),
	       per_layer(&layers, 0.5, clock_ns) / per_layer(&calls, 0.5, clock_ns));
	printf("%-44s %9.0f %9.0f %7.2f\n", "kvp_push_layer, with a share of open and free",
	       per_layer(&whole, 0.5, clock_ns), per_layer(&whole, 0, clock_ns),
	       per_layer(&whole, 0.5, clock_ns) / per_layer(&calls, 0.5, clock_ns));
	kvp_close(from);
	kvp_close(to);
	free(other);
	return EXIT_SUCCESS;
}
