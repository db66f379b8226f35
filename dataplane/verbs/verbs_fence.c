/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_lane.h"

#include "check.h"
#include "lane.h"
#include "reactor.h"

#ifdef KVP_BREAK_FENCE /* tests prove that they notice */
#define IS_FENCE_AWAITED false
#else
#define IS_FENCE_AWAITED true
#endif

static uint32_t
orphans_max(const struct kvp_verbs_endpoint *ep)
{
	return 2 * ep->queues * KVP_VERBS_SQ;
}

bool
kvp_verbs_has_orphans(const struct kvp_verbs_endpoint *ep, const struct kvp_part *part)
{
	uint32_t left = ep->orphans;

	for (uint32_t i = 0; left > 0; i++) {
		if (ep->orphan[i].fate == KVP_VERBS_FREE)
			continue;
		if (ep->orphan[i].request.part == part)
			return true;
		left--;
	}
	return false;
}

static void
orphan_free(struct kvp_verbs_endpoint *ep, struct kvp_verbs_orphan *orphan)
{
	KVP_ASSERT(ep->orphans > 0 && orphan->fate != KVP_VERBS_FREE);
	orphan->fate = KVP_VERBS_FREE;
	ep->orphans--;
}

static struct kvp_verbs_orphan *
orphan_new(struct kvp_verbs_endpoint *ep)
{
	for (uint32_t i = 0; i < orphans_max(ep); i++) {
		if (ep->orphan[i].fate == KVP_VERBS_FREE) {
			ep->orphans++;
			return &ep->orphan[i];
		}
	}
	KVP_CHECK(false); /* there is room for every entry of every QP, twice */
	return NULL;
}

/* Nothing of it can land any more. */
static void
let_go(const struct kvp_verbs_orphan *orphan)
{
	struct kvp_part *part = orphan->request.part;

	KVP_ASSERT(part->requests_inflight > 0 && part->bytes_inflight >= orphan->request.bytes);
	part->requests_inflight--;
	part->bytes_inflight -= orphan->request.bytes;
}

static bool
is_ending(const struct kvp_part *part)
{
	return part->phase == KVP_PART_STOPPING || kvp_transfer_is_stopped(part->transfer);
}

/* What the fence says about one orphan. */
static void
settle(struct kvp_verbs_endpoint *ep, struct kvp_verbs_orphan *orphan, bool has_arrived)
{
	const struct kvp_verbs_request *request = &orphan->request;
	struct kvp_part *part = request->part;
	bool is_data = request->tag.kind == KVP_VERBS_WRITE || request->tag.kind == KVP_VERBS_READ;

	let_go(orphan);
	if (has_arrived && is_data) {
		part->bytes_done += request->bytes;
		kvp_total_add(&ep->base.bytes_out, request->bytes);
	} else if (request->tag.kind == KVP_VERBS_SEND) {
		part->notify_state =
			has_arrived ? KVP_VERBS_NOTIFY_DELIVERED : KVP_VERBS_NOTIFY_IDLE;
	} else if (!has_arrived && is_data && !is_ending(part)) {
		/* The receiver may have been told that all of this key was there. */
		if (part->told != 0)
			kvp_verbs_key_renew(ep, part);
		orphan->fate = KVP_VERBS_AGAIN;
		return;
	}
	orphan_free(ep, orphan);
}

/* Both ends of the QP are reset: what it carried needs no immediate any more. */
static void
parts_release(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	struct kvp_part *part = ep->base.active;

	for (uint32_t left = ep->base.parts; left > 0; left--) {
		struct kvp_part *next = part->next;

		part->passed &= ~kvp_verbs_bit(queue);
		part->carried &= ~kvp_verbs_bit(queue);
		part->told &= ~kvp_verbs_bit(queue);
		part->heard &= ~kvp_verbs_bit(queue);
		kvp_verbs_part_check(ep, part, now_ns);
		part = next;
	}
}

static void
fence_apply(struct kvp_verbs_queue *queue, uint32_t generation, uint32_t taken, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;

	for (uint32_t i = 0; ep->orphans > 0 && i < orphans_max(ep); i++) {
		struct kvp_verbs_orphan *orphan = &ep->orphan[i];
		bool has_arrived = false;

		if (orphan->fate != KVP_VERBS_DOUBT || orphan->request.tag.queue != queue->index ||
		    kvp_verbs_is_later(orphan->generation, generation))
			continue;
		/* The peer took messages in order, and what was written before one is there with it. */
		if (orphan->generation == generation && orphan->request.tag.kind != KVP_VERBS_READ)
			has_arrived = (int32_t)(taken - orphan->message) >= 0;
		settle(ep, orphan, has_arrived);
	}
	parts_release(queue, now_ns);
}

uint32_t
kvp_verbs_fence_check(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	/* Pairs with the control thread's store. */
	uint64_t word = atomic_load_explicit(&queue->fenced, memory_order_acquire);

	/* It may come first: then our own requests are still on their way out. */
	if (word == queue->fence_done ||
	    (queue->is_ours && !kvp_verbs_is_later(queue->owned, (uint32_t)(word >> 32))))
		return 0;
	queue->fence_done = word;
	fence_apply(queue, (uint32_t)(word >> 32), (uint32_t)word, now_ns);
	return 1;
}

/* --- a QP that breaks -------------------------------------------------------------------------- */

