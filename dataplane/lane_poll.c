/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_state.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include <rte_common.h>
#include <rte_pause.h>

#include "check.h"
#include "open.h"
#include "reactor.h"

#define SPIN_LOOPS  100U /* empty loops before the lane gives something back */
#define PAUSE_LOOPS 100U /* and before it yields its CPU: somebody may share it */
/* "There is work" this often, and none could be done: it waits for the application to poll events. */
#define ARM_REFUSALS 2U
#define NS_PER_MS    1000000U
#define SLEEP_MAX_MS 1000
/* A part waits for what no fd tells: room at the peer, a time limit of the transport. */
#define SLEEP_SHORT_MS 1

int
kvp_lane_watch(struct kvp_lane *lane, struct kvp_lane_slot *slot)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot->endpoint};

	if (epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, slot->fd, &event) != 0)
		return -errno;
	slot->is_watched = true;
	lane->fds++;
	lane->fd_rest = 0;
	return 0;
}

void
kvp_lane_unwatch(struct kvp_lane *lane, struct kvp_lane_slot *slot)
{
	if (!slot->is_watched)
		return;
	(void)epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, slot->fd, NULL);
	slot->is_watched = false;
	slot->wants_write = false;
	lane->fds--;
}

void
kvp_lane_want_write(struct kvp_endpoint *endpoint, bool is_wanted)
{
	struct kvp_lane *lane = endpoint->lane;
	struct kvp_lane_slot *slot = &lane->slot[endpoint->lane_slot];
	struct epoll_event event = {.events = is_wanted ? EPOLLIN | EPOLLOUT : EPOLLIN,
				    .data.ptr = endpoint};

	KVP_ASSERT_OWNER(lane);
	if (!slot->is_watched || slot->wants_write == is_wanted)
		return;
	KVP_CHECK(epoll_ctl(lane->epoll_fd, EPOLL_CTL_MOD, slot->fd, &event) == 0);
	slot->wants_write = is_wanted;
}

int
kvp_lane_wake_add(struct kvp_lane *lane, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	return epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0 ? -errno : 0;
}

