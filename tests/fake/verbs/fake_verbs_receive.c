/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fake_verbs_state.h"

/* --- answers ---------------------------------------------------------------------- */

/* Answers leave in order; acknowledgements that follow each other are one. False: no room, as if lost. */
static bool
job_push(struct fake_qp *qp, const struct fake_job *job)
{
	struct fake_job *last = &qp->job[(qp->jobs - 1) % FAKE_JOBS];

	if (job->type == FAKE_ACK && qp->jobs != qp->jobs_done && last->type == FAKE_ACK) {
		last->psn = job->psn;
		return true;
	}
	if (qp->jobs - qp->jobs_done == FAKE_JOBS)
		return false;
	qp->job[qp->jobs++ % FAKE_JOBS] = *job;
	return true;
}

static void
acknowledge(struct fake_qp *qp)
{
	(void)job_push(qp, &(struct fake_job){.type = FAKE_ACK,
					      .psn = fake_psn_add(qp->expected_psn, 0xFFFFFFU)});
}

static void
answer_now(struct fake_qp *qp, enum fake_packet_type type, uint32_t psn)
{
	struct fake_packet *packet;

	if (fake.free == NULL)
		return;
	packet = fake_packet_take(qp, type, psn);
	fake_flow_push(&qp->answers, packet);
}

/* Both ends break: the NAK leaves after what was acknowledged already. */
static void
refuse(struct fake_qp *qp, enum fake_packet_type type, uint32_t psn, enum ibv_event_type event)
{
	for (; qp->jobs_done != qp->jobs; qp->jobs_done++) {
		const struct fake_job *job = &qp->job[qp->jobs_done % FAKE_JOBS];

		if (job->type == FAKE_ACK)
			answer_now(qp, FAKE_ACK, job->psn);
	}
	answer_now(qp, type, psn);
	fake_qp_err(qp);
	fake_event_qp(qp, event);
}

bool
fake_can_answer(const struct fake_qp *qp)
{
	return (qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS) &&
	       qp->jobs != qp->jobs_done && qp->answers.count < fake.topology.window &&
	       fake.free != NULL;
}

void
fake_answer(struct fake_qp *qp)
{
	struct fake_job *job = &qp->job[qp->jobs_done % FAKE_JOBS];
	struct fake_packet *packet;
	uint32_t left = job->bytes - job->done;
	const uint8_t *from;

	if (job->type != FAKE_READ) {
		qp->jobs_done++;
		fake_flow_push(&qp->answers, fake_packet_take(qp, job->type, job->psn));
		return;
	}
	left = left < qp->segment ? left : qp->segment;
	if (left > 0) {
		fake_land_all(qp); /* a READ pushes the WRITEs before it ahead */
		from = fake_mr_reach(qp, job->rkey, true, job->address + job->done, left,
				     IBV_ACCESS_REMOTE_READ);
		if (from == NULL && job->is_again) {
			qp->jobs_done++;
			return;
		}
		if (from == NULL) {
			uint32_t psn = job->psn;

			qp->jobs = qp->jobs_done;
			refuse(qp, FAKE_NAK_ACCESS, psn, IBV_EVENT_QP_ACCESS_ERR);
			return;
		}
		/* Its requester may have long had an answer to one that comes again. */
		if (!job->is_again)
			fake_touch(job->address + job->done, left, true, "a peer's READ",
				   qp->number);
	}
	packet = fake_packet_take(qp, FAKE_RESPONSE, job->psn);
	if (left > 0)
		memcpy(packet->data, from, left);
	packet->bytes = left;
	fake_flow_push(&qp->answers, packet);
	job->done += left;
	job->psn = fake_psn_add(job->psn, 1);
	if (job->done == job->bytes)
		qp->jobs_done++;
}

/* --- landing -------------------------------------------------------------------------- */

static bool
is_relaxed(const struct fake_qp *qp, const struct fake_packet *packet)
{
	const struct fake_mr *mr = fake_mr_find(qp, packet->rkey, true);

	if (packet->type == FAKE_ARRIVAL)
		return false;
	return mr == NULL || (mr->access & IBV_ACCESS_RELAXED_ORDERING) != 0;
}

static void
arrive(struct fake_qp *qp, const struct fake_packet *arrival)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS,
			    .opcode = arrival->is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
			    .byte_len = arrival->total,
			    .imm_data = arrival->imm,
			    .wc_flags = arrival->has_imm ? IBV_WC_WITH_IMM : 0};

	fake_recv_done(qp, arrival->psn, &wc, arrival->is_solicited);
}

