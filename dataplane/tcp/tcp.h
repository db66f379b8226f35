/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp.h - the tcp transport's own structures; nothing outside this folder but its tests includes it
 *
 * tcp_setup.c         control thread: the table, paths, endpoints; lane: the cold end of a stream
 * tcp_stream_setup.c  control thread: streams are connected, proven with a token, and tuned
 * tcp_send_fast.c     lane: requests of parts, notifications, answers to the peer
 * tcp_receive_fast.c  lane: payload straight into its slots, acknowledgements
 *
 * One message at a time is on its way out (tx); it is finished before the next
 * begins. Answers wait in a ring and go before requests. Nothing that arrives
 * waits for anything to leave, so that two sides that send at once cannot lock
 * each other.
 *
 * Silence:    a part is let go when all its requests were answered. When the answers do not come
 *             the stream is cut (reset, send queue dropped), so that no byte of it leaves any more.
 *             A receiver that was not scheduled for KVP_TCP_STALE_NS looks for such a reset before
 *             it reads on: what its kernel still holds for it may be older than the cut.
 * Threads:    [C] control thread  [L] lane of the endpoint
 */
#ifndef KVP_DATAPLANE_TCP_H
#define KVP_DATAPLANE_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/uio.h>

#include "reactor.h"
#include "tcp_wire.h"
#include "transport.h"

#define KVP_TCP_STAGE      2048U /* holds any preamble with its body, or a burst of acks */
#define KVP_TCP_SCRATCH    4096U
#define KVP_TCP_HEAD       2048U
#define KVP_TCP_STEP_BYTES (2U << 20) /* received, and served, per call of progress */
#define KVP_TCP_STEP_CALLS 16U
#define KVP_TCP_ROOM_MIN \
	(64U << 10) /* no request smaller than this because the window is nearly full */
#define KVP_TCP_STALE_NS   50000000U
#define KVP_TCP_DRAIN_NS   100000000U
#define KVP_TCP_ALL_CACHES 0 /* no cache has this id */
#define KVP_TCP_NO_SLOT    UINT32_MAX
_Static_assert(KVP_TCP_STAGE >= KVP_TCP_PREAMBLE + KVP_TCP_BODY_MAX,
	       "a head is judged in one piece");
_Static_assert(KVP_TCP_HEAD >= KVP_TCP_PREAMBLE + KVP_TCP_BODY_MAX, "a request's head");
_Static_assert(KVP_TCP_REQUESTS == 64, "slots_free is one word");

/*
 * kvp_part.notify_state. A part whose deadline passes while it is REFUSED ends
 * with KVP_NO_CREDIT: it stays REFUSED while the notification is tried again.
 */
enum kvp_tcp_notify {
	KVP_NOTIFY_IDLE = 0,
	KVP_NOTIFY_SENT = 1,
	KVP_NOTIFY_REFUSED = 2,
	KVP_NOTIFY_DELIVERED = 3,
};
#define KVP_NOTIFY_PAUSE_US 1000U /* between two tries, in units of 1024 ns */

/* A request without its answer. */
struct kvp_tcp_slot {
	struct kvp_part *part;
	uint32_t request; /* id on the wire: generation << 8 | slot */
	uint32_t bytes;
	uint8_t type; /* WRITE, READ, NOTIFY; 0 = free */
	bool is_gone; /* READ: the local cache was withdrawn, drop what comes */
	uint8_t iovs; /* READ: destinations in kvp_tcp_endpoint.slot_iov */
};

/* What the peer still has to be told. */
struct kvp_tcp_answer {
	uint8_t type; /* WRITE_ACK, READ_DATA, NOTIFY_ACK */
	uint8_t iovs; /* READ_DATA with SUCCESS */
	kvp_status status;
	uint32_t request;
	uint32_t bytes;
	int64_t cache; /* READ_DATA */
	struct iovec iov[KVP_TCP_EXTENTS];
};

enum kvp_tcp_rx_state {
	KVP_TCP_RX_HEAD = 0, /* preamble and body, in `stage` */
	KVP_TCP_RX_PAYLOAD = 1,
	KVP_TCP_RX_DISCARD = 2,
};

