/* SPDX-License-Identifier: Apache-2.0 */

#include "check.h"
#include "inbox.h"
#include "lane.h"
#include "shm.h"
#include "wake.h"

#define STEP_BYTES   (256U << 10) /* about 25 us of copying, then others get their turn */
#define STEP_EXTENTS (16U * KVP_SHM_BATCH)
#define NOTES_MAX    16U /* notifications in one call */

static inline struct kvp_shm_endpoint *
shm_endpoint(struct kvp_endpoint *base)
{
	return (struct kvp_shm_endpoint *)base;
}

static KVP_COLD void
break_rings(struct kvp_shm_endpoint *endpoint, uint64_t now_ns)
{
	endpoint->is_broken = true;
	kvp_lane_endpoint_failed(&endpoint->base, KVP_PROTOCOL, now_ns);
}

/* The peer's private memory among the extents: one process_vm call for all. */
static KVP_COLD kvp_status
move_foreign(struct kvp_shm_endpoint *endpoint, const struct kvp_transfer *transfer,
	     const struct kvp_extent *extent, uint32_t count)
{
	const struct kvp_shm_foreign *foreign = &endpoint->path->foreign;
	struct iovec local[KVP_SHM_BATCH], remote[KVP_SHM_BATCH];
	uint32_t n = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_shm_tensor *tensor =
			&transfer->view->tensor[extent[i].remote_tensor];
		uint64_t address = tensor->address + extent[i].remote_offset;

		if (tensor->mapped != NULL)
			continue;
		local[n] = (struct iovec){.iov_base = extent[i].local, .iov_len = extent[i].bytes};
		remote[n] = (struct iovec){.iov_base = (void *)(uintptr_t)address,
					   .iov_len = extent[i].bytes};
		n++;
	}
	return foreign->move(foreign, transfer->is_push, local, remote, n);
}

/* Move some extents. SUCCESS, or why the transfer must stop. */
static kvp_status
move_extents(struct kvp_shm_endpoint *endpoint, const struct kvp_transfer *transfer,
	     const struct kvp_extent *extent, uint32_t count)
{
	const struct kvp_view *view = transfer->view;
	kvp_copy_fn copy = transfer->is_hot ? endpoint->kernels->hot : endpoint->kernels->cold;
	bool has_foreign = false;

	for (uint32_t i = 0; i < count; i++) {
		const struct kvp_extent *e = &extent[i];
		const struct kvp_shm_tensor *tensor;

		KVP_ASSERT(e->remote_tensor < view->num_tensors);
		tensor = &view->tensor[e->remote_tensor];
		/*
		 * Not an assertion: a group of neighbouring tensors moves through
		 * its first one, and their places are the peer's word.
		 */
		if (KVP_UNLIKELY(e->remote_offset > tensor->limit ||
				 e->bytes > tensor->limit - e->remote_offset))
			return KVP_PROTOCOL;
		if (KVP_UNLIKELY(tensor->mapped == NULL))
			has_foreign = true;
		else if (transfer->is_push)
			copy(tensor->mapped + e->remote_offset, e->local, e->bytes);
		else
			copy(e->local, tensor->mapped + e->remote_offset, e->bytes);
	}
	if (KVP_UNLIKELY(has_foreign))
		return move_foreign(endpoint, transfer, extent, count);
	return KVP_SUCCESS;
}

/* The part's share of the transfer's pieces, in proportion to its bytes. */
static uint64_t
pieces_of(const struct kvp_part *part)
{
	const struct kvp_plan *plan = &part->transfer->plan;

	if (part->bytes == plan->bytes)
		return plan->pieces;
	return (uint64_t)((double)plan->pieces * ((double)part->bytes / (double)plan->bytes) + 0.5);
}

