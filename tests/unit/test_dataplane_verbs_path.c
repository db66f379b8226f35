/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_verbs_path.c - a path from offer to destroy, what it needs and what it refuses
 *
 * links: dataplane/verbs/verbs_path.o dataplane/verbs/verbs_rebuild.o dataplane/verbs/verbs_view.o
 *        dataplane/verbs/verbs_text.o dataplane/verbs/verbs_queue.o dataplane/verbs/verbs_wire.o
 *        dataplane/verbs/verbs_rail.o dataplane/verbs/verbs_keys.o dataplane/verbs/verbs_endpoint.o
 *        dataplane/verbs/verbs_device.o dataplane/verbs/verbs_port.o engine/check.o engine/error.o engine/line.o
 *        engine/wire.o engine/rights.o engine/gather.o engine/cursor.o engine/layout.o
 */
#include "verbs_ends.h"

/* --- up ------------------------------------------------------------------------------------------ */

static void
path__comes_up_over_all_rails(void **state)
{
	(void)state;
	world_open(&two_rails, 1);
	connect_both(1);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(side[i].path->wants_lanes);
		assert_int_equal(side[i].path->state, KVP_PATH_CONNECTING);
		assert_int_equal(kvp_verbs_path_of(side[i].path)->total, 4);
		for (uint32_t q = 0; q < 4; q++) {
			assert_int_equal(fake_verbs_state(queue_of(i, q)->qp), IBV_QPS_RTS);
			assert_int_equal(phase_of(queue_of(i, q)), KVP_VERBS_READY);
			/* The peer's word for it, and in nobody else's. */
			assert_int_equal(queue_of(i, q)->peer_credit,
					 (uintptr_t)queue_of(1 - i, q)->credit);
		}
	}
	settle();
	assert_all_up(1);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(side[i].changes, 1);
		assert_int_equal(side[i].says, 2);
		assert_in("is in service", side[i].said[0]);
		assert_in("2 of 2 QPs; ", side[i].path->text);
		assert_in("10.1.0.1", side[i].path->text);
		assert_in("10.2.0.7", side[i].path->text);
	}
	assert_in("fake0:1 10.1.0.1 -> fake2:1 10.1.0.5", side[0].path->text);
	world_close();
}

static void
path__spreads_over_endpoints(void **state)
{
	(void)state;
	link_up(3);
	assert_int_equal(kvp_verbs_path_of(side[0].path)->per_rail, 1);
	assert_int_equal(kvp_verbs_path_of(side[0].path)->total, 6);
	for (uint32_t e = 0; e < 3; e++) {
		struct kvp_verbs_endpoint *ep =
			(struct kvp_verbs_endpoint *)side[1].path->endpoint[e];

		assert_ptr_equal(ep->base.lane, side[1].lane[e]);
		assert_int_equal(ep->queues, 2);
		assert_ptr_equal(queue_of(1, 2 * e + 1), &ep->queue[1]);
		assert_int_equal(ep->queue[1].rail, 1);
		assert_ptr_equal(ep->queue[1].cq->lane, side[1].lane[e]);
		assert_true(side[1].lanes[e].kicks > 0);
	}
	world_close();
}

static void
path__is_up_without_a_slow_rail(void **state)
{
	(void)state;
	world_open(&two_rails, 1);
	connect_both(1);
	for (uint32_t q = 0; q < 2; q++) /* the first rail's */
		assert_int_equal(lane_turn(0, q), 1);
	(void)tick(0);
	assert_int_equal(side[0].path->state, KVP_PATH_CONNECTING);
	assert_true(side[0].wish_ns <= KVP_VERBS_PROVE_NS);
	now_ns += KVP_VERBS_PROVE_NS - 1;
	(void)tick(0);
	assert_int_equal(side[0].path->state, KVP_PATH_CONNECTING);
	now_ns++;
	(void)tick(0);
	assert_int_equal(side[0].path->state, KVP_PATH_UP);
	assert_int_equal(side[0].changes, 1);
	settle();
	assert_all_up(1);
	world_close();
}

