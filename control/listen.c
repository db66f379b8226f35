/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.c - the listener, and connections that have not said who they are
 *
 * The first frame decides: HELLO becomes a link, STREAM is a data connection
 * that goes to the path whose token it carries. Anything else, silence for
 * KVP_HANDSHAKE_MS, or more than KVP_PENDING_MAX of them, is closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "address.h"
#include "report.h"
#include "state.h"
#include "wake.h"

static void
pending_frame(struct kvp_channel *channel, uint8_t type, const uint8_t *body, uint32_t bytes);
static void
pending_closed(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error);

static const struct kvp_channel_events pending_events = {
	.frame = pending_frame,
	.closed = pending_closed,
};

static void
pending_free(struct kvp_pending *pending)
{
	struct kvp_engine *engine = pending->engine;
	struct kvp_pending **at = &engine->pending;

	while (*at != pending)
		at = &(*at)->next;
	*at = pending->next;
	engine->pending_count--;
	kvp_channel_close(&pending->channel);
	free(pending);
}

static void
pending_closed(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error)
{
	struct kvp_pending *pending = channel->owner;

	if (status == KVP_PROTOCOL)
		kvp_log(pending->engine->config.log_level, 2, "a connection was closed: %s",
			error->text);
	pending_free(pending);
}

static void
hello_came(struct kvp_pending *pending, const uint8_t *body, uint32_t bytes)
{
	struct kvp_engine *engine = pending->engine;
	struct sockaddr_storage peer;
	socklen_t peer_bytes = sizeof(peer);
	char address[KVP_ADDRESS_TEXT_MAX] = "?";
	struct kvp_hello hello;
	struct kvp_error error;
	kvp_status status = kvp_frame_decode_hello(body, bytes, &hello, &error);

	if (status != KVP_SUCCESS) {
		kvp_channel_refuse(&pending->channel, status, error.text);
		return;
	}
	if (getpeername(pending->channel.watch.fd, (struct sockaddr *)&peer, &peer_bytes) == 0)
		kvp_address_format(&peer, address);
	(void)kvp_link_accept(engine, &pending->channel, address, &hello);
}

static void
stream_came(struct kvp_pending *pending, const uint8_t *body, uint32_t bytes)
{
	struct kvp_engine *engine = pending->engine;
	struct kvp_stream_frame stream;
	struct kvp_error error;
	int fd;

	if (kvp_frame_decode_stream(body, bytes, &stream, &error) != KVP_SUCCESS)
		return;
	fd = kvp_channel_release(&pending->channel);
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (link->path != NULL && link->step == KVP_STEP_CATALOGUE &&
		    link->path->transport->path_accept != NULL &&
		    link->path->transport->path_accept(link->path, fd, &stream))
			return;
	}
	close(fd); /* nobody expects this token */
}

static void
pending_frame(struct kvp_channel *channel, uint8_t type, const uint8_t *body, uint32_t bytes)
{
	struct kvp_pending *pending = channel->owner;

	if (type == KVP_FRAME_HELLO)
		hello_came(pending, body, bytes);
	else if (type == KVP_FRAME_STREAM)
		stream_came(pending, body, bytes);
	pending_free(pending);
}

static void
take_connection(struct kvp_engine *engine, int fd)
{
	struct kvp_pending *pending;

	if (engine->pending_count >= KVP_PENDING_MAX) {
		kvp_log(engine->config.log_level, 2,
			"%u connections wait to be identified; one more was closed",
			KVP_PENDING_MAX);
		close(fd);
		return;
	}
	pending = calloc(1, sizeof(*pending));
	if (pending == NULL) {
		close(fd);
		return;
	}
	if (kvp_channel_open(&pending->channel, &engine->reactor, fd, false, &pending_events,
			     pending) != 0) {
		close(fd);
		free(pending);
		return;
	}
	pending->engine = engine;
	pending->deadline_ns = engine->now_ns + KVP_HANDSHAKE_MS * 1000000ULL;
	pending->next = engine->pending;
	engine->pending = pending;
	engine->pending_count++;
}

