/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_rebuild.c - QPs from their first hand-over on: fence, rebuild, prove
 *
 * verbs_wire.h draws what the two ends tell each other. Each end destroys a broken QP, which is the fence:
 * nothing is sent or received by it afterwards. The initiator asks for a new generation; its first REBUILD
 * goes out at once, also when it cannot build, since the peer's fence is what orphans wait for.
 */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "lane.h"
#include "verbs_path.h"
#include "wake.h"

#define GENERATIONS 4096U
/* The kernel looks for the peer's Ethernet address in ibv_modify_qp, and nothing else moves on this thread meanwhile. */
#define SLOW_NS 50000000U

static uint32_t
next_generation(uint32_t generation)
{
	return generation + 1 < GENERATIONS ? generation + 1 : 1;
}

static bool
is_newer(uint32_t generation, uint32_t than)
{
	uint32_t ahead = (generation + GENERATIONS - than) % GENERATIONS;

	return ahead != 0 && ahead < GENERATIONS / 2;
}

/* The lane looks at its QPs again. */
static void
tell_lane(struct kvp_verbs_queue *queue)
{
	struct kvp_verbs_endpoint *ep = queue->endpoint;

	atomic_store_explicit(&ep->attention,
			      atomic_load_explicit(&ep->attention, memory_order_relaxed) + 1,
			      memory_order_release);
	kvp_lane_kick(ep->base.lane);
}

static uint32_t
phase_of(const struct kvp_verbs_queue *queue)
{
	return atomic_load_explicit(&queue->phase, memory_order_acquire);
}

static void
ask_to_break(struct kvp_verbs_queue *queue)
{
	uint32_t phase = phase_of(queue);

	if (phase != KVP_VERBS_READY && phase != KVP_VERBS_UP)
		return;
	atomic_store_explicit(&queue->asked, queue->generation, memory_order_release);
	tell_lane(queue);
}

static struct kvp_verbs_rail_state *
rail_of(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	return &path->rail[control->queue->rail];
}

static const struct kvp_verbs_port *
port_of(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	return &path->verbs->devices.port[rail_of(path, control)->port];
}

void
kvp_verbs_hand_over(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	struct kvp_verbs_queue *queue = control->queue;

	rail_of(path, control)->used = port_of(path, control)->address;
	control->step = KVP_VERBS_STEP_RUNNING;
	control->is_proven = false;
	/* Pairs with the lane's look: from here on the QP is its own. */
	atomic_store_explicit(&queue->phase, KVP_VERBS_READY, memory_order_release);
	tell_lane(queue);
}

/* --- what others are told ------------------------------------------------------------------- */

static bool
send_note(struct kvp_verbs_path *path, const struct kvp_verbs_control *control,
	  enum kvp_verbs_note_type type, struct kvp_verbs_queue_note *note)
{
	uint8_t body[KVP_VERBS_NOTE_BYTES];
	uint32_t bytes;

	if (path->is_ending)
		return false;
	note->endpoint = control->queue->endpoint->base.index;
	note->queue = control->queue->index;
	note->address = port_of(path, control)->address;
	bytes = (uint32_t)kvp_verbs_queue_note_encode(type, note, body);
	if (!path->base.config.note(&path->base, body, bytes, path->base.config.ctx))
		path->is_ending = true;
	return !path->is_ending;
}

/* Told from the next tick: `changed` must not come from inside a call. */
static void
set_state(struct kvp_verbs_path *path, enum kvp_path_state state)
{
	if (path->base.state != KVP_PATH_CONNECTING)
		return;
	path->base.state = state;
	path->is_changed = true;
	kvp_reactor_wake(path->verbs->dataplane->reactor);
}

/* How far an endpoint's QPs are in their first proof. */
struct proof {
	uint32_t proven;
	uint32_t open; /* neither proven nor failed yet */
};

static struct proof
proof_of(const struct kvp_verbs_path *path, uint32_t endpoint)
{
	uint32_t each = path->rails * path->per_rail;
	struct proof proof = {0, 0};

	for (uint32_t i = 0; i < each; i++) {
		const struct kvp_verbs_control *control = &path->control[endpoint * each + i];

		proof.proven += control->is_proven;
		proof.open += !control->is_proven && !control->has_failed;
	}
	return proof;
}

