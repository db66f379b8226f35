/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake_verbs_state.h"

static struct fake_qp *
qp_of(struct ibv_qp *qp)
{
	return (struct fake_qp *)(void *)qp;
}

struct fake_qp *
fake_qp_find(uint32_t number)
{
	struct fake_qp *qp = fake.qp[number & (FAKE_QPS_MAX - 1)];

	return qp != NULL && qp->number == number ? qp : NULL;
}

/* --- create, destroy ---------------------------------------------------------------- */

static int
qp_refused(const struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	const struct fake_verbs_topology *t = &fake.topology;

	if (fake.is_fatal[fake_context_of(pd->context)->device])
		return EIO;
	if (attr->qp_type != IBV_QPT_RC)
		return EOPNOTSUPP;
	if (attr->send_cq == NULL || attr->recv_cq == NULL || attr->srq != NULL ||
	    attr->send_cq->context != pd->context || attr->recv_cq->context != pd->context)
		return EINVAL;
	if (attr->cap.max_send_wr > t->max_qp_wr || attr->cap.max_recv_wr > t->max_qp_wr ||
	    attr->cap.max_send_sge > t->max_sge || attr->cap.max_recv_sge > t->max_sge ||
	    attr->cap.max_inline_data > t->max_inline)
		return EINVAL;
	return fake.lives == FAKE_QPS_MAX ? ENOMEM : 0;
}

static struct fake_qp *
qp_alloc(const struct ibv_qp_cap *cap)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	if (qp == NULL)
		return NULL;
	qp->sq = malloc((cap->max_send_wr + 1) * sizeof(*qp->sq));
	qp->sq_sge = malloc((cap->max_send_wr * cap->max_send_sge + 1) * sizeof(*qp->sq_sge));
	qp->sq_inline = malloc(cap->max_send_wr * cap->max_inline_data + 1);
	qp->rq = malloc((cap->max_recv_wr + 1) * sizeof(*qp->rq));
	qp->rq_sge = malloc((cap->max_recv_wr * cap->max_recv_sge + 1) * sizeof(*qp->rq_sge));
	if (qp->sq == NULL || qp->sq_sge == NULL || qp->sq_inline == NULL || qp->rq == NULL ||
	    qp->rq_sge == NULL)
		abort();
	return qp;
}

static void
qp_fill(struct fake_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	qp->device = fake_context_of(pd->context)->device;
	qp->pd = (struct fake_pd *)(void *)pd;
	qp->send_cq = (struct fake_cq *)(void *)attr->send_cq;
	qp->recv_cq = (struct fake_cq *)(void *)attr->recv_cq;
	qp->cap = attr->cap;
	qp->is_all_signaled = attr->sq_sig_all != 0;
	qp->qp = (struct ibv_qp){.context = pd->context,
				 .qp_context = attr->qp_context,
				 .pd = pd,
				 .send_cq = attr->send_cq,
				 .recv_cq = attr->recv_cq,
				 .qp_type = IBV_QPT_RC};
}

static void
cq_use(struct fake_cq *cq, uint32_t wrs, int by)
{
	cq->users += (uint32_t)by;
	cq->promised += (uint32_t)by * wrs;
	if (by > 0 && cq->promised > cq->depth && !fake.topology.is_slack)
		fake_failed("a CQ of %u has QPs that can cause %u completions", cq->depth,
			    cq->promised);
}

struct ibv_qp *
ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp;
	uint32_t place;
	int rc;

	pthread_mutex_lock(&fake_lock);
	rc = qp_refused(pd, attr);
	pthread_mutex_unlock(&fake_lock);
	if (rc != 0) {
		errno = rc;
		return NULL;
	}
	qp = qp_alloc(&attr->cap);
	if (qp == NULL)
		return NULL;
	qp_fill(qp, pd, attr);
	pthread_mutex_lock(&fake_lock);
	while (fake.qp[fake.qp_next & (FAKE_QPS_MAX - 1)] != NULL)
		fake.qp_next++;
	place = fake.qp_next & (FAKE_QPS_MAX - 1);
	qp->number = fake.qp_next++ & 0xFFFFFFU;
	fake.qp[place] = qp;
	fake.live[fake.lives++] = qp;
	fake.count.qps++;
	qp->qp.qp_num = qp->number;
	qp->pd->users++;
	cq_use(qp->send_cq, qp->cap.max_send_wr, 1);
	cq_use(qp->recv_cq, qp->cap.max_recv_wr, 1);
	pthread_mutex_unlock(&fake_lock);
	return &qp->qp;
}

