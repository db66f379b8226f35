/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lane posts for a plan: chains, lists of pieces, keys, windows; and what it does when the device
 * takes only some of it.
 *
 * links: dataplane/verbs/verbs_post_fast.o dataplane/verbs/verbs_poll_fast.o dataplane/verbs/verbs_message_fast.o
 *        dataplane/verbs/verbs_fence.o dataplane/verbs/verbs_attend.o dataplane/verbs/verbs_endpoint.o
 *        dataplane/verbs/verbs_wire.o dataplane/lane_fast.o dataplane/lane_poll.o dataplane/lane_calls.o
 *        dataplane/lane_setup.o dataplane/cpus.o dataplane/eal.o dataplane/reactor.o dataplane/wake.o
 *        engine/check.o engine/open.o engine/cursor.o engine/error.o engine/gather.o engine/layout.o engine/plan.o
 *        engine/status.o engine/tally.o engine/transfer.o engine/wire.o
 */
#include "verbs_rig.h"

#define KIB 1024U

/* --- what a transfer must become ------------------------------------------------------------ */

static uint8_t seen[RIG_TENSORS][RIG_BLOCKS][64]; /* per 64th of a block: how often */

/* Everything logged for one transfer: each byte once, from where it belongs to where it belongs. */
static void
check_coverage(uint32_t pairs, uint32_t block_bytes, bool is_push)
{
	uint64_t step = 2 * (uint64_t)RIG_BLOCKS * block_bytes;
	uint32_t grain = block_bytes / 64;

	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < rig_logged; i++) {
		const struct rig_wr *wr = &rig_log[i];
		uint64_t remote = wr->remote;

		for (uint32_t s = 0; s < wr->sges; s++) {
			for (uint32_t at = 0; at < wr->sge[s].length; at += grain) {
				uint64_t local = wr->sge[s].addr + at - RIG_LOCAL;
				uint64_t there = remote + at - RIG_REMOTE;
				uint64_t lblock = local % step / block_bytes;
				uint64_t rblock = there % step / block_bytes;
				uint32_t p = 0;

				assert_int_equal(local / step, there / step);
				assert_int_equal(local % block_bytes, there % block_bytes);
				while (p < pairs && (is_push ? rig_dst[p] : rig_src[p]) != rblock)
					p++;
				assert_true(p < pairs);
				assert_int_equal(is_push ? rig_src[p] : rig_dst[p], lblock);
				seen[local / step][lblock][local % block_bytes / grain]++;
			}
			assert_int_equal(wr->sge[s].lkey,
					 100 + wr->queue +
						 (wr->sge[s].addr - RIG_LOCAL) / step * 10);
			remote += wr->sge[s].length;
		}
		if (wr->sges > 0)
			assert_int_equal(wr->rkey,
					 200 + wr->queue + (wr->remote - RIG_REMOTE) / step * 10);
	}
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		for (uint32_t p = 0; p < pairs; p++)
			for (uint32_t g = 0; g < 64; g++)
				assert_int_equal(seen[t][is_push ? rig_src[p] : rig_dst[p]][g], 1);
}

/* --- tests ---------------------------------------------------------------------------------------- */

static void
scattered_pieces_go_in_chains_with_one_signal(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(30, 64 * KIB);
	rig_ep->window_bytes = 4U << 20;
	rig_pairs(40, 2, 3);
	rig = rig_submit(40, true, false);
	rig_loop(1);
	/* Two chains of 16 per QP are the window; 80 pieces. */
	assert_int_equal(rig_logged, 64);
	assert_int_equal(rig_doorbells, 4);
	for (uint32_t i = 0; i < rig_logged; i++) {
		assert_int_equal(rig_log[i].queue, i / 16 % 2);
		assert_int_equal(rig_log[i].flags, i % 16 == 15 ? IBV_SEND_SIGNALED : 0);
		assert_int_equal(rig_log[i].opcode, IBV_WR_RDMA_WRITE);
	}
	assert_int_equal(rig->transfer.part[0].requests_inflight, 64);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	check_coverage(40, 64 * KIB, true);
	assert_int_equal(atomic_load(&rig->transfer.requests), 80);
	assert_int_equal(atomic_load(&rig_ep->base.pieces), 80);
	assert_int_equal(atomic_load(&rig_ep->base.bytes_out), 80 * 64 * KIB);
	assert_int_equal(atomic_load(&rig_ep->gathered), 80);
	rig_free(rig);
	rig_close();
}

