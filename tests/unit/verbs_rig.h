/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_rig.h - one endpoint of the verbs transport on a lane without a thread, over a device that writes down
 * what is posted and completes what the test says
 *
 * Included by one file per program: it defines ibv_modify_qp and the like, and the inbox.
 */
#ifndef KVP_TEST_VERBS_RIG_H
#define KVP_TEST_VERBS_RIG_H

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "eal.h"
#include "inbox.h"
#include "lane_state.h"
#include "plan.h"
#include "reactor.h"
#include "verbs/verbs_lane.h"

#define RIG_QUEUES  2U
#define RIG_TENSORS 2U
#define RIG_BLOCKS  256U
#define RIG_LOCAL   UINT64_C(0x100000000)
#define RIG_REMOTE  UINT64_C(0x900000000)
#define RIG_LOG     4096U
#define RIG_PAIRS   128U

/* --- the device ----------------------------------------------------------------------- */

struct rig_wr {
	uint64_t wr_id, remote;
	uint32_t queue, rkey, imm, flags, sges;
	enum ibv_wr_opcode opcode;
	bool is_done; /* completed, flushed, or retired by a later completion */
	struct ibv_sge sge[KVP_VERBS_SGES];
	uint8_t payload[KVP_VERBS_MESSAGE_BYTES]; /* of a SEND, and of a CREDIT */
};

static struct rig_wr rig_log[RIG_LOG];
static uint32_t rig_logged, rig_doorbells;
static struct ibv_wc rig_wc[RIG_LOG];
static uint32_t rig_wcs;
static uint32_t rig_room = UINT32_MAX; /* WRs that the device still takes */
static int rig_refusal = ENOMEM;
static enum ibv_qp_state rig_state[RIG_QUEUES];
static bool rig_is_broken[RIG_QUEUES];                 /* flushes whatever is posted */
static bool rig_is_received[RIG_QUEUES][KVP_VERBS_RQ]; /* a receive is posted */

static uint32_t
rig_number(const struct ibv_qp *qp)
{
	return qp->qp_num;
}

static int
rig_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	assert_int_equal(rig_state[rig_number(qp)], IBV_QPS_RTS);
	rig_doorbells++;
	for (; wr != NULL; wr = wr->next) {
		struct rig_wr *log = &rig_log[rig_logged];

		if (rig_room == 0) {
			*bad = wr;
			return rig_refusal;
		}
		rig_room -= rig_room != UINT32_MAX;
		assert_true(rig_logged < RIG_LOG);
		rig_logged++;
		*log = (struct rig_wr){.wr_id = wr->wr_id,
				       .remote = wr->wr.rdma.remote_addr,
				       .queue = rig_number(qp),
				       .rkey = wr->wr.rdma.rkey,
				       .imm = ntohl(wr->imm_data),
				       .flags = wr->send_flags,
				       .sges = (uint32_t)wr->num_sge,
				       .opcode = wr->opcode};
		for (uint32_t i = 0; i < log->sges; i++)
			log->sge[i] = wr->sg_list[i];
		if (wr->opcode == IBV_WR_SEND || (wr->send_flags & IBV_SEND_INLINE) != 0)
			memcpy(log->payload, (void *)(uintptr_t)wr->sg_list[0].addr,
			       wr->sg_list[0].length);
		if (!rig_is_broken[rig_number(qp)])
			continue;
		log->is_done = true;
		rig_wc[rig_wcs++] =
			(struct ibv_wc){.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR};
	}
	return 0;
}

static int
rig_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t buffer = (uint32_t)wr->wr_id % KVP_VERBS_RQ;

	(void)bad;
	assert_false(rig_is_received[rig_number(qp)][buffer]);
	rig_is_received[rig_number(qp)][buffer] = true;
	return 0;
}

