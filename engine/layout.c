/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <stddef.h>

#include "check.h"

#define PAGE_BYTES 4096U

static uint64_t
base_of(const struct kvp_tensor *tensor)
{
	return (uintptr_t)tensor->base;
}

static uint64_t
end_of(const struct kvp_tensor *tensor)
{
	return base_of(tensor) + kvp_tensor_extent(tensor);
}

/* num_blocks, block_bytes, block_stride and base of one tensor on its own. */
static kvp_status
tensor_check(const struct kvp_tensor *tensors, uint32_t i, bool may_lack_base,
	     struct kvp_error *err)
{
	const struct kvp_tensor *tensor = &tensors[i];
	uint64_t bytes;

	if (may_lack_base && tensor->base != NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors[%u].base is %p; it must be NULL, the engine chooses it", i,
				tensor->base);
	if (!may_lack_base && tensor->base == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "tensors[%u].base is NULL", i);
	if (tensor->num_blocks == 0 || tensor->num_blocks > KVP_BLOCKS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors[%u].num_blocks is %llu; it must be in [1, %u]", i,
				(unsigned long long)tensor->num_blocks, KVP_BLOCKS_MAX);
	if (tensor->num_blocks != tensors[0].num_blocks)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors[%u].num_blocks is %llu but tensors[0].num_blocks is %llu; "
				"all tensors of a cache have equally many",
				i, (unsigned long long)tensor->num_blocks,
				(unsigned long long)tensors[0].num_blocks);
	if (tensor->block_bytes == 0)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors[%u].block_bytes is 0; it must be at least 1", i);
	if (tensor->block_stride < tensor->block_bytes)
		return kvp_fail(
			err, KVP_PARAM_INVALID,
			"tensors[%u].block_stride is %llu; it must be at least block_bytes, "
			"%llu",
			i, (unsigned long long)tensor->block_stride,
			(unsigned long long)tensor->block_bytes);
	if (__builtin_mul_overflow(tensor->num_blocks - 1, tensor->block_stride, &bytes) ||
	    __builtin_add_overflow(bytes, tensor->block_bytes, &bytes) ||
	    __builtin_add_overflow(bytes, base_of(tensor), &bytes))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors[%u] wraps the address space: base %p, %llu blocks, "
				"block_stride %llu",
				i, tensor->base, (unsigned long long)tensor->num_blocks,
				(unsigned long long)tensor->block_stride);
	return KVP_SUCCESS;
}

/*
 * Do blocks of a and b meet, where base a <= base b < end of a, and strides and num_blocks are
 * equal? Block i of a and block j of b do when
 *     b - a - a.block_bytes < (i - j) * stride < b - a + b.block_bytes.
 * Slots are at most one stride wide, so that i - j can only be one of the two numbers around
 * (b - a) / stride. *ahead_out is that i - j.
 */
static bool
slots_meet(const struct kvp_tensor *a, const struct kvp_tensor *b, uint64_t *ahead_out)
{
	uint64_t stride = a->block_stride;
	uint64_t rest = base_of(b) - base_of(a), ahead = 0;

	if (rest >= stride) {
		ahead = rest / stride;
		rest -= ahead * stride;
	}
	*ahead_out = ahead;
	KVP_ASSERT(ahead < a->num_blocks); /* their ranges meet */
	if (rest < a->block_bytes)
		return true;
	*ahead_out = ahead + 1;
	return ahead + 1 < a->num_blocks && stride - rest < b->block_bytes;
}

static KVP_COLD kvp_status
fail_strides(const struct kvp_tensor *tensors, uint32_t i, uint32_t j, struct kvp_error *err)
{
	return kvp_fail(
		err, KVP_PARAM_INVALID,
		"tensors[%u] and tensors[%u] interleave with different block_stride, %llu and "
		"%llu; tensors may share an address range only with equal strides",
		i, j, (unsigned long long)tensors[i].block_stride,
		(unsigned long long)tensors[j].block_stride);
}

/* Tensors that share an address range: only with equal strides, and no block may meet another. */
static kvp_status
pair_check(const struct kvp_tensor *tensors, uint32_t i, uint32_t j, struct kvp_error *err)
{
	uint32_t low = base_of(&tensors[i]) <= base_of(&tensors[j]) ? i : j;
	uint32_t high = low == i ? j : i;
	uint64_t ahead = 0;

	/* One block each: the ranges are the blocks. */
	if (tensors[i].num_blocks > 1) {
		if (tensors[i].block_stride != tensors[j].block_stride)
			return fail_strides(tensors, low, high, err);
		if (!slots_meet(&tensors[low], &tensors[high], &ahead))
			return KVP_SUCCESS;
	}
	return kvp_fail(
		err, KVP_PARAM_INVALID,
		"tensors[%u] and tensors[%u] overlap: block %llu of the one (%p + %llu) and "
		"block 0 of the other (%p)",
		low, high, (unsigned long long)ahead, tensors[low].base,
		(unsigned long long)(ahead * tensors[low].block_stride), tensors[high].base);
}

