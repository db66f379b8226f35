/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifications: what a sender tells and when, and what a receiver believes.
 *
 * links: dataplane/verbs/verbs_post_fast.o dataplane/verbs/verbs_poll_fast.o dataplane/verbs/verbs_message_fast.o
 *        dataplane/verbs/verbs_fence.o dataplane/verbs/verbs_attend.o dataplane/verbs/verbs_endpoint.o
 *        dataplane/verbs/verbs_wire.o dataplane/lane_fast.o dataplane/lane_poll.o dataplane/lane_calls.o
 *        dataplane/lane_setup.o dataplane/cpus.o dataplane/eal.o dataplane/reactor.o dataplane/wake.o
 *        engine/check.o engine/open.o engine/cursor.o engine/error.o engine/gather.o engine/layout.o engine/plan.o
 *        engine/status.o engine/tally.o engine/transfer.o engine/wire.o
 */
#include "verbs_rig.h"

#define BLOCK 4096U

static const struct rig_wr *
find(enum kvp_verbs_kind kind, uint32_t nth)
{
	for (uint32_t i = 0; i < rig_logged; i++) {
		if (rig_log[i].wr_id >> 60 == kind && nth-- == 0)
			return &rig_log[i];
	}
	return NULL;
}

static struct kvp_verbs_send
decoded(const struct rig_wr *wr)
{
	struct kvp_verbs_send send;
	const uint8_t *payload;

	assert_non_null(wr);
	assert_int_equal(wr->opcode, IBV_WR_SEND);
	assert_true(kvp_verbs_send_decode(wr->payload, wr->sge[0].length, &send, &payload));
	assert_int_equal(send.payload_bytes, 3);
	assert_memory_equal(payload, "abc", 3);
	return send;
}

/* A notification of the peer as it would come. */
static void
receive_send(uint32_t q, uint32_t endpoint, uint32_t key, uint32_t mask, int64_t cache)
{
	const struct kvp_verbs_send send = {.cache = cache,
					    .tag = 5,
					    .bytes = 77,
					    .parts = 1,
					    .payload_bytes = 2,
					    .part[0] = {endpoint, key, mask}};
	uint8_t out[KVP_VERBS_SEND_MAX];
	uint32_t bytes = kvp_verbs_send_encode(&send, (const uint8_t *)"xy", out);

	rig_receive(q, 0, out, bytes);
}

static uint64_t
stale(void)
{
	return atomic_load(&rig_ep->stale);
}

/* --- the sender ---------------------------------------------------------------------------- */

