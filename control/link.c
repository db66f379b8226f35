/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c - a link that stands: its frames, its heartbeat, its end
 *
 * Handshake (how it comes up) is handshake.c; the peer's caches are catalogue.c;
 * what applications call is link_api.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "state.h"
#include "wake.h"

#define PATIENCE_NS 50000000U /* for the peer's own reason, after something of the link broke */

/* While both sides link at once there may be two for a moment: the one that stands counts. */
struct kvp_link *
kvp_link_find(struct kvp_engine *engine, uint64_t cluster_id)
{
	struct kvp_link *found = NULL;

	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (!link->has_cluster || link->cluster_id != cluster_id ||
		    link->step == KVP_STEP_CLOSING)
			continue;
		if (link->step == KVP_STEP_READY)
			return link;
		found = link;
	}
	return found;
}

static void
link_transmit(struct kvp_link *link, const uint8_t *frame, size_t bytes)
{
	if (!kvp_channel_is_open(&link->channel))
		return;
	link->last_sent_ns = link->engine->now_ns;
	if (!kvp_channel_send(&link->channel, frame, bytes))
		kvp_link_broke(link, KVP_PEER_LOST,
			       "the peer does not read its control connection");
}

void
kvp_link_send(struct kvp_link *link, uint8_t type)
{
	uint8_t frame[KVP_FRAME_HEADER];

	link_transmit(link, frame, kvp_frame_encode_empty(type, frame, sizeof(frame)));
}

void
kvp_link_send_value(struct kvp_link *link, uint8_t type, uint64_t value)
{
	uint8_t frame[KVP_FRAME_HEADER + 16];

	link_transmit(link, frame, kvp_frame_encode_value(type, value, frame, sizeof(frame)));
}

static void
raise_end(struct kvp_link *link)
{
	struct kvp_event event = {
		.kind = link->status == KVP_SUCCESS ? KVP_EVENT_PEER_UNLINKED : KVP_EVENT_PEER_LOST,
		.status = link->status,
		.cluster_id = link->cluster_id,
	};

	/* Who unlinks knows that it did. */
	if (link->was_ready && !link->is_unlinking && link->status != KVP_NOT_YET_LINK)
		kvp_event_raise(link->engine, &event);
}

void
kvp_link_silence(struct kvp_link *link, kvp_status why)
{
	if (!link->is_attached || link->is_silent)
		return;
	link->is_silent = true;
	link->path->is_silent = true;
	for (uint32_t i = 0; i < link->path->config.endpoints; i++)
		kvp_lane_down(link->path->endpoint[i]->lane, link->path->endpoint[i], why);
}

void
kvp_link_end(struct kvp_link *link, kvp_status status, kvp_status transfer_status, const char *text)
{
	struct kvp_engine *engine = link->engine;
	/* Not what either side asked for. kvp_link reports a failed handshake itself. */
	bool is_loud = link->was_ready && status != KVP_SUCCESS && status != KVP_NOT_YET_LINK;

	if (link->step == KVP_STEP_CLOSING)
		return;
	link->step = KVP_STEP_CLOSING;
	link->status = status;
	kvp_fail(&link->error, status, "%s", text);
	kvp_log(engine->config.log_level, is_loud ? 2 : 3, "link to cluster %llu at %s ended: %s",
		(unsigned long long)link->cluster_id, link->address, text);
	kvp_link_silence(link, transfer_status);
	kvp_channel_close(&link->channel);
	raise_end(link);
	kvp_engine_changed(engine);
}

void
kvp_link_broke(struct kvp_link *link, kvp_status status, const char *text)
{
	uint64_t soon_ns = link->engine->now_ns + PATIENCE_NS;

	if (link->step == KVP_STEP_CLOSING || link->doubt != KVP_SUCCESS)
		return;
	link->doubt = status;
	kvp_fail(&link->error, status, "%s", text);
	if (link->was_ready || link->deadline_ns > soon_ns)
		link->deadline_ns = soon_ns;
}

