/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_verbs_rebuild.c - QPs that break, devices that change, and what the two ends say about it
 *
 * links: dataplane/verbs/verbs_path.o dataplane/verbs/verbs_rebuild.o dataplane/verbs/verbs_view.o
 *        dataplane/verbs/verbs_text.o dataplane/verbs/verbs_queue.o dataplane/verbs/verbs_wire.o
 *        dataplane/verbs/verbs_rail.o dataplane/verbs/verbs_keys.o dataplane/verbs/verbs_endpoint.o
 *        dataplane/verbs/verbs_device.o dataplane/verbs/verbs_port.o engine/check.o engine/error.o engine/line.o
 *        engine/wire.o engine/rights.o engine/gather.o engine/cursor.o engine/layout.o
 */
#include "verbs_ends.h"

/* --- rebuild ----------------------------------------------------------------------------------------- */

static void
rebuild__fences_both_ends(void **state)
{
	struct kvp_verbs_queue *mine, *theirs;
	uint32_t old;

	(void)state;
	link_up(1);
	mine = queue_of(0, 1);
	theirs = queue_of(1, 1);
	old = theirs->qp->qp_num;
	atomic_store(mine->credit, 99);
	theirs->taken = 3;
	lane_flush(mine, IBV_WC_RETRY_EXC_ERR, 7);
	(void)tick(0); /* broken: to be asked at once */
	(void)tick(0);
	assert_int_equal(phase_of(mine), KVP_VERBS_RESET);
	assert_int_equal(mine->generation, 2);
	assert_int_equal(atomic_load(mine->credit), 0);
	assert_int_equal(deliver(1), 1);
	/* Theirs is the lane's still: it is asked, and nothing is answered or fenced. */
	assert_int_equal(atomic_load(&theirs->asked), 1);
	(void)tick(1);
	assert_int_equal(side[0].in_end, side[0].in_first);
	assert_int_equal(atomic_load(&theirs->fenced), 0);
	assert_int_equal(theirs->qp->qp_num, old);
	assert_int_equal(lane_turn(1, 1), 1);
	(void)tick(1);
	assert_int_equal(atomic_load(&theirs->fenced), 1ULL << 32 | 7);
	assert_int_equal(atomic_load(&mine->fenced), 0);
	assert_int_not_equal(theirs->qp->qp_num, old);
	assert_int_equal(deliver(0), 1);
	assert_int_equal(atomic_load(&mine->fenced), 1ULL << 32 | 3);
	assert_int_equal(phase_of(mine), KVP_VERBS_READY);
	settle();
	assert_all_up(0);
	assert_int_equal(mine->generation, 2);
	assert_int_equal(theirs->generation, 2);
	assert_int_equal(queue_of(0, 0)->generation, 1); /* the others never noticed */
	assert_int_equal(side[0].changes, 1);
	world_close();
}

static void
rebuild__acceptor_breaks_first(void **state)
{
	(void)state;
	link_up(1);
	queue_of(0, 2)->taken = 5;
	lane_flush(queue_of(1, 2), IBV_WC_LOC_PROT_ERR, 11);
	(void)tick(1);
	assert_int_equal(deliver(0), 1); /* BROKEN */
	assert_int_equal(atomic_load(&queue_of(0, 2)->asked), 1);
	settle();
	assert_all_up(0);
	assert_int_equal(atomic_load(&queue_of(0, 2)->fenced), 1ULL << 32 | 11);
	assert_int_equal(atomic_load(&queue_of(1, 2)->fenced), 1ULL << 32 | 5);
	/* The next generation has a fence of its own. */
	queue_of(0, 2)->taken = 6;
	lane_flush(queue_of(1, 2), IBV_WC_LOC_PROT_ERR, 12);
	settle();
	assert_all_up(0);
	assert_int_equal(atomic_load(&queue_of(0, 2)->fenced), 2ULL << 32 | 12);
	assert_int_equal(atomic_load(&queue_of(1, 2)->fenced), 2ULL << 32 | 6);
	world_close();
}

static void
rebuild__both_break_at_once(void **state)
{
	(void)state;
	link_up(1);
	lane_flush(queue_of(0, 3), IBV_WC_RETRY_EXC_ERR, 1);
	lane_flush(queue_of(1, 3), IBV_WC_RETRY_EXC_ERR, 2);
	settle();
	assert_all_up(0);
	assert_int_equal(queue_of(0, 3)->generation, 2);
	assert_int_equal(atomic_load(&queue_of(0, 3)->fenced), 1ULL << 32 | 2);
	assert_int_equal(atomic_load(&queue_of(1, 3)->fenced), 1ULL << 32 | 1);
	world_close();
}

