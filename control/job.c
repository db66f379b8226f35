/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.c - what a transfer is made of: the call's arguments, the link and the two caches
 *
 * The engine's lock is held only to look these up and to put a hold on them; checking runs outside it.
 */
#include "job.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "report.h"
#include "rights.h"
#include "wake.h"

static kvp_status
check_notify(const struct kvp_notify *notify, bool is_open, struct kvp_error *err)
{
	if (notify == NULL)
		return KVP_SUCCESS;
	if (notify->layers != 0 && (notify->layers != 1 || notify->enabled == 0 || !is_open))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"notify.layers is %u; 1 needs kvp_push_open and notify.enabled",
				notify->layers);
	if (notify->enabled == 0)
		return KVP_SUCCESS;
	if (notify->enabled != 1)
		return kvp_fail(err, KVP_PARAM_INVALID, "notify.enabled is %u, not 0 or 1",
				notify->enabled);
	if (notify->payload_bytes > KVP_NOTIFY_BYTES_MAX)
		return kvp_fail(err, KVP_PARAM_INVALID, "notify.payload_bytes is %u, at most %u",
				notify->payload_bytes, KVP_NOTIFY_BYTES_MAX);
	if (notify->payload_bytes > 0 && notify->payload == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"notify.payload is NULL, payload_bytes is %u",
				notify->payload_bytes);
	return KVP_SUCCESS;
}

/*
 * Lock held. The remote cache, once its view is open. A miss asks the peer once
 * whether it knows more than we do (upstream reads the table once and never
 * again): its answer comes after every announcement it made before.
 */
static kvp_status
find_remote(struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err)
{
	struct kvp_link *link = job->link;
	uint64_t asked = 0;
	bool in_time = true;

	while (link->step == KVP_STEP_READY) {
		struct kvp_remote *remote = kvp_remote_find(link, job->remote_cache);

		if (remote != NULL && remote->view_status == KVP_SUCCESS) {
			job->remote = remote;
			return KVP_SUCCESS;
		}
		if (remote != NULL && remote->view_status != KVP_IN_PROGRESS)
			return kvp_fail(err, remote->view_status,
					"cache %" PRId64 " of cluster %" PRIu64 ": %s",
					job->remote_cache, job->cluster, remote->view_error.text);
		if (remote == NULL && asked == 0) {
			asked = ++link->sync_asked;
			kvp_reactor_wake(&engine->reactor);
		} else if ((remote == NULL && link->sync_acked >= asked) || !in_time) {
			break;
		}
		in_time = kvp_engine_wait(engine, job->deadline_ns);
	}
	if (link->step != KVP_STEP_READY)
		return kvp_fail(err, KVP_NOT_YET_LINK, "the link to cluster %" PRIu64 " ended",
				job->cluster);
	if (link->sync_acked < asked || kvp_remote_find(link, job->remote_cache) != NULL)
		return kvp_fail(err, KVP_TIMEOUT,
				"cluster %" PRIu64 " did not announce cache %" PRId64 " in time",
				job->cluster, job->remote_cache);
	return kvp_fail(err, KVP_CACHE_NOT_EXIST, "cluster %" PRIu64 " has no cache %" PRId64,
			job->cluster, job->remote_cache);
}

static void
hold(_Atomic uint32_t *count)
{
	atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

static void
let_go(_Atomic uint32_t *count)
{
	atomic_fetch_sub_explicit(count, 1, memory_order_release);
}

/* Does the peer let us, and does the link's transport reach our memory? Lock held. */
static kvp_status
check_permission(const struct kvp_job *job, struct kvp_error *err)
{
	const struct kvp_transport *transport = job->link->path->transport;
	uint32_t right = job->request.is_push ? KVP_RIGHT_PUSH : KVP_RIGHT_PULL;

	if ((job->link->peer.rights & right) == 0)
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"cluster %" PRIu64
				" lets no peer %s: its setting peer_rights lacks '%s'",
				job->cluster, job->request.is_push ? "push" : "pull",
				job->request.is_push ? "push" : "pull");
	if (job->local->local.memory != NULL && !transport->caps.can_reach_device)
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"%s %" PRId64
				" lies in device memory, which the link to cluster %" PRIu64
				" does not reach: it is over %s",
				job->request.is_push ? "src_cache" : "dst_cache", job->local_cache,
				job->cluster, transport->name);
	return KVP_SUCCESS;
}

