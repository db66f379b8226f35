/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_tcp_peer.c - peers that lie, stall or die; caches that go away
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

#include "rights.h"
#include "tcp_job.h"

static const struct side_shape scattered = {.blocks = 300, .block_bytes = 1000, .stride = 1024};
static const struct side_shape small = {.blocks = 12, .block_bytes = 100, .stride = 128};

/* The test itself is the peer: `fd` is its end of the stream. */
struct peer {
	struct rig rig;
	int fd;
};

static void
peer_init(struct peer *peer, const struct side_shape *shape)
{
	int fd[2];

	rig_init(&peer->rig, shape, shape);
	pair_unix(fd, 0);
	side_plug(&peer->rig.a, fd[0]);
	peer->fd = fd[1];
}

static void
peer_fini(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	rig_fini(&peer->rig);
}

static void
peer_step(struct peer *peer)
{
	peer->rig.now_ns += 1000;
	kvp_tcp_transport.progress(peer->rig.a.endpoint, peer->rig.now_ns);
}

static void
peer_send(struct peer *peer, const void *bytes, size_t count)
{
	assert_int_equal(send(peer->fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static void
peer_send_head(struct peer *peer, const struct kvp_tcp_preamble *p,
	       const struct kvp_tcp_extent *extent)
{
	uint8_t head[KVP_TCP_STAGE];

	kvp_tcp_preamble_encode(p, head);
	for (uint32_t i = 0; i < p->extents; i++)
		kvp_tcp_extent_encode(&extent[i], head + KVP_TCP_PREAMBLE + i * KVP_TCP_EXTENT);
	peer_send(peer, head, KVP_TCP_PREAMBLE + p->extents * KVP_TCP_EXTENT);
}

/* The next message's preamble; its payload, if any, is left. */
static struct kvp_tcp_preamble
peer_receive(struct peer *peer)
{
	struct kvp_tcp_preamble p = {0};
	uint8_t head[KVP_TCP_PREAMBLE];

	assert_int_equal(recv(peer->fd, head, sizeof(head), MSG_DONTWAIT), (int)sizeof(head));
	assert_true(kvp_tcp_preamble_decode(head, &p));
	return p;
}

static bool
peer_has_nothing(struct peer *peer)
{
	uint8_t byte;

	return recv(peer->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0;
}

struct refusal {
	const char *what;
	int64_t cache;
	uint32_t bytes; /* announced */
	struct kvp_tcp_extent extent[2];
	kvp_status status;
};

/* Blocks of 100 bytes, 128 apart, 12 of them. */
static const struct refusal refusals[] = {
	{"unknown cache", 8, 200, {{0, 100, 0}, {1, 100, 0}}, KVP_CACHE_NOT_EXIST},
	{"cache 0", 0, 200, {{0, 100, 0}, {1, 100, 0}}, KVP_CACHE_NOT_EXIST},
	{"negative cache", -7, 200, {{0, 100, 0}, {1, 100, 0}}, KVP_CACHE_NOT_EXIST},
	{"tensor beyond", SIDE_CACHE, 200, {{0, 100, 0}, {4, 100, 0}}, KVP_PARAM_INVALID},
	{"tensor far beyond",
	 SIDE_CACHE,
	 200,
	 {{0, 100, 0}, {UINT32_MAX, 100, 0}},
	 KVP_PARAM_INVALID},
	{"block beyond", SIDE_CACHE, 200, {{0, 100, 0}, {1, 100, 12 * 128}}, KVP_PARAM_INVALID},
	{"in the gap", SIDE_CACHE, 200, {{0, 100, 0}, {1, 100, 64}}, KVP_PARAM_INVALID},
	{"over the gap", SIDE_CACHE, 229, {{0, 100, 0}, {1, 129, 0}}, KVP_PARAM_INVALID},
	{"before the tensor",
	 SIDE_CACHE,
	 200,
	 {{0, 100, 0}, {1, 100, UINT64_MAX - 127}},
	 KVP_PARAM_INVALID},
	{"offset wraps", SIDE_CACHE, 200, {{0, 100, 0}, {1, 100, UINT64_MAX}}, KVP_PARAM_INVALID},
	{"no bytes", SIDE_CACHE, 100, {{0, 100, 0}, {1, 0, 0}}, KVP_PARAM_INVALID},
	{"sum too small", SIDE_CACHE, 201, {{0, 100, 0}, {1, 100, 0}}, KVP_PARAM_INVALID},
	{"sum too large", SIDE_CACHE, 199, {{0, 100, 0}, {1, 100, 0}}, KVP_PARAM_INVALID},
	{"sum wraps", SIDE_CACHE, 99, {{0, 100, 0}, {1, UINT32_MAX, 0}}, KVP_PARAM_INVALID},
};

static void
write__refused_writes_nothing_and_keeps_the_stream(void **state)
{
	uint8_t payload[512];

	(void)state;
	memset(payload, 0xEE, sizeof(payload));
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *refusal = &refusals[i];
		const struct kvp_tcp_extent good[1] = {{2, 100, 128 * 11}};
		struct kvp_tcp_preamble p;
		struct peer peer;

		print_message("%s\n", refusal->what);
		peer_init(&peer, &small);
		peer_send_head(&peer,
			       &(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE,
							  .extents = 2,
							  .bytes = refusal->bytes,
							  .request = 500,
							  .cache = refusal->cache},
			       refusal->extent);
		peer_step(&peer);
		peer_send(&peer, payload, refusal->bytes / 2);
		peer_step(&peer);
		assert_true(peer_has_nothing(
			&peer)); /* not before all of it was taken off the stream */
		peer_send(&peer, payload, refusal->bytes - refusal->bytes / 2);
		peer_step(&peer);
		p = peer_receive(&peer);
		assert_int_equal(p.type, KVP_TCP_WRITE_ACK);
		assert_int_equal(p.request, 500);
		assert_int_equal(p.status, refusal->status);
		assert_true(side_is_as_modelled(&peer.rig.a));
		/* The next one, which is right, lands. */
		peer_send_head(&peer,
			       &(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE,
							  .extents = 1,
							  .bytes = 100,
							  .request = 501,
							  .cache = SIDE_CACHE},
			       good);
		peer_send(&peer, payload, 100);
		peer_step(&peer);
		p = peer_receive(&peer);
		assert_int_equal(p.request, 501);
		assert_int_equal(p.status, KVP_SUCCESS);
		memset(peer.rig.a.model +
			       ((uint8_t *)peer.rig.a.tensor[2].base - peer.rig.a.memory) +
			       128 * 11,
		       0xEE, 100);
		assert_true(side_is_as_modelled(&peer.rig.a));
		assert_int_equal(peer.rig.a.lane.failures, 0);
		peer_fini(&peer);
	}
}

/* A refused request of a whole MiB leaves in bounded steps, and others behind it are served. */
static void
write__refused_and_large_is_taken_off_in_steps(void **state)
{
	const struct kvp_tcp_extent extent[1] = {{0, KVP_TCP_PAYLOAD, 0}};
	static uint8_t payload[KVP_TCP_PAYLOAD];
	struct kvp_tcp_preamble p;
	struct peer peer;
	size_t sent = 0;

	(void)state;
	peer_init(&peer, &small);
	peer_send_head(&peer,
		       &(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE,
						  .extents = 1,
						  .bytes = KVP_TCP_PAYLOAD,
						  .request = 1,
						  .cache = SIDE_CACHE},
		       extent);
	while (sent < sizeof(payload)) {
		ssize_t got = send(peer.fd, payload + sent, sizeof(payload) - sent,
				   MSG_NOSIGNAL | MSG_DONTWAIT);

		if (got > 0)
			sent += (size_t)got;
		peer_step(&peer);
	}
	p = peer_receive(&peer);
	assert_int_equal(p.status, KVP_PARAM_INVALID);
	assert_true(side_is_as_modelled(&peer.rig.a));
	assert_int_equal(peer.rig.a.lane.failures, 0);
	peer_fini(&peer);
}

static void
read__refused_sends_nothing_of_the_memory(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *refusal = &refusals[i];
		struct kvp_tcp_preamble p;
		struct peer peer;

		print_message("%s\n", refusal->what);
		peer_init(&peer, &small);
		peer_send_head(&peer,
			       &(struct kvp_tcp_preamble){.type = KVP_TCP_READ,
							  .extents = 2,
							  .bytes = refusal->bytes,
							  .request = 500,
							  .cache = refusal->cache},
			       refusal->extent);
		peer_step(&peer);
		p = peer_receive(&peer);
		assert_int_equal(p.type, KVP_TCP_READ_DATA);
		assert_int_equal(p.request, 500);
		assert_int_equal(p.status, refusal->status);
		assert_int_equal(p.bytes, 0);
		assert_true(peer_has_nothing(&peer));
		assert_int_equal(peer.rig.a.lane.failures, 0);
		peer_fini(&peer);
	}
}

/* Block 0 of tensor 0 is written, read and told of; the answers' statuses. */
static void
asks_for_all(struct peer *peer, kvp_status status[3])
{
	const struct kvp_tcp_extent extent[1] = {{0, 100, 0}};
	const uint8_t payload[100] = {1, 2, 3};
	struct kvp_tcp_preamble p = {.type = KVP_TCP_WRITE,
				     .extents = 1,
				     .bytes = 100,
				     .request = 1,
				     .cache = SIDE_CACHE};

	peer_send_head(peer, &p, extent);
	peer_send(peer, payload, sizeof(payload));
	peer_step(peer);
	status[0] = peer_receive(peer).status;
	p = (struct kvp_tcp_preamble){
		.type = KVP_TCP_NOTIFY, .bytes = 8, .request = 2, .cache = SIDE_CACHE};
	peer_send_head(peer, &p, NULL);
	peer_send(peer, payload, 8);
	peer_step(peer);
	status[1] = peer_receive(peer).status;
	p = (struct kvp_tcp_preamble){.type = KVP_TCP_READ,
				      .extents = 1,
				      .bytes = 100,
				      .request = 3,
				      .cache = SIDE_CACHE};
	peer_send_head(peer, &p, extent);
	peer_step(peer);
	status[2] = peer_receive(peer).status;
	assert_int_equal(peer->rig.a.lane.failures, 0);
}

static void
right__that_the_peer_lacks_is_refused(void **state)
{
	kvp_status status[3];
	struct peer peer;

	(void)state;
	for (uint32_t rights = 0; rights <= KVP_RIGHTS_ALL; rights++) {
		bool can_push = (rights & KVP_RIGHT_PUSH) != 0;
		bool can_pull = (rights & KVP_RIGHT_PULL) != 0;

		peer_init(&peer, &small);
		assert_int_equal(kvp_tcp_of(peer.rig.a.endpoint)->rights, KVP_RIGHTS_ALL);
		kvp_tcp_of(peer.rig.a.endpoint)->rights = rights;
		asks_for_all(&peer, status);
		assert_int_equal(status[0], can_push ? KVP_SUCCESS : KVP_FEATURE_NOT_ENABLED);
		assert_int_equal(status[1], can_push ? KVP_SUCCESS : KVP_FEATURE_NOT_ENABLED);
		assert_int_equal(status[2], can_pull ? KVP_SUCCESS : KVP_FEATURE_NOT_ENABLED);
		assert_int_equal(side_is_as_modelled(&peer.rig.a), !can_push);
		assert_int_equal(peer.rig.a.inbox.events, can_push ? 1 : 0);
		peer_fini(&peer);
	}
}

/* Not announced, but a peer can make up its id. The memory is the CPU's here, so that a touch shows. */
static void
device_memory__is_not_touched(void **state)
{
	const struct kvp_device_memory memory = {.fd = -1};
	kvp_status status[3];
	struct peer peer;

	(void)state;
	peer_init(&peer, &small);
	peer.rig.a.cache.memory = &memory;
	asks_for_all(&peer, status);
	assert_int_equal(status[0], KVP_FEATURE_NOT_ENABLED);
	assert_int_equal(status[2], KVP_FEATURE_NOT_ENABLED);
	assert_true(side_is_as_modelled(&peer.rig.a));
	assert_true(peer_has_nothing(&peer));
	peer_fini(&peer);
}

/* What the endpoint must not answer but end. */
static void
breaks(const struct kvp_tcp_preamble *p)
{
	const struct kvp_tcp_extent extent[KVP_TCP_EXTENTS + 1] = {{0, 100, 0}};
	struct peer peer;

	peer_init(&peer, &small);
	peer_send_head(&peer, p, extent);
	peer_step(&peer);
	assert_int_equal(peer.rig.a.lane.failures, 1);
	assert_int_equal(peer.rig.a.lane.why, KVP_PROTOCOL);
	assert_true(side_is_as_modelled(&peer.rig.a));
	peer_step(&peer); /* dead is dead */
	assert_int_equal(peer.rig.a.lane.failures, 1);
	peer_fini(&peer);
}

static void
malformed__ends_the_stream(void **state)
{
	(void)state;
	breaks(&(struct kvp_tcp_preamble){.type = 0});
	breaks(&(struct kvp_tcp_preamble){.type = 8});
	breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE, .extents = 0, .bytes = 1});
	breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE, .extents = 65, .bytes = 1});
	breaks(&(struct kvp_tcp_preamble){
		.type = KVP_TCP_WRITE, .extents = 1, .bytes = KVP_TCP_PAYLOAD + 1});
	breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_READ, .extents = 1, .bytes = 0});
	breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY, .bytes = 7});
	breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY, .bytes = 265});
}

