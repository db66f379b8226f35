/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include "line.h"
#include "verbs_port.h"

static void
explain_gids(struct kvp_line *paper, const struct kvp_verbs_device *device,
	     const struct kvp_verbs_port *port)
{
	struct ibv_port_attr attr;
	struct kvp_verbs_gid *gid;
	uint32_t gids;
	bool is_up;

	if (kvp_verbs_gids_read(device, port->number, &gid, &gids) != 0)
		return;
	is_up = ibv_query_port(device->context, port->number, &attr) == 0 &&
		attr.state == IBV_PORT_ACTIVE;
	for (uint32_t i = 0; i < gids; i++) {
		const char *fault = kvp_verbs_gid_fault(&gid[i]);
		char text[64];

		kvp_verbs_gid_text(gid[i].gid, text, sizeof(text));
		kvp_line_add(paper, "%s:%u GID %u %s: ", device->name, port->number, gid[i].index,
			     text);
		if (port->is_active && port->gid_index == gid[i].index)
			kvp_line_add(paper, "taken\n");
		else if (fault != NULL)
			kvp_line_add(paper, "not taken, it %s\n", fault);
		else if (is_up)
			kvp_line_add(paper, "not taken, verbs_gid_index=%u would\n", gid[i].index);
		else
			kvp_line_add(paper, "not taken, the port is not active\n");
	}
	free(gid);
}

static void
explain_port(struct kvp_line *paper, const struct kvp_verbs_devices *devices,
	     const struct kvp_verbs_port *port)
{
	const struct kvp_verbs_device *device = &devices->device[port->device];

	kvp_line_add(paper, "%s:%u: %s, %u Gb/s, MTU %u: %s, %s\n", device->name, port->number,
		     port->address.link == KVP_VERBS_ROCE ? "RoCE" : "InfiniBand",
		     port->address.speed, 128U << port->address.mtu,
		     port->is_active ? "taken" : "not taken", port->why);
	if (port->address.link == KVP_VERBS_ROCE)
		explain_gids(paper, device, port);
}

/* Devices of this host that were not opened. What could not be opened says why. */
static void
explain_others(struct kvp_line *paper, const struct kvp_verbs_devices *devices, bool is_named)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; list != NULL && i < count; i++) {
		struct ibv_context *context;
		bool is_open = false;

		for (uint32_t d = 0; d < devices->devices; d++)
			is_open |= strcmp(devices->device[d].name, list[i]->name) == 0;
		if (is_open)
			continue;
		context = ibv_open_device(list[i]);
		kvp_line_add(paper, "%s: not taken, %s\n", list[i]->name,
			     list[i]->transport_type != IBV_TRANSPORT_IB
				     ? "neither RoCE nor InfiniBand"
			     : context == NULL
				     ? "it cannot be opened: look at the rights to /dev/infiniband"
			     : is_named ? "verbs_devices does not name it"
					: "there are others with active ports");
		if (context != NULL)
			(void)ibv_close_device(context);
	}
	if (list != NULL)
		ibv_free_device_list(list);
}

static int
is_uverbs(const struct dirent *entry)
{
	return strncmp(entry->d_name, "uverbs", 6) == 0;
}

/* What this process may do with the kernel's side of each device. */
static void
explain_rights(struct kvp_line *paper)
{
	struct dirent **found;
	int count = scandir("/sys/class/infiniband_verbs", &found, is_uverbs, versionsort);

	for (int i = 0; i < count; i++) {
		char path[280];

		snprintf(path, sizeof(path), "/dev/infiniband/%s", found[i]->d_name);
		free(found[i]);
		if (access(path, R_OK | W_OK) == 0)
			kvp_line_add(paper, "%s: may be opened\n", path);
		else if (errno == ENOENT)
			kvp_line_add(
				paper,
				"%s: is missing: load ib_uverbs, or give it to the container\n",
				path);
		else
			kvp_line_add(paper, "%s: %s: give this user rights to it\n", path,
				     strerrorname_np(errno));
	}
	if (count >= 0)
		free(found);
}

kvp_status
kvp_verbs_devices_explain(const struct kvp_config *config, char *text, size_t size)
{
	struct kvp_verbs_devices *devices = calloc(1, sizeof(*devices));
	struct kvp_line paper = kvp_line_start(text, size);
	struct kvp_error error = {""};
	kvp_status status;

	if (size > 0)
		text[0] = '\0';
	if (devices == NULL)
		return KVP_OUT_OF_MEMORY;
	status = kvp_verbs_devices_find(config, devices, &error);
	if (status != KVP_SUCCESS)
		kvp_line_add(&paper, "%s\n", error.text);
	for (uint32_t d = 0; d < devices->devices; d++) {
		const struct kvp_verbs_device *device = &devices->device[d];

		kvp_line_add(&paper, "%s: opened, firmware %.20s, ports %u, ", device->name,
			     device->attr.fw_ver[0] != '\0' ? device->attr.fw_ver : "unknown",
			     device->attr.phys_port_cnt);
		if (device->numa < 0)
			kvp_line_add(&paper, "NUMA node unknown\n");
		else
			kvp_line_add(&paper, "NUMA node %d\n", device->numa);
	}
	for (uint32_t i = 0; i < devices->ports; i++)
		explain_port(&paper, devices, &devices->port[i]);
	explain_rights(&paper);
	explain_others(&paper, devices, config->verbs_devices[0] != '\0');
	kvp_verbs_devices_close(devices);
	free(devices);
	return status;
}
