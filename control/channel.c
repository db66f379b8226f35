/* SPDX-License-Identifier: Apache-2.0 */
#include "channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wake.h"

static void
channel_break(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error)
{
	struct kvp_error copy = *error;

	kvp_channel_close(channel);
	channel->events->closed(channel, status, &copy);
}

static void
break_with(struct kvp_channel *channel, kvp_status status, const char *what)
{
	struct kvp_error error;

	kvp_fail(&error, status, "%s", what);
	channel_break(channel, status, &error);
}

/* What a socket error means to somebody who wanted to link. */
static void
break_errno(struct kvp_channel *channel, const char *doing, int code)
{
	struct kvp_error error;
	kvp_status status = channel->is_connecting ? KVP_LINK_FAILED : KVP_PEER_LOST;

	kvp_fail(&error, status, "%s: %s%s", doing, strerror(code),
		 code == ECONNREFUSED ? " (nobody listens there)" : "");
	channel_break(channel, status, &error);
}

/* Send what the socket takes. 0, or errno. */
static int
channel_flush(struct kvp_channel *channel)
{
	while (channel->queue_sent < channel->queue_bytes) {
		ssize_t sent = send(channel->watch.fd, channel->queue + channel->queue_sent,
				    channel->queue_bytes - channel->queue_sent,
				    MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			kvp_reactor_change(channel->reactor, &channel->watch, EPOLLIN | EPOLLOUT);
			return 0;
		}
		if (sent < 0)
			return errno;
		channel->queue_sent += (size_t)sent;
	}
	channel->queue_sent = 0;
	channel->queue_bytes = 0;
	if (channel->watch.events & EPOLLOUT)
		kvp_reactor_change(channel->reactor, &channel->watch, EPOLLIN);
	return 0;
}

/* Read at most `want` bytes. Positive: so many; 0: none now; -1: the channel broke. */
static ssize_t
channel_read(struct kvp_channel *channel, uint8_t *into, size_t want)
{
	for (;;) {
		ssize_t got = recv(channel->watch.fd, into, want, MSG_DONTWAIT);

		if (got > 0) {
			channel->heard_ns = kvp_now_ns();
			return got;
		}
		if (got == 0) {
			break_with(channel, KVP_PEER_LOST, "the peer closed the connection");
			return -1;
		}
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return 0;
		break_errno(channel, "control connection", errno);
		return -1;
	}
}

static bool
header_complete(struct kvp_channel *channel)
{
	struct kvp_error error;
	kvp_status status = kvp_frame_decode_header(channel->header, channel->body_max,
						    &channel->frame, &error);

	if (status != KVP_SUCCESS) {
		channel_break(channel, status, &error);
		return false;
	}
	if (channel->frame.body_bytes > channel->body_size) {
		uint8_t *body = realloc(channel->body, channel->frame.body_bytes);

		if (body == NULL) {
			break_with(channel, KVP_OUT_OF_MEMORY, "no memory for a control frame");
			return false;
		}
		channel->body = body;
		channel->body_size = channel->frame.body_bytes;
	}
	channel->body_bytes = 0;
	return true;
}

/*
 * Never reads past the frame, because what follows a STREAM frame belongs to a
 * transport. Delivers at most one frame, after which the channel may be gone.
 */
static void
channel_readable(struct kvp_channel *channel)
{
	struct kvp_error error;
	kvp_status status;
	ssize_t got;

	while (channel->header_bytes < KVP_FRAME_HEADER) {
		got = channel_read(channel, channel->header + channel->header_bytes,
				   KVP_FRAME_HEADER - channel->header_bytes);
		if (got <= 0)
			return;
		if (channel->header_bytes == 0)
			channel->frame_ns = channel->heard_ns;
		channel->header_bytes += (uint32_t)got;
		if (channel->header_bytes == KVP_FRAME_HEADER && !header_complete(channel))
			return;
	}
	while (channel->body_bytes < channel->frame.body_bytes) {
		got = channel_read(channel, channel->body + channel->body_bytes,
				   channel->frame.body_bytes - channel->body_bytes);
		if (got <= 0)
			return;
		channel->body_bytes += (uint32_t)got;
	}
	status = kvp_frame_check(&channel->frame, channel->body, &error);
	if (status != KVP_SUCCESS) {
		channel_break(channel, status, &error);
		return;
	}
	channel->header_bytes = 0;
	channel->frame_ns = 0;
	channel->events->frame(channel, channel->frame.type, channel->body,
			       channel->frame.body_bytes);
}

