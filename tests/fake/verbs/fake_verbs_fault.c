/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_verbs_state.h"

#define WHILE_STEPS 256U

/* --- by hand ------------------------------------------------------------------------ */

/* Each QP that a test means. */
#define for_each_meant(qp, qp_num)                   \
	for (uint32_t i_ = 0; i_ < fake.lives; i_++) \
		if (((qp) = fake.live[i_], (qp_num) == FAKE_VERBS_ANY || (qp)->number == (qp_num)))

void
fake_verbs_refuse(uint32_t qp_num, uint32_t after, uint32_t count)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num)
	{
		qp->refuse_after = after;
		qp->refuse_count = count;
	}
	pthread_mutex_unlock(&fake_lock);
}

void
fake_verbs_force(uint32_t qp_num, uint32_t nth, enum ibv_wc_status status)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num)
	{
		qp->force_after = nth;
		qp->force = status;
	}
	pthread_mutex_unlock(&fake_lock);
}

void
fake_verbs_lose_acks(uint32_t qp_num, bool is_on)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num) qp->is_mute = is_on;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_verbs_hold(uint32_t qp_num, bool is_on)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num)
	{
		qp->is_held = is_on;
		qp->held_until = 0;
	}
	pthread_mutex_unlock(&fake_lock);
}

void
fake_verbs_stick(uint32_t qp_num, bool is_on)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num) qp->is_stuck = is_on;
	pthread_mutex_unlock(&fake_lock);
}

void
fake_cable(uint32_t port, enum fake_verbs_cable cable)
{
	enum fake_verbs_cable before = fake.port[port].cable;

	fake.port[port].cable = cable;
	fake.port[port].until = 0;
	if (cable == FAKE_VERBS_CUT && before != FAKE_VERBS_CUT)
		fake_event_port(port, IBV_EVENT_PORT_ERR);
	if (before == FAKE_VERBS_CUT && cable != FAKE_VERBS_CUT)
		fake_event_port(port, IBV_EVENT_PORT_ACTIVE);
}

void
fake_verbs_cable(uint32_t device, uint32_t port, enum fake_verbs_cable cable)
{
	pthread_mutex_lock(&fake_lock);
	fake_cable(device * FAKE_VERBS_PORTS_MAX + port, cable);
	pthread_mutex_unlock(&fake_lock);
}

static void
gid_move(uint32_t place)
{
	struct fake_port *port = &fake.port[place];
	union ibv_gid gid = port->gid[FAKE_GIDS - 1];
	uint32_t type = port->type[FAKE_GIDS - 1];

	for (uint32_t i = FAKE_GIDS - 1; i > 0; i--) {
		port->gid[i] = port->gid[i - 1];
		port->type[i] = port->type[i - 1];
	}
	port->gid[0] = gid;
	port->type[0] = type;
	fake_event_port(place, IBV_EVENT_GID_CHANGE);
}

void
fake_verbs_gid_move(uint32_t device, uint32_t port)
{
	pthread_mutex_lock(&fake_lock);
	gid_move(device * FAKE_VERBS_PORTS_MAX + port);
	pthread_mutex_unlock(&fake_lock);
}

static void
qp_fatal(struct fake_qp *qp)
{
	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_ERR)
		return;
	fake_qp_err(qp);
	fake_event_qp(qp, IBV_EVENT_QP_FATAL);
}

void
fake_verbs_qp_fatal(uint32_t qp_num)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&fake_lock);
	for_each_meant(qp, qp_num) qp_fatal(qp);
	pthread_mutex_unlock(&fake_lock);
}

void
fake_verbs_device_fatal(uint32_t device)
{
	pthread_mutex_lock(&fake_lock);
	fake.is_fatal[device] = true;
	for (uint32_t i = 0; i < fake.lives; i++)
		if (fake.live[i]->device == device)
			fake_qp_err(fake.live[i]);
	fake_event_port(device * FAKE_VERBS_PORTS_MAX, IBV_EVENT_DEVICE_FATAL);
	pthread_mutex_unlock(&fake_lock);
}

