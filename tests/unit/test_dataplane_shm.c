/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "shm_pair.h"

#define shm kvp_shm_transport

/* 64 blocks of 4 KiB with gaps of 512 bytes, two tensors. */
#define BLOCKS      64U
#define BLOCK_BYTES 4096U
#define STRIDE      4608U
#define TENSORS     2U
#define CACHE_BYTES (TENSORS * BLOCKS * STRIDE)

static struct kvp_tensor
tensor_at(uint8_t *base, uint32_t i)
{
	return (struct kvp_tensor){.base = base + i * BLOCKS * STRIDE,
				   .num_blocks = BLOCKS,
				   .block_bytes = BLOCK_BYTES,
				   .block_stride = STRIDE};
}

/* The peer's cache: at `base` over there, in region `region` (0: private). */
struct remote {
	struct kvp_remote_tensor tensor[TENSORS];
	struct kvp_tensor plain[TENSORS];
	struct kvp_remote_cache cache;
};

static void
remote_init(struct remote *remote, uint8_t *base, uint32_t region)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		remote->plain[i] = tensor_at(base, i);
		remote->tensor[i] = (struct kvp_remote_tensor){
			.tensor = remote->plain[i],
			.region = region,
			.region_offset = region == 0 ? 0 : i * (uint64_t)BLOCKS * STRIDE,
		};
	}
	remote->cache = (struct kvp_remote_cache){
		.id = SIDE_CACHE, .num_tensors = TENSORS, .tensors = remote->tensor};
}

/* Blocks i of `from` go to block (i * 5) % BLOCKS of `to`, whichever of both is local. */
static void
check_moved(const uint8_t *from, const uint8_t *to, const uint8_t *to_before)
{
	uint8_t model[CACHE_BYTES];

	memcpy(model, to_before, sizeof(model));
	for (uint32_t t = 0; t < TENSORS; t++) {
		for (uint32_t i = 0; i < BLOCKS; i++) {
			size_t tensor = (size_t)t * BLOCKS * STRIDE;

			memcpy(model + tensor + (i * 5 % BLOCKS) * (size_t)STRIDE,
			       from + tensor + i * (size_t)STRIDE, BLOCK_BYTES);
		}
	}
	assert_memory_equal(to, model, sizeof(model));
}

static void
move_all(struct side *side, struct kvp_view *view, struct remote *remote, uint8_t *local,
	 bool is_push, bool is_hot)
{
	struct kvp_tensor tensors[TENSORS];
	uint64_t src[BLOCKS], dst[BLOCKS];
	struct kvp_pairing pairing = {.local = tensors,
				      .remote = remote->plain,
				      .tensors = TENSORS,
				      .local_blocks = is_push ? src : dst,
				      .remote_blocks = is_push ? dst : src,
				      .count = BLOCKS,
				      .is_push = is_push};
	struct kvp_endpoint *endpoint = side->path->endpoint[0];
	uint64_t bytes = TENSORS * BLOCKS * BLOCK_BYTES;
	struct move move;

	for (uint32_t i = 0; i < TENSORS; i++)
		tensors[i] = tensor_at(local, i);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		src[i] = i;
		dst[i] = i * 5 % BLOCKS;
	}
	move_init(&move, side, view, &pairing);
	move.transfer->is_hot = is_hot;
	assert_int_equal(move_run(&move), 2); /* 512 KiB in steps of 256 KiB */
	assert_int_equal(move_error(&move), KVP_SUCCESS);
	assert_int_equal(atomic_load(&endpoint->pieces), TENSORS * BLOCKS);
	assert_int_equal(atomic_load(&endpoint->requests), atomic_load(&move.transfer->requests));
	assert_int_equal(atomic_load(&endpoint->bytes_out), is_push ? bytes : 0);
	assert_int_equal(atomic_load(&endpoint->bytes_in), is_push ? 0 : bytes);
	move_fini(&move);
}

