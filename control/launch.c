/* SPDX-License-Identifier: Apache-2.0 */
#include "launch.h"

#include <sched.h>
#include <string.h>

#include "copy.h"
#include "lane.h"

void
kvp_launch_split(struct kvp_transfer *transfer, const struct kvp_path *path, uint32_t parts_max,
		 uint64_t turn)
{
	const uint32_t endpoints = path->config.endpoints;
	uint64_t first[KVP_PARTS_MAX + 1];

	transfer->is_hot = transfer->plan.bytes <= KVP_COPY_HOT_BYTES;
	transfer->parts =
		kvp_plan_split(&transfer->plan, parts_max < endpoints ? parts_max : endpoints,
			       path->transport->caps.part_bytes_min, first);
	atomic_init(&transfer->parts_left, transfer->parts);
	for (uint32_t i = 0; i < transfer->parts; i++) {
		struct kvp_part *part = &transfer->part[i];

		memset(part, 0, sizeof(*part));
		part->transfer = transfer;
		part->endpoint = path->endpoint[(turn + i) % endpoints];
		part->lane = part->endpoint->lane;
		part->first = first[i];
		part->bytes = first[i + 1] - first[i];
		kvp_cursor_init(&part->cursor, &transfer->plan, first[i], part->bytes);
	}
}

/* Parts of one lane go together: a lane sees all that it has of a transfer, or nothing. */
void
kvp_launch(struct kvp_transfer *transfer)
{
	const uint32_t parts = transfer->parts;
	struct kvp_part *part[KVP_PARTS_MAX];
	struct kvp_lane *lane[KVP_PARTS_MAX];
	uint32_t left = (1U << parts) - 1;

	/* The transfer may end, and be freed, before the last of them is handed over. */
	for (uint32_t i = 0; i < parts; i++)
		lane[i] = transfer->part[i].lane;
	for (uint32_t i = 0; i < parts; i++) {
		uint32_t count = 0;

		if ((left & 1U << i) == 0)
			continue;
		for (uint32_t j = i; j < parts; j++) {
			if (lane[j] != lane[i])
				continue;
			part[count++] = &transfer->part[j];
			left &= ~(1U << j);
		}
		/* A ring has room for max_transfers transfers; layers may fill it, and the lane empties it. */
		while (!kvp_lane_submit(lane[i], part, count))
			(void)sched_yield();
	}
}
