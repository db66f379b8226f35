/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_model.h - the planner and cursor against a model that copies byte by byte
 *
 * plan_model_run decodes two caches, a request, a split and the limits of every
 * cursor call from arbitrary bytes, runs the real code, and compares: each byte
 * of the destination must be given exactly once, from the right source byte.
 * Then the whole plan is posted once more, one extent at a time, to count what a
 * posting loop's requests would be. The unit test feeds it seeds, the fuzz target feeds it mutations.
 *
 * Shape:      at most 12 tensors of 40 blocks of 24 bytes per side
 */
#ifndef KVP_TESTS_PLAN_MODEL_H
#define KVP_TESTS_PLAN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "gather.h"
#include "layout.h"
#include "plan.h"
#include "request.h"

#define MODEL_TENSORS 12U
#define MODEL_BLOCKS  40U
#define MODEL_BYTES   24U
#define MODEL_PARTS   16U
#define MODEL_EXTENTS 16U
#define MODEL_SPACE   65536U /* addresses a side may use, from its origin */
#define MODEL_GUARD   0xA5

/* What the bytes came to, so that a test can show that it saw every kind. */
struct model_stats {
	uint64_t refused, sorted, backward, folded, dense_runs, cut_extents, split, pulls, ranges;
	uint64_t reread;                /* pulls that read a block more than once */
	uint64_t gathered, large, full; /* requests of several pieces; ended by bytes; by pieces */
};

struct model_input {
	const uint8_t *data;
	size_t size;
	size_t at;
};

struct model_side {
	struct kvp_tensor tensor[MODEL_TENSORS];
	uint32_t tensors;
	uint32_t first; /* tensor of the range */
	uint64_t origin;
	struct kvp_layers layers;
	struct kvp_span span[MODEL_TENSORS];
	uint64_t block[MODEL_BLOCKS];
};

struct model {
	struct model_input in;
	struct model_stats *stats;
	struct model_side src, dst;
	uint32_t per_layer, width; /* tensors; tensors of the range */
	uint32_t count;
	bool is_push, has_twin;
	struct kvp_pairing pairing;
	struct kvp_plan plan;
	uint32_t want[MODEL_SPACE]; /* per destination byte: source byte + 1, 0 = untouched */
	uint32_t have[MODEL_SPACE];
};

/* A number in [0, bound), 0 when the input has ended. */
static uint32_t
model_take(struct model_input *in, uint32_t bound)
{
	uint32_t value = 0;

	for (int i = 0; i < 2 && in->at < in->size; i++)
		value = value << 8 | in->data[in->at++];
	return value % bound;
}

static uint32_t
model_between(struct model_input *in, uint32_t low, uint32_t high)
{
	return low + model_take(in, high - low + 1);
}

/* Sizes first, so that both sides of the range can be given the same ones. */
static void
model_sizes(struct model *m)
{
	static const uint32_t usual[] = {8, 8, 16, 1, 3, MODEL_BYTES};
	bool is_uniform = model_take(&m->in, 2) == 0;
	uint32_t uniform = usual[model_take(&m->in, 6)];

	for (uint32_t i = 0; i < MODEL_TENSORS; i++) {
		m->src.tensor[i].block_bytes =
			is_uniform ? uniform : model_between(&m->in, 1, MODEL_BYTES);
		m->dst.tensor[i].block_bytes =
			is_uniform ? uniform : model_between(&m->in, 1, MODEL_BYTES);
	}
	for (uint32_t i = 0; i < m->width; i++)
		m->dst.tensor[m->dst.first + i].block_bytes =
			m->src.tensor[m->src.first + i].block_bytes;
}

/*
 * Place neighbouring tensors in clusters: those of one cluster interleave as [blocks][tensors],
 * perhaps with gaps between them and a padded stride; clusters follow each other in either
 * direction, with or without a gap.
 */
