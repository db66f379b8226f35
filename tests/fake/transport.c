/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "wake.h"

static struct kvp_fake_endpoint *
fake_of(struct kvp_endpoint *endpoint)
{
	return (struct kvp_fake_endpoint *)endpoint;
}

uint64_t
kvp_fake_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9E3779B97F4A7C15U);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
	return z ^ (z >> 31);
}

struct kvp_fake_endpoint *
kvp_fake_endpoint_create(const struct kvp_fake_config *config)
{
	struct kvp_fake_endpoint *fake = aligned_alloc(KVP_SHARE_SPAN, sizeof(*fake));

	KVP_CHECK(fake != NULL);
	memset(fake, 0, sizeof(*fake));
	fake->base.transport = &kvp_fake_transport;
	fake->base.lane = config->lane;
	fake->base.fd = config->has_fd ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	KVP_CHECK(!config->has_fd || fake->base.fd >= 0);
	fake->config = *config;
	fake->random = config->seed;
	fake->refusals_left = config->notify_refusals;
	return fake;
}

void
kvp_fake_endpoint_destroy(struct kvp_fake_endpoint *fake)
{
	KVP_CHECK(fake->flights == 0 && fake->base.active == NULL);
	if (fake->base.fd >= 0)
		(void)close(fake->base.fd);
	free(fake);
}

void
kvp_fake_poke(const struct kvp_fake_endpoint *fake)
{
	kvp_wake_fd(fake->base.fd);
}

/* The bytes land now. The part may be gone afterwards. */
static void
complete(struct kvp_fake_endpoint *fake, const struct kvp_fake_flight *flight, uint64_t now_ns)
{
	const struct kvp_fake_view *view =
		(const struct kvp_fake_view *)(const void *)flight->part->transfer->view;
	struct kvp_part *part = flight->part;

	memcpy(view->tensor[flight->extent.remote_tensor] + flight->extent.remote_offset,
	       flight->extent.local, flight->extent.bytes);
	part->requests_inflight--;
	part->bytes_inflight -= flight->extent.bytes;
	part->bytes_done += flight->extent.bytes;
	fake->completed++;
	if (part->cursor.left == 0 && part->requests_inflight == 0 &&
	    part->phase == KVP_PART_MOVING)
		kvp_lane_part_moved(&fake->base, part, now_ns);
}

/* True when the connection has died. */
static bool
die_if_due(struct kvp_fake_endpoint *fake, uint64_t now_ns)
{
	if (fake->config.fail_after == 0 || fake->completed < fake->config.fail_after)
		return false;
	fake->flights = 0; /* what was on its way is lost */
	kvp_lane_endpoint_failed(&fake->base, KVP_PEER_LOST, now_ns);
	return true;
}

static uint32_t
fake_progress(struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	struct kvp_fake_endpoint *fake = fake_of(endpoint);
	uint64_t count;
	uint32_t work = 0;

	kvp_total_add(&fake->progressed, 1);
	if (endpoint->fd >= 0)
		(void)!read(endpoint->fd, &count, sizeof(count));
	if (atomic_load_explicit(&fake->is_stalled, memory_order_acquire))
		return 0;
	fake->tick++;
	for (uint32_t i = 0; i < fake->flights;) {
		struct kvp_fake_flight flight = fake->flight[i];

		if (flight.due > fake->tick) {
			i++;
			continue;
		}
		fake->flight[i] = fake->flight[--fake->flights];
		complete(fake, &flight, now_ns);
		work++;
		if (die_if_due(fake, now_ns))
			break;
	}
	if (endpoint->fd >= 0 && fake->flights != 0)
		kvp_fake_poke(fake);
	return work;
}

static uint32_t
fake_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_fake_endpoint *fake = fake_of(endpoint);
	struct kvp_fake_flight flight = {.part = part};

	KVP_CHECK(part->phase == KVP_PART_MOVING);
	if (part->cursor.left == 0 || part->requests_inflight == fake->config.window ||
	    fake->flights == KVP_FAKE_FLIGHT_MAX)
		return 0;
	if (kvp_cursor_next(&part->cursor, 1, fake->config.step_bytes, &flight.extent) == 0)
		return 0;
	part->requests_inflight++;
	part->bytes_inflight += flight.extent.bytes;
	kvp_total_add(&fake->posts, 1);
	kvp_total_add(&endpoint->requests, 1);
	kvp_total_add(&endpoint->bytes_out, flight.extent.bytes);
	if (fake->config.delay_max == 0) {
		complete(fake, &flight, now_ns);
		(void)die_if_due(fake, now_ns);
		return 1;
	}
	flight.due = fake->tick + 1 +
		     kvp_fake_random(&fake->random) % ((uint64_t)fake->config.delay_max + 1);
	fake->flight[fake->flights++] = flight;
	if (endpoint->fd >= 0)
		kvp_fake_poke(fake);
	return 1;
}

static int
fake_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_fake_endpoint *fake = fake_of(endpoint);

	(void)now_ns;
	KVP_CHECK(part->phase == KVP_PART_NOTIFYING && part->requests_inflight == 0);
	KVP_CHECK(atomic_load_explicit(&part->transfer->parts_left, memory_order_relaxed) == 0);
	if (fake->config.is_notify_fatal) {
		fake->flights = 0; /* what was on its way is lost */
		return -1;
	}
	if (fake->refusals_left == KVP_FAKE_ALWAYS ||
	    atomic_load_explicit(&fake->is_stalled, memory_order_acquire))
		return 0;
	if (fake->refusals_left > 0) {
		fake->refusals_left--;
		return 0;
	}
	kvp_total_add(&fake->notified, 1);
	return 1;
}

