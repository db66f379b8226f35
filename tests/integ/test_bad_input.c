/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every argument of every call wrong once: the right status, a message that
 * names the argument, and nothing touched. Peers and addresses that are wrong
 * are in test_bad_peer.c.
 */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 8U
#define BLOCK  256U
#define NONE   ((uint64_t)-1)

static const struct pair_shape shape = {
	.tensors = 4, .blocks = BLOCKS, .block_bytes = BLOCK, .is_shareable = true};
static const uint64_t up[] = {0, 1, 2};
static const uint64_t down[] = {7, 6, 5};
static const struct pair_move good = {up, down, 3, 0, 0, 4};

/* A pair with one cache on each side. */
struct fixture {
	struct pair *pair;
	struct pair_cache src, dst;
};

static int
fixture_setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	void *pair = *state;

	assert_non_null(fixture);
	pair_setup(&pair);
	fixture->pair = pair;
	pair_cache_open(&fixture->src, fixture->pair->a, &shape, 1);
	pair_cache_open(&fixture->dst, fixture->pair->b, &shape, 2);
	*state = fixture;
	return 0;
}

static int
fixture_teardown(void **state)
{
	struct fixture *fixture = *state;
	void *pair = fixture->pair;

	pair_cache_close(&fixture->src);
	pair_cache_close(&fixture->dst);
	pair_teardown(&pair);
	free(fixture);
	return 0;
}

static void
untouched(const struct fixture *fixture)
{
	pair_cache_check(&fixture->src, "source");
	pair_cache_check(&fixture->dst, "destination");
}

/* Every way to ask for `push` is refused alike, and hands out nothing. */
static void
push_is_refused(struct fixture *fixture, const struct kvp_push *push, kvp_status expected,
		const char *word)
{
	struct kvp_transfer *handle = (struct kvp_transfer *)fixture;
	struct kvp_event event;

	assert_refused(expected, word, kvp_push_blocks(fixture->pair->a, push));
	assert_refused(expected, word, kvp_push_submit(fixture->pair->a, push, &handle));
	assert_ptr_equal(handle, fixture);
	untouched(fixture);
	assert_status(KVP_NO_EVENT, kvp_event_poll(fixture->pair->b, &event));
}

static void
pull_is_refused(struct fixture *fixture, const struct kvp_pull *pull, kvp_status expected,
		const char *word)
{
	struct kvp_transfer *handle = (struct kvp_transfer *)fixture;

	assert_refused(expected, word, kvp_pull_blocks(fixture->pair->a, pull));
	assert_refused(expected, word, kvp_pull_submit(fixture->pair->a, pull, &handle));
	assert_ptr_equal(handle, fixture);
	untouched(fixture);
}

static struct kvp_push
good_push(const struct fixture *fixture)
{
	struct kvp_push push = pair_push(&fixture->src, PAIR_B, &fixture->dst, &good);

	push.notify = (struct kvp_notify){.enabled = 1};
	return push;
}

/* Into a's cache from b's. */
static struct kvp_pull
good_pull(const struct fixture *fixture)
{
	return pair_pull(PAIR_B, &fixture->dst, &fixture->src, &good);
}

/* One assignment to a good request, and what must come of it. */
#define PUSH_WITH(change, expected, word)                        \
	do {                                                     \
		struct kvp_push push = good_push(fixture);       \
		change;                                          \
		push_is_refused(fixture, &push, expected, word); \
	} while (0)
#define PULL_WITH(change, expected, word)                        \
	do {                                                     \
		struct kvp_pull pull = good_pull(fixture);       \
		change;                                          \
		pull_is_refused(fixture, &pull, expected, word); \
	} while (0)
#define BOTH_WITH(change, expected, word)                                    \
	do {                                                                 \
		struct kvp_push push = good_push(fixture), *request = &push; \
		struct kvp_pull pull;                                        \
		change;                                                      \
		push_is_refused(fixture, &push, expected, word);             \
		pull = good_pull(fixture);                                   \
		pull.src_blocks = request->src_blocks;                       \
		pull.dst_blocks = request->dst_blocks;                       \
		pull.count = request->count;                                 \
		pull.src_layers = request->src_layers;                       \
		pull.dst_layers = request->dst_layers;                       \
		pull.tensors_per_layer = request->tensors_per_layer;         \
		pull_is_refused(fixture, &pull, expected, word);             \
	} while (0)
