/* SPDX-License-Identifier: Apache-2.0 */
/* Several engines and links in one process: what happens to one leaves the others alone. */
#include "pair.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ENGINES 3U
#define BLOCKS  32U

static const uint64_t cluster[ENGINES] = {101, 102, 103};
static const struct pair_shape shape = {
	.tensors = 4, .blocks = BLOCKS, .block_bytes = 16384, .is_shareable = true};

/* Engines that are all linked to each other, one cache each. */
struct ring {
	struct kvp_engine *engine[ENGINES];
	struct pair_cache cache[ENGINES];
	uint64_t low[BLOCKS / 2], high[BLOCKS / 2]; /* halves of every cache */
};

/* The engine at `tight` keeps no more than 16 events. */
static void
ring_open_tight(struct ring *ring, const char *transports, uint32_t lanes, uint32_t tight)
{
	memset(ring, 0, sizeof(*ring));
	for (uint32_t i = 0; i < ENGINES; i++) {
		struct kvp_config config;

		pair_config(&config, cluster[i], transports);
		config.lanes = lanes;
		config.max_events = i == tight ? 16 : config.max_events;
		assert_ok(kvp_open(&config, &ring->engine[i]));
		pair_cache_open(&ring->cache[i], ring->engine[i], &shape, i);
	}
	for (uint32_t i = 0; i < ENGINES; i++)
		pair_link(ring->engine[i], cluster[i], ring->engine[(i + 1) % ENGINES],
			  cluster[(i + 1) % ENGINES]);
	for (uint64_t i = 0; i < BLOCKS / 2; i++) {
		ring->low[i] = i;
		ring->high[i] = BLOCKS / 2 + i;
	}
}

static void
ring_open(struct ring *ring, const char *transports, uint32_t lanes)
{
	ring_open_tight(ring, transports, lanes, ENGINES);
}

static void
ring_close(struct ring *ring)
{
	for (uint32_t i = 0; i < ENGINES; i++) {
		if (ring->engine[i] == NULL)
			continue;
		pair_cache_close(&ring->cache[i]);
		kvp_close(ring->engine[i]);
	}
}

/* The low half of `from` goes to the high half of `to`, so that sources never change. */
static struct pair_move
low_to_high(const struct ring *ring)
{
	return (struct pair_move){ring->low, ring->high, BLOCKS / 2, 0, 0, 4};
}

static void
push_around(struct ring *ring, uint32_t engines)
{
	struct kvp_transfer *transfer[ENGINES];
	struct pair_move move = low_to_high(ring);

	for (uint32_t i = 0; i < engines; i++) {
		struct kvp_push push = pair_push(&ring->cache[i], cluster[(i + 1) % engines],
						 &ring->cache[(i + 1) % engines], &move);

		assert_ok(kvp_push_submit(ring->engine[i], &push, &transfer[i]));
	}
	for (uint32_t i = 0; i < engines; i++) {
		assert_ok(kvp_transfer_wait(transfer[i], UINT32_MAX));
		kvp_transfer_free(transfer[i]);
		pair_model_move(&ring->cache[(i + 1) % engines], &ring->cache[i], &move);
	}
	for (uint32_t i = 0; i < engines; i++)
		pair_cache_check(&ring->cache[i], "ring");
}

static void
engines__are_client_and_server_at_once(void **state)
{
	uint64_t ids[ENGINES];
	struct ring ring;
	size_t count;

	for (uint32_t lanes = 1; lanes <= 3; lanes += 2) {
		ring_open(&ring, *state, lanes);
		for (uint32_t i = 0; i < ENGINES; i++) {
			assert_ok(kvp_link_list(ring.engine[i], ids, ENGINES, &count));
			assert_int_equal(count, ENGINES - 1);
			assert_true(ids[0] != ids[1] && ids[0] != cluster[i] &&
				    ids[1] != cluster[i]);
			assert_ok(kvp_link_list(ring.engine[i], ids, 1, &count));
			assert_int_equal(count, ENGINES - 1);
		}
		for (uint32_t round = 0; round < 10; round++)
			push_around(&ring, ENGINES);
		ring_close(&ring);
	}
}

static void
closing_one__leaves_the_others(void **state)
{
	struct kvp_event event;
	struct ring ring;

	ring_open(&ring, *state, 1);
	push_around(&ring, ENGINES);
	pair_cache_close(&ring.cache[2]);
	kvp_close(ring.engine[2]);
	ring.engine[2] = NULL;
	for (uint32_t i = 0; i < 2; i++) {
		pair_event_is(ring.engine[i], KVP_EVENT_CACHE_GONE, cluster[2], &event);
		pair_event_is(ring.engine[i], KVP_EVENT_PEER_UNLINKED, cluster[2], &event);
	}
	push_around(&ring, 2);
	ring_close(&ring);
}

