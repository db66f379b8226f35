// SPDX-License-Identifier: Apache-2.0
// Calls, arguments and results as LLM-DataDist's own tests of its public interface have them, and its sample.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <thread>

#include "harness.h"
#include "llm_datadist/llm_datadist.h"

using namespace llm_datadist;

namespace
{

std::string transport; /* of this pass over the tests */

std::map<AscendString, AscendString>
OptionsOf(char side, uint16_t port, const std::map<AscendString, AscendString> &more = {})
{
	std::map<AscendString, AscendString> options = more;
	std::string settings = SettingsOf(transport, side);

	options.emplace(OPTION_DEVICE_ID, "0");
	options.emplace(OPTION_SYNC_CACHE_WAIT_TIME, "10000");
	options.emplace("kvpush.transports", transport.c_str());
	options.emplace("kvpush.log_level", "1");
	if (transport == "verbs")
		options.emplace("kvpush.verbs_devices",
				settings.substr(settings.find("verbs_devices=") + 14).c_str());
	if (port != 0)
		options[OPTION_LISTEN_IP_INFO] = ("127.0.0.1:" + std::to_string(port)).c_str();
	return options;
}

void
Is(Status expected, Status got, const char *call, int line)
{
	if (expected != got)
		fail_msg("line %d: %s is 0x%08X, not 0x%08X: %s", line, call, got, expected,
			 GetLastErrorMessage());
}
#define IS(expected, call) Is((expected), (call), #call, __LINE__)
#define OK(call)           IS(LLM_SUCCESS, call)
#define INVALID(call)      IS(LLM_PARAM_INVALID, call)

std::vector<ClusterInfo>
Clusters(uint64_t id, uint16_t port)
{
	ClusterInfo cluster;
	IpInfo info;

	cluster.remote_cluster_id = id;
	info.ip = "127.0.0.1";
	info.port = port;
	cluster.local_ip_infos.emplace_back(info);
	cluster.remote_ip_infos.emplace_back(info);
	return {cluster};
}

Status
Link(LlmDataDist &llm, uint64_t id, uint16_t port, int32_t timeout_ms = 10000)
{
	std::vector<Status> rets;
	Status status = llm.LinkLlmClusters(Clusters(id, port), rets, timeout_ms);

	assert_int_equal(rets.size(), 1);
	assert_int_equal(rets[0], status);
	return status;
}

Status
Unlink(LlmDataDist &llm, uint64_t id, uint16_t port)
{
	std::vector<Status> rets;
	Status status = llm.UnlinkLlmClusters(Clusters(id, port), rets, 10000);

	assert_int_equal(rets.size(), 1);
	return status;
}

CacheDesc
DescOf(uint32_t num_tensors, DataType type, std::vector<int64_t> shape)
{
	CacheDesc desc{};

	desc.num_tensors = num_tensors;
	desc.data_type = type;
	desc.shape = std::move(shape);
	return desc;
}

/* int32 {4, 16} tensors of the test, in host vectors. */
struct Tensors {
	explicit Tensors(uint32_t count, int32_t first) : data(count, std::vector<int32_t>(64))
	{
		for (auto &tensor : data) {
			for (int32_t &value : tensor)
				value = first++;
		}
	}
	std::vector<uint64_t> Addresses()
	{
		std::vector<uint64_t> addresses;

		for (auto &tensor : data)
			addresses.push_back(reinterpret_cast<uint64_t>(tensor.data()));
		return addresses;
	}
	std::vector<std::vector<int32_t>> data;
};

/* P, cluster 0, listens; D, cluster 1, links; both have 10 tensors registered as cache 1. */
struct Bench {
	Bench()
	    : prompt(0, LlmRole::kPrompt), decoder(1, LlmRole::kDecoder), src(10, 1),
	      dst(10, 100000)
	{
		port = FreePorts(1)[0];
		OK(prompt.Initialize(OptionsOf('A', port)));
		OK(decoder.Initialize(OptionsOf('B', 0)));
		prompt_cache.cache_desc = DescOf(10, DT_INT32, {4, 16});
		decoder_cache.cache_desc = prompt_cache.cache_desc;
		OK(prompt.RegisterKvCache(prompt_cache.cache_desc, src.Addresses(), {},
					  prompt_cache.cache_id));
		OK(decoder.RegisterKvCache(decoder_cache.cache_desc, dst.Addresses(), {},
					   decoder_cache.cache_id));
		OK(Link(decoder, 0, port));
	}
	/* Blocks [first, last) of tensors [from, to) are equal, and only those. */
	void Moved(size_t from, size_t to, size_t first, size_t last)
	{
		for (size_t tensor = 0; tensor < 10; tensor++) {
			for (size_t i = 0; i < 64; i++) {
				bool is_in = tensor >= from && tensor < to && i / 16 >= first &&
					     i / 16 < last;

				assert_true((src.data[tensor][i] == dst.data[tensor][i]) == is_in);
			}
		}
	}
	/* The destination is as at first. */
	void Reset()
	{
		int32_t value = 100000;

		for (auto &tensor : dst.data) {
			for (int32_t &element : tensor)
				element = value++;
		}
	}

