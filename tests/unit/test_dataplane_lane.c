/* SPDX-License-Identifier: Apache-2.0 */
/* The loop body, driven by hand: no thread, no clock, every case the same each time. */
#include "lane_state.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include <cmocka.h>

#include "fake/transport.h"
#include "reactor.h"

#define BYTES    (64U * 1024)
#define FAR_NS   1000000000U
#define LOOPS    10000U
#define FAKE_MAX 4U

struct stage {
	struct kvp_reactor reactor;
	struct kvp_lane *lane;
	struct kvp_fake_endpoint *fake[FAKE_MAX];
	uint32_t fakes;
	uint8_t src[BYTES];
	uint8_t dst[FAKE_MAX][BYTES];
	_Atomic uint32_t hold;
	uint64_t now_ns;
};

static struct stage stage;

static void
add_fake(const struct kvp_fake_config *config)
{
	struct kvp_error err = {""};
	struct kvp_fake_config here = *config;

	here.lane = stage.lane;
	stage.fake[stage.fakes] = kvp_fake_endpoint_create(&here);
	assert_int_equal(kvp_lane_attach(stage.lane, &stage.fake[stage.fakes]->base, &err),
			 KVP_SUCCESS);
	stage.fakes++;
}

static int
set_up(void **state)
{
	const struct kvp_lane_config config = {
		.index = 3, .cpu = -1, .ring_parts = 64, .reactor = &stage.reactor};
	struct kvp_error err = {""};

	(void)state;
	memset(&stage, 0, sizeof(stage));
	for (uint32_t i = 0; i < BYTES; i++)
		stage.src[i] = (uint8_t)(i * 7 + (i >> 8));
	if (kvp_reactor_init(&stage.reactor) != 0)
		return -1;
	return kvp_lane_prepare(&config, &stage.lane, &err) == KVP_SUCCESS ? 0 : -1;
}

static int
tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < stage.fakes; i++) {
		kvp_lane_detach(stage.lane, &stage.fake[i]->base);
		kvp_fake_endpoint_destroy(stage.fake[i]);
	}
	kvp_lane_release(stage.lane);
	kvp_reactor_fini(&stage.reactor);
	return atomic_load(&stage.hold) == 0 ? 0 : -1;
}

/* To dst[slot], over endpoints first, first + 1, ... */
static struct kvp_fake_transfer *
order(uint32_t slot, uint32_t first, uint32_t splits, bool has_notify)
{
	const struct kvp_fake_order wanted = {.src = stage.src,
					      .dst = stage.dst[slot],
					      .bytes = BYTES,
					      .submit_ns = stage.now_ns,
					      .deadline_ns = stage.now_ns + FAR_NS,
					      .has_notify = has_notify,
					      .local_cache = 1,
					      .hold = &stage.hold,
					      .endpoint = &stage.fake[first],
					      .splits = splits};

	atomic_fetch_add(&stage.hold, 1);
	return kvp_fake_transfer_create(&wanted);
}

static struct kvp_fake_transfer *
submit(uint32_t slot, uint32_t first, uint32_t splits, bool has_notify)
{
	struct kvp_fake_transfer *fake = order(slot, first, splits, has_notify);

	assert_true(kvp_fake_transfer_submit(fake));
	return fake;
}

static kvp_status
status_of(const struct kvp_fake_transfer *fake)
{
	return kvp_transfer_status(&fake->transfer);
}

static void
run(uint32_t loops)
{
	for (uint32_t i = 0; i < loops; i++)
		(void)kvp_lane_run_once(stage.lane, ++stage.now_ns);
}

static kvp_status
run_to_end(const struct kvp_fake_transfer *fake)
{
	for (uint32_t i = 0; i < LOOPS && status_of(fake) == KVP_IN_PROGRESS; i++)
		run(1);
	return status_of(fake);
}

static void
stall(uint32_t i, bool is_stalled)
{
	atomic_store(&stage.fake[i]->is_stalled, is_stalled);
}

static const struct kvp_fake_config plain = {
	.seed = 1, .delay_max = 3, .step_bytes = 4096, .window = 4};