static void
rebuild__backs_off_while_the_peer_cannot(void **state)
{
	static const uint32_t wait_ms[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
	struct kvp_verbs_port *port;

	(void)state;
	link_up(1);
	port = &side[1].verbs->devices.port[0];
	port->is_active = false;
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 7);
	for (uint32_t n = 0; n < sizeof(wait_ms) / sizeof(wait_ms[0]); n++) {
		settle();
		assert_int_equal(side[0].wish_ns, wait_ms[n] * MS);
		assert_int_equal(queue_of(0, 0)->generation, 2 + n);
		/* The word of the first answer holds: later attempts carried nothing. */
		assert_int_equal(atomic_load(&queue_of(0, 0)->fenced), 1ULL << 32);
		assert_int_equal(atomic_load(&queue_of(1, 0)->fenced), 1ULL << 32 | 7);
		now_ns += side[0].wish_ns - 1;
		(void)tick(0);
		assert_int_equal(side[0].wish_ns, 1);
		now_ns++;
	}
	settle();
	assert_int_equal(phase_of(queue_of(0, 0)), KVP_VERBS_RESET);
	/* Its port comes back: the peer hears of it and does not wait. */
	port->is_active = true;
	device_changed(&side[1].verbs->devices, port->device, port, NULL, &side[1]);
	settle();
	assert_all_up(0);
	/* It was proven: the next time begins anew. */
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 0);
	settle();
	assert_all_up(0);
	world_close();
}

/* An address that nobody has: the kernel asks for it for a second each time. */
static void
rebuild__rests_after_a_slow_failure(void **state)
{
	struct kvp_verbs_port *port;
	uint32_t index;
	uint64_t made;

	(void)state;
	link_up(1);
	port = &side[1].verbs->devices.port[0];
	index = port->gid_index;
	port->gid_index = 77; /* to RTR: refused */
	slow_ns = 1000 * MS;
	for (uint32_t q = 0; q < 2; q++)
		lane_flush(queue_of(0, q), IBV_WC_RETRY_EXC_ERR, 0);
	made = fake_verbs_counters()->qps;
	settle();
	/* Both of the initiator's, and one of the acceptor's: the second is not tried. */
	assert_int_equal(fake_verbs_counters()->qps, made + 3);
	for (uint32_t n = 0; n < 20; n++) {
		now_ns += 200 * MS;
		settle();
	}
	for (uint32_t q = 0; q < 2; q++)
		assert_null(queue_of(1, q)->qp);
	assert_in("GID at index 77", kvp_verbs_path_of(side[1].path)->rail[0].why);
	slow_ns = 0;
	port->gid_index = index;
	for (uint32_t n = 0; n < 20; n++) {
		now_ns += 1000 * MS;
		settle();
	}
	assert_all_up(0);
	world_close();
}

static void
rebuild__generations_wrap(void **state)
{
	(void)state;
	link_up(1);
	for (uint32_t i = 0; i < 2; i++)
		queue_of(i, 0)->generation = 4095;
	atomic_store(&queue_of(1, 0)->proven, 4095);
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 0);
	settle();
	assert_all_up(1);
	assert_int_equal(atomic_load(&queue_of(0, 0)->fenced) >> 32, 4095);
	world_close();
}

static void
rebuild__nothing_after_the_link_ended(void **state)
{
	uint64_t made;

	(void)state;
	link_up(1);
	side[0].is_gone = side[1].is_gone = true;
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 0);
	lane_flush(queue_of(1, 1), IBV_WC_RETRY_EXC_ERR, 0);
	settle();
	made = fake_verbs_counters()->qps;
	now_ns += 10000 * MS;
	settle();
	assert_int_equal(fake_verbs_counters()->qps, made);
	assert_null(queue_of(0, 0)->qp);
	assert_null(queue_of(1, 1)->qp);
	world_close();
}

