/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_ends.h - both ends of a verbs path on fake devices, for tests of its control side
 *
 * The test plays the lanes: it moves phases as they would, and looks at what the control side makes of it. The
 * control connection is a queue that it delivers, the clock a number. Included by one file per program.
 */
#ifndef KVP_TEST_VERBS_ENDS_H
#define KVP_TEST_VERBS_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvpush/engine.h>

#include "fake_verbs.h"
#include "lane.h"
#include "transports.h"
#include "verbs/verbs_near.h"
#include "verbs/verbs_path.h"
#include "wake.h"

#define MS          1000000ULL
#define WATCHES     6U
#define NOTES       64U
#define SAID        16U
#define TURNS       200U
#define STATUS_WORD "transport retry counter exceeded"

struct kvp_lane {
	uint32_t index;
	uint32_t kicks;
};

struct note {
	uint32_t bytes;
	uint8_t body[512];
};

struct side {
	struct kvp_config config;
	struct kvp_dataplane dataplane;
	struct kvp_reactor reactor;
	struct kvp_watch *watch[WATCHES];
	uint32_t watches;
	struct kvp_verbs *verbs;
	struct kvp_lane lanes[8], *lane[8];
	struct kvp_path *path;
	struct kvp_blob ports;
	struct note in[NOTES];
	uint32_t in_first, in_end;
	uint32_t changes;
	char said[SAID][320];
	uint32_t says;
	bool is_gone; /* its link ended */
	uint64_t wish_ns;
};

static struct side side[2]; /* 0 asked for the link */
static uint64_t now_ns;
static uint64_t slow_ns; /* that every call seems to take */
static struct kvp_error error;

/* Two networks, a port of each host in each. */
static const struct fake_verbs_topology two_rails = {
	.devices = 4,
	.device = {{.host = 0, .network = {1}},
		   {.host = 0, .network = {2}},
		   {.host = 1, .network = {1}},
		   {.host = 1, .network = {2}}},
};

const struct kvp_transport kvp_verbs_transport = {.name = "verbs"};

#define assert_in(words, text)                                        \
	do {                                                          \
		if (strstr((text), (words)) == NULL)                  \
			fail_msg("'%s' is not in '%s'", words, text); \
	} while (0)

/* --- what is around a path -------------------------------------------------------------- */

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	assert_string_equal(name, "verbs");
	*slot_out = 1;
	return &kvp_verbs_transport;
}

uint32_t
kvp_lane_index(const struct kvp_lane *lane)
{
	return lane->index;
}

void
kvp_lane_kick(struct kvp_lane *lane)
{
	lane->kicks++;
}

uint64_t
kvp_now_ns(void)
{
	static uint64_t real_ns;

	return real_ns += slow_ns;
}

int
kvp_reactor_add(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	struct side *of = reactor == &side[0].reactor ? &side[0] : &side[1];

	assert_true(of->watches < WATCHES);
	of->watch[of->watches++] = watch;
	return 0;
}

void
kvp_reactor_remove(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	struct side *of = reactor == &side[0].reactor ? &side[0] : &side[1];

	for (uint32_t i = 0; i < of->watches; i++)
		if (of->watch[i] == watch)
			of->watch[i--] = of->watch[--of->watches];
}

void
kvp_reactor_wake(struct kvp_reactor *reactor)
{
	(reactor == &side[0].reactor ? &side[0] : &side[1])->wish_ns = 0;
}

int
kvp_verbs_numa_of(const char *device)
{
	(void)device;
	return -1;
}

void
kvp_verbs_nearest_first(struct kvp_verbs_devices *devices)
{
	(void)devices;
}

static inline void
on_changed(struct kvp_path *path, void *ctx)
{
	struct side *of = ctx;

	assert_ptr_equal(path, of->path);
	assert_int_not_equal(path->state, KVP_PATH_CONNECTING);
	of->changes++;
}

static inline bool
on_note(struct kvp_path *path, const uint8_t *body, uint32_t bytes, void *ctx)
{
	const struct side *of = ctx;
	struct side *to = of == &side[0] ? &side[1] : &side[0];
	struct note *note = &to->in[to->in_end % NOTES];

	(void)path;
	if (of->is_gone)
		return false;
	assert_true(bytes <= sizeof(note->body) && to->in_end - to->in_first < NOTES);
	note->bytes = bytes;
	memcpy(note->body, body, bytes);
	to->in_end++;
	return true;
}