static void
lane_submit__all_or_none(void **state)
{
	struct kvp_fake_transfer *fake[16];
	struct kvp_fake_transfer *extra;

	(void)state;
	for (uint32_t i = 0; i < FAKE_MAX; i++)
		add_fake(&plain);
	for (uint32_t i = 0; i < 15; i++)
		fake[i] = submit(0, 0, 4, false);
	fake[15] = submit(0, 0, 3, false); /* 63 of 64 */
	extra = order(0, 0, 2, false);
	assert_false(kvp_fake_transfer_submit(extra));
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(run_to_end(fake[i]), KVP_SUCCESS);
		kvp_fake_transfer_destroy(fake[i]);
	}
	assert_int_equal(status_of(extra), KVP_IN_PROGRESS);
	assert_true(kvp_fake_transfer_submit(extra));
	assert_int_equal(run_to_end(extra), KVP_SUCCESS);
	kvp_fake_transfer_destroy(extra);
}

static void
lane_run_once__moves_all_bytes_and_counts(void **state)
{
	struct kvp_fake_transfer *fake;
	struct kvp_lane_totals totals;

	(void)state;
	add_fake(&plain);
	run(5);
	fake = submit(0, 0, 1, false);
	assert_int_equal(run_to_end(fake), KVP_SUCCESS);
	assert_memory_equal(stage.dst[0], stage.src, BYTES);
	assert_int_equal(atomic_load(&fake->transfer.moved), BYTES);
	assert_int_equal(atomic_load(&fake->transfer.end_ns), stage.now_ns);
	assert_int_equal(atomic_load(&stage.fake[0]->base.bytes_out), BYTES);
	assert_null(stage.fake[0]->base.active);
	kvp_lane_totals(stage.lane, &totals);
	assert_int_equal(totals.loops, stage.now_ns);
	assert_true(totals.busy_loops > 0 && totals.busy_loops <= totals.loops - 5);
	kvp_fake_transfer_destroy(fake);
}

static void
lane_run_once__end_is_not_before_submit(void **state)
{
	struct kvp_fake_transfer *fake;

	(void)state;
	add_fake(&(struct kvp_fake_config){.step_bytes = BYTES, .window = 1});
	fake = order(0, 0, 1, false);
	fake->transfer.submit_ns = 1000;
	assert_true(kvp_fake_transfer_submit(fake));
	run(1);
	assert_int_equal(status_of(fake), KVP_SUCCESS);
	assert_int_equal(atomic_load(&fake->transfer.end_ns), 1000);
	kvp_fake_transfer_destroy(fake);
}

static void
lane_run_once__big_transfer_does_not_starve_small(void **state)
{
	struct kvp_fake_transfer *big[8];
	struct kvp_fake_transfer *small;
	uint64_t before;

	(void)state;
	/* One request per step: a transfer of BYTES takes 4096 steps. */
	add_fake(&(struct kvp_fake_config){.step_bytes = 16, .window = 1});
	for (uint32_t i = 0; i < 8; i++)
		big[i] = submit(0, 0, 1, false);
	run(1);
	small = order(1, 0, 1, false);
	small->transfer.part[0].cursor.left = 64;
	small->transfer.part[0].bytes = 64;
	before = atomic_load(&stage.fake[0]->posts);
	assert_true(kvp_fake_transfer_submit(small));
	while (status_of(small) == KVP_IN_PROGRESS)
		run(1);
	/* Four steps of its own, and at most five of each of the others and a loop's rest. */
	assert_true(atomic_load(&stage.fake[0]->posts) - before <= 4 + 5 * 8 + 4);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(run_to_end(big[i]), KVP_SUCCESS);
	for (uint32_t i = 0; i < 8; i++)
		kvp_fake_transfer_destroy(big[i]);
	kvp_fake_transfer_destroy(small);
}

static void
lane_run_once__equal_transfers_stay_abreast(void **state)
{
	struct kvp_fake_transfer *fake[4];

	(void)state;
	add_fake(&(struct kvp_fake_config){.step_bytes = 256, .window = 1});
	for (uint32_t i = 0; i < 4; i++)
		fake[i] = submit(i, 0, 1, false);
	for (;;) {
		uint64_t least = UINT64_MAX;
		uint64_t most = 0;

		run(1);
		if (stage.fake[0]->base.parts != 4)
			break;
		for (uint32_t i = 0; i < 4; i++) {
			uint64_t done = fake[i]->transfer.part[0].bytes_done;

			least = done < least ? done : least;
			most = done > most ? done : most;
		}
		assert_true(most - least <= 256);
	}
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(run_to_end(fake[i]), KVP_SUCCESS);
		kvp_fake_transfer_destroy(fake[i]);
	}
}