/* Its endpoints are down for good, though notes could still be sent. */
static void
rebuild__nothing_on_a_silent_path(void **state)
{
	uint64_t made;

	(void)state;
	link_up(1);
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 0);
	(void)tick(0);
	(void)tick(0); /* REBUILD is out */
	made = fake_verbs_counters()->qps;
	side[0].path->is_silent = side[1].path->is_silent = true;
	settle();
	now_ns += 10000 * MS;
	settle();
	assert_int_equal(fake_verbs_counters()->qps, made);
	assert_int_equal(phase_of(queue_of(0, 0)), KVP_VERBS_RESET);
	assert_null(queue_of(1, 0)->qp);
	assert_int_equal(side[0].in_end, side[0].in_first);
	assert_int_equal(atomic_load(&queue_of(0, 1)->asked), 0);
	world_close();
}

/* --- devices ----------------------------------------------------------------------------------------------- */

static void
event__port_down_and_up(void **state)
{
	(void)state;
	link_up(1);
	fake_verbs_cable(1, 0, FAKE_VERBS_CUT); /* the initiator's second */
	events(0);
	assert_int_equal(atomic_load(&queue_of(0, 2)->asked), 1);
	assert_int_equal(atomic_load(&queue_of(0, 3)->asked), 1);
	assert_int_equal(atomic_load(&queue_of(0, 0)->asked), 0);
	settle();
	assert_int_equal(phase_of(queue_of(0, 2)), KVP_VERBS_RESET);
	assert_int_equal(phase_of(queue_of(0, 0)), KVP_VERBS_UP);
	assert_in("fake1:1 10.2.0.3 -> fake3:1 10.2.0.7, 0 of 2 QPs, down: ", side[0].path->text);
	assert_int_equal(side[0].path->state, KVP_PATH_UP);
	now_ns += 2000 * MS;
	settle();
	assert_in("fake1:1 -> fake3:1 is out of service: ", side[0].said[side[0].says - 1]);
	/* Both learned of the other's fence, though there is nothing to build with. */
	assert_int_equal(atomic_load(&queue_of(0, 2)->fenced) >> 32, 1);
	assert_int_equal(atomic_load(&queue_of(1, 2)->fenced) >> 32, 1);
	fake_verbs_cable(1, 0, FAKE_VERBS_PLUGGED);
	events(0);
	settle();
	assert_all_up(0);
	now_ns += 2000 * MS;
	settle();
	assert_in("fake1:1 -> fake3:1 is in service", side[0].said[side[0].says - 1]);
	world_close();
}

static void
event__gid_moves(void **state)
{
	uint32_t before;

	(void)state;
	link_up(1);
	before = side[1].verbs->devices.port[0].gid_index;
	fake_verbs_gid_move(2, 0);
	events(1);
	settle();
	assert_int_not_equal(side[1].verbs->devices.port[0].gid_index, before);
	now_ns += 200 * MS;
	settle();
	assert_all_up(0);
	world_close();
}

static void
event__one_qp_is_fatal(void **state)
{
	(void)state;
	link_up(1);
	fake_verbs_qp_fatal(queue_of(0, 1)->qp->qp_num);
	events(0);
	for (uint32_t q = 0; q < 4; q++)
		assert_int_equal(atomic_load(&queue_of(0, q)->asked), q == 1 ? 1 : 0);
	settle();
	assert_all_up(0);
	world_close();
}

static void
say__at_most_once_a_second(void **state)
{
	uint32_t says;

	(void)state;
	link_up(1);
	says = side[0].says;
	now_ns += 2000 * MS;
	for (uint32_t n = 0; n < 8; n++) {
		for (uint32_t q = 0; q < 2; q++)
			lane_flush(queue_of(0, q), IBV_WC_RETRY_EXC_ERR, 0);
		settle();
		assert_all_up(0);
		now_ns += 10 * MS;
	}
	assert_int_equal(side[0].says, says + 1);
	assert_in("out of service: " STATUS_WORD, side[0].said[says]);
	assert_true(side[0].wish_ns <= 1000 * MS);
	now_ns += 1000 * MS;
	settle();
	assert_int_equal(side[0].says, says + 2);
	assert_in("in service", side[0].said[says + 1]);
	world_close();
}

/* --- what a peer may not say -------------------------------------------------------------------------------- */

static kvp_status
note_to(uint32_t i, enum kvp_verbs_note_type type, const struct kvp_verbs_queue_note *note)
{
	uint8_t body[KVP_VERBS_NOTE_BYTES];

	return kvp_verbs_path_note(side[i].path, body,
				   (uint32_t)kvp_verbs_queue_note_encode(type, note, body), &error);
}

