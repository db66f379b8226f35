/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "mix.h"

#define NONE      UINT32_MAX
#define SLOTS_MAX (1U << 30)

static uint32_t *
bucket_of(const struct demo_pool *pool, uint64_t key)
{
	return &pool->buckets[(uint32_t)demo_mix(key) & pool->bucket_mask];
}

static uint32_t
find(const struct demo_pool *pool, uint64_t key)
{
	uint32_t slot = *bucket_of(pool, key);

	while (slot != NONE && pool->slots[slot].key != key)
		slot = pool->slots[slot].chain;
	return slot;
}

static void
forget_key(struct demo_pool *pool, uint32_t slot)
{
	uint32_t *at = bucket_of(pool, pool->slots[slot].key);

	while (*at != slot)
		at = &pool->slots[*at].chain;
	*at = pool->slots[slot].chain;
	pool->slots[slot].key = 0;
}

static void
list_remove(struct demo_pool *pool, uint32_t slot)
{
	struct demo_pool_slot *s = &pool->slots[slot];

	if (s->older == NONE)
		pool->oldest = s->newer;
	else
		pool->slots[s->older].newer = s->newer;
	if (s->newer == NONE)
		pool->newest = s->older;
	else
		pool->slots[s->newer].older = s->older;
	pool->num_unpinned--;
}

static void
list_add_newest(struct demo_pool *pool, uint32_t slot)
{
	struct demo_pool_slot *s = &pool->slots[slot];

	s->older = pool->newest;
	s->newer = NONE;
	if (pool->newest == NONE)
		pool->oldest = slot;
	else
		pool->slots[pool->newest].newer = slot;
	pool->newest = slot;
	pool->num_unpinned++;
}

static void
list_add_oldest(struct demo_pool *pool, uint32_t slot)
{
	struct demo_pool_slot *s = &pool->slots[slot];

	s->newer = pool->oldest;
	s->older = NONE;
	if (pool->oldest == NONE)
		pool->newest = slot;
	else
		pool->slots[pool->oldest].older = slot;
	pool->oldest = slot;
	pool->num_unpinned++;
}

static void
pin(struct demo_pool *pool, uint32_t slot)
{
	if (pool->slots[slot].pins++ == 0)
		list_remove(pool, slot);
}

static void
unpin(struct demo_pool *pool, uint32_t slot)
{
	KVP_CHECK(slot < pool->num_slots && pool->slots[slot].pins > 0);
	if (--pool->slots[slot].pins > 0)
		return;
	if (pool->slots[slot].key == 0)
		list_add_oldest(pool, slot);
	else
		list_add_newest(pool, slot);
}

/* The oldest unpinned slot, pinned, under `key` (0: none). There is one. */
static uint32_t
allocate(struct demo_pool *pool, uint64_t key)
{
	uint32_t slot = pool->oldest;
	struct demo_pool_slot *s;

	KVP_CHECK(slot != NONE);
	s = &pool->slots[slot];
	if (s->key != 0) {
		forget_key(pool, slot);
		pool->evictions++;
	}
	pin(pool, slot);
	s->epoch = ++pool->epoch;
	s->is_filled = 0;
	s->key = key;
	if (key != 0) {
		uint32_t *bucket = bucket_of(pool, key);

		s->chain = *bucket;
		*bucket = slot;
	}
	return slot;
}

struct demo_pool *
demo_pool_create(uint32_t num_slots)
{
	struct demo_pool *pool;
	uint32_t buckets = 1;

	if (num_slots == 0 || num_slots > SLOTS_MAX)
		return NULL;
	while (buckets < num_slots)
		buckets *= 2;
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return NULL;
	pool->slots = calloc(num_slots, sizeof(*pool->slots));
	pool->buckets = calloc(buckets, sizeof(*pool->buckets));
	if (pool->slots == NULL || pool->buckets == NULL) {
		demo_pool_destroy(pool);
		return NULL;
	}
	pool->num_slots = num_slots;
	pool->bucket_mask = buckets - 1;
	pool->oldest = NONE;
	pool->newest = NONE;
	for (uint32_t i = 0; i < buckets; i++)
		pool->buckets[i] = NONE;
	for (uint32_t i = 0; i < num_slots; i++)
		list_add_newest(pool, i);
	return pool;
}

void
demo_pool_destroy(struct demo_pool *pool)
{
	if (pool == NULL)
		return;
	free(pool->buckets);
	free(pool->slots);
	free(pool);
}

int
demo_pool_acquire(struct demo_pool *pool, const struct demo_pool_want *want, uint32_t *slots_out,
		  uint8_t *is_new_out)
{
	uint64_t needed = want->anonymous;

	for (uint32_t i = 0; i < want->count; i++) {
		KVP_CHECK(want->keys[i] != 0);
		slots_out[i] = find(pool, want->keys[i]);
		is_new_out[i] = slots_out[i] == NONE;
		if (is_new_out[i] == 0)
			pin(pool, slots_out[i]);
		needed += is_new_out[i];
	}
	if (needed > pool->num_unpinned) {
		for (uint32_t i = want->count; i-- > 0;) {
			if (is_new_out[i] == 0)
				unpin(pool, slots_out[i]);
		}
		return -EAGAIN;
	}
	for (uint32_t i = 0; i < want->count; i++) {
		if (is_new_out[i] == 0) {
			pool->hits++;
			continue;
		}
		slots_out[i] = find(pool, want->keys[i]); /* a key may be there twice */
		if (slots_out[i] != NONE) {
			pin(pool, slots_out[i]);
			is_new_out[i] = 0;
			pool->hits++;
			continue;
		}
		slots_out[i] = allocate(pool, want->keys[i]);
		pool->misses++;
	}
	for (uint32_t i = 0; i < want->anonymous; i++)
		slots_out[want->count + i] = allocate(pool, 0);
	return 0;
}

void
demo_pool_release(struct demo_pool *pool, const uint32_t *slots, uint32_t count)
{
	while (count-- > 0)
		unpin(pool, slots[count]);
}

static bool
slot_ok(const struct demo_pool *pool, uint32_t slot)
{
	const struct demo_pool_slot *s = &pool->slots[slot];

	if (s->key != 0 && find(pool, s->key) != slot)
		return false;
	return s->epoch <= pool->epoch || s->is_filled != 0;
}

bool
demo_pool_ok(const struct demo_pool *pool)
{
	uint32_t unpinned = 0, listed = 0, before = NONE;

	for (uint32_t i = 0; i < pool->num_slots; i++) {
		if (!slot_ok(pool, i))
			return false;
		unpinned += pool->slots[i].pins == 0;
	}
	for (uint32_t i = pool->oldest; i != NONE; i = pool->slots[i].newer) {
		if (listed++ == pool->num_slots || pool->slots[i].pins != 0 ||
		    pool->slots[i].older != before)
			return false;
		before = i;
	}
	return before == pool->newest && listed == unpinned && listed == pool->num_unpinned;
}
