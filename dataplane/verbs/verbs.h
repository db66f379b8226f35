/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs.h - the verbs transport's own structures; nothing outside this folder but its tests includes it
 *
 *   rail       one local device port and the peer's port that it reaches; a link has 1 to 4
 *   queue      one reliable-connected queue pair on a rail ("QP" below)
 *   endpoint   a lane's share of the link: its queues on every rail. A part belongs to an endpoint, so
 *              when a rail fails its requests move to the endpoint's other queues and nothing above notices
 *
 *   verbs_rail.c      pure: which GID, which ports reach each other
 *   verbs_wire.c      pure: descriptions, offers, notes, messages as bytes
 *   verbs_stretch.c   [A] which stretches of memory a cache lies in, and where they are cut
 *   verbs_device.c    [C] devices, their asynchronous events
 *   verbs_port.c      [C] a port: state, GID table, MTU, speed
 *   verbs_near.c      [C] which adapter is near which core
 *   verbs_explain.c   [A] the same for people, without an engine
 *   verbs_memory.c    [A] registration: who shares what
 *   verbs_pin.c       [A] memory regions, made in parallel; limits
 *   verbs_keys.c      [C] keys of a cache, to the peer and from it
 *   verbs_queue.c     [C] completion queues and QPs: create, connect, reset, destroy
 *   verbs_path.c      [C] a path from create to destroy
 *   verbs_rebuild.c   [C] QPs that left RTS: fence, rebuild, prove
 *   verbs_view.c      [C] views of the peer's caches
 *   verbs_text.c      [C] what people are told of a path
 *   verbs_setup.c     [C] the table
 *   verbs_endpoint.c  [C] memory of an endpoint
 *   verbs_post_fast.c     [L] windows, doorbells; its loop is in verbs_chain.h: gather lists
 *   verbs_poll_fast.c     [L] completions
 *   verbs_message_fast.c  [L] immediates, notifications, receives, credits
 *   verbs_fence.c     [L] broken QPs: flush, orphans, their fate
 *   verbs_attend.c    [L] what control changed; attach, sleep, stop, down
 *
 * Silence:    a request is let go when its completion came. When a QP breaks (error completion, port
 *             event, drain time passed) it goes to ERR, all its posted requests are flushed, and those
 *             that had not completed are orphans. An orphan is neither posted again nor forgotten until
 *             the peer's QP is fenced too: reset, which the peer's path says by a note. Only then nothing
 *             of it can land any more. A peer that does not answer within KVP_VERBS_FENCE_NS is
 *             not waited for: our QP cannot retransmit, and no fabric keeps a packet that long.
 * Hand-over:  control builds a QP in phase RESET (generation, numbers of the peer, *credit = 0), brings it to
 *             RTS and says READY. The lane takes it over: it starts its own fields afresh, posts the receives,
 *             and, on the initiator's side, a probe. UP: it grants its receives to the peer, which could not
 *             send a message before. FLUSHED: everything posted is accounted for; control may read `taken`,
 *             `is_stuck` and the errors, and must not touch anything else of the lane's.
 *             Whoever changes a field that the other waits for tells it: control adds 1 to `attention` and
 *             calls kvp_lane_kick, a lane calls kvp_reactor_wake.
 * Arrival:    the receiver believes only an immediate on the QP that carried the data, or a reset of that QP.
 * Threads:    [A] application  [C] control thread  [L] lane of the endpoint
 */
#ifndef KVP_VERBS_H
#define KVP_VERBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "gather.h"
#include "transport.h"
#include "verbs_device.h"
#include "verbs_wire.h"

#define KVP_VERBS_CHAIN 16U /* requests per doorbell */
#define KVP_VERBS_SGES  30U /* pieces per request, or what the device has if less */
#define KVP_VERBS_SQ    128U
#define KVP_VERBS_SQ_KEPT \
	4U /* places of the send queue that data does not take: credits, immediates, probe */
