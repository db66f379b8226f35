/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_control_transports.c - transports that a machine has not got, and paths that talk to each other
 *
 * Engines run over two transports of this file beside tcp: one that never starts, and one made of tcp whose
 * paths send notes, want lanes before they are up, and ask to be called by the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "integ/pair.h"
#include "lane.h"
#include "transports.h"

#define PATHS    8U
#define EVERY_NS 2000000U

static kvp_status no_start;       /* absent's answer */
static struct kvp_transport talk; /* a copy of tcp's table, with what is below */

/* What the test knows of a talking path; the engines' control threads write. */
static struct talker {
	struct kvp_path *path;
	void (*changed)(struct kvp_path *path, void *ctx);
	uint32_t attached; /* endpoints; lanes write */
	bool is_real_up;
	uint32_t said; /* notes sent */
	uint32_t heard;
	uint32_t ticks;
} talkers[PATHS];
static uint32_t talker_count;

static struct talker *
talker_of(const struct kvp_path *path)
{
	for (uint32_t i = 0; i < PATHS; i++) {
		if (__atomic_load_n(&talkers[i].path, __ATOMIC_ACQUIRE) == path)
			return &talkers[i];
	}
	return NULL;
}

/* tcp's streams are up: pretend that lanes are needed for more. */
static void
talk_changed(struct kvp_path *path, void *ctx)
{
	struct talker *talker = talker_of(path);

	if (path->state == KVP_PATH_UP && !talker->is_real_up) {
		talker->is_real_up = true;
		path->state = KVP_PATH_CONNECTING;
		path->wants_lanes = true;
		for (uint32_t i = 0; i < path->config.endpoints; i++)
			path->endpoint[i]->transport = &talk;
	}
	talker->changed(path, ctx);
}

static kvp_status
talk_create(const struct kvp_path_config *config, struct kvp_path **path_out, struct kvp_error *err)
{
	struct talker *talker = &talkers[__atomic_fetch_add(&talker_count, 1, __ATOMIC_RELAXED)];
	struct kvp_path_config mine = *config;
	kvp_status status;

	assert_true(talker < talkers + PATHS);
	assert_non_null(config->peer_rail);
	mine.changed = talk_changed;
	status = kvp_tcp_transport.path_create(&mine, path_out, err);
	if (status != KVP_SUCCESS)
		return status;
	(*path_out)->transport = &talk;
	talker->changed = config->changed;
	__atomic_store_n(&talker->path, *path_out, __ATOMIC_RELEASE);
	return KVP_SUCCESS;
}

static void
talk_attached(struct kvp_endpoint *endpoint)
{
	if (kvp_tcp_transport.attached != NULL)
		kvp_tcp_transport.attached(endpoint);
	__atomic_fetch_add(&talker_of(endpoint->path)->attached, 1, __ATOMIC_RELEASE);
}

static uint64_t
talk_tick(struct kvp_path *path, uint64_t now_ns)
{
	struct talker *talker = talker_of(path);
	uint8_t body[3] = {'n', 'o', 0};

	(void)now_ns;
	__atomic_fetch_add(&talker->ticks, 1, __ATOMIC_RELAXED);
	snprintf(path->text, sizeof(path->text), "talk (tick %u)", talker->ticks);
	if (path->state != KVP_PATH_CONNECTING || !path->wants_lanes)
		return talker->is_real_up ? EVERY_NS : UINT64_MAX;
	if (__atomic_load_n(&talker->attached, __ATOMIC_ACQUIRE) != path->config.endpoints)
		return EVERY_NS;
	for (; talker->said < 3; talker->said++) {
		body[2] = (uint8_t)talker->said;
		(void)path->config.note(path, body, sizeof(body), path->config.ctx);
	}
	path->state = KVP_PATH_UP;
	talker->changed(path, path->config.ctx);
	return EVERY_NS;
}

static kvp_status
talk_note(struct kvp_path *path, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	struct talker *talker = talker_of(path);

	if (bytes != 3 || body[2] != talker->heard)
		return kvp_fail(err, KVP_PROTOCOL, "note %u of %u bytes came out of order",
				bytes > 2 ? body[2] : 0, bytes);
	talker->heard++;
	return KVP_SUCCESS;
}

static kvp_status
talk_refuse(struct kvp_path *path, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	(void)path;
	(void)body;
	(void)bytes;
	return kvp_fail(err, KVP_PROTOCOL, "talk: that note makes no sense");
}

static kvp_status
absent_start(struct kvp_dataplane *dataplane, void **state_out, struct kvp_error *err)
{
	(void)dataplane;
	(void)state_out;
	return kvp_fail(err, no_start, "absent: this machine has no such device");
}

static bool
absent_is_required(const struct kvp_config *config)
{
	return config->verbs_devices[0] != '\0';
}

static const struct kvp_transport absent = {
	.name = "absent",
	.start = absent_start,
	.is_required = absent_is_required,
};

const struct kvp_transport *const kvp_transports[KVP_TRANSPORTS] = {&absent, &talk,
								    &kvp_tcp_transport};

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	for (uint32_t i = 0; i < KVP_TRANSPORTS; i++) {
		if (strcmp(kvp_transports[i]->name, name) != 0)
			continue;
		if (slot_out != NULL)
			*slot_out = i;
		return kvp_transports[i];
	}
	return NULL;
}

static int
setup(void **state)
{
	(void)state;
	no_start = KVP_NO_TRANSPORT;
	memset(talkers, 0, sizeof(talkers));
	talker_count = 0;
	talk = kvp_tcp_transport;
	talk.name = "talk";
	talk.path_create = talk_create;
	talk.path_note = talk_note;
	talk.path_tick = talk_tick;
	talk.attached = talk_attached;
	return 0;
}

