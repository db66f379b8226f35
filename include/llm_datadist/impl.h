/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h - the second half of llm_datadist.h, which includes it */
#ifndef LLM_DATADIST_IMPL_H
#define LLM_DATADIST_IMPL_H

namespace llm_datadist
{
namespace detail
{

constexpr size_t kLinksAtOnce = 16;
constexpr uint64_t kTimeoutMaxMs = 3600000; /* of one call of kvpush */

/* kvpush's status as LLM-DataDist's, keeping its line. Those of LLM-DataDist have the same numbers. */
inline Status
Translate(kvp_status status)
{
	if (status == KVP_SUCCESS)
		return LLM_SUCCESS;
	LastMessage() = kvp_error_message();
	if (status < KVP_STATUS_OWN || status == KVP_FAILED)
		return status;
	switch (status) {
	case KVP_PEER_LOST:
	case KVP_PEER_RESTARTED:
		return LLM_NOT_YET_LINK;
	case KVP_NO_CREDIT:
		return LLM_TIMEOUT;
	default:
		return LLM_FAILED;
	}
}

inline Status
TranslateLink(kvp_status status)
{
	switch (status) {
	case KVP_ADDRESS:
	case KVP_PROTOCOL:
	case KVP_NO_TRANSPORT:
	case KVP_PEER_LOST:
	case KVP_PEER_RESTARTED:
		LastMessage() = kvp_error_message();
		return LLM_LINK_FAILED;
	default:
		return Translate(status);
	}
}

/* Tensors of one cache: all have the same shape. */
struct Layout {
	uint64_t num_blocks = 0;
	uint64_t block_bytes = 0;
	std::vector<uintptr_t> addrs;
};

inline Status
ReadShape(const CacheDesc &desc, Layout *layout)
{
	kvp_tensor tensor;

	if (kvp_tensors_uniform(static_cast<uint32_t>(desc.data_type), desc.shape.data(),
				desc.shape.size(), nullptr, 1, &tensor) != KVP_SUCCESS)
		return Translate(KVP_PARAM_INVALID);
	layout->num_blocks = tensor.num_blocks;
	layout->block_bytes = tensor.block_bytes;
	return LLM_SUCCESS;
}

/* Ranges and tensors per layer, as upstream checks them before it looks at caches. */
inline Status
CheckRange(const char *name, const std::pair<int32_t, int32_t> &range)
{
	if (range.first < -1 || range.second < -1 || range.first > range.second)
		return Fail(LLM_PARAM_INVALID,
			    "%s is {%d, %d}; bounds are at least -1, and first is at most second",
			    name, range.first, range.second);
	return LLM_SUCCESS;
}

inline Status
CheckExtParam(const KvCacheExtParam &ext)
{
	Status status = CheckRange("src_layer_range", ext.src_layer_range);

	if (status == LLM_SUCCESS)
		status = CheckRange("dst_layer_range", ext.dst_layer_range);
	if (status == LLM_SUCCESS && ext.tensor_num_per_layer == 0)
		status = Fail(LLM_PARAM_INVALID, "tensor_num_per_layer is 0");
	if (status == LLM_SUCCESS &&
	    static_cast<int64_t>(ext.src_layer_range.second) - ext.src_layer_range.first !=
		    static_cast<int64_t>(ext.dst_layer_range.second) - ext.dst_layer_range.first)
		status = Fail(LLM_PARAM_INVALID,
			      "src_layer_range and dst_layer_range differ in width");
	return status;
}

inline Status
CheckBlocks(const std::vector<uint64_t> &src, const std::vector<uint64_t> &dst)
{
	if (src.empty())
		return Fail(LLM_PARAM_INVALID, "src_blocks is empty");
	if (src.size() != dst.size())
		return Fail(LLM_PARAM_INVALID, "src_blocks has %zu entries, dst_blocks %zu",
			    src.size(), dst.size());
	return LLM_SUCCESS;
}

inline kvp_layers
LayersOf(const std::pair<int32_t, int32_t> &range)
{
	return kvp_layers{range.first, range.second};
}

} // namespace detail

class LlmDataDist::LlmDataDistImpl
{
      public:
	LlmDataDistImpl(uint64_t cluster_id, LlmRole role) : cluster_id_(cluster_id), role_(role)
	{
	}
	~LlmDataDistImpl()
	{
		Finalize();
	}
	LlmDataDistImpl(const LlmDataDistImpl &) = delete;
	LlmDataDistImpl &operator=(const LlmDataDistImpl &) = delete;