static void
contiguous_targets_are_gathered(void **state)
{
	static const uint32_t limits[] = {1, 2, 3, 16, 30};

	(void)state;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rig_transfer *rig;
		uint32_t most = 0;

		rig_open(limits[i], KIB);
		rig_pairs(120, 2, 1);
		rig = rig_submit(120, true, false);
		rig_loop(1);
		rig_drain();
		assert_int_equal(rig_status(rig), KVP_SUCCESS);
		check_coverage(120, KIB, true);
		for (uint32_t n = 0; n < rig_logged; n++)
			most = rig_log[n].sges > most ? rig_log[n].sges : most;
		assert_int_equal(most, limits[i]);
		assert_in_range(rig_logged, 240 / limits[i], 240 / limits[i] + 4);
		assert_int_equal(atomic_load(&rig_ep->gathered), 240);
		rig_free(rig);
		rig_close();
	}
}

static void
pulls_read_and_scatter(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(30, 4 * KIB);
	rig_pairs(50, 1, 2); /* the peer's blocks are in one piece */
	rig = rig_submit(50, false, false);
	rig_loop(1);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	check_coverage(50, 4 * KIB, false);
	for (uint32_t i = 0; i < rig_logged; i++)
		assert_int_equal(rig_log[i].opcode, IBV_WR_RDMA_READ);
	assert_in_range(rig_logged, 4, 8);
	assert_int_equal(atomic_load(&rig_ep->base.bytes_in), 100 * 4 * KIB);
	rig_free(rig);
	/* And back: what is prepared for READs serves WRITEs again. */
	rig_logged = 0;
	rig = rig_submit(50, true, false);
	rig_loop(1);
	rig_drain();
	check_coverage(50, 4 * KIB, true);
	assert_int_equal(rig_log[0].opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(rig_log[rig_logged - 1].opcode, IBV_WR_RDMA_WRITE);
	rig_free(rig);
	rig_close();
}

static void
a_piece_across_spans_is_cut(void **state)
{
	struct kvp_verbs_spans *local, *remote;
	struct rig_transfer *rig;

	(void)state;
	rig_open(30, 4 * KIB);
	/* One tensor each way in pieces: the local one ends within block 2, the remote one within block 1. */
	local = rig_spans(3);
	remote = rig_spans(3);
	local->span[0] = (struct kvp_verbs_span){RIG_LOCAL, 9 * KIB, {11, 12}};
	local->span[1] = (struct kvp_verbs_span){RIG_LOCAL + 9 * KIB, 1015 * KIB, {13, 14}};
	local->span[2] = rig_held.spans->span[1];
	remote->span[0] = (struct kvp_verbs_span){RIG_REMOTE, 5 * KIB, {21, 22}};
	remote->span[1] = (struct kvp_verbs_span){RIG_REMOTE + 5 * KIB, 1019 * KIB, {23, 24}};
	remote->span[2] = rig_view.spans->span[1];
	free(rig_held.spans);
	free(rig_view.spans);
	rig_held.spans = local;
	rig_view.spans = remote;
	rig_pairs(4, 1, 1);
	rig = rig_submit(4, true, false);
	rig_loop(1);
	/* Run of 16 KiB per tensor: cut at 5 (both keys of the peer) and 9 (ours: a further piece). */
	assert_int_equal(rig_logged, 3);
	assert_int_equal(rig_log[0].rkey, 21);
	assert_int_equal(rig_log[0].sge[0].length, 5 * KIB);
	assert_int_equal(rig_log[0].sge[0].lkey, 11);
	assert_int_equal(rig_log[1].rkey, 23);
	assert_int_equal(rig_log[1].remote, RIG_REMOTE + 5 * KIB);
	assert_int_equal(rig_log[1].sges, 2);
	assert_int_equal(rig_log[1].sge[0].length, 4 * KIB);
	assert_int_equal(rig_log[1].sge[0].lkey, 11);
	assert_int_equal(rig_log[1].sge[1].addr, RIG_LOCAL + 9 * KIB);
	assert_int_equal(rig_log[1].sge[1].length, 7 * KIB);
	assert_int_equal(rig_log[1].sge[1].lkey, 13);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	rig_free(rig);
	rig_close();
}

static void
without_a_key_nothing_is_posted(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(30, 4 * KIB);
	rig_view.spans->span[0].bytes = 4 * KIB;
	rig_pairs(4, 2, 2);
	rig = rig_submit(4, true, false);
	rig_loop(2);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_PROTOCOL);
	rig_free(rig);
	rig_logged = 0;
	rig_view.spans->span[0].bytes = rig_view.spans->span[1].bytes;
	rig_held.spans->span[0].address += 4 * KIB;
	rig = rig_submit(4, true, false);
	rig_loop(2);
	assert_int_equal(rig_logged, 0);
	assert_int_equal(rig_status(rig), KVP_CACHE_NOT_EXIST);
	rig_free(rig);
	rig_close();
}

