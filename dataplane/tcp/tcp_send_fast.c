/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"

#include <errno.h>
#include <string.h>

#include <sys/socket.h>

#include "check.h"
#include "lane.h"

/* Never written: what is sent in the place of memory that was withdrawn. */
static uint8_t zeros[64U << 10];

_Static_assert(KVP_TCP_PAYLOAD / sizeof(zeros) + 3 <= KVP_TCP_EXTENTS, "zeros fit the iovec");

static void
tx_start(struct kvp_tcp_tx *tx, size_t head_bytes)
{
	tx->iov[0] = (struct iovec){.iov_base = tx->head, .iov_len = head_bytes};
	tx->iov_first = 0;
	tx->iovs = 1;
	tx->slot = KVP_TCP_NO_SLOT;
	tx->is_serving = false;
}

static void
tx_advance(struct kvp_tcp_tx *tx, size_t sent)
{
	while (sent > 0) {
		struct iovec *iov = &tx->iov[tx->iov_first];

		if (sent < iov->iov_len) {
			iov->iov_base = (uint8_t *)iov->iov_base + sent;
			iov->iov_len -= sent;
			return;
		}
		sent -= iov->iov_len;
		tx->iov_first++;
	}
}

bool
kvp_tcp_flush(struct kvp_tcp_endpoint *ep, uint64_t now_ns)
{
	struct kvp_tcp_tx *tx = &ep->tx;
	struct msghdr msg = {.msg_iov = &tx->iov[tx->iov_first],
			     .msg_iovlen = tx->iovs - tx->iov_first};
	ssize_t sent;

	if (!kvp_tcp_tx_is_busy(ep))
		return true;
	sent = sendmsg(ep->base.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno != EAGAIN && errno != EINTR)
			kvp_tcp_fail(ep, KVP_PEER_LOST, now_ns);
		return false;
	}
	tx_advance(tx, (size_t)sent);
	if (kvp_tcp_tx_is_busy(ep))
		return false; /* a short send means a full socket: EPOLLOUT says when to go on */
	tx->slot = KVP_TCP_NO_SLOT;
	tx->is_serving = false;
	KVP_ASSERT(kvp_tcp_tx_ok(ep));
	return true;
}

/* After a message was begun outside of progress: ask for writability when it is stuck. */
static void
send_now(struct kvp_tcp_endpoint *ep, uint64_t now_ns)
{
	if (kvp_tcp_flush(ep, now_ns) || ep->is_dead || ep->is_write_wanted)
		return;
	ep->is_write_wanted = true;
	kvp_lane_want_write(&ep->base, true);
}

static uint32_t
slot_claim(struct kvp_tcp_endpoint *ep, struct kvp_part *part, uint8_t type)
{
	uint32_t index = (uint32_t)__builtin_ctzll(ep->slots_free);

	ep->slots_free &= ep->slots_free - 1; /* the lowest first: few slots stay in the cache */
	ep->slot[index] = (struct kvp_tcp_slot){
		.part = part,
		.request = ++ep->generation << 8 | index,
		.type = type,
	};
	part->requests_inflight++;
	return index;
}

uint32_t
kvp_tcp_slot_find(const struct kvp_tcp_endpoint *ep, uint32_t request, uint8_t type)
{
	uint32_t index = request & 0xFF;

	if (index >= KVP_TCP_REQUESTS || ep->slot[index].type != type ||
	    ep->slot[index].request != request)
		return KVP_TCP_NO_SLOT;
	if (index == ep->tx.slot)
		return KVP_TCP_NO_SLOT; /* answered before it left: its memory is still being sent */
	return index;
}

/* Bytes that the next request may have; 0: the window is full. */
static uint64_t
window_room(const struct kvp_tcp_endpoint *ep, const struct kvp_part *part)
{
	uint64_t left = part->cursor.left;
	uint64_t room;

	if (part->requests_inflight >= ep->window_requests ||
	    part->bytes_inflight >= ep->window_bytes)
		return 0;
	room = ep->window_bytes - part->bytes_inflight;
	if (room < left && room < KVP_TCP_ROOM_MIN && part->bytes_inflight > 0)
		return 0;
	return room < KVP_TCP_PAYLOAD ? room : KVP_TCP_PAYLOAD;
}

