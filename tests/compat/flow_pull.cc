// SPDX-License-Identifier: Apache-2.0
// Pull: the decoder links, pulls blocks of all layers, then one batch slot.
#include "flow.h"

using namespace llm_datadist;

namespace flow
{

int
PullPrompt(const Ports &ports)
{
	LlmDataDist llm(kPromptClusterId, LlmRole::kPrompt);
	Buffers buffers(true);
	int64_t cache_id = -1;

	if (Start(llm, ports.prompt) != 0 || Register(llm, buffers, cache_id) != 0)
		return 1;
	Control control(ports.control, true);
	control.Meet();
	control.Meet(); // the decoder has pulled
	Status status = llm.UnregisterKvCache(cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return buffers.AreFilled() ? 0 : 1;
}

int
PullDecoder(const Ports &ports)
{
	LlmDataDist llm(kDecoderClusterId, LlmRole::kDecoder);
	Buffers buffers(false);
	Cache cache;

	if (Start(llm, 0) != 0 || Register(llm, buffers, cache.cache_id) != 0)
		return 1;
	Control control(ports.control, false);
	control.Meet();
	if (Link(llm, kPromptClusterId, ports.prompt) != 0)
		return 1;
	CacheIndex index{kPromptClusterId, 1, 0, {}};
	Status status = llm.PullKvBlocks(index, cache, {1, 2, 3}, {1, 2, 3});
	if (status != LLM_SUCCESS)
		return Wrong("PullKvBlocks", status);
	status = llm.PullKvCache(index, cache, 0);
	if (status != LLM_SUCCESS)
		return Wrong("PullKvCache", status);
	bool is_right = buffers.Holds(0, 4);
	if (Unlink(llm, kPromptClusterId, ports.prompt) != 0)
		return 1;
	control.Meet();
	status = llm.UnregisterKvCache(cache.cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return is_right ? 0 : 1;
}

} // namespace flow
