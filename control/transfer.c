/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.c - push and pull on the caller's thread: check, plan, submit, wait
 *
 * job.c finds and checks, outside the engine's lock as far as it can; planning runs outside it.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "job.h"
#include "launch.h"
#include "report.h"
#include "state.h"
#include "wake.h"

#define SCRATCH_PAIRS 512U  /* block pairs planned without allocating */
#define KEPT_BYTES    4096U /* memory of a transfer with a small plan */
#define SPINS         1500U /* polls of a waiter before it sleeps: a small push is done by then */

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
plan_and_submit(struct kvp_engine *engine, struct kvp_job *job, struct kvp_transfer **transfer_out,
		struct kvp_error *err)
{
	uint64_t on_stack[2 * SCRATCH_PAIRS + 8];
	struct kvp_transfer *transfer;
	struct kvp_pairing pairing;
	struct kvp_plan plan = {0};
	void *scratch = on_stack;
	size_t bytes;
	kvp_status status = kvp_job_pair(job, &pairing, err);

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
	kvp_job_fill(engine, job, transfer);
	transfer->room = bytes;
	transfer->plan = plan;
	kvp_plan_fill(&pairing, scratch, transfer + 1, &transfer->plan);
	kvp_launch_split(transfer, job->link->path, KVP_PARTS_MAX, transfer->id);
	transfer->plan_ns = kvp_now_ns() - job->start_ns;
	*transfer_out = transfer;
	kvp_launch(transfer);
free_scratch:
	if (scratch != on_stack)
		free(scratch);
	return status;
}

static kvp_status
submit_job(struct kvp_engine *engine, struct kvp_job *job, struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status;

	fetch_kept();
	status = kvp_job_check(engine, job, err);
	if (status != KVP_SUCCESS)
		return status;
	status = kvp_job_find(engine, job, err);
	if (status != KVP_SUCCESS)
		return status;
	status = plan_and_submit(engine, job, transfer_out, err);
	if (status != KVP_SUCCESS)
		kvp_job_drop(engine, job);
	return status;
}

static kvp_status
submit(struct kvp_engine *engine, struct kvp_job *job, struct kvp_transfer **transfer_out)
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
	struct kvp_job job;

	if (status != KVP_SUCCESS)
		return status;
	if (push == NULL || transfer_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				push == NULL ? "push" : "transfer_out");
	job = kvp_job_of_push(push);
	return submit(engine, &job, transfer_out);
}

kvp_status
kvp_pull_submit(struct kvp_engine *engine, const struct kvp_pull *pull,
		struct kvp_transfer **transfer_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_job job;

	if (status != KVP_SUCCESS)
		return status;
	if (pull == NULL || transfer_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				pull == NULL ? "pull" : "transfer_out");
	job = kvp_job_of_pull(pull);
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
		.moved = atomic_load_explicit(&transfer->moved, memory_order_acquire),
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
