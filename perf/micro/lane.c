/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane.c - what a lane costs besides the moving of bytes, and how soon it looks
 *
 * A transport that moves nothing ends every part in its first step. On one
 * thread: a submit, the loop that takes it and ends it, and empty loops. With
 * the lane's own thread: from before the submit until the status is there, while
 * the lane polls and when it has gone to sleep.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include "check.h"
#include "eal.h"
#include "histogram.h"
#include "lane_state.h"
#include "wake.h"

#define BURST_MAX    32U
#define ROUNDS       20000U
#define EMPTY_LOOPS  1000U
#define POLL_ROUNDS  20000U
#define SLEEP_ROUNDS 300U
#define SPINS        200U /* of the waiting thread before it yields */
#define HEAP_MB      32U

static struct kvp_histogram times;
static struct kvp_transfer *transfers; /* [BURST_MAX] */

static uint32_t
null_progress(struct kvp_endpoint *endpoint, uint64_t now_ns)
{
	(void)endpoint;
	(void)now_ns;
	return 0;
}

static uint32_t
null_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	part->bytes_done = part->bytes;
	kvp_lane_part_moved(endpoint, part, now_ns);
	return 1;
}

static int
null_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	(void)endpoint;
	(void)part;
	(void)now_ns;
	return 1;
}

static bool
null_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns)
{
	(void)endpoint;
	(void)part;
	(void)now_ns;
	return true;
}

static const struct kvp_transport null_transport = {
	.name = "null",
	.progress = null_progress,
	.post = null_post,
	.notify = null_notify,
	.stop_part = null_stop_part,
};

static void
die(const char *what)
{
	fprintf(stderr, "lane: %s\n", what);
	exit(1);
}

static void
report(const char *what, double unit)
{
	printf("%-46s %9.1f %9.1f %9.1f\n", what, (double)kvp_histogram_at(&times, 0.5) / unit,
	       (double)kvp_histogram_at(&times, 0.01) / unit,
	       (double)kvp_histogram_at(&times, 0.99) / unit);
	memset(&times, 0, sizeof(times));
}

/* Fresh, as after planning. */
static struct kvp_part *
renew(uint32_t i, struct kvp_endpoint *endpoint)
{
	struct kvp_transfer *transfer = &transfers[i];
	struct kvp_part *part = &transfer->part[0];

	part->transfer = transfer;
	part->endpoint = endpoint;
	part->bytes = 4096;
	part->bytes_done = 0;
	part->phase = KVP_PART_MOVING;
	transfer->parts = 1;
	transfer->deadline_ns = UINT64_MAX;
	atomic_store_explicit(&transfer->first_error, KVP_SUCCESS, memory_order_relaxed);
	atomic_store_explicit(&transfer->parts_left, 1, memory_order_relaxed);
	atomic_store_explicit(&transfer->word, KVP_WORD_PENDING, memory_order_relaxed);
	return part;
}

static struct kvp_endpoint *
endpoint_create(struct kvp_lane *lane, bool has_fd)
{
	struct kvp_endpoint *endpoint = aligned_alloc(KVP_SHARE_SPAN, sizeof(*endpoint));
	struct kvp_error err = {""};

	if (endpoint == NULL)
		die("no memory");
	memset(endpoint, 0, sizeof(*endpoint));
	endpoint->transport = &null_transport;
	endpoint->lane = lane;
	endpoint->fd = has_fd ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
	if (kvp_lane_attach(lane, endpoint, &err) != KVP_SUCCESS)
		die(err.text);
	return endpoint;
}

static void
endpoint_destroy(struct kvp_endpoint *endpoint)
{
	kvp_lane_detach(endpoint->lane, endpoint);
	if (endpoint->fd >= 0)
		(void)close(endpoint->fd);
	free(endpoint);
}

static void
measure_loop(uint32_t burst)
{
	const struct kvp_lane_config config = {.cpu = -1, .ring_parts = 4096};
	struct kvp_endpoint *endpoint;
	struct kvp_error err = {""};
	struct kvp_lane *lane;
	uint64_t now_ns = 0;
	char what[64];

	if (kvp_lane_prepare(&config, &lane, &err) != KVP_SUCCESS)
		die(err.text);
	endpoint = endpoint_create(lane, false);
	for (uint32_t n = 0; n < ROUNDS; n++) {
		struct kvp_part *part[BURST_MAX];
		uint64_t start_ns;

		for (uint32_t i = 0; i < burst; i++)
			part[i] = renew(i, endpoint);
		start_ns = kvp_now_ns();
		for (uint32_t i = 0; i < burst; i++) {
			if (!kvp_lane_submit(lane, &part[i], 1))
				die("ring full");
		}
		while (endpoint->parts > 0 ||
		       kvp_transfer_status(&transfers[burst - 1]) == KVP_IN_PROGRESS)
			(void)kvp_lane_run_once(lane, ++now_ns);
		kvp_histogram_add(&times, (kvp_now_ns() - start_ns) * 10 / burst);
	}
	(void)snprintf(what, sizeof(what), "submit to end, one thread, %u at a time, ns", burst);
	report(what, 10);
	endpoint_destroy(endpoint);
	kvp_lane_release(lane);
}

