/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes whose layers are made ready one by one. */
#include "pair.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK  4096U
#define LAYERS 6U
#define T      2U /* tensors per layer */

static const uint64_t some_src[] = {1, 5, 6, 7, 2};
static const uint64_t some_dst[] = {3, 0, 9, 10, 15};
static const struct pair_shape plain = {
	.tensors = LAYERS * T, .blocks = 16, .block_bytes = BLOCK, .is_shareable = true};
static const struct pair_shape woven = {.tensors = LAYERS * T,
					.per_layer = LAYERS * T, /* all layers in one row */
					.blocks = 16,
					.block_bytes = BLOCK,
					.layout = PAIR_INTERLEAVED};

struct bench {
	const struct pair *pair;
	struct pair_cache src, dst;
	struct kvp_push push;
	struct kvp_transfer *transfer;
};

/* All layers of both, no notification. */
static void
bench_open(struct bench *bench, const struct pair *pair, const struct pair_shape *src,
	   const struct pair_shape *dst)
{
	const struct pair_move move = {some_src, some_dst, 5, 0, 0, LAYERS * T};

	bench->pair = pair;
	pair_cache_open(&bench->src, pair->a, src, 1);
	pair_cache_open(&bench->dst, pair->b, dst, 2);
	bench->push = pair_push(&bench->src, PAIR_B, &bench->dst, &move);
	bench->push.src_layers = bench->push.dst_layers = (struct kvp_layers){-1, -1};
	bench->push.tensors_per_layer = T;
}

static void
bench_close(struct bench *bench)
{
	pair_cache_check(&bench->src, "source");
	pair_cache_check(&bench->dst, "destination");
	pair_cache_close(&bench->src);
	pair_cache_close(&bench->dst);
}

/* The model of layer `from` of the source moves to layer `to`. */
static void
model_layer(struct bench *bench, uint32_t from, uint32_t to)
{
	pair_model_move(&bench->dst, &bench->src,
			&(struct pair_move){some_src, some_dst, 5, from * T, to * T, T});
}

static void
layer_opens(struct bench *bench)
{
	assert_ok(kvp_push_open(bench->pair->a, &bench->push, &bench->transfer));
}

static void
layer_ready(struct bench *bench, int32_t layer)
{
	assert_ok(kvp_push_layer(bench->transfer, layer));
}

/* Wait until `bytes` have landed, as far as the sender knows. */
static void
await_moved(const struct bench *bench, uint64_t bytes)
{
	uint64_t end_ms = pair_now_ms() + PAIR_LONG_MS;
	struct kvp_transfer_info info;

	do {
		assert_ok(kvp_transfer_query(bench->transfer, &info));
		assert_true(pair_now_ms() < end_ms);
		pair_pause();
	} while (info.moved < bytes);
	assert_int_equal(info.moved, bytes);
}

static void
push_layer__moves_that_layer_alone(void **state)
{
	static const int32_t order[LAYERS] = {3, 0, 5, 1, 4, 2};

	for (uint32_t round = 0; round < 4; round++) {
		struct bench bench;
		struct kvp_transfer_info info;

		bench_open(&bench, *state, round & 1 ? &woven : &plain,
			   round & 2 ? &woven : &plain);
		layer_opens(&bench);
		assert_status(KVP_IN_PROGRESS, kvp_transfer_wait(bench.transfer, 20));
		pair_cache_check(&bench.dst, "destination");
		for (uint32_t i = 0; i < LAYERS; i++) {
			assert_status(KVP_IN_PROGRESS, kvp_transfer_test(bench.transfer));
			layer_ready(&bench, order[i]);
			await_moved(&bench, (i + 1) * 5ULL * T * BLOCK);
			model_layer(&bench, (uint32_t)order[i], (uint32_t)order[i]);
			pair_cache_check(&bench.dst, "destination");
		}
		assert_ok(kvp_transfer_wait(bench.transfer, UINT32_MAX));
		assert_ok(kvp_transfer_query(bench.transfer, &info));
		assert_int_equal(info.bytes, LAYERS * 5ULL * T * BLOCK);
		assert_int_equal(info.pieces, LAYERS * 5 * T);
		assert_true(info.requests >= LAYERS);
		kvp_transfer_free(bench.transfer);
		bench_close(&bench);
	}
}