uint32_t
kvp_shm_post(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_shm_endpoint *endpoint = shm_endpoint(base);
	struct kvp_transfer *transfer = part->transfer;
	struct kvp_extent extent[KVP_SHM_BATCH];
	kvp_status status = KVP_SUCCESS;
	uint64_t bytes = 0;
	uint32_t extents = 0;

	while (status == KVP_SUCCESS && bytes < STEP_BYTES && extents < STEP_EXTENTS) {
		uint64_t left = part->cursor.left;
		uint32_t count =
			kvp_cursor_next(&part->cursor, KVP_SHM_BATCH, STEP_BYTES - bytes, extent);

		if (count == 0)
			break;
		status = move_extents(endpoint, transfer, extent, count);
		if (status == KVP_SUCCESS) {
			extents += count;
			bytes += left - part->cursor.left;
		}
	}
	part->bytes_done += bytes;
	kvp_total_add(&base->requests, extents);
	kvp_total_add(transfer->is_push ? &base->bytes_out : &base->bytes_in, bytes);
	atomic_fetch_add_explicit(&transfer->requests, extents, memory_order_relaxed);
	if (KVP_UNLIKELY(status != KVP_SUCCESS)) {
		kvp_transfer_stop(transfer, status); /* the lane sees it and asks stop_part */
		return 1;
	}
	if (part->cursor.left == 0) {
		kvp_total_add(&base->pieces, pieces_of(part));
		kvp_copy_fence();
		kvp_lane_part_moved(base, part, now_ns);
	}
	return extents > 0 ? extents : 1;
}

bool
kvp_shm_stop_part(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns)
{
	(void)base;
	(void)part;
	(void)now_ns;
	/* Stores that have not reached memory yet are in flight. */
	kvp_copy_fence();
	return true;
}

int
kvp_shm_notify(struct kvp_endpoint *base, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_shm_endpoint *endpoint = shm_endpoint(base);
	const struct kvp_transfer *transfer = part->transfer;
	const struct kvp_shm_note note = {
		.tag = transfer->notify_tag,
		.bytes = transfer->plan.bytes,
		.cache = transfer->remote_cache,
		.payload_bytes = transfer->notify_bytes,
		.layer = transfer->notify_layer,
	};
	int rc;

	if (endpoint->is_broken)
		return -1;
	rc = kvp_shm_writer_put(&endpoint->writer, &note, transfer->notify_payload);
	if (rc < 0)
		break_rings(endpoint, now_ns);
	else if (rc == 1 && kvp_shm_writer_must_wake(&endpoint->writer))
		kvp_wake_fd(endpoint->peer_event_fd);
	return rc;
}

/* Give the note just peeked to the application. False: its queue is full, the note stays. */
static bool
deliver(struct kvp_shm_endpoint *endpoint, const struct kvp_shm_note *note)
{
	struct kvp_event *event = kvp_inbox_take(endpoint->inbox);

	if (event == NULL)
		return false;
	kvp_event_arrived(event, note->layer);
	event->cluster_id = endpoint->base.path->config.peer_cluster;
	event->cache = note->cache;
	event->tag = note->tag;
	event->bytes = note->bytes;
	event->payload_bytes = note->payload_bytes;
	kvp_shm_reader_take(&endpoint->reader, note, event->payload);
	kvp_inbox_put(endpoint->inbox, kvp_lane_index(endpoint->base.lane), event);
	return true;
}

uint32_t
kvp_shm_progress(struct kvp_endpoint *base, uint64_t now_ns)
{
	struct kvp_shm_endpoint *endpoint = shm_endpoint(base);
	struct kvp_shm_note note;
	uint32_t done;

	if (base->is_down)
		return 0; /* the link ended: what the peer still says is not heard */
	for (done = 0; done < NOTES_MAX && !endpoint->is_broken; done++) {
		int rc = kvp_shm_reader_peek(&endpoint->reader, &note);

		if (KVP_LIKELY(rc == 0))
			break;
		if (rc < 0) {
			break_rings(endpoint, now_ns);
		} else if (kvp_lane_cache_find(base->lane, note.cache) == NULL) {
			/* Released meanwhile: nobody waits for this any more. */
			kvp_shm_reader_skip(&endpoint->reader);
			kvp_total_add(&endpoint->notes_dropped, 1);
		} else if (!deliver(endpoint, &note)) {
			break;
		}
	}
	return done;
}

bool
kvp_shm_arm(struct kvp_endpoint *base)
{
	struct kvp_shm_endpoint *endpoint = shm_endpoint(base);

	return !endpoint->is_broken && kvp_shm_reader_sleep(&endpoint->reader);
}

void
kvp_shm_disarm(struct kvp_endpoint *base)
{
	struct kvp_shm_endpoint *endpoint = shm_endpoint(base);

	kvp_shm_reader_awake(&endpoint->reader);
}