static void
lane_run_once__deadline_to_the_nanosecond(void **state)
{
	struct kvp_fake_transfer *fake;
	uint64_t deadline_ns;

	(void)state;
	add_fake(&plain);
	stall(0, true);
	fake = submit(0, 0, 1, false);
	deadline_ns = fake->transfer.deadline_ns;
	run(10);
	(void)kvp_lane_run_once(stage.lane, deadline_ns - 1);
	assert_false(kvp_transfer_is_stopped(&fake->transfer));
	(void)kvp_lane_run_once(stage.lane, deadline_ns);
	assert_true(kvp_transfer_is_stopped(&fake->transfer));
	/* Requests are on their way: no terminal status until they are accounted for. */
	(void)kvp_lane_run_once(stage.lane, deadline_ns + FAR_NS);
	assert_int_equal(status_of(fake), KVP_IN_PROGRESS);
	assert_true(atomic_load(&stage.fake[0]->stops) >= 2);
	stall(0, false);
	stage.now_ns = deadline_ns + FAR_NS;
	assert_int_equal(run_to_end(fake), KVP_TIMEOUT);
	assert_int_equal(atomic_load(&fake->transfer.moved), 4 * 4096);
	kvp_fake_transfer_destroy(fake);
	memset(stage.dst[0], 0, BYTES);
	run(100);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(stage.dst[0][i], 0);
}

static void
lane_run_once__cancelled_before_and_after_it_was_taken(void **state)
{
	struct kvp_fake_transfer *late;
	struct kvp_fake_transfer *early;

	(void)state;
	add_fake(&plain);
	late = submit(0, 0, 1, false);
	early = submit(1, 0, 1, false);
	assert_true(kvp_transfer_stop(&early->transfer, KVP_CANCELLED));
	run(1);
	assert_int_equal(status_of(early), KVP_CANCELLED);
	assert_int_equal(atomic_load(&early->transfer.moved), 0);
	assert_int_equal(status_of(late), KVP_IN_PROGRESS);
	assert_true(kvp_transfer_stop(&late->transfer, KVP_CANCELLED));
	assert_int_equal(run_to_end(late), KVP_CANCELLED);
	assert_true(atomic_load(&late->transfer.moved) < BYTES);
	kvp_fake_transfer_destroy(late);
	kvp_fake_transfer_destroy(early);
}

static void
lane_part_moved__notifies_once_after_all_parts(void **state)
{
	struct kvp_fake_config config = plain;
	struct kvp_fake_transfer *fake;
	uint64_t notified = 0;

	(void)state;
	config.notify_refusals = 5;
	for (uint32_t i = 0; i < 3; i++)
		add_fake(&config);
	stall(2, true);
	fake = submit(0, 0, 3, true);
	run(500);
	assert_int_equal(atomic_load(&fake->transfer.parts_left), 1);
	stall(2, false);
	assert_int_equal(run_to_end(fake), KVP_SUCCESS);
	assert_memory_equal(stage.dst[0], stage.src, BYTES);
	for (uint32_t i = 0; i < 3; i++)
		notified += atomic_load(&stage.fake[i]->notified);
	assert_int_equal(notified, 1);
	assert_int_equal(atomic_load(&stage.fake[2]->notified), 1);
	kvp_fake_transfer_destroy(fake);
}

static void
lane_run_once__receiver_without_room_is_no_credit(void **state)
{
	struct kvp_fake_config config = plain;
	struct kvp_fake_transfer *fake;
	struct kvp_fake_transfer *cancelled;

	(void)state;
	config.notify_refusals = KVP_FAKE_ALWAYS;
	add_fake(&config);
	fake = submit(0, 0, 1, true);
	cancelled = submit(1, 0, 1, true);
	run(500);
	assert_int_equal(status_of(fake), KVP_IN_PROGRESS);
	assert_int_equal(fake->transfer.part[0].phase, KVP_PART_NOTIFYING);
	assert_true(kvp_transfer_stop(&cancelled->transfer, KVP_CANCELLED));
	run(2);
	assert_int_equal(status_of(cancelled), KVP_CANCELLED);
	stage.now_ns = fake->transfer.deadline_ns;
	run(1);
	assert_int_equal(status_of(fake), KVP_NO_CREDIT);
	assert_int_equal(atomic_load(&fake->transfer.moved), BYTES);
	kvp_fake_transfer_destroy(fake);
	kvp_fake_transfer_destroy(cancelled);
}