/*
 * Did every endpoint get a way to the peer, or one of them none at all? Once all have one, the
 * others are waited for, so that a link begins with all its rails; but not long: one may be dead.
 */
static void
judge(struct kvp_verbs_path *path)
{
	bool is_all = true, has_open = false;

	if (path->base.state != KVP_PATH_CONNECTING)
		return;
	for (uint32_t e = 0; e < path->base.config.endpoints; e++) {
		struct proof proof = proof_of(path, e);

		is_all &= proof.proven > 0;
		has_open |= proof.open > 0;
		if (proof.proven == 0 && proof.open == 0) {
			kvp_verbs_path_failed(path);
			set_state(path, KVP_PATH_FAILED);
			return;
		}
	}
	if (!is_all)
		path->wait_ns = UINT64_MAX;
	else if (path->wait_ns == UINT64_MAX)
		path->wait_ns = path->now_ns + KVP_VERBS_PROVE_NS;
	if (is_all && (!has_open || path->now_ns >= path->wait_ns))
		set_state(path, KVP_PATH_UP);
}

/* A QP of the rail was proven, or broke. */
static void
rail_look(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	kvp_verbs_path_text(path);
	(void)kvp_verbs_rail_say(path, control->queue->rail);
	judge(path);
}

static void
proven(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	control->is_proven = true;
	control->has_failed = false;
	control->back_off_ns = 0;
	rail_of(path, control)->why[0] = '\0';
	rail_look(path, control);
}

/* --- a QP that broke -------------------------------------------------------------------------- */

static void
remember_why(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	const struct kvp_verbs_queue *queue = control->queue;
	struct kvp_verbs_rail_state *rail = rail_of(path, control);

	if (queue->first_error != IBV_WC_SUCCESS)
		snprintf(rail->why, sizeof(rail->why), "%s (%u, vendor 0x%x)",
			 ibv_wc_status_str((enum ibv_wc_status)queue->first_error),
			 queue->first_error, queue->vendor_error);
	else if (rail->why[0] == '\0')
		snprintf(rail->why, sizeof(rail->why), "the peer's end broke");
}

/* Nothing of its generation moves any more on this side. */
static void
close_queue(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	struct kvp_verbs_queue *queue = control->queue;

	(void)path;
	kvp_verbs_queue_close(queue);
	/* Before the peer hears of a new QP: it may grant at once. */
	atomic_store_explicit(queue->credit, 0, memory_order_relaxed);
	control->closed = queue->generation;
	control->closed_taken = queue->taken;
	control->is_proven = false;
	atomic_store_explicit(&queue->phase, KVP_VERBS_RESET, memory_order_release);
}

/* 0, then from the least to the most. */
static void
back_off(struct kvp_verbs_control *control, uint64_t now_ns)
{
	control->step = KVP_VERBS_STEP_BACK_OFF;
	control->retry_ns = now_ns + control->back_off_ns;
	control->back_off_ns =
		control->back_off_ns == 0 ? KVP_VERBS_BACK_OFF_MIN_NS : 2 * control->back_off_ns;
	if (control->back_off_ns > KVP_VERBS_BACK_OFF_MAX_NS)
		control->back_off_ns = KVP_VERBS_BACK_OFF_MAX_NS;
}

void
kvp_verbs_not_connected(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	close_queue(path, control);
	control->has_failed = true;
	control->is_fenced = true;
	if (path->base.config.is_initiator)
		back_off(control, path->now_ns);
	else
		control->step = KVP_VERBS_STEP_WAITING;
}

static void
broken(struct kvp_verbs_path *path, struct kvp_verbs_control *control, uint64_t now_ns)
{
	struct kvp_verbs_queue_note note = {.generation = control->queue->generation};

	remember_why(path, control);
	control->has_failed = true;
	close_queue(path, control);
	control->is_fenced = false;
	if (path->base.config.is_initiator) {
		back_off(control, now_ns);
	} else {
		control->step = KVP_VERBS_STEP_WAITING;
		(void)send_note(path, control, KVP_VERBS_BROKEN, &note);
	}
	rail_look(path, control);
}

