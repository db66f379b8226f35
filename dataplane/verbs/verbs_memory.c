/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/engine.h>

#include "check.h"
#include "rights.h"
#include "transports.h"
#include "verbs_pin.h"
#include "verbs_stretch.h"

#define LOOK_BEHIND 64 /* longer stretches are sought among so many that begin before */

/*
 * One lock for hold and forget, kept while devices pin: what is pinned must not change between the
 * prediction and the pinning, and a cache that shares a stretch waits for its MRs anyway.
 */
struct kvp_verbs_memory {
	struct kvp_verbs *verbs;
	pthread_mutex_t lock;
	struct kvp_verbs_pins pins;
	struct kvp_verbs_registration **table; /* [room], `count` of them, ascending by address */
	uint32_t count;
	uint32_t room;
};

/* What cache->held points to. */
struct held {
	struct kvp_verbs_held base; /* first member */
	bool *is_owner;             /* per registration */
};

/* --- life ------------------------------------------------------------------------- */

kvp_status
kvp_verbs_memory_create(struct kvp_verbs *verbs, struct kvp_verbs_memory **memory_out,
			struct kvp_error *err)
{
	struct kvp_verbs_memory *memory = calloc(1, sizeof(*memory));
	uint32_t rights = kvp_rights_of(verbs->dataplane->config->peer_rights);

