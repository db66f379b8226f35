/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "lane.h"
#include "verbs_lane.h"

#define BATCHES 4U /* calls of ibv_poll_cq per loop, while they return all they can */

/* The part's share of the transfer's pieces, in proportion to its bytes. */
static uint64_t
pieces_of(const struct kvp_part *part)
{
	const struct kvp_plan *plan = &part->transfer->plan;

	if (part->bytes == plan->bytes)
		return plan->pieces;
	return (uint64_t)((double)plan->pieces * ((double)part->bytes / (double)plan->bytes) + 0.5);
}

/* What a device wrote into an accelerator's memory, the accelerator must be made to see. */
static KVP_COLD void
pulled(struct kvp_verbs_endpoint *ep, const struct kvp_part *part)
{
	const struct kvp_local_cache *cache =
		kvp_lane_cache_find(ep->base.lane, part->transfer->local_cache);

	if (cache != NULL && cache->memory != NULL && cache->memory->make_visible != NULL)
		cache->memory->make_visible(cache->memory->ctx);
}

void
kvp_verbs_part_check(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns)
{
	if (part->bytes_done != part->bytes || part->requests_inflight != 0 ||
	    part->heard != part->carried || part->phase != KVP_PART_MOVING)
		return;
	if (!part->transfer->is_push)
		pulled(ep, part);
	kvp_total_add(&ep->base.pieces, pieces_of(part));
	/* The slot stays the part's when it turns out to be the one that notifies. */
	ep->claimed = part->id == 0 ? KVP_VERBS_NO_SLOT : kvp_verbs_slot_of(part->id);
	kvp_lane_part_moved(&ep->base, part, now_ns);
	if (ep->claimed != KVP_VERBS_NO_SLOT) {
		ep->slot[ep->slot_end++ & (KVP_VERBS_SLOTS - 1)] = (uint16_t)ep->claimed;
		ep->claimed = KVP_VERBS_NO_SLOT;
	}
}

/* So many requests of the part with so many bytes have landed. */
static inline void
landed(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint32_t requests, uint64_t bytes,
       uint64_t now_ns)
{
	KVP_ASSERT(part->requests_inflight >= requests && part->bytes_inflight >= bytes);
	part->requests_inflight -= requests;
	part->bytes_inflight -= bytes;
	part->bytes_done += bytes;
	kvp_total_add(part->transfer->is_push ? &ep->base.bytes_out : &ep->base.bytes_in, bytes);
	kvp_verbs_part_check(ep, part, now_ns);
}

/* A completed entry that is more than data. */
static void
message_retire(struct kvp_verbs_queue *queue, const struct kvp_verbs_request *entry)
{
	queue->sent_done += entry->tag.is_message;
	switch ((enum kvp_verbs_kind)entry->tag.kind) {
	case KVP_VERBS_WRITE:
	case KVP_VERBS_TELL:
		if (entry->part != NULL && entry->key == entry->part->id)
			entry->part->heard |= kvp_verbs_bit(queue);
		break;
	case KVP_VERBS_SEND:
		queue->sends_free |= UINT32_C(1) << entry->tag.number;
		if (entry->part != NULL)
			entry->part->notify_state = KVP_VERBS_NOTIFY_DELIVERED;
		break;
	case KVP_VERBS_CREDIT:
		queue->is_granting = false;
		queue->endpoint->busy |= kvp_verbs_bit(queue); /* maybe there is more to grant */
		break;
	case KVP_VERBS_PROBE:
		queue->is_probing = false;
		queue->endpoint->busy |= kvp_verbs_bit(queue); /* it is proven, if it was not */
		break;
	case KVP_VERBS_READ:
	case KVP_VERBS_RECV:
		break;
	}
}

/* Entry by entry: what one completion of something else than one whole chain says. */
static void
each_retire(struct kvp_verbs_queue *queue, uint32_t through, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	uint32_t at = queue->retired, from = at;
	struct kvp_part *part = NULL;
	uint64_t bytes = 0;

	while (at != through + 1) {
		const struct kvp_verbs_request *entry = kvp_verbs_entry(queue, at);

		if (entry->part != part) {
			if (part != NULL)
				landed(ep, part, at - from, bytes, now_ns);
			part = entry->part;
			from = at;
			bytes = 0;
		}
		/* What follows may post: into the places of those before. */
		queue->retired = ++at;
		bytes += entry->bytes;
		if (entry->tag.is_message || entry->tag.kind > KVP_VERBS_READ)
			message_retire(queue, entry);
	}
	if (part != NULL)
		landed(ep, part, at - from, bytes, now_ns);
}

