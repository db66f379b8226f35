/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that breaks the rules: on the connection, in the rings, or by dying. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "shm_pair.h"

#define shm kvp_shm_transport

#define RING_BYTES ((sizeof(struct kvp_shm_ring) + 4095U) & ~4095U)

/* A socket connected to the side's listener. */
static int
rogue_connect(struct side *side)
{
	const struct kvp_shm_state *state = side->dataplane.state[1];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t bytes = strlen(state->name);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	memcpy(address.sun_path + 1, state->name, bytes);
	assert_int_equal(connect(sock, (const struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)),
			 0);
	return sock;
}

static void
rogue_send(int sock, const void *data, size_t bytes, const int *fd, uint32_t fds)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(64 * sizeof(int))];
	} control;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(&control, 0, sizeof(control));
	if (fds > 0) {
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fd, fds * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(fds * sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)bytes);
}

static bool
rogue_is_closed(int sock)
{
	char byte;

	return recv(sock, &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

static int
memfd_of(uint64_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (seals != 0)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static struct kvp_shm_message
attach_message(const struct kvp_shm_path *path, uint64_t bytes)
{
	struct kvp_shm_message message = {.magic = KVP_SHM_MAGIC,
					  .type = KVP_SHM_ATTACH,
					  .bytes = bytes,
					  .endpoints = 1,
					  .pid = (uint32_t)getpid()};

	memcpy(message.token, path->token, sizeof(message.token));
	return message;
}

/* Messages that say nothing about a path: the connection is closed, the path waits on. */
static void
listener__nonsense_is_closed(void **state)
{
	struct kvp_shm_message message;
	struct kvp_blob offer;
	struct pair pair;
	int sock, fds[20];

	(void)state;
	pair_init(&pair);
	pair_paths(&pair, 1, 1, &offer);
	fds[0] = memfd_of(RING_BYTES, F_SEAL_SHRINK);
	for (uint32_t i = 1; i < 20; i++)
		fds[i] = pair.a.lane[0].event_fd;
	for (uint32_t i = 0; i < 9; i++) {
		size_t bytes = sizeof(message);
		uint32_t count = 2;

		message = attach_message(side_shm(&pair.b), RING_BYTES);
		if (i == 0)
			bytes--;
		else if (i == 1)
			message.magic ^= 1;
		else if (i == 2)
			message.type = 99;
		else if (i == 3)
			message.type = KVP_SHM_REGION_GONE;
		else if (i == 4)
			count = 0;
		else if (i == 5)
			count = 3; /* one more than announced */
		else if (i == 6)
			count = 20; /* more than any message has */
		else if (i == 7)
			message.endpoints = KVP_ENDPOINTS_MAX + 1;
		else
			message.token[3] ^= 1; /* some other path */
		sock = rogue_connect(&pair.b);
		rogue_send(sock, &message, bytes, fds, count);
		pair_settle(&pair);
		assert_true(rogue_is_closed(sock));
		assert_int_equal(pair.b.path->state, KVP_PATH_CONNECTING);
		assert_int_equal(pair.b.changes, 0);
		close(sock);
	}
	/* A longer packet than a message is cut by the kernel: refused as well. */
	{
		uint8_t longer[sizeof(message) + 1] = {0};

		message = attach_message(side_shm(&pair.b), RING_BYTES);
		memcpy(longer, &message, sizeof(message));
		sock = rogue_connect(&pair.b);
		rogue_send(sock, longer, sizeof(longer), fds, 2);
		pair_settle(&pair);
		assert_true(rogue_is_closed(sock));
		close(sock);
	}
	/* And the real peer still gets through. */
	assert_int_equal(shm.path_connect(pair.a.path, &offer, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_UP);
	close(fds[0]);
	pair_fini(&pair);
}

static void
listener__silent_connections_make_room(void **state)
{
	int sock[KVP_SHM_PENDING_MAX + 3];
	struct kvp_blob offer;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_paths(&pair, 1, 1, &offer);
	for (uint32_t i = 0; i < KVP_SHM_PENDING_MAX + 3; i++) {
		sock[i] = rogue_connect(&pair.b);
		kvp_reactor_wait(&pair.b.reactor, 0);
	}
	assert_true(rogue_is_closed(sock[0]));
	assert_true(rogue_is_closed(sock[2]));
	assert_false(rogue_is_closed(sock[3]));
	assert_int_equal(shm.path_connect(pair.a.path, &offer, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_UP);
	for (uint32_t i = 0; i < KVP_SHM_PENDING_MAX + 3; i++)
		close(sock[i]);
	pair_fini(&pair);
}

/* It knows the token, so it is the path's peer, but what it brings is not acceptable. */
static void
attach_fails(uint64_t bytes, uint64_t told, int seals, bool has_eventfd, uint32_t endpoints,
	     const char *word)
{
	struct kvp_shm_message message;
	struct kvp_blob offer;
	struct pair pair;
	int sock, fds[3];

	pair_init(&pair);
	pair_paths(&pair, 1, 1, &offer);
	fds[0] = memfd_of(bytes, seals);
	fds[1] = has_eventfd ? pair.a.lane[0].event_fd : fds[0];
	fds[2] = fds[1];
	message = attach_message(side_shm(&pair.b), told);
	message.endpoints = endpoints;
	sock = rogue_connect(&pair.b);
	rogue_send(sock, &message, sizeof(message), fds, 1 + endpoints);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_FAILED);
	assert_int_equal(pair.b.changes, 1);
	assert_non_null(strstr(pair.b.path->error.text, word));
	assert_true(rogue_is_closed(sock));
	close(sock);
	close(fds[0]);
	pair_fini(&pair);
}

static void
attach__rings_not_sealed(void **state)
{
	(void)state;
	attach_fails(RING_BYTES, RING_BYTES, 0, true, 1, "not sealed");
	attach_fails(RING_BYTES, RING_BYTES, F_SEAL_GROW, true, 1, "not sealed");
}

static void
attach__rings_too_short(void **state)
{
	(void)state;
	attach_fails(4096, RING_BYTES, F_SEAL_SHRINK, true, 1, "too short");
	attach_fails(4096, 4096, F_SEAL_SHRINK, true, 1, "4096 bytes");
	attach_fails(RING_BYTES, UINT64_MAX, F_SEAL_SHRINK, true, 1, "bytes");
}

static void
attach__no_eventfd(void **state)
{
	(void)state;
	attach_fails(RING_BYTES, RING_BYTES, F_SEAL_SHRINK, false, 1, "eventfd");
}

static void
attach__other_number_of_endpoints(void **state)
{
	(void)state;
	attach_fails(RING_BYTES, RING_BYTES, F_SEAL_SHRINK, true, 2, "2 endpoints, not 1");
}

static void
attach__both_sides_learn_of_unequal_endpoints(void **state)
{
	struct kvp_blob offer;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_paths(&pair, 1, 2, &offer);
	assert_int_equal(shm.path_connect(pair.a.path, &offer, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_FAILED);
	assert_int_equal(pair.a.path->state, KVP_PATH_FAILED);
	assert_non_null(strstr(pair.a.path->error.text, "closed"));
	assert_int_equal(pair.a.changes, 1);
	pair_fini(&pair);
}

static void
path_connect__bad_offers(void **state)
{
	struct kvp_shm_offer offer, bad;
	struct kvp_error err = {""};
	struct kvp_blob blob;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_paths(&pair, 1, 1, &blob);
	memcpy(&offer, blob.data, sizeof(offer));
	blob.bytes--;
	assert_int_equal(shm.path_connect(pair.a.path, &blob, &err), KVP_PROTOCOL);
	assert_int_equal(shm.path_connect(pair.b.path, &blob, &err), KVP_PROTOCOL);
	blob.bytes = sizeof(offer);
	bad = offer;
	bad.version = 7;
	memcpy(blob.data, &bad, sizeof(bad));
	assert_int_equal(shm.path_connect(pair.a.path, &blob, &err), KVP_PROTOCOL);
	bad = offer;
	memset(bad.name, 'x', sizeof(bad.name)); /* no end */
	memcpy(blob.data, &bad, sizeof(bad));
	assert_int_equal(shm.path_connect(pair.a.path, &blob, &err), KVP_PROTOCOL);
	bad = offer;
	memset(bad.name, 0, sizeof(bad.name));
	memcpy(blob.data, &bad, sizeof(bad));
	assert_int_equal(shm.path_connect(pair.a.path, &blob, &err), KVP_PROTOCOL);
	bad = offer;
	memcpy(bad.name, "nobody", 7);
	memcpy(blob.data, &bad, sizeof(bad));
	assert_int_equal(shm.path_connect(pair.a.path, &blob, &err), KVP_LINK_FAILED);
	assert_non_null(strstr(err.text, "ECONNREFUSED"));
	pair_fini(&pair);
}

static void
path_connect__wrong_token(void **state)
{
	struct kvp_blob blob;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_paths(&pair, 1, 1, &blob);
	blob.data[offsetof(struct kvp_shm_offer, token)] ^= 1;
	assert_int_equal(shm.path_connect(pair.a.path, &blob, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(pair.a.path->state, KVP_PATH_FAILED);
	assert_non_null(strstr(pair.a.path->error.text, "closed the connection"));
	assert_int_equal(pair.b.path->state, KVP_PATH_CONNECTING);
	pair_fini(&pair);
}

/* The path is up with a rogue on the other end of the connection. */
static int
rogue_up(struct pair *pair)
{
	struct kvp_shm_message message;
	struct kvp_blob offer;
	int sock, fds[2];

	pair_paths(pair, 1, 1, &offer);
	message = attach_message(side_shm(&pair->b), RING_BYTES);
	fds[0] = memfd_of(RING_BYTES, F_SEAL_SHRINK);
	fds[1] = pair->a.lane[0].event_fd;
	sock = rogue_connect(&pair->b);
	rogue_send(sock, &message, sizeof(message), fds, 2);
	pair_settle(pair);
	assert_int_equal(pair->b.path->state, KVP_PATH_UP);
	close(fds[0]);
	return sock;
}

static void
region_fails(const struct kvp_shm_message *message, int fd, uint32_t fds)
{
	struct pair pair;
	int sock;

	pair_init(&pair);
	sock = rogue_up(&pair);
	rogue_send(sock, message, sizeof(*message), &fd, fds);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_FAILED);
	assert_int_equal(pair.b.changes, 2);
	assert_int_equal(side_shm(&pair.b)->num_regions, 0);
	close(sock);
	pair_fini(&pair);
}

static void
region__not_acceptable(void **state)
{
	struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC, .type = KVP_SHM_REGION, .region = 1, .bytes = 8192};
	int good = memfd_of(8192, F_SEAL_SHRINK), open_ended = memfd_of(8192, 0);
	int plain = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	region_fails(&message, open_ended, 1);
	region_fails(&message, plain, 1); /* a file, without seals */
	region_fails(&message, good, 0);
	message.bytes = 8193;
	region_fails(&message, good, 1);
	message.bytes = 4096;
	region_fails(&message, good, 1);
	message.bytes = 0;
	region_fails(&message, good, 1);
	message.bytes = 8192;
	message.region = 0;
	region_fails(&message, good, 1);
	message.region = 1;
	message.type = KVP_SHM_ATTACH; /* a second one */
	message.endpoints = 1;
	region_fails(&message, good, 1);
	close(plain);
	close(open_ended);
	close(good);
}

static void
region__twice(void **state)
{
	const struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC, .type = KVP_SHM_REGION, .region = 1, .bytes = 4096};
	struct pair pair;
	int sock, fd;

	(void)state;
	pair_init(&pair);
	fd = memfd_of(4096, F_SEAL_SHRINK);
	sock = rogue_up(&pair);
	rogue_send(sock, &message, sizeof(message), &fd, 1);
	pair_settle(&pair);
	assert_int_equal(side_shm(&pair.b)->num_regions, 1);
	rogue_send(sock, &message, sizeof(message), &fd, 1);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_FAILED);
	close(sock);
	close(fd);
	pair_fini(&pair);
}

/* Sealed against writing: cannot be mapped as we need it. A view says so, the path lives. */
static void
region__that_cannot_be_mapped(void **state)
{
	const struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC, .type = KVP_SHM_REGION, .region = 1, .bytes = 4096};
	const struct kvp_remote_tensor tensor = {.tensor = {(void *)4096, 1, 64, 64}, .region = 1};
	const struct kvp_remote_cache cache = {.id = 1, .num_tensors = 1, .tensors = &tensor};
	struct kvp_view *view = NULL;
	struct kvp_error err = {""};
	struct pair pair;
	int sock, fd;

	(void)state;
	pair_init(&pair);
	fd = memfd_of(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
	sock = rogue_up(&pair);
	rogue_send(sock, &message, sizeof(message), &fd, 1);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_UP);
	assert_int_equal(shm.view_open(pair.b.path, &cache, &view, &err), KVP_NO_RESOURCE);
	assert_non_null(strstr(err.text, "EPERM"));
	close(sock);
	close(fd);
	pair_fini(&pair);
}

static void
peer_closed__after_up_is_no_failure(void **state)
{
	struct kvp_region *region;
	const struct kvp_remote_tensor tensor = {.tensor = {(void *)4096, 1, 64, 64}, .region = 1};
	const struct kvp_remote_cache cache = {.id = 1, .num_tensors = 1, .tensors = &tensor};
	struct kvp_view *view = NULL;
	struct pair pair;
	int sock;

	(void)state;
	pair_init(&pair);
	region = pair_region(1, 4096);
	sock = rogue_up(&pair);
	assert_int_equal(shm.view_open(pair.b.path, &cache, &view, NULL), KVP_IN_PROGRESS);
	close(sock);
	pair_settle(&pair);
	assert_int_equal(pair.b.path->state, KVP_PATH_UP);
	assert_int_equal(pair.b.changes, 2); /* pending views learn that nothing comes */
	assert_int_equal(shm.view_open(pair.b.path, &cache, &view, NULL), KVP_PEER_LOST);
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_PEER_LOST);
	shm.region_gone(pair.b.path, 1);
	kvp_region_destroy(region);
	pair_fini(&pair);
}

/* More regions than the socket takes at once: the rest waits for room. */
static void
region_add__more_than_the_socket_takes(void **state)
{
	struct kvp_region *region;
	struct pair pair;
	uint32_t queued = 0;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	region = pair_region(1, 4096);
	for (uint32_t i = 1; i <= KVP_SHM_REGIONS_MAX; i++) {
		region->id = i;
		assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
		queued += side_shm(&pair.b)->out_first != NULL;
	}
	assert_true(queued > 0);
	for (uint32_t i = 0; i < 50 * KVP_SHM_REGIONS_MAX && side_shm(&pair.b)->out_first != NULL;
	     i++) {
		kvp_reactor_wait(&pair.a.reactor, 0);
		kvp_reactor_wait(&pair.b.reactor, 0);
	}
	assert_null(side_shm(&pair.b)->out_first);
	for (uint32_t i = 0; i < KVP_SHM_REGIONS_MAX; i++)
		kvp_reactor_wait(&pair.a.reactor, 0);
	assert_int_equal(side_shm(&pair.a)->num_regions, KVP_SHM_REGIONS_MAX);
	/* One more is more than we hold for one peer. */
	region->id = KVP_SHM_REGIONS_MAX + 1;
	assert_int_equal(shm.region_add(pair.b.path, region, NULL), KVP_SUCCESS);
	pair_settle(&pair);
	assert_int_equal(pair.a.path->state, KVP_PATH_FAILED);
	kvp_region_destroy(region);
	pair_fini(&pair);
}

static struct kvp_shm_ring *
ring_into(struct side *side)
{
	return side_shm(side)->rings->base;
}

static void
progress__corrupt_ring(void **state)
{
	struct kvp_endpoint *endpoint;
	struct pair pair;

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		static struct kvp_transfer transfer;

		pair_init(&pair);
		pair_link(&pair, 1);
		endpoint = pair.b.path->endpoint[0];
		if (i == 0) {
			atomic_store(&ring_into(&pair.b)->head, 1000);
		} else {
			atomic_store(&ring_into(&pair.b)->record[0].payload_bytes, 257);
			atomic_store(&ring_into(&pair.b)->head, 1);
		}
		(void)shm.progress(endpoint, 0);
		assert_int_equal(pair.b.lane[1].failures, 1);
		assert_int_equal(pair.b.lane[1].why, KVP_PROTOCOL);
		assert_int_equal(pair.b.inbox.events, 0);
		/* Said once, and the ring is left alone. */
		assert_int_equal(shm.progress(endpoint, 0), 0);
		assert_false(shm.arm(endpoint));
		transfer.part[0].transfer = &transfer;
		assert_int_equal(shm.notify(endpoint, &transfer.part[0], 0), -1);
		assert_int_equal(pair.b.lane[1].failures, 1);
		pair_fini(&pair);
	}
}

