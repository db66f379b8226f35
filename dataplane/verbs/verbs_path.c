/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/engine.h>

#include "check.h"
#include "lane.h"
#include "transports.h"

#define WHY_BYTES 320U

/* --- rails ------------------------------------------------------------------------------- */

/* Ports that can be paired at all; *map_out are their places. */
static uint32_t
usable(const struct kvp_verbs_address *address, uint32_t addresses, struct kvp_verbs_address *out,
       uint32_t *map_out)
{
	static const uint8_t none[KVP_VERBS_GID_BYTES];
	uint32_t count = 0;

	for (uint32_t i = 0; i < addresses; i++) {
		if (memcmp(address[i].gid, none, sizeof(none)) == 0)
			continue;
		map_out[count] = i;
		out[count++] = address[i];
	}
	return count;
}

static uint32_t
own_ports(const struct kvp_verbs *verbs, struct kvp_verbs_address *out, uint32_t *map_out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < verbs->devices.ports; i++) {
		const struct kvp_verbs_port *port = &verbs->devices.port[i];

		if (!port->is_active || verbs->devices.device[port->device].is_fatal)
			continue;
		map_out[count] = i;
		out[count++] = port->address;
	}
	return count;
}

/* Pairs in terms of port indexes and places in the peer's description. 0: `err` says why. */
static uint32_t
pair_ports(const struct kvp_verbs *verbs, const struct kvp_verbs_ports *theirs,
	   struct kvp_verbs_pair *pair_out, struct kvp_error *err)
{
	struct kvp_verbs_address own[KVP_VERBS_PORTS_MAX], peer[KVP_VERBS_PORTS_MAX];
	uint32_t own_map[KVP_VERBS_PORTS_MAX], peer_map[KVP_VERBS_PORTS_MAX];
	uint32_t owns = own_ports(verbs, own, own_map);
	uint32_t peers = usable(theirs->port, theirs->ports, peer, peer_map);
	char why[WHY_BYTES] = "";
	uint32_t pairs = 0;

	if (owns == 0)
		snprintf(why, sizeof(why), "no port of this host is active any more");
	else if (peers == 0)
		snprintf(why, sizeof(why), "no port of the peer is active");
	else
		pairs = kvp_verbs_pair_up(own, owns, peer, peers,
					  verbs->dataplane->config->verbs_rails, pair_out, why,
					  sizeof(why));
	if (pairs == 0)
		kvp_fail(err, KVP_NO_TRANSPORT, "verbs: %s", why);
	for (uint32_t i = 0; i < pairs; i++) {
		pair_out[i].local = own_map[pair_out[i].local];
		pair_out[i].remote = peer_map[pair_out[i].remote];
	}
	return pairs;
}

kvp_status
kvp_verbs_reachable(const struct kvp_verbs *verbs, const struct kvp_verbs_ports *peer,
		    struct kvp_error *err)
{
	struct kvp_verbs_pair pair[KVP_VERBS_RAILS_MAX];

	return pair_ports(verbs, peer, pair, err) > 0 ? KVP_SUCCESS : KVP_NO_TRANSPORT;
}

/* The initiator's choice. */
static kvp_status
choose_rails(struct kvp_verbs_path *path, struct kvp_error *err)
{
	struct kvp_verbs_pair pair[KVP_VERBS_RAILS_MAX];

	path->rails = pair_ports(path->verbs, &path->peer_ports, pair, err);
	for (uint32_t r = 0; r < path->rails; r++) {
		path->rail[r].port = pair[r].local;
		path->rail[r].remote = pair[r].remote;
		path->rail[r].is_routed = pair[r].is_routed;
		path->rail[r].peer = path->peer_ports.port[pair[r].remote];
	}
	return path->rails > 0 ? KVP_SUCCESS : KVP_NO_TRANSPORT;
}