/* To RESET or gone: what is on the wire stays there, what was written is visible. */
static void
qp_reset(struct fake_qp *qp)
{
	fake_land_all(qp);
	fake_flow_stray(&qp->requests);
	fake_flow_stray(&qp->answers);
	fake_cq_clean(qp->send_cq, qp->number);
	fake_cq_clean(qp->recv_cq, qp->number);
	qp->posted = qp->una = qp->next = qp->started = qp->freed = 0;
	qp->offset = qp->retries = qp->rnr_retries = qp->reads = 0;
	qp->is_rnr_waiting = qp->has_failed = qp->is_nak_sent = qp->is_receiving = false;
	qp->is_mute = qp->is_held = qp->is_stuck = false;
	qp->rq_posted = qp->rq_taken = qp->rq_freed = 0;
	qp->write_left = 0;
	qp->jobs = qp->jobs_done = 0;
	qp->state = IBV_QPS_RESET;
}

int
ibv_destroy_qp(struct ibv_qp *base)
{
	struct fake_qp *qp = qp_of(base);

	pthread_mutex_lock(&fake_lock);
	if (qp->async_unacked > 0)
		fake_failed(
			"QP 0x%x is destroyed with %u events not acknowledged: a real one waits "
			"for ever",
			qp->number, qp->async_unacked);
	qp_reset(qp);
	fake_events_purge(fake_context_of(base->context), base);
	cq_use(qp->send_cq, qp->cap.max_send_wr, -1);
	cq_use(qp->recv_cq, qp->cap.max_recv_wr, -1);
	qp->pd->users--;
	fake.qp[qp->number & (FAKE_QPS_MAX - 1)] = NULL;
	for (uint32_t i = 0; i < fake.lives; i++)
		if (fake.live[i] == qp)
			fake.live[i--] = fake.live[--fake.lives];
	pthread_mutex_unlock(&fake_lock);
	free(qp->sq);
	free(qp->sq_sge);
	free(qp->sq_inline);
	free(qp->rq);
	free(qp->rq_sge);
	free(qp);
	return 0;
}

void
fake_qp_err(struct fake_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	fake_land_all(qp);
	qp->jobs = qp->jobs_done = 0;
	qp->is_rnr_waiting = qp->has_failed = false;
	qp->state = IBV_QPS_ERR;
}

/* --- modify ---------------------------------------------------------------------------- */

struct move {
	enum ibv_qp_state from, to;
	int needs, may;
};

static const struct move moves[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

static int
move_check(const struct fake_qp *qp, enum ibv_qp_state to, int mask)
{
	int given = mask & ~(int)IBV_QP_STATE;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return given == 0 ? 0 : EINVAL;
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		if (moves[i].from == qp->state && moves[i].to == to)
			return (given & moves[i].needs) == moves[i].needs &&
					       (given & ~(moves[i].needs | moves[i].may)) == 0
				       ? 0
				       : EINVAL;
	return EINVAL;
}

static int
to_init(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0)
		return EINVAL;
	if ((mask & IBV_QP_PORT) != 0) {
		if (attr->port_num < 1 || attr->port_num > fake.topology.device[qp->device].ports)
			return EINVAL;
		qp->port = qp->device * FAKE_VERBS_PORTS_MAX + attr->port_num - 1;
		qp->attr.port_num = attr->port_num;
	}
	if ((mask & IBV_QP_ACCESS_FLAGS) != 0)
		qp->attr.qp_access_flags = attr->qp_access_flags;
	return 0;
}

static int
to_rtr(struct fake_qp *qp, const struct ibv_qp_attr *attr)
{
	static const uint32_t bytes[] = {0, 256, 512, 1024, 2048, 4096};
	const struct fake_port *port = &fake.port[qp->port];
	const struct ibv_ah_attr *ah = &attr->ah_attr;

	if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096 ||
	    ah->port_num != qp->attr.port_num || attr->dest_qp_num > 0xFFFFFFU ||
	    attr->rq_psn > 0xFFFFFFU || attr->min_rnr_timer > 31 || attr->max_dest_rd_atomic > 16)
		return EINVAL;
	if (!fake.topology.device[qp->device].is_infiniband && !ah->is_global)
		return EINVAL;
	if (ah->is_global && ah->grh.sgid_index >= FAKE_GIDS)
		return EINVAL;
	if (ah->is_global && (port->type[ah->grh.sgid_index] == 0 || port->cable == FAKE_VERBS_CUT))
		return ENODATA;
	qp->peer_port = fake_port_find(ah, qp->port);
	if (qp->peer_port == FAKE_VERBS_ANY)
		return ENETUNREACH;
	qp->attr.ah_attr = *ah;
	qp->attr.path_mtu = attr->path_mtu;
	qp->attr.dest_qp_num = attr->dest_qp_num;
	qp->attr.rq_psn = attr->rq_psn;
	qp->attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	qp->attr.min_rnr_timer = attr->min_rnr_timer;
	qp->expected_psn = attr->rq_psn;
	qp->segment = fake.topology.segment < bytes[attr->path_mtu] ? fake.topology.segment
								    : bytes[attr->path_mtu];
	return 0;
}