static void
path__is_up_when_the_others_have_failed(void **state)
{
	(void)state;
	world_open(&two_rails, 1);
	connect_both(1);
	for (uint32_t q = 0; q < 2; q++) {
		assert_int_equal(lane_turn(0, q), 1);
		lane_flush(queue_of(0, 2 + q), IBV_WC_RETRY_EXC_ERR, 0);
	}
	(void)tick(0);
	(void)tick(0);
	(void)tick(0);
	assert_int_equal(side[0].path->state, KVP_PATH_UP);
	assert_in("0 of 2 QPs, down: " STATUS_WORD, side[0].path->text);
	/* The acceptor hears of it, and does not wait for them either. */
	side[1].verbs->devices.port[1].is_active = false;
	settle();
	assert_int_equal(side[1].path->state, KVP_PATH_UP);
	side[1].verbs->devices.port[1].is_active = true;
	now_ns += 1000 * MS;
	settle();
	assert_all_up(0);
	world_close();
}

/* A rail of which one end cannot even be addressed: 0 or 1. */
static void
comes_up_over_the_other(uint32_t bad)
{
	struct kvp_verbs_port *port;
	uint32_t index;

	world_open(&two_rails, 2);
	port = &side[bad].verbs->devices.port[1];
	index = port->gid_index;
	port->gid_index = 77;
	connect_both(2);
	assert_null(queue_of(bad, 1)->qp);
	assert_non_null(queue_of(bad, 0)->qp);
	settle();
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(side[i].path->state, KVP_PATH_UP);
		assert_in("0 of 2 QPs, down: ", side[i].path->text);
		assert_int_equal(side[i].changes, 1);
	}
	assert_in("GID at index 77", side[bad].path->text);
	port->gid_index = index;
	now_ns += 6000 * MS;
	settle();
	assert_all_up(0);
	world_close();
}

static void
path__comes_up_without_a_rail_of_the_initiator(void **state)
{
	(void)state;
	comes_up_over_the_other(0);
}

static void
path__comes_up_without_a_rail_of_the_acceptor(void **state)
{
	(void)state;
	comes_up_over_the_other(1);
}

static void
path__refused_when_no_rail_can_be_addressed(void **state)
{
	struct kvp_blob offer = {0};

	(void)state;
	world_open(&two_rails, 1);
	for (uint32_t p = 0; p < 2; p++)
		side[1].verbs->devices.port[p].gid_index = 77;
	MUST(path_create(0, 1));
	kvp_verbs_path_offer(side[0].path, &offer);
	MUST(path_create(1, 1));
	assert_int_equal(kvp_verbs_path_connect(side[1].path, &offer, &error), KVP_NO_TRANSPORT);
	assert_in("fake3 port 1: queue pair to RTR towards 10.2.0.3", error.text);
	assert_false(side[1].path->wants_lanes);
	world_close();
}

static void
path__fails_when_no_rail_answers(void **state)
{
	(void)state;
	world_open(&two_rails, 1);
	connect_both(1);
	for (uint32_t q = 0; q < 4; q++)
		lane_flush(queue_of(0, q), IBV_WC_RETRY_EXC_ERR, 0);
	for (uint32_t q = 0; q < 5; q++)
		(void)tick(0);
	assert_int_equal(side[0].path->state, KVP_PATH_FAILED);
	assert_int_equal(side[0].changes, 1);
	assert_in("fake0:1 10.1.0.1 -> fake2:1 10.1.0.5", side[0].path->error.text);
	assert_in(STATUS_WORD, side[0].path->error.text);
	assert_in("nor do 1 others", side[0].path->error.text);
	assert_in("4791", side[0].path->error.text);
	assert_in("MTU right?", side[0].path->error.text);
	world_close();
}

static void
assert_offer_refused(const struct kvp_verbs_offer *offer, kvp_status status, const char *words)
{
	struct kvp_blob blob = {0};

	MUST(path_create(1, 1));
	kvp_verbs_offer_encode(offer, &blob);
	assert_int_equal(kvp_verbs_path_connect(side[1].path, &blob, &error), status);
	assert_in(words, error.text);
	assert_false(side[1].path->wants_lanes);
	path_destroy(1);
}

