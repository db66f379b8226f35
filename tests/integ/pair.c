/* SPDX-License-Identifier: Apache-2.0 */
#include "pair.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNSEEN __attribute__((noinline, no_sanitize("thread")))

char pair_shm[] = "shm";
char pair_tcp[] = "tcp";
char pair_verbs[] = "verbs";

uint32_t
pair_slow(void)
{
	const char *text = getenv("KVP_TEST_SLOW");
	long times = text == NULL ? 1 : strtol(text, NULL, 10);

	return times < 1 ? 1 : times > 100 ? 100 : (uint32_t)times;
}

const char *
pair_transports(void)
{
	const char *wanted = getenv("KVP_TEST_TRANSPORTS");

	return wanted == NULL || wanted[0] == '\0' ? "shm,tcp" : wanted;
}

/* Is the word at `word` one of the comma-separated `list`? */
static bool
is_listed(const char *list, const char *word)
{
	size_t bytes = strcspn(word, ",");

	for (;;) {
		if (strcspn(list, ",") == bytes && memcmp(list, word, bytes) == 0)
			return true;
		list += strcspn(list, ",");
		if (*list++ == '\0')
			return false;
	}
}

bool
pair_wants(const char *transports)
{
	for (;;) {
		if (!is_listed(pair_transports(), transports))
			return false;
		transports += strcspn(transports, ",");
		if (*transports++ == '\0')
			return true;
	}
}

bool
pair_is_ordered(const char *transport)
{
	return strcmp(transport, pair_verbs) != 0;
}

int
pair_run(const struct CMUnitTest *tests, size_t count)
{
	struct CMUnitTest *wanted = calloc(count, sizeof(*wanted));
	const char *only = getenv("KVP_TEST_ONLY");
	size_t kept = 0;
	int failed = 0;

	if (wanted == NULL)
		return 1;
	for (size_t i = 0; i < count; i++) {
		if (tests[i].initial_state == NULL || pair_wants(tests[i].initial_state))
			wanted[kept++] = tests[i];
	}
	if (only != NULL)
		cmocka_set_test_filter(only);
	alarm(PAIR_ALARM_S);
	if (kept > 0)
		failed = _cmocka_run_group_tests("integ", wanted, kept, NULL, NULL);
	else
		printf("no test is for %s\n", pair_transports());
	free(wanted);
	return kept > 0 ? failed : 77;
}

void
pair_status_is(kvp_status expected, kvp_status got, const char *call, const char *file, int line)
{
	if (got == expected)
		return;
	print_error("%s\n  is %s (0x%08X), not %s: %s\n", call, kvp_status_name(got), got,
		    kvp_status_name(expected), kvp_error_message());
	_fail(file, line);
}

void
pair_refused(kvp_status expected, kvp_status got, const char *word, const char *call,
	     const char *file, int line)
{
	const char *message = kvp_error_message();

	pair_status_is(expected, got, call, file, line);
	if (message[0] != '\0' && strchr(message, '\n') == NULL && strstr(message, word) != NULL)
		return;
	print_error("%s\n  message \"%s\" is no line with \"%s\"\n", call, message, word);
	_fail(file, line);
}

/* Each end its own devices, or both would find the same ones. */
static void
config_devices(struct kvp_config *config, const char *variable)
{
	const char *devices = getenv(variable);
	char setting[KVP_TEXT_MAX + 32];

	if (devices == NULL)
		return;
	snprintf(setting, sizeof(setting), "verbs_devices=%s", devices);
	assert_ok(kvp_config_set(config, setting));
}

void
pair_config(struct kvp_config *config, uint64_t cluster, const char *transports)
{
	kvp_config_init(config);
	config->cluster_id = cluster;
	snprintf(config->listen, sizeof(config->listen), "127.0.0.1:0");
	snprintf(config->transports, sizeof(config->transports), "%s", transports);
	config->log_level = 1; /* links end on purpose all the time */
	config->dead_ms = PAIR_SLOW(config->dead_ms);
	if (is_listed(transports, pair_verbs))
		config_devices(config, cluster % 2 == 1 ? "KVP_TEST_VERBS_A" : "KVP_TEST_VERBS_B");
}

