/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <jansson.h>

#include "bench.h"

static void
print_json(json_t *object)
{
	if (object != NULL &&
	    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) == 0)
		(void)putchar('\n');
	json_decref(object);
	(void)fflush(stdout);
}

static json_t *
json_runs(const struct bench_runs *runs)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < runs->runs; i++)
		(void)json_array_append_new(all, json_real(runs->bytes_per_s[i] / 1e9));
	return json_pack("{s:f, s:f, s:o}", "gb_per_s", bench_median(runs) / 1e9, "cpu_s_per_gib",
			 bench_per_gib(runs, (double)runs->cpu_ns / 1e9), "runs_gb_per_s", all);
}

static const char *
size_text(uint64_t bytes, char *text, size_t room)
{
	if (bytes % (1U << 20) == 0)
		(void)snprintf(text, room, "%llu MiB", (unsigned long long)(bytes >> 20));
	else if (bytes % 1024 == 0)
		(void)snprintf(text, room, "%llu KiB", (unsigned long long)(bytes >> 10));
	else
		(void)snprintf(text, room, "%llu B", (unsigned long long)bytes);
	return text;
}

void
bench_print_head(const struct bench_options *options, const char *path)
{
	if (options->is_json)
		return;
	(void)printf("path %s\n", path);
	(void)printf("%u runs of %llu ms each, in turn; %llu MiB per push, %u at once\n",
		     options->runs, (unsigned long long)(options->run_ns / 1000000U),
		     (unsigned long long)(options->push_bytes >> 20), options->inflight);
	(void)printf("%-9s %8s %3s | %7s %7s %6s | %9s %9s %9s %9s | %6s %6s\n", "", "", "", "GB/s",
		     "", "", "per GiB", "", "", "", "CPU s", "/ GiB");
	(void)printf("%-9s %8s %3s | %7s %7s %6s | %9s %9s %9s %9s | %6s %6s\n", "pattern", "piece",
		     "QPs", "kvpush", "ib_w_bw", "ratio", "requests", "SGEs", "doorbells",
		     "complet.", "kvpush", "ib_w_b");
	(void)fflush(stdout);
}

static json_t *
json_row(const struct bench_row *row)
{
	const struct bench_runs *engine = &row->engine;
	const struct bench_totals *totals = &engine->totals;
	json_t *object = json_pack(
		"{s:s, s:I, s:i, s:o, s:f, s:f, s:f, s:f, s:I}", "pattern",
		bench_pattern_name(row->pattern), "piece_bytes", (json_int_t)row->piece_bytes,
		"qps", (int)row->qps, "kvpush", json_runs(engine), "requests_per_gib",
		bench_per_gib(engine, (double)totals->requests), "sges_per_gib",
		bench_per_gib(engine, (double)totals->gathered), "doorbells_per_gib",
		bench_per_gib(engine, (double)totals->doorbells), "completions_per_gib",
		bench_per_gib(engine, (double)totals->completions), "replayed",
		(json_int_t)totals->replayed);

	if (object != NULL && row->reference.runs > 0) {
		(void)json_object_set_new(object, "ib_write_bw", json_runs(&row->reference));
		(void)json_object_set_new(object, "ratio",
					  json_real(bench_ratio(engine, &row->reference)));
	}
	return object;
}

void
bench_print_row(const struct bench_options *options, const struct bench_row *row)
{
	const struct bench_runs *engine = &row->engine;
	const struct bench_totals *totals = &engine->totals;
	char size[32], rate[16] = "-", part[16] = "-", cpu[16] = "-";

	if (options->is_json) {
		print_json(json_row(row));
		return;
	}
	if (row->reference.runs > 0) {
		(void)snprintf(rate, sizeof(rate), "%.3f", bench_median(&row->reference) / 1e9);
		(void)snprintf(part, sizeof(part), "%.3f", bench_ratio(engine, &row->reference));
		(void)snprintf(cpu, sizeof(cpu), "%.2f",
			       bench_per_gib(&row->reference, (double)row->reference.cpu_ns / 1e9));
	}
	(void)printf("%-9s %8s %3u | %7.3f %7s %6s | %9.0f %9.0f %9.0f %9.0f | %6.2f %6s\n",
		     bench_pattern_name(row->pattern),
		     size_text(row->piece_bytes, size, sizeof(size)), row->qps,
		     bench_median(engine) / 1e9, rate, part,
		     bench_per_gib(engine, (double)totals->requests),
		     bench_per_gib(engine, (double)totals->gathered),
		     bench_per_gib(engine, (double)totals->doorbells),
		     bench_per_gib(engine, (double)totals->completions),
		     bench_per_gib(engine, (double)engine->cpu_ns / 1e9), cpu);
	if (totals->replayed > 0)
		(void)printf("  %llu requests were made again: a QP broke\n",
			     (unsigned long long)totals->replayed);
	(void)fflush(stdout);
}

static double
requests_per_gib(const struct bench_runs *runs)
{
	return bench_per_gib(runs, (double)runs->totals.requests);
}

static json_t *
json_duel(const struct bench_duel *duel)
{
	return json_pack(
		"{s:s, s:I, s:i, s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "pattern", "gather list",
		"piece_bytes", (json_int_t)duel->piece_bytes, "qps", (int)duel->qps, "gathered",
		json_runs(&duel->gathered), "single", json_runs(&duel->single),
		"planned_requests_factor",
		(double)duel->single_requests / (double)duel->plan.requests, "requests_factor",
		requests_per_gib(&duel->single) / requests_per_gib(&duel->gathered), "request_ns",
		duel->request_ns, "byte_ns", duel->byte_ns, "predicted_factor", duel->predicted,
		"factor", bench_ratio(&duel->gathered, &duel->single));
}

void
bench_print_duel(const struct bench_options *options, const struct bench_duel *duel)
{
	static const char form[] = "  %-36s %9.*f %9.*f %9.2f%s\n";
	char piece[32];

	if (options->is_json) {
		print_json(json_duel(duel));
		return;
	}
	(void)printf("\ngather list against one piece per request: %s pieces, contiguous "
		     "destinations, %u QPs\n",
		     size_text(duel->piece_bytes, piece, sizeof(piece)), duel->qps);
	(void)printf("  %-36s %9s %9s %9s\n", "", "gathered", "single", "factor");
	(void)printf(form, "requests of a push, as planned", 0, (double)duel->plan.requests, 0,
		     (double)duel->single_requests,
		     (double)duel->single_requests / (double)duel->plan.requests, "");
	(void)printf(form, "requests per GiB, as counted", 0, requests_per_gib(&duel->gathered), 0,
		     requests_per_gib(&duel->single),
		     requests_per_gib(&duel->single) / requests_per_gib(&duel->gathered), "");
	if (duel->predicted > 0) {
		(void)printf(
			"  a request of ib_write_bw -l 16 takes %.0f ns and %.3f ns per byte\n",
			duel->request_ns, duel->byte_ns);
		(void)printf(form, "us of a push, without its bytes", 1,
			     (double)duel->plan.gather_ns / 1e3, 1,
			     (double)duel->plan.single_ns / 1e3, duel->predicted,
			     "  predicted, with its bytes");
	}
	(void)printf(form, "GB/s", 3, bench_median(&duel->gathered) / 1e9, 3,
		     bench_median(&duel->single) / 1e9, bench_ratio(&duel->gathered, &duel->single),
		     "  measured");
	(void)fflush(stdout);
}