static inline void
on_say(struct kvp_path *path, uint32_t level, const char *text, void *ctx)
{
	struct side *of = ctx;

	(void)path;
	assert_true(level == 2 || level == 3);
	assert_true(of->says < SAID);
	snprintf(of->said[of->says++], sizeof(of->said[0]), "%s", text);
}

static inline void
device_changed(struct kvp_verbs_devices *devices, uint32_t device, struct kvp_verbs_port *port,
	       struct ibv_qp *qp, void *ctx)
{
	struct side *of = ctx;

	assert_ptr_equal(devices, &of->verbs->devices);
	if (of->path != NULL)
		kvp_verbs_path_changed(kvp_verbs_path_of(of->path), device, port, qp);
}

/* --- two hosts --------------------------------------------------------------------------------- */

static inline void
host_start(uint32_t i, uint32_t lanes)
{
	struct side *of = &side[i];

	memset(of, 0, sizeof(*of));
	of->config = (struct kvp_config){.verbs_gid_index = 255,
					 .verbs_rails = 4,
					 .verbs_qps = 2,
					 .verbs_traffic_class = 106,
					 .verbs_timeout = 16,
					 .verbs_retry = 6,
					 .verbs_rnr_retry = 6,
					 .verbs_rnr_timer = 12,
					 .verbs_pieces = 30};
	snprintf(of->config.peer_rights, sizeof(of->config.peer_rights), "push,pull");
	for (uint32_t l = 0; l < lanes; l++) {
		of->lanes[l].index = l;
		of->lane[l] = &of->lanes[l];
	}
	of->dataplane = (struct kvp_dataplane){.config = &of->config,
					       .reactor = &of->reactor,
					       .lane = of->lane,
					       .lanes = lanes,
					       .window_requests = 32,
					       .window_bytes = 4U << 20};
	of->verbs = calloc(1, sizeof(*of->verbs));
	assert_non_null(of->verbs);
	of->verbs->dataplane = &of->dataplane;
	of->verbs->slot = 1;
	of->verbs->devices.changed = device_changed;
	of->verbs->devices.ctx = of;
	of->dataplane.state[1] = of->verbs;
	of->wish_ns = UINT64_MAX;
	fake_verbs_host(i);
	if (kvp_verbs_devices_open(&of->dataplane, &of->verbs->devices, &error) != KVP_SUCCESS)
		fail_msg("%s", error.text);
}

/* What the transport's describe does. */
static inline void
describe(struct side *of)
{
	struct kvp_verbs_ports ports = {.ports = of->verbs->devices.ports};

	for (uint32_t i = 0; i < ports.ports; i++)
		ports.port[i] = of->verbs->devices.port[i].address;
	kvp_verbs_ports_encode(&ports, &of->ports);
}

static inline void
world_open(const struct fake_verbs_topology *topology, uint32_t lanes)
{
	now_ns = 1000 * MS;
	slow_ns = 0;
	fake_verbs_open(7, topology);
	for (uint32_t i = 0; i < 2; i++) {
		host_start(i, lanes);
		describe(&side[i]);
	}
}

static inline kvp_status
path_create(uint32_t i, uint32_t endpoints)
{
	struct kvp_path_config config = {
		.dataplane = &side[i].dataplane,
		.is_initiator = i == 0,
		.peer_rail = &side[1 - i].ports,
		.endpoints = endpoints,
		.changed = on_changed,
		.note = on_note,
		.say = on_say,
		.ctx = &side[i],
	};

	return kvp_verbs_path_create(&config, &side[i].path, &error);
}

static inline void
path_destroy(uint32_t i)
{
	kvp_verbs_path_destroy(side[i].path);
	side[i].path = NULL;
}

static inline void
world_close(void)
{
	for (uint32_t i = 0; i < 2; i++) {
		if (side[i].path != NULL)
			path_destroy(i);
		assert_null(side[i].verbs->cqs);
		kvp_verbs_queues_end(side[i].verbs);
		kvp_verbs_devices_close(&side[i].verbs->devices);
		free(side[i].verbs);
	}
	if (fake_verbs_close() != 0)
		fail_msg("%s", fake_verbs_failure());
}

#define MUST(call)                                  \
	do {                                        \
		if ((call) != KVP_SUCCESS)          \
			fail_msg("%s", error.text); \
	} while (0)