/* Layers 1..3 of the one are 2..4 of the other. */
static void
push_layer__of_a_range(void **state)
{
	struct bench bench;

	bench_open(&bench, *state, &plain, &plain);
	bench.push.src_layers = (struct kvp_layers){1, 3};
	bench.push.dst_layers = (struct kvp_layers){2, 4};
	bench.push.notify = (struct kvp_notify){.enabled = 1, .tag = 77, .layers = 1};
	layer_opens(&bench);
	assert_refused(KVP_PARAM_INVALID, "{1, 3}", kvp_push_layer(bench.transfer, 0));
	assert_refused(KVP_PARAM_INVALID, "{1, 3}", kvp_push_layer(bench.transfer, 4));
	assert_refused(KVP_PARAM_INVALID, "{1, 3}", kvp_push_layer(bench.transfer, -1));
	assert_refused(KVP_PARAM_INVALID, "{1, 3}", kvp_push_layer(bench.transfer, INT32_MIN));
	for (int32_t layer = 3; layer >= 1; layer--) {
		struct kvp_event event;

		layer_ready(&bench, layer);
		model_layer(&bench, (uint32_t)layer, (uint32_t)layer + 1);
		pair_event_is(bench.pair->b, KVP_EVENT_LAYER_ARRIVED, PAIR_A, &event);
		assert_int_equal(event.layer, layer + 1);
		assert_int_equal(event.tag, 77);
		assert_int_equal(event.cache, bench.dst.id);
		assert_int_equal(event.bytes, 5 * T * BLOCK);
		pair_cache_check(&bench.dst, "destination");
	}
	assert_ok(kvp_transfer_wait(bench.transfer, UINT32_MAX));
	kvp_transfer_free(bench.transfer);
	bench_close(&bench);
}