static void
notify__corrupt_ring(void **state)
{
	static struct kvp_transfer transfer;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_link(&pair, 1);
	transfer.part[0].transfer = &transfer;
	atomic_store(&ring_into(&pair.b)->tail, 5);
	assert_int_equal(shm.notify(pair.a.path->endpoint[0], &transfer.part[0], 0), -1);
	assert_int_equal(pair.a.lane[0].failures, 1);
	assert_int_equal(pair.a.lane[0].why, KVP_PROTOCOL);
	pair_fini(&pair);
}

static void
foreign_open__reasons(void **state)
{
	static const uint64_t value = 0x1122334455667788U;
	uint64_t address = (uint64_t)(uintptr_t)&value;
	struct kvp_shm_foreign foreign = {.pid_fd = -1};

	(void)state;
	kvp_shm_foreign_open(&foreign, 0, address, value);
	assert_int_equal(foreign.status, KVP_FEATURE_NOT_ENABLED);
	assert_non_null(strstr(foreign.why, "pid namespace"));
	assert_non_null(strstr(foreign.why, "kvp_cache_allocate"));
	kvp_shm_foreign_close(&foreign);

	foreign = (struct kvp_shm_foreign){.pid_fd = -1};
	kvp_shm_foreign_open(&foreign, getpid(), address, value + 1);
	assert_int_equal(foreign.status, KVP_FEATURE_NOT_ENABLED);
	assert_non_null(strstr(foreign.why, "another process"));
	kvp_shm_foreign_close(&foreign);

	foreign = (struct kvp_shm_foreign){.pid_fd = -1};
	kvp_shm_foreign_open(&foreign, getpid(), 16, value);
	assert_int_equal(foreign.status, KVP_FEATURE_NOT_ENABLED);
	assert_non_null(strstr(foreign.why, "EFAULT"));
	kvp_shm_foreign_close(&foreign);

	foreign = (struct kvp_shm_foreign){.pid_fd = -1};
	kvp_shm_foreign_open(&foreign, getpid(), address, value);
	assert_int_equal(foreign.status, KVP_SUCCESS);
	kvp_shm_foreign_close(&foreign);
	kvp_shm_foreign_close(&foreign);
	assert_int_equal(foreign.pid_fd, -1);
}

