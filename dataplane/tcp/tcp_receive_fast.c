/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "inbox.h"
#include "lane.h"
#include "rights.h"

static void
payload_start(struct kvp_tcp_rx *rx, const struct kvp_tcp_preamble *p, uint32_t iovs,
	      bool is_wanted)
{
	rx->type = p->type;
	rx->left = p->bytes;
	rx->iov_first = 0;
	rx->iovs = is_wanted ? iovs : 0;
	rx->state = is_wanted ? KVP_TCP_RX_PAYLOAD : KVP_TCP_RX_DISCARD;
}

/* The rest of the payload under way goes nowhere. */
static void
payload_drop(struct kvp_tcp_rx *rx)
{
	rx->iov_first = rx->iovs = 0;
	rx->state = KVP_TCP_RX_DISCARD;
}

/*
 * What a peer asks for, as addresses here: it has the right, all of it lies in blocks of a cache that
 * this lane knows and can touch, and it is as many bytes as announced. Nothing has been read or written yet.
 */
static kvp_status
extents_resolve(const struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p,
		const uint8_t *body, struct iovec *iov)
{
	const struct kvp_local_cache *cache = kvp_lane_cache_find(ep->base.lane, p->cache);
	uint32_t right = p->type == KVP_TCP_WRITE ? KVP_RIGHT_PUSH : KVP_RIGHT_PULL;
	uint64_t bytes = 0;

	if (ep->base.is_down)
		return KVP_NOT_YET_LINK;
	if ((ep->rights & right) == 0)
		return KVP_FEATURE_NOT_ENABLED;
	if (cache == NULL)
		return KVP_CACHE_NOT_EXIST;
	if (cache->memory != NULL) /* the peer was not told of it */
		return KVP_FEATURE_NOT_ENABLED;
	for (uint32_t i = 0; i < p->extents; i++) {
		struct kvp_tcp_extent extent;
		uint64_t address;

		kvp_tcp_extent_decode(body + i * KVP_TCP_EXTENT, &extent);
		if (extent.tensor >= cache->num_tensors || extent.bytes == 0)
			return KVP_PARAM_INVALID;
		if (__builtin_add_overflow((uintptr_t)cache->tensors[extent.tensor].base,
					   extent.offset, &address))
			return KVP_PARAM_INVALID;
		if (!kvp_span_holds(&cache->spans[extent.tensor], address, extent.bytes))
			return KVP_PARAM_INVALID;
		iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)address,
					.iov_len = extent.bytes};
		bytes += extent.bytes;
	}
	return bytes == p->bytes ? KVP_SUCCESS : KVP_PARAM_INVALID;
}

static bool
take_write(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, const uint8_t *body)
{
	struct kvp_tcp_rx *rx = &ep->rx;

	if (kvp_tcp_answers(ep) >= KVP_TCP_REQUESTS)
		return false;
	rx->request = p->request;
	rx->cache = p->cache;
	rx->status = extents_resolve(ep, p, body, rx->iov);
	payload_start(rx, p, p->extents, rx->status == KVP_SUCCESS);
	return true;
}

static bool
take_read(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, const uint8_t *body)
{
	struct kvp_tcp_answer *answer;

	if (kvp_tcp_answers(ep) >= KVP_TCP_REQUESTS)
		return false;
	answer = kvp_tcp_answer_add(ep, KVP_TCP_READ_DATA, p->request, KVP_SUCCESS);
	answer->status = extents_resolve(ep, p, body, answer->iov);
	if (answer->status != KVP_SUCCESS)
		return true;
	answer->iovs = (uint8_t)p->extents;
	answer->bytes = p->bytes;
	answer->cache = p->cache;
	return true;
}

