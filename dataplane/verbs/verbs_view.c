/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_view.c - keys of caches: those that the peer is told, and those that it tells */
#include <inttypes.h>
#include <stdlib.h>

#include <kvpush/engine.h>

#include "verbs_memory.h"
#include "verbs_path.h"

kvp_status
kvp_verbs_cache_offer(struct kvp_path *base, const struct kvp_local_cache *cache,
		      struct kvp_error *err)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	uint32_t device[KVP_VERBS_RAILS_MAX];
	uint32_t bytes;
	uint8_t *note;

	for (uint32_t r = 0; r < path->rails; r++)
		device[r] = path->verbs->devices.port[path->rail[r].port].device;
	note = kvp_verbs_keys_make(cache, path->verbs->slot, device, path->rails, &bytes);
	if (note == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory to offer cache %" PRId64,
				cache->id);
	if (bytes > KVP_NOTE_MAX)
		kvp_fail(err, KVP_NO_RESOURCE,
			 "verbs: cache %" PRId64
			 " lies in so many stretches of memory that their keys "
			 "take %u bytes, %u are the limit: put its tensors closer together",
			 cache->id, bytes, KVP_NOTE_MAX);
	else
		(void)base->config.note(base, note, bytes,
					base->config.ctx); /* else it is ending */
	free(note);
	return bytes > KVP_NOTE_MAX ? KVP_NO_RESOURCE : KVP_SUCCESS;
}

static struct kvp_verbs_peer_keys **
keys_find(struct kvp_verbs_path *path, int64_t cache_id)
{
	struct kvp_verbs_peer_keys **at = &path->keys;

	while (*at != NULL && (*at)->cache_id != cache_id)
		at = &(*at)->next;
	return at;
}

static kvp_status
keys_note(struct kvp_verbs_path *path, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	struct kvp_verbs_peer_keys *keys = calloc(1, sizeof(*keys));
	kvp_status status;

	if (keys == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for the peer's keys");
	status = kvp_verbs_keys_take(body, bytes, path->rails, &keys->cache_id, &keys->spans, err);
	if (status == KVP_SUCCESS &&
	    (path->key_count >= KVP_CACHES_MAX || *keys_find(path, keys->cache_id) != NULL)) {
		status = kvp_fail(err, KVP_PROTOCOL,
				  "verbs: the peer sent keys of cache %" PRId64
				  " twice, or too many",
				  keys->cache_id);
		free(keys->spans);
	}
	if (status != KVP_SUCCESS) {
		free(keys);
		return status;
	}
	keys->next = path->keys;
	path->keys = keys;
	path->key_count++;
	return KVP_SUCCESS;
}

kvp_status
kvp_verbs_path_note(struct kvp_path *base, const uint8_t *body, uint32_t bytes,
		    struct kvp_error *err)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	uint32_t type = kvp_verbs_note_type(body, bytes);
	struct kvp_verbs_queue_note note;
	kvp_status status;

	if (type == KVP_VERBS_KEYS)
		return keys_note(path, body, bytes, err);
	status = kvp_verbs_queue_note_decode(body, bytes, &note, err);
	return status == KVP_SUCCESS ? kvp_verbs_queue_note(path, type, &note, err) : status;
}

kvp_status
kvp_verbs_view_open(struct kvp_path *base, const struct kvp_remote_cache *cache,
		    struct kvp_view **view_out, struct kvp_error *err)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	struct kvp_verbs_peer_keys *keys = *keys_find(path, cache->id);
	struct kvp_view *view;
	kvp_status status;

	if (keys == NULL)
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"the peer sent no keys for it; see the peer's log");
	status = kvp_verbs_keys_cover(keys->spans, cache, err);
	if (status != KVP_SUCCESS)
		return status;
	view = calloc(1, sizeof(*view));
	if (view == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for a view");
	view->cache = cache;
	view->spans = keys->spans;
	*view_out = view;
	return KVP_SUCCESS;
}

void
kvp_verbs_view_close(struct kvp_path *base, struct kvp_view *view)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	struct kvp_verbs_peer_keys **at = &path->keys;
	struct kvp_verbs_peer_keys *gone;

	while (*at != NULL && (*at)->spans != view->spans)
		at = &(*at)->next;
	gone = *at;
	if (gone != NULL) {
		*at = gone->next;
		path->key_count--;
		free(gone->spans);
		free(gone);
	}
	free(view);
}
