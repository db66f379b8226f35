/* SPDX-License-Identifier: Apache-2.0 */
#include "lane_state.h"

#include <rte_common.h>
#include <rte_ring.h>

#include "check.h"
#include "open.h"
#include "wake.h"

/* Steps of each endpoint per loop, while there is work: a loop costs as much as a small step. */
#define ROUNDS      4U
#define FD_REST_MAX 4U /* loops between looks at a quiet epoll set while polled endpoints work */

static void
busy_add(struct kvp_lane *lane, struct kvp_endpoint *endpoint)
{
	lane->slot[endpoint->lane_slot].busy_idx = lane->busy_count;
	lane->busy[lane->busy_count++] = endpoint;
}

static void
busy_remove(struct kvp_lane *lane, struct kvp_endpoint *endpoint)
{
	uint32_t hole = lane->slot[endpoint->lane_slot].busy_idx;
	struct kvp_endpoint *last = lane->busy[--lane->busy_count];

	lane->busy[hole] = last;
	lane->slot[last->lane_slot].busy_idx = hole;
}

/* At the end of the ring: the next to be served is `active`. */
static void
part_add(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_part *part)
{
	struct kvp_part *next = endpoint->active;

	endpoint->parts++;
	lane->parts++;
	if (next == NULL) {
		part->next = part;
		part->prev = part;
		endpoint->active = part;
		busy_add(lane, endpoint);
		return;
	}
	part->next = next;
	part->prev = next->prev;
	next->prev->next = part;
	next->prev = part;
}

static void
part_remove(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_part *part)
{
	KVP_ASSERT(endpoint->parts >= 1 && lane->parts >= endpoint->parts);
	for (struct kvp_lane_hand *hand = lane->hand; hand != NULL; hand = hand->outer) {
		if (hand->part == part)
			hand->part = NULL;
	}
	endpoint->parts--;
	lane->parts--;
	if (endpoint->parts == 0) {
		endpoint->active = NULL;
		busy_remove(lane, endpoint);
		return;
	}
	if (endpoint->active == part)
		endpoint->active = part->next;
	part->prev->next = part->next;
	part->next->prev = part->prev;
}

/* One of an open push: that goes on when it was the last. */
static void
layer_end(struct kvp_lane *lane, struct kvp_transfer *layer)
{
	struct kvp_transfer *whole = layer->whole;
	struct kvp_lane *waiting[KVP_PARTS_MAX];
	uint32_t count = whole->parts;

	if (KVP_UNLIKELY(kvp_transfer_is_stopped(layer)))
		kvp_lane_stop_transfer(
			lane, whole,
			atomic_load_explicit(&layer->first_error, memory_order_relaxed));
	for (uint32_t i = 0; i < count; i++)
		waiting[i] = whole->part[i].lane;
	if (!kvp_open_layer_end(layer))
		return;
	for (uint32_t i = 0; i < count; i++) {
		if (waiting[i] != lane)
			kvp_lane_kick(waiting[i]);
	}
}

static void
publish(struct kvp_lane *lane, struct kvp_transfer *transfer, uint64_t now_ns)
{
	_Atomic uint32_t *word;

	if (transfer->whole != NULL) {
		layer_end(lane, transfer);
		return;
	}
	/* The loop's time is from before the step that ended it, and maybe from before its submit. */
	if (lane->has_thread)
		now_ns = kvp_now_ns();
	if (kvp_transfer_publish(transfer, lane->config.index, RTE_MAX(now_ns, transfer->submit_ns),
				 &word))
		kvp_wake_word(word);
}

/* The receiver has to be told of what this part of a layer left behind: by the push's part on the same endpoint. */
static void
pass_on(const struct kvp_part *part)
{
	struct kvp_transfer *whole = part->transfer->whole;

	if (whole == NULL || !whole->has_notify)
		return;
	for (uint32_t i = 0; i < whole->parts; i++) {
		if (whole->part[i].endpoint == part->endpoint)
			whole->part[i].carried |= part->passed;
	}
}