static bool
reactor_was_woken(void)
{
	struct pollfd fd = {.fd = stage.reactor.wake_fd, .events = POLLIN};
	bool was = poll(&fd, 1, 0) == 1;

	kvp_reactor_wait(&stage.reactor, 0);
	return was;
}

/* The endpoint died: its parts, later ones and the other half of a split transfer end. */
static void
expect_dead(const struct kvp_fake_config *config, bool has_notify)
{
	struct kvp_fake_transfer *fake[3];
	struct kvp_fake_transfer *later;
	uint64_t progressed;

	add_fake(config);
	add_fake(&plain);
	fake[0] = submit(0, 0, 1, has_notify);
	fake[1] = submit(1, 0, 2, has_notify);
	fake[2] = submit(2, 1, 1, false);
	assert_false(reactor_was_woken());
	assert_int_equal(run_to_end(fake[0]), KVP_PEER_LOST);
	assert_true(reactor_was_woken());
	assert_int_equal(atomic_load(&stage.fake[0]->base.failed), KVP_PEER_LOST);
	assert_int_equal(run_to_end(fake[1]), KVP_PEER_LOST);
	assert_int_equal(run_to_end(fake[2]), KVP_SUCCESS);
	later = submit(3, 0, 2, false);
	assert_int_equal(run_to_end(later), KVP_PEER_LOST);
	progressed = atomic_load(&stage.fake[0]->progressed);
	run(10);
	assert_int_equal(atomic_load(&stage.fake[0]->progressed), progressed);
	assert_int_equal(atomic_load(&stage.fake[1]->base.failed), KVP_SUCCESS);
	assert_false(reactor_was_woken());
	for (uint32_t i = 0; i < 3; i++)
		kvp_fake_transfer_destroy(fake[i]);
	kvp_fake_transfer_destroy(later);
}

static void
lane_endpoint_failed__from_progress(void **state)
{
	struct kvp_fake_config config = plain;

	(void)state;
	config.fail_after = 3;
	expect_dead(&config, false);
}

static void
lane_endpoint_failed__from_progress_of_an_fd(void **state)
{
	struct kvp_fake_config config = plain;

	(void)state;
	config.fail_after = 3;
	config.has_fd = true;
	expect_dead(&config, false);
	assert_int_equal(stage.lane->fds, 0);
}

static void
lane_endpoint_failed__from_post(void **state)
{
	struct kvp_fake_config config = plain;

	(void)state;
	config.fail_after = 3;
	config.delay_max = 0;
	expect_dead(&config, false);
}

static void
lane_endpoint_failed__from_notify(void **state)
{
	struct kvp_fake_config config = plain;

	(void)state;
	config.is_notify_fatal = true;
	expect_dead(&config, true);
}

static void
lane_endpoint_failed__at_every_completion(void **state)
{
	(void)state;
	/* Dies with the n-th of 16 completions, in and out of post; with the last it is too late. */
	for (uint32_t n = 1; n <= 17; n++) {
		for (uint32_t delay = 0; delay < 2; delay++) {
			struct kvp_fake_transfer *fake;
			struct kvp_fake_config config = plain;
			bool lives = n >= 16;

			config.fail_after = n;
			config.delay_max = delay;
			add_fake(&config);
			fake = submit(0, 0, 1, true);
			assert_int_equal(run_to_end(fake), lives ? KVP_SUCCESS : KVP_PEER_LOST);
			kvp_fake_transfer_destroy(fake);
			stage.fakes--;
			kvp_lane_detach(stage.lane, &stage.fake[stage.fakes]->base);
			kvp_fake_endpoint_destroy(stage.fake[stage.fakes]);
		}
	}
}