static void
reachable__itself(void **state)
{
	struct pair pair;
	struct kvp_blob blob;

	(void)state;
	pair_init(&pair);
	shm.describe(&pair.b.dataplane, &blob);
	assert_int_equal(shm.reachable(&pair.a.dataplane, &blob, NULL), KVP_SUCCESS);
	pair_fini(&pair);
}

static void
unreachable(struct side *side, const struct kvp_shm_description *description, uint32_t bytes,
	    const char *word)
{
	struct kvp_error err = {""};
	struct kvp_blob blob = {.bytes = bytes};

	memcpy(blob.data, description, sizeof(*description));
	assert_int_equal(shm.reachable(&side->dataplane, &blob, &err), KVP_NO_TRANSPORT);
	assert_non_null(strstr(err.text, word));
}

static void
reachable__reasons(void **state)
{
	struct kvp_shm_description good, bad;
	struct kvp_blob blob;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	shm.describe(&pair.b.dataplane, &blob);
	assert_int_equal(blob.bytes, sizeof(good));
	memcpy(&good, blob.data, sizeof(good));
	unreachable(&pair.a, &good, sizeof(good) - 1, "31 bytes");
	unreachable(&pair.a, &good, 0, "0 bytes");
	bad = good;
	bad.version++;
	unreachable(&pair.a, &bad, sizeof(bad), "version 2");
	bad = good;
	bad.magic ^= 1;
	unreachable(&pair.a, &bad, sizeof(bad), "version");
	bad = good;
	bad.boot_hash ^= 1;
	unreachable(&pair.a, &bad, sizeof(bad), "another host");
	bad = good;
	bad.netns++;
	unreachable(&pair.a, &bad, sizeof(bad), "network namespace");
	bad = good;
	bad.uid++;
	unreachable(&pair.a, &bad, sizeof(bad), "runs as uid");
	pair_fini(&pair);
}

static void
endpoints__the_lesser_number_of_lanes(void **state)
{
	struct kvp_dataplane few = {.lanes = 2}, many = {.lanes = 40};

	(void)state;
	assert_int_equal(shm.endpoints(&few, 1), 1);
	assert_int_equal(shm.endpoints(&few, 0), 1); /* a peer may say anything */
	assert_int_equal(shm.endpoints(&few, 3), 2);
	assert_int_equal(shm.endpoints(&many, 40), KVP_ENDPOINTS_MAX);
}

static void
path_create__endpoints_out_of_range(void **state)
{
	struct pair pair;
	struct kvp_path_config config = {.dataplane = &pair.a.dataplane};
	struct kvp_path *path = NULL;

	(void)state;
	pair_init(&pair);
	assert_int_equal(shm.path_create(&config, &path, NULL), KVP_PARAM_INVALID);
	config.endpoints = KVP_ENDPOINTS_MAX + 1;
	assert_int_equal(shm.path_create(&config, &path, NULL), KVP_PARAM_INVALID);
	assert_null(path);
	shm.path_destroy(NULL);
	pair_fini(&pair);
}

static void
path_connect__both_sides_come_up(void **state)
{
	struct pair pair;

	(void)state;
	for (uint32_t endpoints = 1; endpoints <= KVP_ENDPOINTS_MAX; endpoints += 5) {
		pair_init(&pair);
		pair_link(&pair, endpoints);
		assert_int_equal(pair.a.changes, 1);
		assert_int_equal(pair.b.changes, 1);
		assert_non_null(strstr(pair.a.path->text, "shm (mapped memory, "));
		assert_non_null(strstr(pair.a.path->text, "by process_vm"));
		for (uint32_t i = 0; i < endpoints; i++) {
			assert_ptr_equal(pair.a.path->endpoint[i]->lane, pair.a.lanes[i % 2]);
			assert_ptr_equal(pair.b.path->endpoint[i]->lane, pair.b.lanes[(1 + i) % 2]);
			assert_int_equal(pair.a.path->endpoint[i]->index, i);
			assert_int_equal(pair.a.path->endpoint[i]->fd, -1);
		}
		pair_fini(&pair);
	}
}