static void
windows_are_kept(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, 64 * KIB);
	rig_ep->window_requests = 5;
	rig_pairs(80, 2, 3);
	rig = rig_submit(80, true, false);
	rig_loop(3);
	assert_int_equal(rig_logged, 10);
	rig_complete(0, UINT32_MAX - 1);
	rig_loop(3);
	assert_in_range(rig_logged, 11, 15);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	check_coverage(80, 64 * KIB, true);
	rig_free(rig);

	rig_logged = 0;
	rig_ep->window_requests = 32;
	rig_ep->window_bytes = 200 * KIB; /* of each QP: 6 1/4 pieces together */
	rig = rig_submit(80, true, false);
	rig_loop(3);
	assert_true(rig->transfer.part[0].bytes_inflight <= 400 * KIB);
	assert_true(rig->transfer.part[0].bytes_inflight >= 336 * KIB);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	check_coverage(80, 64 * KIB, true);
	rig_free(rig);
	rig_close();
}

static void
requests_and_queues_have_an_end(void **state)
{
	struct rig_transfer *rig[8];

	(void)state;
	/* A run of 8 MiB becomes requests of 1 MiB. */
	rig_open(30, 64 * KIB);
	rig_ep->window_bytes = 4U << 20;
	rig_pairs(128, 1, 1);
	rig[0] = rig_submit(128, true, false);
	rig_loop(1);
	rig_drain();
	for (uint32_t i = 0; i < rig_logged; i++)
		assert_true(rig_log[i].sge[0].length <= 1U << 20);
	check_coverage(128, 64 * KIB, true);
	rig_free(rig[0]);
	/* Eight transfers want 32 each of a queue of 128: the last places stay free. */
	rig_logged = 0;
	rig_pairs(128, 2, 2);
	for (uint32_t i = 0; i < 8; i++)
		rig[i] = rig_submit(100, true, false);
	rig_loop(20);
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		assert_int_equal(kvp_verbs_room(&rig_ep->queue[q]), KVP_VERBS_SQ_KEPT);
	rig_drain();
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(rig_status(rig[i]), KVP_SUCCESS);
		rig_free(rig[i]);
	}
	rig_close();
}

static void
a_partial_post_goes_on_where_it_stopped(void **state)
{
	(void)state;
	for (uint32_t room = 0; room < 40; room++) {
		struct rig_transfer *rig;
		uint32_t probes = 0;

		rig_open(1 + room % 4, 4 * KIB);
		rig_ep->up = 1; /* else the other one would be refused while it is empty */
		rig_pairs(30, 2, 1 + room % 2);
		rig = rig_submit(30, true, false);
		rig_room = 1;
		rig_loop(1); /* so that something is outstanding */
		rig_room = room;
		rig_loop(2);
		rig_room = UINT32_MAX;
		rig_loop(2);
		rig_drain();
		assert_int_equal(rig_status(rig), KVP_SUCCESS);
		check_coverage(30, 4 * KIB, true);
		assert_int_equal(rig_ep->up, 1);
		for (uint32_t i = 0; i < rig_logged; i++)
			probes += rig_log[i].wr_id >> 60 == KVP_VERBS_PROBE;
		assert_true(probes <= 4);
		rig_free(rig);
		rig_ep->up = 3;
		rig_close();
	}
}

static void
an_unsignaled_tail_is_probed_out(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, 4 * KIB);
	rig_pairs(3, 2, 2);
	rig_ep->up = 1; /* one QP only */
	rig = rig_submit(3, true, false);
	rig_room = 5; /* of 6: none of the 5 has a signal */
	rig_loop(1);
	assert_int_equal(rig_logged, 5);
	rig_room = UINT32_MAX;
	rig->transfer.part[0].cursor.left = 0; /* and nothing more comes that would have one */
	rig_loop(2);
	assert_int_equal(rig_logged, 6);
	assert_int_equal(rig_log[5].wr_id >> 60, KVP_VERBS_PROBE);
	assert_int_equal(rig_log[5].sges, 0);
	rig_complete_all();
	rig_loop(1);
	assert_int_equal(rig->transfer.part[0].requests_inflight, 0);
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_CANCELLED);
	rig_free(rig);
	rig_ep->up = 3;
	rig_close();
}

