/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fake_verbs_state.h"

static struct fake_packet packets[FAKE_PACKETS];
static uint8_t data[FAKE_PACKETS][FAKE_SEGMENT_MAX];

/* --- packets ------------------------------------------------------------------------ */

void
fake_wire_open(void)
{
	fake.free = NULL;
	for (uint32_t i = FAKE_PACKETS; i-- > 0;) {
		packets[i].data = data[i];
		packets[i].next = fake.free;
		fake.free = &packets[i];
	}
}

struct fake_packet *
fake_packet_take(const struct fake_qp *from, enum fake_packet_type type, uint32_t psn)
{
	struct fake_packet *packet = fake.free;
	uint8_t *room = packet->data;

	fake.free = packet->next;
	*packet = (struct fake_packet){.type = type,
				       .psn = psn,
				       .source = from->number,
				       .dest = from->attr.dest_qp_num,
				       .from = from->port,
				       .to = from->peer_port,
				       .data = room};
	return packet;
}

void
fake_packet_free(struct fake_packet *packet)
{
	packet->next = fake.free;
	fake.free = packet;
}

void
fake_flow_push(struct fake_flow *flow, struct fake_packet *packet)
{
	packet->next = NULL;
	if (flow->count++ == 0)
		flow->head = packet;
	else
		flow->tail->next = packet;
	flow->tail = packet;
}

struct fake_packet *
fake_flow_pop(struct fake_flow *flow)
{
	struct fake_packet *packet = flow->head;

	flow->head = packet->next;
	flow->count--;
	return packet;
}

void
fake_flow_stray(struct fake_flow *flow)
{
	if (flow->count > 0 && fake.strays < FAKE_STRAYS) {
		fake.stray[fake.strays++] = *flow;
	} else {
		while (flow->count > 0)
			fake_packet_free(fake_flow_pop(flow));
	}
	*flow = (struct fake_flow){0};
}

/* --- deliveries ------------------------------------------------------------------------ */

static bool
is_jammed(const struct fake_packet *packet)
{
	return fake.port[packet->from].cable == FAKE_VERBS_JAMMED ||
	       fake.port[packet->to].cable == FAKE_VERBS_JAMMED;
}

static bool
is_answer(const struct fake_packet *packet)
{
	return packet->type != FAKE_WRITE && packet->type != FAKE_SEND && packet->type != FAKE_READ;
}

/* A QP takes what has its number and comes from its peer's port, whoever sent it and when. */
static void
deliver(struct fake_packet *packet)
{
	struct fake_qp *qp = fake_qp_find(packet->dest);

	if (fake.port[packet->from].cable != FAKE_VERBS_PLUGGED ||
	    fake.port[packet->to].cable != FAKE_VERBS_PLUGGED || qp == NULL ||
	    (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS) || qp->port != packet->to ||
	    qp->peer_port != packet->from || (is_answer(packet) && qp->is_mute)) {
		fake.count.lost++;
		fake_packet_free(packet);
		return;
	}
	if (is_answer(packet)) {
		fake_answered(qp, packet);
		fake_packet_free(packet);
	} else {
		fake_requested(qp, packet);
	}
}

/* --- the step --------------------------------------------------------------------------- */

enum deed {
	SEND,
	CARRY_REQUEST,
	ANSWER,
	CARRY_ANSWER,
	LAND,
	FLUSH,
	TIME_OUT,
	DEEDS,
};

static bool
can_flush(const struct fake_qp *qp)
{
	return qp->state == IBV_QPS_ERR && !qp->is_stuck &&
	       (qp->una != qp->posted || qp->rq_taken != qp->rq_posted || qp->is_receiving);
}

static bool
can_carry_answer(const struct fake_qp *qp)
{
	const struct fake_qp *to;

	if (qp->answers.count == 0 || is_jammed(qp->answers.head))
		return false;
	to = fake_qp_find(qp->answers.head->dest);
	return to == NULL || !to->is_held;
}