	/* Run `call` unless there is no engine. Nothing that it throws gets out. */
	template <typename Call> Status Run(const Call &call)
	{
		try {
			std::shared_lock<std::shared_mutex> lock(gate_);

			if (engine_ == nullptr || is_finalizing_)
				return detail::Fail(LLM_FAILED, "not initialized");
			return call();
		} catch (const std::bad_alloc &) {
			return LLM_OUT_OF_MEMORY;
		} catch (const std::exception &error) {
			return detail::Fail(LLM_FAILED, "%s", error.what());
		}
	}

	Status Initialize(const Options &options)
	{
		try {
			return InitializeOnce(options);
		} catch (const std::bad_alloc &) {
			return LLM_OUT_OF_MEMORY;
		}
	}

	void Finalize()
	{
		std::vector<uint64_t> peers;
		size_t count = 0;

		is_finalizing_ = true;
		{
			std::shared_lock<std::shared_mutex> lock(gate_);

			/* Calls that are in flight end with their links. */
			if (engine_ != nullptr &&
			    kvp_link_list(engine_, nullptr, 0, &count) == KVP_SUCCESS) {
				peers.resize(count);
				(void)kvp_link_list(engine_, peers.data(), count, &count);
				peers.resize(std::min(count, peers.size()));
				for (uint64_t peer : peers)
					(void)kvp_unlink(engine_, peer, 1000, 0);
			}
		}
		std::unique_lock<std::shared_mutex> lock(gate_);
		kvp_close(engine_);
		engine_ = nullptr;
		caches_.clear();
		linked_.clear();
		allocated_bytes_ = 0;
		is_finalizing_ = false;
	}

	Status SetRole(LlmRole role, const Options &options)
	{
		std::string listen;

		if (!IsRole(role))
			return detail::Fail(LLM_PARAM_INVALID, "role is %d",
					    static_cast<int>(role));
		if (!settings_.may_set_role)
			return detail::Fail(LLM_FEATURE_NOT_ENABLED, "%s is 0",
					    OPTION_ENABLE_SET_ROLE);
		for (const auto &option : options) {
			std::string key = option.first.GetString();

			if (key == OPTION_LISTEN_IP_INFO)
				listen = detail::FirstOf(option.second.GetString());
			else if (key != OPTION_DEVICE_ID && !detail::IsKnownAndIgnored(key))
				return detail::Fail(LLM_PARAM_INVALID,
						    "option %s is not known here", key.c_str());
			if (key == OPTION_LISTEN_IP_INFO && !detail::IsListenAddress(listen))
				return detail::Fail(LLM_PARAM_INVALID,
						    "%s is '%s': it is ipv4:port or [ipv6]:port",
						    OPTION_LISTEN_IP_INFO, listen.c_str());
		}
		return detail::Translate(
			kvp_set_role(engine_, static_cast<uint32_t>(role), listen.c_str()));
	}

	/* --- links ------------------------------------------------------------------- */

	Status Link(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
		    int32_t timeout_ms)
	{
		Status status = CheckClusters(clusters, timeout_ms, true);

		if (status == LLM_SUCCESS)
			status = settings_.CheckLocalCommRes();
		if (status != LLM_SUCCESS)
			return status;
		return ForEach(clusters, rets, [&](const ClusterInfo &cluster) {
			return LinkOne(cluster, static_cast<uint32_t>(timeout_ms));
		});
	}

	Status Unlink(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
		      int32_t timeout_ms, bool is_forced)
	{
		Status status = CheckClusters(clusters, timeout_ms, false);

		if (status != LLM_SUCCESS)
			return status;
		return ForEach(clusters, rets, [&](const ClusterInfo &cluster) {
			return detail::Translate(kvp_unlink(engine_, PeerOf(cluster),
							    static_cast<uint32_t>(timeout_ms),
							    is_forced ? 1 : 0));
		});
	}

	/* --- caches ------------------------------------------------------------------ */

