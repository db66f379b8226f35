/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>

#include <kvpush/cache.h>

#include "check.h"
#include "inbox.h"
#include "lane.h"
#include "verbs_lane.h"

/* --- keys ------------------------------------------------------------------------------ */

void
kvp_verbs_key_take(struct kvp_verbs_endpoint *ep, struct kvp_part *part)
{
	uint32_t slot = ep->slot[ep->slot_first++ & (KVP_VERBS_SLOTS - 1)];

	part->id = kvp_verbs_key(slot, ep->generation[slot]);
	ep->generation[slot] = ep->generation[slot] == 0xFFF ? 1 : ep->generation[slot] + 1U;
}

void
kvp_verbs_key_renew(struct kvp_verbs_endpoint *ep, struct kvp_part *part)
{
	uint32_t slot = kvp_verbs_slot_of(part->id);

	part->id = kvp_verbs_key(slot, ep->generation[slot]);
	ep->generation[slot] = ep->generation[slot] == 0xFFF ? 1 : ep->generation[slot] + 1U;
	part->told = 0;
	part->heard = 0;
}

void
kvp_verbs_key_give(struct kvp_verbs_endpoint *ep, const struct kvp_part *part)
{
	if (part->id != 0)
		ep->slot[ep->slot_end++ & (KVP_VERBS_SLOTS - 1)] =
			(uint16_t)kvp_verbs_slot_of(part->id);
}

/* --- to the peer -------------------------------------------------------------------------- */

static bool
has_room(const struct kvp_verbs_queue *queue)
{
	return kvp_verbs_room(queue) > KVP_VERBS_ROOM_MIN && kvp_verbs_credit(queue) > 0;
}

uint32_t
kvp_verbs_tell(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns)
{
	uint32_t due = part->carried & ~part->told;
	uint32_t work = 0;

	part->is_refused = false;
	if (ep->orphans != 0 && kvp_verbs_has_orphans(ep, part))
		return 0;
	/* One that broke waits for its fence, which proves the same. */
	for (uint32_t left = due & ep->up; left != 0; left &= left - 1) {
		struct kvp_verbs_queue *queue = &ep->queue[__builtin_ctz(left)];
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
			.imm_data = htonl(part->id),
			.wr.rdma = {.remote_addr = queue->peer_credit,
				    .rkey = queue->peer_credit_rkey},
		};
		const struct kvp_verbs_request entry = {
			.part = part,
			.tag.kind = KVP_VERBS_TELL,
			.tag.is_message = true,
			.tag.queue = (uint8_t)queue->index,
			.key = part->id,
		};

		if (has_room(queue) && kvp_verbs_post_one(queue, &wr, &entry, now_ns)) {
			part->told |= kvp_verbs_bit(queue);
			work++;
		} else {
			part->is_refused |= kvp_verbs_credit(queue) == 0;
		}
	}
	if (part->told != part->carried)
		ep->tells_due = 1; /* credit comes without a completion */
	return work;
}

/* What the peer needs to know that all parts have arrived. Their lanes wrote before the last part retired. */
static uint32_t
notification_encode(const struct kvp_part *own, uint8_t *out)
{
	const struct kvp_transfer *transfer = own->transfer;
	struct kvp_verbs_send send = {
		.cache = transfer->remote_cache,
		.tag = transfer->notify_tag,
		.bytes = transfer->plan.bytes,
		.parts = 1,
		.payload_bytes = transfer->notify_bytes,
		.layer = transfer->notify_layer,
	};

	KVP_ASSERT(transfer->parts <= KVP_VERBS_SEND_PARTS);
	for (uint32_t i = 0; i < transfer->parts; i++) {
		const struct kvp_part *part = &transfer->part[i];
		uint32_t at = part == own ? 0 : send.parts++;

		send.part[at] = (struct kvp_verbs_send_part){
			.endpoint = part->endpoint->index, .key = part->id, .mask = part->carried};
	}
	return kvp_verbs_send_encode(&send, transfer->notify_payload, out);
}

/* The one with most receives left, so that none runs dry beside others. */
static struct kvp_verbs_queue *
queue_for_send(struct kvp_verbs_endpoint *ep)
{
	struct kvp_verbs_queue *best = NULL;

	for (uint32_t left = ep->up; left != 0; left &= left - 1) {
		struct kvp_verbs_queue *queue = &ep->queue[__builtin_ctz(left)];

		if (queue->sends_free != 0 && has_room(queue) &&
		    (best == NULL || kvp_verbs_credit(queue) > kvp_verbs_credit(best)))
			best = queue;
	}
	return best;
}