/* A link that comes and goes beside one that is pushed over all the time. */
struct comer {
	pthread_t thread;
	struct ring *ring;
	uint32_t failed;
	_Atomic bool is_over;
};

static void *
come_and_go(void *arg)
{
	struct comer *comer = arg;
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", kvp_port(comer->ring->engine[2]));
	for (uint32_t i = 0; i < 20; i++) {
		comer->failed += kvp_unlink(comer->ring->engine[0], cluster[2], PAIR_LONG_MS, 0) !=
				 KVP_SUCCESS;
		comer->failed += kvp_link(comer->ring->engine[0], address, PAIR_LONG_MS, NULL) !=
				 KVP_SUCCESS;
	}
	comer->is_over = true;
	return NULL;
}

static void
relinking_one__leaves_the_others(void **state)
{
	struct comer comer = {0};
	struct ring ring;

	ring_open(&ring, *state, 1);
	comer.ring = &ring;
	assert_int_equal(pthread_create(&comer.thread, NULL, come_and_go, &comer), 0);
	do {
		push_around(&ring, 2);
	} while (!comer.is_over);
	assert_int_equal(pthread_join(comer.thread, NULL), 0);
	assert_int_equal(comer.failed, 0);
	push_around(&ring, ENGINES);
	ring_close(&ring);
}

struct linker {
	pthread_t thread;
	struct kvp_engine *engine;
	uint16_t port;
	kvp_status status;
	char message[256];
};

static void *
link_once(void *arg)
{
	struct linker *linker = arg;
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", linker->port);
	linker->status = kvp_link(linker->engine, address, PAIR_LONG_MS, NULL);
	snprintf(linker->message, sizeof(linker->message), "%s", kvp_error_message());
	return NULL;
}

static bool
is_link_or_race(kvp_status status)
{
	return status == KVP_SUCCESS || status == KVP_ALREADY_LINK || status == KVP_PROCESSING_LINK;
}

