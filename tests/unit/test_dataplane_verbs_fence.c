/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QPs that break: flush, doubt, fence, and what is posted again.
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

static uint32_t
phase(uint32_t q)
{
	return atomic_load(&rig_ep->queue[q].phase);
}

/* The peer has reset its end of `generation`, of which its lane took so many messages. */
static void
fence(uint32_t q, uint32_t generation, uint32_t taken)
{
	atomic_store(&rig_ep->queue[q].fenced, (uint64_t)generation << 32 | taken);
	atomic_fetch_add(&rig_ep->attention, 1);
}

/* Bytes of the plan that log entries [from, logged) of one kind start at, as a set. */
static uint32_t
count(enum kvp_verbs_kind kind, uint32_t from)
{
	uint32_t found = 0;

	for (uint32_t i = from; i < rig_logged; i++)
		found += rig_log[i].wr_id >> 60 == kind;
	return found;
}

static struct rig_transfer *
start(uint32_t pairs, bool is_push, bool has_notify)
{
	struct rig_transfer *rig;

	rig_open(1, BLOCK);
	rig_pairs(pairs, 2, 2);
	rig = rig_submit(pairs, is_push, has_notify);
	rig_loop(1);
	return rig;
}

static void
end(struct rig_transfer *rig, kvp_status status)
{
	assert_int_equal(rig_status(rig), status);
	assert_int_equal(rig_ep->orphans, 0);
	assert_int_equal(rig_ep->slot_end - rig_ep->slot_first, KVP_VERBS_SLOTS);
	rig_free(rig);
	rig_close();
}

/* --- from UP to FLUSHED ------------------------------------------------------------------------ */

static void
a_failed_completion_breaks_its_qp_only(void **state)
{
	struct rig_transfer *rig = start(16, true, false);

	(void)state;
	/* 16 requests on each QP. The first of QP 1 fails; its flushes come one by one. */
	rig_wc[rig_wcs++] = (struct ibv_wc){
		.wr_id = rig_log[16].wr_id, .status = IBV_WC_RETRY_EXC_ERR, .vendor_err = 0x81};
	rig_loop(2);
	assert_int_equal(phase(1), KVP_VERBS_FLUSHING);
	assert_int_equal(rig_state[1], IBV_QPS_ERR);
	assert_int_equal(rig_state[0], IBV_QPS_RTS);
	assert_int_equal(rig_ep->up, 1);
	rig_log[16].is_done = true;
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	assert_int_equal(phase(1), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_ep->queue[1].first_error, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(rig_ep->queue[1].vendor_error, 0x81);
	assert_false(rig_ep->queue[1].is_stuck);
	assert_int_equal(rig_ep->orphans, 16);
	assert_int_equal(atomic_load(&rig_ep->breaks), 1);
	/* Nothing of it is posted again, and nothing is believed, before the peer's end is fenced. */
	rig_drain();
	assert_int_equal(rig_logged, 32);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	fence(1, 1, 0);
	rig_loop(8);
	assert_int_equal(count(KVP_VERBS_WRITE, 32), 16);
	for (uint32_t i = 32; i < rig_logged; i++) {
		assert_int_equal(rig_log[i].queue, 0);
		assert_int_equal(rig_log[i].remote, rig_log[i - 16].remote);
		assert_int_equal(rig_log[i].sge[0].addr, rig_log[i - 16].sge[0].addr);
		assert_int_equal(rig_log[i].rkey + 1, rig_log[i - 16].rkey);
	}
	rig_drain();
	assert_int_equal(atomic_load(&rig_ep->replayed), 16);
	end(rig, KVP_SUCCESS);
}

static void
only_a_success_retires_what_was_before(void **state)
{
	struct rig_transfer *rig = start(16, true, false);

	(void)state;
	/* Flushes of the tail only, as of a provider that leaves out unsignaled ones. */
	rig_wc[rig_wcs++] =
		(struct ibv_wc){.wr_id = rig_log[31].wr_id, .status = IBV_WC_WR_FLUSH_ERR};
	for (uint32_t i = 16; i < 32; i++)
		rig_log[i].is_done = true;
	rig_loop(1);
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	assert_int_equal(phase(1), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_ep->orphans, 16);
	fence(1, 1, 0);
	rig_loop(2);
	rig_drain();
	end(rig, KVP_SUCCESS);
}

static void
completions_before_the_flush_count(void **state)
{
	struct rig_transfer *rig = start(16, true, false);

	(void)state;
	atomic_store(&rig_ep->queue[1].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_complete(1, UINT32_MAX - 1); /* were on their way */
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(2);
	assert_int_equal(phase(1), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_ep->queue[1].first_error, IBV_WC_SUCCESS);
	assert_int_equal(rig_ep->orphans, 0);
	rig_drain();
	end(rig, KVP_SUCCESS);
}

static void
receives_are_awaited_too(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	atomic_store(&rig_ep->queue[0].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(3);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHING);
	/* A message that came before the break is taken. */
	rig_receive(0, kvp_verbs_key(3, 1), NULL, 0);
	rig_loop(1);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHING);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_ep->queue[0].taken, 1);
	assert_int_equal((uint32_t)atomic_load(&rig_ep->arrival[3].word), 1);
	/* What comes of it now is too late. */
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_WRITE, 5, 1, 0)};
	rig_loop(1);
	assert_int_equal(rig_cq.stale, 1);
	rig_close();
}