/* LLM-DataDist's V1 rule. Lock held. */
static kvp_status
check_role(const struct kvp_engine *engine, const struct kvp_job *job, struct kvp_error *err)
{
	uint32_t role = engine->config.role;
	bool is_push = job->request.is_push;

	if (engine->config.role_rule != KVP_ROLE_STRICT ||
	    role != (is_push ? KVP_ROLE_DECODER : KVP_ROLE_PROMPT))
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_FAILED,
			"a %s does not %s: use role %s or mix, or set role_rule=label",
			is_push ? "decoder" : "prompt", is_push ? "push" : "pull",
			is_push ? "prompt" : "decoder");
}

static kvp_status
look_up_locked(struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err)
{
	kvp_status status = check_role(engine, job, err);

	if (status != KVP_SUCCESS)
		return status;
	job->local = kvp_cache_find(engine, job->local_cache);
	if (job->local == NULL || job->local->is_leaving)
		return kvp_fail(err, KVP_CACHE_NOT_EXIST, "%s %" PRId64 " is not registered here",
				job->request.is_push ? "src_cache" : "dst_cache", job->local_cache);
	job->link = kvp_link_find(engine, job->cluster);
	if (job->link == NULL || job->link->step != KVP_STEP_READY || job->link->is_unlinking)
		return kvp_fail(err, KVP_NOT_YET_LINK, "no usable link to cluster %" PRIu64,
				job->cluster);
	status = check_permission(job, err);
	if (status != KVP_SUCCESS)
		return status;
	/* find_remote may wait: keep what was found. */
	hold(&job->local->holds);
	hold(&job->link->holds);
	status = find_remote(engine, job, err);
	if (status != KVP_SUCCESS) {
		let_go(&job->local->holds);
		let_go(&job->link->holds);
		return status;
	}
	if (job->local->is_leaving) {
		let_go(&job->local->holds);
		let_go(&job->link->holds);
		return kvp_fail(err, KVP_CACHE_NOT_EXIST, "cache %" PRId64 " is being released",
				job->local_cache);
	}
	hold(&job->remote->holds);
	return KVP_SUCCESS;
}

kvp_status
kvp_job_find(struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err)
{
	kvp_status status;

	/* Reserve a place first: the lanes' rings are sized for max_transfers. */
	if (atomic_fetch_add_explicit(&engine->holds, 1, memory_order_acquire) >=
	    engine->config.max_transfers) {
		let_go(&engine->holds);
		return kvp_fail(err, KVP_QUEUE_FULL, "max_transfers=%u transfers are in flight",
				engine->config.max_transfers);
	}
	pthread_mutex_lock(&engine->lock);
	status = look_up_locked(engine, job, err);
	pthread_mutex_unlock(&engine->lock);
	if (status != KVP_SUCCESS)
		let_go(&engine->holds);
	return status;
}

void
kvp_job_drop(struct kvp_engine *engine, struct kvp_job *job)
{
	let_go(&job->remote->holds);
	let_go(&job->local->holds);
	let_go(&job->link->holds);
	let_go(&engine->holds);
}

static kvp_status
pair_named(const struct kvp_job *job, const char *local_name, const char *remote_name,
	   struct kvp_pairing *pairing, struct kvp_error *err)
{
	struct kvp_side local = {.tensors = job->local->tensors,
				 .num_tensors = job->local->local.num_tensors,
				 .name = local_name};
	struct kvp_side remote = {.tensors = job->remote->tensors,
				  .num_tensors = job->remote->cache.num_tensors,
				  .name = remote_name};

	return job->request.is_push
		       ? kvp_request_pair(&job->request, &local, &remote, pairing, err)
		       : kvp_request_pair(&job->request, &remote, &local, pairing, err);
}

