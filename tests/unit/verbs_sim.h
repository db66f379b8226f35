/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_sim.h - two engines' verbs transports, lanes and control connection in one thread, by one seed
 *
 * The devices are the fakes, the clock is a number, the control connection a queue with delays that may
 * break; the rest is the library: paths, lanes without threads, plans, memory. Random pushes, pulls,
 * notifications, cancels, deadlines, withdrawals of caches, faults of rails and ends of links, and what must hold
 * whatever happens:
 *
 *   grant       a device touches a byte only while a transfer that may is under way, and its owner's link is up
 *   terminal    every transfer ends once; SUCCESS means that every byte is there; faults of rails alone
 *               are no reason for anything else; stopped, it ends within SIM_STOP_NS
 *   event       a notification comes once, after all its bytes are visible, and nothing is written after it;
 *               after SUCCESS it comes
 *   credit      no message ever finds no receive; no queue ever overflows
 *   account     nothing is in flight, in doubt or kept when all is over
 *   wake        a lane that sleeps is woken when there is a completion for it
 *   progress    when faults stop, all ends: transfers, orphans, rebuilds, fences
 *
 * Ownership:  one simulation at a time; after a failure the process is of no more use
 * Threads:    one
 */
#ifndef KVP_TEST_VERBS_SIM_H
#define KVP_TEST_VERBS_SIM_H

#include <kvpush/engine.h>

#include "fake_verbs.h"
#include "inbox.h"
#include "lane_state.h"
#include "reactor.h"
#include "transports.h"
#include "verbs/verbs_lane.h"
#include "verbs/verbs_path.h"

#define SIM_LANES     2U
#define SIM_CACHES    2U /* of a side, at one time */
#define SIM_TENSORS   3U
#define SIM_BLOCKS    40U
#define SIM_BYTES     16384U /* of a cache, with its gaps */
#define SIM_TRANSFERS 80U
#define SIM_PAIRS     12U
#define SIM_MESSAGES  256U
#define SIM_NOTE_MAX  512U
#define SIM_WATCHES   4U
#define SIM_EVENTS    64U
#define SIM_STOP_NS   3000000000ULL

struct kvp_inbox {
	uint32_t room; /* events that it still takes */
	uint32_t count;
	struct kvp_event event[SIM_EVENTS];
};

enum sim_message_type {
	SIM_NOTE,
	SIM_CACHE_ADD,
	SIM_CACHE_GONE,
	SIM_CACHE_GONE_ACK,
};

/* A frame of the control connection. */
struct sim_message {
	enum sim_message_type type;
	uint64_t due_ns;
	uint32_t cache; /* place at its owner */
	uint32_t bytes;
	uint8_t body[SIM_NOTE_MAX];
};

enum sim_presence {
	SIM_ABSENT,
	SIM_HERE,
	SIM_LEAVING, /* waits for its transfers and for the peer */
};

struct sim_cache {
	enum sim_presence presence;
	uint8_t *memory;
	struct kvp_local_cache local;
	struct kvp_tensor tensor[SIM_TENSORS];
	struct kvp_span span[SIM_TENSORS];
	uint32_t blocks;
	uint32_t own_users; /* transfers of its owner */
	/* At the peer. */
	struct kvp_remote_cache remote;
	struct kvp_remote_tensor remote_tensor[SIM_TENSORS];
	struct kvp_view *view;
	bool is_view_gone; /* the peer was told, and stops its transfers */
	uint32_t peer_users;
	bool is_peer_done; /* the peer has let go, or was never told */
	/* Who uses which block, as the applications agreed. */
	uint32_t readers[SIM_BLOCKS];
	bool is_written[SIM_BLOCKS];
	uint32_t version[SIM_BLOCKS];
};

struct sim_side {
	uint32_t index;
	struct kvp_config config;
	struct kvp_dataplane dataplane;
	struct kvp_reactor reactor;
	struct kvp_watch *watch[SIM_WATCHES];
	uint32_t watches;
	uint64_t events_seen; /* of devices */
	bool is_woken;
	struct kvp_lane *lane[SIM_LANES];
	bool is_asleep[SIM_LANES];
	bool is_napping[SIM_LANES]; /* not armed, but for a moment only */
	uint64_t wake_ns[SIM_LANES];
	uint32_t empty[SIM_LANES]; /* loops without work */
	uint32_t still[SIM_LANES]; /* turns that it is kept from its CPU */
	struct kvp_inbox inbox;
	void *state;
	struct kvp_path *path;
	bool is_attached;
	bool is_silent; /* the link ended here */
	uint64_t wish_ns;
	int64_t next_cache;
	struct sim_cache cache[SIM_CACHES];
	struct sim_message *in; /* ring of SIM_MESSAGES */
	uint32_t in_first, in_end;
	uint64_t in_due_ns; /* of the last: they keep their order */
};

