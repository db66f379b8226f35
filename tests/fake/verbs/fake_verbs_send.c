/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fake_verbs_state.h"

static struct fake_wqe *
entry(const struct fake_qp *qp, uint32_t index)
{
	return &qp->sq[index % qp->cap.max_send_wr];
}

static bool
is_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* First segment that is not acknowledged. */
static uint32_t
una_psn(const struct fake_qp *qp)
{
	const struct fake_wqe *wqe = entry(qp, qp->una);

	if (!is_before(qp->una, qp->started))
		return qp->next_psn;
	if (wqe->opcode == IBV_WR_RDMA_READ)
		return fake_psn_add(wqe->psn, wqe->got / qp->segment);
	return wqe->psn;
}

/* --- segments out ------------------------------------------------------------------- */

static bool
may_start(const struct fake_qp *qp, const struct fake_wqe *wqe)
{
	if (is_before(qp->next, qp->started) || qp->offset > 0)
		return true;
	if ((wqe->flags & IBV_SEND_FENCE) != 0 && qp->reads > 0)
		return false;
	return wqe->opcode != IBV_WR_RDMA_READ || qp->reads < qp->attr.max_rd_atomic;
}

bool
fake_can_send(const struct fake_qp *qp)
{
	if (qp->state != IBV_QPS_RTS || qp->is_rnr_waiting)
		return false;
	if (qp->has_failed)
		return qp->una == qp->fail_at;
	return qp->next != qp->posted && qp->requests.count < fake.topology.window &&
	       fake.free != NULL && may_start(qp, entry(qp, qp->next));
}

/* The request fails, once those before it are complete. */
static void
fail_at_next(struct fake_qp *qp, enum ibv_wc_status status)
{
	qp->has_failed = true;
	qp->fail_at = qp->next;
	qp->fail_status = status;
}

/* `bytes` of the request from `offset` on; SUCCESS or what is wrong with the SGE. */
static enum ibv_wc_status
gather(struct fake_qp *qp, const struct fake_wqe *wqe, uint32_t offset, uint32_t bytes, uint8_t *to)
{
	uint32_t place = (uint32_t)(wqe - qp->sq);
	const struct ibv_sge *sge = qp->sq_sge + place * qp->cap.max_send_sge;

	if ((wqe->flags & IBV_SEND_INLINE) != 0) {
		memcpy(to, qp->sq_inline + place * qp->cap.max_inline_data + offset, bytes);
		return IBV_WC_SUCCESS;
	}
	for (uint32_t i = 0; i < wqe->sges && bytes > 0; i++) {
		uint32_t take = sge[i].length;
		const uint8_t *from;

		if (offset >= take) {
			offset -= take;
			continue;
		}
		take = take - offset < bytes ? take - offset : bytes;
		from = fake_mr_reach(qp, sge[i].lkey, false, sge[i].addr + offset, take, 0);
		if (from == NULL)
			return fake_mr_find(qp, sge[i].lkey, false) == NULL ? IBV_WC_LOC_QP_OP_ERR
									    : IBV_WC_LOC_PROT_ERR;
		fake_touch(sge[i].addr + offset, take, true, "a request", qp->number);
		memcpy(to, from, take);
		to += take;
		bytes -= take;
		offset = 0;
	}
	return IBV_WC_SUCCESS;
}

static void
start(struct fake_qp *qp, struct fake_wqe *wqe)
{
	if (is_before(qp->next, qp->started))
		return;
	qp->started = qp->next + 1;
	wqe->psn = qp->next_psn;
	qp->reads += wqe->opcode == IBV_WR_RDMA_READ;
}

static void
sent(struct fake_qp *qp, uint32_t psns, bool is_last)
{
	fake.count.segments++;
	fake.count.again += fake_psn_diff(qp->next_psn, qp->top_psn) < 0;
	qp->next_psn = fake_psn_add(qp->next_psn, psns);
	if (fake_psn_diff(qp->next_psn, qp->top_psn) > 0)
		qp->top_psn = qp->next_psn;
	if (is_last) {
		qp->next++;
		qp->offset = 0;
	}
}

static void
send_read(struct fake_qp *qp, struct fake_wqe *wqe)
{
	struct fake_packet *packet;

	qp->next_psn = fake_psn_add(wqe->psn, wqe->got / qp->segment); /* answers may still come */
	packet = fake_packet_take(qp, FAKE_READ, qp->next_psn);
	packet->address = wqe->remote + wqe->got;
	packet->rkey = wqe->rkey;
	packet->total = wqe->bytes - wqe->got;
	packet->is_first = packet->is_last = true;
	fake_flow_push(&qp->requests, packet);
	sent(qp, wqe->segments - wqe->got / qp->segment, true);
}

