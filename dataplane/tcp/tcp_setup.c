/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include "check.h"
#include "lane.h"
#include "rights.h"
#include "tcp_stream.h"
#include "transports.h"

#define OFFER_BYTES (1U + KVP_TOKEN_BYTES) /* version, token */

/* A view only has to be unlike all others: the wire names caches by id. */
struct kvp_tcp_view {
	const struct kvp_remote_cache *cache;
};

static kvp_status
tcp_start(struct kvp_dataplane *dataplane, void **state_out, struct kvp_error *err)
{
	(void)dataplane;
	(void)err;
	*state_out = NULL; /* streams come to the engine's own listener */
	return KVP_SUCCESS;
}

static void
tcp_stop(void *state)
{
	(void)state;
}

static void
tcp_describe(struct kvp_dataplane *dataplane, struct kvp_blob *blob_out)
{
	(void)dataplane;
	blob_out->bytes = 1;
	blob_out->data[0] = KVP_TCP_VERSION;
}

static kvp_status
tcp_reachable(struct kvp_dataplane *dataplane, const struct kvp_blob *peer, struct kvp_error *err)
{
	(void)dataplane;
	if (peer->bytes < 1 || peer->data[0] != KVP_TCP_VERSION)
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"tcp: the peer's streams have version %u, this engine's %u",
				peer->bytes < 1 ? 0U : peer->data[0], KVP_TCP_VERSION);
	return KVP_SUCCESS; /* where control connections come through, so do streams */
}

static uint32_t
tcp_endpoints(struct kvp_dataplane *dataplane, uint32_t peer_lanes)
{
	(void)peer_lanes;
	if (dataplane->streams < 1)
		return 1;
	return dataplane->streams < KVP_ENDPOINTS_MAX ? dataplane->streams : KVP_ENDPOINTS_MAX;
}

static void
endpoint_destroy(struct kvp_tcp_endpoint *ep)
{
	if (ep == NULL)
		return;
	if (ep->base.fd >= 0)
		(void)close(ep->base.fd);
	free(ep->answer);
	free(ep->slot_iov);
	free(ep);
}

static struct kvp_tcp_endpoint *
endpoint_create(struct kvp_path *path, uint32_t index)
{
	const struct kvp_path_config *config = &path->config;
	const struct kvp_dataplane *dataplane = config->dataplane;
	struct kvp_tcp_endpoint *ep = aligned_alloc(KVP_SHARE_SPAN, sizeof(*ep));

	if (ep == NULL)
		return NULL;
	memset(ep, 0, sizeof(*ep));
	ep->base.transport = &kvp_tcp_transport;
	ep->base.path = path;
	ep->base.lane = dataplane->lane[(config->first_lane + index) % dataplane->lanes];
	ep->base.index = index;
	ep->base.fd = -1;
	ep->inbox = dataplane->inbox;
	ep->window_bytes = dataplane->window_bytes;
	ep->window_requests = dataplane->window_requests;
	ep->peer_cluster = config->peer_cluster;
	ep->rights = kvp_rights_of(dataplane->config->peer_rights);
	ep->slots_free = UINT64_MAX;
	ep->tx.slot = KVP_TCP_NO_SLOT;
	/* Large and mostly never touched, so left to the system's zero pages. */
	ep->slot_iov = calloc(KVP_TCP_REQUESTS, sizeof(ep->slot_iov[0]));
	ep->answer = calloc(KVP_TCP_REQUESTS, sizeof(ep->answer[0]));
	if (ep->slot_iov == NULL || ep->answer == NULL) {
		endpoint_destroy(ep);
		return NULL;
	}
	return ep;
}

static void
tcp_path_destroy(struct kvp_path *base)
{
	struct kvp_tcp_path *path = (struct kvp_tcp_path *)base;

	if (path == NULL)
		return;
	kvp_tcp_streams_close(path);
	for (uint32_t i = 0; i < base->config.endpoints; i++)
		endpoint_destroy((struct kvp_tcp_endpoint *)base->endpoint[i]);
	explicit_bzero(path->token, sizeof(path->token));
	free(path);
}

