/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define USER_TIMEOUT_MS 3000 /* as long as control lets a silent peer live */

static struct kvp_reactor *
reactor_of(const struct kvp_tcp_path *path)
{
	return path->base.config.dataplane->reactor;
}

void
kvp_tcp_peer_text(const struct kvp_path_config *config, char *text, size_t size)
{
	if (getnameinfo((const struct sockaddr *)&config->peer, config->peer_bytes, text,
			(socklen_t)size, NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(text, size, "?");
}

/* Both ends have the same address: the bytes never leave this host. */
static bool
is_local(int fd)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
	const struct sockaddr_in *here4 = (const struct sockaddr_in *)&here;
	const struct sockaddr_in *there4 = (const struct sockaddr_in *)&there;
	const struct sockaddr_in6 *here6 = (const struct sockaddr_in6 *)&here;
	const struct sockaddr_in6 *there6 = (const struct sockaddr_in6 *)&there;

	if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
	    getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0)
		return false;
	if (here.ss_family == AF_INET && there.ss_family == AF_INET)
		return here4->sin_addr.s_addr == there4->sin_addr.s_addr;
	if (here.ss_family == AF_INET6 && there.ss_family == AF_INET6)
		return memcmp(&here6->sin6_addr, &there6->sin6_addr, sizeof(here6->sin6_addr)) == 0;
	return false;
}