static void
send_segment(struct fake_qp *qp, struct fake_wqe *wqe)
{
	bool is_send = wqe->opcode == IBV_WR_SEND || wqe->opcode == IBV_WR_SEND_WITH_IMM;
	uint32_t left = wqe->bytes - qp->offset;
	uint32_t bytes = left < qp->segment ? left : qp->segment;
	struct fake_packet *packet =
		fake_packet_take(qp, is_send ? FAKE_SEND : FAKE_WRITE, qp->next_psn);
	enum ibv_wc_status status = gather(qp, wqe, qp->offset, bytes, packet->data);

	if (status != IBV_WC_SUCCESS) {
		fake_packet_free(packet);
		fail_at_next(qp, status);
		return;
	}
	packet->bytes = bytes;
	packet->address = wqe->remote + qp->offset;
	packet->rkey = wqe->rkey;
	packet->total = wqe->bytes;
	packet->is_first = qp->offset == 0;
	packet->is_last = bytes == left;
	packet->is_solicited = (wqe->flags & IBV_SEND_SOLICITED) != 0;
	packet->has_imm = packet->is_last && (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
					      wqe->opcode == IBV_WR_SEND_WITH_IMM);
	packet->imm = wqe->imm;
	qp->offset += bytes;
	fake_flow_push(&qp->requests, packet);
	sent(qp, 1, packet->is_last);
}

void
fake_send(struct fake_qp *qp)
{
	struct fake_wqe *wqe;

	if (qp->has_failed) {
		fake_send_err(qp, qp->fail_status);
		return;
	}
	if (fake.port[qp->port].cable == FAKE_VERBS_CUT) {
		fail_at_next(qp, IBV_WC_LOC_QP_OP_ERR);
		return;
	}
	wqe = entry(qp, qp->next);
	if (wqe->status != IBV_WC_SUCCESS) {
		fail_at_next(qp, wqe->status);
		return;
	}
	start(qp, wqe);
	if (wqe->opcode == IBV_WR_RDMA_READ)
		send_read(qp, wqe);
	else
		send_segment(qp, wqe);
}

/* --- answers in ----------------------------------------------------------------------- */

void
fake_send_err(struct fake_qp *qp, enum ibv_wc_status status)
{
	fake_send_done(qp, status);
	fake_qp_err(qp);
}

/* From the first one that is not acknowledged. */
static void
go_back(struct fake_qp *qp)
{
	if (!is_before(qp->una, qp->started))
		return;
	qp->next_psn = una_psn(qp);
	qp->next = qp->una;
	qp->offset = 0;
	if (qp->has_failed && is_before(qp->next, qp->fail_at))
		qp->has_failed = false; /* it will be found again */
}

static void
progress(struct fake_qp *qp)
{
	qp->retries = 0;
	qp->rnr_retries = 0;
}

/* Everything through `psn` arrived. False: a READ among it is not complete. */
static bool
acknowledged(struct fake_qp *qp, uint32_t psn)
{
	while (is_before(qp->una, qp->started)) {
		struct fake_wqe *wqe = entry(qp, qp->una);
		uint32_t end = fake_psn_add(wqe->psn, wqe->segments);

		if (fake_psn_diff(psn, wqe->psn) < 0)
			return true;
		if (wqe->opcode == IBV_WR_RDMA_READ)
			return false;
		if (fake_psn_diff(end, fake_psn_add(psn, 1)) > 0)
			return true;
		fake_send_done(qp, IBV_WC_SUCCESS);
		progress(qp);
		if (is_before(qp->next, qp->una)) {
			qp->next = qp->una;
			qp->offset = 0;
			qp->next_psn = end;
		}
	}
	return true;
}