/* A process of its own: its memory is reached, and once it is dead nothing is. */
static void
foreign_move__into_a_process_until_it_dies(void **state)
{
	static uint64_t value = 0xABCDEF0123456789U;
	static char there[16] = "before";
	struct kvp_shm_foreign foreign = {.pid_fd = -1};
	char here[16] = "after", back[16] = "";
	const struct iovec to = {.iov_base = there, .iov_len = sizeof(there)};
	const struct iovec from = {.iov_base = here, .iov_len = sizeof(here)};
	const struct iovec into = {.iov_base = back, .iov_len = sizeof(back)};
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		for (;;)
			pause();
	}
	kvp_shm_foreign_open(&foreign, pid, (uint64_t)(uintptr_t)&value, value);
	assert_int_equal(foreign.status, KVP_SUCCESS);
	assert_int_equal(foreign.move(&foreign, true, &from, &to, 1), KVP_SUCCESS);
	assert_string_equal(there, "before"); /* ours is another copy */
	assert_int_equal(foreign.move(&foreign, false, &into, &to, 1), KVP_SUCCESS);
	assert_string_equal(back, "after");
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(foreign.move(&foreign, true, &from, &to, 1), KVP_PEER_LOST);
	assert_int_equal(foreign.move(&foreign, false, &into, &to, 1), KVP_PEER_LOST);
	kvp_shm_foreign_close(&foreign);
}

