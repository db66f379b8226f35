/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes and pulls that succeed: every byte, every number of their reports. */
#include "pair.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096U

static const struct pair_shape plain = {
	.tensors = 4, .blocks = 16, .block_bytes = BLOCK, .is_shareable = true};

static const uint64_t some_src[] = {1, 5, 6, 7, 2};
static const uint64_t some_dst[] = {3, 0, 9, 10, 15};
static const struct pair_move some = {some_src, some_dst, 5, 0, 0, 4};

/* src of engine a, dst of engine b, different content. */
static void
caches_open(const struct pair *pair, const struct pair_shape *src_shape,
	    const struct pair_shape *dst_shape, struct pair_cache *src, struct pair_cache *dst)
{
	pair_cache_open(src, pair->a, src_shape, 1);
	pair_cache_open(dst, pair->b, dst_shape, 2);
}

static void
caches_check(struct pair_cache *src, struct pair_cache *dst)
{
	pair_cache_check(src, "source");
	pair_cache_check(dst, "destination");
}

static void
caches_close(struct pair_cache *src, struct pair_cache *dst)
{
	caches_check(src, dst);
	pair_cache_close(src);
	pair_cache_close(dst);
}

/* Push the first `bytes` (0: all) of the blocks of `move` from a to b and compare everything. */
static void
push_part_and_check(const struct pair *pair, struct pair_cache *src, struct pair_cache *dst,
		    const struct pair_move *move, uint64_t bytes)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, move);

	push.bytes_per_block = bytes;
	assert_ok(kvp_push_blocks(pair->a, &push));
	pair_model_move_part(dst, src, move, bytes);
	caches_check(src, dst);
}

static void
push_and_check(const struct pair *pair, struct pair_cache *src, struct pair_cache *dst,
	       const struct pair_move *move)
{
	push_part_and_check(pair, src, dst, move, 0);
}

static void
push_blocks__moves_what_it_names(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;

	caches_open(pair, &plain, &plain, &src, &dst);
	push_and_check(pair, &src, &dst, &some);
	push_and_check(pair, &src, &dst, &(struct pair_move){some_src, some_dst, 1, 3, 0, 1});
	caches_close(&src, &dst);
}

static void
push_submit__test_wait_query_free(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	struct kvp_transfer *transfer = NULL;
	struct kvp_transfer_info info;
	struct kvp_push push;
	uint64_t last_id = 0;

	caches_open(pair, &plain, &plain, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &some);
	for (int round = 0; round < 50; round++) {
		pair_cache_fill(&src, (uint64_t)round + 100);
		assert_ok(kvp_push_submit(pair->a, &push, &transfer));
		assert_non_null(transfer);
		if (round % 2 == 0) {
			while (kvp_transfer_test(transfer) == KVP_IN_PROGRESS)
				pair_pause();
		}
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		assert_ok(kvp_transfer_wait(transfer, 0));
		assert_ok(kvp_transfer_test(transfer));
		pair_model_move(&dst, &src, &some);
		pair_cache_check(&dst, "destination");
		assert_ok(kvp_transfer_query(transfer, &info));
		assert_int_equal(info.status, KVP_SUCCESS);
		assert_true(info.id > last_id);
		assert_int_equal(info.bytes, 5 * 4 * BLOCK);
		assert_int_equal(info.moved, info.bytes);
		assert_int_equal(info.pieces, 5 * 4);
		assert_int_equal(info.runs, 4 * 4); /* 6,7 -> 9,10 is one */
		assert_true(info.requests >= 1);
		assert_in_range(info.parts, 1, 16);
		assert_true(info.total_ns > 0);
		assert_true(info.plan_ns <= info.total_ns);
		last_id = info.id;
		assert_ok(kvp_transfer_cancel(transfer));
		assert_ok(kvp_transfer_test(transfer));
		kvp_transfer_free(transfer);
	}
	caches_close(&src, &dst);
}