static uint32_t
deeds_of(const struct fake_qp *qp)
{
	uint32_t deeds = 0;

	if (qp->state == IBV_QPS_RESET)
		return 0; /* neither flows nor jobs */
	deeds |= (uint32_t)fake_can_send(qp) << SEND;
	deeds |= (uint32_t)(qp->requests.count > 0 && !is_jammed(qp->requests.head))
		 << CARRY_REQUEST;
	deeds |= (uint32_t)fake_can_answer(qp) << ANSWER;
	deeds |= (uint32_t)can_carry_answer(qp) << CARRY_ANSWER;
	deeds |= (uint32_t)(qp->landing.count > 0) << LAND;
	deeds |= (uint32_t)can_flush(qp) << FLUSH;
	if ((deeds & 1U << SEND) == 0)
		deeds |= (uint32_t)fake_can_time_out(qp) << TIME_OUT;
	return deeds;
}

static void
flush(struct fake_qp *qp)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR};
	bool is_send = qp->una != qp->posted;
	bool is_recv = qp->rq_taken != qp->rq_posted || qp->is_receiving;

	if (is_send && (!is_recv || fake_random(2) == 0)) {
		fake_send_done(qp, IBV_WC_WR_FLUSH_ERR);
		return;
	}
	if (!qp->is_receiving)
		qp->rq_taken++;
	qp->is_receiving = false;
	fake_recv_done(qp, qp->rq_taken - 1, &wc, true);
}

static void
act(struct fake_qp *qp, enum deed deed)
{
	switch (deed) {
	case SEND:
		fake_send(qp);
		break;
	case CARRY_REQUEST:
		deliver(fake_flow_pop(&qp->requests));
		break;
	case ANSWER:
		fake_answer(qp);
		break;
	case CARRY_ANSWER:
		deliver(fake_flow_pop(&qp->answers));
		break;
	case LAND:
		fake_land(qp);
		break;
	case FLUSH:
		flush(qp);
		break;
	case TIME_OUT:
		fake_time_out(qp);
		break;
	case DEEDS:
	default:
		break;
	}
}

static enum deed
choose(uint32_t deeds)
{
	uint32_t n = fake_random((uint32_t)__builtin_popcount(deeds));

	while (n-- > 0)
		deeds &= deeds - 1;
	return (enum deed)__builtin_ctz(deeds);
}

static bool
stray_carry(uint32_t i)
{
	if (is_jammed(fake.stray[i].head))
		return false;
	deliver(fake_flow_pop(&fake.stray[i]));
	if (fake.stray[i].count == 0)
		fake.stray[i] = fake.stray[--fake.strays];
	return true;
}

/* What can wait while there is something else: timers, and what a bus holds back. */
static uint32_t
slow_deeds(void)
{
	uint32_t deeds = fake_random(64) == 0 ? 0 : 1U << TIME_OUT;

	return deeds | (fake_random(fake.lazy) == 0 ? 0 : 1U << LAND);
}

/* The first of all QPs and strays, from a random one on, that can do something. */
enum fake_verbs_moved
fake_step(void)
{
	uint32_t places = fake.lives + fake.strays, start, slow = slow_deeds();
	struct fake_qp *lands = NULL, *waits = NULL;

	fake.count.steps++;
	fake_fault_random();
	if (places == 0)
		return FAKE_VERBS_IDLE;
	start = fake_random(places);
	for (uint32_t k = 0; k < places; k++) {
		uint32_t i = start + k < places ? start + k : start + k - places;
		uint32_t deeds;

		if (i >= fake.lives) {
			if (stray_carry(i - fake.lives))
				return FAKE_VERBS_MOVED;
			continue;
		}
		deeds = deeds_of(fake.live[i]);
		if ((deeds & 1U << TIME_OUT) != 0 && waits == NULL)
			waits = fake.live[i];
		if ((deeds & 1U << LAND) != 0 && lands == NULL)
			lands = fake.live[i];
		if ((deeds & ~slow) == 0)
			continue;
		act(fake.live[i], choose(deeds & ~slow));
		return FAKE_VERBS_MOVED;
	}
	if (lands != NULL)
		fake_land(lands);
	else if (waits != NULL)
		fake_time_out(waits);
	return lands != NULL   ? FAKE_VERBS_MOVED
	       : waits != NULL ? FAKE_VERBS_WAITED
			       : FAKE_VERBS_IDLE;
}