static void
model_place(struct model_input *in, struct model_side *side, uint32_t num_blocks)
{
	uint32_t cluster_max = model_between(in, 1, side->tensors);
	bool has_gaps = model_take(in, 4) == 0, is_padded = model_take(in, 3) == 0;
	bool is_downward = model_take(in, 4) == 0, is_apart = model_take(in, 2) == 0;
	uint64_t up = side->origin, down = side->origin + MODEL_SPACE;

	for (uint32_t first = 0, next; first < side->tensors; first = next) {
		uint32_t cluster = model_between(in, 1, cluster_max);
		uint64_t stride = 0, start;

		for (next = first; next < side->tensors && next < first + cluster; next++) {
			side->tensor[next].base = (void *)(uintptr_t)stride;
			stride += side->tensor[next].block_bytes;
			if (has_gaps)
				stride += model_take(in, 3);
		}
		if (is_padded)
			stride += model_take(in, 9);
		down -= stride * num_blocks;
		start = is_downward ? down : up;
		up += stride * num_blocks + (is_apart ? model_take(in, 5) : 0);
		for (uint32_t i = first; i < next; i++) {
			side->tensor[i].base =
				(void *)((uintptr_t)side->tensor[i].base + (uintptr_t)start);
			side->tensor[i].num_blocks = num_blocks;
			side->tensor[i].block_stride = stride;
		}
	}
}

static void
model_layers(struct model *m)
{
	uint32_t layers_max;

	m->per_layer = model_between(&m->in, 1, 3);
	layers_max = MODEL_TENSORS / m->per_layer;
	m->src.tensors = m->per_layer * model_between(&m->in, 1, layers_max);
	m->dst.tensors = m->per_layer * model_between(&m->in, 1, layers_max);
	if (model_take(&m->in, 2) == 0) {
		m->dst.tensors = m->src.tensors;
		m->src.layers = m->dst.layers = (struct kvp_layers){-1, -1};
		m->src.first = m->dst.first = 0;
		m->width = m->src.tensors;
		return;
	}

	uint32_t src_layers = m->src.tensors / m->per_layer;
	uint32_t dst_layers = m->dst.tensors / m->per_layer;
	uint32_t width =
		model_between(&m->in, 1, src_layers < dst_layers ? src_layers : dst_layers);
	uint32_t src_first = model_take(&m->in, src_layers - width + 1);
	uint32_t dst_first = model_take(&m->in, dst_layers - width + 1);

	m->src.layers = (struct kvp_layers){(int32_t)src_first, (int32_t)(src_first + width - 1)};
	m->dst.layers = (struct kvp_layers){(int32_t)dst_first, (int32_t)(dst_first + width - 1)};
	m->src.first = src_first * m->per_layer;
	m->dst.first = dst_first * m->per_layer;
	m->width = width * m->per_layer;
	m->stats->ranges++;
}

/* Pairs: a random subset of destinations, in stretches, in some order; sources follow or jump. */
static void
model_blocks(struct model *m, uint32_t src_blocks, uint32_t dst_blocks)
{
	uint32_t order = model_take(&m->in, 4), skip = model_between(&m->in, 1, 4);
	uint32_t src = model_take(&m->in, src_blocks);

	for (uint32_t dst = 0; dst < dst_blocks; dst++) {
		uint32_t jump = model_take(&m->in, skip);

		if (jump > 1)
			src = model_take(&m->in, src_blocks);
		if (jump == 1)
			continue;
		m->dst.block[m->count] = dst;
		m->src.block[m->count++] = src;
		src = (src + 1) % src_blocks;
	}
	if (m->count == 0) {
		m->src.block[0] = src;
		m->dst.block[m->count++] = dst_blocks - 1;
	}
	for (uint32_t i = 0; order != 0 && i < m->count; i++) {
		uint32_t j = order == 1 ? m->count - 1 - i : model_take(&m->in, m->count);
		uint64_t keep_src = m->src.block[i], keep_dst = m->dst.block[i];

		if (order == 1 && j <= i)
			break;
		m->src.block[i] = m->src.block[j];
		m->dst.block[i] = m->dst.block[j];
		m->src.block[j] = keep_src;
		m->dst.block[j] = keep_dst;
	}
	if (m->count > 1 && model_take(&m->in, 16) == 1) {
		m->dst.block[m->count - 1] = m->dst.block[model_take(&m->in, m->count - 1)];
		m->has_twin = true;
	}
}