static void
transfer_cancel__ends_it_and_nothing_lands_later(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape big = {
		.tensors = 8, .blocks = 64, .block_bytes = 65536, .is_shareable = true};
	struct pair_cache src, dst, mark_src, mark_dst;
	uint64_t blocks[64];
	struct kvp_push push;
	uint32_t cancelled = 0;

	for (uint64_t i = 0; i < 64; i++)
		blocks[i] = i;
	caches_open(pair, &big, &big, &src, &dst);
	caches_open(pair, &plain, &plain, &mark_src, &mark_dst);
	push = pair_push(&src, PAIR_B, &dst, &(struct pair_move){blocks, blocks, 64, 0, 0, 8});
	for (int round = 0; round < 20; round++) {
		struct kvp_transfer *transfer;
		struct kvp_transfer_info info;
		kvp_status status;

		assert_ok(kvp_push_submit(pair->a, &push, &transfer));
		assert_ok(kvp_transfer_cancel(transfer));
		status = kvp_transfer_wait(transfer, PAIR_LONG_MS);
		pair_cache_fill(&dst, (uint64_t)round + 7);
		assert_true(status == KVP_CANCELLED || status == KVP_SUCCESS);
		cancelled += status == KVP_CANCELLED;
		assert_ok(kvp_transfer_query(transfer, &info));
		assert_int_equal(info.status, status);
		assert_true(info.moved <= info.bytes);
		kvp_transfer_free(transfer);
		push_and_check(pair, &mark_src, &mark_dst, &some);
		pair_cache_check(&dst, "destination after a cancel");
	}
	assert_true(cancelled > 0); /* 32 MiB take longer than the call to cancel them */
	caches_close(&mark_src, &mark_dst);
	caches_close(&src, &dst);
}

static void
transfer_free__cancels_and_waits(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape big = {
		.tensors = 2, .blocks = 64, .block_bytes = 65536, .is_shareable = true};
	struct pair_cache src, dst;
	uint64_t blocks[64];
	struct kvp_push push;

	for (uint64_t i = 0; i < 64; i++)
		blocks[i] = i;
	caches_open(pair, &big, &big, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &(struct pair_move){blocks, blocks, 64, 0, 0, 2});
	for (int round = 0; round < 20; round++) {
		struct kvp_transfer *transfer;

		assert_ok(kvp_push_submit(pair->a, &push, &transfer));
		kvp_transfer_free(transfer);
		pair_cache_fill(&dst, (uint64_t)round + 7);
	}
	push_and_check(pair, &src, &dst, &(struct pair_move){blocks, blocks, 3, 0, 1, 1});
	caches_close(&src, &dst);
}

static void
push_blocks__moves_layer_ranges(void **state)
{
	const struct pair *pair = *state;
	struct pair_shape ten = plain, six = plain;
	struct pair_cache src, dst;
	struct kvp_push push;
	struct pair_move move = {some_src, some_dst, 5, 4, 2, 4};

	ten.tensors = 10;
	six.tensors = 6;
	caches_open(pair, &ten, &six, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &move);
	push.tensors_per_layer = 2;
	push.src_layers = (struct kvp_layers){2, 3};
	push.dst_layers = (struct kvp_layers){1, 2};
	assert_ok(kvp_push_blocks(pair->a, &push));
	pair_model_move(&dst, &src, &move);
	caches_check(&src, &dst);

	push.src_layers = (struct kvp_layers){4, 4};
	push.dst_layers = (struct kvp_layers){0, 0};
	assert_ok(kvp_push_blocks(pair->a, &push));
	move.src_tensor = 8;
	move.dst_tensor = 0;
	move.tensors = 2;
	pair_model_move(&dst, &src, &move);
	caches_close(&src, &dst);
}

static void
push_blocks__all_layers(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	struct kvp_push push;

	caches_open(pair, &plain, &plain, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &some);
	push.src_layers = (struct kvp_layers){-1, -1};
	push.dst_layers = (struct kvp_layers){-1, -1};
	for (uint32_t t = 1; t <= 4; t *= 2) {
		pair_cache_fill(&src, t + 50);
		push.tensors_per_layer = t;
		assert_ok(kvp_push_blocks(pair->a, &push));
		pair_model_move(&dst, &src, &some);
		caches_check(&src, &dst);
	}
	caches_close(&src, &dst);
}

