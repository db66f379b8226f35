// SPDX-License-Identifier: Apache-2.0
// Switch: the decoder pulls and unlinks; both change roles; the one that is the prompt now pushes.
#include "flow.h"

using namespace llm_datadist;

namespace flow
{

int
SwitchPrompt(const Ports &ports)
{
	LlmDataDist llm(kPromptClusterId, LlmRole::kPrompt);
	Buffers buffers(true);
	Cache cache;

	if (Start(llm, ports.prompt) != 0 || Register(llm, buffers, cache.cache_id) != 0)
		return 1;
	Control control(ports.control, true);
	control.Meet();
	control.Meet(); // the decoder has pulled and unlinked
	Status status = llm.SetRole(LlmRole::kDecoder);
	if (status != LLM_SUCCESS)
		return Wrong("SetRole", status);
	buffers.Clear(1, 4); // what the other one pushes back
	control.Meet();      // it listens now
	if (Link(llm, kDecoderClusterId, ports.decoder) != 0)
		return 1;
	control.Meet(); // linked
	control.Meet(); // the other one has pushed
	bool is_right = buffers.AreFilled();
	if (Unlink(llm, kDecoderClusterId, ports.decoder) != 0)
		return 1;
	control.Meet();
	status = llm.UnregisterKvCache(cache.cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return is_right ? 0 : 1;
}

int
SwitchDecoder(const Ports &ports)
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
	Status status =
		llm.PullKvBlocks(index, cache, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7});
	if (status != LLM_SUCCESS)
		return Wrong("PullKvBlocks", status);
	bool is_right = buffers.AreFilled();
	if (Unlink(llm, kPromptClusterId, ports.prompt) != 0)
		return 1;
	control.Meet();
	status = llm.SetRole(LlmRole::kPrompt, ListenOption(ports.decoder));
	if (status != LLM_SUCCESS)
		return Wrong("SetRole", status);
	control.Meet();
	control.Meet(); // the other one has linked
	KvCacheExtParam param{{0, 3}, {0, 3}, 1, {}};
	status = llm.PushKvBlocks(cache, index, {1, 2}, {1, 2}, param);
	if (status != LLM_SUCCESS)
		return Wrong("PushKvBlocks", status);
	index.batch_index = 3;
	status = llm.PushKvCache(cache, index, 3, -1, param);
	if (status != LLM_SUCCESS)
		return Wrong("PushKvCache", status);
	control.Meet();
	control.Meet();
	status = llm.UnregisterKvCache(cache.cache_id);
	if (status != LLM_SUCCESS)
		return Wrong("UnregisterKvCache", status);
	llm.Finalize();
	return is_right ? 0 : 1;
}

} // namespace flow