static void
answers__to_nothing_end_the_stream(void **state)
{
	(void)state;
	for (uint32_t request = 0; request < 0x300; request += 0x3F) {
		breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE_ACK, .request = request});
		breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY_ACK, .request = request});
		breaks(&(struct kvp_tcp_preamble){
			.type = KVP_TCP_READ_DATA, .bytes = 1, .request = request});
		breaks(&(struct kvp_tcp_preamble){.type = KVP_TCP_READ_END, .request = request});
	}
}

/* One request of a part is out; the peer answers with `p`, whose request is that one's + `shift`. */
static void
answer_breaks(bool is_push, struct kvp_tcp_preamble p, uint32_t shift)
{
	struct kvp_tcp_preamble asked;
	struct peer peer;
	struct job job;

	peer_init(&peer, &small);
	job = job_create(&peer.rig.a, &peer.rig.b, is_push, 4, 1);
	assert_int_equal(job_step(&job, peer.rig.now_ns), 1);
	asked = peer_receive(&peer);
	p.request = asked.request + shift;
	peer_send_head(&peer, &p, NULL);
	peer_step(&peer);
	assert_int_equal(peer.rig.a.lane.failures, 1);
	assert_int_equal(peer.rig.a.lane.why, KVP_PROTOCOL);
	assert_int_equal(job.part->requests_inflight, 0);
	assert_int_equal(job.part->bytes_inflight, 0);
	assert_true(kvp_tcp_transport.stop_part(peer.rig.a.endpoint, job.part, peer.rig.now_ns));
	assert_int_equal(job_step(&job, peer.rig.now_ns), 0);
	assert_int_equal(kvp_tcp_transport.notify(peer.rig.a.endpoint, job.part, peer.rig.now_ns),
			 -1);
	job_free(&job);
	peer_fini(&peer);
}

