/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random transfers against a model that is one memcpy per block: whatever the
 * layouts, lists and ranges, the whole memory of both sides must be right.
 *
 * KVP_SEED=<n> runs that one seed.
 */
#include "pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEDS       (2000U / pair_slow()) /* per transport */
#define AREA_BYTES  (320U * 1024)
#define TENSORS_MAX 24U
#define BLOCKS_MAX  80U
#define BYTES_MAX   8192U /* of a block */

/* Registered per seed; memory and model are reused. */
struct arena {
	uint8_t *shareable;
	uint8_t *private;
	uint8_t *model;
};

struct bench {
	struct pair pair;
	struct arena arena[2]; /* of a, of b */
};

/* What a seed makes up. */
struct draw {
	uint32_t per_layer;
	uint32_t layers; /* that move */
	bool is_all;
	struct kvp_layers range[2]; /* src, dst */
	uint32_t tensors[2];
	uint64_t num_blocks[2];
	uint64_t block_bytes[2][TENSORS_MAX];
	uint64_t list[2][BLOCKS_MAX];
	size_t count;
};

static uint64_t current_seed;

static uint64_t
pick(uint64_t *seed, uint64_t low, uint64_t high)
{
	return low + pair_below(seed, high - low + 1);
}

/* Small ones, odd ones, powers of two, and the limit. */
static uint64_t
pick_block_bytes(uint64_t *seed, uint64_t most)
{
	uint64_t bytes;

	switch (pair_below(seed, 5)) {
	case 0:
		bytes = pick(seed, 1, 16);
		break;
	case 1:
		bytes = 1ULL << pair_below(seed, 14);
		break;
	case 2:
		bytes = 64 * pick(seed, 1, 16);
		break;
	case 3:
		bytes = most;
		break;
	default:
		bytes = pick(seed, 1, BYTES_MAX);
		break;
	}
	return bytes > most ? most : bytes;
}

static void
draw_layers(struct draw *draw, uint64_t *seed)
{
	uint32_t total[2];

	draw->per_layer = (uint32_t)pick(seed, 1, 4);
	total[0] = (uint32_t)pick(seed, 1, TENSORS_MAX / 4);
	draw->is_all = pair_below(seed, 3) == 0;
	total[1] = draw->is_all ? total[0] : (uint32_t)pick(seed, 1, TENSORS_MAX / 4);
	draw->layers = total[0] < total[1] ? total[0] : total[1];
	if (!draw->is_all)
		draw->layers = (uint32_t)pick(seed, 1, draw->layers);
	for (uint32_t side = 0; side < 2; side++) {
		int32_t first = (int32_t)pick(seed, 0, total[side] - draw->layers);

		draw->tensors[side] = total[side] * draw->per_layer;
		draw->range[side] = (struct kvp_layers){first, first + (int32_t)draw->layers - 1};
	}
}

static uint32_t
first_tensor(const struct draw *draw, uint32_t side)
{
	return (uint32_t)draw->range[side].first * draw->per_layer;
}

/* Usually one size per cache; pairs of tensors that move are equal. */
static void
draw_sizes(struct draw *draw, uint64_t *seed)
{
	bool is_uniform = pair_below(seed, 3) != 0;
	uint32_t moving = draw->layers * draw->per_layer;
	uint64_t most = BYTES_MAX;

	for (uint32_t side = 0; side < 2; side++)
		draw->num_blocks[side] = pick(seed, 1, pair_below(seed, 4) == 0 ? 4 : BLOCKS_MAX);
	for (uint32_t side = 0; side < 2; side++) {
		uint64_t slots = draw->tensors[side] * draw->num_blocks[side];

		if (most > AREA_BYTES / 2 / slots)
			most = AREA_BYTES / 2 / slots;
	}
	for (uint32_t side = 0; side < 2; side++) {
		uint64_t bytes = pick_block_bytes(seed, most);

		if (side == 1 && is_uniform)
			bytes = draw->block_bytes[0][0];
		for (uint32_t i = 0; i < draw->tensors[side]; i++)
			draw->block_bytes[side][i] =
				is_uniform ? bytes : pick_block_bytes(seed, most);
	}
	for (uint32_t i = 0; i < moving; i++)
		draw->block_bytes[1][first_tensor(draw, 1) + i] =
			draw->block_bytes[0][first_tensor(draw, 0) + i];
}