static int
rig_poll(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	uint32_t count = rig_wcs < (uint32_t)entries ? rig_wcs : (uint32_t)entries;

	(void)cq;
	memcpy(wc, rig_wc, count * sizeof(*wc));
	rig_wcs -= count;
	memmove(rig_wc, rig_wc + count, rig_wcs * sizeof(*wc));
	return (int)count;
}

static int
rig_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

int
ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	assert_true((mask & IBV_QP_STATE) != 0);
	rig_state[rig_number(qp)] = attr->qp_state;
	return 0;
}

int
ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx)
{
	(void)channel;
	(void)cq;
	(void)ctx;
	errno = EAGAIN;
	return -1;
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned int events)
{
	(void)cq;
	(void)events;
}

/* --- the inbox -------------------------------------------------------------------------- */

static struct kvp_event rig_event[64];
static uint32_t rig_events, rig_inbox_room = 64;

struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox)
{
	(void)inbox;
	if (rig_inbox_room == 0)
		return NULL;
	rig_inbox_room--;
	return &rig_event[rig_events];
}

void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event)
{
	(void)inbox;
	assert_int_equal(producer, 0);
	assert_ptr_equal(event, &rig_event[rig_events]);
	rig_events++;
}

/* --- the endpoint --------------------------------------------------------------------------- */

static const struct kvp_transport rig_transport = {
	.name = "rig",
	.attached = kvp_verbs_attached,
	.detached = kvp_verbs_detached,
	.progress = kvp_verbs_progress,
	.post = kvp_verbs_post,
	.notify = kvp_verbs_notify,
	.stop_part = kvp_verbs_stop_part,
	.cache_gone = kvp_verbs_cache_gone,
	.down = kvp_verbs_down,
	.arm = kvp_verbs_arm,
	.disarm = kvp_verbs_disarm,
};

static struct ibv_context rig_context = {.ops = {.post_send = rig_post_send,
						 .post_recv = rig_post_recv,
						 .poll_cq = rig_poll,
						 .req_notify_cq = rig_notify}};
static struct ibv_comp_channel rig_channel = {.context = &rig_context};
static struct ibv_cq rig_device_cq = {.context = &rig_context, .channel = &rig_channel};
static struct ibv_qp rig_qp[RIG_QUEUES];
static struct kvp_verbs_mail rig_mail[RIG_QUEUES];
static _Atomic uint64_t rig_credit[RIG_QUEUES];
static struct kvp_verbs_cq rig_cq;
static struct kvp_reactor rig_reactor;
static struct kvp_dataplane rig_dataplane = {.reactor = &rig_reactor};
static struct kvp_path rig_path;
static struct kvp_tensor rig_local[RIG_TENSORS], rig_remote[RIG_TENSORS];
static struct kvp_remote_tensor rig_announced[RIG_TENSORS];
static struct kvp_remote_cache rig_remote_cache;
static struct kvp_local_cache rig_cache;
static struct kvp_verbs_held rig_held;
static struct kvp_view rig_view;
static struct kvp_lane *rig_lane;
static struct kvp_verbs_endpoint *rig_ep;
static uint64_t rig_now = 1000;

static inline void
rig_loop(uint32_t loops)
{
	for (; loops > 0; loops--)
		(void)kvp_lane_run_once(rig_lane, ++rig_now);
}

static inline struct kvp_verbs_spans *
rig_spans(uint32_t count)
{
	struct kvp_verbs_spans *spans =
		calloc(1, sizeof(*spans) + count * sizeof(struct kvp_verbs_span));

	assert_non_null(spans);
	spans->count = count;
	return spans;
}

