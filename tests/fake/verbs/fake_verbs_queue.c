/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "fake_verbs_state.h"

static struct fake_qp *
qp_of(struct ibv_qp *qp)
{
	return (struct fake_qp *)(void *)qp;
}

static struct fake_cq *
cq_of(struct ibv_cq *cq)
{
	return (struct fake_cq *)(void *)cq;
}

/* --- posting ----------------------------------------------------------------------- */

static bool
takes_receive(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND ||
	       opcode == IBV_WR_SEND_WITH_IMM;
}

static int
wr_refused(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	if (qp->refuse_count > 0) {
		if (qp->refuse_after == 0) {
			qp->refuse_count--;
			return ENOMEM;
		}
		qp->refuse_after--;
	}
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD && qp->state != IBV_QPS_ERR)
		return EINVAL;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ &&
	    !takes_receive(wr->opcode))
		return EINVAL;
	if (wr->opcode == IBV_WR_RDMA_READ &&
	    ((wr->send_flags & IBV_SEND_INLINE) != 0 || qp->attr.max_rd_atomic == 0))
		return EINVAL;
	if (qp->posted - qp->freed == qp->cap.max_send_wr) {
		if (!fake.topology.is_slack)
			fake_failed("QP 0x%x: more requests than its %u places", qp->number,
				    qp->cap.max_send_wr);
		return ENOMEM;
	}
	return 0;
}

static int
inline_take(struct fake_qp *qp, struct fake_wqe *wqe, uint32_t place, const struct ibv_sge *sge)
{
	uint8_t *to = qp->sq_inline + place * qp->cap.max_inline_data;

	if (wqe->bytes > qp->cap.max_inline_data)
		return EINVAL;
	for (uint32_t i = 0; i < wqe->sges; i++) {
		memcpy(to, (const void *)(uintptr_t)sge[i].addr, sge[i].length);
		to += sge[i].length;
	}
	return 0;
}

static int
wr_take(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	uint32_t place = qp->posted % qp->cap.max_send_wr;
	struct fake_wqe *wqe = &qp->sq[place];
	uint64_t bytes = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		qp->sq_sge[place * qp->cap.max_send_sge + (uint32_t)i] = wr->sg_list[i];
		bytes += wr->sg_list[i].length;
	}
	if (bytes > 1U << 31)
		return EINVAL;
	*wqe = (struct fake_wqe){.wr_id = wr->wr_id,
				 .remote = wr->wr.rdma.remote_addr,
				 .rkey = wr->wr.rdma.rkey,
				 .opcode = wr->opcode,
				 .flags = wr->send_flags,
				 .imm = wr->imm_data,
				 .sges = (uint32_t)wr->num_sge,
				 .bytes = (uint32_t)bytes,
				 .segments = 1};
	if (qp->segment > 0 && bytes > 0)
		wqe->segments = (uint32_t)((bytes + qp->segment - 1) / qp->segment);
	if (qp->force != 0 && qp->force_after-- == 0) {
		wqe->status = qp->force;
		qp->force = 0;
	}
	if ((wr->send_flags & IBV_SEND_INLINE) != 0 &&
	    inline_take(qp, wqe, place, wr->sg_list) != 0)
		return EINVAL;
	qp->posted++;
	fake.count.requests++;
	fake.count.sges += (uint32_t)wr->num_sge;
	fake.count.signaled += qp->is_all_signaled || (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	return 0;
}