static kvp_status
tcp_path_create(const struct kvp_path_config *config, struct kvp_path **path_out,
		struct kvp_error *err)
{
	struct kvp_tcp_path *path = calloc(1, sizeof(*path));
	char peer[64];

	KVP_CHECK(config->endpoints >= 1 && config->endpoints <= KVP_ENDPOINTS_MAX);
	if (path == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "tcp: no memory for a path");
	path->base.transport = &kvp_tcp_transport;
	path->base.config = *config;
	kvp_tcp_peer_text(config, peer, sizeof(peer));
	snprintf(path->base.text, sizeof(path->base.text), "tcp (connecting, %s)", peer);
	for (uint32_t i = 0; i < KVP_ENDPOINTS_MAX; i++) {
		path->stream[i].path = path;
		path->stream[i].index = i;
		path->stream[i].fd = -1;
	}
	if (!config->is_initiator &&
	    getrandom(path->token, sizeof(path->token), 0) != (ssize_t)sizeof(path->token)) {
		tcp_path_destroy(&path->base);
		return kvp_fail(err, KVP_NO_RESOURCE, "tcp: getrandom: %s", strerror(errno));
	}
	for (uint32_t i = 0; i < config->endpoints; i++) {
		struct kvp_tcp_endpoint *ep = endpoint_create(&path->base, i);

		if (ep == NULL) {
			tcp_path_destroy(&path->base);
			return kvp_fail(err, KVP_OUT_OF_MEMORY, "tcp: no memory for stream %u", i);
		}
		path->base.endpoint[i] = &ep->base;
	}
	*path_out = &path->base;
	return KVP_SUCCESS;
}

static void
tcp_path_offer(struct kvp_path *base, struct kvp_blob *blob_out)
{
	const struct kvp_tcp_path *path = (const struct kvp_tcp_path *)base;

	blob_out->bytes = 1;
	blob_out->data[0] = KVP_TCP_VERSION;
	if (base->config.is_initiator)
		return;
	blob_out->bytes = OFFER_BYTES;
	memcpy(&blob_out->data[1], path->token, KVP_TOKEN_BYTES);
}

static kvp_status
tcp_path_connect(struct kvp_path *base, const struct kvp_blob *peer, struct kvp_error *err)
{
	struct kvp_tcp_path *path = (struct kvp_tcp_path *)base;
	uint32_t expected = base->config.is_initiator ? OFFER_BYTES : 1;
	kvp_status status;

	if (peer->bytes != expected || peer->data[0] != KVP_TCP_VERSION)
		return kvp_fail(err, KVP_PROTOCOL,
				"tcp: the peer's offer has %u bytes and version %u, not %u and %u",
				peer->bytes, peer->bytes < 1 ? 0U : peer->data[0], expected,
				KVP_TCP_VERSION);
	if (!base->config.is_initiator)
		return KVP_SUCCESS; /* the streams come through path_accept */
	memcpy(path->token, &peer->data[1], KVP_TOKEN_BYTES);
	for (uint32_t i = 0; i < base->config.endpoints; i++) {
		status = kvp_tcp_stream_connect(path, i, err);
		if (status != KVP_SUCCESS) {
			kvp_tcp_streams_close(path);
			return status;
		}
	}
	return KVP_SUCCESS;
}

/* How long it takes says nothing about where the tokens differ. */
static bool
is_same_token(const uint8_t *a, const uint8_t *b)
{
	uint8_t differs = 0;

	for (uint32_t i = 0; i < KVP_TOKEN_BYTES; i++)
		differs |= (uint8_t)(a[i] ^ b[i]);
	return differs == 0;
}

static bool
tcp_path_accept(struct kvp_path *base, int fd, const struct kvp_stream_frame *stream)
{
	struct kvp_tcp_path *path = (struct kvp_tcp_path *)base;

	if (base->config.is_initiator || base->state != KVP_PATH_CONNECTING)
		return false;
	if (!is_same_token(stream->token, path->token))
		return false;
	if (stream->endpoint >= base->config.endpoints)
		return false;
	return kvp_tcp_stream_take(path, stream->endpoint, fd);
}