	if (memory == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for registrations");
	memory->verbs = verbs;
	memory->pins.devices = &verbs->devices;
	memory->pins.access =
		(unsigned int)IBV_ACCESS_LOCAL_WRITE | (unsigned int)IBV_ACCESS_RELAXED_ORDERING;
	if ((rights & KVP_RIGHT_PUSH) != 0)
		memory->pins.access |= (unsigned int)IBV_ACCESS_REMOTE_WRITE;
	if ((rights & KVP_RIGHT_PULL) != 0)
		memory->pins.access |= (unsigned int)IBV_ACCESS_REMOTE_READ;
	pthread_mutex_init(&memory->lock, NULL);
	*memory_out = memory;
	return KVP_SUCCESS;
}

void
kvp_verbs_memory_destroy(struct kvp_verbs_memory *memory)
{
	if (memory == NULL)
		return;
	KVP_CHECK(memory->count == 0 && memory->pins.mrs == 0 && memory->pins.pages == 0);
	pthread_mutex_destroy(&memory->lock);
	free(memory->table);
	free(memory);
}

/* --- registrations ----------------------------------------------------------------- */

/* Where a new one with this address goes: behind all that do not begin later. */
static uint32_t
table_place(const struct kvp_verbs_memory *memory, uint64_t address)
{
	uint32_t low = 0, high = memory->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (memory->table[middle]->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool
is_same_memory(const struct kvp_verbs_registration *registration,
	       const struct kvp_verbs_stretches *list, const struct kvp_verbs_stretch *stretch)
{
	const struct kvp_device_memory *memory = list->cache->memory;

	if (registration->is_device != (memory != NULL))
		return false;
	return memory == NULL || (registration->device == list->dmabuf.st_dev &&
				  registration->inode == list->dmabuf.st_ino &&
				  registration->offset - registration->address ==
					  memory->offset - stretch->want_first);
}

/*
 * A registration that has all of the stretch. Without an owner left it is not shared any more: the parts
 * of it that nobody uses may have been unmapped, and be other memory now.
 */
static struct kvp_verbs_registration *
table_find(const struct kvp_verbs_memory *memory, const struct kvp_verbs_stretches *list,
	   const struct kvp_verbs_stretch *stretch)
{
	uint32_t at = table_place(memory, stretch->want_first);

	for (uint32_t tries = 0; at > 0 && tries < LOOK_BEHIND; tries++) {
		struct kvp_verbs_registration *registration = memory->table[--at];

		if (registration->owners > 0 && is_same_memory(registration, list, stretch) &&
		    registration->bytes >= stretch->want_end - registration->address)
			return registration;
	}
	return NULL;
}

static bool
table_reserve(struct kvp_verbs_memory *memory, uint32_t more)
{
	uint32_t room = memory->count + more;
	struct kvp_verbs_registration **table;

	if (room <= memory->room)
		return true;
	room = room < 2 * memory->room ? 2 * memory->room : room;
	table = realloc(memory->table, room * sizeof(struct kvp_verbs_registration *));
	if (table == NULL)
		return false;
	memory->table = table;
	memory->room = room;
	return true;
}

static void
table_add(struct kvp_verbs_memory *memory, struct kvp_verbs_registration *registration)
{
	uint32_t at = table_place(memory, registration->address);

	memmove(&memory->table[at + 1], &memory->table[at],
		(memory->count - at) * sizeof(struct kvp_verbs_registration *));
	memory->table[at] = registration;
	memory->count++;
}

static void
table_remove(struct kvp_verbs_memory *memory, const struct kvp_verbs_registration *registration)
{
	uint32_t at = table_place(memory, registration->address);

	do
		KVP_CHECK(at-- > 0);
	while (memory->table[at] != registration);
	memory->count--;
	memmove(&memory->table[at], &memory->table[at + 1],
		(memory->count - at) * sizeof(struct kvp_verbs_registration *));
}

/* --- hold ---------------------------------------------------------------------------- */

/* The smallest limit, so that all devices have the same spans. */
static uint64_t
mr_bytes_max(const struct kvp_verbs_devices *devices)
{
	uint64_t most = UINT64_MAX;

	for (uint32_t i = 0; i < devices->devices; i++) {
		uint64_t has = devices->device[i].attr.max_mr_size;

		if (has > 0 && has < most)
			most = has;
	}
	return most;
}

/* Each stretch's registration, those that are new without MRs. False: no memory. Lock held. */
static bool
find_registrations(struct kvp_verbs_memory *memory, struct kvp_verbs_stretches *list)
{
	for (uint32_t i = 0; i < list->count; i++) {
		struct kvp_verbs_stretch *stretch = &list->stretch[i];

		stretch->registration = table_find(memory, list, stretch);
		if (stretch->registration != NULL)
			continue;
		stretch->registration = kvp_verbs_stretch_register(list, stretch);
		if (stretch->registration == NULL)
			return false;
		stretch->is_new = true;
	}
	return true;
}

static void
drop_new(struct kvp_verbs_stretches *list)
{
	for (uint32_t i = 0; i < list->count; i++) {
		if (list->stretch[i].is_new)
			free(list->stretch[i].registration);
	}
}

/* Lock held. */
static kvp_status
pin_new(struct kvp_verbs_memory *memory, const struct kvp_verbs_stretches *list,
	struct kvp_error *err)
{
	const struct kvp_device_memory *device = list->cache->memory;
	struct kvp_verbs_registration **fresh =
		calloc(list->count, sizeof(struct kvp_verbs_registration *));
	kvp_status status = KVP_SUCCESS;
	uint32_t count = 0;

	if (fresh == NULL || !table_reserve(memory, list->count)) {
		free(fresh);
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for %u registrations",
				list->count);
	}
	for (uint32_t i = 0; i < list->count; i++) {
		if (list->stretch[i].is_new)
			fresh[count++] = list->stretch[i].registration;
	}
	if (count > 0)
		status = kvp_verbs_pin(&memory->pins, fresh, count,
				       device != NULL ? device->fd : -1, err);
	free(fresh);
	return status;
}

/* From here on the registrations are the cache's. Lock held. */
static void
count_users(struct kvp_verbs_memory *memory, struct kvp_verbs_stretches *list)
{
	for (uint32_t i = 0; i < list->count; i++) {
		struct kvp_verbs_stretch *stretch = &list->stretch[i];
		struct kvp_verbs_registration *registration = stretch->registration;

		stretch->is_owner = registration->address == stretch->want_first &&
				    registration->bytes == stretch->want_end - stretch->want_first;
		registration->users++;
		registration->owners += stretch->is_owner;
		if (stretch->is_new)
			table_add(memory, registration);
	}
}

static uint32_t
count_spans(const struct kvp_verbs_stretches *list)
{
	struct kvp_verbs_span ignored;
	uint32_t spans = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		const struct kvp_verbs_registration *registration = list->stretch[i].registration;

		for (uint32_t s = 0; s < registration->spans; s++)
			spans += kvp_verbs_stretch_clip(&list->stretch[i], &registration->span[s],
							&ignored);
	}
	return spans;
}

static void
held_free(struct held *held)
{
	free(held->base.spans);
	free(held->base.registration);
	free(held->base.rkey);
	free(held->is_owner);
	free(held);
}

static struct held *
held_create(const struct kvp_verbs_stretches *list, uint32_t spans)
{
	struct held *held = calloc(1, sizeof(*held));

	KVP_CHECK(spans > 0 && list->count > 0); /* a tensor has at least a byte */
	if (held == NULL)
		return NULL;
	held->base.spans =
		calloc(1, sizeof(*held->base.spans) + spans * sizeof(held->base.spans->span[0]));
	held->base.registration = calloc(list->count, sizeof(struct kvp_verbs_registration *));
	held->base.rkey = calloc((size_t)spans * KVP_VERBS_DEVICES_MAX, sizeof(uint32_t));
	held->is_owner = calloc(list->count, sizeof(bool));
	if (held->base.spans != NULL && held->base.registration != NULL &&
	    held->base.rkey != NULL && held->is_owner != NULL)
		return held;
	held_free(held);
	return NULL;
}

static void
held_fill(struct held *held, const struct kvp_verbs_stretches *list)
{
	struct kvp_verbs_spans *spans = held->base.spans;

	held->base.registrations = list->count;
	for (uint32_t i = 0; i < list->count; i++) {
		const struct kvp_verbs_stretch *stretch = &list->stretch[i];

		held->base.registration[i] = stretch->registration;
		held->is_owner[i] = stretch->is_owner;
		for (uint32_t s = 0; s < stretch->registration->spans; s++) {
			const struct kvp_verbs_pinned *pinned = &stretch->registration->span[s];
			struct kvp_verbs_span *span = &spans->span[spans->count];
			uint32_t *rkey =
				held->base.rkey + (size_t)spans->count * KVP_VERBS_DEVICES_MAX;

			if (!kvp_verbs_stretch_clip(stretch, pinned, span))
				continue;
			for (uint32_t d = 0; d < KVP_VERBS_DEVICES_MAX; d++) {
				span->key[d] = pinned->mr[d] != NULL ? pinned->mr[d]->lkey : 0;
				rkey[d] = pinned->mr[d] != NULL ? pinned->mr[d]->rkey : 0;
			}
			spans->count++;
		}
	}
}

/* Lock held. */
static void
let_go(struct kvp_verbs_memory *memory, struct held *held)
{
	uint32_t last = 0;

	for (uint32_t i = 0; i < held->base.registrations; i++) {
		struct kvp_verbs_registration *registration = held->base.registration[i];

		registration->owners -= held->is_owner[i];
		if (--registration->users > 0)
			continue;
		table_remove(memory, registration);
		held->base.registration[last++] = registration;
	}
	kvp_verbs_unpin(&memory->pins, held->base.registration, last);
	for (uint32_t i = 0; i < last; i++)
		free(held->base.registration[i]);
}

/* A KEYS note is one frame. */
static kvp_status
check_spans(uint64_t spans, const struct kvp_verbs_stretches *list, struct kvp_error *err)
{
	if (spans <= UINT32_MAX &&
	    kvp_verbs_keys_bytes((uint32_t)spans, KVP_VERBS_RAILS_MAX) <= KVP_NOTE_MAX)
		return KVP_SUCCESS;
	return kvp_fail(
		err, KVP_NO_RESOURCE,
		"verbs: the cache needs %llu memory regions of at most %llu bytes "
		"(max_mr_size), more than peers can be told of; register it as several caches",
		(unsigned long long)spans, (unsigned long long)list->bytes_max);
}

/* Lock held. */
static kvp_status
hold_locked(struct kvp_verbs_memory *memory, struct kvp_verbs_stretches *list,
	    struct held **held_out, struct kvp_error *err)
{
	struct held *held = NULL;
	uint32_t spans;
	kvp_status status;

