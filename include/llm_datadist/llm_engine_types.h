/* SPDX-License-Identifier: Apache-2.0 */
/* llm_engine_types.h - the types of LLM-DataDist's calls: strings, element types, caches, clusters */
#ifndef LLM_DATADIST_LLM_ENGINE_TYPES_H
#define LLM_DATADIST_LLM_ENGINE_TYPES_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llm_error_codes.h"

namespace ge
{

/* A text by value. From NULL: empty. */
class AscendString
{
      public:
	AscendString() = default;
	AscendString(const char *text) : text_(text == nullptr ? "" : text)
	{
	}
	AscendString(const char *text, size_t length)
	    : text_(text == nullptr ? std::string() : std::string(text, length))
	{
	}

	const char *GetString() const
	{
		return text_.c_str();
	}
	size_t GetLength() const
	{
		return text_.size();
	}
	/* Place of the first occurrence, or std::string::npos. */
	size_t Find(const AscendString &part) const
	{
		return text_.find(part.text_);
	}
	size_t Hash() const
	{
		return std::hash<std::string>()(text_);
	}

	bool operator<(const AscendString &other) const
	{
		return text_ < other.text_;
	}
	bool operator>(const AscendString &other) const
	{
		return text_ > other.text_;
	}
	bool operator<=(const AscendString &other) const
	{
		return text_ <= other.text_;
	}
	bool operator>=(const AscendString &other) const
	{
		return text_ >= other.text_;
	}
	bool operator==(const AscendString &other) const
	{
		return text_ == other.text_;
	}
	bool operator!=(const AscendString &other) const
	{
		return text_ != other.text_;
	}

      private:
	std::string text_;
};

/* GE's numbers. */
enum DataType {
	DT_FLOAT = 0,
	DT_FLOAT16 = 1,
	DT_INT8 = 2,
	DT_INT32 = 3,
	DT_UINT8 = 4,
	DT_INT16 = 6,
	DT_UINT16 = 7,
	DT_UINT32 = 8,
	DT_INT64 = 9,
	DT_UINT64 = 10,
	DT_DOUBLE = 11,
	DT_BOOL = 12,
	DT_STRING = 13,
	DT_DUAL_SUB_INT8 = 14,
	DT_DUAL_SUB_UINT8 = 15,
	DT_COMPLEX64 = 16,
	DT_COMPLEX128 = 17,
	DT_QINT8 = 18,
	DT_QINT16 = 19,
	DT_QINT32 = 20,
	DT_QUINT8 = 21,
	DT_QUINT16 = 22,
	DT_RESOURCE = 23,
	DT_STRING_REF = 24,
	DT_DUAL = 25,
	DT_VARIANT = 26,
	DT_BF16 = 27,
	DT_UNDEFINED = 28,
	DT_INT4 = 29,
	DT_UINT1 = 30,
	DT_INT2 = 31,
	DT_UINT2 = 32,
	DT_COMPLEX32 = 33,
	DT_HIFLOAT8 = 34,
	DT_FLOAT8_E5M2 = 35,
	DT_FLOAT8_E4M3FN = 36,
	DT_FLOAT8_E8M0 = 37,
	DT_FLOAT6_E3M2 = 38,
	DT_FLOAT6_E2M3 = 39,
	DT_FLOAT4_E2M1 = 40,
	DT_FLOAT4_E1M2 = 41,
};

} // namespace ge

namespace llm_datadist
{

constexpr uint8_t kDefaultTensorNumPerLayer = 2U;

using AscendString = ge::AscendString;
using DataType = ge::DataType;

using ge::DT_BF16;
using ge::DT_BOOL;
using ge::DT_COMPLEX128;
using ge::DT_COMPLEX32;
using ge::DT_COMPLEX64;
using ge::DT_DOUBLE;
using ge::DT_DUAL;
using ge::DT_DUAL_SUB_INT8;
using ge::DT_DUAL_SUB_UINT8;
using ge::DT_FLOAT;
using ge::DT_FLOAT16;
using ge::DT_FLOAT4_E1M2;
using ge::DT_FLOAT4_E2M1;
using ge::DT_FLOAT6_E2M3;
using ge::DT_FLOAT6_E3M2;
using ge::DT_FLOAT8_E4M3FN;
using ge::DT_FLOAT8_E5M2;
using ge::DT_FLOAT8_E8M0;
using ge::DT_HIFLOAT8;
using ge::DT_INT16;
using ge::DT_INT2;
using ge::DT_INT32;
using ge::DT_INT4;
using ge::DT_INT64;
using ge::DT_INT8;
using ge::DT_QINT16;
using ge::DT_QINT32;
using ge::DT_QINT8;
using ge::DT_QUINT16;
using ge::DT_QUINT8;
using ge::DT_RESOURCE;
using ge::DT_STRING;
using ge::DT_STRING_REF;
using ge::DT_UINT1;
using ge::DT_UINT16;
using ge::DT_UINT2;
using ge::DT_UINT32;
using ge::DT_UINT64;
using ge::DT_UINT8;
using ge::DT_UNDEFINED;
using ge::DT_VARIANT;

struct IpInfo {
	AscendString ip;
	uint16_t port = 0U;
	uint8_t reserved[128];
};

struct ClusterInfo {
	uint64_t remote_cluster_id = 0U;
	int32_t remote_role_type = 0;
	std::vector<IpInfo> local_ip_infos;
	std::vector<IpInfo> remote_ip_infos;
	uint8_t reserved[128];
};

enum class LlmRole : int32_t {
	kPrompt = 1,
	kDecoder = 2,
	kMix = 3,
	kEnd
};

struct CacheIndex {
	uint64_t cluster_id = 0U;
	int64_t cache_id = 0;
	uint32_t batch_index = 0U;
	uint8_t reserved[128] = {};
};

enum class CachePlacement : uint32_t {
	kHost = 0U,
	kDevice =
		1U, /* memory that was registered or allocated; without an accelerator the host's */
};

struct CacheDesc {
	CachePlacement placement = CachePlacement::kDevice;
	uint32_t num_tensors = 0U;
	DataType data_type = DT_UNDEFINED;
	std::vector<int64_t> shape; /* dimension 0 counts blocks, which are batch slots too */
	uint8_t reserved[128];
};

struct Cache {
	int64_t cache_id = -1;
	std::vector<uintptr_t> tensor_addrs;
	CacheDesc cache_desc;
	uint8_t reserved[128];
};

struct KvCacheExtParam {
	std::pair<int32_t, int32_t> src_layer_range = {-1, -1}; /* inclusive; both -1: all layers */
	std::pair<int32_t, int32_t> dst_layer_range{-1, -1};
	uint8_t tensor_num_per_layer = kDefaultTensorNumPerLayer;
	uint8_t reserved[127];
};

struct RegisterCfg {
	uint8_t reserved[128] = {0};
};

} // namespace llm_datadist

#endif // LLM_DATADIST_LLM_ENGINE_TYPES_H
