/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - lanes' tallies, added up for those who ask */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/stats.h>

#include "histogram.h"
#include "report.h"
#include "state.h"
#include "total.h"

/* To a sum that is ours, or the engine's under its lock. */
static void
add(_Atomic uint64_t *total, const _Atomic uint64_t *by)
{
	atomic_fetch_add_explicit(total, kvp_total(by), memory_order_relaxed);
}

static void
merge(struct kvp_tally *into, const struct kvp_tally *from)
{
	add(&into->pushes, &from->pushes);
	add(&into->pulls, &from->pulls);
	add(&into->bytes, &from->bytes);
	add(&into->pieces, &from->pieces);
	add(&into->runs, &from->runs);
	add(&into->requests, &from->requests);
	add(&into->latency_sum, &from->latency_sum);
	if (kvp_total(&from->latency_max) > kvp_total(&into->latency_max))
		atomic_store_explicit(&into->latency_max, kvp_total(&from->latency_max),
				      memory_order_relaxed);
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++)
		add(&into->ended[i], &from->ended[i]);
	for (uint32_t i = 0; i < KVP_TALLY_BUCKETS; i++)
		atomic_fetch_add_explicit(
			&into->bucket[i],
			atomic_load_explicit(&from->bucket[i], memory_order_relaxed),
			memory_order_relaxed);
}

void
kvp_link_tally(const struct kvp_link *link, struct kvp_tally *into)
{
	for (uint32_t i = 0; i < link->engine->config.lanes; i++)
		merge(into, &link->tally[i]);
}

void
kvp_tally_refused(struct kvp_engine *engine, kvp_status status)
{
	atomic_fetch_add_explicit(&engine->refused[kvp_tally_reason(status)], 1,
				  memory_order_relaxed);
}

static uint64_t
percentile(const struct kvp_histogram *histogram, double share, uint64_t max)
{
	uint64_t edge = kvp_histogram_at(histogram, share);

	return edge < max ? edge : max;
}

/* `latency` is all zeroes. */
static void
report(const struct kvp_tally *tally, struct kvp_histogram *latency, struct kvp_stats *stats)
{
	uint64_t max = kvp_total(&tally->latency_max);
	uint64_t ended = kvp_total(&tally->pushes) + kvp_total(&tally->pulls);

	*stats = (struct kvp_stats){
		.pushes = kvp_total(&tally->pushes),
		.pulls = kvp_total(&tally->pulls),
		.bytes = kvp_total(&tally->bytes),
		.pieces = kvp_total(&tally->pieces),
		.runs = kvp_total(&tally->runs),
		.requests = kvp_total(&tally->requests),
		.latency_mean_ns = ended == 0 ? 0 : kvp_total(&tally->latency_sum) / ended,
		.latency_max_ns = max,
	};
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++) {
		stats->error[i].status = kvp_tally_status(i);
		stats->error[i].ended = kvp_total(&tally->ended[i]);
		stats->failed += stats->error[i].ended;
	}
	for (uint32_t i = 0; i < KVP_TALLY_BUCKETS; i++)
		kvp_histogram_add_many(
			latency, kvp_bucket_edge(i, KVP_TALLY_STEPS_LOG2),
			atomic_load_explicit(&tally->bucket[i], memory_order_relaxed));
	stats->latency_p50_ns = percentile(latency, 0.5, max);
	stats->latency_p90_ns = percentile(latency, 0.9, max);
	stats->latency_p99_ns = percentile(latency, 0.99, max);
	stats->latency_p999_ns = percentile(latency, 0.999, max);
}

/* What a query needs beside the stack. */
struct query {
	struct kvp_tally sum;
	struct kvp_histogram latency;
};

static kvp_status
query_begin(struct kvp_engine *engine, const struct kvp_stats *stats_out, struct query **query_out,
	    struct kvp_error *err)
{
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (stats_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "stats_out is NULL");
	*query_out = aligned_alloc(KVP_SHARE_SPAN, sizeof(**query_out));
	if (*query_out == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory to add up statistics");
	memset(*query_out, 0, sizeof(**query_out));
	return KVP_SUCCESS;
}

kvp_status
kvp_stats_query(struct kvp_engine *engine, struct kvp_stats *stats_out)
{
	struct query *query;
	uint64_t links = 0;
	kvp_status status = query_begin(engine, stats_out, &query, kvp_error_here());

	if (status != KVP_SUCCESS)
		return status;
	pthread_mutex_lock(&engine->lock);
	merge(&query->sum, &engine->past);
	for (const struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		kvp_link_tally(link, &query->sum);
		links += link->step == KVP_STEP_READY;
	}
	pthread_mutex_unlock(&engine->lock);
	report(&query->sum, &query->latency, stats_out);
	stats_out->links = links;
	stats_out->in_flight = atomic_load_explicit(&engine->holds, memory_order_relaxed);
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++) {
		stats_out->error[i].refused = kvp_total(&engine->refused[i]);
		stats_out->refused += stats_out->error[i].refused;
	}
	free(query);
	return KVP_SUCCESS;
}

kvp_status
kvp_stats_query_link(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_stats *stats_out)
{
	struct kvp_error *err = kvp_error_here();
	struct query *query;
	const struct kvp_link *link;
	uint32_t in_flight = 0;
	kvp_status status = query_begin(engine, stats_out, &query, err);

	if (status != KVP_SUCCESS)
		return status;
	pthread_mutex_lock(&engine->lock);
	link = kvp_link_find(engine, cluster_id);
	if (link != NULL) {
		kvp_link_tally(link, &query->sum);
		in_flight = atomic_load_explicit(&link->holds, memory_order_relaxed);
	}
	pthread_mutex_unlock(&engine->lock);
	if (link == NULL) {
		status = kvp_fail(err, KVP_NOT_YET_LINK, "no link to cluster %" PRIu64, cluster_id);
	} else {
		report(&query->sum, &query->latency, stats_out);
		stats_out->links = 1;
		stats_out->in_flight = in_flight;
	}
	free(query);
	return status;
}