/* One event of all, and before it one of each layer when asked for; with tag and payload. */
static void
push_layer__events(void **state)
{
	const char payload[] = "what the sender says";
	struct bench bench;

	bench_open(&bench, *state, &plain, &plain);
	for (uint32_t round = 0; round < 30; round++) {
		bool has_layers = round & 1;
		uint64_t seen = 0, seed = round;
		uint64_t order[LAYERS];
		struct kvp_event event;

		pair_cache_fill(&bench.src, round + 20);
		bench.push.notify = (struct kvp_notify){.enabled = 1,
							.payload = payload,
							.payload_bytes = sizeof(payload),
							.tag = round,
							.layers = has_layers};
		pair_shuffle(order, LAYERS, &seed);
		layer_opens(&bench);
		for (uint32_t i = 0; i < LAYERS; i++) {
			layer_ready(&bench, (int32_t)order[i]);
			model_layer(&bench, (uint32_t)order[i], (uint32_t)order[i]);
		}
		for (uint32_t i = 0; has_layers && i < LAYERS; i++) {
			pair_event_is(bench.pair->b, KVP_EVENT_LAYER_ARRIVED, PAIR_A, &event);
			assert_in_range(event.layer, 0, LAYERS - 1);
			assert_int_equal(seen >> event.layer & 1, 0);
			seen |= 1ULL << event.layer;
			assert_int_equal(event.tag, round);
			assert_memory_equal(event.payload, payload, sizeof(payload));
		}
		pair_event_is(bench.pair->b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
		pair_cache_check(&bench.dst, "destination");
		assert_int_equal(event.layer, -1);
		assert_int_equal(event.tag, round);
		assert_int_equal(event.bytes, LAYERS * 5 * T * BLOCK);
		assert_int_equal(event.payload_bytes, sizeof(payload));
		assert_memory_equal(event.payload, payload, sizeof(payload));
		assert_ok(kvp_transfer_wait(bench.transfer, UINT32_MAX));
		kvp_transfer_free(bench.transfer);
		assert_int_equal(pair_event_next(bench.pair->b, 10, &event), KVP_NO_EVENT);
	}
	bench_close(&bench);
}

/* --- many of them, from many threads, over several lanes --------------------------------------- */

#define MANY    64U
#define THREADS 4U

struct marker {
	pthread_t thread;
	struct kvp_transfer *transfer;
	const uint64_t *order;
	uint32_t first;
	kvp_status status;
};

static void *
mark_some(void *arg)
{
	struct marker *marker = arg;

	for (uint32_t i = marker->first; i < MANY && marker->status == KVP_SUCCESS; i += THREADS)
		marker->status = kvp_push_layer(marker->transfer, (int32_t)marker->order[i]);
	return NULL;
}

static void
push_layer__from_many_threads(void **state)
{
	const struct pair_shape shape = {
		.tensors = MANY, .blocks = 64, .block_bytes = 16384, .is_shareable = true};
	uint64_t src_blocks[32], dst_blocks[64], order[MANY], seed = 9;
	struct pair_move move = {src_blocks, dst_blocks, 32, 0, 0, MANY};
	struct marker marker[THREADS] = {0};
	struct pair_cache src, dst;
	struct kvp_config a, b;
	struct pair pair;

	pair_config(&a, PAIR_A, *state);
	pair_config(&b, PAIR_B, *state);
	a.lanes = b.lanes = 2;
	a.streams = b.streams = 4;
	pair_open(&pair, &a, &b);
	pair_cache_open(&src, pair.a, &shape, 1);
	pair_cache_open(&dst, pair.b, &shape, 2);
	for (uint32_t round = 0; round < 6; round++) {
		struct kvp_push push;
		struct kvp_transfer *transfer;
		struct kvp_event event;

		pair_cache_fill(&src, round + 50);
		pair_shuffle(dst_blocks, 64, &seed);
		for (uint32_t i = 0; i < 32; i++)
			src_blocks[i] = (i * 7 + round) % 64;
		pair_shuffle(order, MANY, &seed);
		push = pair_push(&src, PAIR_B, &dst, &move);
		push.notify = (struct kvp_notify){.enabled = 1, .tag = round, .layers = round & 1};
		assert_ok(kvp_push_open(pair.a, &push, &transfer));
		for (uint32_t i = 0; i < THREADS; i++) {
			marker[i] =
				(struct marker){.transfer = transfer, .order = order, .first = i};
			assert_int_equal(
				pthread_create(&marker[i].thread, NULL, mark_some, &marker[i]), 0);
		}
		for (uint32_t i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_join(marker[i].thread, NULL), 0);
			assert_int_equal(marker[i].status, KVP_SUCCESS);
		}
		pair_model_move(&dst, &src, &move);
		for (uint32_t i = 0; (round & 1) != 0 && i < MANY; i++)
			pair_event_is(pair.b, KVP_EVENT_LAYER_ARRIVED, PAIR_A, &event);
		pair_event_is(pair.b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
		pair_cache_check(&dst, "destination");
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		kvp_transfer_free(transfer);
	}
	pair_cache_check(&src, "source");
	pair_cache_close(&src);
	pair_cache_close(&dst);
	pair_close(&pair);
}

/* --- ends that are not the good one --------------------------------------------------------------- */

static void
push_layer__refusals(void **state)
{
	struct bench bench;
	struct kvp_transfer *plain_push;

	bench_open(&bench, *state, &plain, &plain);
	assert_refused(KVP_FAILED, "engine", kvp_push_open(NULL, &bench.push, &bench.transfer));
	assert_refused(KVP_PARAM_INVALID, "push is NULL",
		       kvp_push_open(bench.pair->a, NULL, &bench.transfer));
	assert_refused(KVP_PARAM_INVALID, "transfer_out",
		       kvp_push_open(bench.pair->a, &bench.push, NULL));
	bench.push.notify.layers = 1;
	assert_refused(KVP_PARAM_INVALID, "notify.layers is 1",
		       kvp_push_open(bench.pair->a, &bench.push, &bench.transfer));
	bench.push.notify.enabled = 1;
	assert_refused(KVP_PARAM_INVALID, "notify.layers is 1",
		       kvp_push_submit(bench.pair->a, &bench.push, &plain_push));
	bench.push.notify.layers = 2;
	assert_refused(KVP_PARAM_INVALID, "notify.layers is 2",
		       kvp_push_open(bench.pair->a, &bench.push, &bench.transfer));
	bench.push.notify = (struct kvp_notify){0};
	bench.push.tensors_per_layer = 5;
	assert_refused(KVP_PARAM_INVALID, "divide",
		       kvp_push_open(bench.pair->a, &bench.push, &bench.transfer));
	bench.push.tensors_per_layer = T;
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_push_layer(NULL, 0));
	assert_ok(kvp_push_submit(bench.pair->a, &bench.push, &plain_push));
	assert_refused(KVP_PARAM_INVALID, "kvp_push_open", kvp_push_layer(plain_push, 0));
	assert_ok(kvp_transfer_wait(plain_push, UINT32_MAX));
	kvp_transfer_free(plain_push);
	pair_model_move(&bench.dst, &bench.src,
			&(struct pair_move){some_src, some_dst, 5, 0, 0, LAYERS * T});

	layer_opens(&bench);
	layer_ready(&bench, 2);
	assert_refused(KVP_PARAM_INVALID, "layer 2 was made ready before",
		       kvp_push_layer(bench.transfer, 2));
	assert_refused(KVP_PARAM_INVALID, "{0, 5}", kvp_push_layer(bench.transfer, LAYERS));
	for (int32_t layer = 0; layer < (int32_t)LAYERS; layer++) {
		if (layer != 2)
			layer_ready(&bench, layer);
	}
	assert_ok(kvp_transfer_wait(bench.transfer, UINT32_MAX));
	assert_refused(KVP_PARAM_INVALID, "before", kvp_push_layer(bench.transfer, 2));
	kvp_transfer_free(bench.transfer);
	bench_close(&bench);
}