static void
answers__of_the_wrong_kind_end_the_stream(void **state)
{
	const struct kvp_tcp_preamble ack = {.type = KVP_TCP_WRITE_ACK};
	const struct kvp_tcp_preamble data = {.type = KVP_TCP_READ_DATA, .bytes = 1600};

	(void)state;
	answer_breaks(false, ack, 0);
	answer_breaks(true, data, 0);
	answer_breaks(true, ack, 1);     /* another slot */
	answer_breaks(true, ack, 0x100); /* another generation */
	answer_breaks(false, data, 0x100);
	answer_breaks(true, (struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY_ACK}, 0);
	answer_breaks(false, (struct kvp_tcp_preamble){.type = KVP_TCP_READ_END}, 0);
	answer_breaks(false, (struct kvp_tcp_preamble){.type = KVP_TCP_READ_DATA, .bytes = 1599},
		      0);
	answer_breaks(false, (struct kvp_tcp_preamble){.type = KVP_TCP_READ_DATA, .bytes = 1601},
		      0);
	answer_breaks(true,
		      (struct kvp_tcp_preamble){.type = KVP_TCP_WRITE_ACK, .status = KVP_NO_CREDIT},
		      0);
	answer_breaks(true, (struct kvp_tcp_preamble){.type = KVP_TCP_WRITE_ACK, .status = 12345},
		      0);
}

