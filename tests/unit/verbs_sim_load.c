/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches, transfers and events of the simulated engines, and the judgement over them.
 *
 * Applications agree on blocks: a destination is used by one transfer at a time, a source is not written
 * while it is read. So what must be where is known for every transfer.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "verbs/verbs_memory.h"
#include "verbs_sim.h"

#define NEVER_NS 1000000000000000ULL

static uint8_t arena[2][SIM_CACHES][SIM_BYTES] __attribute__((aligned(4096)));

/* --- caches ---------------------------------------------------------------------------- */

/* Tensors one after the other, with and without gaps between blocks. */
static void
cache_layout(struct sim_cache *cache)
{
	static uint32_t tensors, bytes[SIM_TENSORS];
	uint32_t at = sim_random(64), block = 0;

	/* Sizes of blocks are those of all caches of a world, so that any two fit. */
	if (sim.side[0].next_cache == 0 && sim.side[1].next_cache == 0) {
		tensors = 1 + sim_random(SIM_TENSORS);
		for (uint32_t t = 0; t < tensors; t++)
			bytes[t] = 1 + sim_random(sim_chance(4) ? 300 : 60);
	}
	for (uint32_t t = 0; t < tensors; t++)
		block += bytes[t] + 20;
	cache->blocks = (SIM_BYTES - 512) / block;
	if (cache->blocks > SIM_BLOCKS)
		cache->blocks = SIM_BLOCKS;
	if (!sim.plan.is_burst)
		cache->blocks = 2 + sim_random(cache->blocks - 1);
	cache->local.num_tensors = tensors;
	for (uint32_t t = 0; t < tensors; t++) {
		uint32_t stride = bytes[t] + (sim_chance(2) ? 0 : sim_random(20));

		cache->tensor[t] = (struct kvp_tensor){.base = cache->memory + at,
						       .num_blocks = cache->blocks,
						       .block_bytes = bytes[t],
						       .block_stride = stride};
		cache->remote_tensor[t] = (struct kvp_remote_tensor){.tensor = cache->tensor[t]};
		at += cache->blocks * stride + (sim_chance(2) ? 0 : sim_random(64));
	}
	KVP_CHECK(at <= SIM_BYTES);
	kvp_layout_spans(cache->tensor, tensors, cache->span);
}

static void
cache_open(struct sim_side *side, uint32_t c)
{
	struct sim_cache *cache = &side->cache[c];
	struct sim_message message = {.type = SIM_CACHE_ADD, .cache = c};
	struct kvp_verbs *verbs = side->state;
	struct kvp_error err = {""};

	*cache = (struct sim_cache){.presence = SIM_HERE, .memory = arena[side->index][c]};
	cache_layout(cache);
	cache->local.id = ++side->next_cache;
	cache->local.tensors = cache->tensor;
	cache->local.spans = cache->span;
	cache->remote = (struct kvp_remote_cache){.id = cache->local.id,
						  .num_tensors = cache->local.num_tensors,
						  .tensors = cache->remote_tensor};
	if (kvp_verbs_transport.cache_hold(&side->dataplane, &cache->local,
					   &cache->local.held[verbs->slot], &err) != KVP_SUCCESS) {
		if (!sim.plan.has_fatal)
			fake_verbs_failed("side %u cannot hold a cache: %s", side->index, err.text);
		cache->presence = SIM_ABSENT;
		return;
	}
	for (uint32_t i = 0; i < sim.plan.lanes; i++)
		KVP_CHECK(kvp_lane_cache_add(side->lane[i], &cache->local, &err) == KVP_SUCCESS);
	cache->is_peer_done = side->is_silent || sim.is_cut;
	if (cache->is_peer_done)
		return;
	KVP_CHECK(kvp_verbs_transport.cache_offer(side->path, &cache->local, &err) == KVP_SUCCESS);
	sim_send(1 - side->index, &message);
}

void
sim_caches_open(struct sim_side *side)
{
	for (uint32_t c = 0; c < SIM_CACHES; c++) {
		uint8_t *memory = arena[side->index][c];

		for (uint32_t i = 0; i < SIM_BYTES; i += 4) {
			uint32_t word = sim_random(UINT32_MAX);

			memcpy(memory + i, &word, 4);
		}
		fake_verbs_guard((uintptr_t)memory, SIM_BYTES);
		cache_open(side, c);
	}
}

