/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The demo's request traces.
 * links: perf/demo/trace.o engine/check.o
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../perf/demo/trace.h"

#define LINE_1 \
	"{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [0, 1, 2]}\n"
#define LINE_2 \
	"{\"timestamp\": 27, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [0]}\n"

struct text {
	char path[64];
	struct demo_trace trace;
	char error[DEMO_TEXT_MAX];
};

/* Load `content` from a file of its own. */
static int
load(struct text *text, const char *content, size_t max)
{
	FILE *file;
	int fd, rc;

	(void)snprintf(text->path, sizeof(text->path), "/tmp/kvpush-trace.XXXXXX");
	fd = mkstemp(text->path);
	assert_true(fd >= 0);
	file = fdopen(fd, "w");
	assert_non_null(file);
	assert_true(fputs(content, file) >= 0);
	assert_int_equal(fclose(file), 0);
	text->error[0] = '\0';
	rc = demo_trace_load(&text->trace, text->path, max, text->error);
	assert_int_equal(unlink(text->path), 0);
	return rc;
}

static void
load__refuses_what_is_not_a_request(void **state)
{
	/* the second line of each file, and what the message must name */
	static const char *const bad[][2] = {
		{"hello\n", ":2: "},
		{"[1, 2]\n", "not a JSON object"},
		{"{\"timestamp\": 0}\n", "\"input_length\" is missing"},
		{"{\"timestamp\": 1, \"timestamp\": 2}\n", "uplicate"},
		{"{\"timestamp\": -1, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [0]}\n",
		 "\"timestamp\" -1 is not in [0, "},
		{"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}\n",
		 "\"input_length\" 0 is not in [1, 16777216]"},
		{"{\"timestamp\": 0, \"input_length\": 1.5, \"output_length\": 1, \"hash_ids\": [0]}\n",
		 "\"input_length\" is missing or not an integer"},
		{"{\"timestamp\": 0, \"input_length\": 16777217, \"output_length\": 1, \"hash_ids\": [0]}\n",
		 "16777217 is not in"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": -1, \"hash_ids\": [0]}\n",
		 "\"output_length\" -1"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1}\n",
		 "\"hash_ids\" is missing or not an array"},
		{"{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [0]}\n",
		 "\"hash_ids\" has 1 entries, input_length 513 needs 2"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [-4]}\n",
		 "hash_ids[0] is not an integer in [0, 2^48)"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [281474976710656]}\n",
		 "hash_ids[0]"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [\"a\"]}\n",
		 "hash_ids[0]"},
		{"{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [0]} x\n",
		 ":2: "},
	};
	struct text text;
	char content[512], where[80];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(content, sizeof(content), LINE_1 "%s", bad[i][0]);
		assert_int_equal(load(&text, content, 0), -1);
		(void)snprintf(where, sizeof(where), "%s:2: ", text.path);
		assert_memory_equal(text.error, where, strlen(where));
		assert_non_null(strstr(text.error, bad[i][1]));
		assert_null(text.trace.requests);
		assert_int_equal(text.trace.count, 0);
	}
}

static void
load__refuses_files_without_requests(void **state)
{
	struct text text;

	(void)state;
	assert_int_equal(load(&text, "", 0), -1);
	assert_non_null(strstr(text.error, "no request"));
	assert_int_equal(load(&text, "\n  \n", 0), -1);
	assert_int_equal(demo_trace_load(&text.trace, "/nonexistent/trace", 0, text.error), -1);
	assert_string_equal(text.error, "/nonexistent/trace: No such file or directory");
	assert_int_equal(demo_trace_load(&text.trace, "/", 0, text.error), -1);
}

static void
load__reads_requests(void **state)
{
	struct text text;

	(void)state;
	assert_int_equal(load(&text, LINE_1 "\n" LINE_2, 0), 0);
	assert_int_equal(text.trace.count, 2);
	assert_int_equal(text.trace.num_hashes, 4);
	assert_int_equal(text.trace.requests[0].input_tokens, 1100);
	assert_int_equal(text.trace.requests[0].output_tokens, 7);
	assert_int_equal(text.trace.requests[0].num_hashes, 3);
	assert_int_equal(text.trace.requests[1].timestamp_ms, 27);
	assert_int_equal(text.trace.requests[1].first_hash, 3);
	demo_trace_fini(&text.trace);
	assert_int_equal(load(&text, LINE_1 LINE_2 "not looked at", 2), 0);
	assert_int_equal(text.trace.count, 2);
	demo_trace_fini(&text.trace);
}

static void
keys__follow_the_prefix(void **state)
{
	struct text text;
	uint64_t a[128], b[128];

	(void)state;
	assert_int_equal(load(&text, LINE_1 LINE_2, 0), 0);
	assert_int_equal(demo_trace_keys(&text.trace, &text.trace.requests[0], 16, 128, a), 69);
	assert_int_equal(demo_trace_keys(&text.trace, &text.trace.requests[1], 16, 128, b), 32);
	assert_memory_equal(a, b, 32 * sizeof(a[0]));
	for (uint32_t i = 0; i < 69; i++)
		assert_int_equal(a[i], i + 1); /* hashes 0, 1, 2, so no two keys are equal */
	assert_int_equal(demo_trace_keys(&text.trace, &text.trace.requests[0], 64, 128, a), 18);
	assert_int_equal(a[17], 18);
	assert_int_equal(demo_trace_keys(&text.trace, &text.trace.requests[0], 16, 5, a), 5);
	demo_trace_fini(&text.trace);
}

