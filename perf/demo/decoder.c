/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "content.h"
#include "pool.h"
#include "start.h"
#include "talk.h"
#include "w1.h"

#define LOOK_MS 500 /* how often the loop looks at demo_stop without news */

enum serving_state {
	SERVING_FREE = 0,
	SERVING_QUEUED,  /* waits for slots */
	SERVING_GRANTED, /* its push is under way */
	SERVING_ARRIVED, /* verified; waits for blocks that another request brings */
};

/* One request between ask and done. */
struct serving {
	enum serving_state state;
	uint64_t request;
	uint32_t count, output_blocks;
	uint32_t granted;
	struct demo_ask_block *ask;     /* count */
	uint32_t *slots;                /* count + output_blocks */
	struct demo_grant_block *grant; /* granted */
	uint64_t verified_bytes, wrong_bytes;
};

struct decoder {
	const struct demo_options *options;
	struct demo_talk talk;
	struct kvp_engine *engine;
	struct kvp_tensor *tensors;
	struct demo_pool *pool;
	struct serving *servings; /* options->inflight */
	uint8_t *is_new;
	struct demo_summary summary;
	struct demo_w1_serving w1;
	uint64_t start_cpu_ns;
	int64_t cache;
	uint32_t blocks_max; /* of one request, as the prompt cuts it */
	bool is_over;
};

static enum demo_end
alloc_servings(struct decoder *d)
{
	size_t max = d->blocks_max;

	d->servings = calloc(d->options->inflight, sizeof(*d->servings));
	d->is_new = calloc(max, 1);
	if (d->servings == NULL || d->is_new == NULL)
		return demo_system_failed("decoder", "request tables", -ENOMEM);
	for (uint32_t i = 0; i < d->options->inflight; i++) {
		struct serving *s = &d->servings[i];

		s->ask = calloc(max, sizeof(*s->ask));
		s->slots = calloc(max, sizeof(*s->slots));
		s->grant = calloc(max, sizeof(*s->grant));
		if (s->ask == NULL || s->slots == NULL || s->grant == NULL)
			return demo_system_failed("decoder", "request tables", -ENOMEM);
	}
	return DEMO_OK;
}

static enum demo_end
open_engine(struct decoder *d)
{
	uint32_t num_tensors = demo_model_tensors(d->options->model);
	struct demo_ready ready = {.num_slots = d->options->num_slots};
	kvp_status status;
	int rc;

	if (demo_engine_open(d->options, KVP_ROLE_DECODER, &d->engine) != DEMO_OK)
		return DEMO_FAILED;
	d->pool = demo_pool_create(d->options->num_slots);
	d->tensors = calloc(num_tensors, sizeof(*d->tensors));
	if (d->pool == NULL || d->tensors == NULL)
		return demo_system_failed("decoder", "block tables", -ENOMEM);
	demo_model_layout(d->options->model, d->options->num_slots, d->tensors);
	status = kvp_cache_allocate(d->engine, d->tensors, num_tensors, &d->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("decoder", "kvp_cache_allocate", status);
	ready.cache = d->cache;
	ready.port = kvp_port(d->engine);
	d->start_cpu_ns = demo_process_cpu_ns();
	rc = demo_talk_say(&d->talk, DEMO_READY, &ready, sizeof(ready));
	return rc == 0 ? DEMO_OK : demo_system_failed("decoder", "ready", rc);
}

static void *
piece_at(const struct decoder *d, uint32_t tensor, uint32_t slot)
{
	return (char *)d->tensors[tensor].base + slot * d->tensors[tensor].block_stride;
}

/* Bytes of the slot that are not what its key and epoch ask for. */
static uint64_t
check_slot(struct decoder *d, uint32_t slot)
{
	const struct demo_pool_slot *s = &d->pool->slots[slot];
	uint64_t start_ns = demo_thread_cpu_ns();
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < demo_model_tensors(d->options->model); i++) {
		struct demo_content content = {
			.seed = d->options->seed,
			.key = s->key,
			.epoch = s->epoch,
			.tensor = i,
		};

		wrong += demo_content_wrong(&content, piece_at(d, i, slot),
					    d->options->model->block_bytes);
	}
	d->summary.verify_cpu_ns += demo_thread_cpu_ns() - start_ns;
	return wrong;
}

