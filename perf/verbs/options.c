/* SPDX-License-Identifier: Apache-2.0 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum key {
	KEY_TRANSPORT = 256,
	KEY_SIZES,
	KEY_QPS,
	KEY_PATTERNS,
	KEY_RUNS,
	KEY_RUN_MS,
	KEY_PUSH_MIB,
	KEY_INFLIGHT,
	KEY_SET,
	KEY_SENDER,
	KEY_RECEIVER,
	KEY_REFERENCE,
	KEY_NO_REFERENCE,
	KEY_NO_DUEL,
	KEY_PORT,
	KEY_GID,
	KEY_POST_LIST,
	KEY_AT_LEAST,
	KEY_JSON,
};

static const struct argp_option table[] = {
	{"sender-device", KEY_SENDER, "NAME", 0, "device of the sending engine, default rxe0", 0},
	{"receiver-device", KEY_RECEIVER, "NAME", 0, "device of the receiving engine, default rxe1",
	 0},
	{"sizes", KEY_SIZES, "LIST", 0,
	 "bytes of a piece, e.g. 4k,16k,1m; default 4k,16k,64k,256k,1m", 0},
	{"patterns", KEY_PATTERNS, "LIST", 0, "of scattered,gathered,merged; default all", 0},
	{"qps", KEY_QPS, "LIST", 0, "QPs of the rail, default 1,2", 0},
	{"runs", KEY_RUNS, "N", 0, "of each program per row, in turn, default 3", 0},
	{"run-ms", KEY_RUN_MS, "MS", 0, "time of one run of the engine, default 1000", 0},
	{"push-mib", KEY_PUSH_MIB, "MIB", 0, "of one push, default 16", 0},
	{"inflight", KEY_INFLIGHT, "N", 0, "pushes at once, default 2", 0},
	{"set", KEY_SET, "KEY=VALUE", 0, "any setting of both engines; may be repeated", 0},
	{"transport", KEY_TRANSPORT, "NAME", 0,
	 "default verbs; another one is compared only when --reference is given", 0},
	{"reference", KEY_REFERENCE, "PROGRAM", 0, "default ib_write_bw", 0},
	{"no-reference", KEY_NO_REFERENCE, NULL, 0, "measure the engine alone", 0},
	{"no-duel", KEY_NO_DUEL, NULL, 0, "leave out gather list against one piece per request", 0},
	{"port", KEY_PORT, "PORT", 0, "first port of ib_write_bw, default 18515", 0},
	{"gid-index", KEY_GID, "INDEX", 0,
	 "of ib_write_bw; default: its own choice. The engine's is --set verbs_gid_index=INDEX", 0},
	{"post-list", KEY_POST_LIST, "N", 0,
	 "requests per doorbell of ib_write_bw (-l) in the rows; default 1 as its own", 0},
	{"at-least", KEY_AT_LEAST, "RATIO", 0,
	 "fail when a row of 16 KiB or more is slower than RATIO x ib_write_bw", 0},
	{"json", KEY_JSON, NULL, 0, "one JSON object per line", 0},
	{0},
};

static uint64_t
number(struct argp_state *state, const char *text, const char **end_out, uint64_t least,
       uint64_t most)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9')
		argp_error(state, "'%s' is no number", text);
	if (*end == 'k' || *end == 'm') {
		unsigned int shift = *end == 'k' ? 10 : 20;

		value = value > most ? value : value << shift;
		end++;
	}
	if (value < least || value > most)
		argp_error(state, "'%s' is not in [%llu, %llu]", text, (unsigned long long)least,
			   (unsigned long long)most);
	if (end_out == NULL && *end != '\0')
		argp_error(state, "'%s' is no number", text);
	if (end_out != NULL)
		*end_out = end;
	return value;
}

static uint32_t
small_number(struct argp_state *state, const char *text, uint32_t least, uint32_t most)
{
	return (uint32_t)number(state, text, NULL, least, most);
}

static uint32_t
list(struct argp_state *state, const char *text, uint64_t *out, uint32_t room, uint64_t least,
     uint64_t most)
{
	const char *at = text;
	uint32_t count = 0;

	for (;;) {
		if (count == room)
			argp_error(state, "'%s' has more than %u entries", text, room);
		out[count++] = number(state, at, &at, least, most);
		if (*at == '\0')
			return count;
		if (*at++ != ',')
			argp_error(state, "'%s' is no list of numbers", text);
	}
}

static void
patterns(struct argp_state *state, const char *text, bool *has)
{
	const char *at = text;

	memset(has, 0, BENCH_PATTERNS * sizeof(*has));
	for (;;) {
		size_t bytes = strcspn(at, ",");
		uint32_t i = 0;

		while (i < BENCH_PATTERNS &&
		       (strlen(bench_pattern_name((enum bench_pattern)i)) != bytes ||
			strncmp(at, bench_pattern_name((enum bench_pattern)i), bytes) != 0))
			i++;
		if (i == BENCH_PATTERNS)
			argp_error(state, "'%s': patterns are scattered, gathered, merged", text);
		else
			has[i] = true;
		if (at[bytes] == '\0')
			return;
		at += bytes + 1;
	}
}

static void
parse_qps(struct argp_state *state, const char *text, struct bench_options *options)
{
	uint64_t qps[BENCH_QPS_MAX];

	options->qps_count = list(state, text, qps, BENCH_QPS_MAX, 1, 8);
	for (uint32_t i = 0; i < options->qps_count; i++)
		options->qps[i] = (uint32_t)qps[i];
}

static void
parse_ratio(struct argp_state *state, const char *text, struct bench_options *options)
{
	char *end;

	options->at_least = strtod(text, &end);
	if (end == text || *end != '\0' || !(options->at_least > 0 && options->at_least < 100))
		argp_error(state, "'%s' is no ratio", text);
}

static void
parse_setting(struct argp_state *state, const char *text, struct bench_options *options)
{
	if (options->extras == BENCH_EXTRA_MAX)
		argp_error(state, "more than %u settings", BENCH_EXTRA_MAX);
	else
		options->extra[options->extras++] = text;
}

/* lint: long - one case per option */
static error_t
parse_one(int key, char *value, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case KEY_SENDER:
		options->sender_device = value;
		return 0;
	case KEY_RECEIVER:
		options->receiver_device = value;
		return 0;
	case KEY_SIZES:
		options->sizes = list(state, value, options->size, BENCH_SIZES_MAX, 64, 8U << 20);
		return 0;
	case KEY_PATTERNS:
		patterns(state, value, options->has_pattern);
		return 0;
	case KEY_QPS:
		parse_qps(state, value, options);
		return 0;
	case KEY_RUNS:
		options->runs = small_number(state, value, 1, BENCH_RUNS_MAX);
		return 0;
	case KEY_RUN_MS:
		options->run_ns = number(state, value, NULL, 10, 60000) * 1000000U;
		return 0;
	case KEY_PUSH_MIB:
		options->push_bytes = number(state, value, NULL, 1, 4096) << 20;
		return 0;
	case KEY_INFLIGHT:
		options->inflight = small_number(state, value, 1, BENCH_INFLIGHT_MAX);
		return 0;
	case KEY_SET:
		parse_setting(state, value, options);
		return 0;
	case KEY_TRANSPORT:
		options->transport = value;
		return 0;
	case KEY_REFERENCE:
		options->reference = value;
		return 0;
	case KEY_NO_REFERENCE:
		options->has_reference = false;
		return 0;
	case KEY_NO_DUEL:
		options->has_duel = false;
		return 0;
	case KEY_PORT:
		options->reference_port = small_number(state, value, 1024, 60000);
		return 0;
	case KEY_GID:
		options->gid_index = (int32_t)small_number(state, value, 0, 255);
		return 0;
	case KEY_POST_LIST:
		options->post_list = small_number(state, value, 1, 128);
		return 0;
	case KEY_AT_LEAST:
		parse_ratio(state, value, options);
		return 0;
	case KEY_JSON:
		options->is_json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", value);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void
bench_options_parse(struct bench_options *options, int argc, char **argv)
{
	static const struct argp argp = {
		.options = table,
		.parser = parse_one,
		.doc = "Pushes over one verbs rail, two processes, beside ib_write_bw on the same rail.",
	};

	*options = (struct bench_options){
		.transport = "verbs",
		.sender_device = "rxe0",
		.receiver_device = "rxe1",
		.size = {4096, 16384, 65536, 262144, 1048576},
		.sizes = 5,
		.qps = {1, 2},
		.qps_count = 2,
		.has_pattern = {true, true, true},
		.has_duel = true,
		.has_reference = true,
		.runs = 3,
		.inflight = 2,
		.run_ns = 1000000000U,
		.push_bytes = 16U << 20,
		.reference_port = 18515,
		.post_list = 1,
		.gid_index = -1,
	};
	(void)argp_parse(&argp, argc, argv, 0, NULL, options);
	if (strcmp(options->transport, "verbs") != 0) {
		options->has_reference = options->reference != NULL && options->has_reference;
		options->has_duel = false;
	}
	if (options->reference == NULL)
		options->reference = "ib_write_bw";
}