static void
measure_empty(uint32_t endpoints, bool has_fd)
{
	const struct kvp_lane_config config = {.cpu = -1, .ring_parts = 64};
	struct kvp_endpoint *endpoint[BURST_MAX];
	struct kvp_error err = {""};
	struct kvp_lane *lane;
	char what[64];

	if (kvp_lane_prepare(&config, &lane, &err) != KVP_SUCCESS)
		die(err.text);
	for (uint32_t i = 0; i < endpoints; i++)
		endpoint[i] = endpoint_create(lane, has_fd);
	for (uint32_t n = 0; n < ROUNDS / 20; n++) {
		uint64_t start_ns = kvp_now_ns();

		for (uint32_t i = 0; i < EMPTY_LOOPS; i++)
			(void)kvp_lane_run_once(lane, i);
		kvp_histogram_add(&times, (kvp_now_ns() - start_ns) * 10 / EMPTY_LOOPS);
	}
	(void)snprintf(what, sizeof(what), "empty loop, %u %s endpoints, ns", endpoints,
		       has_fd ? "fd" : "polled");
	report(what, 10);
	for (uint32_t i = 0; i < endpoints; i++)
		endpoint_destroy(endpoint[i]);
	kvp_lane_release(lane);
}

/* Asleep, as an application that has other things to do, or looking all the time. */
static void
wait_end(_Atomic uint32_t *word, bool is_asleep)
{
	uint32_t seen = KVP_WORD_PENDING;
	uint32_t spins = 0;

	if (is_asleep)
		(void)atomic_compare_exchange_strong(word, &seen, KVP_WORD_WAITED);
	while (atomic_load_explicit(word, memory_order_acquire) != KVP_WORD_DONE) {
		if (is_asleep)
			kvp_sleep_word(word, KVP_WORD_WAITED, UINT64_MAX);
		else if (++spins > SPINS)
			(void)sched_yield();
	}
}

static void
measure_thread(uint32_t idle, uint32_t idle_us, uint32_t rounds, bool has_fd, const char *what)
{
	const struct kvp_lane_config config = {
		.cpu = -1, .idle = idle, .idle_us = idle_us, .ring_parts = 64};
	const struct timespec rest = {.tv_nsec = 2L * 1000 * (long)idle_us + 200000};
	struct kvp_endpoint *endpoint;
	struct kvp_error err = {""};
	struct kvp_lane *lane;

	if (kvp_lane_create(&config, &lane, &err) != KVP_SUCCESS)
		die(err.text);
	endpoint = endpoint_create(lane, has_fd);
	for (uint32_t n = 0; n < rounds; n++) {
		_Atomic uint32_t *word = &transfers[0].word;
		struct kvp_part *part = renew(0, endpoint);
		uint64_t start_ns;

		if (idle == KVP_IDLE_ADAPTIVE)
			(void)nanosleep(&rest, NULL);
		start_ns = kvp_now_ns();
		if (!kvp_lane_submit(lane, &part, 1))
			die("ring full");
		wait_end(word, idle == KVP_IDLE_ADAPTIVE);
		kvp_histogram_add(&times, kvp_now_ns() - start_ns);
	}
	report(what, 1000);
	endpoint_destroy(endpoint);
	kvp_lane_destroy(lane);
}

int
main(void)
{
	struct kvp_error err = {""};

	transfers = aligned_alloc(KVP_SHARE_SPAN, BURST_MAX * sizeof(transfers[0]));
	if (transfers == NULL)
		die("no memory");
	memset(transfers, 0, BURST_MAX * sizeof(transfers[0]));
	if (kvp_eal_start(HEAP_MB, &err) != KVP_SUCCESS)
		die(err.text);
	printf("%-46s %9s %9s %9s\n", "lane", "median", "best 1%", "p99");
	measure_loop(1);
	measure_loop(8);
	measure_loop(32);
	measure_empty(0, false);
	measure_empty(1, false);
	measure_empty(32, false);
	measure_empty(1, true);
	measure_thread(KVP_IDLE_POLL, 0, POLL_ROUNDS, false, "submit to end, lane polls, us");
	measure_thread(KVP_IDLE_POLL, 0, POLL_ROUNDS, true,
		       "submit to end, lane polls an fd too, us");
	measure_thread(KVP_IDLE_ADAPTIVE, 100, SLEEP_ROUNDS, false,
		       "submit to end, lane was asleep, us");
	free(transfers);
	return 0;
}