/* Both ends, and two threads of one end, link at the same time: one link comes of it. */
static void
links_that_cross__become_one(void **state)
{
	struct kvp_engine *engine[2] = {NULL, NULL};
	struct pair_cache cache[2];
	uint64_t block = 3;

	for (uint32_t i = 0; i < 2; i++) {
		struct kvp_config config;

		pair_config(&config, cluster[i], *state);
		config.log_level = 0;
		assert_ok(kvp_open(&config, &engine[i]));
		pair_cache_open(&cache[i], engine[i], &shape, i);
	}
	for (uint32_t round = 0; round < 40; round++) {
		struct linker linker[3];
		struct kvp_event event;
		uint32_t linked = 0;

		for (uint32_t i = 0; i < 3; i++) {
			linker[i] = (struct linker){.engine = engine[i % 2],
						    .port = kvp_port(engine[(i + 1) % 2])};
			assert_int_equal(
				pthread_create(&linker[i].thread, NULL, link_once, &linker[i]), 0);
		}
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(pthread_join(linker[i].thread, NULL), 0);
		for (uint32_t i = 0; i < 3; i++) {
			if (!is_link_or_race(linker[i].status))
				print_error("round %u, engine %u: %s: %s\n", round, i % 2,
					    kvp_status_name(linker[i].status), linker[i].message);
			assert_true(is_link_or_race(linker[i].status));
			linked += linker[i].status == KVP_SUCCESS;
		}
		assert_in_range(linked, 1, 3);
		for (uint32_t i = 0; i < 2; i++) {
			struct kvp_push push =
				pair_push(&cache[i], cluster[1 - i], &cache[1 - i],
					  &(struct pair_move){&block, &block, 1, 0, 0, 4});
			size_t count = 0;

			pair_event_is(engine[i], KVP_EVENT_PEER_LINKED, cluster[1 - i], &event);
			assert_ok(kvp_link_list(engine[i], NULL, 0, &count));
			assert_int_equal(count, 1);
			assert_ok(kvp_push_blocks(engine[i], &push));
			pair_model_move(&cache[1 - i], &cache[i],
					&(struct pair_move){&block, &block, 1, 0, 0, 4});
			pair_cache_check(&cache[1 - i], "destination");
		}
		assert_ok(kvp_unlink(engine[0], cluster[1], PAIR_LONG_MS, 0));
		pair_event_is(engine[1], KVP_EVENT_PEER_UNLINKED, cluster[0], &event);
		for (uint32_t i = 0; i < 2; i++) {
			if (kvp_event_poll(engine[i], &event) == KVP_NO_EVENT)
				continue;
			print_error("round %u, engine %u: event %u more\n", round, i, event.kind);
			for (uint32_t j = 0; j < 3; j++)
				print_error("  link by engine %u: %s\n", j % 2,
					    kvp_status_name(linker[j].status));
			fail();
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		pair_cache_close(&cache[i]);
		kvp_close(engine[i]);
	}
}

/* A stranger with a peer's cluster id is a restarted peer: the old link ends, loudly. */
static void
second_peer_of_one_id__replaces_the_first(void **state)
{
	const struct pair *pair = *state;
	struct kvp_engine *twin = NULL;
	struct kvp_config config;
	struct kvp_event event;
	char address[32];

	pair_config(&config, PAIR_B, pair->transport);
	assert_ok(kvp_open(&config, &twin));
	snprintf(address, sizeof(address), "127.0.0.1:%u", kvp_port(twin));
	assert_ok(kvp_link(pair->a, address, PAIR_LONG_MS, NULL));
	pair_event_is(pair->a, KVP_EVENT_PEER_LOST, PAIR_B, &event);
	assert_int_equal(event.status, KVP_PEER_RESTARTED);
	pair_event_is(pair->a, KVP_EVENT_PEER_LINKED, PAIR_B, &event);
	pair_event_is(twin, KVP_EVENT_PEER_LINKED, PAIR_A, &event);
	assert_ok(pair_event_next(pair->b, PAIR_LONG_MS, &event));
	assert_true(event.kind == KVP_EVENT_PEER_LOST || event.kind == KVP_EVENT_PEER_UNLINKED);
	kvp_close(twin);
}

/* A small push does not queue behind a large one to another peer, or to the same. */
static void
small_push__overtakes_a_large_one(void **state)
{
	const struct pair_shape large = {
		.tensors = 8, .blocks = 64, .block_bytes = 65536, .is_shareable = true};
	const struct pair *pair = *state;
	struct pair_cache src, dst, small_src, small_dst;
	uint64_t blocks[64];
	uint32_t overtaken = 0;

	for (uint64_t i = 0; i < 64; i++)
		blocks[i] = i;
	pair_cache_open(&src, pair->a, &large, 1);
	pair_cache_open(&dst, pair->b, &large, 2);
	pair_cache_open(&small_src, pair->a, &shape, 3);
	pair_cache_open(&small_dst, pair->b, &shape, 4);
	for (uint32_t round = 0; round < 8; round++) {
		struct kvp_transfer *transfer[4];
		struct kvp_push push = pair_push(&src, PAIR_B, &dst,
						 &(struct pair_move){blocks, blocks, 64, 0, 0, 8});
		struct kvp_push small = pair_push(&small_src, PAIR_B, &small_dst,
						  &(struct pair_move){blocks, blocks, 1, 0, 0, 1});

		for (uint32_t i = 0; i < 4; i++)
			assert_ok(kvp_push_submit(pair->a, &push, &transfer[i]));
		assert_ok(kvp_push_blocks(pair->a, &small));
		overtaken += kvp_transfer_test(transfer[3]) == KVP_IN_PROGRESS;
		for (uint32_t i = 0; i < 4; i++) {
			assert_ok(kvp_transfer_wait(transfer[i], UINT32_MAX));
			kvp_transfer_free(transfer[i]);
		}
	}
	assert_true(overtaken >= 4);
	pair_cache_close(&src);
	pair_cache_close(&dst);
	pair_cache_close(&small_src);
	pair_cache_close(&small_dst);
}

/* The initiator's order decides, among what the other side has; both ends say what they use. */
static void
transports__first_in_common_is_used(void **state)
{
	static const struct {
		const char *from, *to, *path;
	} row[] = {
		{"shm,tcp", "shm,tcp", "shm"},   {"tcp,shm", "shm,tcp", "tcp"},
		{"shm,tcp", "tcp", "tcp"},       {"shm,tcp", "tcp,shm", "shm"},
		{"tcp", "shm,tcp", "tcp"},       {"verbs,shm", "tcp,shm,verbs", "verbs"},
		{"shm,verbs", "verbs", "verbs"},
	};
	const uint64_t block = 7;
	uint32_t rows = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct pair_cache src, dst;
		struct kvp_link_info info;
		struct kvp_config a, b;
		struct kvp_push push;
		struct pair pair;

		if (!pair_wants(row[i].from) || !pair_wants(row[i].to))
			continue;
		rows++;
		pair_config(&a, PAIR_A, row[i].from);
		pair_config(&b, PAIR_B, row[i].to);
		pair_open(&pair, &a, &b);
		pair_cache_open(&src, pair.a, &shape, 1);
		pair_cache_open(&dst, pair.b, &shape, 2);
		assert_ok(kvp_link_query(pair.a, PAIR_B, &info));
		assert_memory_equal(info.path, row[i].path, strlen(row[i].path));
		assert_ok(kvp_link_query(pair.b, PAIR_A, &info));
		assert_memory_equal(info.path, row[i].path, strlen(row[i].path));
		push = pair_push(&src, PAIR_B, &dst,
				 &(struct pair_move){&block, &block, 1, 0, 0, 4});
		assert_ok(kvp_push_blocks(pair.a, &push));
		pair_model_move(&dst, &src, &(struct pair_move){&block, &block, 1, 0, 0, 4});
		pair_cache_check(&dst, row[i].path);
		pair_cache_close(&src);
		pair_cache_close(&dst);
		pair_close(&pair);
	}
	if (rows == 0)
		skip(); /* needs two transports */
}

