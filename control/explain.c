/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/plan.h>

#include "gather.h"
#include "layout.h"
#include "line.h"
#include "plan.h"
#include "report.h"
#include "request.h"

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
		.is_push = query->is_pull == 0,
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

/* Why are there several runs of blocks? */
static void
why_runs(const struct kvp_plan *plan, bool is_push, struct kvp_line *line)
{
	uint32_t local = 0, remote = 0, both = 0;

	for (uint32_t i = 1; i < plan->runs; i++) {
		const struct kvp_run *before = &plan->run[i - 1], *run = &plan->run[i];
		bool local_touch = run->local == (uint64_t)before->local + before->count;
		bool remote_touch = run->remote == (uint64_t)before->remote + before->count;

		local += !local_touch && remote_touch;
		remote += local_touch && !remote_touch;
		both += !local_touch && !remote_touch;
	}
	kvp_line_add(line, "%u blocks are %u runs: gaps on src %u, on dst %u, on both %u",
		     plan->blocks, plan->runs, is_push ? local : remote, is_push ? remote : local,
		     both);
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
why_strides(const struct kvp_plan *plan, bool is_push, struct kvp_line *line)
{
	for (uint32_t i = 0; i < plan->groups; i++) {
		const struct kvp_group *group = &plan->group[i];

		if (group->is_dense)
			continue;
		kvp_line_add(
			line,
			"%sblocks of a run stay apart: slots of %llu bytes, strides %llu on src, "
			"%llu on dst",
			line->used > 0 ? "; " : "", (unsigned long long)group->block_bytes,
			(unsigned long long)(is_push ? group->local_stride : group->remote_stride),
			(unsigned long long)(is_push ? group->remote_stride : group->local_stride));
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
why_groups(const struct kvp_pairing *pairing, const struct kvp_plan *plan, struct kvp_line *line)
{
	uint32_t last = plan->group[0].tensors - 1; /* of the first group, within the pairing */
	bool local = !is_neighbour(&pairing->local[last]);
	bool remote = !is_neighbour(&pairing->remote[last]);

	kvp_line_add(line,
		     "%s%u tensors are %u groups: %u and %u are not neighbours in a slot on %s",
		     line->used > 0 ? "; " : "", pairing->tensors, plan->groups, last, last + 1,
		     pairing->is_push ? side_name(local, remote) : side_name(remote, local));
}

/* What both ways to make requests come to, and which one a transport takes. */
struct choice {
	struct kvp_cost cost;
	struct kvp_gather_tally gather; /* as if gathering always paid */
	struct kvp_gather_tally single;
	bool is_gathered;
};

static void
choose(const struct kvp_plan_query *query, const struct kvp_plan *plan, struct choice *choice)
{
	struct kvp_cost given = {
		.request_ns = query->request_ns,
		.piece_ns = query->piece_ns,
		.pieces_max = query->pieces_max,
		.bytes_preferred = query->bytes_preferred,
		.bytes_max = query->request_bytes_max,
	};
	struct kvp_gather_limits limits = kvp_gather_limits_of(&given), single = limits;

	choice->cost = kvp_cost_complete(&given);
	choice->is_gathered = limits.pieces_max > 1;
	limits.pieces_max = choice->cost.pieces_max;
	single.pieces_max = 1;
	kvp_gather_tally(plan, &limits, &choice->gather);
	kvp_gather_tally(plan, &single, &choice->single);
}

/* What ends requests, when several pieces could be in one? */
static void
why_requests(const struct choice *choice, bool is_push, struct kvp_line *line)
{
	const struct kvp_gather_tally *gather = &choice->gather;
	const char *between = line->used > 0 ? "; " : "";

	if (choice->cost.pieces_max == 1 || gather->pieces == 1)
		return;
	if (!choice->is_gathered)
		kvp_line_add(line,
			     "%seach run has its own request: a piece costs %u ns, a request %u",
			     between, choice->cost.piece_ns, choice->cost.request_ns);
	else
		kvp_line_add(line,
			     "%s%llu pieces are gathered in %llu requests, which end at gaps on %s "
			     "%llu, at %u pieces %llu, at their bytes %llu",
			     between, (unsigned long long)gather->pieces,
			     (unsigned long long)gather->requests, is_push ? "dst" : "src",
			     (unsigned long long)gather->gaps, choice->cost.pieces_max,
			     (unsigned long long)gather->full, (unsigned long long)gather->large);
}

static void
why_fill(const struct kvp_pairing *pairing, const struct kvp_plan *plan,
	 const struct choice *choice, char *text, size_t size)
{
	struct kvp_line line = kvp_line_start(text, size);

	text[0] = '\0';
	if (plan->runs > 1)
		why_runs(plan, pairing->is_push, &line);
	if (plan->runs < plan->blocks)
		why_strides(plan, pairing->is_push, &line);
	if (plan->groups > 1)
		why_groups(pairing, plan, &line);
	if (line.used == 0)
		kvp_line_add(&line, "nothing: all of it is one run");
	why_requests(choice, pairing->is_push, &line);
}

static kvp_status
plan_explain(const struct kvp_plan_query *query, const struct kvp_pairing *pairing, void *scratch,
	     struct kvp_plan_report *report_out, struct kvp_error *err)
{
	const struct kvp_gather_tally *chosen;
	struct kvp_plan plan = {0};
	struct choice choice;
	kvp_status status;
	void *memory;

	status = kvp_plan_prepare(pairing, scratch, &plan, err);
	if (status != KVP_SUCCESS)
		return status;
	memory = malloc(kvp_plan_bytes(&plan));
	if (memory == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a plan of %zu bytes",
				kvp_plan_bytes(&plan));

	kvp_plan_fill(pairing, scratch, memory, &plan);
	choose(query, &plan, &choice);
	chosen = choice.is_gathered ? &choice.gather : &choice.single;
	*report_out = (struct kvp_plan_report){
		.bytes = plan.bytes,
		.pieces = plan.pieces,
		.runs = plan.extents,
		.requests = chosen->requests,
		.gathered = chosen->pieces,
		.request_bytes = plan.bytes / chosen->requests,
		.gather_ns =
			kvp_cost_ns(&choice.cost, choice.gather.requests, choice.gather.pieces),
		.single_ns =
			kvp_cost_ns(&choice.cost, choice.single.requests, choice.single.pieces),
		.plan_bytes = kvp_plan_bytes(&plan),
		.block_runs = plan.runs,
		.groups = plan.groups,
		.folded = pairing->tensors - plan.groups,
		.sorted = plan.is_sorted,
	};
	why_fill(pairing, &plan, &choice, report_out->why, sizeof(report_out->why));
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
