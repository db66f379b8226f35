/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "check.h"
#include "mix.h"

#define TOKENS_MAX (1LL << 24)
#define HASH_MAX   (1LL << 48) /* x blocks per hash still fits a key */
#define RECENT     64U         /* requests that the generator continues */
#define CONTINUED  27U         /* in 100 requests */

static int
refuse(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int
refuse(char *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(error, DEMO_TEXT_MAX, format, args);
	va_end(args);
	return -1;
}

/* Room for one more of `size` bytes in *array; false: no memory. */
static bool
grow(void **array, size_t used, size_t *room, size_t size)
{
	size_t more = *room == 0 ? 1024 : *room * 2;
	void *bigger;

	if (used < *room)
		return true;
	bigger = reallocarray(*array, more, size);
	if (bigger == NULL)
		return false;
	*array = bigger;
	*room = more;
	return true;
}

static bool
add_hash(struct demo_trace *trace, uint64_t hash)
{
	void *array = trace->hashes;

	if (!grow(&array, trace->num_hashes, &trace->hashes_room, sizeof(*trace->hashes)))
		return false;
	trace->hashes = array;
	trace->hashes[trace->num_hashes++] = hash;
	return true;
}

static bool
add_request(struct demo_trace *trace, const struct demo_request *request)
{
	void *array = trace->requests;

	if (!grow(&array, trace->count, &trace->requests_room, sizeof(*trace->requests)))
		return false;
	trace->requests = array;
	trace->requests[trace->count++] = *request;
	return true;
}

/* An integer member of `line` in [low, high]. */
static int
get_integer(const json_t *line, const char *name, long long low, long long high,
	    long long *value_out, char *error)
{
	const json_t *member = json_object_get(line, name);

	if (!json_is_integer(member))
		return refuse(error, "\"%s\" is missing or not an integer", name);
	if (json_integer_value(member) < low || json_integer_value(member) > high)
		return refuse(error, "\"%s\" %lld is not in [%lld, %lld]", name,
			      (long long)json_integer_value(member), low, high);
	*value_out = json_integer_value(member);
	return 0;
}

static int
get_hashes(struct demo_trace *trace, const json_t *line, const struct demo_request *request,
	   char *error)
{
	const json_t *ids = json_object_get(line, "hash_ids");

	if (!json_is_array(ids))
		return refuse(error, "\"hash_ids\" is missing or not an array");
	if (json_array_size(ids) != request->num_hashes)
		return refuse(error, "\"hash_ids\" has %zu entries, input_length %u needs %u",
			      json_array_size(ids), request->input_tokens, request->num_hashes);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= HASH_MAX)
			return refuse(error, "hash_ids[%zu] is not an integer in [0, 2^48)", i);
		if (!add_hash(trace, (uint64_t)json_integer_value(id)))
			return refuse(error, "out of memory");
	}
	return 0;
}

static int
get_request(struct demo_trace *trace, const json_t *line, char *error)
{
	struct demo_request request = {.first_hash = trace->num_hashes};
	long long timestamp, input, output;

	if (!json_is_object(line))
		return refuse(error, "not a JSON object");
	if (get_integer(line, "timestamp", 0, INT64_MAX, &timestamp, error) != 0 ||
	    get_integer(line, "input_length", 1, TOKENS_MAX, &input, error) != 0 ||
	    get_integer(line, "output_length", 0, TOKENS_MAX, &output, error) != 0)
		return -1;
	request.timestamp_ms = (uint64_t)timestamp;
	request.input_tokens = (uint32_t)input;
	request.output_tokens = (uint32_t)output;
	request.num_hashes = demo_trace_blocks(request.input_tokens, DEMO_HASH_TOKENS);
	if (get_hashes(trace, line, &request, error) != 0)
		return -1;
	if (!add_request(trace, &request))
		return refuse(error, "out of memory");
	return 0;
}

static int
load_line(struct demo_trace *trace, const char *text, size_t bytes, char *error)
{
	json_error_t where;
	json_t *line;
	int rc;

	if (strspn(text, " \t\r\n") == bytes)
		return 0;
	line = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
	if (line == NULL)
		return refuse(error, "%s (column %d)", where.text, where.column);
	rc = get_request(trace, line, error);
	json_decref(line);
	return rc;
}