struct kvp_tcp_rx {
	enum kvp_tcp_rx_state state;
	uint32_t staged_first; /* stage[staged_first..staged_end) was read and not yet used */
	uint32_t staged_end;
	uint32_t iov_first; /* payload goes to iov[iov_first..iovs) */
	uint32_t iovs;
	uint32_t left;                         /* bytes of payload to come */
	uint8_t type;                          /* WRITE or READ_DATA, whose payload it is */
	bool wants_end;                        /* the next message must be READ_END of `slot` */
	uint32_t slot;                         /* READ_DATA */
	uint32_t request;                      /* WRITE */
	kvp_status status;                     /* WRITE: what its ack will say */
	int64_t cache;                         /* WRITE */
	struct iovec iov[KVP_TCP_EXTENTS + 1]; /* one more for `stage` */
	uint8_t stage[KVP_TCP_STAGE];
	uint8_t scratch[KVP_TCP_SCRATCH];
};

struct kvp_tcp_tx {
	uint32_t iov_first; /* to be sent: iov[iov_first..iovs); none: idle */
	uint32_t iovs;
	uint32_t slot;   /* of the request that is leaving, or KVP_TCP_NO_SLOT */
	bool is_serving; /* READ_DATA out of `cache`, for the peer's `request` */
	uint32_t request;
	int64_t cache;
	struct iovec iov[KVP_TCP_EXTENTS + 2]; /* head, pieces, tail */
	uint8_t head[KVP_TCP_HEAD];
	uint8_t tail[KVP_TCP_PREAMBLE];
};

/* Everything after `base` is the lane's alone. */
struct kvp_tcp_endpoint {
	struct kvp_endpoint base;

	/* const after create */
	KVP_SPAN_START struct kvp_inbox *inbox;
	uint64_t window_bytes;
	uint64_t peer_cluster;
	uint32_t window_requests;
	uint32_t rights; /* of the peer, enum kvp_right */

	/* lane: rw */
	bool is_dead;
	bool is_write_wanted; /* as told to kvp_lane_want_write */
	bool is_post_waiting; /* a part wanted to send while tx was busy */
	uint32_t generation;
	uint32_t answer_first; /* free-running */
	uint32_t answer_end;
	uint64_t slots_free; /* bit per slot */
	uint64_t progress_ns;
	struct iovec (*slot_iov)[KVP_TCP_EXTENTS]; /* [KVP_TCP_REQUESTS] */
	struct kvp_tcp_answer *answer;             /* ring[KVP_TCP_REQUESTS] */
	struct kvp_tcp_slot slot[KVP_TCP_REQUESTS];
	struct kvp_tcp_tx tx;
	struct kvp_tcp_rx rx;
};
_Static_assert(offsetof(struct kvp_tcp_endpoint, inbox) % KVP_SHARE_SPAN == 0,
	       "readers of the totals must not pull the lane's fields away");

enum kvp_tcp_step {
	KVP_TCP_STEP_NONE = 0,
	KVP_TCP_STEP_CONNECT = 1,  /* initiator */
	KVP_TCP_STEP_FRAME = 2,    /* initiator: STREAM frame leaves */
	KVP_TCP_STEP_GREETING = 3, /* initiator: waits for the greeting */
	KVP_TCP_STEP_GREET = 4,    /* acceptor: greeting leaves */
	KVP_TCP_STEP_DONE = 5,
};

/* One stream on its way up. [C] */
struct kvp_tcp_stream {
	struct kvp_tcp_path *path;
	struct kvp_watch watch;
	int fd; /* -1: none, or given to the endpoint */
	uint32_t index;
	enum kvp_tcp_step step;
	uint32_t bytes; /* of `buffer`, to send or expected */
	uint32_t done;
	uint8_t buffer[128];
};

struct kvp_tcp_path {
	struct kvp_path base;
	uint32_t streams_up;
	uint8_t token[KVP_TOKEN_BYTES]; /* acceptor: made here; initiator: the peer's */
	struct kvp_tcp_stream stream[KVP_ENDPOINTS_MAX];
};

static inline struct kvp_tcp_endpoint *
kvp_tcp_of(struct kvp_endpoint *endpoint)
{
	return (struct kvp_tcp_endpoint *)endpoint;
}

