/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lane.h"
#include "region.h"
#include "shm.h"
#include "transports.h"

#define MESSAGES_PER_TURN 16U

static void
tell_changed(struct kvp_shm_path *path)
{
	path->base.config.changed(&path->base, path->base.config.ctx);
}

void
kvp_shm_path_fail(struct kvp_shm_path *path, const char *format, ...)
{
	char text[KVP_ERROR_TEXT_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	(void)kvp_fail(&path->base.error, KVP_FAILED, "shm: %s", text);
	kvp_shm_socket_close(path);
	path->base.state = KVP_PATH_FAILED;
}

/* Is this descriptor an eventfd? Writing to anything else could block the lane. */
static bool
is_eventfd(int fd)
{
	static const char wanted[] = "anon_inode:[eventfd]";
	char name[64], target[64];
	ssize_t got;
	int flags;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	got = readlink(name, target, sizeof(target));
	if (got != (ssize_t)(sizeof(wanted) - 1) || memcmp(target, wanted, sizeof(wanted) - 1) != 0)
		return false;
	flags = fcntl(fd, F_GETFL);
	return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

static void
write_text(struct kvp_shm_path *path)
{
	const char *kernel = path->endpoint[0].kernels->name;
	bool is_plain = strcmp(kernel, "plain") == 0;

	snprintf(path->base.text, sizeof(path->base.text),
		 "shm (mapped memory, %s%s copies; private memory %s)",
		 is_plain ? "" : "non-temporal ", is_plain ? "memcpy" : kernel,
		 path->foreign.status == KVP_SUCCESS ? "by process_vm" : "out of reach");
}

/* Take what the peer's ATTACH brings. Descriptors that stay are set to -1. */
static bool
take_attach(struct kvp_shm_path *path, const struct kvp_shm_message *message, int *fd)
{
	uint32_t endpoints = path->base.config.endpoints;
	uint32_t uid;
	pid_t pid;
	int rc;

	if (message->endpoints != endpoints) {
		kvp_shm_path_fail(path, "the peer has %" PRIu32 " endpoints, not %" PRIu32,
				  message->endpoints, endpoints);
		return false;
	}
	if (!kvp_shm_socket_is_trusted(path->watch.fd, &pid, &uid)) {
		kvp_shm_path_fail(path, "the peer runs as uid %" PRIu32, uid);
		return false;
	}
	if (message->bytes != path->rings->bytes) {
		kvp_shm_path_fail(path, "the peer's rings have %" PRIu64 " bytes, not %" PRIu64,
				  message->bytes, path->rings->bytes);
		return false;
	}
	rc = kvp_shm_map(fd[0], message->bytes, &path->peer_rings);
	if (rc != 0) {
		kvp_shm_path_fail(path, "the peer's rings cannot be mapped: %s",
				  rc == -EPROTO ? "not sealed against shrinking, or too short"
						: strerrorname_np(-rc));
		return false;
	}
	path->peer_rings_bytes = message->bytes;
	for (uint32_t i = 0; i < endpoints; i++) {
		struct kvp_shm_endpoint *endpoint = &path->endpoint[i];

		if (!is_eventfd(fd[1 + i])) {
			kvp_shm_path_fail(path,
					  "the peer's descriptor %" PRIu32
					  " is not a nonblocking eventfd",
					  i);
			return false;
		}
		endpoint->peer_event_fd = fd[1 + i];
		fd[1 + i] = -1;
		endpoint->writer.ring = (struct kvp_shm_ring *)(void *)path->peer_rings + i;
	}
	if (pid > 0 && (uint32_t)pid != message->pid)
		pid = 0; /* the peer counts pids differently: another pid namespace */
	kvp_shm_foreign_open(&path->foreign, pid, message->probe_address, message->probe_value);
	write_text(path);
	path->base.state = KVP_PATH_UP;
	return true;
}

/* Put our ATTACH in front of whatever waits for the connection. */
static kvp_status
queue_attach(struct kvp_shm_path *path, const uint8_t *token, struct kvp_error *err)
{
	struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC,
		.type = KVP_SHM_ATTACH,
		.bytes = path->rings->bytes,
		.probe_address = (uint64_t)(uintptr_t)&path->state->probe,
		.probe_value = path->state->probe,
		.endpoints = path->base.config.endpoints,
		.pid = (uint32_t)getpid(),
	};
	struct kvp_shm_outgoing *first = path->out_first, *last = path->out_last;
	int fd[KVP_SHM_FDS_MAX];
	kvp_status status;

	memcpy(message.token, token, KVP_TOKEN_BYTES);
	fd[0] = path->rings->fd;
	for (uint32_t i = 0; i < message.endpoints; i++)
		fd[1 + i] = kvp_lane_event_fd(path->endpoint[i].base.lane);
	path->out_first = NULL;
	path->out_last = NULL;
	status = kvp_shm_socket_queue(path, &message, fd, 1 + message.endpoints, err);
	if (status != KVP_SUCCESS) {
		path->out_first = first;
		path->out_last = last;
		return status;
	}
	if (first != NULL) {
		path->out_first->next = first;
		path->out_last = last;
	}
	return KVP_SUCCESS;
}

void
kvp_shm_path_attached(struct kvp_shm_path *path, int sock, const struct kvp_shm_message *message,
		      int *fd)
{
	int rc = kvp_shm_socket_open(path, sock);

	if (rc != 0) {
		close(sock);
		kvp_shm_path_fail(path, "epoll: %s", strerrorname_np(-rc));
	} else if (take_attach(path, message, fd)) {
		if (queue_attach(path, path->token, NULL) != KVP_SUCCESS) {
			kvp_shm_path_fail(path, "no memory for a message");
		} else {
			rc = kvp_shm_socket_flush(path);
			if (rc != 0)
				kvp_shm_path_fail(path, "cannot answer the peer: %s",
						  strerrorname_np(-rc));
		}
	}
	tell_changed(path);
}

/* One message on the path's own connection. True when `changed` is due. */
static bool
take_message(struct kvp_shm_path *path, const struct kvp_shm_message *message, int *fd)
{
	bool is_up = path->base.state == KVP_PATH_UP;

	if (!is_up && message->type == KVP_SHM_ATTACH) {
		if (memcmp(message->token, path->peer_token, KVP_TOKEN_BYTES) == 0)
			(void)take_attach(path, message, fd);
		else
			kvp_shm_path_fail(path, "the peer answered for another path");
		return true;
	}
	if (is_up && message->type == KVP_SHM_REGION) {
		if (kvp_shm_region_came(path, message, fd[0]) != 0)
			kvp_shm_path_fail(path,
					  "the peer's region %" PRIu32 " of %" PRIu64
					  " bytes is not acceptable",
					  message->region, message->bytes);
		return true;
	}
	if (is_up && message->type == KVP_SHM_REGION_GONE) {
		kvp_shm_region_left(path, message->region);
		return false;
	}
	kvp_shm_path_fail(path, "the peer sent message type %" PRIu32 " out of order",
			  message->type);
	return true;
}

/* After UP a closed connection only means that no more regions come. */
static void
peer_closed(struct kvp_shm_path *path, int error)
{
	if (path->base.state == KVP_PATH_UP)
		kvp_shm_socket_close(path);
	else
		kvp_shm_path_fail(path, "the peer closed the connection before it answered (%s)",
				  strerrorname_np(error));
}

void
kvp_shm_path_ready(struct kvp_watch *watch, uint32_t events)
{
	struct kvp_shm_path *path = watch->ctx;
	struct kvp_shm_message message;
	int fd[KVP_SHM_FDS_MAX];
	bool is_changed = false;
	uint32_t fds;
	int rc;

	if ((events & EPOLLOUT) != 0) {
		rc = kvp_shm_socket_flush(path);
		if (rc != 0) {
			peer_closed(path, -rc);
			is_changed = true;
		}
	}
	for (uint32_t i = 0; i < MESSAGES_PER_TURN && path->watch.fd >= 0; i++) {
		fds = 0;
		rc = kvp_shm_socket_receive(path->watch.fd, &message, fd, &fds);
		if (rc == 0)
			break;
		if (rc == 1) {
			is_changed |= take_message(path, &message, fd);
		} else {
			if (rc == -EPROTO)
				kvp_shm_path_fail(path, "the peer sent a malformed message");
			else
				peer_closed(path, -rc);
			is_changed = true;
		}
		for (uint32_t j = 0; j < fds; j++) {
			if (fd[j] >= 0)
				close(fd[j]);
		}
	}
	/* Last: the path may be destroyed in there. */
	if (is_changed)
		tell_changed(path);
}

static void
endpoint_init(struct kvp_shm_path *path, uint32_t index)
{
	const struct kvp_path_config *config = &path->base.config;
	const struct kvp_dataplane *dataplane = config->dataplane;
	struct kvp_shm_endpoint *endpoint = &path->endpoint[index];

	endpoint->base.transport = &kvp_shm_transport;
	endpoint->base.path = &path->base;
	endpoint->base.lane = dataplane->lane[(config->first_lane + index) % dataplane->lanes];
	endpoint->base.index = index;
	endpoint->base.fd = -1;
	endpoint->kernels = kvp_copy_kernels();
	endpoint->path = path;
	endpoint->inbox = dataplane->inbox;
	endpoint->peer_event_fd = -1;
	endpoint->reader.ring = (struct kvp_shm_ring *)path->rings->base + index;
	path->base.endpoint[index] = &endpoint->base;
}

kvp_status
kvp_shm_path_create(const struct kvp_path_config *config, struct kvp_path **path_out,
		    struct kvp_error *err)
{
	struct kvp_region_config rings = {.id = 1};
	struct kvp_shm_path *path;
	kvp_status status;
	size_t bytes;

	if (config->endpoints < 1 || config->endpoints > KVP_ENDPOINTS_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"shm: %" PRIu32 " endpoints, not in [1, %u]", config->endpoints,
				KVP_ENDPOINTS_MAX);
	bytes = sizeof(*path) + config->endpoints * sizeof(path->endpoint[0]);
	path = aligned_alloc(KVP_SHARE_SPAN, bytes);
	if (path == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "shm: no memory for a path");
	memset(path, 0, bytes);
	path->base.transport = &kvp_shm_transport;
	path->base.config = *config;
	path->state = kvp_shm_state_of(config->dataplane);
	path->watch.fd = -1;
	path->foreign.pid_fd = -1;
	if (getrandom(path->token, sizeof(path->token), 0) != (ssize_t)sizeof(path->token)) {
		status = kvp_fail(err, KVP_NO_RESOURCE, "shm: getrandom: %s",
				  strerrorname_np(errno));
		goto err_free;
	}
	rings.bytes = config->endpoints * sizeof(struct kvp_shm_ring);
	status = kvp_region_create(&rings, &path->rings, err);
	if (status != KVP_SUCCESS)
		goto err_free;
	for (uint32_t i = 0; i < config->endpoints; i++)
		endpoint_init(path, i);
	path->next = path->state->paths;
	path->state->paths = path;
	*path_out = &path->base;
	return KVP_SUCCESS;
err_free:
	free(path);
	return status;
}

void
kvp_shm_path_offer(struct kvp_path *base, struct kvp_blob *blob_out)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);
	struct kvp_shm_offer offer = {.magic = KVP_SHM_MAGIC, .version = KVP_SHM_VERSION};

	memcpy(offer.token, path->token, sizeof(offer.token));
	memcpy(offer.name, path->state->name, sizeof(offer.name));
	blob_out->bytes = sizeof(offer);
	memcpy(blob_out->data, &offer, sizeof(offer));
}

