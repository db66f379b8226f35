/* SPDX-License-Identifier: Apache-2.0 */
#include "transport.h"

#include <string.h>

#include "transports.h"

const struct kvp_transport *const kvp_transports[KVP_TRANSPORTS] = {
	&kvp_shm_transport,
	&kvp_tcp_transport,
	&kvp_verbs_transport,
};

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	for (uint32_t i = 0; i < KVP_TRANSPORTS; i++) {
		if (strcmp(kvp_transports[i]->name, name) != 0)
			continue;
		if (slot_out != NULL)
			*slot_out = i;
		return kvp_transports[i];
	}
	return NULL;
}
