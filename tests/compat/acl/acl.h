/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl.h - what samples of LLM-DataDist use of the accelerator's runtime, over the host's memory
 *
 * A test shim: "device" memory is host memory, so a program that was written for an accelerator runs
 * unchanged where there is none.
 */
#ifndef KVP_TESTS_ACL_H
#define KVP_TESTS_ACL_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

using aclError = int32_t;
using aclrtContext = void *;

constexpr aclError ACL_ERROR_NONE = 0;
constexpr aclError ACL_SUCCESS = 0;
constexpr aclError ACL_ERROR_INVALID_PARAM = 100000;
constexpr aclError ACL_ERROR_BAD_ALLOC = 200000;

enum aclrtMemMallocPolicy {
	ACL_MEM_MALLOC_HUGE_FIRST = 0,
	ACL_MEM_MALLOC_HUGE_ONLY = 1,
	ACL_MEM_MALLOC_NORMAL_ONLY = 2,
};

enum aclrtMemcpyKind {
	ACL_MEMCPY_HOST_TO_HOST = 0,
	ACL_MEMCPY_HOST_TO_DEVICE = 1,
	ACL_MEMCPY_DEVICE_TO_HOST = 2,
	ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
};

inline aclError
aclrtSetDevice(int32_t device)
{
	return device < 0 ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_NONE;
}

inline aclError
aclrtMalloc(void **memory, size_t bytes, aclrtMemMallocPolicy policy)
{
	constexpr size_t kPage = 4096;

	(void)policy;
	if (memory == nullptr || bytes == 0)
		return ACL_ERROR_INVALID_PARAM;
	*memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
	return *memory == nullptr ? ACL_ERROR_BAD_ALLOC : ACL_ERROR_NONE;
}

inline aclError
aclrtFree(void *memory)
{
	std::free(memory);
	return ACL_ERROR_NONE;
}

inline aclError
aclrtMallocHost(void **memory, size_t bytes)
{
	return aclrtMalloc(memory, bytes, ACL_MEM_MALLOC_NORMAL_ONLY);
}

inline aclError
aclrtFreeHost(void *memory)
{
	return aclrtFree(memory);
}

inline aclError
aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, aclrtMemcpyKind kind)
{
	(void)kind;
	if (to == nullptr || from == nullptr || bytes > room)
		return ACL_ERROR_INVALID_PARAM;
	std::memcpy(to, from, bytes);
	return ACL_ERROR_NONE;
}

inline const char *
aclGetRecentErrMsg()
{
	return "";
}

#endif // KVP_TESTS_ACL_H