	LlmDataDist prompt, decoder;
	Tensors src, dst;
	Cache prompt_cache, decoder_cache;
	uint16_t port;
	CacheIndex at_decoder{1, 1, 0, {}}, at_prompt{0, 1, 0, {}};
};

const std::vector<uint64_t> kBlocks = {0, 1};

/* What the table calls "fail" is PARAM_INVALID, and nothing has moved. */
struct Row {
	KvCacheExtParam param;
	bool is_ok;
	size_t from, to; /* tensors that move */
};
const Row kPushRows[] = {
	{{}, true, 0, 10},
	{{{0, 1}, {0, 1}, 1, {}}, true, 0, 2},
	{{{0, 1}, {0, 1}, 2, {}}, true, 0, 4},
	{{{0, 1}, {0, 1}, 3, {}}, false, 0, 0},
	{{{0, 1}, {0, 1}, 7, {}}, false, 0, 0},
	{{{0, 1}, {0, 1}, 17, {}}, false, 0, 0},
	{{{-2, 0}, {0, 1}, 2, {}}, false, 0, 0},
	{{{-2, 0}, {-2, 0}, 2, {}}, false, 0, 0},
	{{{0, 1}, {0, 3}, 2, {}}, false, 0, 0},
	{{{4, 5}, {0, 1}, 2, {}}, false, 0, 0},
	{{{0, 1}, {4, 5}, 2, {}}, false, 0, 0},
	{{{0, 1}, {0, 1}, 0, {}}, false, 0, 0},
	{{{1, 0}, {1, 0}, 2, {}}, false, 0, 0},
	{{{0, 0}, {-1, -1}, 2, {}}, false, 0, 0},
	{{{4, 4}, {4, 4}, 2, {}}, true, 8, 10},
};

void
push_with_range_and_tensor_num(void **state)
{
	Bench bench;

	(void)state;
	for (const Row &row : kPushRows) {
		Status want = row.is_ok ? LLM_SUCCESS : LLM_PARAM_INVALID;

		IS(want, bench.prompt.PushKvBlocks(bench.prompt_cache, bench.at_decoder, kBlocks,
						   kBlocks, row.param));
		bench.Moved(row.from, row.to, 0, 2);
		bench.Reset();
		IS(want, bench.prompt.PushKvCache(bench.prompt_cache, bench.at_decoder, 0, -1,
						  row.param));
		bench.Moved(row.from, row.to, 0, 1);
		bench.Reset();
	}
}

void
pull_with_range_and_tensor_num(void **state)
{
	const Row rows[] = {
		{{}, true, 0, 10},
		{{{0, 1}, {0, 1}, 1, {}}, true, 0, 2},
		{{{0, 1}, {0, 1}, 2, {}}, true, 0, 4},
		{{{0, 1}, {0, 1}, 3, {}}, false, 0, 0},
		{{{0, 1}, {0, 1}, 7, {}}, false, 0, 0},
		{{{0, 1}, {0, 1}, 17, {}}, false, 0, 0},
		{{{-2, 1}, {0, 1}, 2, {}}, false, 0, 0},
		{{{0, 1}, {0, 2}, 2, {}}, false, 0, 0},
	};
	Bench bench;

	(void)state;
	for (const Row &row : rows) {
		Status want = row.is_ok ? LLM_SUCCESS : LLM_PARAM_INVALID;

		IS(want, bench.decoder.PullKvBlocks(bench.at_prompt, bench.decoder_cache, kBlocks,
						    kBlocks, row.param));
		bench.Moved(row.from, row.to, 0, 2);
		bench.Reset();
		IS(want, bench.decoder.PullKvCache(bench.at_prompt, bench.decoder_cache, 0, -1,
						   row.param));
		bench.Moved(row.from, row.to, 0, 1);
		bench.Reset();
	}
}

/* One slot to another, and the beginning of one. */
void
cache_slots_and_sizes(void **state)
{
	Bench bench;
	CacheIndex index = bench.at_decoder;
	KvCacheExtParam param{{0, 0}, {0, 0}, 10, {}};

	(void)state;
	index.batch_index = 2;
	OK(bench.prompt.PushKvCache(bench.prompt_cache, index, 2, 8, param));
	for (size_t tensor = 0; tensor < 10; tensor++) {
		for (size_t i = 0; i < 64; i++)
			assert_true((bench.src.data[tensor][i] == bench.dst.data[tensor][i]) ==
				    (i == 32 || i == 33));
	}
	bench.Reset();
	index = bench.at_prompt;
	index.batch_index = 3;
	OK(bench.decoder.PullKvCache(index, bench.decoder_cache, 3, 64, param));
	bench.Moved(0, 10, 3, 4);
	bench.Reset();
	INVALID(bench.prompt.PushKvCache(bench.prompt_cache, bench.at_decoder, 0, 0, param));
	INVALID(bench.prompt.PushKvCache(bench.prompt_cache, bench.at_decoder, 0, -2, param));
	INVALID(bench.prompt.PushKvCache(bench.prompt_cache, bench.at_decoder, 0, 65, param));
	INVALID(bench.prompt.PushKvCache(bench.prompt_cache, bench.at_decoder, 4, -1, param));
	index = bench.at_decoder;
	index.batch_index = 4;
	INVALID(bench.prompt.PushKvCache(bench.prompt_cache, index, 0, -1, param));
	INVALID(bench.decoder.PullKvCache(bench.at_prompt, bench.decoder_cache, 4, -1, param));
	INVALID(bench.decoder.PullKvCache(bench.at_prompt, bench.decoder_cache, 0, 0, param));
	bench.Moved(0, 0, 0, 0);
}

void
bad_arguments(void **state)
{
	Bench bench;
	Cache unknown = bench.prompt_cache, on_host = bench.prompt_cache, nameless;
	KvCacheExtParam one{{0, 0}, {0, 0}, 1, {}};
	CacheIndex index = bench.at_decoder;

	(void)state;
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {}, {}));
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {}));
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0, 1}, {0}));
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {4}, {0}));
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {4}));
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0, 1}, {2, 2}));
	index.batch_index = 1;
	INVALID(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {0}));
	on_host.cache_desc.placement = CachePlacement::kHost;
	INVALID(bench.prompt.PushKvBlocks(on_host, bench.at_decoder, {0}, {0}));
	/* A cache known by its id alone needs a range; with one it is enough. */
	nameless.cache_id = bench.prompt_cache.cache_id;
	INVALID(bench.prompt.PushKvBlocks(nameless, bench.at_decoder, {0}, {0}));
	OK(bench.prompt.PushKvBlocks(nameless, bench.at_decoder, {0}, {0}, one));
	nameless.cache_desc.num_tensors = 8;
	INVALID(bench.prompt.PushKvBlocks(nameless, bench.at_decoder, {0}, {0}));
	bench.Reset();

	unknown.cache_id = 77;
	IS(LLM_KV_CACHE_NOT_EXIST,
	   bench.prompt.PushKvBlocks(unknown, bench.at_decoder, {0}, {0}, one));
	IS(LLM_KV_CACHE_NOT_EXIST,
	   bench.decoder.PullKvBlocks(bench.at_prompt, unknown, {0}, {0}, one));
	for (int64_t id : {int64_t{77}, int64_t{0}, int64_t{-1}}) {
		index = {1, id, 0, {}};
		IS(LLM_KV_CACHE_NOT_EXIST,
		   bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {0}, one));
	}
	index = {55, 1, 0, {}};
	IS(LLM_NOT_YET_LINK, bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {0}, one));
	IS(LLM_NOT_YET_LINK, bench.decoder.PullKvBlocks(index, bench.decoder_cache, {0}, {0}, one));
	index = {1, 1, 0, {}}; /* its own */
	INVALID(bench.decoder.PullKvBlocks(index, bench.decoder_cache, {0}, {0}, one));
	INVALID(bench.decoder.PullKvBlocks(bench.at_prompt, bench.decoder_cache, {}, {}));
	INVALID(bench.decoder.PullKvBlocks(bench.at_prompt, bench.decoder_cache, {0}, {0, 1}));
	INVALID(bench.decoder.PullKvBlocks(bench.at_prompt, bench.decoder_cache, {4}, {0}));
	INVALID(bench.decoder.PullKvBlocks(bench.at_prompt, bench.decoder_cache, {0}, {4}));
	index = {0, 1, 1, {}};
	INVALID(bench.decoder.PullKvBlocks(index, bench.decoder_cache, {0}, {0}));
	bench.Moved(0, 0, 0, 0);
}

