/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - push and pull on the caller's thread: check, plan, submit, wait
 *
 * The engine's lock is held only to look up the two caches and the link and to
 * put a hold on them; checking and planning run outside it.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "report.h"
#include "request.h"
#include "rights.h"
#include "state.h"
#include "wake.h"

#define SCRATCH_PAIRS 512U         /* block pairs planned without allocating */
#define HOT_BYTES     (256U << 10) /* transfers up to this stay in the caches: cached copies */
#define KEPT_BYTES    4096U        /* memory of a transfer with a small plan */
#define SPINS         1500U /* polls of a waiter before it sleeps: a small push is done by then */

/* A push or a pull, in one form. */
struct job {
	struct kvp_request request;
	uint64_t cluster;
	int64_t local_cache, remote_cache;
	uint32_t timeout_ms;
	const struct kvp_notify *notify; /* NULL for a pull */
	uint64_t start_ns, deadline_ns;

	/* found under the lock, held until the end */
	struct kvp_link *link;
	struct kvp_cache *local;
	struct kvp_remote *remote;
};

/*
 * A thread's last transfer with a small plan is kept for its next one. Its cache
 * lines are where the lane left them, in the other core: fetching them one store
 * after the other is a quarter of a small push, so they are asked for together,
 * while the request is being checked.
 */
static pthread_key_t kept_memory;
static bool can_keep;

__attribute__((constructor)) static void
make_key(void)
{
#if !defined(__SANITIZE_ADDRESS__) /* which is to see each transfer come and go */
	can_keep = pthread_key_create(&kept_memory, free) == 0;
#endif
}

static void
fetch_kept(void)
{
	char *kept = can_keep ? pthread_getspecific(kept_memory) : NULL;

	if (kept == NULL)
		return;
	/* What the lane reads and writes of a transfer with one part and one run. */
	for (size_t at = 0; at < offsetof(struct kvp_transfer, notify_payload);
	     at += KVP_CACHE_LINE)
		__builtin_prefetch(kept + at, 1);
	for (size_t at = offsetof(struct kvp_transfer, word);
	     at < offsetof(struct kvp_transfer, part[1]); at += KVP_CACHE_LINE)
		__builtin_prefetch(kept + at, 1);
	__builtin_prefetch(kept + sizeof(struct kvp_transfer), 1);
	__builtin_prefetch(kept + sizeof(struct kvp_transfer) + KVP_CACHE_LINE, 1);
}

/* At least `bytes`; *room_out of them, which free_transfer wants to know. */
static struct kvp_transfer *
allocate_transfer(size_t bytes, size_t *room_out)
{
	struct kvp_transfer *kept = NULL;

	if (bytes <= KEPT_BYTES && can_keep)
		kept = pthread_getspecific(kept_memory);
	*room_out = bytes <= KEPT_BYTES
			    ? KEPT_BYTES
			    : (bytes + KVP_SHARE_SPAN - 1) / KVP_SHARE_SPAN * KVP_SHARE_SPAN;
	if (kept == NULL)
		return aligned_alloc(KVP_SHARE_SPAN, *room_out);
	(void)pthread_setspecific(kept_memory, NULL);
	return kept;
}

static void
free_transfer(struct kvp_transfer *transfer)
{
	if (transfer->room != KEPT_BYTES || !can_keep || pthread_getspecific(kept_memory) != NULL ||
	    pthread_setspecific(kept_memory, transfer) != 0)
		free(transfer);
}