static void
listener_ready(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct kvp_engine *engine = watch->ctx;
	int fd = kvp_reactor_accept(&engine->reactor, watch->fd);

	(void)epoll_events;
	if (fd >= 0)
		take_connection(engine, fd);
	else if (fd == -EMFILE || fd == -ENFILE)
		kvp_log(engine->config.log_level, 1,
			"a connection was closed: %s: raise the limit of open files",
			strerror(-fd));
}

static kvp_status
bind_listener(int fd, const char *listen_text, struct sockaddr_storage *address,
	      struct kvp_error *err)
{
	socklen_t bytes = kvp_address_bytes(address);
	int one = 1;

	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)address, bytes) != 0 || listen(fd, 128) != 0)
		return kvp_fail(err, KVP_ADDRESS, "listen=%s: %s%s", listen_text, strerror(errno),
				errno == EADDRINUSE      ? "; choose another port, or 0 for any"
				: errno == EADDRNOTAVAIL ? "; no interface of this host has it"
							 : "");
	bytes = sizeof(*address);
	if (getsockname(fd, (struct sockaddr *)address, &bytes) != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "getsockname: %s", strerror(errno));
	return KVP_SUCCESS;
}

static uint16_t
port_of(const struct sockaddr_storage *address)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (address->ss_family == AF_INET6) {
		memcpy(&v6, address, sizeof(v6));
		return ntohs(v6.sin6_port);
	}
	memcpy(&v4, address, sizeof(v4));
	return ntohs(v4.sin_port);
}

static void
stop_listening(struct kvp_engine *engine)
{
	if (engine->listener.fd < 0)
		return;
	kvp_reactor_remove(&engine->reactor, &engine->listener);
	close(engine->listener.fd);
	engine->listener.fd = -1;
	engine->port = 0;
}

/* A listening socket. */
static kvp_status
make_listener(const struct kvp_engine *engine, const char *listen_text, int *fd_out,
	      uint16_t *port_out, struct kvp_error *err)
{
	struct sockaddr_storage address;
	kvp_status status = kvp_address_parse(listen_text, &address, err);
	int fd;

	if (status != KVP_SUCCESS)
		return status;
	if (!kvp_address_is_loopback(&address) && engine->config.insecure == 0)
		return kvp_fail(
			err, KVP_ADDRESS,
			"listen=%s is not loopback, and the control connection is not encrypted: "
			"set insecure=1 if that network is trusted",
			listen_text);
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "socket: %s", strerror(errno));
	status = bind_listener(fd, listen_text, &address, err);
	if (status != KVP_SUCCESS) {
		close(fd);
		return status;
	}
	*fd_out = fd;
	*port_out = port_of(&address);
	return KVP_SUCCESS;
}

kvp_status
kvp_listen_open(struct kvp_engine *engine, const char *listen_text, struct kvp_error *err)
{
	struct kvp_watch before = engine->listener;
	uint16_t port = 0;
	int fd = -1;
	int rc;

	if (listen_text[0] != '\0') {
		kvp_status status = make_listener(engine, listen_text, &fd, &port, err);

		if (status != KVP_SUCCESS)
			return status;
	}
	if (before.fd >= 0)
		kvp_reactor_remove(&engine->reactor, &engine->listener);
	engine->listener = (struct kvp_watch){
		.fd = fd, .events = EPOLLIN, .ready = listener_ready, .ctx = engine};
	rc = fd < 0 ? 0 : kvp_reactor_add(&engine->reactor, &engine->listener);
	if (rc != 0) {
		close(fd);
		engine->listener = before;
		if (before.fd >= 0 && kvp_reactor_add(&engine->reactor, &engine->listener) != 0)
			stop_listening(engine); /* the kernel has no memory for either */
		return kvp_fail(err, KVP_NO_RESOURCE, "epoll: %s", strerror(-rc));
	}
	if (before.fd >= 0)
		close(before.fd);
	engine->port = port;
	return KVP_SUCCESS;
}

void
kvp_listen_close(struct kvp_engine *engine)
{
	while (engine->pending != NULL)
		pending_free(engine->pending);
	stop_listening(engine);
}

void
kvp_listen_tick(struct kvp_engine *engine)
{
	for (struct kvp_pending *pending = engine->pending, *next; pending != NULL;
	     pending = next) {
		next = pending->next;
		if (engine->now_ns >= pending->deadline_ns)
			pending_free(pending);
	}
}