static uint64_t
model_address(const struct kvp_tensor *tensor, uint64_t block)
{
	return (uintptr_t)tensor->base + block * tensor->block_stride;
}

/* The naive transfer: tensor by tensor, pair by pair, byte by byte. */
static void
model_copy(struct model *m)
{
	for (uint32_t t = 0; t < m->width; t++) {
		const struct kvp_tensor *src = &m->src.tensor[m->src.first + t];
		const struct kvp_tensor *dst = &m->dst.tensor[m->dst.first + t];

		for (uint32_t i = 0; i < m->count; i++) {
			uint64_t from = model_address(src, m->src.block[i]) - m->src.origin;
			uint64_t to = model_address(dst, m->dst.block[i]) - m->dst.origin;

			for (uint64_t byte = 0; byte < src->block_bytes; byte++)
				m->want[to + byte] = (uint32_t)(from + byte) + 1;
		}
	}
}

static const char *
model_extent(struct model *m, const struct kvp_extent *extent)
{
	const struct model_side *remote = m->is_push ? &m->dst : &m->src;
	uint64_t local = (uintptr_t)extent->local;
	uint64_t there, from, to;

	if (extent->bytes == 0)
		return "an extent is empty";
	if (extent->remote_tensor >= remote->tensors)
		return "an extent names a tensor that does not exist";
	there = (uintptr_t)remote->tensor[extent->remote_tensor].base + extent->remote_offset;
	if (!kvp_span_holds(&remote->span[extent->remote_tensor], there, extent->bytes))
		return "an extent leaves the span of its tensor";
	from = (m->is_push ? local : there) - m->src.origin;
	to = (m->is_push ? there : local) - m->dst.origin;
	if (from >= MODEL_SPACE || to >= MODEL_SPACE || extent->bytes > MODEL_SPACE - from ||
	    extent->bytes > MODEL_SPACE - to)
		return "an extent lies outside of the caches";
	for (uint32_t byte = 0; byte < extent->bytes; byte++) {
		if (m->have[to + byte] != 0)
			return "a byte is given twice";
		m->have[to + byte] = (uint32_t)(from + byte) + 1;
	}
	return NULL;
}

/* One part to its end; *extents counts them, UINT64_MAX once a limit may have cut one. */
static const char *
model_part(struct model *m, uint64_t first, uint64_t bytes, uint64_t *extents)
{
	struct kvp_extent extent[MODEL_EXTENTS + 1];
	struct kvp_cursor cursor;
	uint64_t done = 0;

	kvp_cursor_init(&cursor, &m->plan, first, bytes);
	for (;;) {
		uint32_t max = model_between(&m->in, 1, MODEL_EXTENTS);
		uint64_t bytes_max = UINT64_MAX, given = 0;
		const char *wrong;
		uint32_t count;

		if (model_take(&m->in, 2) == 1) {
			bytes_max = model_between(&m->in, 1, 200);
			*extents = UINT64_MAX;
			m->stats->cut_extents++;
		}
		memset(&extent[max], MODEL_GUARD, sizeof(extent[0]));
		count = kvp_cursor_next(&cursor, max, bytes_max, extent);
		if (count == 0)
			return done == bytes ? NULL : "a part ends early";
		if (count > max)
			return "more extents than asked for";
		if (extent[max].remote_tensor != 0xA5A5A5A5U)
			return "an extent is written behind the last";
		for (uint32_t i = 0; i < count; i++) {
			given += extent[i].bytes;
			wrong = model_extent(m, &extent[i]);
			if (wrong != NULL)
				return wrong;
		}
		done += given;
		if (given > bytes_max || done > bytes)
			return "more bytes than asked for";
		if (cursor.left != bytes - done)
			return "left is not what is left";
		if (given < bytes_max && count < max && done < bytes)
			return "fewer extents than there were room for";
		if (*extents != UINT64_MAX)
			*extents += count;
	}
}

