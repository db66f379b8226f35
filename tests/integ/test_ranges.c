/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLM-DataDist's layer ranges, row by row: ten int32 tensors of shape {4, 16},
 * blocks {0, 1} to {0, 1}, as in its TestPushWithRangeAndTensorNumV2 and
 * TestPullWithRangeAndTensorNumV2, and the rules that its documents add.
 */
#include "pair.h"

#include <stdio.h>
#include <unistd.h>

#define ALL            \
	{              \
		-1, -1 \
	}

struct row {
	uint32_t src_tensors, dst_tensors;
	uint32_t per_layer;
	struct kvp_layers src, dst;
	/* Accepted: the tensors that move. tensors 0 = refused, with `word` in the message. */
	struct pair_move move;
	const char *word;
};

#define MOVES(first_src, first_dst, count)                                                  \
	.move = {.src_tensor = (first_src), .dst_tensor = (first_dst), .tensors = (count)}, \
	.word = NULL
#define REFUSED(what) .move = {.tensors = 0}, .word = (what)

static const struct row rows[] = {
	/* upstream: push */
	{10, 10, 2, ALL, ALL, MOVES(0, 0, 10)},
	{10, 10, 1, {0, 1}, {0, 1}, MOVES(0, 0, 2)},
	{10, 10, 2, {0, 1}, {0, 1}, MOVES(0, 0, 4)},
	{10, 10, 3, {0, 1}, {0, 1}, REFUSED("tensors_per_layer")},
	{10, 10, 7, {0, 1}, {0, 1}, REFUSED("tensors_per_layer")},
	{10, 10, 17, {0, 1}, {0, 1}, REFUSED("tensors_per_layer")},
	{10, 10, 2, {-2, 0}, {-2, 0}, REFUSED("src_layers")},
	{10, 10, 2, {-2, 0}, {0, 1}, REFUSED("src_layers")},
	{10, 10, 2, {0, 1}, {0, 3}, REFUSED("layers")},
	{10, 10, 2, {4, 5}, {0, 1}, REFUSED("src_layers")},
	{10, 10, 2, {0, 1}, {4, 5}, REFUSED("dst_layers")},
	/* upstream: pull */
	{10, 10, 2, {-2, 1}, {0, 1}, REFUSED("src_layers")},
	{10, 10, 2, {0, 1}, {0, 2}, REFUSED("layers")},

	/* all layers, t divides */
	{10, 10, 1, ALL, ALL, MOVES(0, 0, 10)},
	{10, 10, 5, ALL, ALL, MOVES(0, 0, 10)},
	{10, 10, 10, ALL, ALL, MOVES(0, 0, 10)},
	/* all layers, t does not divide */
	{10, 10, 3, ALL, ALL, REFUSED("tensors_per_layer")},
	{10, 10, 4, ALL, ALL, REFUSED("tensors_per_layer")},
	/* fewer tensors than t */
	{10, 10, 11, ALL, ALL, REFUSED("tensors_per_layer")},
	{10, 10, UINT32_MAX, ALL, ALL, REFUSED("tensors_per_layer")},
	{1, 1, 2, ALL, ALL, REFUSED("tensors_per_layer")},
	{1, 1, 1, ALL, ALL, MOVES(0, 0, 1)},
	/* {a, b} / {c, d} of one width, up to the last layer */
	{10, 10, 2, {0, 4}, {0, 4}, MOVES(0, 0, 10)},
	{10, 10, 2, {0, 0}, {4, 4}, MOVES(0, 8, 2)},
	{10, 10, 2, {4, 4}, {0, 0}, MOVES(8, 0, 2)},
	{10, 10, 2, {2, 4}, {0, 2}, MOVES(4, 0, 6)},
	{10, 10, 1, {0, 9}, {0, 9}, MOVES(0, 0, 10)},
	{10, 10, 1, {3, 3}, {1, 1}, MOVES(3, 1, 1)},
	{10, 10, 5, {1, 1}, {0, 0}, MOVES(5, 0, 5)},
	{10, 10, 10, {0, 0}, {0, 0}, MOVES(0, 0, 10)},
	/* one past the last layer */
	{10, 10, 2, {0, 5}, {0, 5}, REFUSED("layers")},
	{10, 10, 2, {5, 5}, {0, 0}, REFUSED("src_layers")},
	{10, 10, 2, {0, 0}, {5, 5}, REFUSED("dst_layers")},
	{10, 10, 10, {1, 1}, {0, 0}, REFUSED("src_layers")},
	{10, 10, 2, {INT32_MAX, INT32_MAX}, {0, 0}, REFUSED("src_layers")},
	{10, 10, 2, {0, 0}, {INT32_MAX, INT32_MAX}, REFUSED("dst_layers")},
	{10, 10, 2, {0, INT32_MAX}, {0, INT32_MAX}, REFUSED("layers")},
	/* widths differ */
	{10, 10, 2, {0, 0}, {0, 1}, REFUSED("layers")},
	{10, 10, 2, {0, 2}, {3, 4}, REFUSED("layers")},
	/* first > last, < -1 */
	{10, 10, 2, {1, 0}, {1, 0}, REFUSED("src_layers")},
	{10, 10, 2, {0, 1}, {1, 0}, REFUSED("dst_layers")},
	{10, 10, 2, {0, 0}, {-2, -2}, REFUSED("dst_layers")},
	{10, 10, 2, {-2, -2}, {-2, -2}, REFUSED("src_layers")},
	{10, 10, 2, {INT32_MIN, 0}, {0, 0}, REFUSED("src_layers")},
	{10, 10, 2, {INT32_MIN, INT32_MAX}, {INT32_MIN, INT32_MAX}, REFUSED("src_layers")},
	{10, 10, 2, {0, -1}, {0, -1}, REFUSED("src_layers")},
	/* one bound -1, and all on one side */
	{10, 10, 2, {-1, 0}, {-1, 0}, REFUSED("src_layers")},
	{10, 10, 2, {-1, 3}, {0, 4}, REFUSED("src_layers")},
	{10, 10, 2, {0, 4}, {-1, 3}, REFUSED("dst_layers")},
	{10, 10, 2, ALL, {0, 4}, REFUSED("layers")},
	{10, 10, 2, {0, 4}, ALL, REFUSED("layers")},
	{10, 10, 2, {0, 0}, ALL, REFUSED("layers")},
	/* t = 0, t that does not divide an explicit range's cache */
	{10, 10, 0, ALL, ALL, REFUSED("tensors_per_layer")},
	{10, 10, 0, {0, 0}, {0, 0}, REFUSED("tensors_per_layer")},
	{10, 10, 4, {0, 0}, {0, 0}, REFUSED("tensors_per_layer")},
	/* caches of different depth */
	{10, 6, 2, ALL, ALL, REFUSED("tensors")},
	{6, 10, 2, ALL, ALL, REFUSED("tensors")},
	{10, 6, 2, {0, 2}, {0, 2}, MOVES(0, 0, 6)},
	{10, 6, 2, {2, 4}, {0, 2}, MOVES(4, 0, 6)},
	{6, 10, 2, {0, 2}, {2, 4}, MOVES(0, 4, 6)},
	{10, 6, 2, {0, 3}, {0, 3}, REFUSED("dst_layers")},
	{6, 10, 2, {0, 3}, {0, 3}, REFUSED("src_layers")},
	{10, 6, 5, {0, 0}, {0, 0}, REFUSED("tensors_per_layer")},
	{6, 10, 5, {0, 0}, {0, 0}, REFUSED("tensors_per_layer")},
};

