/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.h - what the user asked for and what came out
 *
 * Files: main (two processes) options (command line) start (an engine) prompt
 * and decoder (the two sides of the replay) w1 and w1_serve (the fixed workload
 * beside the machine's limit) report (table, JSON, progress); model, trace,
 * pool, content and talk below them.
 */
#ifndef DEMO_DEMO_H
#define DEMO_DEMO_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/kvpush.h>

#include "histogram.h"
#include "model.h"

#define DEMO_NAME            "kvpush-demo"
#define DEMO_PROMPT_CLUSTER  1U
#define DEMO_DECODER_CLUSTER 2U
#define DEMO_PUSH_TIMEOUT_MS 60000U
#define DEMO_ANSWER_WAIT_MS  60000U /* for the other process, which may be verifying GiBs */
#define DEMO_SETTINGS_MAX    16U
#define DEMO_NO_REQUEST      UINT32_MAX

/* How a part of the demo ended; the first function that knows has printed why. */
enum demo_end {
	DEMO_OK = 0,
	DEMO_FAILED = 1,
	DEMO_STOPPED = 2, /* by a signal */
};

/* Borrowed from the command line. */
struct demo_settings {
	const char *text[DEMO_SETTINGS_MAX];
	uint32_t count;
};

struct demo_options {
	const struct demo_model *model;
	const char *transport;  /* of kvp_config.transports */
	const char *trace_path; /* NULL: generated */
	uint64_t seed;
	uint32_t requests;
	uint32_t num_slots; /* of each side's cache */
	uint32_t lanes;
	uint32_t inflight;     /* requests between ask and done */
	uint32_t flip_request; /* flip a byte of the first push from here on; DEMO_NO_REQUEST */
	struct demo_settings prompt, decoder;
	bool is_json;
	bool has_w1;
};

struct demo_replay {
	uint64_t requests;
	uint64_t input_tokens, output_tokens; /* asked for by the trace */
	uint64_t cut_requests, cut_tokens;    /* did not fit half the cache */
	uint64_t blocks;                      /* input blocks of all requests */
	uint64_t prompt_reused, decoder_held; /* of them: not computed, not pushed */
	uint64_t prompt_evictions, decoder_evictions;
	uint64_t pushes, bytes, pieces, runs; /* of all pushes */
	uint64_t transport_requests;
	uint64_t wall_ns;                        /* first ask to last done */
	uint64_t busy_ns;                        /* of it: at least one push in flight */
	uint64_t cpu_ns;                         /* both processes, whole replay */
	uint64_t content_cpu_ns;                 /* of it: writing and checking content */
	uint64_t verified_bytes, wrong_bytes;    /* of pushes, on arrival */
	uint64_t swept_bytes, swept_wrong_bytes; /* of the decoder's cache, at the end */
	struct kvp_histogram latency;            /* ns, submit to terminal status */
	char path[sizeof(((struct kvp_link_info *)0)->path)];
};

struct demo_w1_result {
	bool has_run;
	char why[128]; /* has_run false */
	uint32_t rounds;
	uint64_t bytes;
	uint64_t engine_ns, limit_ns; /* medians */
	uint64_t engine_min_ns, limit_min_ns;
	uint64_t wrong_bytes;
	char limit_name[64];
};

/* Set by SIGINT and SIGTERM. */
extern volatile sig_atomic_t demo_stop;

#endif /* DEMO_DEMO_H */