void
kvp_verbs_break(struct kvp_verbs_queue *queue, uint32_t wc_status, uint32_t vendor_error,
		uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!queue->is_ours)
		return;
	/* The first that is not a flush is the reason. */
	if (queue->first_error == IBV_WC_SUCCESS && wc_status != IBV_WC_WR_FLUSH_ERR) {
		queue->first_error = wc_status;
		queue->vendor_error = vendor_error;
	}
	if (atomic_load_explicit(&queue->phase, memory_order_relaxed) == KVP_VERBS_FLUSHING)
		return;
	ep->up &= ~kvp_verbs_bit(queue);
	ep->busy |= kvp_verbs_bit(queue);
	queue->broken_ns = now_ns;
	/* Refused: it is in ERR already, or the flushes will not come and it is destroyed. */
	(void)ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE);
	atomic_store_explicit(&queue->phase, KVP_VERBS_FLUSHING, memory_order_relaxed);
	kvp_total_add(&ep->breaks, 1);
}

/* Entries without a successful completion become orphans. */
static void
orphans_make(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	uint32_t message = queue->sent_done;

	for (uint32_t i = queue->retired; i != queue->posted; i++) {
		const struct kvp_verbs_request *entry = kvp_verbs_entry(queue, i);
		struct kvp_verbs_orphan *orphan;

		message += entry->tag.is_message;
		if (entry->part == NULL)
			continue;
		orphan = orphan_new(ep);
		orphan->request = *entry;
		orphan->fate = KVP_VERBS_DOUBT;
		orphan->generation = queue->owned;
		orphan->message = entry->tag.is_message ? message : message + 1;
		orphan->flushed_ns = now_ns;
		if ((ep->is_silent && !queue->is_stuck) || !IS_FENCE_AWAITED)
			settle(ep, orphan, false);
	}
	queue->retired = queue->posted;
}

void
kvp_verbs_flush_check(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	bool is_all = (queue->retired == queue->posted || queue->accounted == queue->posted) &&
		      queue->recv_posted == 0;

	if (!is_all && now_ns - queue->broken_ns < KVP_VERBS_FLUSH_NS)
		return;
	queue->is_stuck = !is_all;
	orphans_make(queue, now_ns);
	queue->recv_posted = 0;
	queue->is_ours = false;
	queue->is_probing = false;
	queue->is_granting = false;
	ep->busy &= ~kvp_verbs_bit(queue);
	/* Pairs with the control thread's look at the phase: from here on the QP is its. */
	atomic_store_explicit(&queue->phase, KVP_VERBS_FLUSHED, memory_order_release);
	kvp_reactor_wake(ep->base.path->config.dataplane->reactor);
	if (!IS_FENCE_AWAITED)
		parts_release(queue, now_ns);
	(void)kvp_verbs_fence_check(queue, now_ns);
}

/* --- orphans and their parts ---------------------------------------------------------------------- */

uint32_t
kvp_verbs_post_again(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns)
{
	for (uint32_t i = 0; i < orphans_max(ep); i++) {
		struct kvp_verbs_orphan *orphan = &ep->orphan[i];
		const struct kvp_verbs_request request = orphan->request;
		struct kvp_cursor cursor;
		uint32_t posted;

		if (orphan->fate != KVP_VERBS_AGAIN || request.part != part)
			continue;
		kvp_cursor_init(&cursor, &part->transfer->plan, request.first, request.bytes);
		orphan_free(ep, orphan);
		posted = kvp_verbs_post_chain(ep, part, &cursor, request.first + request.bytes,
					      now_ns);
		kvp_total_add(&ep->replayed, posted);
		if (cursor.left > 0) {
			orphan->fate = KVP_VERBS_AGAIN;
			orphan->request.first = request.first + request.bytes - cursor.left;
			orphan->request.bytes = (uint32_t)cursor.left;
			ep->orphans++;
		}
		return posted;
	}
	return 0;
}

/* Only what IS_FENCE_AWAITED leaves out: the part ends while its requests are under way. */
static void
forget(struct kvp_verbs_endpoint *ep, struct kvp_part *part)
{
	for (uint32_t i = 0; i < ep->queues * KVP_VERBS_SQ; i++) {
		struct kvp_verbs_request *entry =
			&ep->queue[i / KVP_VERBS_SQ].request[i % KVP_VERBS_SQ];

		if (entry->part == part)
			entry->part = NULL;
	}
	part->requests_inflight = 0;
}

void
kvp_verbs_orphans_drop(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns)
{
	for (uint32_t i = 0; ep->orphans > 0 && i < orphans_max(ep); i++) {
		struct kvp_verbs_orphan *orphan = &ep->orphan[i];

		if (orphan->fate == KVP_VERBS_FREE || orphan->request.part != part)
			continue;
		if (orphan->fate == KVP_VERBS_DOUBT) {
			if (now_ns - orphan->flushed_ns < KVP_VERBS_FENCE_NS &&
			    (!ep->is_silent || ep->queue[orphan->request.tag.queue].is_stuck) &&
			    IS_FENCE_AWAITED)
				continue;
			let_go(orphan);
		}
		orphan_free(ep, orphan);
	}
	if (!IS_FENCE_AWAITED)
		forget(ep, part);
}

void
kvp_verbs_fail(struct kvp_verbs_endpoint *ep, kvp_status why, uint64_t now_ns)
{
	struct kvp_part *part = ep->base.active;

	if (ep->failing != KVP_SUCCESS)
		return;
	ep->failing = why;
	ep->is_silent = true;
	for (uint32_t i = 0; i < ep->queues; i++)
		kvp_verbs_break(&ep->queue[i], IBV_WC_SUCCESS, 0, now_ns);
	for (uint32_t left = ep->base.parts; left > 0; left--, part = part->next)
		(void)kvp_transfer_stop(part->transfer, why);
}
