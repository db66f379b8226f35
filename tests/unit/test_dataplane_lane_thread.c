/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes with their threads: start, sleep, wake, and nothing lost between threads. */
#include "lane_state.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvpush/engine.h>

#include <cmocka.h>

#include "check.h"
#include "eal.h"
#include "fake/transport.h"
#include "reactor.h"
#include "wake.h"

#define NS_PER_MS 1000000U
#define BYTES     (16U * 1024)
#define LONG_MS   60000U /* nothing here takes that long */

static _Atomic uint32_t hold;

static struct kvp_lane *
create(uint32_t idle, uint32_t idle_us)
{
	const struct kvp_lane_config config = {.index = 1,
					       .cpu = -1,
					       .idle = idle,
					       .idle_us = idle_us,
					       .ring_parts = 256,
					       .name = "kvp-test-1"};
	struct kvp_error err = {""};
	struct kvp_lane *lane = NULL;

	if (kvp_lane_create(&config, &lane, &err) != KVP_SUCCESS)
		fail_msg("%s", err.text);
	return lane;
}

static struct kvp_fake_endpoint *
attach(struct kvp_lane *lane, uint32_t delay_max, bool has_fd)
{
	const struct kvp_fake_config config = {.lane = lane,
					       .seed = 11,
					       .delay_max = delay_max,
					       .step_bytes = 1024,
					       .window = 4,
					       .has_fd = has_fd};
	struct kvp_error err = {""};
	struct kvp_fake_endpoint *fake = kvp_fake_endpoint_create(&config);

	assert_int_equal(kvp_lane_attach(lane, &fake->base, &err), KVP_SUCCESS);
	return fake;
}

static void
detach(struct kvp_fake_endpoint *fake)
{
	kvp_lane_detach(fake->base.lane, &fake->base);
	kvp_fake_endpoint_destroy(fake);
}

static struct kvp_fake_transfer *
submit(struct kvp_fake_endpoint *const *endpoint, uint32_t splits, uint8_t *dst, uint32_t within_ms)
{
	static uint8_t src[BYTES];
	uint64_t now_ns = kvp_now_ns();
	const struct kvp_fake_order order = {.src = src,
					     .dst = dst,
					     .bytes = BYTES,
					     .submit_ns = now_ns,
					     .deadline_ns =
						     now_ns + (uint64_t)within_ms * NS_PER_MS,
					     .has_notify = true,
					     .local_cache = 1,
					     .hold = &hold,
					     .endpoint = endpoint,
					     .splits = splits};
	struct kvp_fake_transfer *fake;

	atomic_fetch_add(&hold, 1);
	fake = kvp_fake_transfer_create(&order);
	KVP_CHECK(kvp_fake_transfer_submit(fake));
	return fake;
}

/* As an application thread waits: asleep on the word. */
static kvp_status
wait_for(struct kvp_fake_transfer *fake)
{
	_Atomic uint32_t *word = &fake->transfer.word;
	uint32_t seen = KVP_WORD_PENDING;

	(void)atomic_compare_exchange_strong(word, &seen, KVP_WORD_WAITED);
	while (atomic_load_explicit(word, memory_order_acquire) != KVP_WORD_DONE)
		kvp_sleep_word(word, KVP_WORD_WAITED, UINT64_MAX);
	return kvp_transfer_status(&fake->transfer);
}

static kvp_status
finish(struct kvp_fake_transfer *fake)
{
	kvp_status status = wait_for(fake);

	kvp_fake_transfer_destroy(fake);
	return status;
}

static struct kvp_lane_totals
totals_of(const struct kvp_lane *lane)
{
	struct kvp_lane_totals totals;

	kvp_lane_totals(lane, &totals);
	return totals;
}

static void
pause_ms(uint32_t ms)
{
	const struct timespec time = {.tv_nsec = (long)(ms * NS_PER_MS)};

	(void)nanosleep(&time, NULL);
}

/* Wait until the lane has gone to sleep another time. */
static void
wait_asleep(const struct kvp_lane *lane)
{
	uint64_t before = totals_of(lane).sleeps;

	for (uint32_t i = 0;
	     i < LONG_MS && totals_of(lane).sleeps == before && atomic_load(&lane->is_asleep) == 0;
	     i++)
		pause_ms(1);
}