static void
channel_connected(struct kvp_channel *channel)
{
	int code = 0;
	socklen_t size = sizeof(code);

	if (getsockopt(channel->watch.fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
		code = errno;
	if (code != 0) {
		break_errno(channel, "connect", code);
		return;
	}
	channel->is_connecting = false;
	channel->heard_ns = kvp_now_ns();
	kvp_reactor_change(channel->reactor, &channel->watch, EPOLLIN);
	channel->events->connected(channel);
}

static void
channel_ready(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct kvp_channel *channel = watch->ctx;

	if (channel->is_connecting) {
		channel_connected(channel);
		return;
	}
	if (epoll_events & EPOLLOUT) {
		int code = channel_flush(channel);

		if (code != 0) {
			break_errno(channel, "control connection", code);
			return;
		}
	}
	if (epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		channel_readable(channel);
}

int
kvp_channel_open(struct kvp_channel *channel, struct kvp_reactor *reactor, int fd,
		 bool is_connecting, const struct kvp_channel_events *events, void *owner)
{
	*channel = (struct kvp_channel){
		.watch = {.fd = fd,
			  .events = is_connecting ? EPOLLOUT : EPOLLIN,
			  .ready = channel_ready,
			  .ctx = channel},
		.reactor = reactor,
		.events = events,
		.owner = owner,
		.body_max = KVP_FRAME_EARLY_MAX,
		.is_connecting = is_connecting,
		.heard_ns = kvp_now_ns(),
	};
	int one = 1;
	int rc = kvp_reactor_add(reactor, &channel->watch);

	/* Frames are small and answered: they must not wait for each other's acknowledgements. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));

	if (rc != 0)
		channel->watch.fd = -1;
	return rc;
}

void
kvp_channel_move(struct kvp_channel *to, struct kvp_channel *from,
		 const struct kvp_channel_events *events, void *owner)
{
	kvp_reactor_remove(from->reactor, &from->watch);
	*to = *from;
	to->watch.ctx = to;
	to->events = events;
	to->owner = owner;
	from->watch.fd = -1;
	from->body = NULL;
	from->queue = NULL;
	from->body_size = 0;
	from->queue_size = 0;
	/* The fd was in the set a moment ago, so there is room for it. */
	if (kvp_reactor_add(to->reactor, &to->watch) != 0)
		kvp_channel_close(to);
}

static void
free_buffers(struct kvp_channel *channel)
{
	free(channel->body);
	free(channel->queue);
	channel->body = NULL;
	channel->queue = NULL;
	channel->body_size = 0;
	channel->queue_size = 0;
	channel->queue_bytes = 0;
	channel->queue_sent = 0;
}

void
kvp_channel_close(struct kvp_channel *channel)
{
	if (channel->watch.fd < 0)
		return;
	kvp_reactor_remove(channel->reactor, &channel->watch);
	close(channel->watch.fd);
	channel->watch.fd = -1;
	free_buffers(channel);
}

int
kvp_channel_release(struct kvp_channel *channel)
{
	int fd = channel->watch.fd;

	kvp_reactor_remove(channel->reactor, &channel->watch);
	channel->watch.fd = -1;
	free_buffers(channel);
	return fd;
}

bool
kvp_channel_is_open(const struct kvp_channel *channel)
{
	return channel->watch.fd >= 0;
}

bool
kvp_channel_is_stalled(const struct kvp_channel *channel, uint64_t now_ns)
{
	return channel->frame_ns != 0 && now_ns > channel->frame_ns &&
	       now_ns - channel->frame_ns > KVP_CHANNEL_STALL_MS * 1000000ULL;
}

bool
kvp_channel_send(struct kvp_channel *channel, const uint8_t *frame, size_t bytes)
{
	size_t queued = channel->queue_bytes - channel->queue_sent;

	if (channel->watch.fd < 0 || bytes > KVP_CHANNEL_QUEUE_MAX - queued)
		return false;
	if (channel->queue_sent > 0) {
		memmove(channel->queue, channel->queue + channel->queue_sent, queued);
		channel->queue_bytes = queued;
		channel->queue_sent = 0;
	}
	if (queued + bytes > channel->queue_size) {
		size_t size = 2 * (queued + bytes);
		uint8_t *queue = realloc(channel->queue, size);

		if (queue == NULL)
			return false;
		channel->queue = queue;
		channel->queue_size = size;
	}
	memcpy(channel->queue + queued, frame, bytes);
	channel->queue_bytes = queued + bytes;
	return channel->is_connecting || channel_flush(channel) == 0;
}
