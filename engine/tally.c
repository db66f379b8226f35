/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include "histogram.h"
#include "total.h"

#define LATENCY_MAX ((UINT64_C(1) << 40) - 1)

/* In the order of <kvpush/stats.h>'s errors; the last stands for all others. */
static const kvp_status reason[KVP_STATS_REASONS] = {
	KVP_TIMEOUT,       KVP_CANCELLED,       KVP_PEER_LOST,     KVP_PEER_RESTARTED,
	KVP_NOT_YET_LINK,  KVP_CACHE_NOT_EXIST, KVP_NO_CREDIT,     KVP_FEATURE_NOT_ENABLED,
	KVP_PARAM_INVALID, KVP_QUEUE_FULL,      KVP_OUT_OF_MEMORY, KVP_FAILED,
};

uint32_t
kvp_tally_reason(kvp_status status)
{
	uint32_t i = 0;

	while (i < KVP_STATS_REASONS - 1 && reason[i] != status)
		i++;
	return i;
}

kvp_status
kvp_tally_status(uint32_t place)
{
	return reason[place];
}

void
kvp_tally_add(struct kvp_tally *tally, const struct kvp_tally_item *item)
{
	uint64_t ns = item->latency_ns < LATENCY_MAX ? item->latency_ns : LATENCY_MAX;
	_Atomic uint32_t *bucket = &tally->bucket[kvp_bucket_of(ns, KVP_TALLY_STEPS_LOG2)];

	kvp_total_add(&tally->bytes, item->bytes);
	kvp_total_add(&tally->requests, item->requests);
	if (KVP_UNLIKELY(item->status != KVP_SUCCESS)) {
		kvp_total_add(&tally->ended[kvp_tally_reason(item->status)], 1);
		return;
	}
	kvp_total_add(item->is_push ? &tally->pushes : &tally->pulls, 1);
	kvp_total_add(&tally->pieces, item->pieces);
	kvp_total_add(&tally->runs, item->runs);
	kvp_total_add(&tally->latency_sum, ns);
	if (ns > kvp_total(&tally->latency_max))
		atomic_store_explicit(&tally->latency_max, ns, memory_order_relaxed);
	atomic_store_explicit(bucket, atomic_load_explicit(bucket, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}