static bool
can_build(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	const struct kvp_verbs_port *port = port_of(path, control);

	return port->is_active && !path->verbs->devices.device[port->device].is_fatal;
}

/* Not on a rail that only just kept this thread waiting in vain. */
static bool
may_build(struct kvp_verbs_path *path, const struct kvp_verbs_control *control)
{
	return !path->is_ending && can_build(path, control) &&
	       path->now_ns >= rail_of(path, control)->rest_ns;
}

/* Make the QP of queue->generation; without one `peer` stays zero, which says so. */
static void
open_queue(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
	   struct kvp_verbs_peer_queue *peer_out)
{
	struct kvp_error error;

	if (!may_build(path, control))
		return;
	if (kvp_verbs_queue_open(path->verbs, control->queue, port_of(path, control), &control->psn,
				 &error) != KVP_SUCCESS) {
		snprintf(rail_of(path, control)->why, sizeof(rail_of(path, control)->why), "%s",
			 error.text);
		return;
	}
	peer_out->number = control->queue->qp->qp_num;
	peer_out->psn = control->psn;
}

static bool
connect_queue(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
	      const struct kvp_verbs_queue_note *note)
{
	struct kvp_verbs_rail_state *rail = rail_of(path, control);
	struct kvp_verbs_route route = {
		.port = port_of(path, control),
		.peer = note->address,
		.queue = note->peer,
		.psn = control->psn,
	};
	uint64_t begin_ns = kvp_now_ns();
	struct kvp_verbs_pair pair;
	struct kvp_error error;

	memcpy(route.ece, rail->ece, sizeof(route.ece));
	/* Its address may be a new one, and is as little believed as the first. */
	if (kvp_verbs_pair_up(&route.port->address, 1, &note->address, 1, 1, &pair, error.text,
			      sizeof(error.text)) == 1 &&
	    kvp_verbs_queue_connect(path->verbs, control->queue, &route, &error) == KVP_SUCCESS) {
		rail->peer = note->address;
		rail->is_routed = pair.is_routed;
		return true;
	}
	if (kvp_now_ns() - begin_ns >= SLOW_NS)
		rail->rest_ns = path->now_ns + KVP_VERBS_BACK_OFF_MAX_NS;
	snprintf(rail->why, sizeof(rail->why), "%s", error.text);
	kvp_verbs_queue_close(control->queue);
	return false;
}

/* --- the initiator's side ------------------------------------------------------------------------ */

static void
ask(struct kvp_verbs_path *path, struct kvp_verbs_control *control, uint64_t now_ns)
{
	struct kvp_verbs_queue_note note = {.fenced = control->closed,
					    .taken = control->closed_taken};

	if (control->is_fenced && !may_build(path, control)) {
		back_off(control, now_ns);
		return;
	}
	control->queue->generation = next_generation(control->queue->generation);
	note.generation = control->queue->generation;
	open_queue(path, control, &note.peer);
	control->step = KVP_VERBS_STEP_ASKED;
	if (!send_note(path, control, KVP_VERBS_REBUILD, &note))
		kvp_verbs_queue_close(control->queue);
}

static void
fence(struct kvp_verbs_control *control, const struct kvp_verbs_queue_note *note)
{
	atomic_store_explicit(&control->queue->fenced, (uint64_t)note->fenced << 32 | note->taken,
			      memory_order_release);
	tell_lane(control->queue);
}

static void
rebuilt(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
	const struct kvp_verbs_queue_note *note)
{
	struct kvp_verbs_queue *queue = control->queue;

	if (control->step != KVP_VERBS_STEP_ASKED || note->generation != queue->generation)
		return;
	if (!control->is_fenced && note->fenced == control->closed) {
		control->is_fenced = true;
		fence(control, note);
	}
	if (queue->qp != NULL && note->peer.number != 0 && may_build(path, control) &&
	    connect_queue(path, control, note)) {
		kvp_verbs_hand_over(path, control);
		return;
	}
	/* This generation carried nothing: the next REBUILD says again what was fenced before. */
	kvp_verbs_queue_close(queue);
	control->has_failed = true;
	back_off(control, path->now_ns);
	judge(path);
}

