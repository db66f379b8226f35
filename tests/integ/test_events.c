/* SPDX-License-Identifier: Apache-2.0 */
/* Events, and what ends a transfer early: full queues, releases, deadlines. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BLOCK 4096U

static const struct pair_shape small = {
	.tensors = 2, .blocks = 8, .block_bytes = BLOCK, .is_shareable = true};
static const struct pair_shape large = {
	.tensors = 8, .blocks = 64, .block_bytes = 32768, .is_shareable = true};
static const uint64_t blocks[64] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
				    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
				    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
				    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
static const struct pair_move some = {blocks, blocks, 4, 0, 0, 2};
static const struct pair_move all = {blocks, blocks, 64, 0, 0, 8};

static struct kvp_push
push_with_tag(const struct pair_cache *src, const struct pair_cache *dst, uint64_t tag)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, &some);

	push.notify = (struct kvp_notify){.enabled = 1, .tag = tag};
	return push;
}

static void
link__tells_both_ends(void **state)
{
	struct kvp_engine *a = NULL, *b = NULL;
	struct kvp_config config;
	struct kvp_event event;

	pair_config(&config, PAIR_A, *state);
	config.role = KVP_ROLE_PROMPT;
	assert_ok(kvp_open(&config, &a));
	pair_config(&config, PAIR_B, *state);
	config.role = KVP_ROLE_DECODER;
	assert_ok(kvp_open(&config, &b));
	for (uint32_t round = 0; round < 5; round++) {
		struct kvp_link_info info;

		pair_link(a, PAIR_A, b, PAIR_B);
		assert_ok(kvp_link_query(a, PAIR_B, &info));
		assert_int_equal(info.role, KVP_ROLE_DECODER);
		assert_ok(kvp_link_query(b, PAIR_A, &info));
		assert_int_equal(info.role, KVP_ROLE_PROMPT);
		/* Ended by either side; only the other one is told. */
		assert_ok(kvp_unlink(round % 2 == 0 ? a : b, round % 2 == 0 ? PAIR_B : PAIR_A,
				     PAIR_LONG_MS, round == 4));
		pair_event_is(round % 2 == 0 ? b : a, KVP_EVENT_PEER_UNLINKED,
			      round % 2 == 0 ? PAIR_A : PAIR_B, &event);
		assert_int_equal(event.status, KVP_SUCCESS);
		assert_status(KVP_NO_EVENT, kvp_event_poll(a, &event));
		assert_status(KVP_NO_EVENT, kvp_event_poll(b, &event));
		assert_status(KVP_NOT_YET_LINK, kvp_link_query(a, PAIR_B, &info));
		assert_status(KVP_NOT_YET_LINK, kvp_link_query(b, PAIR_A, &info));
	}
	pair_link(a, PAIR_A, b, PAIR_B);
	kvp_close(a);
	pair_event_is(b, KVP_EVENT_PEER_UNLINKED, PAIR_A, &event);
	kvp_close(b);
}

/* Poll until NO_EVENT, as a program does whose epoll fired: then the fd is quiet. */
static void
assert_quiet(struct kvp_engine *engine, int epoll)
{
	struct epoll_event got;
	struct kvp_event event;
	uint32_t rings = 0;

	do { /* a ring for an event that was polled already may come late, once */
		assert_status(KVP_NO_EVENT, kvp_event_poll(engine, &event));
		assert_in_range(rings++, 0, 1);
	} while (epoll_wait(epoll, &got, 1, 0) == 1);
}

