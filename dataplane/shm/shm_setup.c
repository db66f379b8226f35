/* SPDX-License-Identifier: Apache-2.0 */
#include "shm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "transports.h"

#define BOOT_ID_PATH   "/proc/sys/kernel/random/boot_id"
#define NETNS_PATH     "/proc/self/ns/net"
#define BACKLOG        1024
#define REQUEST_MAX    (1U << 20)
#define PART_BYTES_MIN (4U << 20)

struct kvp_shm_state *
kvp_shm_state_of(const struct kvp_dataplane *dataplane)
{
	uint32_t slot = 0;

	KVP_CHECK(kvp_transport_find(kvp_shm_transport.name, &slot) != NULL);
	return dataplane->state[slot];
}

/* FNV-1a: equality is all that is asked of it, and both sides run this code. */
static uint64_t
hash_bytes(const char *bytes, size_t count)
{
	uint64_t hash = 0xCBF29CE484222325U;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001B3U;
	return hash;
}

static kvp_status
describe_here(struct kvp_shm_description *here, struct kvp_error *err)
{
	char boot_id[64];
	struct stat st;
	ssize_t got;
	int fd;

	fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: open %s: %s; mount /proc", BOOT_ID_PATH,
				strerrorname_np(errno));
	got = read(fd, boot_id, sizeof(boot_id));
	close(fd);
	if (got <= 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: %s is empty", BOOT_ID_PATH);
	if (stat(NETNS_PATH, &st) != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: stat %s: %s; mount /proc", NETNS_PATH,
				strerrorname_np(errno));
	*here = (struct kvp_shm_description){
		.magic = KVP_SHM_MAGIC,
		.version = KVP_SHM_VERSION,
		.boot_hash = hash_bytes(boot_id, (size_t)got),
		.netns = st.st_ino,
		.uid = geteuid(),
	};
	return KVP_SUCCESS;
}

static void
pending_close(struct kvp_shm_pending *pending)
{
	if (pending->watch.fd < 0)
		return;
	kvp_reactor_remove(pending->state->dataplane->reactor, &pending->watch);
	close(pending->watch.fd);
	pending->watch.fd = -1;
}

static struct kvp_shm_path *
path_of_token(struct kvp_shm_state *state, const uint8_t *token)
{
	struct kvp_shm_path *path = state->paths;

	while (path != NULL && memcmp(path->token, token, KVP_TOKEN_BYTES) != 0)
		path = path->next;
	return path;
}

/* Its first message says whose connection it is; anything else closes it. */
static void
pending_ready(struct kvp_watch *watch, uint32_t events)
{
	struct kvp_shm_pending *pending = watch->ctx;
	struct kvp_shm_path *path = NULL;
	struct kvp_shm_message message;
	int fd[KVP_SHM_FDS_MAX];
	uint32_t fds = 0;
	int sock, rc;

	(void)events;
	rc = kvp_shm_socket_receive(watch->fd, &message, fd, &fds);
	if (rc == 0)
		return;
	if (rc == 1 && message.type == KVP_SHM_ATTACH)
		path = path_of_token(pending->state, message.token);
	if (path == NULL || path->base.config.is_initiator || path->watch.fd >= 0 ||
	    path->base.state != KVP_PATH_CONNECTING) {
		pending_close(pending);
		path = NULL;
	} else {
		sock = watch->fd;
		kvp_reactor_remove(pending->state->dataplane->reactor, watch);
		watch->fd = -1;
		kvp_shm_path_attached(path, sock, &message, fd);
	}
	for (uint32_t i = 0; i < fds; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
	}
}

static struct kvp_shm_pending *
pending_slot(struct kvp_shm_state *state)
{
	struct kvp_shm_pending *oldest;

	for (uint32_t i = 0; i < KVP_SHM_PENDING_MAX; i++) {
		if (state->pending[i].watch.fd < 0)
			return &state->pending[i];
	}
	/* Honest peers attach in the moment they connect: those that did not make room. */
	oldest = &state->pending[state->pending_next++ % KVP_SHM_PENDING_MAX];
	pending_close(oldest);
	return oldest;
}

static void
listener_ready(struct kvp_watch *watch, uint32_t events)
{
	struct kvp_shm_state *state = watch->ctx;
	struct kvp_shm_pending *pending;
	uint32_t uid;
	pid_t pid;
	int sock;

	(void)events;
	sock = kvp_reactor_accept(state->dataplane->reactor, watch->fd);
	if (sock < 0)
		return; /* gone again, or out of descriptors: the peer sees it closed */
	if (!kvp_shm_socket_is_trusted(sock, &pid, &uid)) {
		close(sock);
		return;
	}
	pending = pending_slot(state);
	pending->watch.fd = sock;
	pending->watch.events = EPOLLIN;
	if (kvp_reactor_add(state->dataplane->reactor, &pending->watch) != 0) {
		close(sock);
		pending->watch.fd = -1;
	}
}

static kvp_status
listen_abstract(struct kvp_shm_state *state, struct kvp_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint64_t id;
	size_t name_bytes;
	int sock;

	if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id) ||
	    getrandom(&state->probe, sizeof(state->probe), 0) != (ssize_t)sizeof(state->probe))
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: getrandom: %s", strerrorname_np(errno));
	snprintf(state->name, sizeof(state->name), "kvpush-%016" PRIx64, id);
	name_bytes = strlen(state->name);
	memcpy(address.sun_path + 1, state->name, name_bytes);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: socket: %s", strerrorname_np(errno));
	if (bind(sock, (const struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name_bytes)) != 0 ||
	    listen(sock, BACKLOG) != 0) {
		int error = errno;

		close(sock);
		return kvp_fail(err, KVP_NO_RESOURCE, "shm: listen on @%s: %s", state->name,
				strerrorname_np(error));
	}
	state->listener = (struct kvp_watch){
		.fd = sock, .events = EPOLLIN, .ready = listener_ready, .ctx = state};
	return KVP_SUCCESS;
}