static void
peer_broke(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
	   const struct kvp_verbs_queue_note *note)
{
	if (control->step == KVP_VERBS_STEP_BACK_OFF) {
		control->retry_ns = path->now_ns; /* it can build again */
		kvp_reactor_wake(path->verbs->dataplane->reactor);
	} else if (control->step == KVP_VERBS_STEP_RUNNING &&
		   note->generation == control->queue->generation) {
		ask_to_break(control->queue);
	}
}

/* --- the acceptor's side --------------------------------------------------------------------------- */

static void
answer(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	const struct kvp_verbs_queue_note *asked = &control->note;
	struct kvp_verbs_queue *queue = control->queue;
	struct kvp_verbs_queue_note note = {.generation = asked->generation,
					    .fenced = asked->fenced};

	/*
	 * The initiator's QP of that generation is gone: nothing of ours can land through it any more. Not told
	 * before our own is gone too, so that the lane has heeded the word that this one overwrites.
	 */
	fence(control, asked);
	if (control->closed == asked->fenced)
		note.taken = control->closed_taken;
	queue->generation = asked->generation;
	if (asked->peer.number != 0)
		open_queue(path, control, &note.peer);
	if (queue->qp != NULL && !connect_queue(path, control, asked))
		note.peer = (struct kvp_verbs_peer_queue){0};
	control->step = KVP_VERBS_STEP_WAITING;
	if (!send_note(path, control, KVP_VERBS_REBUILT, &note))
		kvp_verbs_queue_close(queue);
	else if (queue->qp != NULL)
		kvp_verbs_hand_over(path, control);
}

static void
asked_to_rebuild(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
		 const struct kvp_verbs_queue_note *note)
{
	if (!is_newer(note->generation, control->queue->generation))
		return;
	control->note = *note;
	if (control->step == KVP_VERBS_STEP_WAITING) {
		answer(path, control);
		return;
	}
	control->step = KVP_VERBS_STEP_ANSWERING;
	ask_to_break(control->queue);
	kvp_reactor_wake(path->verbs->dataplane->reactor);
}

static void
peer_proved(struct kvp_verbs_path *path, struct kvp_verbs_control *control,
	    const struct kvp_verbs_queue_note *note)
{
	if (control->step != KVP_VERBS_STEP_RUNNING ||
	    note->generation != control->queue->generation)
		return;
	atomic_store_explicit(&control->queue->proven, note->generation, memory_order_release);
	tell_lane(control->queue);
	proven(path, control);
}

/* --- both ---------------------------------------------------------------------------------------------- */

kvp_status
kvp_verbs_queue_note(struct kvp_verbs_path *path, uint32_t type,
		     const struct kvp_verbs_queue_note *note, struct kvp_error *err)
{
	bool is_initiator = path->base.config.is_initiator;
	uint32_t each = path->rails * path->per_rail;
	struct kvp_verbs_control *control;

	if (!path->is_connected || note->endpoint >= path->base.config.endpoints ||
	    note->queue >= each)
		return kvp_fail(
			err, KVP_PROTOCOL,
			"verbs: a note about queue pair %u of endpoint %u, which is not there",
			note->queue, note->endpoint);
	if (is_initiator != (type == KVP_VERBS_BROKEN || type == KVP_VERBS_REBUILT))
		return kvp_fail(err, KVP_PROTOCOL, "verbs: a note of type %u from the wrong side",
				type);
	control = &path->control[note->endpoint * each + note->queue];
	path->is_ending |= path->base.is_silent;
	if (type == KVP_VERBS_BROKEN)
		peer_broke(path, control, note);
	else if (type == KVP_VERBS_REBUILT)
		rebuilt(path, control, note);
	else if (type == KVP_VERBS_REBUILD)
		asked_to_rebuild(path, control, note);
	else
		peer_proved(path, control, note);
	return KVP_SUCCESS;
}