/* Tensors of RIG_BLOCKS blocks, apart from each other, each one span. lkey: 100 + 10 * tensor + device. */
static inline void
rig_memory(uint32_t block_bytes)
{
	uint64_t step = 2 * (uint64_t)RIG_BLOCKS * block_bytes;

	free(rig_held.spans);
	free(rig_view.spans);
	rig_held.spans = rig_spans(RIG_TENSORS);
	rig_view.spans = rig_spans(RIG_TENSORS);
	for (uint32_t i = 0; i < RIG_TENSORS; i++) {
		rig_local[i] = (struct kvp_tensor){(void *)(uintptr_t)(RIG_LOCAL + i * step),
						   RIG_BLOCKS, block_bytes, block_bytes};
		rig_remote[i] = rig_local[i];
		rig_remote[i].base = (void *)(uintptr_t)(RIG_REMOTE + i * step);
		rig_announced[i].tensor = rig_remote[i];
		rig_held.spans->span[i] =
			(struct kvp_verbs_span){.address = RIG_LOCAL + i * step,
						.bytes = (uint64_t)RIG_BLOCKS * block_bytes,
						.key = {100 + 10 * i, 101 + 10 * i}};
		rig_view.spans->span[i] =
			(struct kvp_verbs_span){.address = RIG_REMOTE + i * step,
						.bytes = (uint64_t)RIG_BLOCKS * block_bytes,
						.key = {200 + 10 * i, 201 + 10 * i}};
	}
	rig_remote_cache = (struct kvp_remote_cache){
		.id = 7, .num_tensors = RIG_TENSORS, .tensors = rig_announced};
	rig_view.cache = &rig_remote_cache;
}

/* Control hands over generation `generation` of a QP. */
static inline void
rig_hand_over(uint32_t q, uint32_t generation)
{
	struct kvp_verbs_queue *queue = &rig_ep->queue[q];

	rig_state[q] = IBV_QPS_RTS;
	rig_is_broken[q] = false;
	memset(rig_is_received[q], 0, sizeof(rig_is_received[q]));
	atomic_store(&rig_credit[q], 0);
	queue->generation = generation;
	atomic_store(&queue->phase, KVP_VERBS_READY);
	atomic_fetch_add(&rig_ep->attention, 1);
}

/* Completions of what is outstanding on a QP, up to and with log entry `last`: one for each signaled one. */
static inline void
rig_complete(uint32_t q, uint32_t last)
{
	for (uint32_t i = 0; i <= last && i < rig_logged; i++) {
		if (rig_log[i].queue != q || rig_log[i].is_done)
			continue;
		rig_log[i].is_done = true;
		if ((rig_log[i].flags & IBV_SEND_SIGNALED) != 0)
			rig_wc[rig_wcs++] = (struct ibv_wc){.wr_id = rig_log[i].wr_id,
							    .status = IBV_WC_SUCCESS};
	}
}

static inline void
rig_complete_all(void)
{
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		rig_complete(q, UINT32_MAX - 1);
}

/* Complete and run until nothing more is posted. */
static inline void
rig_drain(void)
{
	uint32_t logged;

	do {
		logged = rig_logged;
		rig_complete_all();
		rig_loop(4);
	} while (rig_logged != logged || rig_wcs != 0);
}

/* What a device does with a QP in ERR. `status` is that of the first send. */
static inline void
rig_flush(uint32_t q, enum ibv_wc_status status)
{
	rig_is_broken[q] = true;
	for (uint32_t i = 0; i < rig_logged; i++) {
		if (rig_log[i].queue != q || rig_log[i].is_done)
			continue;
		rig_log[i].is_done = true;
		/* Only these fields of a failed one mean anything. */
		rig_wc[rig_wcs] = (struct ibv_wc){.wr_id = rig_log[i].wr_id, .status = status};
		rig_wc[rig_wcs].opcode = IBV_WC_RECV;
		rig_wc[rig_wcs++].byte_len = 0xDEAD;
		status = IBV_WC_WR_FLUSH_ERR;
	}
	for (uint32_t b = 0; b < KVP_VERBS_RQ; b++) {
		if (!rig_is_received[q][b])
			continue;
		rig_is_received[q][b] = false;
		rig_wc[rig_wcs++] = (struct ibv_wc){
			.wr_id = kvp_verbs_wr_id(KVP_VERBS_RECV, rig_ep->queue[q].place,
						 rig_ep->queue[q].generation, b),
			.status = IBV_WC_WR_FLUSH_ERR};
	}
}

