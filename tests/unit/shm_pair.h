/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_pair.h - two shm engines in one process on one thread, without lanes
 *
 * Included by one file per program: it defines the functions of lane.h,
 * inbox.h and transport.h that the transport calls. A side is a data plane with
 * fake lanes and an own reactor, one path, and memory whose bytes follow from
 * their position, so that a byte in the wrong place shows.
 */
#ifndef KVP_TEST_SHM_PAIR_H
#define KVP_TEST_SHM_PAIR_H

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "inbox.h"
#include "lane.h"
#include "region.h"
#include "shm/shm.h"
#include "transports.h"

#define SIDE_LANES  2U
#define SIDE_EVENTS 256U
#define SIDE_CACHE  5

struct kvp_lane {
	uint32_t index;
	int event_fd;
	int64_t cache; /* the one it knows; 0 none */
	struct kvp_local_cache local;
	uint32_t moved;
	uint32_t failures;
	kvp_status why;
};

struct kvp_inbox {
	uint32_t room; /* events it still gives out */
	uint32_t events;
	uint32_t producer;
	struct kvp_event event[SIDE_EVENTS];
};

const struct kvp_local_cache *
kvp_lane_cache_find(const struct kvp_lane *lane, int64_t cache_id)
{
	return lane->cache != 0 && lane->cache == cache_id ? &lane->local : NULL;
}

uint32_t
kvp_lane_index(const struct kvp_lane *lane)
{
	return lane->index;
}

int
kvp_lane_event_fd(const struct kvp_lane *lane)
{
	return lane->event_fd;
}

void
kvp_lane_part_moved(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	(void)now_ns;
	KVP_CHECK(part->requests_inflight == 0 && part->bytes_inflight == 0);
	KVP_CHECK(part->bytes_done == part->bytes && part->cursor.left == 0);
	endpoint->lane->moved++;
}

void
kvp_lane_endpoint_failed(struct kvp_endpoint *endpoint, kvp_status why, uint64_t now_ns)
{
	(void)now_ns;
	endpoint->lane->failures++;
	endpoint->lane->why = why;
}

struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox)
{
	if (inbox->room == 0)
		return NULL;
	inbox->room--;
	return &inbox->event[inbox->events];
}

void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event)
{
	KVP_CHECK(event == &inbox->event[inbox->events]);
	inbox->producer = producer;
	inbox->events++;
}

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	KVP_CHECK(strcmp(name, "shm") == 0);
	*slot_out = 1;
	return &kvp_shm_transport;
}

struct side {
	struct kvp_dataplane dataplane;
	struct kvp_reactor reactor;
	struct kvp_inbox inbox;
	struct kvp_lane lane[SIDE_LANES];
	struct kvp_lane *lanes[SIDE_LANES];
	struct kvp_path *path;
	uint32_t changes;
};

struct pair {
	struct side a; /* asks for the link */
	struct side b;
	uint32_t fds_before;
};

static inline uint32_t
pair_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t count = 0;

	KVP_CHECK(dir != NULL);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static inline void
side_changed(struct kvp_path *path, void *ctx)
{
	struct side *side = ctx;

	KVP_CHECK(path == side->path);
	side->changes++;
}

static inline void
side_init(struct side *side, uint64_t cluster)
{
	memset(side, 0, sizeof(*side));
	KVP_CHECK(kvp_reactor_init(&side->reactor) == 0);
	for (uint32_t i = 0; i < SIDE_LANES; i++) {
		side->lane[i].index = i;
		side->lane[i].cache = SIDE_CACHE;
		side->lane[i].event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		KVP_CHECK(side->lane[i].event_fd >= 0);
		side->lanes[i] = &side->lane[i];
	}
	side->inbox.room = SIDE_EVENTS;
	side->dataplane = (struct kvp_dataplane){.cluster_id = cluster,
						 .reactor = &side->reactor,
						 .inbox = &side->inbox,
						 .lane = side->lanes,
						 .lanes = SIDE_LANES};
	KVP_CHECK(kvp_shm_transport.start(&side->dataplane, &side->dataplane.state[1], NULL) ==
		  KVP_SUCCESS);
}

static inline void
side_fini(struct side *side)
{
	if (side->path != NULL)
		kvp_shm_transport.path_destroy(side->path);
	kvp_shm_transport.stop(side->dataplane.state[1]);
	for (uint32_t i = 0; i < SIDE_LANES; i++)
		close(side->lane[i].event_fd);
	kvp_reactor_fini(&side->reactor);
}

static inline void
side_path(struct side *side, bool is_initiator, uint32_t endpoints)
{
	const struct kvp_path_config config = {
		.dataplane = &side->dataplane,
		.is_initiator = is_initiator,
		.peer_cluster = is_initiator ? 22 : 11,
		.endpoints = endpoints,
		.first_lane = is_initiator ? 0 : 1,
		.changed = side_changed,
		.ctx = side,
	};

	KVP_CHECK(kvp_shm_transport.path_create(&config, &side->path, NULL) == KVP_SUCCESS);
}