void
pair_link(struct kvp_engine *from, uint64_t from_cluster, struct kvp_engine *to,
	  uint64_t to_cluster)
{
	char address[32];
	uint64_t cluster = 0;
	struct kvp_event event;

	snprintf(address, sizeof(address), "127.0.0.1:%u", kvp_port(to));
	assert_ok(kvp_link(from, address, PAIR_LONG_MS, &cluster));
	assert_int_equal(cluster, to_cluster);
	pair_event_is(from, KVP_EVENT_PEER_LINKED, to_cluster, &event);
	pair_event_is(to, KVP_EVENT_PEER_LINKED, from_cluster, &event);
}

void
pair_open(struct pair *pair, const struct kvp_config *a, const struct kvp_config *b)
{
	memset(pair, 0, sizeof(*pair));
	assert_ok(kvp_open(a, &pair->a));
	assert_ok(kvp_open(b, &pair->b));
	pair_link(pair->a, a->cluster_id, pair->b, b->cluster_id);
}

void
pair_close(struct pair *pair)
{
	kvp_close(pair->a);
	kvp_close(pair->b);
	memset(pair, 0, sizeof(*pair));
}

int
pair_setup(void **state)
{
	const char *transports = *state;
	struct kvp_config a, b;
	struct pair *pair = calloc(1, sizeof(*pair));

	assert_non_null(pair);
	pair_config(&a, PAIR_A, transports);
	pair_config(&b, PAIR_B, transports);
	pair_open(pair, &a, &b);
	pair->transport = transports;
	*state = pair;
	return 0;
}

int
pair_teardown(void **state)
{
	struct pair *pair = *state;

	pair_close(pair);
	free(pair);
	return 0;
}

/* Bytes of one row of blocks, and the stride from a block to the next. */
static uint64_t
shape_stride(const struct pair_shape *shape)
{
	uint64_t per_layer = shape->per_layer == 0 ? 1 : shape->per_layer;

	switch (shape->layout) {
	case PAIR_SEPARATE:
		return shape->block_bytes;
	case PAIR_INTERLEAVED:
		return shape->block_bytes * per_layer;
	case PAIR_PADDED:
		return shape->block_bytes + shape->pad_bytes;
	}
	abort();
}

static void
lay_out(struct pair_cache *cache, const struct pair_shape *shape)
{
	uint32_t per_layer = shape->per_layer == 0 ? 1 : shape->per_layer;
	uint64_t stride = shape_stride(shape);
	uint8_t *base = cache->memory + PAIR_GUARD;

	for (uint32_t i = 0; i < shape->tensors; i++) {
		struct kvp_tensor *tensor = &cache->tensor[i];

		tensor->num_blocks = shape->blocks;
		tensor->block_bytes = shape->block_bytes;
		tensor->block_stride = stride;
		if (shape->layout == PAIR_INTERLEAVED)
			tensor->base = base + i / per_layer * (shape->blocks * stride) +
				       i % per_layer * shape->block_bytes;
		else
			tensor->base = base + i * (shape->blocks * stride);
	}
}

void
pair_cache_open(struct pair_cache *cache, struct kvp_engine *engine, const struct pair_shape *shape,
		uint64_t seed)
{
	uint32_t per_layer = shape->layout == PAIR_INTERLEAVED ? shape->per_layer : 1;
	void *memory = NULL;

	memset(cache, 0, sizeof(*cache));
	cache->engine = engine;
	cache->tensors = shape->tensors;
	cache->bytes =
		2 * PAIR_GUARD + shape->tensors / per_layer * shape->blocks * shape_stride(shape);
	cache->tensor = calloc(shape->tensors, sizeof(*cache->tensor));
	assert_non_null(cache->tensor);
	cache->model = malloc(cache->bytes);
	assert_non_null(cache->model);
	cache->is_shareable = shape->is_shareable && engine != NULL;
	if (cache->is_shareable)
		assert_ok(kvp_memory_allocate(engine, cache->bytes, &memory));
	else
		memory = malloc(cache->bytes);
	assert_non_null(memory);
	cache->memory = memory;
	lay_out(cache, shape);
	pair_cache_fill(cache, seed);
	if (engine != NULL)
		assert_ok(kvp_cache_register(engine, cache->tensor, cache->tensors, &cache->id));
}