	Status Allocate(const CacheDesc &desc, Cache &cache)
	{
		std::vector<kvp_tensor> tensors(std::min(desc.num_tensors, KVP_TENSORS_MAX + 1));
		detail::Layout layout;
		int64_t id = 0;
		uint64_t bytes = 0;
		Status status = detail::ReadShape(desc, &layout);

		if (status != LLM_SUCCESS)
			return status;
		if (desc.placement != CachePlacement::kDevice)
			return detail::Fail(LLM_PARAM_INVALID, "placement is not kDevice");
		for (kvp_tensor &tensor : tensors)
			tensor = kvp_tensor{nullptr, layout.num_blocks, layout.block_bytes,
					    layout.block_bytes};
		if (__builtin_mul_overflow(layout.num_blocks * layout.block_bytes, desc.num_tensors,
					   &bytes))
			return detail::Fail(LLM_PARAM_INVALID,
					    "the cache has more than 2^64 bytes");
		/* Not while another thread finds room for its own. */
		std::lock_guard<std::mutex> lock(mutex_);
		if (bytes > settings_.pool_bytes - allocated_bytes_)
			return detail::Fail(
				LLM_DEVICE_OUT_OF_MEMORY,
				"%llu bytes do not fit buf_pool_size, of which %llu are used",
				static_cast<unsigned long long>(bytes),
				static_cast<unsigned long long>(allocated_bytes_));
		status = detail::Translate(
			kvp_cache_allocate(engine_, tensors.data(), desc.num_tensors, &id));
		if (status != LLM_SUCCESS)
			return status == LLM_OUT_OF_MEMORY ? LLM_DEVICE_OUT_OF_MEMORY : status;
		for (const kvp_tensor &tensor : tensors)
			layout.addrs.push_back(reinterpret_cast<uintptr_t>(tensor.base));
		cache.cache_id = id;
		cache.tensor_addrs = layout.addrs;
		cache.cache_desc = desc;
		allocated_bytes_ += bytes;
		caches_[id] = Known{std::move(layout), bytes};
		return LLM_SUCCESS;
	}

	Status Register(const CacheDesc &desc, const std::vector<uint64_t> &addrs,
			int64_t &cache_id)
	{
		std::vector<kvp_tensor> tensors;
		detail::Layout layout;
		int64_t id = 0;
		Status status;

		if (addrs.empty() || addrs.size() != desc.num_tensors)
			return detail::Fail(LLM_PARAM_INVALID,
					    "addrs has %zu entries, num_tensors is %u",
					    addrs.size(), desc.num_tensors);
		if (std::find(addrs.begin(), addrs.end(), 0U) != addrs.end())
			return detail::Fail(LLM_PARAM_INVALID, "an address is 0");
		status = detail::ReadShape(desc, &layout);
		if (status != LLM_SUCCESS)
			return status;
		for (uint64_t address : addrs) {
			tensors.push_back(kvp_tensor{reinterpret_cast<void *>(address),
						     layout.num_blocks, layout.block_bytes,
						     layout.block_bytes});
			layout.addrs.push_back(static_cast<uintptr_t>(address));
		}
		std::lock_guard<std::mutex> lock(mutex_);
		status = detail::Translate(
			kvp_cache_register(engine_, tensors.data(), desc.num_tensors, &id));
		if (status != LLM_SUCCESS)
			return status;
		caches_[id] = Known{std::move(layout), 0};
		cache_id = id;
		return LLM_SUCCESS;
	}

	/* Unknown: LLM_SUCCESS. */
	Status Release(int64_t cache_id)
	{
		Status status = detail::Translate(kvp_cache_release(engine_, cache_id));
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = caches_.find(cache_id);

		if (status == LLM_SUCCESS && found != caches_.end()) {
			allocated_bytes_ -= found->second.allocated_bytes;
			caches_.erase(found);
		}
		return status;
	}

	/* --- push and pull -------------------------------------------------------------- */