static bool
take_read_data(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, uint64_t now_ns)
{
	uint32_t index = kvp_tcp_slot_find(ep, p->request, KVP_TCP_READ);
	struct kvp_tcp_rx *rx = &ep->rx;

	if (index == KVP_TCP_NO_SLOT)
		return false;
	if (p->status != KVP_SUCCESS)
		return kvp_tcp_answered(ep, index, p->status, now_ns);
	if (p->bytes != ep->slot[index].bytes)
		return false;
	rx->slot = index;
	rx->wants_end = true;
	memcpy(rx->iov, ep->slot_iov[index], ep->slot[index].iovs * sizeof(rx->iov[0]));
	payload_start(rx, p, ep->slot[index].iovs, !ep->slot[index].is_gone);
	return true;
}

static bool
take_read_end(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, uint64_t now_ns)
{
	struct kvp_tcp_rx *rx = &ep->rx;
	kvp_status status = p->status;

	if (!rx->wants_end || ep->slot[rx->slot].request != p->request)
		return false;
	rx->wants_end = false;
	if (ep->slot[rx->slot].is_gone)
		status = KVP_CACHE_NOT_EXIST;
	return kvp_tcp_answered(ep, rx->slot, status, now_ns);
}

/* Without a free event nothing is kept here: the sender tries again, and the stream moves on. */
static kvp_status
event_put(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, const uint8_t *body)
{
	struct kvp_event *event;

	if (ep->base.is_down)
		return KVP_NOT_YET_LINK;
	if ((ep->rights & KVP_RIGHT_PUSH) == 0)
		return KVP_FEATURE_NOT_ENABLED;
	if (kvp_lane_cache_find(ep->base.lane, p->cache) == NULL)
		return KVP_CACHE_NOT_EXIST;
	event = kvp_inbox_take(ep->inbox);
	if (event == NULL)
		return KVP_NO_CREDIT;
	kvp_event_arrived(event, p->extents);
	event->cluster_id = ep->peer_cluster;
	event->cache = p->cache;
	event->tag = p->tag;
	event->bytes = kvp_tcp_u64_decode(body);
	event->payload_bytes = p->bytes - KVP_TCP_NOTIFY_BODY;
	memcpy(event->payload, body + KVP_TCP_NOTIFY_BODY, event->payload_bytes);
	kvp_inbox_put(ep->inbox, kvp_lane_index(ep->base.lane), event);
	return KVP_SUCCESS;
}

static bool
take_notify(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, const uint8_t *body)
{
	if (kvp_tcp_answers(ep) >= KVP_TCP_REQUESTS)
		return false;
	kvp_tcp_answer_add(ep, KVP_TCP_NOTIFY_ACK, p->request, event_put(ep, p, body));
	return true;
}

/* One whole head. False: the peer broke the protocol. */
static bool
take_message(struct kvp_tcp_endpoint *ep, const struct kvp_tcp_preamble *p, const uint8_t *body,
	     uint64_t now_ns)
{
	if (ep->rx.wants_end && p->type != KVP_TCP_READ_END)
		return false;
	switch ((enum kvp_tcp_type)p->type) {
	case KVP_TCP_WRITE:
		return take_write(ep, p, body);
	case KVP_TCP_READ:
		return take_read(ep, p, body);
	case KVP_TCP_READ_DATA:
		return take_read_data(ep, p, now_ns);
	case KVP_TCP_READ_END:
		return take_read_end(ep, p, now_ns);
	case KVP_TCP_NOTIFY:
		return take_notify(ep, p, body);
	case KVP_TCP_WRITE_ACK:
	case KVP_TCP_NOTIFY_ACK:
		return kvp_tcp_answered(ep,
					kvp_tcp_slot_find(ep, p->request,
							  p->type == KVP_TCP_WRITE_ACK
								  ? KVP_TCP_WRITE
								  : KVP_TCP_NOTIFY),
					p->status, now_ns);
	}
	return false;
}

/* `bytes` of payload came; those of a WRITE that is complete are acknowledged. */
static void
payload_took(struct kvp_tcp_endpoint *ep, uint32_t bytes)
{
	struct kvp_tcp_rx *rx = &ep->rx;

	rx->left -= bytes;
	while (rx->state == KVP_TCP_RX_PAYLOAD && bytes > 0) {
		struct iovec *iov = &rx->iov[rx->iov_first];

		if (bytes < iov->iov_len) {
			iov->iov_base = (uint8_t *)iov->iov_base + bytes;
			iov->iov_len -= bytes;
			break;
		}
		bytes -= (uint32_t)iov->iov_len;
		rx->iov_first++;
	}
	if (rx->left > 0)
		return;
	rx->state = KVP_TCP_RX_HEAD;
	if (rx->type == KVP_TCP_WRITE)
		kvp_tcp_answer_add(ep, KVP_TCP_WRITE_ACK, rx->request, rx->status);
}