static kvp_status
check_offer(const struct kvp_blob *peer, struct kvp_shm_offer *offer_out, struct kvp_error *err)
{
	if (peer->bytes != sizeof(*offer_out))
		return kvp_fail(err, KVP_PROTOCOL, "shm: an offer of %" PRIu32 " bytes, not %zu",
				peer->bytes, sizeof(*offer_out));
	memcpy(offer_out, peer->data, sizeof(*offer_out));
	if (offer_out->magic != KVP_SHM_MAGIC || offer_out->version != KVP_SHM_VERSION)
		return kvp_fail(err, KVP_PROTOCOL, "shm: an offer of version %" PRIu32 ", not %u",
				offer_out->version, KVP_SHM_VERSION);
	if (offer_out->name[0] == '\0' || offer_out->name[sizeof(offer_out->name) - 1] != '\0')
		return kvp_fail(err, KVP_PROTOCOL, "shm: an offer without an address");
	return KVP_SUCCESS;
}

/* Connect and send ATTACH. The socket is the path's on success. */
static kvp_status
connect_to(struct kvp_shm_path *path, const struct kvp_shm_offer *offer, struct kvp_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t name_bytes = strlen(offer->name);
	kvp_status status;
	int sock, rc;

	memcpy(address.sun_path + 1, offer->name, name_bytes);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: socket: %s", strerrorname_np(errno));
	rc = connect(sock, (const struct sockaddr *)&address,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name_bytes));
	if (rc != 0) {
		status = kvp_fail(err, KVP_LINK_FAILED, "shm: connect to @%s: %s", offer->name,
				  strerrorname_np(errno));
		goto err_close;
	}
	status = queue_attach(path, offer->token, err);
	if (status != KVP_SUCCESS)
		goto err_close;
	rc = kvp_shm_socket_open(path, sock);
	if (rc != 0) {
		status = kvp_fail(err, KVP_NO_RESOURCE, "shm: epoll: %s", strerrorname_np(-rc));
		goto err_close;
	}
	rc = kvp_shm_socket_flush(path);
	if (rc != 0)
		return kvp_fail(err, KVP_LINK_FAILED, "shm: send to @%s: %s", offer->name,
				strerrorname_np(-rc));
	return KVP_SUCCESS;