#define LAYERS(first, last) \
	(struct kvp_layers) \
	{                   \
		first, last \
	}

static void
transfers__refuse_bad_lists(void **state)
{
	static const uint64_t past[] = {0, BLOCKS, 2}, far[] = {0, 1, UINT64_MAX};
	static const uint64_t wide[] = {0x100000000, 1, 2}, twice[] = {3, 4, 3};
	static const uint64_t touching[] = {5, 5, 6};
	struct fixture *fixture = *state;

	BOTH_WITH(request->src_blocks = NULL, KVP_PARAM_INVALID, "src_blocks");
	BOTH_WITH(request->dst_blocks = NULL, KVP_PARAM_INVALID, "dst_blocks");
	BOTH_WITH(request->count = 0, KVP_PARAM_INVALID, "count");
	BOTH_WITH(request->count = (size_t)KVP_BLOCKS_MAX + 1, KVP_PARAM_INVALID, "count");
	BOTH_WITH(request->count = SIZE_MAX, KVP_PARAM_INVALID, "count");
	BOTH_WITH(request->src_blocks = past, KVP_PARAM_INVALID, "src_blocks[1]");
	BOTH_WITH(request->dst_blocks = past, KVP_PARAM_INVALID, "dst_blocks[1]");
	BOTH_WITH(request->src_blocks = far, KVP_PARAM_INVALID, "18446744073709551615");
	BOTH_WITH(request->dst_blocks = far, KVP_PARAM_INVALID, "18446744073709551615");
	BOTH_WITH(request->src_blocks = wide, KVP_PARAM_INVALID, "4294967296");
	BOTH_WITH(request->dst_blocks = wide, KVP_PARAM_INVALID, "4294967296");
	BOTH_WITH(request->dst_blocks = twice, KVP_PARAM_INVALID, "3");
	BOTH_WITH(request->dst_blocks = touching, KVP_PARAM_INVALID, "5");
}

static void
transfers__refuse_bad_layers(void **state)
{
	struct fixture *fixture = *state;

	BOTH_WITH(request->src_layers = LAYERS(-2, 0), KVP_PARAM_INVALID, "src_layers");
	BOTH_WITH(request->dst_layers = LAYERS(0, -3), KVP_PARAM_INVALID, "dst_layers");
	BOTH_WITH(request->src_layers = LAYERS(3, 2), KVP_PARAM_INVALID, "src_layers");
	BOTH_WITH(request->dst_layers = LAYERS(3, 2), KVP_PARAM_INVALID, "dst_layers");
	BOTH_WITH(request->src_layers = LAYERS(0, 2), KVP_PARAM_INVALID, "layers");
	BOTH_WITH(request->src_layers = LAYERS(-1, -1), KVP_PARAM_INVALID, "layers");
	BOTH_WITH(request->dst_layers = LAYERS(-1, -1), KVP_PARAM_INVALID, "layers");
	BOTH_WITH(request->src_layers = LAYERS(1, 4), KVP_PARAM_INVALID, "src_layers");
	BOTH_WITH(request->dst_layers = LAYERS(1, 4), KVP_PARAM_INVALID, "dst_layers");
	BOTH_WITH(request->tensors_per_layer = 0, KVP_PARAM_INVALID, "tensors_per_layer");
	BOTH_WITH(request->tensors_per_layer = 3, KVP_PARAM_INVALID, "tensors_per_layer");
	BOTH_WITH(request->tensors_per_layer = 5, KVP_PARAM_INVALID, "tensors_per_layer");
	BOTH_WITH(request->tensors_per_layer = UINT32_MAX, KVP_PARAM_INVALID, "tensors_per_layer");
}