void
pair_cache_close(struct pair_cache *cache)
{
	if (cache->engine != NULL)
		assert_ok(kvp_cache_release(cache->engine, cache->id));
	if (cache->is_shareable)
		assert_ok(kvp_memory_release(cache->engine, cache->memory));
	else
		free(cache->memory);
	free(cache->tensor);
	free(cache->model);
	memset(cache, 0, sizeof(*cache));
}

/* memcpy and memcmp that ThreadSanitizer does not look at. */
UNSEEN static void
copy_unseen(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		to[i] = from[i];
		__asm__ volatile("" ::: "memory"); /* or the compiler calls memcpy */
	}
}

UNSEEN static size_t
compare_unseen(const uint8_t *left, const uint8_t *right, size_t bytes)
{
	size_t at = 0;

	while (at < bytes && left[at] == right[at])
		at++;
	return at;
}

void
pair_cache_fill(struct pair_cache *cache, uint64_t seed)
{
	pair_fill(cache->model, cache->bytes, seed);
	if (cache->is_far)
		copy_unseen(cache->memory, cache->model, cache->bytes);
	else
		memcpy(cache->memory, cache->model, cache->bytes);
}

size_t
pair_cache_diff(const struct pair_cache *cache)
{
	size_t at = 0;

	if (cache->is_far)
		return compare_unseen(cache->memory, cache->model, cache->bytes);
	if (memcmp(cache->memory, cache->model, cache->bytes) == 0)
		return cache->bytes;
	while (cache->memory[at] == cache->model[at])
		at++;
	return at;
}

void
pair_cache_check(const struct pair_cache *cache, const char *name)
{
	size_t at = pair_cache_diff(cache), wrong = 0;

	if (at == cache->bytes)
		return;
	for (size_t i = at; i < cache->bytes; i++)
		wrong += cache->memory[i] != cache->model[i];
	print_error("%s: %zu of %zu bytes are wrong, the first at %zu: 0x%02x, not 0x%02x\n", name,
		    wrong, cache->bytes, at, cache->memory[at], cache->model[at]);
	for (uint32_t i = 0; i < cache->tensors; i++) {
		const struct kvp_tensor *tensor = &cache->tensor[i];
		uintptr_t base = (uintptr_t)tensor->base, here = (uintptr_t)&cache->memory[at];

		if (here < base || here - base >= tensor->num_blocks * tensor->block_stride ||
		    (here - base) % tensor->block_stride >= tensor->block_bytes)
			continue;
		print_error("  which is tensor %u block %zu\n", i,
			    (size_t)((here - base) / tensor->block_stride));
	}
	fail();
}

void
pair_model_move(struct pair_cache *dst, const struct pair_cache *src, const struct pair_move *move)
{
	pair_model_move_part(dst, src, move, 0);
}

void
pair_model_move_part(struct pair_cache *dst, const struct pair_cache *src,
		     const struct pair_move *move, uint64_t bytes)
{
	for (uint32_t i = 0; i < move->tensors; i++) {
		const struct kvp_tensor *from = &src->tensor[move->src_tensor + i];
		const struct kvp_tensor *to = &dst->tensor[move->dst_tensor + i];
		size_t from_base = (size_t)((uint8_t *)from->base - src->memory);
		size_t to_base = (size_t)((uint8_t *)to->base - dst->memory);

		for (size_t j = 0; j < move->count; j++)
			memcpy(dst->model + to_base + move->dst_blocks[j] * to->block_stride,
			       src->model + from_base + move->src_blocks[j] * from->block_stride,
			       bytes != 0 ? bytes : to->block_bytes);
	}
}

static struct kvp_layers
layers_of(uint32_t first, uint32_t count)
{
	return (struct kvp_layers){(int32_t)first, (int32_t)(first + count - 1)};
}

struct kvp_push
pair_push(const struct pair_cache *src, uint64_t dst_cluster, const struct pair_cache *dst,
	  const struct pair_move *move)
{
	return (struct kvp_push){
		.src_cache = src->id,
		.dst = {.cluster = dst_cluster, .cache = dst->id},
		.src_blocks = move->src_blocks,
		.dst_blocks = move->dst_blocks,
		.count = move->count,
		.src_layers = layers_of(move->src_tensor, move->tensors),
		.dst_layers = layers_of(move->dst_tensor, move->tensors),
		.tensors_per_layer = 1,
		.timeout_ms = PAIR_LONG_MS,
	};
}

