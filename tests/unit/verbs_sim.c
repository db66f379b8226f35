/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "verbs/verbs_near.h"

#define START_NS      1000000000ULL
#define SETTLE_TURNS  200000U
#define SETTLE_NS     (120 * 1000000000ULL)
#define JUMP_NS       (60 * 1000000ULL)
#define CONNECT_TURNS 20000U

struct sim sim;
static struct sim_message frames[2][SIM_MESSAGES];

uint32_t
sim_random(uint32_t below)
{
	uint64_t z = (sim.random += 0x9E3779B97F4A7C15ULL);

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return (uint32_t)(((z ^ z >> 31) >> 32) * below >> 32);
}

/* --- in place of the control thread's parts ------------------------------------------ */

static struct sim_side *
side_of(const struct kvp_reactor *reactor)
{
	return reactor == &sim.side[0].reactor ? &sim.side[0] : &sim.side[1];
}

int
kvp_reactor_add(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	struct sim_side *side = side_of(reactor);

	KVP_CHECK(side->watches < SIM_WATCHES);
	side->watch[side->watches++] = watch;
	return 0;
}

void
kvp_reactor_remove(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	struct sim_side *side = side_of(reactor);

	for (uint32_t i = 0; i < side->watches; i++)
		if (side->watch[i] == watch)
			side->watch[i--] = side->watch[--side->watches];
}

void
kvp_reactor_wake(struct kvp_reactor *reactor)
{
	side_of(reactor)->is_woken = true;
}

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	KVP_CHECK(strcmp(name, kvp_verbs_transport.name) == 0);
	if (slot_out != NULL)
		*slot_out = 1;
	return &kvp_verbs_transport;
}

/* Where adapters are is not asked: hwloc takes longer than a world. */
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

struct kvp_event *
kvp_inbox_take(struct kvp_inbox *inbox)
{
	if (inbox->room == 0 || inbox->count == SIM_EVENTS)
		return NULL;
	inbox->room--;
	return &inbox->event[inbox->count];
}

void
kvp_inbox_put(struct kvp_inbox *inbox, uint32_t producer, struct kvp_event *event)
{
	KVP_CHECK(producer < SIM_LANES && event == &inbox->event[inbox->count]);
	inbox->count++;
}

/* --- the control connection ------------------------------------------------------------ */

void
sim_send(uint32_t to, const struct sim_message *message)
{
	struct sim_side *side = &sim.side[to];
	struct sim_message *slot = &side->in[side->in_end % SIM_MESSAGES];
	uint64_t delay_ns = sim_chance(8) ? sim_random(30000000) : sim_random(20000);

	if (sim.is_cut)
		return;
	if (side->in_end - side->in_first == SIM_MESSAGES) {
		fake_verbs_failed("side %u is sent more than %u frames that it does not take", to,
				  SIM_MESSAGES);
		return;
	}
	side->in_end++;
	slot->type = message->type;
	slot->cache = message->cache;
	slot->bytes = message->bytes;
	memcpy(slot->body, message->body, message->bytes);
	slot->due_ns = sim.now_ns + delay_ns;
	if (slot->due_ns < side->in_due_ns)
		slot->due_ns = side->in_due_ns;
	side->in_due_ns = slot->due_ns;
}

static bool
note(struct kvp_path *path, const uint8_t *body, uint32_t bytes, void *ctx)
{
	const struct sim_side *side = ctx;
	struct sim_message message = {.type = SIM_NOTE, .bytes = bytes};

	(void)path;
	if (sim.is_cut || side->is_silent)
		return false;
	KVP_CHECK(bytes <= SIM_NOTE_MAX);
	memcpy(message.body, body, bytes);
	sim_send(1 - side->index, &message);
	return true;
}

static void
changed(struct kvp_path *path, void *ctx)
{
	const struct sim_side *side = ctx;

	KVP_CHECK(path == side->path);
	if (path->state == KVP_PATH_FAILED && !sim.plan.has_faults)
		fake_verbs_failed("side %u: the path failed without a fault: %s", side->index,
				  path->error.text);
}