static void
path_accept__takes_no_stream(void **state)
{
	const struct kvp_stream_frame stream = {.endpoint = 0};
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_false(shm.path_accept(pair.a.path, 0, &stream));
	pair_fini(&pair);
}

static void
view_open__before_up_and_before_the_region(void **state)
{
	struct kvp_region *region = pair_region(9, CACHE_BYTES);
	struct kvp_view *view = NULL;
	struct kvp_blob offer;
	struct remote remote;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	remote_init(&remote, region->base, 9);
	pair_paths(&pair, 1, 1, &offer);
	/* Queued until there is a connection, on both sides. */
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	assert_int_equal(shm.region_add(pair.a.path, region, NULL), KVP_SUCCESS);
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_IN_PROGRESS);
	assert_int_equal(shm.path_connect(pair.a.path, &offer, NULL), KVP_SUCCESS);
	assert_int_equal(pair.a.changes, 0); /* never from inside a call */
	pair_settle(&pair);
	assert_int_equal(pair.a.path->state, KVP_PATH_UP);
	assert_true(pair.a.changes >= 1);
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_SUCCESS);
	shm.view_close(pair.a.path, view);
	assert_int_equal(shm.view_open(pair.b.path, &remote.cache, &view, NULL), KVP_SUCCESS);
	shm.view_close(pair.b.path, view);
	shm.view_close(pair.b.path, NULL);
	remote_init(&remote, region->base, 10); /* a region that never comes */
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_IN_PROGRESS);
	pair_fini(&pair);
	kvp_region_destroy(region);
}

static void
post__push_and_pull_through_mapped_memory(void **state)
{
	uint8_t *local = malloc(CACHE_BYTES), *before = malloc(CACHE_BYTES);
	struct kvp_region *region = pair_region(1, CACHE_BYTES);
	struct remote remote;

	(void)state;
	for (uint32_t round = 0; round < 4; round++) {
		bool is_push = (round & 1) != 0, is_hot = (round & 2) != 0;
		struct kvp_view *view = NULL;
		struct pair pair;

		pair_init(&pair);
		pair_link(&pair, 1);
		remote_init(&remote, region->base, 1);
		assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
		pair_settle(&pair);
		assert_int_equal(pair.a.changes, 2);
		assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL),
				 KVP_SUCCESS);
		assert_non_null(view->tensor[1].mapped);
		assert_ptr_not_equal(view->tensor[1].mapped, remote.plain[1].base);
		fill(local, CACHE_BYTES, 1 + round);
		fill(region->base, CACHE_BYTES, 100 + round);
		memcpy(before, is_push ? region->base : local, CACHE_BYTES);
		move_all(&pair.a, view, &remote, local, is_push, is_hot);
		if (is_push)
			check_moved(local, region->base, before);
		else
			check_moved(region->base, local, before);
		shm.view_close(pair.a.path, view);
		pair_fini(&pair);
	}
	kvp_region_destroy(region);
	free(before);
	free(local);
}

static void
post__push_and_pull_of_private_memory(void **state)
{
	uint8_t *local = malloc(CACHE_BYTES), *before = malloc(CACHE_BYTES);
	uint8_t *theirs = malloc(CACHE_BYTES);
	struct remote remote;

	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		bool is_push = round == 0;
		struct kvp_view *view = NULL;
		struct pair pair;

		pair_init(&pair);
		pair_link(&pair, 1);
		remote_init(&remote, theirs, 0);
		assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL),
				 KVP_SUCCESS);
		assert_null(view->tensor[0].mapped);
		fill(local, CACHE_BYTES, 1 + round);
		fill(theirs, CACHE_BYTES, 100 + round);
		memcpy(before, is_push ? theirs : local, CACHE_BYTES);
		move_all(&pair.a, view, &remote, local, is_push, false);
		if (is_push)
			check_moved(local, theirs, before);
		else
			check_moved(theirs, local, before);
		shm.view_close(pair.a.path, view);
		pair_fini(&pair);
	}
	free(theirs);
	free(before);
	free(local);
}