/* Strict by default, a label when asked for. */
void
roles(void **state)
{
	(void)state;
	{
		Bench bench;

		IS(LLM_FAILED,
		   bench.decoder.PushKvBlocks(bench.decoder_cache, bench.at_prompt, {0}, {0}));
		assert_non_null(std::strstr(GetLastErrorMessage(), "role"));
		IS(LLM_FAILED,
		   bench.prompt.PullKvBlocks(bench.at_decoder, bench.prompt_cache, {0}, {0}));
		bench.Moved(0, 0, 0, 0);
	}
	LlmDataDist one(0, LlmRole::kDecoder), other(1, LlmRole::kMix);
	uint16_t port = FreePorts(1)[0];
	Tensors src(1, 1), dst(1, 1000);
	CacheDesc desc = DescOf(1, DT_INT32, {4, 16});
	Cache cache;
	int64_t id = 0;

	cache.cache_desc = desc;
	OK(one.Initialize(OptionsOf('A', port, {{"kvpush.role_rule", "label"}})));
	OK(other.Initialize(OptionsOf('B', 0)));
	OK(one.RegisterKvCache(desc, src.Addresses(), {}, cache.cache_id));
	OK(other.RegisterKvCache(desc, dst.Addresses(), {}, id));
	OK(Link(other, 0, port));
	OK(one.PushKvBlocks(cache, CacheIndex{1, id, 0, {}}, {0}, {3}, {{0, 0}, {0, 0}, 1, {}}));
	assert_memory_equal(&dst.data[0][48], &src.data[0][0], 64);
}