static void
lane_create__cpu_not_there_is_named(void **state)
{
	struct kvp_lane_config config = {.index = 7, .ring_parts = 16};
	struct kvp_error err = {""};
	struct kvp_lane *lane = NULL;
	const int cpu[] = {CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 20};
	char text[32];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		config.cpu = cpu[i];
		(void)snprintf(text, sizeof(text), "lane 7: cpu %d ", cpu[i]);
		assert_int_equal(kvp_lane_create(&config, &lane, &err), KVP_NO_RESOURCE);
		assert_non_null(strstr(err.text, text));
		assert_non_null(strstr(err.text, "only "));
		assert_null(lane);
	}
	kvp_lane_destroy(NULL);
}

/* The line of /proc/self/task/X/status that starts with `key`, X being the thread called `name`. */
static bool
thread_line(const char *name, const char *key, char *line, size_t size)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	bool is_found = false;

	assert_non_null(dir);
	while (!is_found && (entry = readdir(dir)) != NULL) {
		bool is_it = false;
		char path[300];
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		while (file != NULL && !is_found && fgets(line, (int)size, file) != NULL) {
			if (strncmp(line, "Name:", 5) == 0)
				is_it = strstr(line, name) != NULL;
			is_found = is_it && strncmp(line, key, strlen(key)) == 0;
		}
		if (file != NULL)
			(void)fclose(file);
	}
	(void)closedir(dir);
	return is_found;
}

static void
lane_create__thread_is_named_pinned_and_deaf(void **state)
{
	struct kvp_lane_config config = {.ring_parts = 16, .idle_us = 10, .name = "kvp-pinned"};
	struct kvp_error err = {""};
	struct kvp_lane *lane = NULL;
	unsigned long long blocked = 0;
	cpu_set_t cpus;
	char line[1024];
	int cpu = -1;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (!CPU_ISSET((size_t)(config.cpu), &cpus))
		config.cpu++;
	assert_int_equal(kvp_lane_create(&config, &lane, &err), KVP_SUCCESS);
	assert_true(thread_line("kvp-pinned", "Cpus_allowed_list:", line, sizeof(line)));
	assert_int_equal(sscanf(line, "Cpus_allowed_list: %d", &cpu), 1);
	assert_int_equal(cpu, config.cpu);
	assert_null(strpbrk(line, "-,"));
	assert_true(thread_line("kvp-pinned", "SigBlk:", line, sizeof(line)));
	assert_int_equal(sscanf(line, "SigBlk: %llx", &blocked), 1);
	assert_true((blocked & (1ULL << (SIGTERM - 1))) != 0);
	assert_true((blocked & (1ULL << (SIGPROF - 1))) != 0);
	kvp_lane_destroy(lane);
}

static void
lane_create__and_destroy_often(void **state)
{
	(void)state;
	/* More often than there are lcores. */
	for (uint32_t i = 0; i < 300; i++)
		kvp_lane_destroy(create(i % 2 == 0 ? KVP_IDLE_ADAPTIVE : KVP_IDLE_POLL, i % 7));
}