static void
flushes_that_do_not_come_are_not_awaited_for_ever(void **state)
{
	struct rig_transfer *rig = start(1, true, false);

	(void)state;
	atomic_store(&rig_ep->queue[0].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(1);
	rig_now += KVP_VERBS_FLUSH_NS - 10;
	rig_loop(1);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHING);
	rig_now += 20;
	rig_loop(1);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHED);
	assert_true(rig_ep->queue[0].is_stuck);
	/* Stuck: control destroys it; even a silent endpoint waits for that. */
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_ep->is_silent = true;
	rig_loop(3);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_now += KVP_VERBS_FENCE_NS;
	rig_loop(2);
	end(rig, KVP_CANCELLED);
}

/* --- the fence ------------------------------------------------------------------------------------ */

static void
the_fence_tells_what_arrived(void **state)
{
	struct rig_transfer *rig = start(8, true, true);

	(void)state;
	/* 16 requests on QP 0, with an immediate on the last: all or nothing. */
	assert_int_equal(rig_logged, 16);
	rig_flush(0, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	assert_int_equal(rig_ep->orphans, 16);
	fence(0, 1, 1); /* the acknowledgement was lost, the message was not */
	rig_loop(2);
	assert_int_equal(rig_ep->orphans, 0);
	assert_int_equal(count(KVP_VERBS_WRITE, 16), 0);
	/* Both ends are reset, which proves as much as an immediate: nothing to wait for. */
	assert_int_equal(count(KVP_VERBS_SEND, 16), 1);
	assert_int_equal(rig->transfer.part[0].carried, 0);
	rig_drain();
	end(rig, KVP_SUCCESS);
}

static void
nothing_arrived_is_posted_again_under_a_new_key(void **state)
{
	struct rig_transfer *rig = start(16, true, true);
	uint32_t key = rig->transfer.part[0].id, again;

	(void)state;
	/* 32 requests: QP 0 without, QP 1 with the immediate; then QP 0's own. */
	assert_int_equal(rig_logged, 33);
	rig_complete(1, UINT32_MAX - 1);
	rig_loop(1);
	assert_int_equal(rig->transfer.part[0].heard, 2);
	rig_flush(0, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	assert_int_equal(rig_ep->orphans, 17);
	fence(0, 1, 0);
	rig_loop(8);
	again = rig_logged;
	assert_int_equal(count(KVP_VERBS_WRITE, 33), 16);
	/* The receiver may have heard QP 1 of the old key before this data came: it must hear it again. */
	assert_int_not_equal(rig->transfer.part[0].id, key);
	assert_int_equal(kvp_verbs_slot_of(rig->transfer.part[0].id), kvp_verbs_slot_of(key));
	assert_int_equal(rig_log[again - 1].imm, rig->transfer.part[0].id);
	assert_int_equal(rig_log[again - 1].queue, 1);
	assert_int_equal(rig->transfer.part[0].carried, 2);
	rig_drain();
	assert_int_equal(count(KVP_VERBS_SEND, 33), 1);
	end(rig, KVP_SUCCESS);
}

static void
reads_never_arrived(void **state)
{
	struct rig_transfer *rig = start(8, false, false);

	(void)state;
	rig_flush(0, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	fence(0, 1, 50);
	rig_loop(8);
	assert_int_equal(count(KVP_VERBS_READ, 16), 16);
	rig_drain();
	end(rig, KVP_SUCCESS);
}

static void
a_fence_that_comes_first_waits_for_our_own_flush(void **state)
{
	struct rig_transfer *rig = start(8, true, false);

	(void)state;
	fence(0, 1, 0);
	atomic_store(&rig_ep->queue[0].asked, 1);
	rig_loop(2);
	assert_int_equal(rig_logged, 16);
	assert_int_equal(phase(0), KVP_VERBS_FLUSHING);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(8);
	assert_int_equal(rig_logged, 32);
	rig_drain();
	end(rig, KVP_SUCCESS);
}

static void
a_notification_is_sent_again_unless_it_arrived(void **state)
{
	(void)state;
	for (uint32_t arrived = 0; arrived < 2; arrived++) {
		struct rig_transfer *rig = start(1, true, true);
		uint32_t q;

		rig_complete_all();
		rig_loop(2);
		assert_int_equal(count(KVP_VERBS_SEND, 0), 1);
		q = rig_log[rig_logged - 1].queue;
		rig_flush(q, IBV_WC_RETRY_EXC_ERR);
		rig_loop(3);
		assert_int_equal(count(KVP_VERBS_SEND, 0), 1);
		assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
		fence(q, 1, rig_ep->queue[q].sent_done + arrived);
		rig_loop(3);
		assert_int_equal(count(KVP_VERBS_SEND, 0), 2 - arrived);
		rig_drain();
		end(rig, KVP_SUCCESS);
	}
}

static void
what_was_not_told_waits_for_the_fence(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(16, 2, 2);
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent);
	atomic_store(&rig_credit[1], rig_ep->queue[1].sent);
	rig = rig_submit(16, true, true);
	rig_loop(1);
	rig_drain(); /* all data is there, and nobody was told */
	atomic_store(&rig_credit[0], rig_ep->queue[0].sent + 4);
	atomic_store(&rig_ep->queue[1].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(2);
	rig_drain();
	assert_int_equal(rig->transfer.part[0].heard, 1);
	assert_int_equal(rig->transfer.part[0].carried, 3);
	assert_int_equal(count(KVP_VERBS_SEND, 0), 0);
	fence(1, 1, 0);
	rig_loop(2);
	rig_drain();
	assert_int_equal(rig->transfer.part[0].carried, 1);
	assert_int_equal(count(KVP_VERBS_SEND, 0), 1);
	end(rig, KVP_SUCCESS);
}

/* --- the next generation --------------------------------------------------------------------------- */

static void
the_next_generation_starts_afresh(void **state)
{
	struct rig_transfer *rig = start(8, true, false);
	uint32_t logged;

	(void)state;
	rig_flush(0, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	/* Fence and hand-over at once: the old generation comes first. */
	atomic_store(&rig_ep->queue[0].fenced, UINT64_C(1) << 32);
	rig_hand_over(0, 2);
	logged = rig_logged;
	rig_loop(2);
	assert_int_equal(phase(0), KVP_VERBS_READY);
	assert_int_equal(count(KVP_VERBS_PROBE, logged), 1);
	for (uint32_t i = 0; i < KVP_VERBS_RQ; i++)
		assert_true(rig_is_received[0][i]);
	/* Not proven: what was in doubt goes over the other one. */
	for (uint32_t i = logged; i < rig_logged; i++)
		assert_int_equal(rig_log[i].queue,
				 rig_log[i].wr_id >> 60 == KVP_VERBS_PROBE ? 0 : 1);
	/* A late completion of the old generation means nothing. */
	rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_PROBE, 5, 1, 0)};
	rig_loop(1);
	assert_int_equal(phase(0), KVP_VERBS_READY);
	assert_int_equal(rig_cq.stale, 1);
	rig_drain();
	assert_int_equal(phase(0), KVP_VERBS_UP);
	assert_int_equal(rig_ep->up, 3);
	assert_int_equal(count(KVP_VERBS_CREDIT, logged), 1);
	end(rig, KVP_SUCCESS);
}

static void
an_acceptor_waits_for_the_proof(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	rig_ep->is_initiator = false;
	atomic_store(&rig_ep->queue[0].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(1);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	rig_hand_over(0, 2);
	rig_loop(3);
	assert_int_equal(rig_logged, 0);
	assert_int_equal(phase(0), KVP_VERBS_READY);
	atomic_store(&rig_ep->queue[0].proven, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(2);
	assert_int_equal(phase(0), KVP_VERBS_READY);
	atomic_store(&rig_ep->queue[0].proven, 2);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(2);
	assert_int_equal(phase(0), KVP_VERBS_UP);
	assert_int_equal(count(KVP_VERBS_CREDIT, 0), 1);
	rig_close();
}

static void
a_probe_that_fails_breaks_again(void **state)
{
	(void)state;
	rig_open(1, BLOCK);
	atomic_store(&rig_ep->queue[1].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(1);
	rig_flush(1, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	rig_hand_over(1, 2);
	rig_loop(1);
	rig_flush(1, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	assert_int_equal(phase(1), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_ep->queue[1].first_error, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(rig_ep->orphans, 0);
	rig_close();
}

static void
receives_of_pending_notifications_outlive_their_qp(void **state)
{
	struct kvp_verbs_send send = {.cache = 3, .parts = 1, .part[0] = {0, 0x100005, 0}};
	uint8_t out[KVP_VERBS_SEND_MAX];
	uint32_t posted = 0;

	(void)state;
	rig_open(1, BLOCK);
	rig_inbox_room = 0;
	rig_receive(0, 0, out, kvp_verbs_send_encode(&send, out, out));
	rig_loop(1);
	assert_int_equal(rig_ep->pendings, 1);
	atomic_store(&rig_ep->queue[0].asked, 1);
	atomic_fetch_add(&rig_ep->attention, 1);
	rig_loop(1);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(1);
	rig_hand_over(0, 2);
	rig_loop(1);
	for (uint32_t i = 0; i < KVP_VERBS_RQ; i++)
		posted += rig_is_received[0][i];
	assert_int_equal(posted, KVP_VERBS_RQ - 1);
	rig_inbox_room = 1;
	rig_loop(1); /* not up yet: the buffer waits for that */
	assert_int_equal(rig_events, 1);
	rig_drain();
	posted = 0;
	for (uint32_t i = 0; i < KVP_VERBS_RQ; i++)
		posted += rig_is_received[0][i];
	assert_int_equal(posted, KVP_VERBS_RQ);
	rig_close();
}

/* --- the end of parts and links --------------------------------------------------------------------- */

static void
a_stopping_part_drains_then_breaks_then_waits(void **state)
{
	struct rig_transfer *rig = start(16, true, true);

	(void)state;
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_loop(3);
	assert_int_equal(rig_ep->up, 3);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_complete(1, UINT32_MAX - 1); /* that QP is through with it */
	rig_loop(1);
	rig_now += KVP_VERBS_DRAIN_NS;
	rig_loop(2);
	assert_int_equal(rig_ep->up, 2);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(3);
	/* Our QP is silent; what it sent may still land until the peer's is, too. */
	assert_int_equal(phase(0), KVP_VERBS_FLUSHED);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_now += KVP_VERBS_FENCE_NS - 20;
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_now += 20;
	rig_loop(2);
	end(rig, KVP_CANCELLED);
}

static void
a_stopping_part_ends_with_the_fence(void **state)
{
	struct rig_transfer *rig = start(16, true, true);

	(void)state;
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_flush(0, IBV_WC_RETRY_EXC_ERR);
	rig_flush(1, IBV_WC_RETRY_EXC_ERR);
	rig_loop(3);
	fence(0, 1, 0);
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	fence(1, 1, 0);
	rig_loop(2);
	assert_int_equal(rig_logged, 33);
	end(rig, KVP_CANCELLED);
}

static void
memory_that_is_refused_ends_its_transfer(void **state)
{
	struct rig_transfer *rig = start(8, true, false), *other = rig_submit(8, true, false);

	(void)state;
	rig_loop(1);
	assert_int_equal(rig_log[16].queue, 1);
	rig_flush(0, IBV_WC_REM_ACCESS_ERR);
	rig_loop(2);
	fence(0, 1, 0);
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_CACHE_NOT_EXIST);
	rig_free(rig);
	rig_drain();
	end(other, KVP_SUCCESS);
}

static void
down_silences_all_qps_whoever_has_them(void **state)
{
	struct rig_transfer *rig = start(16, true, true);

	(void)state;
	rig_flush(1, IBV_WC_RETRY_EXC_ERR);
	rig_loop(2);
	atomic_store(&rig_ep->queue[1].phase, KVP_VERBS_RESET);
	rig_state[1] = IBV_QPS_RTS; /* control is about to hand it over */
	kvp_lane_down(rig_lane, &rig_ep->base, KVP_NOT_YET_LINK);
	assert_int_equal(rig_state[0], IBV_QPS_ERR);
	assert_int_equal(rig_state[1], IBV_QPS_ERR);
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_IN_PROGRESS);
	rig_flush(0, IBV_WC_WR_FLUSH_ERR);
	rig_loop(3);
	/* The peer is not waited for. */
	end(rig, KVP_NOT_YET_LINK);
}

/* Forget what the device is through with. */
static void
compact(void)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < rig_logged; i++) {
		if (!rig_log[i].is_done)
			rig_log[kept++] = rig_log[i];
	}
	rig_logged = kept;
}

static void
many_orphans_do_not_overflow(void **state)
{
	struct rig_transfer *rig[8];

	(void)state;
	rig_open(1, BLOCK);
	rig_pairs(128, 2, 2);
	for (uint32_t i = 0; i < 8; i++)
		rig[i] = rig_submit(120, true, true);
	for (uint32_t generation = 1; generation < 6; generation++) {
		compact();
		rig_loop(40);
		for (uint32_t q = 0; q < RIG_QUEUES; q++)
			rig_flush(q, IBV_WC_RETRY_EXC_ERR);
		rig_loop(4);
		assert_true(rig_ep->orphans <= 2 * RIG_QUEUES * KVP_VERBS_SQ);
		for (uint32_t q = 0; q < RIG_QUEUES; q++) {
			fence(q, generation, 0);
			rig_hand_over(q, generation + 1);
		}
		rig_loop(1);
		rig_complete_all();
		rig_loop(1);
	}
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		atomic_store(&rig_credit[q], KVP_VERBS_RQ);
	for (uint32_t i = 0; i < 2000 && rig_ep->base.parts > 0; i++) {
		rig_complete_all();
		compact();
		rig_loop(4);
	}
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(rig_status(rig[i]), KVP_SUCCESS);
		rig_free(rig[i]);
	}
	assert_int_equal(rig_ep->orphans, 0);
	rig_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_completion_breaks_its_qp_only),
		cmocka_unit_test(only_a_success_retires_what_was_before),
		cmocka_unit_test(completions_before_the_flush_count),
		cmocka_unit_test(receives_are_awaited_too),
		cmocka_unit_test(flushes_that_do_not_come_are_not_awaited_for_ever),
		cmocka_unit_test(the_fence_tells_what_arrived),
		cmocka_unit_test(nothing_arrived_is_posted_again_under_a_new_key),
		cmocka_unit_test(reads_never_arrived),
		cmocka_unit_test(a_fence_that_comes_first_waits_for_our_own_flush),
		cmocka_unit_test(a_notification_is_sent_again_unless_it_arrived),
		cmocka_unit_test(what_was_not_told_waits_for_the_fence),
		cmocka_unit_test(the_next_generation_starts_afresh),
		cmocka_unit_test(an_acceptor_waits_for_the_proof),
		cmocka_unit_test(a_probe_that_fails_breaks_again),
		cmocka_unit_test(receives_of_pending_notifications_outlive_their_qp),
		cmocka_unit_test(a_stopping_part_drains_then_breaks_then_waits),
		cmocka_unit_test(a_stopping_part_ends_with_the_fence),
		cmocka_unit_test(memory_that_is_refused_ends_its_transfer),
		cmocka_unit_test(down_silences_all_qps_whoever_has_them),
		cmocka_unit_test(many_orphans_do_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