int
demo_trace_load(struct demo_trace *trace, const char *path, size_t max, char *error)
{
	char why[DEMO_TEXT_MAX / 2];
	char *text = NULL;
	size_t room = 0, number = 0;
	ssize_t bytes;
	FILE *file;
	int rc = 0;

	*trace = (struct demo_trace){0};
	file = fopen(path, "re");
	if (file == NULL)
		return refuse(error, "%s: %s", path, strerror(errno));
	while (rc == 0 && (max == 0 || trace->count < max) &&
	       (bytes = getline(&text, &room, file)) >= 0) {
		char line_error[DEMO_TEXT_MAX];

		number++;
		rc = load_line(trace, text, (size_t)bytes, line_error);
		if (rc != 0)
			(void)snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, line_error);
	}
	if (rc == 0 && ferror(file) != 0) {
		rc = -1;
		(void)snprintf(why, sizeof(why), "cannot be read");
	}
	if (rc == 0 && trace->count == 0) {
		rc = -1;
		(void)snprintf(why, sizeof(why), "no request in the file");
	}
	free(text);
	(void)fclose(file);
	if (rc == 0)
		return 0;
	demo_trace_fini(trace);
	return refuse(error, "%s:%zu: %s", path, number, why);
}

/* Quantiles of the public conversation trace. */
struct quantile {
	double share;
	double tokens;
};

static const struct quantile input_quantiles[] = {
	{0, 891},      {0.10, 964},   {0.25, 2306},  {0.50, 6909},  {0.75, 15368},
	{0.90, 27367}, {0.95, 39552}, {0.97, 52219}, {0.99, 85401}, {1, 126195},
};
static const struct quantile output_quantiles[] = {
	{0, 1},      {0.10, 24},  {0.25, 156},  {0.50, 350},
	{0.75, 472}, {0.90, 597}, {0.99, 1120}, {1, 2000},
};

static uint32_t
draw_tokens(uint64_t *random, const struct quantile *quantile)
{
	double share = (double)(demo_random(random) >> 11) * 0x1p-53;

	while (share > quantile[1].share)
		quantile++;
	share = (share - quantile[0].share) / (quantile[1].share - quantile[0].share);
	return (uint32_t)(quantile[0].tokens + share * (quantile[1].tokens - quantile[0].tokens));
}

/*
 * Full hashes that the new request shares with an earlier one, *from: the common
 * first 512 tokens, or everything of the longest recent request that is shorter,
 * as the next turn of a conversation does.
 */
static uint32_t
draw_shared(const struct demo_trace *trace, uint64_t *random, uint32_t num_hashes, size_t *from)
{
	size_t first = trace->count < RECENT ? 0 : trace->count - RECENT;
	uint32_t shared = trace->count == 0 ? 0 : 1;

	*from = 0;
	if (demo_random_below(random, 100) >= CONTINUED)
		return shared;
	for (size_t i = first; i < trace->count; i++) {
		const struct demo_request *earlier = &trace->requests[i];
		uint32_t full = earlier->input_tokens / DEMO_HASH_TOKENS;

		if (full <= shared || full >= num_hashes)
			continue;
		shared = full;
		*from = earlier->first_hash;
	}
	return shared;
}

int
demo_trace_generate(struct demo_trace *trace, uint64_t seed, size_t count, char *error)
{
	uint64_t random = demo_mix(seed ^ 0x7261636574726163U);
	uint64_t next_hash = 1;

	*trace = (struct demo_trace){0};
	for (size_t i = 0; i < count; i++) {
		struct demo_request request = {
			.timestamp_ms = i * 300, /* 12,031 requests in an hour */
			.input_tokens = draw_tokens(&random, input_quantiles),
			.output_tokens = draw_tokens(&random, output_quantiles),
			.first_hash = trace->num_hashes,
		};
		bool ok = true;
		uint32_t shared;
		size_t from;

		request.num_hashes = demo_trace_blocks(request.input_tokens, DEMO_HASH_TOKENS);
		shared = draw_shared(trace, &random, request.num_hashes, &from);
		for (uint32_t h = 0; ok && h < request.num_hashes; h++)
			ok = add_hash(trace, h < shared         ? trace->hashes[from + h]
					     : i == 0 && h == 0 ? 0
								: next_hash++);
		if (!ok || !add_request(trace, &request)) {
			demo_trace_fini(trace);
			return refuse(error, "out of memory");
		}
	}
	return 0;
}

void
demo_trace_fini(struct demo_trace *trace)
{
	free(trace->requests);
	free(trace->hashes);
	*trace = (struct demo_trace){0};
}

uint32_t
demo_trace_blocks(uint32_t tokens, uint32_t tokens_per_block)
{
	return tokens / tokens_per_block + (tokens % tokens_per_block != 0);
}

uint32_t
demo_trace_keys(const struct demo_trace *trace, const struct demo_request *request,
		uint32_t tokens_per_block, uint32_t max, uint64_t *keys)
{
	uint32_t per_hash = DEMO_HASH_TOKENS / tokens_per_block;
	uint32_t blocks = demo_trace_blocks(request->input_tokens, tokens_per_block);

	KVP_CHECK(per_hash * tokens_per_block == DEMO_HASH_TOKENS);
	if (blocks > max)
		blocks = max;
	for (uint32_t i = 0; i < blocks; i++)
		keys[i] = trace->hashes[request->first_hash + i / per_hash] * per_hash +
			  i % per_hash + 1;
	return blocks;
}