/* The extents of a request behind its preamble; the local side of them to `iov`. Returns their bytes. */
static uint32_t
extents_put(const struct kvp_extent *extent, uint32_t count, uint8_t *out, struct iovec *iov)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_tcp_extent wire = {
			.tensor = extent[i].remote_tensor,
			.bytes = extent[i].bytes,
			.offset = extent[i].remote_offset,
		};

		kvp_tcp_extent_encode(&wire, out + i * KVP_TCP_EXTENT);
		iov[i] = (struct iovec){.iov_base = extent[i].local, .iov_len = extent[i].bytes};
		bytes += extent[i].bytes;
	}
	return bytes;
}

uint32_t
kvp_tcp_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);
	const struct kvp_transfer *transfer = part->transfer;
	struct kvp_extent extent[KVP_TCP_EXTENTS];
	struct kvp_tcp_tx *tx = &ep->tx;
	uint64_t room = window_room(ep, part);
	uint32_t count, index;

	/* Of an open push, whose layers have all been acknowledged. */
	if (KVP_UNLIKELY(part->bytes == 0)) {
		kvp_lane_part_moved(endpoint, part, now_ns);
		return 1;
	}
	if (ep->is_dead || part->cursor.left == 0 || room == 0 || ep->slots_free == 0)
		return 0;
	if (kvp_tcp_tx_is_busy(ep)) {
		ep->is_post_waiting = true;
		return 0;
	}
	count = kvp_cursor_next(&part->cursor, KVP_TCP_EXTENTS, room, extent);
	if (count == 0)
		return 0;
	index = slot_claim(ep, part, transfer->is_push ? KVP_TCP_WRITE : KVP_TCP_READ);
	tx_start(tx, KVP_TCP_PREAMBLE + (size_t)count * KVP_TCP_EXTENT);
	tx->slot = index;
	ep->slot[index].iovs = (uint8_t)count;
	ep->slot[index].bytes = extents_put(extent, count, tx->head + KVP_TCP_PREAMBLE,
					    transfer->is_push ? &tx->iov[1] : ep->slot_iov[index]);
	if (transfer->is_push)
		tx->iovs += count;
	kvp_tcp_preamble_encode(&(struct kvp_tcp_preamble){.type = ep->slot[index].type,
							   .extents = (uint16_t)count,
							   .bytes = ep->slot[index].bytes,
							   .request = ep->slot[index].request,
							   .cache = transfer->remote_cache},
				tx->head);
	part->bytes_inflight += ep->slot[index].bytes;
	KVP_ASSERT(part->bytes_inflight <= ep->window_bytes);
	atomic_fetch_add_explicit(&part->transfer->requests, 1, memory_order_relaxed);
	kvp_total_add(&endpoint->requests, 1);
	kvp_total_add(&endpoint->pieces, count);
	ep->is_post_waiting = false;
	send_now(ep, now_ns); /* the part may be gone after this */
	return 1;
}

static void
notify_answered(struct kvp_part *part, kvp_status status, uint64_t now_ns)
{
	if (status == KVP_SUCCESS) {
		part->notify_state = KVP_NOTIFY_DELIVERED;
		return;
	}
	if (status != KVP_NO_CREDIT) {
		kvp_transfer_stop(part->transfer, status);
		return;
	}
	part->notify_state = KVP_NOTIFY_REFUSED;
	part->id = (uint32_t)(now_ns >> 10); /* no acknowledgement is found by it: free for this */
}

bool
kvp_tcp_answered(struct kvp_tcp_endpoint *ep, uint32_t slot, kvp_status status, uint64_t now_ns)
{
	struct kvp_tcp_slot done;
	struct kvp_part *part;

	if (slot == KVP_TCP_NO_SLOT)
		return false;
	done = ep->slot[slot];
	part = done.part;
	ep->slot[slot] = (struct kvp_tcp_slot){0};
	ep->slots_free |= UINT64_C(1) << slot;
	KVP_ASSERT(part->requests_inflight > 0 && part->bytes_inflight >= done.bytes);
	part->requests_inflight--;
	part->bytes_inflight -= done.bytes;
	if (done.type == KVP_TCP_NOTIFY) {
		notify_answered(part, status, now_ns);
		return true;
	}
	if (status != KVP_SUCCESS) {
		kvp_transfer_stop(part->transfer, status);
		return true;
	}
	part->bytes_done += done.bytes;
	kvp_total_add(done.type == KVP_TCP_READ ? &ep->base.bytes_in : &ep->base.bytes_out,
		      done.bytes);
	if (part->bytes_done == part->bytes && part->phase == KVP_PART_MOVING)
		kvp_lane_part_moved(&ep->base, part, now_ns);
	return true;
}

