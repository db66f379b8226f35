/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_chain.h"

#include <errno.h>

#include <arpa/inet.h>

#include "check.h"
#include "lane.h"

#define SHARE_BYTES (256U << 10) /* of a part, that are worth a QP of their own */
#define ROOM_BYTES  (64U << 10)  /* a window that is nearly full is left alone: no slivers */

/*
 * The next QP that is up and has room, or NULL. Data that ends with an immediate goes where the peer
 * has receives for one: else a push waits for a dry QP beside others that are not. None has: any.
 */
static inline struct kvp_verbs_queue *
queue_choose(struct kvp_verbs_endpoint *ep, bool needs_credit)
{
	struct kvp_verbs_queue *dry = NULL;
	uint32_t i = ep->next_queue, after_dry = i;

	for (uint32_t n = 0; n < ep->queues; n++) {
		struct kvp_verbs_queue *queue = &ep->queue[i];

		i = i + 1 == ep->queues ? 0 : i + 1;
		if ((ep->up & kvp_verbs_bit(queue)) == 0 ||
		    kvp_verbs_room(queue) <= KVP_VERBS_SQ_KEPT)
			continue;
		if (KVP_UNLIKELY(needs_credit && kvp_verbs_credit(queue) == 0)) {
			after_dry = dry == NULL ? i : after_dry;
			dry = dry == NULL ? queue : dry;
			continue;
		}
		ep->next_queue = i;
		return queue;
	}
	ep->next_queue = after_dry;
	return dry;
}

/* Bytes that are worth a QP of their own: a small part goes over all of them, too. */
static inline uint64_t
share_of(const struct kvp_verbs_endpoint *ep, const struct kvp_part *part, uint32_t ups)
{
	uint64_t share;

	if (KVP_LIKELY(part->bytes >= ups * ep->window_bytes))
		return ep->window_bytes;
	share = part->bytes / ups;
	return share < SHARE_BYTES ? SHARE_BYTES : share;
}

/* Bytes that the next chain may have; 0: the part's window is full, or no QP is up. */
static inline uint64_t
window_room(const struct kvp_verbs_endpoint *ep, const struct kvp_part *part, uint64_t left,
	    uint32_t *requests_out)
{
	uint32_t ups = (uint32_t)__builtin_popcount(ep->up);
	uint32_t requests = ups * ep->window_requests;
	uint64_t bytes = ups * ep->window_bytes, share;

	if (part->requests_inflight >= requests || part->bytes_inflight >= bytes)
		return 0;
	requests -= part->requests_inflight;
	*requests_out = requests < ep->window_requests ? requests : ep->window_requests;
	bytes -= part->bytes_inflight;
	if (bytes < left && bytes < ROOM_BYTES && part->bytes_inflight > 0)
		return 0;
	share = share_of(ep, part, ups);
	return bytes < share ? bytes : share;
}

/* Is the last request of the chain the part's last, so that its immediate can ride on it? */
static inline bool
is_telling(const struct kvp_verbs_endpoint *ep, const struct kvp_verbs_queue *queue,
	   const struct kvp_part *part, const struct kvp_cursor *cursor)
{
	return part->id != 0 && cursor->left == 0 &&
	       (cursor == &part->cursor || part->cursor.left == 0) && kvp_verbs_credit(queue) > 0 &&
	       (ep->orphans == 0 || !kvp_verbs_has_orphans(ep, part));
}

static inline void
tail_finish(const struct kvp_verbs_endpoint *ep, struct kvp_verbs_queue *queue,
	    const struct kvp_part *part, const struct kvp_cursor *cursor, struct ibv_send_wr *tail)
{
	struct kvp_verbs_request *entry = kvp_verbs_entry(queue, (uint32_t)tail->wr_id);

#ifndef KVP_BREAK_SIGNAL /* tests prove that they notice */
	tail->send_flags = IBV_SEND_SIGNALED;
#endif
	if (!is_telling(ep, queue, part, cursor))
		return;
	tail->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	tail->imm_data = htonl(part->id);
	entry->tag.is_message = true;
	entry->key = part->id;
}

KVP_COLD void
kvp_verbs_refused(struct kvp_verbs_queue *queue, int rc, uint64_t now_ns)
{
	/* A full queue empties itself; any other reason, or an empty queue that is called full, stays. */
	if (rc != ENOMEM || queue->posted == queue->retired)
		kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, now_ns);
	else
		queue->endpoint->busy |= kvp_verbs_bit(queue);
}