/* --- by chance -------------------------------------------------------------------------- */

void
fake_verbs_odds(const struct fake_verbs_odds *odds)
{
	pthread_mutex_lock(&fake_lock);
	fake.odds = *odds;
	if (fake.odds.while_max == 0)
		fake.odds.while_max = WHILE_STEPS;
	pthread_mutex_unlock(&fake_lock);
}

static void
calm_qp(struct fake_qp *qp)
{
	qp->is_mute = qp->is_held = qp->is_stuck = false;
	qp->refuse_count = 0;
	qp->force = IBV_WC_SUCCESS;
}

void
fake_verbs_calm(void)
{
	pthread_mutex_lock(&fake_lock);
	fake.odds = (struct fake_verbs_odds){0};
	for (uint32_t i = 0; i < FAKE_PORTS; i++)
		if (fake.port[i].cable != FAKE_VERBS_PLUGGED)
			fake_cable(i, FAKE_VERBS_PLUGGED);
	for (uint32_t i = 0; i < fake.lives; i++)
		calm_qp(fake.live[i]);
	pthread_mutex_unlock(&fake_lock);
}

static bool
happens(uint32_t odds)
{
	if (odds == 0 || fake_random(odds) != 0)
		return false;
	fake.count.faults++;
	return true;
}

static uint32_t
any_port(void)
{
	uint32_t device = fake_random(fake.topology.devices);

	return device * FAKE_VERBS_PORTS_MAX + fake_random(fake.topology.device[device].ports);
}

/* What was to last for a while ends. */
static void
faults_end(void)
{
	for (uint32_t i = 0; i < FAKE_PORTS; i++)
		if (fake.port[i].until != 0 && fake.port[i].until <= fake.count.steps)
			fake_cable(i, FAKE_VERBS_PLUGGED);
	for (uint32_t i = 0; i < fake.lives; i++)
		if (fake.live[i]->held_until != 0 && fake.live[i]->held_until <= fake.count.steps) {
			fake.live[i]->held_until = 0;
			fake.live[i]->is_held = false;
		}
}

static void
port_fault(enum fake_verbs_cable cable)
{
	uint32_t port = any_port();

	if (fake.port[port].cable != FAKE_VERBS_PLUGGED)
		return;
	fake_cable(port, cable);
	fake.port[port].until = fake.count.steps + 1 + fake_random(fake.odds.while_max);
}

static void
qp_fault(struct fake_qp *qp)
{
	const struct fake_verbs_odds *odds = &fake.odds;

	if (happens(odds->lose_acks))
		qp->is_mute = true;
	if (happens(odds->status)) {
		qp->force = (enum ibv_wc_status)(1 + fake_random(IBV_WC_GENERAL_ERR));
		if (qp->force == IBV_WC_WR_FLUSH_ERR) /* never the first */
			qp->force = IBV_WC_RETRY_EXC_ERR;
		qp->force_after = fake_random(4);
	}
	if (happens(odds->refuse)) {
		qp->refuse_after = fake_random(8);
		qp->refuse_count = 1;
	}
	if (happens(odds->qp_fatal))
		qp_fatal(qp);
	if (happens(odds->hold)) {
		qp->is_held = true;
		qp->held_until = fake.count.steps + 1 + fake_random(odds->while_max);
	}
}

void
fake_fault_random(void)
{
	const struct fake_verbs_odds *odds = &fake.odds;

	if (odds->while_max == 0)
		return;
	if (fake.count.steps % 16 == 0)
		faults_end();
	if (happens(odds->lossy))
		port_fault(FAKE_VERBS_LOSSY);
	if (happens(odds->cut))
		port_fault(FAKE_VERBS_CUT);
	if (happens(odds->gid_move))
		gid_move(any_port());
	if (fake.lives > 0)
		qp_fault(fake.live[fake_random(fake.lives)]);
}