/* A message of the peer comes: an immediate, or `bytes` bytes of a SEND. */
static inline void
rig_receive(uint32_t q, uint32_t imm, const void *message, uint32_t bytes)
{
	uint32_t b = 0;

	while (b < KVP_VERBS_RQ && !rig_is_received[q][b])
		b++;
	assert_true(b < KVP_VERBS_RQ);
	rig_is_received[q][b] = false;
	if (message != NULL)
		memcpy(rig_mail[q].recv[b], message, bytes);
	rig_wc[rig_wcs++] =
		(struct ibv_wc){.wr_id = kvp_verbs_wr_id(KVP_VERBS_RECV, rig_ep->queue[q].place,
							 rig_ep->queue[q].generation, b),
				.status = IBV_WC_SUCCESS,
				.opcode = message == NULL ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
				.wc_flags = message == NULL ? IBV_WC_WITH_IMM : 0,
				.imm_data = htonl(imm),
				.byte_len = bytes};
}

/* A lane with one endpoint of two QPs on two rails, all up. Requests have at most `pieces_max` pieces. */
static inline void
rig_open(uint32_t pieces_max, uint32_t block_bytes)
{
	struct kvp_error err = {""};

	assert_int_equal(kvp_reactor_init(&rig_reactor), 0);
	rig_channel.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_int_equal(kvp_lane_prepare(&(struct kvp_lane_config){.cpu = -1, .ring_parts = 64},
					  &rig_lane, &err),
			 KVP_SUCCESS);
	rig_cq = (struct kvp_verbs_cq){
		.cq = &rig_device_cq, .channel = &rig_channel, .lane = rig_lane};
	rig_logged = rig_doorbells = rig_wcs = rig_events = 0;
	rig_room = UINT32_MAX;
	rig_refusal = ENOMEM;
	rig_inbox_room = 64;
	rig_path = (struct kvp_path){
		.config = {.dataplane = &rig_dataplane, .endpoints = 1, .peer_cluster = 42}};
	rig_ep = kvp_verbs_endpoint_create(RIG_QUEUES);
	assert_non_null(rig_ep);
	rig_path.endpoint[0] = &rig_ep->base;
	rig_ep->base.transport = &rig_transport;
	rig_ep->base.path = &rig_path;
	rig_ep->base.lane = rig_lane;
	rig_ep->base.fd = -1;
	rig_ep->is_initiator = true;
	rig_ep->window_bytes = 1U << 20;
	rig_ep->window_requests = 32;
	for (uint32_t q = 0; q < RIG_QUEUES; q++) {
		struct kvp_verbs_queue *queue = &rig_ep->queue[q];

		rig_ep->limits[q] =
			kvp_gather_limits_of(&(struct kvp_cost){.pieces_max = pieces_max});
		rig_qp[q] = (struct ibv_qp){.context = &rig_context, .qp_num = q};
		queue->qp = &rig_qp[q];
		queue->cq = &rig_cq;
		queue->mail = &rig_mail[q];
		queue->rail = queue->device = q;
		queue->place = 5 + q;
		queue->inline_max = 8;
		queue->pieces_max = pieces_max;
		queue->peer_credit = 0xC0000 + 8 * q;
		queue->peer_credit_rkey = 300 + q;
		queue->credit = &rig_credit[q];
	}
	rig_memory(block_bytes);
	rig_cache = (struct kvp_local_cache){.id = 3, .held = {&rig_held}};
	assert_int_equal(kvp_lane_attach(rig_lane, &rig_ep->base, &err), KVP_SUCCESS);
	assert_int_equal(kvp_lane_cache_add(rig_lane, &rig_cache, &err), KVP_SUCCESS);
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		rig_hand_over(q, 1);
	rig_drain();
	assert_int_equal(rig_ep->up, 3);
	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		atomic_store(&rig_credit[q], KVP_VERBS_RQ);
	rig_logged = rig_doorbells = 0;
}

