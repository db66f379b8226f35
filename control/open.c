/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open.c - pushes whose layers move one by one
 *
 * One plan, whose groups end where layers do, so that each layer is a slice of it.
 * One allocation: the push, its layers (engine/open.h), the plan.
 */
#include "open.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "job.h"
#include "launch.h"
#include "report.h"
#include "wake.h"

/* Where things are in the allocation. */
struct layout {
	uint32_t layers;
	uint32_t parts; /* of a layer, at most */
	size_t open;
	size_t plan;
	size_t bytes;
};

static bool
wants_layers(const struct kvp_job *job)
{
	return job->notify->layers != 0;
}

static uint32_t
layer_from(struct kvp_layers layers)
{
	return layers.first == -1 ? 0 : (uint32_t)layers.first;
}

static struct layout
layout_of(const struct kvp_job *job, const struct kvp_pairing *pairing, const struct kvp_plan *plan)
{
	uint32_t endpoints = job->link->path->config.endpoints;
	struct layout layout = {
		.layers = pairing->tensors / job->request.tensors_per_layer,
		/* On one endpoint notifications keep their order, as the receiver is promised. */
		.parts = wants_layers(job) ? 1 : endpoints,
		.open = sizeof(struct kvp_transfer),
	};

	layout.plan = layout.open + kvp_open_bytes(layout.layers, layout.parts);
	layout.bytes = layout.plan + kvp_plan_bytes(plan);
	layout.bytes = (layout.bytes + KVP_SHARE_SPAN - 1) / KVP_SHARE_SPAN * KVP_SHARE_SPAN;
	return layout;
}
_Static_assert(sizeof(struct kvp_transfer) % KVP_SHARE_SPAN == 0, "layers lie behind it");

/* One part per endpoint that layers may use: it waits for them, sees the deadline, and whatever ends the push. */
static void
parts_make(struct kvp_transfer *whole, const struct kvp_path *path, uint32_t parts)
{
	whole->parts = parts;
	atomic_init(&whole->parts_left, parts);
	for (uint32_t i = 0; i < parts; i++) {
		struct kvp_part *part = &whole->part[i];

		memset(part, 0, sizeof(*part));
		part->transfer = whole;
		part->endpoint = path->endpoint[(whole->id + i) % path->config.endpoints];
		part->lane = part->endpoint->lane;
		part->phase = KVP_PART_WAITING;
		kvp_cursor_init(&part->cursor, &whole->plan, 0, 0);
	}
}

static void
layers_make(const struct kvp_job *job, struct kvp_transfer *whole, const struct layout *layout)
{
	uint32_t group_at = 0;

	for (uint32_t i = 0; i < layout->layers; i++) {
		struct kvp_transfer *layer = kvp_open_layer(whole->open, i);

		memcpy(layer, whole, offsetof(struct kvp_transfer, word));
		memset(&layer->word, 0,
		       offsetof(struct kvp_transfer, part) - offsetof(struct kvp_transfer, word));
		memset(layer->holds, 0, sizeof(layer->holds));
		layer->tally = NULL;
		layer->whole = whole;
		layer->open = NULL;
		layer->has_notify = wants_layers(job);
		layer->notify_layer = (uint16_t)(1 + layer_from(job->request.dst_layers) + i);
		kvp_plan_slice(&whole->plan, job->request.tensors_per_layer, &group_at,
			       &layer->plan);
		kvp_launch_split(layer, job->link->path, layout->parts,
				 whole->id + (wants_layers(job) ? 0 : i));
	}
}