/* The acceptor judges what the initiator chose. */
static kvp_status
check_rail(struct kvp_verbs_path *path, const struct kvp_verbs_offer *offer, uint32_t r,
	   struct kvp_error *err)
{
	const struct kvp_verbs_devices *devices = &path->verbs->devices;
	struct kvp_verbs_rail_state *rail = &path->rail[r];
	struct kvp_verbs_pair pair;
	char why[WHY_BYTES] = "";

	if (offer->rail[r].remote >= devices->ports ||
	    !devices->port[offer->rail[r].remote].is_active)
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"verbs: the peer chose port %u, which is not there or not active",
				offer->rail[r].remote);
	for (uint32_t i = 0; i < r; i++) {
		if (path->rail[i].port == offer->rail[r].remote)
			return kvp_fail(err, KVP_PROTOCOL,
					"verbs: the peer's offer uses port %u for two rails",
					offer->rail[r].remote);
	}
	rail->port = offer->rail[r].remote;
	rail->remote = offer->rail[r].local;
	if (kvp_verbs_pair_up(&devices->port[rail->port].address, 1, &offer->rail[r].address, 1, 1,
			      &pair, why, sizeof(why)) != 1)
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs: rail %u of the peer's offer: %s", r,
				why);
	rail->is_routed = pair.is_routed;
	return KVP_SUCCESS;
}