static void
push_blocks__one_source_for_many(void **state)
{
	static const uint64_t from[] = {3, 3, 3, 3, 0, 3};
	static const uint64_t to[] = {0, 2, 4, 6, 5, 1};
	const struct pair *pair = *state;
	struct pair_cache src, dst;

	caches_open(pair, &plain, &plain, &src, &dst);
	push_and_check(pair, &src, &dst, &(struct pair_move){from, to, 6, 0, 0, 4});
	caches_close(&src, &dst);
}

/* Latent attention: one tensor per layer, 1152 bytes per token, 61 layers. */
static void
push_blocks__mla(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape mla = {
		.tensors = 61, .blocks = 24, .block_bytes = 16 * 1152, .is_shareable = true};
	struct pair_cache src, dst;
	uint64_t from[24], to[24], seed = 5;

	pair_shuffle(from, 24, &seed);
	pair_shuffle(to, 24, &seed);
	caches_open(pair, &mla, &mla, &src, &dst);
	push_and_check(pair, &src, &dst, &(struct pair_move){from, to, 20, 0, 0, 61});
	caches_close(&src, &dst);
}

static void
push_blocks__private_and_shareable_memory(void **state)
{
	const struct pair *pair = *state;

	for (uint32_t kind = 0; kind < 4; kind++) {
		struct pair_shape from = plain, to = plain;
		struct pair_cache src, dst;
		struct kvp_cache_info info;

		from.is_shareable = kind & 1;
		to.is_shareable = kind & 2;
		caches_open(pair, &from, &to, &src, &dst);
		push_and_check(pair, &src, &dst, &some);
		assert_ok(kvp_cache_query(pair->b, dst.id, &info));
		assert_int_equal(info.cache_id, dst.id);
		assert_int_equal(info.num_tensors, 4);
		assert_int_equal(info.num_blocks, 16);
		assert_int_equal(info.bytes, 4 * 16 * BLOCK);
		assert_int_equal(info.shareable, to.is_shareable);
		caches_close(&src, &dst);
	}
}

static void
cache_allocate__gives_zeroed_aligned_memory(void **state)
{
	const struct pair *pair = *state;
	struct kvp_tensor tensor[2][3];
	int64_t id[2] = {0, 0};
	uint64_t block = 2;
	struct kvp_push push = {.dst = {.cluster = PAIR_B},
				.src_blocks = &block,
				.dst_blocks = &block,
				.count = 1,
				.src_layers = {-1, -1},
				.dst_layers = {-1, -1},
				.tensors_per_layer = 3};

	memset(tensor, 0, sizeof(tensor));
	for (uint32_t i = 0; i < 6; i++)
		tensor[i / 3][i % 3] = (struct kvp_tensor){NULL, 5, 100, 128};
	assert_ok(kvp_cache_allocate(pair->a, tensor[0], 3, &id[0]));
	assert_ok(kvp_cache_allocate(pair->b, tensor[1], 3, &id[1]));
	assert_int_equal(id[0], 1);
	assert_int_equal(id[1], 1);
	for (uint32_t i = 0; i < 6; i++) {
		const uint8_t *base = tensor[i / 3][i % 3].base;

		assert_non_null(base);
		assert_int_equal((uintptr_t)base % 4096, 0);
		if (i % 3 > 0)
			assert_true(base > (uint8_t *)tensor[i / 3][i % 3 - 1].base);
		for (size_t j = 0; j < 4 * 128 + 100; j++)
			assert_int_equal(base[j], 0);
	}
	for (uint32_t i = 0; i < 3; i++)
		pair_fill(tensor[0][i].base, 4 * 128 + 100, i);
	push.src_cache = id[0];
	push.dst.cache = id[1];
	assert_ok(kvp_push_blocks(pair->a, &push));
	for (uint32_t i = 0; i < 3; i++) {
		const uint8_t *from = tensor[0][i].base, *to = tensor[1][i].base;

		assert_memory_equal(to + 256, from + 256, 100);
		assert_int_equal(to[255], 0);
		assert_int_equal(to[356], 0);
	}
	assert_ok(kvp_cache_release(pair->a, id[0]));
	assert_ok(kvp_cache_release(pair->b, id[1]));
}

