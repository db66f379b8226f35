/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limit.h"

/* From the top of the tree; used when it is there. */
#define PUBLIC_TRACE   "../shared/data/conversation_trace.jsonl"
#define MIB            (1024ULL * 1024)
#define SIDE_BYTES_MAX (3072 * MIB)
#define MEMORY_SHARE   8 /* of what is available, a side gets one part */
#define SLOTS_MIN      16U
#define SLOTS_MAX      (1U << 24)
#define CACHE_MIB_MAX  (1U << 20)
#define LANES_MAX      16U
#define INFLIGHT_MAX   64U
#define REQUESTS_MAX   10000000U

enum option_key {
	KEY_CACHE_MIB = 256,
	KEY_LANES,
	KEY_INFLIGHT,
	KEY_JSON,
	KEY_GENERATE,
	KEY_SKIP_W1,
	KEY_FLIP,
	KEY_PROMPT,
	KEY_DECODER,
};

struct parsing {
	struct demo_options *options;
	uint32_t cache_mib;
	bool is_generated;
};

static const struct argp_option option_list[] = {
	{"model", 'm', "NAME", 0, "llama-3-8b (default), deepseek-v3, qwen3-32b or llama-3-70b-tp8",
	 0},
	{"transport", 't', "NAME", 0, "shm (default), tcp or verbs", 0},
	{"trace", 'f', "FILE", 0, "requests, one JSON object a line; default " PUBLIC_TRACE, 0},
	{"generate", KEY_GENERATE, NULL, 0, "use generated requests even where that file is", 0},
	{"requests", 'n', "N", 0, "stop after N; default depends on the model", 0},
	{"seed", 's', "N", 0, "of content, generated requests and W1; default 1", 0},
	{"cache-mib", KEY_CACHE_MIB, "MIB", 0,
	 "of each side; default an eighth of the available memory, at most 3072", 0},
	{"lanes", KEY_LANES, "N", 0, "polling threads of each engine, default 1", 0},
	{"inflight", KEY_INFLIGHT, "N", 0, "requests under way at once, default 4", 0},
	{"prompt", KEY_PROMPT, "KEY=VALUE", 0,
	 "a setting of the prompt's engine, as verbs_devices=mlx5_0; may be repeated", 0},
	{"decoder", KEY_DECODER, "KEY=VALUE", 0, "the same of the decoder's", 0},
	{"json", KEY_JSON, NULL, 0, "print one JSON object instead of the table", 0},
	{"skip-w1", KEY_SKIP_W1, NULL, 0, "only the replay", 0},
	{"flip-byte", KEY_FLIP, "N", 0,
	 "spoil a byte of the first push from request N on, to see that it is found", 0},
	{0},
};

/* A whole decimal number in [low, high], or an error that ends the program. */
static uint64_t
number(struct argp_state *state, const char *what, const char *text, uint64_t high)
{
	char *end = NULL;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value > high)
		argp_error(state, "--%s=%s: not a number in [0, %llu]", what, text,
			   (unsigned long long)high);
	return value;
}

static uint32_t
count(struct argp_state *state, const char *what, const char *text, uint32_t high)
{
	uint32_t value = (uint32_t)number(state, what, text, high);

	if (value == 0)
		argp_error(state, "--%s=%s: not a number in [1, %u]", what, text, high);
	return value;
}

static void
set_model(struct argp_state *state, struct demo_options *options, const char *name)
{
	options->model = demo_model_find(name);
	if (options->model == NULL)
		argp_error(state,
			   "--model=%s: there is llama-3-8b, deepseek-v3, qwen3-32b and "
			   "llama-3-70b-tp8",
			   name);
}

static void
set_transport(struct argp_state *state, struct demo_options *options, const char *name)
{
	if (strcmp(name, "shm") != 0 && strcmp(name, "tcp") != 0 && strcmp(name, "verbs") != 0)
		argp_error(state, "--transport=%s: there is shm, tcp and verbs", name);
	options->transport = name;
}

