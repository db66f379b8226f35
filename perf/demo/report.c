/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "clock.h"

#define BAR_CELLS   30U
#define BAR_NS      100000000U
#define LINE_NS     2000000000U
#define GIB         (1024.0 * 1024.0 * 1024.0)
#define MIB         (1024.0 * 1024.0)
#define LABEL_WIDTH 16

static double
ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* bytes per ns = GB per s */
static double
gb_per_s(uint64_t bytes, uint64_t ns)
{
	return ratio((double)bytes, (double)ns);
}

static void
show(struct demo_progress *progress, size_t done, const struct demo_replay *replay)
{
	uint64_t elapsed_ns = demo_now_ns() - progress->start_ns;
	size_t cells = progress->total > 0 ? done * BAR_CELLS / progress->total : 0;
	char bar[BAR_CELLS + 1];

	for (size_t i = 0; i < BAR_CELLS; i++)
		bar[i] = i < cells ? '#' : '.';
	bar[BAR_CELLS] = '\0';
	if (progress->is_terminal > 0)
		(void)fprintf(stderr, "\r  [%s] %zu/%zu requests  %.2f GiB  %.1f s", bar, done,
			      progress->total, (double)replay->bytes / GIB,
			      (double)elapsed_ns / 1e9);
	else
		(void)fprintf(stderr, "%s: %zu of %zu requests, %.2f GiB pushed, %.1f s\n",
			      DEMO_NAME, done, progress->total, (double)replay->bytes / GIB,
			      (double)elapsed_ns / 1e9);
	progress->shown_ns = demo_now_ns();
}

void
demo_progress_show(struct demo_progress *progress, size_t done, const struct demo_replay *replay)
{
	uint64_t now_ns = demo_now_ns();

	if (progress->is_terminal == 0) {
		progress->is_terminal = isatty(STDERR_FILENO) != 0 ? 1 : -1;
		progress->start_ns = now_ns;
		progress->shown_ns = now_ns;
	}
	if (now_ns - progress->shown_ns >= (progress->is_terminal > 0 ? BAR_NS : LINE_NS))
		show(progress, done, replay);
}

void
demo_progress_end(struct demo_progress *progress, size_t done, const struct demo_replay *replay)
{
	if (progress->is_terminal == 0)
		return;
	show(progress, done, replay);
	if (progress->is_terminal > 0)
		(void)fputc('\n', stderr);
}

bool
demo_report_is_right(const struct demo_replay *replay, const struct demo_w1_result *w1)
{
	return replay->wrong_bytes == 0 && replay->swept_wrong_bytes == 0 && w1->wrong_bytes == 0 &&
	       replay->verified_bytes == replay->bytes;
}

static double
latency_ms(const struct demo_replay *r, double share)
{
	return (double)kvp_histogram_at(&r->latency, share) / 1e6;
}

static void
label(FILE *out, const char *name)
{
	(void)fprintf(out, "  %-*s", LABEL_WIDTH, name);
}

static void
table_requests(FILE *out, const struct demo_replay *r)
{
	label(out, "requests");
	(void)fprintf(out, "%lu of %lu input and %lu output tokens\n", (unsigned long)r->requests,
		      (unsigned long)r->input_tokens, (unsigned long)r->output_tokens);
	if (r->cut_requests > 0) {
		label(out, "cut off");
		(void)fprintf(out, "%lu tokens of %lu requests that exceed half the cache\n",
			      (unsigned long)r->cut_tokens, (unsigned long)r->cut_requests);
	}
	label(out, "blocks");
	(void)fprintf(out, "%lu; prompt had %.0f %%, decoder held %.0f %%; evicted %lu and %lu\n",
		      (unsigned long)r->blocks,
		      100 * ratio((double)r->prompt_reused, (double)r->blocks),
		      100 * ratio((double)r->decoder_held, (double)r->blocks),
		      (unsigned long)r->prompt_evictions, (unsigned long)r->decoder_evictions);
}

