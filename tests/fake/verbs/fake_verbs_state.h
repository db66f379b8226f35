/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_verbs_state.h - the world behind fake_verbs.h, for the files of this folder
 *
 *   fake_verbs_world.c   open, close, seed, failures
 *   fake_verbs_fault.c   faults, by hand and by chance
 *   fake_verbs_grant.c   who may touch which bytes
 *   fake_verbs_device.c  devices, ports, GIDs, asynchronous events
 *   fake_verbs_object.c  PDs, MRs, CQs, channels
 *   fake_verbs_qp.c      QPs: create, modify, query, reset, destroy
 *   fake_verbs_queue.c   post_send, post_recv, poll_cq, completions
 *   fake_verbs_send.c    requester: segments, acknowledgements, errors
 *   fake_verbs_receive.c responder: checks, landing, receives, answers
 *   fake_verbs_wire.c    packets, flows, the step
 *   fake_verbs_host.c    interfaces' addresses and random numbers, as libc tells them
 *   fake_verbs_text.c    names of numbers
 *
 * Indices of rings run free. Functions expect the lock; those of libibverbs take it.
 */
#ifndef KVP_FAKE_VERBS_STATE_H
#define KVP_FAKE_VERBS_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "fake_verbs.h"

#define FAKE_QPS_MAX      256U /* power of two: qp_num & (FAKE_QPS_MAX - 1) is the place */
#define FAKE_MRS_MAX      1024U
#define FAKE_CONTEXTS_MAX 32U
#define FAKE_PACKETS      1024U
#define FAKE_SEGMENT_MAX  4096U
#define FAKE_JOBS         64U
#define FAKE_STRAYS       512U
#define FAKE_GIDS         8U
#define FAKE_EVENTS       64U
#define FAKE_PORTS        (FAKE_VERBS_DEVICES_MAX * FAKE_VERBS_PORTS_MAX)

/* --- packets ----------------------------------------------------------------------- */

enum fake_packet_type {
	FAKE_WRITE,
	FAKE_SEND,
	FAKE_READ,
	FAKE_ACK,
	FAKE_RESPONSE, /* to a READ */
	FAKE_NAK_SEQUENCE,
	FAKE_NAK_RNR,
	FAKE_NAK_ACCESS,
	FAKE_NAK_INVALID,
	FAKE_ARRIVAL, /* never sent: among what lands, the receive's completion */
};

struct fake_packet {
	struct fake_packet *next;
	enum fake_packet_type type;
	bool is_first, is_last, has_imm, is_solicited, is_send;
	uint32_t psn;
	uint32_t source, dest; /* qp_num */
	uint32_t from, to;     /* places in fake.port */
	uint32_t rkey;
	uint64_t address;
	uint32_t bytes; /* of data */
	uint32_t total; /* first: bytes of the message */
	uint32_t imm;
	uint8_t *data;
};

struct fake_flow {
	struct fake_packet *head, *tail;
	uint32_t count;
};

/* --- objects ------------------------------------------------------------------------ */

struct fake_port {
	union ibv_gid gid[FAKE_GIDS];
	uint32_t type[FAKE_GIDS]; /* enum ibv_gid_type + 1; 0 = empty */
	uint32_t device;
	uint32_t network;
	uint16_t lid;
	enum fake_verbs_cable cable;
	uint64_t until; /* step at which a random fault ends; 0 = by hand */
};

struct fake_context {
	struct verbs_context verbs;
	uint32_t device; /* index */
	uint32_t events, events_read;
	struct ibv_async_event event[FAKE_EVENTS];
	uint32_t children; /* PDs, CQs, channels, thread domains */
};

struct fake_pd {
	struct ibv_pd pd;
	struct fake_pd *parent; /* of a parent domain: the PD itself */
	struct fake_td *td;
	uint32_t users;
};

struct fake_td {
	struct ibv_td td;
	uint32_t users;
};

struct fake_mr {
	struct ibv_mr mr;
	struct fake_pd *pd;
	uint64_t iova;
	uint8_t *base; /* where iova is */
	void *map;     /* of a dma-buf */
	size_t map_bytes;
	unsigned int access;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	struct fake_cq *first, *last; /* with an event that nobody took */
};

struct fake_cqe {
	struct ibv_wc wc;
	bool is_receive;
	bool is_gone;  /* of a QP that was reset */
	uint32_t upto; /* entries of the queue up to here come back when it is polled */
};

