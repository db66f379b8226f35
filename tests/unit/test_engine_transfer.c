/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kvp_transfer transfer;
static _Atomic uint32_t holds[KVP_HOLDS];

/* A transfer of `parts` parts; part i has moved 10 * (i + 1) bytes. */
static void
build(struct kvp_transfer *t, uint32_t parts)
{
	memset(t, 0, sizeof(*t));
	t->parts = parts;
	atomic_store(&t->parts_left, parts);
	for (uint32_t i = 0; i < KVP_HOLDS; i++) {
		atomic_store(&holds[i], 1);
		t->holds[i] = &holds[i];
	}
	for (uint32_t i = 0; i < parts; i++) {
		t->part[i].transfer = t;
		t->part[i].bytes = 10 * (i + 1);
		t->part[i].bytes_done = t->part[i].bytes;
	}
}

static void
stop__first_wins(void **state)
{
	(void)state;
	build(&transfer, 1);
	assert_false(kvp_transfer_is_stopped(&transfer));
	assert_true(kvp_transfer_stop(&transfer, KVP_TIMEOUT));
	assert_true(kvp_transfer_is_stopped(&transfer));
	assert_false(kvp_transfer_stop(&transfer, KVP_CANCELLED));
	assert_int_equal(atomic_load(&transfer.first_error), KVP_TIMEOUT);
	/* Asked to stop is not ended: bytes may still be in flight. */
	assert_int_equal(kvp_transfer_status(&transfer), KVP_IN_PROGRESS);
}

static void
stop__after_the_end_changes_nothing(void **state)
{
	_Atomic uint32_t *word;

	(void)state;
	build(&transfer, 1);
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	kvp_transfer_publish(&transfer, 0, 5, &word);
	assert_false(kvp_transfer_stop(&transfer, KVP_CANCELLED));
	assert_int_equal(kvp_transfer_status(&transfer), KVP_SUCCESS);
}

static void
retire__last_of_many(void **state)
{
	(void)state;
	build(&transfer, KVP_PARTS_MAX);
	for (uint32_t i = 0; i < KVP_PARTS_MAX - 1; i++)
		assert_false(kvp_transfer_retire(&transfer, &transfer.part[i]));
	assert_int_equal(atomic_load(&transfer.parts_left), 1);
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[KVP_PARTS_MAX - 1]));
	assert_int_equal(atomic_load(&transfer.parts_left), 0);
	assert_int_equal(atomic_load(&transfer.moved), 10 * 16 * 17 / 2);
	assert_int_equal(kvp_transfer_status(&transfer), KVP_IN_PROGRESS);
}

static void
retire__counts_what_landed(void **state)
{
	(void)state;
	build(&transfer, 1);
	transfer.part[0].bytes_done = 3; /* of 10: it was stopped */
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	assert_int_equal(atomic_load(&transfer.moved), 3);
}

static void
publish__success(void **state)
{
	_Atomic uint32_t *word = NULL;

	(void)state;
	build(&transfer, 1);
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	assert_false(kvp_transfer_publish(&transfer, 0, 77, &word));
	assert_ptr_equal(word, &transfer.word);
	assert_int_equal(atomic_load(&transfer.word), KVP_WORD_DONE);
	assert_int_equal(atomic_load(&transfer.end_ns), 77);
	assert_int_equal(kvp_transfer_status(&transfer), KVP_SUCCESS);
	for (uint32_t i = 0; i < KVP_HOLDS; i++)
		assert_int_equal(atomic_load(&holds[i]), 0);
}

static void
publish__first_error(void **state)
{
	_Atomic uint32_t *word;

	(void)state;
	build(&transfer, 1);
	assert_true(kvp_transfer_stop(&transfer, KVP_PEER_LOST));
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	assert_int_equal(kvp_transfer_status(&transfer), KVP_IN_PROGRESS);
	kvp_transfer_publish(&transfer, 0, 1, &word);
	assert_int_equal(kvp_transfer_status(&transfer), KVP_PEER_LOST);
	assert_false(kvp_transfer_stop(&transfer, KVP_CANCELLED));
	assert_int_equal(kvp_transfer_status(&transfer), KVP_PEER_LOST);
}

