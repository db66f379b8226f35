/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c - this engine's caches
 *
 * Registering and releasing run on the control thread, between its other work,
 * so that a link sees either all or nothing of a cache. What takes long, making
 * memory usable by devices and undoing it, runs on the caller's thread: before
 * anybody hears of the cache, and after nobody uses it any more.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "state.h"
#include "wake.h"

struct kvp_cache *
kvp_cache_find(struct kvp_engine *engine, int64_t cache_id)
{
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		struct kvp_cache *cache = engine->cache[((uint64_t)cache_id + i) % KVP_CACHES_MAX];

		if (cache != NULL && cache->local.id == cache_id)
			return cache;
	}
	return NULL;
}

/* --- caches ---------------------------------------------------------------- */

static void
cache_free(struct kvp_cache *cache)
{
	if (cache == NULL)
		return;
	free(cache->tensors);
	free(cache->spans);
	free(cache->shared);
	free(cache->regions);
	free(cache);
}

static struct kvp_cache *
cache_create(const struct kvp_tensor *tensors, uint32_t num_tensors)
{
	struct kvp_cache *cache = calloc(1, sizeof(*cache));

	if (cache == NULL)
		return NULL;
	cache->tensors = calloc(num_tensors, sizeof(*cache->tensors));
	cache->spans = calloc(num_tensors, sizeof(*cache->spans));
	cache->shared = calloc(num_tensors, sizeof(struct kvp_shared *));
	cache->regions = calloc(num_tensors, sizeof(struct kvp_region *));
	if (cache->tensors == NULL || cache->spans == NULL || cache->shared == NULL ||
	    cache->regions == NULL) {
		cache_free(cache);
		return NULL;
	}
	memcpy(cache->tensors, tensors, num_tensors * sizeof(*tensors));
	kvp_layout_spans(cache->tensors, num_tensors, cache->spans);
	cache->local.num_tensors = num_tensors;
	cache->local.tensors = cache->tensors;
	cache->local.spans = cache->spans;
	cache->local.regions = cache->regions;
	return cache;
}

struct registration {
	struct kvp_cache *cache;
	int64_t cache_id; /* out */
	kvp_status status;
	struct kvp_error *err;
};

/* From here on the regions stay: kvp_memory_release is refused. */
static void
find_regions(struct kvp_engine *engine, struct kvp_cache *cache)
{
	pthread_mutex_lock(&engine->lock);
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		const struct kvp_tensor *tensor = &cache->tensors[i];

		cache->shared[i] = kvp_shared_at(engine, (uint64_t)(uintptr_t)tensor->base,
						 kvp_tensor_extent(tensor));
		if (cache->shared[i] == NULL)
			continue;
		cache->shared[i]->caches++;
		cache->regions[i] = cache->shared[i]->region;
	}
	pthread_mutex_unlock(&engine->lock);
}

/* Lock held. */
static void
leave_regions(struct kvp_cache *cache)
{
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		if (cache->shared[i] != NULL)
			cache->shared[i]->caches--;
	}
}

static bool
can_hold(const struct kvp_cache *cache, const struct kvp_transport *transport)
{
	if (transport->cache_hold == NULL)
		return false;
	return cache->local.memory == NULL || transport->caps.can_reach_device;
}

/* Every transport lets go of the cache. */
static void
forget(struct kvp_engine *engine, struct kvp_cache *cache)
{
	for (uint32_t i = 0; i < engine->transports; i++) {
		const struct kvp_transport *transport = engine->transport[i];
		uint32_t slot;

		kvp_transport_find(transport->name, &slot);
		if (cache->local.held[slot] != NULL)
			transport->cache_forget(&engine->dataplane, cache->local.held[slot]);
		cache->local.held[slot] = NULL;
	}
}

/*
 * Every transport makes the memory usable, or the cache is not registered: one that some links could never
 * reach would move bytes on a slower road, or not at all, and nobody would know why.
 */
static kvp_status
hold(struct kvp_engine *engine, struct kvp_cache *cache, struct kvp_error *err)
{
	for (uint32_t i = 0; i < engine->transports; i++) {
		const struct kvp_transport *transport = engine->transport[i];
		kvp_status status;
		uint32_t slot;

		kvp_transport_find(transport->name, &slot);
		if (!can_hold(cache, transport))
			continue;
		status = transport->cache_hold(&engine->dataplane, &cache->local,
					       &cache->local.held[slot], err);
		if (status != KVP_SUCCESS) {
			forget(engine, cache);
			return status;
		}
	}
	return KVP_SUCCESS;
}

static bool
knows_catalogue(const struct kvp_link *link)
{
	return link->step == KVP_STEP_CATALOGUE || link->step == KVP_STEP_READY;
}

