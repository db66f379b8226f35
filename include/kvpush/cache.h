/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - tensors that can be pushed from and into
 *
 * A cache is `num_tensors` tensors under one cache id. Layer i of a transfer
 * with t tensors per layer owns tensors i*t .. i*t+t-1 (K,V,K,V for t = 2).
 *
 * Shape:      tensor = num_blocks slots of block_bytes, block_stride apart
 * Ownership:  kvp_cache_allocate: the engine's memory, until release.
 *             kvp_cache_register: the caller's memory, kept until release returns.
 */
#ifndef KVPUSH_CACHE_H
#define KVPUSH_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_TENSORS_MAX 4096U       /* per cache */
#define KVP_CACHES_MAX  1024U       /* per engine */
#define KVP_BLOCKS_MAX  0xFFFFFFFEU /* per tensor */

struct kvp_tensor {
	void *base;          /* address of block 0 */
	uint64_t num_blocks; /* [1, KVP_BLOCKS_MAX], the same in all tensors of a cache */
	uint64_t
		block_bytes; /* >= 1, the same in all tensors of a layer group that moves together */
	uint64_t block_stride; /* bytes from block i to i+1, >= block_bytes */
};

/* Element types, with LLM-DataDist's (GE's) numbers. */
enum kvp_dtype {
	KVP_DT_FLOAT = 0,
	KVP_DT_FLOAT16 = 1,
	KVP_DT_INT8 = 2,
	KVP_DT_INT32 = 3,
	KVP_DT_UINT8 = 4,
	KVP_DT_INT16 = 6,
	KVP_DT_UINT16 = 7,
	KVP_DT_UINT32 = 8,
	KVP_DT_INT64 = 9,
	KVP_DT_UINT64 = 10,
	KVP_DT_DOUBLE = 11,
	KVP_DT_BOOL = 12,
	KVP_DT_BF16 = 27,
};

/* Bytes of one element, 0 for an unknown type. */
KVP_API uint32_t
kvp_dtype_bytes(uint32_t dtype);

/*
 * Fill `tensors[num_tensors]` with the uniform layout of `shape[dims]` (slowest
 * first): dimension 0 counts blocks, block_bytes = block_stride = product of
 * the rest times the element. `bases[num_tensors]`, or NULL to leave base NULL
 * for kvp_cache_allocate. PARAM_INVALID (outputs untouched): NULL, dims outside
 * [1, 31], a dimension < 1, overflow, unknown dtype, num_tensors outside
 * [1, KVP_TENSORS_MAX].
 */
KVP_API kvp_status
kvp_tensors_uniform(uint32_t dtype, const int64_t *shape, size_t dims, void *const *bases,
		    uint32_t num_tensors, struct kvp_tensor *tensors);

/*
 * Shareable memory: a sealed memfd that peers on this host can map, zeroed and
 * pre-faulted, page aligned. Tensors registered inside it move at copy speed;
 * other memory goes through process_vm_writev on the shm path. Released by
 * kvp_memory_release, or with the engine. PARAM_INVALID: bytes 0.
 * OUT_OF_MEMORY, NO_RESOURCE.
 */
KVP_API kvp_status
kvp_memory_allocate(struct kvp_engine *engine, uint64_t bytes, void **memory_out);

/* PARAM_INVALID: not from kvp_memory_allocate, or a cache still lies in it (release that first). */
KVP_API kvp_status
kvp_memory_release(struct kvp_engine *engine, void *memory);

/*
 * Allocate memory for the tensors and register them. Bases in `tensors` must be
 * NULL and are filled in on success, each 4096-byte aligned, in order.
 * *cache_id_out counts from 1 per engine. Errors as register, OUT_OF_MEMORY.
 */
KVP_API kvp_status
kvp_cache_allocate(struct kvp_engine *engine, struct kvp_tensor *tensors, uint32_t num_tensors,
		   int64_t *cache_id_out);

/*
 * Register the caller's tensors, before or after linking: linked peers are told
 * at once. PARAM_INVALID (nothing registered): NULL, num_tensors outside
 * [1, KVP_TENSORS_MAX], base NULL, num_blocks 0 or unequal between tensors,
 * block_bytes 0, stride < block_bytes, a tensor that wraps the address space,
 * blocks of two tensors that overlap (or whose ranges interleave with different
 * strides, where that is not decided), memory that devices cannot use. NO_RESOURCE:
 * KVP_CACHES_MAX reached, or devices cannot have it (memlock limit, memory regions).
 *
 * Transports that write by device register the memory here, on the caller's thread, on all devices at once:
 * about 0.1 s per GiB and device of small pages, much less of huge ones.
 */
KVP_API kvp_status
kvp_cache_register(struct kvp_engine *engine, const struct kvp_tensor *tensors,
		   uint32_t num_tensors, int64_t *cache_id_out);

/*
 * Memory of an accelerator: the CPU never touches it, devices reach it through a dma-buf.
 * Byte i of [base, base + bytes) is byte offset + i of the dma-buf; offset and base lie at the same
 * place within a page. `fd` may be closed once the cache is registered.
 *
 * make_visible (NULL: not needed) makes what a device has written visible to the accelerator. It is called
 * on a lane, before the arrival of a push into the cache is told and before a pull into it ends with
 * SUCCESS; all other transfers of that lane wait for it: microseconds, no lock, no call into this library.
 */
struct kvp_device_memory {
	int fd;
	uint64_t offset;
	void *base;
	uint64_t bytes;
	void (*make_visible)(void *ctx);
	void *ctx;
};

/*
 * As kvp_cache_register, for tensors in [base, base + bytes) of *memory, which is copied. Only transports
 * that reach device memory move it: peers linked over another one are not told of the cache, and
 * transfers from or into it over such a link are FEATURE_NOT_ENABLED. FEATURE_NOT_ENABLED here:
 * no transport of the setting `transports` reaches it, or a device's driver does not take it.
 * PARAM_INVALID: also a tensor that lies outside.
 */
KVP_API kvp_status
kvp_cache_register_device(struct kvp_engine *engine, const struct kvp_tensor *tensors,
			  uint32_t num_tensors, const struct kvp_device_memory *memory,
			  int64_t *cache_id_out);

/*
 * Forget a cache. New transfers are refused at once; those that touch it, of
 * this engine and of peers, are ended (KVP_CACHE_NOT_EXIST) before this
 * returns, so that no byte lands in the memory afterwards. Unknown id: SUCCESS,
 * as UnregisterKvCache. Peers get a "cache gone" event.
 */
KVP_API kvp_status
kvp_cache_release(struct kvp_engine *engine, int64_t cache_id);

struct kvp_cache_info {
	int64_t cache_id;
	uint32_t num_tensors;
	uint32_t shareable; /* 1: all tensors lie in shareable memory */
	uint64_t num_blocks;
	uint64_t bytes; /* blocks x block_bytes over all tensors */
};

/* CACHE_NOT_EXIST, PARAM_INVALID. */
KVP_API kvp_status
kvp_cache_query(struct kvp_engine *engine, int64_t cache_id, struct kvp_cache_info *info_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_CACHE_H */