static void
look(struct kvp_verbs_path *path, struct kvp_verbs_control *control, uint64_t now_ns)
{
	struct kvp_verbs_queue_note note = {.generation = control->queue->generation};
	uint32_t phase = phase_of(control->queue);

	switch (control->step) {
	case KVP_VERBS_STEP_RUNNING:
		if (phase == KVP_VERBS_UP && !control->is_proven &&
		    path->base.config.is_initiator) {
			(void)send_note(path, control, KVP_VERBS_PROVEN, &note);
			proven(path, control);
		} else if (phase == KVP_VERBS_FLUSHED) {
			broken(path, control, now_ns);
		}
		break;
	case KVP_VERBS_STEP_ANSWERING:
		if (phase != KVP_VERBS_FLUSHED)
			break;
		remember_why(path, control);
		control->has_failed = true;
		close_queue(path, control);
		rail_look(path, control);
		answer(path, control);
		break;
	case KVP_VERBS_STEP_BACK_OFF:
		if (now_ns >= control->retry_ns && !path->is_ending)
			ask(path, control, now_ns);
		break;
	case KVP_VERBS_STEP_ASKED:
	case KVP_VERBS_STEP_WAITING:
		break;
	}
}

static uint64_t
sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t
kvp_verbs_path_tick(struct kvp_path *base, uint64_t now_ns)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	uint64_t next_ns = UINT64_MAX;

	path->now_ns = now_ns;
	path->is_ending |= base->is_silent;
	if (!path->is_connected)
		return next_ns;
	for (uint32_t i = 0; i < path->total; i++) {
		const struct kvp_verbs_control *control = &path->control[i];

		look(path, &path->control[i], now_ns);
		if (control->step != KVP_VERBS_STEP_BACK_OFF || path->is_ending)
			continue;
		if (control->retry_ns <= now_ns)
			return 0;
		next_ns = sooner(next_ns, control->retry_ns - now_ns);
	}
	judge(path);
	if (base->state == KVP_PATH_CONNECTING && path->wait_ns != UINT64_MAX)
		next_ns = sooner(next_ns, path->wait_ns - now_ns);
	for (uint32_t r = 0; r < path->rails; r++)
		next_ns = sooner(next_ns, kvp_verbs_rail_say(path, r));
	if (path->is_changed) {
		path->is_changed = false;
		base->config.changed(base,
				     base->config.ctx); /* may end the link: nothing after this */
	}
	return next_ns;
}

/* --- devices -------------------------------------------------------------------------------------------- */

static void
port_changed(struct kvp_verbs_path *path, struct kvp_verbs_control *control)
{
	struct kvp_verbs_rail_state *rail = rail_of(path, control);
	const struct kvp_verbs_port *port = port_of(path, control);
	struct kvp_verbs_queue_note note = {.generation = control->queue->generation};

	if (!can_build(path, control)) {
		snprintf(rail->why, sizeof(rail->why), "%s", port->why);
		ask_to_break(control->queue);
	} else if (control->step == KVP_VERBS_STEP_RUNNING &&
		   (memcmp(rail->used.gid, port->address.gid, KVP_VERBS_GID_BYTES) != 0 ||
		    rail->used.lid != port->address.lid)) {
		snprintf(rail->why, sizeof(rail->why), "the port's address changed");
		ask_to_break(control->queue);
	} else if (control->step == KVP_VERBS_STEP_BACK_OFF) {
		rail->rest_ns = 0;
		control->back_off_ns = 0;
		control->retry_ns = path->now_ns;
		kvp_reactor_wake(path->verbs->dataplane->reactor);
	} else if (control->step == KVP_VERBS_STEP_WAITING) {
		rail->rest_ns = 0;
		(void)send_note(path, control, KVP_VERBS_BROKEN, &note);
	}
}

void
kvp_verbs_path_changed(struct kvp_verbs_path *path, uint32_t device,
		       const struct kvp_verbs_port *port, const struct ibv_qp *qp)
{
	for (uint32_t i = 0; path->is_connected && i < path->total; i++) {
		struct kvp_verbs_control *control = &path->control[i];

		if (qp != NULL     ? control->queue->qp == qp
		    : port != NULL ? port_of(path, control) == port
				   : control->queue->device == device) {
			if (qp != NULL)
				ask_to_break(control->queue);
			else
				port_changed(path, control);
		}
	}
	if (path->is_connected)
		kvp_verbs_path_text(path);
}