struct kvp_pull
pair_pull(uint64_t src_cluster, const struct pair_cache *src, const struct pair_cache *dst,
	  const struct pair_move *move)
{
	return (struct kvp_pull){
		.src = {.cluster = src_cluster, .cache = src->id},
		.dst_cache = dst->id,
		.src_blocks = move->src_blocks,
		.dst_blocks = move->dst_blocks,
		.count = move->count,
		.src_layers = layers_of(move->src_tensor, move->tensors),
		.dst_layers = layers_of(move->dst_tensor, move->tensors),
		.tensors_per_layer = 1,
		.timeout_ms = PAIR_LONG_MS,
	};
}

kvp_status
pair_event_next(struct kvp_engine *engine, uint32_t wait_ms, struct kvp_event *event_out)
{
	uint64_t end_ms = pair_now_ms() + wait_ms;
	struct pollfd fd = {.fd = kvp_event_fd(engine), .events = POLLIN};
	kvp_status status;

	while ((status = kvp_event_poll(engine, event_out)) == KVP_NO_EVENT) {
		uint64_t now_ms = pair_now_ms();

		if (now_ms >= end_ms)
			break;
		poll(&fd, 1, (int)(end_ms - now_ms));
	}
	return status;
}

void
pair_event_is(struct kvp_engine *engine, uint32_t kind, uint64_t cluster,
	      struct kvp_event *event_out)
{
	assert_ok(pair_event_next(engine, PAIR_LONG_MS, event_out));
	if (event_out->kind == kind && event_out->cluster_id == cluster)
		return;
	print_error("event %u of cluster %llu with status %s, not event %u of cluster %llu\n",
		    event_out->kind, (unsigned long long)event_out->cluster_id,
		    kvp_status_name(event_out->status), kind, (unsigned long long)cluster);
	fail();
}

void
pair_tags_are(const char *transport, struct kvp_engine *engine, uint64_t cluster, uint64_t first,
	      uint64_t count)
{
	bool *came = calloc(count + 1, sizeof(*came));
	struct kvp_event event;

	assert_non_null(came);
	for (uint64_t i = 0; i < count; i++) {
		pair_event_is(engine, KVP_EVENT_PUSH_ARRIVED, cluster, &event);
		if (pair_is_ordered(transport))
			assert_int_equal(event.tag, first + i);
		assert_true(event.tag >= first && event.tag - first < count);
		assert_false(came[event.tag - first]);
		came[event.tag - first] = true;
	}
	free(came);
}

void
pair_pause(void)
{
	sched_yield();
}

uint64_t
pair_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t
pair_random(uint64_t *seed)
{
	uint64_t value = *seed += 0x9E3779B97F4A7C15U;

	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
	return value ^ (value >> 31);
}

uint64_t
pair_below(uint64_t *seed, uint64_t limit)
{
	return pair_random(seed) % limit;
}

void
pair_fill(void *memory, size_t bytes, uint64_t seed)
{
	uint8_t *at = memory;

	while (bytes > 0) {
		uint64_t value = pair_random(&seed);
		size_t step = bytes < sizeof(value) ? bytes : sizeof(value);

		memcpy(at, &value, step);
		at += step;
		bytes -= step;
	}
}

UNSEEN uint64_t
pair_digest(const void *memory, size_t bytes)
{
	const uint8_t *at = memory;
	uint64_t digest = bytes;

	for (size_t i = 0; i < bytes; i++)
		digest = (digest ^ at[i]) * 0x100000001B3U;
	return digest;
}

void
pair_shuffle(uint64_t *list, size_t count, uint64_t *seed)
{
	for (size_t i = 0; i < count; i++)
		list[i] = i;
	for (size_t i = count; i > 1; i--) {
		size_t other = pair_below(seed, i);
		uint64_t value = list[i - 1];

		list[i - 1] = list[other];
		list[other] = value;
	}
}