#define KVP_VERBS_WINDOW   32U /* requests of one part per QP */
#define KVP_VERBS_RQ       64U
#define KVP_VERBS_GRANT    16U   /* receives given back to the sender at once */
#define KVP_VERBS_SENDS    16U   /* SENDs of one QP under way */
#define KVP_VERBS_POLL     32U   /* completions per call */
#define KVP_VERBS_UNACKED  64U   /* events that are acknowledged together: it costs a lock */
#define KVP_VERBS_ALL_MAX  32U   /* QPs of one endpoint: bits of a mask */
#define KVP_VERBS_SLOTS    4096U /* immediates: slots of an endpoint */
#define KVP_VERBS_CQ_QPS   256U  /* QPs that share a completion queue */
#define KVP_VERBS_CQ_DEPTH 16384U
#define KVP_VERBS_DRAIN_NS \
	100000000U /* a stopping part waits for its completions, then its QPs break */
#define KVP_VERBS_FENCE_NS 200000000U  /* then it waits for the peer's fence */
#define KVP_VERBS_FLUSH_NS 1000000000U /* flushes that do not come: the QP is destroyed instead */
#define KVP_VERBS_PROVE_NS \
	200000000U /* rails that are slower than the first of each endpoint: the path is up */
#define KVP_VERBS_BACK_OFF_MIN_NS 100000000U
#define KVP_VERBS_BACK_OFF_MAX_NS 5000000000U
_Static_assert(KVP_VERBS_RAILS_MAX *KVP_VERBS_QPS_MAX == KVP_VERBS_ALL_MAX, "one bit per QP");
_Static_assert((KVP_VERBS_SQ & (KVP_VERBS_SQ - 1)) == 0 &&
		       (KVP_VERBS_SLOTS & (KVP_VERBS_SLOTS - 1)) == 0,
	       "rings with masks");

struct kvp_verbs_endpoint;
struct kvp_verbs_path;

/* --- identifiers that go out and come back ------------------------------------- */

/* What a completion is about. Only wr_id, status and qp_num of a failed one mean anything. */
enum kvp_verbs_kind {
	KVP_VERBS_WRITE = 1, /* with or without an immediate */
	KVP_VERBS_READ = 2,
	KVP_VERBS_TELL = 3,   /* zero bytes with an immediate */
	KVP_VERBS_SEND = 4,   /* a notification */
	KVP_VERBS_CREDIT = 5, /* WRITE of a counter into the peer's credit word */
	KVP_VERBS_PROBE =
		6, /* zero bytes: is the rail there? Also flushes out unsignaled requests */
	KVP_VERBS_RECV = 7,
};

/* wr_id: kind 4 bits, place in the CQ's table 16, generation of the QP 12, sequence 32. */
static inline uint64_t
kvp_verbs_wr_id(enum kvp_verbs_kind kind, uint32_t place, uint32_t generation, uint32_t sequence)
{
	return (uint64_t)kind << 60 | (uint64_t)(place & 0xFFFFU) << 44 |
	       (uint64_t)(generation & 0xFFFU) << 32 | sequence;
}

/* An immediate is a key: generation 12 bits, slot 20 (KVP_VERBS_SLOTS of them are used). Never 0. */
static inline uint32_t
kvp_verbs_key(uint32_t slot, uint32_t generation)
{
	return (generation & 0xFFFU) << 20 | (slot & 0xFFFFFU);
}

/* --- registered memory ----------------------------------------------------------- */

/* Ascending by address, apart from each other. */
struct kvp_verbs_span {
	uint64_t address;
	uint64_t bytes;
	uint32_t key[KVP_VERBS_DEVICES_MAX]; /* local: lkey by device; of a peer: rkey by rail */
};

struct kvp_verbs_spans {
	uint32_t count;
	struct kvp_verbs_span span[];
};