static kvp_status
build(struct kvp_engine *engine, const struct kvp_job *job, const struct kvp_pairing *pairing,
      void *scratch, struct kvp_transfer **transfer_out, struct kvp_error *err)
{
	struct kvp_plan plan = {0};
	struct kvp_transfer *whole;
	struct layout layout;
	kvp_status status = kvp_plan_prepare(pairing, scratch, &plan, err);

	if (status != KVP_SUCCESS)
		return status;
	layout = layout_of(job, pairing, &plan);
	whole = aligned_alloc(KVP_SHARE_SPAN, layout.bytes);
	if (whole == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a transfer of %u layers",
				layout.layers);
	kvp_job_fill(engine, job, whole);
	whole->room = layout.bytes;
	whole->plan = plan;
	kvp_plan_fill(pairing, scratch, (uint8_t *)whole + layout.plan, &whole->plan);
	whole->open = kvp_open_create((uint8_t *)whole + layout.open, layout.layers, layout.parts);
	whole->open->first = (int32_t)layer_from(job->request.src_layers);
	parts_make(whole, job->link->path, layout.parts);
	layers_make(job, whole, &layout);
	whole->plan_ns = kvp_now_ns() - job->start_ns;
	*transfer_out = whole;
	return KVP_SUCCESS;
}

static kvp_status
open_job(struct kvp_engine *engine, struct kvp_job *job, struct kvp_transfer **transfer_out,
	 struct kvp_error *err)
{
	struct kvp_pairing pairing;
	void *scratch;
	kvp_status status = kvp_job_pair(job, &pairing, err);

	if (status != KVP_SUCCESS)
		return status;
	pairing.fold = job->request.tensors_per_layer;
	scratch = malloc(kvp_plan_scratch_bytes(pairing.count));
	if (scratch == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to plan %u blocks",
				pairing.count);
	status = build(engine, job, &pairing, scratch, transfer_out, err);
	free(scratch);
	return status;
}

static kvp_status
open_push(struct kvp_engine *engine, struct kvp_job *job, struct kvp_transfer **transfer_out,
	  struct kvp_error *err)
{
	kvp_status status = kvp_job_check(engine, job, err);

	if (status == KVP_SUCCESS)
		status = kvp_job_find(engine, job, err);
	if (status != KVP_SUCCESS)
		return status;
	status = open_job(engine, job, transfer_out, err);
	if (status != KVP_SUCCESS) {
		kvp_job_drop(engine, job);
		return status;
	}
	kvp_launch(*transfer_out);
	return KVP_SUCCESS;
}

kvp_status
kvp_push_open(struct kvp_engine *engine, const struct kvp_push *push,
	      struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_job job;

	if (status != KVP_SUCCESS)
		return status;
	if (push == NULL || transfer_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				push == NULL ? "push" : "transfer_out");
	job = kvp_job_of_push(push);
	job.is_open = true;
	status = open_push(engine, &job, transfer_out, err);
	if (status != KVP_SUCCESS)
		kvp_tally_refused(engine, status);
	return status;
}

kvp_status
kvp_push_layer(struct kvp_transfer *transfer, int32_t layer)
{
	struct kvp_error *err = kvp_error_here();
	struct kvp_open *open;
	kvp_status why;

	if (transfer == NULL || transfer->open == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				transfer == NULL ? "transfer is NULL"
						 : "transfer is not one of kvp_push_open");
	open = transfer->open;
	if (layer < open->first || (uint32_t)(layer - open->first) >= open->layers)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"layer is %d; src_layers of this push are {%d, %d}", layer,
				open->first, open->first + (int32_t)open->layers - 1);
	switch (kvp_open_mark(open, (uint32_t)(layer - open->first))) {
	case KVP_LAYER_UNMARKED:
		kvp_launch(kvp_open_layer(open, (uint32_t)(layer - open->first)));
		return KVP_SUCCESS;
	case KVP_LAYER_READY:
		return kvp_fail(err, KVP_PARAM_INVALID, "layer %d was made ready before", layer);
	case KVP_LAYER_ABANDONED:
		break;
	}
	why = atomic_load_explicit(&transfer->first_error, memory_order_relaxed);
	return kvp_fail(err, why, "push %" PRIu64 " is over (%s): layer %d does not move",
			transfer->id, kvp_status_name(why), layer);
}
