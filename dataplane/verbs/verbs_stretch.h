/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_stretch.h - which stretches of memory a cache needs registered, and where they are cut
 *
 * Shape:      ascending; a cache's own bytes [first, end) lie in what is registered for them,
 *             [want_first, want_end): the same, or the shareable region or device memory around them
 * Threads:    pure, but for one fstat of a dma-buf
 */
#ifndef KVP_VERBS_STRETCH_H
#define KVP_VERBS_STRETCH_H

#include <sys/stat.h>

#include "verbs_pin.h"

/* On its way to a registration. */
struct kvp_verbs_stretch {
	uint64_t first; /* of the cache's own bytes */
	uint64_t end;
	const struct kvp_region *region; /* NULL: private, or a dma-buf */
	uint64_t want_first;             /* of what is registered for it */
	uint64_t want_end;
	struct kvp_verbs_registration *registration;
	bool is_new;
	bool is_owner;
};

struct kvp_verbs_stretches {
	const struct kvp_local_cache *cache;
	uint64_t bytes_max; /* of one MR */
	uint32_t count;
	struct stat dmabuf;
	struct kvp_verbs_stretch stretch[];
};

/* Malloced. PARAM_INVALID: a dma-buf that is none, or lies wrong within its page. OUT_OF_MEMORY. */
KVP_MUST_USE kvp_status
kvp_verbs_stretches_make(const struct kvp_local_cache *cache, uint64_t bytes_max,
			 struct kvp_verbs_stretches **list_out, struct kvp_error *err);
/* MRs that all of it needs at least. */
uint64_t
kvp_verbs_stretches_spans(const struct kvp_verbs_stretches *list);
/* A registration for the whole of what one wants, cut up, without MRs or users. Malloced; NULL: no memory. */
struct kvp_verbs_registration *
kvp_verbs_stretch_register(const struct kvp_verbs_stretches *list,
			   const struct kvp_verbs_stretch *stretch);
/* What the cache sees of one span of its registration, from its first byte in it to its last. False: nothing. */
bool
kvp_verbs_stretch_clip(const struct kvp_verbs_stretch *stretch,
		       const struct kvp_verbs_pinned *pinned, struct kvp_verbs_span *span_out);

#endif /* KVP_VERBS_STRETCH_H */
