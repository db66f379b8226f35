/* SPDX-License-Identifier: Apache-2.0 */
#include "w1.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "copy.h"
#include "limit.h"
#include "mix.h"
#include "start.h"

#define ROUNDS_ALL (DEMO_W1_WARM_ROUNDS + DEMO_W1_ROUNDS)

struct w1 {
	const struct demo_options *options;
	struct kvp_engine *engine;
	struct demo_talk *talk;
	struct kvp_tensor tensors[DEMO_W1_TENSORS];
	uint64_t src[DEMO_W1_BLOCKS], dst[DEMO_W1_BLOCKS];
	const void *from[DEMO_W1_PIECES];
	void *to[DEMO_W1_PIECES];
	uint64_t engine_ns[DEMO_W1_ROUNDS], limit_ns[DEMO_W1_ROUNDS];
	char *limit_memory; /* shm: the loop's destination, of the cache's size and kind */
	uint64_t wrong_bytes;
	int64_t cache, decoder_cache;
	int fd; /* tcp: the plain socket */
	bool is_tcp;
};

/* Shuffle the first `count` of slots[DEMO_W1_SLOTS]. */
static void
shuffle(uint64_t *slots, uint32_t count, uint64_t *random)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t other = i + demo_random_below(random, DEMO_W1_SLOTS - i);
		uint64_t slot = slots[i];

		slots[i] = slots[other];
		slots[other] = slot;
	}
}

static void
draw_list(uint64_t seed, uint32_t round, uint64_t *list)
{
	uint64_t slots[DEMO_W1_SLOTS];
	uint64_t random = demo_mix(seed);
	uint32_t first = 0;

	for (uint32_t i = 0; i < DEMO_W1_SLOTS; i++)
		slots[i] = i;
	if (round < DEMO_W1_WARM_ROUNDS) {
		shuffle(slots, DEMO_W1_SLOTS, &random);
		first = round * DEMO_W1_BLOCKS;
	} else {
		random ^= demo_mix(round);
		shuffle(slots, DEMO_W1_BLOCKS, &random);
	}
	memcpy(list, slots + first, DEMO_W1_BLOCKS * sizeof(*list));
}

void
demo_w1_lists(uint64_t seed, uint32_t round, uint64_t *src, uint64_t *dst)
{
	draw_list(seed ^ 0x736F75726365U, round, src);
	draw_list(seed ^ 0x64657374U, round, dst);
}

void
demo_w1_layout(struct kvp_tensor *tensors)
{
	for (uint32_t i = 0; i < DEMO_W1_TENSORS; i++) {
		tensors[i] = (struct kvp_tensor){
			.num_blocks = DEMO_W1_SLOTS,
			.block_bytes = DEMO_W1_BLOCK_BYTES,
			.block_stride = DEMO_W1_BLOCK_BYTES,
		};
	}
}

struct demo_content
demo_w1_content(uint64_t seed, uint64_t slot, uint32_t tensor)
{
	return (struct demo_content){
		.seed = ~seed, /* nothing of the replay passes */
		.key = slot + 1,
		.tensor = tensor,
	};
}

static enum demo_end
open_memory(struct w1 *w)
{
	kvp_status status;
	void *memory;

	demo_w1_layout(w->tensors);
	status = kvp_cache_allocate(w->engine, w->tensors, DEMO_W1_TENSORS, &w->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_cache_allocate for W1", status);
	for (uint32_t t = 0; t < DEMO_W1_TENSORS && demo_stop == 0; t++) {
		for (uint32_t slot = 0; slot < DEMO_W1_SLOTS; slot++) {
			struct demo_content content = demo_w1_content(w->options->seed, slot, t);

			demo_content_fill(&content,
					  (char *)w->tensors[t].base +
						  (size_t)slot * DEMO_W1_BLOCK_BYTES,
					  DEMO_W1_BLOCK_BYTES);
		}
	}
	if (w->is_tcp)
		return DEMO_OK;
	status = kvp_memory_allocate(w->engine, DEMO_W1_CACHE_BYTES, &memory);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_memory_allocate for W1", status);
	w->limit_memory = memory;
	return DEMO_OK;
}

static enum demo_end
open_decoder(struct w1 *w)
{
	struct demo_message message;
	struct demo_w1_ready ready;
	enum demo_end end;
	int rc;

	rc = demo_talk_say(w->talk, DEMO_W1_OPEN, NULL, 0);
	if (rc != 0)
		return demo_system_failed("prompt", "W1", rc);
	end = demo_expect(w->talk, DEMO_W1_READY, sizeof(ready), &message);
	if (end != DEMO_OK)
		return end;
	memcpy(&ready, message.body, sizeof(ready));
	w->decoder_cache = ready.cache;
	if (!w->is_tcp)
		return DEMO_OK;
	w->fd = limit_tcp_connect((uint16_t)ready.limit_port);
	if (w->fd < 0)
		return demo_system_failed("prompt", "plain socket", w->fd);
	return DEMO_OK;
}

/* Tell the decoder something about the round and hear that it is done. */
static enum demo_end
ask_decoder(struct w1 *w, uint32_t type, uint32_t round)
{
	struct demo_w1_round body = {.round = round};
	struct demo_w1_answer answer;
	struct demo_message message;
	enum demo_end end;
	int rc;

	rc = demo_talk_say(w->talk, type, &body, sizeof(body));
	if (rc != 0)
		return demo_system_failed("prompt", "W1", rc);
	end = demo_expect(w->talk, DEMO_W1_ANSWER, sizeof(answer), &message);
	if (end != DEMO_OK)
		return end;
	memcpy(&answer, message.body, sizeof(answer));
	w->wrong_bytes += answer.wrong_bytes;
	return DEMO_OK;
}

static enum demo_end
run_engine(struct w1 *w, uint32_t round, uint64_t *elapsed_ns_out)
{
	const struct kvp_push push = {
		.src_cache = w->cache,
		.dst = {.cluster = DEMO_DECODER_CLUSTER, .cache = w->decoder_cache},
		.src_blocks = w->src,
		.dst_blocks = w->dst,
		.count = DEMO_W1_BLOCKS,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 2,
		.timeout_ms = DEMO_PUSH_TIMEOUT_MS,
		.notify = {.enabled = 1, .tag = round},
	};
	enum demo_end end = ask_decoder(w, DEMO_W1_PREPARE, round);
	uint64_t start_ns;
	kvp_status status;

	if (end != DEMO_OK)
		return end;
	start_ns = demo_now_ns();
	status = kvp_push_blocks(w->engine, &push);
	*elapsed_ns_out = demo_now_ns() - start_ns;
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "W1 push", status);
	return ask_decoder(w, DEMO_W1_CHECK, round);
}