static void
open_two(struct pair *pair, const char *a_transports, const char *b_transports)
{
	struct kvp_config a, b;

	pair_config(&a, PAIR_A, a_transports);
	pair_config(&b, PAIR_B, b_transports);
	pair_open(pair, &a, &b);
}

static void
assert_path_has(struct kvp_engine *engine, uint64_t peer, const char *words)
{
	struct kvp_link_info info;

	assert_ok(kvp_link_query(engine, peer, &info));
	if (strstr(info.path, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, info.path);
}

/* --- a transport that is not there ------------------------------------------------------- */

static void
absent__is_left_out_and_named(void **state)
{
	struct pair pair;

	(void)state;
	open_two(&pair, "absent,tcp", "absent,tcp");
	assert_path_has(pair.a, PAIR_B, "tcp (");
	assert_path_has(pair.a, PAIR_B, "; not absent: this machine has no such device");
	assert_path_has(pair.b, PAIR_A, "; not absent: this machine has no such device");
	pair_close(&pair);
}

static void
absent__is_named_beside_what_the_peer_has_not(void **state)
{
	struct pair pair;

	(void)state;
	open_two(&pair, "absent,talk,tcp", "tcp");
	assert_path_has(pair.a, PAIR_B,
			"; not absent: this machine has no such device; talk: the peer does not");
	pair_close(&pair);
}

static void
absent__alone_is_an_error(void **state)
{
	struct kvp_engine *engine;
	struct kvp_config config;

	(void)state;
	pair_config(&config, PAIR_A, "absent");
	assert_refused(KVP_NO_TRANSPORT, "no such device", kvp_open(&config, &engine));
}

static void
absent__is_an_error_when_it_is_asked_for(void **state)
{
	struct kvp_engine *engine;
	struct kvp_config config;

	(void)state;
	pair_config(&config, PAIR_A, "tcp,absent");
	snprintf(config.verbs_devices, sizeof(config.verbs_devices), "rxe0");
	assert_refused(KVP_NO_TRANSPORT, "no such device", kvp_open(&config, &engine));
}

static void
absent__other_failures_are_errors(void **state)
{
	struct kvp_engine *engine;
	struct kvp_config config;

	(void)state;
	no_start = KVP_NO_RESOURCE;
	pair_config(&config, PAIR_A, "absent,tcp");
	assert_refused(KVP_NO_RESOURCE, "no such device", kvp_open(&config, &engine));
}

/* --- paths that talk --------------------------------------------------------------------------- */

static void
talk__notes_come_in_order(void **state)
{
	struct pair pair;

	(void)state;
	open_two(&pair, "talk", "talk");
	/* The link was ready only after both were up, and notes come before READY. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(talkers[i].said, 3);
		assert_int_equal(talkers[i].heard, 3);
		assert_true(talkers[i].attached > 0);
	}
	pair_close(&pair);
}

static void
talk__is_called_when_it_wishes(void **state)
{
	struct pair pair;
	uint32_t ticks;
	uint64_t end_ms;

	(void)state;
	open_two(&pair, "talk", "talk");
	ticks = __atomic_load_n(&talkers[0].ticks, __ATOMIC_RELAXED);
	/* Without the wish: ten times a second. */
	end_ms = pair_now_ms() + PAIR_SLOW(2000U);
	while (__atomic_load_n(&talkers[0].ticks, __ATOMIC_RELAXED) < ticks + 100) {
		assert_true(pair_now_ms() < end_ms);
		usleep(1000);
	}
	/* The text is what it is now, not what it was when the link came up. */
	for (uint32_t i = 0; i < 2; i++) {
		struct kvp_link_info info;

		assert_ok(
			kvp_link_query(i == 0 ? pair.a : pair.b, i == 0 ? PAIR_B : PAIR_A, &info));
		assert_memory_equal(info.path, "talk (tick ", 11);
		assert_true(strtoul(info.path + 11, NULL, 10) > (i == 0 ? ticks : 0));
	}
	pair_close(&pair);
}

static void
link_fails(kvp_status status, const char *word)
{
	struct kvp_config a, b;
	struct pair pair = {0};
	uint64_t cluster;
	char address[32];

	pair_config(&a, PAIR_A, "talk");
	pair_config(&b, PAIR_B, "talk");
	assert_ok(kvp_open(&a, &pair.a));
	assert_ok(kvp_open(&b, &pair.b));
	snprintf(address, sizeof(address), "127.0.0.1:%u", kvp_port(pair.b));
	assert_refused(status, word, kvp_link(pair.a, address, PAIR_LONG_MS, &cluster));
	pair_close(&pair);
}

static void
talk__note_that_is_refused_ends_the_link(void **state)
{
	(void)state;
	talk.path_note = talk_refuse;
	link_fails(KVP_PROTOCOL, "makes no sense");
}

static void
talk__note_to_one_that_takes_none_ends_the_link(void **state)
{
	(void)state;
	talk.path_note = NULL;
	link_fails(KVP_PROTOCOL, "talk takes none");
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(absent__is_left_out_and_named),
		TEST(absent__is_named_beside_what_the_peer_has_not),
		TEST(absent__alone_is_an_error),
		TEST(absent__is_an_error_when_it_is_asked_for),
		TEST(absent__other_failures_are_errors),
		TEST(talk__notes_come_in_order),
		TEST(talk__is_called_when_it_wishes),
		TEST(talk__note_that_is_refused_ends_the_link),
		TEST(talk__note_to_one_that_takes_none_ends_the_link),
	};

	alarm(PAIR_ALARM_S);
	return cmocka_run_group_tests_name("control_transports", tests, NULL, NULL);
}