static void
shm_stop(void *state_in)
{
	struct kvp_shm_state *state = state_in;
	struct kvp_reactor *reactor;

	if (state == NULL)
		return;
	KVP_CHECK(state->paths == NULL);
	reactor = state->dataplane->reactor;
	for (uint32_t i = 0; i < KVP_SHM_PENDING_MAX; i++)
		pending_close(&state->pending[i]);
	kvp_reactor_remove(reactor, &state->listener);
	if (state->is_populating)
		kvp_reactor_remove(reactor, &state->populate);
	close(state->populate.fd);
	close(state->listener.fd);
	free(state);
}

static kvp_status
shm_start(struct kvp_dataplane *dataplane, void **state_out, struct kvp_error *err)
{
	struct kvp_shm_state *state = calloc(1, sizeof(*state));
	kvp_status status;
	int rc;

	if (state == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "shm: no memory for the transport");
	state->dataplane = dataplane;
	for (uint32_t i = 0; i < KVP_SHM_PENDING_MAX; i++) {
		state->pending[i].state = state;
		state->pending[i].watch = (struct kvp_watch){
			.fd = -1, .ready = pending_ready, .ctx = &state->pending[i]};
	}
	status = describe_here(&state->here, err);
	if (status != KVP_SUCCESS)
		goto err_free;
	status = listen_abstract(state, err);
	if (status != KVP_SUCCESS)
		goto err_free;
	state->populate = (struct kvp_watch){.fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK),
					     .events = EPOLLIN,
					     .ready = kvp_shm_populate_ready,
					     .ctx = state};
	if (state->populate.fd < 0) {
		status = kvp_fail(err, KVP_NO_RESOURCE, "shm: eventfd: %s", strerrorname_np(errno));
		goto err_close;
	}
	rc = kvp_reactor_add(dataplane->reactor, &state->listener);
	if (rc != 0) {
		status = kvp_fail(err, KVP_NO_RESOURCE, "shm: epoll: %s", strerrorname_np(-rc));
		goto err_populate;
	}
	*state_out = state;
	return KVP_SUCCESS;
err_populate:
	close(state->populate.fd);
err_close:
	close(state->listener.fd);
err_free:
	free(state);
	return status;
}

static void
shm_describe(struct kvp_dataplane *dataplane, struct kvp_blob *blob_out)
{
	const struct kvp_shm_state *state = kvp_shm_state_of(dataplane);

	blob_out->bytes = sizeof(state->here);
	memcpy(blob_out->data, &state->here, sizeof(state->here));
}

static kvp_status
shm_reachable(struct kvp_dataplane *dataplane, const struct kvp_blob *peer, struct kvp_error *err)
{
	const struct kvp_shm_description *here = &kvp_shm_state_of(dataplane)->here;
	struct kvp_shm_description there;

	if (peer->bytes != sizeof(there))
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"shm: the peer describes itself in %" PRIu32 " bytes, not %zu",
				peer->bytes, sizeof(there));
	memcpy(&there, peer->data, sizeof(there));
	if (there.magic != here->magic || there.version != here->version)
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"shm: the peer has version %" PRIu32 " of it, this engine %" PRIu32,
				there.version, here->version);
	if (there.boot_hash != here->boot_hash)
		return kvp_fail(err, KVP_NO_TRANSPORT, "shm: the peer is on another host");
	if (there.netns != here->netns)
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"shm: the peer is in another network namespace (%" PRIu64
				", here %" PRIu64 "); run both in one, as with host networking",
				there.netns, here->netns);
	if (there.uid != here->uid)
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"shm: the peer runs as uid %" PRIu32 ", this engine as %" PRIu32
				"; run both as one user",
				there.uid, here->uid);
	return KVP_SUCCESS;
}

static uint32_t
shm_endpoints(struct kvp_dataplane *dataplane, uint32_t peer_lanes)
{
	uint32_t lanes = dataplane->lanes < peer_lanes ? dataplane->lanes : peer_lanes;

	if (lanes < 1)
		return 1;
	return lanes < KVP_ENDPOINTS_MAX ? lanes : KVP_ENDPOINTS_MAX;
}

const struct kvp_transport kvp_shm_transport = {
	.name = "shm",
	.caps = {.pieces_max = 1,
		 .request_bytes_max = REQUEST_MAX,
		 .part_bytes_min = PART_BYTES_MIN,
		 .is_split_by_lane = true,
		 .can_pull = true},
	.start = shm_start,
	.stop = shm_stop,
	.describe = shm_describe,
	.reachable = shm_reachable,
	.endpoints = shm_endpoints,
	.path_create = kvp_shm_path_create,
	.path_offer = kvp_shm_path_offer,
	.path_connect = kvp_shm_path_connect,
	.path_accept = kvp_shm_path_accept,
	.path_destroy = kvp_shm_path_destroy,
	.region_add = kvp_shm_region_add,
	.region_gone = kvp_shm_region_gone,
	.view_open = kvp_shm_view_open,
	.view_close = kvp_shm_view_close,
	.progress = kvp_shm_progress,
	.post = kvp_shm_post,
	.notify = kvp_shm_notify,
	.stop_part = kvp_shm_stop_part,
	.arm = kvp_shm_arm,
	.disarm = kvp_shm_disarm,
};