/* The owner withdraws it: its own transfers stop, the peer is told. */
static void
cache_withdraw(struct sim_side *side, uint32_t c)
{
	struct sim_cache *cache = &side->cache[c];
	struct sim_message message = {.type = SIM_CACHE_GONE, .cache = c};

	sim.withdrawn++;
	cache->presence = SIM_LEAVING;
	for (uint32_t i = 0; i < sim.plan.lanes; i++)
		kvp_lane_cache_remove(side->lane[i], cache->local.id);
	sim_lanes_wake(side);
	sim_send(1 - side->index, &message);
}

/* The peer's half: stop what uses the view, then let go of it and say so. */
static void
view_look(struct sim_side *side, uint32_t c)
{
	struct sim_cache *cache = &sim.side[1 - side->index].cache[c];
	struct sim_message message = {.type = SIM_CACHE_GONE_ACK, .cache = c};

	if (!cache->is_view_gone)
		return;
	if (cache->peer_users > 0) {
		for (uint32_t i = 0; i < sim.plan.lanes; i++)
			kvp_lane_stop_view(side->lane[i], cache->view, KVP_CACHE_NOT_EXIST);
		sim_lanes_wake(side);
		return;
	}
	if (cache->view != NULL)
		kvp_verbs_transport.view_close(side->path, cache->view);
	cache->view = NULL;
	cache->is_view_gone = false;
	sim_send(1 - side->index, &message);
}

void
sim_caches_look(struct sim_side *side)
{
	struct kvp_verbs *verbs = side->state;

	for (uint32_t c = 0; c < SIM_CACHES; c++) {
		struct sim_cache *cache = &side->cache[c];

		if (!side->is_silent)
			view_look(side, c);
		if (cache->presence != SIM_LEAVING || cache->own_users > 0 ||
		    (!cache->is_peer_done && !side->is_silent))
			continue;
		kvp_verbs_transport.cache_forget(&side->dataplane, cache->local.held[verbs->slot]);
		cache->presence = SIM_ABSENT;
	}
}

void
sim_cache_message(struct sim_side *side, const struct sim_message *message)
{
	struct sim_cache *theirs = &sim.side[1 - side->index].cache[message->cache];
	struct kvp_error err = {""};

	switch (message->type) {
	case SIM_CACHE_ADD:
		if (kvp_verbs_transport.view_open(side->path, &theirs->remote, &theirs->view,
						  &err) != KVP_SUCCESS)
			fake_verbs_failed("side %u cannot open a view: %s", side->index, err.text);
		break;
	case SIM_CACHE_GONE:
		theirs->is_view_gone = true;
		break;
	case SIM_CACHE_GONE_ACK:
		side->cache[message->cache].is_peer_done = true;
		break;
	case SIM_NOTE:
	default:
		break;
	}
}

void
sim_caches_close(struct sim_side *side)
{
	for (uint32_t c = 0; c < SIM_CACHES; c++) {
		struct sim_cache *theirs = &sim.side[1 - side->index].cache[c];
		struct sim_cache *own = &side->cache[c];

		if (theirs->view != NULL)
			kvp_verbs_transport.view_close(side->path, theirs->view);
		theirs->view = NULL;
		for (uint32_t i = 0; i < sim.plan.lanes && own->presence == SIM_HERE; i++)
			kvp_lane_cache_remove(side->lane[i], own->local.id);
	}
}

/* --- transfers --------------------------------------------------------------------------- */

static struct sim_cache *
local_of(const struct sim_transfer *t)
{
	return &sim.side[t->side].cache[t->local];
}

static struct sim_cache *
remote_of(const struct sim_transfer *t)
{
	return &sim.side[1 - t->side].cache[t->remote];
}

static struct sim_cache *
source_of(const struct sim_transfer *t)
{
	return t->is_push ? local_of(t) : remote_of(t);
}

static struct sim_cache *
target_of(const struct sim_transfer *t)
{
	return t->is_push ? remote_of(t) : local_of(t);
}

static uint8_t *
block_at(const struct sim_cache *cache, uint32_t tensor, uint64_t block)
{
	return (uint8_t *)cache->tensor[tensor].base + block * cache->tensor[tensor].block_stride;
}

