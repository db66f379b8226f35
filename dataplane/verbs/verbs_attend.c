/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_lane.h"

#include <stdlib.h>

#include "check.h"
#include "lane.h"
#include "lane_state.h"
#include "reactor.h"

#define WINDOW_BYTES_MAX (4U << 20)

/* --- a QP from hand-over to UP ---------------------------------------------------------------- */

static void
take_over(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	queue->posted = 0;
	queue->retired = 0;
	queue->signaled = 0;
	queue->accounted = 0;
	queue->sent = 0;
	queue->sent_done = 0;
	queue->taken = 0;
	queue->granted = 0;
	queue->reposted = 0;
	queue->recv_posted = 0;
	queue->sends_free = (UINT32_C(1) << KVP_VERBS_SENDS) - 1;
	queue->is_probing = false;
	queue->is_granting = false;
	queue->is_stuck = false;
	queue->first_error = IBV_WC_SUCCESS;
	queue->vendor_error = 0;
	queue->owned = queue->generation;
	queue->is_ours = true;
	queue->endpoint->busy |= kvp_verbs_bit(queue);
	(void)kvp_verbs_receives_post(queue, now_ns);
}

/* Nothing is written; the completion says that the peer is there, and that all before it is done. */
static void
probe(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = queue->peer_credit, .rkey = queue->peer_credit_rkey},
	};
	const struct kvp_verbs_request entry = {.tag.kind = KVP_VERBS_PROBE,
						.tag.queue = (uint8_t)queue->index};

	if (!queue->is_probing && kvp_verbs_room(queue) > 0)
		queue->is_probing = kvp_verbs_post_one(queue, &wr, &entry, now_ns);
}

static void
go_up(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;

	ep->up |= kvp_verbs_bit(queue);
	/* Pairs with the control thread's look at the phase. */
	atomic_store_explicit(&queue->phase, KVP_VERBS_UP, memory_order_release);
	kvp_reactor_wake(ep->base.path->config.dataplane->reactor);
	/* Those that notifications of the last generation were in. */
	if (kvp_verbs_receives_post(queue, now_ns))
		kvp_verbs_grant(queue, now_ns);
}

static void
ready_look(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	bool is_proven = queue->endpoint->is_initiator
				 ? queue->posted != 0 && queue->retired == queue->posted
				 : atomic_load_explicit(&queue->proven, memory_order_acquire) ==
					   queue->owned;

	if (is_proven)
		go_up(queue, now_ns);
	else if (queue->endpoint->is_initiator)
		probe(queue, now_ns);
}

/* An UP QP with a bit in `busy`: what could not be posted at once. */
static void
up_look(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;

	ep->busy &= ~kvp_verbs_bit(queue);
	kvp_verbs_grant(queue, now_ns);
	/* A tail that a partial post left without a signal: nothing else may ever complete it. */
	if (queue->posted == queue->signaled)
		return;
	probe(queue, now_ns);
	if (queue->posted != queue->signaled)
		ep->busy |= kvp_verbs_bit(queue);
}

static void
queue_look(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	/* Pairs with the control thread's hand-over. */
	uint32_t phase = atomic_load_explicit(&queue->phase, memory_order_acquire);

	if (phase == KVP_VERBS_READY && !queue->is_ours) {
		/* Before anything of the new generation: what the fence of the last says. */
		(void)kvp_verbs_fence_check(queue, now_ns);
		take_over(queue, now_ns);
		if (ep->is_silent)
			kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, now_ns);
	}
	if (!queue->is_ours)
		return;
	if (atomic_load_explicit(&queue->asked, memory_order_acquire) == queue->owned)
		kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, now_ns);
	phase = atomic_load_explicit(&queue->phase, memory_order_relaxed);
	if (phase == KVP_VERBS_FLUSHING)
		kvp_verbs_flush_check(queue, now_ns);
	else if (phase == KVP_VERBS_READY)
		ready_look(queue, now_ns);
	else if ((ep->busy & kvp_verbs_bit(queue)) != 0)
		up_look(queue, now_ns);
}

static void
fail_check(struct kvp_verbs_endpoint *ep, uint64_t now_ns)
{
	for (uint32_t i = 0; i < ep->queues; i++) {
		if (ep->queue[i].is_ours)
			return;
	}
	/* What is still in doubt of a stuck QP: control destroys it. */
	for (uint32_t i = 0; i < 2 * ep->queues * KVP_VERBS_SQ; i++) {
		if (ep->orphan[i].fate == KVP_VERBS_DOUBT &&
		    now_ns - ep->orphan[i].flushed_ns < KVP_VERBS_FENCE_NS)
			return;
	}
	kvp_lane_endpoint_failed(&ep->base, ep->failing, now_ns);
}

uint32_t
kvp_verbs_attend(struct kvp_verbs_endpoint *ep, uint64_t now_ns)
{
	/* Pairs with the control thread's count: its fields are new, or it counts again. */
	uint32_t attention = atomic_load_explicit(&ep->attention, memory_order_acquire);
	bool is_new = attention != ep->attended;
	uint32_t busy = ep->busy, work = is_new;

	ep->attended = attention;
	for (uint32_t i = 0; i < ep->queues; i++) {
		struct kvp_verbs_queue *queue = &ep->queue[i];

		if (is_new || (ep->busy & kvp_verbs_bit(queue)) != 0)
			queue_look(queue, now_ns);
		if (is_new)
			(void)kvp_verbs_fence_check(queue, now_ns);
	}
	if (ep->failing != KVP_SUCCESS)
		fail_check(ep, now_ns);
	return work + (busy != ep->busy);
}