static void
retry(struct fake_qp *qp)
{
	if (qp->attr.retry_cnt == 7 && fake.topology.is_seven_endless)
		qp->retries = 0;
	if (++qp->retries > qp->attr.retry_cnt) {
		fake_send_err(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	go_back(qp);
}

static void
rnr(struct fake_qp *qp)
{
	if (qp->attr.rnr_retry != 7 && ++qp->rnr_retries > qp->attr.rnr_retry) {
		fake_send_err(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	go_back(qp);
	qp->is_rnr_waiting = true;
}

/* A part of a READ's data into its SGEs. */
static enum ibv_wc_status
scatter(struct fake_qp *qp, const struct fake_wqe *wqe, const struct fake_packet *packet)
{
	const struct ibv_sge *sge = qp->sq_sge + (uint32_t)(wqe - qp->sq) * qp->cap.max_send_sge;
	uint32_t offset = wqe->got, left = packet->bytes;

	for (uint32_t i = 0; i < wqe->sges && left > 0; i++) {
		uint32_t take = sge[i].length;
		uint8_t *to;

		if (offset >= take) {
			offset -= take;
			continue;
		}
		take = take - offset < left ? take - offset : left;
		to = fake_mr_reach(qp, sge[i].lkey, false, sge[i].addr + offset, take,
				   IBV_ACCESS_LOCAL_WRITE);
		if (to == NULL)
			return fake_mr_find(qp, sge[i].lkey, false) == NULL ? IBV_WC_LOC_QP_OP_ERR
									    : IBV_WC_LOC_PROT_ERR;
		fake_touch(sge[i].addr + offset, take, false, "a READ", qp->number);
		memcpy(to, packet->data + (packet->bytes - left), take);
		left -= take;
		offset = 0;
	}
	return IBV_WC_SUCCESS;
}

static void
response(struct fake_qp *qp, const struct fake_packet *packet)
{
	struct fake_wqe *wqe;
	enum ibv_wc_status status;

	(void)acknowledged(qp, fake_psn_add(packet->psn, 0xFFFFFFU));
	wqe = entry(qp, qp->una);
	if (!is_before(qp->una, qp->started) || wqe->opcode != IBV_WR_RDMA_READ ||
	    packet->psn != una_psn(qp) || packet->bytes > wqe->bytes - wqe->got)
		return; /* of an earlier try */
	status = scatter(qp, wqe, packet);
	if (status != IBV_WC_SUCCESS) {
		fake_send_err(qp, status);
		return;
	}
	progress(qp);
	fake.count.landed++;
	wqe->got += packet->bytes;
	if (wqe->got < wqe->bytes)
		return;
	fake_send_done(qp, IBV_WC_SUCCESS);
	if (is_before(qp->next, qp->una)) {
		qp->next = qp->una;
		qp->offset = 0;
		qp->next_psn = fake_psn_add(wqe->psn, wqe->segments);
	}
}

/* The request with this PSN was refused; a READ before it whose data was lost comes first. */
static void
refused(struct fake_qp *qp, const struct fake_packet *packet)
{
	const struct fake_wqe *wqe = entry(qp, qp->una);

	if (!is_before(qp->una, qp->started))
		return;
	if (fake_psn_diff(packet->psn, fake_psn_add(wqe->psn, wqe->segments)) >= 0)
		retry(qp);
	else
		fake_send_err(qp, packet->type == FAKE_NAK_ACCESS ? IBV_WC_REM_ACCESS_ERR
								  : IBV_WC_REM_INV_REQ_ERR);
}

void
fake_answered(struct fake_qp *qp, struct fake_packet *packet)
{
	uint32_t before = fake_psn_add(packet->psn, 0xFFFFFFU);

	if (qp->state != IBV_QPS_RTS || fake_psn_diff(packet->psn, qp->top_psn) >= 0 ||
	    fake_psn_diff(packet->psn, una_psn(qp)) < -1) {
		fake.count.lost++;
		return;
	}
	switch (packet->type) {
	case FAKE_ACK:
		if (!acknowledged(qp, packet->psn))
			go_back(qp); /* a response was lost; no answer was, so this is no retry */
		break;
	case FAKE_RESPONSE:
		response(qp, packet);
		break;
	case FAKE_NAK_SEQUENCE:
		(void)acknowledged(qp, before);
		retry(qp);
		break;
	case FAKE_NAK_RNR:
		(void)acknowledged(qp, before);
		rnr(qp);
		break;
	case FAKE_NAK_ACCESS:
	case FAKE_NAK_INVALID:
		(void)acknowledged(qp, before);
		refused(qp, packet);
		break;
	case FAKE_WRITE:
	case FAKE_SEND:
	case FAKE_READ:
	case FAKE_ARRIVAL:
	default:
		break;
	}
}

/* --- timers ------------------------------------------------------------------------------- */

/* Nothing of it is anywhere any more that could still be answered. */
bool
fake_can_time_out(const struct fake_qp *qp)
{
	const struct fake_qp *peer = fake_qp_find(qp->attr.dest_qp_num);

	if (qp->state != IBV_QPS_RTS || qp->is_held)
		return false;
	if (qp->is_rnr_waiting)
		return true;
	if (!is_before(qp->una, qp->started) || qp->requests.count > 0)
		return false;
	if (peer == NULL || peer->attr.dest_qp_num != qp->number)
		return true;
	return peer->answers.count == 0 && peer->jobs == peer->jobs_done;
}

void
fake_time_out(struct fake_qp *qp)
{
	if (qp->is_rnr_waiting)
		qp->is_rnr_waiting = false;
	else
		retry(qp);
}
