/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tally.h - what one lane's transfers of one link came to
 *
 * Invariant:  numbers only grow
 * Shape:      `bucket` is log-linear in nanoseconds, 16 steps per power of two (6 %), values below 2^40
 * Threads:    kvp_tally_add: the lane, single writer. Reading: any, each number for itself.
 */
#ifndef KVP_ENGINE_TALLY_H
#define KVP_ENGINE_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvpush/stats.h>

#include "compiler.h"

#define KVP_TALLY_STEPS_LOG2 4
#define KVP_TALLY_BUCKETS    ((41 - KVP_TALLY_STEPS_LOG2) << KVP_TALLY_STEPS_LOG2)

struct kvp_tally {
	KVP_SPAN_START _Atomic uint64_t pushes, pulls; /* that ended well */
	_Atomic uint64_t bytes, pieces, runs, requests;
	_Atomic uint64_t latency_sum, latency_max; /* ns, of those */
	_Atomic uint64_t ended[KVP_STATS_REASONS]; /* those that did not, by kvp_tally_reason */
	_Atomic uint32_t bucket[KVP_TALLY_BUCKETS];
};

/* One transfer that ended. */
struct kvp_tally_item {
	kvp_status status;
	bool is_push;
	uint64_t bytes; /* that landed */
	uint64_t pieces, runs, requests;
	uint64_t latency_ns;
};

KVP_HOT void
kvp_tally_add(struct kvp_tally *tally, const struct kvp_tally_item *item);

/* Place of a status among the reasons; what has none of its own shares the last, FAILED. */
uint32_t
kvp_tally_reason(kvp_status status);
kvp_status
kvp_tally_status(uint32_t reason);

#endif /* KVP_ENGINE_TALLY_H */
