/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <stdlib.h>

#include "runs.h"

static int
measure_row(struct bench *bench, const struct bench_reference_run *idle, struct bench_row *row)
{
	const struct bench_options *options = bench->options;

	for (uint32_t i = 0; i < options->runs; i++) {
		uint64_t before = row->engine.bytes;

		if (bench_run_engine(bench, 0, row->pattern, &row->engine) != 0)
			return -1;
		if (options->has_reference &&
		    bench_run_reference(bench, row->piece_bytes, row->engine.bytes - before, idle,
					&row->reference) != 0)
			return -1;
	}
	if (options->at_least > 0 && row->piece_bytes >= BENCH_LARGE && row->reference.runs > 0 &&
	    bench_ratio(&row->engine, &row->reference) < options->at_least)
		bench->is_slow = true;
	return 0;
}

static int
run_rows(struct bench *bench, uint32_t qps)
{
	const struct bench_options *options = bench->options;
	int rc = bench_pair_open(bench, 0, qps, NULL);

	bench->reference.qps = qps;
	bench->reference.post_list = options->post_list;
	if (rc == 0 && !bench->has_head)
		bench_print_head(options, bench->path);
	bench->has_head = true;
	for (uint32_t s = 0; rc == 0 && s < options->sizes; s++) {
		struct bench_reference_run idle = {0};

		rc = bench_pair_caches(bench, 0, options->size[s]);
		if (rc == 0 && options->has_reference)
			rc = bench_idle_reference(bench, options->size[s], &idle);
		for (uint32_t p = 0; rc == 0 && p < BENCH_PATTERNS; p++) {
			struct bench_row row = {
				.pattern = (enum bench_pattern)p,
				.piece_bytes = options->size[s],
				.qps = qps,
			};

			if (!options->has_pattern[p])
				continue;
			rc = bench_pair_verify(bench, 0, row.pattern);
			if (rc == 0)
				rc = measure_row(bench, &idle, &row);
			if (rc == 0)
				bench_print_row(options, &row);
		}
	}
	return rc == 0 ? bench_pair_close(bench, 0) : rc;
}

int
bench_run(const struct bench_options *options)
{
	static struct bench bench;
	int rc;

	bench = (struct bench){
		.options = options,
		.reference =
			{
				.program = options->reference,
				.sender_device = options->sender_device,
				.receiver_device = options->receiver_device,
				.gid_index = options->gid_index,
				.port = options->reference_port,
			},
	};
	rc = bench_side_start(&bench.sender, true);
	if (rc == 0)
		rc = bench_side_start(&bench.receiver, false);
	if (rc == 0 && options->has_reference)
		rc = bench_reference_look(&bench.reference);
	for (uint32_t i = 0; rc == 0 && i < options->qps_count; i++)
		rc = run_rows(&bench, options->qps[i]);
	for (uint32_t i = 0; rc == 0 && options->has_duel && i < options->qps_count; i++)
		rc = bench_duel_run(&bench, options->qps[i]);
	if (bench_side_end(&bench.sender) != 0)
		rc = -1;
	if (bench_side_end(&bench.receiver) != 0)
		rc = -1;
	if (rc == 0 && bench.is_slow) {
		(void)fprintf(stderr, "%s: slower than %.2f x ib_write_bw\n", BENCH_NAME,
			      options->at_least);
		rc = -1;
	}
	return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