/* Tried out here, so that a wrong one is an error before anything starts. */
static void
add_setting(struct argp_state *state, struct demo_settings *settings, const char *text)
{
	struct kvp_config config;

	kvp_config_init(&config);
	if (kvp_config_set(&config, text) != KVP_SUCCESS)
		argp_error(state, "%s", kvp_error_message());
	if (settings->count == DEMO_SETTINGS_MAX)
		argp_error(state, "more than %u settings of one engine", DEMO_SETTINGS_MAX);
	settings->text[settings->count++] = text;
}

static error_t
parse_one(int key, char *value, struct argp_state *state)
{
	struct parsing *parsing = state->input;
	struct demo_options *options = parsing->options;

	switch (key) {
	case 'm':
		set_model(state, options, value);
		break;
	case 't':
		set_transport(state, options, value);
		break;
	case 'f':
		options->trace_path = value;
		break;
	case 'n':
		options->requests = count(state, "requests", value, REQUESTS_MAX);
		break;
	case 's':
		options->seed = number(state, "seed", value, INT64_MAX);
		break;
	case KEY_CACHE_MIB:
		parsing->cache_mib = count(state, "cache-mib", value, CACHE_MIB_MAX);
		break;
	case KEY_LANES:
		options->lanes = count(state, "lanes", value, LANES_MAX);
		break;
	case KEY_INFLIGHT:
		options->inflight = count(state, "inflight", value, INFLIGHT_MAX);
		break;
	case KEY_PROMPT:
		add_setting(state, &options->prompt, value);
		break;
	case KEY_DECODER:
		add_setting(state, &options->decoder, value);
		break;
	case KEY_JSON:
		options->is_json = true;
		break;
	case KEY_GENERATE:
		parsing->is_generated = true;
		break;
	case KEY_SKIP_W1:
		options->has_w1 = false;
		break;
	case KEY_FLIP:
		options->flip_request = (uint32_t)number(state, "flip-byte", value, REQUESTS_MAX);
		break;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", value);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void
size_caches(const struct parsing *parsing)
{
	struct demo_options *options = parsing->options;
	uint64_t slot_bytes = demo_model_slot_bytes(options->model);
	uint64_t available = limit_memory_available();
	uint64_t bytes = parsing->cache_mib * MIB;
	uint64_t slots;

	if (bytes == 0)
		bytes = available / MEMORY_SHARE < SIDE_BYTES_MAX ? available / MEMORY_SHARE
								  : SIDE_BYTES_MAX;
	slots = bytes / slot_bytes;
	if (slots < SLOTS_MIN) {
		(void)fprintf(stderr,
			      "%s: a cache of %llu MiB holds %llu blocks of %s, at least %u are "
			      "needed: give --cache-mib=%llu (%llu MiB of memory are available)\n",
			      DEMO_NAME, (unsigned long long)(bytes / MIB),
			      (unsigned long long)slots, options->model->name, SLOTS_MIN,
			      (unsigned long long)(SLOTS_MIN * slot_bytes / MIB + 1),
			      (unsigned long long)(available / MIB));
		exit(EXIT_FAILURE);
	}
	options->num_slots = slots < SLOTS_MAX ? (uint32_t)slots : SLOTS_MAX;
}

void
demo_options_parse(int argc, char **argv, struct demo_options *options_out)
{
	static const struct argp argp = {
		.options = option_list,
		.parser = parse_one,
		.doc = "Replays requests between a prompt and a decoder process on this host, "
		       "pushes the blocks that the decoder lacks, verifies every byte, and "
		       "compares a fixed push with what the machine can do.",
	};
	struct parsing parsing = {.options = options_out};

	*options_out = (struct demo_options){
		.model = demo_model_at(0),
		.transport = "shm",
		.seed = 1,
		.lanes = 1,
		.inflight = 4,
		.flip_request = DEMO_NO_REQUEST,
		.has_w1 = true,
	};
	(void)argp_parse(&argp, argc, argv, 0, NULL, &parsing);
	if (options_out->requests == 0)
		options_out->requests = options_out->model->requests;
	if (parsing.is_generated)
		options_out->trace_path = NULL;
	else if (options_out->trace_path == NULL && access(PUBLIC_TRACE, R_OK) == 0)
		options_out->trace_path = PUBLIC_TRACE;
	/* What RDMA can do is measured beside perftest's programs, not beside a copy loop. */
	if (strcmp(options_out->transport, "verbs") == 0)
		options_out->has_w1 = false;
	size_caches(&parsing);
}