static void
transfers__refuse_unknown_ends(void **state)
{
	struct fixture *fixture = *state;

	PUSH_WITH(push.src_cache = 0, KVP_CACHE_NOT_EXIST, "0");
	PUSH_WITH(push.src_cache = -1, KVP_CACHE_NOT_EXIST, "-1");
	PUSH_WITH(push.src_cache = 77, KVP_CACHE_NOT_EXIST, "77");
	PUSH_WITH(push.dst.cache = 0, KVP_CACHE_NOT_EXIST, "0");
	PUSH_WITH(push.dst.cache = 78, KVP_CACHE_NOT_EXIST, "78");
	PUSH_WITH(push.dst.cache = INT64_MAX, KVP_CACHE_NOT_EXIST, "9223372036854775807");
	PUSH_WITH(push.dst.cluster = 99, KVP_NOT_YET_LINK, "99");
	PUSH_WITH(push.dst.cluster = PAIR_A, KVP_NOT_YET_LINK, "11"); /* itself */
	PUSH_WITH(push.dst.cluster = UINT64_MAX, KVP_NOT_YET_LINK, "18446744073709551615");
	PULL_WITH(pull.dst_cache = 77, KVP_CACHE_NOT_EXIST, "77");
	PULL_WITH(pull.dst_cache = INT64_MIN, KVP_CACHE_NOT_EXIST, "-9223372036854775808");
	PULL_WITH(pull.src.cache = -5, KVP_CACHE_NOT_EXIST, "-5");
	PULL_WITH(pull.src.cluster = 99, KVP_NOT_YET_LINK, "99");
}

static void
transfers__refuse_bad_notify(void **state)
{
	struct fixture *fixture = *state;

	PUSH_WITH(push.notify.payload_bytes = KVP_NOTIFY_BYTES_MAX + 1, KVP_PARAM_INVALID, "257");
	PUSH_WITH(push.notify.payload_bytes = UINT32_MAX, KVP_PARAM_INVALID, "4294967295");
	PUSH_WITH(push.notify.payload_bytes = 1, KVP_PARAM_INVALID, "payload"); /* of NULL */
}

/* The order of the checks is the order of transfer.h. */
static void
transfers__check_in_order(void **state)
{
	static const uint64_t past[] = {0, BLOCKS, 2};
	struct fixture *fixture = *state;

	PUSH_WITH((push.count = 0, push.src_layers = LAYERS(-2, 0)), KVP_PARAM_INVALID, "count");
	PUSH_WITH((push.tensors_per_layer = 0, push.src_cache = 9), KVP_PARAM_INVALID,
		  "tensors_per_layer");
	PUSH_WITH((push.src_cache = 9, push.dst.cluster = 99), KVP_CACHE_NOT_EXIST, "9");
	PUSH_WITH((push.dst.cluster = 99, push.dst.cache = 78), KVP_NOT_YET_LINK, "99");
	PUSH_WITH((push.dst.cache = 78, push.tensors_per_layer = 3), KVP_CACHE_NOT_EXIST, "78");
	PUSH_WITH((push.dst_blocks = past, push.src_blocks = past), KVP_PARAM_INVALID,
		  "dst_blocks");
	PULL_WITH((pull.dst_blocks = past, pull.src_blocks = past), KVP_PARAM_INVALID,
		  "src_blocks");
}

static void
transfers__refuse_unequal_caches(void **state)
{
	struct fixture *fixture = *state;
	struct pair_shape other = shape;
	struct pair_cache odd;

	other.block_bytes = BLOCK / 2;
	pair_cache_open(&odd, fixture->pair->b, &other, 3);
	PUSH_WITH(push.dst.cache = odd.id, KVP_PARAM_INVALID, "128");
	PULL_WITH(pull.src.cache = odd.id, KVP_PARAM_INVALID, "128");
	pair_cache_check(&odd, "other destination");
	pair_cache_close(&odd);

	other = shape;
	other.tensors = 6;
	pair_cache_open(&odd, fixture->pair->b, &other, 3);
	PUSH_WITH((push.dst.cache = odd.id, push.src_layers = push.dst_layers = LAYERS(-1, -1)),
		  KVP_PARAM_INVALID, "6");
	pair_cache_check(&odd, "other destination");
	pair_cache_close(&odd);
}