/* Pairs that nobody else is in the way of; neighbours at the remote side, often, so that requests gather. */
static void
choose_blocks(struct sim_transfer *t)
{
	const struct sim_cache *source = source_of(t), *target = target_of(t);
	const struct sim_cache *local = local_of(t), *remote = remote_of(t);
	uint32_t want = sim.plan.is_burst ? 1 : 1 + sim_random(SIM_PAIRS),
		 first = sim_random(remote->blocks);
	bool is_neat = sim_chance(2);
	bool is_taken[SIM_BLOCKS] = {false};

	for (uint32_t i = 0; i < want; i++) {
		uint32_t there = is_neat ? first + i : sim_random(remote->blocks);
		uint32_t here = sim_random(local->blocks);
		uint32_t from = t->is_push ? here : there, to = t->is_push ? there : here;

		if (there >= remote->blocks || source->is_written[from] || target->is_written[to] ||
		    target->readers[to] > 0 || is_taken[to] || (source == target && from == to))
			continue;
		is_taken[to] = true;
		t->local_block[t->pairs] = here;
		t->remote_block[t->pairs++] = there;
	}
}

static void
grant(struct sim_transfer *t, const struct sim_cache *cache, uint8_t side, uint64_t block,
      bool is_read)
{
	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		const struct fake_verbs_grant wanted = {
			.address = (uintptr_t)block_at(cache, i, block),
			.bytes = cache->tensor[i].block_bytes,
			.is_read = is_read,
			.cookie = sim.submitted,
		};

		t->grant[t->grants] = fake_verbs_grant_open(&wanted);
		t->is_granted[t->grants] = true;
		t->grant_side[t->grants++] = side;
	}
}

static void
claim(struct sim_transfer *t)
{
	struct sim_cache *source = source_of(t), *target = target_of(t);
	uint8_t from_side = (uint8_t)(t->is_push ? t->side : 1 - t->side);
	uint32_t bytes = 0, at = 0;

	for (uint32_t i = 0; i < source->local.num_tensors; i++)
		bytes += (uint32_t)source->tensor[i].block_bytes * t->pairs;
	t->expected = malloc(bytes);
	KVP_CHECK(t->expected != NULL);
	for (uint32_t p = 0; p < t->pairs; p++) {
		uint64_t from = t->is_push ? t->local_block[p] : t->remote_block[p];
		uint64_t to = t->is_push ? t->remote_block[p] : t->local_block[p];

		source->readers[from]++;
		target->is_written[to] = true;
		t->version[p] = ++target->version[to];
		grant(t, source, from_side, from, true);
		grant(t, target, (uint8_t)(1 - from_side), to, false);
		for (uint32_t i = 0; i < source->local.num_tensors; i++) {
			memcpy(t->expected + at, block_at(source, i, from),
			       source->tensor[i].block_bytes);
			at += (uint32_t)source->tensor[i].block_bytes;
		}
	}
}

static void
plan_make(struct sim_transfer *t, struct kvp_transfer *transfer)
{
	struct kvp_tensor theirs[SIM_TENSORS];
	struct kvp_pairing pairing = {.local = local_of(t)->tensor,
				      .remote = theirs,
				      .tensors = local_of(t)->local.num_tensors,
				      .local_blocks = t->local_block,
				      .remote_blocks = t->remote_block,
				      .count = t->pairs,
				      .is_push = t->is_push};
	void *scratch = malloc(kvp_plan_scratch_bytes(t->pairs));
	struct kvp_error err = {""};

	for (uint32_t i = 0; i < SIM_TENSORS; i++)
		theirs[i] = remote_of(t)->remote_tensor[i].tensor;
	KVP_CHECK(kvp_plan_prepare(&pairing, scratch, &transfer->plan, &err) == KVP_SUCCESS);
	t->plan_memory = malloc(kvp_plan_bytes(&transfer->plan));
	KVP_CHECK(scratch != NULL && t->plan_memory != NULL);
	kvp_plan_fill(&pairing, scratch, t->plan_memory, &transfer->plan);
	free(scratch);
}