static void
table_pushes(FILE *out, const struct demo_replay *r)
{
	label(out, "pushed");
	(void)fprintf(out, "%.2f GiB in %lu pushes\n", (double)r->bytes / GIB,
		      (unsigned long)r->pushes);
	label(out, "rate");
	(void)fprintf(out, "%.2f GB/s while pushing, %.2f GB/s over the whole %.1f s\n",
		      gb_per_s(r->bytes, r->busy_ns), gb_per_s(r->bytes, r->wall_ns),
		      (double)r->wall_ns / 1e9);
	label(out, "push latency");
	(void)fprintf(out, "p50 %.1f ms, p99 %.1f ms, max %.1f ms\n", latency_ms(r, 0.5),
		      latency_ms(r, 0.99), (double)r->latency.max / 1e6);
	label(out, "merging");
	(void)fprintf(out, "%lu pieces in %lu runs, %.1f pieces per run\n",
		      (unsigned long)r->pieces, (unsigned long)r->runs,
		      ratio((double)r->pieces, (double)r->runs));
	label(out, "path");
	(void)fprintf(out, "%s\n", r->path);
	label(out, "CPU");
	(void)fprintf(out, "%.3f s per GiB, and %.3f s to write and check content\n",
		      ratio((double)(r->cpu_ns - r->content_cpu_ns) / 1e9, (double)r->bytes / GIB),
		      ratio((double)r->content_cpu_ns / 1e9, (double)r->bytes / GIB));
}

static void
table_w1(FILE *out, const struct demo_options *options, const struct demo_w1_result *w1)
{
	label(out, "W1");
	if (!w1->has_run) {
		(void)fprintf(out, "not run: %s\n", w1->why);
		return;
	}
	(void)fprintf(out, "%.0f MiB in 4096 scattered pieces of 32 KiB, median of %u\n",
		      (double)w1->bytes / MIB, w1->rounds);
	label(out, "");
	(void)fprintf(out, "engine over %s %.2f GB/s\n", options->transport,
		      gb_per_s(w1->bytes, w1->engine_ns));
	label(out, "");
	(void)fprintf(out, "%s %.2f GB/s\n", w1->limit_name, gb_per_s(w1->bytes, w1->limit_ns));
	label(out, "");
	(void)fprintf(out, "ratio %.2f\n", ratio((double)w1->limit_ns, (double)w1->engine_ns));
}

void
demo_report_table(FILE *out, const struct demo_options *options, const struct demo_replay *r,
		  const struct demo_w1_result *w1)
{
	const struct demo_model *model = options->model;

	(void)fprintf(out, "\n%s: %s\n", model->name, model->what);
	label(out, "caches");
	(void)fprintf(out, "2 x %u blocks of %u tokens, %u x %.0f KiB each, %.2f GiB a side\n",
		      options->num_slots, model->tokens_per_block, demo_model_tensors(model),
		      model->block_bytes / 1024.0,
		      (double)options->num_slots * (double)demo_model_slot_bytes(model) / GIB);
	table_requests(out, r);
	table_pushes(out, r);
	table_w1(out, options, w1);
	label(out, "verification");
	if (demo_report_is_right(r, w1))
		(void)fprintf(out, "every byte right: %.2f GiB on arrival, %.2f GiB at the end\n",
			      (double)r->verified_bytes / GIB, (double)r->swept_bytes / GIB);
	else
		(void)fprintf(out,
			      "WRONG: %lu bytes on arrival, %lu at the end, %lu in W1; "
			      "%lu of %lu bytes checked\n",
			      (unsigned long)r->wrong_bytes, (unsigned long)r->swept_wrong_bytes,
			      (unsigned long)w1->wrong_bytes, (unsigned long)r->verified_bytes,
			      (unsigned long)r->bytes);
}