/* Without a thread: what came after the last loop must be seen, for its giver saw no sleeper. */
static void
lane_idle__looks_again_before_it_sleeps(void **state)
{
	const struct kvp_lane_config config = {.cpu = -1, .ring_parts = 16};
	struct kvp_error err = {""};
	struct kvp_lane *lane = NULL;
	struct kvp_fake_endpoint *fake;
	struct kvp_fake_transfer *waits;
	static uint8_t dst[BYTES];
	uint64_t now_ns = kvp_now_ns();

	(void)state;
	assert_int_equal(kvp_lane_prepare(&config, &lane, &err), KVP_SUCCESS);
	fake = attach(lane, 2, false);
	atomic_store(&fake->is_stalled, true);
	lane->empty_loops = 1000;
	waits = submit(&fake, 1, dst, LONG_MS);
	assert_false(kvp_lane_idle(lane, now_ns));
	assert_int_equal(lane->parts, 1);
	while (kvp_lane_run_once(lane, now_ns) != 0)
		;
	/* Now it may sleep, but not past the deadline: for 1 ms before it, for none after. */
	assert_true(kvp_lane_idle(lane, waits->transfer.deadline_ns - 1));
	assert_false(kvp_lane_idle(lane, waits->transfer.deadline_ns));
	assert_true(kvp_transfer_stop(&waits->transfer, KVP_CANCELLED));
	assert_false(kvp_lane_idle(lane, now_ns));
	(void)kvp_lane_run_once(lane, now_ns);
	/* It drains: the transport may have a time limit of its own. */
	assert_true(kvp_lane_idle(lane, now_ns));
	/* The transport has work that it cannot do: refused twice, then short sleeps. */
	atomic_store(&fake->is_stalled, false);
	lane->empty_loops = 0;
	for (uint32_t i = 0; i < 4; i++)
		assert_false(kvp_lane_idle(lane, now_ns));
	assert_true(kvp_lane_idle(lane, now_ns));
	assert_int_equal(atomic_load(&lane->is_asleep), 0);
	while (kvp_transfer_status(&waits->transfer) == KVP_IN_PROGRESS)
		(void)kvp_lane_run_once(lane, now_ns);
	assert_int_equal(finish(waits), KVP_CANCELLED);
	detach(fake);
	kvp_lane_release(lane);
}

static void
lane_idle__sleeps_and_wakes_for_a_submit(void **state)
{
	const uint32_t idle_us[] = {0, 100, 1000};
	static uint8_t dst[BYTES];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct kvp_lane *lane = create(KVP_IDLE_ADAPTIVE, idle_us[i]);
		struct kvp_fake_endpoint *fake = attach(lane, 2, i == 1);
		struct kvp_lane_totals before;
		struct kvp_lane_totals after;

		for (uint32_t n = 0; n < 20; n++) {
			wait_asleep(lane);
			assert_int_equal(finish(submit(&fake, 1, dst, LONG_MS)), KVP_SUCCESS);
		}
		wait_asleep(lane);
		before = totals_of(lane);
		pause_ms(50);
		after = totals_of(lane);
		/* Asleep: it looks once per second, not thousands of times. */
		assert_true(after.loops - before.loops < 1000);
		assert_true(after.sleeps > 0);
		assert_true(atomic_load(&fake->arms) > 0);
		detach(fake);
		kvp_lane_destroy(lane);
	}
}

static void
lane_idle__poll_never_sleeps(void **state)
{
	struct kvp_lane *lane = create(KVP_IDLE_POLL, 0);
	struct kvp_fake_endpoint *fake = attach(lane, 2, false);
	static uint8_t dst[BYTES];
	uint64_t loops = totals_of(lane).loops;

	(void)state;
	pause_ms(10);
	assert_int_equal(finish(submit(&fake, 1, dst, LONG_MS)), KVP_SUCCESS);
	assert_true(totals_of(lane).loops > loops);
	assert_int_equal(totals_of(lane).sleeps, 0);
	assert_int_equal(atomic_load(&fake->arms), 0);
	assert_true(totals_of(lane).gap_max_ns > 0);
	detach(fake);
	kvp_lane_destroy(lane);
}

static void
lane_idle__sleeps_over_parts_that_wait(void **state)
{
	struct kvp_lane *lane = create(KVP_IDLE_ADAPTIVE, 50);
	struct kvp_fake_endpoint *fake = attach(lane, 2, false);
	static uint8_t dst[BYTES];
	struct kvp_fake_transfer *waits;
	uint64_t loops;

	(void)state;
	atomic_store(&fake->is_stalled, true);
	waits = submit(&fake, 1, dst, LONG_MS);
	while (atomic_load(&fake->posts) < 4)
		pause_ms(1);
	wait_asleep(lane);
	loops = totals_of(lane).loops;
	pause_ms(50);
	assert_true(totals_of(lane).loops - loops < 1000);
	atomic_store(&fake->is_stalled, false);
	kvp_lane_kick(lane);
	assert_int_equal(finish(waits), KVP_SUCCESS);
	assert_int_equal(atomic_load(&fake->notified), 1);
	detach(fake);
	kvp_lane_destroy(lane);
}