void
register_and_unregister(void **state)
{
	LlmDataDist llm(3, LlmRole::kMix);
	Tensors tensors(2, 0);
	CacheDesc desc = DescOf(2, DT_INT32, {4, 16});
	int64_t id = 0, again = 0;

	(void)state;
	IS(LLM_FAILED, llm.RegisterKvCache(desc, tensors.Addresses(), {}, id));
	OK(llm.Initialize(OptionsOf('A', 0)));
	INVALID(llm.RegisterKvCache(desc, {}, {}, id));
	INVALID(llm.RegisterKvCache(desc, {tensors.Addresses()[0]}, {}, id));
	INVALID(llm.RegisterKvCache(desc, {tensors.Addresses()[0], 0}, {}, id));
	for (const std::vector<int64_t> &shape : {std::vector<int64_t>{},
						  {0, 16},
						  {4, -1},
						  {std::numeric_limits<int64_t>::max(), 2},
						  std::vector<int64_t>(32, 1)})
		INVALID(llm.RegisterKvCache(DescOf(2, DT_INT32, shape), tensors.Addresses(), {},
					    id));
	INVALID(llm.RegisterKvCache(DescOf(2, DT_UNDEFINED, {4, 16}), tensors.Addresses(), {}, id));
	assert_int_equal(id, 0);
	OK(llm.RegisterKvCache(desc, tensors.Addresses(), {}, id));
	assert_int_equal(id, 1);
	OK(llm.RegisterKvCache(desc, tensors.Addresses(), {}, again)); /* the same memory */
	assert_int_equal(again, 2);
	OK(llm.UnregisterKvCache(id));
	OK(llm.UnregisterKvCache(id));
	OK(llm.UnregisterKvCache(4711));
	OK(llm.DeallocateCache(4711));
	OK(llm.UnregisterKvCache(again));
}