static void
event_fd__is_readable_while_events_wait(void **state)
{
	const struct pair *pair = *state;
	struct epoll_event interest = {.events = EPOLLIN}, got;
	struct pair_cache src, dst;
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	assert_true(epoll >= 0);
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, kvp_event_fd(pair->b), &interest), 0);
	assert_int_equal(kvp_event_fd(pair->b), kvp_event_fd(pair->b));
	assert_quiet(pair->b, epoll);
	pair_cache_open(&src, pair->a, &small, 1);
	pair_cache_open(&dst, pair->b, &small, 2);
	for (uint64_t round = 0; round < 100; round++) {
		uint64_t count = 1 + round % 3;

		for (uint64_t i = 0; i < count; i++) {
			struct kvp_push push = push_with_tag(&src, &dst, round * 10 + i);

			assert_ok(kvp_push_blocks(pair->a, &push));
		}
		assert_int_equal(epoll_wait(epoll, &got, 1, (int)PAIR_LONG_MS), 1);
		assert_true(got.events & EPOLLIN);
		pair_tags_are(pair->transport, pair->b, PAIR_A, round * 10, count);
		assert_quiet(pair->b, epoll);
	}
	close(epoll);
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

static void
push_arrived__comes_after_its_bytes(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache there, here, back_src, back_dst;
	const struct pair_move half = {blocks, blocks, 16, 0, 0, 8};
	struct kvp_event event;
	struct kvp_push forth, back;

	pair_cache_open(&there, pair->a, &large, 1);
	pair_cache_open(&here, pair->b, &large, 2);
	pair_cache_open(&back_src, pair->b, &small, 3);
	pair_cache_open(&back_dst, pair->a, &small, 4);
	for (uint64_t round = 0; round < 40; round++) {
		struct kvp_transfer *transfer;

		/* The last byte of the range decides; the receiver polls without pause. */
		memset(there.tensor[7].base, (int)round, 16 * 32768);
		forth = pair_push(&there, PAIR_B, &here, &half);
		forth.notify = (struct kvp_notify){.enabled = 1, .tag = round};
		assert_ok(kvp_push_submit(pair->a, &forth, &transfer));
		while (kvp_event_poll(pair->b, &event) == KVP_NO_EVENT)
			pair_pause();
		assert_int_equal(event.kind, KVP_EVENT_PUSH_ARRIVED);
		assert_int_equal(event.tag, round);
		assert_memory_equal(here.tensor[7].base, there.tensor[7].base, 16 * 32768);
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		kvp_transfer_free(transfer);

		back = pair_push(&back_src, PAIR_A, &back_dst, &some);
		back.notify = (struct kvp_notify){.enabled = 1, .tag = round};
		pair_cache_fill(&back_src, round);
		assert_ok(kvp_push_submit(pair->b, &back, &transfer));
		pair_event_is(pair->a, KVP_EVENT_PUSH_ARRIVED, PAIR_B, &event);
		pair_model_move(&back_dst, &back_src, &some);
		pair_cache_check(&back_dst, "answer");
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		kvp_transfer_free(transfer);
	}
	pair_cache_close(&there);
	pair_cache_close(&here);
	pair_cache_close(&back_src);
	pair_cache_close(&back_dst);
}

/* An engine b with the fewest events, and an engine a with the fewest transfers. */
static void
open_tight(struct pair *pair, const char *transport)
{
	struct kvp_config a, b;

	pair_config(&a, PAIR_A, transport);
	pair_config(&b, PAIR_B, transport);
	a.max_transfers = 16;
	b.max_events = 16;
	pair_open(pair, &a, &b);
}

/* Push with notify until the receiver takes no more; returns how many went. */
static uint64_t
push_until_no_credit(struct pair *pair, struct pair_cache *src, struct pair_cache *dst)
{
	kvp_status status = KVP_SUCCESS;
	uint64_t tag, start_ms, took_ms = 0;

	for (tag = 0; status == KVP_SUCCESS; tag++) {
		struct kvp_push push = push_with_tag(src, dst, tag);

		assert_in_range(tag, 0, 10000);
		push.timeout_ms = PAIR_SLOW(200);
		start_ms = pair_now_ms();
		status = kvp_push_blocks(pair->a, &push);
		took_ms = pair_now_ms() - start_ms;
	}
	assert_refused(KVP_NO_CREDIT, "event", status);
	assert_in_range(took_ms, PAIR_SLOW(200) - 1, PAIR_SLOW(200 + 250));
	assert_true(tag - 1 >= 16); /* max_events, and what transports hold themselves */
	return tag - 1;
}