static void
lane_down__drains_then_ends_with_reason(void **state)
{
	struct kvp_fake_transfer *active;
	struct kvp_fake_transfer *queued;
	struct kvp_fake_transfer *later;
	struct kvp_fake_transfer *other;
	uint64_t progressed;

	(void)state;
	add_fake(&plain);
	add_fake(&plain);
	stall(0, true);
	active = submit(0, 0, 1, false);
	run(3);
	queued = submit(1, 0, 1, false);
	other = submit(2, 1, 1, false);
	kvp_lane_down(stage.lane, &stage.fake[0]->base, KVP_NOT_YET_LINK);
	assert_int_equal(atomic_load(&stage.fake[0]->downs), 1); /* the peer's wishes end there */
	assert_int_equal(atomic_load(&stage.fake[1]->downs), 0);
	later = submit(3, 0, 2, false);
	run(50);
	assert_int_equal(status_of(active), KVP_IN_PROGRESS);
	assert_int_equal(status_of(queued), KVP_NOT_YET_LINK);
	assert_int_equal(status_of(later), KVP_NOT_YET_LINK);
	assert_int_equal(run_to_end(other), KVP_SUCCESS);
	progressed = atomic_load(&stage.fake[0]->progressed);
	stall(0, false);
	assert_int_equal(run_to_end(active), KVP_NOT_YET_LINK);
	/* The peer may still need our acknowledgements. */
	run(3);
	assert_true(atomic_load(&stage.fake[0]->progressed) > progressed);
	assert_int_equal(atomic_load(&stage.fake[0]->base.failed), KVP_SUCCESS);
	kvp_lane_down(stage.lane, &stage.fake[0]->base, KVP_PEER_LOST);
	assert_int_equal(stage.fake[0]->base.down_status, KVP_NOT_YET_LINK);
	assert_int_equal(atomic_load(&stage.fake[0]->downs), 1);
	kvp_fake_transfer_destroy(active);
	kvp_fake_transfer_destroy(queued);
	kvp_fake_transfer_destroy(later);
	kvp_fake_transfer_destroy(other);
}

static void
lane_cache_remove__stops_what_uses_it(void **state)
{
	const struct kvp_local_cache cache[2] = {{.id = 1}, {.id = 2}};
	struct kvp_fake_transfer *of_one;
	struct kvp_fake_transfer *of_two;
	struct kvp_fake_transfer *later;
	struct kvp_error err = {""};

	(void)state;
	add_fake(&plain);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(kvp_lane_cache_add(stage.lane, &cache[i], &err), KVP_SUCCESS);
	of_one = submit(0, 0, 1, false);
	of_two = order(1, 0, 1, false);
	of_two->transfer.local_cache = 2;
	assert_true(kvp_fake_transfer_submit(of_two));
	run(1);
	kvp_lane_cache_remove(stage.lane, 1);
	assert_int_equal(atomic_load(&stage.fake[0]->gone), 1);
	assert_null(kvp_lane_cache_find(stage.lane, 1));
	assert_ptr_equal(kvp_lane_cache_find(stage.lane, 2), &cache[1]);
	later = submit(2, 0, 1, false);
	assert_int_equal(run_to_end(of_one), KVP_CACHE_NOT_EXIST);
	assert_int_equal(run_to_end(of_two), KVP_SUCCESS);
	assert_int_equal(run_to_end(later), KVP_CACHE_NOT_EXIST);
	assert_int_equal(atomic_load(&later->transfer.moved), 0);
	kvp_fake_transfer_destroy(of_one);
	kvp_fake_transfer_destroy(of_two);
	kvp_fake_transfer_destroy(later);
}

static void
lane_cache_find__against_a_model(void **state)
{
	static struct kvp_local_cache cache[4096];
	static bool is_in[4096];
	struct kvp_error err = {""};
	uint64_t random = 42;
	uint32_t count = 0;

	(void)state;
	/* Ids that share bins: two out of three are the same modulo the table. */
	for (uint32_t i = 0; i < 4096; i++)
		cache[i].id = (int64_t)(i % 1500) + 1 + (int64_t)(i / 1500) * KVP_LANE_CACHE_BIN;
	for (uint32_t n = 0; n < 40000; n++) {
		uint32_t i = (uint32_t)(kvp_fake_random(&random) % 4096);

		if (is_in[i] || kvp_fake_random(&random) % 4 == 0) {
			kvp_lane_cache_remove(stage.lane, cache[i].id);
			count -= is_in[i];
			is_in[i] = false;
		} else if (count == KVP_CACHES_MAX) {
			assert_int_equal(kvp_lane_cache_add(stage.lane, &cache[i], &err),
					 KVP_NO_RESOURCE);
			assert_non_null(strstr(err.text, "1024 caches"));
		} else {
			assert_int_equal(kvp_lane_cache_add(stage.lane, &cache[i], &err),
					 KVP_SUCCESS);
			count++;
			is_in[i] = true;
		}
		i = (uint32_t)(kvp_fake_random(&random) % 4096);
		assert_ptr_equal(kvp_lane_cache_find(stage.lane, cache[i].id),
				 is_in[i] ? &cache[i] : NULL);
	}
	assert_null(kvp_lane_cache_find(stage.lane, -1));
	assert_null(kvp_lane_cache_find(stage.lane, 0));
	for (uint32_t i = 0; i < 4096; i++)
		assert_ptr_equal(kvp_lane_cache_find(stage.lane, cache[i].id),
				 is_in[i] ? &cache[i] : NULL);
}

