/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include <kvpush/cache.h>

#include "report.h"

#define DIMS_MAX 31U /* LLM-DataDist's */

uint32_t
kvp_dtype_bytes(uint32_t dtype)
{
	switch (dtype) {
	case KVP_DT_INT8:
	case KVP_DT_UINT8:
	case KVP_DT_BOOL:
		return 1;
	case KVP_DT_FLOAT16:
	case KVP_DT_INT16:
	case KVP_DT_UINT16:
	case KVP_DT_BF16:
		return 2;
	case KVP_DT_FLOAT:
	case KVP_DT_INT32:
	case KVP_DT_UINT32:
		return 4;
	case KVP_DT_INT64:
	case KVP_DT_UINT64:
	case KVP_DT_DOUBLE:
		return 8;
	default:
		return 0;
	}
}

static kvp_status
arguments_check(const int64_t *shape, size_t dims, uint32_t num_tensors,
		const struct kvp_tensor *tensors, struct kvp_error *err)
{
	if (shape == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "shape is NULL");
	if (tensors == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "tensors is NULL");
	if (dims == 0 || dims > DIMS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "dims is %zu; it must be in [1, %u]", dims,
				DIMS_MAX);
	if (num_tensors == 0 || num_tensors > KVP_TENSORS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "num_tensors is %u; it must be in [1, %u]",
				num_tensors, KVP_TENSORS_MAX);
	return KVP_SUCCESS;
}

kvp_status
kvp_tensors_uniform(uint32_t dtype, const int64_t *shape, size_t dims, void *const *bases,
		    uint32_t num_tensors, struct kvp_tensor *tensors)
{
	struct kvp_error *err = kvp_error_here();
	int64_t bytes = (int64_t)kvp_dtype_bytes(dtype);
	uint64_t block_bytes;
	kvp_status status;

	status = arguments_check(shape, dims, num_tensors, tensors, err);
	if (status != KVP_SUCCESS)
		return status;
	if (bytes == 0)
		return kvp_fail(err, KVP_PARAM_INVALID, "dtype is %u; no such element type", dtype);
	for (size_t i = 0; i < dims; i++) {
		if (shape[i] < 1)
			return kvp_fail(err, KVP_PARAM_INVALID, "shape[%zu] is %lld; at least 1", i,
					(long long)shape[i]);
		if (__builtin_mul_overflow(bytes, shape[i], &bytes))
			return kvp_fail(
				err, KVP_PARAM_INVALID,
				"shape[0] to shape[%zu] of dtype %u are more than 2^63 bytes", i,
				dtype);
	}
	if (shape[0] > (int64_t)KVP_BLOCKS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "shape[0] is %lld; at most %u blocks",
				(long long)shape[0], KVP_BLOCKS_MAX);

	block_bytes = (uint64_t)(bytes / shape[0]);
	for (uint32_t i = 0; i < num_tensors; i++) {
		tensors[i] = (struct kvp_tensor){
			.base = bases == NULL ? NULL : bases[i],
			.num_blocks = (uint64_t)shape[0],
			.block_bytes = block_bytes,
			.block_stride = block_bytes,
		};
	}
	return KVP_SUCCESS;
}