/* Does the peer take nothing on any QP that is up? */
static bool
is_dry(const struct kvp_verbs_endpoint *ep)
{
	for (uint32_t left = ep->up; left != 0; left &= left - 1) {
		if (kvp_verbs_credit(&ep->queue[__builtin_ctz(left)]) > 0)
			return false;
	}
	return ep->up != 0;
}

static void
notification_post(struct kvp_verbs_queue *queue, struct kvp_part *part, uint64_t now_ns)
{
	uint32_t buffer = (uint32_t)__builtin_ctz(queue->sends_free);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)queue->mail->send[buffer],
			      .lkey = queue->mail_lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	const struct kvp_verbs_request entry = {
		.part = part,
		.tag.kind = KVP_VERBS_SEND,
		.tag.is_message = true,
		.tag.queue = (uint8_t)queue->index,
		.tag.number = (uint8_t)buffer,
		.key = part->id,
	};

	sge.length = notification_encode(part, queue->mail->send[buffer]);
	if (!kvp_verbs_post_one(queue, &wr, &entry, now_ns))
		return;
	queue->sends_free &= queue->sends_free - 1;
	part->passed |= kvp_verbs_bit(queue);
	part->notify_state = KVP_VERBS_NOTIFY_SENT;
}

int
kvp_verbs_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = kvp_verbs_of(endpoint);
	struct kvp_verbs_queue *queue;

	if (ep->claimed != KVP_VERBS_NO_SLOT && ep->claimed == kvp_verbs_slot_of(part->id))
		ep->claimed = KVP_VERBS_NO_SLOT; /* so long as the notification is under way */
	if (part->notify_state == KVP_VERBS_NOTIFY_DELIVERED) {
		kvp_verbs_key_give(ep, part);
		return 1;
	}
	part->is_refused = false;
	if (part->notify_state == KVP_VERBS_NOTIFY_SENT || ep->orphans > ep->queues * KVP_VERBS_SQ)
		return 0;
	queue = queue_for_send(ep);
	part->is_refused = queue == NULL && is_dry(ep);
	if (queue != NULL)
		notification_post(queue, part, now_ns);
	return 0;
}

/* --- receives and credits ------------------------------------------------------------------- */

static bool
receive_post(struct kvp_verbs_queue *queue, uint32_t buffer, uint64_t now_ns)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)queue->mail->recv[buffer],
			      .length = KVP_VERBS_MESSAGE_BYTES,
			      .lkey = queue->mail_lkey};
	struct ibv_recv_wr wr = {
		.wr_id = kvp_verbs_wr_id(KVP_VERBS_RECV, queue->place, queue->owned, buffer),
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad = NULL;

	if (KVP_UNLIKELY(ibv_post_recv(queue->qp, &wr, &bad) != 0)) {
		kvp_verbs_break(queue, IBV_WC_SUCCESS, 0, now_ns);
		return false;
	}
	queue->recv_posted |= UINT64_C(1) << buffer;
	queue->reposted++;
	return true;
}

bool
kvp_verbs_receives_post(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	for (uint32_t i = 0; i < KVP_VERBS_RQ; i++) {
		uint64_t bit = UINT64_C(1) << i;

		if (((queue->recv_posted | queue->recv_held) & bit) == 0 &&
		    !receive_post(queue, i, now_ns))
			return false;
	}
	return true;
}

static inline bool
is_up(const struct kvp_verbs_queue *queue)
{
	return (queue->endpoint->up & kvp_verbs_bit(queue)) != 0;
}

void
kvp_verbs_grant(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)&queue->mail->grant,
			      .length = sizeof(queue->mail->grant),
			      .lkey = queue->mail_lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = queue->inline_max >= sizeof(queue->mail->grant) ? IBV_SEND_INLINE : 0,
		.wr.rdma = {.remote_addr = queue->peer_credit, .rkey = queue->peer_credit_rkey},
	};
	const struct kvp_verbs_request entry = {.tag.kind = KVP_VERBS_CREDIT,
						.tag.queue = (uint8_t)queue->index};

	if (queue->reposted - queue->granted < KVP_VERBS_GRANT || queue->is_granting ||
	    !is_up(queue))
		return;
	if (kvp_verbs_room(queue) == 0) {
		queue->endpoint->busy |= kvp_verbs_bit(queue);
		return;
	}
	queue->mail->grant = queue->reposted;
	if (!kvp_verbs_post_one(queue, &wr, &entry, now_ns))
		return;
	queue->is_granting = true;
	queue->granted = queue->reposted;
}

