/* SPDX-License-Identifier: Apache-2.0 */
#include "inbox.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "eal.h"

#define CONTROL 2U /* the producer after two lanes */

static struct kvp_inbox *
create(uint32_t capacity)
{
	struct kvp_error err = {""};
	struct kvp_inbox *inbox = NULL;

	if (kvp_inbox_create(CONTROL + 1, capacity, &inbox, &err) != KVP_SUCCESS)
		fail_msg("%s", err.text);
	return inbox;
}

static bool
is_readable(const struct kvp_inbox *inbox)
{
	struct pollfd fd = {.fd = kvp_inbox_fd(inbox), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static void
put(struct kvp_inbox *inbox, uint32_t producer, uint64_t tag)
{
	struct kvp_event *event = kvp_inbox_take(inbox);

	assert_non_null(event);
	*event = (struct kvp_event){.kind = KVP_EVENT_PUSH_ARRIVED, .tag = tag};
	kvp_inbox_put(inbox, producer, event);
}

static void
expect_tag(struct kvp_inbox *inbox, uint64_t tag)
{
	struct kvp_event event;

	assert_int_equal(kvp_inbox_poll(inbox, &event), KVP_SUCCESS);
	assert_int_equal(event.kind, KVP_EVENT_PUSH_ARRIVED);
	assert_int_equal(event.tag, tag);
}

static void
inbox_create__heap_too_small_names_setting(void **state)
{
	struct kvp_error err = {""};
	struct kvp_inbox *inbox = NULL;
	kvp_status status = KVP_SUCCESS;
	struct kvp_inbox *held[16];
	uint32_t count = 0;

	(void)state;
	/* 64 MiB hold two or three of the largest. */
	while (count < 16) {
		status = kvp_inbox_create(1, 65536, &inbox, &err);
		if (status != KVP_SUCCESS)
			break;
		held[count++] = inbox;
	}
	assert_int_equal(status, KVP_OUT_OF_MEMORY);
	assert_non_null(strstr(err.text, "eal_mem_mb"));
	assert_true(count >= 1);
	while (count > 0)
		kvp_inbox_destroy(held[--count]);
	kvp_inbox_destroy(NULL);
}

static void
inbox_poll__empty_leaves_event_alone(void **state)
{
	struct kvp_inbox *inbox = create(16);
	struct kvp_event event = {.tag = 77};

	(void)state;
	assert_int_equal(kvp_inbox_poll(inbox, &event), KVP_NO_EVENT);
	assert_int_equal(event.tag, 77);
	assert_false(is_readable(inbox));
	kvp_inbox_destroy(inbox);
}

static void
inbox_take__null_exactly_at_capacity(void **state)
{
	struct kvp_inbox *inbox = create(16);

	(void)state;
	for (uint64_t round = 0; round < 100; round++) {
		for (uint64_t i = 0; i < 16; i++)
			put(inbox, (uint32_t)(i % 3), i);
		assert_null(kvp_inbox_take(inbox));
		assert_null(kvp_inbox_take(inbox));
		expect_tag(inbox, 0);
		put(inbox, 0, 16);
		assert_null(kvp_inbox_take(inbox));
		for (uint64_t i = 1; i <= 16; i++)
			expect_tag(inbox, i);
	}
	kvp_inbox_destroy(inbox);
}

static void
inbox_put__one_producer_holds_all(void **state)
{
	struct kvp_inbox *inbox = create(1000);

	(void)state;
	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < 1000; i++)
			put(inbox, CONTROL, i);
		assert_null(kvp_inbox_take(inbox));
		for (uint64_t i = 0; i < 1000; i++)
			expect_tag(inbox, i);
	}
	kvp_inbox_destroy(inbox);
}

static void
inbox_poll__oldest_first_over_producers(void **state)
{
	struct kvp_inbox *inbox = create(64);
	const uint32_t producer[] = {2, 0, 1, 1, 0, 2, 2, 0};

	(void)state;
	for (uint64_t i = 0; i < 8; i++)
		put(inbox, producer[i], i);
	for (uint64_t i = 0; i < 8; i++)
		expect_tag(inbox, i);
	kvp_inbox_destroy(inbox);
}

static void
inbox_poll__copies_everything(void **state)
{
	struct kvp_inbox *inbox = create(16);
	struct kvp_event *event = kvp_inbox_take(inbox);
	struct kvp_event sent;
	struct kvp_event got;

	(void)state;
	memset(&sent, 0x5A, sizeof(sent));
	sent.payload_bytes = KVP_NOTIFY_BYTES_MAX;
	*event = sent;
	kvp_inbox_put(inbox, 1, event);
	memset(&got, 0, sizeof(got));
	assert_int_equal(kvp_inbox_poll(inbox, &got), KVP_SUCCESS);
	assert_memory_equal(&got, &sent, sizeof(got));
	kvp_inbox_destroy(inbox);
}

static void
inbox_fd__readable_while_events_are_queued(void **state)
{
	struct kvp_inbox *inbox = create(64);
	struct kvp_event event;

	(void)state;
	for (int round = 0; round < 3; round++) {
		assert_false(is_readable(inbox));
		put(inbox, 0, 1);
		assert_true(is_readable(inbox));
		put(inbox, 1, 2);
		expect_tag(inbox, 1);
		assert_true(is_readable(inbox));
		expect_tag(inbox, 2);
		/* One event at a time: readable until the application saw that it is empty. */
		put(inbox, 0, 3);
		assert_true(is_readable(inbox));
		expect_tag(inbox, 3);
		assert_int_equal(kvp_inbox_poll(inbox, &event), KVP_NO_EVENT);
		assert_false(is_readable(inbox));
		assert_int_equal(kvp_inbox_poll(inbox, &event), KVP_NO_EVENT);
	}
	kvp_inbox_destroy(inbox);
}