static void
ack__before_the_request_has_left_ends_the_stream(void **state)
{
	struct kvp_tcp_preamble asked;
	struct peer peer;
	struct job job;
	int one = 1;

	(void)state;
	peer_init(&peer, &scattered);
	assert_int_equal(
		setsockopt(peer.rig.a.endpoint->fd, SOL_SOCKET, SO_SNDBUF, &one, sizeof(one)), 0);
	job = job_create(&peer.rig.a, &peer.rig.b, true, 300, 1);
	assert_int_equal(job_step(&job, peer.rig.now_ns), 1);
	assert_true(peer.rig.a.lane.wants_write);
	asked = peer_receive(&peer);
	peer_send_head(
		&peer,
		&(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE_ACK, .request = asked.request},
		NULL);
	peer_step(&peer);
	assert_int_equal(peer.rig.a.lane.why, KVP_PROTOCOL);
	job_free(&job);
	peer_fini(&peer);
}

/* Nothing is read here, so answers pile up over there: few fit the socket, 64 the ring, then `last` comes. */
static void
flood(struct kvp_tcp_preamble last)
{
	const struct kvp_tcp_preamble read = {
		.type = KVP_TCP_READ, .extents = 1, .bytes = 1000, .cache = SIDE_CACHE};
	const struct kvp_tcp_extent extent[1] = {{0, 1000, 0}};
	uint8_t payload[1000] = {0};
	struct peer peer;
	int one = 1;

	peer_init(&peer, &scattered);
	assert_int_equal(
		setsockopt(peer.rig.a.endpoint->fd, SOL_SOCKET, SO_SNDBUF, &one, sizeof(one)), 0);
	for (uint32_t i = 0; i < 64 || kvp_tcp_answers(kvp_tcp_of(peer.rig.a.endpoint)) < 64; i++) {
		assert_in_range(i, 0, 100);
		peer_send_head(&peer, &read, extent);
		peer_step(&peer);
		assert_int_equal(peer.rig.a.lane.failures, 0);
	}
	assert_true(peer.rig.a.lane.wants_write);
	peer_send_head(&peer, &last, extent);
	if (last.type != KVP_TCP_READ)
		peer_send(&peer, payload, last.bytes);
	peer_step(&peer);
	assert_int_equal(peer.rig.a.lane.failures, 1);
	assert_int_equal(peer.rig.a.lane.why, KVP_PROTOCOL);
	assert_int_equal(peer.rig.a.inbox.events, 0);
	peer_fini(&peer);
}

