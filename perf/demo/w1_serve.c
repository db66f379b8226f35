/* SPDX-License-Identifier: Apache-2.0 */
#include "w1.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "limit.h"
#include "start.h"

#define EVENT_WAIT_NS 10000000000U
#define LOOK_MS       100

static enum demo_end
answer(struct demo_talk *talk, uint64_t wrong_bytes)
{
	struct demo_w1_answer body = {.wrong_bytes = wrong_bytes};
	int rc = demo_talk_say(talk, DEMO_W1_ANSWER, &body, sizeof(body));

	return rc == 0 ? DEMO_OK : demo_system_failed("decoder", "W1", rc);
}

enum demo_end
demo_w1_serve_open(struct demo_w1_serving *w1, const struct demo_options *options,
		   struct kvp_engine *engine, struct demo_talk *talk)
{
	struct demo_w1_ready ready = {0};
	uint16_t port;
	kvp_status status;
	int rc;

	w1->options = options;
	w1->engine = engine;
	w1->fd = -1;
	w1->listener = limit_tcp_listen(&port);
	if (w1->listener < 0)
		return demo_system_failed("decoder", "plain socket", w1->listener);
	w1->is_open = true;
	demo_w1_layout(w1->tensors);
	status = kvp_cache_allocate(engine, w1->tensors, DEMO_W1_TENSORS, &w1->cache);
	if (status != KVP_SUCCESS)
		return demo_engine_failed("decoder", "kvp_cache_allocate for W1", status);
	ready.cache = w1->cache;
	ready.limit_port = port;
	rc = demo_talk_say(talk, DEMO_W1_READY, &ready, sizeof(ready));
	return rc == 0 ? DEMO_OK : demo_system_failed("decoder", "W1", rc);
}

static void *
piece_at(const struct demo_w1_serving *w1, uint32_t tensor, uint64_t slot)
{
	return (char *)w1->tensors[tensor].base + slot * DEMO_W1_BLOCK_BYTES;
}

static enum demo_end
prepare(const struct demo_w1_serving *w1, struct demo_talk *talk, uint32_t round)
{
	uint64_t src[DEMO_W1_BLOCKS], dst[DEMO_W1_BLOCKS];

	demo_w1_lists(w1->options->seed, round, src, dst);
	for (uint32_t t = 0; t < DEMO_W1_TENSORS; t++) {
		for (uint32_t i = 0; i < DEMO_W1_BLOCKS; i++)
			demo_content_spoil(piece_at(w1, t, dst[i]), DEMO_W1_BLOCK_BYTES);
	}
	return answer(talk, 0);
}

/* The round's event must be there or come soon; nothing may be looked at before it. */
static enum demo_end
await_event(const struct demo_w1_serving *w1, uint32_t round)
{
	struct pollfd pfd = {.fd = kvp_event_fd(w1->engine), .events = POLLIN};
	uint64_t end_ns = demo_now_ns() + EVENT_WAIT_NS;
	struct kvp_event event;

	while (demo_now_ns() < end_ns) {
		kvp_status status = kvp_event_poll(w1->engine, &event);

		if (demo_stop != 0)
			return DEMO_STOPPED;
		if (status == KVP_NO_EVENT) {
			(void)poll(&pfd, 1, LOOK_MS);
			continue;
		}
		if (status != KVP_SUCCESS)
			return demo_engine_failed("decoder", "kvp_event_poll", status);
		if (event.kind == KVP_EVENT_PUSH_ARRIVED && event.cache == w1->cache &&
		    event.tag == round)
			return DEMO_OK;
	}
	return demo_system_failed("decoder", "event of a W1 push", -ETIMEDOUT);
}

static enum demo_end
check(const struct demo_w1_serving *w1, struct demo_talk *talk, uint32_t round)
{
	uint64_t src[DEMO_W1_BLOCKS], dst[DEMO_W1_BLOCKS];
	enum demo_end end = await_event(w1, round);
	uint64_t wrong = 0;

	if (end != DEMO_OK)
		return end;
	demo_w1_lists(w1->options->seed, round, src, dst);
	for (uint32_t t = 0; t < DEMO_W1_TENSORS; t++) {
		for (uint32_t i = 0; i < DEMO_W1_BLOCKS; i++) {
			struct demo_content content = demo_w1_content(w1->options->seed, src[i], t);

			wrong += demo_content_wrong(&content, piece_at(w1, t, dst[i]),
						    DEMO_W1_BLOCK_BYTES);
		}
	}
	return answer(talk, wrong);
}

/* The limit's receiving side, into the same slots as the engine's push. */
static enum demo_end
receive_plain(struct demo_w1_serving *w1, struct demo_talk *talk, uint32_t round)
{
	uint64_t src[DEMO_W1_BLOCKS], dst[DEMO_W1_BLOCKS];
	void **to = calloc(DEMO_W1_PIECES, sizeof(*to));
	struct limit_pieces pieces = {
		.dst = to,
		.count = DEMO_W1_PIECES,
		.piece_bytes = DEMO_W1_BLOCK_BYTES,
	};
	enum demo_end end = DEMO_OK;
	size_t next = 0;
	int rc = 0;

	if (to == NULL)
		return demo_system_failed("decoder", "plain socket", -ENOMEM);
	demo_w1_lists(w1->options->seed, round, src, dst);
	for (uint32_t t = 0; t < DEMO_W1_TENSORS; t++) {
		for (uint32_t i = 0; i < DEMO_W1_BLOCKS; i++)
			to[next++] = piece_at(w1, t, dst[i]);
	}
	if (w1->fd < 0) /* the prompt has connected before it asks for the first round */
		w1->fd = limit_tcp_accept(w1->listener);
	if (w1->fd < 0)
		rc = w1->fd;
	if (rc == 0)
		end = answer(talk, 0);
	if (rc == 0 && end == DEMO_OK)
		rc = limit_tcp_receive(w1->fd, &pieces);
	free(to);
	return rc == 0 ? end : demo_system_failed("decoder", "plain socket", rc);
}

enum demo_end
demo_w1_serve(struct demo_w1_serving *w1, struct demo_talk *talk,
	      const struct demo_message *message)
{
	struct demo_w1_round body;

	if (!w1->is_open || message->body_bytes != sizeof(body))
		return demo_system_failed("decoder", "W1", -EPROTO);
	memcpy(&body, message->body, sizeof(body));
	if (message->type == DEMO_W1_PREPARE)
		return prepare(w1, talk, body.round);
	if (message->type == DEMO_W1_CHECK)
		return check(w1, talk, body.round);
	return receive_plain(w1, talk, body.round);
}

void
demo_w1_serve_close(struct demo_w1_serving *w1)
{
	if (!w1->is_open)
		return;
	(void)close(w1->listener);
	if (w1->fd >= 0)
		(void)close(w1->fd);
	w1->is_open = false;
}
