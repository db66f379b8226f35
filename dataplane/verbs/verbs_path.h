/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_path.h - one link's share of the verbs transport, as the control thread keeps it
 *
 *   verbs_path.c      create, offer, connect, destroy
 *   verbs_rebuild.c   what happens to its QPs after that
 *   verbs_view.c      keys and views of caches
 *   verbs_text.c      what people are told
 *
 * QPs are numbered as in the offer: (endpoint * rails + rail) * per_rail + n.
 *
 * Threads:    [C]
 */
#ifndef KVP_VERBS_PATH_H
#define KVP_VERBS_PATH_H

#include "verbs.h"
#include "verbs_queue.h"

/* Where the control thread stands with a QP. Which lane does what is the phase. */
enum kvp_verbs_step {
	KVP_VERBS_STEP_RUNNING = 0, /* handed to the lane, in its first or a later generation */
	KVP_VERBS_STEP_BACK_OFF,    /* initiator: no QP; REBUILD goes out at retry_ns */
	KVP_VERBS_STEP_ASKED,       /* initiator: REBUILD is out */
	KVP_VERBS_STEP_WAITING, /* acceptor: no QP; BROKEN is out, or the last attempt failed here */
	KVP_VERBS_STEP_ANSWERING, /* acceptor: REBUILD came, our lane still has the old QP */
};

struct kvp_verbs_control {
	struct kvp_verbs_queue *queue;
	enum kvp_verbs_step step;
	uint32_t psn;    /* ours, of the QP that is there */
	bool is_proven;  /* this generation; the peer knows or told */
	bool has_failed; /* an attempt, since it was proven last */
	uint32_t closed; /* last generation whose QP was destroyed; 0: none */
	uint32_t closed_taken;
	bool is_fenced; /* the peer has let go of `closed` too */
	uint64_t retry_ns;
	uint64_t back_off_ns;
	struct kvp_verbs_queue_note note; /* ANSWERING: what came */
};

struct kvp_verbs_rail_state {
	uint32_t port;   /* ours, index in verbs->devices */
	uint32_t remote; /* the peer's, place in its description */
	bool is_routed;
	struct kvp_verbs_address peer;
	uint32_t ece[3];             /* the peer's */
	struct kvp_verbs_mail *mail; /* [endpoints * per_rail] */
	struct ibv_mr *mail_mr;
	uint64_t *credit; /* [endpoints * per_rail], what the peer writes */
	struct ibv_mr *credit_mr;
	uint64_t peer_credit;
	uint32_t peer_credit_rkey;
	struct kvp_verbs_address used; /* our port's, in the newest QP */
	uint64_t rest_ns; /* no QP is connected before: the last attempt took too long */
	bool is_told_up;  /* the log's last word about it */
	bool is_told;
	uint64_t told_ns;
	char why[KVP_ERROR_TEXT_MAX]; /* what broke it last */
};

/* Keys of a cache of the peer; go when its view does. */
struct kvp_verbs_peer_keys {
	struct kvp_verbs_peer_keys *next;
	int64_t cache_id;
	struct kvp_verbs_spans *spans;
};

struct kvp_verbs_path {
	struct kvp_path base;
	struct kvp_verbs *verbs;
	struct kvp_verbs_path *next;
	struct kvp_verbs_ports peer_ports;
	uint32_t rails;
	uint32_t per_rail;
	uint32_t total; /* QPs */
	struct kvp_verbs_rail_state rail[KVP_VERBS_RAILS_MAX];
	struct kvp_verbs_control control[KVP_VERBS_TOTAL_MAX];
	struct kvp_verbs_peer_keys *keys;
	uint32_t key_count;
	bool is_connected; /* QPs were handed to lanes */
	bool is_changed;   /* `changed` is owed, from the next tick */
	bool is_ending;    /* nobody takes notes any more: nothing is built */
	uint64_t now_ns;   /* of the last tick */
	uint64_t
		wait_ns; /* CONNECTING: every endpoint has a QP, the others have until then. UINT64_MAX: not so */
};

static inline struct kvp_verbs_path *
kvp_verbs_path_of(struct kvp_path *path)
{
	return (struct kvp_verbs_path *)path;
}

static inline struct kvp_verbs_endpoint *
kvp_verbs_path_endpoint(struct kvp_verbs_path *path, uint32_t i)
{
	return (struct kvp_verbs_endpoint *)path->base.endpoint[i];
}

/* verbs_path.c: for the table */
/* NO_TRANSPORT: no two ports reach each other. */
kvp_status
kvp_verbs_reachable(const struct kvp_verbs *verbs, const struct kvp_verbs_ports *peer,
		    struct kvp_error *err);
kvp_status
kvp_verbs_path_create(const struct kvp_path_config *config, struct kvp_path **path_out,
		      struct kvp_error *err);
void
kvp_verbs_path_offer(struct kvp_path *path, struct kvp_blob *blob_out);
kvp_status
kvp_verbs_path_connect(struct kvp_path *path, const struct kvp_blob *peer, struct kvp_error *err);
void
kvp_verbs_path_destroy(struct kvp_path *path);
/* verbs_view.c: for the table */
kvp_status
kvp_verbs_cache_offer(struct kvp_path *path, const struct kvp_local_cache *cache,
		      struct kvp_error *err);
kvp_status
kvp_verbs_view_open(struct kvp_path *path, const struct kvp_remote_cache *cache,
		    struct kvp_view **view_out, struct kvp_error *err);
void
kvp_verbs_view_close(struct kvp_path *path, struct kvp_view *view);
kvp_status
kvp_verbs_path_note(struct kvp_path *path, const uint8_t *body, uint32_t bytes,
		    struct kvp_error *err);

/* verbs_text.c */
/* Say in base.text what there is and how it is. */
void
kvp_verbs_path_text(struct kvp_verbs_path *path);
/* Log that the rail came into service or went out of it, unless it was said or one was just now. Nanoseconds until
   it will have to be, UINT64_MAX: nothing is left to say. */
uint64_t
kvp_verbs_rail_say(struct kvp_verbs_path *path, uint32_t r);
/* Say in base.error why no rail works. */
void
kvp_verbs_path_failed(struct kvp_verbs_path *path);

/* verbs_rebuild.c */
uint64_t
kvp_verbs_path_tick(struct kvp_path *path, uint64_t now_ns);
/* BROKEN, REBUILD, REBUILT, PROVEN, decoded; endpoint and queue are checked here. */
kvp_status
kvp_verbs_queue_note(struct kvp_verbs_path *path, uint32_t type,
		     const struct kvp_verbs_queue_note *note, struct kvp_error *err);
/* A built QP goes to its lane. */
void
kvp_verbs_hand_over(struct kvp_verbs_path *path, struct kvp_verbs_control *control);
/* One that could not be connected from the start: as one that broke before it carried anything. */
void
kvp_verbs_not_connected(struct kvp_verbs_path *path, struct kvp_verbs_control *control);
/* Our port, or its device (port NULL), or one QP changed. */
void
kvp_verbs_path_changed(struct kvp_verbs_path *path, uint32_t device,
		       const struct kvp_verbs_port *port, const struct ibv_qp *qp);

#endif /* KVP_VERBS_PATH_H */
