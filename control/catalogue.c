/* SPDX-License-Identifier: Apache-2.0 */
/*
 * catalogue.c - telling peers about our caches, and keeping what they tell us
 *
 * Every change is pushed at once. A cache of the peer is usable when its view
 * is open, which on shared memory means that its regions have arrived. When the
 * peer releases it, its view is closed after the last transfer that uses it,
 * and only then the peer gets its acknowledgement: nothing is written there
 * afterwards.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "state.h"

static uint32_t
slot_of(int64_t cache_id)
{
	return (uint32_t)((uint64_t)cache_id % KVP_CACHES_MAX);
}

struct kvp_remote *
kvp_remote_find(struct kvp_link *link, int64_t cache_id)
{
	uint32_t at = slot_of(cache_id);

	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		struct kvp_remote *remote = link->remote[(at + i) % KVP_CACHES_MAX];

		if (remote != NULL && remote->cache.id == cache_id && !remote->is_gone)
			return remote;
	}
	return NULL;
}

static void
remote_free(struct kvp_link *link, struct kvp_remote *remote)
{
	if (remote->view != NULL)
		link->path->transport->view_close(link->path, remote->view);
	free(remote->announced);
	free(remote->tensors);
	free(remote);
}

/* Share the regions of a cache that this path does not know yet. False: the link was ended. */
static bool
share_regions(struct kvp_link *link, const struct kvp_cache *cache)
{
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		const struct kvp_shared *shared = cache->shared[i];
		struct kvp_error error;
		bool is_known = shared == NULL;
		uint32_t *ids;
		kvp_status status;

		for (uint32_t r = 0; !is_known && r < link->regions; r++)
			is_known = link->regions_shared[r] == shared->region->id;
		if (is_known)
			continue;
		ids = realloc(link->regions_shared, (link->regions + 1) * sizeof(*ids));
		if (ids == NULL) {
			kvp_link_end(link, KVP_OUT_OF_MEMORY, KVP_PEER_LOST,
				     "no memory for regions");
			return false;
		}
		link->regions_shared = ids;
		status = link->path->transport->region_add(link->path, shared->region, &error);
		if (status != KVP_SUCCESS) {
			kvp_link_broke(link, status, error.text);
			return false;
		}
		link->regions_shared[link->regions++] = shared->region->id;
	}
	return true;
}

/* Can the link's peer be told of the cache, and does its path know by now how to reach it? */
static bool
offer(struct kvp_link *link, const struct kvp_cache *cache)
{
	const struct kvp_transport *transport = link->path->transport;
	struct kvp_error error;
	kvp_status status = KVP_SUCCESS;

	if (cache->local.memory != NULL && !transport->caps.can_reach_device) {
		kvp_log(link->engine->config.log_level, 2,
			"cache %" PRId64 " lies in device memory, which %s does not reach: cluster "
			"%" PRIu64 " is not told of it",
			cache->local.id, transport->name, link->cluster_id);
		return false;
	}
	if (transport->cache_offer != NULL)
		status = transport->cache_offer(link->path, &cache->local, &error);
	if (status != KVP_SUCCESS)
		kvp_link_broke(link, status, error.text);
	return status == KVP_SUCCESS;
}

void
kvp_catalogue_announce(struct kvp_link *link, const struct kvp_cache *cache)
{
	uint32_t n = cache->local.num_tensors;
	struct kvp_cache_add add = {.cache_id = cache->local.id, .num_tensors = n};
	size_t size = kvp_frame_cache_add_bytes(n);
	struct kvp_remote_tensor *tensors;
	uint8_t *frame;

	if (!offer(link, cache) || !share_regions(link, cache))
		return;
	tensors = calloc(n, sizeof(*tensors));
	frame = malloc(size);
	if (tensors == NULL || frame == NULL) {
		kvp_link_end(link, KVP_OUT_OF_MEMORY, KVP_PEER_LOST, "no memory for the catalogue");
		goto out;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct kvp_shared *shared = cache->shared[i];

		tensors[i].tensor = cache->tensors[i];
		if (shared != NULL) {
			tensors[i].region = shared->region->id;
			tensors[i].region_offset = (uint64_t)((uint8_t *)cache->tensors[i].base -
							      (uint8_t *)shared->region->base);
		}
	}
	size = kvp_frame_encode_cache_add(&add, tensors, frame, size);
	link->last_sent_ns = link->engine->now_ns;
	if (!kvp_channel_send(&link->channel, frame, size))
		kvp_link_broke(link, KVP_PEER_LOST,
			       "the peer does not read its control connection");
out:
	free(tensors);
	free(frame);
}

void
kvp_catalogue_send_all(struct kvp_link *link)
{
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		const struct kvp_cache *cache = link->engine->cache[i];

		if (cache != NULL && !cache->is_leaving)
			kvp_catalogue_announce(link, cache);
		if (link->step == KVP_STEP_CLOSING || link->doubt != KVP_SUCCESS)
			return;
	}
	kvp_link_send(link, KVP_FRAME_CATALOGUE_END);
}