static void
publish__tells_of_a_waiter(void **state)
{
	_Atomic uint32_t *word = NULL;

	(void)state;
	build(&transfer, 1);
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	atomic_store(&transfer.word, KVP_WORD_WAITED);
	assert_int_equal(kvp_transfer_status(&transfer), KVP_IN_PROGRESS);
	assert_true(kvp_transfer_publish(&transfer, 0, 1, &word));
	assert_ptr_equal(word, &transfer.word);
	assert_int_equal(atomic_load(&transfer.word), KVP_WORD_DONE);
}

static void
publish__some_holds_are_none(void **state)
{
	_Atomic uint32_t *word;

	(void)state;
	build(&transfer, 1);
	transfer.holds[1] = NULL;
	transfer.holds[KVP_HOLDS - 1] = NULL;
	assert_true(kvp_transfer_retire(&transfer, &transfer.part[0]));
	kvp_transfer_publish(&transfer, 0, 1, &word);
	assert_int_equal(atomic_load(&holds[0]), 0);
	assert_int_equal(atomic_load(&holds[1]), 1);
	assert_int_equal(atomic_load(&holds[KVP_HOLDS - 1]), 1);
}

/*
 * Real lanes: one thread per part, one that stops, and the application's (this
 * one), which frees the transfer as soon as it is done, as it may. Under
 * AddressSanitizer a touch after DONE is an error, under ThreadSanitizer a
 * number that is not handed over properly.
 */
enum {
	LANES = 3,
	ROUNDS = 3000
};

struct race {
	_Atomic(struct kvp_transfer *) transfer; /* this round's, NULL between rounds */
	_Atomic uint32_t round;
	_Atomic uint32_t at_work;
	_Atomic uint32_t publishes;
	_Atomic uint32_t stops_won;
	_Atomic uint32_t is_over;
};

struct racer {
	struct race *race;
	uint32_t number;
	pthread_t thread;
};

/* Wait for a round after `seen`; false at the end. */
static bool
next_round(struct race *race, uint32_t *seen)
{
	while (atomic_load(&race->round) == *seen) {
		if (atomic_load(&race->is_over) != 0)
			return false;
		sched_yield();
	}
	*seen = atomic_load(&race->round);
	return true;
}

static void *
lane_main(void *arg)
{
	struct racer *racer = arg;
	struct race *race = racer->race;
	_Atomic uint32_t *word;
	uint32_t seen = 0;

	while (next_round(race, &seen)) {
		struct kvp_transfer *t = atomic_load(&race->transfer);
		struct kvp_part *part = &t->part[racer->number];

		if (!kvp_transfer_is_stopped(t))
			part->bytes_done = part->bytes;
		atomic_fetch_add_explicit(&t->requests, 2, memory_order_relaxed);
		if (kvp_transfer_retire(t, part)) {
			kvp_transfer_publish(t, 0, 1000 + seen, &word);
			atomic_fetch_add(&race->publishes, 1);
		}
		atomic_fetch_sub(&race->at_work, 1);
	}
	return NULL;
}

/* Holds a reference of its own: whoever stops is on the application's side. */
static void *
stopper_main(void *arg)
{
	struct racer *racer = arg;
	struct race *race = racer->race;
	uint32_t seen = 0;

	while (next_round(race, &seen)) {
		if (seen % 2 == 0 && kvp_transfer_stop(atomic_load(&race->transfer), KVP_CANCELLED))
			atomic_fetch_add(&race->stops_won, 1);
		atomic_fetch_sub(&race->at_work, 1);
	}
	return NULL;
}

static struct kvp_transfer *
new_transfer(void)
{
	struct kvp_transfer *t = aligned_alloc(KVP_SHARE_SPAN, sizeof(*t));

	assert_non_null(t);
	build(t, LANES);
	for (uint32_t i = 0; i < LANES; i++)
		t->part[i].bytes_done = 0;
	return t;
}