/* The buffer is free again. A QP that broke meanwhile gets it back when it is rebuilt. */
static void
receive_return(struct kvp_verbs_queue *queue, uint32_t buffer, uint64_t now_ns)
{
	queue->recv_held &= ~(UINT64_C(1) << buffer);
	/* An UP QP that broke is not ours to post to. READY: not all of them have been posted yet. */
	if (is_up(queue) && receive_post(queue, buffer, now_ns))
		kvp_verbs_grant(queue, now_ns);
}

/* --- from the peer ---------------------------------------------------------------------------- */

static KVP_COLD void
refuse(struct kvp_verbs_queue *queue, uint64_t now_ns)
{
	kvp_total_add(&queue->endpoint->refused, 1);
	kvp_verbs_fail(queue->endpoint, KVP_PROTOCOL, now_ns);
}

static inline void
immediate(struct kvp_verbs_queue *queue, uint32_t key, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	uint32_t bit = kvp_verbs_bit(queue);
	struct kvp_verbs_arrival *arrival;
	uint64_t word;
	uint32_t known;

	if (KVP_UNLIKELY(key == 0 || kvp_verbs_slot_of(key) >= KVP_VERBS_SLOTS)) {
		refuse(queue, now_ns);
		return;
	}
	arrival = &ep->arrival[kvp_verbs_slot_of(key)];
	word = atomic_load_explicit(&arrival->word, memory_order_relaxed);
	known = (uint32_t)(word >> 32);
	if (known == key && ((uint32_t)word & bit) == 0)
		word |= bit;
	else if (kvp_verbs_is_newer(key, known))
		word = (uint64_t)key << 32 | bit;
	else
		kvp_total_add(&ep->stale, 1);
	/* Pairs with has_arrived() on other lanes: what the device wrote before is there for them too. */
	atomic_store_explicit(&arrival->word, word, memory_order_release);
}

static inline bool
part_has_arrived(const struct kvp_verbs_endpoint *ep, const struct kvp_verbs_send_part *part)
{
	struct kvp_endpoint *const *all = ep->base.path->endpoint;
	const struct kvp_verbs_endpoint *of = kvp_verbs_of(all[part->endpoint]);
	uint64_t word = atomic_load_explicit(&of->arrival[kvp_verbs_slot_of(part->key)].word,
					     memory_order_acquire);
	uint32_t known = (uint32_t)(word >> 32);

	if (part->mask == 0)
		return true; /* carried by QPs that both ends have reset since */
	/* The sender uses a slot again only when all immediates of the key before have arrived. */
	return known == part->key ? ((uint32_t)word & part->mask) == part->mask
				  : kvp_verbs_is_newer(known, part->key);
}

static bool
has_arrived(const struct kvp_verbs_endpoint *ep, const struct kvp_verbs_send *send)
{
	for (uint32_t i = 0; i < send->parts; i++) {
		if (!part_has_arrived(ep, &send->part[i]))
			return false;
	}
	return true;
}

/* The peer's word on endpoints, slots and QPs. */
static bool
is_sound(const struct kvp_verbs_endpoint *ep, const struct kvp_verbs_send *send)
{
	if (send->part[0].endpoint != ep->base.index)
		return false;
	for (uint32_t i = 0; i < send->parts; i++) {
		const struct kvp_verbs_send_part *part = &send->part[i];

		if (part->endpoint >= ep->base.path->config.endpoints || part->key == 0 ||
		    kvp_verbs_slot_of(part->key) >= KVP_VERBS_SLOTS ||
		    (uint64_t)part->mask >> ep->queues != 0)
			return false;
	}
	return true;
}

static void
event_put(struct kvp_verbs_endpoint *ep, struct kvp_event *event, const struct kvp_verbs_send *send,
	  const uint8_t *payload)
{
	kvp_event_arrived(event, send->layer);
	event->cluster_id = ep->base.path->config.peer_cluster;
	event->cache = send->cache;
	event->tag = send->tag;
	event->bytes = send->bytes;
	event->payload_bytes = send->payload_bytes;
	memcpy(event->payload, payload, send->payload_bytes);
	kvp_inbox_put(ep->inbox, kvp_lane_index(ep->base.lane), event);
}