/* Only the requests before `bad` were taken. Returns how many. */
static KVP_COLD uint32_t
chain_refused(struct chain *chain, const struct ibv_send_wr *bad, struct kvp_cursor *cursor,
	      uint64_t end)
{
	const struct ibv_send_wr *wr = chain->ep->wr;
	uint32_t taken = 0;

	while (taken < chain_requests(chain) && &wr[taken] != bad)
		taken++;
	if (taken == chain_requests(chain))
		return taken; /* it names none: all may be under way, and the QP breaks */
	chain->open.at = kvp_verbs_entry(chain->queue, (uint32_t)wr[taken].wr_id)->first;
	kvp_cursor_init(cursor, cursor->plan, chain->open.at, end - chain->open.at);
	return taken;
}

/* The device has `taken` requests of `bytes` bytes more. */
static inline void
chain_account(const struct chain *chain, uint32_t taken, uint64_t bytes)
{
	struct kvp_verbs_queue *queue = chain->queue;
	struct kvp_part *part = chain->part;
	struct kvp_verbs_request *last = kvp_verbs_entry(queue, queue->posted + taken - 1);
	bool is_telling = last->tag.is_message;

	queue->posted += taken;
	if (KVP_LIKELY(taken == chain_requests(chain))) {
		last->tag.number = (uint8_t)taken;
		last->chain_bytes = (uint32_t)bytes;
		queue->signaled = queue->posted;
		queue->sent += is_telling;
		part->told |= is_telling ? kvp_verbs_bit(queue) : 0;
	}
	part->passed |= kvp_verbs_bit(queue);
	if (part->id != 0)
		part->carried |= kvp_verbs_bit(queue);
	part->requests_inflight += taken;
	part->bytes_inflight += bytes;
	atomic_fetch_add_explicit(&part->transfer->requests, taken, memory_order_relaxed);
	kvp_total_add(&chain->ep->base.requests, taken);
	kvp_total_add(&chain->ep->gathered, taken + chain->open.gathered);
	kvp_total_add(&chain->ep->doorbells, 1);
}

/* Hand the chain to the device and account for what it took. Returns requests. */
static inline uint32_t
chain_send(struct chain *chain, struct kvp_cursor *cursor, uint64_t end, uint64_t start,
	   uint64_t now_ns)
{
	struct ibv_send_wr *tail = chain->open.wr - 1;
	struct ibv_send_wr *bad = NULL;
	uint32_t taken = chain_requests(chain);
	int rc;

	tail->next = NULL;
	rc = ibv_post_send(chain->queue->qp, chain->ep->wr, &bad);
	/* As the next chain expects them. */
	tail->next = tail + 1;
	tail->opcode = chain->ep->wr_opcode;
	tail->send_flags = 0;
	if (KVP_UNLIKELY(rc != 0))
		taken = chain_refused(chain, bad, cursor, end);
	if (KVP_LIKELY(taken > 0))
		chain_account(chain, taken, chain->open.at - start);
	if (KVP_UNLIKELY(rc != 0)) {
		if (chain->queue->posted != chain->queue->signaled)
			chain->ep->busy |= kvp_verbs_bit(chain->queue);
		kvp_verbs_refused(chain->queue, taken == chain_requests(chain) ? EIO : rc, now_ns);
	}
	return taken;
}

static void
direction_change(struct kvp_verbs_endpoint *ep, enum ibv_wr_opcode opcode)
{
	ep->wr_opcode = opcode;
	for (uint32_t i = 0; i < KVP_VERBS_CHAIN; i++) {
		ep->wr[i].opcode = opcode;
		ep->wr[i].next = &ep->wr[i + 1];
		ep->wr[i].sg_list = ep->sge[i];
		ep->wr[i].send_flags = 0;
	}
}

static inline void
chain_start(struct chain *chain, struct kvp_verbs_endpoint *ep, struct kvp_verbs_queue *queue,
	    struct kvp_part *part, uint64_t start, uint32_t requests)
{
	uint32_t room = kvp_verbs_room(queue) - KVP_VERBS_SQ_KEPT, before_wrap = 0 - queue->posted;
	const struct kvp_transfer *transfer = part->transfer;
	const struct kvp_local_cache *cache =
		kvp_lane_cache_find(ep->base.lane, transfer->local_cache);
	const struct kvp_verbs_held *held =
		cache == NULL ? NULL : cache->held[ep->slot_of_transport];
	enum ibv_wr_opcode opcode = transfer->is_push ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	uint8_t kind = transfer->is_push ? KVP_VERBS_WRITE : KVP_VERBS_READ;