/* One tensor in a region, the other private: both kinds in one step. */
static void
post__a_mixed_cache(void **state)
{
	uint8_t *local = malloc(CACHE_BYTES), *theirs = malloc(CACHE_BYTES);
	uint8_t *before = malloc(CACHE_BYTES), *after = malloc(CACHE_BYTES);
	struct kvp_region *region = pair_region(1, BLOCKS * STRIDE);
	struct kvp_view *view = NULL;
	struct remote remote;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	remote_init(&remote, theirs, 0);
	remote.tensor[0].region = 1;
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_SUCCESS);
	fill(local, CACHE_BYTES, 1);
	fill(theirs, CACHE_BYTES, 2);
	memcpy(before, theirs, CACHE_BYTES);
	memcpy(region->base, theirs, BLOCKS * STRIDE);
	move_all(&pair.a, view, &remote, local, true, false);
	assert_memory_equal(theirs, before, BLOCKS * STRIDE);
	memcpy(after, region->base, BLOCKS * STRIDE);
	memcpy(after + BLOCKS * STRIDE, theirs + BLOCKS * STRIDE, BLOCKS * STRIDE);
	check_moved(local, after, before);
	shm.view_close(pair.a.path, view);
	pair_fini(&pair);
	kvp_region_destroy(region);
	free(local);
	free(theirs);
	free(before);
	free(after);
}

static void
post__private_memory_that_is_not_there(void **state)
{
	uint8_t *local = calloc(1, CACHE_BYTES);
	struct kvp_tensor tensor = tensor_at(local, 0);
	const uint64_t block = 0;
	struct kvp_view *view = NULL;
	struct kvp_pairing pairing = {.local = &tensor,
				      .tensors = 1,
				      .local_blocks = &block,
				      .remote_blocks = &block,
				      .count = 1,
				      .is_push = true};
	struct remote remote;
	struct move move;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	remote_init(&remote, (uint8_t *)4096, 0); /* below what the system maps */
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_SUCCESS);
	pairing.remote = remote.plain;
	move_init(&move, &pair.a, view, &pairing);
	assert_int_equal(move_run(&move), 1);
	assert_int_equal(move_error(&move), KVP_FEATURE_NOT_ENABLED);
	assert_int_equal(move.transfer->part[0].bytes_done, 0);
	assert_int_equal(pair.a.lane[0].moved, 0);
	move_fini(&move);
	shm.view_close(pair.a.path, view);
	pair_fini(&pair);
	free(local);
}

static void
view_open__private_memory_out_of_reach(void **state)
{
	uint8_t memory[1];
	struct kvp_error err = {""};
	struct kvp_view *view = NULL;
	struct remote remote;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	remote_init(&remote, memory, 0);
	side_shm(&pair.a)->foreign.status = KVP_FEATURE_NOT_ENABLED;
	strcpy(side_shm(&pair.a)->foreign.why, "yama says no");
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, &err),
			 KVP_FEATURE_NOT_ENABLED);
	assert_non_null(strstr(err.text, "yama says no"));
	assert_null(view);
	pair_fini(&pair);
}

static void
view_open__outside_its_region(void **state)
{
	struct kvp_region *region = pair_region(1, CACHE_BYTES);
	struct kvp_error err = {""};
	struct kvp_view *view = NULL;
	struct remote remote;
	struct pair pair;
	uint64_t last;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	remote_init(&remote, region->base, 1);
	last = region->bytes - kvp_tensor_extent(&remote.plain[0]);
	remote.tensor[0].region_offset = last;
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, &err), KVP_SUCCESS);
	shm.view_close(pair.a.path, view);
	remote.tensor[0].region_offset = last + 1;
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, &err), KVP_PROTOCOL);
	remote.tensor[0].region_offset = region->bytes + 1;
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, &err), KVP_PROTOCOL);
	remote.tensor[0].region_offset = UINT64_MAX - 10;
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, &err), KVP_PROTOCOL);
	assert_non_null(strstr(err.text, "region 1"));
	pair_fini(&pair);
	kvp_region_destroy(region);
}