/* The span that holds `address`, or NULL. `hint`: where the last one was found, or NULL. */
static inline const struct kvp_verbs_span *
kvp_verbs_span_find(const struct kvp_verbs_spans *spans, uint64_t address,
		    const struct kvp_verbs_span *hint)
{
	uint32_t low = 0, high = spans->count;

	if (hint != NULL && address - hint->address < hint->bytes)
		return hint;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct kvp_verbs_span *span = &spans->span[middle];

		if (address < span->address)
			high = middle;
		else if (address - span->address < span->bytes)
			return span;
		else
			low = middle + 1;
	}
	return NULL;
}

/*
 * cache->held[slot of verbs]: what verbs_memory.c registered. Lanes read `spans` (lkeys by device). The rest
 * is verbs_memory.c's.
 */
struct kvp_verbs_held {
	struct kvp_verbs_spans *spans;
	struct kvp_verbs_registration *
		*registration; /* counted references into the engine's table */
	uint32_t registrations;
	uint32_t *rkey; /* [spans->count][KVP_VERBS_DEVICES_MAX], for offers */
};

/* A cache of the peer over this path; spans carry rkeys by rail. Const between open and close. */
struct kvp_view {
	const struct kvp_remote_cache *cache;
	struct kvp_verbs_spans *spans;
};

/* --- what one lane has of one device ------------------------------------------------ */

/* One completion queue. Its QPs belong to the lane's endpoints. More are made when it is full. */
struct kvp_verbs_cq {
	/* const while QPs use it */
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel; /* wakes the lane; nonblocking fd */
	struct kvp_lane *lane;
	uint32_t device; /* index */
	uint32_t depth;

	/* control: rw */
	struct kvp_verbs_cq *next; /* of the state */
	uint32_t used;             /* completions its QPs can cause at worst, <= depth */
	uint32_t users;            /* QPs */
	uint64_t places[KVP_VERBS_CQ_QPS / 64]; /* bit per place of `queue` that is given away */

	/* lane: rw. `queue` entries are set and cleared by the lane, in attached() and detached(). */
	uint64_t polled_ns; /* once per loop, whichever endpoint comes first */
	uint32_t attached;  /* endpoints */
	uint32_t unacked;   /* events of the channel, for ibv_ack_cq_events */
	bool is_armed;
	uint64_t stale; /* completions of QPs that were rebuilt since */
	struct kvp_verbs_queue *queue[KVP_VERBS_CQ_QPS];
};

/* --- queue pairs ---------------------------------------------------------------------- */

/*
 * Who owns a QP. RESET and FLUSHED are the control thread's, the others the lane's; each hands over by a release
 * store that the other acquires.
 */
enum kvp_verbs_phase {
	KVP_VERBS_RESET = 0, /* being (re)built, or waiting to be */
	KVP_VERBS_READY =
		1, /* RTS on both ends. The initiator's lane posts a probe; others wait for proof */
	KVP_VERBS_UP = 2,       /* proven: carries requests */
	KVP_VERBS_FLUSHING = 3, /* in ERR, what was posted is not all accounted for */
	KVP_VERBS_FLUSHED = 4,  /* in ERR, all of it is; orphans wait for the fence */
};

/* What an entry of the send queue is. */
struct kvp_verbs_tag {
	uint8_t kind;    /* enum kvp_verbs_kind */
	bool is_message; /* takes a receive of the peer: has an immediate, or is a SEND */
	uint8_t queue;   /* index in the endpoint */
	uint8_t number; /* SEND: its buffer; data: requests of the chain that it ends, 0: it ends none */
};

/* A posted send-queue entry. RC completes in order: one completion retires all before it. */
struct kvp_verbs_request {
	struct kvp_part *part; /* NULL: none (credit, probe), or its part ended */
	uint64_t first;        /* byte of the plan it starts at: enough to make it again */
	uint32_t bytes;
	struct kvp_verbs_tag tag;
	uint32_t key; /* a message: the immediate, or the SEND's first key; else anything */
	uint32_t
		chain_bytes; /* data that ends a chain: of all its requests, which are one part's */
};
_Static_assert(sizeof(struct kvp_verbs_request) == 32, "two per cache line");