/* The runs a transfer reports are those that the planner explains. */
static void
runs_check(const struct pair *pair, struct pair_cache *src, struct pair_cache *dst,
	   const struct pair_move *move, uint64_t runs)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, move);
	struct kvp_plan_query query = {
		.src = src->tensor,
		.dst = dst->tensor,
		.src_tensors = src->tensors,
		.dst_tensors = dst->tensors,
		.tensors_per_layer = 1,
		.src_blocks = move->src_blocks,
		.dst_blocks = move->dst_blocks,
		.count = move->count,
		.src_layers = push.src_layers,
		.dst_layers = push.dst_layers,
	};
	struct kvp_plan_report report;
	struct kvp_transfer_info info;
	struct kvp_transfer *transfer;

	assert_ok(kvp_push_submit(pair->a, &push, &transfer));
	assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
	assert_ok(kvp_transfer_query(transfer, &info));
	kvp_transfer_free(transfer);
	pair_model_move(dst, src, move);
	caches_check(src, dst);
	assert_ok(kvp_plan_explain(&query, &report));
	assert_int_equal(info.pieces, move->count * move->tensors);
	assert_int_equal(info.pieces, report.pieces);
	assert_int_equal(info.bytes, report.bytes);
	assert_int_equal(info.runs, report.runs);
	assert_int_equal(info.runs, runs);
}

static void
push_blocks__folds_interleaved_tensors(void **state)
{
	static const uint64_t row_src[] = {4, 5, 6, 7, 8, 9};
	static const uint64_t row_dst[] = {1, 2, 3, 4, 5, 6};
	static const uint64_t far_src[] = {0, 9, 3};
	static const uint64_t far_dst[] = {5, 0, 14};
	const struct pair *pair = *state;
	struct pair_shape folded = plain, loose = plain;
	struct pair_cache src, dst, other;

	folded.layout = PAIR_INTERLEAVED;
	folded.per_layer = 2;
	caches_open(pair, &folded, &folded, &src, &dst);
	/* Two layers of K and V: 24 pieces, and one run per layer. */
	runs_check(pair, &src, &dst, &(struct pair_move){row_src, row_dst, 6, 0, 0, 4}, 2);
	runs_check(pair, &src, &dst, &(struct pair_move){far_src, far_dst, 3, 0, 0, 4}, 6);
	/* K alone does not touch its neighbours. */
	runs_check(pair, &src, &dst, &(struct pair_move){row_src, row_dst, 6, 2, 0, 1}, 6);

	/* Folding needs both sides. */
	pair_cache_open(&other, pair->b, &loose, 3);
	runs_check(pair, &src, &other, &(struct pair_move){row_src, row_dst, 6, 0, 0, 4}, 24);
	pair_cache_close(&other);
	caches_close(&src, &dst);
}

static void
push_blocks__strides_of_each_side(void **state)
{
	const struct pair *pair = *state;
	struct pair_shape shape[3] = {plain, plain, plain};

	shape[1].layout = PAIR_INTERLEAVED;
	shape[1].per_layer = 4;
	shape[2].layout = PAIR_PADDED;
	shape[2].pad_bytes = 72;
	for (uint32_t i = 0; i < 9; i++) {
		struct pair_cache src, dst;

		caches_open(pair, &shape[i / 3], &shape[i % 3], &src, &dst);
		push_and_check(pair, &src, &dst, &some);
		caches_close(&src, &dst);
	}
}

static void
push_blocks__notifies(void **state)
{
	static const uint32_t sizes[] = {0, 1, 255, KVP_NOTIFY_BYTES_MAX};
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	uint8_t payload[KVP_NOTIFY_BYTES_MAX];
	struct kvp_event event;
	struct kvp_push push;

	caches_open(pair, &plain, &plain, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &some);
	for (uint32_t i = 0; i < 4; i++) {
		pair_fill(payload, sizeof(payload), i);
		pair_cache_fill(&src, i + 30);
		push.notify = (struct kvp_notify){.enabled = 1,
						  .payload_bytes = sizes[i],
						  .payload = sizes[i] == 0 ? NULL : payload,
						  .tag = UINT64_MAX - i};
		assert_ok(kvp_push_blocks(pair->a, &push));
		pair_event_is(pair->b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
		pair_model_move(&dst, &src, &some);
		caches_check(&src, &dst);
		assert_int_equal(event.status, KVP_SUCCESS);
		assert_int_equal(event.cache, dst.id);
		assert_true(event.tag == UINT64_MAX - i);
		assert_int_equal(event.bytes, 5 * 4 * BLOCK);
		assert_int_equal(event.payload_bytes, sizes[i]);
		assert_memory_equal(event.payload, payload, sizes[i]);

		/* Without notify: no event, so the next one is the next round's. */
		push.notify.enabled = 0;
		assert_ok(kvp_push_blocks(pair->a, &push));
	}
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->b, &event));
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->a, &event));
	caches_close(&src, &dst);
}