/*
 * Interleaved tensors move as one wide one, through the place of the first. A
 * peer that says the first lies at the end of its region would have us write
 * behind our map of it.
 */
static void
post__a_folded_group_beyond_the_region(void **state)
{
	uint8_t *local = calloc(1, CACHE_BYTES);
	struct kvp_region *region = pair_region(1, 8192);
	const uint64_t block = 0;
	struct kvp_tensor tensors[2], far[2];
	struct kvp_remote_tensor remote[2];
	struct kvp_remote_cache cache = {.id = SIDE_CACHE, .num_tensors = 2, .tensors = remote};
	struct kvp_pairing pairing = {.local = tensors,
				      .remote = far,
				      .tensors = 2,
				      .local_blocks = &block,
				      .remote_blocks = &block,
				      .count = 1,
				      .is_push = true};
	struct kvp_view *view = NULL;
	struct move move;
	struct pair pair;

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		tensors[i] = (struct kvp_tensor){local + i * 4096, 1, 4096, 8192};
		far[i] = (struct kvp_tensor){(uint8_t *)region->base + i * 4096, 1, 4096, 8192};
		remote[i] = (struct kvp_remote_tensor){far[i], 1, 4096};
	}
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(shm.view_open(pair.a.path, &cache, &view, NULL), KVP_SUCCESS);
	move_init(&move, &pair.a, view, &pairing);
	assert_int_equal(move.transfer->plan.groups, 1);
	(void)move_run(&move);
	assert_int_equal(move_error(&move), KVP_PROTOCOL);
	move_fini(&move);
	shm.view_close(pair.a.path, view);
	pair_fini(&pair);
	kvp_region_destroy(region);
	free(local);
}

static void
region_gone__unmapped_with_its_last_view(void **state)
{
	struct kvp_region *region = pair_region(1, CACHE_BYTES);
	struct kvp_view *view = NULL, *late = NULL;
	struct remote remote;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	remote_init(&remote, region->base, 1);
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &view, NULL), KVP_SUCCESS);
	shm.region_gone(pair.b.path, 1);
	pair_settle(&pair);
	view->tensor[0].mapped[0] = 77; /* still mapped */
	assert_int_equal(((uint8_t *)region->base)[0], 77);
	assert_int_equal(shm.view_open(pair.a.path, &remote.cache, &late, NULL), KVP_IN_PROGRESS);
	assert_int_equal(side_shm(&pair.a)->num_regions, 1);
	shm.view_close(pair.a.path, view);
	assert_int_equal(side_shm(&pair.a)->num_regions, 0);
	/* The same again, without a view. */
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(side_shm(&pair.a)->num_regions, 1);
	shm.region_gone(pair.b.path, 1);
	shm.region_gone(pair.b.path, 1); /* twice, and one that never was */
	shm.region_gone(pair.b.path, 3);
	pair_settle(&pair);
	assert_int_equal(side_shm(&pair.a)->num_regions, 0);
	assert_int_equal(pair.a.path->state, KVP_PATH_UP);
	pair_fini(&pair);
	kvp_region_destroy(region);
}