static void
requests__without_end_end_the_stream(void **state)
{
	(void)state;
	flood((struct kvp_tcp_preamble){
		.type = KVP_TCP_READ, .extents = 1, .bytes = 1000, .cache = SIDE_CACHE});
	flood((struct kvp_tcp_preamble){
		.type = KVP_TCP_WRITE, .extents = 1, .bytes = 1000, .cache = SIDE_CACHE});
	flood((struct kvp_tcp_preamble){.type = KVP_TCP_NOTIFY, .bytes = 8, .cache = SIDE_CACHE});
}

static void
refused_by_the_peer__ends_the_transfer_alone(void **state)
{
	(void)state;
	for (int is_push = 0; is_push < 2; is_push++) {
		struct rig rig;
		struct job job, good;
		int fd[2];

		rig_init(&rig, &small, &small);
		pair_unix(fd, 0);
		side_plug(&rig.a, fd[0]);
		side_plug(&rig.b, fd[1]);
		job = job_create(&rig.a, &rig.b, is_push != 0, 4, 1);
		memcpy(rig.a.model, rig.a.memory, rig.a.bytes);
		memcpy(rig.b.model, rig.b.memory, rig.b.bytes);
		job.transfer->remote_cache = 99;
		assert_true(rig_run(&rig, &job, 1));
		assert_int_equal(job_error(&job), KVP_CACHE_NOT_EXIST);
		assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
		assert_int_equal(job.part->bytes_done, 0);
		assert_int_equal(rig.a.lane.moved, 0);
		good = job_create(&rig.a, &rig.b, is_push != 0, 4, 2);
		assert_true(rig_run(&rig, &good, 1));
		assert_int_equal(rig.a.lane.moved, 1);
		assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
		assert_true(side_is_as_modelled(&rig.a));
		assert_true(side_is_as_modelled(&rig.b));
		job_free(&job);
		job_free(&good);
		rig_fini(&rig);
	}
}

static void
stop__waits_for_the_answers(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];
	uint32_t loops = 0;

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	pair_unix(fd, 1);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, true, 300, 1);
	job_step(&job, rig.now_ns);
	assert_true(job.part->requests_inflight > 0);
	kvp_transfer_stop(job.transfer, KVP_CANCELLED);
	assert_false(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	while (!kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns)) {
		rig_step(&rig, &job, 1);
		assert_true(++loops < 10000);
	}
	assert_true(loops > 0);
	assert_int_equal(job.part->requests_inflight, 0);
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	job_free(&job);
	rig_fini(&rig);
}

static void
stop__cuts_the_stream_when_no_answer_comes(void **state)
{
	uint8_t byte[512];
	struct rig rig;
	struct job job;
	ssize_t got;
	int fd[2];

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	pair_tcp(fd);
	side_plug(&rig.a, fd[0]);
	job = job_create(&rig.a, &rig.b, true, 300, 1);
	for (int i = 0; i < 20; i++)
		job_step(&job, rig.now_ns);
	assert_true(job.part->requests_inflight > 1);
	rig.now_ns += 1;
	assert_false(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	assert_int_equal(job.part->stop_ns, rig.now_ns);
	assert_false(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns + 99999999));
	assert_int_equal(rig.a.lane.failures, 0);
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns + 100000000));
	assert_int_equal(rig.a.lane.failures, 1);
	assert_int_equal(rig.a.lane.why, KVP_PEER_LOST);
	assert_int_equal(job.part->requests_inflight, 0);
	assert_int_equal(job.part->bytes_inflight, 0);
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	assert_int_equal(rig.a.lane.failures, 1);
	assert_false(rig.a.lane.wants_write);
	/* A reset, not an orderly end: the peer sees an error, at the latest behind what it has. */
	do
		got = recv(fd[1], byte, sizeof(byte), MSG_DONTWAIT);
	while (got > 0);
	assert_int_equal(got, -1);
	assert_int_equal(errno, ECONNRESET);
	close(fd[1]);
	job_free(&job);
	rig_fini(&rig);
}

/* It slept while the sender cut the stream: what its kernel still holds must not land any more. */
static void
cut__is_seen_by_a_receiver_that_slept(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	pair_tcp(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, true, 300, 1);
	memcpy(rig.b.model, rig.b.memory, rig.b.bytes);
	kvp_tcp_transport.progress(rig.b.endpoint, rig.now_ns);
	job_step(&job, rig.now_ns);
	kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns);
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part,
						rig.now_ns + KVP_TCP_DRAIN_NS));
	kvp_tcp_transport.progress(rig.b.endpoint, rig.now_ns + KVP_TCP_DRAIN_NS);
	assert_int_equal(rig.b.lane.failures, 1);
	assert_int_equal(rig.b.lane.why, KVP_PEER_LOST);
	assert_true(side_is_as_modelled(&rig.b));
	job_free(&job);
	rig_fini(&rig);
}