/* Something else over the same link: what was still under way before it would be there, too. */
static void
push_after(struct bench *bench)
{
	const struct pair_move move = {some_src, some_dst, 5, 0, 0, 1};
	struct kvp_push push = pair_push(&bench->src, PAIR_B, &bench->dst, &move);

	assert_ok(kvp_push_blocks(bench->pair->a, &push));
	pair_model_move(&bench->dst, &bench->src, &move);
}

/* A layer that nobody makes ready: TIMEOUT at the deadline, and it does not move later. */
static void
push_layer__never(void **state)
{
	for (uint32_t ready = 0; ready < LAYERS; ready += LAYERS - 1) {
		struct bench bench;
		uint64_t start_ms;

		bench_open(&bench, *state, &plain, &plain);
		bench.push.timeout_ms = PAIR_SLOW(300);
		bench.push.notify = (struct kvp_notify){.enabled = 1};
		start_ms = pair_now_ms();
		layer_opens(&bench);
		for (uint32_t i = 0; i < ready; i++) {
			layer_ready(&bench, (int32_t)i);
			model_layer(&bench, i, i);
		}
		assert_status(KVP_TIMEOUT, kvp_transfer_wait(bench.transfer, UINT32_MAX));
		assert_in_range(pair_now_ms() - start_ms, PAIR_SLOW(300) - 1, PAIR_SLOW(600));
		assert_refused(KVP_TIMEOUT, "does not move",
			       kvp_push_layer(bench.transfer, (int32_t)LAYERS - 1));
		kvp_transfer_free(bench.transfer);
		push_after(&bench);
		bench_close(&bench);
	}
}

/* The other ways to end: by whom, and with which status. */
enum ender {
	CANCEL,
	FREE,
	RELEASE,
	PEER_RELEASE,
	UNLINK,
	PEER_UNLINK,
	CLOSE,
	ENDERS
};

