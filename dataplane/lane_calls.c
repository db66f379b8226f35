/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_state.h"

#include <stdlib.h>
#include <string.h>

#include <rte_ring.h>

#include "check.h"
#include "wake.h"

#define TABLE_ROOM_MIN 16U

bool
kvp_lane_submit(struct kvp_lane *lane, struct kvp_part *const *part, uint32_t count)
{
	void *item[KVP_PARTS_MAX];
	uint32_t handed;

	KVP_ASSERT(count >= 1 && count <= KVP_PARTS_MAX);
	for (uint32_t i = 0; i < count; i++)
		item[i] = part[i];
	(void)pthread_mutex_lock(&lane->submit_mutex);
	handed = rte_ring_sp_enqueue_bulk(lane->ring, item, count, NULL);
	(void)pthread_mutex_unlock(&lane->submit_mutex);
	if (handed == 0)
		return false;
	kvp_lane_kick(lane);
	return true;
}

/* --- on the lane --------------------------------------------------------------- */

static void
take_table(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	struct kvp_lane_table *grown = call->table;

	if (grown == NULL)
		return;
	KVP_ASSERT(grown->room > lane->slots);
	if (lane->table != NULL) {
		memcpy(grown->slot, lane->slot, lane->slots * sizeof(grown->slot[0]));
		memcpy(grown->polled, lane->polled, lane->polled_count * sizeof(void *));
		memcpy(grown->busy, lane->busy, lane->busy_count * sizeof(void *));
	}
	call->table = lane->table;
	lane->table = grown;
	lane->slot = grown->slot;
	lane->polled = grown->polled;
	lane->busy = grown->busy;
}

static kvp_status
attach(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	struct kvp_endpoint *endpoint = call->endpoint;
	struct kvp_lane_slot *slot;
	int rc;

	KVP_CHECK(endpoint->lane == lane && endpoint->active == NULL);
	take_table(lane, call);
	slot = &lane->slot[lane->slots];
	*slot = (struct kvp_lane_slot){
		.endpoint = endpoint, .fd = endpoint->fd, .polled_idx = KVP_LANE_NOWHERE};
	if (slot->fd >= 0) {
		rc = kvp_lane_watch(lane, slot);
		if (rc != 0)
			return kvp_fail(call->err, KVP_NO_RESOURCE,
					"lane %u: watching fd %d of an endpoint: %s",
					lane->config.index, slot->fd, strerror(-rc));
	} else {
		slot->polled_idx = lane->polled_count;
		lane->polled[lane->polled_count++] = endpoint;
	}
	endpoint->lane_slot = lane->slots++;
	if (endpoint->transport->attached != NULL)
		endpoint->transport->attached(endpoint);
	return KVP_SUCCESS;
}

static void
detach(struct kvp_lane *lane, struct kvp_endpoint *endpoint)
{
	struct kvp_lane_slot *slot = &lane->slot[endpoint->lane_slot];
	struct kvp_lane_slot *last = &lane->slot[lane->slots - 1];

	KVP_CHECK(slot->endpoint == endpoint && endpoint->active == NULL);
	kvp_lane_unwatch(lane, slot);
	kvp_lane_polled_remove(lane, endpoint);
	if (endpoint->transport->detached != NULL)
		endpoint->transport->detached(endpoint);
	*slot = *last;
	slot->endpoint->lane_slot = endpoint->lane_slot;
	lane->slots--;
}

typedef bool (*part_match_fn)(const struct kvp_part *part, const struct kvp_lane_call *call);

/* Stop the transfers of all matching parts; those still in the ring as well. */
static void
stop_matching(struct kvp_lane *lane, const struct kvp_lane_call *call, part_match_fn is_match)
{
	for (uint32_t i = 0; i < lane->busy_count; i++) {
		struct kvp_part *first = lane->busy[i]->active;
		struct kvp_part *part = first;

		do {
			if (is_match(part, call))
				kvp_lane_stop_transfer(lane, part->transfer, call->why);
			part = part->next;
		} while (part != first);
	}
}

static bool
is_of_endpoint(const struct kvp_part *part, const struct kvp_lane_call *call)
{
	return part->endpoint == call->endpoint;
}

