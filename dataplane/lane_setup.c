/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_state.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_lcore.h>
#include <rte_ring.h>

#include "check.h"
#include "cpus.h"
#include "eal.h"
#include "wake.h"

#define NS_PER_US 1000U

enum {
	STARTING = 0,
	STARTED = 1,
	START_FAILED = 2
};

static kvp_status
create_ring(struct kvp_lane *lane, struct kvp_error *err)
{
	uint32_t parts = lane->config.ring_parts;
	ssize_t bytes = rte_ring_get_memsize(rte_align32pow2(parts + 1));

	if (bytes > 0)
		lane->ring = aligned_alloc(KVP_SHARE_SPAN,
					   RTE_ALIGN_CEIL((size_t)bytes, (size_t)KVP_SHARE_SPAN));
	if (lane->ring == NULL ||
	    rte_ring_init(lane->ring, "kvp_lane", parts,
			  RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ) != 0)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "submit ring of %u parts", parts);
	return KVP_SUCCESS;
}

static kvp_status
create_fds(struct kvp_lane *lane, struct kvp_error *err)
{
	/* The event fd is the only member without an endpoint. */
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	lane->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (lane->event_fd >= 0)
		lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (lane->epoll_fd < 0 ||
	    epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, lane->event_fd, &event) != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "descriptors of lane %u: %s",
				lane->config.index, strerror(errno));
	return KVP_SUCCESS;
}

kvp_status
kvp_lane_prepare(const struct kvp_lane_config *config, struct kvp_lane **lane_out,
		 struct kvp_error *err)
{
	struct kvp_lane *lane;
	kvp_status status;

	lane = aligned_alloc(KVP_SHARE_SPAN, sizeof(*lane));
	if (lane == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "lane of %zu bytes", sizeof(*lane));
	memset(lane, 0, sizeof(*lane));
	lane->config = *config;
	(void)snprintf(lane->name, sizeof(lane->name), "%s",
		       config->name == NULL ? "kvp-lane" : config->name);
	lane->config.name = lane->name;
	lane->idle_ns = (uint64_t)config->idle_us * NS_PER_US;
	lane->owner = kvp_self;
	lane->event_fd = -1;
	lane->epoll_fd = -1;
	(void)pthread_mutex_init(&lane->submit_mutex, NULL);
	(void)pthread_mutex_init(&lane->call_mutex, NULL);
	lane->cache = calloc(KVP_LANE_CACHE_BIN, sizeof(lane->cache[0]));
	if (lane->cache == NULL) {
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "cache table of a lane");
		goto release;
	}
	status = create_ring(lane, err);
	if (status != KVP_SUCCESS)
		goto release;
	status = create_fds(lane, err);
	if (status != KVP_SUCCESS)
		goto release;
	*lane_out = lane;
	return KVP_SUCCESS;

release:
	kvp_lane_release(lane);
	return status;
}

void
kvp_lane_release(struct kvp_lane *lane)
{
	KVP_CHECK(lane->slots == 0 && lane->parts == 0);
	if (lane->epoll_fd >= 0)
		(void)close(lane->epoll_fd);
	if (lane->event_fd >= 0)
		(void)close(lane->event_fd);
	(void)pthread_mutex_destroy(&lane->submit_mutex);
	(void)pthread_mutex_destroy(&lane->call_mutex);
	free(lane->table);
	free(lane->ring);
	free(lane->cache);
	free(lane);
}

static void
tell_start(struct kvp_lane *lane, uint32_t how)
{
	/* Pairs with start_thread(). */
	atomic_store_explicit(&lane->started, how, memory_order_release);
	kvp_wake_word(&lane->started);
}

static void
loop(struct kvp_lane *lane)
{
	uint64_t last_ns = kvp_now_ns();

	lane->idle_since_ns = last_ns;
	while (!lane->is_ending) {
		uint64_t now_ns = kvp_now_ns();

		if (now_ns - last_ns >
		    atomic_load_explicit(&lane->gap_max_ns, memory_order_relaxed))
			atomic_store_explicit(&lane->gap_max_ns, now_ns - last_ns,
					      memory_order_relaxed);
		last_ns = now_ns;
		if (kvp_lane_run_once(lane, now_ns) != 0) {
			lane->idle_since_ns = now_ns;
			lane->empty_loops = 0;
		} else if (kvp_lane_idle(lane, now_ns)) {
			last_ns = kvp_now_ns();
		}
	}
}