static void
note__refused(void **state)
{
	struct kvp_verbs_queue_note note = {.generation = 1};

	(void)state;
	world_open(&two_rails, 1);
	MUST(path_create(1, 1));
	note.address = side[0].verbs->devices.port[0].address;
	assert_int_equal(note_to(1, KVP_VERBS_PROVEN, &note), KVP_PROTOCOL); /* of which QP? */
	path_destroy(1);
	connect_both(1);
	assert_int_equal(note_to(0, KVP_VERBS_PROVEN, &note), KVP_PROTOCOL);
	assert_int_equal(note_to(0, KVP_VERBS_REBUILD, &note), KVP_PROTOCOL);
	assert_int_equal(note_to(1, KVP_VERBS_BROKEN, &note), KVP_PROTOCOL);
	assert_int_equal(note_to(1, KVP_VERBS_REBUILT, &note), KVP_PROTOCOL);
	assert_in("wrong side", error.text);
	note.endpoint = 1;
	assert_int_equal(note_to(1, KVP_VERBS_PROVEN, &note), KVP_PROTOCOL);
	note.endpoint = 0;
	note.queue = 4;
	assert_int_equal(note_to(1, KVP_VERBS_PROVEN, &note), KVP_PROTOCOL);
	assert_in("queue pair 4 of endpoint 0", error.text);
	assert_int_equal(kvp_verbs_path_note(side[1].path, (const uint8_t *)"\xFF", 1, &error),
			 KVP_PROTOCOL);
	world_close();
}

static void
note__stale_ones_change_nothing(void **state)
{
	struct kvp_verbs_queue_note note = {.generation = 1};

	(void)state;
	link_up(1);
	lane_flush(queue_of(0, 0), IBV_WC_RETRY_EXC_ERR, 0);
	settle();
	assert_all_up(0);
	note.address = side[0].verbs->devices.port[0].address;
	assert_int_equal(note_to(0, KVP_VERBS_BROKEN, &note), KVP_SUCCESS);
	assert_int_equal(note_to(0, KVP_VERBS_REBUILT, &note), KVP_SUCCESS);
	assert_int_equal(note_to(1, KVP_VERBS_PROVEN, &note), KVP_SUCCESS);
	note.generation = 2;
	note.fenced = 1;
	assert_int_equal(note_to(1, KVP_VERBS_REBUILD, &note), KVP_SUCCESS);
	settle();
	assert_all_up(0);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(queue_of(i, 0)->generation, 2);
		assert_true(atomic_load(&queue_of(i, 0)->asked) != 2);
	}
	world_close();
}

/* An address that is not of our network is not talked to, also later. */
static void
note__rebuilds_to_no_strange_address(void **state)
{
	struct kvp_verbs_queue_note note = {
		.generation = 2, .fenced = 1, .peer = {.number = 77, .psn = 1}};
	uint32_t before;

	(void)state;
	link_up(1);
	note.address = side[0].verbs->devices.port[0].address;
	note.address.link = KVP_VERBS_INFINIBAND; /* its GID alone would do */
	note.address.lid = 1;
	before = side[0].in_end;
	assert_int_equal(note_to(1, KVP_VERBS_REBUILD, &note), KVP_SUCCESS);
	assert_int_equal(lane_turn(1, 0), 1);
	(void)tick(1);
	assert_int_equal(side[0].in_end, before + 1); /* answered: no QP */
	assert_null(queue_of(1, 0)->qp);
	assert_int_equal(phase_of(queue_of(1, 0)), KVP_VERBS_RESET);
	world_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rebuild__fences_both_ends),
		cmocka_unit_test(rebuild__acceptor_breaks_first),
		cmocka_unit_test(rebuild__both_break_at_once),
		cmocka_unit_test(rebuild__backs_off_while_the_peer_cannot),
		cmocka_unit_test(rebuild__rests_after_a_slow_failure),
		cmocka_unit_test(rebuild__generations_wrap),
		cmocka_unit_test(rebuild__nothing_after_the_link_ended),
		cmocka_unit_test(rebuild__nothing_on_a_silent_path),
		cmocka_unit_test(event__port_down_and_up),
		cmocka_unit_test(event__gid_moves),
		cmocka_unit_test(event__one_qp_is_fatal),
		cmocka_unit_test(say__at_most_once_a_second),
		cmocka_unit_test(note__refused),
		cmocka_unit_test(note__stale_ones_change_nothing),
		cmocka_unit_test(note__rebuilds_to_no_strange_address),
	};

	return cmocka_run_group_tests_name("dataplane_verbs_rebuild", tests, NULL, NULL);
}
