/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handshake.c - how a link comes up
 *
 *   initiator               acceptor
 *   HELLO            ->
 *                    <-     WELCOME (or REFUSE)
 *   PATH             ->                          chooses the transport
 *                    <-     PATH
 *   CACHE_ADD*, CATALOGUE_END, both ways; endpoints come up; then
 *   READY            ->
 *                    <-     READY
 *
 * The link is usable when READY was sent and received: then the endpoints are
 * served by their lanes and the first catalogue is complete on both sides.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/socket.h>

#include "report.h"
#include "rights.h"
#include "state.h"
#include "wake.h"

static void
link_connected(struct kvp_channel *channel);

static const struct kvp_channel_events link_events = {
	.frame = kvp_link_frame,
	.connected = link_connected,
	.closed = kvp_link_closed,
};

static struct kvp_link *
link_create(struct kvp_engine *engine)
{
	struct kvp_link *link = calloc(1, sizeof(*link));

	if (link == NULL)
		return NULL;
	link->tally = aligned_alloc(KVP_SHARE_SPAN, engine->config.lanes * sizeof(*link->tally));
	if (link->tally == NULL) {
		free(link);
		return NULL;
	}
	memset(link->tally, 0, engine->config.lanes * sizeof(*link->tally));
	link->engine = engine;
	link->channel.watch.fd = -1;
	link->last_sent_ns = engine->now_ns;
	link->dead_ns = (uint64_t)engine->config.dead_ms * 1000000;
	link->next = engine->links;
	engine->links = link;
	engine->link_count++;
	return link;
}

static void
fill_hello(struct kvp_engine *engine, struct kvp_hello *hello)
{
	memset(hello, 0, sizeof(*hello));
	hello->boot_id = engine->dataplane.boot_id;
	hello->cluster_id = engine->config.cluster_id;
	hello->role = engine->config.role;
	hello->heartbeat_ms = engine->config.heartbeat_ms;
	hello->lanes = engine->config.lanes;
	hello->rights = kvp_rights_of(engine->config.peer_rights);
	hello->rails = engine->transports;
	for (uint32_t i = 0; i < engine->transports; i++) {
		snprintf(hello->rail[i].name, KVP_NAME_MAX, "%s", engine->transport[i]->name);
		engine->transport[i]->describe(&engine->dataplane, &hello->rail[i].blob);
	}
}

static void
send_hello(struct kvp_link *link, uint8_t type)
{
	uint8_t frame[KVP_FRAME_HEADER + KVP_FRAME_EARLY_MAX];
	struct kvp_hello hello;
	size_t bytes;

	fill_hello(link->engine, &hello);
	bytes = kvp_frame_encode_hello(type, &hello, frame, sizeof(frame));
	if (!kvp_channel_send(&link->channel, frame, bytes))
		kvp_link_end(link, KVP_LINK_FAILED, KVP_PEER_LOST,
			     "the greeting could not be sent");
}

void
kvp_channel_refuse(struct kvp_channel *channel, kvp_status status, const char *text)
{
	uint8_t frame[KVP_FRAME_HEADER + KVP_FRAME_EARLY_MAX];
	struct kvp_refuse refuse = {.status = status};

	snprintf(refuse.text, sizeof(refuse.text), "%s", text);
	(void)kvp_channel_send(channel, frame,
			       kvp_frame_encode_refuse(&refuse, frame, sizeof(frame)));
}

/* Tell the peer why, then end. */
static void
refuse_link(struct kvp_link *link, kvp_status status, const char *text)
{
	kvp_channel_refuse(&link->channel, status, text);
	kvp_link_end(link, status, KVP_PEER_LOST, text);
}

static void
link_connected(struct kvp_channel *channel)
{
	struct kvp_link *link = channel->owner;

	link->step = KVP_STEP_HELLO;
	send_hello(link, KVP_FRAME_HELLO);
}

struct kvp_link *
kvp_link_begin(struct kvp_engine *engine, const struct sockaddr_storage *peer, socklen_t peer_bytes,
	       const char *address, uint64_t deadline_ns, kvp_status *status_out,
	       struct kvp_error *err)
{
	struct kvp_link *link;
	int fd;
	int rc;