struct fake_cq {
	struct ibv_cq cq;
	struct fake_cqe *ring;
	uint32_t depth;
	uint32_t pushed, polled;
	uint32_t users;
	uint32_t promised; /* completions that its QPs can cause */
	uint32_t unacked;  /* events */
	uint32_t async_unacked;
	bool is_dead;
	bool is_armed, is_armed_solicited;
	bool is_queued; /* in the channel's list */
	struct fake_cq *next;
};

struct fake_wqe {
	uint64_t wr_id;
	uint64_t remote;
	uint32_t rkey;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	uint32_t imm;
	uint32_t sges;
	uint32_t bytes;
	uint32_t psn;
	uint32_t segments;
	uint32_t got;              /* READ: bytes that came */
	enum ibv_wc_status status; /* forced */
};

struct fake_recv {
	uint64_t wr_id;
	uint32_t sges;
	uint32_t bytes;
};

/* What a responder still has to answer, in order. */
struct fake_job {
	enum fake_packet_type type; /* ACK, NAK_..., READ */
	uint32_t psn;
	uint32_t rkey;
	uint64_t address;
	uint32_t bytes, done;
	bool is_again; /* was answered before */
};

struct fake_qp {
	struct ibv_qp qp;
	uint32_t number;
	uint32_t device;
	struct fake_pd *pd;
	struct fake_cq *send_cq, *recv_cq;
	struct ibv_qp_cap cap;
	bool is_all_signaled;
	enum ibv_qp_state state;
	struct ibv_qp_attr attr;
	uint32_t port, peer_port; /* places in fake.port */
	uint32_t segment;
	uint32_t async_unacked;

	struct fake_wqe *sq;
	struct ibv_sge *sq_sge;
	uint8_t *sq_inline;
	uint32_t posted, una, next, started, freed;
	uint32_t offset;   /* in entry `next` */
	uint32_t next_psn; /* of the next segment */
	uint32_t top_psn;  /* after the last one ever sent */
	uint32_t retries, rnr_retries;
	uint32_t reads; /* started and not complete */
	bool is_rnr_waiting;
	bool has_failed; /* entry fail_at, with fail_status, once all before it are complete */
	uint32_t fail_at;
	enum ibv_wc_status fail_status;
	struct fake_flow requests;

	struct fake_recv *rq;
	struct ibv_sge *rq_sge;
	uint32_t rq_posted, rq_taken, rq_freed;
	uint32_t expected_psn;
	bool is_nak_sent;
	bool is_receiving; /* a SEND: entry rq_taken - 1 */
	uint32_t received;
	uint64_t write_left; /* of a WRITE message */
	struct fake_job job[FAKE_JOBS];
	uint32_t jobs, jobs_done;
	struct fake_flow answers;
	struct fake_flow landing;

	bool is_mute, is_held, is_stuck; /* faults */
	uint64_t held_until;
	uint32_t refuse_after, refuse_count;
	uint32_t force_after;
	enum ibv_wc_status force; /* 0 = none */
};

/* --- the world ---------------------------------------------------------------------- */

struct fake_world {
	bool is_open;
	uint64_t seed, random;
	struct fake_verbs_topology topology;
	struct fake_verbs_counters count;
	struct fake_verbs_odds odds;
	uint32_t host;

	struct ibv_device device[FAKE_VERBS_DEVICES_MAX];
	bool is_fatal[FAKE_VERBS_DEVICES_MAX];
	uint32_t lists; /* of ibv_get_device_list, not freed */
	struct fake_port port[FAKE_PORTS];
	struct fake_context *context[FAKE_CONTEXTS_MAX];

	struct fake_mr *mr[FAKE_MRS_MAX];
	uint8_t mr_tag[FAKE_MRS_MAX];
	uint32_t mrs, mr_next;
	uint64_t mr_bytes;

	struct fake_qp *qp[FAKE_QPS_MAX]; /* by place */
	struct fake_qp *live[FAKE_QPS_MAX];
	uint32_t lives;
	uint32_t qp_next;
	uint32_t tds, pds, cqs, channels;

	struct fake_packet *free;
	struct fake_flow stray[FAKE_STRAYS]; /* sent by QPs that were reset since */
	uint32_t strays;
	uint32_t
		lazy; /* a segment becomes visible when one in so many steps lets it, or nothing else is left */
	bool keeps_cqes; /* those of QPs that are reset stay, as with rxe; mlx5 removes them */

	void (*hook)(struct ibv_qp *qp, const struct ibv_send_wr *wr, void *ctx);
	void *hook_ctx;
};