static int
to_rts(struct fake_qp *qp, const struct ibv_qp_attr *attr)
{
	if (attr->sq_psn > 0xFFFFFFU || attr->timeout > 31 || attr->retry_cnt > 7 ||
	    attr->rnr_retry > 7 || attr->max_rd_atomic > 16)
		return EINVAL;
	qp->attr.sq_psn = attr->sq_psn;
	qp->attr.timeout = attr->timeout;
	qp->attr.retry_cnt = attr->retry_cnt;
	qp->attr.rnr_retry = attr->rnr_retry;
	qp->attr.max_rd_atomic = attr->max_rd_atomic;
	qp->next_psn = qp->top_psn = attr->sq_psn;
	return 0;
}

static int
move_to(struct fake_qp *qp, const struct ibv_qp_attr *attr, enum ibv_qp_state to, int mask)
{
	int rc = 0;

	if (to == IBV_QPS_RESET) {
		qp_reset(qp);
	} else if (to == IBV_QPS_ERR) {
		if (qp->state == IBV_QPS_RESET)
			return EINVAL;
		fake_qp_err(qp);
	} else if (to == IBV_QPS_INIT) {
		rc = to_init(qp, attr, mask);
	} else if (to == IBV_QPS_RTR) {
		rc = to_rtr(qp, attr);
	} else if (qp->state == IBV_QPS_RTR) {
		rc = to_rts(qp, attr);
	}
	if (rc == 0 && (mask & IBV_QP_ACCESS_FLAGS) != 0)
		qp->attr.qp_access_flags = attr->qp_access_flags;
	if (rc == 0)
		qp->state = to;
	return rc;
}

int
ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = qp_of(base);
	enum ibv_qp_state to;
	int rc;

	pthread_mutex_lock(&fake_lock);
	to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : qp->state;
	rc = move_check(qp, to, mask);
	if (rc == 0 && fake.is_fatal[qp->device] && to != IBV_QPS_ERR && to != IBV_QPS_RESET)
		rc = EIO;
	if (rc == 0)
		rc = move_to(qp, attr, to, mask);
	if (rc == 0)
		base->state = to;
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int
ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
	     struct ibv_qp_init_attr *init_attr)
{
	struct fake_qp *qp = qp_of(base);

	(void)mask;
	pthread_mutex_lock(&fake_lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->cap;
	attr->sq_psn = qp->next_psn;
	attr->rq_psn = qp->expected_psn;
	base->state = qp->state;
	pthread_mutex_unlock(&fake_lock);
	*init_attr = (struct ibv_qp_init_attr){.qp_context = base->qp_context,
					       .send_cq = base->send_cq,
					       .recv_cq = base->recv_cq,
					       .cap = attr->cap,
					       .qp_type = IBV_QPT_RC,
					       .sq_sig_all = qp->is_all_signaled};
	return 0;
}

int
ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}

int
ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	if (fake.topology.has_no_ece)
		return EOPNOTSUPP;
	*ece = (struct ibv_ece){.vendor_id = 0xfa4e, .options = 3, .comp_mask = 0};
	return 0;
}

int
ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp;
	if (fake.topology.has_no_ece)
		return EOPNOTSUPP;
	if (ece->vendor_id != 0xfa4e)
		return EINVAL;
	ece->options &= 3;
	return 0;
}

/* --- for tests --------------------------------------------------------------------------- */

uint32_t
fake_verbs_outstanding(const struct ibv_qp *base)
{
	const struct fake_qp *qp = (const struct fake_qp *)(const void *)base;
	uint32_t count;

	pthread_mutex_lock(&fake_lock);
	count = qp->posted - qp->freed;
	pthread_mutex_unlock(&fake_lock);
	return count;
}

enum ibv_qp_state
fake_verbs_state(const struct ibv_qp *base)
{
	const struct fake_qp *qp = (const struct fake_qp *)(const void *)base;
	enum ibv_qp_state state;

	pthread_mutex_lock(&fake_lock);
	state = qp->state;
	pthread_mutex_unlock(&fake_lock);
	return state;
}

uint32_t
fake_verbs_nth_qp(uint32_t i)
{
	uint32_t number;

	pthread_mutex_lock(&fake_lock);
	number = i < fake.lives ? fake.live[i]->number : FAKE_VERBS_ANY;
	pthread_mutex_unlock(&fake_lock);
	return number;
}