/* Tensors in ascending or descending order of address cost one comparison each, others n^2 / 2. */
static kvp_status
overlap_check(const struct kvp_tensor *tensors, uint32_t num_tensors, struct kvp_error *err)
{
	uint64_t low = base_of(&tensors[0]), high = end_of(&tensors[0]);

	for (uint32_t i = 1; i < num_tensors; i++) {
		uint64_t base = base_of(&tensors[i]), end = end_of(&tensors[i]);

		for (uint32_t j = 0; j < i && base < high && end > low; j++) {
			kvp_status status;

			if (base >= end_of(&tensors[j]) || end <= base_of(&tensors[j]))
				continue;
			status = pair_check(tensors, j, i, err);
			if (status != KVP_SUCCESS)
				return status;
		}
		low = base < low ? base : low;
		high = end > high ? end : high;
	}
	return KVP_SUCCESS;
}

kvp_status
kvp_layout_check(const struct kvp_tensor *tensors, uint32_t num_tensors, bool may_lack_base,
		 struct kvp_error *err)
{
	uint64_t bytes = 0;

	if (tensors == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "tensors is NULL");
	if (num_tensors == 0 || num_tensors > KVP_TENSORS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "num_tensors is %u; it must be in [1, %u]",
				num_tensors, KVP_TENSORS_MAX);
	for (uint32_t i = 0; i < num_tensors; i++) {
		kvp_status status = tensor_check(tensors, i, may_lack_base, err);

		if (status != KVP_SUCCESS)
			return status;
	}
	if (!may_lack_base)
		return overlap_check(tensors, num_tensors, err);

	/* Each tensor will start on its own page. */
	for (uint32_t i = 0; i < num_tensors; i++) {
		if (__builtin_add_overflow(bytes, kvp_tensor_extent(&tensors[i]), &bytes) ||
		    __builtin_add_overflow(bytes, PAGE_BYTES - 1, &bytes))
			return kvp_fail(
				err, KVP_PARAM_INVALID,
				"tensors[0] to tensors[%u] together are more than 2^64 bytes", i);
	}
	return KVP_SUCCESS;
}

uint64_t
kvp_layout_bytes(const struct kvp_tensor *tensors, uint32_t num_tensors)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < num_tensors; i++)
		bytes += tensors[i].num_blocks * tensors[i].block_bytes;
	return bytes;
}

uint64_t
kvp_tensor_extent(const struct kvp_tensor *tensor)
{
	return (tensor->num_blocks - 1) * tensor->block_stride + tensor->block_bytes;
}

/* Does b's block follow a's in every slot? Must stay as wide as in plan.c: senders fold by it. */
static bool
touches(const struct kvp_tensor *a, const struct kvp_tensor *b)
{
	return base_of(b) == base_of(a) + a->block_bytes && b->block_stride == a->block_stride &&
	       b->num_blocks == a->num_blocks;
}

void
kvp_layout_spans(const struct kvp_tensor *tensors, uint32_t num_tensors, struct kvp_span *spans)
{
	for (uint32_t first = 0, next; first < num_tensors; first = next) {
		struct kvp_span span = {
			.base = base_of(&tensors[first]),
			.stride = tensors[first].block_stride,
			.bytes = tensors[first].block_bytes,
			.count = tensors[first].num_blocks,
		};

		for (next = first + 1; next < num_tensors; next++) {
			if (!touches(&tensors[next - 1], &tensors[next]))
				break;
			span.bytes += tensors[next].block_bytes;
		}
		/* Neighbours of one block each may be longer together than their stride. */
		if (span.stride < span.bytes) {
			KVP_CHECK(span.count == 1);
			span.stride = span.bytes;
		}
		for (uint32_t i = first; i < next; i++)
			spans[i] = span;
	}
}

bool
kvp_span_holds(const struct kvp_span *span, uint64_t address, uint64_t bytes)
{
	uint64_t offset = address - span->base;
	uint64_t end, slot;

	if (KVP_UNLIKELY(address < span->base || bytes == 0))
		return false;
	if (KVP_UNLIKELY(__builtin_add_overflow(offset, bytes, &end)))
		return false;
	if (span->bytes == span->stride) /* no gaps: the division is not needed */
		return end <= span->count * span->stride;
	slot = offset / span->stride;
	return slot < span->count && end - slot * span->stride <= span->bytes;
}