/* 1: may send, 0: not now, 2: delivered. */
static int
notify_due(const struct kvp_part *part, uint64_t now_ns)
{
	switch ((enum kvp_tcp_notify)part->notify_state) {
	case KVP_NOTIFY_DELIVERED:
		return 2;
	case KVP_NOTIFY_SENT:
		return 0;
	case KVP_NOTIFY_REFUSED:
		return part->requests_inflight == 0 &&
		       (uint32_t)(now_ns >> 10) - part->id >= KVP_NOTIFY_PAUSE_US;
	case KVP_NOTIFY_IDLE:
		break;
	}
	return 1;
}

int
kvp_tcp_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);
	const struct kvp_transfer *transfer = part->transfer;
	struct kvp_tcp_tx *tx = &ep->tx;
	int due = notify_due(part, now_ns);
	uint32_t index;

	if (due == 2)
		return 1;
	if (ep->is_dead)
		return -1;
	/* One that is on its way is not refused: the deadline may come before the answer. */
	part->is_refused = part->notify_state == KVP_NOTIFY_REFUSED;
	if (due == 0 || kvp_tcp_tx_is_busy(ep) || ep->slots_free == 0)
		return 0;
	KVP_ASSERT(transfer->notify_bytes <= KVP_NOTIFY_BYTES_MAX);
	index = slot_claim(ep, part, KVP_TCP_NOTIFY);
	if (part->notify_state != KVP_NOTIFY_REFUSED)
		part->notify_state = KVP_NOTIFY_SENT;
	kvp_tcp_preamble_encode(
		&(struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY,
					   .extents = transfer->notify_layer,
					   .bytes = KVP_TCP_NOTIFY_BODY + transfer->notify_bytes,
					   .request = ep->slot[index].request,
					   .cache = transfer->remote_cache,
					   .tag = transfer->notify_tag},
		tx->head);
	kvp_tcp_u64_encode(transfer->plan.bytes, tx->head + KVP_TCP_PREAMBLE);
	memcpy(tx->head + KVP_TCP_PREAMBLE + KVP_TCP_NOTIFY_BODY, transfer->notify_payload,
	       transfer->notify_bytes);
	tx_start(tx, KVP_TCP_PREAMBLE + KVP_TCP_NOTIFY_BODY + transfer->notify_bytes);
	tx->slot = index;
	send_now(ep, now_ns);
	return ep->is_dead ? -1 : 0;
}

bool
kvp_tcp_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);

	if (ep->is_dead)
		return true;
	if (part->stop_ns == 0)
		part->stop_ns = now_ns;
	if (part->requests_inflight == 0)
		return true;
	if (now_ns - part->stop_ns < KVP_TCP_DRAIN_NS)
		return false;
	kvp_tcp_fail(ep, KVP_PEER_LOST, now_ns);
	return true;
}

struct kvp_tcp_answer *
kvp_tcp_answer_add(struct kvp_tcp_endpoint *ep, uint8_t type, uint32_t request, kvp_status status)
{
	struct kvp_tcp_answer *answer = &ep->answer[ep->answer_end % KVP_TCP_REQUESTS];

	KVP_ASSERT(kvp_tcp_answers(ep) < KVP_TCP_REQUESTS);
	ep->answer_end++;
	answer->type = type;
	answer->request = request;
	answer->status = status;
	answer->iovs = 0;
	answer->bytes = 0;
	answer->cache = 0;
	return answer;
}

/* READ_DATA with its pieces and its READ_END; the preamble is already in the head. */
static void
tx_add_data(struct kvp_tcp_tx *tx, const struct kvp_tcp_answer *answer)
{
	memcpy(&tx->iov[1], answer->iov, answer->iovs * sizeof(answer->iov[0]));
	kvp_tcp_preamble_encode(
		&(struct kvp_tcp_preamble){.type = KVP_TCP_READ_END, .request = answer->request},
		tx->tail);
	tx->iov[1U + answer->iovs] =
		(struct iovec){.iov_base = tx->tail, .iov_len = sizeof(tx->tail)};
	tx->iovs += answer->iovs + 1U;
	tx->is_serving = true;
	tx->request = answer->request;
	tx->cache = answer->cache;
}