static kvp_status
check_notify(const struct kvp_notify *notify, struct kvp_error *err)
{
	if (notify == NULL || notify->enabled == 0)
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
find_remote(struct kvp_engine *engine, struct job *job, struct kvp_error *err)
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
check_permission(const struct job *job, struct kvp_error *err)
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
check_role(const struct kvp_engine *engine, const struct job *job, struct kvp_error *err)
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
look_up_locked(struct kvp_engine *engine, struct job *job, struct kvp_error *err)
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

static kvp_status
look_up(struct kvp_engine *engine, struct job *job, struct kvp_error *err)
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

static void
drop_holds(struct kvp_engine *engine, struct job *job)
{
	let_go(&job->remote->holds);
	let_go(&job->local->holds);
	let_go(&job->link->holds);
	let_go(&engine->holds);
}

static kvp_status
pair_named(const struct job *job, const char *local_name, const char *remote_name,
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
static kvp_status
pair_up(const struct job *job, struct kvp_pairing *pairing, struct kvp_error *err)
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

static void
fill_transfer(struct kvp_engine *engine, const struct job *job, struct kvp_transfer *transfer)
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

/*
 * Shares of the plan over the path's endpoints. A whole transfer goes to the
 * endpoint after the last one used, so that small ones spread too.
 */
static void
split(struct kvp_transfer *transfer, const struct kvp_path *path)
{
	const struct kvp_caps *caps = &path->transport->caps;
	uint64_t first[KVP_PARTS_MAX + 1];
	uint32_t offset = (uint32_t)(transfer->id % path->config.endpoints);

	transfer->parts = kvp_plan_split(&transfer->plan, path->config.endpoints,
					 caps->part_bytes_min, first);
	atomic_init(&transfer->parts_left, transfer->parts);
	for (uint32_t i = 0; i < transfer->parts; i++) {
		struct kvp_part *part = &transfer->part[i];

		memset(part, 0, sizeof(*part));
		part->transfer = transfer;
		part->endpoint = path->endpoint[(offset + i) % path->config.endpoints];
		part->lane = part->endpoint->lane;
		part->first = first[i];
		part->bytes = first[i + 1] - first[i];
		kvp_cursor_init(&part->cursor, &transfer->plan, first[i], part->bytes);
	}
}

/* Parts of one lane go together. After the last one the lanes own the transfer. */
static void
hand_over(struct kvp_engine *engine, struct kvp_transfer *transfer)
{
	struct kvp_part *of_lane[KVP_LANES_MAX][KVP_PARTS_MAX];
	uint32_t counts[KVP_LANES_MAX] = {0};

	for (uint32_t i = 0; i < transfer->parts; i++) {
		uint32_t lane = kvp_lane_index(transfer->part[i].lane);

		of_lane[lane][counts[lane]++] = &transfer->part[i];
	}
	for (uint32_t lane = 0; lane < engine->config.lanes; lane++) {
		/* The ring holds the parts of max_transfers transfers, which look_up counted. */
		if (counts[lane] > 0)
			KVP_CHECK(kvp_lane_submit(engine->lane[lane], of_lane[lane], counts[lane]));
	}
}

static kvp_status
plan_and_submit(struct kvp_engine *engine, struct job *job, struct kvp_transfer **transfer_out,
		struct kvp_error *err)
{
	uint64_t on_stack[2 * SCRATCH_PAIRS + 8];
	struct kvp_transfer *transfer;
	struct kvp_pairing pairing;
	struct kvp_plan plan = {0};
	void *scratch = on_stack;
	size_t bytes;
	kvp_status status = pair_up(job, &pairing, err);

	if (status != KVP_SUCCESS)
		return status;
	bytes = kvp_plan_scratch_bytes(pairing.count);
	if (bytes > sizeof(on_stack)) {
		scratch = malloc(bytes);
		if (scratch == NULL)
			return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to plan %u blocks",
					pairing.count);
	}
	status = kvp_plan_prepare(&pairing, scratch, &plan, err);
	if (status != KVP_SUCCESS)
		goto free_scratch;
	transfer = allocate_transfer(sizeof(*transfer) + kvp_plan_bytes(&plan), &bytes);
	if (transfer == NULL) {
		status = kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a transfer of %u runs",
				  plan.runs);
		goto free_scratch;
	}
	fill_transfer(engine, job, transfer);
	transfer->room = bytes;
	transfer->plan = plan;
	kvp_plan_fill(&pairing, scratch, transfer + 1, &transfer->plan);
	transfer->is_hot = plan.bytes <= HOT_BYTES;
	split(transfer, job->link->path);
	transfer->plan_ns = kvp_now_ns() - job->start_ns;
	*transfer_out = transfer;
	hand_over(engine, transfer);
free_scratch:
	if (scratch != on_stack)
		free(scratch);
	return status;
}

