/* SPDX-License-Identifier: Apache-2.0 */
/*
 * total.h - a number that one thread counts up and any may read
 *
 * Threads:    kvp_total_add: the one writer. kvp_total: any
 */
#ifndef KVP_ENGINE_TOTAL_H
#define KVP_ENGINE_TOTAL_H

#include <stdatomic.h>
#include <stdint.h>

/* Single writer: load + store, no locked instruction. */
static inline void
kvp_total_add(_Atomic uint64_t *total, uint64_t by)
{
	atomic_store_explicit(total, atomic_load_explicit(total, memory_order_relaxed) + by,
			      memory_order_relaxed);
}

static inline uint64_t
kvp_total(const _Atomic uint64_t *total)
{
	return atomic_load_explicit(total, memory_order_relaxed);
}

#endif /* KVP_ENGINE_TOTAL_H */