static void *
lane_main(void *arg)
{
	struct kvp_lane *lane = arg;

	(void)pthread_setname_np(pthread_self(), lane->name);
	if (kvp_eal_thread_enter(&lane->start_error) != KVP_SUCCESS) {
		tell_start(lane, START_FAILED);
		return NULL;
	}
	kvp_self = rte_lcore_id();
	lane->owner = kvp_self;
	tell_start(lane, STARTED);
	loop(lane);
	kvp_eal_thread_leave();
	return NULL;
}

static kvp_status
fail_cpu(const struct kvp_lane *lane, int rc, struct kvp_error *err)
{
	char allowed[KVP_ERROR_TEXT_MAX];
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	(void)sched_getaffinity(0, sizeof(cpus), &cpus);
	kvp_cpus_format(&cpus, allowed, sizeof(allowed));
	return kvp_fail(err, KVP_NO_RESOURCE,
			"lane %u: cpu %d of lane_cpus is not to be had (%s), only %s",
			lane->config.index, lane->config.cpu, strerror(rc), allowed);
}

/* All signals blocked, pinned from its first instruction. Returns 0 or a positive errno. */
static int
spawn(struct kvp_lane *lane)
{
	pthread_attr_t attr;
	cpu_set_t cpus;
	sigset_t all;
	int rc;

	if (lane->config.cpu >= CPU_SETSIZE)
		return EINVAL;
	rc = pthread_attr_init(&attr);
	if (rc != 0)
		return rc;
	(void)sigfillset(&all);
	rc = pthread_attr_setsigmask_np(&attr, &all);
	if (rc == 0 && lane->config.cpu >= 0) {
		CPU_ZERO(&cpus);
		CPU_SET((size_t)lane->config.cpu, &cpus);
		rc = pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	}
	if (rc == 0)
		rc = pthread_create(&lane->thread, &attr, lane_main, lane);
	(void)pthread_attr_destroy(&attr);
	return rc;
}

static kvp_status
start_thread(struct kvp_lane *lane, struct kvp_error *err)
{
	uint32_t how;
	int rc;

	lane->has_thread = true;
	rc = spawn(lane);
	if (rc == EINVAL && lane->config.cpu >= 0)
		return fail_cpu(lane, rc, err);
	if (rc != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "thread of lane %u: %s", lane->config.index,
				strerror(rc));
	while ((how = atomic_load_explicit(&lane->started, memory_order_acquire)) == STARTING)
		kvp_sleep_word(&lane->started, STARTING, UINT64_MAX);
	if (how == STARTED)
		return KVP_SUCCESS;
	(void)pthread_join(lane->thread, NULL);
	return kvp_fail(err, KVP_NO_RESOURCE, "lane %u: %s", lane->config.index,
			lane->start_error.text);
}

kvp_status
kvp_lane_create(const struct kvp_lane_config *config, struct kvp_lane **lane_out,
		struct kvp_error *err)
{
	struct kvp_lane *lane = NULL;
	kvp_status status;

	status = kvp_lane_prepare(config, &lane, err);
	if (status != KVP_SUCCESS)
		return status;
	KVP_ASSERT(lane != NULL);
	status = start_thread(lane, err);
	if (status != KVP_SUCCESS) {
		kvp_lane_release(lane);
		return status;
	}
	*lane_out = lane;
	return KVP_SUCCESS;
}

void
kvp_lane_destroy(struct kvp_lane *lane)
{
	struct kvp_lane_call call = {.op = KVP_LANE_END};

	if (lane == NULL)
		return;
	kvp_lane_ask(lane, &call);
	(void)pthread_join(lane->thread, NULL);
	kvp_lane_release(lane);
}

void
kvp_lane_totals(const struct kvp_lane *lane, struct kvp_lane_totals *totals_out)
{
	totals_out->loops = atomic_load_explicit(&lane->loops, memory_order_relaxed);
	totals_out->busy_loops = atomic_load_explicit(&lane->busy_loops, memory_order_relaxed);
	totals_out->sleeps = atomic_load_explicit(&lane->sleeps, memory_order_relaxed);
	totals_out->gap_max_ns = atomic_load_explicit(&lane->gap_max_ns, memory_order_relaxed);
}
