/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_memory.h - registering caches with devices, and keeping the peer's keys
 *
 * One registration per stretch of memory: an MR on every device, made in parallel on
 * helper threads by the thread that registers the cache, never on a lane or the control thread.
 * Stretches: tensors that touch, or whose pages do, are one; those in one shareable region are the
 * whole region, those in device memory the whole of that. What lies in a longer stretch that is
 * registered already shares it (counted). A stretch longer than the smallest max_mr_size of the
 * devices is cut at block boundaries into several spans, the same ones on all devices.
 *
 * Rights:     LOCAL_WRITE always; REMOTE_WRITE only when config->peer_rights has push, REMOTE_READ
 *             only when it has pull; RELAXED_ORDERING asked for. A key reaches whole stretches: gaps
 *             between blocks too, and in a shareable region what else lies in it.
 * Limits:     what RLIMIT_MEMLOCK or max_mr would refuse is refused before anything is pinned
 * Ownership:  a device's MRs live from hold to forget of the last cache that uses them; a dma-buf's fd is
 *             the caller's, and not used after hold
 * Threads:    hold, forget: any [A], one at a time; the rest [C]
 *
 *   verbs_stretch.c  what of a cache is registered, and in how many spans
 *   verbs_pin.c      MRs made and freed in parallel, limits, what a refusal means
 *   verbs_memory.c   sharing, hold and forget
 *   verbs_keys.c     KEYS notes
 */
#ifndef KVP_VERBS_MEMORY_H
#define KVP_VERBS_MEMORY_H

#include "verbs.h"

struct kvp_verbs_memory;

/* `verbs` has its devices. */
KVP_MUST_USE kvp_status
kvp_verbs_memory_create(struct kvp_verbs *verbs, struct kvp_verbs_memory **memory_out,
			struct kvp_error *err);
/* Everything was forgotten before. NULL is a no-op. */
void
kvp_verbs_memory_destroy(struct kvp_verbs_memory *memory);

/*
 * For the transport's table. An engine without verbs devices holds ordinary memory as NULL.
 * NO_RESOURCE: RLIMIT_MEMLOCK, max_mr, or the device said no. PARAM_INVALID: memory that is not mapped
 * or not writable, a dma-buf whose offset and base differ within a page. FEATURE_NOT_ENABLED: dma-buf
 * and no device, or a driver that does not take it. OUT_OF_MEMORY. Nothing is left registered.
 */
kvp_status
kvp_verbs_cache_hold(struct kvp_dataplane *dataplane, const struct kvp_local_cache *cache,
		     void **held_out, struct kvp_error *err);
void
kvp_verbs_cache_forget(struct kvp_dataplane *dataplane, void *held);

/* The KEYS note of a cache for a path whose rails use these local devices. Malloced; *bytes_out. NULL: no memory. */
uint8_t *
kvp_verbs_keys_make(const struct kvp_local_cache *cache, uint32_t slot, const uint32_t *rail_device,
		    uint32_t rails, uint32_t *bytes_out);
/*
 * Take a KEYS note apart, checked: spans ascending, apart, no wrap. PROTOCOL, OUT_OF_MEMORY. Malloced.
 */
KVP_MUST_USE kvp_status
kvp_verbs_keys_take(const uint8_t *body, uint32_t bytes, uint32_t rails, int64_t *cache_out,
		    struct kvp_verbs_spans **spans_out, struct kvp_error *err);
/* Do the spans hold every tensor of the cache, first to last byte? PROTOCOL naming the tensor, OUT_OF_MEMORY. */
KVP_MUST_USE kvp_status
kvp_verbs_keys_cover(const struct kvp_verbs_spans *spans, const struct kvp_remote_cache *cache,
		     struct kvp_error *err);

#endif /* KVP_VERBS_MEMORY_H */