static void
spoil_slot(struct decoder *d, uint32_t slot)
{
	uint64_t start_ns = demo_thread_cpu_ns();

	for (uint32_t i = 0; i < demo_model_tensors(d->options->model); i++)
		demo_content_spoil(piece_at(d, i, slot), d->options->model->block_bytes);
	d->summary.verify_cpu_ns += demo_thread_cpu_ns() - start_ns;
}

static void
verify(struct decoder *d, struct serving *s)
{
	for (uint32_t i = 0; i < s->granted; i++) {
		uint32_t slot = s->grant[i].slot;

		s->wrong_bytes += check_slot(d, slot);
		s->verified_bytes += demo_model_slot_bytes(d->options->model);
		d->pool->slots[slot].is_filled = 1;
	}
	d->summary.verified_bytes += s->verified_bytes;
	d->summary.wrong_bytes += s->wrong_bytes;
	s->state = SERVING_ARRIVED;
}

static bool
has_all_blocks(const struct decoder *d, const struct serving *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		if (d->pool->slots[s->slots[i]].is_filled == 0)
			return false;
	}
	return true;
}

/* Requests whose blocks are all here: decode (the output slots are theirs), then forget them. */
static enum demo_end
finish_requests(struct decoder *d)
{
	for (uint32_t i = 0; i < d->options->inflight; i++) {
		struct serving *s = &d->servings[i];
		struct demo_done done;
		int rc;

		if (s->state != SERVING_ARRIVED || !has_all_blocks(d, s))
			continue;
		for (uint32_t o = 0; o < s->output_blocks; o++)
			spoil_slot(d, s->slots[s->count + o]);
		demo_pool_release(d->pool, s->slots, s->count + s->output_blocks);
		s->state = SERVING_FREE;
		done = (struct demo_done){
			.request = s->request,
			.verified_bytes = s->verified_bytes,
			.wrong_bytes = s->wrong_bytes,
		};
		rc = demo_talk_say(&d->talk, DEMO_DONE, &done, sizeof(done));
		if (rc != 0)
			return demo_system_failed("decoder", "done", rc);
	}
	return DEMO_OK;
}

static struct serving *
oldest_queued(struct decoder *d)
{
	struct serving *oldest = NULL;

	for (uint32_t i = 0; i < d->options->inflight; i++) {
		struct serving *s = &d->servings[i];

		if (s->state == SERVING_QUEUED && (oldest == NULL || s->request < oldest->request))
			oldest = s;
	}
	return oldest;
}

static enum demo_end
send_grant(struct decoder *d, struct serving *s)
{
	struct demo_grant grant = {.request = s->request, .count = s->granted};
	int rc = demo_talk_send(&d->talk, &(struct demo_message){
						  .type = DEMO_GRANT,
						  .body = &grant,
						  .body_bytes = sizeof(grant),
						  .items = s->grant,
						  .items_bytes = s->granted * sizeof(*s->grant),
					  });

	return rc == 0 ? DEMO_OK : demo_system_failed("decoder", "grant", rc);
}

