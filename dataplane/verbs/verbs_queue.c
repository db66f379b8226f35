/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <sys/random.h>

#include <kvpush/engine.h>

#include "check.h"
#include "lane.h"
#include "rights.h"

#define ENTRIES    (KVP_VERBS_SQ + KVP_VERBS_RQ) /* completions that one QP can cause */
#define READS_MAX  16U
#define INLINE_MIN 8U /* a CREDIT */
#define HOP_LIMIT  64U
#define PSN_MASK   0xFFFFFFU

/* --- completion queues ---------------------------------------------------------------- */

static void
cq_destroy(struct kvp_verbs_cq *cq)
{
	if (cq->cq != NULL)
		(void)ibv_destroy_cq(cq->cq);
	if (cq->channel != NULL)
		(void)ibv_destroy_comp_channel(cq->channel);
	free(cq);
}

static kvp_status
cq_create(struct kvp_verbs *verbs, struct kvp_lane *lane, uint32_t device,
	  struct kvp_verbs_cq **cq_out, struct kvp_error *err)
{
	const struct kvp_verbs_device *dev = &verbs->devices.device[device];
	uint32_t depth = KVP_VERBS_CQ_DEPTH;
	struct kvp_verbs_cq *cq;

	if (dev->attr.max_cqe > 0 && (uint32_t)dev->attr.max_cqe < depth)
		depth = (uint32_t)dev->attr.max_cqe;
	if (depth < ENTRIES)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"verbs: %s: completion queues of at most %u entries are too short "
				"for a queue pair's %u",
				dev->name, depth, ENTRIES);
	cq = aligned_alloc(KVP_SHARE_SPAN,
			   (sizeof(*cq) + KVP_SHARE_SPAN - 1) / KVP_SHARE_SPAN * KVP_SHARE_SPAN);
	if (cq == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for a completion queue");
	memset(cq, 0, sizeof(*cq));
	cq->lane = lane;
	cq->device = device;
	cq->depth = depth;
	cq->channel = ibv_create_comp_channel(dev->context);
	if (cq->channel != NULL &&
	    fcntl(cq->channel->fd, F_SETFL, fcntl(cq->channel->fd, F_GETFL) | O_NONBLOCK) == 0)
		cq->cq = ibv_create_cq(dev->context, (int)depth, cq, cq->channel, 0);
	if (cq->cq == NULL) {
		kvp_status status = kvp_fail(
			err, KVP_NO_RESOURCE,
			"verbs: %s: completion queue of %u entries: %s; the device has %d queues of at "
			"most %d",
			dev->name, depth, strerrorname_np(errno), dev->attr.max_cq,
			dev->attr.max_cqe);

		cq_destroy(cq);
		return status;
	}
	*cq_out = cq;
	return KVP_SUCCESS;
}

static uint32_t
place_find(const struct kvp_verbs_cq *cq)
{
	for (uint32_t i = 0; i < KVP_VERBS_CQ_QPS / 64; i++) {
		if (~cq->places[i] != 0)
			return 64 * i + (uint32_t)__builtin_ctzll(~cq->places[i]);
	}
	return KVP_VERBS_CQ_QPS;
}

kvp_status
kvp_verbs_cq_take(struct kvp_verbs *verbs, struct kvp_lane *lane, uint32_t device,
		  struct kvp_verbs_cq **cq_out, uint32_t *place_out, struct kvp_error *err)
{
	struct kvp_verbs_cq *cq = verbs->cqs;
	kvp_status status;
	uint32_t place;

	while (cq != NULL && (cq->lane != lane || cq->device != device ||
			      cq->used + ENTRIES > cq->depth || place_find(cq) == KVP_VERBS_CQ_QPS))
		cq = cq->next;
	if (cq == NULL) {
		status = cq_create(verbs, lane, device, &cq, err);
		if (status != KVP_SUCCESS)
			return status;
		cq->next = verbs->cqs;
		verbs->cqs = cq;
	}
	place = place_find(cq);
	cq->places[place / 64] |= UINT64_C(1) << (place % 64);
	cq->used += ENTRIES;
	cq->users++;
	*cq_out = cq;
	*place_out = place;
	return KVP_SUCCESS;
}

void
kvp_verbs_cq_give(struct kvp_verbs *verbs, struct kvp_verbs_cq *cq, uint32_t place)
{
	struct kvp_verbs_cq **at = &verbs->cqs;

	KVP_ASSERT(cq->users >= 1 && cq->used >= ENTRIES);
	cq->places[place / 64] &= ~(UINT64_C(1) << (place % 64));
	cq->used -= ENTRIES;
	if (--cq->users > 0)
		return;
	while (*at != cq)
		at = &(*at)->next;
	*at = cq->next;
	cq_destroy(cq);
}

/* --- queue pairs -------------------------------------------------------------------------- */