enum kvp_verbs_fate {
	KVP_VERBS_FREE = 0,
	KVP_VERBS_DOUBT = 1, /* it may have landed, or may land still: waits for the fence */
	KVP_VERBS_AGAIN = 2, /* it has not landed and cannot any more: to be posted again */
};

/* An entry of a QP that broke. */
struct kvp_verbs_orphan {
	struct kvp_verbs_request request;
	uint32_t fate;       /* enum kvp_verbs_fate */
	uint32_t generation; /* of its QP: whose fence it waits for */
	uint32_t message; /* it arrived when the peer took this many messages of that generation */
	uint64_t flushed_ns;
};

/* A message that came: in place, in the receive buffer. Everything in it is the peer's word. */
#define KVP_VERBS_MESSAGE_BYTES 640U
_Static_assert(KVP_VERBS_MESSAGE_BYTES >= KVP_VERBS_SEND_MAX, "any notification fits");

/* Memory of one QP's messages, registered for local access only. */
struct kvp_verbs_mail {
	uint8_t recv[KVP_VERBS_RQ][KVP_VERBS_MESSAGE_BYTES];
	uint8_t send[KVP_VERBS_SENDS][KVP_VERBS_MESSAGE_BYTES];
	_Alignas(8)
		uint64_t grant; /* source of the CREDIT write, and its twin below is the target */
};

struct kvp_verbs_queue {
	/* const while the lane owns it */
	struct ibv_qp *qp;
	struct kvp_verbs_endpoint *endpoint;
	struct kvp_verbs_cq *cq;
	struct kvp_verbs_mail *mail;
	uint32_t mail_lkey;
	uint32_t index; /* in the endpoint: rail * queues per rail + n */
	uint32_t rail;
	uint32_t device;     /* index, of the rail's local port */
	uint32_t place;      /* in cq->queue */
	uint32_t generation; /* of the build, 12 bits used; both ends the same */
	uint32_t pieces_max; /* min(KVP_VERBS_SGES, device) */
	uint32_t inline_max;
	uint64_t peer_credit; /* address over there of the word that our CREDIT writes go to */
	uint32_t peer_credit_rkey;
	/* The word that the peer writes: receives it has posted since the build, cumulative. Strictly ordered memory. */
	_Atomic uint64_t *credit;

	/* control: wo. lane: ro */
	KVP_SPAN_START _Atomic uint32_t phase; /* enum kvp_verbs_phase; both write, see there */
	_Atomic uint32_t asked;                /* break this generation */
	_Atomic uint32_t proven;               /* generation that the peer has proven (acceptor) */
	/* generation << 32 | messages of it that the peer's lane took: that generation is fenced over there. */
	_Atomic uint64_t fenced;

	/* lane: rw, afresh for each generation but for the last three. Control reads the result in FLUSHED. */
	KVP_SPAN_START uint32_t posted; /* free-running, entries of `request` */
	uint32_t retired;
	uint32_t
		signaled; /* sequence after the last signaled entry: posted != signaled = a tail without a signal */
	uint32_t accounted;   /* sequence after the last failed completion */
	uint32_t sent;        /* messages posted */
	uint32_t sent_done;   /* messages completed */
	uint32_t taken;       /* messages of the peer, received here */
	uint32_t granted;     /* receives posted here, cumulative, as told to the peer */
	uint32_t reposted;    /* receives posted here, cumulative */
	uint64_t recv_posted; /* bit per buffer: in the receive queue */
	uint64_t
		recv_held; /* bit per buffer: a pending notification is in it. Outlives the generation */
	uint32_t sends_free; /* bit per buffer */
	bool is_probing;
	bool is_granting; /* a CREDIT is under way */
	bool is_ours;     /* between the take-over and FLUSHED */
	bool is_stuck; /* FLUSHED, but not all flushes came: only destroying the QP makes it silent */
	uint64_t broken_ns;
	uint64_t fence_done;  /* `fenced` as last heeded */
	uint32_t owned;       /* generation that the lane took over last */
	uint32_t first_error; /* enum ibv_wc_status of the first completion that was not a flush */
	uint32_t vendor_error;
	struct kvp_verbs_request request[KVP_VERBS_SQ];
};

