/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_queue.h - completion queues, queue pairs and the memory of their messages
 *
 * Invariant:  a completion queue is deep enough for every entry of all its QPs, since on a flush each
 *             one completes; it gets no further QP beyond that
 * Ownership:  a queue's QP exists between _open and _close; the place in the completion queue and
 *             the mail stay the queue's over rebuilds
 * Threads:    [C]
 */
#ifndef KVP_VERBS_QUEUE_H
#define KVP_VERBS_QUEUE_H

#include "verbs.h"

/* A completion queue of this lane and device with room for one more QP, and the QP's place in it. */
KVP_MUST_USE kvp_status
kvp_verbs_cq_take(struct kvp_verbs *verbs, struct kvp_lane *lane, uint32_t device,
		  struct kvp_verbs_cq **cq_out, uint32_t *place_out, struct kvp_error *err);
void
kvp_verbs_cq_give(struct kvp_verbs *verbs, struct kvp_verbs_cq *cq, uint32_t place);

/* How a QP reaches the peer's. */
struct kvp_verbs_route {
	const struct kvp_verbs_port *port; /* ours */
	struct kvp_verbs_address peer;
	struct kvp_verbs_peer_queue queue;
	uint32_t ece[3]; /* the peer's, zeros: none */
	uint32_t psn;    /* ours */
};

/*
 * Make the QP: INIT. queue->cq, device and `port` are set. *psn_out is random. NO_RESOURCE with the device's
 * limit, OUT_OF_MEMORY.
 */
KVP_MUST_USE kvp_status
kvp_verbs_queue_open(struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
		     const struct kvp_verbs_port *port, uint32_t *psn_out, struct kvp_error *err);
/* INIT -> RTS. NO_TRANSPORT: the address leads nowhere (now). The QP stays, to be closed. */
KVP_MUST_USE kvp_status
kvp_verbs_queue_connect(struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
			const struct kvp_verbs_route *route, struct kvp_error *err);
/* Destroy it: nothing is sent or received by it afterwards. Without a QP: nothing. */
void
kvp_verbs_queue_close(struct kvp_verbs_queue *queue);
/* What the device would like the peer to use; zeros: nothing. Without a QP: nothing. */
void
kvp_verbs_queue_ece(struct kvp_verbs_queue *queue, uint32_t ece_out[3]);

/* Free what the functions above kept for later: completion queues without QPs, protection domains. */
void
kvp_verbs_queues_end(struct kvp_verbs *verbs);

#endif /* KVP_VERBS_QUEUE_H */
