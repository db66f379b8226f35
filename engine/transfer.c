/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include <stddef.h>

#include "check.h"
#include "tally.h"

/*
 * first_error of a transfer that ended without one. A stop that comes after the
 * end must find it taken, else the terminal status would change. No status has
 * this value; kvp_transfer_status reads it as SUCCESS.
 */
#define SEALED KVP_STATUS_OWN

_Static_assert(offsetof(struct kvp_transfer, word) % KVP_SHARE_SPAN == 0,
	       "what lanes write starts on a span of its own");

bool
kvp_transfer_stop(struct kvp_transfer *transfer, kvp_status why)
{
	uint32_t none = KVP_SUCCESS;

	KVP_ASSERT(why != KVP_SUCCESS && why != SEALED && why != KVP_IN_PROGRESS);
	return atomic_compare_exchange_strong_explicit(&transfer->first_error, &none, why,
						       memory_order_acq_rel, memory_order_relaxed);
}

bool
kvp_transfer_retire(struct kvp_transfer *transfer, struct kvp_part *part)
{
	uint32_t left;

	KVP_ASSERT(part->transfer == transfer);
	KVP_ASSERT(part->requests_inflight == 0 && part->bytes_inflight == 0);
	KVP_ASSERT(part->bytes_done <= part->bytes);
	atomic_fetch_add_explicit(&transfer->moved, part->bytes_done, memory_order_relaxed);
	/* Releases this lane's numbers to the lane that comes last, which acquires them here. */
	left = atomic_fetch_sub_explicit(&transfer->parts_left, 1, memory_order_acq_rel);
	KVP_ASSERT(left >= 1);
	return left == 1;
}

/* Before the holds go: the tally lives as long as the link. */
static void
tally(const struct kvp_transfer *transfer, uint32_t lane)
{
	kvp_status status = atomic_load_explicit(&transfer->first_error, memory_order_relaxed);
	struct kvp_tally_item item = {
		.status = status == SEALED ? KVP_SUCCESS : status,
		.is_push = transfer->is_push,
		.bytes = atomic_load_explicit(&transfer->moved, memory_order_relaxed),
		.pieces = transfer->plan.pieces,
		.runs = transfer->plan.extents,
		.requests = atomic_load_explicit(&transfer->requests, memory_order_relaxed),
		.latency_ns = atomic_load_explicit(&transfer->end_ns, memory_order_relaxed) -
			      transfer->submit_ns,
	};

	kvp_tally_add(&transfer->tally[lane], &item);
}

bool
kvp_transfer_publish(struct kvp_transfer *transfer, uint32_t lane, uint64_t now_ns,
		     _Atomic uint32_t **word_out)
{
	_Atomic uint32_t *hold[KVP_HOLDS];
	_Atomic uint32_t *word = &transfer->word;
	uint32_t none = KVP_SUCCESS;
	uint32_t before;

	KVP_ASSERT(atomic_load_explicit(&transfer->parts_left, memory_order_relaxed) == 0);
	for (uint32_t i = 0; i < KVP_HOLDS; i++)
		hold[i] = transfer->holds[i];
	atomic_store_explicit(&transfer->end_ns, now_ns, memory_order_relaxed);
	/* From here a stop comes too late, and its caller is told so. */
	atomic_compare_exchange_strong_explicit(&transfer->first_error, &none, SEALED,
						memory_order_acq_rel, memory_order_relaxed);
	if (KVP_LIKELY(transfer->tally != NULL))
		tally(transfer, lane);
	/* Pairs with kvp_transfer_status(). The transfer may be freed from here on. */
	before = atomic_exchange_explicit(word, KVP_WORD_DONE, memory_order_acq_rel);
	KVP_ASSERT(before != KVP_WORD_DONE);
	/*
	 * Pairs with whoever waits for a hold to reach 0 before taking memory away. The engine's,
	 * which is the first, goes last: the other counters live in what the engine frees.
	 */
	for (uint32_t i = KVP_HOLDS; i > 0; i--) {
		if (hold[i - 1] != NULL)
			atomic_fetch_sub_explicit(hold[i - 1], 1, memory_order_release);
	}
	*word_out = word;
	return before == KVP_WORD_WAITED;
}

kvp_status
kvp_transfer_status(const struct kvp_transfer *transfer)
{
	kvp_status status;

	if (atomic_load_explicit(&transfer->word, memory_order_acquire) != KVP_WORD_DONE)
		return KVP_IN_PROGRESS;
	status = atomic_load_explicit(&transfer->first_error, memory_order_relaxed);
	return status == SEALED ? KVP_SUCCESS : status;
}
