/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_device.h - the RDMA devices of this host that an engine uses
 *
 * A port is a candidate rail: an active port of an opened device together with the
 * one GID that was chosen for it. Candidates are announced to peers in the order kept here:
 * as named by `verbs_devices`, else nearest to the lanes first.
 *
 * Ownership:  kvp_verbs_devices_open .. _close; ports keep their index all the time
 * Threads:    [C]
 */
#ifndef KVP_VERBS_DEVICE_H
#define KVP_VERBS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "compiler.h"
#include "error.h"
#include "reactor.h"
#include "verbs_rail.h"

struct kvp_config;
struct kvp_dataplane;

#define KVP_VERBS_DEVICES_MAX 8U
#define KVP_VERBS_PORTS_MAX   8U /* candidate rails of an engine */
#define KVP_VERBS_RAILS_MAX   4U /* of a link */
#define KVP_VERBS_QPS_MAX     8U /* per peer and rail */

struct kvp_verbs_device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	char name[IBV_SYSFS_NAME_MAX];
	int numa;               /* -1: not known */
	bool is_fatal;          /* DEVICE_FATAL or CQ_ERR: no QP of it is built any more */
	struct kvp_watch watch; /* of its asynchronous events */
	struct kvp_verbs_devices *all;
};

struct kvp_verbs_port {
	uint32_t device; /* index */
	uint8_t number;  /* from 1 */
	bool is_active;  /* and has a GID; may change with events */
	uint32_t gid_index;
	struct kvp_verbs_address
		address; /* GID, prefix, LID, link layer, MTU: what the peer is told */
	char why[200];   /* how the GID was chosen, or why there is none */
};

struct kvp_verbs_devices {
	struct kvp_dataplane *dataplane;
	const struct kvp_config *config;
	uint32_t devices;
	struct kvp_verbs_device device[KVP_VERBS_DEVICES_MAX];
	uint32_t ports;
	struct kvp_verbs_port port[KVP_VERBS_PORTS_MAX];
	struct kvp_watch again; /* timer: ports are looked at again after changes; fd -1: none */
	uint32_t looks;         /* still to come */
	/* [C] A port went up or down or changed its GID (port's fields are new already); or, port NULL, the
	   device is fatal; or, `qp` not NULL, that QP is. Called from the reactor. */
	void (*changed)(struct kvp_verbs_devices *devices, uint32_t device,
			struct kvp_verbs_port *port, struct ibv_qp *qp, void *ctx);
	void *ctx;
};

/*
 * Open what config->verbs_devices names ("" = every device with an active port, "rxe0,mlx5_1:2" =
 * these, in this order), choose GIDs, watch events on dataplane->reactor. NO_TRANSPORT, with a line that
 * names device, what was found and what to do: no kernel support, no /dev/infiniband, no device, a named one that
 * is not there, missing rights, no active port, no RoCE v2 GID, a forced GID index (config->verbs_gid_index)
 * that is empty, of the wrong type or link-local.
 */
KVP_MUST_USE kvp_status
kvp_verbs_devices_open(struct kvp_dataplane *dataplane, struct kvp_verbs_devices *devices,
		       struct kvp_error *err);
void
kvp_verbs_devices_close(struct kvp_verbs_devices *devices);

/*
 * The same without watching: what verbs_devices_open would find, for people. *devices is zeroed, kvp_verbs_devices_close
 * is called whatever it returns.
 */
KVP_MUST_USE kvp_status
kvp_verbs_devices_find(const struct kvp_config *config, struct kvp_verbs_devices *devices,
		       struct kvp_error *err);

/*
 * The same as text for people, one line per device, port and GID: taken or not, and why. Opens and closes the
 * devices itself. Returns SUCCESS when verbs could be used.
 */
kvp_status
kvp_verbs_devices_explain(const struct kvp_config *config, char *text, size_t size);

#endif /* KVP_VERBS_DEVICE_H */