/* Returns 1 when a frame was due. */
static uint32_t
deliver(struct sim_side *side)
{
	const struct sim_message *message = &side->in[side->in_first % SIM_MESSAGES];
	struct kvp_error err = {""};

	if (side->in_first == side->in_end || message->due_ns > sim.now_ns)
		return 0;
	side->in_first++;
	if (side->is_silent)
		return 1;
	if (message->type != SIM_NOTE)
		sim_cache_message(side, message);
	else if (kvp_verbs_transport.path_note(side->path, message->body, message->bytes, &err) !=
		 KVP_SUCCESS)
		fake_verbs_failed("side %u refuses a note: %s", side->index, err.text);
	return 1;
}

/* One round of the control thread. */
static uint32_t
control(struct sim_side *side)
{
	uint32_t work = deliver(side);
	uint64_t next_ns;

	if (side->events_seen != fake_verbs_counters()->events) {
		side->events_seen = fake_verbs_counters()->events;
		for (uint32_t i = 0; i < side->watches; i++)
			side->watch[i]->ready(side->watch[i], 1);
	}
	work += side->is_woken;
	side->is_woken = false;
	next_ns = kvp_verbs_transport.path_tick(side->path, sim.now_ns);
	side->wish_ns = next_ns == UINT64_MAX ? UINT64_MAX : sim.now_ns + next_ns;
	for (uint32_t e = 0; e < side->path->config.endpoints; e++)
		if (atomic_load(&side->path->endpoint[e]->failed) != KVP_SUCCESS)
			fake_verbs_failed("side %u: endpoint %u failed with %u", side->index, e,
					  atomic_load(&side->path->endpoint[e]->failed));
	sim_caches_look(side);
	return work;
}

/* --- the end of a link ------------------------------------------------------------------- */

static void
silence(struct sim_side *side)
{
	if (side->is_silent)
		return;
	side->is_silent = true;
	for (uint32_t e = 0; e < side->path->config.endpoints; e++)
		kvp_lane_down(side->path->endpoint[e]->lane, side->path->endpoint[e],
			      KVP_PEER_LOST);
	sim_lanes_wake(side);
	sim_grants_end(side->index);
}

/* --- the clock ------------------------------------------------------------------------------ */

static uint32_t
lane_turn(struct sim_side *side)
{
	sim.now_ns += 1 + sim_random(800);
	return sim_lane_run(side, sim_random(sim.plan.lanes));
}

static uint32_t
turn(void)
{
	struct sim_side *side = &sim.side[sim_random(2)];
	uint32_t work = 0;

	sim.now_ns += 1 + sim_random(800);
	switch (sim_random(8)) {
	case 0:
	case 1:
	case 2:
		for (uint32_t n = 1 + sim_random(16); n > 0; n--)
			work += fake_verbs_step() == FAKE_VERBS_MOVED;
		break;
	case 3:
	case 4:
	case 5:
		for (uint32_t n = 1 + sim_random(3); n > 0; n--)
			work += lane_turn(side);
		break;
	case 6:
		work = control(side);
		break;
	default:
		work = sim_events_take(side);
		if (!sim.is_calm)
			sim_act(side);
		break;
	}
	return work;
}

/* Is there nothing for anybody to do right now? Timers of devices may run out in here. */
static bool
is_quiet(void)
{
	uint32_t work = fake_verbs_step() != FAKE_VERBS_IDLE;

	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t i = 0; i < sim.plan.lanes; i++) {
			sim.now_ns++;
			work += sim_lane_run(&sim.side[s], i);
		}
		work += control(&sim.side[s]);
	}
	return work == 0;
}

/* On to the next thing that somebody waits for, or not quite that far. */
static void
jump(void)
{
	uint64_t next_ns = sim.now_ns + JUMP_NS;

	for (uint32_t s = 0; s < 2; s++) {
		const struct sim_side *side = &sim.side[s];

		if (side->wish_ns < next_ns && side->wish_ns > sim.now_ns)
			next_ns = side->wish_ns;
		if (sim_lanes_wish(side) < next_ns)
			next_ns = sim_lanes_wish(side);
		if (side->in_first != side->in_end &&
		    side->in[side->in_first % SIM_MESSAGES].due_ns < next_ns)
			next_ns = side->in[side->in_first % SIM_MESSAGES].due_ns;
	}
	if (next_ns > sim.now_ns)
		sim.now_ns += 1 + (sim_chance(2) ? next_ns - sim.now_ns
						 : sim_random((uint32_t)(next_ns - sim.now_ns)));
}