/* Names are put together only when a message needs them: that takes longer than all the checks. */
kvp_status
kvp_job_pair(const struct kvp_job *job, struct kvp_pairing *pairing, struct kvp_error *err)
{
	char local_name[48];
	char remote_name[80];
	kvp_status status = pair_named(job, "", "", pairing, NULL);

	if (KVP_LIKELY(status == KVP_SUCCESS))
		return status;
	snprintf(local_name, sizeof(local_name), "local cache %" PRId64, job->local_cache);
	snprintf(remote_name, sizeof(remote_name), "cache %" PRId64 " of cluster %" PRIu64,
		 job->remote_cache, job->cluster);
	return pair_named(job, local_name, remote_name, pairing, err);
}

void
kvp_job_fill(struct kvp_engine *engine, const struct kvp_job *job, struct kvp_transfer *transfer)
{
	memset(transfer, 0, offsetof(struct kvp_transfer, part));
	transfer->id =
		1 + atomic_fetch_add_explicit(&engine->next_transfer, 1, memory_order_relaxed);
	transfer->submit_ns = job->start_ns;
	transfer->deadline_ns = job->deadline_ns;
	transfer->view = job->remote->view;
	transfer->local_cache = job->local_cache;
	transfer->remote_cache = job->remote_cache;
	transfer->holds[0] = &engine->holds;
	transfer->holds[1] = &job->link->holds;
	transfer->holds[2] = &job->local->holds;
	transfer->holds[3] = &job->remote->holds;
	transfer->tally = job->link->tally;
	transfer->is_push = job->request.is_push;
	if (job->notify != NULL && job->notify->enabled != 0) {
		transfer->has_notify = true;
		transfer->notify_tag = job->notify->tag;
		transfer->notify_bytes = (uint16_t)job->notify->payload_bytes;
		if (job->notify->payload_bytes > 0)
			memcpy(transfer->notify_payload, job->notify->payload,
			       job->notify->payload_bytes);
	}
}

kvp_status
kvp_job_check(const struct kvp_engine *engine, struct kvp_job *job, struct kvp_error *err)
{
	uint32_t timeout_ms = job->timeout_ms != 0 ? job->timeout_ms : engine->config.timeout_ms;
	kvp_status status = check_notify(job->notify, job->is_open, err);

	if (status == KVP_SUCCESS)
		status = kvp_request_check(&job->request, err);
	if (status != KVP_SUCCESS)
		return status;
	job->start_ns = kvp_now_ns();
	job->deadline_ns = job->start_ns + (uint64_t)timeout_ms * 1000000;
	return KVP_SUCCESS;
}

struct kvp_job
kvp_job_of_push(const struct kvp_push *push)
{
	return (struct kvp_job){
		.request = {.is_push = true,
			    .src_blocks = push->src_blocks,
			    .dst_blocks = push->dst_blocks,
			    .count = push->count,
			    .src_layers = push->src_layers,
			    .dst_layers = push->dst_layers,
			    .tensors_per_layer = push->tensors_per_layer,
			    .bytes_per_block = push->bytes_per_block},
		.cluster = push->dst.cluster,
		.local_cache = push->src_cache,
		.remote_cache = push->dst.cache,
		.timeout_ms = push->timeout_ms,
		.notify = &push->notify,
	};
}

struct kvp_job
kvp_job_of_pull(const struct kvp_pull *pull)
{
	return (struct kvp_job){
		.request = {.is_push = false,
			    .src_blocks = pull->src_blocks,
			    .dst_blocks = pull->dst_blocks,
			    .count = pull->count,
			    .src_layers = pull->src_layers,
			    .dst_layers = pull->dst_layers,
			    .tensors_per_layer = pull->tensors_per_layer,
			    .bytes_per_block = pull->bytes_per_block},
		.cluster = pull->src.cluster,
		.local_cache = pull->dst_cache,
		.remote_cache = pull->src.cache,
		.timeout_ms = pull->timeout_ms,
	};
}