void
initialize_and_finalize(void **state)
{
	LlmDataDist llm(3, LlmRole::kPrompt), wrong(4, static_cast<LlmRole>(9));
	std::vector<Status> rets;
	Cache cache;
	int64_t id;

	(void)state;
	llm.Finalize(); /* only that */
	IS(LLM_FAILED, llm.SetRole(LlmRole::kMix));
	IS(LLM_FAILED, llm.LinkLlmClusters(Clusters(1, 1), rets));
	IS(LLM_FAILED, llm.UnlinkLlmClusters(Clusters(1, 1), rets));
	IS(LLM_FAILED, llm.AllocateCache(DescOf(1, DT_INT8, {1, 1}), cache));
	IS(LLM_FAILED, llm.DeallocateCache(1));
	IS(LLM_FAILED, llm.UnregisterKvCache(1));
	IS(LLM_FAILED, llm.PushKvBlocks(cache, {}, {0}, {0}));
	IS(LLM_FAILED, llm.PullKvBlocks({}, cache, {0}, {0}));
	IS(LLM_FAILED, llm.PushKvCache(cache, {}));
	IS(LLM_FAILED, llm.PullKvCache({}, cache));
	IS(LLM_FAILED, llm.CopyKvCache(cache, cache));
	IS(LLM_FAILED, llm.CopyKvBlocks(cache, cache, {0}, {{0}}));
	assert_true(rets.empty());

	INVALID(wrong.Initialize(OptionsOf('A', 0)));
	INVALID(llm.Initialize({}));
	for (const char *device : {"", "x", "-1", "1x"})
		INVALID(llm.Initialize(OptionsOf('A', 0, {{OPTION_DEVICE_ID, device}})));
	for (const char *time : {"", "0", "-1", "1s", "99999999999"})
		INVALID(llm.Initialize(OptionsOf('A', 0, {{OPTION_SYNC_CACHE_WAIT_TIME, time}})));
	for (const char *listen :
	     {"", "127.0.0.1", "localhost:1", "127.0.0.1:65536", "[::1]", ":1"})
		INVALID(llm.Initialize(OptionsOf('A', 0, {{OPTION_LISTEN_IP_INFO, listen}})));
	for (const char *pool : {"", "{}", "{", "{\"buf_pool_size\": 0}", "{\"buf_pool_size\": -5}",
				 "{\"buf_pool_size\": \"5\"}", "{\"buf_pool_size\": 5"})
		INVALID(llm.Initialize(OptionsOf('A', 0, {{OPTION_BUF_POOL_CFG, pool}})));
	INVALID(llm.Initialize(OptionsOf('A', 0, {{OPTION_TRANSFER_BACKEND, "other"}})));
	for (const char *config : {"", "x", "[]", "{\"a\":}", "{\"a\": 1,}", "{\"a\": 1} x"})
		INVALID(llm.Initialize(
			OptionsOf('A', 0, {{OPTION_GLOBAL_RESOURCE_CONFIG, config}})));
	INVALID(llm.Initialize(OptionsOf('A', 0, {{"llm.NoSuchOption", "1"}})));
	INVALID(llm.Initialize(OptionsOf('A', 0, {{"kvpush.no_such_setting", "1"}})));
	INVALID(llm.Initialize(OptionsOf('A', 0, {{"llm.RdmaTrafficClass", "256"}})));
	OK(llm.Initialize(OptionsOf('A', 0,
				    {{OPTION_DEVICE_ID, "0;1"},
				     {OPTION_ENABLE_SET_ROLE, "0"},
				     {"llm.EnableCacheManager", "1"},
				     {"llm.RdmaTrafficClass", "132"},
				     {"llm.RdmaServiceLevel", "4"},
				     {"ge.exec.deviceId", "0"}})));
	OK(llm.Initialize({})); /* again: nothing changes */
	IS(LLM_FEATURE_NOT_ENABLED, llm.SetRole(LlmRole::kMix));
	llm.Finalize();
	IS(LLM_FAILED, llm.RegisterKvCache(DescOf(1, DT_INT8, {1, 1}), {1}, {}, id));
	assert_null(llm.GetEngine());
	OK(llm.Initialize(OptionsOf('A', 0)));
	assert_non_null(llm.GetEngine());
}

void
link_failures(void **state)
{
	std::vector<uint16_t> ports = FreePorts(3);
	LlmDataDist llm(3, LlmRole::kDecoder), other(4, LlmRole::kPrompt);
	std::vector<ClusterInfo> clusters = Clusters(4, ports[0]);
	std::vector<Status> rets = {12345};
	int mute = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {};

	(void)state;
	OK(llm.Initialize(OptionsOf('A', 0)));
	INVALID(llm.LinkLlmClusters({}, rets));
	INVALID(llm.LinkLlmClusters(clusters, rets, 0));
	INVALID(llm.LinkLlmClusters(clusters, rets, -1));
	INVALID(llm.UnlinkLlmClusters({}, rets));
	INVALID(llm.UnlinkLlmClusters(clusters, rets, 0));
	clusters[0].remote_ip_infos[0].ip = "nonsense";
	INVALID(llm.LinkLlmClusters(clusters, rets));
	clusters[0].remote_ip_infos.clear();
	INVALID(llm.LinkLlmClusters(clusters, rets));
	assert_int_equal(rets.size(), 1); /* untouched */
	/* Nobody listens. */
	IS(LLM_LINK_FAILED, Link(llm, 4, ports[0]));
	/* Somebody takes the connection and says nothing. */
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons(ports[1]);
	assert_int_equal(bind(mute, reinterpret_cast<sockaddr *>(&address), sizeof(address)), 0);
	assert_int_equal(listen(mute, 8), 0);
	IS(LLM_TIMEOUT, Link(llm, 4, ports[1], 300));
	close(mute);
	/* Twice; several in one call: a result for each, in order, behind what is there. */
	OK(other.Initialize(OptionsOf('B', ports[2])));
	clusters = {Clusters(9, ports[0])[0], Clusters(4, ports[2])[0]};
	IS(LLM_LINK_FAILED, llm.LinkLlmClusters(clusters, rets, 10000));
	assert_int_equal(rets.size(), 3);
	assert_int_equal(rets[0], 12345);
	assert_int_equal(rets[1], LLM_LINK_FAILED);
	assert_int_equal(rets[2], LLM_SUCCESS);
	IS(LLM_ALREADY_LINK, Link(llm, 4, ports[2]));
	OK(Unlink(llm, 4, ports[2]));
	OK(Unlink(llm, 4, ports[2])); /* unknown by now */
	OK(Link(llm, 0, ports[2]));   /* whatever the caller calls it */
	OK(Unlink(llm, 0, ports[2]));
}

