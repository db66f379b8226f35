/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_verbs.h - RDMA devices in memory behind the interface of libibverbs, and a seeded wire between them
 *
 * A test that calls fake_verbs_open gets the ibv_* functions of this folder instead of the shared library's,
 * data path included. Several hosts of one process share one fabric. Nothing moves by itself: one
 * fake_verbs_step is one random step of one QP: a segment leaves, arrives, becomes visible, an acknowledgement
 * comes back, a flush is reported, a timer runs out. Segments that left are on the wire on their own: a reset of
 * the sender does not call them back.
 *
 * Kept from a real device: order within a QP and none between QPs; silence of unsignaled requests; the state
 * machine; go-back-N with PSNs and retries; RNR; NAKs that break both ends; places of a queue that come
 * back only when their completion is polled; a failed completion that tells wr_id, status, qp_num and vendor_err
 * and nothing else; written data that may become visible out of order (relaxed ordering) and after its
 * acknowledgement, but before the receive's completion of the same QP.
 *
 * Checks:     what a correct program never does is reported with the seed: access without grant, queues that
 *             overflow, objects destroyed while in use, leaks. fake_verbs_failures() tells how often
 * Ownership:  one world at a time; objects are freed by their ibv_ functions
 * Threads:    any, behind one lock; fake_verbs_step and the rest from the test, or from fake_verbs_run_thread's
 */
#ifndef KVP_FAKE_VERBS_H
#define KVP_FAKE_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define FAKE_VERBS_DEVICES_MAX 8U
#define FAKE_VERBS_PORTS_MAX   2U
#define FAKE_VERBS_ANY         UINT32_MAX

/* --- a world ------------------------------------------------------------------------ */

struct fake_verbs_device_plan {
	uint32_t host;
	uint32_t ports; /* 0 = 1 */
	uint32_t network
		[FAKE_VERBS_PORTS_MAX]; /* ports of one network reach each other: 10.network.0.x */
	bool is_infiniband;
};

/* Zeros where a sentence says so are filled in: a topology needs only `devices`. */
struct fake_verbs_topology {
	uint32_t devices; /* "fake0", "fake1" ... */
	struct fake_verbs_device_plan device[FAKE_VERBS_DEVICES_MAX];
	uint32_t
		segment; /* bytes that one step moves, at most the path MTU; 0 = 64 to 4096 by the seed */
	uint32_t window;      /* segments of one QP on the wire; 0 = 1 to 8 by the seed */
	uint32_t max_sge;     /* 0 = 30 */
	uint32_t max_qp_wr;   /* 0 = 8192 */
	uint32_t max_cqe;     /* 0 = 65536 */
	uint32_t max_inline;  /* 0 = 220 */
	uint32_t max_mr;      /* 0 = 1024 */
	uint64_t max_mr_size; /* 0 = no limit */
	uint64_t memlock;     /* bytes that all MRs may have; 0 = no limit */
	bool has_no_domains;  /* neither thread nor parent domains */
	bool has_no_ece;
	bool has_no_dmabuf;
	bool is_seven_endless; /* retry_cnt 7 never gives up, as rxe */
	bool is_slack; /* neither a full queue nor a CQ that is smaller than its QPs is reported */
};

void
fake_verbs_open(uint64_t seed, const struct fake_verbs_topology *topology);
/* Reports what was not freed, frees the world. Returns fake_verbs_failures(). */
uint32_t
fake_verbs_close(void);
/* ibv_get_device_list shows devices of this host only; FAKE_VERBS_ANY: all. */
void
fake_verbs_host(uint32_t host);
/* The seed's next number, in [0, below). */
uint32_t
fake_verbs_random(uint32_t below);

/* --- failures -------------------------------------------------------------------------- */

/* Something happened that must not. The first text is kept, all are counted; printed unless muted. */
__attribute__((format(printf, 1, 2))) void
fake_verbs_failed(const char *format, ...);
uint32_t
fake_verbs_failures(void);
/* Of the first one; "" none. */
const char *
fake_verbs_failure(void);
/* Forget them; is_muted: do not print what comes. */
void
fake_verbs_forgive(bool is_muted);

/* --- the wire ----------------------------------------------------------------------------- */

enum fake_verbs_moved {
	FAKE_VERBS_IDLE = 0,   /* nothing is under way */
	FAKE_VERBS_MOVED = 1,  /* one step done */
	FAKE_VERBS_WAITED = 2, /* only timers were left: one ran out */
};

enum fake_verbs_moved
fake_verbs_step(void);
/* What was acknowledged becomes visible: so much time has passed. */
void
fake_verbs_land(void);
/* At most `steps`; returns how many until idle. */
uint32_t
fake_verbs_run(uint32_t steps);
/* A thread steps from now on, until false. */
void
fake_verbs_run_thread(bool is_on);

/* --- grants ---------------------------------------------------------------------------------- */

