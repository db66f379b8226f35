/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include "check.h"

/* One side of the request, with the caller's names for messages. */
struct end {
	const struct kvp_side *side;
	const char *layers_name;
	const char *blocks_name;
	struct kvp_layers layers;
	const uint64_t *blocks;
};

static bool
is_all(struct kvp_layers layers)
{
	return layers.first == -1 && layers.last == -1;
}

static int64_t
width_of(struct kvp_layers layers)
{
	return (int64_t)layers.last - layers.first + 1;
}

static kvp_status
bounds_check(const char *name, struct kvp_layers layers, struct kvp_error *err)
{
	if (layers.first < -1 || layers.last < -1)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%s is {%d, %d}; bounds are at least 0, or both -1 for all layers",
				name, layers.first, layers.last);
	if (layers.first > layers.last)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%s is {%d, %d}; first must be at most last (both are inclusive)",
				name, layers.first, layers.last);
	return KVP_SUCCESS;
}

static kvp_status
one_bound_check(const char *name, struct kvp_layers layers, struct kvp_error *err)
{
	if (layers.first == -1 && layers.last != -1)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%s is {%d, %d}; -1 stands for all layers only in both bounds",
				name, layers.first, layers.last);
	return KVP_SUCCESS;
}

static kvp_status
lists_check(const struct kvp_request *request, struct kvp_error *err)
{
	if (request->src_blocks == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"src_blocks is NULL; it must list count (%zu) blocks",
				request->count);
	if (request->dst_blocks == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"dst_blocks is NULL; it must list count (%zu) blocks",
				request->count);
	if (request->count == 0)
		return kvp_fail(err, KVP_PARAM_INVALID, "count is 0; at least 1 block must move");
	if (request->count > KVP_BLOCKS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "count is %zu; at most %u blocks can move",
				request->count, KVP_BLOCKS_MAX);
	return KVP_SUCCESS;
}

kvp_status
kvp_request_check(const struct kvp_request *request, struct kvp_error *err)
{
	const struct kvp_layers src = request->src_layers, dst = request->dst_layers;
	kvp_status status;

	status = lists_check(request, err);
	if (status == KVP_SUCCESS)
		status = bounds_check("src_layers", src, err);
	if (status == KVP_SUCCESS)
		status = bounds_check("dst_layers", dst, err);
	if (status == KVP_SUCCESS)
		status = one_bound_check("src_layers", src, err);
	if (status == KVP_SUCCESS)
		status = one_bound_check("dst_layers", dst, err);
	if (status != KVP_SUCCESS)
		return status;

	if (is_all(src) != is_all(dst))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"src_layers is {%d, %d} but dst_layers is {%d, %d}; "
				"{-1, -1} (all layers) must be given on both sides or on none",
				src.first, src.last, dst.first, dst.last);
	if (width_of(src) != width_of(dst))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"src_layers is {%d, %d}, %lld layers, but dst_layers is {%d, %d}, "
				"%lld layers; both must be equally wide",
				src.first, src.last, (long long)width_of(src), dst.first, dst.last,
				(long long)width_of(dst));
	if (request->tensors_per_layer == 0)
		return kvp_fail(
			err, KVP_PARAM_INVALID,
			"tensors_per_layer is 0; it is at least 1 (2 for K and V, 1 for MLA)");
	return KVP_SUCCESS;
}

static kvp_status
layers_check(const struct end *end, uint32_t per_layer, struct kvp_error *err)
{
	const struct kvp_side *side = end->side;
	uint32_t layers;

	if (per_layer > side->num_tensors)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors_per_layer is %u; %s has %u tensors, so at most %u",
				per_layer, side->name, side->num_tensors, side->num_tensors);
	if (side->num_tensors % per_layer != 0)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"tensors_per_layer is %u; it must divide the %u tensors of %s",
				per_layer, side->num_tensors, side->name);
	layers = side->num_tensors / per_layer;
	if (!is_all(end->layers) && (uint32_t)end->layers.last >= layers)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%s is {%d, %d}; %s has %u layers of %u tensors, so at most %u",
				end->layers_name, end->layers.first, end->layers.last, side->name,
				layers, per_layer, layers - 1);
	return KVP_SUCCESS;
}

static KVP_COLD kvp_status
fail_block(const struct end *end, uint64_t num_blocks, struct kvp_error *err)
{
	size_t at = 0;

	while (end->blocks[at] < num_blocks)
		at++;
	return kvp_fail(err, KVP_PARAM_INVALID,
			"%s[%zu] is %llu; %s has %llu blocks, so at most %llu", end->blocks_name,
			at, (unsigned long long)end->blocks[at], end->side->name,
			(unsigned long long)num_blocks, (unsigned long long)num_blocks - 1);
}