static void
lane_idle__wakes_at_the_deadline(void **state)
{
	struct kvp_lane *lane = create(KVP_IDLE_ADAPTIVE, 50);
	struct kvp_fake_endpoint *fake = attach(lane, 0, false);
	static uint8_t dst[BYTES];

	(void)state;
	/* Everything lands, but the receiver takes no notification; and nothing lands. */
	atomic_store(&fake->is_stalled, true);
	for (uint32_t ms = 1; ms <= 64; ms *= 4) {
		struct kvp_fake_transfer *late = submit(&fake, 1, dst, ms);
		kvp_status status = wait_for(late);
		uint64_t over_ns = atomic_load(&late->transfer.end_ns) - late->transfer.deadline_ns;

		assert_true(status == KVP_NO_CREDIT || status == KVP_TIMEOUT);
		/* Long before the second after which a sleeping lane looks anyway. */
		assert_true(over_ns < 500 * (uint64_t)NS_PER_MS);
		kvp_fake_transfer_destroy(late);
	}
	detach(fake);
	kvp_lane_destroy(lane);
}

static void
lane_kick__cancel_ends_a_waiting_transfer(void **state)
{
	struct kvp_lane *lane = create(KVP_IDLE_ADAPTIVE, 50);
	struct kvp_fake_config config = {
		.lane = lane, .step_bytes = 1024, .window = 4, .notify_refusals = KVP_FAKE_ALWAYS};
	struct kvp_fake_endpoint *fake = kvp_fake_endpoint_create(&config);
	struct kvp_error err = {""};
	static uint8_t dst[BYTES];

	(void)state;
	assert_int_equal(kvp_lane_attach(lane, &fake->base, &err), KVP_SUCCESS);
	for (uint32_t i = 0; i < 10; i++) {
		struct kvp_fake_transfer *waits = submit(&fake, 1, dst, LONG_MS);
		uint64_t start_ns;

		wait_asleep(lane);
		start_ns = kvp_now_ns();
		assert_true(kvp_transfer_stop(&waits->transfer, KVP_CANCELLED));
		kvp_lane_kick(lane);
		assert_int_equal(finish(waits), KVP_CANCELLED);
		assert_true(kvp_now_ns() - start_ns < 500 * (uint64_t)NS_PER_MS);
	}
	detach(fake);
	kvp_lane_destroy(lane);
}

/* One half fails on its lane; the other lane sleeps over the other half and must hear of it. */
static void
lane_stop_transfer__wakes_the_other_lane(void **state)
{
	struct kvp_lane *lane[2] = {create(KVP_IDLE_ADAPTIVE, 50), create(KVP_IDLE_ADAPTIVE, 50)};
	struct kvp_reactor reactor;
	static uint8_t dst[BYTES];

	(void)state;
	assert_int_equal(kvp_reactor_init(&reactor), 0);
	for (uint32_t i = 0; i < 10; i++) {
		struct kvp_fake_endpoint *fake[2] = {attach(lane[0], 0, false),
						     attach(lane[1], 0, false)};
		struct kvp_fake_transfer *split;
		uint64_t start_ns;

		/* Both halves: posted, all landed but the notification of the last. */
		atomic_store(&fake[0]->is_stalled, true);
		atomic_store(&fake[1]->is_stalled, true);
		fake[0]->config.delay_max = fake[1]->config.delay_max = 1;
		split = submit(fake, 2, dst, LONG_MS);
		while (atomic_load(&fake[0]->posts) < 4 || atomic_load(&fake[1]->posts) < 4)
			pause_ms(1);
		wait_asleep(lane[1]);
		start_ns = kvp_now_ns();
		kvp_lane_down(lane[0], &fake[0]->base, KVP_NOT_YET_LINK);
		atomic_store(&fake[0]->is_stalled, false);
		atomic_store(&fake[1]->is_stalled, false);
		kvp_lane_kick(lane[0]);
		assert_int_equal(finish(split), KVP_NOT_YET_LINK);
		assert_true(kvp_now_ns() - start_ns < 500 * (uint64_t)NS_PER_MS);
		assert_true(atomic_load(&fake[1]->stops) > 0);
		detach(fake[0]);
		detach(fake[1]);
	}
	kvp_lane_destroy(lane[0]);
	kvp_lane_destroy(lane[1]);
	kvp_reactor_fini(&reactor);
}

