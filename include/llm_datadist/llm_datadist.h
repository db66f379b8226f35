/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llm_datadist.h - LLM-DataDist's C++ interface over kvpush
 *
 * Programs written for LLM-DataDist, of both generations, compile against this header unchanged: link with
 * -lkvpush, C++17. Names, signatures, defaults, status numbers and the order of checks are LLM-DataDist's.
 * What differs, and why:
 *
 *   all of a call is checked before its first byte    upstream leaves the layers before a bad one written
 *   sizes of blocks and numbers of tensors must be    upstream writes with the local size, wherever that
 *     equal on both sides (PARAM_INVALID)               lands on the other side
 *   a destination block given twice, or a range with  upstream leaves the winner open; it ignores one of the
 *     only one bound -1, is PARAM_INVALID               ranges
 *   caches registered after linking are known         upstream reads the peer's table once and never again
 *   AllocateCache, DeallocateCache, Copy* work        upstream's newer generation answers FEATURE_NOT_ENABLED
 *     beside Register/UnregisterKvCache                 for these, its older one for those
 *   PushKvCache takes `size`                          upstream: -1 only
 *   roles are a rule: Push* needs kPrompt or kMix,    upstream's newer generation has them as a label; that is
 *     Pull* kDecoder or kMix, else LLM_FAILED           option kvpush.role_rule=label
 *   a lost or restarted peer is NOT_YET_LINK at once  upstream waits for the timeout
 *   Finalize ends calls that are in flight            upstream must not be called then
 *   up to any number of clusters in one call          upstream documents 16
 *
 * llm.SyncKvCacheWaitTime is per layer, as upstream's: a call over L layers may take L times as long.
 * GetLastErrorMessage() says in one line why a call of this thread failed.
 *
 * Threads:    any, except that Initialize must have returned; Finalize waits for calls of other threads
 */
#ifndef LLM_DATADIST_LLM_DATADIST_H
#define LLM_DATADIST_LLM_DATADIST_H

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "llm_engine_types.h"
#include "llm_error_codes.h"
#include "options.h"

#ifdef FUNC_VISIBILITY
#define ASCEND_FUNC_VISIBILITY __attribute__((visibility("default")))
#else
#define ASCEND_FUNC_VISIBILITY
#endif

namespace llm_datadist
{

/* Why this thread's last call that failed did so. Never NULL. */
inline const char *
GetLastErrorMessage()
{
	return detail::LastMessage().c_str();
}

class ASCEND_FUNC_VISIBILITY LlmDataDist
{
      public:
	/* cluster_id: unique among linked peers */
	LlmDataDist(uint64_t cluster_id, LlmRole role);
	~LlmDataDist();
	LlmDataDist(const LlmDataDist &) = delete;
	LlmDataDist &operator=(const LlmDataDist &) = delete;

	Status Initialize(const std::map<AscendString, AscendString> &options);
	void Finalize();
	Status SetRole(LlmRole role, const std::map<AscendString, AscendString> &options = {});

	Status LinkLlmClusters(const std::vector<ClusterInfo> &clusters, std::vector<Status> &rets,
			       int32_t timeout_in_millis = 1000);
	Status UnlinkLlmClusters(const std::vector<ClusterInfo> &clusters,
				 std::vector<Status> &rets, int32_t timeout_in_millis = 1000,
				 bool force_flag = false);

	Status AllocateCache(const CacheDesc &cache_desc, Cache &cache);
	Status DeallocateCache(int64_t cache_id);
	Status RegisterKvCache(const CacheDesc &cache_desc, const std::vector<uint64_t> &addrs,
			       const RegisterCfg &cfg, int64_t &cache_id);
	Status UnregisterKvCache(int64_t cache_id);

	Status PullKvCache(const CacheIndex &src_cache_index, const Cache &dst_cache,
			   uint32_t batch_index = 0U, int64_t size = -1,
			   const KvCacheExtParam &ext_param = {});
	Status PullKvBlocks(const CacheIndex &src_cache_index, const Cache &dst_cache,
			    const std::vector<uint64_t> &src_blocks,
			    const std::vector<uint64_t> &dst_blocks,
			    const KvCacheExtParam &ext_param = {});
	Status PushKvCache(const Cache &src_cache, const CacheIndex &dst_cache_index,
			   uint32_t src_batch_index = 0U, int64_t size = -1,
			   const KvCacheExtParam &ext_param = {});
	Status PushKvBlocks(const Cache &src_cache, const CacheIndex &dst_cache_index,
			    const std::vector<uint64_t> &src_blocks,
			    const std::vector<uint64_t> &dst_blocks,
			    const KvCacheExtParam &ext_param = {});
	Status CopyKvCache(const Cache &src_cache, const Cache &dst_cache,
			   uint32_t src_batch_index = 0U, uint32_t dst_batch_index = 0U,
			   uint64_t offset = 0U, int64_t size = -1);
	Status CopyKvBlocks(const Cache &src_cache, const Cache &dst_cache,
			    const std::vector<uint64_t> &src_blocks,
			    const std::vector<std::vector<uint64_t>> &dst_blocks_list);

	/* kvpush's own: the engine underneath, NULL before Initialize and after Finalize. */
	kvp_engine *GetEngine() const;

      private:
	class LlmDataDistImpl;
	std::unique_ptr<LlmDataDistImpl> impl_;
};

} // namespace llm_datadist

#include "impl.h"

#endif // LLM_DATADIST_LLM_DATADIST_H