static kvp_status
blocks_check(const struct end *end, size_t count, struct kvp_error *err)
{
	uint64_t num_blocks = end->side->tensors[0].num_blocks;
	uint64_t most = 0;

	/* Without a branch per block: lists are long and almost always right. */
	for (size_t i = 0; i < count; i++)
		most = end->blocks[i] > most ? end->blocks[i] : most;
	if (most >= num_blocks)
		return fail_block(end, num_blocks, err);
	return KVP_SUCCESS;
}

static kvp_status
end_check(const struct end *end, const struct kvp_request *request, struct kvp_error *err)
{
	kvp_status status = layers_check(end, request->tensors_per_layer, err);

	if (status != KVP_SUCCESS)
		return status;
	return blocks_check(end, request->count, err);
}

static uint32_t
first_tensor(const struct end *end, uint32_t per_layer)
{
	return is_all(end->layers) ? 0 : (uint32_t)end->layers.first * per_layer;
}

static KVP_COLD kvp_status
fail_size(const struct end *end, uint32_t tensor, uint64_t bytes, struct kvp_error *err)
{
	return kvp_fail(err, KVP_PARAM_INVALID,
			"bytes_per_block is %llu; a block of tensor %u of %s has %llu bytes, so at "
			"most that, or 0 for all of it",
			(unsigned long long)bytes, tensor, end->side->name,
			(unsigned long long)end->side->tensors[tensor].block_bytes);
}

static kvp_status
sizes_check(const struct end *src, const struct end *dst, uint32_t per_layer, uint32_t tensors,
	    uint64_t bytes, struct kvp_error *err)
{
	uint32_t src_first = first_tensor(src, per_layer), dst_first = first_tensor(dst, per_layer);

	for (uint32_t i = 0; i < tensors; i++) {
		uint64_t src_bytes = src->side->tensors[src_first + i].block_bytes;
		uint64_t dst_bytes = dst->side->tensors[dst_first + i].block_bytes;

		if (bytes > src_bytes)
			return fail_size(src, src_first + i, bytes, err);
		if (bytes > dst_bytes)
			return fail_size(dst, dst_first + i, bytes, err);
		if (bytes == 0 && src_bytes != dst_bytes)
			return kvp_fail(
				err, KVP_PARAM_INVALID,
				"a block of tensor %u of %s has %llu bytes but of tensor %u of "
				"%s %llu; they must be equal",
				src_first + i, src->side->name, (unsigned long long)src_bytes,
				dst_first + i, dst->side->name, (unsigned long long)dst_bytes);
	}
	return KVP_SUCCESS;
}

kvp_status
kvp_request_pair(const struct kvp_request *request, const struct kvp_side *src_side,
		 const struct kvp_side *dst_side, struct kvp_pairing *pairing_out,
		 struct kvp_error *err)
{
	const uint32_t per_layer = request->tensors_per_layer;
	const struct end src = {src_side, "src_layers", "src_blocks", request->src_layers,
				request->src_blocks};
	const struct end dst = {dst_side, "dst_layers", "dst_blocks", request->dst_layers,
				request->dst_blocks};
	const struct end *local = request->is_push ? &src : &dst;
	const struct end *remote = request->is_push ? &dst : &src;
	uint32_t tensors;
	kvp_status status;

	KVP_ASSERT(per_layer >= 1);
	KVP_ASSERT(request->count >= 1 && request->count <= KVP_BLOCKS_MAX);

	status = end_check(remote, request, err);
	if (status == KVP_SUCCESS)
		status = end_check(local, request, err);
	if (status != KVP_SUCCESS)
		return status;

	if (is_all(src.layers) && src_side->num_tensors != dst_side->num_tensors)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"all layers of %s are %u tensors, of %s %u; give layer ranges, or "
				"make them equal",
				src_side->name, src_side->num_tensors, dst_side->name,
				dst_side->num_tensors);
	tensors = src_side->num_tensors;
	if (!is_all(src.layers))
		tensors = (uint32_t)width_of(src.layers) * per_layer; /* <= num_tensors: checked */
	status = sizes_check(&src, &dst, per_layer, tensors, request->bytes_per_block, err);
	if (status != KVP_SUCCESS)
		return status;

	*pairing_out = (struct kvp_pairing){
		.local = local->side->tensors + first_tensor(local, per_layer),
		.remote = remote->side->tensors + first_tensor(remote, per_layer),
		.remote_tensor = first_tensor(remote, per_layer),
		.tensors = tensors,
		.local_blocks = local->blocks,
		.remote_blocks = remote->blocks,
		.count = (uint32_t)request->count,
		.bytes_per_block = request->bytes_per_block,
		.is_push = request->is_push,
	};
	return KVP_SUCCESS;
}
