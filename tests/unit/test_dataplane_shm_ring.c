/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/shm_ring.h"

struct fixture {
	struct kvp_shm_ring ring;
	struct kvp_shm_writer writer;
	struct kvp_shm_reader reader;
};

static struct fixture *
fixture_create(uint32_t start)
{
	struct fixture *f = aligned_alloc(KVP_SHARE_SPAN, sizeof(*f));

	assert_non_null(f);
	memset(f, 0, sizeof(*f));
	f->writer.ring = &f->ring;
	f->reader.ring = &f->ring;
	f->writer.head = start;
	f->reader.tail = start;
	atomic_init(&f->ring.head, start);
	atomic_init(&f->ring.tail, start);
	return f;
}

static struct kvp_shm_note
note_of(uint64_t number)
{
	return (struct kvp_shm_note){.tag = number,
				     .bytes = number * 3,
				     .cache = (int64_t)(number % 7),
				     .layer = (uint32_t)number % (KVP_TENSORS_MAX + 1),
				     .payload_bytes =
					     (uint32_t)(number % (KVP_NOTIFY_BYTES_MAX + 1))};
}

static int
put(struct fixture *f, uint64_t number)
{
	struct kvp_shm_note note = note_of(number);
	uint8_t payload[KVP_NOTIFY_BYTES_MAX];

	memset(payload, (int)(number & 0xFF), sizeof(payload));
	return kvp_shm_writer_put(&f->writer, &note, payload);
}

static void
take_and_check(struct fixture *f, uint64_t number)
{
	struct kvp_shm_note want = note_of(number), got;
	uint8_t payload[KVP_NOTIFY_BYTES_MAX], expected[KVP_NOTIFY_BYTES_MAX];

	memset(payload, 0xEE, sizeof(payload));
	memset(expected, 0xEE, sizeof(expected));
	memset(expected, (int)(number & 0xFF), want.payload_bytes);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &got), 1);
	assert_int_equal(got.tag, want.tag);
	assert_int_equal(got.bytes, want.bytes);
	assert_int_equal(got.cache, want.cache);
	assert_int_equal(got.payload_bytes, want.payload_bytes);
	assert_int_equal(got.layer, want.layer);
	kvp_shm_reader_take(&f->reader, &got, payload);
	assert_memory_equal(payload, expected, sizeof(payload));
}

static void
peek__empty(void **state)
{
	struct fixture *f = fixture_create(0);
	struct kvp_shm_note note = {.tag = 5};

	(void)state;
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), 0);
	assert_int_equal(note.tag, 5);
	free(f);
}

static void
put__full_writes_nothing(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	for (uint64_t i = 0; i < KVP_SHM_SLOTS; i++)
		assert_int_equal(put(f, i), 1);
	assert_int_equal(put(f, 999), 0);
	assert_int_equal(put(f, 999), 0);
	for (uint64_t i = 0; i < KVP_SHM_SLOTS; i++)
		take_and_check(f, i);
	assert_int_equal(put(f, 1000), 1);
	take_and_check(f, 1000);
	free(f);
}

static void
put__every_fill_level_across_the_counters_wrap(void **state)
{
	struct fixture *f = fixture_create(UINT32_MAX - 100);
	uint64_t written = 0, taken = 0;

	(void)state;
	for (uint32_t level = 1; level <= KVP_SHM_SLOTS; level++) {
		while (written - taken < level)
			assert_int_equal(put(f, written++), 1);
		while (written != taken)
			take_and_check(f, taken++);
	}
	assert_true(written > 200); /* so the counters went through 0 */
	free(f);
}

static void
peek__writer_counter_too_far_ahead(void **state)
{
	struct fixture *f = fixture_create(0);
	struct kvp_shm_note note;

	(void)state;
	atomic_store(&f->ring.head, KVP_SHM_SLOTS + 1);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), -1);
	free(f);
}

static void
peek__writer_counter_went_back(void **state)
{
	struct fixture *f = fixture_create(10);
	struct kvp_shm_note note;

	(void)state;
	atomic_store(&f->ring.head, 9);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), -1);
	free(f);
}

static void
peek__payload_too_long(void **state)
{
	struct fixture *f = fixture_create(0);
	struct kvp_shm_note note;

	(void)state;
	assert_int_equal(put(f, 1), 1);
	atomic_store(&f->ring.record[0].payload_bytes, KVP_NOTIFY_BYTES_MAX + 1);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), -1);
	atomic_store(&f->ring.record[0].payload_bytes, UINT32_MAX);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), -1);
	atomic_store(&f->ring.record[0].payload_bytes, 0);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), 1);
	atomic_store(&f->ring.record[0].layer, KVP_TENSORS_MAX + 1);
	assert_int_equal(kvp_shm_reader_peek(&f->reader, &note), -1);
	free(f);
}