/* From now on, devices touch these bytes only under a grant. Addresses as in requests (of dma-bufs: the iova). */
void
fake_verbs_guard(uint64_t address, uint64_t bytes);

struct fake_verbs_grant {
	uint64_t address;
	uint64_t bytes; /* of one block */
	uint64_t stride;
	uint64_t count;  /* blocks, 0 = 1 */
	bool is_read;    /* devices may read, else write */
	uint64_t cookie; /* for the report */
};

/* Returns its number. Grants may overlap. */
uint32_t
fake_verbs_grant_open(const struct fake_verbs_grant *grant);
void
fake_verbs_grant_close(uint32_t number);

/* --- faults ------------------------------------------------------------------------------------ */

/* QPs are named by qp_num; FAKE_VERBS_ANY: all. */

/* From the `after`-th WR on (0 = the next), `count` of them are refused with ENOMEM. */
void
fake_verbs_refuse(uint32_t qp_num, uint32_t after, uint32_t count);
/* The nth next WR of the QP (0 = the next) completes with this status, not sent. */
void
fake_verbs_force(uint32_t qp_num, uint32_t nth, enum ibv_wc_status status);
/* Acknowledgements to this QP are lost: what it sends lands, and it hears RETRY_EXC_ERR. */
void
fake_verbs_lose_acks(uint32_t qp_num, bool is_on);
/* Acknowledgements to this QP stay on the wire. */
void
fake_verbs_hold(uint32_t qp_num, bool is_on);
/* Flushes of this QP do not come. */
void
fake_verbs_stick(uint32_t qp_num, bool is_on);

enum fake_verbs_cable {
	FAKE_VERBS_PLUGGED = 0,
	FAKE_VERBS_LOSSY = 1, /* packets vanish, no event */
	FAKE_VERBS_CUT =
		2, /* PORT_ERR; what has requests fails with LOC_QP_OP_ERR. PLUGGED: PORT_ACTIVE */
	FAKE_VERBS_JAMMED = 3, /* packets wait */
};

void
fake_verbs_cable(uint32_t device, uint32_t port, enum fake_verbs_cable cable);
/* All GIDs of the port move to other indices: GID_CHANGE. */
void
fake_verbs_gid_move(uint32_t device, uint32_t port);
void
fake_verbs_qp_fatal(uint32_t qp_num);
/* All QPs break, every call that makes something answers EIO. */
void
fake_verbs_device_fatal(uint32_t device);

/* Random faults: each is tried in every step, one in so many; 0 = never. */
struct fake_verbs_odds {
	uint32_t lose_acks; /* one QP until it has failed */
	uint32_t lossy;     /* one port, for a while */
	uint32_t cut;       /* one port, for a while */
	uint32_t status;    /* any error, on the next WR of one QP */
	uint32_t refuse;    /* ENOMEM once */
	uint32_t qp_fatal;
	uint32_t gid_move;
	uint32_t hold;      /* completions of one QP, for a while */
	uint32_t while_max; /* steps, 0 = 256 */
};

void
fake_verbs_odds(const struct fake_verbs_odds *odds);
/* No further faults; cables plugged, nothing lost, held or stuck. */
void
fake_verbs_calm(void);

/* Called by ibv_post_send before it does anything, without the lock: to make posting cost something. NULL: none. */
void
fake_verbs_on_post(void (*hook)(struct ibv_qp *qp, const struct ibv_send_wr *wr, void *ctx),
		   void *ctx);

/* --- what happened --------------------------------------------------------------------------------- */

struct fake_verbs_counters {
	uint64_t doorbells; /* ibv_post_send calls */
	uint64_t requests;  /* taken */
	uint64_t sges;
	uint64_t signaled;
	uint64_t receives;
	uint64_t cqes;     /* polled */
	uint64_t flushed;  /* of them */
	uint64_t segments; /* sent, first and again */
	uint64_t again;    /* of them */
	uint64_t lost;     /* packets that nobody took */
	uint64_t landed;   /* segments written to their target */
	uint64_t rnr;      /* a message found no receive */
	uint64_t refused;  /* posts */
	uint64_t faults;   /* random ones */
	uint64_t steps;
	uint64_t events;        /* asynchronous ones, of all devices */
	uint64_t mrs, qps, cqs; /* made */
};

const struct fake_verbs_counters *
fake_verbs_counters(void);
/* Of this QP: requests posted and neither completed, flushed, nor retired by a later completion. */
uint32_t
fake_verbs_outstanding(const struct ibv_qp *qp);
/* In the CQ, and not polled. */
uint32_t
fake_verbs_completions(const struct ibv_cq *cq);
/* What the device knows, not what the program was told. */
enum ibv_qp_state
fake_verbs_state(const struct ibv_qp *qp);
/* qp_num of the i-th QP alive, or FAKE_VERBS_ANY. */
uint32_t
fake_verbs_nth_qp(uint32_t i);

#endif /* KVP_FAKE_VERBS_H */