/* Distinct blocks for the destination; in runs, upwards, downwards, or anyhow. */
static void
draw_lists(struct draw *draw, uint64_t *seed)
{
	uint64_t most = draw->num_blocks[1], shuffled[BLOCKS_MAX], step = pick(seed, 1, 6);
	bool is_descending = pair_below(seed, 4) == 0;
	bool is_scattered = pair_below(seed, 3) == 0;

	pair_shuffle(shuffled, (size_t)most, seed);
	draw->count = (size_t)pick(seed, 1, most);
	for (size_t i = 0; i < draw->count; i++) {
		size_t at = is_descending ? draw->count - 1 - i : i;
		uint64_t src = at % draw->num_blocks[0];

		draw->list[1][i] = is_scattered ? shuffled[at] : at;
		if (is_scattered && pair_below(seed, 2) == 0)
			src = pair_below(seed, draw->num_blocks[0]);
		else if (pair_below(seed, step + 1) == 0)
			src = pair_below(seed, draw->num_blocks[0]);
		draw->list[0][i] = src;
	}
	if (pair_below(seed, 4) == 0) { /* swap halves: two runs in the wrong order */
		size_t half = draw->count / 2;

		for (size_t i = 0; i < half; i++) {
			uint64_t value = draw->list[1][i];

			draw->list[1][i] = draw->list[1][half + i];
			draw->list[1][half + i] = value;
		}
	}
}

/* Places a row of `width` tensors whose blocks share a stride; returns the bytes used. */
static size_t
place_row(struct kvp_tensor *tensor, uint32_t width, uint64_t num_blocks,
	  const uint64_t *block_bytes, uint8_t *base, uint64_t *seed)
{
	uint64_t stride = 0, pad = 0;

	for (uint32_t i = 0; i < width; i++)
		stride += block_bytes[i];
	if (pair_below(seed, 3) == 0)
		pad = pick(seed, 1, 24);
	stride += pad;
	for (uint32_t i = 0; i < width; i++) {
		tensor[i] = (struct kvp_tensor){base, num_blocks, block_bytes[i], stride};
		base += block_bytes[i];
	}
	return (size_t)(num_blocks * stride);
}

/* A layout for one side. Fits AREA_BYTES: blocks take at most half of it. */
static void
lay_out(struct pair_cache *cache, const struct draw *draw, uint32_t side, uint64_t *seed)
{
	bool is_interleaved = pair_below(seed, 2) == 0;
	size_t at = pair_below(seed, 64);
	uint32_t placed = 0;

	cache->tensors = draw->tensors[side];
	while (placed < cache->tensors) {
		uint32_t left = cache->tensors - placed;
		uint32_t width = is_interleaved ? (uint32_t)pick(seed, 1, left > 4 ? 4 : left) : 1;

		at += place_row(&cache->tensor[placed], width, draw->num_blocks[side],
				&draw->block_bytes[side][placed], cache->memory + at, seed);
		if (pair_below(seed, 3) == 0)
			at += pick(seed, 1, 100);
		placed += width;
	}
	cache->bytes = at + pair_below(seed, 64);
	if (cache->bytes > AREA_BYTES)
		abort();
}

static void
side_open(struct pair_cache *cache, struct bench *bench, uint32_t end, const struct draw *draw,
	  uint32_t side, uint64_t *seed)
{
	struct arena *arena = &bench->arena[end];

	cache->engine = end == 0 ? bench->pair.a : bench->pair.b;
	cache->is_shareable = pair_below(seed, 2) == 0;
	cache->memory = cache->is_shareable ? arena->shareable : arena->private;
	cache->model = arena->model;
	lay_out(cache, draw, side, seed);
	pair_cache_fill(cache, pair_random(seed));
	assert_ok(kvp_cache_register(cache->engine, cache->tensor, cache->tensors, &cache->id));
}

/* Push or pull, waiting or not, from the end that has the right to it. */
static kvp_status
transfer(struct bench *bench, const struct draw *draw, const struct pair_cache *src,
	 const struct pair_cache *dst, bool is_push, uint64_t *seed, uint64_t *tag_out)
{
	struct pair_move move = {draw->list[0], draw->list[1], draw->count, 0, 0, 1};
	uint64_t src_cluster = src->engine == bench->pair.a ? PAIR_A : PAIR_B;
	struct kvp_push push = pair_push(src, PAIR_A + PAIR_B - src_cluster, dst, &move);
	struct kvp_pull pull = pair_pull(src_cluster, src, dst, &move);
	struct kvp_transfer *handle = NULL;
	bool is_waiting = pair_below(seed, 2) == 0;
	kvp_status status;

	push.tensors_per_layer = pull.tensors_per_layer = draw->per_layer;
	if (draw->is_all) {
		pull.src_layers = pull.dst_layers = (struct kvp_layers){-1, -1};
		push.src_layers = push.dst_layers = (struct kvp_layers){-1, -1};
	} else {
		push.src_layers = pull.src_layers = draw->range[0];
		push.dst_layers = pull.dst_layers = draw->range[1];
	}
	if (is_push && pair_below(seed, 3) == 0) {
		*tag_out = pair_random(seed) | 1;
		push.notify = (struct kvp_notify){.enabled = 1, .tag = *tag_out};
	}
	if (is_waiting)
		return is_push ? kvp_push_blocks(src->engine, &push)
			       : kvp_pull_blocks(dst->engine, &pull);
	status = is_push ? kvp_push_submit(src->engine, &push, &handle)
			 : kvp_pull_submit(dst->engine, &pull, &handle);
	if (status == KVP_SUCCESS)
		status = kvp_transfer_wait(handle, UINT32_MAX);
	kvp_transfer_free(handle);
	return status;
}

