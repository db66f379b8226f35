/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_tcp_setup.c - streams come up over loopback, or say why not
 *
 * The test plays the control threads of both engines: it owns the listener, reads
 * the STREAM frames and offers the connections to the acceptor's path.
 *
 * links: dataplane/tcp/tcp_wire_fast.o dataplane/tcp/tcp_setup.o dataplane/tcp/tcp_stream_setup.o
 *        dataplane/tcp/tcp_send_fast.o dataplane/tcp/tcp_receive_fast.o dataplane/reactor.o
 *        dataplane/wake.o engine/check.o engine/error.o engine/cursor.o engine/layout.o
 *        engine/plan.o engine/tally.o engine/transfer.o engine/wire.o engine/rights.o
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <netinet/tcp.h>

#include "reactor.h"
#include "tcp_pair.h"

#define STREAMS 3U

struct world {
	struct kvp_reactor reactor;
	struct kvp_lane lane[2];
	struct kvp_lane *lanes[2];
	struct kvp_dataplane dataplane;
	struct kvp_path *initiator;
	struct kvp_path *acceptor;
	uint32_t changes; /* of the initiator's state */
	uint32_t accept_changes;
	struct sockaddr_in address;
	int listener;
	int fds; /* open before */
};

static int
open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void
changed(struct kvp_path *path, void *ctx)
{
	assert_int_not_equal(path->state, KVP_PATH_CONNECTING);
	(*(uint32_t *)ctx)++;
}

static void
world_init(struct world *world)
{
	static const struct kvp_config settings = {.peer_rights = "push,pull"};
	struct kvp_path_config config = {.dataplane = &world->dataplane,
					 .is_initiator = true,
					 .endpoints = STREAMS,
					 .first_lane = 1,
					 .changed = changed};
	struct kvp_error err;

	memset(world, 0, sizeof(*world));
	world->fds = open_fds();
	assert_int_equal(kvp_reactor_init(&world->reactor), 0);
	world->listener = listen_loopback(&world->address);
	world->lanes[0] = &world->lane[0];
	world->lanes[1] = &world->lane[1];
	world->dataplane = (struct kvp_dataplane){.config = &settings,
						  .reactor = &world->reactor,
						  .lane = world->lanes,
						  .lanes = 2,
						  .streams = STREAMS,
						  .window_requests = 32,
						  .window_bytes = 4U << 20};
	memcpy(&config.peer, &world->address, sizeof(world->address));
	config.peer_bytes = sizeof(world->address);
	config.ctx = &world->changes;
	assert_int_equal(kvp_tcp_transport.path_create(&config, &world->initiator, &err),
			 KVP_SUCCESS);
	config.is_initiator = false;
	config.ctx = &world->accept_changes;
	assert_int_equal(kvp_tcp_transport.path_create(&config, &world->acceptor, &err),
			 KVP_SUCCESS);
}

static void
world_fini(struct world *world)
{
	kvp_tcp_transport.path_destroy(world->initiator);
	kvp_tcp_transport.path_destroy(world->acceptor);
	if (world->listener >= 0)
		close(world->listener);
	kvp_reactor_fini(&world->reactor);
	assert_int_equal(open_fds(), world->fds);
}

static void
world_start(struct world *world)
{
	struct kvp_blob from_initiator, from_acceptor;
	struct kvp_error err;

	kvp_tcp_transport.path_offer(world->initiator, &from_initiator);
	kvp_tcp_transport.path_offer(world->acceptor, &from_acceptor);
	assert_int_equal(kvp_tcp_transport.path_connect(world->acceptor, &from_initiator, &err),
			 KVP_SUCCESS);
	assert_int_equal(kvp_tcp_transport.path_connect(world->initiator, &from_acceptor, &err),
			 KVP_SUCCESS);
	assert_int_equal(world->changes, 0);
}

static void
world_turn(struct world *world, int turns)
{
	for (int i = 0; i < turns; i++)
		kvp_reactor_wait(&world->reactor, 10);
}