static void
turn_or_jump(uint32_t *quiet)
{
	*quiet = turn() > 0 ? 0 : *quiet + 1;
	if (*quiet < 12)
		return;
	*quiet = 0;
	if (is_quiet())
		jump();
}

/* --- engines ----------------------------------------------------------------------------------- */

static void
configure(struct sim_side *side)
{
	struct kvp_config *config = &side->config;
	static const uint32_t pieces[] = {1, 2, 3, 4, 16, 30};

	*config = (struct kvp_config){.cluster_id = side->index + 1,
				      .lanes = sim.plan.lanes,
				      .verbs_gid_index = 255,
				      .verbs_rails = 4,
				      .verbs_qps = sim.plan.qps,
				      .verbs_traffic_class = 106,
				      .verbs_timeout = 16,
				      .verbs_retry = 1 + sim_random(6),
				      .verbs_rnr_retry = 6,
				      .verbs_rnr_timer = 12,
				      .verbs_pieces = pieces[sim_random(6)]};
	snprintf(config->peer_rights, sizeof(config->peer_rights), "push,pull");
	side->dataplane =
		(struct kvp_dataplane){.config = config,
				       .cluster_id = side->index + 1,
				       .boot_id = sim.seed + side->index,
				       .reactor = &side->reactor,
				       .inbox = &side->inbox,
				       .lane = side->lane,
				       .lanes = sim.plan.lanes,
				       .streams = 1,
				       .window_requests = 1 + sim_random(sim_chance(2) ? 3 : 32),
				       .window_bytes = 64U << sim_random(9)};
	side->inbox.room = 1 + sim_random(8);
	side->wish_ns = UINT64_MAX;
}

static void
engine_start(struct sim_side *side)
{
	struct kvp_error err = {""};
	uint32_t slot;

	KVP_CHECK(kvp_transport_find("verbs", &slot) == &kvp_verbs_transport);
	fake_verbs_host(side->index);
	if (kvp_verbs_transport.start(&side->dataplane, &side->state, &err) != KVP_SUCCESS) {
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)sim.seed, err.text);
		abort();
	}
	side->dataplane.state[slot] = side->state;
}

static void
must(kvp_status status, const struct kvp_error *err)
{
	if (status == KVP_SUCCESS)
		return;
	fprintf(stderr, "seed %llu: %s\n", (unsigned long long)sim.seed, err->text);
	abort();
}

static void
path_create(struct sim_side *side, const struct kvp_blob *peer)
{
	struct kvp_error err = {""};
	struct kvp_path_config config = {
		.dataplane = &side->dataplane,
		.is_initiator = side->index == 0,
		.peer_cluster = 2 - side->index,
		.peer_rail = peer,
		.endpoints = kvp_verbs_transport.endpoints(&side->dataplane, side->dataplane.lanes),
		.first_lane = sim_random(sim.plan.lanes),
		.changed = changed,
		.note = note,
		.ctx = side,
	};

	must(kvp_verbs_transport.reachable(&side->dataplane, peer, &err), &err);
	must(kvp_verbs_transport.path_create(&config, &side->path, &err), &err);
}

static void
attach(struct sim_side *side)
{
	struct kvp_error err = {""};

	KVP_CHECK(side->path->wants_lanes);
	for (uint32_t e = 0; e < side->path->config.endpoints; e++)
		must(kvp_lane_attach(side->path->endpoint[e]->lane, side->path->endpoint[e], &err),
		     &err);
	side->is_attached = true;
}