	Status Push(const Cache &src, const CacheIndex &dst,
		    const std::vector<uint64_t> &src_blocks,
		    const std::vector<uint64_t> &dst_blocks, uint64_t bytes_per_block,
		    const KvCacheExtParam &ext)
	{
		kvp_push push = {};
		Status status = detail::CheckExtParam(ext);

		if (status == LLM_SUCCESS)
			status = CheckSource(src, ext);
		if (status != LLM_SUCCESS)
			return status;
		push.src_cache = src.cache_id;
		push.dst.cluster = dst.cluster_id;
		push.dst.cache = dst.cache_id;
		push.src_blocks = src_blocks.data();
		push.dst_blocks = dst_blocks.data();
		push.count = src_blocks.size();
		push.src_layers = detail::LayersOf(ext.src_layer_range);
		push.dst_layers = detail::LayersOf(ext.dst_layer_range);
		push.tensors_per_layer = ext.tensor_num_per_layer;
		push.timeout_ms = TimeoutOf(ext, src.cache_desc.num_tensors);
		push.bytes_per_block = bytes_per_block;
		return detail::Translate(kvp_push_blocks(engine_, &push));
	}

	Status Pull(const CacheIndex &src, const Cache &dst,
		    const std::vector<uint64_t> &src_blocks,
		    const std::vector<uint64_t> &dst_blocks, uint64_t bytes_per_block,
		    const KvCacheExtParam &ext)
	{
		kvp_pull pull = {};
		uint32_t num_tensors = 0;
		Status status;

		if (src.cluster_id == cluster_id_)
			return detail::Fail(LLM_PARAM_INVALID, "cluster %llu is this one",
					    static_cast<unsigned long long>(cluster_id_));
		status = CheckDestination(dst, dst_blocks, ext, &num_tensors);
		if (status != LLM_SUCCESS)
			return status;
		pull.src.cluster = src.cluster_id;
		pull.src.cache = src.cache_id;
		pull.dst_cache = dst.cache_id;
		pull.src_blocks = src_blocks.data();
		pull.dst_blocks = dst_blocks.data();
		pull.count = src_blocks.size();
		pull.src_layers = detail::LayersOf(ext.src_layer_range);
		pull.dst_layers = detail::LayersOf(ext.dst_layer_range);
		pull.tensors_per_layer = ext.tensor_num_per_layer;
		pull.timeout_ms = TimeoutOf(ext, num_tensors);
		pull.bytes_per_block = bytes_per_block;
		return detail::Translate(kvp_pull_blocks(engine_, &pull));
	}

	/* --- copies ------------------------------------------------------------------------ */

	/* From a cache to another; either may be known by its addresses alone (cache_id -1). */
	Status Copy(const Cache &src, const Cache &dst, const std::vector<uint64_t> &src_blocks,
		    const std::vector<std::vector<uint64_t>> &dst_lists, uint64_t offset,
		    uint64_t bytes)
	{
		std::vector<const uint64_t *> lists;
		kvp_copy copy = {};

		for (const std::vector<uint64_t> &list : dst_lists) {
			if (list.size() != src_blocks.size())
				return detail::Fail(LLM_PARAM_INVALID,
						    "a list of dst_blocks_list has %zu entries, "
						    "src_blocks %zu",
						    list.size(), src_blocks.size());
			lists.push_back(list.data());
		}
		if (src.cache_id < 0 || dst.cache_id < 0)
			return CopyAddresses(src, dst, src_blocks, dst_lists, offset, bytes);
		copy.src_cache = src.cache_id;
		copy.dst_cache = dst.cache_id;
		copy.src_blocks = src_blocks.data();
		copy.dst_blocks = lists.data();
		copy.lists = lists.size();
		copy.count = src_blocks.size();
		copy.offset = offset;
		copy.bytes_per_block = bytes;
		return detail::Translate(kvp_copy_blocks(engine_, &copy));
	}

	kvp_engine *Engine() const
	{
		return engine_;
	}

      private:
	struct Known {
		detail::Layout layout;
		uint64_t allocated_bytes; /* of the pool */
	};

	static bool IsRole(LlmRole role)
	{
		return role >= LlmRole::kPrompt && role < LlmRole::kEnd;
	}

	Status InitializeOnce(const Options &options)
	{
		std::unique_lock<std::shared_mutex> lock(gate_);
		detail::Settings settings;
		Status status;

		if (engine_ != nullptr)
			return LLM_SUCCESS;
		if (!IsRole(role_))
			return detail::Fail(LLM_PARAM_INVALID, "role is %d",
					    static_cast<int>(role_));
		status = detail::ReadOptions(cluster_id_, role_, options, &settings);
		if (status != LLM_SUCCESS)
			return status;
		status = detail::Translate(kvp_open(&settings.config, &engine_));
		if (status == LLM_SUCCESS)
			settings_ = settings;
		return status;
	}