/* Publish a notification, or drop it. False: it has to wait. */
static bool
deliver(struct kvp_verbs_endpoint *ep, const struct kvp_verbs_send *send, const uint8_t *payload)
{
	const struct kvp_local_cache *cache = kvp_lane_cache_find(ep->base.lane, send->cache);
	struct kvp_verbs_arrival *arrival = &ep->arrival[kvp_verbs_slot_of(send->part[0].key)];
	struct kvp_event *event;

	/* Released meanwhile, or sent again though it had arrived. */
	if (ep->is_silent || cache == NULL ||
	    !kvp_verbs_is_newer(send->part[0].key, arrival->published)) {
		kvp_total_add(&ep->stale, 1);
		return true;
	}
	if (!has_arrived(ep, send))
		return false;
	event = kvp_inbox_take(ep->inbox);
	if (event == NULL)
		return false;
	if (cache->memory != NULL && cache->memory->make_visible != NULL)
		cache->memory->make_visible(cache->memory->ctx);
	arrival->published = send->part[0].key;
	event_put(ep, event, send, payload);
	return true;
}

/* True: the buffer is free. */
static bool
notification(struct kvp_verbs_queue *queue, uint32_t buffer, uint32_t bytes, uint64_t now_ns)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;
	struct kvp_verbs_pending *pending = &ep->pending[ep->pendings];

	KVP_ASSERT(ep->pendings < ep->queues * KVP_VERBS_RQ);
	if (bytes > KVP_VERBS_MESSAGE_BYTES ||
	    !kvp_verbs_send_decode(queue->mail->recv[buffer], bytes, &pending->send,
				   &pending->payload) ||
	    !is_sound(ep, &pending->send)) {
		refuse(queue, now_ns);
		return true;
	}
	/* One that waits for others' immediates may have them now: a layer comes before its push. */
	if (ep->pendings != 0) {
		struct kvp_verbs_pending last = *pending;

		(void)kvp_verbs_pendings_try(ep, now_ns);
		pending = &ep->pending[ep->pendings];
		*pending = last;
	}
	if (deliver(ep, &pending->send, pending->payload))
		return true;
	pending->queue = (uint8_t)queue->index;
	pending->recv = (uint8_t)buffer;
	queue->recv_held |= UINT64_C(1) << buffer;
	ep->pendings++;
	return false;
}

void
kvp_verbs_received(struct kvp_verbs_queue *queue, const struct ibv_wc *wc, uint64_t now_ns)
{
	uint32_t buffer = (uint32_t)wc->wr_id % KVP_VERBS_RQ;
	uint64_t bit = UINT64_C(1) << buffer;

	if (KVP_UNLIKELY((queue->recv_posted & bit) == 0)) {
		queue->cq->stale++;
		return;
	}
	queue->recv_posted &= ~bit;
	queue->taken++;
	if (KVP_UNLIKELY(queue->endpoint->is_silent))
		return;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		immediate(queue, ntohl(wc->imm_data), now_ns);
	else if (!notification(queue, buffer, wc->byte_len, now_ns))
		return;
	receive_return(queue, buffer, now_ns);
}

static void
pending_remove(struct kvp_verbs_endpoint *ep, uint32_t i, uint64_t now_ns)
{
	struct kvp_verbs_queue *queue = &ep->queue[ep->pending[i].queue];
	uint32_t buffer = ep->pending[i].recv;

	/* Those behind it keep their order. */
	ep->pendings--;
	memmove(&ep->pending[i], &ep->pending[i + 1], (ep->pendings - i) * sizeof(ep->pending[0]));
	receive_return(queue, buffer, now_ns);
}

uint32_t
kvp_verbs_pendings_try(struct kvp_verbs_endpoint *ep, uint64_t now_ns)
{
	uint32_t work = 0;

	for (uint32_t i = 0; i < ep->pendings;) {
		if (!deliver(ep, &ep->pending[i].send, ep->pending[i].payload)) {
			i++;
			continue;
		}
		pending_remove(ep, i, now_ns);
		work++;
	}
	return work;
}

KVP_COLD void
kvp_verbs_pendings_drop(struct kvp_verbs_endpoint *ep, int64_t cache_id, uint64_t now_ns)
{
	for (uint32_t i = ep->pendings; i > 0; i--) {
		if (cache_id != 0 && ep->pending[i - 1].send.cache != cache_id)
			continue;
		kvp_total_add(&ep->stale, 1);
		pending_remove(ep, i - 1, now_ns);
	}
}
