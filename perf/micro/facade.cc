// SPDX-License-Identifier: Apache-2.0
// facade.cc - what LLM-DataDist's PushKvBlocks costs over kvp_push_blocks
//
// The same push, 4 blocks of 4 KiB over shm within this process, through the class and through the engine underneath it, taking
// turns. Wall time of the call, median and best of many.
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "llm_datadist/llm_datadist.h"

extern "C" {
#include "histogram.h"
}

using namespace llm_datadist;

namespace
{

constexpr uint32_t kRounds = 20000;

uint64_t
NowNs()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

void
Must(Status status, const char *what)
{
	if (status == LLM_SUCCESS)
		return;
	std::fprintf(stderr, "%s: 0x%08X: %s\n", what, status, GetLastErrorMessage());
	std::exit(EXIT_FAILURE);
}

void
Print(const char *name, const kvp_histogram *times)
{
	std::printf("%-24s %9llu %9llu\n", name,
		    static_cast<unsigned long long>(kvp_histogram_at(times, 0.5)),
		    static_cast<unsigned long long>(kvp_histogram_at(times, 0)));
}

} // namespace

int
main()
{
	static kvp_histogram by_class, by_engine;
	LlmDataDist prompt(1, LlmRole::kPrompt), decoder(2, LlmRole::kDecoder);
	std::map<AscendString, AscendString> options = {{OPTION_DEVICE_ID, "0"},
							{OPTION_LISTEN_IP_INFO, "127.0.0.1:0"},
							{"kvpush.transports", "shm"},
							{"kvpush.log_level", "1"}};
	const std::vector<uint64_t> src_blocks = {0, 1, 2, 3}, dst_blocks = {3, 2, 1, 0};
	std::vector<ClusterInfo> clusters(1);
	std::vector<Status> rets;
	KvCacheExtParam param{{0, 0}, {0, 0}, 1, {}};
	CacheDesc desc;
	Cache src, dst;
	IpInfo info;

	Must(prompt.Initialize(options), "Initialize");
	Must(decoder.Initialize(options), "Initialize");
	desc.num_tensors = 1;
	desc.data_type = DT_UINT8;
	desc.shape = {16, 4096};
	Must(prompt.AllocateCache(desc, src), "AllocateCache");
	Must(decoder.AllocateCache(desc, dst), "AllocateCache");
	info.ip = "127.0.0.1";
	info.port = kvp_port(prompt.GetEngine());
	clusters[0].remote_ip_infos.push_back(info);
	Must(decoder.LinkLlmClusters(clusters, rets, 5000), "LinkLlmClusters");

	CacheIndex index{2, dst.cache_id};
	kvp_push push = {};
	push.src_cache = src.cache_id;
	push.dst = {2, dst.cache_id};
	push.src_blocks = src_blocks.data();
	push.dst_blocks = dst_blocks.data();
	push.count = src_blocks.size();
	push.tensors_per_layer = 1;
	for (uint32_t i = 0; i < kRounds; i++) {
		uint64_t start = NowNs();

		Must(prompt.PushKvBlocks(src, index, src_blocks, dst_blocks, param),
		     "PushKvBlocks");
		kvp_histogram_add(&by_class, NowNs() - start);
		start = NowNs();
		if (kvp_push_blocks(prompt.GetEngine(), &push) != KVP_SUCCESS)
			return EXIT_FAILURE;
		kvp_histogram_add(&by_engine, NowNs() - start);
	}
	std::printf("%-24s %9s %9s\n", "16 KiB push, ns", "median", "best");
	Print("PushKvBlocks", &by_class);
	Print("kvp_push_blocks", &by_engine);
	std::printf("%-24s %9lld\n", "difference of medians",
		    static_cast<long long>(kvp_histogram_at(&by_class, 0.5)) -
			    static_cast<long long>(kvp_histogram_at(&by_engine, 0.5)));
	return EXIT_SUCCESS;
}