static void
link_free(struct kvp_link *link)
{
	struct kvp_engine *engine = link->engine;
	struct kvp_link **at = &engine->links;

	if (link->is_attached) {
		for (uint32_t i = 0; i < link->path->config.endpoints; i++)
			kvp_lane_detach(link->path->endpoint[i]->lane, link->path->endpoint[i]);
	}
	kvp_link_tally(link, &engine->past);
	kvp_catalogue_free(link);
	if (link->path != NULL)
		link->path->transport->path_destroy(link->path);
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	engine->link_count--;
	free(link->regions_shared);
	free(link->gone_sent);
	free(link->tally);
	free(link);
	kvp_engine_changed(engine);
}

/* The peer confirms that it let go of one of our caches. Twice, or made up: nobody waits for it. */
static void
cache_gone_ack(struct kvp_link *link, int64_t cache_id)
{
	for (uint32_t i = 0; i < link->gone; i++) {
		if (link->gone_sent[i] == cache_id) {
			link->gone_sent[i] = link->gone_sent[--link->gone];
			kvp_engine_changed(link->engine);
			return;
		}
	}
}

static void
value_frame(struct kvp_link *link, uint8_t type, uint64_t value)
{
	switch (type) {
	case KVP_FRAME_CACHE_GONE:
		kvp_catalogue_gone(link, (int64_t)value);
		break;
	case KVP_FRAME_CACHE_GONE_ACK:
		cache_gone_ack(link, (int64_t)value);
		break;
	case KVP_FRAME_SYNC:
		kvp_link_send_value(link, KVP_FRAME_SYNC_ACK, value);
		break;
	default: /* SYNC_ACK */
		if (value <= link->sync_sent && value > link->sync_acked)
			link->sync_acked = value;
		kvp_engine_changed(link->engine);
		break;
	}
}

bool
kvp_link_note(struct kvp_path *path, const uint8_t *body, uint32_t bytes, void *ctx)
{
	struct kvp_link *link = ctx;
	size_t size = KVP_FRAME_HEADER + (size_t)bytes;
	uint8_t *frame;

	(void)path;
	if (link->step == KVP_STEP_CLOSING || !kvp_channel_is_open(&link->channel))
		return false;
	frame = malloc(size);
	if (frame == NULL) {
		kvp_link_broke(link, KVP_OUT_OF_MEMORY, "no memory for a note to the peer's path");
		return false;
	}
	link_transmit(link, frame, kvp_frame_encode_note(body, bytes, frame, size));
	free(frame);
	return true;
}

void
kvp_link_say(struct kvp_path *path, uint32_t level, const char *text, void *ctx)
{
	const struct kvp_link *link = ctx;

	kvp_log(link->engine->config.log_level, level, "link to cluster %llu at %s, %s: %s",
		(unsigned long long)link->cluster_id, link->address, path->transport->name, text);
}

static void
note_frame(struct kvp_link *link, const uint8_t *body, uint32_t bytes)
{
	const struct kvp_transport *transport = link->path->transport;
	struct kvp_error error;
	kvp_status status;

	status = transport->path_note != NULL
			 ? transport->path_note(link->path, body, bytes, &error)
			 : kvp_fail(&error, KVP_PROTOCOL, "a note came, and %s takes none",
				    transport->name);
	if (status != KVP_SUCCESS)
		kvp_link_end(link, status, KVP_PEER_LOST, error.text);
}