	if (engine->link_count >= KVP_LINKS_MAX) {
		*status_out =
			kvp_fail(err, KVP_NO_RESOURCE,
				 "%u links exist, the most an engine can have", KVP_LINKS_MAX);
		return NULL;
	}
	fd = socket(peer->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		*status_out = kvp_fail(err, KVP_NO_RESOURCE, "socket: %s", strerror(errno));
		return NULL;
	}
	if (connect(fd, (const struct sockaddr *)peer, peer_bytes) != 0 && errno != EINPROGRESS) {
		rc = errno;
		close(fd);
		*status_out =
			kvp_fail(err, KVP_LINK_FAILED, "connect to %s: %s", address, strerror(rc));
		return NULL;
	}
	link = link_create(engine);
	if (link == NULL) {
		close(fd);
		*status_out = kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for a link");
		return NULL;
	}
	link->is_initiator = true;
	link->deadline_ns = deadline_ns;
	link->watchers = 1;
	snprintf(link->address, sizeof(link->address), "%s", address);
	rc = kvp_channel_open(&link->channel, &engine->reactor, fd, true, &link_events, link);
	if (rc != 0) {
		close(fd);
		kvp_link_end(link, KVP_NO_RESOURCE, KVP_PEER_LOST, strerror(-rc));
	}
	return link;
}

static void
know_peer(struct kvp_link *link, const struct kvp_hello *hello)
{
	uint64_t patience_ns = (uint64_t)hello->heartbeat_ms * 3000000;

	link->peer = *hello;
	link->cluster_id = hello->cluster_id;
	link->has_cluster = true;
	link->boot_id = hello->boot_id;
	link->role = hello->role;
	link->peer_lanes = hello->lanes;
	/* A peer that beats slower than we are patient is not dead between beats. */
	if (link->dead_ns < patience_ns)
		link->dead_ns = patience_ns;
	link->channel.body_max = KVP_FRAME_BODY_MAX;
}

/* A link to the same cluster that is there already, a standing one first. */
static struct kvp_link *
other_link(const struct kvp_link *link)
{
	struct kvp_link *found = NULL;

	for (struct kvp_link *at = link->engine->links; at != NULL; at = at->next) {
		if (at == link || !at->has_cluster || at->cluster_id != link->cluster_id ||
		    at->step == KVP_STEP_CLOSING)
			continue;
		if (found == NULL || at->step == KVP_STEP_READY)
			found = at;
	}
	return found;
}

/*
 * Both sides, and several threads of one, may ask at once. Of links that come up
 * between the same engines the one with the lower cluster id keeps the first it
 * knows and refuses the others; the other engine lets it decide, since two who
 * decide alike but in another order would refuse each other. A link that stands
 * on the other side is one the decider has already kept. Returns false when
 * `link` is the one to go.
 */
static bool
settle_crossing(struct kvp_link *link)
{
	struct kvp_link *other = other_link(link);

	if (other == NULL)
		return true;
	if (other->boot_id != link->boot_id) { /* of an earlier life of the peer */
		kvp_link_end(other, KVP_PEER_RESTARTED, KVP_PEER_RESTARTED,
			     "the peer is a new process");
		return true;
	}
	if (other->step == KVP_STEP_READY) {
		refuse_link(link, KVP_ALREADY_LINK, "a link to this cluster exists");
		return false;
	}
	if (link->engine->config.cluster_id > link->cluster_id)
		return true;
	link->is_merged = true;
	refuse_link(link, KVP_PROCESSING_LINK,
		    "another link to this cluster is coming up: that one is used");
	return false;
}

static const struct kvp_blob *
peer_rail(const struct kvp_link *link, const char *name)
{
	for (uint32_t i = 0; i < link->peer.rails; i++) {
		if (strncmp(link->peer.rail[i].name, name, KVP_NAME_MAX) == 0)
			return &link->peer.rail[i].blob;
	}
	return NULL;
}