static void
put__reader_counter_is_ahead(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	atomic_store(&f->ring.tail, 1); /* read what was never written */
	assert_int_equal(put(f, 1), -1);
	free(f);
}

static void
put__reader_counter_went_back(void **state)
{
	struct fixture *f = fixture_create(100);

	(void)state;
	atomic_store(&f->ring.tail, 100 - KVP_SHM_SLOTS - 1);
	assert_int_equal(put(f, 1), -1);
	free(f);
}

/* Our own counter decides, whatever the peer writes over the one that it sees. */
static void
counters__the_shared_copies_of_our_own_are_not_read(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	assert_int_equal(put(f, 1), 1);
	atomic_store(&f->ring.tail, 0xFFFFFFF0U);
	take_and_check(f, 1);
	assert_int_equal(atomic_load(&f->ring.tail), 1);
	atomic_store(&f->ring.head, 77);
	assert_int_equal(put(f, 2), 1);
	assert_int_equal(atomic_load(&f->ring.head), 2);
	free(f);
}

static void
skip__gives_the_slot_back(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	for (uint64_t i = 0; i < KVP_SHM_SLOTS; i++)
		assert_int_equal(put(f, i), 1);
	kvp_shm_reader_skip(&f->reader);
	assert_int_equal(put(f, KVP_SHM_SLOTS), 1);
	for (uint64_t i = 1; i <= KVP_SHM_SLOTS; i++)
		take_and_check(f, i);
	free(f);
}

static void
sleep__refused_while_a_record_waits(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	assert_int_equal(put(f, 1), 1);
	assert_false(kvp_shm_writer_must_wake(&f->writer));
	assert_true(kvp_shm_reader_sleep(&f->reader));
	assert_false(kvp_shm_writer_must_wake(&f->writer)); /* it did not fall asleep */
	free(f);
}

static void
sleep__woken_once(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	assert_false(kvp_shm_reader_sleep(&f->reader));
	assert_int_equal(put(f, 1), 1);
	assert_true(kvp_shm_writer_must_wake(&f->writer));
	assert_int_equal(put(f, 2), 1);
	assert_false(kvp_shm_writer_must_wake(&f->writer));
	free(f);
}

static void
awake__needs_no_wake(void **state)
{
	struct fixture *f = fixture_create(0);

	(void)state;
	assert_false(kvp_shm_reader_sleep(&f->reader));
	kvp_shm_reader_awake(&f->reader);
	assert_int_equal(put(f, 1), 1);
	assert_false(kvp_shm_writer_must_wake(&f->writer));
	free(f);
}

#define THREAD_NOTES 20000U

struct race {
	struct fixture *fixture;
	_Atomic uint32_t is_woken; /* as an eventfd: stays until the reader clears it */
};

static void *
race_writer(void *arg)
{
	struct race *race = arg;

	for (uint64_t i = 0; i < THREAD_NOTES; i++) {
		while (put(race->fixture, i) == 0)
			sched_yield();
		if (kvp_shm_writer_must_wake(&race->fixture->writer))
			atomic_store(&race->is_woken, 1);
	}
	return NULL;
}

/*
 * Two real threads. The reader goes on only when the writer woke it, so a lost
 * wake-up hangs the test, and the records come complete and in order.
 */
static void
ring__two_threads_lose_nothing(void **state)
{
	struct race race = {.fixture = fixture_create(0)};
	struct kvp_shm_note note;
	pthread_t thread;
	uint64_t taken = 0;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, race_writer, &race), 0);
	while (taken < THREAD_NOTES) {
		if (kvp_shm_reader_peek(&race.fixture->reader, &note) == 1) {
			take_and_check(race.fixture, taken++);
			continue;
		}
		if (kvp_shm_reader_sleep(&race.fixture->reader))
			continue;
		while (atomic_exchange(&race.is_woken, 0) == 0)
			sched_yield();
		kvp_shm_reader_awake(&race.fixture->reader);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(kvp_shm_reader_peek(&race.fixture->reader, &note), 0);
	free(race.fixture);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peek__empty),
		cmocka_unit_test(put__full_writes_nothing),
		cmocka_unit_test(put__every_fill_level_across_the_counters_wrap),
		cmocka_unit_test(peek__writer_counter_too_far_ahead),
		cmocka_unit_test(peek__writer_counter_went_back),
		cmocka_unit_test(peek__payload_too_long),
		cmocka_unit_test(put__reader_counter_is_ahead),
		cmocka_unit_test(put__reader_counter_went_back),
		cmocka_unit_test(counters__the_shared_copies_of_our_own_are_not_read),
		cmocka_unit_test(skip__gives_the_slot_back),
		cmocka_unit_test(sleep__refused_while_a_record_waits),
		cmocka_unit_test(sleep__woken_once),
		cmocka_unit_test(awake__needs_no_wake),
		cmocka_unit_test(ring__two_threads_lose_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
