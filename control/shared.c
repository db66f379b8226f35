/* SPDX-License-Identifier: Apache-2.0 */
/* shared.c - shareable memory of this engine: regions that caches lie in */
#include <stdlib.h>

#include "report.h"
#include "state.h"

struct kvp_shared *
kvp_shared_at(struct kvp_engine *engine, uint64_t address, uint64_t bytes)
{
	for (struct kvp_shared *shared = engine->shared; shared != NULL; shared = shared->next) {
		uint64_t base = (uint64_t)(uintptr_t)shared->region->base;

		if (address >= base && address - base < shared->region->bytes &&
		    bytes <= shared->region->bytes - (address - base))
			return shared;
	}
	return NULL;
}

struct kvp_shared *
kvp_shared_create(struct kvp_engine *engine, uint64_t bytes, kvp_status *status_out,
		  struct kvp_error *err)
{
	struct kvp_shared *shared = calloc(1, sizeof(*shared));
	struct kvp_region_config config = {.bytes = bytes};

	if (shared == NULL) {
		*status_out = kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a region");
		return NULL;
	}
	pthread_mutex_lock(&engine->lock);
	config.id = engine->next_region++;
	pthread_mutex_unlock(&engine->lock);
	/* Faulting the pages in takes long: not under the lock. */
	config.is_huge = engine->config.huge_pages != 0;
	*status_out = kvp_region_create(&config, &shared->region, err);
	if (*status_out != KVP_SUCCESS) {
		free(shared);
		return NULL;
	}
	pthread_mutex_lock(&engine->lock);
	shared->next = engine->shared;
	engine->shared = shared;
	pthread_mutex_unlock(&engine->lock);
	return shared;
}

void
kvp_shared_unlink(struct kvp_engine *engine, struct kvp_shared *gone)
{
	struct kvp_shared **at = &engine->shared;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		for (uint32_t i = 0; i < link->regions; i++) {
			if (link->regions_shared[i] != gone->region->id)
				continue;
			link->regions_shared[i] = link->regions_shared[--link->regions];
			if (link->path != NULL)
				link->path->transport->region_gone(link->path, gone->region->id);
			break;
		}
	}
}

struct removal {
	void *memory;
	bool is_cache;
	struct kvp_shared *taken;
	bool is_busy;
};

static void
remove_region(struct kvp_engine *engine, void *arg)
{
	struct removal *removal = arg;

	for (struct kvp_shared *shared = engine->shared; shared != NULL; shared = shared->next) {
		if (shared->region->base != removal->memory ||
		    shared->is_cache != removal->is_cache)
			continue;
		removal->is_busy = shared->caches > 0;
		if (removal->is_busy)
			return;
		kvp_shared_unlink(engine, shared);
		removal->taken = shared;
		return;
	}
}

struct kvp_shared *
kvp_shared_take(struct kvp_engine *engine, void *memory, bool is_cache, bool *is_busy_out)
{
	struct removal removal = {.memory = memory, .is_cache = is_cache};

	kvp_loop_call(engine, remove_region, &removal);
	*is_busy_out = removal.is_busy;
	return removal.taken;
}

void
kvp_shared_destroy(struct kvp_shared *shared)
{
	kvp_region_destroy(shared->region);
	free(shared);
}

kvp_status
kvp_memory_allocate(struct kvp_engine *engine, uint64_t bytes, void **memory_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_shared *shared;

	if (status != KVP_SUCCESS)
		return status;
	if (bytes == 0 || memory_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s",
				memory_out == NULL ? "memory_out is NULL" : "bytes is 0");
	shared = kvp_shared_create(engine, bytes, &status, err);
	if (shared != NULL)
		*memory_out = shared->region->base;
	return status;
}

kvp_status
kvp_memory_release(struct kvp_engine *engine, void *memory)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_shared *shared;
	bool is_busy;

	if (status != KVP_SUCCESS)
		return status;
	shared = kvp_shared_take(engine, memory, false, &is_busy);
	if (is_busy)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"memory %p has registered caches in it: release them first",
				memory);
	if (shared == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"memory %p is not the start of a kvp_memory_allocate", memory);
	kvp_shared_destroy(shared);
	return KVP_SUCCESS;
}