/* Upstream looks at it when linking. */
void
local_comm_res(void **state)
{
	std::vector<uint16_t> ports = FreePorts(1);
	LlmDataDist good(3, LlmRole::kMix), other(4, LlmRole::kMix);
	std::vector<Status> rets;

	(void)state;
	OK(other.Initialize(OptionsOf('B', ports[0], {{OPTION_LOCAL_COMM_RES, ""}})));
	for (const char *text : {"{", "[]", "{\"version\": \"9\"}", "x"}) {
		LlmDataDist bad(5, LlmRole::kMix);

		OK(bad.Initialize(OptionsOf('A', 0, {{OPTION_LOCAL_COMM_RES, text}})));
		assert_int_not_equal(bad.LinkLlmClusters(Clusters(4, ports[0]), rets, 10000),
				     LLM_SUCCESS);
	}
	OK(good.Initialize(
		OptionsOf('A', 0,
			  {{OPTION_LOCAL_COMM_RES,
			    "{\"version\": \"1.3\", \"endpoint_list\": [{\"a\": 1e3}]}"},
			   {OPTION_TRANSFER_BACKEND, "hixl"},
			   {OPTION_GLOBAL_RESOURCE_CONFIG, "{\"connect_pool.thread_num\": 2}"}})));
	OK(Link(good, 4, ports[0]));
	OK(Unlink(good, 4, ports[0]));
}

void
switch_role_sequence(void **state)
{
	std::vector<uint16_t> ports = FreePorts(1);
	std::string address = "127.0.0.1:" + std::to_string(ports[0]);
	const std::map<AscendString, AscendString> listen = {
		{OPTION_LISTEN_IP_INFO, address.c_str()}};
	LlmDataDist llm(3, LlmRole::kPrompt), other(4, LlmRole::kDecoder);

	(void)state;
	OK(llm.Initialize(OptionsOf('A', ports[0])));
	OK(other.Initialize(OptionsOf('B', 0)));
	OK(llm.SetRole(LlmRole::kDecoder));
	IS(LLM_LINK_FAILED, Link(other, 3, ports[0]));
	OK(llm.SetRole(LlmRole::kPrompt, listen));
	OK(llm.SetRole(LlmRole::kDecoder, listen));
	OK(llm.SetRole(LlmRole::kMix));
	OK(llm.SetRole(LlmRole::kPrompt, listen));
	OK(Link(other, 3, ports[0]));
	IS(LLM_EXIST_LINK, llm.SetRole(LlmRole::kDecoder));
	OK(Unlink(other, 3, ports[0]));
	OK(llm.SetRole(LlmRole::kPrompt));
	OK(llm.SetRole(LlmRole::kDecoder, listen));
	OK(llm.SetRole(LlmRole::kDecoder));
	INVALID(llm.SetRole(static_cast<LlmRole>(0)));
	INVALID(llm.SetRole(LlmRole::kEnd));
	INVALID(llm.SetRole(LlmRole::kMix, {{OPTION_LISTEN_IP_INFO, "x"}}));
	INVALID(llm.SetRole(LlmRole::kMix, {{"llm.NoSuchOption", "x"}}));
}

/* Three in one process, one of them client and server at once. */
void
multi_link_and_unlink(void **state)
{
	std::vector<uint16_t> ports = FreePorts(2);
	LlmDataDist prompt(0, LlmRole::kPrompt), decoder(1, LlmRole::kDecoder),
		second(2, LlmRole::kPrompt);
	Tensors of_prompt(2, 1), of_decoder(2, 1000), of_second(2, 2000);
	CacheDesc desc = DescOf(2, DT_INT32, {4, 16});
	KvCacheExtParam all{{0, 0}, {0, 0}, 2, {}};
	Cache a, b, c;

	(void)state;
	OK(prompt.Initialize(OptionsOf('A', ports[0])));
	OK(decoder.Initialize(OptionsOf('B', ports[1])));
	OK(second.Initialize(OptionsOf('A', 0)));
	OK(prompt.RegisterKvCache(desc, of_prompt.Addresses(), {}, a.cache_id));
	OK(decoder.RegisterKvCache(desc, of_decoder.Addresses(), {}, b.cache_id));
	OK(second.RegisterKvCache(desc, of_second.Addresses(), {}, c.cache_id));
	OK(Link(decoder, 0, ports[0]));
	OK(Link(second, 1, ports[1]));
	OK(prompt.PushKvBlocks(a, CacheIndex{1, 1, 0, {}}, {0}, {0}, all));
	OK(second.PushKvBlocks(c, CacheIndex{1, 1, 0, {}}, {0}, {1}, all));
	OK(decoder.PullKvBlocks(CacheIndex{0, 1, 0, {}}, b, {2}, {2}, all));
	for (size_t tensor = 0; tensor < 2; tensor++) {
		assert_memory_equal(&of_decoder.data[tensor][0], &of_prompt.data[tensor][0], 64);
		assert_memory_equal(&of_decoder.data[tensor][16], &of_second.data[tensor][0], 64);
		assert_memory_equal(&of_decoder.data[tensor][32], &of_prompt.data[tensor][32], 64);
	}
	OK(Unlink(decoder, 0, ports[0]));
	OK(Unlink(second, 1, ports[1]));
	IS(LLM_NOT_YET_LINK, prompt.PushKvBlocks(a, CacheIndex{1, 1, 0, {}}, {0}, {0}, all));
}