static void
lane_stop_view__stops_only_its_transfers(void **state)
{
	struct kvp_fake_transfer *gone[2];
	struct kvp_fake_transfer *other;

	(void)state;
	add_fake(&plain);
	add_fake(&plain);
	gone[0] = submit(0, 0, 2, true);
	run(1);
	gone[1] = order(0, 0, 1, false);
	gone[1]->transfer.view = gone[0]->transfer.view;
	assert_true(kvp_fake_transfer_submit(gone[1])); /* still in the ring */
	other = submit(1, 0, 2, true);
	kvp_lane_stop_view(stage.lane, gone[0]->transfer.view, KVP_CACHE_NOT_EXIST);
	assert_int_equal(run_to_end(gone[0]), KVP_CACHE_NOT_EXIST);
	assert_int_equal(run_to_end(gone[1]), KVP_CACHE_NOT_EXIST);
	assert_int_equal(run_to_end(other), KVP_SUCCESS);
	kvp_fake_transfer_destroy(gone[1]);
	kvp_fake_transfer_destroy(gone[0]);
	kvp_fake_transfer_destroy(other);
}

static void
lane_attach__refuses_an_fd_that_is_none(void **state)
{
	struct kvp_error err = {""};
	struct kvp_fake_config config = plain;
	struct kvp_fake_endpoint *bad;
	struct kvp_fake_transfer *fake;
	int fd;

	(void)state;
	config.lane = stage.lane;
	config.has_fd = true;
	bad = kvp_fake_endpoint_create(&config);
	fd = bad->base.fd;
	bad->base.fd = 999999;
	assert_int_equal(kvp_lane_attach(stage.lane, &bad->base, &err), KVP_NO_RESOURCE);
	assert_non_null(strstr(err.text, "999999"));
	assert_int_equal(atomic_load(&bad->attaches), 0);
	bad->base.fd = fd;
	kvp_fake_endpoint_destroy(bad);
	add_fake(&plain);
	fake = submit(0, 0, 1, false);
	assert_int_equal(run_to_end(fake), KVP_SUCCESS);
	kvp_fake_transfer_destroy(fake);
}

static void
lane_want_write__and_readiness_drive_progress(void **state)
{
	struct kvp_fake_config config = plain;
	struct kvp_fake_endpoint *fake;

	(void)state;
	config.has_fd = true;
	add_fake(&config);
	fake = stage.fake[0];
	run(5);
	assert_int_equal(atomic_load(&fake->progressed), 0);
	kvp_fake_poke(fake);
	run(5);
	assert_int_equal(atomic_load(&fake->progressed), 1);
	kvp_lane_want_write(&fake->base, true);
	kvp_lane_want_write(&fake->base, true);
	run(5);
	assert_int_equal(atomic_load(&fake->progressed), 6);
	kvp_lane_want_write(&fake->base, false);
	run(5);
	assert_int_equal(atomic_load(&fake->progressed), 6);
}

#define CROWD 100U