static const uint64_t blocks[] = {0, 1};

struct call {
	struct kvp_engine *engine; /* that makes the call */
	bool is_push;
	uint64_t peer;
};

static kvp_status
make(const struct call *call, const struct row *row, const struct pair_cache *src,
     const struct pair_cache *dst)
{
	struct pair_move move = {blocks, blocks, 2, 0, 0, 1};

	if (call->is_push) {
		struct kvp_push push = pair_push(src, call->peer, dst, &move);

		push.src_layers = row->src;
		push.dst_layers = row->dst;
		push.tensors_per_layer = row->per_layer;
		return kvp_push_blocks(call->engine, &push);
	}

	struct kvp_pull pull = pair_pull(call->peer, src, dst, &move);

	pull.src_layers = row->src;
	pull.dst_layers = row->dst;
	pull.tensors_per_layer = row->per_layer;
	return kvp_pull_blocks(call->engine, &pull);
}

static void
row_check(const struct pair *pair, uint32_t index, bool is_push)
{
	const struct row *row = &rows[index];
	struct pair_shape shape = {.blocks = 4, .block_bytes = 16 * 4, .is_shareable = index & 1};
	struct call call = {pair->a, is_push, PAIR_B};
	struct pair_cache src, dst;
	char name[64];
	kvp_status status;

	shape.tensors = row->src_tensors;
	pair_cache_open(&src, is_push ? pair->a : pair->b, &shape, index);
	shape.tensors = row->dst_tensors;
	pair_cache_open(&dst, is_push ? pair->b : pair->a, &shape, index + 1000);
	status = make(&call, row, &src, &dst);
	snprintf(name, sizeof(name), "row %u by %s, status %s", index, is_push ? "push" : "pull",
		 kvp_status_name(status));
	if ((status == KVP_SUCCESS) == (row->word != NULL))
		print_error("%s\n", name);
	if (row->word != NULL) {
		assert_refused(KVP_PARAM_INVALID, row->word, status);
	} else {
		struct pair_move move = row->move;

		assert_ok(status);
		move.src_blocks = blocks;
		move.dst_blocks = blocks;
		move.count = 2;
		pair_model_move(&dst, &src, &move);
	}
	pair_cache_check(&src, name);
	pair_cache_check(&dst, name);
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

static void
push_blocks__every_row(void **state)
{
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		row_check(*state, i, true);
}

static void
pull_blocks__every_row(void **state)
{
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		row_check(*state, i, false);
}

/* Their engine test's lists, merging and splitting runs, and 4096 blocks. */
static void
push_blocks__their_block_lists(void **state)
{
	static const uint64_t from[] = {0, 1, 4, 5, 6}, to[] = {1, 2, 4, 6, 9};
	const struct pair *pair = *state;
	const struct pair_shape shape = {
		.tensors = 1, .blocks = 4096, .block_bytes = 128, .is_shareable = true};
	uint64_t up[4096], down[4096];
	const struct pair_move moves[] = {
		{from, to, 5, 0, 0, 1}, {up, down, 4096, 0, 0, 1}, {down, up, 1024, 0, 0, 1}};
	struct pair_cache src, dst;

	for (uint64_t i = 0; i < 4096; i++) {
		up[i] = i;
		down[i] = 4095 - i;
	}
	pair_cache_open(&src, pair->a, &shape, 1);
	pair_cache_open(&dst, pair->b, &shape, 2);
	for (uint32_t i = 0; i < 6; i++) {
		struct kvp_push push = pair_push(&src, PAIR_B, &dst, &moves[i / 2]);
		struct kvp_pull pull = pair_pull(PAIR_A, &src, &dst, &moves[i / 2]);

		pair_cache_fill(&src, i + 77);
		if (i % 2 == 0)
			assert_ok(kvp_push_blocks(pair->a, &push));
		else
			assert_ok(kvp_pull_blocks(pair->b, &pull));
		pair_model_move(&dst, &src, &moves[i / 2]);
		pair_cache_check(&src, "source");
		pair_cache_check(&dst, "destination");
	}
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_TEST(push_blocks__every_row),
		PAIR_TEST(pull_blocks__every_row),
		PAIR_TEST(push_blocks__their_block_lists),
	};

	return PAIR_RUN(tests);
}