static void
peer_gone__in_the_middle_fails_the_endpoint(void **state)
{
	(void)state;
	for (int is_push = 0; is_push < 2; is_push++) {
		struct rig rig;
		struct job job;
		int fd[2];

		rig_init(&rig, &scattered, &scattered);
		pair_unix(fd, 1);
		side_plug(&rig.a, fd[0]);
		side_plug(&rig.b, fd[1]);
		job = job_create(&rig.a, &rig.b, is_push != 0, 300, 1);
		for (int i = 0; i < 5; i++)
			rig_step(&rig, &job, 1);
		assert_true(job.part->requests_inflight > 0);
		assert_int_equal(shutdown(rig.b.endpoint->fd, SHUT_RDWR), 0);
		assert_true(rig_run(&rig, &job, 1));
		for (int i = 0; i < 10 && rig.a.lane.failures == 0; i++)
			rig_step(&rig, &job, 1);
		assert_int_equal(rig.a.lane.failures, 1);
		assert_int_equal(rig.a.lane.why, KVP_PEER_LOST);
		assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
		assert_int_equal(job.part->requests_inflight, 0);
		job_free(&job);
		rig_fini(&rig);
	}
}

static void
withdraw(struct side *side)
{
	side->lane.cache = NULL;
	kvp_tcp_transport.cache_gone(side->endpoint, SIDE_CACHE);
}

/* After `steps` loops one side's cache goes: nothing in it changes any more, the stream lives on. */
static void
gone_after(uint32_t steps, bool is_push, bool is_local)
{
	struct rig rig;
	struct side *side;
	struct job job, next;
	uint32_t loops = 0;
	int fd[2];

	rig_init(&rig, &scattered, &scattered);
	pair_unix(fd, 1);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, is_push, 300, steps);
	for (uint32_t i = 0; i < steps; i++)
		rig_step(&rig, &job, 1);
	side = is_local ? &rig.a : &rig.b;
	withdraw(side);
	if (is_local)
		kvp_transfer_stop(job.transfer, KVP_CACHE_NOT_EXIST);
	memcpy(side->model, side->memory, side->bytes);
	assert_true(rig_run(&rig, &job, 1));
	while (!kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns)) {
		rig_step(&rig, &job, 1);
		assert_true(++loops < 20000);
	}
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	if (job.part->bytes_done < job.part->bytes)
		assert_int_equal(job_error(&job), KVP_CACHE_NOT_EXIST);
	if (!is_push || !is_local)
		assert_true(side_is_as_modelled(side));
	/* The framing is whole: another transfer gets through. */
	side->lane.cache = &side->cache;
	next = job_create(&rig.a, &rig.b, true, 10, 77);
	assert_true(rig_run(&rig, &next, 1));
	assert_int_equal(job_error(&next), KVP_SUCCESS);
	assert_int_equal(next.part->bytes_done, next.part->bytes);
	job_free(&job);
	job_free(&next);
	rig_fini(&rig);
}

static void
cache_gone__at_any_time_is_silence(void **state)
{
	(void)state;
	for (uint32_t steps = 1; steps < 40; steps++) {
		gone_after(steps, true, false);
		gone_after(steps, false, false);
		gone_after(steps, false, true);
		gone_after(steps, true, true);
	}
}

/*
 * After `steps` loops the link ends at the side that is written to or read from: its memory is
 * neither written nor read any more, and the asker is told.
 */
static void
down_after(uint32_t steps, bool is_push)
{
	static const uint8_t used[16] = {0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD,
					 0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD, 0xDD};
	struct rig rig;
	struct job job;
	uint32_t loops = 0;
	int fd[2];

	rig_init(&rig, &scattered, &scattered);
	pair_unix(fd, 1);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, is_push, 300, steps);
	for (uint32_t i = 0; i < steps; i++)
		rig_step(&rig, &job, 1);
	rig.b.endpoint->is_down = true;
	rig.b.endpoint->down_status = KVP_NOT_YET_LINK;
	kvp_tcp_transport.down(rig.b.endpoint);
	/* The memory has another use from here on. */
	memset(rig.b.memory, 0xDD, rig.b.bytes);
	memcpy(rig.b.model, rig.b.memory, rig.b.bytes);
	assert_true(rig_run(&rig, &job, 1));
	while (!kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns)) {
		rig_step(&rig, &job, 1);
		assert_true(++loops < 20000);
	}
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	if (job.part->bytes_done < job.part->bytes)
		assert_int_equal(job_error(&job), KVP_NOT_YET_LINK);
	assert_true(side_is_as_modelled(&rig.b));
	assert_null(memmem(rig.a.memory, rig.a.bytes, used, sizeof(used)));
	job_free(&job);
	rig_fini(&rig);
}

