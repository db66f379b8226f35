/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inbox.h - events from lanes and the control thread to the application
 *
 * Events live in an rte_mempool (per-lcore cached) and travel in one SP/SC
 * rte_ring per producer. When the pool is empty nothing is lost: a lane leaves
 * the notification where it is (the peer's ring, the stream) and tries again.
 *
 * Shape:      producers [0, lanes) are lanes, `lanes` is the control thread
 * Threads:    take/put: producer's thread; poll: any thread (mutex inside)
 */
#ifndef KVP_DATAPLANE_INBOX_H
#define KVP_DATAPLANE_INBOX_H

#include <stdint.h>

#include <kvpush/event.h>

#include "error.h"

struct kvp_inbox;

/* A notification arrived: `layer` is 0, or 1 + the layer that it tells of. */
static inline void
kvp_event_arrived(struct kvp_event *event, uint32_t layer)
{
	event->kind = layer == 0 ? KVP_EVENT_PUSH_ARRIVED : KVP_EVENT_LAYER_ARRIVED;
	event->status = KVP_SUCCESS;
	event->layer = (int32_t)layer - 1;
}

/* OUT_OF_MEMORY naming eal_mem_mb. Needs EAL. `capacity` events in [16, 65536]. */
KVP_MUST_USE kvp_status
kvp_inbox_create(uint32_t producers, uint32_t capacity, struct kvp_inbox **inbox_out,
		 struct kvp_error *err);
void
kvp_inbox_destroy(struct kvp_inbox *inbox);
/* A free event, or NULL when `capacity` are queued. */
KVP_HOT struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox);
/* Queue it and make the fd readable if the application sleeps. Always has room. */
KVP_HOT void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event);
/* KVP_SUCCESS, or KVP_NO_EVENT (then the fd is armed: the next put makes it readable). */
kvp_status
kvp_inbox_poll(struct kvp_inbox *inbox, struct kvp_event *event_out);
int
kvp_inbox_fd(const struct kvp_inbox *inbox);

#endif /* KVP_DATAPLANE_INBOX_H */
