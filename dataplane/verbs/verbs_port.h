/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_port.h - one port of an open device as it is now: state, addresses, GIDs
 *
 * Threads:    [C]
 */
#ifndef KVP_VERBS_PORT_H
#define KVP_VERBS_PORT_H

#include "verbs_device.h"

#define KVP_VERBS_GID_AUTOMATIC 255U /* of config->verbs_gid_index */

/* The GIDs of a port with the prefixes that interfaces give them; malloced. 0 or an errno. */
KVP_MUST_USE int
kvp_verbs_gids_read(const struct kvp_verbs_device *device, uint8_t number,
		    struct kvp_verbs_gid **gid_out, uint32_t *gids_out);

/*
 * Fill in everything but the port's place: `device` and `number` are set. `forced`: config->verbs_gid_index.
 * What cannot be read makes it inactive, and `why` says so.
 */
void
kvp_verbs_port_read(const struct kvp_verbs_device *device, struct kvp_verbs_port *port,
		    uint32_t forced);

#endif /* KVP_VERBS_PORT_H */