#define STALLED 8U
#define PASSING 40U

/* Nobody polls the events of engine 1, and its queue is full: pushes with notification wait there. */
static void
fill_up(const struct ring *ring, struct kvp_push *push)
{
	push->timeout_ms = PAIR_SLOW(100);
	/* Over verbs each queue pair has receives of its own: the last ones are found one by one. */
	for (uint32_t refused = 0; refused < 8;) {
		kvp_status status = kvp_push_blocks(ring->engine[0], push);

		refused = status == KVP_SUCCESS ? 0 : refused + 1;
		assert_true(status == KVP_SUCCESS || status == KVP_NO_CREDIT);
	}
}

/* One receiver is full, another is not: only pushes to the first wait, until their deadline. */
static void
full_receiver__stalls_its_own_senders_alone(void **state)
{
	struct kvp_transfer *stalled[STALLED];
	struct kvp_push to_full, to_free;
	struct pair_move move;
	struct kvp_event event;
	struct ring ring;
	uint64_t start_ms;

	ring_open_tight(&ring, *state, 1, 1);
	move = low_to_high(&ring);
	to_full = pair_push(&ring.cache[0], cluster[1], &ring.cache[1], &move);
	to_free = pair_push(&ring.cache[0], cluster[2], &ring.cache[2], &move);
	to_full.notify = to_free.notify = (struct kvp_notify){.enabled = 1};
	fill_up(&ring, &to_full);
	to_full.timeout_ms = PAIR_SLOW(3000);
	start_ms = pair_now_ms();
	for (uint32_t i = 0; i < STALLED; i++)
		assert_ok(kvp_push_submit(ring.engine[0], &to_full, &stalled[i]));
	for (uint32_t i = 0; i < PASSING; i++) {
		to_free.notify.tag = i;
		assert_ok(kvp_push_blocks(ring.engine[0], &to_free));
		do
			pair_event_is(ring.engine[2], KVP_EVENT_PUSH_ARRIVED, cluster[0], &event);
		while (event.tag != i);
	}
	/* All of them before one of those that wait gave up. */
	assert_true(pair_now_ms() - start_ms < PAIR_SLOW(3000));
	for (uint32_t i = 0; i < STALLED; i++) {
		assert_status(KVP_NO_CREDIT, kvp_transfer_wait(stalled[i], UINT32_MAX));
		kvp_transfer_free(stalled[i]);
	}
	assert_in_range(pair_now_ms() - start_ms, PAIR_SLOW(3000) - 1, PAIR_SLOW(3300));
	/* Room again: it goes on. */
	while (pair_event_next(ring.engine[1], PAIR_SLOW(50), &event) == KVP_SUCCESS)
		;
	to_full.timeout_ms = PAIR_LONG_MS;
	assert_ok(kvp_push_blocks(ring.engine[0], &to_full));
	pair_model_move(&ring.cache[1], &ring.cache[0], &move);
	pair_model_move(&ring.cache[2], &ring.cache[0], &move);
	pair_cache_check(&ring.cache[1], "full one's cache");
	pair_cache_check(&ring.cache[2], "free one's cache");
	ring_close(&ring);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_BOTH(engines__are_client_and_server_at_once),
		PAIR_BOTH(full_receiver__stalls_its_own_senders_alone),
		PAIR_BOTH(closing_one__leaves_the_others),
		PAIR_BOTH(relinking_one__leaves_the_others),
		PAIR_BOTH(links_that_cross__become_one),
		PAIR_TEST(second_peer_of_one_id__replaces_the_first),
		PAIR_TEST(small_push__overtakes_a_large_one),
		cmocka_unit_test(transports__first_in_common_is_used),
	};

	return PAIR_RUN(tests);
}