/*
 * The events of pushes 0 ... went - 1, each once, in their order where there is one. True when that
 * of the push after them came between: where there is no order it may.
 */
static bool
take_tags(struct pair *pair, const char *transport, uint64_t went)
{
	bool *came = calloc(went + 1, sizeof(*came)), given_up;
	struct kvp_event event;

	assert_non_null(came);
	for (uint64_t taken = 0; taken < went;) {
		pair_event_is(pair->b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
		if (pair_is_ordered(transport))
			assert_int_equal(event.tag, taken);
		assert_in_range(event.tag, 0, went);
		assert_false(came[event.tag]);
		came[event.tag] = true;
		taken += event.tag < went;
	}
	given_up = came[went];
	free(came);
	return given_up;
}

static void
full_event_queue__holds_senders_and_loses_nothing(void **state)
{
	struct pair_cache src, dst;
	struct kvp_event event;
	struct kvp_push push;
	struct pair pair;
	uint64_t went;
	bool given_up;

	open_tight(&pair, *state);
	pair_cache_open(&src, pair.a, &small, 1);
	pair_cache_open(&dst, pair.b, &small, 2);
	went = push_until_no_credit(&pair, &src, &dst);
	/* Without notify nothing is needed of the receiver. */
	push = push_with_tag(&src, &dst, 0);
	push.notify.enabled = 0;
	assert_ok(kvp_push_blocks(pair.a, &push));

	/* The one that was given up had moved its bytes: its notice may still come, once. */
	given_up = take_tags(&pair, *state, went);
	push = push_with_tag(&src, &dst, 555555);
	assert_ok(kvp_push_blocks(pair.a, &push));
	pair_event_is(pair.b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
	if (event.tag == went && !given_up)
		pair_event_is(pair.b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
	assert_int_equal(event.tag, 555555);
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair.b, &event));
	pair_model_move(&dst, &src, &some);
	pair_cache_check(&dst, "destination");
	pair_cache_close(&src);
	pair_cache_close(&dst);
	pair_close(&pair);
}

static void
full_transfer_queue__refuses_the_next(void **state)
{
	struct kvp_transfer *transfer[65] = {NULL}, *untouched;
	struct pair_cache src, dst;
	struct kvp_event event;
	struct pair pair;
	uint64_t went, old = 0, fresh = 0;
	uint32_t sent = 0, flying = 0;
	kvp_status status;

	open_tight(&pair, *state);
	pair_cache_open(&src, pair.a, &small, 1);
	pair_cache_open(&dst, pair.b, &small, 2);
	went = push_until_no_credit(&pair, &src, &dst);
	/* Nobody polls, so these fly until somebody does. */
	for (;;) {
		struct kvp_push push = push_with_tag(&src, &dst, 1000000 + sent);

		assert_in_range(sent, 0, 64);
		untouched = (struct kvp_transfer *)&pair;
		status = kvp_push_submit(pair.a, &push, &untouched);
		if (status != KVP_SUCCESS)
			break;
		transfer[sent++] = untouched;
	}
	assert_refused(KVP_QUEUE_FULL, "max_transfers", status);
	assert_ptr_equal(untouched, &pair);
	for (uint32_t i = 0; i < sent; i++)
		flying += kvp_transfer_test(transfer[i]) == KVP_IN_PROGRESS;
	assert_int_equal(flying, 16);
	while (old < went || fresh < sent) {
		pair_event_is(pair.b, KVP_EVENT_PUSH_ARRIVED, PAIR_A, &event);
		fresh += event.tag >= 1000000;
		old += event.tag < went; /* the one between was given up */
	}
	for (uint32_t i = 0; i < sent; i++) {
		assert_ok(kvp_transfer_wait(transfer[i], UINT32_MAX));
		kvp_transfer_free(transfer[i]);
	}
	pair_model_move(&dst, &src, &some);
	pair_cache_check(&dst, "destination");
	pair_cache_close(&src);
	pair_cache_close(&dst);
	pair_close(&pair);
}

static void
cache_release__tells_the_peer(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache cache;
	struct kvp_event event;
	int64_t id;

	for (uint32_t round = 0; round < 20; round++) {
		pair_cache_open(&cache, round % 2 == 0 ? pair->b : pair->a, &small, round);
		id = cache.id;
		pair_cache_close(&cache);
		pair_event_is(round % 2 == 0 ? pair->a : pair->b, KVP_EVENT_CACHE_GONE,
			      round % 2 == 0 ? PAIR_B : PAIR_A, &event);
		assert_int_equal(event.cache, id);
	}
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->a, &event));
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->b, &event));
}