extern struct fake_world fake;
extern pthread_mutex_t fake_lock;

static inline uint32_t
fake_random(uint32_t below)
{
	fake.random += 0x9E3779B97F4A7C15ULL;
	uint64_t z = fake.random;

	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
	z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
	return (uint32_t)(((z ^ z >> 31) >> 32) * below >> 32);
}

/* a - b in 24 bits. */
static inline int32_t
fake_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t
fake_psn_add(uint32_t psn, uint32_t by)
{
	return (psn + by) & 0xFFFFFFU;
}

/* fake_verbs_grant.c. Reports what is not allowed. */
void
fake_touch(uint64_t address, uint64_t bytes, bool is_read, const char *what, uint32_t qp_num);
void
fake_grants_open(void);
void
fake_grants_close(void);

/* fake_verbs_device.c */
void
fake_devices_open(void);
void
fake_event_qp(struct fake_qp *qp, enum ibv_event_type type);
void
fake_event_cq(struct fake_cq *cq, enum ibv_event_type type);
void
fake_event_port(uint32_t port, enum ibv_event_type type);
/* Takes events of an object that is destroyed out of the queue. */
void
fake_events_purge(struct fake_context *context, const void *object);
struct fake_context *
fake_context_of(struct ibv_context *context);
/* Place of the port with this GID (or LID), FAKE_VERBS_ANY: none. */
uint32_t
fake_port_find(const struct ibv_ah_attr *ah, uint32_t from);

/* fake_verbs_object.c */
/* Bytes [address, + bytes) of a key on this QP's PD, or NULL. */
uint8_t *
fake_mr_reach(const struct fake_qp *qp, uint32_t key, bool is_remote, uint64_t address,
	      uint64_t bytes, unsigned int access);
/* MR of a key, whatever its rights; NULL none. */
struct fake_mr *
fake_mr_find(const struct fake_qp *qp, uint32_t key, bool is_remote);

/* fake_verbs_qp.c */
struct fake_qp *
fake_qp_find(uint32_t number);
/* The device moves it to ERR: flushes come by and by. */
void
fake_qp_err(struct fake_qp *qp);

/* fake_verbs_queue.c */
void
fake_complete(struct fake_qp *qp, struct fake_cq *cq, const struct fake_cqe *cqe,
	      bool is_solicited);
void
fake_send_done(struct fake_qp *qp, enum ibv_wc_status status);
void
fake_recv_done(struct fake_qp *qp, uint32_t index, const struct ibv_wc *wc, bool is_solicited);
/* Completions of this QP leave the CQ, or the QP's entries behind. */
void
fake_cq_clean(struct fake_cq *cq, uint32_t qp_num);
int
fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int
fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int
fake_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int
fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* fake_verbs_send.c */
bool
fake_can_send(const struct fake_qp *qp);
void
fake_send(struct fake_qp *qp);
void
fake_answered(struct fake_qp *qp, struct fake_packet *packet);
bool
fake_can_time_out(const struct fake_qp *qp);
void
fake_time_out(struct fake_qp *qp);
void
fake_send_err(struct fake_qp *qp, enum ibv_wc_status status);

/* fake_verbs_receive.c */
/* Takes the packet, or keeps it to land. */
void
fake_requested(struct fake_qp *qp, struct fake_packet *packet);
bool
fake_can_answer(const struct fake_qp *qp);
void
fake_answer(struct fake_qp *qp);
/* One written segment becomes visible; all of them. */
void
fake_land(struct fake_qp *qp);
void
fake_land_all(struct fake_qp *qp);

/* fake_verbs_wire.c */
void
fake_wire_open(void);
struct fake_packet *
fake_packet_take(const struct fake_qp *from, enum fake_packet_type type, uint32_t psn);
void
fake_packet_free(struct fake_packet *packet);
void
fake_flow_push(struct fake_flow *flow, struct fake_packet *packet);
struct fake_packet *
fake_flow_pop(struct fake_flow *flow);
/* Nobody can call them back. */
void
fake_flow_stray(struct fake_flow *flow);
enum fake_verbs_moved
fake_step(void);

/* fake_verbs_host.c: is linked whenever this is called */
void
fake_host_open(void);

/* fake_verbs_world.c, fake_verbs_fault.c */
__attribute__((format(printf, 1, 2))) void
fake_failed(const char *format, ...);
void
fake_fault_random(void);
void
fake_cable(uint32_t port, enum fake_verbs_cable cable);

#endif /* KVP_FAKE_VERBS_STATE_H */