static kvp_status
tcp_region_add(struct kvp_path *path, const struct kvp_region *region, struct kvp_error *err)
{
	(void)path;
	(void)region;
	(void)err;
	return KVP_SUCCESS; /* any memory will do */
}

static void
tcp_region_gone(struct kvp_path *path, uint32_t region_id)
{
	(void)path;
	(void)region_id;
}

static kvp_status
tcp_view_open(struct kvp_path *path, const struct kvp_remote_cache *cache,
	      struct kvp_view **view_out, struct kvp_error *err)
{
	struct kvp_tcp_view *view = malloc(sizeof(*view));

	(void)path;
	if (view == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "tcp: no memory for a view");
	view->cache = cache;
	*view_out = (struct kvp_view *)view;
	return KVP_SUCCESS;
}

static void
tcp_view_close(struct kvp_path *path, struct kvp_view *view)
{
	(void)path;
	free(view);
}

bool
kvp_tcp_is_reset(const struct kvp_tcp_endpoint *ep)
{
	struct pollfd entry = {.fd = ep->base.fd, .events = POLLIN};

	return poll(&entry, 1, 0) > 0 && (entry.revents & (POLLERR | POLLHUP)) != 0;
}

/*
 * Drop what the kernel still holds of ours and tell the peer at once. Not close(): the number would
 * be free for others while the lane's epoll set and the endpoint still use it.
 */
static void
reset(int fd)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};
	const struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (connect(fd, &none, sizeof(none)) != 0)
		(void)shutdown(fd, SHUT_RDWR);
}

void
kvp_tcp_fail(struct kvp_tcp_endpoint *ep, kvp_status why, uint64_t now_ns)
{
	if (ep->is_dead)
		return;
	ep->is_dead = true;
	reset(ep->base.fd);
	for (uint32_t i = 0; i < KVP_TCP_REQUESTS; i++) {
		struct kvp_tcp_slot *slot = &ep->slot[i];

		if (slot->type == 0)
			continue;
		slot->part->requests_inflight--;
		slot->part->bytes_inflight -= slot->bytes;
		*slot = (struct kvp_tcp_slot){0};
	}
	ep->slots_free = UINT64_MAX;
	ep->answer_first = ep->answer_end;
	ep->tx.iov_first = ep->tx.iovs = 0;
	ep->tx.slot = KVP_TCP_NO_SLOT;
	ep->tx.is_serving = false;
	ep->rx.state = KVP_TCP_RX_HEAD;
	ep->rx.left = 0;
	ep->rx.staged_first = ep->rx.staged_end = 0;
	if (ep->is_write_wanted) {
		ep->is_write_wanted = false;
		kvp_lane_want_write(&ep->base, false);
	}
	kvp_lane_endpoint_failed(&ep->base, why, now_ns);
}

const struct kvp_transport kvp_tcp_transport = {
	.name = "tcp",
	.caps = {.pieces_max = KVP_TCP_EXTENTS,
		 .request_bytes_max = KVP_TCP_PAYLOAD,
		 .part_bytes_min = 1U << 20,
		 .is_split_by_lane = false,
		 .can_pull = true},
	.start = tcp_start,
	.stop = tcp_stop,
	.describe = tcp_describe,
	.reachable = tcp_reachable,
	.endpoints = tcp_endpoints,
	.path_create = tcp_path_create,
	.path_offer = tcp_path_offer,
	.path_connect = tcp_path_connect,
	.path_accept = tcp_path_accept,
	.path_destroy = tcp_path_destroy,
	.region_add = tcp_region_add,
	.region_gone = tcp_region_gone,
	.view_open = tcp_view_open,
	.view_close = tcp_view_close,
	.progress = kvp_tcp_progress,
	.post = kvp_tcp_post,
	.notify = kvp_tcp_notify,
	.stop_part = kvp_tcp_stop_part,
	.cache_gone = kvp_tcp_cache_gone,
	.down = kvp_tcp_down,
	.arm = kvp_tcp_arm,
	.disarm = kvp_tcp_disarm,
};