/* Try to open the view of one cache; its outcome stays with it. */
static void
open_view(struct kvp_link *link, struct kvp_remote *remote)
{
	const struct kvp_transport *transport = link->path->transport;

	remote->view_status = transport->view_open(link->path, &remote->cache, &remote->view,
						   &remote->view_error);
	if (remote->view_status == KVP_IN_PROGRESS)
		return;
	if (remote->view_status != KVP_SUCCESS)
		kvp_log(link->engine->config.log_level, 2,
			"cache %" PRId64 " of cluster %" PRIu64 " cannot be reached over %s: %s",
			remote->cache.id, link->cluster_id, transport->name,
			remote->view_error.text);
	kvp_engine_changed(link->engine);
}

void
kvp_catalogue_retry(struct kvp_link *link)
{
	uint32_t waiting = 0;

	if (link->path == NULL || link->path->state != KVP_PATH_UP)
		return;
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		struct kvp_remote *remote = link->remote[i];

		if (remote == NULL || remote->view_status != KVP_IN_PROGRESS)
			continue;
		if (!remote->is_gone)
			open_view(link, remote);
		if (remote->view_status == KVP_IN_PROGRESS && !remote->is_gone)
			waiting++;
	}
	link->waiting = waiting;
}

static struct kvp_remote *
remote_create(const uint8_t *body, uint32_t bytes, kvp_status *status_out, struct kvp_error *err)
{
	struct kvp_cache_add add;
	struct kvp_remote *remote;

	*status_out = kvp_frame_decode_cache_add(body, bytes, &add, err);
	if (*status_out != KVP_SUCCESS)
		return NULL;
	*status_out = KVP_OUT_OF_MEMORY;
	remote = calloc(1, sizeof(*remote));
	if (remote == NULL)
		goto fail;
	remote->announced = calloc(add.num_tensors, sizeof(*remote->announced));
	remote->tensors = calloc(add.num_tensors, sizeof(*remote->tensors));
	if (remote->announced == NULL || remote->tensors == NULL)
		goto free_remote;
	*status_out = kvp_frame_decode_tensors(body, bytes, &add, remote->announced, err);
	if (*status_out != KVP_SUCCESS)
		goto free_remote;
	for (uint32_t i = 0; i < add.num_tensors; i++)
		remote->tensors[i] = remote->announced[i].tensor;
	remote->cache.id = add.cache_id;
	remote->cache.num_tensors = add.num_tensors;
	remote->cache.tensors = remote->announced;
	remote->view_status = KVP_IN_PROGRESS;
	*status_out = KVP_SUCCESS;
	return remote;

free_remote:
	free(remote->announced);
	free(remote->tensors);
	free(remote);
fail:
	if (*status_out == KVP_OUT_OF_MEMORY)
		kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for the peer's catalogue");
	return NULL;
}

void
kvp_catalogue_add(struct kvp_link *link, const uint8_t *body, uint32_t bytes)
{
	struct kvp_error error;
	kvp_status status;
	struct kvp_remote *remote = remote_create(body, bytes, &status, &error);
	uint32_t at;

	if (remote == NULL) {
		kvp_link_end(link, status, KVP_PEER_LOST, error.text);
		return;
	}
	if (link->remotes >= KVP_CACHES_MAX || kvp_remote_find(link, remote->cache.id) != NULL) {
		remote_free(link, remote);
		kvp_link_end(link, KVP_PROTOCOL, KVP_PEER_LOST,
			     "the peer announced a cache twice, or too many");
		return;
	}
	for (at = slot_of(remote->cache.id); link->remote[at] != NULL;)
		at = (at + 1) % KVP_CACHES_MAX;
	link->remote[at] = remote;
	link->remotes++;
	link->waiting++;
	kvp_catalogue_retry(link);
}

void
kvp_catalogue_gone(struct kvp_link *link, int64_t cache_id)
{
	struct kvp_remote *remote = kvp_remote_find(link, cache_id);
	struct kvp_event event = {
		.kind = KVP_EVENT_CACHE_GONE, .cluster_id = link->cluster_id, .cache = cache_id};

	if (remote == NULL) { /* withdrawn before we could know it */
		kvp_link_send_value(link, KVP_FRAME_CACHE_GONE_ACK, (uint64_t)cache_id);
		return;
	}
	remote->is_gone = true;
	kvp_catalogue_retry(link);
	kvp_catalogue_reap(link);
	if (link->was_ready)
		kvp_event_raise(link->engine, &event);
	kvp_engine_changed(link->engine);
}

static void
stop_view(struct kvp_link *link, const struct kvp_remote *remote)
{
	for (uint32_t i = 0; link->is_attached && i < link->path->config.endpoints; i++)
		kvp_lane_stop_view(link->path->endpoint[i]->lane, remote->view,
				   KVP_CACHE_NOT_EXIST);
}

bool
kvp_catalogue_reap(struct kvp_link *link)
{
	bool some_wait = false;

	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		struct kvp_remote *remote = link->remote[i];
		int64_t id;

		if (remote == NULL || !remote->is_gone)
			continue;
		if (atomic_load_explicit(&remote->holds, memory_order_acquire) != 0) {
			stop_view(link, remote);
			some_wait = true;
			continue;
		}
		id = remote->cache.id;
		link->remote[i] = NULL;
		link->remotes--;
		remote_free(link, remote);
		kvp_link_send_value(link, KVP_FRAME_CACHE_GONE_ACK, (uint64_t)id);
	}
	return some_wait;
}

void
kvp_catalogue_free(struct kvp_link *link)
{
	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		if (link->remote[i] != NULL)
			remote_free(link, link->remote[i]);
		link->remote[i] = NULL;
	}
}
