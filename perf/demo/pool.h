/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - block allocator with prefix reuse, as inference servers have it
 *
 * A slot holds the block of one key, or nothing that can be found again (key
 * 0). Requests pin the slots they use; slots without pins stay findable by key
 * until the allocator needs them, least recently used first.
 *
 * Shape:      slots 0..num_slots-1; a hash of keys; one list of unpinned slots
 * Invariant:  a slot is pinned, or on the list; a key is in at most one slot
 * Ownership:  create allocates, destroy frees
 * Threads:    one
 */
#ifndef DEMO_POOL_H
#define DEMO_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct demo_pool_slot {
	uint64_t key;   /* 0: cannot be found */
	uint64_t epoch; /* of the content; set by allocation, the owner may overwrite */
	uint32_t pins;
	uint32_t is_filled; /* 0 from allocation on; the owner's to set */
	uint32_t chain;     /* next of the bucket */
	uint32_t older, newer;
};

struct demo_pool {
	struct demo_pool_slot *slots;
	uint32_t *buckets;
	uint32_t num_slots;
	uint32_t bucket_mask;
	uint32_t oldest, newest; /* of the unpinned */
	uint32_t num_unpinned;
	uint64_t epoch; /* of the last allocation */
	uint64_t hits, misses, evictions;
};

struct demo_pool_want {
	const uint64_t *keys; /* none 0 */
	uint32_t count;
	uint32_t anonymous; /* slots without a key, after the keyed ones */
};

/* NULL: no memory, or num_slots not in [1, 2^30]. */
struct demo_pool *
demo_pool_create(uint32_t num_slots);

void
demo_pool_destroy(struct demo_pool *pool);

/*
 * Pin a slot for each key, found or allocated, and the anonymous ones.
 * slots_out[count + anonymous]; is_new_out[count]: 1 where the caller must
 * produce the content. Returns 0, or -EAGAIN with nothing pinned: too many are.
 */
int
demo_pool_acquire(struct demo_pool *pool, const struct demo_pool_want *want, uint32_t *slots_out,
		  uint8_t *is_new_out);

/*
 * Unpin, last first: of a prefix chain the end is evicted before its start,
 * which more requests share. Anonymous slots are evicted before all others.
 */
void
demo_pool_release(struct demo_pool *pool, const uint32_t *slots, uint32_t count);

/* Walks everything; for tests. */
bool
demo_pool_ok(const struct demo_pool *pool);

#endif /* DEMO_POOL_H */
