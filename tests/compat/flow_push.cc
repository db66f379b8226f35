// SPDX-License-Identifier: Apache-2.0
// Push: the prompt links, pushes blocks layer by layer, then one batch slot of all tensors.
#include "flow.h"

#include <cstdio>

using namespace llm_datadist;

namespace flow
{

int
PushPrompt(const Ports &ports)
{
	LlmDataDist llm(kPromptClusterId, LlmRole::kPrompt);
	Buffers buffers(true);
	Cache cache;

	if (Start(llm, ports.prompt) != 0 || Register(llm, buffers, cache.cache_id) != 0)
		return 1;
	Control control(ports.control, true);
	control.Meet(); // the decoder has registered, too
	if (Link(llm, kDecoderClusterId, ports.decoder) != 0)
		return 1;

	CacheIndex index{kDecoderClusterId, 1, 0, {}};
	for (int32_t layer = 0; layer < static_cast<int32_t>(kNumTensors); layer++) {
		KvCacheExtParam param{};

		param.src_layer_range = {layer, layer};
		param.dst_layer_range = {layer, layer};
		param.tensor_num_per_layer = 1;
		Status status = llm.PushKvBlocks(cache, index, {5, 6, 7}, {5, 6, 7}, param);
		if (status != LLM_SUCCESS)
			return Wrong("PushKvBlocks", status);
	}
	index.batch_index = 4;
	KvCacheExtParam param{};
	param.src_layer_range = {0, 0};
	param.dst_layer_range = {0, 0};
	param.tensor_num_per_layer = kNumTensors;
	Status status = llm.PushKvCache(cache, index, 4, -1, param);
	if (status != LLM_SUCCESS)
		return Wrong("PushKvCache", status);

	control.Meet(); // it is all there
	control.Meet(); // the decoder has looked
	if (Unlink(llm, kDecoderClusterId, ports.decoder) != 0)
		return 1;
	status = llm.UnregisterKvCache(cache.cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return buffers.AreFilled() ? 0 : 1;
}

int
PushDecoder(const Ports &ports)
{
	LlmDataDist llm(kDecoderClusterId, LlmRole::kDecoder);
	Buffers buffers(false);
	int64_t cache_id = -1;

	if (Start(llm, ports.decoder) != 0 || Register(llm, buffers, cache_id) != 0)
		return 1;
	if (cache_id != 1) // what the prompt counts on
		return Wrong("the first cache_id is not 1", LLM_FAILED);
	Control control(ports.control, false);
	control.Meet();
	control.Meet();
	bool is_right = buffers.Holds(4, 8);
	control.Meet();
	Status status = llm.UnregisterKvCache(cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return is_right ? 0 : 1;
}

} // namespace flow