static void
link_up(void)
{
	struct kvp_blob of[2] = {{0}, {0}}, offer = {0}, answer = {0};
	struct kvp_error err = {""};
	uint32_t quiet = 0, turns = 0;

	kvp_verbs_transport.describe(&sim.side[0].dataplane, &of[0]);
	kvp_verbs_transport.describe(&sim.side[1].dataplane, &of[1]);
	path_create(&sim.side[0], &of[1]);
	kvp_verbs_transport.path_offer(sim.side[0].path, &offer);
	path_create(&sim.side[1], &of[0]);
	must(kvp_verbs_transport.path_connect(sim.side[1].path, &offer, &err), &err);
	kvp_verbs_transport.path_offer(sim.side[1].path, &answer);
	attach(&sim.side[1]);
	must(kvp_verbs_transport.path_connect(sim.side[0].path, &answer, &err), &err);
	attach(&sim.side[0]);
	sim.is_calm = true; /* applications wait for the link */
	while (sim.side[0].path->state == KVP_PATH_CONNECTING ||
	       sim.side[1].path->state == KVP_PATH_CONNECTING) {
		turn_or_jump(&quiet);
		if (++turns == CONNECT_TURNS || fake_verbs_failures() != 0) {
			fake_verbs_failed("the link does not come up");
			return;
		}
	}
	sim.is_calm = false;
}

static void
side_stop(struct sim_side *side)
{
	silence(side);
	sim_lanes_wake(side);
	for (uint32_t e = 0; e < side->path->config.endpoints; e++)
		kvp_lane_detach(side->path->endpoint[e]->lane, side->path->endpoint[e]);
	sim_caches_close(side);
	kvp_verbs_transport.path_destroy(side->path);
	for (uint32_t c = 0; c < SIM_CACHES; c++)
		if (side->cache[c].presence != SIM_ABSENT)
			kvp_verbs_transport.cache_forget(
				&side->dataplane,
				side->cache[c].local.held[((struct kvp_verbs *)side->state)->slot]);
	kvp_verbs_transport.stop(side->state);
}

/* --- what must be left -------------------------------------------------------------------------- */

static void
check_endpoint(const struct sim_side *side, struct kvp_endpoint *base)
{
	const struct kvp_verbs_endpoint *ep = kvp_verbs_of(base);

	sim.breaks += atomic_load(&ep->breaks);
	sim.replayed += atomic_load(&ep->replayed);
	if (base->parts != 0 || ep->orphans != 0 ||
	    ep->slot_end - ep->slot_first != KVP_VERBS_SLOTS)
		fake_verbs_failed("side %u, endpoint %u: %u parts, %u orphans, %u of %u slots left",
				  side->index, base->index, base->parts, ep->orphans,
				  ep->slot_end - ep->slot_first, KVP_VERBS_SLOTS);
	if (ep->pendings != 0)
		fake_verbs_failed("side %u, endpoint %u: %u notifications wait for ever",
				  side->index, base->index, ep->pendings);
	if (!sim.plan.has_faults && !sim.is_cut && atomic_load(&ep->breaks) != 0)
		fake_verbs_failed("side %u, endpoint %u: %llu QPs broke without a fault",
				  side->index, base->index,
				  (unsigned long long)atomic_load(&ep->breaks));
	if (atomic_load(&ep->refused) != 0)
		fake_verbs_failed("side %u, endpoint %u: the peer's messages were refused",
				  side->index, base->index);
}

static bool
is_up(const struct kvp_verbs_queue *queue)
{
	return atomic_load(&queue->phase) == KVP_VERBS_UP && queue->posted == queue->retired;
}

/* Every QP is proven and idle, but for those that a fault of the whole world keeps from it. */
static bool
is_all_up(void)
{
	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t e = 0; e < sim.side[s].path->config.endpoints; e++) {
			const struct kvp_verbs_endpoint *ep =
				kvp_verbs_of(sim.side[s].path->endpoint[e]);

			for (uint32_t q = 0; q < ep->queues; q++)
				if (!is_up(&ep->queue[q]) && !sim.is_cut && !sim.plan.has_fatal)
					return false;
			for (uint32_t c = 0; c < ep->cqs; c++)
				if (fake_verbs_completions(ep->cq[c]->cq) != 0)
					return false; /* a lane takes a nap */
			if (ep->orphans != 0 || ep->pendings != 0)
				return false;
		}
		if (sim.side[s].inbox.count != 0)
			return false;
	}
	return true;
}