	static Status CheckClusters(const std::vector<ClusterInfo> &clusters, int32_t timeout_ms,
				    bool is_link)
	{
		if (timeout_ms <= 0 || clusters.empty())
			return detail::Fail(LLM_PARAM_INVALID,
					    "timeout is %d ms, clusters %zu: both are at least 1",
					    timeout_ms, clusters.size());
		for (const ClusterInfo &cluster : clusters) {
			if (is_link && cluster.remote_ip_infos.size() != 1)
				return detail::Fail(LLM_PARAM_INVALID,
						    "a cluster has %zu remote_ip_infos, not 1",
						    cluster.remote_ip_infos.size());
			for (const auto *infos :
			     {&cluster.remote_ip_infos, &cluster.local_ip_infos}) {
				for (const IpInfo &info : *infos) {
					if (!detail::IsIpv4(info.ip.GetString()))
						return detail::Fail(LLM_PARAM_INVALID,
								    "'%s' is no IPv4 address",
								    info.ip.GetString());
				}
			}
		}
		return LLM_SUCCESS;
	}

	/* One result per cluster, in order, behind what is in `rets`; the last that is not SUCCESS is returned. */
	template <typename Call>
	static Status ForEach(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
			      const Call &call)
	{
		std::vector<Status> result(clusters.size(), LLM_FAILED);
		std::vector<std::string> message(clusters.size());
		std::atomic<size_t> next{0};
		std::vector<std::thread> threads;
		Status last = LLM_SUCCESS;
		auto work = [&] {
			for (size_t i; (i = next++) < clusters.size();) {
				result[i] = call(clusters[i]);
				if (result[i] != LLM_SUCCESS)
					message[i] = detail::LastMessage();
			}
		};

		for (size_t i = 1; i < std::min(clusters.size(), detail::kLinksAtOnce); i++)
			threads.emplace_back(work);
		work();
		for (std::thread &thread : threads)
			thread.join();
		for (size_t i = 0; i < clusters.size(); i++) {
			if (result[i] == LLM_SUCCESS)
				continue;
			last = result[i];
			detail::LastMessage() = message[i];
		}
		rets.insert(rets.end(), result.begin(), result.end());
		return last;
	}

	static std::string AddressOf(const ClusterInfo &cluster)
	{
		const IpInfo &info = cluster.remote_ip_infos.front();
		return std::string(info.ip.GetString()) + ":" + std::to_string(info.port);
	}

	Status LinkOne(const ClusterInfo &cluster, uint32_t timeout_ms)
	{
		std::string address = AddressOf(cluster);
		uint64_t peer = 0;
		Status status = detail::TranslateLink(
			kvp_link(engine_, address.c_str(), timeout_ms, &peer));

		if (status == LLM_SUCCESS) {
			std::lock_guard<std::mutex> lock(mutex_);
			linked_[address] = peer;
		}
		return status;
	}

	/* The cluster behind an address is what it said it is, whatever the caller calls it. */
	uint64_t PeerOf(const ClusterInfo &cluster)
	{
		std::lock_guard<std::mutex> lock(mutex_);

		if (cluster.remote_ip_infos.empty())
			return cluster.remote_cluster_id;
		auto found = linked_.find(AddressOf(cluster));
		return found == linked_.end() ? cluster.remote_cluster_id : found->second;
	}

	bool Find(int64_t cache_id, detail::Layout *layout)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = caches_.find(cache_id);

		if (found == caches_.end())
			return false;
		*layout = found->second.layout;
		return true;
	}

	/* A push of all layers names them by the caller's number of tensors, which must be the cache's. */
	Status CheckSource(const Cache &src, const KvCacheExtParam &ext)
	{
		if (src.cache_desc.placement != CachePlacement::kDevice)
			return detail::Fail(LLM_PARAM_INVALID,
					    "src_cache is not placed on kDevice");
		if (ext.src_layer_range.first >= 0)
			return LLM_SUCCESS;
		if (src.cache_desc.num_tensors == 0)
			return detail::Fail(LLM_PARAM_INVALID,
					    "all layers of src_cache, but its num_tensors is 0");
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = caches_.find(src.cache_id);
		if (found != caches_.end() &&
		    found->second.layout.addrs.size() != src.cache_desc.num_tensors)
			return detail::Fail(LLM_PARAM_INVALID,
					    "src_cache's num_tensors is %u, cache %lld has %zu",
					    src.cache_desc.num_tensors,
					    static_cast<long long>(src.cache_id),
					    found->second.layout.addrs.size());
		return LLM_SUCCESS;
	}