static void
down__at_any_time_is_silence(void **state)
{
	(void)state;
	for (uint32_t steps = 0; steps < 40; steps++) {
		down_after(steps, true);
		down_after(steps, false);
	}
}

/* The owner's memory goes while it is being sent: the puller gets zeros and is told. */
static void
cache_gone__halfway_out_sends_zeros(void **state)
{
	static uint8_t stream[700 * 1000];
	const struct kvp_tcp_extent extent[2] = {{0, 1000, 0}, {1, 1000, 1024}};
	uint8_t tail[KVP_TCP_PREAMBLE];
	struct kvp_tcp_preamble p;
	struct kvp_tcp_tx *tx;
	struct peer peer;
	size_t got = 0;

	(void)state;
	peer_init(&peer, &scattered);
	tx = &kvp_tcp_of(peer.rig.a.endpoint)->tx;
	/* As if the socket had taken the head and the first 300 bytes. */
	peer_send_head(&peer,
		       &(struct kvp_tcp_preamble){.type = KVP_TCP_READ,
						  .extents = 2,
						  .bytes = 2000,
						  .request = 5,
						  .cache = SIDE_CACHE},
		       extent);
	for (int full = 1; full != 0;)
		full = send(peer.rig.a.endpoint->fd, stream, 4096, MSG_DONTWAIT) > 0;
	peer_step(&peer);
	assert_true(kvp_tcp_tx_is_busy(kvp_tcp_of(peer.rig.a.endpoint)));
	assert_true(tx->is_serving);
	tx->iov_first = 1;
	tx->iov[1].iov_base = (uint8_t *)tx->iov[1].iov_base + 300;
	tx->iov[1].iov_len -= 300;
	withdraw(&peer.rig.a);
	memset(peer.rig.a.memory, 0xDD, peer.rig.a.bytes);
	while (recv(peer.fd, stream, sizeof(stream), MSG_DONTWAIT) > 0)
		continue;
	peer_step(&peer);
	for (ssize_t more = 1; more > 0; got += more > 0 ? (size_t)more : 0)
		more = recv(peer.fd, stream + got, sizeof(stream) - got, MSG_DONTWAIT);
	assert_int_equal(got, 1700 + KVP_TCP_PREAMBLE);
	for (size_t i = 0; i < 1700; i++)
		assert_int_equal(stream[i], 0);
	memcpy(tail, stream + 1700, sizeof(tail));
	assert_true(kvp_tcp_preamble_decode(tail, &p));
	assert_int_equal(p.type, KVP_TCP_READ_END);
	assert_int_equal(p.request, 5);
	assert_int_equal(p.status, KVP_CACHE_NOT_EXIST);
	assert_int_equal(peer.rig.a.lane.failures, 0);
	peer_fini(&peer);
}

/* A WRITE whose cache goes while its payload comes: what came stays, the rest goes nowhere. */
static void
cache_gone__halfway_in_stops_the_write(void **state)
{
	const struct kvp_tcp_extent extent[2] = {{0, 100, 0}, {1, 100, 128}};
	struct kvp_tcp_preamble p;
	uint8_t payload[200];
	struct peer peer;

	(void)state;
	memset(payload, 0xEE, sizeof(payload));
	peer_init(&peer, &small);
	peer_send_head(&peer,
		       &(struct kvp_tcp_preamble){.type = KVP_TCP_WRITE,
						  .extents = 2,
						  .bytes = 200,
						  .request = 5,
						  .cache = SIDE_CACHE},
		       extent);
	peer_send(&peer, payload, 150);
	peer_step(&peer);
	withdraw(&peer.rig.a);
	memcpy(peer.rig.a.model, peer.rig.a.memory, peer.rig.a.bytes);
	peer_send(&peer, payload, 50);
	peer_step(&peer);
	p = peer_receive(&peer);
	assert_int_equal(p.type, KVP_TCP_WRITE_ACK);
	assert_int_equal(p.request, 5);
	assert_int_equal(p.status, KVP_CACHE_NOT_EXIST);
	assert_true(side_is_as_modelled(&peer.rig.a));
	assert_int_equal(peer.rig.a.lane.failures, 0);
	peer_fini(&peer);
}