/* Frames that mean the same at any time after the greeting. */
static bool
steady_frame(struct kvp_link *link, uint8_t type, const uint8_t *body, uint32_t bytes)
{
	struct kvp_error error;
	uint64_t value;

	switch (type) {
	case KVP_FRAME_HEARTBEAT:
		return true;
	case KVP_FRAME_CACHE_ADD:
		kvp_catalogue_add(link, body, bytes);
		return true;
	case KVP_FRAME_NOTE:
		note_frame(link, body, bytes);
		return true;
	case KVP_FRAME_CACHE_GONE:
	case KVP_FRAME_CACHE_GONE_ACK:
	case KVP_FRAME_SYNC:
	case KVP_FRAME_SYNC_ACK:
		if (kvp_frame_decode_value(body, bytes, &value, &error) != KVP_SUCCESS)
			kvp_link_end(link, KVP_PROTOCOL, KVP_PEER_LOST, error.text);
		else
			value_frame(link, type, value);
		return true;
	case KVP_FRAME_UNLINK:
		kvp_link_silence(link, KVP_NOT_YET_LINK); /* before the peer may rely on it */
		kvp_link_send(link, KVP_FRAME_UNLINK_ACK);
		kvp_link_end(link, KVP_SUCCESS, KVP_NOT_YET_LINK, "the peer unlinked");
		return true;
	case KVP_FRAME_BYE:
		kvp_link_end(link, KVP_SUCCESS, KVP_NOT_YET_LINK, "the peer closed its engine");
		return true;
	case KVP_FRAME_UNLINK_ACK:
		if (link->is_unlinking)
			kvp_link_end(link, KVP_SUCCESS, KVP_NOT_YET_LINK, "unlinked");
		return true;
	default:
		return false;
	}
}

void
kvp_link_frame(struct kvp_channel *channel, uint8_t type, const uint8_t *body, uint32_t bytes)
{
	struct kvp_link *link = channel->owner;

	if (link->step == KVP_STEP_CLOSING)
		return;
	if (link->step >= KVP_STEP_CATALOGUE && steady_frame(link, type, body, bytes))
		return;
	kvp_link_handshake_frame(link, type, body, bytes);
}

void
kvp_link_closed(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error)
{
	struct kvp_link *link = channel->owner;

	if (link->is_unlinking)
		kvp_link_end(link, KVP_SUCCESS, KVP_NOT_YET_LINK, "unlinked");
	else if (link->was_ready)
		kvp_link_end(link, status == KVP_PROTOCOL ? KVP_PROTOCOL : KVP_PEER_LOST,
			     KVP_PEER_LOST, error->text);
	else
		kvp_link_end(link, status == KVP_PEER_LOST ? KVP_LINK_FAILED : status,
			     KVP_PEER_LOST, error->text);
}

void
kvp_link_path_changed(struct kvp_path *path, void *ctx)
{
	struct kvp_link *link = ctx;

	if (link->step == KVP_STEP_CLOSING)
		return;
	if (path->state == KVP_PATH_FAILED) {
		kvp_link_broke(link, KVP_LINK_FAILED, path->error.text);
		return;
	}
	kvp_catalogue_retry(link);
	kvp_link_advance(link);
}

/* Its timers run as long as it has endpoints to lose. Returns when it wants to be asked again. */
static uint64_t
tick_path(struct kvp_link *link)
{
	if (link->path == NULL || link->path->transport->path_tick == NULL)
		return UINT64_MAX;
	return link->path->transport->path_tick(link->path, link->engine->now_ns);
}

/* An endpoint's connection died though the control connection did not (a lane found out). */
static void
check_endpoints(struct kvp_link *link)
{
	for (uint32_t i = 0; i < link->path->config.endpoints; i++) {
		kvp_status failed = atomic_load_explicit(&link->path->endpoint[i]->failed,
							 memory_order_acquire);
		char text[96];

		if (failed == KVP_SUCCESS)
			continue;
		snprintf(text, sizeof(text), "data connection %u over %s broke: %s", i,
			 link->path->transport->name, kvp_status_name(failed));
		kvp_link_broke(link, failed == KVP_PROTOCOL ? KVP_PROTOCOL : KVP_PEER_LOST, text);
		return;
	}
}