static void
offer__refused(void **state)
{
	struct kvp_verbs_offer good, bad;
	struct kvp_blob blob = {0};

	(void)state;
	world_open(&two_rails, 1);
	MUST(path_create(0, 1));
	kvp_verbs_path_offer(side[0].path, &blob);
	MUST(kvp_verbs_offer_decode(&blob, &good, &error));
	bad = good;
	bad.rail[1].remote = 5;
	assert_offer_refused(&bad, KVP_NO_TRANSPORT, "port 5");
	bad = good;
	bad.rail[1].remote = bad.rail[0].remote;
	assert_offer_refused(&bad, KVP_PROTOCOL, "two rails");
	bad = good;
	bad.endpoints = 2;
	bad.per_rail = 1;
	assert_offer_refused(&bad, KVP_PROTOCOL, "2 endpoints, not 1");
	bad = good;
	bad.rail[0].address.link = KVP_VERBS_INFINIBAND;
	assert_offer_refused(&bad, KVP_NO_TRANSPORT, "rail 0");
	blob.bytes--;
	MUST(path_create(1, 1));
	assert_int_equal(kvp_verbs_path_connect(side[1].path, &blob, &error), KVP_PROTOCOL);
	/* The answer must be to what was offered. */
	bad = good;
	bad.rail[0].local = good.rail[0].remote;
	bad.rail[0].remote = good.rail[0].local;
	bad.rail[1].local = good.rail[1].local + 1;
	kvp_verbs_offer_encode(&bad, &blob);
	assert_int_equal(kvp_verbs_path_connect(side[0].path, &blob, &error), KVP_PROTOCOL);
	assert_in("other rails", error.text);
	world_close();
}

static void
path__needs_a_common_network(void **state)
{
	static const struct fake_verbs_topology apart = {
		.devices = 2, .device = {{.host = 0}, {.host = 1, .is_infiniband = true}}};
	struct kvp_verbs_ports ports;

	(void)state;
	world_open(&apart, 1);
	MUST(kvp_verbs_ports_decode(&side[1].ports, &ports, &error));
	assert_int_equal(kvp_verbs_reachable(side[0].verbs, &ports, &error), KVP_NO_TRANSPORT);
	assert_in("fake0:1", error.text);
	assert_int_equal(path_create(0, 1), KVP_NO_TRANSPORT);
	assert_null(side[0].verbs->paths);
	side[0].verbs->devices.port[0].is_active = false;
	assert_int_equal(kvp_verbs_reachable(side[0].verbs, &ports, &error), KVP_NO_TRANSPORT);
	assert_in("no port of this host", error.text);
	world_close();
}

/* --- resources ------------------------------------------------------------------------------------------------ */

static void
cq__has_room_for_all_its_queues(void **state)
{
	struct fake_verbs_topology small = two_rails;
	const struct kvp_verbs_cq *cq;
	uint32_t cqs = 0;

	(void)state;
	small.max_cqe = 2 * (KVP_VERBS_SQ + KVP_VERBS_RQ) + 10;
	world_open(&small, 1);
	side[0].config.verbs_qps = 8;
	connect_both(1);
	settle();
	assert_all_up(1);
	for (cq = side[0].verbs->cqs; cq != NULL; cq = cq->next, cqs++) {
		assert_true(cq->used <= cq->depth);
		assert_int_equal(cq->users, 2);
	}
	assert_int_equal(cqs, 8); /* 2 rails with 8 QPs each */
	world_close();
	small.max_cqe = KVP_VERBS_SQ + KVP_VERBS_RQ - 1;
	world_open(&small, 1);
	assert_int_equal(path_create(0, 1), KVP_NO_RESOURCE);
	assert_in("fake0", error.text);
	world_close();
}

static void
path__without_domains_and_ece(void **state)
{
	struct fake_verbs_topology plain = two_rails;

	(void)state;
	plain.has_no_domains = true;
	plain.has_no_ece = true;
	world_open(&plain, 2);
	connect_both(2);
	settle();
	assert_all_up(1);
	assert_null(side[0].verbs->td[0][0]);
	world_close();
}

/* --- caches ----------------------------------------------------------------------------------------------------- */

#define SPANS 2U