static bool
model_is_boundary(const struct model *m, uint64_t position)
{
	uint32_t g = 0;

	while (g < m->plan.groups && position >= m->plan.blocks * m->plan.group[g].block_bytes)
		position -= m->plan.blocks * m->plan.group[g++].block_bytes;
	return g < m->plan.groups ? position % m->plan.group[g].block_bytes == 0 : position == 0;
}

/* Split, check the shares, run all parts in some order. */
static const char *
model_parts(struct model *m)
{
	uint32_t parts_max = model_between(&m->in, 1, MODEL_PARTS);
	uint64_t bytes_min = model_take(&m->in, 3) == 0 ? 0 : model_take(&m->in, 400);
	uint64_t first[MODEL_PARTS + 1], extents = 0;
	uint32_t parts, turn;

	parts = kvp_plan_split(&m->plan, parts_max, bytes_min, first);
	if (parts < 1 || parts > parts_max)
		return "a wrong number of parts";
	if (first[0] != 0 || first[parts] != m->plan.bytes)
		return "the parts are not the plan";
	for (uint32_t i = 0; i < parts; i++) {
		if (first[i] >= first[i + 1])
			return "a part is empty";
		if (parts > 1 && first[i + 1] - first[i] < bytes_min)
			return "a part is smaller than bytes_min";
		if (!model_is_boundary(m, first[i]))
			return "a part begins inside a piece";
	}
	m->stats->split += parts > 1;

	turn = model_take(&m->in, parts);
	for (uint32_t i = 0; i < parts; i++) {
		uint32_t part = (turn + i) % parts;
		const char *wrong =
			model_part(m, first[part], first[part + 1] - first[part], &extents);

		if (wrong != NULL)
			return wrong;
	}
	if (parts == 1 && extents != UINT64_MAX && extents != m->plan.extents)
		return "the plan's number of extents is not how many there are";
	return memcmp(m->want, m->have, sizeof(m->want)) == 0 ? NULL : "a byte is wrong or missing";
}

/* The same extents, whatever the number asked for at once. */
static const char *
model_each(struct model *m, uint32_t each_max)
{
	struct kvp_extent extent[MODEL_EXTENTS], one;
	struct kvp_cursor many, single;
	uint32_t count;

	kvp_cursor_init(&many, &m->plan, 0, m->plan.bytes);
	kvp_cursor_init(&single, &m->plan, 0, m->plan.bytes);
	while ((count = kvp_cursor_next_each(&many, MODEL_EXTENTS, UINT64_MAX, each_max, extent)) >
	       0) {
		for (uint32_t i = 0; i < count; i++) {
			if (kvp_cursor_next(&single, 1, each_max, &one) != 1 ||
			    one.local != extent[i].local || one.bytes != extent[i].bytes ||
			    one.remote_offset != extent[i].remote_offset ||
			    one.remote_tensor != extent[i].remote_tensor)
				return "extents of a batch are not those of single calls";
		}
	}
	return single.left == 0 ? NULL : "a batch ends early";
}

