/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_lane.h - what the lane's files of the verbs transport share; nothing else includes it but tests
 *
 *   part->id                     key of its immediates; 0: none yet, or it needs none
 *   part->carried, told, heard   bits of QPs: data posted, immediate posted, immediate completed. A reset of
 *                                both ends proves as much as an immediate, so a fence takes the QP out of all three
 *   part->requests_inflight      its entries in send queues, and its orphans in doubt
 *
 * Invariant:  retired <= accounted-or-posted <= retired + KVP_VERBS_SQ; an entry between them with a part
 *             is counted in that part's requests_inflight
 * Threads:    [L]
 */
#ifndef KVP_VERBS_LANE_H
#define KVP_VERBS_LANE_H

#include "verbs.h"

#define KVP_VERBS_NO_SLOT  UINT32_MAX
#define KVP_VERBS_ROOM_MIN 2U /* places that messages leave to a credit and a probe */
_Static_assert(KVP_VERBS_SQ_KEPT > KVP_VERBS_ROOM_MIN, "data leaves some to messages");

/* kvp_part.notify_state */
enum kvp_verbs_notify {
	KVP_VERBS_NOTIFY_IDLE = 0,
	KVP_VERBS_NOTIFY_SENT = 1,
	KVP_VERBS_NOTIFY_DELIVERED = 2,
};

static inline struct kvp_verbs_request *
kvp_verbs_entry(struct kvp_verbs_queue *queue, uint32_t sequence)
{
	return &queue->request[sequence & (KVP_VERBS_SQ - 1)];
}

static inline uint32_t
kvp_verbs_bit(const struct kvp_verbs_queue *queue)
{
	return UINT32_C(1) << queue->index;
}

static inline uint32_t
kvp_verbs_slot_of(uint32_t key)
{
	return key & 0xFFFFFU;
}

/* Of two keys of one slot: is `a` of a later generation? 0 is before all. */
static inline bool
kvp_verbs_is_newer(uint32_t a, uint32_t b)
{
	uint32_t ahead = ((a >> 20) - (b >> 20)) & 0xFFFU;

	return b == 0 ? a != 0 : ahead != 0 && ahead < 0x800U;
}

/* Of two generations of a QP. */
static inline bool
kvp_verbs_is_later(uint32_t a, uint32_t b)
{
	uint32_t ahead = (a - b) & 0xFFFU;

	return ahead != 0 && ahead < 0x800U;
}

/* --- verbs_post_fast.c ------------------------------------------------------------------ */

/*
 * Post one request with a signal; `entry` says what it is. False: not now (the QP may have been broken).
 * The caller saw room, and credit if it is a message.
 */
bool
kvp_verbs_post_one(struct kvp_verbs_queue *queue, struct ibv_send_wr *wr,
		   const struct kvp_verbs_request *entry, uint64_t now_ns);
/* What a provider refused. Breaks the QP unless it can be tried again. */
KVP_COLD void
kvp_verbs_refused(struct kvp_verbs_queue *queue, int rc, uint64_t now_ns);
/* Post from `cursor`, which ends at byte `end` of the plan, one chain at most. Returns requests posted. */
KVP_HOT uint32_t
kvp_verbs_post_chain(struct kvp_verbs_endpoint *ep, struct kvp_part *part,
		     struct kvp_cursor *cursor, uint64_t end, uint64_t now_ns);

/* --- verbs_poll_fast.c ------------------------------------------------------------------- */

/* Take completions of one CQ, once per `now_ns`. Returns how many. */
KVP_HOT uint32_t
kvp_verbs_poll(struct kvp_verbs_cq *cq, uint64_t now_ns);
/* Entries [retired, through] of the QP completed. */
KVP_HOT void
kvp_verbs_retire(struct kvp_verbs_queue *queue, uint32_t through, uint64_t now_ns);
/* Has everything of the part landed, and was all of it told? Then the lane is told. The part may be gone. */
KVP_HOT void
kvp_verbs_part_check(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns);

/* --- verbs_message_fast.c ------------------------------------------------------------------ */

/* A key for a part that carries data for a notification. */
void
kvp_verbs_key_take(struct kvp_verbs_endpoint *ep, struct kvp_part *part);
/* The same slot, a new generation: nobody believes an immediate of the old one any more. */
void
kvp_verbs_key_renew(struct kvp_verbs_endpoint *ep, struct kvp_part *part);
/* Give the key back; it stays readable. Without one: nothing. */
void
kvp_verbs_key_give(struct kvp_verbs_endpoint *ep, const struct kvp_part *part);
/* Everything is posted: an immediate on every QP that has not had one. Returns how many were posted. */
uint32_t
kvp_verbs_tell(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns);
/* A receive completed with success. */
KVP_HOT void
kvp_verbs_received(struct kvp_verbs_queue *queue, const struct ibv_wc *wc, uint64_t now_ns);
/* Post all receives of a QP just taken over. False: the provider would not; the QP was broken. */
bool
kvp_verbs_receives_post(struct kvp_verbs_queue *queue, uint64_t now_ns);
/* Tell the peer of receives, when there are enough new ones. */
void
kvp_verbs_grant(struct kvp_verbs_queue *queue, uint64_t now_ns);
/* Try the notifications that wait. Returns how many were published or dropped. */
uint32_t
kvp_verbs_pendings_try(struct kvp_verbs_endpoint *ep, uint64_t now_ns);
/* Drop those for this cache, or all (cache_id 0). */
KVP_COLD void
kvp_verbs_pendings_drop(struct kvp_verbs_endpoint *ep, int64_t cache_id, uint64_t now_ns);

/* --- verbs_fence.c --------------------------------------------------------------------------- */

/* The QP carries nothing from now on: to ERR, its flushes are awaited. A second call does nothing. */
KVP_COLD void
kvp_verbs_break(struct kvp_verbs_queue *queue, uint32_t wc_status, uint32_t vendor_error,
		uint64_t now_ns);
/* A QP in FLUSHING: is all of it accounted for, or its time over? */
KVP_COLD void
kvp_verbs_flush_check(struct kvp_verbs_queue *queue, uint64_t now_ns);
/* Heed `fenced` of a QP, once this side's is flushed. Returns work done. */
KVP_COLD uint32_t
kvp_verbs_fence_check(struct kvp_verbs_queue *queue, uint64_t now_ns);
/* Has the part orphans? */
KVP_COLD bool
kvp_verbs_has_orphans(const struct kvp_verbs_endpoint *ep, const struct kvp_part *part);
/* Post orphans of the part again whose fence came. Returns requests posted. */
KVP_COLD uint32_t
kvp_verbs_post_again(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns);
/* Of a part that stops: let go what need not be waited for any more. */
KVP_COLD void
kvp_verbs_orphans_drop(struct kvp_verbs_endpoint *ep, struct kvp_part *part, uint64_t now_ns);
/* The peer broke the protocol, or nothing works any more: silence, then the endpoint fails with `why`. */
KVP_COLD void
kvp_verbs_fail(struct kvp_verbs_endpoint *ep, kvp_status why, uint64_t now_ns);

/* --- verbs_attend.c ---------------------------------------------------------------------------- */

/* What changed by `attention`, QPs in `busy`, a failing endpoint. Returns work done. */
KVP_COLD uint32_t
kvp_verbs_attend(struct kvp_verbs_endpoint *ep, uint64_t now_ns);

#endif /* KVP_VERBS_LANE_H */
