/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_near.h - which adapter is near which core, as hwloc knows it */
#ifndef KVP_VERBS_NEAR_H
#define KVP_VERBS_NEAR_H

#include "verbs_device.h"

/* NUMA node of an RDMA device, -1: not known. */
int
kvp_verbs_numa_of(const char *device);

/*
 * Order the ports: those whose adapter has the closest common part of the machine with the lanes' cores
 * (devices->config->lane_cpus, else the cores that this thread may run on) go first, equals stay as they are. Says so in
 * `why`. Looks only when there is more than one device, since that takes milliseconds.
 */
void
kvp_verbs_nearest_first(struct kvp_verbs_devices *devices);

#endif /* KVP_VERBS_NEAR_H */