/* Grant in order of arrival, as far as there are slots. */
static enum demo_end
grant_requests(struct decoder *d)
{
	uint64_t *keys = calloc(d->blocks_max, sizeof(*keys));
	enum demo_end end = DEMO_OK;
	struct serving *s;

	if (keys == NULL)
		return demo_system_failed("decoder", "keys", -ENOMEM);
	while (end == DEMO_OK && (s = oldest_queued(d)) != NULL) {
		struct demo_pool_want want = {
			.keys = keys,
			.count = s->count,
			.anonymous = s->output_blocks,
		};

		for (uint32_t i = 0; i < s->count; i++)
			keys[i] = s->ask[i].key;
		if (demo_pool_acquire(d->pool, &want, s->slots, d->is_new) != 0)
			break;
		s->granted = 0;
		for (uint32_t i = 0; i < s->count; i++) {
			if (d->is_new[i] == 0)
				continue;
			d->pool->slots[s->slots[i]].epoch = s->ask[i].epoch;
			spoil_slot(d, s->slots[i]);
			s->grant[s->granted++] = (struct demo_grant_block){
				.index = i,
				.slot = s->slots[i],
			};
		}
		s->state = s->granted > 0 ? SERVING_GRANTED : SERVING_ARRIVED;
		end = send_grant(d, s);
	}
	free(keys);
	return end;
}

static enum demo_end
on_ask(struct decoder *d, const struct demo_message *message)
{
	struct serving *s = NULL;
	struct demo_ask ask;

	if (message->body_bytes < sizeof(ask))
		return demo_system_failed("decoder", "ask", -EPROTO);
	memcpy(&ask, message->body, sizeof(ask));
	for (uint32_t i = 0; s == NULL && i < d->options->inflight; i++) {
		if (d->servings[i].state == SERVING_FREE)
			s = &d->servings[i];
	}
	if (s == NULL || ask.count == 0 || ask.count > d->blocks_max ||
	    ask.output_blocks > d->blocks_max - ask.count ||
	    message->body_bytes != sizeof(ask) + ask.count * sizeof(*s->ask))
		return demo_system_failed("decoder", "ask", -EPROTO);
	memcpy(s->ask, (const char *)message->body + sizeof(ask), ask.count * sizeof(*s->ask));
	s->state = SERVING_QUEUED;
	s->request = ask.request;
	s->count = ask.count;
	s->output_blocks = ask.output_blocks;
	s->verified_bytes = 0;
	s->wrong_bytes = 0;
	return DEMO_OK;
}

