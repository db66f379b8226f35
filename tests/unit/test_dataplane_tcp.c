/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_tcp.c - two endpoints that do what they are asked
 *
 * links: dataplane/tcp/tcp_wire_fast.o dataplane/tcp/tcp_setup.o dataplane/tcp/tcp_stream_setup.o
 *        dataplane/tcp/tcp_send_fast.o dataplane/tcp/tcp_receive_fast.o dataplane/reactor.o
 *        dataplane/wake.o engine/check.o engine/error.o engine/cursor.o engine/layout.o
 *        engine/plan.o engine/tally.o engine/transfer.o engine/wire.o engine/rights.o
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tcp_job.h"

/* Scattered pieces; neighbours that touch on both sides; pieces of more than a request. */
static const struct side_shape scattered = {.blocks = 300, .block_bytes = 1000, .stride = 1024};
static const struct side_shape dense = {.blocks = 300, .block_bytes = 1000, .stride = 1000};
static const struct side_shape large = {.blocks = 4, .block_bytes = 1500000, .stride = 1500008};
static const struct side_shape small = {.blocks = 12, .block_bytes = 100, .stride = 128};

static void
move(const struct side_shape *a, const struct side_shape *b, bool is_push, uint32_t count,
     uint64_t seed, void (*plug)(int fd[2]))
{
	struct rig rig;
	struct job job;
	int fd[2];

	rig_init(&rig, a, b);
	plug(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, is_push, count, seed);
	assert_true(rig_run(&rig, &job, 1));
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	assert_int_equal(job_error(&job), KVP_SUCCESS);
	assert_int_equal(rig.a.lane.moved, 1);
	assert_int_equal(job.part->bytes_done, job.part->bytes);
	assert_int_equal(job.part->bytes_inflight, 0);
	assert_true(side_is_as_modelled(&rig.a));
	assert_true(side_is_as_modelled(&rig.b));
	assert_true(job.peak_bytes <= rig.a.dataplane.window_bytes);
	assert_true(job.peak_requests <= rig.a.dataplane.window_requests);
	assert_int_equal(is_push ? rig.a.endpoint->bytes_out : rig.a.endpoint->bytes_in,
			 job.part->bytes);
	assert_int_equal(rig.a.endpoint->requests, job.transfer->requests);
	assert_true(rig.a.endpoint->pieces >= rig.a.endpoint->requests);
	job_free(&job);
	rig_fini(&rig);
}

static void
plug_unix(int fd[2])
{
	pair_unix(fd, 0);
}

static void
plug_tight(int fd[2])
{
	pair_unix(fd, 1);
}

static void
push__lands_as_modelled(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 6; seed++) {
		print_message("seed %lu\n", (unsigned long)seed);
		move(&scattered, &scattered, true, 200, seed, pair_tcp);
		move(&scattered, &dense, true, 300, seed, plug_unix);
		move(&dense, &dense, true, 299, seed, plug_tight);
		move(&small, &scattered, true, 1, seed, plug_tight);
	}
}

static void
small_to(const struct side_shape *shape, bool is_push)
{
	const struct side_shape same = {
		.blocks = 9, .block_bytes = shape->block_bytes, .stride = shape->stride + 24};

	move(&same, shape, is_push, 4, 3, plug_unix);
	move(&same, shape, is_push, 4, 3, plug_tight);
	move(&same, shape, is_push, 4, 3, pair_tcp);
}

static void
large_blocks__are_cut_into_requests(void **state)
{
	(void)state;
	small_to(&large, true);
	small_to(&large, false);
}

static void
pull__lands_as_modelled(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 6; seed++) {
		print_message("seed %lu\n", (unsigned long)seed);
		move(&scattered, &scattered, false, 200, seed, pair_tcp);
		move(&scattered, &dense, false, 300, seed, plug_unix);
		move(&dense, &dense, false, 299, seed, plug_tight);
	}
}

/*
 * Both sides push, pull, or do both. Pushes come out of `from`, pulls go into `into`, so that no source
 * changes while it is read, except what is pulled while it is pushed over.
 */