/* The path of `link`: created here, offered to the peer. False: the link was ended. */
static bool
create_path(struct kvp_link *link, const struct kvp_transport *transport, uint32_t endpoints)
{
	struct kvp_engine *engine = link->engine;
	struct kvp_path_config config = {
		.dataplane = &engine->dataplane,
		.is_initiator = link->is_initiator,
		.peer_cluster = link->cluster_id,
		.endpoints = endpoints,
		.first_lane = engine->link_count % engine->config.lanes,
		.changed = kvp_link_path_changed,
		.note = kvp_link_note,
		.say = kvp_link_say,
		.peer_rail = peer_rail(link, transport->name),
		.ctx = link,
	};
	struct kvp_error error;
	kvp_status status;

	config.peer_bytes = sizeof(config.peer);
	if (getpeername(link->channel.watch.fd, (struct sockaddr *)&config.peer,
			&config.peer_bytes) != 0) {
		refuse_link(link, KVP_LINK_FAILED, "the connection is gone");
		return false;
	}
	status = transport->path_create(&config, &link->path, &error);
	if (status != KVP_SUCCESS) {
		refuse_link(link, status, error.text);
		return false;
	}
	return true;
}

static void
send_path(struct kvp_link *link)
{
	uint8_t frame[KVP_FRAME_HEADER + KVP_FRAME_EARLY_MAX];
	struct kvp_path_frame path = {.endpoints = link->path->config.endpoints};
	size_t bytes;

	snprintf(path.name, sizeof(path.name), "%s", link->path->transport->name);
	link->path->transport->path_offer(link->path, &path.blob);
	bytes = kvp_frame_encode_path(&path, frame, sizeof(frame));
	if (!kvp_channel_send(&link->channel, frame, bytes))
		kvp_link_broke(link, KVP_LINK_FAILED, "the path could not be offered");
}

/* The first transport of our list that the peer has and that reaches it; NULL: `reasons` says why none. */
static const struct kvp_transport *
choose_transport(struct kvp_link *link, char *reasons, size_t size)
{
	struct kvp_engine *engine = link->engine;
	size_t used = (size_t)snprintf(reasons, size, "%s", engine->left_out);

	for (uint32_t i = 0; i < engine->transports; i++) {
		const struct kvp_transport *transport = engine->transport[i];
		const struct kvp_blob *blob = peer_rail(link, transport->name);
		struct kvp_error error = {"the peer does not have it enabled"};

		if (blob != NULL &&
		    transport->reachable(&engine->dataplane, blob, &error) == KVP_SUCCESS)
			return transport;
		if (used < size)
			used += (size_t)snprintf(reasons + used, size - used, "%s%s: %s",
						 used > 0 ? "; " : "", transport->name, error.text);
		kvp_log(engine->config.log_level, 3, "link to %s: not over %s: %s", link->address,
			transport->name, error.text);
	}
	return NULL;
}

static void
welcome(struct kvp_link *link, const struct kvp_hello *hello)
{
	struct kvp_engine *engine = link->engine;
	const struct kvp_transport *transport;
	char reasons[KVP_ERROR_TEXT_MAX];

	if (hello->cluster_id == engine->config.cluster_id) {
		refuse_link(link, KVP_PARAM_INVALID, "the peer has this engine's own cluster id");
		return;
	}
	know_peer(link, hello);
	if (!settle_crossing(link))
		return;
	transport = choose_transport(link, reasons, sizeof(reasons));
	if (transport == NULL) {
		char text[KVP_ERROR_TEXT_MAX + KVP_TEXT_MAX + 64];

		snprintf(text, sizeof(text), "no transport of '%s' reaches the peer: %s",
			 engine->config.transports, reasons);
		refuse_link(link, KVP_NO_TRANSPORT, text);
		return;
	}
	snprintf(link->not_over, sizeof(link->not_over), "%s", reasons);
	link->step = KVP_STEP_PATH;
	if (create_path(link, transport,
			transport->endpoints(&engine->dataplane, link->peer_lanes)))
		send_path(link);
}