struct traffic {
	struct kvp_fake_endpoint **endpoint;
	pthread_t thread;
	_Atomic bool is_over;
	_Atomic uint64_t transfers;
};

static void *
traffic_main(void *arg)
{
	struct traffic *traffic = arg;
	static uint8_t dst[BYTES];

	while (!atomic_load(&traffic->is_over)) {
		if (finish(submit(traffic->endpoint, 1, dst, LONG_MS)) != KVP_SUCCESS)
			return arg;
		atomic_fetch_add(&traffic->transfers, 1);
	}
	return NULL;
}

static void
lane_attach__and_detach_a_thousand_times_beside_traffic(void **state)
{
	struct kvp_lane *lane = create(KVP_IDLE_ADAPTIVE, 20);
	struct kvp_fake_endpoint *stays = attach(lane, 1, false);
	struct traffic traffic = {.endpoint = &stays};
	static uint8_t dst[BYTES];
	void *failed;

	(void)state;
	assert_int_equal(pthread_create(&traffic.thread, NULL, traffic_main, &traffic), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		struct kvp_fake_endpoint *comes = attach(lane, i % 3, i % 2 == 0);

		if (i % 10 == 0)
			assert_int_equal(finish(submit(&comes, 1, dst, LONG_MS)), KVP_SUCCESS);
		detach(comes);
	}
	while (atomic_load(&traffic.transfers) == 0)
		(void)sched_yield();
	atomic_store(&traffic.is_over, true);
	assert_int_equal(pthread_join(traffic.thread, &failed), 0);
	assert_null(failed);
	detach(stays);
	kvp_lane_destroy(lane);
	assert_int_equal(atomic_load(&hold), 0);
}

#define LANES     2U
#define ENDPOINTS 4U
#define CLIENTS   3U
#define ROUNDS    200U
#define BATCH     4U

struct client {
	struct kvp_fake_endpoint *endpoint[ENDPOINTS];
	uint64_t seed;
	pthread_t thread;
	uint32_t good;
	uint32_t cancelled;
	uint32_t bad;
	uint8_t src[BYTES];
	uint8_t dst[BATCH][BYTES];
};

static void
one_batch(struct client *client, uint64_t *random)
{
	struct kvp_fake_transfer *fake[BATCH];
	uint64_t now_ns = kvp_now_ns();
	bool is_cancelled[BATCH] = {false};

	for (uint32_t i = 0; i < BATCH; i++) {
		struct kvp_fake_endpoint *endpoint[ENDPOINTS];
		uint32_t first = (uint32_t)(kvp_fake_random(random) % ENDPOINTS);
		struct kvp_fake_order order = {
			.src = client->src,
			.dst = client->dst[i],
			.bytes = BYTES,
			.submit_ns = now_ns,
			.deadline_ns = now_ns + (uint64_t)LONG_MS * NS_PER_MS,
			.has_notify = i % 2 == 0,
			.local_cache = 1,
			.hold = &hold,
			.endpoint = endpoint,
			.splits = 1 + (uint32_t)(kvp_fake_random(random) % ENDPOINTS)};

		for (uint32_t e = 0; e < ENDPOINTS; e++)
			endpoint[e] = client->endpoint[(first + e) % ENDPOINTS];
		memset(client->dst[i], 0, BYTES);
		atomic_fetch_add(&hold, 1);
		fake[i] = kvp_fake_transfer_create(&order);
		client->bad += !kvp_fake_transfer_submit(fake[i]);
	}
	for (uint32_t i = 0; i < BATCH; i++) {
		if (kvp_fake_random(random) % 4 != 0)
			continue;
		is_cancelled[i] = kvp_transfer_stop(&fake[i]->transfer, KVP_CANCELLED);
		for (uint32_t e = 0; e < ENDPOINTS; e++)
			kvp_lane_kick(client->endpoint[e]->base.lane);
	}
	for (uint32_t i = 0; i < BATCH; i++) {
		kvp_status status = finish(fake[i]);

		if (status != (is_cancelled[i] ? KVP_CANCELLED : KVP_SUCCESS))
			client->bad++;
		if (!is_cancelled[i] && memcmp(client->dst[i], client->src, BYTES) != 0)
			client->bad++;
		client->good += !is_cancelled[i];
		client->cancelled += is_cancelled[i];
		/* Ours again: whatever lands now is seen as bad above or below, or by the sanitizer. */
		memset(client->dst[i], 0x5A, BYTES);
	}
	(void)sched_yield();
	for (uint32_t i = 0; i < BATCH; i++) {
		for (uint32_t b = 0; b < BYTES; b++)
			client->bad += client->dst[i][b] != 0x5A;
	}
}

