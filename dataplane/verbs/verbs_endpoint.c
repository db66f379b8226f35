/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "verbs_lane.h"

static void *
zeros(size_t count, size_t bytes)
{
	size_t all = (count * bytes + KVP_SHARE_SPAN - 1) / KVP_SHARE_SPAN * KVP_SHARE_SPAN;
	void *memory = aligned_alloc(KVP_SHARE_SPAN, all);

	if (memory != NULL)
		memset(memory, 0, all);
	return memory;
}

struct kvp_verbs_endpoint *
kvp_verbs_endpoint_create(uint32_t queues)
{
	struct kvp_verbs_endpoint *ep = zeros(1, sizeof(*ep));

	KVP_CHECK(queues >= 1 && queues <= KVP_VERBS_ALL_MAX);
	if (ep == NULL)
		return NULL;
	ep->queues = queues;
	ep->claimed = KVP_VERBS_NO_SLOT;
	ep->queue = zeros(queues, sizeof(ep->queue[0]));
	ep->arrival = zeros(KVP_VERBS_SLOTS, sizeof(ep->arrival[0]));
	ep->orphan = zeros(2 * (size_t)queues * KVP_VERBS_SQ, sizeof(ep->orphan[0]));
	ep->pending = zeros((size_t)queues * KVP_VERBS_RQ + 1, sizeof(ep->pending[0]));
	ep->slot = zeros(KVP_VERBS_SLOTS, sizeof(ep->slot[0]));
	ep->generation = zeros(KVP_VERBS_SLOTS, sizeof(ep->generation[0]));
	if (ep->queue == NULL || ep->arrival == NULL || ep->orphan == NULL || ep->pending == NULL ||
	    ep->slot == NULL || ep->generation == NULL) {
		kvp_verbs_endpoint_destroy(ep);
		return NULL;
	}
	for (uint32_t i = 0; i < KVP_VERBS_SLOTS; i++) {
		ep->slot[i] = (uint16_t)i;
		ep->generation[i] = 1;
	}
	ep->slot_end = KVP_VERBS_SLOTS;
	for (uint32_t i = 0; i < queues; i++) {
		ep->queue[i].endpoint = ep;
		ep->queue[i].index = i;
	}
	return ep;
}

void
kvp_verbs_endpoint_destroy(struct kvp_verbs_endpoint *ep)
{
	if (ep == NULL)
		return;
	free(ep->queue);
	free(ep->arrival);
	free(ep->orphan);
	free(ep->pending);
	free(ep->slot);
	free(ep->generation);
	free(ep);
}