	if (!find_registrations(memory, list)) {
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for registrations");
		goto drop;
	}
	spans = count_spans(list);
	status = check_spans(spans, list, err);
	if (status != KVP_SUCCESS)
		goto drop;
	held = held_create(list, spans);
	if (held == NULL) {
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for %u keys", spans);
		goto drop;
	}
	status = pin_new(memory, list, err);
	if (status != KVP_SUCCESS)
		goto free_held;
	count_users(memory, list);
	held_fill(held, list);
	*held_out = held;
	return KVP_SUCCESS;

free_held:
	held_free(held);
drop:
	drop_new(list);
	return status;
}

static struct kvp_verbs *
verbs_of(struct kvp_dataplane *dataplane)
{
	uint32_t slot;

	KVP_CHECK(kvp_transport_find(kvp_verbs_transport.name, &slot) != NULL);
	return dataplane->state[slot];
}

kvp_status
kvp_verbs_cache_hold(struct kvp_dataplane *dataplane, const struct kvp_local_cache *cache,
		     void **held_out, struct kvp_error *err)
{
	struct kvp_verbs *verbs = verbs_of(dataplane);
	struct held *held = NULL;
	struct kvp_verbs_stretches *list;
	kvp_status status;

	*held_out = NULL;
	if (verbs == NULL || verbs->devices.devices == 0) {
		if (cache->memory == NULL)
			return KVP_SUCCESS;
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"verbs: this engine has no device that could reach device memory");
	}
	status = kvp_verbs_stretches_make(cache, mr_bytes_max(&verbs->devices), &list, err);
	if (status != KVP_SUCCESS)
		return status;
	/* At least so many: bounds the work of counting exactly. */
	status = check_spans(kvp_verbs_stretches_spans(list), list, err);
	if (status == KVP_SUCCESS) {
		pthread_mutex_lock(&verbs->memory->lock);
		status = hold_locked(verbs->memory, list, &held, err);
		pthread_mutex_unlock(&verbs->memory->lock);
	}
	free(list);
	*held_out = held;
	return status;
}

void
kvp_verbs_cache_forget(struct kvp_dataplane *dataplane, void *held)
{
	struct kvp_verbs_memory *memory;

	if (held == NULL)
		return;
	memory = verbs_of(dataplane)->memory;
	pthread_mutex_lock(&memory->lock);
	let_go(memory, held);
	pthread_mutex_unlock(&memory->lock);
	held_free(held);
}
