/* SPDX-License-Identifier: Apache-2.0 */
#include "serve.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/resource.h>
#include <sys/socket.h>

#include <kvpush/kvpush.h>

#include "demo/clock.h"
#include "side.h"

#define SENDER_CLUSTER   1U
#define RECEIVER_CLUSTER 101U
#define SETTINGS         64U
#define PUSH_TIMEOUT_MS  120000U
#define EVENT_WAIT_NS    10000000000U
#define TAG              0x6265U

struct pair {
	struct kvp_engine *engine;
	struct kvp_tensor tensor;
	int64_t cache; /* 0: none */
	uint64_t count;
	uint64_t *src, *dst; /* [count] */
};

struct serving {
	bool is_sender;
	struct pair pair[BENCH_PAIRS];
};

__attribute__((format(printf, 2, 3))) static void
failed(struct bench_answer *answer, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	(void)vsnprintf(answer->text, sizeof(answer->text), format, list);
	va_end(list);
	answer->rc = -1;
}

static void
engine_failed(struct bench_answer *answer, const char *what, kvp_status status)
{
	failed(answer, "%s: %s: %s", what, kvp_status_name(status), kvp_error_message());
}

/* Both engines of a side live in one process; each pair has its own cluster ids. */
static uint64_t
cluster_of(bool is_sender, uint32_t pair)
{
	return (is_sender ? SENDER_CLUSTER : RECEIVER_CLUSTER) + pair;
}

static void
open_engine(struct serving *serving, struct bench_ask *ask, struct bench_answer *answer)
{
	const char *settings[SETTINGS];
	char cluster[64], *rest = ask->settings, *line;
	size_t count = 0;
	kvp_status status;

	(void)snprintf(cluster, sizeof(cluster), "cluster_id=%llu",
		       (unsigned long long)cluster_of(serving->is_sender, ask->pair));
	settings[count++] = cluster;
	if (!serving->is_sender)
		settings[count++] = "listen=127.0.0.1:0";
	while ((line = strsep(&rest, "\n")) != NULL && count < SETTINGS) {
		if (*line != '\0')
			settings[count++] = line;
	}
	status = kvp_open_settings(settings, count, &serving->pair[ask->pair].engine);
	if (status != KVP_SUCCESS) {
		engine_failed(answer, "kvp_open", status);
		return;
	}
	answer->port = kvp_port(serving->pair[ask->pair].engine);
}

static void
link_engine(struct pair *pair, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct kvp_link_info info;
	char address[32];
	kvp_status status;

	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", ask->port);
	status = kvp_link(pair->engine, address, 0, NULL);
	if (status == KVP_SUCCESS)
		status = kvp_link_query(pair->engine, cluster_of(false, ask->pair), &info);
	if (status != KVP_SUCCESS)
		engine_failed(answer, "kvp_link", status);
	else
		(void)snprintf(answer->text, sizeof(answer->text), "%s", info.path);
}

static void
drop_cache(struct pair *pair)
{
	if (pair->cache != 0)
		(void)kvp_cache_release(pair->engine, pair->cache);
	free(pair->src);
	free(pair->dst);
	pair->cache = 0;
	pair->src = NULL;
	pair->dst = NULL;
}

static void
fill(const struct pair *pair, bool is_sender)
{
	for (uint64_t slot = 0; slot < pair->tensor.num_blocks; slot++)
		bench_fill(is_sender, slot,
			   (char *)pair->tensor.base + slot * pair->tensor.block_stride,
			   pair->tensor.block_bytes);
}

static void
make_cache(struct serving *serving, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct pair *pair = &serving->pair[ask->pair];
	kvp_status status;

	drop_cache(pair);
	pair->count = ask->count;
	pair->src = calloc(ask->count, sizeof(*pair->src));
	pair->dst = calloc(ask->count, sizeof(*pair->dst));
	if (pair->src == NULL || pair->dst == NULL) {
		failed(answer, "no memory for lists of %llu blocks",
		       (unsigned long long)ask->count);
		return;
	}
	pair->tensor = (struct kvp_tensor){
		.num_blocks = bench_slots(ask->count),
		.block_bytes = ask->piece_bytes,
		.block_stride = ask->piece_bytes,
	};
	status = kvp_cache_allocate(pair->engine, &pair->tensor, 1, &pair->cache);
	if (status != KVP_SUCCESS) {
		pair->cache = 0;
		engine_failed(answer, "kvp_cache_allocate", status);
		return;
	}
	fill(pair, serving->is_sender);
	answer->cache = pair->cache;
}

static struct kvp_push
push_of(const struct pair *pair, const struct bench_ask *ask)
{
	bench_lists((enum bench_pattern)ask->pattern, pair->count, pair->src, pair->dst);
	return (struct kvp_push){
		.src_cache = pair->cache,
		.dst = {.cluster = cluster_of(false, ask->pair), .cache = ask->cache},
		.src_blocks = pair->src,
		.dst_blocks = pair->dst,
		.count = pair->count,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 1,
		.timeout_ms = PUSH_TIMEOUT_MS,
	};
}

static void
push_once(struct pair *pair, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct kvp_push push = push_of(pair, ask);
	kvp_status status;

	push.notify = (struct kvp_notify){.enabled = 1, .tag = TAG + ask->pattern};
	status = kvp_push_blocks(pair->engine, &push);
	if (status != KVP_SUCCESS)
		engine_failed(answer, "kvp_push_blocks", status);
}