static void
split(struct kvp_transfer *transfer, const struct kvp_path *path)
{
	uint64_t first[KVP_PARTS_MAX + 1];
	uint32_t offset = sim_random(path->config.endpoints);

	transfer->parts = kvp_plan_split(&transfer->plan, path->config.endpoints,
					 sim.plan.share_bytes, first);
	atomic_init(&transfer->parts_left, transfer->parts);
	for (uint32_t i = 0; i < transfer->parts; i++) {
		struct kvp_part *part = &transfer->part[i];

		part->transfer = transfer;
		part->endpoint = path->endpoint[(offset + i) % path->config.endpoints];
		part->lane = part->endpoint->lane;
		part->first = first[i];
		part->bytes = first[i + 1] - first[i];
		kvp_cursor_init(&part->cursor, &transfer->plan, first[i], part->bytes);
	}
}

static void
hand_over(struct sim_transfer *t)
{
	for (uint32_t i = 0; i < t->transfer->parts; i++) {
		struct kvp_part *part = &t->transfer->part[i];

		KVP_CHECK(kvp_lane_submit(part->lane, &part, 1));
	}
}

/* One that no fault takes away for good. */
static bool
has_a_rail(void)
{
	return !sim.plan.has_fatal || sim.plan.rails > 1;
}

static void
submit(struct sim_side *side, struct sim_transfer *t)
{
	struct kvp_transfer *transfer = aligned_alloc(KVP_SHARE_SPAN, sizeof(*transfer));

	KVP_CHECK(transfer != NULL);
	memset(transfer, 0, sizeof(*transfer));
	sim.submitted++;
	claim(t);
	plan_make(t, transfer);
	t->transfer = transfer;
	transfer->id = sim.submitted;
	transfer->submit_ns = sim.now_ns;
	t->is_excused = sim_chance(3);
	transfer->deadline_ns =
		sim.now_ns + (!t->is_excused ? (has_a_rail() ? NEVER_NS : 20000000000ULL)
					     : sim_random(sim_chance(2) ? 100000 : 300000000));
	t->stop_ns = transfer->deadline_ns;
	transfer->view = remote_of(t)->view;
	transfer->local_cache = local_of(t)->local.id;
	transfer->remote_cache = remote_of(t)->local.id;
	transfer->holds[0] = &t->hold;
	atomic_store(&t->hold, 1);
	transfer->is_push = t->is_push;
	transfer->has_notify = t->has_notify;
	transfer->notify_tag = sim.submitted;
	transfer->notify_bytes = (uint16_t)sim_random(KVP_NOTIFY_BYTES_MAX + 1);
	memset(transfer->notify_payload, (int)(sim.submitted & 0xFF), transfer->notify_bytes);
	local_of(t)->own_users++;
	remote_of(t)->peer_users++;
	split(transfer, side->path);
	hand_over(t);
}

static void
try_submit(struct sim_side *side)
{
	struct sim_transfer *t = NULL;

	for (uint32_t i = 0; i < SIM_TRANSFERS && t == NULL; i++)
		if (sim.transfer[i].transfer == NULL)
			t = &sim.transfer[i];
	if (t == NULL || side->is_silent)
		return;
	*t = (struct sim_transfer){.side = side->index,
				   .local = sim_random(SIM_CACHES),
				   .remote = sim_random(SIM_CACHES),
				   .is_push = sim.plan.is_burst || !sim_chance(3)};
	if (local_of(t)->presence != SIM_HERE || remote_of(t)->view == NULL ||
	    remote_of(t)->is_view_gone)
		return;
	t->has_notify = t->is_push && (sim.plan.is_burst || sim_chance(2));
	choose_blocks(t);
	if (t->pairs > 0)
		submit(side, t);
}

static void
cancel(struct sim_transfer *t)
{
	if (!kvp_transfer_stop(t->transfer, KVP_CANCELLED))
		return;
	t->is_excused = true;
	t->stop_ns = sim.now_ns;
	for (uint32_t i = 0; i < t->transfer->parts; i++)
		kvp_lane_kick(t->transfer->part[i].lane);
}

void
sim_act(struct sim_side *side)
{
	uint32_t c = sim_random(SIM_CACHES);
	struct sim_transfer *t = &sim.transfer[sim_random(SIM_TRANSFERS)];

	for (uint32_t n = sim.plan.is_burst ? 16 : 1 + sim_random(3); n > 0; n--)
		try_submit(side);
	if (sim_chance(20) && t->transfer != NULL && !t->is_done)
		cancel(t);
	if (!sim.plan.has_withdrawals || !sim_chance(30) || side->is_silent || sim.is_cut)
		return;
	if (side->cache[c].presence == SIM_HERE)
		cache_withdraw(side, c);
	else if (side->cache[c].presence == SIM_ABSENT)
		cache_open(side, c);
}