err_close:
	close(sock);
	return status;
}

kvp_status
kvp_shm_path_connect(struct kvp_path *base, const struct kvp_blob *peer, struct kvp_error *err)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);
	struct kvp_shm_offer offer;
	kvp_status status = check_offer(peer, &offer, err);

	if (status != KVP_SUCCESS)
		return status;
	if (!base->config.is_initiator)
		return KVP_SUCCESS; /* the peer connects to our listener */
	memcpy(path->peer_token, offer.token, sizeof(path->peer_token));
	return connect_to(path, &offer, err);
}

bool
kvp_shm_path_accept(struct kvp_path *base, int fd, const struct kvp_stream_frame *stream)
{
	(void)base;
	(void)fd;
	(void)stream;
	return false; /* the path's one connection is not a stream of the engine's listener */
}

void
kvp_shm_path_destroy(struct kvp_path *base)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);
	struct kvp_shm_path **at;

	if (base == NULL)
		return;
	for (at = &path->state->paths; *at != path; at = &(*at)->next)
		;
	*at = path->next;
	kvp_shm_socket_close(path);
	kvp_shm_regions_free(path);
	kvp_shm_foreign_close(&path->foreign);
	for (uint32_t i = 0; i < base->config.endpoints; i++) {
		if (path->endpoint[i].peer_event_fd >= 0)
			close(path->endpoint[i].peer_event_fd);
	}
	if (path->peer_rings != NULL)
		munmap(path->peer_rings, path->peer_rings_bytes);
	kvp_region_destroy(path->rings);
	free(path);
}