#define MANY_BLOCKS 1864U

static void
push_blocks__119296_pieces(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape many = {
		.tensors = 64, .blocks = MANY_BLOCKS, .block_bytes = 512, .is_shareable = true};
	uint64_t from[MANY_BLOCKS], to[MANY_BLOCKS], seed = 119296;
	struct pair_move move = {from, to, MANY_BLOCKS, 0, 0, 64};
	struct pair_cache src, dst;
	struct kvp_transfer_info info;
	struct kvp_transfer *transfer;
	struct kvp_event event;
	struct kvp_push push;

	pair_shuffle(from, MANY_BLOCKS, &seed);
	pair_shuffle(to, MANY_BLOCKS, &seed);
	caches_open(pair, &many, &many, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &move);
	push.notify = (struct kvp_notify){.enabled = 1, .tag = 4};
	assert_ok(kvp_push_submit(pair->a, &push, &transfer));
	pair_event_is(pair->b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
	pair_model_move(&dst, &src, &move);
	caches_check(&src, &dst);
	assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
	assert_ok(kvp_transfer_query(transfer, &info));
	kvp_transfer_free(transfer);
	assert_int_equal(info.pieces, 119296);
	assert_int_equal(info.bytes, 119296 * 512);
	assert_int_equal(info.moved, info.bytes);
	caches_close(&src, &dst);
}

static void
push_blocks__both_directions_of_one_link(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape shape = {
		.tensors = 8, .blocks = 32, .block_bytes = 32768, .is_shareable = true};
	uint64_t from[32], to[32], seed = 9;
	struct pair_move move = {from, to, 32, 0, 0, 8};
	struct pair_cache a_src, a_dst, b_src, b_dst;
	struct kvp_push forth, back;

	pair_shuffle(from, 32, &seed);
	pair_shuffle(to, 32, &seed);
	caches_open(pair, &shape, &shape, &a_src, &b_dst);
	pair_cache_open(&a_dst, pair->a, &shape, 3);
	pair_cache_open(&b_src, pair->b, &shape, 4);
	forth = pair_push(&a_src, PAIR_B, &b_dst, &move);
	back = pair_push(&b_src, PAIR_A, &a_dst, &move);
	for (uint64_t round = 0; round < 5; round++) {
		struct kvp_transfer *transfer[2];

		pair_cache_fill(&a_src, 2 * round);
		pair_cache_fill(&b_src, 2 * round + 1);
		assert_ok(kvp_push_submit(pair->a, &forth, &transfer[0]));
		assert_ok(kvp_push_submit(pair->b, &back, &transfer[1]));
		assert_ok(kvp_transfer_wait(transfer[1], UINT32_MAX));
		assert_ok(kvp_transfer_wait(transfer[0], UINT32_MAX));
		kvp_transfer_free(transfer[0]);
		kvp_transfer_free(transfer[1]);
		pair_model_move(&b_dst, &a_src, &move);
		pair_model_move(&a_dst, &b_src, &move);
		caches_check(&a_src, &b_dst);
		caches_check(&b_src, &a_dst);
	}
	caches_close(&b_src, &a_dst);
	caches_close(&a_src, &b_dst);
}

static void
pull_blocks__moves_what_it_names(void **state)
{
	const struct pair *pair = *state;

	for (uint32_t kind = 0; kind < 4; kind++) {
		struct pair_shape from = plain, to = plain;
		struct pair_cache src, dst;
		struct kvp_pull pull;
		struct kvp_transfer *transfer;

		from.is_shareable = kind & 1;
		from.tensors = 8;
		to.is_shareable = kind & 2;
		to.layout = PAIR_PADDED;
		to.pad_bytes = 64;
		caches_open(pair, &from, &to, &src, &dst);
		/* The acceptor pulls from the one that linked. */
		pull = pair_pull(PAIR_A, &src, &dst,
				 &(struct pair_move){some_src, some_dst, 5, 3, 0, 4});
		assert_ok(kvp_pull_blocks(pair->b, &pull));
		pair_model_move(&dst, &src, &(struct pair_move){some_src, some_dst, 5, 3, 0, 4});
		caches_check(&src, &dst);
		/* And the other way round, in the other direction. */
		pair_cache_fill(&dst, kind + 60);
		pull = pair_pull(PAIR_B, &dst, &src,
				 &(struct pair_move){some_dst, some_src, 5, 1, 6, 2});
		assert_ok(kvp_pull_submit(pair->a, &pull, &transfer));
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		kvp_transfer_free(transfer);
		pair_model_move(&src, &dst, &(struct pair_move){some_dst, some_src, 5, 1, 6, 2});
		caches_close(&src, &dst);
	}
}

#define THREADS   4U
#define PER_ROUND 4U
#define ROUNDS    40U
#define SHARE     16U /* blocks of one thread */

struct worker {
	pthread_t thread;
	const struct pair *pair;
	const struct pair_cache *src, *dst;
	uint32_t index;
	uint32_t failed;
};

/* Transfers of this thread's own blocks, PER_ROUND in flight. Counts what is not SUCCESS. */
static void *
work(void *arg)
{
	struct worker *worker = arg;
	uint64_t blocks[SHARE];
	uint32_t step = SHARE / PER_ROUND;

	for (uint32_t i = 0; i < SHARE; i++)
		blocks[i] = worker->index * SHARE + i;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct kvp_transfer *transfer[PER_ROUND] = {NULL};

		for (uint32_t i = 0; i < PER_ROUND; i++) {
			struct kvp_push push =
				pair_push(worker->src, PAIR_B, worker->dst,
					  &(struct pair_move){blocks + i * step, blocks + i * step,
							      step, 0, 0, worker->src->tensors});

			worker->failed += kvp_push_submit(worker->pair->a, &push, &transfer[i]) !=
					  KVP_SUCCESS;
		}
		for (uint32_t i = 0; i < PER_ROUND; i++) {
			if (transfer[i] == NULL)
				continue;
			worker->failed += kvp_transfer_wait(transfer[i], UINT32_MAX) != KVP_SUCCESS;
			kvp_transfer_free(transfer[i]);
		}
	}
	return NULL;
}