/* --- judgement ------------------------------------------------------------------------------ */

static void
check_content(const struct sim_transfer *t, const char *when)
{
	const struct sim_cache *target = target_of(t);
	uint32_t at = 0;

	for (uint32_t p = 0; p < t->pairs; p++) {
		uint64_t to = t->is_push ? t->remote_block[p] : t->local_block[p];
		bool is_mine = target->version[to] == t->version[p];

		for (uint32_t i = 0; i < target->local.num_tensors; i++) {
			uint64_t bytes = target->tensor[i].block_bytes;

			if (is_mine &&
			    memcmp(block_at(target, i, to), t->expected + at, bytes) != 0) {
				fake_verbs_failed(
					"transfer %llu, a %s of %u blocks: %s, but block %llu "
					"of tensor %u is wrong",
					(unsigned long long)t->transfer->id,
					t->is_push ? "push" : "pull", t->pairs, when,
					(unsigned long long)to, i);
				return;
			}
			at += (uint32_t)bytes;
		}
	}
}

static void
grants_close(struct sim_transfer *t, uint32_t side)
{
	for (uint32_t i = 0; i < t->grants; i++) {
		if (!t->is_granted[i] || t->grant_side[i] != side)
			continue;
		fake_verbs_grant_close(t->grant[i]);
		t->is_granted[i] = false;
	}
}

static void
grants_close_writes(struct sim_transfer *t)
{
	for (uint32_t i = 0; i < t->grants; i++) {
		if (!t->is_granted[i] || t->grant_side[i] == t->side)
			continue;
		fake_verbs_grant_close(t->grant[i]);
		t->is_granted[i] = false;
	}
}

void
sim_grants_end(uint32_t side)
{
	for (uint32_t i = 0; i < SIM_TRANSFERS; i++)
		if (sim.transfer[i].transfer != NULL)
			grants_close(&sim.transfer[i], side);
}

/* The applications may use the blocks for something else. */
static void
release_blocks(const struct sim_transfer *t, bool is_source, bool is_target)
{
	for (uint32_t p = 0; p < t->pairs; p++) {
		uint64_t from = t->is_push ? t->local_block[p] : t->remote_block[p];
		uint64_t to = t->is_push ? t->remote_block[p] : t->local_block[p];

		if (is_source)
			source_of(t)->readers[from]--;
		if (is_target && target_of(t)->version[to] == t->version[p])
			target_of(t)->is_written[to] = false;
	}
}

static void
transfer_free(struct sim_transfer *t)
{
	free(t->transfer);
	free(t->plan_memory);
	free(t->expected);
	t->transfer = NULL;
}

/* Both caches are those that it was submitted with, and stay. */
static bool
is_here(const struct sim_transfer *t)
{
	return local_of(t)->presence == SIM_HERE && remote_of(t)->presence == SIM_HERE &&
	       local_of(t)->local.id == t->transfer->local_cache &&
	       remote_of(t)->local.id == t->transfer->remote_cache;
}

/* A rail that fails is no excuse. */
static bool
may_fail(const struct sim_transfer *t)
{
	return t->is_excused || sim.is_cut || !has_a_rail() || !is_here(t) ||
	       (sim.plan.has_status &&
		(t->status == KVP_CACHE_NOT_EXIST || t->status == KVP_PROTOCOL));
}

/* Terminal. With its own link gone, what is still on the wire is the peer's to keep out. */
static void
ended(struct sim_transfer *t)
{
	bool is_alone = sim.side[t->side].is_silent;

	t->is_done = true;
	if (atomic_load(&t->hold) != 0)
		fake_verbs_failed("transfer %llu ended with %u holds, not 0",
				  (unsigned long long)t->transfer->id, atomic_load(&t->hold));
	fake_verbs_land();
	grants_close(t, t->side);
	if (!is_alone)
		grants_close(t, 1 - t->side);
	if (t->status == KVP_SUCCESS) {
		sim.succeeded++;
		check_content(t, "SUCCESS");
		t->is_event_owed = t->has_notify && t->events == 0 &&
				   remote_of(t)->presence == SIM_HERE &&
				   !sim.side[1 - t->side].is_silent;
	} else {
		sim.failed++;
		if (!may_fail(t))
			fake_verbs_failed("transfer %llu, a %s, failed with %s for no reason",
					  (unsigned long long)t->transfer->id,
					  t->is_push ? "push" : "pull", kvp_status_name(t->status));
	}
	local_of(t)->own_users--;
	remote_of(t)->peer_users--;
	/* One that waits for its event keeps its blocks, so that these can be checked then. */
	release_blocks(t, true, !is_alone && !t->is_event_owed);
	if ((!t->has_notify || t->events > 0) && !is_alone)
		transfer_free(t);
}