void
kvp_verbs_retire(struct kvp_verbs_queue *queue, uint32_t through, uint64_t now_ns)
{
	const struct kvp_verbs_request *last = kvp_verbs_entry(queue, through);
	uint32_t count = through + 1 - queue->retired;

	if (KVP_UNLIKELY(count - 1 >= queue->posted - queue->retired)) {
		queue->cq->stale++;
	} else if (KVP_LIKELY(last->tag.kind <= KVP_VERBS_READ && last->tag.number == count &&
			      last->part != NULL)) {
		queue->retired += count;
		if (last->tag.is_message)
			message_retire(queue, last);
		landed(queue->endpoint, last->part, count, last->chain_bytes, now_ns);
	} else {
		each_retire(queue, through, now_ns);
	}
}

/* What the peer's or our own memory refused will be refused again: it is not the rail's fault. */
static kvp_status
blame(uint32_t wc_status)
{
	switch (wc_status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return KVP_CACHE_NOT_EXIST;
	case IBV_WC_LOC_LEN_ERR:
		return KVP_PROTOCOL;
	default: /* REM_INV_REQ too: a responder whose QP breaks in the middle of a request says so */
		return KVP_SUCCESS;
	}
}

/* Only wr_id, status and vendor_err of it mean anything. */
static KVP_COLD void
failed(struct kvp_verbs_queue *queue, const struct ibv_wc *wc, uint64_t now_ns)
{
	uint32_t sequence = (uint32_t)wc->wr_id;

	if (wc->wr_id >> 60 == KVP_VERBS_RECV) {
		queue->recv_posted &= ~(UINT64_C(1) << (sequence % KVP_VERBS_RQ));
	} else if (sequence - queue->retired < queue->posted - queue->retired) {
		const struct kvp_verbs_request *entry = kvp_verbs_entry(queue, sequence);

		queue->accounted = sequence + 1;
		if (entry->part != NULL && entry->bytes > 0 && blame(wc->status) != KVP_SUCCESS)
			kvp_transfer_stop(entry->part->transfer, blame(wc->status));
	} else {
		queue->cq->stale++;
	}
	kvp_verbs_break(queue, wc->status, wc->vendor_err, now_ns);
	queue->endpoint->busy |= kvp_verbs_bit(queue);
}

static inline void
completed(struct kvp_verbs_cq *cq, const struct ibv_wc *wc, uint64_t now_ns)
{
	uint32_t place = (uint32_t)(wc->wr_id >> 44) & 0xFFFFU;
	struct kvp_verbs_queue *queue = place < KVP_VERBS_CQ_QPS ? cq->queue[place] : NULL;

	/* `owned` is the lane's own: what is being rebuilt by others is not looked at. */
	if (KVP_UNLIKELY(queue == NULL || !queue->is_ours ||
			 ((queue->owned ^ (uint32_t)(wc->wr_id >> 32)) & 0xFFFU) != 0)) {
		cq->stale++;
		return;
	}
	kvp_total_add(&queue->endpoint->completions, 1);
	if (KVP_UNLIKELY(wc->status != IBV_WC_SUCCESS))
		failed(queue, wc, now_ns);
	else if (KVP_LIKELY(wc->wr_id >> 60 != KVP_VERBS_RECV))
		kvp_verbs_retire(queue, (uint32_t)wc->wr_id, now_ns);
	else
		kvp_verbs_received(queue, wc, now_ns);
}

uint32_t
kvp_verbs_poll(struct kvp_verbs_cq *cq, uint64_t now_ns)
{
	struct ibv_wc wc[KVP_VERBS_POLL];
	uint32_t done = 0;
	int count = (int)KVP_VERBS_POLL;

	cq->polled_ns = now_ns;
	for (uint32_t batch = 0; batch < BATCHES && count == (int)KVP_VERBS_POLL; batch++) {
		count = ibv_poll_cq(cq->cq, (int)KVP_VERBS_POLL, wc);
		for (int i = 0; i < count; i++)
			completed(cq, &wc[i], now_ns);
		done += count > 0 ? (uint32_t)count : 0;
	}
	return done;
}

uint32_t
kvp_verbs_progress(struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);
	uint32_t work = 0;

	ep->seen_ns = now_ns;
	for (uint32_t i = 0; i < ep->cqs; i++) {
		if (ep->cq[i]->polled_ns != now_ns)
			work += kvp_verbs_poll(ep->cq[i], now_ns);
	}
	if (KVP_UNLIKELY(ep->pendings != 0))
		work += kvp_verbs_pendings_try(ep, now_ns);
	/* Pairs with what control stores before it counts up. */
	if (KVP_UNLIKELY(ep->busy != 0 || ep->failing != KVP_SUCCESS ||
			 atomic_load_explicit(&ep->attention, memory_order_acquire) !=
				 ep->attended))
		work += kvp_verbs_attend(ep, now_ns);
	return work;
}