struct sim_transfer {
	struct kvp_transfer *transfer; /* NULL: free */
	void *plan_memory;
	uint32_t side;
	uint32_t local, remote; /* caches' places */
	bool is_push;
	bool has_notify;
	bool is_done;
	kvp_status status;
	uint32_t events;
	bool is_event_owed; /* it succeeded, and nothing excuses the receiver */
	bool is_excused;    /* it may fail: somebody stops it, or its time is short */
	uint64_t stop_ns;   /* when it is to end at the latest, but for what it waits for */
	uint32_t pairs;
	uint64_t local_block[SIM_PAIRS], remote_block[SIM_PAIRS];
	uint32_t version[SIM_PAIRS]; /* of the destination's blocks */
	uint32_t grant[2 * SIM_PAIRS * SIM_TENSORS];
	uint8_t grant_side[2 * SIM_PAIRS * SIM_TENSORS]; /* whose memory */
	bool is_granted[2 * SIM_PAIRS * SIM_TENSORS];
	uint32_t grants;
	uint8_t *expected; /* what the destination must be */
	_Atomic uint32_t hold;
};

/* What the seed decided for all of its world. */
struct sim_plan {
	uint32_t rails, lanes, qps, turns;
	bool has_faults, has_break, has_fatal, has_withdrawals;
	bool has_status;      /* any error of a request, also such as are no rail's fault */
	bool is_burst;        /* many small pushes with notification, and lanes that stand still */
	uint64_t share_bytes; /* smallest part */
};

struct sim {
	uint64_t seed, random;
	uint64_t now_ns;
	bool is_cut; /* the control connection broke */
	bool is_calm;
	struct sim_plan plan;
	struct sim_side side[2];
	struct sim_transfer transfer[SIM_TRANSFERS];
	uint64_t submitted, succeeded, failed, events, withdrawn, sleeps;
	uint64_t breaks, replayed; /* of all endpoints, at the end */
};

extern struct sim sim;

/* [0, below) */
uint32_t
sim_random(uint32_t below);
static inline bool
sim_chance(uint32_t one_in)
{
	return sim_random(one_in) == 0;
}

/* verbs_sim.c: engines, link, clock */
/* Once per process. */
void
sim_prepare(void);
/* True: all held. *text_out says what did not. */
bool
sim_run(uint64_t seed, const char **text_out);
void
sim_send(uint32_t to, const struct sim_message *message);

/* verbs_sim_lane.c: lanes that sleep as those with threads do */
/* Some lane of the side runs, if it is awake. Returns the work done. */
uint32_t
sim_lane_run(struct sim_side *side, uint32_t i);
/* Somebody asked lanes of this side for something: a thread would have been woken for it. */
void
sim_lanes_wake(struct sim_side *side);
/* When the first sleeping lane wakes by itself. */
uint64_t
sim_lanes_wish(const struct sim_side *side);

/* verbs_sim_load.c: caches, transfers, events */
void
sim_caches_open(struct sim_side *side);
/* The rest of a withdrawal, when nobody uses it any more. */
void
sim_caches_look(struct sim_side *side);
void
sim_cache_message(struct sim_side *side, const struct sim_message *message);
/* At the end of all: no user is left. */
void
sim_caches_close(struct sim_side *side);
/* One thing that an application does. */
void
sim_act(struct sim_side *side);
/* Transfers that ended are judged. Returns how many are under way. */
uint32_t
sim_transfers_look(void);
/* Nothing may touch this side's memory from now on. */
void
sim_grants_end(uint32_t side);
/* Take what came. Returns events. */
uint32_t
sim_events_take(struct sim_side *side);
/* Every event that is owed has come. */
void
sim_transfers_close(void);

#endif /* KVP_TEST_VERBS_SIM_H */