static bool
fake_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_fake_endpoint *fake = fake_of(endpoint);

	KVP_CHECK(part->phase == KVP_PART_STOPPING && part->stop_ns <= now_ns);
	kvp_total_add(&fake->stops, 1);
	return part->requests_inflight == 0;
}

static void
fake_attached(struct kvp_endpoint *endpoint)
{
	kvp_total_add(&fake_of(endpoint)->attaches, 1);
}

static void
fake_detached(struct kvp_endpoint *endpoint)
{
	kvp_total_add(&fake_of(endpoint)->detaches, 1);
}

static void
fake_cache_gone(struct kvp_endpoint *endpoint, int64_t local_cache_id)
{
	atomic_store_explicit(&fake_of(endpoint)->gone, local_cache_id, memory_order_relaxed);
}

static void
fake_down(struct kvp_endpoint *endpoint)
{
	kvp_total_add(&fake_of(endpoint)->downs, 1);
}

static bool
fake_arm(struct kvp_endpoint *endpoint)
{
	struct kvp_fake_endpoint *fake = fake_of(endpoint);

	kvp_total_add(&fake->arms, 1);
	/* Its clock is the number of progress calls. */
	return endpoint->fd < 0 && fake->flights != 0 &&
	       !atomic_load_explicit(&fake->is_stalled, memory_order_acquire);
}

static void
fake_disarm(struct kvp_endpoint *endpoint)
{
	kvp_total_add(&fake_of(endpoint)->disarms, 1);
}

const struct kvp_transport kvp_fake_transport = {
	.name = "fake",
	.caps = {.pieces_max = 1, .request_bytes_max = 1U << 20, .part_bytes_min = 1},
	.attached = fake_attached,
	.detached = fake_detached,
	.progress = fake_progress,
	.post = fake_post,
	.notify = fake_notify,
	.stop_part = fake_stop_part,
	.cache_gone = fake_cache_gone,
	.down = fake_down,
	.arm = fake_arm,
	.disarm = fake_disarm,
};

struct kvp_fake_transfer *
kvp_fake_transfer_create(const struct kvp_fake_order *order)
{
	struct kvp_fake_transfer *fake = aligned_alloc(KVP_SHARE_SPAN, sizeof(*fake));
	uint64_t first = 0;

	KVP_CHECK(fake != NULL && order->splits >= 1 && order->splits <= KVP_PARTS_MAX);
	memset(fake, 0, sizeof(*fake));
	fake->run = (struct kvp_run){.count = 1};
	fake->group = (struct kvp_group){.local_base = (uint64_t)(uintptr_t)order->src,
					 .local_stride = order->bytes,
					 .remote_stride = order->bytes,
					 .block_bytes = order->bytes,
					 .tensors = 1,
					 .is_dense = true};
	fake->view.tensor[0] = order->dst;
	fake->splits = order->splits;
	fake->transfer.submit_ns = order->submit_ns;
	fake->transfer.deadline_ns = order->deadline_ns;
	fake->transfer.plan = (struct kvp_plan){.run = &fake->run,
						.group = &fake->group,
						.runs = 1,
						.groups = 1,
						.blocks = 1,
						.pieces = 1,
						.extents = 1,
						.bytes = order->bytes};
	fake->transfer.view = (struct kvp_view *)(void *)&fake->view;
	fake->transfer.local_cache = order->local_cache;
	fake->transfer.holds[0] = order->hold;
	fake->transfer.parts = order->splits;
	fake->transfer.is_push = true;
	fake->transfer.has_notify = order->has_notify;
	atomic_init(&fake->transfer.parts_left, order->splits);
	for (uint32_t i = 0; i < order->splits; i++) {
		struct kvp_part *part = &fake->transfer.part[i];
		uint64_t end = (uint64_t)order->bytes * (i + 1) / order->splits;

		part->transfer = &fake->transfer;
		part->endpoint = &order->endpoint[i]->base;
		part->bytes = end - first;
		kvp_cursor_init(&part->cursor, &fake->transfer.plan, first, part->bytes);
		first = end;
	}
	return fake;
}

void
kvp_fake_transfer_destroy(struct kvp_fake_transfer *fake)
{
	/* Freed while a lane works on it would be the worst of bugs. */
	KVP_CHECK(kvp_transfer_status(&fake->transfer) != KVP_IN_PROGRESS);
	free(fake);
}

bool
kvp_fake_transfer_submit(struct kvp_fake_transfer *fake)
{
	struct kvp_part *part[KVP_PARTS_MAX];
	uint32_t parts = fake->splits;
	uint32_t first = 0;

	for (uint32_t i = 0; i < parts; i++)
		part[i] = &fake->transfer.part[i];
	while (first < parts) {
		struct kvp_lane *lane = part[first]->endpoint->lane;
		uint32_t count = 1;

		while (first + count < parts && part[first + count]->endpoint->lane == lane)
			count++;
		if (!kvp_lane_submit(lane, &part[first], count))
			return false;
		first += count;
	}
	return true;
}