static void
transfers__refuse_null(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_engine *a = fixture->pair->a;
	struct kvp_push push = good_push(fixture);
	struct kvp_pull pull = good_pull(fixture);
	struct kvp_transfer *handle = (struct kvp_transfer *)fixture;
	struct kvp_transfer_info info;

	assert_refused(KVP_FAILED, "engine", kvp_push_blocks(NULL, &push));
	assert_refused(KVP_FAILED, "engine", kvp_pull_blocks(NULL, &pull));
	assert_refused(KVP_FAILED, "engine", kvp_push_submit(NULL, &push, &handle));
	assert_refused(KVP_FAILED, "engine", kvp_pull_submit(NULL, &pull, &handle));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_push_blocks(a, NULL));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_pull_blocks(a, NULL));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_push_submit(a, NULL, &handle));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_pull_submit(a, NULL, &handle));
	assert_refused(KVP_PARAM_INVALID, "transfer_out", kvp_push_submit(a, &push, NULL));
	assert_refused(KVP_PARAM_INVALID, "transfer_out", kvp_pull_submit(a, &pull, NULL));
	assert_ptr_equal(handle, fixture);
	untouched(fixture);

	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_transfer_test(NULL));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_transfer_wait(NULL, 0));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_transfer_cancel(NULL));
	assert_refused(KVP_PARAM_INVALID, "NULL", kvp_transfer_query(NULL, &info));
	kvp_transfer_free(NULL);
	assert_ok(kvp_push_submit(a, &push, &handle));
	assert_refused(KVP_PARAM_INVALID, "info_out", kvp_transfer_query(handle, NULL));
	assert_ok(kvp_transfer_wait(handle, UINT32_MAX));
	kvp_transfer_free(handle);
	pair_model_move(&fixture->dst, &fixture->src, &good);
	untouched(fixture);
}

static void
transfers__refuse_what_is_gone(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_engine *a = fixture->pair->a, *b = fixture->pair->b;
	struct kvp_push works = good_push(fixture);
	struct kvp_event event;
	int64_t gone = fixture->dst.id;

	works.notify.enabled = 0;
	assert_ok(kvp_push_blocks(a, &works));
	pair_model_move(&fixture->dst, &fixture->src, &good);
	untouched(fixture);

	assert_ok(kvp_cache_release(b, gone));
	PUSH_WITH((void)push, KVP_CACHE_NOT_EXIST, "1");
	assert_ok(kvp_cache_release(b, gone)); /* again: unknown is SUCCESS */
	assert_ok(kvp_cache_register(b, fixture->dst.tensor, 4, &fixture->dst.id));
	assert_true(fixture->dst.id > gone); /* ids are not used twice */

	gone = fixture->src.id;
	assert_ok(kvp_cache_release(a, gone));
	pair_event_is(b, KVP_EVENT_CACHE_GONE, PAIR_A, &event);
	assert_int_equal(event.cache, gone);
	PUSH_WITH((void)push, KVP_CACHE_NOT_EXIST, "1");
	assert_ok(kvp_cache_register(a, fixture->src.tensor, 4, &fixture->src.id));
	works = good_push(fixture);
	works.notify.enabled = 0;
	assert_ok(kvp_push_blocks(a, &works));

	assert_ok(kvp_unlink(a, PAIR_B, 0, 0));
	assert_ok(kvp_unlink(a, PAIR_B, 0, 0)); /* unknown: SUCCESS */
	pair_event_is(b, KVP_EVENT_PEER_UNLINKED, PAIR_A, &event);
	PUSH_WITH((void)push, KVP_NOT_YET_LINK, "22");
	PULL_WITH((void)pull, KVP_NOT_YET_LINK, "22");
}

