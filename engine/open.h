/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.h - the layers of an open push: which are ready, and how many are still to end
 *
 *   mark:  UNMARKED -> READY      kvp_push_layer: the layer's parts go to their lanes
 *          UNMARKED -> ABANDONED  the push was stopped first
 *
 * The push ends after all of its layers: its parts, one per endpoint, wait until `left` is 0. So the push's
 * allocation, which layers lie in, outlives them.
 *
 * Ownership:  memory behind the push's plan, in the push's allocation
 * Threads:    [A] any application thread  [L] any lane
 */
#ifndef KVP_ENGINE_OPEN_H
#define KVP_ENGINE_OPEN_H

#include "transfer.h"

enum kvp_layer_mark {
	KVP_LAYER_UNMARKED = 0,
	KVP_LAYER_READY = 1,
	KVP_LAYER_ABANDONED = 2,
};

struct kvp_open {
	uint32_t layers;
	int32_t first;         /* source layer that layer 0 is */
	size_t step;           /* bytes from one layer's transfer to the next */
	uint8_t *transfer;     /* of layer 0 */
	_Atomic uint8_t *mark; /* of each, enum kvp_layer_mark */

	KVP_SPAN_START _Atomic uint32_t left; /* layers that have not ended */
};

/* Bytes of a layer's transfer with room for so many parts. */
size_t
kvp_open_step(uint32_t parts);

/* Bytes of a kvp_open with everything that belongs to it. */
size_t
kvp_open_bytes(uint32_t layers, uint32_t parts);

/* Lay it out in `memory` (aligned to KVP_SHARE_SPAN, kvp_open_bytes): all layers unmarked, transfers not filled. */
struct kvp_open *
kvp_open_create(void *memory, uint32_t layers, uint32_t parts);

static inline struct kvp_transfer *
kvp_open_layer(const struct kvp_open *open, uint32_t layer)
{
	return (struct kvp_transfer *)(void *)(open->transfer + layer * open->step);
}

/* [A] UNMARKED -> READY. What it was before: the caller submits the layer only when that is UNMARKED. */
enum kvp_layer_mark
kvp_open_mark(struct kvp_open *open, uint32_t layer);

/* [L] The push is stopped: layers that are under way stop too, no other one can become ready. */
void
kvp_open_stop(struct kvp_transfer *whole);

/*
 * [L] A layer's parts are all retired; if it was stopped, so is the push. Adds what it moved to the push.
 * True: no layer is left, so the push's parts go on; whoever sleeps over them has to be woken. The
 * push may be freed from here on.
 */
bool
kvp_open_layer_end(struct kvp_transfer *layer);

/* [L] May a part of the transfer end? Not while layers of its push are under way. */
static inline bool
kvp_open_has_ended(const struct kvp_transfer *transfer)
{
	return transfer->open == NULL ||
	       atomic_load_explicit(&transfer->open->left, memory_order_acquire) == 0;
}

#endif /* KVP_ENGINE_OPEN_H */