static void
every_qp_that_carried_tells_then_one_sends(void **state)
{
	struct rig_transfer *rig;
	struct kvp_verbs_send send;
	const struct rig_wr *tell;
	uint32_t last;

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(20, 2, 2);
	rig = rig_submit(20, true, true);
	rig_loop(1);
	/* 40 requests: 16 + 16 + 8; the last has the immediate, the other QP gets one of its own. */
	assert_int_equal(rig_logged, 41);
	last = 39;
	assert_int_equal(rig_log[last].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(rig_log[last].queue, 0);
	assert_int_equal(rig_log[last].sges, 1);
	tell = find(KVP_VERBS_TELL, 0);
	assert_non_null(tell);
	assert_int_equal(tell->opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(tell->queue, 1);
	assert_int_equal(tell->sges, 0);
	assert_int_equal(tell->imm, rig_log[last].imm);
	assert_int_equal(tell->imm, rig->transfer.part[0].id);
	for (uint32_t i = 0; i < last; i++)
		assert_int_equal(rig_log[i].opcode, IBV_WR_RDMA_WRITE);
	/* All data has landed, one immediate has not: nobody is notified. */
	rig_complete(0, UINT32_MAX - 1);
	rig_complete(1, 31);
	rig_loop(2);
	assert_null(find(KVP_VERBS_SEND, 0));
	rig_complete(1, UINT32_MAX - 1);
	rig_loop(2);
	send = decoded(find(KVP_VERBS_SEND, 0));
	assert_int_equal(send.cache, 7);
	assert_int_equal(send.tag, 99);
	assert_int_equal(send.bytes, 40 * BLOCK);
	assert_int_equal(send.parts, 1);
	assert_int_equal(send.part[0].endpoint, 0);
	assert_int_equal(send.part[0].key, tell->imm);
	assert_int_equal(send.part[0].mask, 3);
	rig_loop(3);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	assert_null(find(KVP_VERBS_SEND, 1));
	rig_complete_all();
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	assert_int_equal(rig_ep->slot_end - rig_ep->slot_first, KVP_VERBS_SLOTS);
	rig_free(rig);
	rig_close();
}

static void
only_qps_that_carried_are_named(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(2, 2, 2);
	rig = rig_submit(2, true, true);
	rig_loop(1);
	assert_null(find(KVP_VERBS_TELL, 0));
	rig_drain();
	assert_int_equal(decoded(find(KVP_VERBS_SEND, 0)).part[0].mask, 1);
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	rig_free(rig);
	/* The same transfer again has another key. */
	rig = rig_submit(2, true, true);
	rig_loop(1);
	rig_drain();
	assert_int_not_equal(decoded(find(KVP_VERBS_SEND, 1)).part[0].key,
			     decoded(find(KVP_VERBS_SEND, 0)).part[0].key);
	rig_free(rig);
	rig_close();
}

/* A push goes where it can end: not to a QP that has no receive left for its immediate. */
static void
data_goes_where_there_is_credit(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, BLOCK);
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent);
	for (uint32_t round = 0; round < 4; round++) {
		atomic_store(&rig_credit[1], rig_ep->queue[1].sent + 2);
		rig_pairs(2, 2, 2);
		rig = rig_submit(2, true, true);
		rig_loop(2);
		rig_drain();
		rig_loop(2);
		rig_drain();
		assert_int_equal(rig_status(rig), KVP_SUCCESS);
		rig_free(rig);
	}
	for (uint32_t i = 0; i < rig_logged; i++)
		assert_int_equal(rig_log[i].queue, 1);
	rig_close();
}

static void
without_credit_messages_wait(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, BLOCK);
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent);
	atomic_store(&rig_credit[1], rig_ep->queue[1].sent);
	rig_pairs(20, 2, 2);
	rig = rig_submit(20, true, true);
	rig_loop(2);
	rig_drain();
	/* All data, no message: and as no completion tells of credit, the lane naps. */
	assert_int_equal(rig_logged, 40);
	for (uint32_t i = 0; i < rig_logged; i++)
		assert_int_equal(rig_log[i].opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(rig->transfer.part[0].bytes_done, 40 * BLOCK);
	assert_true(kvp_verbs_arm(&rig_ep->base));
	kvp_verbs_disarm(&rig_ep->base);
	/* A word beyond all that can be is no credit. */
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent + KVP_VERBS_RQ + 1);
	rig_loop(2);
	assert_int_equal(rig_logged, 40);
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent + 1);
	rig_loop(2);
	rig_drain();
	assert_int_equal(rig_logged, 41);
	atomic_store(&rig_credit[1], rig_ep->queue[1].sent + 1);
	rig_loop(2);
	rig_drain();
	/* Both told; one more is needed for the notification. */
	assert_int_equal(rig_logged, 42);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig->transfer.deadline_ns = rig_now + 2;
	rig_loop(4);
	assert_int_equal(rig_status(rig), KVP_NO_CREDIT);
	assert_int_equal(rig_ep->slot_end - rig_ep->slot_first, KVP_VERBS_SLOTS);
	rig_free(rig);
	rig_close();
}