static inline void
pair_init(struct pair *pair)
{
	pair->fds_before = pair_open_fds();
	side_init(&pair->a, 11);
	side_init(&pair->b, 22);
}

/* Everything that was opened must be closed again. */
static inline void
pair_fini(struct pair *pair)
{
	side_fini(&pair->a);
	side_fini(&pair->b);
	KVP_CHECK(pair_open_fds() == pair->fds_before);
}

/* Let both control threads work until nothing happens any more. */
static inline void
pair_settle(struct pair *pair)
{
	for (uint32_t i = 0; i < 200; i++) {
		kvp_reactor_wait(&pair->a.reactor, 0);
		kvp_reactor_wait(&pair->b.reactor, 0);
	}
}

static inline struct kvp_shm_path *
side_shm(struct side *side)
{
	return kvp_shm_path_of(side->path);
}

static inline struct kvp_shm_endpoint *
side_endpoint(struct side *side, uint32_t index)
{
	return (struct kvp_shm_endpoint *)side->path->endpoint[index];
}

/* Paths on both sides, not yet connected; b's offer to *offer_out. */
static inline void
pair_paths(struct pair *pair, uint32_t endpoints_a, uint32_t endpoints_b,
	   struct kvp_blob *offer_out)
{
	side_path(&pair->a, true, endpoints_a);
	side_path(&pair->b, false, endpoints_b);
	kvp_shm_transport.path_offer(pair->b.path, offer_out);
}

static inline void
pair_link(struct pair *pair, uint32_t endpoints)
{
	struct kvp_blob offer_a, offer_b;

	pair_paths(pair, endpoints, endpoints, &offer_b);
	kvp_shm_transport.path_offer(pair->a.path, &offer_a);
	KVP_CHECK(kvp_shm_transport.path_connect(pair->b.path, &offer_a, NULL) == KVP_SUCCESS);
	KVP_CHECK(kvp_shm_transport.path_connect(pair->a.path, &offer_b, NULL) == KVP_SUCCESS);
	pair_settle(pair);
	KVP_CHECK(pair->a.path->state == KVP_PATH_UP && pair->b.path->state == KVP_PATH_UP);
}

static inline struct kvp_region *
pair_region(uint32_t id, uint64_t bytes)
{
	const struct kvp_region_config config = {.id = id, .bytes = bytes};
	struct kvp_region *region = NULL;

	KVP_CHECK(kvp_region_create(&config, &region, NULL) == KVP_SUCCESS);
	return region;
}

/* A transfer of one part over one endpoint, with everything it needs. */
struct move {
	struct kvp_transfer *transfer;
	void *scratch;
	void *memory;
};

static inline void
move_init(struct move *move, struct side *side, struct kvp_view *view,
	  const struct kvp_pairing *pairing)
{
	struct kvp_transfer *t = aligned_alloc(KVP_SHARE_SPAN, sizeof(*t));

	KVP_CHECK(t != NULL);
	memset(t, 0, sizeof(*t));
	move->scratch = malloc(kvp_plan_scratch_bytes(pairing->count));
	KVP_CHECK(kvp_plan_prepare(pairing, move->scratch, &t->plan, NULL) == KVP_SUCCESS);
	move->memory = malloc(kvp_plan_bytes(&t->plan));
	kvp_plan_fill(pairing, move->scratch, move->memory, &t->plan);
	t->view = view;
	t->is_push = pairing->is_push;
	t->remote_cache = SIDE_CACHE;
	t->parts = 1;
	t->part[0].transfer = t;
	t->part[0].endpoint = side->path->endpoint[0];
	t->part[0].bytes = t->plan.bytes;
	kvp_cursor_init(&t->part[0].cursor, &t->plan, 0, t->plan.bytes);
	move->transfer = t;
}

/* Step until it is through or stopped; returns the steps. */
static inline uint32_t
move_run(struct move *move)
{
	struct kvp_part *part = &move->transfer->part[0];
	uint32_t moved = part->endpoint->lane->moved;
	uint32_t steps = 0;

	while (part->endpoint->lane->moved == moved && !kvp_transfer_is_stopped(move->transfer)) {
		KVP_CHECK(kvp_shm_transport.post(part->endpoint, part, 0) > 0);
		KVP_CHECK(++steps < 100000);
	}
	if (kvp_transfer_is_stopped(move->transfer))
		KVP_CHECK(kvp_shm_transport.stop_part(part->endpoint, part, 0));
	return steps;
}

static inline kvp_status
move_error(const struct move *move)
{
	return atomic_load(&move->transfer->first_error);
}

static inline void
move_fini(struct move *move)
{
	free(move->memory);
	free(move->scratch);
	free(move->transfer);
}

/* Bytes that say where they are. */
static inline void
fill(uint8_t *at, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)((i * 2654435761U + seed * 40503U) >> 13);
}

#endif /* KVP_TEST_SHM_PAIR_H */