/* A connection with its STREAM frame, as control reads it; the initiator is turned meanwhile. */
static int
take_stream(struct world *world, struct kvp_stream_frame *frame)
{
	uint8_t bytes[KVP_FRAME_HEADER + 64];
	struct kvp_frame_header header;
	struct kvp_error err;
	ssize_t got = -1;
	int fd = accept(world->listener, NULL, NULL);

	assert_true(fd >= 0);
	for (int i = 0; i < 100 && got < 0; i++) {
		kvp_reactor_wait(&world->reactor, 10);
		got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	}
	assert_true(got > (ssize_t)KVP_FRAME_HEADER);
	assert_int_equal(kvp_frame_decode_header(bytes, 1024, &header, &err), KVP_SUCCESS);
	assert_int_equal(header.type, KVP_FRAME_STREAM);
	assert_int_equal(kvp_frame_check(&header, bytes + KVP_FRAME_HEADER, &err), KVP_SUCCESS);
	assert_int_equal(
		kvp_frame_decode_stream(bytes + KVP_FRAME_HEADER, header.body_bytes, frame, &err),
		KVP_SUCCESS);
	assert_int_equal(got, KVP_FRAME_HEADER + header.body_bytes);
	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

static void
path__comes_up_with_all_streams(void **state)
{
	struct kvp_stream_frame frame;
	struct world world;
	char name[16];
	socklen_t bytes = sizeof(name);
	int on = 0;
	int twin;

	(void)state;
	world_init(&world);
	world_start(&world);
	for (uint32_t i = 0; i < STREAMS; i++) {
		int fd = take_stream(&world, &frame);

		assert_true(kvp_tcp_transport.path_accept(world.acceptor, fd, &frame));
		assert_int_equal(world.accept_changes, 0); /* not from inside */
		/* Another connection for the same stream is refused, and not closed. */
		twin = dup(fd);
		assert_true(twin >= 0);
		assert_false(kvp_tcp_transport.path_accept(world.acceptor, twin, &frame));
		assert_int_equal(close(twin), 0);
		world_turn(&world, 4);
	}
	world_turn(&world, 4);
	assert_int_equal(world.changes, 1);
	assert_int_equal(world.accept_changes, 1);
	assert_int_equal(world.initiator->state, KVP_PATH_UP);
	assert_int_equal(world.acceptor->state, KVP_PATH_UP);
	assert_string_equal(world.initiator->text, "tcp (3 streams, 127.0.0.1)");
	for (uint32_t i = 0; i < STREAMS; i++) {
		struct kvp_endpoint *a = world.initiator->endpoint[i];
		struct kvp_endpoint *b = world.acceptor->endpoint[i];
		uint8_t byte = (uint8_t)i;

		assert_int_equal(a->index, i);
		assert_ptr_equal(a->lane, world.lanes[(1 + i) % 2]);
		assert_ptr_equal(a->transport, &kvp_tcp_transport);
		assert_ptr_equal(a->path, world.initiator);
		/* Stream i of one side is stream i of the other, and nothing is left in it. */
		assert_int_equal(send(b->fd, &byte, 1, 0), 1);
		byte = 99;
		assert_int_equal(recv(a->fd, &byte, 1, 0), 1);
		assert_int_equal(byte, i);
		assert_true((fcntl(a->fd, F_GETFL) & O_NONBLOCK) != 0);
		assert_true((fcntl(b->fd, F_GETFL) & O_NONBLOCK) != 0);
	}
	bytes = sizeof(on);
	assert_int_equal(
		getsockopt(world.acceptor->endpoint[0]->fd, IPPROTO_TCP, TCP_NODELAY, &on, &bytes),
		0);
	assert_int_not_equal(on, 0);
	bytes = sizeof(name);
	assert_int_equal(getsockopt(world.initiator->endpoint[0]->fd, IPPROTO_TCP, TCP_CONGESTION,
				    name, &bytes),
			 0);
	assert_true(strcmp(name, "cubic") == 0 || strcmp(name, "reno") == 0);
	world_fini(&world);
}

static void
accept__refuses_what_is_not_its_own(void **state)
{
	struct kvp_stream_frame frame, wrong;
	struct kvp_blob offer;
	struct world world;
	int fd;

	(void)state;
	world_init(&world);
	world_start(&world);
	fd = take_stream(&world, &frame);
	for (uint32_t i = 0; i < KVP_TOKEN_BYTES; i++) {
		wrong = frame;
		wrong.token[i] ^= 1;
		assert_false(kvp_tcp_transport.path_accept(world.acceptor, fd, &wrong));
	}
	wrong = frame;
	wrong.endpoint = STREAMS;
	assert_false(kvp_tcp_transport.path_accept(world.acceptor, fd, &wrong));
	wrong.endpoint = UINT32_MAX;
	assert_false(kvp_tcp_transport.path_accept(world.acceptor, fd, &wrong));
	/* An initiator accepts nothing, not even with its own token. */
	assert_false(kvp_tcp_transport.path_accept(world.initiator, fd, &frame));
	/* The offer of an initiator gives no token away. */
	kvp_tcp_transport.path_offer(world.initiator, &offer);
	assert_int_equal(offer.bytes, 1);
	assert_true(kvp_tcp_transport.path_accept(world.acceptor, fd, &frame));
	world_fini(&world); /* with one stream half up, two connecting */
}

static void
offers__are_not_guessable(void **state)
{
	struct kvp_blob one, two;
	struct world a, b;

	(void)state;
	world_init(&a);
	world_init(&b);
	kvp_tcp_transport.path_offer(a.acceptor, &one);
	kvp_tcp_transport.path_offer(b.acceptor, &two);
	assert_int_equal(one.bytes, 1 + KVP_TOKEN_BYTES);
	assert_memory_not_equal(one.data, two.data, one.bytes);
	world_fini(&b);
	world_fini(&a);
}

static void
offer__malformed_is_refused(void **state)
{
	struct kvp_blob offer = {.bytes = 0};
	struct kvp_error err;
	struct world world;

	(void)state;
	world_init(&world);
	assert_int_equal(kvp_tcp_transport.path_connect(world.initiator, &offer, &err),
			 KVP_PROTOCOL);
	kvp_tcp_transport.path_offer(world.acceptor, &offer);
	offer.data[0]++;
	assert_int_equal(kvp_tcp_transport.path_connect(world.initiator, &offer, &err),
			 KVP_PROTOCOL);
	offer.data[0]--;
	offer.bytes--;
	assert_int_equal(kvp_tcp_transport.path_connect(world.initiator, &offer, &err),
			 KVP_PROTOCOL);
	offer.bytes += 2;
	assert_int_equal(kvp_tcp_transport.path_connect(world.initiator, &offer, &err),
			 KVP_PROTOCOL);
	assert_int_equal(kvp_tcp_transport.path_connect(world.acceptor, &offer, &err),
			 KVP_PROTOCOL);
	world_fini(&world);
}

static void
nobody_listens__fails_the_path(void **state)
{
	struct kvp_blob offer;
	struct kvp_error err;
	struct world world;
	kvp_status status;

	(void)state;
	world_init(&world);
	close(world.listener);
	world.listener = -1;
	kvp_tcp_transport.path_offer(world.acceptor, &offer);
	status = kvp_tcp_transport.path_connect(world.initiator, &offer, &err);
	if (status == KVP_SUCCESS) {
		world_turn(&world, 2);
		assert_int_equal(world.initiator->state, KVP_PATH_FAILED);
		assert_int_equal(world.changes, 1);
		err = world.initiator->error;
	} else {
		assert_int_equal(status, KVP_LINK_FAILED);
		assert_int_equal(world.changes, 0);
	}
	assert_non_null(strstr(err.text, "127.0.0.1"));
	assert_non_null(strstr(err.text, "Connection refused"));
	world_turn(&world, 2);
	assert_true(world.changes <= 1);
	world_fini(&world);
}

/* The peer answers `bytes` to a STREAM frame and closes. */
static void
bad_greeting(const uint8_t *bytes, size_t count, const char *why)
{
	struct kvp_stream_frame frame;
	struct world world;
	int fd;

	world_init(&world);
	world_start(&world);
	fd = take_stream(&world, &frame);
	if (count > 0)
		assert_int_equal(send(fd, bytes, count, 0), (ssize_t)count);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	world_turn(&world, 8);
	assert_int_equal(world.initiator->state, KVP_PATH_FAILED);
	assert_int_equal(world.changes, 1);
	assert_non_null(strstr(world.initiator->error.text, why));
	for (uint32_t i = 0; i < STREAMS; i++)
		assert_int_equal(world.initiator->endpoint[i]->fd, -1);
	close(fd);
	world_fini(&world);
}

static void
greeting__missing_or_wrong_fails_the_path(void **state)
{
	uint8_t greeting[KVP_TCP_GREETING];

	(void)state;
	bad_greeting(NULL, 0, "closed it instead of taking it");
	kvp_tcp_greeting_encode(77, greeting);
	bad_greeting(greeting, sizeof(greeting), "not one");
	bad_greeting(greeting, sizeof(greeting) - 1, "closed it instead of taking it");
}

static void
table__says_what_tcp_can_do(void **state)
{
	struct kvp_dataplane dataplane = {.streams = 5};
	struct kvp_remote_cache cache = {.id = 1};
	struct kvp_view *one = NULL, *two = NULL;
	struct kvp_region region = {.id = 1};
	struct kvp_blob blob;
	struct kvp_error err;
	void *own = &blob;

	(void)state;
	assert_int_equal(kvp_tcp_transport.start(&dataplane, &own, &err), KVP_SUCCESS);
	assert_null(own);
	kvp_tcp_transport.stop(own);
	kvp_tcp_transport.describe(&dataplane, &blob);
	assert_int_equal(kvp_tcp_transport.reachable(&dataplane, &blob, &err), KVP_SUCCESS);
	blob.data[0]++;
	assert_int_equal(kvp_tcp_transport.reachable(&dataplane, &blob, &err), KVP_NO_TRANSPORT);
	blob.bytes = 0;
	assert_int_equal(kvp_tcp_transport.reachable(&dataplane, &blob, &err), KVP_NO_TRANSPORT);
	assert_int_equal(kvp_tcp_transport.endpoints(&dataplane, 9), 5);
	dataplane.streams = 99;
	assert_int_equal(kvp_tcp_transport.endpoints(&dataplane, 9), KVP_ENDPOINTS_MAX);
	assert_int_equal(kvp_tcp_transport.caps.pieces_max, 64);
	assert_int_equal(kvp_tcp_transport.caps.request_bytes_max, 1 << 20);
	assert_true(kvp_tcp_transport.caps.can_pull);
	assert_false(kvp_tcp_transport.caps.is_split_by_lane);
	assert_int_equal(kvp_tcp_transport.region_add(NULL, &region, &err), KVP_SUCCESS);
	kvp_tcp_transport.region_gone(NULL, 1);
	assert_int_equal(kvp_tcp_transport.view_open(NULL, &cache, &one, &err), KVP_SUCCESS);
	assert_int_equal(kvp_tcp_transport.view_open(NULL, &cache, &two, &err), KVP_SUCCESS);
	assert_ptr_not_equal(one, two);
	kvp_tcp_transport.view_close(NULL, one);
	kvp_tcp_transport.view_close(NULL, two);
	kvp_tcp_transport.path_destroy(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(path__comes_up_with_all_streams),
		cmocka_unit_test(accept__refuses_what_is_not_its_own),
		cmocka_unit_test(offers__are_not_guessable),
		cmocka_unit_test(offer__malformed_is_refused),
		cmocka_unit_test(nobody_listens__fails_the_path),
		cmocka_unit_test(greeting__missing_or_wrong_fails_the_path),
		cmocka_unit_test(table__says_what_tcp_can_do),
	};

	return cmocka_run_group_tests_name("dataplane/tcp_setup", tests, NULL, NULL);
}