static void
keys__open_a_view(void **state)
{
	struct kvp_verbs_spans *own =
		calloc(1, sizeof(*own) + SPANS * sizeof(struct kvp_verbs_span));
	uint32_t rkey[SPANS][KVP_VERBS_DEVICES_MAX] = {{11, 12}, {21, 22}};
	struct kvp_verbs_held held = {.spans = own, .rkey = rkey[0]};
	struct kvp_local_cache cache = {.id = 5, .held[1] = &held};
	struct kvp_remote_tensor tensor = {.tensor = {.base = (void *)0x2000,
						      .num_blocks = 4,
						      .block_bytes = 256,
						      .block_stride = 512}};
	struct kvp_remote_cache remote = {.id = 5, .num_tensors = 1, .tensors = &tensor};
	struct kvp_view *view;

	(void)state;
	assert_non_null(own);
	own->count = SPANS;
	own->span[0] = (struct kvp_verbs_span){.address = 0x1000, .bytes = 0x800};
	own->span[1] = (struct kvp_verbs_span){.address = 0x2000, .bytes = 0x1000};
	link_up(1);
	assert_int_equal(kvp_verbs_view_open(side[0].path, &remote, &view, &error),
			 KVP_FEATURE_NOT_ENABLED);
	MUST(kvp_verbs_cache_offer(side[1].path, &cache, &error));
	settle();
	MUST(kvp_verbs_view_open(side[0].path, &remote, &view, &error));
	assert_int_equal(view->spans->count, SPANS);
	assert_int_equal(view->spans->span[1].address, 0x2000);
	assert_int_equal(view->spans->span[1].key[0], 21);
	assert_int_equal(view->spans->span[1].key[1], 22);
	/* Twice is a lie. */
	MUST(kvp_verbs_cache_offer(side[1].path, &cache, &error));
	assert_int_equal(kvp_verbs_path_note(side[0].path,
					     side[0].in[side[0].in_first % NOTES].body,
					     side[0].in[side[0].in_first % NOTES].bytes, &error),
			 KVP_PROTOCOL);
	assert_in("cache 5 twice", error.text);
	/* Once the view is closed, its keys are gone, and may come again. */
	kvp_verbs_view_close(side[0].path, view);
	assert_int_equal(kvp_verbs_path_of(side[0].path)->key_count, 0);
	settle();
	tensor.tensor.num_blocks = 40; /* beyond what the keys reach */
	assert_int_equal(kvp_verbs_view_open(side[0].path, &remote, &view, &error), KVP_PROTOCOL);
	free(own);
	world_close();
}

static void
keys__that_fit_no_note_are_refused(void **state)
{
	uint32_t count = KVP_NOTE_MAX / (16 + 2 * 4) + 1;
	struct kvp_verbs_spans *own =
		calloc(1, sizeof(*own) + count * sizeof(struct kvp_verbs_span));
	struct kvp_verbs_held held = {
		.spans = own, .rkey = calloc(count, KVP_VERBS_DEVICES_MAX * sizeof(uint32_t))};
	struct kvp_local_cache cache = {.id = 5, .held[1] = &held};

	(void)state;
	assert_non_null(own);
	assert_non_null(held.rkey);
	own->count = count;
	for (uint32_t i = 0; i < count; i++)
		own->span[i] = (struct kvp_verbs_span){.address = 0x1000 * (i + 1), .bytes = 1};
	link_up(1);
	assert_int_equal(kvp_verbs_cache_offer(side[0].path, &cache, &error), KVP_NO_RESOURCE);
	assert_in("cache 5", error.text);
	assert_int_equal(side[1].in_end, side[1].in_first);
	free(held.rkey);
	free(own);
	world_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(path__comes_up_over_all_rails),
		cmocka_unit_test(path__spreads_over_endpoints),
		cmocka_unit_test(path__is_up_without_a_slow_rail),
		cmocka_unit_test(path__is_up_when_the_others_have_failed),
		cmocka_unit_test(path__comes_up_without_a_rail_of_the_initiator),
		cmocka_unit_test(path__comes_up_without_a_rail_of_the_acceptor),
		cmocka_unit_test(path__refused_when_no_rail_can_be_addressed),
		cmocka_unit_test(path__fails_when_no_rail_answers),
		cmocka_unit_test(offer__refused),
		cmocka_unit_test(path__needs_a_common_network),
		cmocka_unit_test(cq__has_room_for_all_its_queues),
		cmocka_unit_test(path__without_domains_and_ece),
		cmocka_unit_test(keys__open_a_view),
		cmocka_unit_test(keys__that_fit_no_note_are_refused),
	};

	return cmocka_run_group_tests_name("dataplane_verbs_path", tests, NULL, NULL);
}
