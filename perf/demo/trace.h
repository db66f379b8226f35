/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - the requests to replay
 *
 * A line of a trace file is a JSON object with timestamp (ms), input_length and
 * output_length (tokens) and hash_ids: one number per 512 input tokens, equal
 * for two requests exactly where their prefixes are equal. This is the format
 * of the traces published with Mooncake (FAST'25).
 *
 * Ownership:  load and generate allocate, fini frees
 */
#ifndef DEMO_TRACE_H
#define DEMO_TRACE_H

#include <stddef.h>
#include <stdint.h>

#define DEMO_HASH_TOKENS 512U /* input tokens per hash */
#define DEMO_TEXT_MAX    512U /* bytes of an error line, with its NUL */

struct demo_request {
	uint64_t timestamp_ms;
	uint32_t input_tokens;
	uint32_t output_tokens;
	uint32_t num_hashes; /* input_tokens / 512, rounded up */
	size_t first_hash;   /* into the trace's hashes */
};

struct demo_trace {
	struct demo_request *requests;
	uint64_t *hashes;
	size_t count;
	size_t num_hashes;
	size_t requests_room, hashes_room; /* allocated */
};

/*
 * The first `max` requests of the file (0: all). Returns 0, or -1 with a line in
 * error[DEMO_TEXT_MAX] that begins with file:line (file alone when it cannot be
 * opened), and *trace empty.
 */
int
demo_trace_load(struct demo_trace *trace, const char *path, size_t max, char *error);

/*
 * `count` requests with the statistics of the public conversation trace: lengths
 * by its quantiles, every request with the common first 512 tokens, every fourth
 * or so continuing an earlier one. The same for the same seed. Returns 0, or -1
 * with a line in `error`.
 */
int
demo_trace_generate(struct demo_trace *trace, uint64_t seed, size_t count, char *error);

void
demo_trace_fini(struct demo_trace *trace);

/* Blocks that `tokens` take. */
uint32_t
demo_trace_blocks(uint32_t tokens, uint32_t tokens_per_block);

/*
 * Keys of the request's first `max` input blocks into `keys`: one per
 * (hash, block within it), never 0. Returns how many; tokens_per_block divides 512.
 */
uint32_t
demo_trace_keys(const struct demo_trace *trace, const struct demo_request *request,
		uint32_t tokens_per_block, uint32_t max, uint64_t *keys);

#endif /* DEMO_TRACE_H */