/* A posting loop that knows a request by its place in the peer's memory, not by the rule. */
static const char *
model_gather(struct model *m)
{
	const struct model_side *remote = m->is_push ? &m->dst : &m->src;
	const struct kvp_cost cost = {
		.request_ns = 2,
		.piece_ns = 1,
		.pieces_max = model_between(&m->in, 1, 8),
		.bytes_preferred = model_between(&m->in, 1, 120),
		.bytes_max = model_between(&m->in, 1, 160),
	};
	const struct kvp_gather_limits limits = kvp_gather_limits_of(&cost);
	struct kvp_gather_tally want = {0}, tally;
	uint64_t held = 0, in_it = 0, end = 0;
	uint32_t tensor = UINT32_MAX;
	struct kvp_cursor cursor;
	struct kvp_extent e;

	kvp_cursor_init(&cursor, &m->plan, 0, m->plan.bytes);
	while (kvp_cursor_next(&cursor, 1, cost.bytes_max, &e) == 1) {
		uint64_t start = (uintptr_t)remote->tensor[e.remote_tensor].base + e.remote_offset;
		bool is_apart = start != end || e.remote_tensor != tensor;
		bool is_large = held >= cost.bytes_preferred || held + e.bytes > cost.bytes_max;

		if (in_it == 0 || is_apart || is_large || in_it == cost.pieces_max) {
			want.gaps += in_it > 0 && is_apart;
			want.large += in_it > 0 && !is_apart && is_large;
			want.full += in_it > 0 && !is_apart && !is_large;
			want.requests++;
			held = in_it = 0;
		}
		in_it++;
		want.pieces++;
		held += e.bytes;
		end = start + e.bytes;
		tensor = e.remote_tensor;
		m->stats->gathered += in_it == 2;
	}
	m->stats->large += want.large;
	m->stats->full += want.full;
	kvp_gather_tally(&m->plan, &limits, &tally);
	if (memcmp(&want, &tally, sizeof(want)) != 0)
		return "requests, pieces or what ends them are not as they are";
	return model_each(m, limits.bytes_max);
}

static const char *
model_numbers(struct model *m)
{
	const struct kvp_plan *plan = &m->plan;
	uint64_t bytes = 0, tensors = 0;

	for (uint32_t t = 0; t < m->width; t++)
		bytes += m->count * m->src.tensor[m->src.first + t].block_bytes;
	for (uint32_t g = 0; g < plan->groups; g++) {
		tensors += plan->group[g].tensors;
		m->stats->folded += plan->group[g].tensors > 1;
		m->stats->dense_runs += plan->group[g].is_dense && plan->runs < plan->blocks;
	}
	if (plan->bytes != bytes || plan->blocks != m->count || tensors != m->width ||
	    plan->pieces != (uint64_t)m->count * m->width)
		return "bytes, blocks, tensors or pieces are wrong";
	for (uint32_t r = 0; r < plan->runs; r++) {
		const struct kvp_run *run = &plan->run[r], *before = run - 1;
		uint32_t twice = m->is_push ? 0 : 1; /* a pull may read the last block again */

		if (run->count == 0 ||
		    run->ordinal != (r == 0 ? 0 : before->ordinal + before->count))
			return "a run is empty or its ordinal wrong";
		if (r > 0 && run->remote + twice < before->remote + before->count)
			return "runs do not ascend";
		m->stats->reread += r > 0 && run->remote < before->remote + before->count;
		if (r > 0 && run->local == before->local + before->count &&
		    run->remote == before->remote + before->count)
			return "two runs could be one";
	}
	return NULL;
}