/* Lanes first: a peer may write the moment it hears of the cache. */
static void
add_cache(struct kvp_engine *engine, void *arg)
{
	struct registration *registration = arg;
	struct kvp_cache *cache = registration->cache;
	uint32_t at;

	if (engine->caches >= KVP_CACHES_MAX) {
		registration->status = kvp_fail(
			registration->err, KVP_NO_RESOURCE,
			"%u caches are registered, the most an engine can have", KVP_CACHES_MAX);
		return;
	}
	cache->local.id = engine->next_cache;
	for (uint32_t i = 0; i < engine->config.lanes; i++) {
		registration->status =
			kvp_lane_cache_add(engine->lane[i], &cache->local, registration->err);
		if (registration->status == KVP_SUCCESS)
			continue;
		while (i-- > 0)
			kvp_lane_cache_remove(engine->lane[i], cache->local.id);
		return;
	}
	engine->next_cache++;
	registration->cache_id = cache->local.id;
	for (at = (uint32_t)((uint64_t)cache->local.id % KVP_CACHES_MAX);
	     engine->cache[at] != NULL;)
		at = (at + 1) % KVP_CACHES_MAX;
	engine->cache[at] = cache;
	engine->caches++;
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (knows_catalogue(link))
			kvp_catalogue_announce(link, cache);
	}
}

/* `memory` NULL: the CPU's. */
static kvp_status
register_tensors(struct kvp_engine *engine, const struct kvp_tensor *tensors, uint32_t num_tensors,
		 const struct kvp_device_memory *memory, int64_t *cache_id_out,
		 struct kvp_error *err)
{
	struct registration registration = {.err = err};
	struct kvp_cache *cache = cache_create(tensors, num_tensors);

	if (cache == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a cache of %u tensors",
				num_tensors);
	if (memory != NULL) {
		cache->memory = *memory;
		cache->local.memory = &cache->memory;
	} else {
		find_regions(engine, cache);
	}
	registration.cache = cache;
	registration.status = hold(engine, cache, err);
	if (registration.status == KVP_SUCCESS) {
		kvp_loop_call(engine, add_cache, &registration);
		if (registration.status == KVP_SUCCESS) {
			/* Not read back from the cache: another thread may release it by now. */
			*cache_id_out = registration.cache_id;
			return KVP_SUCCESS;
		}
		forget(engine, cache);
	}
	pthread_mutex_lock(&engine->lock);
	leave_regions(cache);
	pthread_mutex_unlock(&engine->lock);
	cache_free(cache);
	return registration.status;
}

static kvp_status
check_arguments(struct kvp_engine *engine, const struct kvp_tensor *tensors, uint32_t num_tensors,
		const int64_t *cache_id_out, bool may_lack_base, struct kvp_error *err)
{
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (cache_id_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "cache_id_out is NULL");
	return kvp_layout_check(tensors, num_tensors, may_lack_base, err);
}

kvp_status
kvp_cache_register(struct kvp_engine *engine, const struct kvp_tensor *tensors,
		   uint32_t num_tensors, int64_t *cache_id_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = check_arguments(engine, tensors, num_tensors, cache_id_out, false, err);

	if (status != KVP_SUCCESS)
		return status;
	return register_tensors(engine, tensors, num_tensors, NULL, cache_id_out, err);
}

/* The memory, and that the tensors lie in it. */
static kvp_status
check_memory(const struct kvp_device_memory *memory, const struct kvp_tensor *tensors,
	     uint32_t num_tensors, struct kvp_error *err)
{
	uint64_t base;

	if (memory == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "memory is NULL");
	base = (uint64_t)(uintptr_t)memory->base;
	if (memory->fd < 0 || memory->bytes == 0)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"memory->fd is %d and memory->bytes %" PRIu64
				"; a dma-buf's descriptor and at least one byte are needed",
				memory->fd, memory->bytes);
	if (base == 0 || base + (memory->bytes - 1) < base ||
	    memory->offset + (memory->bytes - 1) < memory->offset)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"memory->base %p or memory->offset %" PRIu64 " with %" PRIu64
				" bytes is NULL or wraps",
				memory->base, memory->offset, memory->bytes);
	for (uint32_t i = 0; i < num_tensors; i++) {
		uint64_t first = (uint64_t)(uintptr_t)tensors[i].base;
		uint64_t bytes = kvp_tensor_extent(&tensors[i]);

		if (first < base || first - base >= memory->bytes ||
		    bytes > memory->bytes - (first - base))
			return kvp_fail(err, KVP_PARAM_INVALID,
					"tensors[%u] (%p, %" PRIu64
					" bytes) does not lie in memory (%p, %" PRIu64 " bytes)",
					i, tensors[i].base, bytes, memory->base, memory->bytes);
	}
	return KVP_SUCCESS;
}