	/* What upstream finds wrong with a pull before it looks for the link. */
	Status CheckDestination(const Cache &dst, const std::vector<uint64_t> &dst_blocks,
				const KvCacheExtParam &ext, uint32_t *num_tensors)
	{
		uint32_t per_layer = ext.tensor_num_per_layer;
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = caches_.find(dst.cache_id);

		if (found == caches_.end())
			return detail::Fail(LLM_KV_CACHE_NOT_EXIST, "dst_cache %lld is not known",
					    static_cast<long long>(dst.cache_id));
		const detail::Layout &layout = found->second.layout;
		*num_tensors = static_cast<uint32_t>(layout.addrs.size());
		if (*num_tensors % per_layer != 0)
			return detail::Fail(LLM_PARAM_INVALID,
					    "tensor_num_per_layer is %u; it divides the %u tensors",
					    per_layer, *num_tensors);
		if (ext.dst_layer_range.second >= 0 &&
		    static_cast<uint32_t>(ext.dst_layer_range.second) >= *num_tensors / per_layer)
			return detail::Fail(LLM_PARAM_INVALID,
					    "dst_layer_range ends at %d of %u layers",
					    ext.dst_layer_range.second, *num_tensors / per_layer);
		for (uint64_t block : dst_blocks) {
			if (block >= layout.num_blocks)
				return detail::Fail(
					LLM_PARAM_INVALID, "destination block %llu of %llu",
					static_cast<unsigned long long>(block),
					static_cast<unsigned long long>(layout.num_blocks));
		}
		return LLM_SUCCESS;
	}

	/* The option's time for each layer. */
	uint32_t TimeoutOf(const KvCacheExtParam &ext, uint32_t num_tensors) const
	{
		uint64_t layers = ext.src_layer_range.first < 0
					  ? num_tensors / ext.tensor_num_per_layer
					  : static_cast<uint64_t>(ext.src_layer_range.second -
								  ext.src_layer_range.first) +
						    1;
		uint64_t ms = settings_.wait_ms * std::max<uint64_t>(layers, 1);

		return static_cast<uint32_t>(std::min(ms, detail::kTimeoutMaxMs));
	}

	Status LayoutOf(const Cache &cache, detail::Layout *layout)
	{
		if (cache.cache_id >= 0)
			return Find(cache.cache_id, layout)
				       ? LLM_SUCCESS
				       : detail::Fail(LLM_KV_CACHE_NOT_EXIST,
						      "cache %lld is not known",
						      static_cast<long long>(cache.cache_id));
		Status status = detail::ReadShape(cache.cache_desc, layout);
		if (status != LLM_SUCCESS)
			return status;
		layout->addrs = cache.tensor_addrs;
		if (layout->addrs.empty() || std::find(layout->addrs.begin(), layout->addrs.end(),
						       0U) != layout->addrs.end())
			return detail::Fail(LLM_PARAM_INVALID, "tensor_addrs is empty or has a 0");
		return LLM_SUCCESS;
	}

