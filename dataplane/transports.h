/* SPDX-License-Identifier: Apache-2.0 */
/* transports.h - the transports that ship, by their one public name each */
#ifndef KVP_DATAPLANE_TRANSPORTS_H
#define KVP_DATAPLANE_TRANSPORTS_H

#include "transport.h"

extern const struct kvp_transport kvp_shm_transport;
extern const struct kvp_transport kvp_tcp_transport;
extern const struct kvp_transport kvp_verbs_transport;

#endif /* KVP_DATAPLANE_TRANSPORTS_H */