/* The domain of a lane's QPs: one that says that only one thread posts, if the provider knows such. */
static struct ibv_pd *
lane_pd(struct kvp_verbs *verbs, uint32_t lane, uint32_t device)
{
	const struct kvp_verbs_device *dev = &verbs->devices.device[device];
	struct ibv_parent_domain_init_attr attr = {.pd = dev->pd};
	struct ibv_td_init_attr none = {0};

	if (verbs->lane_pd[lane][device] != NULL)
		return verbs->lane_pd[lane][device];
	verbs->lane_pd[lane][device] = dev->pd;
	attr.td = ibv_alloc_td(dev->context, &none);
	if (attr.td == NULL)
		return dev->pd;
	verbs->lane_pd[lane][device] = ibv_alloc_parent_domain(dev->context, &attr);
	if (verbs->lane_pd[lane][device] == NULL) {
		(void)ibv_dealloc_td(attr.td);
		verbs->lane_pd[lane][device] = dev->pd;
		return dev->pd;
	}
	verbs->td[lane][device] = attr.td;
	return verbs->lane_pd[lane][device];
}

static uint32_t
pieces_of(const struct kvp_verbs *verbs, const struct kvp_verbs_device *dev)
{
	uint32_t most = dev->attr.max_sge < 1 ? 1 : (uint32_t)dev->attr.max_sge;
	uint32_t wanted = verbs->dataplane->config->verbs_pieces;

	return most < wanted ? most : wanted;
}