/* Payload that came in the wake of a head. */
static void
payload_unstage(struct kvp_tcp_endpoint *ep)
{
	struct kvp_tcp_rx *rx = &ep->rx;
	uint32_t staged = rx->staged_end - rx->staged_first;
	uint32_t bytes = staged < rx->left ? staged : rx->left;

	if (rx->state == KVP_TCP_RX_PAYLOAD && bytes > rx->iov[rx->iov_first].iov_len)
		bytes = (uint32_t)rx->iov[rx->iov_first].iov_len;
	if (rx->state == KVP_TCP_RX_PAYLOAD)
		memcpy(rx->iov[rx->iov_first].iov_base, rx->stage + rx->staged_first, bytes);
	rx->staged_first += bytes;
	payload_took(ep, bytes);
}

/* Use up what is staged. False: the peer broke the protocol. */
static bool
rx_parse(struct kvp_tcp_endpoint *ep, uint64_t now_ns)
{
	struct kvp_tcp_rx *rx = &ep->rx;

	while (!ep->is_dead && rx->staged_first < rx->staged_end) {
		const uint8_t *in = rx->stage + rx->staged_first;
		uint32_t staged = rx->staged_end - rx->staged_first;
		struct kvp_tcp_preamble p;
		uint32_t head;

		if (rx->state != KVP_TCP_RX_HEAD) {
			payload_unstage(ep);
			continue;
		}
		if (staged < KVP_TCP_PREAMBLE)
			break;
		if (!kvp_tcp_preamble_decode(in, &p))
			return false;
		head = KVP_TCP_PREAMBLE + kvp_tcp_body_bytes(&p);
		if (staged < head)
			break;
		rx->staged_first += head;
		if (!take_message(ep, &p, in + KVP_TCP_PREAMBLE, now_ns))
			return false;
	}
	KVP_ASSERT(ep->is_dead || kvp_tcp_rx_ok(ep));
	return true;
}

/* Where the next bytes go: the payload under way, then the stage. Returns how many bytes that is. */
static size_t
rx_targets(struct kvp_tcp_rx *rx, struct iovec *drop, struct iovec **iov_out, int *count_out)
{
	const struct iovec stage = {.iov_base = rx->stage + rx->staged_end,
				    .iov_len = KVP_TCP_STAGE - rx->staged_end};
	uint32_t left = rx->left;
	int count = 0;

	if (rx->state == KVP_TCP_RX_PAYLOAD) {
		rx->iov[rx->iovs] = stage;
		*iov_out = &rx->iov[rx->iov_first];
		*count_out = (int)(rx->iovs - rx->iov_first + 1);
		return rx->left + stage.iov_len;
	}
	for (; left > 0 && count < (int)KVP_TCP_EXTENTS; count++) {
		uint32_t bytes = left < KVP_TCP_SCRATCH ? left : KVP_TCP_SCRATCH;

		drop[count] = (struct iovec){.iov_base = rx->scratch, .iov_len = bytes};
		left -= bytes;
	}
	if (left == 0)
		drop[count++] = stage;
	*iov_out = drop;
	*count_out = count;
	return rx->left - left + (left == 0 ? stage.iov_len : 0);
}