/* A pull of 1600 bytes of which `before` came when the local cache went; the peer says that all is well. */
static void
pull_gone(size_t before)
{
	struct kvp_tcp_preamble asked, p = {.type = KVP_TCP_READ_DATA, .bytes = 1600};
	uint8_t payload[1600];
	struct peer peer;
	struct job job;

	memset(payload, 0xEE, sizeof(payload));
	peer_init(&peer, &small);
	job = job_create(&peer.rig.a, &peer.rig.b, false, 4, 1);
	assert_int_equal(job_step(&job, peer.rig.now_ns), 1);
	asked = peer_receive(&peer);
	assert_int_equal(asked.bytes, 1600);
	p.request = asked.request;
	if (before > 0) {
		peer_send_head(&peer, &p, NULL);
		peer_send(&peer, payload, before);
		peer_step(&peer);
	}
	withdraw(&peer.rig.a);
	memcpy(peer.rig.a.model, peer.rig.a.memory, peer.rig.a.bytes);
	if (before == 0)
		peer_send_head(&peer, &p, NULL);
	peer_send(&peer, payload, sizeof(payload) - before);
	p.type = KVP_TCP_READ_END;
	p.bytes = 0;
	peer_send_head(&peer, &p, NULL);
	peer_step(&peer);
	assert_int_equal(peer.rig.a.lane.failures, 0);
	assert_int_equal(job.part->requests_inflight, 0);
	assert_int_equal(job.part->bytes_done, 0);
	assert_int_equal(job_error(&job), KVP_CACHE_NOT_EXIST);
	assert_true(side_is_as_modelled(&peer.rig.a));
	job_free(&job);
	peer_fini(&peer);
}

static void
cache_gone__during_a_pull_lets_nothing_in(void **state)
{
	static const size_t before[] = {0, 1, 99, 100, 101, 1599, 1600};

	(void)state;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		pull_gone(before[i]);
}

/* After the payload of READ_DATA only its READ_END may come. */
static void
read_data__without_its_end_ends_the_stream(void **state)
{
	const struct kvp_tcp_preamble other[] = {
		{.type = KVP_TCP_READ_DATA, .bytes = 1600},
		{.type = KVP_TCP_READ_DATA, .status = KVP_CACHE_NOT_EXIST},
		{.type = KVP_TCP_READ_END, .request = 1},
		{.type = KVP_TCP_NOTIFY, .bytes = 8, .cache = SIDE_CACHE},
	};
	uint8_t payload[1600] = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		struct kvp_tcp_preamble next = other[i];
		struct kvp_tcp_preamble asked;
		struct peer peer;
		struct job job;

		peer_init(&peer, &small);
		job = job_create(&peer.rig.a, &peer.rig.b, false, 4, 1);
		assert_int_equal(job_step(&job, peer.rig.now_ns), 1);
		asked = peer_receive(&peer);
		peer_send_head(&peer,
			       &(struct kvp_tcp_preamble){.type = KVP_TCP_READ_DATA,
							  .bytes = 1600,
							  .request = asked.request},
			       NULL);
		peer_send(&peer, payload, sizeof(payload));
		peer_step(&peer);
		assert_int_equal(peer.rig.a.lane.failures, 0);
		assert_int_equal(job.part->requests_inflight, 1); /* not before its end */
		next.request += asked.request;
		peer_send_head(&peer, &next, NULL);
		peer_send(&peer, payload, 8);
		peer_step(&peer);
		assert_int_equal(peer.rig.a.lane.failures, 1);
		assert_int_equal(peer.rig.a.lane.why, KVP_PROTOCOL);
		assert_int_equal(peer.rig.a.inbox.events, 0);
		job_free(&job);
		peer_fini(&peer);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write__refused_writes_nothing_and_keeps_the_stream),
		cmocka_unit_test(write__refused_and_large_is_taken_off_in_steps),
		cmocka_unit_test(read__refused_sends_nothing_of_the_memory),
		cmocka_unit_test(right__that_the_peer_lacks_is_refused),
		cmocka_unit_test(device_memory__is_not_touched),
		cmocka_unit_test(malformed__ends_the_stream),
		cmocka_unit_test(answers__to_nothing_end_the_stream),
		cmocka_unit_test(answers__of_the_wrong_kind_end_the_stream),
		cmocka_unit_test(ack__before_the_request_has_left_ends_the_stream),
		cmocka_unit_test(requests__without_end_end_the_stream),
		cmocka_unit_test(refused_by_the_peer__ends_the_transfer_alone),
		cmocka_unit_test(stop__waits_for_the_answers),
		cmocka_unit_test(stop__cuts_the_stream_when_no_answer_comes),
		cmocka_unit_test(cut__is_seen_by_a_receiver_that_slept),
		cmocka_unit_test(peer_gone__in_the_middle_fails_the_endpoint),
		cmocka_unit_test(cache_gone__at_any_time_is_silence),
		cmocka_unit_test(down__at_any_time_is_silence),
		cmocka_unit_test(cache_gone__halfway_out_sends_zeros),
		cmocka_unit_test(cache_gone__halfway_in_stops_the_write),
		cmocka_unit_test(cache_gone__during_a_pull_lets_nothing_in),
		cmocka_unit_test(read_data__without_its_end_ends_the_stream),
	};

	return cmocka_run_group_tests_name("dataplane/tcp peer", tests, NULL, NULL);
}