static inline bool
kvp_tcp_tx_is_busy(const struct kvp_tcp_endpoint *ep)
{
	return ep->tx.iov_first < ep->tx.iovs;
}

static inline uint32_t
kvp_tcp_answers(const struct kvp_tcp_endpoint *ep)
{
	return ep->answer_end - ep->answer_first;
}

static inline bool
kvp_tcp_tx_ok(const struct kvp_tcp_endpoint *ep)
{
	const struct kvp_tcp_tx *tx = &ep->tx;

	return tx->iov_first <= tx->iovs && tx->iovs <= KVP_TCP_EXTENTS + 2 &&
	       (tx->slot == KVP_TCP_NO_SLOT || tx->slot < KVP_TCP_REQUESTS) &&
	       (kvp_tcp_tx_is_busy(ep) || (tx->slot == KVP_TCP_NO_SLOT && !tx->is_serving)) &&
	       kvp_tcp_answers(ep) <= KVP_TCP_REQUESTS;
}

static inline bool
kvp_tcp_rx_ok(const struct kvp_tcp_endpoint *ep)
{
	const struct kvp_tcp_rx *rx = &ep->rx;

	return rx->staged_first <= rx->staged_end && rx->staged_end <= KVP_TCP_STAGE &&
	       rx->iov_first <= rx->iovs && rx->iovs <= KVP_TCP_EXTENTS &&
	       rx->left <= KVP_TCP_PAYLOAD && (rx->state == KVP_TCP_RX_HEAD) == (rx->left == 0);
}

/* tcp_setup.c */

/*
 * [L] The stream is over: forget every request (no memory of a part is used any more), reset the
 * connection, tell the lane. Parts may be gone afterwards. A second call does nothing.
 */
KVP_COLD void
kvp_tcp_fail(struct kvp_tcp_endpoint *ep, kvp_status why, uint64_t now_ns);

/* [L] Was the connection reset, or closed for good, whatever is still to be read? */
KVP_COLD bool
kvp_tcp_is_reset(const struct kvp_tcp_endpoint *ep);

/* tcp_send_fast.c: all [L] */
KVP_HOT uint32_t
kvp_tcp_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
int
kvp_tcp_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
bool
kvp_tcp_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
bool
kvp_tcp_arm(struct kvp_endpoint *endpoint);
void
kvp_tcp_disarm(struct kvp_endpoint *endpoint);

/* Send what is left of the message in tx. True: none is left. False: the socket is full, or failed. */
KVP_HOT bool
kvp_tcp_flush(struct kvp_tcp_endpoint *ep, uint64_t now_ns);
/* Send answers, a bounded number. Returns messages begun. */
KVP_HOT uint32_t
kvp_tcp_serve(struct kvp_tcp_endpoint *ep, uint64_t now_ns);
/* Queue an answer; the caller checked that the ring has room. Its iovecs are the caller's to fill. */
KVP_HOT struct kvp_tcp_answer *
kvp_tcp_answer_add(struct kvp_tcp_endpoint *ep, uint8_t type, uint32_t request, kvp_status status);
/* Serve nothing from this cache any more: the rest of a half-sent answer becomes zeros. */
void
kvp_tcp_serve_gone(struct kvp_tcp_endpoint *ep, int64_t cache_id, kvp_status why);
/* An answer came. False: it answers nothing (PROTOCOL). */
KVP_HOT bool
kvp_tcp_answered(struct kvp_tcp_endpoint *ep, uint32_t slot, kvp_status status, uint64_t now_ns);
/* The slot of a request of `type` that has completely left, or KVP_TCP_NO_SLOT. */
KVP_HOT uint32_t
kvp_tcp_slot_find(const struct kvp_tcp_endpoint *ep, uint32_t request, uint8_t type);

/* tcp_receive_fast.c: all [L] */
KVP_HOT uint32_t
kvp_tcp_progress(struct kvp_endpoint *endpoint, uint64_t now_ns);
void
kvp_tcp_cache_gone(struct kvp_endpoint *endpoint, int64_t cache_id);
void
kvp_tcp_down(struct kvp_endpoint *endpoint);

#endif /* KVP_DATAPLANE_TCP_H */