static void
land_data(struct fake_qp *qp, struct fake_packet *packet)
{
	uint8_t *to = fake_mr_reach(qp, packet->rkey, true, packet->address, packet->bytes,
				    IBV_ACCESS_REMOTE_WRITE);

	/* It was checked on arrival, and a dereg lands all before. */
	if (to == NULL) {
		fake_failed("QP 0x%x: a segment outlived its MR", qp->number);
	} else {
		if (packet->bytes == 8 && ((uintptr_t)to & 7) == 0) {
			uint64_t word;

			memcpy(&word, packet->data, sizeof(word));
			atomic_store_explicit((_Atomic uint64_t *)(void *)to, word,
					      memory_order_release);
		} else {
			memcpy(to, packet->data, packet->bytes);
		}
		fake.count.landed++;
	}
}

static void
land(struct fake_qp *qp, struct fake_packet *packet)
{
	if (packet->type == FAKE_ARRIVAL)
		arrive(qp, packet);
	else
		land_data(qp, packet);
	fake_packet_free(packet);
}

/* Any of them where the memory is relaxed; else it waits for those before it. */
void
fake_land(struct fake_qp *qp)
{
	struct fake_packet **at = &qp->landing.head, *packet;
	uint32_t i = fake_random(qp->landing.count);

	while (i-- > 0)
		at = &(*at)->next;
	packet = *at;
	if (packet == qp->landing.head || !is_relaxed(qp, packet)) {
		land(qp, fake_flow_pop(&qp->landing));
		return;
	}
	*at = packet->next;
	if (packet->next == NULL) {
		struct fake_packet *last = qp->landing.head;

		while (last->next != NULL)
			last = last->next;
		qp->landing.tail = last;
	}
	qp->landing.count--;
	land(qp, packet);
}

void
fake_land_all(struct fake_qp *qp)
{
	while (qp->landing.count > 0)
		fake_land(qp);
}

/* --- requests ---------------------------------------------------------------------------- */

/* A message needs a receive: where it goes, or the sender is told to wait. */
static bool
take_receive(struct fake_qp *qp, const struct fake_packet *packet)
{
	if (qp->rq_taken != qp->rq_posted) {
		qp->rq_taken++;
		return true;
	}
	fake.count.rnr++;
	qp->is_nak_sent = true;
	(void)job_push(qp, &(struct fake_job){.type = FAKE_NAK_RNR, .psn = packet->psn});
	return false;
}

/*
 * The acknowledgement does not wait for the completion, which comes when all before it is visible. `psn` of what
 * stands for it is the receive's index.
 */
static void
message_done(struct fake_qp *qp, const struct fake_packet *packet, uint32_t bytes)
{
	struct fake_packet *arrival;

	if (fake.free == NULL)
		fake_land_all(qp);
	if (fake.free == NULL) {
		fake_failed("too many packets for this fake");
		return;
	}
	arrival = fake_packet_take(qp, FAKE_ARRIVAL, qp->rq_taken - 1);
	arrival->is_send = packet->type == FAKE_SEND;
	arrival->has_imm = packet->has_imm;
	arrival->imm = packet->has_imm ? packet->imm : fake_random(UINT32_MAX);
	arrival->total = bytes;
	arrival->is_solicited = packet->is_solicited;
	fake_flow_push(&qp->landing, arrival);
}

static void
receive_failed(struct fake_qp *qp, const struct fake_packet *packet, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.status = status};

	fake_land_all(qp); /* receives complete in order */
	fake_recv_done(qp, qp->rq_taken - 1, &wc, true);
	qp->is_receiving = false;
	refuse(qp, FAKE_NAK_INVALID, packet->psn, IBV_EVENT_QP_REQ_ERR);
}