static void
end_by(struct bench *bench, struct pair *pair, enum ender ender)
{
	switch (ender) {
	case CANCEL:
		assert_ok(kvp_transfer_cancel(bench->transfer));
		break;
	case RELEASE:
		assert_ok(kvp_cache_release(pair->a, bench->src.id));
		break;
	case PEER_RELEASE:
		assert_ok(kvp_cache_release(pair->b, bench->dst.id));
		break;
	case UNLINK:
		assert_ok(kvp_unlink(pair->a, PAIR_B, PAIR_LONG_MS, 0));
		break;
	case PEER_UNLINK:
		assert_ok(kvp_unlink(pair->b, PAIR_A, PAIR_LONG_MS, 0));
		break;
	case CLOSE:
		kvp_close(pair->a);
		pair->a = NULL;
		break;
	case FREE:
	case ENDERS:
		break;
	}
}

static void
push_layer__ends_early(void **state)
{
	static const kvp_status status[ENDERS] = {
		[CANCEL] = KVP_CANCELLED,
		[RELEASE] = KVP_CACHE_NOT_EXIST,
		[PEER_RELEASE] = KVP_CACHE_NOT_EXIST,
		[UNLINK] = KVP_NOT_YET_LINK,
		[PEER_UNLINK] = KVP_NOT_YET_LINK,
		[CLOSE] = KVP_CANCELLED,
	};

	for (uint32_t i = 0; i < 3 * ENDERS; i++) {
		enum ender ender = i / 3;
		struct bench bench;
		struct kvp_config a, b;
		struct pair pair;
		kvp_status got;

		pair_config(&a, PAIR_A, *state);
		pair_config(&b, PAIR_B, *state);
		a.lanes = 1 + i % 2;
		pair_open(&pair, &a, &b);
		bench_open(&bench, &pair, &plain, &plain);
		bench.push.notify = (struct kvp_notify){.enabled = 1, .layers = i % 3 == 2};
		layer_opens(&bench);
		for (uint32_t layer = 0; layer < i % 3 * 2; layer++) {
			layer_ready(&bench, (int32_t)layer);
			model_layer(&bench, layer, layer);
		}
		await_moved(&bench, i % 3 * 2 * 5ULL * T * BLOCK);
		end_by(&bench, &pair, ender);
		if (ender != FREE) {
			got = kvp_transfer_wait(bench.transfer, UINT32_MAX);
			assert_int_equal(got, status[ender]);
			assert_int_equal(kvp_push_layer(bench.transfer, LAYERS - 1), got);
		}
		kvp_transfer_free(bench.transfer);
		pair_cache_check(&bench.dst, "destination");
		if (pair.a == NULL) { /* its memory went with it */
			bench.src.engine = NULL;
			bench.src.is_shareable = false;
			bench.src.memory = NULL;
		}
		pair_cache_close(&bench.src);
		pair_cache_close(&bench.dst);
		pair_close(&pair);
	}
}

/* Cancelled while layers are on their way, again and again: the destination changes hands at once. */
static void
push_layer__races_with_cancel(void **state)
{
	uint64_t seed = 3;
	uint32_t cancelled = 0;
	struct bench bench;

	bench_open(&bench, *state, &plain, &plain);
	for (uint32_t round = 0; round < 200; round++) {
		uint64_t ready = pair_below(&seed, LAYERS + 1);
		kvp_status status;

		layer_opens(&bench);
		for (uint32_t i = 0; i < ready; i++)
			layer_ready(&bench, (int32_t)i);
		assert_ok(kvp_transfer_cancel(bench.transfer));
		status = kvp_transfer_wait(bench.transfer, PAIR_LONG_MS);
		assert_true(status == KVP_CANCELLED || (status == KVP_SUCCESS && ready == LAYERS));
		cancelled += status == KVP_CANCELLED;
		pair_cache_fill(&bench.dst, round);
		kvp_transfer_free(bench.transfer);
		pair_cache_check(&bench.dst, "destination");
	}
	assert_true(cancelled > 100);
	bench_close(&bench);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_TEST(push_layer__moves_that_layer_alone),
		PAIR_TEST(push_layer__of_a_range),
		PAIR_TEST(push_layer__events),
		PAIR_BOTH(push_layer__from_many_threads),
		PAIR_TEST(push_layer__refusals),
		PAIR_TEST(push_layer__never),
		PAIR_BOTH(push_layer__ends_early),
		PAIR_TEST(push_layer__races_with_cancel),
	};

	return PAIR_RUN(tests);
}