static void
slots_are_used_in_turn_and_run_out(void **state)
{
	struct rig_transfer *rig;
	uint32_t first = rig_ep == NULL ? 0 : rig_ep->slot_first;

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(1, 2, 2);
	first = rig_ep->slot_first;
	rig_ep->slot_first = rig_ep->slot_end; /* all taken */
	rig = rig_submit(1, true, true);
	rig_loop(3);
	assert_int_equal(rig_logged, 0);
	rig_ep->slot_first = first;
	rig_loop(1);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	assert_int_equal(rig_ep->slot[(rig_ep->slot_end - 1) % KVP_VERBS_SLOTS], 0);
	rig_free(rig);
	/* Generations skip 0: a key is never 0. */
	for (uint32_t i = 0; i < 3; i++) {
		struct kvp_part part = {.id = kvp_verbs_key(5, 1)};

		rig_ep->generation[5] = (uint16_t)(0xFFE + i > 0xFFF ? 1 : 0xFFE + i);
		kvp_verbs_key_renew(rig_ep, &part);
		assert_in_range(part.id >> 20, 1, 0xFFF);
		assert_in_range(rig_ep->generation[5], 1, 0xFFF);
	}
	rig_close();
}

/* --- the receiver ---------------------------------------------------------------------------- */

static void
an_event_needs_all_immediates(void **state)
{
	uint32_t key = kvp_verbs_key(9, 4);

	(void)state;
	rig_open(1, BLOCK);
	rig_receive(0, key, NULL, 100);
	rig_loop(1);
	receive_send(0, 0, key, 3, rig_cache.id);
	rig_loop(2);
	assert_int_equal(rig_events, 0);
	assert_int_equal(rig_ep->pendings, 1);
	assert_true(kvp_verbs_arm(&rig_ep->base));
	/* An older generation and a repetition change nothing, and are counted. */
	rig_receive(1, kvp_verbs_key(9, 3), NULL, 0);
	rig_receive(0, key, NULL, 0);
	rig_loop(2);
	assert_int_equal(stale(), 2);
	assert_int_equal(rig_events, 0);
	rig_receive(1, key, NULL, 0);
	rig_loop(1);
	assert_int_equal(rig_events, 1);
	assert_int_equal(rig_ep->pendings, 0);
	assert_int_equal(rig_event[0].kind, KVP_EVENT_PUSH_ARRIVED);
	assert_int_equal(rig_event[0].cluster_id, 42);
	assert_int_equal(rig_event[0].cache, rig_cache.id);
	assert_int_equal(rig_event[0].tag, 5);
	assert_int_equal(rig_event[0].bytes, 77);
	assert_int_equal(rig_event[0].payload_bytes, 2);
	assert_memory_equal(rig_event[0].payload, "xy", 2);
	/* The same notification again, on the other QP. */
	receive_send(1, 0, key, 3, rig_cache.id);
	rig_loop(1);
	assert_int_equal(rig_events, 1);
	assert_int_equal(stale(), 3);
	/* And an older one. */
	receive_send(1, 0, kvp_verbs_key(9, 2), 0, rig_cache.id);
	rig_loop(1);
	assert_int_equal(rig_events, 1);
	rig_close();
}

static void
generations_wrap(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	rig_receive(0, kvp_verbs_key(9, 0xFFF), NULL, 0);
	rig_receive(0, kvp_verbs_key(9, 1), NULL, 0);
	rig_loop(1);
	assert_int_equal(stale(), 0);
	assert_int_equal(atomic_load(&rig_ep->arrival[9].word) >> 32, kvp_verbs_key(9, 1));
	/* Used again since: then all of the key before had arrived. */
	receive_send(0, 0, kvp_verbs_key(9, 0xFFF), 3, rig_cache.id);
	rig_loop(1);
	assert_int_equal(rig_events, 1);
	rig_close();
}

static void
nothing_to_wait_for_is_published_at_once(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	receive_send(0, 0, kvp_verbs_key(1, 1), 0, rig_cache.id);
	rig_loop(1);
	assert_int_equal(rig_events, 1);
	rig_close();
}

