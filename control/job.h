/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - a push or a pull between its call and its submission; private to control/
 *
 * Ownership:  after kvp_job_find the job holds engine, link and caches, until kvp_job_drop or until a
 *             transfer that kvp_job_fill gave the holds to has ended
 * Threads:    [A] the caller's
 */
#ifndef KVP_CONTROL_JOB_H
#define KVP_CONTROL_JOB_H

#include "request.h"
#include "state.h"
#include "transfer.h"

/* A push or a pull, in one form. */
struct kvp_job {
	struct kvp_request request;
	uint64_t cluster;
	int64_t local_cache, remote_cache;
	uint32_t timeout_ms;
	const struct kvp_notify *notify; /* NULL for a pull */
	bool is_open;                    /* layer by layer */
	uint64_t start_ns, deadline_ns;

	/* found under the lock, held until the end */
	struct kvp_link *link;
	struct kvp_cache *local;
	struct kvp_remote *remote;
};

struct kvp_job
kvp_job_of_push(const struct kvp_push *push);
struct kvp_job
kvp_job_of_pull(const struct kvp_pull *pull);

/* What can be refused without knowing the caches; starts the clock. PARAM_INVALID. */
KVP_MUST_USE kvp_status
kvp_job_check(const struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err);

/* Find and hold link and caches, or nothing. May wait for the peer's catalogue until the deadline. */
KVP_MUST_USE kvp_status
kvp_job_find(struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err);
void
kvp_job_drop(struct kvp_engine *engine, struct kvp_job *job);

/* Ranges, block numbers and sizes on both sides. PARAM_INVALID naming the cache. */
KVP_MUST_USE kvp_status
kvp_job_pair(const struct kvp_job *job, struct kvp_pairing *pairing, struct kvp_error *err);

/* All of *transfer but plan and parts. The holds are its now. */
void
kvp_job_fill(struct kvp_engine *engine, const struct kvp_job *job, struct kvp_transfer *transfer);

#endif /* KVP_CONTROL_JOB_H */