static void
inbox_destroy__with_events_queued(void **state)
{
	(void)state;
	for (int i = 0; i < 50; i++) {
		struct kvp_inbox *inbox = create(32);

		put(inbox, 0, 1);
		put(inbox, 1, 2);
		expect_tag(inbox, 1);
		kvp_inbox_destroy(inbox);
	}
}

#define STREAM 5000U

struct producer {
	struct kvp_inbox *inbox;
	uint32_t index;
	pthread_t thread;
};

static void *
produce_main(void *arg)
{
	struct producer *producer = arg;
	struct kvp_error err = {""};
	bool is_lcore = producer->index != CONTROL;

	if (is_lcore && kvp_eal_thread_enter(&err) != KVP_SUCCESS)
		return arg;
	for (uint64_t i = 0; i < STREAM; i++) {
		struct kvp_event *event;

		while ((event = kvp_inbox_take(producer->inbox)) == NULL)
			(void)sched_yield();
		event->cluster_id = producer->index;
		event->tag = i;
		kvp_inbox_put(producer->inbox, producer->index, event);
	}
	if (is_lcore)
		kvp_eal_thread_leave();
	return NULL;
}

static void
inbox__three_producers_sleeping_reader_loses_nothing(void **state)
{
	struct kvp_inbox *inbox = create(32);
	struct producer producer[CONTROL + 1];
	uint64_t next[CONTROL + 1] = {0};
	uint64_t got = 0;
	struct kvp_event event;
	void *failed;

	(void)state;
	for (uint32_t i = 0; i <= CONTROL; i++) {
		producer[i] = (struct producer){.inbox = inbox, .index = i};
		assert_int_equal(
			pthread_create(&producer[i].thread, NULL, produce_main, &producer[i]), 0);
	}
	while (got < (CONTROL + 1) * (uint64_t)STREAM) {
		struct pollfd fd = {.fd = kvp_inbox_fd(inbox), .events = POLLIN};

		if (kvp_inbox_poll(inbox, &event) == KVP_NO_EVENT) {
			/* A lost wake-up would end here. */
			assert_int_equal(poll(&fd, 1, 10000), 1);
			continue;
		}
		assert_true(event.cluster_id <= CONTROL);
		assert_int_equal(event.tag, next[event.cluster_id]);
		next[event.cluster_id]++;
		got++;
	}
	for (uint32_t i = 0; i <= CONTROL; i++) {
		assert_int_equal(pthread_join(producer[i].thread, &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(kvp_inbox_poll(inbox, &event), KVP_NO_EVENT);
	assert_false(is_readable(inbox));
	for (uint64_t i = 0; i < 32; i++)
		put(inbox, 0, i);
	assert_null(kvp_inbox_take(inbox));
	kvp_inbox_destroy(inbox);
}

/* By turns from the ring that a poll looks at first and the one that it looks at last. */
static void *
echo_main(void *arg)
{
	struct producer *producer = arg;
	struct kvp_error err = {""};

	if (kvp_eal_thread_enter(&err) != KVP_SUCCESS)
		return arg;
	for (uint32_t i = 0; i < producer->index; i++) {
		struct kvp_event *event;

		while ((event = kvp_inbox_take(producer->inbox)) == NULL)
			(void)sched_yield();
		event->tag = 2 * (uint64_t)i;
		kvp_inbox_put(producer->inbox, 0, event);
		while ((event = kvp_inbox_take(producer->inbox)) == NULL)
			(void)sched_yield();
		event->tag = 2 * (uint64_t)i + 1;
		kvp_inbox_put(producer->inbox, 2, event);
	}
	kvp_eal_thread_leave();
	return NULL;
}

static void
inbox_poll__never_shows_a_later_event_first(void **state)
{
	struct kvp_inbox *inbox = create(16);
	struct producer producer = {.inbox = inbox, .index = 5000};
	struct kvp_event event;
	uint64_t next = 0;
	void *failed;

	(void)state;
	assert_int_equal(pthread_create(&producer.thread, NULL, echo_main, &producer), 0);
	while (next < 10000) {
		if (kvp_inbox_poll(inbox, &event) == KVP_NO_EVENT) {
			(void)sched_yield();
			continue;
		}
		assert_int_equal(event.tag, next);
		next++;
	}
	assert_int_equal(pthread_join(producer.thread, &failed), 0);
	assert_null(failed);
	kvp_inbox_destroy(inbox);
}

static int
start_eal(void **state)
{
	struct kvp_error err = {""};

	(void)state;
	return kvp_eal_start(64, &err) == KVP_SUCCESS ? 0 : -1;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inbox_create__heap_too_small_names_setting),
		cmocka_unit_test(inbox_take__null_exactly_at_capacity),
		cmocka_unit_test(inbox_put__one_producer_holds_all),
		cmocka_unit_test(inbox_poll__empty_leaves_event_alone),
		cmocka_unit_test(inbox_poll__oldest_first_over_producers),
		cmocka_unit_test(inbox_poll__copies_everything),
		cmocka_unit_test(inbox_poll__never_shows_a_later_event_first),
		cmocka_unit_test(inbox_fd__readable_while_events_are_queued),
		cmocka_unit_test(inbox_destroy__with_events_queued),
		cmocka_unit_test(inbox__three_producers_sleeping_reader_loses_nothing),
	};

	return cmocka_run_group_tests(tests, start_eal, NULL);
}