/* The sequence of the PushKvBlocks page: caches from AllocateCache. */
void
sample_of_push_kv_blocks(void **state)
{
	uint16_t port = FreePorts(1)[0];
	LlmDataDist prompt(1, LlmRole::kPrompt), decoder(0, LlmRole::kDecoder);
	const std::vector<uint64_t> src_blocks{0, 1, 2, 3}, dst_blocks{3, 2, 1, 0};
	CacheDesc cache_desc{};
	Cache cache{}, remote{};
	CacheIndex cache_index{0, 1};
	KvCacheExtParam ext_param{};

	(void)state;
	OK(prompt.Initialize(
		OptionsOf('A', port, {{OPTION_BUF_POOL_CFG, "{\"buf_pool_size\": 4096}"}})));
	OK(decoder.Initialize(OptionsOf('B', 0)));
	cache_desc.num_tensors = 4;
	cache_desc.data_type = DT_INT32;
	cache_desc.shape = {4, 16};
	OK(prompt.AllocateCache(cache_desc, cache));
	OK(decoder.AllocateCache(cache_desc, remote));
	assert_int_equal(cache.tensor_addrs.size(), 4);
	OK(Link(decoder, 1, port));
	for (uintptr_t address : cache.tensor_addrs) {
		for (int32_t i = 0; i < 64; i++)
			reinterpret_cast<int32_t *>(address)[i] = static_cast<int32_t>(address) + i;
	}
	ext_param.src_layer_range = {3, 3};
	ext_param.dst_layer_range = {3, 3};
	ext_param.tensor_num_per_layer = 1;
	OK(prompt.PushKvBlocks(cache, cache_index, src_blocks, dst_blocks, ext_param));
	for (size_t tensor = 0; tensor < 4; tensor++) {
		for (size_t i = 0; i < 4; i++) {
			const char *from = reinterpret_cast<char *>(cache.tensor_addrs[tensor]);
			const char *to = reinterpret_cast<char *>(remote.tensor_addrs[tensor]);
			bool is_equal = std::memcmp(from + 64 * i, to + 64 * (3 - i), 64) == 0;

			assert_true(is_equal == (tensor == 3));
		}
	}
	/* The pool has 4096 bytes, of which 1024 are used. */
	cache_desc.shape = {4, 64};
	IS(LLM_DEVICE_OUT_OF_MEMORY, prompt.AllocateCache(cache_desc, remote));
	OK(prompt.DeallocateCache(cache.cache_id));
	OK(prompt.AllocateCache(cache_desc, remote));
	cache_desc.placement = CachePlacement::kHost;
	INVALID(prompt.AllocateCache(cache_desc, cache));
	cache_desc.placement = CachePlacement::kDevice;
	cache_desc.num_tensors = 0;
	INVALID(prompt.AllocateCache(cache_desc, cache));
}