/* As many answers as fit in one head; at most one with data, which is the last. Returns its bytes. */
static uint32_t
tx_add_answers(struct kvp_tcp_endpoint *ep)
{
	const struct kvp_tcp_answer *answer;
	size_t head_bytes = 0;
	bool has_data = false;

	while (!has_data && kvp_tcp_answers(ep) > 0 &&
	       head_bytes + KVP_TCP_PREAMBLE <= KVP_TCP_HEAD) {
		answer = &ep->answer[ep->answer_first % KVP_TCP_REQUESTS];
		has_data = answer->iovs > 0;
		kvp_tcp_preamble_encode(&(struct kvp_tcp_preamble){.type = answer->type,
								   .bytes = answer->bytes,
								   .request = answer->request,
								   .status = answer->status},
					ep->tx.head + head_bytes);
		head_bytes += KVP_TCP_PREAMBLE;
		ep->answer_first++;
	}
	tx_start(&ep->tx, head_bytes);
	if (!has_data)
		return 0;
	tx_add_data(&ep->tx, answer);
	return answer->bytes;
}

uint32_t
kvp_tcp_serve(struct kvp_tcp_endpoint *ep, uint64_t now_ns)
{
	uint32_t messages = 0;
	uint32_t bytes = 0;

	while (!ep->is_dead && !kvp_tcp_tx_is_busy(ep) && kvp_tcp_answers(ep) > 0 &&
	       messages < KVP_TCP_STEP_CALLS && bytes < KVP_TCP_STEP_BYTES) {
		if (ep->is_post_waiting &&
		    ep->answer[ep->answer_first % KVP_TCP_REQUESTS].iovs > 0) {
			/* Pulls of the peer must not starve pushes: leave tx to them once. */
			ep->is_post_waiting = false;
			break;
		}
		bytes += tx_add_answers(ep);
		messages++;
		kvp_tcp_flush(ep, now_ns);
	}
	return messages;
}

/* Zeros for what is left of the pieces; READ_END says that they are worthless. */
static void
tx_blank(struct kvp_tcp_tx *tx, kvp_status why)
{
	uint32_t first = tx->iov_first > 0 ? tx->iov_first : 1;
	uint32_t iovs = tx->iov_first > 0 ? 0 : 1; /* a head that has not left yet stays */
	size_t left = 0;

	if (tx->iov_first + 1 == tx->iovs)
		return; /* only READ_END is left: every byte was read while the cache was there */
	for (uint32_t i = first; i + 1 < tx->iovs; i++)
		left += tx->iov[i].iov_len;
	while (left > 0) {
		size_t bytes = left < sizeof(zeros) ? left : sizeof(zeros);

		tx->iov[iovs++] = (struct iovec){.iov_base = zeros, .iov_len = bytes};
		left -= bytes;
	}
	kvp_tcp_preamble_encode(&(struct kvp_tcp_preamble){.type = KVP_TCP_READ_END,
							   .request = tx->request,
							   .status = why},
				tx->tail);
	tx->iov[iovs++] = (struct iovec){.iov_base = tx->tail, .iov_len = sizeof(tx->tail)};
	tx->iov_first = 0;
	tx->iovs = iovs;
}

void
kvp_tcp_serve_gone(struct kvp_tcp_endpoint *ep, int64_t cache_id, kvp_status why)
{
	for (uint32_t i = ep->answer_first; i != ep->answer_end; i++) {
		struct kvp_tcp_answer *answer = &ep->answer[i % KVP_TCP_REQUESTS];

		if (answer->iovs == 0 ||
		    (cache_id != KVP_TCP_ALL_CACHES && answer->cache != cache_id))
			continue;
		answer->iovs = 0;
		answer->bytes = 0;
		answer->status = why;
	}
	if (ep->tx.is_serving && (cache_id == KVP_TCP_ALL_CACHES || ep->tx.cache == cache_id))
		tx_blank(&ep->tx, why);
	KVP_ASSERT(kvp_tcp_tx_ok(ep));
}

bool
kvp_tcp_arm(struct kvp_endpoint *endpoint)
{
	const struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);

	/* The socket wakes the lane. A pause before the next try does not: a lane with such a part naps. */
	return !ep->is_dead && kvp_tcp_answers(ep) > 0 && !ep->is_write_wanted;
}

void
kvp_tcp_disarm(struct kvp_endpoint *endpoint)
{
	(void)endpoint; /* the socket is in the lane's epoll set all the time */
}
