/* SPDX-License-Identifier: Apache-2.0 */
#include "inbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "check.h"
#include "compiler.h"
#include "wake.h"

#define CAPACITY_MIN 16U
#define CAPACITY_MAX 65536U
#define POOL_CACHE   16U /* events that each lane's lcore may keep aside */
#define POOL_SPARE   4U  /* more of each producer: on their way in or out */

/* What the pool hands out. */
struct queued {
	struct kvp_event event;
	uint64_t seq; /* order over all producers */
};
_Static_assert(offsetof(struct queued, event) == 0, "producers see the event only");

struct source {
	struct rte_ring *ring;
	struct queued *head; /* taken off the ring, not yet given out; under the mutex */
};

struct kvp_inbox {
	/* const after create */
	struct rte_mempool *pool;
	struct source *source;
	uint32_t producers;
	int event_fd;

	/* producers and pollers: rw, read-modify-write only, so that each change releases to the next */
	KVP_SPAN_START _Atomic uint32_t credits; /* events not in use */
	_Atomic uint32_t is_armed;               /* 1: the next put makes event_fd readable */
	_Atomic uint64_t seq;

	/* pollers: rw, under the mutex */
	KVP_SPAN_START pthread_mutex_t mutex;
	uint64_t arms;  /* times is_armed went 0 -> 1 */
	uint64_t reads; /* wakes read from event_fd */
};

static kvp_status
create_ring(struct source *source, uint32_t capacity)
{
	ssize_t bytes = rte_ring_get_memsize_elem(sizeof(void *), rte_align32pow2(capacity + 1));

	if (bytes < 0)
		return KVP_OUT_OF_MEMORY;
	source->ring = aligned_alloc(KVP_SHARE_SPAN,
				     RTE_ALIGN_CEIL((size_t)bytes, (size_t)KVP_SHARE_SPAN));
	if (source->ring == NULL)
		return KVP_OUT_OF_MEMORY;
	if (rte_ring_init(source->ring, "kvp_inbox", capacity,
			  RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ) != 0)
		return KVP_OUT_OF_MEMORY;
	return KVP_SUCCESS;
}

static kvp_status
create_rings(struct kvp_inbox *inbox, uint32_t capacity, struct kvp_error *err)
{
	inbox->source = calloc(inbox->producers, sizeof(inbox->source[0]));
	if (inbox->source == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "event rings of %u producers",
				inbox->producers);
	for (uint32_t i = 0; i < inbox->producers; i++) {
		if (create_ring(&inbox->source[i], capacity) != KVP_SUCCESS)
			return kvp_fail(err, KVP_OUT_OF_MEMORY, "event ring of %u entries",
					capacity);
	}
	return KVP_SUCCESS;
}

static kvp_status
create_pool(struct kvp_inbox *inbox, uint32_t capacity, struct kvp_error *err)
{
	static _Atomic uint32_t instances;
	char name[RTE_MEMPOOL_NAMESIZE];
	/* What lcores keep aside must not count against the capacity. */
	uint32_t events = capacity + inbox->producers * (POOL_CACHE + POOL_SPARE);

	(void)snprintf(name, sizeof(name), "kvp_inbox_%u",
		       atomic_fetch_add_explicit(&instances, 1, memory_order_relaxed));
	inbox->pool = rte_mempool_create(name, events, sizeof(struct queued), POOL_CACHE, 0, NULL,
					 NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	if (inbox->pool == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY,
				"pool of %u events: %s; raise eal_mem_mb or lower max_events",
				capacity, rte_strerror(rte_errno));
	return KVP_SUCCESS;
}

kvp_status
kvp_inbox_create(uint32_t producers, uint32_t capacity, struct kvp_inbox **inbox_out,
		 struct kvp_error *err)
{
	struct kvp_inbox *inbox;
	kvp_status status;

	KVP_CHECK(producers >= 1 && capacity >= CAPACITY_MIN && capacity <= CAPACITY_MAX);
	inbox = aligned_alloc(KVP_SHARE_SPAN, sizeof(*inbox));
	if (inbox == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "inbox of %zu bytes", sizeof(*inbox));
	memset(inbox, 0, sizeof(*inbox));
	inbox->producers = producers;
	atomic_init(&inbox->credits, capacity);
	atomic_init(&inbox->is_armed, 1);
	inbox->arms = 1;
	(void)pthread_mutex_init(&inbox->mutex, NULL);
	inbox->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (inbox->event_fd < 0) {
		status =
			kvp_fail(err, KVP_NO_RESOURCE, "eventfd of the inbox: %s", strerror(errno));
		goto destroy;
	}
	status = create_rings(inbox, capacity, err);
	if (status != KVP_SUCCESS)
		goto destroy;
	status = create_pool(inbox, capacity, err);
	if (status != KVP_SUCCESS)
		goto destroy;
	*inbox_out = inbox;
	return KVP_SUCCESS;

destroy:
	kvp_inbox_destroy(inbox);
	return status;
}

void
kvp_inbox_destroy(struct kvp_inbox *inbox)
{
	if (inbox == NULL)
		return;
	/* Events still queued live in the pool. */
	rte_mempool_free(inbox->pool);
	for (uint32_t i = 0; inbox->source != NULL && i < inbox->producers; i++)
		free(inbox->source[i].ring);
	free(inbox->source);
	if (inbox->event_fd >= 0)
		(void)close(inbox->event_fd);
	(void)pthread_mutex_destroy(&inbox->mutex);
	free(inbox);
}

struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox)
{
	void *queued;

	if ((int32_t)atomic_load_explicit(&inbox->credits, memory_order_relaxed) <= 0)
		return NULL;
	if (KVP_UNLIKELY(rte_mempool_get(inbox->pool, &queued) != 0))
		return NULL;
	/* Pairs with give_back(): this comes after the credit of whoever had the event before. */
	if (KVP_UNLIKELY((int32_t)atomic_fetch_sub_explicit(&inbox->credits, 1,
							    memory_order_acquire) <= 0)) {
		atomic_fetch_add_explicit(&inbox->credits, 1, memory_order_relaxed);
		rte_mempool_put(inbox->pool, queued);
		return NULL;
	}
	return &((struct queued *)queued)->event;
}