void
kvp_lane_kick(struct kvp_lane *lane)
{
	/* Pairs with the exchange in lane_poll.c: the lane sees what came before, or we its sleep. */
	if (atomic_exchange_explicit(&lane->is_asleep, 0, memory_order_acq_rel) != 0)
		kvp_wake_fd(lane->event_fd);
}

/* The transfer has a part that is not retired, so it is there. */
static KVP_COLD void
kick_others(struct kvp_lane *lane, struct kvp_transfer *transfer)
{
	for (uint32_t i = 0; i < transfer->parts; i++) {
		struct kvp_lane *other = transfer->part[i].endpoint->lane;

		if (other != lane)
			kvp_lane_kick(other);
	}
}

void
kvp_lane_stop_transfer(struct kvp_lane *lane, struct kvp_transfer *transfer, kvp_status why)
{
	if (kvp_transfer_stop(transfer, why))
		kick_others(lane, transfer);
}

void
kvp_lane_part_end(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_transfer *transfer = part->transfer;
	bool is_retired;

	/* A notifying part was retired before, as the last. */
	is_retired = part->phase != KVP_PART_MOVING &&
		     atomic_load_explicit(&transfer->parts_left, memory_order_relaxed) == 0;
	part_remove(endpoint->lane, endpoint, part);
	pass_on(part);
	if (is_retired || kvp_transfer_retire(transfer, part))
		publish(endpoint->lane, transfer, now_ns);
}

void
kvp_lane_part_abort(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_transfer *transfer = part->transfer;

	if (transfer->open != NULL && part->phase != KVP_PART_STOPPING)
		kvp_open_stop(transfer);
	if (kvp_open_has_ended(transfer)) {
		kvp_lane_part_end(endpoint, part, now_ns);
		return;
	}
	part->phase = KVP_PART_STOPPING;
	part->stop_ns = now_ns;
}

static uint32_t
notify_part(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_part *part,
	    uint64_t now_ns)
{
	struct kvp_lane_hand hand = {.part = part, .outer = lane->hand};
	int rc;

	lane->hand = &hand;
	part->is_refused = true;
	rc = endpoint->transport->notify(endpoint, part, now_ns);
	lane->hand = hand.outer;
	if (rc == 0)
		return 0;
	if (rc < 0)
		kvp_lane_endpoint_failed(endpoint, KVP_PEER_LOST, now_ns);
	else if (hand.part != NULL)
		kvp_lane_part_end(endpoint, part, now_ns);
	return 1;
}

void
kvp_lane_part_moved(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	struct kvp_transfer *transfer = part->transfer;
	struct kvp_lane *lane = endpoint->lane;

	KVP_ASSERT_OWNER(lane);
	KVP_ASSERT(part->endpoint == endpoint && part->phase != KVP_PART_NOTIFYING);
	part_remove(lane, endpoint, part);
	pass_on(part);
	if (!kvp_transfer_retire(transfer, part))
		return;
	if (!transfer->has_notify || kvp_transfer_is_stopped(transfer)) {
		publish(lane, transfer, now_ns);
		return;
	}
	part->phase = KVP_PART_NOTIFYING;
	part_add(lane, endpoint, part);
	(void)notify_part(lane, endpoint, part, now_ns);
}