/* The destination goes while bytes fly: none lands once release has returned. */
static void
cache_release__silences_pushes_into_it(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	uint32_t cut = 0;

	pair_cache_open(&src, pair->a, &large, 1);
	pair_cache_open(&dst, pair->b, &large, 2);
	for (uint64_t round = 0; round < 10; round++) {
		struct kvp_transfer *transfer[4];
		struct kvp_push push = pair_push(&src, PAIR_B, &dst, &all);

		for (uint32_t i = 0; i < 4; i++)
			assert_ok(kvp_push_submit(pair->a, &push, &transfer[i]));
		assert_ok(kvp_cache_release(pair->b, dst.id));
		pair_cache_fill(&dst, round + 100);
		for (uint32_t i = 0; i < 4; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			assert_true(status == KVP_SUCCESS || status == KVP_CACHE_NOT_EXIST);
			cut += status == KVP_CACHE_NOT_EXIST;
			kvp_transfer_free(transfer[i]);
		}
		pair_cache_check(&dst, "canary in a released cache");
		/* Registered again, it is another cache, and the old number stays dead. */
		assert_ok(kvp_cache_register(pair->b, dst.tensor, dst.tensors, &dst.id));
		assert_status(KVP_CACHE_NOT_EXIST, kvp_push_blocks(pair->a, &push));
		pair_cache_check(&dst, "canary in a registered cache");
	}
	assert_true(cut > 0); /* 64 MiB take longer than a release to get there */
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

/* The source goes: what arrives must be what was there before release returned. */
static void
cache_release__stops_reading_from_it(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	uint32_t cut = 0;

	pair_cache_open(&src, pair->a, &large, 1);
	pair_cache_open(&dst, pair->b, &large, 2);
	for (uint32_t round = 0; round < 10; round++) {
		struct kvp_transfer *transfer[4];
		struct kvp_push push = pair_push(&src, PAIR_B, &dst, &all);

		memset(src.memory, 1, src.bytes);
		memset(dst.memory, 0, dst.bytes);
		for (uint32_t i = 0; i < 4; i++)
			assert_ok(kvp_push_submit(pair->a, &push, &transfer[i]));
		assert_ok(kvp_cache_release(pair->a, src.id));
		memset(src.memory, 0xEE, src.bytes);
		for (uint32_t i = 0; i < 4; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			kvp_transfer_free(transfer[i]);
			if (status != KVP_SUCCESS)
				assert_status(KVP_CACHE_NOT_EXIST, status);
			cut += status == KVP_CACHE_NOT_EXIST;
		}
		assert_null(memchr(dst.memory, 0xEE, dst.bytes));
		assert_ok(kvp_cache_register(pair->a, src.tensor, src.tensors, &src.id));
	}
	assert_true(cut > 0); /* as above */
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

/* A pull reads the peer's cache: released there, it ends here. */
static void
cache_release__ends_pulls_from_it(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;

	pair_cache_open(&src, pair->b, &large, 1);
	pair_cache_open(&dst, pair->a, &large, 2);
	for (uint32_t round = 0; round < 10; round++) {
		struct kvp_transfer *transfer[4];
		struct kvp_pull pull = pair_pull(PAIR_B, &src, &dst, &all);

		memset(src.memory, 1, src.bytes);
		memset(dst.memory, 0, dst.bytes);
		for (uint32_t i = 0; i < 4; i++)
			assert_ok(kvp_pull_submit(pair->a, &pull, &transfer[i]));
		assert_ok(kvp_cache_release(pair->b, src.id));
		memset(src.memory, 0xEE, src.bytes);
		for (uint32_t i = 0; i < 4; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			kvp_transfer_free(transfer[i]);
			if (status != KVP_SUCCESS)
				assert_status(KVP_CACHE_NOT_EXIST, status);
		}
		assert_null(memchr(dst.memory, 0xEE, dst.bytes));
		assert_ok(kvp_cache_register(pair->b, src.tensor, src.tensors, &src.id));
	}
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

/* Registered after the link, used at once: the catalogue is refreshed before "not exist". */
static void
cache_register__is_known_to_the_peer_at_once(void **state)
{
	const struct pair *pair = *state;

	for (uint64_t round = 0; round < 100; round++) {
		struct pair_shape shape = small;
		struct pair_cache src, dst;
		struct kvp_push push;

		shape.is_shareable = round % 2 == 0;
		pair_cache_open(&src, pair->a, &small, round);
		pair_cache_open(&dst, pair->b, &shape, round + 1000);
		push = pair_push(&src, PAIR_B, &dst, &some);
		assert_ok(kvp_push_blocks(pair->a, &push));
		pair_model_move(&dst, &src, &some);
		pair_cache_check(&dst, "destination");
		pair_cache_close(&src);
		pair_cache_close(&dst);
	}
}

/* The first push waits for the catalogue; deadlines are measured without that. */
static void
know_each_other(struct kvp_engine *engine, const struct pair_cache *src,
		const struct pair_cache *dst)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, &some);

	assert_ok(kvp_push_blocks(engine, &push));
}

static void
timeout__is_kept_and_silent(void **state)
{
	const struct pair *pair = *state;
	struct pair_cache src, dst;
	uint32_t late = 0;

	pair_cache_open(&src, pair->a, &large, 1);
	pair_cache_open(&dst, pair->b, &large, 2);
	know_each_other(pair->a, &src, &dst);
	for (uint64_t round = 0; round < 10; round++) {
		struct kvp_push push = pair_push(&src, PAIR_B, &dst, &all);
		struct kvp_transfer *transfer[4];
		uint64_t start_ms = pair_now_ms();

		push.timeout_ms = 1; /* 64 MiB do not move in a millisecond */
		for (uint32_t i = 0; i < 4; i++)
			assert_ok(kvp_push_submit(pair->a, &push, &transfer[i]));
		for (uint32_t i = 0; i < 4; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			assert_true(status == KVP_TIMEOUT || status == KVP_SUCCESS);
			late += status == KVP_TIMEOUT;
		}
		/* A fence over verbs: 100 ms to drain and 200 ms for the answer. */
		assert_in_range(pair_now_ms() - start_ms, 0,
				1 + PAIR_SLOW(pair_is_ordered(pair->transport) ? 250 : 450));
		pair_cache_fill(&dst, round + 50);
		for (uint32_t i = 0; i < 4; i++)
			kvp_transfer_free(transfer[i]);
		push.timeout_ms = PAIR_LONG_MS;
		push.count = 1;
		assert_ok(kvp_push_blocks(pair->a, &push));
		pair_model_move(&dst, &src, &(struct pair_move){blocks, blocks, 1, 0, 0, 8});
		pair_cache_check(&dst, "canary after timeouts");
	}
	assert_true(late >= 10);
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

/* The engine's timeout serves calls that give none; wait_ms bounds the wait, not the transfer. */
static void
timeout__of_the_engine(void **state)
{
	struct pair_cache src, dst;
	struct kvp_transfer *transfer;
	struct kvp_config a, b;
	struct kvp_push push;
	struct pair pair;
	uint64_t start_ms, tag = 0;
	kvp_status status;

	pair_config(&a, PAIR_A, *state);
	pair_config(&b, PAIR_B, *state);
	a.timeout_ms = PAIR_SLOW(300);
	b.max_events = 16;
	pair_open(&pair, &a, &b);
	pair_cache_open(&src, pair.a, &small, 1);
	pair_cache_open(&dst, pair.b, &small, 2);
	/* Over verbs each queue pair has receives of its own: the last ones are found one by one. */
	for (uint32_t dry = 0; dry < 8;) {
		push = push_with_tag(&src, &dst, tag++);
		push.timeout_ms = 0;
		start_ms = pair_now_ms();
		status = kvp_push_blocks(pair.a, &push);
		if (status == KVP_SUCCESS) {
			dry = 0;
			continue;
		}
		assert_status(KVP_NO_CREDIT, status);
		assert_in_range(pair_now_ms() - start_ms, PAIR_SLOW(300) - 1, PAIR_SLOW(300 + 250));
		dry = pair_is_ordered(*state) ? 8 : dry + 1;
	}

	push.timeout_ms = PAIR_SLOW(400);
	start_ms = pair_now_ms();
	assert_ok(kvp_push_submit(pair.a, &push, &transfer));
	assert_status(KVP_IN_PROGRESS, kvp_transfer_test(transfer));
	assert_status(KVP_IN_PROGRESS, kvp_transfer_wait(transfer, 0));
	assert_status(KVP_IN_PROGRESS, kvp_transfer_wait(transfer, PAIR_SLOW(50)));
	assert_in_range(pair_now_ms() - start_ms, PAIR_SLOW(50) - 1, PAIR_SLOW(300));
	assert_status(KVP_NO_CREDIT, kvp_transfer_wait(transfer, UINT32_MAX));
	assert_in_range(pair_now_ms() - start_ms, PAIR_SLOW(400) - 1, PAIR_SLOW(400 + 250));
	kvp_transfer_free(transfer);
	pair_cache_close(&src);
	pair_cache_close(&dst);
	pair_close(&pair);
}

static void
unlink__ends_what_flies(void **state)
{
	struct pair_cache src, dst;
	struct kvp_event event;
	struct pair *pair = *state;

	pair_cache_open(&src, pair->a, &large, 1);
	pair_cache_open(&dst, pair->b, &large, 2);
	for (uint64_t round = 0; round < 6; round++) {
		struct kvp_transfer *transfer[3];
		struct kvp_push push = pair_push(&src, PAIR_B, &dst, &all);

		for (uint32_t i = 0; i < 3; i++)
			assert_ok(kvp_push_submit(pair->a, &push, &transfer[i]));
		assert_ok(kvp_unlink(round % 2 == 0 ? pair->a : pair->b,
				     round % 2 == 0 ? PAIR_B : PAIR_A, PAIR_LONG_MS, 0));
		for (uint32_t i = 0; i < 3; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			if (status != KVP_SUCCESS)
				assert_status(KVP_NOT_YET_LINK, status);
			kvp_transfer_free(transfer[i]);
		}
		pair_event_is(round % 2 == 0 ? pair->b : pair->a, KVP_EVENT_PEER_UNLINKED,
			      round % 2 == 0 ? PAIR_A : PAIR_B, &event);
		pair_cache_fill(&dst, round + 20);
		pair_link(pair->a, PAIR_A, pair->b, PAIR_B);
		pair_cache_check(&dst, "canary after the link went");
	}
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

/* A peer that closes in good order is not a lost one, whatever its connections look like. */
static void
close_of_the_peer__is_an_unlink(void **state)
{
	for (uint64_t round = 0; round < 8; round++) {
		struct kvp_transfer *transfer[3];
		struct pair_cache src, dst;
		struct kvp_config a, b;
		struct kvp_event event;
		struct kvp_push push;
		struct pair pair;

		pair_config(&a, PAIR_A, *state);
		pair_config(&b, PAIR_B, *state);
		pair_open(&pair, &a, &b);
		pair_cache_open(&src, pair.a, &large, 1);
		pair_cache_open(&dst, pair.b, &large, 2);
		push = pair_push(&src, PAIR_B, &dst, &all);
		for (uint32_t i = 0; i < 3; i++)
			assert_ok(kvp_push_submit(pair.a, &push, &transfer[i]));
		kvp_close(pair.b);
		for (uint32_t i = 0; i < 3; i++) {
			kvp_status status = kvp_transfer_wait(transfer[i], UINT32_MAX);

			if (status != KVP_SUCCESS)
				assert_status(KVP_NOT_YET_LINK, status);
			kvp_transfer_free(transfer[i]);
		}
		pair_event_is(pair.a, KVP_EVENT_PEER_UNLINKED, PAIR_B, &event);
		pair_cache_close(&src);
		free(dst.tensor); /* its memory went with the engine */
		free(dst.model);
		kvp_close(pair.a);
	}
}

/* Handles outlive the engine. */
static void
close__cancels_and_leaves_handles(void **state)
{
	struct kvp_transfer *transfer[4];
	struct kvp_transfer_info info;
	struct pair_cache src, dst;
	struct kvp_config a, b;
	struct kvp_push push;
	struct pair pair;

	pair_config(&a, PAIR_A, *state);
	pair_config(&b, PAIR_B, *state);
	pair_open(&pair, &a, &b);
	pair_cache_open(&src, pair.a, &large, 1);
	pair_cache_open(&dst, pair.b, &large, 2);
	push = pair_push(&src, PAIR_B, &dst, &all);
	for (uint32_t i = 0; i < 4; i++)
		assert_ok(kvp_push_submit(pair.a, &push, &transfer[i]));
	kvp_close(pair.a);
	pair_cache_fill(&dst, 99);
	for (uint32_t i = 0; i < 4; i++) {
		kvp_status status = kvp_transfer_test(transfer[i]);

		if (status != KVP_SUCCESS)
			assert_status(KVP_CANCELLED, status);
		assert_ok(kvp_transfer_query(transfer[i], &info));
		assert_int_equal(info.status, status);
		kvp_transfer_free(transfer[i]);
	}
	pair_cache_close(&dst);
	free(src.tensor); /* its memory went with the engine */
	free(src.model);
	kvp_close(pair.b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_BOTH(link__tells_both_ends),
		PAIR_TEST(event_fd__is_readable_while_events_wait),
		PAIR_TEST(push_arrived__comes_after_its_bytes),
		PAIR_BOTH(full_event_queue__holds_senders_and_loses_nothing),
		PAIR_BOTH(full_transfer_queue__refuses_the_next),
		PAIR_TEST(cache_release__tells_the_peer),
		PAIR_TEST(cache_release__silences_pushes_into_it),
		PAIR_TEST(cache_release__stops_reading_from_it),
		PAIR_TEST(cache_release__ends_pulls_from_it),
		PAIR_TEST(cache_register__is_known_to_the_peer_at_once),
		PAIR_TEST(timeout__is_kept_and_silent),
		PAIR_BOTH(timeout__of_the_engine),
		PAIR_TEST(unlink__ends_what_flies),
		PAIR_BOTH(close_of_the_peer__is_an_unlink),
		PAIR_BOTH(close__cancels_and_leaves_handles),
	};

	return PAIR_RUN(tests);
}