static void
check(struct pair *pair, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct pollfd pfd = {.fd = kvp_event_fd(pair->engine), .events = POLLIN};
	uint64_t end_ns = demo_now_ns() + EVENT_WAIT_NS;
	struct kvp_event event = {0};

	while (event.kind != KVP_EVENT_PUSH_ARRIVED) {
		kvp_status status = kvp_event_poll(pair->engine, &event);

		if (status == KVP_NO_EVENT && demo_now_ns() < end_ns) {
			(void)poll(&pfd, 1, 100);
		} else if (status != KVP_SUCCESS) {
			engine_failed(answer, "event of the push", status);
			return;
		}
	}
	if (event.tag != TAG + ask->pattern || event.cache != pair->cache) {
		failed(answer, "event of another push: cache %lld, tag %llu",
		       (long long)event.cache, (unsigned long long)event.tag);
		return;
	}
	answer->wrong_bytes = bench_wrong((enum bench_pattern)ask->pattern, pair->count,
					  pair->tensor.base, pair->tensor.block_bytes);
}

static uint64_t
usage_ns(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000U +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000U;
}

/* Totals so far, subtracted from those in *totals when `is_end`. */
static kvp_status
count_totals(const struct pair *pair, uint32_t number, bool is_end, struct bench_totals *totals)
{
	struct kvp_link_info info;
	kvp_status status = kvp_link_query(pair->engine, cluster_of(false, number), &info);
	struct bench_totals start = *totals;

	if (status != KVP_SUCCESS)
		return status;
	if (!is_end)
		start = (struct bench_totals){0};
	*totals = (struct bench_totals){
		.requests = info.requests - start.requests,
		.pieces = info.pieces - start.pieces,
		.doorbells = info.doorbells - start.doorbells,
		.gathered = info.gathered - start.gathered,
		.completions = info.completions - start.completions,
		.replayed = info.replayed - start.replayed,
	};
	return KVP_SUCCESS;
}

/* Keep `inflight` pushes under way until `run_ns` have passed, then let them end. */
static kvp_status
push_for(struct pair *pair, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct kvp_transfer *transfer[BENCH_INFLIGHT_MAX] = {0};
	struct kvp_push push = push_of(pair, ask);
	uint64_t start_ns = demo_now_ns(), first = 0, next = 0;
	kvp_status status = KVP_SUCCESS;

	for (;;) {
		bool may_start = status == KVP_SUCCESS && next - first < ask->inflight &&
				 (next == 0 || demo_now_ns() - start_ns < ask->run_ns);

		if (may_start) {
			status = kvp_push_submit(pair->engine, &push,
						 &transfer[next % ask->inflight]);
			next += status == KVP_SUCCESS;
			continue;
		}
		if (first == next)
			break;
		kvp_status end = kvp_transfer_wait(transfer[first % ask->inflight], UINT32_MAX);

		status = status == KVP_SUCCESS ? end : status;
		kvp_transfer_free(transfer[first++ % ask->inflight]);
	}
	answer->elapsed_ns = demo_now_ns() - start_ns;
	answer->bytes = next * pair->count * pair->tensor.block_bytes;
	return status;
}

static void
measure(struct pair *pair, const struct bench_ask *ask, struct bench_answer *answer)
{
	struct kvp_push warm = push_of(pair, ask);
	kvp_status status = kvp_push_blocks(pair->engine, &warm); /* lanes awake */
	uint64_t start_ns;

	if (status == KVP_SUCCESS)
		status = count_totals(pair, ask->pair, false, &answer->totals);
	start_ns = usage_ns();
	if (status == KVP_SUCCESS)
		status = push_for(pair, ask, answer);
	answer->cpu_ns = usage_ns() - start_ns;
	if (status == KVP_SUCCESS)
		status = count_totals(pair, ask->pair, true, &answer->totals);
	if (status != KVP_SUCCESS)
		engine_failed(answer, "push", status);
}

static void
close_engine(struct pair *pair)
{
	if (pair->engine == NULL)
		return;
	drop_cache(pair);
	kvp_close(pair->engine);
	pair->engine = NULL;
}

static void
answer_one(struct serving *serving, struct bench_ask *ask, struct bench_answer *answer)
{
	struct pair *pair = &serving->pair[ask->pair];

	switch ((enum bench_question)ask->question) {
	case BENCH_OPEN:
		open_engine(serving, ask, answer);
		break;
	case BENCH_LINK:
		link_engine(pair, ask, answer);
		break;
	case BENCH_CACHE:
		make_cache(serving, ask, answer);
		break;
	case BENCH_FILL:
		fill(pair, serving->is_sender);
		break;
	case BENCH_PUSH:
		push_once(pair, ask, answer);
		break;
	case BENCH_CHECK:
		check(pair, ask, answer);
		break;
	case BENCH_MEASURE:
		measure(pair, ask, answer);
		break;
	case BENCH_USAGE:
		answer->cpu_ns = usage_ns();
		break;
	case BENCH_CLOSE:
		close_engine(pair);
		break;
	}
}

int
bench_serve(bool is_sender, int fd)
{
	static struct serving serving;
	static struct bench_ask ask;
	ssize_t got;

	serving.is_sender = is_sender;
	while ((got = recv(fd, &ask, sizeof(ask), 0)) != 0) {
		struct bench_answer answer = {0};

		if (got < 0 && errno == EINTR)
			continue;
		if (got != (ssize_t)sizeof(ask))
			break;
		answer_one(&serving, &ask, &answer);
		if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer))
			break;
	}
	for (uint32_t i = 0; i < BENCH_PAIRS; i++)
		close_engine(&serving.pair[i]);
	return got == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
