/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_keys.c - what a peer's path needs to reach a cache: spans, and a key for each rail */
#include <inttypes.h>
#include <stdlib.h>

#include "verbs_memory.h"

uint8_t *
kvp_verbs_keys_make(const struct kvp_local_cache *cache, uint32_t slot, const uint32_t *rail_device,
		    uint32_t rails, uint32_t *bytes_out)
{
	const struct kvp_verbs_held *held = cache->held[slot];
	struct kvp_verbs_keys keys = {
		.cache_id = cache->id, .spans = held->spans->count, .rails = rails};
	size_t bytes = kvp_verbs_keys_bytes(keys.spans, rails);
	uint8_t *note = malloc(bytes);
	size_t at;

	if (note == NULL)
		return NULL;
	at = kvp_verbs_keys_encode(&keys, note);
	for (uint32_t i = 0; i < keys.spans; i++) {
		const struct kvp_verbs_span *span = &held->spans->span[i];
		uint32_t rkey[KVP_VERBS_RAILS_MAX] = {0};

		for (uint32_t r = 0; r < rails && r < KVP_VERBS_RAILS_MAX; r++)
			rkey[r] = held->rkey[i * KVP_VERBS_DEVICES_MAX + rail_device[r]];
		at += kvp_verbs_keys_span_encode(span->address, span->bytes, rkey, rails,
						 note + at);
	}
	*bytes_out = (uint32_t)at;
	return note;
}

static kvp_status
span_check(const struct kvp_verbs_spans *spans, uint32_t i, struct kvp_error *err)
{
	const struct kvp_verbs_span *span = &spans->span[i];

	if (span->bytes == 0 || span->address + (span->bytes - 1) < span->address)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: span %u of the peer's keys, 0x%" PRIx64 " + %" PRIu64
				", is empty or wraps",
				i, span->address, span->bytes);
	if (i > 0 && (span->address < spans->span[i - 1].address ||
		      span->address - spans->span[i - 1].address < spans->span[i - 1].bytes))
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: span %u of the peer's keys does not lie behind span %u", i,
				i - 1);
	return KVP_SUCCESS;
}

kvp_status
kvp_verbs_keys_take(const uint8_t *body, uint32_t bytes, uint32_t rails, int64_t *cache_out,
		    struct kvp_verbs_spans **spans_out, struct kvp_error *err)
{
	struct kvp_verbs_spans *spans;
	struct kvp_verbs_keys keys;
	kvp_status status = kvp_verbs_keys_decode(body, bytes, &keys, err);

	if (status != KVP_SUCCESS)
		return status;
	if (keys.rails != rails || rails > KVP_VERBS_DEVICES_MAX)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer's keys are for %u rails, the path has %u",
				keys.rails, rails);
	spans = calloc(1, sizeof(*spans) + keys.spans * sizeof(spans->span[0]));
	if (spans == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for %u keys of the peer",
				keys.spans);
	spans->count = keys.spans;
	for (uint32_t i = 0; i < keys.spans && status == KVP_SUCCESS; i++) {
		struct kvp_verbs_span *span = &spans->span[i];

		kvp_verbs_keys_span_decode(body, &keys, i, &span->address, &span->bytes, span->key);
		status = span_check(spans, i, err);
	}
	if (status != KVP_SUCCESS) {
		free(spans);
		return status;
	}
	*cache_out = keys.cache_id;
	*spans_out = spans;
	return KVP_SUCCESS;
}

/* Last byte that is reached from span i without a gap. */
static uint64_t *
runs_make(const struct kvp_verbs_spans *spans)
{
	uint64_t *last = calloc(spans->count, sizeof(*last));

	for (uint32_t i = spans->count; last != NULL && i-- > 0;) {
		const struct kvp_verbs_span *span = &spans->span[i];

		last[i] = span->address + (span->bytes - 1);
		if (i + 1 < spans->count && last[i] + 1 == span[1].address)
			last[i] = last[i + 1];
	}
	return last;
}

kvp_status
kvp_verbs_keys_cover(const struct kvp_verbs_spans *spans, const struct kvp_remote_cache *cache,
		     struct kvp_error *err)
{
	/* Spans may be many, and tensors too: each tensor costs one search, not a walk. */
	uint64_t *last = runs_make(spans);
	kvp_status status = KVP_SUCCESS;

	if (last == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory to check keys");
	for (uint32_t i = 0; i < cache->num_tensors && status == KVP_SUCCESS; i++) {
		const struct kvp_tensor *tensor = &cache->tensors[i].tensor;
		uint64_t first = (uint64_t)(uintptr_t)tensor->base;
		uint64_t bytes = kvp_tensor_extent(tensor);
		const struct kvp_verbs_span *span = kvp_verbs_span_find(spans, first, NULL);

		if (span == NULL || last[span - spans->span] - first < bytes - 1)
			status = kvp_fail(
				err, KVP_PROTOCOL,
				"verbs: the peer's keys do not hold all of tensor %u of its "
				"cache %" PRId64 " (0x%" PRIx64 " + %" PRIu64 ")",
				i, cache->id, first, bytes);
	}
	free(last);
	return status;
}