uint32_t
sim_transfers_look(void)
{
	uint32_t running = 0;

	for (uint32_t i = 0; i < SIM_TRANSFERS; i++) {
		struct sim_transfer *t = &sim.transfer[i];

		if (t->transfer == NULL || t->is_done)
			continue;
		t->status = kvp_transfer_status(t->transfer);
		if (t->status == KVP_IN_PROGRESS) {
			running++;
			if (sim.now_ns > t->stop_ns + SIM_STOP_NS)
				fake_verbs_failed("transfer %llu was to end %llu ms ago",
						  (unsigned long long)t->transfer->id,
						  (unsigned long long)(sim.now_ns - t->stop_ns) /
							  1000000);
		} else {
			ended(t);
		}
	}
	return running;
}

static struct sim_transfer *
find_tag(uint64_t tag)
{
	for (uint32_t i = 0; i < SIM_TRANSFERS; i++)
		if (sim.transfer[i].transfer != NULL && sim.transfer[i].transfer->id == tag)
			return &sim.transfer[i];
	return NULL;
}

static void
event_check(const struct sim_side *side, const struct kvp_event *event)
{
	struct sim_transfer *t = find_tag(event->tag);

	if (t == NULL || t->side == side->index || !t->has_notify || t->events > 0) {
		fake_verbs_failed("side %u got an event with tag %llu that is %s", side->index,
				  (unsigned long long)event->tag,
				  t != NULL && t->events > 0 ? "there already" : "nobody's");
		return;
	}
	t->events++;
	if (event->kind != KVP_EVENT_PUSH_ARRIVED || event->bytes != t->transfer->plan.bytes ||
	    event->payload_bytes != t->transfer->notify_bytes ||
	    event->cache != t->transfer->remote_cache ||
	    memcmp(event->payload, t->transfer->notify_payload, event->payload_bytes) != 0)
		fake_verbs_failed("the event of transfer %llu says something else",
				  (unsigned long long)event->tag);
	check_content(t, "its event is here");
	/* The receiver may write there, or read what it finds: nobody else writes any more. */
	grants_close_writes(t);
	if (t->is_done && t->is_event_owed)
		release_blocks(t, false, true);
	t->is_event_owed = false;
	if (t->is_done && !sim.side[t->side].is_silent)
		transfer_free(t);
}

/* A few, so that the inbox is full at times. */
uint32_t
sim_events_take(struct sim_side *side)
{
	uint32_t count = side->inbox.count == 0 ? 0 : 1 + sim_random(side->inbox.count);

	for (uint32_t i = 0; i < count; i++)
		event_check(side, &side->inbox.event[i]);
	side->inbox.count -= count;
	memmove(side->inbox.event, side->inbox.event + count,
		side->inbox.count * sizeof(side->inbox.event[0]));
	side->inbox.room += count;
	sim.events += count;
	return count;
}

void
sim_transfers_close(void)
{
	for (uint32_t s = 0; s < 2; s++)
		while (sim_events_take(&sim.side[s]) > 0)
			;
	for (uint32_t i = 0; i < SIM_TRANSFERS; i++) {
		struct sim_transfer *t = &sim.transfer[i];

		if (t->transfer == NULL)
			continue;
		if (t->is_event_owed && remote_of(t)->presence == SIM_HERE &&
		    remote_of(t)->local.id == t->transfer->remote_cache &&
		    !sim.side[1 - t->side].is_silent)
			fake_verbs_failed("transfer %llu succeeded, and its event never came",
					  (unsigned long long)t->transfer->id);
		if (fake_verbs_failures() == 0 && t->is_done)
			transfer_free(t);
	}
}