	Status CopyAddresses(const Cache &src, const Cache &dst,
			     const std::vector<uint64_t> &src_blocks,
			     const std::vector<std::vector<uint64_t>> &dst_lists, uint64_t offset,
			     uint64_t bytes)
	{
		detail::Layout from, to;
		Status status = LayoutOf(src, &from);

		if (status == LLM_SUCCESS)
			status = LayoutOf(dst, &to);
		if (status != LLM_SUCCESS)
			return status;
		if (from.addrs.size() != to.addrs.size())
			return detail::Fail(LLM_PARAM_INVALID,
					    "the caches have %zu and %zu tensors",
					    from.addrs.size(), to.addrs.size());
		if (bytes == 0 && from.block_bytes != to.block_bytes)
			return detail::Fail(LLM_PARAM_INVALID,
					    "blocks of both caches differ in size");
		uint64_t room = std::min(from.block_bytes, to.block_bytes);
		if (offset >= room || bytes > room - offset)
			return detail::Fail(LLM_PARAM_INVALID,
					    "offset or size reach beyond a block");
		for (const std::vector<uint64_t> &list : dst_lists) {
			for (size_t i = 0; i < list.size(); i++) {
				if (src_blocks[i] >= from.num_blocks || list[i] >= to.num_blocks)
					return detail::Fail(LLM_PARAM_INVALID,
							    "a block number is out of range");
			}
		}
		for (size_t tensor = 0; tensor < from.addrs.size(); tensor++) {
			for (const std::vector<uint64_t> &list : dst_lists) {
				for (size_t i = 0; i < list.size(); i++)
					(void)std::memmove(
						reinterpret_cast<char *>(to.addrs[tensor]) +
							list[i] * to.block_bytes + offset,
						reinterpret_cast<const char *>(from.addrs[tensor]) +
							src_blocks[i] * from.block_bytes + offset,
						bytes == 0 ? room - offset : bytes);
			}
		}
		return LLM_SUCCESS;
	}

	const uint64_t cluster_id_;
	const LlmRole role_;
	std::shared_mutex gate_; /* shared by calls, taken alone to open and to close */
	std::atomic<bool> is_finalizing_{false};
	kvp_engine *engine_ = nullptr;
	detail::Settings settings_; /* const while there is an engine */
	std::mutex mutex_;          /* what follows */
	std::map<int64_t, Known> caches_;
	std::map<std::string, uint64_t> linked_; /* address: the cluster that answered there */
	uint64_t allocated_bytes_ = 0;
};

inline LlmDataDist::LlmDataDist(uint64_t cluster_id, LlmRole role)
    : impl_(std::make_unique<LlmDataDistImpl>(cluster_id, role))
{
}

inline LlmDataDist::~LlmDataDist() = default;

inline Status
LlmDataDist::Initialize(const Options &options)
{
	return impl_->Initialize(options);
}

inline void
LlmDataDist::Finalize()
{
	impl_->Finalize();
}

inline Status
LlmDataDist::SetRole(LlmRole role, const Options &options)
{
	return impl_->Run([&] { return impl_->SetRole(role, options); });
}

inline Status
LlmDataDist::LinkLlmClusters(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
			     int32_t timeout_in_millis)
{
	return impl_->Run([&] { return impl_->Link(clusters, rets, timeout_in_millis); });
}

inline Status
LlmDataDist::UnlinkLlmClusters(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
			       int32_t timeout_in_millis, bool force_flag)
{
	return impl_->Run(
		[&] { return impl_->Unlink(clusters, rets, timeout_in_millis, force_flag); });
}

inline Status
LlmDataDist::AllocateCache(const CacheDesc &cache_desc, Cache &cache)
{
	return impl_->Run([&] { return impl_->Allocate(cache_desc, cache); });
}

inline Status
LlmDataDist::DeallocateCache(int64_t cache_id)
{
	return impl_->Run([&] { return impl_->Release(cache_id); });
}

inline Status
LlmDataDist::RegisterKvCache(const CacheDesc &cache_desc, const std::vector<uint64_t> &addrs,
			     const RegisterCfg &cfg, int64_t &cache_id)
{
	(void)cfg;
	return impl_->Run([&] { return impl_->Register(cache_desc, addrs, cache_id); });
}

inline Status
LlmDataDist::UnregisterKvCache(int64_t cache_id)
{
	return impl_->Run([&] { return impl_->Release(cache_id); });
}

namespace detail
{

/* -1: all of a batch slot, which kvpush writes as 0. */
inline Status
CheckSize(int64_t size, uint64_t *bytes_out)
{
	if (size != -1 && size <= 0)
		return Fail(LLM_PARAM_INVALID, "size is %lld; -1, or at least 1",
			    static_cast<long long>(size));
	*bytes_out = size == -1 ? 0 : static_cast<uint64_t>(size);
	return LLM_SUCCESS;
}

inline Status
CheckNoBatch(const CacheIndex &index)
{
	if (index.batch_index != 0)
		return Fail(LLM_PARAM_INVALID, "batch_index is %u; blocks have none, so 0",
			    index.batch_index);
	return LLM_SUCCESS;
}

} // namespace detail