static void *
client_main(void *arg)
{
	struct client *client = arg;
	uint64_t random = client->seed;

	for (uint32_t i = 0; i < ROUNDS; i++)
		one_batch(client, &random);
	return NULL;
}

static void
lane__two_lanes_three_clients_every_transfer_ends_once(void **state)
{
	struct kvp_lane *lane[LANES];
	struct kvp_fake_endpoint *fake[ENDPOINTS];
	static struct client client[CLIENTS];
	uint32_t cancelled = 0;
	uint64_t notified = 0;

	(void)state;
	for (uint32_t i = 0; i < LANES; i++)
		lane[i] = create(KVP_IDLE_ADAPTIVE, i * 30);
	for (uint32_t i = 0; i < ENDPOINTS; i++)
		fake[i] = attach(lane[i % LANES], i, i == 3);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		memset(&client[i], 0, sizeof(client[i]));
		memcpy(client[i].endpoint, fake, sizeof(fake));
		client[i].seed = 100 + i;
		memset(client[i].src, (int)i + 1, BYTES);
		assert_int_equal(pthread_create(&client[i].thread, NULL, client_main, &client[i]),
				 0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(pthread_join(client[i].thread, NULL), 0);
		assert_int_equal(client[i].bad, 0);
		assert_int_equal(client[i].good + client[i].cancelled, ROUNDS * BATCH);
		cancelled += client[i].cancelled;
	}
	for (uint32_t i = 0; i < ENDPOINTS; i++)
		notified += atomic_load(&fake[i]->notified);
	/* Half of all ask for it; a cancelled one may have been told just before. */
	assert_true(notified <= CLIENTS * ROUNDS * BATCH / 2);
	assert_true(notified + cancelled >= CLIENTS * ROUNDS * BATCH / 2);
	for (uint32_t i = 0; i < ENDPOINTS; i++)
		detach(fake[i]);
	for (uint32_t i = 0; i < LANES; i++)
		kvp_lane_destroy(lane[i]);
	/* One for each: a second publication would have made it wrap. */
	assert_int_equal(atomic_load(&hold), 0);
}

static int
start_eal(void **state)
{
	struct kvp_error err = {""};

	(void)state;
	return kvp_eal_start(32, &err) == KVP_SUCCESS ? 0 : -1;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lane_create__cpu_not_there_is_named),
		cmocka_unit_test(lane_create__thread_is_named_pinned_and_deaf),
		cmocka_unit_test(lane_create__and_destroy_often),
		cmocka_unit_test(lane_idle__looks_again_before_it_sleeps),
		cmocka_unit_test(lane_idle__sleeps_and_wakes_for_a_submit),
		cmocka_unit_test(lane_idle__poll_never_sleeps),
		cmocka_unit_test(lane_idle__sleeps_over_parts_that_wait),
		cmocka_unit_test(lane_idle__wakes_at_the_deadline),
		cmocka_unit_test(lane_kick__cancel_ends_a_waiting_transfer),
		cmocka_unit_test(lane_stop_transfer__wakes_the_other_lane),
		cmocka_unit_test(lane_attach__and_detach_a_thousand_times_beside_traffic),
		cmocka_unit_test(lane__two_lanes_three_clients_every_transfer_ends_once),
	};

	return cmocka_run_group_tests(tests, start_eal, NULL);
}