/* The second piece is not there: short, so not a success. */
static void
foreign_move__short(void **state)
{
	static uint64_t value = 7;
	struct kvp_shm_foreign foreign = {.pid_fd = -1};
	char here[2][8] = {"one", "two"}, there[8] = "";
	const struct iovec local[2] = {{here[0], 8}, {here[1], 8}};
	const struct iovec remote[2] = {{there, 8}, {(void *)16, 8}};

	(void)state;
	kvp_shm_foreign_open(&foreign, getpid(), (uint64_t)(uintptr_t)&value, value);
	assert_int_equal(foreign.move(&foreign, true, local, remote, 2), KVP_FEATURE_NOT_ENABLED);
	assert_string_equal(there, "one");
	kvp_shm_foreign_close(&foreign);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(listener__nonsense_is_closed),
		cmocka_unit_test(listener__silent_connections_make_room),
		cmocka_unit_test(attach__rings_not_sealed),
		cmocka_unit_test(attach__rings_too_short),
		cmocka_unit_test(attach__no_eventfd),
		cmocka_unit_test(attach__other_number_of_endpoints),
		cmocka_unit_test(attach__both_sides_learn_of_unequal_endpoints),
		cmocka_unit_test(path_connect__bad_offers),
		cmocka_unit_test(path_connect__wrong_token),
		cmocka_unit_test(region__not_acceptable),
		cmocka_unit_test(region__twice),
		cmocka_unit_test(region__that_cannot_be_mapped),
		cmocka_unit_test(peer_closed__after_up_is_no_failure),
		cmocka_unit_test(region_add__more_than_the_socket_takes),
		cmocka_unit_test(progress__corrupt_ring),
		cmocka_unit_test(notify__corrupt_ring),
		cmocka_unit_test(foreign_open__reasons),
		cmocka_unit_test(foreign_move__into_a_process_until_it_dies),
		cmocka_unit_test(foreign_move__short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