/* Make the fd readable if the application was told NO_EVENT since the last time. */
static void
ring_bell(struct kvp_inbox *inbox)
{
	/* Pairs with the exchange in arm(): the poller sees the event, or we see that it is armed. */
	if (atomic_exchange_explicit(&inbox->is_armed, 0, memory_order_acq_rel) != 0)
		kvp_wake_fd(inbox->event_fd);
}

void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event)
{
	struct queued *queued = (struct queued *)event;
	int rc;

	KVP_ASSERT(producer < inbox->producers);
	queued->seq = atomic_fetch_add_explicit(&inbox->seq, 1, memory_order_relaxed);
	rc = rte_ring_sp_enqueue(inbox->source[producer].ring, queued);
	KVP_CHECK(rc == 0);
	ring_bell(inbox);
}

static uint32_t
fill_heads(struct kvp_inbox *inbox)
{
	uint32_t found = 0;
	void *queued;

	for (uint32_t i = 0; i < inbox->producers; i++) {
		if (inbox->source[i].head != NULL)
			continue;
		if (rte_ring_sc_dequeue(inbox->source[i].ring, &queued) != 0)
			continue;
		inbox->source[i].head = queued;
		found++;
	}
	return found;
}

static struct source *
oldest(struct kvp_inbox *inbox)
{
	struct source *best = NULL;

	for (uint32_t i = 0; i < inbox->producers; i++) {
		struct source *source = &inbox->source[i];

		if (source->head == NULL)
			continue;
		if (best == NULL || source->head->seq < best->head->seq)
			best = source;
	}
	return best;
}

static struct source *
find_next(struct kvp_inbox *inbox)
{
	/* Twice: what was put before an event that this pass saw is there for the next pass. */
	if (fill_heads(inbox) != 0)
		(void)fill_heads(inbox);
	return oldest(inbox);
}

/* Take back the wakes that were written, and ask for the next. */
static void
arm(struct kvp_inbox *inbox)
{
	bool is_armed = atomic_load_explicit(&inbox->is_armed, memory_order_relaxed) != 0;
	uint64_t count;

	/* Each arming ends in one wake; one that is still on its way is read next time. */
	if (inbox->reads != inbox->arms - (is_armed ? 1 : 0) &&
	    read(inbox->event_fd, &count, sizeof(count)) == (ssize_t)sizeof(count))
		inbox->reads += count;
	if (is_armed)
		return;
	(void)atomic_exchange_explicit(&inbox->is_armed, 1, memory_order_acq_rel);
	inbox->arms++;
}

static void
give_back(struct kvp_inbox *inbox, struct source *source)
{
	struct queued *queued = source->head;

	source->head = NULL;
	/* First the credit: who gets the event after that takes one, and so comes after us. */
	(void)atomic_fetch_add_explicit(&inbox->credits, 1, memory_order_release);
	rte_mempool_put(inbox->pool, queued);
}

kvp_status
kvp_inbox_poll(struct kvp_inbox *inbox, struct kvp_event *event_out)
{
	kvp_status status = KVP_NO_EVENT;
	struct source *next;

	(void)pthread_mutex_lock(&inbox->mutex);
	next = find_next(inbox);
	if (next == NULL) {
		arm(inbox);
		next = find_next(inbox);
		/* Came in between: there may be more, so the fd must say so. */
		if (next != NULL)
			ring_bell(inbox);
	}
	if (next != NULL) {
		*event_out = next->head->event;
		give_back(inbox, next);
		status = KVP_SUCCESS;
	}
	(void)pthread_mutex_unlock(&inbox->mutex);
	return status;
}

int
kvp_inbox_fd(const struct kvp_inbox *inbox)
{
	return inbox->event_fd;
}