inline Status
LlmDataDist::PullKvCache(const CacheIndex &src_cache_index, const Cache &dst_cache,
			 uint32_t batch_index, int64_t size, const KvCacheExtParam &ext_param)
{
	return impl_->Run([&] {
		uint64_t bytes = 0;
		Status status = detail::CheckExtParam(ext_param);

		if (status == LLM_SUCCESS)
			status = detail::CheckSize(size, &bytes);
		return status != LLM_SUCCESS ? status
					     : impl_->Pull(src_cache_index, dst_cache,
							   {src_cache_index.batch_index},
							   {batch_index}, bytes, ext_param);
	});
}

inline Status
LlmDataDist::PullKvBlocks(const CacheIndex &src_cache_index, const Cache &dst_cache,
			  const std::vector<uint64_t> &src_blocks,
			  const std::vector<uint64_t> &dst_blocks, const KvCacheExtParam &ext_param)
{
	return impl_->Run([&] {
		Status status = detail::CheckNoBatch(src_cache_index);

		if (status == LLM_SUCCESS)
			status = detail::CheckExtParam(ext_param);
		if (status == LLM_SUCCESS)
			status = detail::CheckBlocks(src_blocks, dst_blocks);
		return status != LLM_SUCCESS ? status
					     : impl_->Pull(src_cache_index, dst_cache, src_blocks,
							   dst_blocks, 0, ext_param);
	});
}

inline Status
LlmDataDist::PushKvCache(const Cache &src_cache, const CacheIndex &dst_cache_index,
			 uint32_t src_batch_index, int64_t size, const KvCacheExtParam &ext_param)
{
	return impl_->Run([&] {
		uint64_t bytes = 0;
		Status status = detail::CheckSize(size, &bytes);

		return status != LLM_SUCCESS
			       ? status
			       : impl_->Push(src_cache, dst_cache_index, {src_batch_index},
					     {dst_cache_index.batch_index}, bytes, ext_param);
	});
}

inline Status
LlmDataDist::PushKvBlocks(const Cache &src_cache, const CacheIndex &dst_cache_index,
			  const std::vector<uint64_t> &src_blocks,
			  const std::vector<uint64_t> &dst_blocks, const KvCacheExtParam &ext_param)
{
	return impl_->Run([&] {
		Status status = detail::CheckBlocks(src_blocks, dst_blocks);

		if (status == LLM_SUCCESS)
			status = detail::CheckNoBatch(dst_cache_index);
		return status != LLM_SUCCESS ? status
					     : impl_->Push(src_cache, dst_cache_index, src_blocks,
							   dst_blocks, 0, ext_param);
	});
}

inline Status
LlmDataDist::CopyKvCache(const Cache &src_cache, const Cache &dst_cache, uint32_t src_batch_index,
			 uint32_t dst_batch_index, uint64_t offset, int64_t size)
{
	return impl_->Run([&] {
		uint64_t bytes = 0;
		Status status = detail::CheckSize(size, &bytes);

		if (status == LLM_SUCCESS &&
		    src_cache.cache_desc.placement != CachePlacement::kDevice)
			status = detail::Fail(LLM_PARAM_INVALID, "src_cache is not on kDevice");
		return status != LLM_SUCCESS ? status
					     : impl_->Copy(src_cache, dst_cache, {src_batch_index},
							   {{dst_batch_index}}, offset, bytes);
	});
}

inline Status
LlmDataDist::CopyKvBlocks(const Cache &src_cache, const Cache &dst_cache,
			  const std::vector<uint64_t> &src_blocks,
			  const std::vector<std::vector<uint64_t>> &dst_blocks_list)
{
	return impl_->Run([&] {
		if (src_blocks.empty() || dst_blocks_list.empty())
			return detail::Fail(LLM_PARAM_INVALID, "a list is empty");
		if (src_cache.cache_desc.placement == CachePlacement::kHost &&
		    dst_cache.cache_desc.placement == CachePlacement::kHost)
			return detail::Fail(LLM_PARAM_INVALID, "both caches are on kHost");
		return impl_->Copy(src_cache, dst_cache, src_blocks, dst_blocks_list, 0, 0);
	});
}

inline kvp_engine *
LlmDataDist::GetEngine() const
{
	return impl_->Engine();
}

} // namespace llm_datadist

#endif // LLM_DATADIST_IMPL_H
