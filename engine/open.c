/* SPDX-License-Identifier: Apache-2.0 */
#include "open.h"

#include <stddef.h>
#include <string.h>

#include "check.h"

static size_t
round_up(size_t bytes)
{
	return (bytes + KVP_SHARE_SPAN - 1) / KVP_SHARE_SPAN * KVP_SHARE_SPAN;
}

size_t
kvp_open_step(uint32_t parts)
{
	KVP_ASSERT(parts >= 1 && parts <= KVP_PARTS_MAX);
	return round_up(offsetof(struct kvp_transfer, part) + parts * sizeof(struct kvp_part));
}

size_t
kvp_open_bytes(uint32_t layers, uint32_t parts)
{
	return round_up(sizeof(struct kvp_open)) + layers * kvp_open_step(parts) + round_up(layers);
}

struct kvp_open *
kvp_open_create(void *memory, uint32_t layers, uint32_t parts)
{
	struct kvp_open *open = memory;

	KVP_ASSERT((uintptr_t)memory % KVP_SHARE_SPAN == 0);
	memset(open, 0, sizeof(*open));
	open->layers = layers;
	open->step = kvp_open_step(parts);
	open->transfer = (uint8_t *)memory + round_up(sizeof(*open));
	open->mark = (_Atomic uint8_t *)(open->transfer + layers * open->step);
	for (uint32_t i = 0; i < layers; i++)
		atomic_init(&open->mark[i], KVP_LAYER_UNMARKED);
	atomic_init(&open->left, layers);
	return open;
}

static enum kvp_layer_mark
mark_as(struct kvp_open *open, uint32_t layer, enum kvp_layer_mark mark)
{
	uint8_t before = KVP_LAYER_UNMARKED;

	(void)atomic_compare_exchange_strong_explicit(&open->mark[layer], &before, (uint8_t)mark,
						      memory_order_acq_rel, memory_order_acquire);
	return (enum kvp_layer_mark)before;
}

enum kvp_layer_mark
kvp_open_mark(struct kvp_open *open, uint32_t layer)
{
	KVP_ASSERT(layer < open->layers);
	return mark_as(open, layer, KVP_LAYER_READY);
}

void
kvp_open_stop(struct kvp_transfer *whole)
{
	struct kvp_open *open = whole->open;
	kvp_status why = atomic_load_explicit(&whole->first_error, memory_order_relaxed);

	KVP_ASSERT(kvp_transfer_is_stopped(whole));
	for (uint32_t i = 0; i < open->layers; i++) {
		enum kvp_layer_mark before = mark_as(open, i, KVP_LAYER_ABANDONED);

		if (before == KVP_LAYER_UNMARKED)
			atomic_fetch_sub_explicit(&open->left, 1, memory_order_release);
		else if (before == KVP_LAYER_READY)
			(void)kvp_transfer_stop(kvp_open_layer(open, i), why);
	}
}

bool
kvp_open_layer_end(struct kvp_transfer *layer)
{
	struct kvp_transfer *whole = layer->whole;
	uint32_t left;

	/* Pairs with kvp_transfer_query: who sees that it moved sees what moved. */
	atomic_fetch_add_explicit(&whole->moved,
				  atomic_load_explicit(&layer->moved, memory_order_relaxed),
				  memory_order_release);
	atomic_fetch_add_explicit(&whole->requests,
				  atomic_load_explicit(&layer->requests, memory_order_relaxed),
				  memory_order_relaxed);
	/* Pairs with kvp_open_has_ended: what this lane did for the layer comes before the push's end. */
	left = atomic_fetch_sub_explicit(&whole->open->left, 1, memory_order_acq_rel);
	KVP_ASSERT(left >= 1);
	return left == 1;
}