void
copies(void **state)
{
	LlmDataDist llm(3, LlmRole::kMix);
	std::vector<int32_t> on_host(64, 0);
	Cache a, b, host;

	(void)state;
	OK(llm.Initialize(OptionsOf('A', 0)));
	OK(llm.AllocateCache(DescOf(1, DT_INT32, {4, 16}), a));
	OK(llm.AllocateCache(DescOf(1, DT_INT32, {4, 16}), b));
	int32_t *from = reinterpret_cast<int32_t *>(a.tensor_addrs[0]);
	int32_t *to = reinterpret_cast<int32_t *>(b.tensor_addrs[0]);
	for (int32_t i = 0; i < 64; i++)
		from[i] = i + 1;
	OK(llm.CopyKvCache(a, b, 1, 2));
	assert_memory_equal(to + 32, from + 16, 64);
	assert_int_equal(to[0] | to[16] | to[48], 0);
	OK(llm.CopyKvCache(a, b, 0, 0, 8, 4));
	assert_int_equal(to[0] | to[1] | to[3], 0);
	assert_int_equal(to[2], 3);
	OK(llm.CopyKvBlocks(a, b, {0, 1}, {{3, 2}, {0, 1}}));
	assert_memory_equal(to, from, 128);
	assert_memory_equal(to + 48, from, 64);
	assert_memory_equal(to + 32, from + 16, 64);
	INVALID(llm.CopyKvCache(a, b, 4, 0));
	INVALID(llm.CopyKvCache(a, b, 0, 0, 64));
	INVALID(llm.CopyKvCache(a, b, 0, 0, 4, 64));
	INVALID(llm.CopyKvCache(a, b, 0, 0, 0, 0));
	INVALID(llm.CopyKvBlocks(a, b, {}, {{}}));
	INVALID(llm.CopyKvBlocks(a, b, {0}, {}));
	INVALID(llm.CopyKvBlocks(a, b, {0, 1}, {{0}}));
	INVALID(llm.CopyKvBlocks(a, b, {0}, {{4}}));
	/* Host memory that nobody registered, by its address: out and in, not from host to host. */
	host.cache_desc = DescOf(1, DT_INT32, {4, 16});
	host.cache_desc.placement = CachePlacement::kHost;
	host.tensor_addrs = {reinterpret_cast<uintptr_t>(on_host.data())};
	OK(llm.CopyKvCache(a, host, 3, 1));
	assert_memory_equal(&on_host[16], from + 48, 64);
	OK(llm.CopyKvBlocks(host, b, {1},
			    {{
				    0,
			    }}));
	assert_memory_equal(to, from + 48, 64);
	INVALID(llm.CopyKvCache(host, a));
	INVALID(llm.CopyKvBlocks(host, host, {0}, {{1}}));
	INVALID(llm.CopyKvBlocks(host, b, {4}, {{0}}));
	INVALID(llm.CopyKvBlocks(host, b, {0}, {{4}}));
	host.tensor_addrs = {0};
	INVALID(llm.CopyKvBlocks(host, b, {0}, {{0}}));
	a.cache_id = 99;
	IS(LLM_KV_CACHE_NOT_EXIST, llm.CopyKvBlocks(a, b, {0}, {{0}}));
}

/* Finalize while another thread pushes: its calls end, and say so. */
void
finalize_under_load(void **state)
{
	(void)state;
	for (int round = 0; round < 5; round++) {
		auto bench = std::make_unique<Bench>();
		std::atomic<uint64_t> good{0};
		Status last = LLM_SUCCESS;
		std::thread pusher([&] {
			while (last == LLM_SUCCESS) {
				last = bench->prompt.PushKvBlocks(
					bench->prompt_cache, bench->at_decoder, kBlocks, kBlocks);
				good += last == LLM_SUCCESS;
			}
		});
		while (good < 20)
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		if (round % 2 == 0)
			bench->prompt.Finalize();
		else
			bench->decoder.Finalize();
		pusher.join();
		assert_true(last == LLM_FAILED || last == LLM_NOT_YET_LINK ||
			    last == LLM_KV_CACHE_NOT_EXIST);
	}
}

/* A cache that is registered after linking is known at once; one that is gone, too. */
void
register_after_linking(void **state)
{
	Bench bench;
	Tensors late(10, 5);
	int64_t id = 0;
	KvCacheExtParam param{{0, 9}, {0, 9}, 1, {}};

	(void)state;
	OK(bench.decoder.RegisterKvCache(bench.decoder_cache.cache_desc, late.Addresses(), {}, id));
	CacheIndex index{1, id, 0, {}};
	OK(bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {0}, param));
	assert_memory_equal(&late.data[9][0], &bench.src.data[9][0], 64);
	OK(bench.decoder.UnregisterKvCache(id));
	IS(LLM_KV_CACHE_NOT_EXIST,
	   bench.prompt.PushKvBlocks(bench.prompt_cache, index, {0}, {0}, param));
}

} // namespace

int
main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push_with_range_and_tensor_num),
		cmocka_unit_test(pull_with_range_and_tensor_num),
		cmocka_unit_test(cache_slots_and_sizes),
		cmocka_unit_test(bad_arguments),
		cmocka_unit_test(roles),
		cmocka_unit_test(register_and_unregister),
		cmocka_unit_test(initialize_and_finalize),
		cmocka_unit_test(link_failures),
		cmocka_unit_test(local_comm_res),
		cmocka_unit_test(switch_role_sequence),
		cmocka_unit_test(multi_link_and_unlink),
		cmocka_unit_test(sample_of_push_kv_blocks),
		cmocka_unit_test(copies),
		cmocka_unit_test(finalize_under_load),
		cmocka_unit_test(register_after_linking),
	};
	int failed = 0;

	alarm(600);
	for (const std::string &name : Transports()) {
		transport = name;
		failed += cmocka_run_group_tests_name(name.c_str(), tests, nullptr, nullptr);
	}
	return failed;
}