static void
all_at_once(const struct side_shape *shape, bool has_pushes, bool has_pulls,
	    void (*plug)(int fd[2]))
{
	struct rig rig, from, into;
	struct job job[4];
	uint32_t jobs = 0;
	int fd[2];

	rig_init(&rig, shape, shape);
	rig_init(&from, shape, shape);
	rig_init(&into, shape, shape);
	side_fill(&from.a, 33);
	side_fill(&from.b, 44);
	plug(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	if (has_pushes) {
		job[jobs++] = job_create(&from.a, &rig.b, true, 200, 1);
		job[jobs++] = job_create(&from.b, &rig.a, true, 200, 2);
	}
	if (has_pulls) {
		job[jobs++] = job_create(&into.a, &rig.b, false, 200, 3);
		job[jobs++] = job_create(&into.b, &rig.a, false, 200, 4);
	}
	for (uint32_t i = 0; i < jobs; i++)
		job[i].part->endpoint = i % 2 == 0 ? rig.a.endpoint : rig.b.endpoint;
	assert_true(rig_run(&rig, job, jobs));
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	assert_int_equal(rig.a.lane.moved, jobs / 2);
	assert_int_equal(rig.b.lane.moved, jobs / 2);
	assert_true(side_is_as_modelled(&rig.a));
	assert_true(side_is_as_modelled(&rig.b));
	assert_true(has_pushes || side_is_as_modelled(&into.a));
	assert_true(has_pushes || side_is_as_modelled(&into.b));
	for (uint32_t i = 0; i < jobs; i++) {
		assert_int_equal(job_error(&job[i]), KVP_SUCCESS);
		assert_int_equal(job[i].part->bytes_done, job[i].part->bytes);
		job_free(&job[i]);
	}
	rig_fini(&rig);
	rig_fini(&from);
	rig_fini(&into);
}

static void
both_directions__land_and_do_not_lock_each_other(void **state)
{
	(void)state;
	for (int mode = 1; mode < 4; mode++) {
		all_at_once(&scattered, mode & 1, mode & 2, plug_tight);
		all_at_once(&scattered, mode & 1, mode & 2, plug_unix);
		all_at_once(&scattered, mode & 1, mode & 2, pair_tcp);
		all_at_once(&dense, mode & 1, mode & 2, plug_tight);
	}
}

/* Carry at most `most` bytes from one socket to another. */
static bool
carry(int from, int to, size_t most)
{
	uint8_t buffer[4096];
	ssize_t got = recv(from, buffer, most, MSG_DONTWAIT);

	if (got <= 0)
		return false;
	assert_int_equal(send(to, buffer, (size_t)got, MSG_NOSIGNAL), got);
	return true;
}

/* The stream arrives in crumbs of `crumb` bytes, so every boundary is a place to stop and go on. */
static void
crumbs(size_t crumb, bool is_push)
{
	struct rig rig;
	struct job job;
	int left[2], right[2];

	rig_init(&rig, &small, &small);
	pair_unix(left, 0);
	pair_unix(right, 0);
	side_plug(&rig.a, left[0]);
	side_plug(&rig.b, right[0]);
	job = job_create(&rig.a, &rig.b, is_push, 12, crumb);
	job.transfer->has_notify = true;
	job.transfer->notify_bytes = 5;
	job.transfer->notify_tag = 99;
	memcpy(job.transfer->notify_payload, "hello", 5);
	for (int loop = 0; loop < 200000 && rig.a.lane.moved == 0; loop++) {
		rig_step(&rig, &job, 1);
		carry(left[1], right[1], crumb);
		carry(right[1], left[1], crumb);
	}
	assert_int_equal(rig.a.lane.moved, 1);
	for (int loop = 0; loop < 1000 && rig.b.inbox.events == 0; loop++) {
		kvp_tcp_transport.notify(rig.a.endpoint, job.part, rig.now_ns);
		rig_step(&rig, &job, 0);
		carry(left[1], right[1], crumb);
		carry(right[1], left[1], crumb);
	}
	assert_int_equal(rig.b.inbox.events, 1);
	assert_memory_equal(rig.b.inbox.event[0].payload, "hello", 5);
	assert_int_equal(rig.a.lane.failures + rig.b.lane.failures, 0);
	assert_true(side_is_as_modelled(&rig.a));
	assert_true(side_is_as_modelled(&rig.b));
	close(left[1]);
	close(right[1]);
	job_free(&job);
	rig_fini(&rig);
}

static void
crumbs__of_any_size_are_put_together(void **state)
{
	static const size_t crumb[] = {1, 2, 3, 7, 16, 31, 32, 33, 47, 48, 63, 64, 100, 1055, 2049};

	(void)state;
	for (size_t i = 0; i < sizeof(crumb) / sizeof(crumb[0]); i++) {
		crumbs(crumb[i], true);
		crumbs(crumb[i], false);
	}
}

static void
window__is_never_exceeded(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	plug_unix(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	/* Window fields are copied at create, so set them where the lane reads them. */
	kvp_tcp_of(rig.a.endpoint)->window_bytes = 70000;
	job = job_create(&rig.a, &rig.b, true, 300, 5);
	/* The peer does not run: only the window may stop it. */
	for (int i = 0; i < 100; i++)
		job_step(&job, rig.now_ns);
	/* And its rest of 6000 bytes does not become a request: the next ones would stay that small. */
	assert_int_equal(job.part->bytes_inflight, 64000);
	assert_int_equal(job.part->requests_inflight, 1);
	kvp_tcp_of(rig.a.endpoint)->window_requests = 1;
	assert_true(rig_run(&rig, &job, 1));
	assert_true(job.peak_bytes <= 70000);
	assert_true(side_is_as_modelled(&rig.b));
	job_free(&job);
	kvp_tcp_of(rig.a.endpoint)->window_bytes = 4U << 20;
	job = job_create(&rig.a, &rig.b, false, 300, 6);
	assert_true(rig_run(&rig, &job, 1));
	assert_int_equal(job.peak_requests, 1);
	job_free(&job);
	rig_fini(&rig);
}

static void
slots__run_out_without_harm(void **state)
{
	struct rig rig;
	struct job job[3];
	int fd[2];

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	plug_unix(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	kvp_tcp_of(rig.a.endpoint)->window_requests = 1000;
	for (int i = 0; i < 3; i++)
		job[i] = job_create(&rig.a, &rig.b, false, 300, 7);
	/* READs are small, so all slots are taken before the socket is full: 3 x 19 > 64 - 7. */
	for (int i = 0; i < 100; i++)
		for (int k = 0; k < 3; k++)
			job_step(&job[k], rig.now_ns);
	assert_int_equal(
		kvp_tcp_of(rig.a.endpoint)->slots_free == 0 || job[2].part->cursor.left == 0, true);
	assert_true(rig_run(&rig, job, 3));
	assert_int_equal(rig.a.lane.moved, 3);
	assert_true(side_is_as_modelled(&rig.a));
	for (int i = 0; i < 3; i++)
		job_free(&job[i]);
	rig_fini(&rig);
}

static int
notify_for(struct rig *rig, struct job *job, uint32_t loops)
{
	int rc = 0;

	for (uint32_t i = 0; i < loops && rc == 0; i++) {
		rc = kvp_tcp_transport.notify(rig->a.endpoint, job->part, rig->now_ns);
		rig_step(rig, job, 0);
	}
	return rc;
}

static void
notify__waits_for_credit_and_is_tried_again(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];

	(void)state;
	rig_init(&rig, &small, &small);
	plug_unix(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, true, 3, 1);
	job.transfer->notify_bytes = KVP_NOTIFY_BYTES_MAX;
	job.transfer->notify_tag = UINT64_C(0x123456789abcdef0);
	memset(job.transfer->notify_payload, 0xA5, KVP_NOTIFY_BYTES_MAX);
	assert_true(rig_run(&rig, &job, 1));
	rig.b.inbox.free = 0;
	/* On its way is not refused: a deadline now would be a TIMEOUT. */
	job.part->is_refused = true;
	assert_int_equal(kvp_tcp_transport.notify(rig.a.endpoint, job.part, rig.now_ns), 0);
	assert_false(job.part->is_refused);
	assert_int_equal(notify_for(&rig, &job, 20), 0);
	assert_int_equal(job.part->notify_state, KVP_NOTIFY_REFUSED);
	assert_int_equal(job.part->requests_inflight, 0);
	assert_true(job.part->is_refused);
	assert_false(kvp_tcp_transport.arm(rig.a.endpoint)); /* the lane may nap meanwhile */
	/* It stays refused while it is tried again, so that a deadline finds the reason. */
	for (int i = 0; i < 5000; i++) {
		assert_int_equal(notify_for(&rig, &job, 1), 0);
		assert_int_equal(job.part->notify_state, KVP_NOTIFY_REFUSED);
	}
	/* 5000 loops are 5 ms: about one try per ms, not one per loop. */
	assert_in_range(kvp_tcp_of(rig.a.endpoint)->generation, 4, 10);
	rig.b.inbox.free = 1;
	assert_int_equal(notify_for(&rig, &job, 3000), 1);
	assert_int_equal(kvp_tcp_transport.notify(rig.a.endpoint, job.part, rig.now_ns), 1);
	assert_false(kvp_tcp_transport.arm(rig.a.endpoint));
	assert_int_equal(rig.b.inbox.events, 1);
	assert_int_equal(rig.b.inbox.producer, 3);
	assert_int_equal(rig.b.inbox.event[0].kind, KVP_EVENT_PUSH_ARRIVED);
	assert_int_equal(rig.b.inbox.event[0].status, KVP_SUCCESS);
	assert_int_equal(rig.b.inbox.event[0].cluster_id, 42);
	assert_int_equal(rig.b.inbox.event[0].cache, SIDE_CACHE);
	assert_int_equal(rig.b.inbox.event[0].tag, UINT64_C(0x123456789abcdef0));
	assert_int_equal(rig.b.inbox.event[0].bytes, job.part->bytes);
	assert_int_equal(rig.b.inbox.event[0].payload_bytes, KVP_NOTIFY_BYTES_MAX);
	assert_memory_equal(rig.b.inbox.event[0].payload, job.transfer->notify_payload,
			    KVP_NOTIFY_BYTES_MAX);
	job_free(&job);
	rig_fini(&rig);
}

static void
notify__stopped_while_refused_is_forgotten(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];

	(void)state;
	rig_init(&rig, &small, &small);
	plug_unix(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, true, 3, 1);
	assert_true(rig_run(&rig, &job, 1));
	rig.b.inbox.free = 0;
	assert_int_equal(notify_for(&rig, &job, 20), 0);
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	assert_false(kvp_tcp_transport.arm(rig.a.endpoint));
	assert_int_equal(rig.a.lane.failures, 0);
	job_free(&job);
	rig_fini(&rig);
}

static void
notify__for_a_withdrawn_cache_ends_the_transfer(void **state)
{
	struct rig rig;
	struct job job;
	int fd[2];

	(void)state;
	rig_init(&rig, &small, &small);
	plug_unix(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	job = job_create(&rig.a, &rig.b, true, 3, 1);
	assert_true(rig_run(&rig, &job, 1));
	rig.b.lane.cache = NULL;
	assert_int_equal(notify_for(&rig, &job, 20), 0);
	assert_int_equal(job_error(&job), KVP_CACHE_NOT_EXIST);
	assert_int_equal(rig.b.inbox.events, 0);
	assert_true(kvp_tcp_transport.stop_part(rig.a.endpoint, job.part, rig.now_ns));
	job_free(&job);
	rig_fini(&rig);
}

/* A peer that pulls all the time must not keep the owner's pushes off the stream. */
static void
pulls__do_not_starve_pushes(void **state)
{
	struct rig rig;
	struct job push, pull;
	int fd[2];

	(void)state;
	rig_init(&rig, &scattered, &scattered);
	plug_tight(fd);
	side_plug(&rig.a, fd[0]);
	side_plug(&rig.b, fd[1]);
	push = job_create(&rig.a, &rig.b, true, 1, 1);
	pull = job_create(&rig.b, &rig.a, false, 300, 2);
	for (int loop = 0; loop < 200000 && rig.a.lane.moved == 0; loop++) {
		rig.now_ns += 1000;
		if (pull.part->phase != KVP_PART_MOVING || pull.part->cursor.left == 0) {
			assert_true(loop > 10);
			pull.part->phase = KVP_PART_MOVING;
			pull.part->bytes = UINT64_MAX; /* never through */
			kvp_cursor_init(&pull.part->cursor, &pull.transfer->plan, 0,
					pull.transfer->plan.bytes);
		}
		kvp_tcp_transport.progress(rig.b.endpoint, rig.now_ns);
		job_step(&pull, rig.now_ns);
		kvp_tcp_transport.progress(rig.a.endpoint, rig.now_ns);
		/* Only once the pull fills the stream. */
		if (loop > 10)
			job_step(&push, rig.now_ns);
	}
	assert_int_equal(rig.a.lane.moved, 1);
	assert_true(pull.part->requests_inflight > 0);
	job_free(&push);
	job_free(&pull);
	rig_fini(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(push__lands_as_modelled),
		cmocka_unit_test(large_blocks__are_cut_into_requests),
		cmocka_unit_test(pull__lands_as_modelled),
		cmocka_unit_test(both_directions__land_and_do_not_lock_each_other),
		cmocka_unit_test(crumbs__of_any_size_are_put_together),
		cmocka_unit_test(window__is_never_exceeded),
		cmocka_unit_test(slots__run_out_without_harm),
		cmocka_unit_test(notify__waits_for_credit_and_is_tried_again),
		cmocka_unit_test(notify__stopped_while_refused_is_forgotten),
		cmocka_unit_test(notify__for_a_withdrawn_cache_ends_the_transfer),
		cmocka_unit_test(pulls__do_not_starve_pushes),
	};

	return cmocka_run_group_tests_name("dataplane/tcp", tests, NULL, NULL);
}