kvp_status
kvp_cache_register_device(struct kvp_engine *engine, const struct kvp_tensor *tensors,
			  uint32_t num_tensors, const struct kvp_device_memory *memory,
			  int64_t *cache_id_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = check_arguments(engine, tensors, num_tensors, cache_id_out, false, err);

	if (status == KVP_SUCCESS)
		status = check_memory(memory, tensors, num_tensors, err);
	if (status != KVP_SUCCESS)
		return status;
	for (uint32_t i = 0; i < engine->transports; i++) {
		if (engine->transport[i]->caps.can_reach_device)
			return register_tensors(engine, tensors, num_tensors, memory, cache_id_out,
						err);
	}
	return kvp_fail(
		err, KVP_FEATURE_NOT_ENABLED,
		"no transport of '%s' reaches device memory: set transports to one that does",
		engine->config.transports);
}

/* Bytes of all tensors one after another, each page aligned; 0 when that overflows. */
static uint64_t
place_tensors(const struct kvp_tensor *tensors, uint32_t num_tensors, uint64_t *offsets)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < num_tensors; i++) {
		uint64_t extent = kvp_tensor_extent(&tensors[i]);

		offsets[i] = at;
		if (__builtin_add_overflow(at, extent, &at) ||
		    __builtin_add_overflow(at, 4095, &at) || at > INT64_MAX)
			return 0;
		at &= ~4095ULL;
	}
	return at;
}

kvp_status
kvp_cache_allocate(struct kvp_engine *engine, struct kvp_tensor *tensors, uint32_t num_tensors,
		   int64_t *cache_id_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = check_arguments(engine, tensors, num_tensors, cache_id_out, true, err);
	struct kvp_shared *shared;
	uint64_t *offsets;
	uint64_t bytes;

	if (status != KVP_SUCCESS)
		return status;
	offsets = calloc(num_tensors, sizeof(*offsets));
	if (offsets == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a cache");
	bytes = place_tensors(tensors, num_tensors, offsets);
	if (bytes == 0) {
		free(offsets);
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors: their sizes add up past 2^63 bytes");
	}
	shared = kvp_shared_create(engine, bytes, &status, err);
	if (shared == NULL)
		goto free_offsets;
	shared->is_cache = true;
	for (uint32_t i = 0; i < num_tensors; i++)
		tensors[i].base = (uint8_t *)shared->region->base + offsets[i];
	status = register_tensors(engine, tensors, num_tensors, NULL, cache_id_out, err);
	if (status != KVP_SUCCESS) {
		bool is_busy;

		for (uint32_t i = 0; i < num_tensors; i++)
			tensors[i].base = NULL;
		kvp_shared_destroy(kvp_shared_take(engine, shared->region->base, true, &is_busy));
	}
free_offsets:
	free(offsets);
	return status;
}

/* --- release --------------------------------------------------------------- */

struct release {
	int64_t cache_id;
	struct kvp_cache *cache; /* NULL: unknown, or another caller releases it */
	struct kvp_shared *own;  /* region to free with it */
};

static void
tell_gone(struct kvp_link *link, int64_t cache_id)
{
	int64_t *ids = realloc(link->gone_sent, (link->gone + 1) * sizeof(*ids));

	if (ids == NULL) {
		kvp_link_end(link, KVP_OUT_OF_MEMORY, KVP_PEER_LOST, "no memory for a release");
		return;
	}
	link->gone_sent = ids;
	ids[link->gone++] = cache_id;
	kvp_link_send_value(link, KVP_FRAME_CACHE_GONE, (uint64_t)cache_id);
}

static void
begin_release(struct kvp_engine *engine, void *arg)
{
	struct release *release = arg;
	struct kvp_cache *cache = kvp_cache_find(engine, release->cache_id);

	if (cache == NULL || cache->is_leaving)
		return;
	cache->is_leaving = true;
	release->cache = cache;
	for (uint32_t i = 0; i < engine->config.lanes; i++)
		kvp_lane_cache_remove(engine->lane[i], cache->local.id);
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (knows_catalogue(link))
			tell_gone(link, cache->local.id);
	}
}

/* Transfers that were being submitted when the release began. */
static void
stop_again(struct kvp_engine *engine, void *arg)
{
	const struct release *release = arg;

	for (uint32_t i = 0; i < engine->config.lanes; i++)
		kvp_lane_cache_remove(engine->lane[i], release->cache_id);
}

static void
take_out(struct kvp_engine *engine, void *arg)
{
	const struct release *release = arg;

	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		if (engine->cache[i] == release->cache)
			engine->cache[i] = NULL;
	}
	engine->caches--;
}