/* None of this decides whether the stream works, so what the system refuses is let be. */
static void
tune(int fd)
{
	unsigned int user_timeout_ms = USER_TIMEOUT_MS;
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms,
			 sizeof(user_timeout_ms));
	/* bbr, a common default, paces a stream within the host to less than half of its speed. */
	if (is_local(fd) && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void
kvp_tcp_streams_close(struct kvp_tcp_path *path)
{
	for (uint32_t i = 0; i < KVP_ENDPOINTS_MAX; i++) {
		struct kvp_tcp_stream *stream = &path->stream[i];

		if (stream->fd < 0)
			continue;
		kvp_reactor_remove(reactor_of(path), &stream->watch);
		(void)close(stream->fd);
		stream->fd = -1;
	}
}

/* The path may be gone afterwards. */
static void
path_failed(struct kvp_tcp_stream *stream, const char *what, int error)
{
	struct kvp_tcp_path *path = stream->path;
	char peer[64];

	kvp_tcp_peer_text(&path->base.config, peer, sizeof(peer));
	(void)kvp_fail(&path->base.error, KVP_LINK_FAILED, "tcp: stream %u of %u with %s: %s%s%s",
		       stream->index, path->base.config.endpoints, peer, what,
		       error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
	kvp_tcp_streams_close(path);
	path->base.state = KVP_PATH_FAILED;
	path->base.config.changed(&path->base, path->base.config.ctx);
}

/* The stream goes to its endpoint. The path may be gone afterwards. */
static void
stream_up(struct kvp_tcp_stream *stream)
{
	struct kvp_tcp_path *path = stream->path;
	char peer[64];

	kvp_reactor_remove(reactor_of(path), &stream->watch);
	path->base.endpoint[stream->index]->fd = stream->fd;
	stream->fd = -1;
	stream->step = KVP_TCP_STEP_DONE;
	if (++path->streams_up < path->base.config.endpoints)
		return;
	kvp_tcp_peer_text(&path->base.config, peer, sizeof(peer));
	snprintf(path->base.text, sizeof(path->base.text), "tcp (%u stream%s, %s)",
		 path->streams_up, path->streams_up == 1 ? "" : "s", peer);
	path->base.state = KVP_PATH_UP;
	path->base.config.changed(&path->base, path->base.config.ctx);
}

/* 1: all of the buffer has left, 0: not yet, or the path failed. */
static int
buffer_send(struct kvp_tcp_stream *stream)
{
	ssize_t sent = send(stream->fd, stream->buffer + stream->done, stream->bytes - stream->done,
			    MSG_DONTWAIT | MSG_NOSIGNAL);

	if (sent < 0) {
		if (errno != EAGAIN && errno != EINTR)
			path_failed(stream, "send", errno);
		return 0;
	}
	stream->done += (uint32_t)sent;
	return stream->done == stream->bytes;
}

static void
greeting_receive(struct kvp_tcp_stream *stream)
{
	ssize_t got = recv(stream->fd, stream->buffer + stream->done, stream->bytes - stream->done,
			   MSG_DONTWAIT);

	if (got < 0) {
		if (errno != EAGAIN && errno != EINTR)
			path_failed(stream, "waiting to be taken", errno);
		return;
	}
	if (got == 0) {
		path_failed(stream, "the peer closed it instead of taking it", 0);
		return;
	}
	stream->done += (uint32_t)got;
	if (stream->done < stream->bytes)
		return;
	if (!kvp_tcp_greeting_check(stream->buffer, stream->index)) {
		path_failed(stream, "the peer's greeting is not one", 0);
		return;
	}
	stream_up(stream);
}

static void
connected(struct kvp_tcp_stream *stream)
{
	struct kvp_stream_frame frame = {.endpoint = stream->index};
	socklen_t bytes = sizeof(int);
	int error = 0;

	if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
		error = errno;
	if (error != 0) {
		path_failed(stream, "connect", error);
		return;
	}
	tune(stream->fd);
	memcpy(frame.token, stream->path->token, sizeof(frame.token));
	stream->bytes =
		(uint32_t)kvp_frame_encode_stream(&frame, stream->buffer, sizeof(stream->buffer));
	KVP_CHECK(stream->bytes > 0);
	stream->done = 0;
	stream->step = KVP_TCP_STEP_FRAME;
}

static void
stream_ready(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct kvp_tcp_stream *stream = watch->ctx;

	(void)epoll_events; /* an error or a hang-up shows in the call that follows */
	switch (stream->step) {
	case KVP_TCP_STEP_CONNECT:
		connected(stream); /* writable still: comes again as STEP_FRAME */
		break;
	case KVP_TCP_STEP_FRAME:
		if (!buffer_send(stream))
			break;
		stream->bytes = KVP_TCP_GREETING;
		stream->done = 0;
		stream->step = KVP_TCP_STEP_GREETING;
		kvp_reactor_change(reactor_of(stream->path), watch, EPOLLIN);
		break;
	case KVP_TCP_STEP_GREETING:
		greeting_receive(stream);
		break;
	case KVP_TCP_STEP_GREET:
		if (buffer_send(stream))
			stream_up(stream);
		break;
	case KVP_TCP_STEP_NONE:
	case KVP_TCP_STEP_DONE:
		break;
	}
}

static int
stream_watch(struct kvp_tcp_stream *stream, int fd, enum kvp_tcp_step step)
{
	int rc;

	stream->watch = (struct kvp_watch){
		.fd = fd, .events = EPOLLOUT, .ready = stream_ready, .ctx = stream};
	rc = kvp_reactor_add(reactor_of(stream->path), &stream->watch);
	if (rc != 0)
		return rc;
	stream->fd = fd;
	stream->step = step;
	return 0;
}

kvp_status
kvp_tcp_stream_connect(struct kvp_tcp_path *path, uint32_t index, struct kvp_error *err)
{
	const struct kvp_path_config *config = &path->base.config;
	char peer[64];
	int fd, rc;

	kvp_tcp_peer_text(config, peer, sizeof(peer));
	fd = socket(config->peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "tcp: socket of stream %u with %s: %s", index,
				peer, strerror(errno));
	if (connect(fd, (const struct sockaddr *)&config->peer, config->peer_bytes) != 0 &&
	    errno != EINPROGRESS) {
		(void)kvp_fail(err, KVP_LINK_FAILED, "tcp: connect of stream %u with %s: %s", index,
			       peer, strerror(errno));
		(void)close(fd);
		return KVP_LINK_FAILED;
	}
	rc = stream_watch(&path->stream[index], fd, KVP_TCP_STEP_CONNECT);
	if (rc != 0) {
		(void)close(fd);
		return kvp_fail(err, KVP_NO_RESOURCE, "tcp: epoll for stream %u with %s: %s", index,
				peer, strerror(-rc));
	}
	return KVP_SUCCESS;
}

bool
kvp_tcp_stream_take(struct kvp_tcp_path *path, uint32_t index, int fd)
{
	struct kvp_tcp_stream *stream = &path->stream[index];

	if (stream->step != KVP_TCP_STEP_NONE)
		return false; /* there already */
	if (stream_watch(stream, fd, KVP_TCP_STEP_GREET) != 0)
		return false;
	tune(fd);
	kvp_tcp_greeting_encode(index, stream->buffer);
	stream->bytes = KVP_TCP_GREETING;
	stream->done = 0;
	return true;
}