/* One batch slot, or the beginning of it: LLM-DataDist's PushKvCache and PullKvCache. */
static void
push_and_pull__parts_of_blocks(void **state)
{
	static const uint64_t sizes[] = {1, 4095, BLOCK, 0, 100};
	static const uint64_t from[] = {7}, to[] = {3};
	const struct pair *pair = *state;
	const struct pair_shape shapes[] = {
		{.tensors = 8,
		 .per_layer = 2,
		 .blocks = 16,
		 .block_bytes = BLOCK,
		 .layout = PAIR_INTERLEAVED,
		 .is_shareable = true},
		{.tensors = 8,
		 .blocks = 16,
		 .block_bytes = BLOCK,
		 .pad_bytes = 64,
		 .layout = PAIR_PADDED},
	};

	for (uint32_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		const struct pair_move slot = {from, to, 1, 2, 1, 5};
		const struct pair_move move = {some_src, some_dst, 5, 1, 2, 3};
		struct pair_cache src, dst;
		struct kvp_pull pull;

		caches_open(pair, &shapes[i % 2], &shapes[1 - i % 2], &src, &dst);
		push_part_and_check(pair, &src, &dst, &slot, sizes[i / 2]);
		push_part_and_check(pair, &src, &dst, &move, sizes[i / 2]);
		pair_cache_fill(&src, i + 40);
		pull = pair_pull(PAIR_A, &src, &dst, &move);
		pull.bytes_per_block = sizes[i / 2];
		assert_ok(kvp_pull_blocks(pair->b, &pull));
		pair_model_move_part(&dst, &src, &move, sizes[i / 2]);
		caches_check(&src, &dst);
		pull.bytes_per_block = BLOCK + 1;
		assert_refused(KVP_PARAM_INVALID, "bytes_per_block is 4097",
			       kvp_pull_blocks(pair->b, &pull));
		caches_close(&src, &dst);
	}
}