static enum demo_end
run_limit(struct w1 *w, uint32_t round, uint64_t *elapsed_ns_out)
{
	const struct limit_pieces pieces = {
		.src = w->from,
		.dst = w->to,
		.count = DEMO_W1_PIECES,
		.piece_bytes = DEMO_W1_BLOCK_BYTES,
	};
	enum demo_end end;
	int rc;

	if (!w->is_tcp) {
		*elapsed_ns_out = limit_copy(&pieces);
		return DEMO_OK;
	}
	end = ask_decoder(w, DEMO_W1_SOCKET, round);
	if (end != DEMO_OK)
		return end;
	rc = limit_tcp_send(w->fd, &pieces, elapsed_ns_out);
	return rc == 0 ? DEMO_OK : demo_system_failed("prompt", "plain socket", rc);
}

static void
set_round(struct w1 *w, uint32_t round)
{
	size_t next = 0;

	demo_w1_lists(w->options->seed, round, w->src, w->dst);
	for (uint32_t t = 0; t < DEMO_W1_TENSORS; t++) {
		const size_t tensor_bytes = (size_t)DEMO_W1_SLOTS * DEMO_W1_BLOCK_BYTES;

		for (uint32_t i = 0; i < DEMO_W1_BLOCKS; i++, next++) {
			w->from[next] =
				(char *)w->tensors[t].base + w->src[i] * DEMO_W1_BLOCK_BYTES;
			w->to[next] = w->is_tcp ? NULL
						: w->limit_memory + t * tensor_bytes +
							  w->dst[i] * DEMO_W1_BLOCK_BYTES;
		}
	}
}

/* Engine and limit in turn, and each first in every other round. */
static enum demo_end
run_rounds(struct w1 *w)
{
	enum demo_end end = DEMO_OK;

	for (uint32_t round = 0; end == DEMO_OK && round < ROUNDS_ALL; round++) {
		uint64_t engine_ns = 0, limit_ns = 0;

		if (demo_stop != 0)
			return DEMO_STOPPED;
		set_round(w, round);
		if (round % 2 != 0)
			end = run_limit(w, round, &limit_ns);
		if (end == DEMO_OK)
			end = run_engine(w, round, &engine_ns);
		if (end == DEMO_OK && round % 2 == 0)
			end = run_limit(w, round, &limit_ns);
		if (round < DEMO_W1_WARM_ROUNDS)
			continue;
		w->engine_ns[round - DEMO_W1_WARM_ROUNDS] = engine_ns;
		w->limit_ns[round - DEMO_W1_WARM_ROUNDS] = limit_ns;
	}
	return end;
}

static int
by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void
sum_up(struct w1 *w, struct demo_w1_result *result)
{
	qsort(w->engine_ns, DEMO_W1_ROUNDS, sizeof(w->engine_ns[0]), by_value);
	qsort(w->limit_ns, DEMO_W1_ROUNDS, sizeof(w->limit_ns[0]), by_value);
	*result = (struct demo_w1_result){
		.has_run = true,
		.rounds = DEMO_W1_ROUNDS,
		.bytes = (uint64_t)DEMO_W1_PIECES * DEMO_W1_BLOCK_BYTES,
		.engine_ns = w->engine_ns[DEMO_W1_ROUNDS / 2],
		.limit_ns = w->limit_ns[DEMO_W1_ROUNDS / 2],
		.engine_min_ns = w->engine_ns[0],
		.limit_min_ns = w->limit_ns[0],
		.wrong_bytes = w->wrong_bytes,
	};
	if (w->is_tcp)
		(void)snprintf(result->limit_name, sizeof(result->limit_name),
			       "plain socket, writev and readv of 64");
	else
		(void)snprintf(result->limit_name, sizeof(result->limit_name),
			       "plain copy loop, %s", kvp_copy_kernels()->name);
}

enum demo_end
demo_w1_run(const struct demo_options *options, struct kvp_engine *engine, struct demo_talk *talk,
	    struct demo_w1_result *result_out)
{
	struct w1 *w = calloc(1, sizeof(*w));
	enum demo_end end;

	if (w == NULL)
		return demo_system_failed("prompt", "W1", -ENOMEM);
	w->options = options;
	w->engine = engine;
	w->talk = talk;
	w->is_tcp = strcmp(options->transport, "tcp") == 0;
	w->fd = -1;
	end = open_memory(w);
	if (end == DEMO_OK)
		end = open_decoder(w);
	if (end == DEMO_OK)
		end = run_rounds(w);
	if (end == DEMO_OK)
		sum_up(w, result_out);
	if (w->fd >= 0)
		(void)close(w->fd);
	free(w); /* cache and memory go with the engine */
	return end;
}
