/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.h - shapes of real models' KV caches
 *
 * A slot is one block index: block_bytes in each of layers x tensors_per_layer
 * tensors.
 */
#ifndef DEMO_MODEL_H
#define DEMO_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include <kvpush/cache.h>

struct demo_model {
	const char *name;
	uint32_t layers;
	uint32_t tensors_per_layer; /* 2: K,V; 1: MLA */
	uint32_t tokens_per_block;  /* divides 512, what one hash of the trace covers */
	uint32_t block_bytes;
	uint32_t requests; /* of a default run: about 10 s of replay on two cores */
	const char *what;
};

/* NULL: no such model. */
const struct demo_model *
demo_model_find(const char *name);

/* Of the list, from 0; NULL after the last. The first is the default. */
const struct demo_model *
demo_model_at(size_t index);

uint32_t
demo_model_tensors(const struct demo_model *model);

/* Bytes of one slot over all tensors. */
uint64_t
demo_model_slot_bytes(const struct demo_model *model);

/* Fill tensors[demo_model_tensors()] for `num_blocks` slots, bases NULL. */
void
demo_model_layout(const struct demo_model *model, uint32_t num_blocks, struct kvp_tensor *tensors);

#endif /* DEMO_MODEL_H */