int
fake_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct fake_qp *qp = qp_of(base);
	int rc = 0;

	if (fake.hook != NULL)
		fake.hook(base, wr, fake.hook_ctx);
	pthread_mutex_lock(&fake_lock);
	fake.count.doorbells++;
	for (; wr != NULL; wr = wr->next) {
		rc = wr_refused(qp, wr);
		if (rc == 0)
			rc = wr_take(qp, wr);
		if (rc != 0) {
			*bad_wr = wr;
			fake.count.refused++;
			break;
		}
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

static int
recv_take(struct fake_qp *qp, const struct ibv_recv_wr *wr)
{
	uint32_t place;
	struct fake_recv *recv;

	if (qp->state == IBV_QPS_RESET || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->cap.max_recv_sge)
		return EINVAL;
	if (qp->rq_posted - qp->rq_freed == qp->cap.max_recv_wr) {
		if (!fake.topology.is_slack)
			fake_failed("QP 0x%x: more receives than its %u places", qp->number,
				    qp->cap.max_recv_wr);
		return ENOMEM;
	}
	place = qp->rq_posted % qp->cap.max_recv_wr;
	recv = &qp->rq[place];
	*recv = (struct fake_recv){.wr_id = wr->wr_id, .sges = (uint32_t)wr->num_sge};
	for (int i = 0; i < wr->num_sge; i++) {
		qp->rq_sge[place * qp->cap.max_recv_sge + (uint32_t)i] = wr->sg_list[i];
		recv->bytes += wr->sg_list[i].length;
	}
	qp->rq_posted++;
	fake.count.receives++;
	return 0;
}

int
fake_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct fake_qp *qp = qp_of(base);
	int rc = 0;

	pthread_mutex_lock(&fake_lock);
	for (; wr != NULL && rc == 0; wr = wr->next) {
		rc = recv_take(qp, wr);
		if (rc != 0)
			*bad_wr = wr;
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

/* --- completions --------------------------------------------------------------------- */

static void
cq_event(struct fake_cq *cq)
{
	struct fake_channel *channel = (struct fake_channel *)(void *)cq->cq.channel;
	uint64_t one = 1;

	cq->is_armed = cq->is_armed_solicited = false;
	if (channel == NULL || cq->is_queued)
		return;
	cq->is_queued = true;
	cq->next = NULL;
	if (channel->last != NULL)
		channel->last->next = cq;
	else
		channel->first = cq;
	channel->last = cq;
	if (write(channel->channel.fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* A CQ that overflows is dead, and so are its QPs. */
static void
cq_overrun(struct fake_cq *cq)
{
	if (!fake.topology.is_slack)
		fake_failed("a CQ of %u overflows", cq->depth);
	cq->is_dead = true;
	fake_event_cq(cq, IBV_EVENT_CQ_ERR);
	for (uint32_t i = 0; i < fake.lives; i++)
		if (fake.live[i]->send_cq == cq || fake.live[i]->recv_cq == cq)
			fake_qp_err(fake.live[i]);
}

void
fake_complete(struct fake_qp *qp, struct fake_cq *cq, const struct fake_cqe *cqe, bool is_solicited)
{
	struct ibv_wc *wc;

	if (cq->is_dead)
		return;
	if (cq->pushed - cq->polled == cq->depth) {
		cq_overrun(cq);
		return;
	}
	cq->ring[cq->pushed % cq->depth] = *cqe;
	wc = &cq->ring[cq->pushed++ % cq->depth].wc;
	wc->qp_num = qp->number;
	if (wc->status != IBV_WC_SUCCESS) {
		/* Nothing else of a failed one means anything. */
		wc->opcode = (enum ibv_wc_opcode)(fake_random(9) | (fake_random(2) << 7));
		wc->byte_len = fake_random(UINT32_MAX);
		wc->imm_data = fake_random(UINT32_MAX);
		wc->src_qp = fake_random(UINT32_MAX);
		wc->wc_flags = fake_random(16);
		wc->vendor_err = 0;
	}
	if (cq->is_armed ||
	    (cq->is_armed_solicited && (is_solicited || wc->status != IBV_WC_SUCCESS)))
		cq_event(cq);
}

void
fake_send_done(struct fake_qp *qp, enum ibv_wc_status status)
{
	const struct fake_wqe *wqe = &qp->sq[qp->una % qp->cap.max_send_wr];
	struct fake_cqe cqe = {.upto = qp->una + 1};

	if (wqe->opcode == IBV_WR_RDMA_READ && qp->una - qp->started >= 1U << 31)
		qp->reads--;
	qp->una++;
	if (status == IBV_WC_SUCCESS && !qp->is_all_signaled &&
	    (wqe->flags & IBV_SEND_SIGNALED) == 0)
		return;
	cqe.wc.wr_id = wqe->wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = wqe->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
			: wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM
				? IBV_WC_SEND
				: IBV_WC_RDMA_WRITE;
	cqe.wc.byte_len = wqe->opcode == IBV_WR_RDMA_READ ? wqe->bytes : fake_random(UINT32_MAX);
	fake_complete(qp, qp->send_cq, &cqe, false);
}

void
fake_recv_done(struct fake_qp *qp, uint32_t index, const struct ibv_wc *wc, bool is_solicited)
{
	struct fake_cqe cqe = {.wc = *wc, .is_receive = true, .upto = index + 1};

	cqe.wc.wr_id = qp->rq[index % qp->cap.max_recv_wr].wr_id;
	cqe.wc.src_qp = qp->attr.dest_qp_num;
	fake_complete(qp, qp->recv_cq, &cqe, is_solicited);
}

void
fake_cq_clean(struct fake_cq *cq, uint32_t qp_num)
{
	uint32_t kept = cq->polled;

	for (uint32_t i = cq->polled; i != cq->pushed; i++) {
		struct fake_cqe *cqe = &cq->ring[i % cq->depth];

		if (cqe->wc.qp_num == qp_num && !fake.keeps_cqes)
			continue;
		if (cqe->wc.qp_num == qp_num)
			cqe->is_gone = true;
		cq->ring[kept++ % cq->depth] = *cqe;
	}
	cq->pushed = kept;
}

/* Entries come back to the program only now. */
static void
entries_free(const struct fake_cqe *cqe)
{
	struct fake_qp *qp = fake_qp_find(cqe->wc.qp_num);

	if (qp == NULL || cqe->is_gone)
		return;
	if (cqe->is_receive)
		qp->rq_freed = cqe->upto;
	else
		qp->freed = cqe->upto;
}

int
fake_poll_cq(struct ibv_cq *base, int num_entries, struct ibv_wc *wc)
{
	struct fake_cq *cq = cq_of(base);
	int count = 0;

	pthread_mutex_lock(&fake_lock);
	for (; count < num_entries && cq->polled != cq->pushed; count++) {
		const struct fake_cqe *cqe = &cq->ring[cq->polled++ % cq->depth];

		entries_free(cqe);
		wc[count] = cqe->wc;
		fake.count.cqes++;
		fake.count.flushed += cqe->wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	pthread_mutex_unlock(&fake_lock);
	return count;
}

/* Completions that are there already cause no event: poll once more after arming. */
int
fake_req_notify_cq(struct ibv_cq *base, int solicited_only)
{
	struct fake_cq *cq = cq_of(base);

	pthread_mutex_lock(&fake_lock);
	if (solicited_only)
		cq->is_armed_solicited = true;
	else
		cq->is_armed = true;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}