static json_t *
json_w1(const struct demo_w1_result *w1)
{
	if (!w1->has_run)
		return json_pack("{s:b, s:s}", "has_run", 0, "why", w1->why);
	return json_pack("{s:b, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:I}", "has_run",
			 1, "rounds", (int)w1->rounds, "bytes", (json_int_t)w1->bytes, "engine_ns",
			 (json_int_t)w1->engine_ns, "limit_ns", (json_int_t)w1->limit_ns,
			 "engine_min_ns", (json_int_t)w1->engine_min_ns, "limit_min_ns",
			 (json_int_t)w1->limit_min_ns, "engine_gb_per_s",
			 gb_per_s(w1->bytes, w1->engine_ns), "limit_gb_per_s",
			 gb_per_s(w1->bytes, w1->limit_ns), "ratio",
			 ratio((double)w1->limit_ns, (double)w1->engine_ns), "limit",
			 w1->limit_name, "wrong_bytes", (json_int_t)w1->wrong_bytes);
}

/* A name and where its number is. */
struct json_number {
	const char *name;
	uint64_t value;
};

static json_t *
json_replay(const struct demo_replay *r)
{
	const struct json_number numbers[] = {
		{"requests", r->requests},
		{"input_tokens", r->input_tokens},
		{"output_tokens", r->output_tokens},
		{"cut_requests", r->cut_requests},
		{"cut_tokens", r->cut_tokens},
		{"blocks", r->blocks},
		{"prompt_reused_blocks", r->prompt_reused},
		{"decoder_held_blocks", r->decoder_held},
		{"prompt_evictions", r->prompt_evictions},
		{"decoder_evictions", r->decoder_evictions},
		{"pushes", r->pushes},
		{"bytes", r->bytes},
		{"pieces", r->pieces},
		{"runs", r->runs},
		{"transport_requests", r->transport_requests},
		{"wall_ns", r->wall_ns},
		{"busy_ns", r->busy_ns},
		{"cpu_ns", r->cpu_ns},
		{"content_cpu_ns", r->content_cpu_ns},
		{"latency_p50_ns", kvp_histogram_at(&r->latency, 0.5)},
		{"latency_p99_ns", kvp_histogram_at(&r->latency, 0.99)},
		{"latency_max_ns", r->latency.max},
		{"verified_bytes", r->verified_bytes},
		{"wrong_bytes", r->wrong_bytes},
		{"swept_bytes", r->swept_bytes},
		{"swept_wrong_bytes", r->swept_wrong_bytes},
	};
	json_t *object = json_pack(
		"{s:s, s:f, s:f}", "path", r->path, "busy_gb_per_s", gb_per_s(r->bytes, r->busy_ns),
		"cpu_s_per_gib",
		ratio((double)(r->cpu_ns - r->content_cpu_ns) / 1e9, (double)r->bytes / GIB));

	for (size_t i = 0; object != NULL && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (json_object_set_new(object, numbers[i].name,
					json_integer((json_int_t)numbers[i].value)) == 0)
			continue;
		json_decref(object);
		object = NULL;
	}
	return object;
}

int
demo_report_json(FILE *out, const struct demo_options *options, const struct demo_replay *replay,
		 const struct demo_w1_result *w1)
{
	/* json_pack takes both objects over, also when it fails or one is NULL. */
	json_t *all = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:b, s:o, s:o}", "model", options->model->name,
		"transport", options->transport, "trace",
		options->trace_path == NULL ? "generated" : options->trace_path, "seed",
		(json_int_t)options->seed, "blocks_per_side", (json_int_t)options->num_slots,
		"lanes", (int)options->lanes, "inflight", (int)options->inflight, "verified",
		demo_report_is_right(replay, w1), "replay", json_replay(replay), "w1", json_w1(w1));
	int rc = -1;

	if (all != NULL)
		rc = json_dumpf(all, out, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(all);
	return rc == 0 && fputc('\n', out) != EOF && fflush(out) == 0 ? 0 : -1;
}