/* Its transfer is to end early. The part ends once the transport has nothing of it in flight. */
static KVP_COLD uint32_t
stop_part(struct kvp_lane *lane, struct kvp_endpoint *endpoint, struct kvp_part *part,
	  uint64_t now_ns)
{
	struct kvp_lane_hand hand = {.part = part, .outer = lane->hand};
	bool is_quiet;

	if (part->phase != KVP_PART_STOPPING) {
		/* Everything landed, but the receiver took no notification until the deadline. */
		bool is_untold = part->is_refused && part->bytes_done == part->bytes;

		(void)kvp_transfer_stop(part->transfer, is_untold ? KVP_NO_CREDIT : KVP_TIMEOUT);
		/* Whoever stopped it, maybe a transport: other lanes must not sleep over it. */
		kick_others(lane, part->transfer);
		if (part->transfer->open != NULL)
			kvp_open_stop(part->transfer);
		part->phase = KVP_PART_STOPPING;
		part->stop_ns = now_ns;
	}
	lane->hand = &hand;
	/* On a dead connection only a part that waits for layers is left. */
	is_quiet = kvp_endpoint_is_dead(endpoint) ||
		   endpoint->transport->stop_part(endpoint, part, now_ns);
	lane->hand = hand.outer;
	if (hand.part == NULL)
		return 1;
	if (!is_quiet || !kvp_open_has_ended(part->transfer))
		return 0;
	kvp_lane_part_end(endpoint, part, now_ns);
	return 1;
}

/* The push's own part: once all layers have ended, the receiver hears of it. */
static uint32_t
wait_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	if (!kvp_open_has_ended(part->transfer))
		return 0;
	part->phase = KVP_PART_MOVING;
	if (part->transfer->has_notify)
		return endpoint->transport->post(endpoint, part, now_ns);
	kvp_lane_part_moved(endpoint, part, now_ns);
	return 1;
}

static uint32_t
step(struct kvp_lane *lane, struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	struct kvp_part *part = endpoint->active;
	struct kvp_transfer *transfer = part->transfer;

	endpoint->active = part->next;
	if (KVP_UNLIKELY(kvp_transfer_is_stopped(transfer) || now_ns >= transfer->deadline_ns))
		return stop_part(lane, endpoint, part, now_ns);
	if (KVP_UNLIKELY(part->phase == KVP_PART_NOTIFYING))
		return notify_part(lane, endpoint, part, now_ns);
	if (KVP_UNLIKELY(part->phase == KVP_PART_WAITING))
		return wait_part(endpoint, part, now_ns);
	return endpoint->transport->post(endpoint, part, now_ns);
}

/* One part of each endpoint that has parts, at most KVP_LANE_BURST endpoints. */
static uint32_t
serve_busy(struct kvp_lane *lane, uint64_t now_ns)
{
	uint32_t work = 0;

	for (uint32_t n = RTE_MIN(lane->busy_count, KVP_LANE_BURST); n > 0; n--) {
		struct kvp_endpoint *endpoint;

		if (lane->busy_next >= lane->busy_count)
			lane->busy_next = 0;
		if (lane->busy_count == 0)
			break;
		endpoint = lane->busy[lane->busy_next];
		work += step(lane, endpoint, now_ns);
		/* When it has no part left, another one has taken its place. */
		if (lane->busy_next < lane->busy_count && lane->busy[lane->busy_next] == endpoint)
			lane->busy_next++;
	}
	return work;
}

static uint32_t
progress_polled(struct kvp_lane *lane, uint64_t now_ns)
{
	uint32_t work = 0;

	for (uint32_t n = RTE_MIN(lane->polled_count, KVP_LANE_BURST); n > 0; n--) {
		struct kvp_endpoint *endpoint;

		if (lane->polled_next >= lane->polled_count)
			lane->polled_next = 0;
		if (lane->polled_count == 0)
			break;
		endpoint = lane->polled[lane->polled_next];
		work += endpoint->transport->progress(endpoint, now_ns);
		if (lane->polled_next < lane->polled_count &&
		    lane->polled[lane->polled_next] == endpoint)
			lane->polled_next++;
	}
	return work;
}

void
kvp_lane_polled_remove(struct kvp_lane *lane, struct kvp_endpoint *endpoint)
{
	struct kvp_lane_slot *slot = &lane->slot[endpoint->lane_slot];
	struct kvp_endpoint *last;

	if (slot->polled_idx == KVP_LANE_NOWHERE)
		return;
	last = lane->polled[--lane->polled_count];
	lane->polled[slot->polled_idx] = last;
	lane->slot[last->lane_slot].polled_idx = slot->polled_idx;
	slot->polled_idx = KVP_LANE_NOWHERE;
}

