/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of the simulated engines that sleep: what lane_poll.c does around its epoll_wait, with the simulated
 * clock. Asleep, a lane runs when it is kicked, when one of its completion channels is readable, or when its
 * time is over.
 */
#include <poll.h>

#include "verbs_sim.h"

#define SLEEP_NS       1000000000ULL
#define SLEEP_SHORT_NS 1000000ULL

static void
disarm(struct kvp_lane *lane)
{
	for (uint32_t i = 0; i < lane->slots; i++)
		kvp_verbs_transport.disarm(lane->slot[i].endpoint);
}

static bool
arm(struct kvp_lane *lane)
{
	for (uint32_t i = 0; i < lane->slots; i++) {
		(void)fake_verbs_run(sim_random(4));
		if (kvp_verbs_transport.arm(lane->slot[i].endpoint))
			return false;
	}
	(void)fake_verbs_run(sim_random(4));
	return true;
}

/* As parts_let_ns() in lane_poll.c. */
static uint64_t
sleep_let_ns(const struct kvp_lane *lane)
{
	uint64_t let_ns = SLEEP_NS;

	for (uint32_t i = 0; i < lane->busy_count; i++) {
		const struct kvp_part *part = lane->busy[i]->active;

		for (uint32_t n = lane->busy[i]->parts; n > 0; n--, part = part->next) {
			uint64_t deadline_ns = part->transfer->deadline_ns;

			if (part->phase != KVP_PART_MOVING && let_ns > SLEEP_SHORT_NS)
				let_ns = SLEEP_SHORT_NS;
			if (part->phase == KVP_PART_STOPPING)
				continue;
			if (kvp_transfer_is_stopped(part->transfer) || sim.now_ns >= deadline_ns)
				return 0;
			if (deadline_ns - sim.now_ns < let_ns)
				let_ns = deadline_ns - sim.now_ns;
		}
	}
	return let_ns;
}

static void
fall_asleep(struct sim_side *side, uint32_t i)
{
	struct kvp_lane *lane = side->lane[i];
	uint64_t let_ns = SLEEP_SHORT_NS;
	bool is_armed = arm(lane);

	if (!is_armed && sim_chance(2)) { /* it refused often enough: a nap */
		disarm(lane);
		return;
	}
	atomic_store(&lane->is_asleep, 1);
	if (kvp_lane_drain(lane, sim.now_ns) != 0 || sleep_let_ns(lane) == 0) {
		atomic_store(&lane->is_asleep, 0);
		disarm(lane);
		return;
	}
	if (is_armed || sleep_let_ns(lane) < let_ns)
		let_ns = sleep_let_ns(lane);
	sim.sleeps++;
	side->is_asleep[i] = true;
	side->is_napping[i] = !is_armed;
	side->wake_ns[i] = sim.now_ns + let_ns;
}

static void
wake(struct sim_side *side, uint32_t i)
{
	side->is_asleep[i] = false;
	side->empty[i] = 0;
	atomic_store(&side->lane[i]->is_asleep, 0);
	disarm(side->lane[i]);
}

/* Does a completion channel say that there is something? */
static bool
is_readable(const struct kvp_lane *lane, bool is_napping)
{
	bool is_full = false;

	for (uint32_t s = 0; s < lane->slots; s++) {
		const struct kvp_verbs_endpoint *ep = kvp_verbs_of(lane->slot[s].endpoint);

		for (uint32_t c = 0; c < ep->cqs; c++) {
			struct pollfd fd = {.fd = ep->cq[c]->channel->fd, .events = POLLIN};

			if (fake_verbs_completions(ep->cq[c]->cq) == 0)
				continue;
			is_full = true;
			if (poll(&fd, 1, 0) == 1)
				return true;
		}
	}
	if (is_full && !is_napping)
		fake_verbs_failed("lane %u sleeps, and nothing wakes it for a completion",
				  kvp_lane_index(lane));
	return false;
}

uint32_t
sim_lane_run(struct sim_side *side, uint32_t i)
{
	struct kvp_lane *lane = side->lane[i];
	uint32_t work;

	if (side->still[i] > 0) {
		side->still[i]--;
		return 1;
	}
	if (sim.plan.is_burst && !sim.is_calm && sim_chance(40))
		side->still[i] = sim_random(80);
	if (side->is_asleep[i]) {
		if (atomic_load(&lane->is_asleep) != 0 && sim.now_ns < side->wake_ns[i] &&
		    !is_readable(lane, side->is_napping[i]))
			return 0;
		wake(side, i);
	}
	work = kvp_lane_run_once(lane, sim.now_ns);
	side->empty[i] = work > 0 ? 0 : side->empty[i] + 1;
	if (side->empty[i] > lane->parts + lane->slots && sim_chance(2))
		fall_asleep(side, i);
	return work;
}

void
sim_lanes_wake(struct sim_side *side)
{
	for (uint32_t i = 0; i < sim.plan.lanes; i++)
		if (side->is_asleep[i])
			wake(side, i);
}

uint64_t
sim_lanes_wish(const struct sim_side *side)
{
	uint64_t wish_ns = UINT64_MAX;

	for (uint32_t i = 0; i < sim.plan.lanes; i++)
		if (side->is_asleep[i] && side->wake_ns[i] < wish_ns)
			wish_ns = side->wake_ns[i];
	return wish_ns;
}