/* Immediates of one slot. The endpoint's lane writes, the path's other lanes read. */
struct kvp_verbs_arrival {
	_Atomic uint64_t word; /* key << 32 | QPs heard; bit by bit */
	uint32_t
		published; /* key of the last notification that was published, so that none is twice. lane: rw */
};

/* A notification whose data has not all arrived, or that found the inbox full. In its receive buffer. */
struct kvp_verbs_pending {
	uint8_t queue;
	uint8_t recv;
	const uint8_t *payload;     /* in the buffer */
	struct kvp_verbs_send send; /* decoded */
};

struct kvp_verbs_endpoint {
	struct kvp_endpoint base;

	/* const after create */
	KVP_SPAN_START struct kvp_inbox *inbox;
	struct kvp_verbs_path *path;
	struct kvp_gather_limits limits[KVP_VERBS_RAILS_MAX];
	uint64_t window_bytes;      /* of one part, for each QP that is up: at most 4 MiB */
	uint32_t window_requests;   /* at most 32 */
	uint32_t queues;            /* [1, KVP_VERBS_ALL_MAX] */
	uint32_t slot_of_transport; /* cache->held[this] */
	bool is_initiator;
	struct kvp_verbs_queue *queue;     /* [queues] */
	struct kvp_verbs_arrival *arrival; /* [KVP_VERBS_SLOTS] */
	struct kvp_verbs_orphan *orphan;   /* [2 * queues * KVP_VERBS_SQ] */
	struct kvp_verbs_pending *pending; /* [queues * KVP_VERBS_RQ + 1] */

	/* control: wo. lane: ro. Changes when a phase, asked, proven or fenced of one of the QPs did. */
	KVP_SPAN_START _Atomic uint32_t attention;

	/* lane: rw */
	KVP_SPAN_START uint32_t attended;
	uint32_t up; /* QPs that carry requests */
	uint32_t
		busy; /* QPs with something for the lane to do besides completions: flushing, probing, grants */
	uint32_t next_queue; /* round robin */
	uint32_t orphans;    /* whatever their fate */
	uint32_t pendings;
	uint32_t
		tells_due; /* parts that could not tell the receiver yet: bounds no sleep, so the lane naps */
	uint32_t hint_local; /* spans where the last request was found; a guess for the next */
	uint32_t hint_remote;
	uint32_t
		claimed; /* slot of the part that just moved, until its notification takes it over */
	uint32_t slot_first; /* free slots: slot[slot_first..slot_end), free-running */
	uint32_t slot_end;
	bool is_silent; /* down() was here, or the endpoint fails: nothing is awaited from the peer */
	kvp_status failing; /* not SUCCESS: the endpoint fails with it once its QPs are flushed */
	uint64_t seen_ns;   /* time of the last progress */
	uint32_t cqs;
	struct kvp_verbs_cq *cq[KVP_VERBS_ALL_MAX]; /* of its QPs, each once; from attached() on */
	/* The chain that is being made: linked, with their pieces, but for what differs from one to the next. */
	struct ibv_send_wr wr[KVP_VERBS_CHAIN + 1];
	struct ibv_sge sge[KVP_VERBS_CHAIN][KVP_VERBS_SGES + 2];
	enum ibv_wr_opcode wr_opcode; /* of all of `wr` */
	uint16_t *slot;               /* [KVP_VERBS_SLOTS] ring, oldest free first */
	uint16_t *generation;         /* [KVP_VERBS_SLOTS] of each slot, [1, 4095] */