bool
kvp_link_accept(struct kvp_engine *engine, struct kvp_channel *channel, const char *address,
		const struct kvp_hello *hello)
{
	struct kvp_link *link;

	if (hello->cluster_id == engine->config.cluster_id) {
		kvp_channel_refuse(channel, KVP_PARAM_INVALID,
				   "both engines have the same cluster id");
		return false;
	}
	if (engine->link_count >= KVP_LINKS_MAX) {
		kvp_channel_refuse(channel, KVP_NO_RESOURCE,
				   "the peer has as many links as it can");
		return false;
	}
	link = link_create(engine);
	if (link == NULL) {
		kvp_channel_refuse(channel, KVP_OUT_OF_MEMORY, "the peer has no memory for a link");
		return false;
	}
	link->step = KVP_STEP_PATH;
	link->deadline_ns = engine->now_ns + 60000ULL * 1000000;
	snprintf(link->address, sizeof(link->address), "%s", address);
	snprintf(link->not_over, sizeof(link->not_over), "%s", engine->left_out);
	kvp_channel_move(&link->channel, channel, &link_events, link);
	know_peer(link, hello);
	/* Greet even one that will be refused: it must learn whom it met. */
	send_hello(link, KVP_FRAME_WELCOME);
	if (link->step != KVP_STEP_CLOSING)
		(void)settle_crossing(link);
	return true;
}

static void
start_catalogue(struct kvp_link *link)
{
	link->step = KVP_STEP_CATALOGUE;
	kvp_catalogue_send_all(link);
	if (link->step == KVP_STEP_CATALOGUE)
		kvp_link_advance(link);
}

/* The initiator's choice, at the acceptor. */
static void
path_chosen(struct kvp_link *link, const struct kvp_path_frame *path)
{
	struct kvp_engine *engine = link->engine;
	const struct kvp_transport *transport = NULL;
	struct kvp_error error;
	kvp_status status;

	for (uint32_t i = 0; i < engine->transports; i++) {
		if (strncmp(engine->transport[i]->name, path->name, KVP_NAME_MAX) == 0)
			transport = engine->transport[i];
	}
	if (transport == NULL || peer_rail(link, path->name) == NULL) {
		refuse_link(link, KVP_NO_TRANSPORT, "the transport chosen is not enabled here");
		return;
	}
	status = transport->reachable(&engine->dataplane, peer_rail(link, path->name), &error);
	if (status != KVP_SUCCESS) {
		refuse_link(link, status, error.text);
		return;
	}
	if (!create_path(link, transport, path->endpoints))
		return;
	status = transport->path_connect(link->path, &path->blob, &error);
	if (status != KVP_SUCCESS) {
		refuse_link(link, status, error.text);
		return;
	}
	send_path(link);
	if (link->step == KVP_STEP_PATH)
		start_catalogue(link);
}

/* The acceptor's answer, at the initiator. */
static void
path_answered(struct kvp_link *link, const struct kvp_path_frame *path)
{
	struct kvp_error error;
	kvp_status status;

	if (strncmp(path->name, link->path->transport->name, KVP_NAME_MAX) != 0 ||
	    path->endpoints != link->path->config.endpoints) {
		refuse_link(link, KVP_PROTOCOL,
			    "the peer answered another path than was asked for");
		return;
	}
	status = link->path->transport->path_connect(link->path, &path->blob, &error);
	if (status != KVP_SUCCESS) {
		refuse_link(link, status, error.text);
		return;
	}
	start_catalogue(link);
}

static void
refused(struct kvp_link *link, const struct kvp_refuse *refuse)
{
	char text[KVP_ERROR_TEXT_MAX + 32];

	/* Both sides asked at once, and the peer keeps its own connection. */
	if (refuse->status == KVP_PROCESSING_LINK)
		link->is_merged = true;
	snprintf(text, sizeof(text), "the peer refused: %s", refuse->text);
	kvp_link_end(link, refuse->status == KVP_SUCCESS ? KVP_LINK_FAILED : refuse->status,
		     KVP_PEER_LOST, text);
}

static kvp_status
hello_frame(struct kvp_link *link, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	struct kvp_hello hello;
	kvp_status status = kvp_frame_decode_hello(body, bytes, &hello, err);

	if (status == KVP_SUCCESS)
		welcome(link, &hello);
	return status;
}