static bool
is_settled(void)
{
	bool is_quiet_between = sim.is_cut || (sim.side[0].in_first == sim.side[0].in_end &&
					       sim.side[1].in_first == sim.side[1].in_end);

	if (sim_transfers_look() != 0 || !is_quiet_between)
		return false;
	for (uint32_t s = 0; s < 2; s++)
		for (uint32_t c = 0; c < SIM_CACHES; c++)
			if (sim.side[s].cache[c].presence == SIM_LEAVING)
				return false;
	return is_all_up();
}

/* Faults stay a while, and nobody asks for anything more: what was stopped must end all the same. */
static void
linger(void)
{
	uint64_t until_ns = sim.now_ns + SIM_STOP_NS + 1000000000;
	uint32_t quiet = 0;

	sim.is_calm = true;
	for (uint32_t i = 0; i < 4000 && sim.now_ns < until_ns && fake_verbs_failures() == 0; i++) {
		turn_or_jump(&quiet);
		(void)sim_transfers_look();
	}
}

/* No fault from here on: everything must come to its end. */
static void
settle(void)
{
	uint64_t until_ns = sim.now_ns + SETTLE_NS;
	uint32_t quiet = 0, turns = 0;

	fake_verbs_calm();
	sim.is_calm = true;
	if (sim.is_cut) {
		silence(&sim.side[0]);
		silence(&sim.side[1]);
	}
	while (fake_verbs_failures() == 0) {
		if (turns % 8 == 0 && is_settled() && is_quiet() && is_settled())
			return;
		turn_or_jump(&quiet);
		if (++turns == SETTLE_TURNS || sim.now_ns > until_ns) {
			fake_verbs_failed("no progress in %u turns, %llu ms: %u transfers under "
					  "way, %s",
					  turns,
					  (unsigned long long)(sim.now_ns - until_ns + SETTLE_NS) /
						  1000000,
					  sim_transfers_look(),
					  is_all_up() ? "all QPs are up" : "QPs are down");
			return;
		}
	}
}

/* --- one seed -------------------------------------------------------------------------------------- */

static void
decide(void)
{
	sim.plan = (struct sim_plan){
		.rails = 1 + sim_random(2),
		.lanes = 1 + sim_random(SIM_LANES),
		.qps = 1 + sim_random(4),
		.turns = 60 + sim_random(300),
		.has_faults = !sim_chance(3),
		.has_break = sim_chance(8),
		.has_withdrawals = sim_chance(3),
		.is_burst = sim_chance(6),
		.share_bytes = 1 + sim_random(2000),
	};
	if (sim.plan.is_burst)
		sim.plan.qps = 1;
	sim.plan.has_fatal = sim.plan.has_faults && sim_chance(20);
	sim.plan.has_status = sim.plan.has_faults && sim_chance(4);
}

static void
world_open(void)
{
	struct fake_verbs_topology topology = {.devices = 2 * sim.plan.rails, .max_cqe = 4096};

	for (uint32_t d = 0; d < topology.devices; d++) {
		topology.device[d].host = d / sim.plan.rails;
		topology.device[d].network[0] = d % sim.plan.rails;
	}
	topology.has_no_domains = sim_chance(2);
	topology.has_no_ece = sim_chance(2);
	topology.max_inline = sim_chance(4) ? 4 : 220;
	topology.segment = 16U << sim_random(7);
	fake_verbs_open(sim.seed, &topology);
	for (uint32_t s = 0; s < 2; s++) {
		configure(&sim.side[s]);
		engine_start(&sim.side[s]);
	}
}

static void
start_faults(void)
{
	struct fake_verbs_odds odds = {.while_max = 16U << sim_random(8)};
	uint32_t *const each[] = {&odds.lose_acks, &odds.lossy,    &odds.cut, &odds.refuse,
				  &odds.qp_fatal,  &odds.gid_move, &odds.hold};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
		if (sim_chance(3))
			*each[i] = 50 + sim_random(3000);
	if (sim.plan.has_status)
		odds.status = 50 + sim_random(3000);
	fake_verbs_odds(&odds);
}

