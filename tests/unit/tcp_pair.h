/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_pair.h - two tcp endpoints on one thread, with fakes for lane and inbox
 *
 * Included by one file per program: it defines the functions of lane.h and
 * inbox.h that the transport calls. A side is a fake lane with one endpoint and
 * one cache, whose memory has gaps between blocks and behind tensors, so that a
 * byte in the wrong place shows against a model.
 */
#ifndef KVP_TEST_TCP_PAIR_H
#define KVP_TEST_TCP_PAIR_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include "check.h"
#include "inbox.h"
#include "lane.h"
#include "tcp/tcp.h"
#include "transports.h"

#define SIDE_CACHE   7
#define SIDE_TENSORS 4U
#define SIDE_EVENTS  16U

struct kvp_lane {
	const struct kvp_local_cache *cache; /* NULL: withdrawn */
	uint32_t moved;
	uint32_t failures;
	kvp_status why;
	bool wants_write;
};

struct kvp_inbox {
	uint32_t free;
	uint32_t taken;
	uint32_t events;
	uint32_t producer;
	struct kvp_event event[SIDE_EVENTS];
};

const struct kvp_local_cache *
kvp_lane_cache_find(const struct kvp_lane *lane, int64_t cache_id)
{
	return lane->cache != NULL && lane->cache->id == cache_id ? lane->cache : NULL;
}

uint32_t
kvp_lane_index(const struct kvp_lane *lane)
{
	(void)lane;
	return 3;
}

void
kvp_lane_part_moved(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	(void)now_ns;
	KVP_CHECK(part->phase == KVP_PART_MOVING && part->requests_inflight == 0);
	part->phase = KVP_PART_NOTIFYING;
	endpoint->lane->moved++;
}

void
kvp_lane_endpoint_failed(struct kvp_endpoint *endpoint, kvp_status why, uint64_t now_ns)
{
	(void)now_ns;
	endpoint->is_down = true;
	endpoint->down_status = why;
	endpoint->lane->why = why;
	endpoint->lane->failures++;
}

void
kvp_lane_want_write(struct kvp_endpoint *endpoint, bool is_wanted)
{
	KVP_CHECK(endpoint->lane->wants_write != is_wanted);
	endpoint->lane->wants_write = is_wanted;
}

struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox)
{
	if (inbox->free == 0 || inbox->taken == SIDE_EVENTS)
		return NULL;
	inbox->free--;
	return &inbox->event[inbox->taken++];
}

void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event)
{
	KVP_CHECK(event == &inbox->event[inbox->events]);
	inbox->producer = producer;
	inbox->events++;
}

struct side_shape {
	uint32_t blocks;
	uint64_t block_bytes;
	uint64_t stride;
};

struct side {
	struct kvp_lane lane;
	struct kvp_lane *lanes[1];
	struct kvp_inbox inbox;
	struct kvp_config settings;
	struct kvp_dataplane dataplane;
	struct kvp_path *path;
	struct kvp_endpoint *endpoint;
	struct kvp_tensor tensor[SIDE_TENSORS];
	struct kvp_span span[SIDE_TENSORS];
	struct kvp_local_cache cache;
	uint8_t *memory;
	uint8_t *model; /* what memory must be */
	size_t bytes;
};

/* xorshift: the same everywhere, for the seed that a test names. */
static inline uint64_t
side_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void
side_fill(struct side *side, uint64_t seed)
{
	for (size_t i = 0; i < side->bytes; i++)
		side->memory[i] = (uint8_t)(side_random(&seed) >> 24);
	memcpy(side->model, side->memory, side->bytes);
}

static inline void
side_changed(struct kvp_path *path, void *ctx)
{
	(void)path;
	(*(uint32_t *)ctx)++;
}

static inline void
side_init(struct side *side, const struct side_shape *shape, uint64_t seed)
{
	static uint32_t changes;
	uint64_t gap = 512;
	uint64_t tensor_bytes = shape->blocks * shape->stride + gap;
	struct kvp_path_config config = {.dataplane = &side->dataplane,
					 .is_initiator = true,
					 .peer_cluster = 42,
					 .endpoints = 1,
					 .changed = side_changed,
					 .ctx = &changes};

	memset(side, 0, sizeof(*side));
	side->bytes = gap + SIDE_TENSORS * tensor_bytes;
	side->memory = malloc(side->bytes);
	side->model = malloc(side->bytes);
	KVP_CHECK(side->memory != NULL && side->model != NULL);
	side_fill(side, seed);
	for (uint32_t i = 0; i < SIDE_TENSORS; i++) {
		side->tensor[i] = (struct kvp_tensor){.base = side->memory + gap + i * tensor_bytes,
						      .num_blocks = shape->blocks,
						      .block_bytes = shape->block_bytes,
						      .block_stride = shape->stride};
		side->span[i] = (struct kvp_span){.base = (uintptr_t)side->tensor[i].base,
						  .stride = shape->stride,
						  .bytes = shape->block_bytes,
						  .count = shape->blocks};
	}
	side->cache = (struct kvp_local_cache){.id = SIDE_CACHE,
					       .num_tensors = SIDE_TENSORS,
					       .tensors = side->tensor,
					       .spans = side->span};
	side->lane.cache = &side->cache;
	side->lanes[0] = &side->lane;
	side->inbox.free = SIDE_EVENTS;
	snprintf(side->settings.peer_rights, sizeof(side->settings.peer_rights), "push,pull");
	side->dataplane = (struct kvp_dataplane){.config = &side->settings,
						 .inbox = &side->inbox,
						 .lane = side->lanes,
						 .lanes = 1,
						 .streams = 1,
						 .window_requests = 32,
						 .window_bytes = 4U << 20};
	KVP_CHECK(kvp_tcp_transport.path_create(&config, &side->path, NULL) == KVP_SUCCESS);
	side->endpoint = side->path->endpoint[0];
}

static inline void
side_fini(struct side *side)
{
	kvp_tcp_transport.path_destroy(side->path);
	free(side->memory);
	free(side->model);
}

/* The endpoint takes `fd`, nonblocking. */
static inline void
side_plug(struct side *side, int fd)
{
	KVP_CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	side->endpoint->fd = fd;
}

/* Two ends of one stream; `buffer` > 0: as small as the system allows from there. */
static inline void
pair_unix(int fd[2], int buffer)
{
	KVP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) == 0);
	for (int i = 0; i < 2 && buffer > 0; i++) {
		KVP_CHECK(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)) == 0);
		KVP_CHECK(setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)) == 0);
	}
}

static inline int
listen_loopback(struct sockaddr_in *address)
{
	socklen_t bytes = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	KVP_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)address, bytes) == 0);
	KVP_CHECK(listen(fd, 64) == 0);
	KVP_CHECK(getsockname(fd, (struct sockaddr *)address, &bytes) == 0);
	return fd;
}

static inline void
pair_tcp(int fd[2])
{
	struct sockaddr_in address;
	int listener = listen_loopback(&address);

	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	KVP_CHECK(connect(fd[0], (struct sockaddr *)&address, sizeof(address)) == 0);
	fd[1] = accept(listener, NULL, NULL);
	KVP_CHECK(fd[1] >= 0);
	KVP_CHECK(fcntl(fd[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(fd[1], F_SETFL, O_NONBLOCK) == 0);
	close(listener);
}

#endif /* KVP_TEST_TCP_PAIR_H */