static kvp_status
path_frame(struct kvp_link *link, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	struct kvp_path_frame path;
	kvp_status status = kvp_frame_decode_path(body, bytes, &path, err);

	if (status != KVP_SUCCESS)
		return status;
	if (!link->is_initiator)
		path_chosen(link, &path);
	else if (link->path != NULL)
		path_answered(link, &path);
	return KVP_SUCCESS;
}

static kvp_status
refuse_frame(struct kvp_link *link, const uint8_t *body, uint32_t bytes, struct kvp_error *err)
{
	struct kvp_refuse refuse;
	kvp_status status = kvp_frame_decode_refuse(body, bytes, &refuse, err);

	if (status == KVP_SUCCESS)
		refused(link, &refuse);
	return status;
}

void
kvp_link_handshake_frame(struct kvp_link *link, uint8_t type, const uint8_t *body, uint32_t bytes)
{
	struct kvp_error error;
	kvp_status status;

	if (type == KVP_FRAME_REFUSE) {
		status = refuse_frame(link, body, bytes, &error);
	} else if (type == KVP_FRAME_WELCOME && link->step == KVP_STEP_HELLO) {
		status = hello_frame(link, body, bytes, &error);
	} else if (type == KVP_FRAME_PATH && link->step == KVP_STEP_PATH) {
		status = path_frame(link, body, bytes, &error);
	} else if (type == KVP_FRAME_CATALOGUE_END && link->step == KVP_STEP_CATALOGUE) {
		status = kvp_frame_decode_empty(bytes, &error);
		link->has_catalogue = true;
		kvp_link_advance(link);
	} else if (type == KVP_FRAME_READY && link->step == KVP_STEP_CATALOGUE) {
		status = kvp_frame_decode_empty(bytes, &error);
		link->is_peer_ready = true;
		kvp_link_advance(link);
	} else {
		status = kvp_fail(&error, KVP_PROTOCOL, "frame type %u does not belong here", type);
	}
	if (status != KVP_SUCCESS)
		kvp_link_end(link, status, KVP_PEER_LOST, error.text);
}

static bool
attach_endpoints(struct kvp_link *link)
{
	for (uint32_t i = 0; i < link->path->config.endpoints; i++) {
		struct kvp_endpoint *endpoint = link->path->endpoint[i];
		struct kvp_error error;
		kvp_status status = kvp_lane_attach(endpoint->lane, endpoint, &error);

		if (status == KVP_SUCCESS)
			continue;
		while (i-- > 0)
			kvp_lane_detach(link->path->endpoint[i]->lane, link->path->endpoint[i]);
		refuse_link(link, status, error.text);
		return false;
	}
	link->is_attached = true;
	return true;
}

void
kvp_link_advance(struct kvp_link *link)
{
	struct kvp_engine *engine = link->engine;
	struct kvp_event event = {.kind = KVP_EVENT_PEER_LINKED, .cluster_id = link->cluster_id};

	if (link->step != KVP_STEP_CATALOGUE ||
	    (link->path->state != KVP_PATH_UP && !link->path->wants_lanes))
		return;
	if (!link->is_attached && !attach_endpoints(link))
		return;
	if (link->path->state != KVP_PATH_UP)
		return;
	/* The acceptor answers READY with READY: once kvp_link returns, both ends are usable. */
	if (!link->has_sent_ready && link->has_catalogue && link->waiting == 0 &&
	    (link->is_initiator || link->is_peer_ready)) {
		link->has_sent_ready = true;
		kvp_link_send(link, KVP_FRAME_READY);
	}
	if (link->step != KVP_STEP_CATALOGUE || !link->has_sent_ready || !link->is_peer_ready)
		return;
	link->step = KVP_STEP_READY;
	link->was_ready = true;
	kvp_log(engine->config.log_level, 3, "link to cluster %llu at %s is up over %s",
		(unsigned long long)link->cluster_id, link->address, link->path->text);
	if (link->not_over[0] != '\0')
		kvp_log(engine->config.log_level, 3, "link to cluster %llu: not over %s",
			(unsigned long long)link->cluster_id, link->not_over);
	kvp_event_raise(engine, &event);
	kvp_engine_changed(engine);
}