static struct ibv_qp *
qp_create(struct kvp_verbs *verbs, struct kvp_verbs_queue *queue)
{
	const struct kvp_verbs_device *dev = &verbs->devices.device[queue->device];
	struct ibv_qp_init_attr attr = {
		.qp_context = queue,
		.send_cq = queue->cq->cq,
		.recv_cq = queue->cq->cq,
		.cap = {.max_send_wr = KVP_VERBS_SQ,
			.max_recv_wr = KVP_VERBS_RQ,
			.max_send_sge = pieces_of(verbs, dev),
			.max_recv_sge = 1,
			.max_inline_data = INLINE_MIN},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp;

	qp = ibv_create_qp(lane_pd(verbs, kvp_lane_index(queue->cq->lane), queue->device), &attr);
	if (qp == NULL) { /* one without inline data will do */
		attr.cap.max_inline_data = 0;
		qp = ibv_create_qp(lane_pd(verbs, kvp_lane_index(queue->cq->lane), queue->device),
				   &attr);
	}
	if (qp == NULL)
		return NULL;
	queue->pieces_max = pieces_of(verbs, dev);
	queue->inline_max = attr.cap.max_inline_data;
	return qp;
}

static int
to_init(const struct kvp_verbs *verbs, struct ibv_qp *qp, const struct kvp_verbs_port *port)
{
	uint32_t rights = kvp_rights_of(verbs->dataplane->config->peer_rights);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = port->number,
		/* Also without pushes: the peer writes its credit. What it may write is the MRs' say. */
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if ((rights & KVP_RIGHT_PULL) != 0)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

kvp_status
kvp_verbs_queue_open(struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
		     const struct kvp_verbs_port *port, uint32_t *psn_out, struct kvp_error *err)
{
	const struct kvp_verbs_device *dev = &verbs->devices.device[queue->device];
	uint32_t psn;
	int rc;

	KVP_CHECK(queue->qp == NULL);
	if (getrandom(&psn, sizeof(psn), 0) != (ssize_t)sizeof(psn))
		return kvp_fail(err, KVP_NO_RESOURCE, "verbs: getrandom: %s", strerror(errno));
	queue->qp = qp_create(verbs, queue);
	if (queue->qp == NULL)
		return kvp_fail(
			err, errno == ENOMEM ? KVP_OUT_OF_MEMORY : KVP_NO_RESOURCE,
			"verbs: %s: queue pair: %s; the device has %d of at most %d requests; "
			"the control group may have fewer (rdma.max)",
			dev->name, strerrorname_np(errno), dev->attr.max_qp, dev->attr.max_qp_wr);
	rc = to_init(verbs, queue->qp, port);
	if (rc != 0) {
		kvp_verbs_queue_close(queue);
		return kvp_fail(err, KVP_NO_RESOURCE, "verbs: %s: queue pair to INIT: %s",
				dev->name, strerrorname_np(rc));
	}
	*psn_out = psn & PSN_MASK;
	return KVP_SUCCESS;
}

static enum ibv_mtu
mtu_of(const struct kvp_verbs *verbs, const struct kvp_verbs_route *route)
{
	uint32_t wanted = verbs->dataplane->config->verbs_mtu;
	uint32_t mtu = route->port->address.mtu;

	if (route->peer.mtu < mtu)
		mtu = route->peer.mtu;
	while (wanted != 0 && mtu > IBV_MTU_256 && (128U << mtu) > wanted)
		mtu--;
	return (enum ibv_mtu)mtu;
}

static void
fill_path(const struct kvp_verbs *verbs, const struct kvp_verbs_route *route,
	  struct ibv_ah_attr *ah)
{
	const struct kvp_config *config = verbs->dataplane->config;
	const struct kvp_verbs_address *own = &route->port->address;

	ah->port_num = route->port->number;
	ah->sl = (uint8_t)config->verbs_service_level;
	ah->dlid = route->peer.lid;
	/* Inside one InfiniBand subnet no global header is needed. */
	if (own->link == KVP_VERBS_INFINIBAND && memcmp(own->gid, route->peer.gid, 8) == 0)
		return;
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, route->peer.gid, KVP_VERBS_GID_BYTES);
	ah->grh.sgid_index = (uint8_t)route->port->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = (uint8_t)config->verbs_traffic_class;
}

static uint8_t
reads_of(int device_max)
{
	return (uint8_t)(device_max < 1                ? 1
			 : device_max > (int)READS_MAX ? READS_MAX
						       : (uint32_t)device_max);
}

static int
to_rtr(const struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
       const struct kvp_verbs_route *route)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_of(verbs, route),
		.dest_qp_num = route->queue.number,
		.rq_psn = route->queue.psn,
		.max_dest_rd_atomic =
			reads_of(verbs->devices.device[queue->device].attr.max_qp_rd_atom),
		.min_rnr_timer = (uint8_t)verbs->dataplane->config->verbs_rnr_timer,
	};

	fill_path(verbs, route, &attr.ah_attr);
	return ibv_modify_qp(queue->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int
to_rts(const struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
       const struct kvp_verbs_route *route)
{
	const struct kvp_config *config = verbs->dataplane->config;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)config->verbs_timeout,
		.retry_cnt = (uint8_t)config->verbs_retry,
		.rnr_retry = (uint8_t)config->verbs_rnr_retry,
		.sq_psn = route->psn,
		.max_rd_atomic =
			reads_of(verbs->devices.device[queue->device].attr.max_qp_init_rd_atom),
	};

	return ibv_modify_qp(queue->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Enhanced connection establishment: what both devices can do better. One that cannot says so; no harm. */
static void
agree_on_ece(struct kvp_verbs_queue *queue, const uint32_t ece[3])
{
	struct ibv_ece wanted = {.vendor_id = ece[0], .options = ece[1], .comp_mask = ece[2]};

	if (ece[0] != 0)
		(void)ibv_set_ece(queue->qp, &wanted);
}

kvp_status
kvp_verbs_queue_connect(struct kvp_verbs *verbs, struct kvp_verbs_queue *queue,
			const struct kvp_verbs_route *route, struct kvp_error *err)
{
	const char *step = "RTR";
	char gid[INET6_ADDRSTRLEN];
	int rc;

	agree_on_ece(queue, route->ece);
	rc = to_rtr(verbs, queue, route);
	if (rc == 0) {
		step = "RTS";
		rc = to_rts(verbs, queue, route);
	}
	if (rc == 0)
		return KVP_SUCCESS;
	kvp_verbs_gid_text(route->peer.gid, gid, sizeof(gid));
	return kvp_fail(
		err, KVP_NO_TRANSPORT,
		"verbs: %s port %u: queue pair to %s towards %s: %s; is there a route to it, and "
		"is the GID at index %u still there?",
		verbs->devices.device[queue->device].name, route->port->number, step, gid,
		strerrorname_np(rc), route->port->gid_index);
}

void
kvp_verbs_queue_close(struct kvp_verbs_queue *queue)
{
	if (queue->qp == NULL)
		return;
	(void)ibv_destroy_qp(queue->qp);
	queue->qp = NULL;
}

void
kvp_verbs_queue_ece(struct kvp_verbs_queue *queue, uint32_t ece_out[3])
{
	struct ibv_ece ece = {0};

	memset(ece_out, 0, 3 * sizeof(ece_out[0]));
	if (queue->qp == NULL || ibv_query_ece(queue->qp, &ece) != 0)
		return;
	ece_out[0] = ece.vendor_id;
	ece_out[1] = ece.options;
	ece_out[2] = ece.comp_mask;
}

void
kvp_verbs_queues_end(struct kvp_verbs *verbs)
{
	KVP_CHECK(verbs->cqs == NULL);
	for (uint32_t lane = 0; lane < KVP_LANES_MAX; lane++) {
		for (uint32_t d = 0; d < KVP_VERBS_DEVICES_MAX; d++) {
			if (verbs->td[lane][d] == NULL)
				continue;
			(void)ibv_dealloc_pd(verbs->lane_pd[lane][d]);
			(void)ibv_dealloc_td(verbs->td[lane][d]);
			verbs->td[lane][d] = NULL;
		}
	}
}