static kvp_status
submit_job(struct kvp_engine *engine, struct job *job, struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	uint32_t timeout_ms = job->timeout_ms != 0 ? job->timeout_ms : engine->config.timeout_ms;
	kvp_status status;

	fetch_kept();
	status = check_notify(job->notify, err);
	if (status != KVP_SUCCESS)
		return status;
	status = kvp_request_check(&job->request, err);
	if (status != KVP_SUCCESS)
		return status;
	job->start_ns = kvp_now_ns();
	job->deadline_ns = job->start_ns + (uint64_t)timeout_ms * 1000000;
	status = look_up(engine, job, err);
	if (status != KVP_SUCCESS)
		return status;
	status = plan_and_submit(engine, job, transfer_out, err);
	if (status != KVP_SUCCESS)
		drop_holds(engine, job);
	return status;
}

static kvp_status
submit(struct kvp_engine *engine, struct job *job, struct kvp_transfer **transfer_out)
{
	kvp_status status = submit_job(engine, job, transfer_out);

	if (KVP_UNLIKELY(status != KVP_SUCCESS))
		kvp_tally_refused(engine, status);
	return status;
}

kvp_status
kvp_push_submit(struct kvp_engine *engine, const struct kvp_push *push,
		struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (push == NULL || transfer_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				push == NULL ? "push" : "transfer_out");
	struct job job = {
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

	return submit(engine, &job, transfer_out);
}

kvp_status
kvp_pull_submit(struct kvp_engine *engine, const struct kvp_pull *pull,
		struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (pull == NULL || transfer_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				pull == NULL ? "pull" : "transfer_out");
	struct job job = {
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

	return submit(engine, &job, transfer_out);
}

/* Wait for the end, which the transfer's own deadline bounds, and free it. */
static kvp_status
finish(struct kvp_transfer *transfer)
{
	kvp_status status = kvp_transfer_wait(transfer, UINT32_MAX);

	kvp_transfer_free(transfer);
	return status;
}

kvp_status
kvp_push_blocks(struct kvp_engine *engine, const struct kvp_push *push)
{
	struct kvp_transfer *transfer;
	kvp_status status = kvp_push_submit(engine, push, &transfer);

	return status == KVP_SUCCESS ? finish(transfer) : status;
}

kvp_status
kvp_pull_blocks(struct kvp_engine *engine, const struct kvp_pull *pull)
{
	struct kvp_transfer *transfer;
	kvp_status status = kvp_pull_submit(engine, pull, &transfer);

	return status == KVP_SUCCESS ? finish(transfer) : status;
}

/* The line for a transfer that ended badly; lanes have no place to write one. */
static kvp_status
report(const struct kvp_transfer *transfer, kvp_status status)
{
	static const struct {
		kvp_status status;
		const char *why;
	} line[] = {
		{KVP_TIMEOUT, "the deadline passed; raise timeout_ms, or see why the peer is slow"},
		{KVP_CANCELLED, "cancelled"},
		{KVP_PEER_LOST,
		 "the peer died, fell silent, or its data connection broke; link again"},
		{KVP_PEER_RESTARTED, "the peer is a new process; link again"},
		{KVP_NOT_YET_LINK, "the link was ended meanwhile"},
		{KVP_CACHE_NOT_EXIST, "one of the caches was released meanwhile"},
		{KVP_NO_CREDIT, "all bytes are there, but the receiver does not poll its events"},
		{KVP_FEATURE_NOT_ENABLED,
		 "the path cannot reach that memory, or the peer does not allow it; see its log"},
	};
	const char *why = "ended by the transport";

	if (status == KVP_SUCCESS || status == KVP_IN_PROGRESS)
		return status;
	for (size_t i = 0; i < sizeof(line) / sizeof(line[0]); i++) {
		if (line[i].status == status)
			why = line[i].why;
	}
	return kvp_fail(kvp_error_here(), status,
			"%s %" PRIu64 " of %" PRIu64 " bytes, cache %" PRId64 " %s cache %" PRId64
			": %s: %s",
			transfer->is_push ? "push" : "pull", transfer->id, transfer->plan.bytes,
			transfer->local_cache, transfer->is_push ? "to" : "from",
			transfer->remote_cache, kvp_status_name(status), why);
}

static kvp_status
check_transfer(const struct kvp_transfer *transfer)
{
	if (transfer == NULL)
		return kvp_fail(kvp_error_here(), KVP_PARAM_INVALID, "transfer is NULL");
	return KVP_SUCCESS;
}

kvp_status
kvp_transfer_test(struct kvp_transfer *transfer)
{
	kvp_status status = check_transfer(transfer);

	return status == KVP_SUCCESS ? report(transfer, kvp_transfer_status(transfer)) : status;
}

static kvp_status
spin_wait(const struct kvp_transfer *transfer)
{
	kvp_status status = kvp_transfer_status(transfer);

	for (uint32_t i = 0; i < SPINS && status == KVP_IN_PROGRESS; i++) {
		__builtin_ia32_pause();
		status = kvp_transfer_status(transfer);
	}
	return status;
}

kvp_status
kvp_transfer_wait(struct kvp_transfer *transfer, uint32_t wait_ms)
{
	uint64_t until_ns = UINT64_MAX;
	kvp_status status = check_transfer(transfer);

	if (status != KVP_SUCCESS)
		return status;
	status = wait_ms == 0 ? kvp_transfer_status(transfer) : spin_wait(transfer);
	if (status != KVP_IN_PROGRESS || wait_ms == 0)
		return report(transfer, status);
	if (wait_ms != UINT32_MAX)
		until_ns = kvp_now_ns() + (uint64_t)wait_ms * 1000000;
	while ((status = kvp_transfer_status(transfer)) == KVP_IN_PROGRESS) {
		uint64_t now_ns = kvp_now_ns();
		uint32_t pending = KVP_WORD_PENDING;

		if (now_ns >= until_ns)
			break;
		/* Pairs with kvp_transfer_publish, which sees that somebody sleeps. */
		(void)atomic_compare_exchange_strong(&transfer->word, &pending, KVP_WORD_WAITED);
		kvp_sleep_word(&transfer->word, KVP_WORD_WAITED,
			       until_ns == UINT64_MAX ? UINT64_MAX : until_ns - now_ns);
	}
	return report(transfer, status);
}

kvp_status
kvp_transfer_cancel(struct kvp_transfer *transfer)
{
	kvp_status status = check_transfer(transfer);

	if (status != KVP_SUCCESS || kvp_transfer_status(transfer) != KVP_IN_PROGRESS)
		return status;
	if (kvp_transfer_stop(transfer, KVP_CANCELLED)) {
		for (uint32_t i = 0; i < transfer->parts; i++)
			kvp_lane_kick(transfer->part[i].lane);
	}
	return KVP_SUCCESS;
}

void
kvp_transfer_free(struct kvp_transfer *transfer)
{
	if (transfer == NULL)
		return;
	if (kvp_transfer_status(transfer) == KVP_IN_PROGRESS) {
		struct kvp_error kept = *kvp_error_here();

		(void)kvp_transfer_cancel(transfer);
		(void)kvp_transfer_wait(transfer, UINT32_MAX);
		*kvp_error_here() = kept; /* freeing reports nothing */
	}
	free_transfer(transfer);
}

kvp_status
kvp_transfer_query(struct kvp_transfer *transfer, struct kvp_transfer_info *info_out)
{
	kvp_status status = check_transfer(transfer);
	uint64_t end_ns;

	if (status != KVP_SUCCESS)
		return status;
	if (info_out == NULL)
		return kvp_fail(kvp_error_here(), KVP_PARAM_INVALID, "info_out is NULL");
	status = kvp_transfer_status(transfer); /* acquires what was counted before the end */
	end_ns = atomic_load_explicit(&transfer->end_ns, memory_order_relaxed);
	*info_out = (struct kvp_transfer_info){
		.id = transfer->id,
		.bytes = transfer->plan.bytes,
		.moved = atomic_load_explicit(&transfer->moved, memory_order_relaxed),
		.pieces = transfer->plan.pieces,
		.runs = transfer->plan.extents,
		.requests = atomic_load_explicit(&transfer->requests, memory_order_relaxed),
		.parts = transfer->parts,
		.status = status,
		.plan_ns = transfer->plan_ns,
		.total_ns = status == KVP_IN_PROGRESS || end_ns < transfer->submit_ns
				    ? 0
				    : end_ns - transfer->submit_ns,
	};
	return KVP_SUCCESS;
}