static void
check_silence(struct kvp_link *link)
{
	uint64_t silent_ns = link->engine->now_ns - link->channel.heard_ns;
	char text[96];

	if (kvp_channel_is_stalled(&link->channel, link->engine->now_ns)) {
		kvp_link_end(link, KVP_PROTOCOL, KVP_PEER_LOST,
			     "the peer began a frame and does not finish it");
		return;
	}
	/* The bytes were read after now_ns was. */
	if (link->channel.heard_ns > link->engine->now_ns || silent_ns < link->dead_ns)
		return;
	snprintf(text, sizeof(text), "the peer has been silent for %llu ms",
		 (unsigned long long)(silent_ns / 1000000));
	kvp_link_end(link, KVP_PEER_LOST, KVP_PEER_LOST, text);
}

static void
end_connecting(struct kvp_link *link)
{
	char text[KVP_ERROR_TEXT_MAX];

	snprintf(text, sizeof(text), "the data connections did not come up in time: %.*s",
		 KVP_ERROR_TEXT_MAX - 64, link->path->text);
	kvp_link_end(link, KVP_TIMEOUT, KVP_PEER_LOST, text);
}

/* The deadline of a handshake, or of waiting for the peer's reason, passed. */
static void
end_late(struct kvp_link *link)
{
	struct kvp_error why = link->error;

	if (link->doubt != KVP_SUCCESS)
		kvp_link_end(link,
			     link->doubt == KVP_PEER_LOST && !link->was_ready ? KVP_LINK_FAILED
									      : link->doubt,
			     KVP_PEER_LOST, why.text);
	else if (link->path != NULL && link->path->state == KVP_PATH_CONNECTING)
		end_connecting(link);
	else
		kvp_link_end(link, KVP_TIMEOUT, KVP_PEER_LOST,
			     "the peer did not finish the link handshake in time");
}

static void
tick_open(struct kvp_link *link)
{
	struct kvp_engine *engine = link->engine;

	if (link->is_attached)
		check_endpoints(link);
	if (link->step < KVP_STEP_READY || link->doubt != KVP_SUCCESS) {
		if (engine->now_ns >= link->deadline_ns)
			end_late(link);
		return;
	}
	if (link->step != KVP_STEP_CLOSING)
		check_silence(link);
	if (link->step != KVP_STEP_CLOSING && link->sync_sent < link->sync_asked) {
		link->sync_sent = link->sync_asked;
		kvp_link_send_value(link, KVP_FRAME_SYNC, link->sync_sent);
	}
	if (link->step != KVP_STEP_CLOSING &&
	    engine->now_ns - link->last_sent_ns >= (uint64_t)engine->config.heartbeat_ms * 1000000)
		kvp_link_send(link, KVP_FRAME_HEARTBEAT);
}

uint64_t
kvp_link_tick(struct kvp_engine *engine)
{
	uint64_t next_ns = (uint64_t)engine->config.heartbeat_ms * 1000000 / 4;

	if (next_ns > 100000000)
		next_ns = 100000000;
	for (struct kvp_link *link = engine->links, *next; link != NULL; link = next) {
		uint64_t path_ns = tick_path(link);

		next = link->next;
		if (path_ns < next_ns)
			next_ns = path_ns;
		if (link->step != KVP_STEP_CLOSING)
			tick_open(link);
		if (link->step != KVP_STEP_CLOSING) {
			if (kvp_catalogue_reap(link))
				next_ns = 1000000;
			if ((link->step < KVP_STEP_READY || link->doubt != KVP_SUCCESS) &&
			    next_ns > 10000000)
				next_ns = 10000000;
			continue;
		}
		/* Nothing of it moves any more once no transfer holds it. */
		if (link->watchers == 0 &&
		    atomic_load_explicit(&link->holds, memory_order_acquire) == 0)
			link_free(link);
		else
			next_ns = 1000000;
	}
	return next_ns;
}