static void
a_full_inbox_keeps_the_receive(void **state)
{
	uint32_t reposted;

	(void)state;
	rig_open(1, BLOCK);
	rig_inbox_room = 0;
	reposted = rig_ep->queue[0].reposted;
	for (uint32_t i = 0; i < 10; i++)
		receive_send(0, 0, kvp_verbs_key(i, 1), 0, rig_cache.id);
	rig_loop(3);
	assert_int_equal(rig_ep->pendings, 10);
	assert_int_equal(rig_ep->queue[0].reposted, reposted);
	rig_inbox_room = 4;
	rig_loop(1);
	assert_int_equal(rig_events, 4);
	assert_int_equal(rig_ep->pendings, 6);
	assert_int_equal(rig_ep->queue[0].reposted, reposted + 4);
	/* One cache goes: what waits for it is dropped. */
	kvp_verbs_cache_gone(&rig_ep->base, rig_cache.id + 1);
	assert_int_equal(rig_ep->pendings, 6);
	kvp_verbs_cache_gone(&rig_ep->base, rig_cache.id);
	assert_int_equal(rig_ep->pendings, 0);
	assert_int_equal(rig_ep->queue[0].reposted, reposted + 10);
	rig_close();
}

static void
unknown_caches_are_dropped(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	receive_send(0, 0, kvp_verbs_key(1, 1), 0, rig_cache.id + 1);
	rig_loop(1);
	assert_int_equal(rig_events, 0);
	assert_int_equal(rig_ep->pendings, 0);
	assert_int_equal(stale(), 1);
	assert_int_equal(atomic_load(&rig_ep->base.failed), KVP_SUCCESS);
	rig_close();
}

static void
receives_are_granted_in_batches(void **state)
{
	const struct rig_wr *credit;
	uint64_t word;

	(void)state;
	rig_open(1, BLOCK);
	for (uint32_t i = 0; i < KVP_VERBS_GRANT - 1; i++)
		rig_receive(1, kvp_verbs_key(i, 1), NULL, 0);
	rig_loop(2);
	assert_int_equal(rig_logged, 0);
	rig_receive(1, kvp_verbs_key(100, 1), NULL, 0);
	rig_loop(2);
	credit = find(KVP_VERBS_CREDIT, 0);
	assert_non_null(credit);
	assert_int_equal(credit->queue, 1);
	assert_int_equal(credit->opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(credit->remote, 0xC0008);
	assert_int_equal(credit->rkey, 301);
	assert_int_equal(credit->flags & IBV_SEND_INLINE, IBV_SEND_INLINE);
	memcpy(&word, credit->payload, sizeof(word));
	assert_int_equal(word, KVP_VERBS_RQ + KVP_VERBS_GRANT);
	/* One at a time; what came meanwhile goes with the next. */
	for (uint32_t i = 0; i < 2 * KVP_VERBS_GRANT; i++)
		rig_receive(1, kvp_verbs_key(200 + i, 1), NULL, 0);
	rig_loop(2);
	assert_null(find(KVP_VERBS_CREDIT, 1));
	rig_complete_all();
	rig_loop(2);
	credit = find(KVP_VERBS_CREDIT, 1);
	assert_non_null(credit);
	memcpy(&word, credit->payload, sizeof(word));
	assert_int_equal(word, KVP_VERBS_RQ + 3 * KVP_VERBS_GRANT);
	rig_close();
}

/* The endpoint fails with PROTOCOL, but only when its QPs are silent. */
static void
expect_refusal(void)
{
	rig_loop(1);
	assert_int_equal(atomic_load(&rig_ep->refused), 1);
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		assert_int_equal(rig_state[q], IBV_QPS_ERR);
	rig_loop(3);
	assert_int_equal(atomic_load(&rig_ep->base.failed), KVP_SUCCESS);
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		rig_flush(q, IBV_WC_WR_FLUSH_ERR);
	rig_loop(3);
	assert_int_equal(atomic_load(&rig_ep->base.failed), KVP_PROTOCOL);
	assert_int_equal(rig_events, 0);
}

static void
what_breaks_the_protocol_ends_the_endpoint(void **state)
{
	static const struct {
		uint32_t endpoint, key, mask;
	} bad[] = {{1, 0x100001, 0}, /* not the QP's own endpoint */
		   {0, 0, 0},        /* no key is 0 */
		   {0, 0x100000 | KVP_VERBS_SLOTS, 0},
		   {0, 0x100001, 4}}; /* a QP that is not there */
	uint8_t garbage[64];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		rig_open(1, BLOCK);
		receive_send(0, bad[i].endpoint, bad[i].key, bad[i].mask, rig_cache.id);
		expect_refusal();
		rig_close();
	}
	rig_open(1, BLOCK);
	memset(garbage, 0xA5, sizeof(garbage));
	rig_receive(0, 0, garbage, sizeof(garbage));
	expect_refusal();
	rig_close();
	rig_open(1, BLOCK);
	rig_receive(1, 0x100000 | KVP_VERBS_SLOTS, NULL, 0);
	expect_refusal();
	rig_close();
	rig_open(1, BLOCK);
	rig_receive(1, 0, NULL, 0);
	expect_refusal();
	rig_close();
}