static void
caches__refuse_bad_tensors(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_engine *engine = fixture->pair->a;
	static _Alignas(64) uint8_t memory[4096];
	const struct kvp_tensor right[2] = {{memory, 4, 64, 64}, {memory + 1024, 4, 64, 128}};
	const struct {
		struct kvp_tensor tensor[2];
		const char *word;
	} wrong[] = {
		{{right[0], {NULL, 4, 64, 64}}, "tensors[1].base"},
		{{right[0], {memory + 1024, 0, 64, 64}}, "tensors[1].num_blocks"},
		{{right[0], {memory + 1024, 5, 64, 64}}, "tensors[1].num_blocks"},
		{{{memory, 0, 64, 64}, {memory + 1024, 0, 64, 64}}, "tensors[0].num_blocks"},
		{{right[0], {memory + 1024, 4, 0, 64}}, "tensors[1].block_bytes"},
		{{right[0], {memory + 1024, 4, 64, 63}}, "tensors[1].block_stride"},
		{{right[0], {memory + 1024, 4, 64, UINT64_MAX / 2}}, "tensors[1]"},
		{{right[0], {memory + 1024, 4, UINT64_MAX, UINT64_MAX}}, "tensors[1]"},
		{{right[0], right[0]}, "overlap"},
		{{right[0], {memory + 255, 4, 64, 64}}, "overlap"},
		{{right[0], {memory + 32, 4, 64, 64}}, "overlap"},
		{{{memory, 4, 64, 128}, {memory + 65, 4, 64, 128}}, "overlap"},
		{{{memory, UINT64_MAX, 64, 64}, right[1]}, "tensors[0].num_blocks"},
	};
	struct kvp_tensor unplaced = {NULL, 4, 64, 64};
	int64_t id = 12345;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_refused(KVP_PARAM_INVALID, wrong[i].word,
			       kvp_cache_register(engine, wrong[i].tensor, 2, &id));
	assert_refused(KVP_FAILED, "engine", kvp_cache_register(NULL, right, 2, &id));
	assert_refused(KVP_PARAM_INVALID, "tensors", kvp_cache_register(engine, NULL, 2, &id));
	assert_refused(KVP_PARAM_INVALID, "num_tensors", kvp_cache_register(engine, right, 0, &id));
	assert_refused(KVP_PARAM_INVALID, "4097",
		       kvp_cache_register(engine, right, KVP_TENSORS_MAX + 1, &id));
	assert_refused(KVP_PARAM_INVALID, "cache_id_out",
		       kvp_cache_register(engine, right, 2, NULL));

	assert_refused(KVP_FAILED, "engine", kvp_cache_allocate(NULL, &unplaced, 1, &id));
	assert_refused(KVP_PARAM_INVALID, "tensors", kvp_cache_allocate(engine, NULL, 1, &id));
	assert_refused(KVP_PARAM_INVALID, "num_tensors",
		       kvp_cache_allocate(engine, &unplaced, 0, &id));
	assert_refused(KVP_PARAM_INVALID, "cache_id_out",
		       kvp_cache_allocate(engine, &unplaced, 1, NULL));
	unplaced.base = memory;
	assert_refused(KVP_PARAM_INVALID, "base", kvp_cache_allocate(engine, &unplaced, 1, &id));
	unplaced = (struct kvp_tensor){NULL, 4, 64, 63};
	assert_refused(KVP_PARAM_INVALID, "block_stride",
		       kvp_cache_allocate(engine, &unplaced, 1, &id));
	assert_null(unplaced.base);
	/* More than any machine has. */
	unplaced = (struct kvp_tensor){NULL, 1U << 31, 1U << 30, 1U << 30};
	assert_refused(KVP_OUT_OF_MEMORY, "", kvp_cache_allocate(engine, &unplaced, 1, &id));
	assert_null(unplaced.base);
	assert_int_equal(id, 12345);
	/* And after all that, the next id is the next id. */
	assert_ok(kvp_cache_register(engine, right, 2, &id));
	assert_int_equal(id, fixture->src.id + 1);
	assert_ok(kvp_cache_release(engine, id));
}

static void
caches__refuse_the_rest(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_engine *engine = fixture->pair->a;
	struct kvp_cache_info info = {.cache_id = 4711};
	void *memory = fixture;
	uint8_t other[16];

	assert_refused(KVP_FAILED, "engine", kvp_cache_query(NULL, 1, &info));
	assert_refused(KVP_PARAM_INVALID, "info_out", kvp_cache_query(engine, 1, NULL));
	assert_refused(KVP_CACHE_NOT_EXIST, "77", kvp_cache_query(engine, 77, &info));
	assert_int_equal(info.cache_id, 4711);
	assert_refused(KVP_FAILED, "engine", kvp_cache_release(NULL, 1));
	assert_ok(kvp_cache_release(engine, 77));
	assert_ok(kvp_cache_release(engine, -1));

	assert_refused(KVP_FAILED, "engine", kvp_memory_allocate(NULL, 4096, &memory));
	assert_refused(KVP_PARAM_INVALID, "bytes", kvp_memory_allocate(engine, 0, &memory));
	assert_refused(KVP_PARAM_INVALID, "memory_out", kvp_memory_allocate(engine, 4096, NULL));
	assert_refused(KVP_OUT_OF_MEMORY, "", kvp_memory_allocate(engine, 1ULL << 60, &memory));
	assert_refused(KVP_OUT_OF_MEMORY, "", kvp_memory_allocate(engine, UINT64_MAX, &memory));
	assert_ptr_equal(memory, fixture);
	assert_refused(KVP_FAILED, "engine", kvp_memory_release(NULL, fixture->src.memory));
	assert_refused(KVP_PARAM_INVALID, "memory", kvp_memory_release(engine, NULL));
	assert_refused(KVP_PARAM_INVALID, "memory", kvp_memory_release(engine, other));
	assert_refused(KVP_PARAM_INVALID, "memory",
		       kvp_memory_release(engine, fixture->src.memory + 4096));
	assert_refused(KVP_PARAM_INVALID, "cache", kvp_memory_release(engine, fixture->src.memory));
	assert_refused(KVP_PARAM_INVALID, "memory",
		       kvp_memory_release(engine, fixture->dst.memory)); /* b's */
	untouched(fixture);
}

