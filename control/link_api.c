/* SPDX-License-Identifier: Apache-2.0 */
/* link_api.c - kvp_link, kvp_unlink and the queries: callers' side of link.c */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "address.h"
#include "report.h"
#include "state.h"
#include "total.h"
#include "wake.h"

#define MERGE_NS 200000000U /* for the link that was kept to show up */

struct begin {
	struct sockaddr_storage peer;
	const char *address;
	uint64_t deadline_ns;
	struct kvp_link *link;
	kvp_status status;
	struct kvp_error *err;
};

static void
begin_link(struct kvp_engine *engine, void *arg)
{
	struct begin *begin = arg;

	begin->link =
		kvp_link_begin(engine, &begin->peer, kvp_address_bytes(&begin->peer),
			       begin->address, begin->deadline_ns, &begin->status, begin->err);
}

static uint64_t
deadline_of(const struct kvp_engine *engine, uint32_t timeout_ms)
{
	uint32_t ms = timeout_ms != 0 ? timeout_ms : engine->config.timeout_ms;

	return kvp_now_ns() + (uint64_t)ms * 1000000;
}

/*
 * The connection was refused in favour of another one between the same engines: that
 * one is the link. It may not be known here yet; when it dies too, the caller may
 * ask again. Lock held.
 */
static kvp_status
await_merged(struct kvp_engine *engine, uint64_t cluster_id, uint64_t deadline_ns,
	     struct kvp_error *err)
{
	uint64_t seen_ns = kvp_now_ns();
	uint64_t now_ns = seen_ns;

	while (now_ns < deadline_ns && now_ns - seen_ns < MERGE_NS) {
		const struct kvp_link *link = kvp_link_find(engine, cluster_id);

		if (link != NULL && link->step == KVP_STEP_READY)
			return KVP_SUCCESS;
		if (link != NULL)
			seen_ns = now_ns;
		kvp_engine_wait(engine,
				now_ns + MERGE_NS < deadline_ns ? now_ns + MERGE_NS : deadline_ns);
		now_ns = kvp_now_ns();
	}
	if (now_ns < deadline_ns)
		return kvp_fail(err, KVP_PROCESSING_LINK,
				"cluster %" PRIu64
				" was being linked by somebody else, which failed: "
				"link again",
				cluster_id);
	return kvp_fail(err, KVP_TIMEOUT,
			"cluster %" PRIu64
			" is being linked by somebody else, which did not end in time",
			cluster_id);
}

/* Lock held. The link's outcome. */
static kvp_status
await_link(struct kvp_engine *engine, struct kvp_link *link, uint64_t deadline_ns,
	   uint64_t *cluster_out, struct kvp_error *err)
{
	/* The control thread ends the handshake at its deadline; a little later here, so that its
	   reason is the one reported. */
	uint64_t patience_ns = deadline_ns + 50000000;

	while (link->step != KVP_STEP_READY && link->step != KVP_STEP_CLOSING) {
		if (!kvp_engine_wait(engine, patience_ns) && link->step != KVP_STEP_READY &&
		    link->step != KVP_STEP_CLOSING)
			patience_ns = kvp_now_ns() + 50000000;
	}
	*cluster_out = link->cluster_id;
	if (link->step == KVP_STEP_READY)
		return KVP_SUCCESS;
	if (link->is_merged && link->has_cluster)
		return await_merged(engine, link->cluster_id, deadline_ns, err);
	return kvp_fail(err, link->status == KVP_SUCCESS ? KVP_LINK_FAILED : link->status,
			"link to %s: %s", link->address, link->error.text);
}

kvp_status
kvp_link(struct kvp_engine *engine, const char *address, uint32_t timeout_ms,
	 uint64_t *cluster_id_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct begin begin = {.address = address, .err = err};
	uint64_t cluster = 0;

	if (status != KVP_SUCCESS)
		return status;
	if (address == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "address is NULL");
	status = kvp_address_parse(address, &begin.peer, err);
	if (status != KVP_SUCCESS)
		return status;
	if (!kvp_address_is_loopback(&begin.peer) && engine->config.insecure == 0)
		return kvp_fail(err, KVP_ADDRESS,
				"address %s is not loopback, and the control connection is not "
				"encrypted: set insecure=1 if that network is trusted",
				address);
	begin.deadline_ns = deadline_of(engine, timeout_ms);
	kvp_loop_call(engine, begin_link, &begin);
	if (begin.link == NULL)
		return begin.status;
	pthread_mutex_lock(&engine->lock);
	status = await_link(engine, begin.link, begin.deadline_ns, &cluster, err);
	begin.link->watchers--;
	pthread_mutex_unlock(&engine->lock);
	if (status == KVP_SUCCESS && cluster_id_out != NULL)
		*cluster_id_out = cluster;
	return status;
}

