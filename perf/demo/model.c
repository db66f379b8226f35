/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <string.h>

/* head_dim 128, bf16 (2 bytes): a K or V block is tokens x KV heads x 128 x 2 bytes. */
static const struct demo_model models[] = {
	{
		.name = "llama-3-8b",
		.layers = 32,
		.tensors_per_layer = 2,
		.tokens_per_block = 16,
		.block_bytes = 16 * 8 * 128 * 2,
		.requests = 32,
		.what = "32 layers x K,V, 8 KV heads",
	},
	{
		.name = "deepseek-v3",
		.layers = 61,
		.tensors_per_layer = 1,
		.tokens_per_block = 64,
		.block_bytes = 64 * 576 * 2,
		.requests = 48,
		.what = "61 layers x 1 latent tensor (MLA), 576 per token",
	},
	{
		.name = "qwen3-32b",
		.layers = 64,
		.tensors_per_layer = 2,
		.tokens_per_block = 16,
		.block_bytes = 16 * 8 * 128 * 2,
		.requests = 24,
		.what = "64 layers x K,V, 8 KV heads",
	},
	{
		.name = "llama-3-70b-tp8",
		.layers = 80,
		.tensors_per_layer = 2,
		.tokens_per_block = 16,
		.block_bytes = 16 * 1 * 128 * 2,
		.requests = 60,
		.what = "80 layers x K,V, 1 KV head: one of 8 tensor-parallel ranks",
	},
};

const struct demo_model *
demo_model_at(size_t index)
{
	if (index >= sizeof(models) / sizeof(models[0]))
		return NULL;
	return &models[index];
}

const struct demo_model *
demo_model_find(const char *name)
{
	const struct demo_model *model;

	for (size_t i = 0; (model = demo_model_at(i)) != NULL; i++) {
		if (strcmp(model->name, name) == 0)
			return model;
	}
	return NULL;
}

uint32_t
demo_model_tensors(const struct demo_model *model)
{
	return model->layers * model->tensors_per_layer;
}

uint64_t
demo_model_slot_bytes(const struct demo_model *model)
{
	return (uint64_t)demo_model_tensors(model) * model->block_bytes;
}

void
demo_model_layout(const struct demo_model *model, uint32_t num_blocks, struct kvp_tensor *tensors)
{
	for (uint32_t i = 0; i < demo_model_tensors(model); i++) {
		tensors[i] = (struct kvp_tensor){
			.num_blocks = num_blocks,
			.block_bytes = model->block_bytes,
			.block_stride = model->block_bytes,
		};
	}
}