/* The stopper may still look at the transfer, so only rounds without it free at DONE. */
static void
run_round(struct race *race, uint32_t round)
{
	struct kvp_transfer *t = new_transfer();
	uint32_t won_before = atomic_load(&race->stops_won);
	kvp_status status;

	atomic_store(&race->transfer, t);
	atomic_store(&race->at_work, LANES + 1);
	atomic_store(&race->round, round);
	do {
		sched_yield();
		status = kvp_transfer_status(t);
	} while (status == KVP_IN_PROGRESS);
	assert_int_equal(atomic_load_explicit(&t->requests, memory_order_relaxed), 2 * LANES);
	assert_int_equal(atomic_load_explicit(&t->end_ns, memory_order_relaxed), 1000 + round);
	if (status == KVP_SUCCESS)
		assert_int_equal(atomic_load_explicit(&t->moved, memory_order_relaxed), 60);
	if (round % 2 != 0)
		free(t);
	while (atomic_load(&race->at_work) != 0)
		sched_yield();
	if (round % 2 == 0) {
		/* Whatever a late stop did, the status is the one first seen. */
		assert_int_equal(kvp_transfer_status(t), status);
		free(t);
	}
	assert_int_equal(atomic_load(&race->publishes), round);
	assert_int_equal(atomic_load(&race->stops_won) - won_before, status == KVP_CANCELLED);
	for (uint32_t i = 0; i < KVP_HOLDS; i++)
		assert_int_equal(atomic_load(&holds[i]), 0);
}

static void
race__exactly_once(void **state)
{
	struct race race = {.round = 0};
	struct racer racer[LANES + 1];

	(void)state;
	for (uint32_t i = 0; i <= LANES; i++) {
		racer[i].race = &race;
		racer[i].number = i;
		assert_int_equal(pthread_create(&racer[i].thread, NULL,
						i < LANES ? lane_main : stopper_main, &racer[i]),
				 0);
	}
	for (uint32_t round = 1; round <= ROUNDS; round++)
		run_round(&race, round);
	atomic_store(&race.is_over, 1);
	for (uint32_t i = 0; i <= LANES; i++)
		pthread_join(racer[i].thread, NULL);
	assert_int_equal(atomic_load(&race.publishes), ROUNDS);
}

/* An application that sleeps on the word is told of, or sees DONE before it sleeps: never neither. */
static void *
publish_main(void *arg)
{
	struct kvp_transfer *t = arg;
	_Atomic uint32_t *word;
	bool is_last = kvp_transfer_retire(t, &t->part[0]);

	return is_last && kvp_transfer_publish(t, 0, 1, &word) ? t : NULL;
}

static void
race__waiter(void **state)
{
	(void)state;
	for (uint32_t round = 0; round < 300; round++) {
		uint32_t expected = KVP_WORD_PENDING;
		pthread_t thread;
		void *must_wake;
		bool sleeps;

		build(&transfer, 1);
		assert_int_equal(pthread_create(&thread, NULL, publish_main, &transfer), 0);
		for (uint32_t i = 0; i < round % 8; i++)
			sched_yield();
		sleeps = atomic_compare_exchange_strong(&transfer.word, &expected, KVP_WORD_WAITED);
		pthread_join(thread, &must_wake);
		assert_int_equal(sleeps, must_wake != NULL);
		assert_int_equal(kvp_transfer_status(&transfer), KVP_SUCCESS);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stop__first_wins),
		cmocka_unit_test(stop__after_the_end_changes_nothing),
		cmocka_unit_test(retire__last_of_many),
		cmocka_unit_test(retire__counts_what_landed),
		cmocka_unit_test(publish__success),
		cmocka_unit_test(publish__first_error),
		cmocka_unit_test(publish__tells_of_a_waiter),
		cmocka_unit_test(publish__some_holds_are_none),
		cmocka_unit_test(race__exactly_once),
		cmocka_unit_test(race__waiter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