static inline void
connect_both(uint32_t endpoints)
{
	struct kvp_blob offer = {0}, answer = {0};

	MUST(path_create(0, endpoints));
	kvp_verbs_path_offer(side[0].path, &offer);
	MUST(path_create(1, endpoints));
	assert_false(side[1].path->wants_lanes);
	MUST(kvp_verbs_path_connect(side[1].path, &offer, &error));
	kvp_verbs_path_offer(side[1].path, &answer);
	MUST(kvp_verbs_path_connect(side[0].path, &answer, &error));
}

static inline struct kvp_verbs_control *
control_of(uint32_t i, uint32_t q)
{
	return &kvp_verbs_path_of(side[i].path)->control[q];
}

static inline struct kvp_verbs_queue *
queue_of(uint32_t i, uint32_t q)
{
	return control_of(i, q)->queue;
}

static inline uint32_t
phase_of(const struct kvp_verbs_queue *queue)
{
	return atomic_load(&queue->phase);
}

/* --- the lanes' part --------------------------------------------------------------------------- */

static inline void
lane_flush(struct kvp_verbs_queue *queue, enum ibv_wc_status status, uint32_t taken)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_true(phase_of(queue) == KVP_VERBS_READY || phase_of(queue) == KVP_VERBS_UP);
	assert_int_equal(ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE), 0);
	queue->first_error = status;
	queue->vendor_error = 0x81;
	queue->taken = taken;
	atomic_store(&queue->phase, KVP_VERBS_FLUSHED);
}

/* What a lane does when nothing is posted: it proves, and breaks what it is asked to. */
static inline uint32_t
lane_turn(uint32_t i, uint32_t q)
{
	struct kvp_verbs_queue *queue = queue_of(i, q);
	uint32_t phase = phase_of(queue);

	if (phase != KVP_VERBS_READY && phase != KVP_VERBS_UP)
		return 0;
	if (phase == KVP_VERBS_READY)
		queue->taken = 0;
	if (atomic_load(&queue->asked) == queue->generation) {
		lane_flush(queue, IBV_WC_SUCCESS, queue->taken);
		return 1;
	}
	if (phase == KVP_VERBS_READY &&
	    (i == 0 || atomic_load(&queue->proven) == queue->generation)) {
		atomic_store(&queue->phase, KVP_VERBS_UP);
		return 1;
	}
	return 0;
}

static inline uint32_t
lanes_turn(uint32_t i)
{
	uint32_t work = 0;

	for (uint32_t q = 0; q < kvp_verbs_path_of(side[i].path)->total; q++)
		work += lane_turn(i, q);
	return work;
}

static inline uint32_t
deliver(uint32_t i)
{
	const struct note *note = &side[i].in[side[i].in_first % NOTES];

	if (side[i].in_first == side[i].in_end)
		return 0;
	side[i].in_first++;
	MUST(kvp_verbs_path_note(side[i].path, note->body, note->bytes, &error));
	return 1;
}

/* Returns 1 when the path wants more at once. */
static inline uint32_t
tick(uint32_t i)
{
	uint64_t next_ns = kvp_verbs_path_tick(side[i].path, now_ns);

	side[i].wish_ns = next_ns;
	return next_ns == 0;
}

static inline void
events(uint32_t i)
{
	for (uint32_t w = 0; w < side[i].watches; w++)
		side[i].watch[w]->ready(side[i].watch[w], 1);
}

/* Everything but the clock, until nobody has anything to do. */
static inline void
settle(void)
{
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t work = 0;

		for (uint32_t i = 0; i < 2; i++)
			work += tick(i) + deliver(i) + lanes_turn(i);
		work += side[0].in_end - side[0].in_first + side[1].in_end - side[1].in_first;
		if (work == 0)
			return;
	}
	fail_msg("it does not settle");
}

static inline void
assert_all_up(uint32_t generation)
{
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(side[i].path->state, KVP_PATH_UP);
		for (uint32_t q = 0; q < kvp_verbs_path_of(side[i].path)->total; q++) {
			const struct kvp_verbs_queue *queue = queue_of(i, q);

			assert_int_equal(phase_of(queue), KVP_VERBS_UP);
			assert_true(control_of(i, q)->is_proven);
			assert_int_equal(fake_verbs_state(queue->qp), IBV_QPS_RTS);
			if (generation != 0)
				assert_int_equal(queue->generation, generation);
		}
	}
}

static inline void
link_up(uint32_t lanes)
{
	world_open(&two_rails, lanes);
	connect_both(lanes);
	settle();
	assert_all_up(1);
}

#endif /* KVP_TEST_VERBS_ENDS_H */
