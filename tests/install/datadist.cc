// SPDX-License-Identifier: Apache-2.0
// A program for LLM-DataDist, against the installed copy: the sample of PushKvBlocks, both ends in one process.
#include <cstdio>
#include <cstring>
#include <string>

#include "llm_datadist/llm_datadist.h"

using namespace llm_datadist;

int Link(LlmDataDist &llm, uint16_t port); // datadist_more.cc

int
main()
{
	LlmDataDist prompt(1, LlmRole::kPrompt), decoder(0, LlmRole::kDecoder);
	std::map<AscendString, AscendString> options;
	Cache src, dst;
	CacheDesc desc{};

	options[OPTION_DEVICE_ID] = std::to_string(0).c_str();
	options["kvpush.log_level"] = "1";
	if (decoder.Initialize(options) != LLM_SUCCESS)
		return std::printf("decoder: %s\n", GetLastErrorMessage()), 1;
	options[OPTION_LISTEN_IP_INFO] = "127.0.0.1:0";
	if (prompt.Initialize(options) != LLM_SUCCESS)
		return std::printf("prompt: %s\n", GetLastErrorMessage()), 1;
	desc.num_tensors = 4;
	desc.data_type = DT_INT32;
	desc.shape = {4, 16};
	if (prompt.AllocateCache(desc, src) != LLM_SUCCESS ||
	    decoder.AllocateCache(desc, dst) != LLM_SUCCESS ||
	    Link(decoder, kvp_port(prompt.GetEngine())) != 0)
		return std::printf("%s\n", GetLastErrorMessage()), 1;
	for (uintptr_t address : src.tensor_addrs)
		std::memset(reinterpret_cast<void *>(address), 7, 4 * 64);

	CacheIndex index{0, 1};
	KvCacheExtParam param{};
	param.src_layer_range = {3, 3};
	param.dst_layer_range = {3, 3};
	param.tensor_num_per_layer = 1;
	Status ret = prompt.PushKvBlocks(src, index, {0, 1, 2, 3}, {3, 2, 1, 0}, param);
	if (ret != LLM_SUCCESS)
		return std::printf("PushKvBlocks: %u: %s\n", ret, GetLastErrorMessage()), 1;
	if (std::memcmp(reinterpret_cast<void *>(dst.tensor_addrs[3]),
			reinterpret_cast<void *>(src.tensor_addrs[3]), 4 * 64) != 0)
		return std::printf("other bytes\n"), 1;
	decoder.Finalize();
	prompt.Finalize();
	std::printf("pushed, every byte right\n");
	return 0;
}
