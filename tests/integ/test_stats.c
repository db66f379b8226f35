/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: of a link, of the engine, and what stays when links go. */
#include "pair.h"

#include <string.h>

#define BLOCK 4096U

static const uint64_t blocks[] = {0, 2, 3, 9};
static const struct pair_move some = {blocks, blocks, 4, 0, 0, 4};
static const struct pair_shape plain = {
	.tensors = 4, .blocks = 16, .block_bytes = BLOCK, .is_shareable = true};

static uint64_t
ended_with(const struct kvp_stats *stats, kvp_status status)
{
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++) {
		if (stats->error[i].status == status)
			return stats->error[i].ended;
	}
	fail_msg("no place for %s", kvp_status_name(status));
	return 0;
}

static uint64_t
refused_with(const struct kvp_stats *stats, kvp_status status)
{
	for (uint32_t i = 0; i < KVP_STATS_REASONS; i++) {
		if (stats->error[i].status == status)
			return stats->error[i].refused;
	}
	return UINT64_MAX;
}

static void
latencies_check(const struct kvp_stats *stats)
{
	assert_true(stats->latency_mean_ns > 0);
	assert_true(stats->latency_p50_ns <= stats->latency_p90_ns);
	assert_true(stats->latency_p90_ns <= stats->latency_p99_ns);
	assert_true(stats->latency_p99_ns <= stats->latency_p999_ns);
	assert_true(stats->latency_p999_ns <= stats->latency_max_ns);
	assert_true(stats->latency_mean_ns <= stats->latency_max_ns);
	assert_true(stats->latency_p50_ns > 0);
}

/* 3 pushes and 2 pulls of 4 blocks over 4 tensors. */
static void
moved_check(const struct kvp_stats *stats)
{
	assert_int_equal(stats->pushes, 3);
	assert_int_equal(stats->pulls, 2);
	assert_int_equal(stats->bytes, 5 * 4 * 4 * BLOCK);
	assert_int_equal(stats->pieces, 5 * 4 * 4);
	assert_int_equal(stats->runs, 5 * 3 * 4); /* 2,3 is one */
	assert_true(stats->requests >= 5);
	assert_int_equal(stats->in_flight, 0);
	latencies_check(stats);
}

/* Refusals are the engine's. */
static void
refusals_count(const struct pair *pair, const struct pair_cache *src, const struct pair_cache *dst)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, &some);
	struct kvp_stats stats;

	push.count = 0;
	assert_status(KVP_PARAM_INVALID, kvp_push_blocks(pair->a, &push));
	push = pair_push(src, PAIR_B + 1, dst, &some);
	assert_status(KVP_NOT_YET_LINK, kvp_push_blocks(pair->a, &push));
	push = pair_push(src, PAIR_B, dst, &some);
	push.src_cache = 99;
	assert_status(KVP_CACHE_NOT_EXIST, kvp_push_blocks(pair->a, &push));
	assert_ok(kvp_stats_query(pair->a, &stats));
	moved_check(&stats);
	assert_int_equal(stats.refused, 3);
	assert_int_equal(refused_with(&stats, KVP_PARAM_INVALID), 1);
	assert_int_equal(refused_with(&stats, KVP_NOT_YET_LINK), 1);
	assert_int_equal(refused_with(&stats, KVP_CACHE_NOT_EXIST), 1);
	assert_int_equal(stats.links, 1);
}

/* One that fails; its status has a place. */
static void
one_fails(const struct pair *pair, const struct pair_cache *src, const struct pair_cache *dst)
{
	struct kvp_push push = pair_push(src, PAIR_B, dst, &some);
	struct kvp_stats link;
	kvp_status status;

	push.notify.enabled = 1;
	do {
		struct kvp_transfer *transfer;

		assert_ok(kvp_push_submit(pair->a, &push, &transfer));
		assert_ok(kvp_transfer_cancel(transfer));
		status = kvp_transfer_wait(transfer, PAIR_LONG_MS);
		kvp_transfer_free(transfer);
		assert_true(status == KVP_SUCCESS || status == KVP_CANCELLED);
	} while (status != KVP_CANCELLED);
	assert_ok(kvp_stats_query_link(pair->a, PAIR_B, &link));
	assert_int_equal(link.failed, 1);
	assert_int_equal(ended_with(&link, KVP_CANCELLED), 1);
	assert_int_equal(link.refused, 0);
}

static void
stats__count_and_stay(void **state)
{
	const struct pair *pair = *state;
	struct kvp_stats stats, link;
	struct pair_cache src, dst;
	struct kvp_push push;
	struct kvp_pull pull;

	pair_cache_open(&src, pair->a, &plain, 1);
	pair_cache_open(&dst, pair->b, &plain, 2);
	push = pair_push(&src, PAIR_B, &dst, &some);
	pull = pair_pull(PAIR_B, &dst, &src, &some);
	for (int i = 0; i < 3; i++)
		assert_ok(kvp_push_blocks(pair->a, &push));
	for (int i = 0; i < 2; i++)
		assert_ok(kvp_pull_blocks(pair->a, &pull));
	assert_ok(kvp_stats_query_link(pair->a, PAIR_B, &link));
	moved_check(&link);
	assert_int_equal(link.links, 1);
	assert_int_equal(link.failed, 0);

	refusals_count(pair, &src, &dst);
	one_fails(pair, &src, &dst);
	assert_ok(kvp_stats_query_link(pair->a, PAIR_B, &link));
	/* The link goes, its numbers stay with the engine. The other end counted nothing of them. */
	assert_ok(kvp_unlink(pair->a, PAIR_B, PAIR_LONG_MS, 0));
	do {
		assert_ok(kvp_stats_query(pair->a, &stats));
		pair_pause();
	} while (stats.links != 0);
	assert_int_equal(stats.pushes, link.pushes);
	assert_int_equal(stats.pulls, 2);
	assert_int_equal(stats.bytes, link.bytes);
	assert_int_equal(stats.failed, 1);
	assert_int_equal(stats.latency_max_ns, link.latency_max_ns);
	assert_int_equal(stats.latency_p50_ns, link.latency_p50_ns);
	assert_refused(KVP_NOT_YET_LINK, "no link", kvp_stats_query_link(pair->a, PAIR_B, &link));
	assert_ok(kvp_stats_query(pair->b, &stats));
	assert_int_equal(stats.pushes + stats.pulls + stats.failed + stats.refused, 0);
	pair_cache_close(&src);
	pair_cache_close(&dst);
}

static void
stats__bad_arguments(void **state)
{
	const struct pair *pair = *state;
	struct kvp_stats stats;

	assert_refused(KVP_FAILED, "engine", kvp_stats_query(NULL, &stats));
	assert_refused(KVP_PARAM_INVALID, "stats_out", kvp_stats_query(pair->a, NULL));
	assert_refused(KVP_FAILED, "engine", kvp_stats_query_link(NULL, 1, &stats));
	assert_refused(KVP_PARAM_INVALID, "stats_out", kvp_stats_query_link(pair->a, 1, NULL));
	assert_refused(KVP_NOT_YET_LINK, "cluster 1", kvp_stats_query_link(pair->a, 1, &stats));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_TEST(stats__count_and_stay),
		PAIR_TEST(stats__bad_arguments),
	};

	return PAIR_RUN(tests);
}
