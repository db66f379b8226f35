/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/plan.h>

#include "cursor.h"
#include "layout.h"
#include "plan.h"
#include "report.h"
#include "request.h"

#define REQUEST_BYTES_DEFAULT (1ULL << 20)
#define EXTENTS_AT_ONCE       64U

/* A line that grows clause by clause. */
struct line {
	char *text;
	size_t size;
	size_t used;
};

static void
line_add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void
line_add(struct line *line, const char *format, ...)
{
	size_t room = line->size - line->used;
	va_list args;
	int bytes;

	va_start(args, format);
	bytes = vsnprintf(line->text + line->used, room, format, args);
	va_end(args);
	if (bytes > 0)
		line->used += (size_t)bytes < room ? (size_t)bytes : room - 1;
}

static kvp_status
cache_check(const char *name, const struct kvp_tensor *tensors, uint32_t num_tensors,
	    struct kvp_error *err)
{
	struct kvp_error detail = {""};
	bool lacks_base = tensors != NULL && num_tensors > 0 && tensors[0].base == NULL;
	kvp_status status = kvp_layout_check(tensors, num_tensors, lacks_base, &detail);

	if (status != KVP_SUCCESS)
		kvp_fail(err, status, "%s: %s", name, detail.text);
	return status;
}

static kvp_status
query_pair(const struct kvp_plan_query *query, struct kvp_pairing *pairing_out,
	   struct kvp_error *err)
{
	const struct kvp_request request = {
		.is_push = true,
		.src_blocks = query->src_blocks,
		.dst_blocks = query->dst_blocks,
		.count = query->count,
		.src_layers = query->src_layers,
		.dst_layers = query->dst_layers,
		.tensors_per_layer = query->tensors_per_layer,
	};
	const struct kvp_side src = {query->src, query->src_tensors, "src"};
	const struct kvp_side dst = {query->dst, query->dst_tensors, "dst"};
	kvp_status status = kvp_request_check(&request, err);

	if (status == KVP_SUCCESS)
		status = cache_check("dst", query->dst, query->dst_tensors, err);
	if (status == KVP_SUCCESS)
		status = cache_check("src", query->src, query->src_tensors, err);
	if (status == KVP_SUCCESS)
		status = kvp_request_pair(&request, &src, &dst, pairing_out, err);
	return status;
}

/*
 * How often a transport calls kvp_cursor_next with these limits until the end. A long extent is
 * divided here instead of cut by the cursor, so that tiny limits cost nothing.
 */
static uint64_t
requests_count(const struct kvp_plan *plan, uint64_t bytes_max, uint32_t pieces_max)
{
	struct kvp_extent extent[EXTENTS_AT_ONCE];
	struct kvp_cursor cursor;
	uint64_t requests = 0, bytes = 0; /* finished ones; in the open one */
	uint32_t pieces = 0, count;       /* in the open one */

	kvp_cursor_init(&cursor, plan, 0, plan->bytes);
	while ((count = kvp_cursor_next(&cursor, EXTENTS_AT_ONCE, UINT64_MAX, extent)) > 0) {
		for (uint32_t i = 0; i < count; i++) {
			uint64_t rest = extent[i].bytes;

			if (pieces == pieces_max) {
				requests++;
				pieces = 0;
				bytes = 0;
			}
			if (rest >= bytes_max - bytes) {
				rest -= bytes_max - bytes;
				requests += 1 + rest / bytes_max;
				rest %= bytes_max;
				bytes = 0;
				pieces = 0;
			}
			bytes += rest;
			pieces += rest > 0;
		}
	}
	return requests + (pieces > 0);
}

/* Why are there several runs of blocks? */
static void
why_runs(const struct kvp_plan *plan, struct line *line)
{
	uint32_t src_only = 0, dst_only = 0, both = 0;

	for (uint32_t i = 1; i < plan->runs; i++) {
		const struct kvp_run *before = &plan->run[i - 1], *run = &plan->run[i];
		bool src_touch = run->local == (uint64_t)before->local + before->count;
		bool dst_touch = run->remote == (uint64_t)before->remote + before->count;

		src_only += !src_touch && dst_touch;
		dst_only += src_touch && !dst_touch;
		both += !src_touch && !dst_touch;
	}
	line_add(line, "%u blocks are %u runs: gaps on src %u, on dst %u, on both %u", plan->blocks,
		 plan->runs, src_only, dst_only, both);
}

