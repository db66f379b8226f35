/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "runs.h"

#define DUEL_BYTES  4096U
#define DUEL_PIECES 30U /* default of verbs_pieces */
#define DUEL_CHAIN  16U /* requests per doorbell of the engine */

static int
engine_failed(const char *what, kvp_status status)
{
	(void)fprintf(stderr, "%s: %s: %s: %s\n", BENCH_NAME, what, kvp_status_name(status),
		      kvp_error_message());
	return -1;
}

/* What the planner makes of a gathered push when a request costs `request_ns` (0: its default). */
static int
explain(uint64_t count, uint64_t piece_bytes, uint32_t request_ns,
	struct kvp_plan_report *report_out)
{
	/* Never read: only the numbers count. */
	struct kvp_tensor src = {
		.base = (void *)(uintptr_t)0x100000000000U,
		.num_blocks = bench_slots(count),
		.block_bytes = piece_bytes,
		.block_stride = piece_bytes,
	};
	struct kvp_tensor dst = src;
	uint64_t *lists = calloc(2 * count, sizeof(*lists));
	struct kvp_plan_query query = {
		.src = &src,
		.dst = &dst,
		.src_tensors = 1,
		.dst_tensors = 1,
		.tensors_per_layer = 1,
		.src_blocks = lists,
		.dst_blocks = lists + count,
		.count = count,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.pieces_max = DUEL_PIECES,
		.request_ns = request_ns,
	};
	kvp_status status;

	if (lists == NULL)
		return engine_failed("kvp_plan_explain", KVP_OUT_OF_MEMORY);
	dst.base = (void *)(uintptr_t)0x200000000000U;
	bench_lists(BENCH_GATHERED, count, lists, lists + count);
	status = kvp_plan_explain(&query, report_out);
	free(lists);
	return status == KVP_SUCCESS ? 0 : engine_failed("kvp_plan_explain", status);
}

/*
 * Two sizes of requests of ib_write_bw tell what a request costs on this rail and what a byte does.
 * With that the planner's model says what gathering is worth.
 */
static int
predict_duel(struct bench *bench, struct bench_duel *duel)
{
	double small = (double)duel->piece_bytes, large = (double)duel->plan.request_bytes;
	double small_ns = small * 1e9 / bench_median(&duel->single_reference);
	double large_ns = large * 1e9 / bench_median(&duel->gathered_reference);
	double bytes_ns;

	duel->byte_ns = (large_ns - small_ns) / (large - small);
	duel->request_ns = small_ns - small * duel->byte_ns;
	if (!(duel->byte_ns > 0 && duel->request_ns >= 1)) {
		(void)fprintf(stderr, "%s: the runs of ib_write_bw vary too much to predict\n",
			      BENCH_NAME);
		return 0;
	}
	bytes_ns = duel->byte_ns * (double)duel->plan.bytes;
	if (explain(bench_pieces(bench, duel->piece_bytes), duel->piece_bytes,
		    (uint32_t)duel->request_ns, &duel->plan) != 0)
		return -1;
	duel->predicted = ((double)duel->plan.single_ns + bytes_ns) /
			  ((double)duel->plan.gather_ns + bytes_ns);
	return 0;
}

static int
measure_duel(struct bench *bench, struct bench_duel *duel)
{
	const struct bench_reference_run idle = {0};

	for (uint32_t i = 0; i < bench->options->runs; i++) {
		uint64_t before = duel->gathered.bytes, single_before = duel->single.bytes;

		if (bench_run_engine(bench, 0, BENCH_GATHERED, &duel->gathered) != 0 ||
		    bench_run_engine(bench, 1, BENCH_GATHERED, &duel->single) != 0)
			return -1;
		if (!bench->options->has_reference)
			continue;
		if (bench_run_reference(bench, duel->plan.request_bytes,
					duel->gathered.bytes - before, &idle,
					&duel->gathered_reference) != 0 ||
		    bench_run_reference(bench, duel->piece_bytes,
					duel->single.bytes - single_before, &idle,
					&duel->single_reference) != 0)
			return -1;
	}
	return 0;
}

int
bench_duel_run(struct bench *bench, uint32_t qps)
{
	static struct bench_duel duel;
	int rc;

	duel = (struct bench_duel){.piece_bytes = DUEL_BYTES, .qps = qps};
	bench->reference.qps = qps;
	bench->reference.post_list = DUEL_CHAIN;
	duel.single_requests = bench_pieces(bench, DUEL_BYTES);
	rc = explain(duel.single_requests, DUEL_BYTES, 0, &duel.plan);
	if (rc == 0)
		rc = bench_pair_open(bench, 0, qps, NULL);
	if (rc == 0)
		rc = bench_pair_open(bench, 1, qps, "verbs_pieces=1");
	for (uint32_t pair = 0; rc == 0 && pair < 2; pair++) {
		rc = bench_pair_caches(bench, pair, duel.piece_bytes);
		if (rc == 0)
			rc = bench_pair_verify(bench, pair, BENCH_GATHERED);
	}
	if (rc == 0)
		rc = measure_duel(bench, &duel);
	if (rc == 0 && bench->options->has_reference)
		rc = predict_duel(bench, &duel);
	if (rc == 0)
		bench_print_duel(bench->options, &duel);
	for (uint32_t pair = 0; rc == 0 && pair < 2; pair++)
		rc = bench_pair_close(bench, pair);
	return rc;
}