/* After devices let go: the region's address must not be other memory while they hold it. */
static void
finish_release(struct kvp_engine *engine, void *arg)
{
	struct release *release = arg;
	struct kvp_cache *cache = release->cache;

	leave_regions(cache);
	if (cache->shared[0] != NULL && cache->shared[0]->is_cache &&
	    cache->shared[0]->caches == 0) {
		release->own = cache->shared[0];
		kvp_shared_unlink(engine, release->own);
	}
}

/* Does a peer still have to say that it let go? Ends the link of one that never does. Lock held. */
static bool
awaits_peer(struct kvp_engine *engine, int64_t cache_id)
{
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (link->step == KVP_STEP_CLOSING)
			continue;
		for (uint32_t i = 0; i < link->gone; i++) {
			if (link->gone_sent[i] == cache_id)
				return true;
		}
	}
	return false;
}

static void
drop_mute_peers(struct kvp_engine *engine, void *arg)
{
	const struct release *release = arg;

	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		for (uint32_t i = 0; i < link->gone && link->step != KVP_STEP_CLOSING; i++) {
			if (link->gone_sent[i] == release->cache_id)
				kvp_link_end(link, KVP_PEER_LOST, KVP_PEER_LOST,
					     "the peer does not let go of a released cache");
		}
	}
}

static void
await_holds(struct kvp_engine *engine, struct release *release)
{
	while (atomic_load_explicit(&release->cache->holds, memory_order_acquire) != 0) {
		kvp_loop_call(engine, stop_again, release);
		pthread_mutex_lock(&engine->lock);
		kvp_engine_wait(engine, kvp_now_ns() + 1000000);
		pthread_mutex_unlock(&engine->lock);
	}
}

static void
await_peers(struct kvp_engine *engine, struct release *release)
{
	uint64_t deadline_ns = kvp_now_ns() + (uint64_t)engine->config.dead_ms * 1000000;
	bool is_waiting;

	do {
		pthread_mutex_lock(&engine->lock);
		is_waiting = awaits_peer(engine, release->cache_id);
		if (is_waiting)
			kvp_engine_wait(engine, deadline_ns);
		pthread_mutex_unlock(&engine->lock);
	} while (is_waiting && kvp_now_ns() < deadline_ns);
	if (is_waiting)
		kvp_loop_call(engine, drop_mute_peers, release);
}

kvp_status
kvp_cache_release(struct kvp_engine *engine, int64_t cache_id)
{
	struct kvp_error *err = kvp_error_here();
	struct release release = {.cache_id = cache_id};
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	kvp_loop_call(engine, begin_release, &release);
	if (release.cache == NULL)
		return KVP_SUCCESS;
	await_holds(engine, &release);
	await_peers(engine, &release);
	kvp_loop_call(engine, take_out, &release);
	forget(engine, release.cache);
	kvp_loop_call(engine, finish_release, &release);
	if (release.own != NULL)
		kvp_shared_destroy(release.own);
	cache_free(release.cache);
	return KVP_SUCCESS;
}

kvp_status
kvp_cache_query(struct kvp_engine *engine, int64_t cache_id, struct kvp_cache_info *info_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_cache_info info = {.cache_id = cache_id, .shareable = 1};
	const struct kvp_cache *cache;

	if (status != KVP_SUCCESS)
		return status;
	if (info_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "info_out is NULL");
	pthread_mutex_lock(&engine->lock);
	cache = kvp_cache_find(engine, cache_id);
	if (cache == NULL || cache->is_leaving) {
		pthread_mutex_unlock(&engine->lock);
		return kvp_fail(err, KVP_CACHE_NOT_EXIST, "cache_id %" PRId64 " is not registered",
				cache_id);
	}
	info.num_tensors = cache->local.num_tensors;
	info.num_blocks = cache->tensors[0].num_blocks;
	info.bytes = kvp_layout_bytes(cache->tensors, cache->local.num_tensors);
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		if (cache->shared[i] == NULL)
			info.shareable = 0;
	}
	pthread_mutex_unlock(&engine->lock);
	*info_out = info;
	return KVP_SUCCESS;
}

void
kvp_cache_forget_all(struct kvp_engine *engine)
{
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		if (engine->cache[i] != NULL)
			forget(engine, engine->cache[i]);
	}
}

void
kvp_cache_free_all(struct kvp_engine *engine)
{
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		cache_free(engine->cache[i]);
		engine->cache[i] = NULL;
	}
	while (engine->shared != NULL) {
		struct kvp_shared *first = engine->shared;

		engine->shared = first->next;
		kvp_shared_destroy(first);
	}
}