static void
region_gone__before_it_was_sent(void **state)
{
	struct kvp_region *first, *second, *third;
	struct kvp_blob offer;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	first = pair_region(1, 4096);
	second = pair_region(2, 4096);
	third = pair_region(3, 4096);
	pair_paths(&pair, 1, 1, &offer);
	assert_int_equal(shm.region_add(pair.b.path, first, NULL), KVP_SUCCESS);
	assert_int_equal(shm.region_add(pair.b.path, second, NULL), KVP_SUCCESS);
	assert_int_equal(shm.region_add(pair.b.path, third, NULL), KVP_SUCCESS);
	shm.region_gone(pair.b.path, 3);
	shm.region_gone(pair.b.path, 1);
	kvp_region_destroy(third);
	kvp_region_destroy(first); /* its descriptor must not be sent */
	assert_int_equal(shm.path_connect(pair.a.path, &offer, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(side_shm(&pair.a)->num_regions, 1);
	assert_int_equal(side_shm(&pair.a)->regions->id, 2);
	kvp_region_destroy(second);
	pair_fini(&pair);
}

static void
region_add__pages_are_populated_in_the_background(void **state)
{
	struct kvp_region *region = pair_region(1, 9U << 20);
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(side_shm(&pair.a)->regions->populated, 9U << 20);
	assert_false(side_shm(&pair.a)->state->is_populating);
	pair_fini(&pair);
	kvp_region_destroy(region);
}

/* A transfer for its notification alone. */
static void
notifier_init(struct kvp_transfer *transfer, uint64_t number)
{
	memset(transfer, 0, sizeof(*transfer));
	transfer->part[0].transfer = transfer;
	transfer->remote_cache = SIDE_CACHE;
	transfer->notify_tag = number;
	transfer->notify_bytes = (uint16_t)(number % (KVP_NOTIFY_BYTES_MAX + 1));
	transfer->plan.bytes = number * 1000;
	memset(transfer->notify_payload, (int)(number & 0xFF), sizeof(transfer->notify_payload));
}

static int
notify(struct side *side, uint64_t number)
{
	static struct kvp_transfer transfer;

	notifier_init(&transfer, number);
	return shm.notify(side->path->endpoint[0], &transfer.part[0], 0);
}

static void
check_event(const struct kvp_event *event, uint64_t number, uint64_t cluster)
{
	uint8_t payload[KVP_NOTIFY_BYTES_MAX];

	memset(payload, (int)(number & 0xFF), sizeof(payload));
	assert_int_equal(event->kind, KVP_EVENT_PUSH_ARRIVED);
	assert_int_equal(event->status, KVP_SUCCESS);
	assert_int_equal(event->cluster_id, cluster);
	assert_int_equal(event->cache, SIDE_CACHE);
	assert_int_equal(event->tag, number);
	assert_int_equal(event->bytes, number * 1000);
	assert_int_equal(event->payload_bytes, number % (KVP_NOTIFY_BYTES_MAX + 1));
	assert_memory_equal(event->payload, payload, event->payload_bytes);
}

static void
notify__both_ways(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 2);
	assert_int_equal(shm.progress(pair.b.path->endpoint[0], 0), 0);
	assert_int_equal(notify(&pair.a, 300), 1);
	assert_int_equal(notify(&pair.b, 256), 1);
	assert_int_equal(shm.progress(pair.b.path->endpoint[1], 0), 0); /* another endpoint's */
	assert_int_equal(shm.progress(pair.b.path->endpoint[0], 0), 1);
	assert_int_equal(shm.progress(pair.a.path->endpoint[0], 0), 1);
	assert_int_equal(pair.b.inbox.events, 1);
	assert_int_equal(pair.b.inbox.producer, 1); /* b's endpoint 0 is on its lane 1 */
	check_event(&pair.b.inbox.event[0], 300, 11);
	check_event(&pair.a.inbox.event[0], 256, 22);
	pair_fini(&pair);
}

static void
notify__full_ring_and_full_inbox(void **state)
{
	struct kvp_endpoint *endpoint;
	uint64_t sent = 0, wanted = 0;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	endpoint = pair.b.path->endpoint[0];
	while (notify(&pair.a, sent) == 1)
		sent++;
	assert_int_equal(sent, KVP_SHM_SLOTS);
	pair.b.inbox.room = 0;
	assert_int_equal(shm.progress(endpoint, 0), 0);
	assert_true(shm.arm(endpoint)); /* there is work that waits */
	assert_int_equal(notify(&pair.a, sent), 0);
	pair.b.inbox.room = 10;
	assert_int_equal(shm.progress(endpoint, 0), 10);
	assert_int_equal(notify(&pair.a, sent++), 1);
	pair.b.inbox.room = SIDE_EVENTS;
	while (shm.progress(endpoint, 0) > 0)
		;
	assert_int_equal(pair.b.inbox.events, sent);
	while (wanted < sent) {
		check_event(&pair.b.inbox.event[wanted], wanted, 11);
		wanted++;
	}
	assert_int_equal(pair.b.lane[1].failures, 0);
	pair_fini(&pair);
}

static void
notify__for_a_cache_that_is_gone(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	pair.b.lane[1].cache = 0;
	assert_int_equal(notify(&pair.a, 1), 1);
	assert_int_equal(shm.progress(pair.b.path->endpoint[0], 0), 1);
	assert_int_equal(pair.b.inbox.events, 0);
	assert_int_equal(pair.b.inbox.room, SIDE_EVENTS);
	assert_int_equal(atomic_load(&side_endpoint(&pair.b, 0)->notes_dropped), 1);
	pair.b.lane[1].cache = SIDE_CACHE;
	assert_int_equal(notify(&pair.a, 2), 1);
	assert_int_equal(shm.progress(pair.b.path->endpoint[0], 0), 1);
	check_event(&pair.b.inbox.event[0], 2, 11);
	pair_fini(&pair);
}

static void
arm__the_peer_wakes_the_lane(void **state)
{
	struct kvp_endpoint *endpoint;
	uint64_t count = 0;
	struct pair pair;
	int event_fd;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	endpoint = pair.b.path->endpoint[0];
	event_fd = pair.b.lane[1].event_fd;
	assert_int_equal(notify(&pair.a, 1), 1); /* awake: no wake-up */
	assert_int_equal(read(event_fd, &count, sizeof(count)), -1);
	assert_true(shm.arm(endpoint));
	assert_int_equal(shm.progress(endpoint, 0), 1);
	assert_false(shm.arm(endpoint));
	assert_int_equal(notify(&pair.a, 2), 1);
	assert_int_equal(notify(&pair.a, 3), 1);
	assert_int_equal(read(event_fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1); /* one sleep, one wake-up */
	shm.disarm(endpoint);
	assert_int_equal(shm.progress(endpoint, 0), 2);
	assert_false(shm.arm(endpoint));
	shm.disarm(endpoint);
	assert_int_equal(notify(&pair.a, 4), 1);
	assert_int_equal(read(event_fd, &count, sizeof(count)), -1);
	pair_fini(&pair);
}

static void
stop__paths_come_and_go(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	for (uint32_t i = 0; i < 3; i++) {
		pair_link(&pair, 1);
		shm.path_destroy(pair.a.path);
		pair.a.path = NULL;
		pair_settle(&pair);
		assert_int_equal(pair.b.path->state, KVP_PATH_UP); /* control sees the peer's end */
		shm.path_destroy(pair.b.path);
		pair.b.path = NULL;
	}
	pair_fini(&pair);
	shm.stop(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reachable__itself),
		cmocka_unit_test(reachable__reasons),
		cmocka_unit_test(endpoints__the_lesser_number_of_lanes),
		cmocka_unit_test(path_create__endpoints_out_of_range),
		cmocka_unit_test(path_connect__both_sides_come_up),
		cmocka_unit_test(path_accept__takes_no_stream),
		cmocka_unit_test(view_open__before_up_and_before_the_region),
		cmocka_unit_test(post__push_and_pull_through_mapped_memory),
		cmocka_unit_test(post__push_and_pull_of_private_memory),
		cmocka_unit_test(post__a_mixed_cache),
		cmocka_unit_test(post__private_memory_that_is_not_there),
		cmocka_unit_test(view_open__private_memory_out_of_reach),
		cmocka_unit_test(view_open__outside_its_region),
		cmocka_unit_test(post__a_folded_group_beyond_the_region),
		cmocka_unit_test(region_gone__unmapped_with_its_last_view),
		cmocka_unit_test(region_gone__before_it_was_sent),
		cmocka_unit_test(region_add__pages_are_populated_in_the_background),
		cmocka_unit_test(notify__both_ways),
		cmocka_unit_test(notify__full_ring_and_full_inbox),
		cmocka_unit_test(notify__for_a_cache_that_is_gone),
		cmocka_unit_test(arm__the_peer_wakes_the_lane),
		cmocka_unit_test(stop__paths_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