/* SUCCESS, or why a part that comes now must not start. */
static kvp_status
refusal(const struct kvp_lane *lane, const struct kvp_part *part)
{
	const struct kvp_transfer *transfer = part->transfer;

	if (KVP_UNLIKELY(part->endpoint->is_down))
		return part->endpoint->down_status;
	if (KVP_UNLIKELY(transfer->local_cache <= lane->cache_newest &&
			 kvp_lane_cache_find(lane, transfer->local_cache) == NULL))
		return KVP_CACHE_NOT_EXIST;
	/* Any other reason came first, so this one will not be seen. */
	return kvp_transfer_is_stopped(transfer) ? KVP_CANCELLED : KVP_SUCCESS;
}

uint32_t
kvp_lane_drain(struct kvp_lane *lane, uint64_t now_ns)
{
	struct kvp_part *part[KVP_LANE_BURST];
	uint32_t count;

	count = rte_ring_sc_dequeue_burst(lane->ring, (void **)part, KVP_LANE_BURST, NULL);
	for (uint32_t i = 0; i < count; i++) {
		struct kvp_endpoint *endpoint = part[i]->endpoint;
		kvp_status why = refusal(lane, part[i]);

		KVP_ASSERT(endpoint->lane == lane &&
			   lane->slot[endpoint->lane_slot].endpoint == endpoint);
		part_add(lane, endpoint, part[i]);
		if (KVP_LIKELY(why == KVP_SUCCESS))
			continue;
		kvp_lane_stop_transfer(lane, part[i]->transfer, why);
		kvp_lane_part_abort(endpoint, part[i], now_ns);
	}
	return count;
}

static uint32_t
look_at_fds(struct kvp_lane *lane, uint32_t work_so_far, uint64_t now_ns)
{
	uint32_t work;

	/* A look costs 300 ns: not in every loop of a busy lane that found nothing there. */
	if (work_so_far != 0 && lane->fd_rest > 0) {
		lane->fd_rest--;
		return 0;
	}
	work = kvp_lane_poll_fds(lane, now_ns);
	lane->fd_rest = work == 0 ? FD_REST_MAX : 0;
	return work;
}

uint32_t
kvp_lane_run_once(struct kvp_lane *lane, uint64_t now_ns)
{
	uint32_t work;
	uint32_t done;

	KVP_ASSERT_OWNER(lane);
	work = kvp_lane_drain(lane, now_ns);
	/* Pairs with kvp_lane_ask(). */
	if (KVP_UNLIKELY(atomic_load_explicit(&lane->call, memory_order_acquire) != NULL))
		work += kvp_lane_obey(lane, now_ns);
	if (lane->polled_count != 0)
		work += progress_polled(lane, now_ns);
	if (lane->fds != 0)
		work += look_at_fds(lane, work, now_ns);
	for (uint32_t round = 0; round < ROUNDS && lane->busy_count != 0; round++) {
		done = serve_busy(lane, now_ns);
		if (done == 0)
			break;
		work += done;
	}
	kvp_total_add(&lane->loops, 1);
	if (work != 0)
		kvp_total_add(&lane->busy_loops, 1);
	return work;
}

const struct kvp_local_cache *
kvp_lane_cache_find(const struct kvp_lane *lane, int64_t cache_id)
{
	const struct kvp_lane_cache *bin = lane->cache;

	for (uint64_t i = (uint64_t)cache_id;; i++) {
		const struct kvp_lane_cache *here = &bin[i & (KVP_LANE_CACHE_BIN - 1)];

		if (here->cache == NULL || here->id == cache_id)
			return here->cache;
	}
}

uint32_t
kvp_lane_index(const struct kvp_lane *lane)
{
	return lane->config.index;
}

int
kvp_lane_event_fd(const struct kvp_lane *lane)
{
	return lane->event_fd;
}
