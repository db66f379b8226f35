/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>

#include <kvpush/engine.h>

int
kvp_verbs_numa_of(const char *device)
{
	char path[128];
	char line[16] = "", *end = line;
	FILE *file;
	long node = -1;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/device/numa_node", device);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	if (fgets(line, sizeof(line), file) != NULL)
		node = strtol(line, &end, 10);
	fclose(file);
	return end != line && node >= 0 ? (int)node : -1;
}

/* NULL: hwloc cannot say. */
static hwloc_topology_t
topology_load(void)
{
	hwloc_topology_t topology;

	if (hwloc_topology_init(&topology) != 0)
		return NULL;
	/* That component would move this thread from core to core to ask each for its caches. */
	(void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
					    "x86");
	if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
	    hwloc_topology_load(topology) == 0)
		return topology;
	hwloc_topology_destroy(topology);
	return NULL;
}

/* The cores that lanes run on. The text is checked. */
static void
lane_cores(const struct kvp_config *config, hwloc_topology_t topology, hwloc_bitmap_t cores)
{
	const char *text = config->lane_cpus;

	hwloc_bitmap_zero(cores);
	while (*text != '\0') {
		char *end;
		unsigned long core = strtoul(text, &end, 10);

		if (end == text)
			break;
		hwloc_bitmap_set(cores, (unsigned int)core);
		text = *end == ',' ? end + 1 : end;
	}
	if (hwloc_bitmap_iszero(cores))
		(void)hwloc_get_cpubind(topology, cores, HWLOC_CPUBIND_THREAD);
}

/*
 * Over all cores: how deep in the tree (machine, package, group, ...) lies the smallest part that has both
 * the core and the adapter. 0: hwloc does not know the adapter.
 */
static uint32_t
nearness(hwloc_topology_t topology, const char *name, hwloc_const_bitmap_t cores)
{
	hwloc_obj_t device = NULL, around = NULL;
	uint32_t sum = 0;

	while (around == NULL && (device = hwloc_get_next_osdev(topology, device)) != NULL) {
		if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS &&
		    device->name != NULL && strcmp(device->name, name) == 0)
			around = hwloc_get_non_io_ancestor_obj(topology, device);
	}
	if (around == NULL)
		return 0;
	for (int core = hwloc_bitmap_first(cores); core >= 0;
	     core = hwloc_bitmap_next(cores, core)) {
		hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned int)core);
		hwloc_obj_t common =
			pu != NULL ? hwloc_get_common_ancestor_obj(topology, pu, around) : NULL;

		if (common != NULL && common->depth >= 0)
			sum += 1 + (uint32_t)common->depth;
	}
	return sum;
}

/* Largest first, equals as they are. */
static void
order_ports(struct kvp_verbs_devices *devices, const uint32_t *near)
{
	for (uint32_t i = 1; i < devices->ports; i++) {
		struct kvp_verbs_port port = devices->port[i];
		uint32_t at = i;

		for (; at > 0 && near[devices->port[at - 1].device] < near[port.device]; at--)
			devices->port[at] = devices->port[at - 1];
		devices->port[at] = port;
	}
	for (uint32_t i = 0; i < devices->ports; i++) {
		struct kvp_verbs_port *port = &devices->port[i];
		size_t used = strlen(port->why);
		bool is_first = near[port->device] == near[devices->port[0].device];

		snprintf(port->why + used, sizeof(port->why) - used, "; %s the lanes' cores",
			 is_first ? "near" : "far from");
	}
}

void
kvp_verbs_nearest_first(struct kvp_verbs_devices *devices)
{
	uint32_t near[KVP_VERBS_DEVICES_MAX] = {0};
	hwloc_topology_t topology;
	hwloc_bitmap_t cores;
	bool differs = false;

	if (devices->devices < 2)
		return;
	topology = topology_load();
	if (topology == NULL)
		return;
	cores = hwloc_bitmap_alloc();
	if (cores != NULL) {
		lane_cores(devices->config, topology, cores);
		for (uint32_t i = 0; i < devices->devices; i++) {
			near[i] = nearness(topology, devices->device[i].name, cores);
			differs |= near[i] != near[0];
		}
		if (differs)
			order_ports(devices, near);
	}
	hwloc_bitmap_free(cores);
	hwloc_topology_destroy(topology);
}
