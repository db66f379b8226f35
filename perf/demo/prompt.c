/* SPDX-License-Identifier: Apache-2.0 */
#include "prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "content.h"
#include "pool.h"
#include "report.h"
#include "start.h"

#define WAIT_MS   20U
#define UNLINK_MS 1000U

enum flight_state {
	FLIGHT_FREE = 0,
	FLIGHT_ASKED,   /* until granted and computed */
	FLIGHT_PUSHING, /* until the terminal status */
	FLIGHT_LANDED,  /* until the decoder's word */
};

/* One request between ask and done. */
struct flight {
	enum flight_state state;
	bool is_done; /* the decoder may say so before this side looks at its transfer */
	bool is_computed, is_granted; /* pushed when both, in either order */
	uint32_t request;
	uint32_t count;
	uint32_t granted;
	uint32_t *slots;            /* count */
	struct demo_ask_block *ask; /* count */
	uint64_t *src, *dst;
	struct kvp_transfer *transfer;
};

struct interval {
	uint64_t start_ns, end_ns;
};

struct demo_prompt {
	const struct demo_options *options;
	const struct demo_trace *trace;
	struct demo_talk *talk;
	struct kvp_engine *engine;
	struct kvp_tensor *tensors;
	struct demo_pool *pool;
	struct flight *flights; /* options->inflight */
	uint64_t *keys;
	uint8_t *is_new;
	struct interval *pushed; /* by request; start 0: no push */
	struct demo_replay *replay;
	int64_t cache;
	int64_t decoder_cache;
	uint32_t blocks_max; /* of one request: half the cache, so that one can always go on */
	uint32_t next;
	uint32_t finished;
	bool has_flipped;
	bool is_linked;
};

static enum demo_end
alloc_flights(struct demo_prompt *p)
{
	size_t max = p->blocks_max;

	p->flights = calloc(p->options->inflight, sizeof(*p->flights));
	p->keys = calloc(max, sizeof(*p->keys));
	p->is_new = calloc(max, 1);
	p->pushed = calloc(p->trace->count, sizeof(*p->pushed));
	if (p->flights == NULL || p->keys == NULL || p->is_new == NULL || p->pushed == NULL)
		return demo_system_failed("prompt", "request tables", -ENOMEM);
	for (uint32_t i = 0; i < p->options->inflight; i++) {
		struct flight *f = &p->flights[i];

		f->slots = calloc(max, sizeof(*f->slots));
		f->ask = calloc(max, sizeof(*f->ask));
		f->src = calloc(max, sizeof(*f->src));
		f->dst = calloc(max, sizeof(*f->dst));
		if (f->slots == NULL || f->ask == NULL || f->src == NULL || f->dst == NULL)
			return demo_system_failed("prompt", "request tables", -ENOMEM);
	}
	return DEMO_OK;
}