static void
links_and_events__refuse(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_engine *engine = fixture->pair->a;
	struct kvp_link_info info = {.cluster_id = 4711};
	struct kvp_event event = {.kind = 4711};
	uint64_t clusters[2] = {NONE, NONE}, cluster = NONE;
	size_t count = 4711;

	assert_refused(KVP_FAILED, "engine", kvp_link(NULL, "127.0.0.1:1", 100, &cluster));
	assert_refused(KVP_PARAM_INVALID, "address", kvp_link(engine, NULL, 100, &cluster));
	assert_true(cluster == NONE);
	assert_refused(KVP_FAILED, "engine", kvp_unlink(NULL, PAIR_B, 100, 0));
	assert_ok(kvp_unlink(engine, 99, 100, 0));
	assert_ok(kvp_unlink(engine, 99, 100, 1));

	assert_refused(KVP_FAILED, "engine", kvp_link_query(NULL, PAIR_B, &info));
	assert_refused(KVP_PARAM_INVALID, "info_out", kvp_link_query(engine, PAIR_B, NULL));
	assert_refused(KVP_NOT_YET_LINK, "99", kvp_link_query(engine, 99, &info));
	assert_int_equal(info.cluster_id, 4711);

	assert_refused(KVP_FAILED, "engine", kvp_link_list(NULL, clusters, 2, &count));
	assert_refused(KVP_PARAM_INVALID, "count_out", kvp_link_list(engine, clusters, 2, NULL));
	assert_refused(KVP_PARAM_INVALID, "cluster_ids", kvp_link_list(engine, NULL, 2, &count));
	assert_int_equal(count, 4711);
	assert_true(clusters[0] == NONE);
	assert_ok(kvp_link_list(engine, NULL, 0, &count));
	assert_int_equal(count, 1);
	assert_ok(kvp_link_list(engine, clusters, 2, &count));
	assert_int_equal(clusters[0], PAIR_B);
	assert_true(clusters[1] == NONE);

	assert_refused(KVP_FAILED, "engine", kvp_event_poll(NULL, &event));
	assert_refused(KVP_PARAM_INVALID, "event_out", kvp_event_poll(engine, NULL));
	assert_status(KVP_NO_EVENT, kvp_event_poll(engine, &event));
	assert_int_equal(event.kind, 4711);
	assert_int_equal(kvp_event_fd(NULL), -1);
	assert_int_equal(kvp_port(NULL), 0);
}