/* A fault that is not the wire's. */
static void
fault(void)
{
	uint32_t qp_num = fake_verbs_nth_qp(sim_random(8));

	if (qp_num == FAKE_VERBS_ANY)
		return;
	if (sim_chance(3))
		fake_verbs_stick(qp_num, true);
	else if (sim_chance(2))
		fake_verbs_hold(qp_num, true);
	else
		fake_verbs_qp_fatal(qp_num);
}

static void
load(void)
{
	uint32_t break_at = sim.plan.has_break ? sim_random(sim.plan.turns) : UINT32_MAX;
	uint32_t fatal_at = sim.plan.has_fatal ? sim_random(sim.plan.turns) : UINT32_MAX;
	uint32_t quiet = 0;

	for (uint32_t i = 0; i < sim.plan.turns && fake_verbs_failures() == 0; i++) {
		turn_or_jump(&quiet);
		if (sim_chance(3))
			(void)sim_transfers_look();
		if (i == break_at) {
			sim.is_cut = true;
			silence(&sim.side[sim_random(2)]);
		}
		if (sim.is_cut && sim_chance(30)) { /* the other side notices */
			silence(&sim.side[0]);
			silence(&sim.side[1]);
		}
		if (i == fatal_at)
			fake_verbs_device_fatal(sim_random(2 * sim.plan.rails));
		if (sim.plan.has_faults && sim_chance(60))
			fault();
	}
}

static void
lanes_reset(struct sim_side *side)
{
	for (uint32_t i = 0; i < SIM_LANES; i++) {
		KVP_CHECK(side->lane[i]->slots == 0 && side->lane[i]->caches == 0);
		side->lane[i]->polled_next = 0;
		side->lane[i]->busy_next = 0;
		side->lane[i]->fd_rest = 0;
		side->lane[i]->cache_newest = 0;
	}
}

static void
sim_reset(uint64_t seed)
{
	struct kvp_lane *lane[2][SIM_LANES];

	for (uint32_t s = 0; s < 2; s++) {
		memcpy(lane[s], sim.side[s].lane, sizeof(lane[s]));
		lanes_reset(&sim.side[s]);
	}
	memset(&sim, 0, sizeof(sim));
	sim.seed = seed;
	sim.random = seed * 0xA0761D6478BD642FULL + 1;
	sim.now_ns = START_NS;
	for (uint32_t s = 0; s < 2; s++) {
		memcpy(sim.side[s].lane, lane[s], sizeof(lane[s]));
		sim.side[s].index = s;
		sim.side[s].in = frames[s];
	}
	decide();
}

bool
sim_run(uint64_t seed, const char **text_out)
{
	*text_out = fake_verbs_failure();
	sim_reset(seed);
	world_open();
	link_up();
	sim_caches_open(&sim.side[0]);
	sim_caches_open(&sim.side[1]);
	if (sim.plan.has_faults)
		start_faults();
	load();
	if (sim.plan.has_faults && sim_chance(2))
		linger();
	settle();
	if (fake_verbs_counters()->rnr != 0)
		fake_verbs_failed("%llu messages found no receive",
				  (unsigned long long)fake_verbs_counters()->rnr);
	for (uint32_t s = 0; s < 2; s++)
		for (uint32_t e = 0; e < sim.side[s].path->config.endpoints; e++)
			check_endpoint(&sim.side[s], sim.side[s].path->endpoint[e]);
	sim_transfers_close();
	if (fake_verbs_failures() != 0)
		return false;
	side_stop(&sim.side[0]);
	side_stop(&sim.side[1]);
	return fake_verbs_close() == 0;
}

void
sim_prepare(void)
{
	struct kvp_error err = {""};

	for (uint32_t s = 0; s < 2; s++) {
		for (uint32_t i = 0; i < SIM_LANES; i++) {
			const struct kvp_lane_config config = {.index = i,
							       .cpu = -1,
							       .ring_parts = 512,
							       .reactor = &sim.side[s].reactor};

			must(kvp_lane_prepare(&config, &sim.side[s].lane[i], &err), &err);
		}
	}
}