struct ending {
	uint64_t cluster_id;
	bool is_forced;
	struct kvp_link *link;
};

static void
begin_unlink(struct kvp_engine *engine, void *arg)
{
	struct ending *ending = arg;
	struct kvp_link *link = kvp_link_find(engine, ending->cluster_id);

	if (link == NULL)
		return;
	ending->link = link;
	link->watchers++;
	if (link->is_unlinking && !ending->is_forced)
		return; /* another caller's; wait for the same end */
	link->is_unlinking = true;
	kvp_link_silence(link, KVP_NOT_YET_LINK);
	if (link->step == KVP_STEP_READY)
		kvp_link_send(link, KVP_FRAME_UNLINK);
	if (ending->is_forced || link->step != KVP_STEP_READY)
		kvp_link_end(link, KVP_NOT_YET_LINK, KVP_NOT_YET_LINK, "unlinked");
}

static void
force_unlink(struct kvp_engine *engine, void *arg)
{
	const struct ending *ending = arg;

	(void)engine;
	kvp_link_end(ending->link, KVP_NOTIFY_UNLINK_FAILED, KVP_NOT_YET_LINK,
		     "the peer did not confirm the unlink in time");
}

/* Lock held. Until nothing of the link is in flight any more; lanes see to it within their fence time. */
static void
await_quiet(struct kvp_engine *engine, const struct kvp_link *link)
{
	while (atomic_load_explicit(&link->holds, memory_order_acquire) != 0)
		kvp_engine_wait(engine, kvp_now_ns() + 1000000);
}

kvp_status
kvp_unlink(struct kvp_engine *engine, uint64_t cluster_id, uint32_t timeout_ms, int force)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct ending ending = {.cluster_id = cluster_id, .is_forced = force != 0};
	uint64_t deadline_ns;

	if (status != KVP_SUCCESS)
		return status;
	deadline_ns = deadline_of(engine, timeout_ms);
	kvp_loop_call(engine, begin_unlink, &ending);
	if (ending.link == NULL)
		return KVP_SUCCESS;
	pthread_mutex_lock(&engine->lock);
	while (ending.link->step != KVP_STEP_CLOSING && kvp_engine_wait(engine, deadline_ns))
		;
	pthread_mutex_unlock(&engine->lock);
	kvp_loop_call(engine, force_unlink, &ending); /* does nothing when it ended */
	pthread_mutex_lock(&engine->lock);
	await_quiet(engine, ending.link);
	if (ending.link->status == KVP_NOTIFY_UNLINK_FAILED)
		status =
			kvp_fail(err, KVP_NOTIFY_UNLINK_FAILED,
				 "cluster %" PRIu64 " did not confirm the unlink; unlink there too",
				 cluster_id);
	ending.link->watchers--;
	pthread_mutex_unlock(&engine->lock);
	return status;
}

static void
sum_endpoints(const struct kvp_link *link, struct kvp_link_info *info)
{
	struct kvp_totals totals = {0};

	if (link->path == NULL || !link->is_attached)
		return;
	for (uint32_t i = 0; i < link->path->config.endpoints; i++) {
		const struct kvp_endpoint *endpoint = link->path->endpoint[i];

		info->bytes_out += atomic_load_explicit(&endpoint->bytes_out, memory_order_relaxed);
		info->bytes_in += atomic_load_explicit(&endpoint->bytes_in, memory_order_relaxed);
		info->requests += atomic_load_explicit(&endpoint->requests, memory_order_relaxed);
		info->pieces += atomic_load_explicit(&endpoint->pieces, memory_order_relaxed);
		if (endpoint->transport->totals != NULL)
			endpoint->transport->totals(endpoint, &totals);
	}
	info->doorbells = totals.doorbells;
	info->gathered = totals.gathered;
	info->completions = totals.completions;
	info->replayed = totals.replayed;
}

static void
sum_transfers(const struct kvp_link *link, struct kvp_link_info *info)
{
	for (uint32_t i = 0; i < link->engine->config.lanes; i++) {
		const struct kvp_tally *tally = &link->tally[i];

		info->transfers_ok += atomic_load_explicit(&tally->pushes, memory_order_relaxed) +
				      atomic_load_explicit(&tally->pulls, memory_order_relaxed);
		for (uint32_t j = 0; j < KVP_STATS_REASONS; j++)
			info->transfers_failed +=
				atomic_load_explicit(&tally->ended[j], memory_order_relaxed);
	}
}

