/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <kvpush/engine.h>

#include "check.h"
#include "transports.h"
#include "verbs_memory.h"
#include "verbs_path.h"

static void
device_changed(struct kvp_verbs_devices *devices, uint32_t device, struct kvp_verbs_port *port,
	       struct ibv_qp *qp, void *ctx)
{
	struct kvp_verbs *verbs = ctx;

	(void)devices;
	for (struct kvp_verbs_path *path = verbs->paths; path != NULL; path = path->next)
		kvp_verbs_path_changed(path, device, port, qp);
}

static void
verbs_stop(void *state)
{
	struct kvp_verbs *verbs = state;

	KVP_CHECK(verbs->paths == NULL);
	kvp_verbs_queues_end(verbs);
	kvp_verbs_memory_destroy(verbs->memory);
	kvp_verbs_devices_close(&verbs->devices);
	free(verbs);
}

static kvp_status
verbs_start(struct kvp_dataplane *dataplane, void **state_out, struct kvp_error *err)
{
	struct kvp_verbs *verbs = calloc(1, sizeof(*verbs));
	kvp_status status;

	if (verbs == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory");
	verbs->dataplane = dataplane;
	KVP_CHECK(kvp_transport_find(kvp_verbs_transport.name, &verbs->slot) != NULL);
	verbs->devices.changed = device_changed;
	verbs->devices.ctx = verbs;
	status = kvp_verbs_devices_open(dataplane, &verbs->devices, err);
	if (status != KVP_SUCCESS) {
		free(verbs);
		return status;
	}
	status = kvp_verbs_memory_create(verbs, &verbs->memory, err);
	if (status != KVP_SUCCESS) {
		kvp_verbs_devices_close(&verbs->devices);
		free(verbs);
		return status;
	}
	*state_out = verbs;
	return KVP_SUCCESS;
}

static bool
verbs_is_required(const struct kvp_config *config)
{
	return config->verbs_devices[0] != '\0';
}

static struct kvp_verbs *
state_of(struct kvp_dataplane *dataplane)
{
	uint32_t slot;

	KVP_CHECK(kvp_transport_find(kvp_verbs_transport.name, &slot) != NULL);
	return dataplane->state[slot];
}

static void
verbs_describe(struct kvp_dataplane *dataplane, struct kvp_blob *blob_out)
{
	const struct kvp_verbs_devices *devices = &state_of(dataplane)->devices;
	struct kvp_verbs_ports ports = {.ports = devices->ports};

	/* All of them, so that a place is the port's index; one that is down has no GID. */
	for (uint32_t i = 0; i < devices->ports; i++) {
		ports.port[i] = devices->port[i].address;
		if (!devices->port[i].is_active)
			memset(ports.port[i].gid, 0, sizeof(ports.port[i].gid));
	}
	kvp_verbs_ports_encode(&ports, blob_out);
}

static kvp_status
verbs_reachable(struct kvp_dataplane *dataplane, const struct kvp_blob *peer, struct kvp_error *err)
{
	struct kvp_verbs_ports ports;
	kvp_status status = kvp_verbs_ports_decode(peer, &ports, err);

	return status == KVP_SUCCESS ? kvp_verbs_reachable(state_of(dataplane), &ports, err)
				     : status;
}

static uint32_t
verbs_endpoints(struct kvp_dataplane *dataplane, uint32_t peer_lanes)
{
	uint32_t lanes = dataplane->lanes < peer_lanes ? dataplane->lanes : peer_lanes;

	return lanes < 1 ? 1 : lanes > KVP_VERBS_ENDPOINTS_MAX ? KVP_VERBS_ENDPOINTS_MAX : lanes;
}

static kvp_status
verbs_region_add(struct kvp_path *path, const struct kvp_region *region, struct kvp_error *err)
{
	(void)path;
	(void)region;
	(void)err;
	return KVP_SUCCESS; /* caches come with keys */
}

static void
verbs_region_gone(struct kvp_path *path, uint32_t region_id)
{
	(void)path;
	(void)region_id;
}

static void
verbs_totals(const struct kvp_endpoint *endpoint, struct kvp_totals *totals)
{
	const struct kvp_verbs_endpoint *ep = (const struct kvp_verbs_endpoint *)endpoint;

	totals->doorbells += atomic_load_explicit(&ep->doorbells, memory_order_relaxed);
	totals->gathered += atomic_load_explicit(&ep->gathered, memory_order_relaxed);
	totals->completions += atomic_load_explicit(&ep->completions, memory_order_relaxed);
	totals->replayed += atomic_load_explicit(&ep->replayed, memory_order_relaxed);
}

const struct kvp_transport kvp_verbs_transport = {
	.name = "verbs",
	.caps = {.pieces_max = KVP_VERBS_SGES,
		 .request_bytes_max = KVP_COST_BYTES_MAX,
		 .part_bytes_min = 1U << 20,
		 .is_split_by_lane = true,
		 .can_pull = true,
		 .can_reach_device = true},
	.start = verbs_start,
	.stop = verbs_stop,
	.is_required = verbs_is_required,
	.describe = verbs_describe,
	.reachable = verbs_reachable,
	.endpoints = verbs_endpoints,
	.path_create = kvp_verbs_path_create,
	.path_offer = kvp_verbs_path_offer,
	.path_connect = kvp_verbs_path_connect,
	.path_destroy = kvp_verbs_path_destroy,
	.path_note = kvp_verbs_path_note,
	.path_tick = kvp_verbs_path_tick,
	.cache_hold = kvp_verbs_cache_hold,
	.cache_forget = kvp_verbs_cache_forget,
	.cache_offer = kvp_verbs_cache_offer,
	.region_add = verbs_region_add,
	.region_gone = verbs_region_gone,
	.view_open = kvp_verbs_view_open,
	.view_close = kvp_verbs_view_close,
	.attached = kvp_verbs_attached,
	.detached = kvp_verbs_detached,
	.progress = kvp_verbs_progress,
	.post = kvp_verbs_post,
	.notify = kvp_verbs_notify,
	.stop_part = kvp_verbs_stop_part,
	.cache_gone = kvp_verbs_cache_gone,
	.down = kvp_verbs_down,
	.arm = kvp_verbs_arm,
	.disarm = kvp_verbs_disarm,
	.explain = kvp_verbs_devices_explain,
	.totals = verbs_totals,
};