/* Blocks of different sizes move as far as both go. */
static void
push_blocks__of_unequal_blocks(void **state)
{
	const struct pair *pair = *state;
	struct pair_shape small = plain;
	struct pair_cache src, dst;
	struct kvp_push push;

	small.block_bytes = 1024;
	caches_open(pair, &plain, &small, &src, &dst);
	push_part_and_check(pair, &src, &dst, &some, 1024);
	push = pair_push(&src, PAIR_B, &dst, &some);
	assert_refused(KVP_PARAM_INVALID, "must be equal", kvp_push_blocks(pair->a, &push));
	push.bytes_per_block = 1025;
	assert_refused(KVP_PARAM_INVALID, "1024 bytes, so at most that",
		       kvp_push_blocks(pair->a, &push));
	caches_close(&src, &dst);
}

static void
push_submit__from_many_threads(void **state)
{
	const struct pair *pair = *state;
	const struct pair_shape shape = {
		.tensors = 4, .blocks = THREADS * SHARE, .block_bytes = 8192, .is_shareable = true};
	uint64_t blocks[THREADS * SHARE];
	struct worker worker[THREADS];
	struct kvp_link_info before, after;
	struct pair_cache src, dst;

	for (uint64_t i = 0; i < THREADS * SHARE; i++)
		blocks[i] = i;
	caches_open(pair, &shape, &shape, &src, &dst);
	assert_ok(kvp_link_query(pair->a, PAIR_B, &before));
	for (uint32_t i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){.pair = pair, .src = &src, .dst = &dst, .index = i};
		assert_int_equal(pthread_create(&worker[i].thread, NULL, work, &worker[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(worker[i].thread, NULL), 0);
		assert_int_equal(worker[i].failed, 0);
	}
	pair_model_move(&dst, &src, &(struct pair_move){blocks, blocks, THREADS * SHARE, 0, 0, 4});
	assert_ok(kvp_link_query(pair->a, PAIR_B, &after));
	assert_int_equal(after.transfers_ok - before.transfers_ok, THREADS * PER_ROUND * ROUNDS);
	assert_int_equal(after.bytes_out - before.bytes_out,
			 (uint64_t)ROUNDS * THREADS * SHARE * 4 * 8192);
	assert_int_equal(after.transfers_failed, before.transfers_failed);
	caches_close(&src, &dst);
}

static void
link_query__counts(void **state)
{
	static const uint64_t from[] = {0, 2, 4, 6}, to[] = {7, 5, 3, 1};
	const struct pair *pair = *state;
	const struct pair_move move = {from, to, 4, 0, 0, 4};
	struct kvp_link_info a, b;
	struct pair_cache src, dst;
	struct kvp_push push;
	struct kvp_pull pull;

	caches_open(pair, &plain, &plain, &src, &dst);
	push = pair_push(&src, PAIR_B, &dst, &move);
	pull = pair_pull(PAIR_B, &dst, &src, &move);
	assert_ok(kvp_push_blocks(pair->a, &push));
	assert_ok(kvp_push_blocks(pair->a, &push));
	pair_model_move(&dst, &src, &move);
	assert_ok(kvp_pull_blocks(pair->a, &pull));
	pair_model_move(&src, &dst, &move);
	assert_ok(kvp_link_query(pair->a, PAIR_B, &a));
	do { /* the peer is told of a cache, but not waited for */
		assert_ok(kvp_link_query(pair->b, PAIR_A, &b));
		pair_pause();
	} while (b.remote_caches == 0);
	assert_int_equal(a.cluster_id, PAIR_B);
	assert_int_equal(b.cluster_id, PAIR_A);
	assert_int_equal(a.state, KVP_LINK_READY);
	assert_int_equal(b.state, KVP_LINK_READY);
	assert_int_equal(a.role, KVP_ROLE_MIX);
	assert_int_equal(a.remote_caches, 1);
	assert_int_equal(b.remote_caches, 1);
	assert_in_range(a.endpoints, 1, 16);
	assert_int_equal(a.endpoints, b.endpoints);
	assert_memory_equal(a.path, pair->transport, strlen(pair->transport));
	assert_memory_equal(b.path, pair->transport, strlen(pair->transport));
	assert_non_null(strstr(a.address, "127.0.0.1"));
	assert_int_equal(a.bytes_out, 2 * 4 * 4 * BLOCK);
	assert_int_equal(a.bytes_in, 4 * 4 * BLOCK);
	assert_int_equal(a.pieces, 3 * 4 * 4);
	assert_true(a.requests >= 3);
	assert_int_equal(a.transfers_ok, 3);
	assert_int_equal(a.transfers_failed, 0);
	assert_int_equal(b.bytes_out, 0);
	assert_int_equal(b.bytes_in, 0);
	assert_int_equal(b.transfers_ok, 0);
	caches_close(&src, &dst);
}

static void
remote_list__is_what_was_announced(void **state)
{
	const struct pair *pair = *state;
	struct pair_shape other = plain;
	struct kvp_remote_info info[4];
	struct pair_cache src, dst;
	size_t count = 99;

	assert_refused(KVP_FAILED, "engine", kvp_remote_list(NULL, PAIR_B, info, 4, &count));
	assert_refused(KVP_PARAM_INVALID, "infos",
		       kvp_remote_list(pair->a, PAIR_B, NULL, 1, &count));
	assert_refused(KVP_PARAM_INVALID, "count_out",
		       kvp_remote_list(pair->a, PAIR_B, info, 4, NULL));
	assert_refused(KVP_NOT_YET_LINK, "cluster 5", kvp_remote_list(pair->a, 5, info, 4, &count));
	assert_int_equal(count, 99);
	assert_ok(kvp_remote_list(pair->a, PAIR_B, NULL, 0, &count));
	assert_int_equal(count, 0);
	other.block_bytes = 512;
	other.tensors = 2;
	pair_cache_open(&src, pair->b, &plain, 1);
	pair_cache_open(&dst, pair->b, &other, 2);
	assert_ok(kvp_remote_list(pair->a, PAIR_B, info, 1, &count)); /* it asks */
	assert_int_equal(count, 2);
	assert_ok(kvp_remote_list(pair->a, PAIR_B, info, 4, &count));
	assert_int_equal(count, 2);
	for (size_t i = 0; i < 2; i++) {
		bool is_first = info[i].cache_id == src.id;

		assert_true(is_first || info[i].cache_id == dst.id);
		assert_int_equal(info[i].num_tensors, is_first ? 4 : 2);
		assert_int_equal(info[i].num_blocks, 16);
		assert_int_equal(info[i].block_bytes, is_first ? BLOCK : 512);
	}
	pair_cache_close(&dst);
	assert_ok(kvp_remote_list(pair->a, PAIR_B, info, 4, &count));
	assert_int_equal(count, 1);
	pair_cache_close(&src);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_TEST(push_blocks__moves_what_it_names),
		PAIR_TEST(push_submit__test_wait_query_free),
		PAIR_TEST(transfer_cancel__ends_it_and_nothing_lands_later),
		PAIR_TEST(transfer_free__cancels_and_waits),
		PAIR_TEST(push_blocks__moves_layer_ranges),
		PAIR_TEST(push_blocks__all_layers),
		PAIR_TEST(push_blocks__one_source_for_many),
		PAIR_TEST(push_blocks__mla),
		PAIR_TEST(push_blocks__private_and_shareable_memory),
		PAIR_TEST(cache_allocate__gives_zeroed_aligned_memory),
		PAIR_TEST(push_blocks__folds_interleaved_tensors),
		PAIR_TEST(push_blocks__strides_of_each_side),
		PAIR_TEST(push_blocks__notifies),
		PAIR_TEST(push_blocks__119296_pieces),
		PAIR_TEST(push_blocks__both_directions_of_one_link),
		PAIR_TEST(pull_blocks__moves_what_it_names),
		PAIR_TEST(push_and_pull__parts_of_blocks),
		PAIR_TEST(push_blocks__of_unequal_blocks),
		PAIR_TEST(push_submit__from_many_threads),
		PAIR_TEST(link_query__counts),
		PAIR_TEST(remote_list__is_what_was_announced),
	};

	return PAIR_RUN(tests);
}