kvp_status
kvp_link_query(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_link_info *info_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_link_info info = {.cluster_id = cluster_id};
	const struct kvp_link *link;
	uint64_t now_ns = kvp_now_ns();

	if (status != KVP_SUCCESS)
		return status;
	if (info_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "info_out is NULL");
	pthread_mutex_lock(&engine->lock);
	link = kvp_link_find(engine, cluster_id);
	if (link == NULL) {
		pthread_mutex_unlock(&engine->lock);
		return kvp_fail(err, KVP_NOT_YET_LINK, "no link to cluster %" PRIu64, cluster_id);
	}
	info.state = link->is_unlinking             ? KVP_LINK_CLOSING
		     : link->step == KVP_STEP_READY ? KVP_LINK_READY
						    : KVP_LINK_CONNECTING;
	info.role = link->role;
	info.remote_caches = link->remotes;
	snprintf(info.address, sizeof(info.address), "%s", link->address);
	if (link->path != NULL) {
		info.endpoints = link->is_attached ? link->path->config.endpoints : 0;
		snprintf(info.path, sizeof(info.path), "%s%s%s", link->path->text,
			 link->not_over[0] != '\0' ? "; not " : "", link->not_over);
	}
	sum_transfers(link, &info);
	if (now_ns > link->channel.heard_ns)
		info.silence_ms = (now_ns - link->channel.heard_ns) / 1000000;
	sum_endpoints(link, &info);
	pthread_mutex_unlock(&engine->lock);
	*info_out = info;
	return KVP_SUCCESS;
}

kvp_status
kvp_link_list(struct kvp_engine *engine, uint64_t *cluster_ids, size_t max, size_t *count_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	size_t count = 0;

	if (status != KVP_SUCCESS)
		return status;
	if (count_out == NULL || (cluster_ids == NULL && max > 0))
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				count_out == NULL ? "count_out" : "cluster_ids");
	pthread_mutex_lock(&engine->lock);
	for (const struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (link->step != KVP_STEP_READY)
			continue;
		if (count < max)
			cluster_ids[count] = link->cluster_id;
		count++;
	}
	pthread_mutex_unlock(&engine->lock);
	*count_out = count;
	return KVP_SUCCESS;
}

/* Lock held. */
static size_t
remotes_fill(const struct kvp_link *link, struct kvp_remote_info *infos, size_t max)
{
	size_t count = 0;

	for (uint32_t i = 0; i < KVP_CACHES_MAX; i++) {
		const struct kvp_remote *remote = link->remote[i];

		if (remote == NULL || remote->is_gone)
			continue;
		if (count < max)
			infos[count] = (struct kvp_remote_info){
				.cache_id = remote->cache.id,
				.num_tensors = remote->cache.num_tensors,
				.num_blocks = remote->tensors[0].num_blocks,
				.block_bytes = remote->tensors[0].block_bytes,
			};
		count++;
	}
	return count;
}

/* Lock held, link watched. The peer's answer comes after every announcement it made before. */
static kvp_status
catalogue_await(struct kvp_engine *engine, struct kvp_link *link, struct kvp_error *err)
{
	uint64_t deadline_ns = deadline_of(engine, 0);
	uint64_t asked = ++link->sync_asked;

	kvp_reactor_wake(&engine->reactor);
	while (link->step == KVP_STEP_READY && link->sync_acked < asked) {
		if (!kvp_engine_wait(engine, deadline_ns))
			return kvp_fail(err, KVP_TIMEOUT,
					"cluster %" PRIu64
					" did not say in time which caches it has",
					link->cluster_id);
	}
	return link->step == KVP_STEP_READY
		       ? KVP_SUCCESS
		       : kvp_fail(err, KVP_NOT_YET_LINK, "the link to cluster %" PRIu64 " ended",
				  link->cluster_id);
}

kvp_status
kvp_remote_list(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_remote_info *infos,
		size_t max, size_t *count_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);
	struct kvp_link *link;

	if (status != KVP_SUCCESS)
		return status;
	if (count_out == NULL || (infos == NULL && max > 0))
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				count_out == NULL ? "count_out" : "infos");
	pthread_mutex_lock(&engine->lock);
	link = kvp_link_find(engine, cluster_id);
	if (link == NULL || link->step != KVP_STEP_READY) {
		status = kvp_fail(err, KVP_NOT_YET_LINK, "no usable link to cluster %" PRIu64,
				  cluster_id);
	} else {
		link->watchers++;
		status = catalogue_await(engine, link, err);
		if (status == KVP_SUCCESS)
			*count_out = remotes_fill(link, infos, max);
		link->watchers--;
	}
	pthread_mutex_unlock(&engine->lock);
	return status;
}