static void
plan_explain__refuses(void **state)
{
	static const uint64_t past[] = {0, 4, 2}, twice[] = {1, 2, 1};
	struct kvp_tensor tensor[2] = {{(void *)0x10000, 4, 64, 64}, {(void *)0x20000, 4, 64, 64}};
	struct kvp_tensor thin = {(void *)0x10000, 4, 32, 64};
	struct kvp_plan_report report, before;
	const struct kvp_plan_query right = {.src = tensor,
					     .dst = tensor,
					     .src_tensors = 2,
					     .dst_tensors = 2,
					     .tensors_per_layer = 2,
					     .src_blocks = up,
					     .dst_blocks = up,
					     .count = 3,
					     .src_layers = {-1, -1},
					     .dst_layers = {-1, -1}};
	struct kvp_plan_query wrong[12];
	static const char *const words[12] = {
		"src",  "dst",        "src_blocks", "dst_blocks", "count", "tensors_per_layer",
		"src_", "dst_blocks", "1",          "32",         "src",   "dst"};

	(void)state;
	for (uint32_t i = 0; i < 12; i++)
		wrong[i] = right;
	wrong[0].src = NULL;
	wrong[1].dst = NULL;
	wrong[2].src_blocks = NULL;
	wrong[3].dst_blocks = NULL;
	wrong[4].count = 0;
	wrong[5].tensors_per_layer = 0;
	wrong[6].src_blocks = past;
	wrong[7].dst_blocks = past;
	wrong[8].dst_blocks = twice;
	wrong[9].src = &thin;
	wrong[9].src_tensors = wrong[9].dst_tensors = wrong[9].tensors_per_layer = 1;
	wrong[10].src_tensors = 0;
	wrong[11].dst_tensors = KVP_TENSORS_MAX + 1;
	memset(&report, 0x5A, sizeof(report));
	before = report;
	for (uint32_t i = 0; i < 12; i++)
		assert_refused(KVP_PARAM_INVALID, words[i], kvp_plan_explain(&wrong[i], &report));
	assert_refused(KVP_PARAM_INVALID, "query", kvp_plan_explain(NULL, &report));
	assert_memory_equal(&report, &before, sizeof(report));
	assert_refused(KVP_PARAM_INVALID, "report_out", kvp_plan_explain(&right, NULL));
	assert_ok(kvp_plan_explain(&right, &report));
	assert_int_equal(report.pieces, 6);
	assert_int_equal(report.bytes, 6 * 64);
}