static enum demo_end
open_cache(struct demo_prompt *p)
{
	uint32_t num_tensors = demo_model_tensors(p->options->model);
	kvp_status status;

	p->pool = demo_pool_create(p->options->num_slots);
	p->tensors = calloc(num_tensors, sizeof(*p->tensors));
	if (p->pool == NULL || p->tensors == NULL)
		return demo_system_failed("prompt", "block tables", -ENOMEM);
	demo_model_layout(p->options->model, p->options->num_slots, p->tensors);
	status = kvp_cache_allocate(p->engine, p->tensors, num_tensors, &p->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_cache_allocate", status);
	return DEMO_OK;
}

static enum demo_end
link_decoder(struct demo_prompt *p)
{
	struct demo_message message;
	struct demo_ready ready;
	char address[32];
	kvp_status status;
	enum demo_end end;

	end = demo_expect(p->talk, DEMO_READY, sizeof(ready), &message);
	if (end != DEMO_OK)
		return end;
	memcpy(&ready, message.body, sizeof(ready));
	p->decoder_cache = ready.cache;
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", ready.port);
	status = kvp_link(p->engine, address, 0, NULL);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_link", status);
	p->is_linked = true;
	return DEMO_OK;
}

enum demo_end
demo_prompt_open(const struct demo_options *options, const struct demo_trace *trace,
		 struct demo_talk *talk, struct demo_prompt **prompt_out)
{
	struct demo_prompt *p = calloc(1, sizeof(*p));
	enum demo_end end;

	*prompt_out = p;
	if (p == NULL)
		return demo_system_failed("prompt", "start", -ENOMEM);
	p->options = options;
	p->trace = trace;
	p->talk = talk;
	p->blocks_max = options->num_slots / 2;
	end = alloc_flights(p);
	if (end == DEMO_OK)
		end = demo_engine_open(options, KVP_ROLE_PROMPT, &p->engine);
	if (end == DEMO_OK)
		end = open_cache(p);
	if (end == DEMO_OK)
		end = link_decoder(p);
	return end;
}

static void
fill_slot(struct demo_prompt *p, uint32_t slot)
{
	struct demo_pool_slot *s = &p->pool->slots[slot];
	uint64_t start_ns = demo_thread_cpu_ns();

	for (uint32_t i = 0; i < demo_model_tensors(p->options->model); i++) {
		const struct kvp_tensor *t = &p->tensors[i];
		struct demo_content content = {
			.seed = p->options->seed,
			.key = s->key,
			.epoch = s->epoch,
			.tensor = i,
		};

		demo_content_fill(&content, (char *)t->base + slot * t->block_stride,
				  t->block_bytes);
	}
	s->is_filled = 1;
	p->replay->content_cpu_ns += demo_thread_cpu_ns() - start_ns;
}

static void
count_landed(struct demo_prompt *p, const struct flight *f, const struct kvp_transfer_info *info)
{
	struct demo_replay *r = p->replay;

	r->pushes++;
	r->bytes += info->bytes;
	r->pieces += info->pieces;
	r->runs += info->runs;
	r->transport_requests += info->requests;
	kvp_histogram_add(&r->latency, info->total_ns);
	p->pushed[f->request].end_ns = p->pushed[f->request].start_ns + info->total_ns;
}

/* Has the request ended? Then the flight is free again. */
static void
finish_if_done(struct demo_prompt *p, struct flight *f)
{
	if (f->state != FLIGHT_LANDED || !f->is_done)
		return;
	f->state = FLIGHT_FREE;
	p->finished++;
	p->replay->requests++;
}

static void
land(struct demo_prompt *p, struct flight *f)
{
	demo_pool_release(p->pool, f->slots, f->count);
	f->state = FLIGHT_LANDED;
	finish_if_done(p, f);
}

/* Look at all transfers once. */
static enum demo_end
reap(struct demo_prompt *p)
{
	for (uint32_t i = 0; i < p->options->inflight; i++) {
		struct flight *f = &p->flights[i];
		struct kvp_transfer_info info;
		kvp_status status;

		if (f->state != FLIGHT_PUSHING)
			continue;
		status = kvp_transfer_test(f->transfer);
		if (status == KVP_IN_PROGRESS)
			continue;
		if (status != KVP_SUCCESS)
			return demo_engine_failed("prompt", "push", status);
		status = kvp_transfer_query(f->transfer, &info);
		if (status != KVP_SUCCESS)
			return demo_engine_failed("prompt", "kvp_transfer_query", status);
		kvp_transfer_free(f->transfer);
		f->transfer = NULL;
		count_landed(p, f, &info);
		land(p, f);
	}
	return DEMO_OK;
}

/* Blocks of the request that fit half the cache. Returns the tokens that do not. */
static uint64_t
cut_to_cache(const struct demo_prompt *p, const struct demo_request *request,
	     uint32_t *input_blocks_out, uint32_t *output_blocks_out)
{
	uint32_t per_block = p->options->model->tokens_per_block;
	uint32_t input = demo_trace_blocks(request->input_tokens, per_block);
	uint32_t output = demo_trace_blocks(request->output_tokens, per_block);
	uint64_t cut = 0;

	if (output > p->blocks_max / 4) {
		output = p->blocks_max / 4;
		cut += request->output_tokens - output * per_block;
	}
	if (input > p->blocks_max - output) {
		input = p->blocks_max - output;
		cut += request->input_tokens - input * per_block;
	}
	*input_blocks_out = input;
	*output_blocks_out = output;
	return cut;
}

static enum demo_end
send_ask(struct demo_prompt *p, struct flight *f, uint32_t output_blocks)
{
	struct demo_ask ask = {
		.request = f->request,
		.count = f->count,
		.output_blocks = output_blocks,
	};
	int rc;

	for (uint32_t i = 0; i < f->count; i++) {
		const struct demo_pool_slot *s = &p->pool->slots[f->slots[i]];

		f->ask[i] = (struct demo_ask_block){.key = s->key, .epoch = s->epoch};
	}
	rc = demo_talk_send(p->talk, &(struct demo_message){
					     .type = DEMO_ASK,
					     .body = &ask,
					     .body_bytes = sizeof(ask),
					     .items = f->ask,
					     .items_bytes = f->count * sizeof(*f->ask),
				     });
	return rc == 0 ? DEMO_OK : demo_system_failed("prompt", "ask", rc);
}

static void
flip_byte(struct demo_prompt *p, const struct flight *f)
{
	const struct kvp_tensor *t = &p->tensors[0];
	unsigned char *piece = (unsigned char *)t->base + f->src[0] * t->block_stride;

	piece[t->block_bytes / 2] ^= 0x10;
	p->has_flipped = true;
}

static enum demo_end
submit(struct demo_prompt *p, struct flight *f)
{
	const struct kvp_push push = {
		.src_cache = p->cache,
		.dst = {.cluster = DEMO_DECODER_CLUSTER, .cache = p->decoder_cache},
		.src_blocks = f->src,
		.dst_blocks = f->dst,
		.count = f->granted,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = p->options->model->tensors_per_layer,
		.timeout_ms = DEMO_PUSH_TIMEOUT_MS,
		.notify = {.enabled = 1, .tag = f->request},
	};
	kvp_status status;

	if (!p->has_flipped && f->request >= p->options->flip_request)
		flip_byte(p, f);
	p->pushed[f->request].start_ns = demo_now_ns();
	status = kvp_push_submit(p->engine, &push, &f->transfer);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_push_submit", status);
	f->state = FLIGHT_PUSHING;
	return DEMO_OK;
}

static enum demo_end
push_if_ready(struct demo_prompt *p, struct flight *f)
{
	if (!f->is_computed || !f->is_granted)
		return DEMO_OK;
	if (f->granted > 0)
		return submit(p, f);
	land(p, f); /* the decoder holds everything */
	return DEMO_OK;
}

static struct flight *
flight_of(struct demo_prompt *p, uint64_t request)
{
	for (uint32_t i = 0; i < p->options->inflight; i++) {
		if (p->flights[i].state != FLIGHT_FREE && p->flights[i].request == request)
			return &p->flights[i];
	}
	return NULL;
}

static enum demo_end
on_grant(struct demo_prompt *p, const struct demo_message *message)
{
	const struct demo_grant_block *blocks;
	struct demo_grant grant;
	struct flight *f;

	memcpy(&grant, message->body, sizeof(grant));
	f = flight_of(p, grant.request);
	if (f == NULL || f->state != FLIGHT_ASKED || f->is_granted || grant.count > f->count ||
	    message->body_bytes != sizeof(grant) + grant.count * sizeof(*blocks))
		return demo_system_failed("prompt", "grant", -EPROTO);
	p->replay->decoder_held += f->count - grant.count;
	blocks = (const struct demo_grant_block *)((const struct demo_grant *)message->body + 1);
	for (uint32_t i = 0; i < grant.count; i++) {
		if (blocks[i].index >= f->count)
			return demo_system_failed("prompt", "grant", -EPROTO);
		f->src[i] = f->slots[blocks[i].index];
		f->dst[i] = blocks[i].slot;
	}
	f->granted = grant.count;
	f->is_granted = true;
	return push_if_ready(p, f);
}

static enum demo_end
on_done(struct demo_prompt *p, const struct demo_message *message)
{
	struct demo_done done;
	struct flight *f;

	memcpy(&done, message->body, sizeof(done));
	f = flight_of(p, done.request);
	if (f == NULL)
		return demo_system_failed("prompt", "done", -EPROTO);
	p->replay->verified_bytes += done.verified_bytes;
	p->replay->wrong_bytes += done.wrong_bytes;
	f->is_done = true;
	finish_if_done(p, f);
	return DEMO_OK;
}

/* All messages that are there, after waiting `wait_ms` for the first. */
static enum demo_end
hear(struct demo_prompt *p, int wait_ms)
{
	struct demo_message message;
	enum demo_end end = DEMO_OK;
	int rc;

	while (end == DEMO_OK) {
		rc = demo_talk_receive(p->talk, wait_ms, &message);
		if (rc == -EAGAIN || rc == -EINTR)
			return DEMO_OK;
		if (rc != 0)
			return demo_stop != 0 ? DEMO_STOPPED
					      : demo_system_failed("prompt", "decoder", rc);
		wait_ms = 0;
		if (message.type == DEMO_GRANT && message.body_bytes >= sizeof(struct demo_grant))
			end = on_grant(p, &message);
		else if (message.type == DEMO_DONE &&
			 message.body_bytes == sizeof(struct demo_done))
			end = on_done(p, &message);
		else
			end = demo_system_failed("prompt", "decoder's message", -EPROTO);
	}
	return end;
}

/* Fill the request's new blocks, and serve the requests before it meanwhile. */
static enum demo_end
compute(struct demo_prompt *p, struct flight *f)
{
	enum demo_end end = DEMO_OK;

	for (uint32_t i = 0; end == DEMO_OK && i < f->count; i++) {
		if (p->is_new[i] == 0) {
			p->replay->prompt_reused++;
			continue;
		}
		if (demo_stop != 0)
			return DEMO_STOPPED;
		fill_slot(p, f->slots[i]);
		end = reap(p);
		if (end == DEMO_OK)
			end = hear(p, 0);
	}
	f->is_computed = true;
	return end == DEMO_OK ? push_if_ready(p, f) : end;
}

/* Begin the next request if the pool has room: *started_out. */
static enum demo_end
start_request(struct demo_prompt *p, struct flight *f, bool *started_out)
{
	const struct demo_request *request = &p->trace->requests[p->next];
	struct demo_pool_want want = {.keys = p->keys};
	uint32_t input_blocks, output_blocks;
	uint64_t cut_tokens;
	enum demo_end end;

	cut_tokens = cut_to_cache(p, request, &input_blocks, &output_blocks);
	want.count = demo_trace_keys(p->trace, request, p->options->model->tokens_per_block,
				     input_blocks, p->keys);
	*started_out = false;
	if (demo_pool_acquire(p->pool, &want, f->slots, p->is_new) != 0)
		return DEMO_OK;
	*started_out = true;
	f->state = FLIGHT_ASKED;
	f->is_done = false;
	f->is_computed = false;
	f->is_granted = false;
	f->count = want.count;
	f->request = p->next++;
	p->replay->cut_tokens += cut_tokens;
	p->replay->cut_requests += cut_tokens > 0;
	p->replay->input_tokens += request->input_tokens;
	p->replay->output_tokens += request->output_tokens;
	p->replay->blocks += want.count;
	end = send_ask(p, f, output_blocks);
	return end == DEMO_OK ? compute(p, f) : end;
}

/* Something is under way and nothing can be begun: sleep until it moves. */
static enum demo_end
wait_for_news(struct demo_prompt *p)
{
	for (uint32_t i = 0; i < p->options->inflight; i++) {
		if (p->flights[i].state == FLIGHT_PUSHING) {
			(void)kvp_transfer_wait(p->flights[i].transfer, WAIT_MS); /* reap looks */
			return hear(p, 0);
		}
	}
	return hear(p, (int)WAIT_MS);
}

static struct flight *
free_flight(struct demo_prompt *p)
{
	for (uint32_t i = 0; i < p->options->inflight; i++) {
		if (p->flights[i].state == FLIGHT_FREE)
			return &p->flights[i];
	}
	return NULL;
}

static enum demo_end
run_requests(struct demo_prompt *p)
{
	struct demo_progress progress = {.total = p->trace->count};
	enum demo_end end = DEMO_OK;

	while (end == DEMO_OK && p->finished < p->trace->count) {
		struct flight *f = p->next < p->trace->count ? free_flight(p) : NULL;
		bool has_started = false;

		if (demo_stop != 0)
			return DEMO_STOPPED;
		end = reap(p);
		if (end == DEMO_OK && f != NULL)
			end = start_request(p, f, &has_started);
		if (end == DEMO_OK)
			end = has_started ? hear(p, 0) : wait_for_news(p);
		demo_progress_show(&progress, p->finished, p->replay);
	}
	demo_progress_end(&progress, p->finished, p->replay);
	return end;
}

/* Time in which at least one push was under way; requests are not submitted in order. */
static int
by_start(const void *a, const void *b)
{
	const struct interval *x = a, *y = b;

	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static uint64_t
busy_time(struct interval *pushed, size_t count)
{
	uint64_t busy_ns = 0, until_ns = 0;

	qsort(pushed, count, sizeof(*pushed), by_start);
	for (size_t i = 0; i < count; i++) {
		uint64_t from_ns = pushed[i].start_ns > until_ns ? pushed[i].start_ns : until_ns;

		if (pushed[i].end_ns <= from_ns)
			continue;
		busy_ns += pushed[i].end_ns - from_ns;
		until_ns = pushed[i].end_ns;
	}
	return busy_ns;
}

static enum demo_end
sum_up(struct demo_prompt *p)
{
	struct demo_replay *r = p->replay;
	struct demo_message message;
	struct demo_summary summary;
	struct kvp_link_info info;
	kvp_status status;
	enum demo_end end;
	int rc;

	status = kvp_link_query(p->engine, DEMO_DECODER_CLUSTER, &info);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_link_query", status);
	memcpy(r->path, info.path, sizeof(r->path));
	r->busy_ns = busy_time(p->pushed, p->trace->count);
	r->prompt_evictions = p->pool->evictions;
	rc = demo_talk_say(p->talk, DEMO_FINISH, NULL, 0);
	if (rc != 0)
		return demo_system_failed("prompt", "finish", rc);
	end = demo_expect(p->talk, DEMO_SUMMARY, sizeof(summary), &message);
	if (end != DEMO_OK)
		return end;
	memcpy(&summary, message.body, sizeof(summary));
	r->decoder_evictions = summary.evictions;
	r->swept_bytes = summary.swept_bytes;
	r->swept_wrong_bytes = summary.swept_wrong_bytes;
	r->cpu_ns += summary.cpu_ns;
	r->content_cpu_ns += summary.verify_cpu_ns;
	status = kvp_cache_release(p->engine, p->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("prompt", "kvp_cache_release", status);
	return DEMO_OK;
}

enum demo_end
demo_prompt_replay(struct demo_prompt *prompt, struct demo_replay *replay_out)
{
	uint64_t start_ns = demo_now_ns(), start_cpu_ns = demo_process_cpu_ns();
	enum demo_end end;

	*replay_out = (struct demo_replay){0};
	prompt->replay = replay_out;
	end = run_requests(prompt);
	replay_out->wall_ns = demo_now_ns() - start_ns;
	replay_out->cpu_ns = demo_process_cpu_ns() - start_cpu_ns;
	return end == DEMO_OK ? sum_up(prompt) : end;
}

struct kvp_engine *
demo_prompt_engine(struct demo_prompt *prompt)
{
	return prompt->engine;
}

void
demo_prompt_close(struct demo_prompt *prompt)
{
	if (prompt == NULL)
		return;
	for (uint32_t i = 0; prompt->flights != NULL && i < prompt->options->inflight; i++) {
		struct flight *f = &prompt->flights[i];

		kvp_transfer_free(f->transfer);
		free(f->slots);
		free(f->ask);
		free(f->src);
		free(f->dst);
	}
	if (prompt->is_linked) /* so that the decoder's engine knows that this is no accident */
		(void)kvp_unlink(prompt->engine, DEMO_DECODER_CLUSTER, UNLINK_MS, 0);
	kvp_close(prompt->engine);
	demo_pool_destroy(prompt->pool);
	free(prompt->tensors);
	free(prompt->flights);
	free(prompt->keys);
	free(prompt->is_new);
	free(prompt->pushed);
	free(prompt);
}