	if (KVP_UNLIKELY(ep->wr_opcode != opcode || ep->wr[0].next == NULL))
		direction_change(ep, opcode);
	if (room < requests)
		requests = room;
	/* wr_ids count on over the chain: the sequence must not carry into what is above it. */
	if (KVP_UNLIKELY(before_wrap != 0 && before_wrap < requests))
		requests = before_wrap;
	chain->ep = ep;
	chain->queue = queue;
	chain->part = part;
	chain->cache = transfer->view->cache;
	chain->remote_spans = transfer->view->spans;
	chain->local_spans = held == NULL ? NULL : held->spans;
	chain->limits = ep->limits[queue->rail];
	chain->tag = (struct kvp_verbs_tag){.kind = kind, .queue = (uint8_t)queue->index};
	chain->end = ep->wr + (requests < KVP_VERBS_CHAIN ? requests : KVP_VERBS_CHAIN);
	chain->lost = held == NULL ? KVP_CACHE_NOT_EXIST : KVP_SUCCESS;
	chain->place = (struct place){.tensor = UINT32_MAX};
	chain->open = (struct open){
		.wr = ep->wr,
		.wr_id = kvp_verbs_wr_id(kind, queue->place, queue->generation, queue->posted),
		.at = start,
	};
}

uint32_t
kvp_verbs_post_chain(struct kvp_verbs_endpoint *ep, struct kvp_part *part,
		     struct kvp_cursor *cursor, uint64_t end, uint64_t now_ns)
{
	uint64_t start = end - cursor->left, bytes_max;
	struct kvp_verbs_queue *queue;
	uint32_t requests = 0;
	struct chain chain;

	bytes_max = window_room(ep, part, cursor->left, &requests);
	queue = bytes_max == 0 ? NULL : queue_choose(ep, part->id != 0);
	if (queue == NULL)
		return 0;
	chain_start(&chain, ep, queue, part, start, requests);
	if (KVP_LIKELY(chain.lost == KVP_SUCCESS))
		chain_fill(&chain, cursor, bytes_max);
	if (KVP_UNLIKELY(chain.lost != KVP_SUCCESS))
		kvp_transfer_stop(part->transfer,
				  chain.lost); /* the lane sees it and asks stop_part */
	if (chain.open.at != end - cursor->left)
		kvp_cursor_init(cursor, cursor->plan, chain.open.at, end - chain.open.at);
	if (chain.open.wr == ep->wr)
		return 0;
#ifdef KVP_BREAK_SGES /* tests prove that they notice */
	if (ep->wr[0].num_sge > 1)
		ep->sge[0][KVP_VERBS_SGES] = ep->sge[0][0], ep->sge[0][0] = ep->sge[0][1],
		ep->sge[0][1] = ep->sge[0][KVP_VERBS_SGES];
#endif
	tail_finish(ep, queue, part, cursor, chain.open.wr - 1);
	return chain_send(&chain, cursor, end, start, now_ns);
}

/* Of an open push whose layers have all landed: what they passed over has to be told. */
static KVP_COLD uint32_t
post_empty(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns)
{
	uint32_t work = 0;

	if (part->id == 0) {
		if (ep->slot_first == ep->slot_end)
			return 0;
		kvp_verbs_key_take(ep, part);
		work++;
	}
	if (part->carried != part->told)
		work += kvp_verbs_tell(ep, part, now_ns);
	kvp_verbs_part_check(ep, part, now_ns); /* it may be gone */
	return work;
}

uint32_t
kvp_verbs_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);
	uint32_t work = 0;

	if (KVP_UNLIKELY(ep->orphans != 0)) {
		work = kvp_verbs_post_again(ep, part, now_ns);
		/* Room for all orphans there can be: nothing new while half of it is used. */
		if (work != 0 || ep->orphans > ep->queues * KVP_VERBS_SQ)
			return work;
	}
	if (KVP_UNLIKELY(part->bytes == 0))
		return work + post_empty(ep, part, now_ns);
	if (part->cursor.left > 0) {
		if (part->id == 0 && part->transfer->has_notify) {
			if (ep->slot_first == ep->slot_end)
				return 0;
			kvp_verbs_key_take(ep, part);
		}
		work = kvp_verbs_post_chain(ep, part, &part->cursor, part->first + part->bytes,
					    now_ns);
	}
	if (part->cursor.left == 0 && part->carried != part->told)
		work += kvp_verbs_tell(ep, part, now_ns);
	return work;
}

bool
kvp_verbs_post_one(struct kvp_verbs_queue *queue, struct ibv_send_wr *wr,
		   const struct kvp_verbs_request *entry, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	struct ibv_send_wr *bad = NULL;
	int rc;

	KVP_ASSERT(kvp_verbs_room(queue) > 0);
	wr->wr_id =
		kvp_verbs_wr_id(entry->tag.kind, queue->place, queue->generation, queue->posted);
	wr->send_flags |= IBV_SEND_SIGNALED;
	*kvp_verbs_entry(queue, queue->posted) = *entry;
	rc = ibv_post_send(queue->qp, wr, &bad);
	if (KVP_UNLIKELY(rc != 0)) {
		kvp_verbs_refused(queue, rc, now_ns);
		return false;
	}
	queue->posted++;
	queue->signaled = queue->posted;
	queue->sent += entry->tag.is_message;
	if (entry->part != NULL)
		entry->part->requests_inflight++;
	kvp_total_add(&ep->doorbells, 1);
	return true;
}