static bool
is_of_cache(const struct kvp_part *part, const struct kvp_lane_call *call)
{
	return part->transfer->local_cache == call->cache_id;
}

static bool
is_of_view(const struct kvp_part *part, const struct kvp_lane_call *call)
{
	return part->transfer->view == call->view;
}

static void
down(struct kvp_lane *lane, const struct kvp_lane_call *call)
{
	if (call->endpoint->is_down)
		return;
	call->endpoint->is_down = true;
	call->endpoint->down_status = call->why;
	if (call->endpoint->transport->down != NULL && !kvp_endpoint_is_dead(call->endpoint))
		call->endpoint->transport->down(call->endpoint);
	stop_matching(lane, call, is_of_endpoint);
}

static kvp_status
cache_add(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	uint64_t i = (uint64_t)call->cache->id;

	if (lane->caches == KVP_CACHES_MAX)
		return kvp_fail(call->err, KVP_NO_RESOURCE, "lane %u knows %u caches, the limit",
				lane->config.index, KVP_CACHES_MAX);
	while (lane->cache[i & (KVP_LANE_CACHE_BIN - 1)].cache != NULL)
		i++;
	lane->cache[i & (KVP_LANE_CACHE_BIN - 1)] =
		(struct kvp_lane_cache){.id = call->cache->id, .cache = call->cache};
	lane->caches++;
	if (call->cache->id > lane->cache_newest)
		lane->cache_newest = call->cache->id;
	return KVP_SUCCESS;
}

/* Take the entry out and move up those behind it whose place it was in the way of. */
static void
cache_forget(struct kvp_lane *lane, int64_t cache_id)
{
	const uint64_t mask = KVP_LANE_CACHE_BIN - 1;
	struct kvp_lane_cache *bin = lane->cache;
	uint64_t hole = (uint64_t)cache_id & mask;

	while (bin[hole].cache != NULL && bin[hole].id != cache_id)
		hole = (hole + 1) & mask;
	if (bin[hole].cache == NULL)
		return;
	for (uint64_t i = (hole + 1) & mask; bin[i].cache != NULL; i = (i + 1) & mask) {
		if (((i - (uint64_t)bin[i].id) & mask) < ((i - hole) & mask))
			continue;
		bin[hole] = bin[i];
		hole = i;
	}
	bin[hole].cache = NULL;
	lane->caches--;
}

static void
cache_remove(struct kvp_lane *lane, const struct kvp_lane_call *call)
{
	cache_forget(lane, call->cache_id);
	for (uint32_t i = 0; i < lane->slots; i++) {
		struct kvp_endpoint *endpoint = lane->slot[i].endpoint;

		if (endpoint->transport->cache_gone != NULL)
			endpoint->transport->cache_gone(endpoint, call->cache_id);
	}
	stop_matching(lane, call, is_of_cache);
}

static void
do_call(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	switch (call->op) {
	case KVP_LANE_ATTACH:
		call->status = attach(lane, call);
		break;
	case KVP_LANE_DOWN:
		down(lane, call);
		break;
	case KVP_LANE_DETACH:
		detach(lane, call->endpoint);
		break;
	case KVP_LANE_CACHE_ADD:
		call->status = cache_add(lane, call);
		break;
	case KVP_LANE_CACHE_REMOVE:
		cache_remove(lane, call);
		break;
	case KVP_LANE_STOP_VIEW:
		stop_matching(lane, call, is_of_view);
		break;
	case KVP_LANE_END:
		lane->is_ending = true;
		break;
	}
}

uint32_t
kvp_lane_obey(struct kvp_lane *lane, uint64_t now_ns)
{
	struct kvp_lane_call *call = atomic_load_explicit(&lane->call, memory_order_acquire);

	/* What was submitted before the call, a ringful at most, is subject to it. */
	for (uint32_t i = 0; i <= lane->config.ring_parts / KVP_LANE_BURST; i++) {
		if (kvp_lane_drain(lane, now_ns) == 0)
			break;
	}
	do_call(lane, call);
	atomic_store_explicit(&lane->call, NULL, memory_order_relaxed);
	/* Pairs with kvp_lane_ask(); the call may be gone from here on. */
	atomic_store_explicit(&call->done, 1, memory_order_release);
	kvp_wake_word(&call->done);
	return 1;
}