void
kvp_lane_wake_remove(struct kvp_lane *lane, int fd)
{
	(void)epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static void
clear_wakes(const struct kvp_lane *lane)
{
	uint64_t count;

	(void)!read(lane->event_fd, &count, sizeof(count));
}

uint32_t
kvp_lane_poll_fds(struct kvp_lane *lane, uint64_t now_ns)
{
	struct epoll_event event[KVP_LANE_BURST];
	uint32_t work = 0;
	int count;

	count = epoll_wait(lane->epoll_fd, event, KVP_LANE_BURST, 0);
	for (int i = 0; i < count; i++) {
		struct kvp_endpoint *endpoint = event[i].data.ptr;

		if (endpoint == NULL)
			clear_wakes(lane);
		else if (!kvp_endpoint_is_dead(endpoint))
			work += endpoint->transport->progress(endpoint, now_ns);
	}
	return work;
}

void
kvp_lane_endpoint_failed(struct kvp_endpoint *endpoint, kvp_status why, uint64_t now_ns)
{
	struct kvp_lane *lane = endpoint->lane;

	KVP_ASSERT_OWNER(lane);
	KVP_ASSERT(why != KVP_SUCCESS);
	if (kvp_endpoint_is_dead(endpoint))
		return;
	if (!endpoint->is_down) {
		endpoint->is_down = true;
		endpoint->down_status = why;
	}
	/* Pairs with the control thread's look after the wake below. */
	atomic_store_explicit(&endpoint->failed, why, memory_order_release);
	kvp_lane_unwatch(lane, &lane->slot[endpoint->lane_slot]);
	kvp_lane_polled_remove(lane, endpoint);
	for (uint32_t left = endpoint->parts; left > 0; left--) {
		struct kvp_part *part = endpoint->active;

		endpoint->active = part->next; /* one that has to wait for its layers stays */
		kvp_lane_stop_transfer(lane, part->transfer, why);
		/* Nothing is in flight on a dead connection. */
		part->requests_inflight = 0;
		part->bytes_inflight = 0;
		kvp_lane_part_abort(endpoint, part, now_ns);
	}
	if (lane->config.reactor != NULL)
		kvp_reactor_wake(lane->config.reactor);
}

static void
disarm_all(struct kvp_lane *lane)
{
	for (uint32_t i = 0; i < lane->slots; i++) {
		struct kvp_endpoint *endpoint = lane->slot[i].endpoint;

		if (endpoint->transport->disarm != NULL && !kvp_endpoint_is_dead(endpoint))
			endpoint->transport->disarm(endpoint);
	}
}

/* False: there is work, so the lane must not sleep. */
static bool
arm_all(struct kvp_lane *lane)
{
	for (uint32_t i = 0; i < lane->slots; i++) {
		struct kvp_endpoint *endpoint = lane->slot[i].endpoint;

		if (endpoint->transport->arm != NULL && !kvp_endpoint_is_dead(endpoint) &&
		    endpoint->transport->arm(endpoint))
			return false;
	}
	return true;
}

/* How long the endpoint's parts let the lane sleep. */
static uint64_t
parts_let_ns(const struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	const struct kvp_part *part = endpoint->active;
	uint64_t let_ns = UINT64_MAX;

	do {
		uint64_t deadline_ns = part->transfer->deadline_ns;

		if (part->phase != KVP_PART_STOPPING &&
		    (kvp_transfer_is_stopped(part->transfer) || now_ns >= deadline_ns))
			return 0;
		if (part->phase != KVP_PART_STOPPING)
			let_ns = RTE_MIN(let_ns, deadline_ns - now_ns);
		if (part->phase == KVP_PART_WAITING && kvp_open_has_ended(part->transfer))
			return 0;
		/* Who ends the last layer wakes the lane. */
		if (part->phase != KVP_PART_MOVING && part->phase != KVP_PART_WAITING)
			let_ns = RTE_MIN(let_ns, (uint64_t)SLEEP_SHORT_MS * NS_PER_MS);
		part = part->next;
	} while (part != endpoint->active);
	return let_ns;
}

static int
sleep_let_ms(const struct kvp_lane *lane, uint64_t now_ns)
{
	uint64_t let_ns = (uint64_t)SLEEP_MAX_MS * NS_PER_MS;

	for (uint32_t i = 0; i < lane->busy_count; i++)
		let_ns = RTE_MIN(let_ns, parts_let_ns(lane->busy[i], now_ns));
	/* Up: a deadline is looked at once it has passed. */
	return (int)((let_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static bool
sleep_for(struct kvp_lane *lane, int most_ms, uint64_t now_ns)
{
	struct epoll_event event[KVP_LANE_BURST];
	int let_ms = 0;
	int count;

	/* Pairs with the exchange in kvp_lane_kick(): we see what it announces, or it sees us asleep. */
	(void)atomic_exchange_explicit(&lane->is_asleep, 1, memory_order_acq_rel);
	if (kvp_lane_drain(lane, now_ns) == 0 &&
	    atomic_load_explicit(&lane->call, memory_order_acquire) == NULL)
		let_ms = RTE_MIN(most_ms, sleep_let_ms(lane, now_ns));
	if (let_ms > 0) {
		kvp_total_add(&lane->sleeps, 1);
		count = epoll_wait(lane->epoll_fd, event, KVP_LANE_BURST, let_ms);
		for (int i = 0; i < count; i++) {
			if (event[i].data.ptr == NULL)
				clear_wakes(lane);
		}
		/* Woken for something: every part gets its turn before the next sleep. */
		if (count > 0)
			lane->empty_loops = 0;
	}
	/* A store would break the chain of releases that the next exchange acquires. */
	(void)atomic_exchange_explicit(&lane->is_asleep, 0, memory_order_acq_rel);
	lane->fd_rest = 0;
	return let_ms > 0;
}

bool
kvp_lane_idle(struct kvp_lane *lane, uint64_t now_ns)
{
	bool has_slept = false;

	if (lane->empty_loops == 0)
		lane->arm_refusals = 0;
	lane->empty_loops += lane->empty_loops < UINT32_MAX;
	if (lane->empty_loops <= SPIN_LOOPS && lane->idle_ns != 0)
		return false;
	if (lane->config.idle == KVP_IDLE_POLL) {
		rte_pause();
		return false;
	}
	/* A loop serves some of the parts: all must have had their turn. */
	if (now_ns - lane->idle_since_ns >= lane->idle_ns &&
	    lane->empty_loops > lane->parts + lane->slots) {
		if (arm_all(lane))
			has_slept = sleep_for(lane, SLEEP_MAX_MS, now_ns);
		else if (++lane->arm_refusals > ARM_REFUSALS)
			has_slept = sleep_for(lane, SLEEP_SHORT_MS, now_ns);
		disarm_all(lane);
		return has_slept;
	}
	if (lane->empty_loops <= SPIN_LOOPS + PAUSE_LOOPS)
		rte_pause();
	else
		(void)sched_yield();
	return false;
}