/* One readv. Returns its bytes; 0: nothing there, or the stream is over. */
static size_t
rx_read(struct kvp_tcp_endpoint *ep, uint64_t now_ns, bool *is_drained_out)
{
	struct kvp_tcp_rx *rx = &ep->rx;
	struct iovec drop[KVP_TCP_EXTENTS + 1];
	struct iovec *iov;
	uint32_t bytes;
	ssize_t got;
	int count;
	size_t asked;

	rx->staged_end -= rx->staged_first;
	memmove(rx->stage, rx->stage + rx->staged_first, rx->staged_end);
	rx->staged_first = 0;
	asked = rx_targets(rx, drop, &iov, &count);
	got = readv(ep->base.fd, iov, count);
	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			kvp_tcp_fail(ep, KVP_PEER_LOST, now_ns);
		return 0;
	}
	*is_drained_out = (size_t)got < asked;
	bytes = (size_t)got < rx->left ? (uint32_t)got : rx->left;
	rx->staged_end += (uint32_t)((size_t)got - bytes);
	if (bytes > 0)
		payload_took(ep, bytes);
	return (size_t)got;
}

static uint32_t
receive(struct kvp_tcp_endpoint *ep, uint64_t now_ns)
{
	bool is_drained = false;
	size_t bytes = 0;
	uint32_t calls = 0;

	while (!is_drained && calls < KVP_TCP_STEP_CALLS && bytes < KVP_TCP_STEP_BYTES) {
		size_t got = rx_read(ep, now_ns, &is_drained);

		if (got == 0)
			break;
		calls++;
		bytes += got;
		if (!rx_parse(ep, now_ns))
			kvp_tcp_fail(ep, KVP_PROTOCOL, now_ns);
		if (ep->is_dead)
			break;
	}
	return calls;
}

uint32_t
kvp_tcp_progress(struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);
	bool wants_write;
	uint32_t work = 0;

	if (ep->is_dead)
		return 0;
	if (now_ns - ep->progress_ns > KVP_TCP_STALE_NS && kvp_tcp_is_reset(ep))
		kvp_tcp_fail(ep, KVP_PEER_LOST, now_ns);
	ep->progress_ns = now_ns;
	if (kvp_tcp_tx_is_busy(ep))
		work += kvp_tcp_flush(ep, now_ns);
	if (!ep->is_dead)
		work += receive(ep, now_ns);
	work += kvp_tcp_serve(ep, now_ns);
	if (ep->is_dead)
		return work + 1;
	wants_write = kvp_tcp_tx_is_busy(ep) || kvp_tcp_answers(ep) > 0;
	if (wants_write != ep->is_write_wanted) {
		ep->is_write_wanted = wants_write;
		kvp_lane_want_write(endpoint, wants_write);
	}
	return work;
}

void
kvp_tcp_cache_gone(struct kvp_endpoint *endpoint, int64_t cache_id)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);
	struct kvp_tcp_rx *rx = &ep->rx;

	if (ep->is_dead)
		return;
	kvp_tcp_serve_gone(ep, cache_id, KVP_CACHE_NOT_EXIST);
	for (uint32_t i = 0; i < KVP_TCP_REQUESTS; i++) {
		struct kvp_tcp_slot *slot = &ep->slot[i];

		if (slot->type == KVP_TCP_READ && slot->part->transfer->local_cache == cache_id)
			slot->is_gone = true;
	}
	if (rx->state != KVP_TCP_RX_PAYLOAD)
		return;
	if (rx->type == KVP_TCP_WRITE && rx->cache == cache_id) {
		rx->status = KVP_CACHE_NOT_EXIST;
		payload_drop(rx);
	} else if (rx->type == KVP_TCP_READ_DATA && ep->slot[rx->slot].is_gone) {
		payload_drop(rx);
	}
}

void
kvp_tcp_down(struct kvp_endpoint *endpoint)
{
	struct kvp_tcp_endpoint *ep = kvp_tcp_of(endpoint);
	struct kvp_tcp_rx *rx = &ep->rx;

	if (ep->is_dead)
		return;
	kvp_tcp_serve_gone(ep, KVP_TCP_ALL_CACHES, KVP_NOT_YET_LINK);
	/* What a pull of ours still gets lands before that pull ends. */
	if (rx->state == KVP_TCP_RX_PAYLOAD && rx->type == KVP_TCP_WRITE) {
		rx->status = KVP_NOT_YET_LINK;
		payload_drop(rx);
	}
}