/* CACHE_GONE of the seeds before is not what this test is about. */
static void
expect_tag(struct kvp_engine *engine, uint64_t tag, uint64_t bytes)
{
	struct kvp_event event;

	do {
		assert_ok(pair_event_next(engine, PAIR_LONG_MS, &event));
	} while (event.kind == KVP_EVENT_CACHE_GONE);
	assert_int_equal(event.kind, KVP_EVENT_PUSH_ARRIVED);
	assert_true(event.tag == tag);
	assert_true(event.bytes == bytes);
}

static void
drain(struct kvp_engine *engine)
{
	struct kvp_event event;

	while (kvp_event_poll(engine, &event) == KVP_SUCCESS)
		assert_int_equal(event.kind, KVP_EVENT_CACHE_GONE);
}

static void
run_seed(struct bench *bench, uint64_t number)
{
	struct kvp_tensor tensor[2][TENSORS_MAX];
	struct pair_cache src = {.tensor = tensor[0]}, dst = {.tensor = tensor[1]};
	uint64_t seed = number, tag = 0, bytes = 0;
	struct draw draw;
	uint32_t src_end;
	struct pair_move move;

	current_seed = number;
	memset(&draw, 0, sizeof(draw));
	draw_layers(&draw, &seed);
	draw_sizes(&draw, &seed);
	draw_lists(&draw, &seed);
	src_end = (uint32_t)pair_below(&seed, 2);
	side_open(&src, bench, src_end, &draw, 0, &seed);
	side_open(&dst, bench, 1 - src_end, &draw, 1, &seed);

	assert_ok(transfer(bench, &draw, &src, &dst, pair_below(&seed, 2) == 0, &seed, &tag));
	move = (struct pair_move){
		draw.list[0],           draw.list[1],           draw.count,
		first_tensor(&draw, 0), first_tensor(&draw, 1), draw.layers * draw.per_layer};
	for (uint32_t i = 0; i < move.tensors; i++)
		bytes += draw.count * src.tensor[move.src_tensor + i].block_bytes;
	if (tag != 0)
		expect_tag(dst.engine, tag, bytes);
	pair_model_move(&dst, &src, &move);
	pair_cache_check(&src, "source");
	pair_cache_check(&dst, "destination");
	assert_ok(kvp_cache_release(src.engine, src.id));
	assert_ok(kvp_cache_release(dst.engine, dst.id));
	drain(bench->pair.a);
	drain(bench->pair.b);
	current_seed = 0;
}

static int
bench_open(void **state)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	void *pair = *state;

	assert_non_null(bench);
	pair_setup(&pair);
	bench->pair = *(struct pair *)pair;
	free(pair);
	for (uint32_t i = 0; i < 2; i++) {
		struct arena *arena = &bench->arena[i];
		void *memory = NULL;

		assert_ok(kvp_memory_allocate(i == 0 ? bench->pair.a : bench->pair.b, AREA_BYTES,
					      &memory));
		arena->shareable = memory;
		arena->private = malloc(AREA_BYTES);
		arena->model = malloc(AREA_BYTES);
		assert_non_null(arena->private);
		assert_non_null(arena->model);
	}
	*state = bench;
	return 0;
}

static int
bench_close(void **state)
{
	struct bench *bench = *state;

	if (current_seed != 0)
		print_error("replay with KVP_SEED=%" PRIu64 "\n", current_seed);
	current_seed = 0;
	pair_close(&bench->pair);
	for (uint32_t i = 0; i < 2; i++) {
		free(bench->arena[i].private);
		free(bench->arena[i].model);
	}
	free(bench);
	return 0;
}

static void
transfers__match_the_model(void **state)
{
	const char *one = getenv("KVP_SEED");

	if (one != NULL) {
		run_seed(*state, strtoull(one, NULL, 0));
		return;
	}
	for (uint64_t number = 1; number <= SEEDS; number++)
		run_seed(*state, number);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_OVER(transfers__match_the_model, bench_open, bench_close),
	};

	return PAIR_RUN(tests);
}