/* More endpoints than one loop serves, some by fd, coming and going in any order. */
static void
lane_attach__crowd_comes_and_goes(void **state)
{
	static struct kvp_fake_endpoint *crowd[CROWD];
	static bool is_in[CROWD];
	struct kvp_error err = {""};
	uint64_t random = 7;
	uint32_t in = 0;

	(void)state;
	for (uint32_t i = 0; i < CROWD; i++) {
		struct kvp_fake_config config = plain;

		config.lane = stage.lane;
		config.has_fd = i % 3 == 0;
		crowd[i] = kvp_fake_endpoint_create(&config);
	}
	for (uint32_t n = 0; n < 2000; n++) {
		uint32_t i = (uint32_t)(kvp_fake_random(&random) % CROWD);

		if (is_in[i])
			kvp_lane_detach(stage.lane, &crowd[i]->base);
		else
			assert_int_equal(kvp_lane_attach(stage.lane, &crowd[i]->base, &err),
					 KVP_SUCCESS);
		is_in[i] = !is_in[i];
		in += is_in[i] ? 1U : UINT32_MAX;
		assert_int_equal(stage.lane->slots, in);
		if (n % 16 == 0)
			run(1);
	}
	for (uint32_t i = 0; i < CROWD; i++) {
		if (!is_in[i])
			assert_int_equal(kvp_lane_attach(stage.lane, &crowd[i]->base, &err),
					 KVP_SUCCESS);
	}
	for (uint32_t round = 0; round < 2; round++) {
		struct kvp_fake_transfer *fake[CROWD];

		for (uint32_t i = 0; i < CROWD; i++) {
			stage.fake[0] = crowd[i];
			fake[i] = submit(0, 0, 1, true);
			if (i % 50 == 49)
				run(2);
		}
		for (uint32_t i = 0; i < CROWD; i++) {
			assert_int_equal(run_to_end(fake[i]), KVP_SUCCESS);
			assert_int_equal(atomic_load(&crowd[i]->notified), round + 1);
			kvp_fake_transfer_destroy(fake[i]);
		}
	}
	for (uint32_t i = 0; i < CROWD; i++) {
		kvp_lane_detach(stage.lane, &crowd[i]->base);
		assert_int_equal(atomic_load(&crowd[i]->attaches),
				 atomic_load(&crowd[i]->detaches));
		kvp_fake_endpoint_destroy(crowd[i]);
	}
	assert_int_equal(stage.lane->slots + stage.lane->fds + stage.lane->polled_count, 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Any system call but exit kills the child, also one behind a function pointer. */
static void
lane_run_once__makes_no_system_call(void **state)
{
	struct kvp_fake_transfer *fake;
	int status;
	pid_t child;

	(void)state;
	add_fake(&plain);
	fake = submit(0, 0, 1, true);
	(void)fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
			(void)syscall(SYS_exit, 77);
		(void)syscall(SYS_exit, run_to_end(fake) == KVP_SUCCESS ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(run_to_end(fake), KVP_SUCCESS);
	kvp_fake_transfer_destroy(fake);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}
#endif

int
main(void)
{
#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		LANE_TEST(lane_submit__all_or_none),
		LANE_TEST(lane_run_once__moves_all_bytes_and_counts),
		LANE_TEST(lane_run_once__end_is_not_before_submit),
		LANE_TEST(lane_run_once__big_transfer_does_not_starve_small),
		LANE_TEST(lane_run_once__equal_transfers_stay_abreast),
		LANE_TEST(lane_run_once__deadline_to_the_nanosecond),
		LANE_TEST(lane_run_once__cancelled_before_and_after_it_was_taken),
		LANE_TEST(lane_run_once__receiver_without_room_is_no_credit),
		LANE_TEST(lane_part_moved__notifies_once_after_all_parts),
		LANE_TEST(lane_endpoint_failed__from_progress),
		LANE_TEST(lane_endpoint_failed__from_progress_of_an_fd),
		LANE_TEST(lane_endpoint_failed__from_post),
		LANE_TEST(lane_endpoint_failed__from_notify),
		LANE_TEST(lane_endpoint_failed__at_every_completion),
		LANE_TEST(lane_down__drains_then_ends_with_reason),
		LANE_TEST(lane_cache_remove__stops_what_uses_it),
		LANE_TEST(lane_cache_find__against_a_model),
		LANE_TEST(lane_stop_view__stops_only_its_transfers),
		LANE_TEST(lane_attach__refuses_an_fd_that_is_none),
		LANE_TEST(lane_attach__crowd_comes_and_goes),
		LANE_TEST(lane_want_write__and_readiness_drive_progress),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		LANE_TEST(lane_run_once__makes_no_system_call),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