/* --- attach and detach ------------------------------------------------------------------------- */

static void
cq_add(struct kvp_verbs_endpoint *ep, struct kvp_verbs_cq *cq)
{
	for (uint32_t i = 0; i < ep->cqs; i++) {
		if (ep->cq[i] == cq)
			return;
	}
	ep->cq[ep->cqs++] = cq;
	if (cq->attached++ == 0)
		/* Without it a sleeping lane looks again within a second. */
		(void)kvp_lane_wake_add(ep->base.lane, cq->channel->fd);
}

void
kvp_verbs_attached(struct kvp_endpoint *endpoint)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);

	ep->attended = atomic_load_explicit(&ep->attention, memory_order_acquire) - 1;
	if (ep->window_bytes > WINDOW_BYTES_MAX)
		ep->window_bytes = WINDOW_BYTES_MAX;
	if (ep->window_requests > KVP_VERBS_WINDOW)
		ep->window_requests = KVP_VERBS_WINDOW;
	for (uint32_t i = 0; i < ep->queues; i++) {
		struct kvp_verbs_queue *queue = &ep->queue[i];

		KVP_CHECK(queue->index == i && queue->place < KVP_VERBS_CQ_QPS &&
			  ep->limits[queue->rail].pieces_max <= KVP_VERBS_SGES);
		queue->cq->queue[queue->place] = queue;
		cq_add(ep, queue->cq);
	}
}

void
kvp_verbs_detached(struct kvp_endpoint *endpoint)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);

	for (uint32_t i = 0; i < ep->queues; i++)
		ep->queue[i].cq->queue[ep->queue[i].place] = NULL;
	for (uint32_t i = 0; i < ep->cqs; i++) {
		struct kvp_verbs_cq *cq = ep->cq[i];

		if (--cq->attached > 0)
			continue;
		kvp_lane_wake_remove(ep->base.lane, cq->channel->fd);
		if (cq->unacked > 0)
			ibv_ack_cq_events(cq->cq, cq->unacked);
		cq->unacked = 0;
	}
	ep->cqs = 0;
}

/* --- sleep ------------------------------------------------------------------------------------------ */

bool
kvp_verbs_arm(struct kvp_endpoint *endpoint)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);
	bool has_work = ep->tells_due != 0 || ep->pendings != 0;

	/* Room at the peer or in the inbox comes without a completion: the lane naps only. */
	ep->tells_due = 0;
	for (uint32_t i = 0; i < ep->cqs && !has_work; i++) {
		struct kvp_verbs_cq *cq = ep->cq[i];

		if (!cq->is_armed)
			cq->is_armed = ibv_req_notify_cq(cq->cq, 0) == 0;
		/* What completed before it was armed tells nobody. */
		has_work = !cq->is_armed || kvp_verbs_poll(cq, ep->seen_ns) > 0;
	}
	return has_work ||
	       atomic_load_explicit(&ep->attention, memory_order_acquire) != ep->attended;
}

void
kvp_verbs_disarm(struct kvp_endpoint *endpoint)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);

	for (uint32_t i = 0; i < ep->cqs; i++) {
		struct kvp_verbs_cq *cq = ep->cq[i];
		struct ibv_cq *of;
		void *ctx;

		/* No event yet: it stays armed, and the next completion still wakes. */
		if (!cq->is_armed || ibv_get_cq_event(cq->channel, &of, &ctx) != 0)
			continue;
		cq->is_armed = false;
		cq->unacked++;
		if (cq->unacked < KVP_VERBS_UNACKED)
			continue;
		ibv_ack_cq_events(cq->cq, cq->unacked);
		cq->unacked = 0;
	}
}

/* --- the end of parts, caches and links ----------------------------------------------------------- */

/* It waited long enough for completions: what holds requests of it must end. */
static void
queues_of_break(struct kvp_verbs_endpoint *ep, const struct kvp_part *part, uint64_t now_ns)
{
	for (uint32_t i = 0; i < ep->queues; i++) {
		struct kvp_verbs_queue *queue = &ep->queue[i];

		for (uint32_t at = queue->retired; queue->is_ours && at != queue->posted; at++) {
			if (kvp_verbs_entry(queue, at)->part != part)
				continue;
			kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, now_ns);
			break;
		}
	}
}

bool
kvp_verbs_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);

	kvp_verbs_orphans_drop(ep, part, now_ns);
	if (part->requests_inflight == 0) {
		kvp_verbs_key_give(ep, part);
		return true;
	}
	if (now_ns - part->stop_ns >= KVP_VERBS_DRAIN_NS)
		queues_of_break(ep, part, now_ns);
	return false;
}

void
kvp_verbs_cache_gone(struct kvp_endpoint *endpoint, int64_t cache_id)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);

	/* The peer's writes into it are the control thread's to await. */
	kvp_verbs_pendings_drop(ep, cache_id, ep->seen_ns);
}

void
kvp_verbs_down(struct kvp_endpoint *endpoint)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	/* What came is the peer's success already: a peer that dies behind its push does not take the event along. */
	for (uint32_t i = 0; i < ep->cqs; i++)
		(void)kvp_verbs_poll(ep->cq[i], ep->seen_ns);
	(void)kvp_verbs_pendings_try(ep, ep->seen_ns);
	ep->is_silent = true;
	for (uint32_t i = 0; i < ep->queues; i++) {
		struct kvp_verbs_queue *queue = &ep->queue[i];

		if (queue->is_ours)
			kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, ep->seen_ns);
		else if (queue->qp != NULL) /* control's, which waits for this call */
			(void)ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE);
	}
	kvp_verbs_pendings_drop(ep, 0, ep->seen_ns);
}