static void
tensors_uniform__refuses(void **state)
{
	static const int64_t right[] = {16, 2, 8}, zero[] = {16, 0, 8}, negative[] = {-1, 2, 8};
	static const int64_t huge[] = {16, INT64_MAX, INT64_MAX};
	int64_t many[32];
	struct kvp_tensor tensor[2], before[2];

	(void)state;
	for (uint32_t i = 0; i < 32; i++)
		many[i] = 1;
	memset(tensor, 0x5A, sizeof(tensor));
	memcpy(before, tensor, sizeof(tensor));
	assert_refused(KVP_PARAM_INVALID, "shape",
		       kvp_tensors_uniform(KVP_DT_BF16, NULL, 3, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "tensors",
		       kvp_tensors_uniform(KVP_DT_BF16, right, 3, NULL, 2, NULL));
	assert_refused(KVP_PARAM_INVALID, "dims",
		       kvp_tensors_uniform(KVP_DT_BF16, right, 0, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "32",
		       kvp_tensors_uniform(KVP_DT_BF16, many, 32, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "shape[1]",
		       kvp_tensors_uniform(KVP_DT_BF16, zero, 3, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "shape[0]",
		       kvp_tensors_uniform(KVP_DT_BF16, negative, 3, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "shape",
		       kvp_tensors_uniform(KVP_DT_BF16, huge, 3, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "5", kvp_tensors_uniform(5, right, 3, NULL, 2, tensor));
	assert_refused(KVP_PARAM_INVALID, "num_tensors",
		       kvp_tensors_uniform(KVP_DT_BF16, right, 3, NULL, 0, tensor));
	assert_refused(
		KVP_PARAM_INVALID, "num_tensors",
		kvp_tensors_uniform(KVP_DT_BF16, right, 3, NULL, KVP_TENSORS_MAX + 1, tensor));
	assert_memory_equal(tensor, before, sizeof(tensor));
	assert_ok(kvp_tensors_uniform(KVP_DT_BF16, right, 3, NULL, 2, tensor));
	assert_int_equal(tensor[1].num_blocks, 16);
	assert_int_equal(tensor[1].block_bytes, 32);
	assert_int_equal(tensor[1].block_stride, 32);
	assert_null(tensor[1].base);
	assert_int_equal(kvp_dtype_bytes(5), 0);
	assert_int_equal(kvp_dtype_bytes(UINT32_MAX), 0);
}

/* In a child of fork every call says FAILED, and does nothing to the parent's engine. */
static int
calls_in_child(struct fixture *fixture)
{
	struct kvp_engine *engine = fixture->pair->a;
	struct kvp_push push = good_push(fixture);
	struct kvp_pull pull = good_pull(fixture);
	struct kvp_transfer *handle;
	struct kvp_cache_info cache;
	struct kvp_link_info link;
	struct kvp_event event;
	uint64_t cluster;
	int64_t id;
	size_t count;
	void *memory;
	const kvp_status got[] = {
		kvp_push_blocks(engine, &push),
		kvp_pull_blocks(engine, &pull),
		kvp_push_submit(engine, &push, &handle),
		kvp_pull_submit(engine, &pull, &handle),
		kvp_cache_register(engine, fixture->src.tensor, 4, &id),
		kvp_cache_release(engine, fixture->src.id),
		kvp_cache_query(engine, fixture->src.id, &cache),
		kvp_memory_allocate(engine, 4096, &memory),
		kvp_memory_release(engine, fixture->src.memory),
		kvp_link(engine, "127.0.0.1:1", 100, &cluster),
		kvp_unlink(engine, PAIR_B, 100, 1),
		kvp_link_query(engine, PAIR_B, &link),
		kvp_link_list(engine, &cluster, 1, &count),
		kvp_event_poll(engine, &event),
	};

	for (uint32_t i = 0; i < sizeof(got) / sizeof(got[0]); i++) {
		if (got[i] != KVP_FAILED || kvp_error_message()[0] == '\0')
			return 100 + (int)i;
	}
	return 0;
}

static void
fork__child_gets_failed(void **state)
{
	struct fixture *fixture = *state;
	struct kvp_push push = good_push(fixture);
	struct kvp_event event;
	int status = -1;
	pid_t child = fork();

	assert_int_not_equal(child, -1);
	if (child == 0)
		_exit(calls_in_child(fixture));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	untouched(fixture);
	assert_ok(kvp_push_blocks(fixture->pair->a, &push));
	pair_event_is(fixture->pair->b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
	pair_model_move(&fixture->dst, &fixture->src, &good);
	untouched(fixture);
}

static void
closed_engine__gets_failed(void **state)
{
	struct kvp_engine *engine = NULL;
	struct kvp_config config;
	struct kvp_event event;
	uint64_t cluster = NONE;

	pair_config(&config, 5, *state);
	assert_ok(kvp_open(&config, &engine));
	kvp_close(engine);
	assert_refused(KVP_FAILED, "engine", kvp_event_poll(engine, &event));
	assert_refused(KVP_FAILED, "engine", kvp_link(engine, "127.0.0.1:1", 100, &cluster));
	assert_refused(KVP_FAILED, "engine", kvp_cache_release(engine, 1));
	kvp_close(NULL);
}

static void
status_name__of_all(void **state)
{
	(void)state;
	assert_string_equal(kvp_status_name(KVP_SUCCESS), "SUCCESS");
	assert_string_equal(kvp_status_name(KVP_FAILED), "FAILED");
	assert_string_equal(kvp_status_name(KVP_PARAM_INVALID), "PARAM_INVALID");
	assert_string_equal(kvp_status_name(KVP_QUEUE_FULL), "QUEUE_FULL");
	assert_string_equal(kvp_status_name(0x5010B003U), "UNKNOWN");
	assert_string_equal(kvp_status_name(KVP_QUEUE_FULL + 1), "UNKNOWN");
}

#define FIXTURE_TEST(test) PAIR_OVER(test, fixture_setup, fixture_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(transfers__refuse_bad_lists),
		FIXTURE_TEST(transfers__refuse_bad_layers),
		FIXTURE_TEST(transfers__refuse_unknown_ends),
		FIXTURE_TEST(transfers__refuse_bad_notify),
		FIXTURE_TEST(transfers__check_in_order),
		FIXTURE_TEST(transfers__refuse_unequal_caches),
		FIXTURE_TEST(transfers__refuse_null),
		FIXTURE_TEST(transfers__refuse_what_is_gone),
		FIXTURE_TEST(caches__refuse_bad_tensors),
		FIXTURE_TEST(caches__refuse_the_rest),
		FIXTURE_TEST(links_and_events__refuse),
		FIXTURE_TEST(fork__child_gets_failed),
		{"plan_explain__refuses", plan_explain__refuses, NULL, NULL, NULL},
		{"tensors_uniform__refuses", tensors_uniform__refuses, NULL, NULL, NULL},
		{"closed_engine__gets_failed", closed_engine__gets_failed, NULL, NULL, pair_shm},
		{"status_name__of_all", status_name__of_all, NULL, NULL, NULL},
	};

	return PAIR_RUN(tests);
}
