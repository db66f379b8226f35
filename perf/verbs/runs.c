/* SPDX-License-Identifier: Apache-2.0 */
#include "runs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DEAD_MS "120000" /* a loaded machine may stop a guest for seconds */
#define GIB     1073741824.0

/* --- numbers ------------------------------------------------------------------------ */

static int
by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double
median(const double *values, uint32_t count)
{
	double sorted[BENCH_RUNS_MAX];
	uint32_t middle = count / 2;

	if (count == 0)
		return 0;
	memcpy(sorted, values, count * sizeof(*sorted));
	qsort(sorted, count, sizeof(*sorted), by_value);
	return count % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double
bench_median(const struct bench_runs *runs)
{
	return median(runs->bytes_per_s, runs->runs);
}

double
bench_ratio(const struct bench_runs *one, const struct bench_runs *other)
{
	uint32_t count = one->runs < other->runs ? one->runs : other->runs;
	double ratio[BENCH_RUNS_MAX];

	for (uint32_t i = 0; i < count; i++)
		ratio[i] = one->bytes_per_s[i] / other->bytes_per_s[i];
	return median(ratio, count);
}

double
bench_per_gib(const struct bench_runs *runs, double amount)
{
	return runs->bytes == 0 ? 0 : amount * GIB / (double)runs->bytes;
}

static void
add_totals(struct bench_totals *sum, const struct bench_totals *totals)
{
	sum->requests += totals->requests;
	sum->pieces += totals->pieces;
	sum->doorbells += totals->doorbells;
	sum->gathered += totals->gathered;
	sum->completions += totals->completions;
	sum->replayed += totals->replayed;
}

/* --- the two engines of a pair --------------------------------------------------------- */

static void
add_setting(struct bench_ask *ask, const char *key, const char *value)
{
	size_t used = strlen(ask->settings);

	(void)snprintf(ask->settings + used, sizeof(ask->settings) - used, "%s%s%s\n", key,
		       value != NULL ? "=" : "", value != NULL ? value : "");
}

static int
open_side(struct bench *bench, struct bench_side *side, uint32_t pair, uint32_t qps,
	  const char *setting, struct bench_answer *answer)
{
	const struct bench_options *options = bench->options;
	struct bench_ask ask = {.question = BENCH_OPEN, .pair = pair};
	char text[16];

	add_setting(&ask, "transports", options->transport);
	add_setting(&ask, "dead_ms", DEAD_MS);
	if (strcmp(options->transport, "verbs") == 0) {
		(void)snprintf(text, sizeof(text), "%u", qps);
		add_setting(&ask, "verbs_qps", text);
		add_setting(&ask, "verbs_devices",
			    side->is_sender ? options->sender_device : options->receiver_device);
	}
	if (setting != NULL)
		add_setting(&ask, setting, NULL);
	for (uint32_t i = 0; i < options->extras; i++)
		add_setting(&ask, options->extra[i], NULL);
	return bench_side_ask(side, &ask, answer);
}

int
bench_pair_open(struct bench *bench, uint32_t pair, uint32_t qps, const char *setting)
{
	struct bench_ask ask = {.question = BENCH_LINK, .pair = pair};
	struct bench_answer answer;
	int rc = open_side(bench, &bench->receiver, pair, qps, setting, &answer);

	ask.port = answer.port;
	if (rc == 0)
		rc = open_side(bench, &bench->sender, pair, qps, setting, &answer);
	if (rc == 0)
		rc = bench_side_ask(&bench->sender, &ask, &answer);
	if (rc == 0)
		memcpy(bench->path, answer.text, sizeof(bench->path));
	return rc;
}

int
bench_pair_close(struct bench *bench, uint32_t pair)
{
	struct bench_ask ask = {.question = BENCH_CLOSE, .pair = pair};
	struct bench_answer answer;
	int rc = bench_side_ask(&bench->sender, &ask, &answer);

	return bench_side_ask(&bench->receiver, &ask, &answer) == 0 ? rc : -1;
}

uint64_t
bench_pieces(const struct bench *bench, uint64_t piece_bytes)
{
	uint64_t count = bench->options->push_bytes / piece_bytes;

	return count < 2 ? 2 : count;
}

int
bench_pair_caches(struct bench *bench, uint32_t pair, uint64_t piece_bytes)
{
	struct bench_ask ask = {
		.question = BENCH_CACHE,
		.pair = pair,
		.piece_bytes = piece_bytes,
		.count = bench_pieces(bench, piece_bytes),
	};
	struct bench_answer answer;

	if (bench_side_ask(&bench->receiver, &ask, &answer) != 0)
		return -1;
	bench->cache[pair] = answer.cache;
	return bench_side_ask(&bench->sender, &ask, &answer);
}

int
bench_pair_verify(struct bench *bench, uint32_t pair, enum bench_pattern pattern)
{
	struct bench_ask ask = {
		.pair = pair,
		.pattern = pattern,
		.cache = bench->cache[pair],
	};
	struct bench_answer answer;

	ask.question = BENCH_FILL;
	if (bench_side_ask(&bench->receiver, &ask, &answer) != 0)
		return -1;
	ask.question = BENCH_PUSH;
	if (bench_side_ask(&bench->sender, &ask, &answer) != 0)
		return -1;
	ask.question = BENCH_CHECK;
	if (bench_side_ask(&bench->receiver, &ask, &answer) != 0)
		return -1;
	if (answer.wrong_bytes == 0)
		return 0;
	(void)fprintf(stderr, "%s: %s: %" PRIu64 " bytes are wrong\n", BENCH_NAME,
		      bench_pattern_name(pattern), answer.wrong_bytes);
	return -1;
}

/* --- runs ------------------------------------------------------------------------------- */

static int
receiver_cpu(struct bench *bench, uint64_t *cpu_ns_out)
{
	struct bench_ask ask = {.question = BENCH_USAGE};
	struct bench_answer answer;
	int rc = bench_side_ask(&bench->receiver, &ask, &answer);

	*cpu_ns_out = answer.cpu_ns;
	return rc;
}

int
bench_run_engine(struct bench *bench, uint32_t pair, enum bench_pattern pattern,
		 struct bench_runs *runs)
{
	struct bench_ask ask = {
		.question = BENCH_MEASURE,
		.pair = pair,
		.pattern = pattern,
		.inflight = bench->options->inflight,
		.run_ns = bench->options->run_ns,
		.cache = bench->cache[pair],
	};
	struct bench_answer answer;
	uint64_t start_ns, end_ns;

	if (receiver_cpu(bench, &start_ns) != 0 ||
	    bench_side_ask(&bench->sender, &ask, &answer) != 0 || receiver_cpu(bench, &end_ns) != 0)
		return -1;
	runs->bytes_per_s[runs->runs++] = (double)answer.bytes * 1e9 / (double)answer.elapsed_ns;
	runs->bytes += answer.bytes;
	runs->cpu_ns += answer.cpu_ns + end_ns - start_ns;
	add_totals(&runs->totals, &answer.totals);
	return 0;
}

/* What a run of no length costs: the least of three, since waiting for the processor costs time. */
int
bench_idle_reference(struct bench *bench, uint64_t size, struct bench_reference_run *idle_out)
{
	struct bench_reference_run run;

	*idle_out = (struct bench_reference_run){.cpu_ns = UINT64_MAX};
	for (uint32_t i = 0; i < 3; i++) {
		if (bench_reference_run(&bench->reference, size, 0, &run) != 0)
			return -1;
		if (run.cpu_ns < idle_out->cpu_ns)
			*idle_out = run;
	}
	return 0;
}

/* As many bytes as the engine's last run moved; `idle` is what a run of no length costs. */
int
bench_run_reference(struct bench *bench, uint64_t size, uint64_t bytes,
		    const struct bench_reference_run *idle, struct bench_runs *runs)
{
	struct bench_reference_run run;

	if (bench_reference_run(&bench->reference, size, bytes, &run) != 0)
		return -1;
	runs->bytes_per_s[runs->runs++] = run.bytes_per_s;
	runs->bytes += run.bytes;
	runs->cpu_ns += run.cpu_ns > idle->cpu_ns ? run.cpu_ns - idle->cpu_ns : 0;
	return 0;
}