static void
a_qp_that_refuses_for_good_is_broken(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, 4 * KIB);
	rig_pairs(3, 2, 2);
	rig_refusal = EINVAL;
	rig_room = 0;
	rig = rig_submit(3, true, false);
	rig_loop(3);
	assert_int_equal(rig_ep->up, 0);
	assert_int_equal(rig_state[0], IBV_QPS_ERR);
	assert_int_equal(rig_state[1], IBV_QPS_ERR);
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_loop(2);
	assert_int_equal(rig_status(rig), KVP_CANCELLED);
	rig_free(rig);
	rig_close();
	/* "Full", with nothing in it, is no better. */
	rig_open(1, 4 * KIB);
	rig_refusal = ENOMEM;
	rig_room = 0;
	rig = rig_submit(3, true, false);
	rig_loop(3);
	assert_int_equal(rig_ep->up, 0);
	kvp_transfer_stop(&rig->transfer, KVP_CANCELLED);
	rig_loop(2);
	rig_free(rig);
	rig_close();
}

static void
sequences_wrap(void **state)
{
	struct rig_transfer *rig;

	(void)state;
	rig_open(1, 4 * KIB);
	for (uint32_t q = 0; q < RIG_QUEUES; q++) {
		struct kvp_verbs_queue *queue = &rig_ep->queue[q];

		queue->posted = queue->retired = queue->signaled = queue->accounted =
			UINT32_MAX - 10;
	}
	rig_pairs(60, 2, 2);
	rig = rig_submit(60, true, false);
	rig_loop(1);
	rig_drain();
	assert_int_equal(rig_status(rig), KVP_SUCCESS);
	check_coverage(60, 4 * KIB, true);
	for (uint32_t i = 0; i < rig_logged; i++)
		assert_int_equal(rig_log[i].wr_id >> 32 & 0xFFF, 1);
	assert_int_equal(rig_cq.stale, 0);
	rig_free(rig);
	rig_close();
}

static uint32_t
random_below(uint32_t below)
{
	static uint64_t x = 88172645463325252U;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x >> 33) % below;
}

static void
any_plan_is_posted_once(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 400; round++) {
		uint32_t pairs = 1 + random_below(60), blocks[] = {64, 256, 4 * KIB, 64 * KIB};
		uint32_t bytes = blocks[random_below(4)];
		bool is_push = random_below(2) != 0;
		uint32_t src = 0, dst = 0;
		struct rig_transfer *rig;

		rig_open(1 + random_below(30), bytes);
		rig_ep->window_requests = 1 + random_below(32);
		rig_ep->window_bytes = (bytes / 8) << random_below(10);
		for (uint32_t i = 0; i < pairs; i++) {
			rig_src[i] = src;
			rig_dst[i] = dst;
			src += random_below(3) == 0 ? 2 : 1;
			dst += random_below(3) == 0 ? 2 : 1;
		}
		rig = rig_submit(pairs, is_push, false);
		for (uint32_t i = 0; i < 2000 && rig_status(rig) == KVP_IN_PROGRESS; i++) {
			if (random_below(4) == 0)
				rig_complete(random_below(2), UINT32_MAX - 1);
			if (random_below(8) == 0)
				rig_room = 1 + random_below(20);
			rig_loop(1);
			rig_room = UINT32_MAX;
		}
		rig_drain();
		assert_int_equal(rig_status(rig), KVP_SUCCESS);
		/* Windows that are no multiple of it cut finer than the check looks. */
		if (rig_ep->window_bytes % (bytes / 64) == 0)
			check_coverage(pairs, bytes, is_push);
		rig_free(rig);
		rig_close();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scattered_pieces_go_in_chains_with_one_signal),
		cmocka_unit_test(contiguous_targets_are_gathered),
		cmocka_unit_test(pulls_read_and_scatter),
		cmocka_unit_test(a_piece_across_spans_is_cut),
		cmocka_unit_test(without_a_key_nothing_is_posted),
		cmocka_unit_test(windows_are_kept),
		cmocka_unit_test(requests_and_queues_have_an_end),
		cmocka_unit_test(a_partial_post_goes_on_where_it_stopped),
		cmocka_unit_test(an_unsignaled_tail_is_probed_out),
		cmocka_unit_test(a_qp_that_refuses_for_good_is_broken),
		cmocka_unit_test(sequences_wrap),
		cmocka_unit_test(any_plan_is_posted_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