/* Prepare and fill in buffers of exactly the promised sizes, then go on to the parts. */
static const char *
model_plan(struct model *m)
{
	size_t scratch_bytes = kvp_plan_scratch_bytes(m->pairing.count);
	uint8_t *scratch = malloc(scratch_bytes + 1), *memory = NULL;
	struct kvp_error err = {""};
	const char *wrong = "no memory";
	size_t plan_bytes;

	if (scratch == NULL)
		return wrong;
	scratch[scratch_bytes] = MODEL_GUARD;
	if (kvp_plan_prepare(&m->pairing, scratch, &m->plan, &err) != KVP_SUCCESS) {
		m->stats->refused++;
		wrong = m->has_twin && strstr(err.text, "dst_blocks[") != NULL
				? NULL
				: "a good plan is refused";
		goto out;
	}
	wrong = "a destination that comes twice is not refused";
	if (m->has_twin)
		goto out;
	plan_bytes = kvp_plan_bytes(&m->plan);
	memory = malloc(plan_bytes + 1);
	wrong = "no memory";
	if (memory == NULL)
		goto out;
	memory[plan_bytes] = MODEL_GUARD;
	kvp_plan_fill(&m->pairing, scratch, memory, &m->plan);
	wrong = "memory behind scratch or plan is written";
	if (scratch[scratch_bytes] != MODEL_GUARD || memory[plan_bytes] != MODEL_GUARD)
		goto out;
	m->stats->sorted += m->plan.is_sorted;
	m->stats->backward += !m->plan.is_sorted && m->count > 1 &&
			      m->pairing.remote_blocks[0] > m->pairing.remote_blocks[1];
	wrong = model_numbers(m);
	if (wrong == NULL)
		wrong = model_parts(m);
	if (wrong == NULL)
		wrong = model_gather(m);
out:
	free(memory);
	free(scratch);
	return wrong;
}

static const char *
model_request(struct model *m)
{
	const struct kvp_request request = {
		.is_push = m->is_push,
		.src_blocks = m->src.block,
		.dst_blocks = m->dst.block,
		.count = m->count,
		.src_layers = m->src.layers,
		.dst_layers = m->dst.layers,
		.tensors_per_layer = m->per_layer,
	};
	const struct kvp_side src = {m->src.tensor, m->src.tensors, "src"};
	const struct kvp_side dst = {m->dst.tensor, m->dst.tensors, "dst"};

	if (kvp_layout_check(m->src.tensor, m->src.tensors, false, NULL) != KVP_SUCCESS ||
	    kvp_layout_check(m->dst.tensor, m->dst.tensors, false, NULL) != KVP_SUCCESS)
		return "a good layout is refused";
	if (kvp_request_check(&request, NULL) != KVP_SUCCESS)
		return "a good request is refused";
	if (kvp_request_pair(&request, &src, &dst, &m->pairing, NULL) != KVP_SUCCESS)
		return "a good pair of caches is refused";
	return NULL;
}

/* NULL when the planner and the cursor do what the model does, else what differs. */
static const char *
plan_model_run(const uint8_t *data, size_t size, struct model_stats *stats)
{
	static struct model m; /* large; static also shows that nothing depends on zeroed memory */
	uint32_t src_blocks, dst_blocks;
	const char *wrong;

	memset(&m, 0, sizeof(m));
	m.in = (struct model_input){.data = data, .size = size};
	m.stats = stats;
	m.is_push = model_take(&m.in, 2) == 0;
	stats->pulls += !m.is_push;
	m.src.origin = 0x100000;
	m.dst.origin = 0x7F0000000000;
	src_blocks = model_between(&m.in, 1, MODEL_BLOCKS);
	dst_blocks = model_between(&m.in, 1, MODEL_BLOCKS);
	model_layers(&m);
	model_sizes(&m);
	model_place(&m.in, &m.src, src_blocks);
	model_place(&m.in, &m.dst, dst_blocks);
	kvp_layout_spans(m.src.tensor, m.src.tensors, m.src.span);
	kvp_layout_spans(m.dst.tensor, m.dst.tensors, m.dst.span);
	model_blocks(&m, src_blocks, dst_blocks);
	wrong = model_request(&m);
	if (wrong != NULL)
		return wrong;
	model_copy(&m);
	return model_plan(&m);
}

/* splitmix64 */
static inline uint64_t
model_random(uint64_t *state)
{
	uint64_t z = *state += 0x9E3779B97F4A7C15ULL;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return z ^ z >> 31;
}

#endif /* KVP_TESTS_PLAN_MODEL_H */