/* Memory that the peer's messages and credits come into. */
static kvp_status
rail_memory(struct kvp_verbs_path *path, uint32_t r, struct kvp_error *err)
{
	struct kvp_verbs_rail_state *rail = &path->rail[r];
	const struct kvp_verbs_port *port = &path->verbs->devices.port[rail->port];
	struct ibv_pd *pd = path->verbs->devices.device[port->device].pd;
	size_t queues = (size_t)path->base.config.endpoints * path->per_rail;
	size_t mail = queues * sizeof(*rail->mail);

	rail->mail = aligned_alloc(4096, (mail + 4095) / 4096 * 4096);
	rail->credit = aligned_alloc(4096, 4096);
	if (rail->mail == NULL || rail->credit == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for messages");
	memset(rail->mail, 0, mail);
	memset(rail->credit, 0, 4096);
	rail->mail_mr = ibv_reg_mr(pd, rail->mail, mail, IBV_ACCESS_LOCAL_WRITE);
	/* Read by the CPU while the device writes it, so never with relaxed ordering. */
	if (rail->mail_mr != NULL)
		rail->credit_mr = ibv_reg_mr(pd, rail->credit, queues * sizeof(*rail->credit),
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (rail->credit_mr == NULL)
		return kvp_fail(
			err, KVP_NO_RESOURCE,
			"verbs: %s: registering %zu bytes for messages: %s; raise the limit "
			"of locked memory (ulimit -l)",
			port->address.name, mail, strerrorname_np(errno));
	return KVP_SUCCESS;
}

/* --- endpoints --------------------------------------------------------------------------------- */

static kvp_status
fill_queue(struct kvp_verbs_path *path, struct kvp_verbs_endpoint *ep, uint32_t r, uint32_t n,
	   struct kvp_error *err)
{
	uint32_t e = ep->base.index;
	struct kvp_verbs_queue *queue = &ep->queue[r * path->per_rail + n];
	struct kvp_verbs_control *control =
		&path->control[(e * path->rails + r) * path->per_rail + n];
	struct kvp_verbs_rail_state *rail = &path->rail[r];
	uint32_t on_rail = e * path->per_rail + n;
	kvp_status status;

	control->queue = queue;
	queue->endpoint = ep;
	queue->index = r * path->per_rail + n;
	queue->rail = r;
	queue->device = path->verbs->devices.port[rail->port].device;
	queue->mail = &rail->mail[on_rail];
	queue->mail_lkey = rail->mail_mr->lkey;
	queue->credit = (_Atomic uint64_t *)&rail->credit[on_rail];
	queue->generation = 1;
	status = kvp_verbs_cq_take(path->verbs, ep->base.lane, queue->device, &queue->cq,
				   &queue->place, err);
	if (status != KVP_SUCCESS)
		return status;
	return kvp_verbs_queue_open(path->verbs, queue, &path->verbs->devices.port[rail->port],
				    &control->psn, err);
}

static kvp_status
fill_endpoint(struct kvp_verbs_path *path, uint32_t e, struct kvp_error *err)
{
	const struct kvp_dataplane *dataplane = path->verbs->dataplane;
	const struct kvp_path_config *config = &path->base.config;
	struct kvp_verbs_endpoint *ep = kvp_verbs_endpoint_create(path->rails * path->per_rail);
	kvp_status status = KVP_SUCCESS;

	if (ep == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for an endpoint");
	path->base.endpoint[e] = &ep->base;
	ep->base.transport = &kvp_verbs_transport;
	ep->base.path = &path->base;
	ep->base.lane = dataplane->lane[(config->first_lane + e) % dataplane->lanes];
	ep->base.index = e;
	ep->base.fd = -1;
	ep->inbox = dataplane->inbox;
	ep->path = path;
	ep->window_bytes = dataplane->window_bytes;
	ep->window_requests = dataplane->window_requests;
	ep->slot_of_transport = path->verbs->slot;
	ep->is_initiator = config->is_initiator;
	for (uint32_t r = 0; r < path->rails; r++) {
		for (uint32_t n = 0; n < path->per_rail && status == KVP_SUCCESS; n++)
			status = fill_queue(path, ep, r, n, err);
		ep->limits[r] = kvp_gather_limits_of(
			&(struct kvp_cost){.pieces_max = ep->queue[r * path->per_rail].pieces_max});
	}
	return status;
}

/* Everything of the rails but their connections. */
static kvp_status
build(struct kvp_verbs_path *path, struct kvp_error *err)
{
	kvp_status status = KVP_SUCCESS;

	path->total = path->rails * path->base.config.endpoints * path->per_rail;
	KVP_CHECK(path->total <= KVP_VERBS_TOTAL_MAX);
	for (uint32_t r = 0; r < path->rails && status == KVP_SUCCESS; r++)
		status = rail_memory(path, r, err);
	for (uint32_t e = 0; e < path->base.config.endpoints && status == KVP_SUCCESS; e++)
		status = fill_endpoint(path, e, err);
	return status;
}

kvp_status
kvp_verbs_path_create(const struct kvp_path_config *config, struct kvp_path **path_out,
		      struct kvp_error *err)
{
	struct kvp_verbs_path *path = calloc(1, sizeof(*path));
	uint32_t qps = config->dataplane->config->verbs_qps;
	uint32_t slot;
	kvp_status status;

	if (path == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for a path");
	KVP_CHECK(kvp_transport_find(kvp_verbs_transport.name, &slot) != NULL);
	path->base.transport = &kvp_verbs_transport;
	path->base.config = *config;
	path->base.config.peer_rail = NULL;
	path->verbs = config->dataplane->state[slot];
	path->wait_ns = UINT64_MAX;
	path->next = path->verbs->paths;
	path->verbs->paths = path;
	path->per_rail = qps > config->endpoints ? qps / config->endpoints : 1;
	status = kvp_verbs_ports_decode(config->peer_rail, &path->peer_ports, err);
	if (status == KVP_SUCCESS && config->endpoints > KVP_VERBS_ENDPOINTS_MAX)
		status = kvp_fail(err, KVP_PROTOCOL, "verbs: %u endpoints, at most %u can be",
				  config->endpoints, KVP_VERBS_ENDPOINTS_MAX);
	if (status == KVP_SUCCESS && config->is_initiator)
		status = choose_rails(path, err);
	if (status == KVP_SUCCESS && config->is_initiator)
		status = build(path, err);
	if (status != KVP_SUCCESS) {
		kvp_verbs_path_destroy(&path->base);
		return status;
	}
	kvp_verbs_path_text(path);
	*path_out = &path->base;
	return KVP_SUCCESS;
}

void
kvp_verbs_path_offer(struct kvp_path *base, struct kvp_blob *blob_out)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	struct kvp_verbs_offer offer = {
		.rails = path->rails,
		.endpoints = base->config.endpoints,
		.per_rail = path->per_rail,
	};

	for (uint32_t r = 0; r < path->rails; r++) {
		const struct kvp_verbs_rail_state *rail = &path->rail[r];
		struct kvp_verbs_queue *first = path->control[r * path->per_rail].queue;

		offer.rail[r].address = path->verbs->devices.port[rail->port].address;
		offer.rail[r].local = rail->port;
		offer.rail[r].remote = rail->remote;
		offer.rail[r].credit = (uint64_t)(uintptr_t)rail->credit;
		offer.rail[r].credit_rkey = rail->credit_mr->rkey;
		kvp_verbs_queue_ece(first, offer.rail[r].ece);
	}
	for (uint32_t i = 0; i < path->total; i++) {
		const struct ibv_qp *qp = path->control[i].queue->qp;

		if (qp == NULL)
			continue;
		offer.queue[i].number = qp->qp_num;
		offer.queue[i].psn = path->control[i].psn;
	}
	kvp_verbs_offer_encode(&offer, blob_out);
}

static kvp_status
check_answer(const struct kvp_verbs_path *path, const struct kvp_verbs_offer *offer,
	     struct kvp_error *err)
{
	bool is_same = offer->rails == path->rails && offer->per_rail == path->per_rail;

	for (uint32_t r = 0; is_same && r < path->rails; r++)
		is_same = offer->rail[r].local == path->rail[r].remote &&
			  offer->rail[r].remote == path->rail[r].port;
	if (!is_same)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer answered other rails than were offered");
	return KVP_SUCCESS;
}

static kvp_status
take_offer(struct kvp_verbs_path *path, const struct kvp_verbs_offer *offer, struct kvp_error *err)
{
	kvp_status status = KVP_SUCCESS;

	path->rails = offer->rails;
	path->per_rail = offer->per_rail;
	for (uint32_t r = 0; r < offer->rails && status == KVP_SUCCESS; r++)
		status = check_rail(path, offer, r, err);
	if (status != KVP_SUCCESS) {
		path->rails = 0;
		return status;
	}
	return build(path, err);
}

static kvp_status
connect_queue(struct kvp_verbs_path *path, const struct kvp_verbs_offer *offer, uint32_t i,
	      struct kvp_error *err)
{
	struct kvp_verbs_control *control = &path->control[i];
	struct kvp_verbs_queue *queue = control->queue;
	const struct kvp_verbs_rail_state *rail = &path->rail[queue->rail];
	uint32_t on_rail =
		queue->endpoint->base.index * path->per_rail + queue->index % path->per_rail;
	struct kvp_verbs_route route = {
		.port = &path->verbs->devices.port[rail->port],
		.peer = rail->peer,
		.queue = offer->queue[i],
		.psn = control->psn,
	};

	queue->peer_credit = rail->peer_credit + on_rail * sizeof(uint64_t);
	queue->peer_credit_rkey = rail->peer_credit_rkey;
	if (route.queue.number == 0)
		return kvp_fail(err, KVP_NO_TRANSPORT, "the peer could not connect its end");
	memcpy(route.ece, rail->ece, sizeof(route.ece));
	return kvp_verbs_queue_connect(path->verbs, queue, &route, err);
}

/*
 * A rail that does not work now is tried again later, if each endpoint has another. Its other QPs are
 * not even tried: each may keep this thread for a second.
 */
static kvp_status
connect_queues(struct kvp_verbs_path *path, const struct kvp_verbs_offer *offer,
	       struct kvp_error *err)
{
	uint32_t each = path->rails * path->per_rail;
	uint32_t connected[KVP_VERBS_ENDPOINTS_MAX] = {0};
	bool is_connected[KVP_VERBS_TOTAL_MAX] = {false};
	bool is_bad[KVP_VERBS_RAILS_MAX] = {false};
	struct kvp_error why = {""};

	for (uint32_t i = 0; i < path->total; i++) {
		uint32_t r = path->control[i].queue->rail;

		if (is_bad[r])
			continue;
		if (connect_queue(path, offer, i, &why) == KVP_SUCCESS) {
			is_connected[i] = true;
			connected[i / each]++;
		} else {
			is_bad[r] = true;
			snprintf(path->rail[r].why, sizeof(path->rail[r].why), "%s", why.text);
		}
	}
	for (uint32_t e = 0; e < path->base.config.endpoints; e++) {
		if (connected[e] == 0)
			return kvp_fail(err, KVP_NO_TRANSPORT, "%s", why.text);
	}
	for (uint32_t i = 0; i < path->total; i++) {
		if (is_connected[i])
			kvp_verbs_hand_over(path, &path->control[i]);
		else
			kvp_verbs_not_connected(path, &path->control[i]);
	}
	return KVP_SUCCESS;
}

kvp_status
kvp_verbs_path_connect(struct kvp_path *base, const struct kvp_blob *peer, struct kvp_error *err)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	struct kvp_verbs_offer offer;
	kvp_status status = kvp_verbs_offer_decode(peer, &offer, err);

	if (status != KVP_SUCCESS)
		return status;
	if (offer.endpoints != base->config.endpoints)
		return kvp_fail(err, KVP_PROTOCOL, "verbs: the peer offers %u endpoints, not %u",
				offer.endpoints, base->config.endpoints);
	status = base->config.is_initiator ? check_answer(path, &offer, err)
					   : take_offer(path, &offer, err);
	for (uint32_t r = 0; r < path->rails && status == KVP_SUCCESS; r++) {
		path->rail[r].peer = offer.rail[r].address;
		path->rail[r].peer_credit = offer.rail[r].credit;
		path->rail[r].peer_credit_rkey = offer.rail[r].credit_rkey;
		memcpy(path->rail[r].ece, offer.rail[r].ece, sizeof(path->rail[r].ece));
	}
	if (status == KVP_SUCCESS)
		status = connect_queues(path, &offer, err);
	if (status != KVP_SUCCESS)
		return status;
	path->is_connected = true;
	base->wants_lanes = true;
	kvp_verbs_path_text(path);
	return KVP_SUCCESS;
}

static void
rail_free(struct kvp_verbs_rail_state *rail)
{
	if (rail->mail_mr != NULL)
		(void)ibv_dereg_mr(rail->mail_mr);
	if (rail->credit_mr != NULL)
		(void)ibv_dereg_mr(rail->credit_mr);
	free(rail->mail);
	free(rail->credit);
}

void
kvp_verbs_path_destroy(struct kvp_path *base)
{
	struct kvp_verbs_path *path = kvp_verbs_path_of(base);
	struct kvp_verbs_path **at;

	if (path == NULL)
		return;
	for (at = &path->verbs->paths; *at != path;)
		at = &(*at)->next;
	*at = path->next;
	for (uint32_t i = 0; i < KVP_VERBS_TOTAL_MAX; i++) {
		struct kvp_verbs_queue *queue = path->control[i].queue;

		if (queue == NULL)
			continue;
		kvp_verbs_queue_close(queue);
		if (queue->cq != NULL)
			kvp_verbs_cq_give(path->verbs, queue->cq, queue->place);
	}
	for (uint32_t r = 0; r < KVP_VERBS_RAILS_MAX; r++)
		rail_free(&path->rail[r]);
	for (uint32_t e = 0; e < KVP_ENDPOINTS_MAX; e++)
		kvp_verbs_endpoint_destroy((struct kvp_verbs_endpoint *)base->endpoint[e]);
	while (path->keys != NULL) {
		struct kvp_verbs_peer_keys *first = path->keys;

		path->keys = first->next;
		free(first->spans);
		free(first);
	}
	free(path);
}