static void
blocks__round_up(void **state)
{
	(void)state;
	assert_int_equal(demo_trace_blocks(0, 16), 0);
	assert_int_equal(demo_trace_blocks(1, 16), 1);
	assert_int_equal(demo_trace_blocks(16, 16), 1);
	assert_int_equal(demo_trace_blocks(17, 16), 2);
	assert_int_equal(demo_trace_blocks(UINT32_MAX, 16), 1U << 28);
}

/* The share of hashes that an unbounded prefix cache would hold. */
static double
reused_share(const struct demo_trace *trace, uint64_t hash_max)
{
	uint8_t *is_seen = calloc(hash_max + 1, 1);
	size_t reused = 0;

	assert_non_null(is_seen);
	for (size_t i = 0; i < trace->num_hashes; i++) {
		assert_in_range(trace->hashes[i], 0, hash_max);
		reused += is_seen[trace->hashes[i]];
		is_seen[trace->hashes[i]] = 1;
	}
	free(is_seen);
	return (double)reused / (double)trace->num_hashes;
}

/* The public trace: mean input 12,035, median 6,909, 29 % of its first 2,000 requests reused. */
static void
generate__has_the_statistics_of_the_public_trace(void **state)
{
	struct demo_trace trace;
	char error[DEMO_TEXT_MAX];
	uint64_t input = 0, output = 0, below_median = 0;
	double share;

	(void)state;
	assert_int_equal(demo_trace_generate(&trace, 7, 2000, error), 0);
	assert_int_equal(trace.count, 2000);
	for (size_t i = 0; i < trace.count; i++) {
		const struct demo_request *r = &trace.requests[i];

		assert_in_range(r->input_tokens, 891, 126195);
		assert_in_range(r->output_tokens, 1, 2000);
		assert_int_equal(r->num_hashes, (r->input_tokens + 511) / 512);
		assert_int_equal(trace.hashes[r->first_hash], 0);
		input += r->input_tokens;
		output += r->output_tokens;
		below_median += r->input_tokens < 6909;
	}
	assert_in_range(input / 2000, 10500, 14500);
	assert_in_range(output / 2000, 280, 400);
	assert_in_range(below_median, 900, 1100);
	share = reused_share(&trace, trace.num_hashes);
	assert_true(share > 0.24 && share < 0.34);
	demo_trace_fini(&trace);
}

static void
generate__is_the_same_for_the_same_seed(void **state)
{
	struct demo_trace a, b, c;
	char error[DEMO_TEXT_MAX];

	(void)state;
	assert_int_equal(demo_trace_generate(&a, 7, 50, error), 0);
	assert_int_equal(demo_trace_generate(&b, 7, 50, error), 0);
	assert_int_equal(demo_trace_generate(&c, 8, 50, error), 0);
	assert_memory_equal(a.requests, b.requests, 50 * sizeof(*a.requests));
	assert_int_equal(a.num_hashes, b.num_hashes);
	assert_memory_equal(a.hashes, b.hashes, a.num_hashes * sizeof(*a.hashes));
	assert_memory_not_equal(a.requests, c.requests, 50 * sizeof(*a.requests));
	demo_trace_fini(&a);
	demo_trace_fini(&b);
	demo_trace_fini(&c);
}

/* A key stands for a prefix: the hash before a hash is always the same one. */
static void
generate__equal_hashes_have_equal_prefixes(void **state)
{
	struct demo_trace trace;
	char error[DEMO_TEXT_MAX];
	uint64_t *before;

	(void)state;
	assert_int_equal(demo_trace_generate(&trace, 3, 500, error), 0);
	before = calloc(trace.num_hashes + 1, sizeof(*before));
	assert_non_null(before);
	for (size_t i = 0; i < trace.count; i++) {
		const uint64_t *hashes = &trace.hashes[trace.requests[i].first_hash];

		for (uint32_t h = 1; h < trace.requests[i].num_hashes; h++) {
			uint64_t *known = &before[hashes[h]];

			assert_true(*known == 0 || *known == hashes[h - 1] + 1);
			*known = hashes[h - 1] + 1;
		}
	}
	free(before);
	demo_trace_fini(&trace);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(load__refuses_what_is_not_a_request),
		cmocka_unit_test(load__refuses_files_without_requests),
		cmocka_unit_test(load__reads_requests),
		cmocka_unit_test(keys__follow_the_prefix),
		cmocka_unit_test(blocks__round_up),
		cmocka_unit_test(generate__has_the_statistics_of_the_public_trace),
		cmocka_unit_test(generate__is_the_same_for_the_same_seed),
		cmocka_unit_test(generate__equal_hashes_have_equal_prefixes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
