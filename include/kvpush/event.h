/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event.h - what peers did to this engine
 *
 * Events queue until polled (max_events). When the queue is full pushes with
 * notify wait at the sender (NO_CREDIT at their deadline); none is dropped.
 */
#ifndef KVPUSH_EVENT_H
#define KVPUSH_EVENT_H

#include <stdint.h>

#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kvp_event_kind {
	KVP_EVENT_PEER_LINKED = 1,   /* a link became ready, whoever asked for it */
	KVP_EVENT_PEER_LOST = 2,     /* died or fell silent: `status` says which */
	KVP_EVENT_PEER_UNLINKED = 3, /* the peer ended the link */
	KVP_EVENT_PUSH_ARRIVED = 4,  /* all bytes of a push with notify are visible here */
	KVP_EVENT_CACHE_GONE = 5,    /* the peer released `cache` */
	KVP_EVENT_LAYER_ARRIVED =
		6, /* as PUSH_ARRIVED, of one layer of an open push; before its PUSH_ARRIVED */
};

struct kvp_event {
	uint32_t kind;       /* enum kvp_event_kind */
	kvp_status status;   /* PEER_LOST: PEER_LOST or PEER_RESTARTED or PROTOCOL; else SUCCESS */
	uint64_t cluster_id; /* the peer */
	int64_t cache;       /* arrivals: this engine's cache; CACHE_GONE: the peer's; else 0 */
	uint64_t tag;        /* arrivals: the sender's */
	uint64_t bytes;      /* arrivals: of the push, or of the layer */
	int32_t layer; /* LAYER_ARRIVED: of `cache`, with the push's tensors per layer; else -1 */
	uint32_t payload_bytes;
	uint8_t payload[KVP_NOTIFY_BYTES_MAX];
};

/* Take the oldest event. NO_EVENT (*event_out untouched), PARAM_INVALID. Never waits. */
KVP_API kvp_status
kvp_event_poll(struct kvp_engine *engine, struct kvp_event *event_out);

/*
 * An fd that is readable (epoll, poll) while events are queued; the engine's,
 * not to be read or closed. Poll events until NO_EVENT after it fires. -1: engine NULL.
 */
KVP_API int
kvp_event_fd(struct kvp_engine *engine);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_EVENT_H */