/* --- on other threads ------------------------------------------------------------ */

static void
ask_locked(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	/* Pairs with kvp_lane_run_once(). */
	atomic_store_explicit(&lane->call, call, memory_order_release);
	if (!lane->has_thread) {
		(void)kvp_lane_obey(lane, 0);
		return;
	}
	kvp_lane_kick(lane);
	while (atomic_load_explicit(&call->done, memory_order_acquire) == 0)
		kvp_sleep_word(&call->done, 0, UINT64_MAX);
}

void
kvp_lane_ask(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	(void)pthread_mutex_lock(&lane->call_mutex);
	ask_locked(lane, call);
	(void)pthread_mutex_unlock(&lane->call_mutex);
}

static struct kvp_lane_table *
table_create(uint32_t room)
{
	struct kvp_lane_table *table;

	table = malloc(sizeof(*table) + room * (sizeof(table->slot[0]) + 2 * sizeof(void *)));
	if (table == NULL)
		return NULL;
	table->room = room;
	table->slot = (struct kvp_lane_slot *)(table + 1);
	table->polled = (struct kvp_endpoint **)(table->slot + room);
	table->busy = table->polled + room;
	return table;
}
_Static_assert(_Alignof(struct kvp_lane_slot) <= _Alignof(struct kvp_lane_table) &&
		       sizeof(struct kvp_lane_table) % _Alignof(struct kvp_lane_slot) == 0 &&
		       sizeof(struct kvp_lane_slot) % _Alignof(struct kvp_endpoint *) == 0,
	       "the arrays of a table lie behind it");

static kvp_status
attach_locked(struct kvp_lane *lane, struct kvp_lane_call *call)
{
	if (lane->attached == lane->room) {
		uint32_t room = lane->room == 0 ? TABLE_ROOM_MIN : 2 * lane->room;

		call->table = table_create(room);
		if (call->table == NULL)
			return kvp_fail(call->err, KVP_OUT_OF_MEMORY,
					"lane %u: table of %u endpoints", lane->config.index, room);
		lane->room = room;
	}
	ask_locked(lane, call);
	free(call->table);
	if (call->status == KVP_SUCCESS)
		lane->attached++;
	return call->status;
}

kvp_status
kvp_lane_attach(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_error *err)
{
	struct kvp_lane_call call = {.op = KVP_LANE_ATTACH, .endpoint = endpoint, .err = err};
	kvp_status status;

	(void)pthread_mutex_lock(&lane->call_mutex);
	status = attach_locked(lane, &call);
	(void)pthread_mutex_unlock(&lane->call_mutex);
	return status;
}

void
kvp_lane_down(struct kvp_lane *lane, struct kvp_endpoint *endpoint, kvp_status why)
{
	struct kvp_lane_call call = {.op = KVP_LANE_DOWN, .endpoint = endpoint, .why = why};

	kvp_lane_ask(lane, &call);
}

void
kvp_lane_detach(struct kvp_lane *lane, struct kvp_endpoint *endpoint)
{
	struct kvp_lane_call call = {.op = KVP_LANE_DETACH, .endpoint = endpoint};

	(void)pthread_mutex_lock(&lane->call_mutex);
	ask_locked(lane, &call);
	lane->attached--;
	(void)pthread_mutex_unlock(&lane->call_mutex);
}

kvp_status
kvp_lane_cache_add(struct kvp_lane *lane, const struct kvp_local_cache *cache,
		   struct kvp_error *err)
{
	struct kvp_lane_call call = {.op = KVP_LANE_CACHE_ADD, .cache = cache, .err = err};

	kvp_lane_ask(lane, &call);
	return call.status;
}

void
kvp_lane_cache_remove(struct kvp_lane *lane, int64_t cache_id)
{
	struct kvp_lane_call call = {
		.op = KVP_LANE_CACHE_REMOVE, .cache_id = cache_id, .why = KVP_CACHE_NOT_EXIST};

	kvp_lane_ask(lane, &call);
}

void
kvp_lane_stop_view(struct kvp_lane *lane, const struct kvp_view *view, kvp_status why)
{
	struct kvp_lane_call call = {.op = KVP_LANE_STOP_VIEW, .view = view, .why = why};

	kvp_lane_ask(lane, &call);
}
