/* SPDX-License-Identifier: Apache-2.0 */
#include "cursor.h"

#include "check.h"

static inline uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The run that holds block number `slot` of the plan. */
static uint32_t
run_of(const struct kvp_plan *plan, uint64_t slot)
{
	uint32_t low = 0, high = plan->runs; /* run[low].ordinal <= slot < run[high].ordinal */

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (plan->run[middle].ordinal <= slot)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void
kvp_cursor_init(struct kvp_cursor *cursor, const struct kvp_plan *plan, uint64_t first,
		uint64_t bytes)
{
	const struct kvp_group *group = plan->group;

	KVP_ASSERT(first <= plan->bytes && bytes <= plan->bytes - first);
	*cursor = (struct kvp_cursor){.plan = plan, .left = bytes};
	if (bytes == 0)
		return;

	while (first >= plan->blocks * group->block_bytes)
		first -= plan->blocks * group++->block_bytes;

	uint64_t slot = first / group->block_bytes;

	cursor->group = (uint32_t)(group - plan->group);
	cursor->run = run_of(plan, slot);
	cursor->offset = first % group->block_bytes;
	slot -= plan->run[cursor->run].ordinal;
	if (group->is_dense)
		cursor->offset += slot * group->block_bytes;
	else
		cursor->block = (uint32_t)slot;
}

/* Dense group: every run is one extent. Gives until `max`, `room` bytes, or the group's end. */
static inline uint32_t
give_runs(struct kvp_cursor *cursor, uint32_t max, uint64_t *room, uint32_t each_max,
	  struct kvp_extent *out)
{
	const struct kvp_plan *plan = cursor->plan;
	const struct kvp_group *group = &plan->group[cursor->group];
	const uint64_t block_bytes = group->block_bytes, local_base = group->local_base;
	const uint32_t remote_tensor = group->remote_tensor;
	const struct kvp_run *run = plan->run + cursor->run;
	const struct kvp_run *end = plan->run + plan->runs;
	const struct kvp_extent *first = out, *full = out + max;
	uint64_t offset = cursor->offset, room_now = *room;

	while (out < full && room_now > 0 && run < end) {
		uint64_t run_bytes = run->count * block_bytes;
		uint64_t bytes = least(least(run_bytes - offset, room_now), each_max);

		out->local = (uint8_t *)(uintptr_t)(local_base + run->local * block_bytes + offset);
		out->remote_offset = run->remote * block_bytes + offset;
		out->remote_tensor = remote_tensor;
		out->bytes = (uint32_t)bytes;
		out++;
		room_now -= bytes;
		offset += bytes;
		if (offset == run_bytes) {
			offset = 0;
			run++;
		}
	}
	*room = room_now;
	cursor->offset = offset;
	cursor->run = (uint32_t)(run - plan->run);
	return (uint32_t)(out - first);
}

/* Padded on a side, or strides differ: every block is one extent. Else as give_runs. */
static inline uint32_t
give_blocks(struct kvp_cursor *cursor, uint32_t max, uint64_t *room, uint32_t each_max,
	    struct kvp_extent *out)
{
	const struct kvp_plan *plan = cursor->plan;
	const struct kvp_group *group = &plan->group[cursor->group];
	const uint64_t block_bytes = group->block_bytes, local_base = group->local_base;
	const uint64_t local_stride = group->local_stride, remote_stride = group->remote_stride;
	const uint32_t remote_tensor = group->remote_tensor;
	const struct kvp_run *run = plan->run + cursor->run;
	const struct kvp_run *end = plan->run + plan->runs;
	uint64_t offset = cursor->offset, room_now = *room;
	uint32_t block = cursor->block, count = 0;

	while (count < max && room_now > 0 && run < end) {
		uint64_t bytes = least(least(block_bytes - offset, room_now), each_max);

		out[count++] = (struct kvp_extent){
			.local = (uint8_t *)(uintptr_t)(local_base +
							(run->local + block) * local_stride +
							offset),
			.remote_offset = (run->remote + block) * remote_stride + offset,
			.remote_tensor = remote_tensor,
			.bytes = (uint32_t)bytes,
		};
		room_now -= bytes;
		offset += bytes;
		if (offset != block_bytes)
			continue;
		offset = 0;
		if (++block == run->count) {
			block = 0;
			run++;
		}
	}
	*room = room_now;
	cursor->offset = offset;
	cursor->block = block;
	cursor->run = (uint32_t)(run - plan->run);
	return count;
}

uint32_t
kvp_cursor_next_each(struct kvp_cursor *cursor, uint32_t max, uint64_t bytes_max, uint32_t each_max,
		     struct kvp_extent *out)
{
	const struct kvp_plan *plan = cursor->plan;
	const uint64_t room_first = least(cursor->left, bytes_max);
	uint64_t room = room_first;
	uint32_t count = 0;

	KVP_ASSERT(max >= 1);
	KVP_ASSERT(bytes_max >= 1);
	KVP_ASSERT(each_max >= 1 && each_max <= KVP_EXTENT_BYTES_MAX);
	while (count < max && room > 0) {
		KVP_ASSERT(cursor->group < plan->groups);
		if (plan->group[cursor->group].is_dense)
			count += give_runs(cursor, max - count, &room, each_max, out + count);
		else
			count += give_blocks(cursor, max - count, &room, each_max, out + count);
		if (cursor->run == plan->runs) {
			cursor->run = 0;
			cursor->group++;
		}
	}
	cursor->left -= room_first - room;
	return count;
}

uint32_t
kvp_cursor_next(struct kvp_cursor *cursor, uint32_t max, uint64_t bytes_max, struct kvp_extent *out)
{
	return kvp_cursor_next_each(cursor, max, bytes_max, KVP_EXTENT_BYTES_MAX, out);
}
