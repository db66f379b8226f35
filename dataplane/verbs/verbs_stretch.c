/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_stretch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/cache.h>

#define PAGE_BYTES 4096U

static int
by_address(const void *a, const void *b)
{
	const struct kvp_verbs_stretch *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

static uint64_t
page_up(uint64_t address)
{
	uint64_t up = (address + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);

	return up < address ? UINT64_MAX : up;
}

/* Are `next`, which does not begin before it, and `at` one stretch? */
static bool
is_one(const struct kvp_verbs_stretch *at, const struct kvp_verbs_stretch *next)
{
	if (at->region != next->region)
		return next->first < at->end;
	return at->region != NULL ||
	       (next->first & ~(uint64_t)(PAGE_BYTES - 1)) <= page_up(at->end);
}

static void
merge(struct kvp_verbs_stretches *list)
{
	uint32_t last = 0;

	qsort(list->stretch, list->count, sizeof(list->stretch[0]), by_address);
	for (uint32_t i = 1; i < list->count; i++) {
		struct kvp_verbs_stretch *at = &list->stretch[last], *next = &list->stretch[i];

		if (!is_one(at, next)) {
			list->stretch[++last] = *next;
			continue;
		}
		if (at->end < next->end)
			at->end = next->end;
		if (at->region != next->region)
			at->region = NULL;
	}
	list->count = last + 1;
	for (uint32_t i = 0; i < list->count; i++) {
		struct kvp_verbs_stretch *at = &list->stretch[i];

		at->want_first = at->first;
		at->want_end = at->end;
		if (at->region == NULL)
			continue;
		at->want_first = (uint64_t)(uintptr_t)at->region->base;
		at->want_end = at->want_first + at->region->bytes;
	}
}

/* A dma-buf is known by its inode: its descriptors come and go. */
static kvp_status
check_dmabuf(const struct kvp_device_memory *memory, struct stat *dmabuf_out, struct kvp_error *err)
{
	if (fstat(memory->fd, dmabuf_out) != 0)
		return kvp_fail(err, KVP_PARAM_INVALID, "verbs: memory->fd %d: %s", memory->fd,
				strerror(errno));
	if (((memory->offset ^ (uint64_t)(uintptr_t)memory->base) & (PAGE_BYTES - 1)) != 0)
		return kvp_fail(
			err, KVP_PARAM_INVALID,
			"verbs: memory->offset 0x%llx and memory->base %p lie at different places "
			"within a page; devices need the same",
			(unsigned long long)memory->offset, memory->base);
	return KVP_SUCCESS;
}

/* All tensors are one stretch. */
static void
merge_device(struct kvp_verbs_stretches *list)
{
	const struct kvp_device_memory *memory = list->cache->memory;
	struct kvp_verbs_stretch *all = &list->stretch[0];

	for (uint32_t i = 1; i < list->count; i++) {
		if (list->stretch[i].first < all->first)
			all->first = list->stretch[i].first;
		if (list->stretch[i].end > all->end)
			all->end = list->stretch[i].end;
	}
	list->count = 1;
	all->want_first = (uint64_t)(uintptr_t)memory->base;
	all->want_end = all->want_first + memory->bytes;
}

kvp_status
kvp_verbs_stretches_make(const struct kvp_local_cache *cache, uint64_t bytes_max,
			 struct kvp_verbs_stretches **list_out, struct kvp_error *err)
{
	struct kvp_verbs_stretches *list =
		calloc(1, sizeof(*list) + cache->num_tensors * sizeof(list->stretch[0]));
	kvp_status status = KVP_SUCCESS;

	if (list == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory to register a cache");
	list->cache = cache;
	list->bytes_max = bytes_max < PAGE_BYTES ? PAGE_BYTES : bytes_max;
	list->count = cache->num_tensors;
	for (uint32_t i = 0; i < cache->num_tensors; i++) {
		const struct kvp_tensor *tensor = &cache->tensors[i];

		list->stretch[i].first = (uint64_t)(uintptr_t)tensor->base;
		list->stretch[i].end = list->stretch[i].first + kvp_tensor_extent(tensor);
		if (cache->regions != NULL)
			list->stretch[i].region = cache->regions[i];
	}
	if (cache->memory != NULL) {
		status = check_dmabuf(cache->memory, &list->dmabuf, err);
		merge_device(list);
	} else {
		merge(list);
	}
	if (status != KVP_SUCCESS)
		free(list);
	else
		*list_out = list;
	return status;
}

/* --- cuts ------------------------------------------------------------------------- */

/* Where an MR that begins at `from` and could go on behind `limit` ends. */
static uint64_t
cut(const struct kvp_verbs_stretches *list, uint64_t from, uint64_t limit)
{
	for (uint32_t i = 0; i < list->cache->num_tensors; i++) {
		const struct kvp_span *span = &list->cache->spans[i];
		uint64_t slot, at;

		if (limit < span->base)
			continue;
		slot = (limit - span->base) / span->stride;
		at = span->base + slot * span->stride;
		if (slot < span->count && at > from)
			return at;
	}
	return (limit & ~(uint64_t)(PAGE_BYTES - 1)) > from ? limit & ~(uint64_t)(PAGE_BYTES - 1)
							    : limit;
}

/* Fills `span_out` unless NULL. Returns how many. */
static uint64_t
cut_up(const struct kvp_verbs_stretches *list, const struct kvp_verbs_stretch *stretch,
       struct kvp_verbs_pinned *span_out)
{
	uint64_t spans = 0;

	for (uint64_t from = stretch->want_first, to; from < stretch->want_end; from = to) {
		to = stretch->want_end;
		if (to - from > list->bytes_max)
			to = cut(list, from, from + list->bytes_max);
		if (span_out != NULL)
			span_out[spans] =
				(struct kvp_verbs_pinned){.address = from, .bytes = to - from};
		spans++;
	}
	return spans;
}

uint64_t
kvp_verbs_stretches_spans(const struct kvp_verbs_stretches *list)
{
	uint64_t spans = 0;

	for (uint32_t i = 0; i < list->count; i++)
		spans += (list->stretch[i].want_end - list->stretch[i].want_first - 1) /
				 list->bytes_max +
			 1;
	return spans;
}

struct kvp_verbs_registration *
kvp_verbs_stretch_register(const struct kvp_verbs_stretches *list,
			   const struct kvp_verbs_stretch *stretch)
{
	uint64_t spans = cut_up(list, stretch, NULL);
	struct kvp_verbs_registration *registration =
		calloc(1, sizeof(*registration) + spans * sizeof(registration->span[0]));

	if (registration == NULL)
		return NULL;
	registration->address = stretch->want_first;
	registration->bytes = stretch->want_end - stretch->want_first;
	if (list->cache->memory != NULL) {
		registration->is_device = true;
		registration->device = list->dmabuf.st_dev;
		registration->inode = list->dmabuf.st_ino;
		registration->offset = list->cache->memory->offset;
	}
	registration->spans = (uint32_t)cut_up(list, stretch, registration->span);
	return registration;
}

bool
kvp_verbs_stretch_clip(const struct kvp_verbs_stretch *stretch,
		       const struct kvp_verbs_pinned *pinned, struct kvp_verbs_span *span_out)
{
	uint64_t first = pinned->address, end = pinned->address + pinned->bytes;

	if (first < stretch->first)
		first = stretch->first;
	if (end > stretch->end)
		end = stretch->end;
	if (first >= end)
		return false;
	span_out->address = first;
	span_out->bytes = end - first;
	return true;
}