/* Data of a SEND into the receive's SGEs. */
static enum ibv_wc_status
receive(struct fake_qp *qp, const struct fake_packet *packet)
{
	uint32_t place = (qp->rq_taken - 1) % qp->cap.max_recv_wr;
	const struct ibv_sge *sge = qp->rq_sge + place * qp->cap.max_recv_sge;
	uint32_t offset = qp->received, left = packet->bytes;

	for (uint32_t i = 0; i < qp->rq[place].sges && left > 0; i++) {
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
			return IBV_WC_LOC_PROT_ERR;
		fake_touch(sge[i].addr + offset, take, false, "a receive", qp->number);
		memcpy(to, packet->data + (packet->bytes - left), take);
		left -= take;
		offset = 0;
	}
	qp->received += packet->bytes;
	return left == 0 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

/* False: not taken, its PSN is expected again. */
static bool
take_send(struct fake_qp *qp, const struct fake_packet *packet)
{
	enum ibv_wc_status status;

	if (packet->is_first) {
		if (!take_receive(qp, packet))
			return false;
		qp->is_receiving = true;
		qp->received = 0;
	}
	if (!qp->is_receiving) {
		refuse(qp, FAKE_NAK_INVALID, packet->psn, IBV_EVENT_QP_REQ_ERR);
		return false;
	}
	status = receive(qp, packet);
	if (status != IBV_WC_SUCCESS) {
		receive_failed(qp, packet, status);
		return false;
	}
	if (packet->is_last) {
		qp->is_receiving = false;
		message_done(qp, packet, qp->received);
	}
	return true;
}

/* Zero bytes are never checked: neither key nor range. *keep_out: it lands later. */
static bool
take_write(struct fake_qp *qp, struct fake_packet *packet, bool *keep_out)
{
	uint64_t reach = packet->is_first ? packet->total : packet->bytes;

	if (packet->total > 0 && ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0 ||
				  fake_mr_reach(qp, packet->rkey, true, packet->address, reach,
						IBV_ACCESS_REMOTE_WRITE) == NULL)) {
		refuse(qp, FAKE_NAK_ACCESS, packet->psn, IBV_EVENT_QP_ACCESS_ERR);
		return false;
	}
	if (packet->has_imm && !take_receive(qp, packet))
		return false;
	if (packet->bytes > 0) {
		/* Past recall from here on: what a program can know of is its acknowledgement. */
		fake_touch(packet->address, packet->bytes, false, "a peer's WRITE", qp->number);
		fake_flow_push(&qp->landing, packet);
		*keep_out = true;
	}
	if (packet->has_imm)
		message_done(qp, packet, packet->total);
	return true;
}

static bool
take_read(struct fake_qp *qp, const struct fake_packet *packet, bool is_again)
{
	struct fake_job job = {.type = FAKE_READ,
			       .is_again = is_again,
			       .psn = packet->psn,
			       .rkey = packet->rkey,
			       .address = packet->address,
			       .bytes = packet->total};

	if (packet->total > 0 && ((qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0 ||
				  fake_mr_reach(qp, packet->rkey, true, packet->address,
						packet->total, IBV_ACCESS_REMOTE_READ) == NULL)) {
		refuse(qp, FAKE_NAK_ACCESS, packet->psn, IBV_EVENT_QP_ACCESS_ERR);
		return false;
	}
	return job_push(qp, &job);
}

/* Sent again because the answer was late or lost: WRITEs and SENDs were done, READs are done again. */
static void
repeated(struct fake_qp *qp, const struct fake_packet *packet)
{
	if (packet->type == FAKE_READ)
		(void)take_read(qp, packet, true);
	else
		acknowledge(qp);
}

void
fake_requested(struct fake_qp *qp, struct fake_packet *packet)
{
	int32_t ahead = fake_psn_diff(packet->psn, qp->expected_psn);
	bool keep = false, is_taken;
	/* `packet` may have landed, and be free, when it was taken. */
	bool is_read = packet->type == FAKE_READ;
	uint32_t psns =
		is_read && packet->total > 0 ? (packet->total + qp->segment - 1) / qp->segment : 1;

	if (packet->bytes > qp->segment) {
		refuse(qp, FAKE_NAK_INVALID, packet->psn, IBV_EVENT_QP_REQ_ERR);
	} else if (ahead < 0) {
		repeated(qp, packet);
	} else if (ahead > 0) {
		if (!qp->is_nak_sent)
			qp->is_nak_sent = job_push(qp, &(struct fake_job){.type = FAKE_NAK_SEQUENCE,
									  .psn = qp->expected_psn});
	} else {
		is_taken = packet->type == FAKE_SEND    ? take_send(qp, packet)
			   : packet->type == FAKE_WRITE ? take_write(qp, packet, &keep)
							: take_read(qp, packet, false);
		if (is_taken) {
			qp->is_nak_sent = false;
			qp->expected_psn = fake_psn_add(qp->expected_psn, psns);
			if (!is_read)
				acknowledge(qp);
		}
	}
	if (!keep)
		fake_packet_free(packet);
}