static inline void
rig_close(void)
{
	assert_int_equal(rig_ep->base.parts, 0);
	kvp_lane_detach(rig_lane, &rig_ep->base);
	kvp_verbs_endpoint_destroy(rig_ep);
	kvp_lane_cache_remove(rig_lane, rig_cache.id);
	kvp_lane_release(rig_lane);
	kvp_reactor_fini(&rig_reactor);
	(void)close(rig_channel.fd);
	free(rig_held.spans);
	free(rig_view.spans);
	rig_held.spans = NULL;
	rig_view.spans = NULL;
}

/* --- transfers ------------------------------------------------------------------------------ */

static uint64_t rig_src[RIG_PAIRS], rig_dst[RIG_PAIRS];

struct rig_transfer {
	struct kvp_transfer transfer;
	void *memory;
};

/* Pairs rig_src -> rig_dst of both tensors, one part, submitted. */
static inline struct rig_transfer *
rig_submit(uint32_t pairs, bool is_push, bool has_notify)
{
	const struct kvp_pairing pairing = {.local = rig_local,
					    .remote = rig_remote,
					    .tensors = RIG_TENSORS,
					    .local_blocks = is_push ? rig_src : rig_dst,
					    .remote_blocks = is_push ? rig_dst : rig_src,
					    .count = pairs,
					    .is_push = is_push};
	struct rig_transfer *rig = aligned_alloc(
		KVP_SHARE_SPAN, (sizeof(*rig) + KVP_SHARE_SPAN - 1) & ~(KVP_SHARE_SPAN - 1UL));
	void *scratch = malloc(kvp_plan_scratch_bytes(pairs));
	struct kvp_transfer *transfer = &rig->transfer;
	struct kvp_error err = {""};
	struct kvp_part *part;

	memset(rig, 0, sizeof(*rig));
	assert_int_equal(kvp_plan_prepare(&pairing, scratch, &transfer->plan, &err), KVP_SUCCESS);
	rig->memory = malloc(kvp_plan_bytes(&transfer->plan));
	kvp_plan_fill(&pairing, scratch, rig->memory, &transfer->plan);
	free(scratch);
	transfer->view = &rig_view;
	transfer->local_cache = rig_cache.id;
	transfer->remote_cache = 7;
	transfer->deadline_ns = UINT64_MAX;
	transfer->is_push = is_push;
	transfer->has_notify = has_notify;
	transfer->notify_tag = 99;
	transfer->notify_bytes = 3;
	memcpy(transfer->notify_payload, "abc", 3);
	transfer->parts = 1;
	atomic_store(&transfer->parts_left, 1);
	part = &transfer->part[0];
	part->transfer = transfer;
	part->endpoint = &rig_ep->base;
	part->lane = rig_lane;
	part->bytes = transfer->plan.bytes;
	kvp_cursor_init(&part->cursor, &transfer->plan, 0, part->bytes);
	assert_true(kvp_lane_submit(rig_lane, &part, 1));
	return rig;
}

static inline kvp_status
rig_status(const struct rig_transfer *rig)
{
	return atomic_load(&rig->transfer.word) == KVP_WORD_DONE
		       ? kvp_transfer_status(&rig->transfer)
		       : KVP_IN_PROGRESS;
}

static inline void
rig_free(struct rig_transfer *rig)
{
	assert_int_not_equal(rig_status(rig), KVP_IN_PROGRESS);
	free(rig->memory);
	free(rig);
}

static inline void
rig_pairs(uint32_t pairs, uint32_t src_step, uint32_t dst_step)
{
	for (uint32_t i = 0; i < pairs; i++) {
		rig_src[i] = i * src_step;
		rig_dst[i] = i * dst_step;
	}
}

#endif /* KVP_TEST_VERBS_RIG_H */