static void
a_failing_endpoint_lets_its_transfers_drain_first(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(20, 2, 2);
	rig = rig_submit(20, true, true);
	rig_loop(1);
	rig_receive(1, 0, NULL, 0);
	rig_loop(3);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(3);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(3);
	assert_int_equal(rig_status(rig), KVP_PROTOCOL);
	assert_int_equal(atomic_load(&rig_ep->base.failed), KVP_PROTOCOL);
	rig_free(rig);
	rig_close();
}

static void
nothing_is_heard_after_the_end(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	rig_inbox_room = 0;
	receive_send(0, 0, kvp_verbs_key(1, 1), 0, rig_cache.id);
	rig_loop(1);
	kvp_lane_down(rig_lane, &rig_ep->base, KVP_NOT_YET_LINK);
	assert_int_equal(rig_ep->pendings, 0);
	rig_inbox_room = 64;
	receive_send(0, 0, kvp_verbs_key(2, 1), 0, rig_cache.id);
	rig_receive(1, kvp_verbs_key(3, 1), NULL, 0);
	rig_loop(2);
	assert_int_equal(rig_events, 0);
	assert_int_equal(atomic_load(&rig_ep->arrival[3].word), 0);
	rig_close();
}

static void
forged_completions_are_counted(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	/* Another place, another generation, a request never posted, a receive never posted. */
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_WRITE, 200, 1, 0)};
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_WRITE, 999, 1, 0)};
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_WRITE, 5, 2, 0)};
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_WRITE, 5, 1, 77)};
	rig_ep->queue[0].recv_posted = 0;
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_RECV, 5, 1, 3)};
	rig_loop(1);
	assert_int_equal(rig_cq.stale, 5);
	assert_int_equal(rig_ep->up, 3);
	rig_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_qp_that_carried_tells_then_one_sends),
		cmocka_unit_test(only_qps_that_carried_are_named),
		cmocka_unit_test(data_goes_where_there_is_credit),
		cmocka_unit_test(without_credit_messages_wait),
		cmocka_unit_test(slots_are_used_in_turn_and_run_out),
		cmocka_unit_test(an_event_needs_all_immediates),
		cmocka_unit_test(generations_wrap),
		cmocka_unit_test(nothing_to_wait_for_is_published_at_once),
		cmocka_unit_test(a_full_inbox_keeps_the_receive),
		cmocka_unit_test(unknown_caches_are_dropped),
		cmocka_unit_test(receives_are_granted_in_batches),
		cmocka_unit_test(what_breaks_the_protocol_ends_the_endpoint),
		cmocka_unit_test(a_failing_endpoint_lets_its_transfers_drain_first),
		cmocka_unit_test(nothing_is_heard_after_the_end),
		cmocka_unit_test(forged_completions_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