/* Everything that the cache still holds must be as it arrived: no stray byte hit it. */
static enum demo_end
on_finish(struct decoder *d)
{
	uint64_t verify_cpu_ns = d->summary.verify_cpu_ns;
	kvp_status status;
	int rc;

	d->summary.cpu_ns = demo_process_cpu_ns() - d->start_cpu_ns;
	d->summary.evictions = d->pool->evictions;
	for (uint32_t slot = 0; slot < d->pool->num_slots && demo_stop == 0; slot++) {
		if (d->pool->slots[slot].key == 0 || d->pool->slots[slot].is_filled == 0)
			continue;
		d->summary.swept_wrong_bytes += check_slot(d, slot);
		d->summary.swept_bytes += demo_model_slot_bytes(d->options->model);
	}
	d->summary.verify_cpu_ns = verify_cpu_ns; /* the sweep is not part of the replay */
	status = kvp_cache_release(d->engine, d->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("decoder", "kvp_cache_release", status);
	rc = demo_talk_say(&d->talk, DEMO_SUMMARY, &d->summary, sizeof(d->summary));
	return rc == 0 ? DEMO_OK : demo_system_failed("decoder", "summary", rc);
}

static enum demo_end
on_message(struct decoder *d, const struct demo_message *message)
{
	switch ((enum demo_message_type)message->type) {
	case DEMO_ASK:
		return on_ask(d, message);
	case DEMO_FINISH:
		return on_finish(d);
	case DEMO_W1_OPEN:
		return demo_w1_serve_open(&d->w1, d->options, d->engine, &d->talk);
	case DEMO_W1_PREPARE:
	case DEMO_W1_CHECK:
	case DEMO_W1_SOCKET:
		return demo_w1_serve(&d->w1, &d->talk, message);
	case DEMO_BYE:
		d->is_over = true;
		return DEMO_OK;
	case DEMO_READY:
	case DEMO_GRANT:
	case DEMO_DONE:
	case DEMO_SUMMARY:
	case DEMO_W1_READY:
	case DEMO_W1_ANSWER:
		break;
	}
	return demo_system_failed("decoder", "prompt's message", -EPROTO);
}

static enum demo_end
hear(struct decoder *d)
{
	struct demo_message message;
	enum demo_end end = DEMO_OK;

	while (end == DEMO_OK && !d->is_over) {
		int rc = demo_talk_receive(&d->talk, 0, &message);

		if (rc == -EAGAIN || rc == -EINTR)
			return DEMO_OK;
		if (rc == -EPIPE) /* the prompt has ended, and said why if it had to */
			d->is_over = true;
		else if (rc != 0)
			return demo_system_failed("decoder", "prompt", rc);
		else
			end = on_message(d, &message);
	}
	return end;
}

static enum demo_end
on_arrival(struct decoder *d, const struct kvp_event *event)
{
	for (uint32_t i = 0; i < d->options->inflight; i++) {
		struct serving *s = &d->servings[i];

		if (s->state != SERVING_GRANTED || s->request != event->tag)
			continue;
		if (event->bytes != s->granted * demo_model_slot_bytes(d->options->model))
			return demo_system_failed("decoder", "bytes of an event", -EPROTO);
		verify(d, s);
		return DEMO_OK;
	}
	return demo_system_failed("decoder", "event of an unknown push", -EPROTO);
}

static enum demo_end
take_events(struct decoder *d)
{
	struct kvp_event event;
	enum demo_end end = DEMO_OK;

	while (end == DEMO_OK && demo_stop == 0) {
		kvp_status status = kvp_event_poll(d->engine, &event);

		if (status == KVP_NO_EVENT)
			return DEMO_OK;
		if (status != KVP_SUCCESS)
			return demo_engine_failed("decoder", "kvp_event_poll", status);
		if (event.kind == KVP_EVENT_PUSH_ARRIVED)
			end = on_arrival(d, &event);
		/* a lost or unlinked prompt also ends the talk, which says the rest */
	}
	return end;
}

static enum demo_end
serve(struct decoder *d)
{
	struct pollfd pfd[2] = {
		{.fd = d->talk.fd, .events = POLLIN},
		{.fd = kvp_event_fd(d->engine), .events = POLLIN},
	};
	enum demo_end end = DEMO_OK;

	while (end == DEMO_OK && !d->is_over) {
		if (demo_stop != 0)
			return DEMO_STOPPED;
		/* W1 takes its events itself: they must not wake this loop all the time. */
		if (poll(pfd, d->w1.is_open ? 1 : 2, LOOK_MS) < 0 && errno != EINTR)
			return demo_system_failed("decoder", "poll", -errno);
		end = hear(d);
		if (end == DEMO_OK && !d->w1.is_open)
			end = take_events(d);
		if (end == DEMO_OK)
			end = finish_requests(d);
		if (end == DEMO_OK)
			end = grant_requests(d);
		if (end == DEMO_OK) /* those that lack nothing */
			end = finish_requests(d);
	}
	return end;
}

int
demo_decoder_main(const struct demo_options *options, int fd)
{
	struct decoder d = {.options = options, .blocks_max = options->num_slots / 2};
	enum demo_end end;

	demo_talk_init(&d.talk, fd);
	end = alloc_servings(&d);
	if (end == DEMO_OK)
		end = open_engine(&d);
	if (end == DEMO_OK)
		end = serve(&d);
	demo_w1_serve_close(&d.w1);
	kvp_close(d.engine);
	for (uint32_t i = 0; d.servings != NULL && i < options->inflight; i++) {
		free(d.servings[i].ask);
		free(d.servings[i].slots);
		free(d.servings[i].grant);
	}
	free(d.servings);
	free(d.is_new);
	free(d.tensors);
	demo_pool_destroy(d.pool);
	demo_talk_fini(&d.talk);
	return end == DEMO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