	/* lane: wo. control, tests: ro. Totals. */
	KVP_SPAN_START _Atomic uint64_t doorbells;
	_Atomic uint64_t gathered; /* pieces in requests */
	_Atomic uint64_t completions;
	_Atomic uint64_t replayed; /* requests made again after a fence */
	_Atomic uint64_t
		stale; /* immediates and notifications dropped: of an older generation, or twice */
	_Atomic uint64_t breaks;
	_Atomic uint64_t refused; /* receives that broke the protocol */
};

static inline struct kvp_verbs_endpoint *
kvp_verbs_of(struct kvp_endpoint *endpoint)
{
	return (struct kvp_verbs_endpoint *)endpoint;
}

static inline uint32_t
kvp_verbs_room(const struct kvp_verbs_queue *queue)
{
	return KVP_VERBS_SQ - (queue->posted - queue->retired);
}

/* Messages that the peer still has receives for. */
static inline uint32_t
kvp_verbs_credit(const struct kvp_verbs_queue *queue)
{
	uint32_t posted = (uint32_t)atomic_load_explicit(queue->credit, memory_order_acquire);
	uint32_t left = posted - queue->sent;

	return left <= KVP_VERBS_RQ
		       ? left
		       : 0; /* the word is the peer's to write: never more than can be */
}

/* [C] All zero but for what the lane needs to start: no slot is taken, generations begin at 1. NULL: no memory. */
struct kvp_verbs_endpoint *
kvp_verbs_endpoint_create(uint32_t queues);
/* [C] NULL is a no-op. */
void
kvp_verbs_endpoint_destroy(struct kvp_verbs_endpoint *ep);

/* --- [L]: the lane's side of the table ----------------------------------------------- */

/* verbs_attend.c */
void
kvp_verbs_attached(struct kvp_endpoint *endpoint);
void
kvp_verbs_detached(struct kvp_endpoint *endpoint);
bool
kvp_verbs_arm(struct kvp_endpoint *endpoint);
void
kvp_verbs_disarm(struct kvp_endpoint *endpoint);
bool
kvp_verbs_stop_part(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
void
kvp_verbs_cache_gone(struct kvp_endpoint *endpoint, int64_t cache_id);
/* All QPs to ERR, whoever owns them (control waits for this call): nothing is written here afterwards. */
void
kvp_verbs_down(struct kvp_endpoint *endpoint);
/* verbs_post_fast.c */
KVP_HOT uint32_t
kvp_verbs_post(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);
/* verbs_poll_fast.c */
KVP_HOT uint32_t
kvp_verbs_progress(struct kvp_endpoint *endpoint, uint64_t now_ns);
/* verbs_message_fast.c */
int
kvp_verbs_notify(struct kvp_endpoint *endpoint, struct kvp_part *part, uint64_t now_ns);

/* --- [C] ---------------------------------------------------------------------------------- */

/* Everything of one engine: dataplane->state[slot of verbs]. */
struct kvp_verbs {
	struct kvp_dataplane *dataplane;
	struct kvp_verbs_devices devices;
	struct kvp_verbs_memory *memory; /* registrations, behind its own mutex */
	struct kvp_verbs_cq *cqs;
	struct kvp_verbs_path *paths;
	/* Protection domains that spare a lane's QPs the provider's locks, where it has such; else NULL. */
	struct ibv_td *td[KVP_LANES_MAX][KVP_VERBS_DEVICES_MAX];
	struct ibv_pd *lane_pd[KVP_LANES_MAX][KVP_VERBS_DEVICES_MAX];
	uint32_t slot; /* in kvp_transports */
};

#endif /* KVP_VERBS_H */