static const char *
side_name(bool is_src, bool is_dst)
{
	if (is_src && is_dst)
		return "both sides";
	return is_src ? "src" : "dst";
}

/* Do blocks of a run not touch, because a slot is smaller than a stride? */
static void
why_strides(const struct kvp_plan *plan, struct line *line)
{
	for (uint32_t i = 0; i < plan->groups; i++) {
		const struct kvp_group *group = &plan->group[i];

		if (group->is_dense)
			continue;
		line_add(line,
			 "%sblocks of a run stay apart: slots of %llu bytes, strides %llu on src, "
			 "%llu on dst",
			 line->used > 0 ? "; " : "", (unsigned long long)group->block_bytes,
			 (unsigned long long)group->local_stride,
			 (unsigned long long)group->remote_stride);
		return;
	}
}

static bool
is_neighbour(const struct kvp_tensor *tensor)
{
	return (uintptr_t)tensor[1].base == (uintptr_t)tensor[0].base + tensor[0].block_bytes &&
	       tensor[1].block_stride == tensor[0].block_stride;
}

/* Why are there several groups of tensors? */
static void
why_groups(const struct kvp_pairing *pairing, const struct kvp_plan *plan, struct line *line)
{
	uint32_t last = plan->group[0].tensors - 1; /* of the first group, within the pairing */

	line_add(line, "%s%u tensors are %u groups: %u and %u are not neighbours in a slot on %s",
		 line->used > 0 ? "; " : "", pairing->tensors, plan->groups, last, last + 1,
		 side_name(!is_neighbour(&pairing->local[last]),
			   !is_neighbour(&pairing->remote[last])));
}

static void
why_fill(const struct kvp_pairing *pairing, const struct kvp_plan *plan, char *text, size_t size)
{
	struct line line = {.text = text, .size = size};

	text[0] = '\0';
	if (plan->runs > 1)
		why_runs(plan, &line);
	if (plan->runs < plan->blocks)
		why_strides(plan, &line);
	if (plan->groups > 1)
		why_groups(pairing, plan, &line);
	if (line.used == 0)
		line_add(&line, "nothing: all of it is one run");
}

static kvp_status
plan_explain(const struct kvp_plan_query *query, const struct kvp_pairing *pairing, void *scratch,
	     struct kvp_plan_report *report_out, struct kvp_error *err)
{
	uint64_t bytes_max = query->request_bytes_max;
	struct kvp_plan plan = {0};
	void *memory;
	kvp_status status;

	status = kvp_plan_prepare(pairing, scratch, &plan, err);
	if (status != KVP_SUCCESS)
		return status;
	memory = malloc(kvp_plan_bytes(&plan));
	if (memory == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a plan of %zu bytes",
				kvp_plan_bytes(&plan));

	kvp_plan_fill(pairing, scratch, memory, &plan);
	*report_out = (struct kvp_plan_report){
		.bytes = plan.bytes,
		.pieces = plan.pieces,
		.runs = plan.extents,
		.requests =
			requests_count(&plan, bytes_max == 0 ? REQUEST_BYTES_DEFAULT : bytes_max,
				       query->pieces_max == 0 ? 1 : query->pieces_max),
		.plan_bytes = kvp_plan_bytes(&plan),
		.block_runs = plan.runs,
		.groups = plan.groups,
		.folded = pairing->tensors - plan.groups,
		.sorted = plan.is_sorted,
	};
	why_fill(pairing, &plan, report_out->why, sizeof(report_out->why));
	free(memory);
	return KVP_SUCCESS;
}

kvp_status
kvp_plan_explain(const struct kvp_plan_query *query, struct kvp_plan_report *report_out)
{
	struct kvp_error *err = kvp_error_here();
	struct kvp_pairing pairing;
	kvp_status status;
	void *scratch;

	if (query == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "query is NULL");
	if (report_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "report_out is NULL");
	status = query_pair(query, &pairing, err);
	if (status != KVP_SUCCESS)
		return status;

	scratch = malloc(kvp_plan_scratch_bytes(pairing.count));
	if (scratch == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to plan %zu blocks",
				query->count);
	status = plan_explain(query, &pairing, scratch, report_out, err);
	free(scratch);
	return status;
}
