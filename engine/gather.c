/* SPDX-License-Identifier: Apache-2.0 */
#include "gather.h"

#include "check.h"

#define EXTENTS_AT_ONCE 64U

struct kvp_cost
kvp_cost_complete(const struct kvp_cost *cost)
{
	struct kvp_cost full = *cost;

	if (full.request_ns == 0)
		full.request_ns = KVP_COST_REQUEST_NS;
	if (full.piece_ns == 0)
		full.piece_ns = KVP_COST_PIECE_NS;
	if (full.pieces_max == 0)
		full.pieces_max = 1;
	if (full.bytes_preferred == 0)
		full.bytes_preferred = KVP_COST_BYTES_PREFERRED;
	if (full.bytes_max == 0)
		full.bytes_max = KVP_COST_BYTES_MAX;
	return full;
}

struct kvp_gather_limits
kvp_gather_limits_of(const struct kvp_cost *cost)
{
	struct kvp_cost full = kvp_cost_complete(cost);

	if (full.bytes_max > KVP_EXTENT_BYTES_MAX)
		full.bytes_max = KVP_EXTENT_BYTES_MAX;
	if (full.bytes_preferred > full.bytes_max)
		full.bytes_preferred = full.bytes_max;
	return (struct kvp_gather_limits){
		.pieces_max = full.piece_ns >= full.request_ns ? 1 : full.pieces_max,
		.bytes_stop = (uint32_t)full.bytes_preferred,
		.bytes_max = (uint32_t)full.bytes_max,
	};
}

/* The request that extents are being added to. */
struct open_request {
	uint32_t pieces; /* 0: none */
	uint32_t bytes;
	uint32_t tensor;
	uint64_t end_offset;
};

/* Why does `extent` begin another request than the open one? */
static void
tally_end(struct kvp_gather_tally *tally, const struct kvp_gather_limits *limits,
	  const struct open_request *open, const struct kvp_extent *extent)
{
	if (open->pieces == 0)
		return;
	if (extent->remote_tensor != open->tensor || extent->remote_offset != open->end_offset)
		tally->gaps++;
	else if (open->bytes >= limits->bytes_stop ||
		 extent->bytes > limits->bytes_max - open->bytes)
		tally->large++;
	else
		tally->full++;
}

static void
tally_add(struct kvp_gather_tally *tally, const struct kvp_gather_limits *limits,
	  struct open_request *open, const struct kvp_extent *extent)
{
	if (!kvp_gather_fits(limits, open->pieces, open->bytes, open->end_offset, open->tensor,
			     extent)) {
		tally_end(tally, limits, open, extent);
		tally->requests++;
		open->pieces = 0;
		open->bytes = 0;
	}
	tally->pieces++;
	open->pieces++;
	open->bytes += extent->bytes;
	open->tensor = extent->remote_tensor;
	open->end_offset = extent->remote_offset + extent->bytes;
}

/*
 * An extent of more than bytes_max is divided here instead of cut by the cursor, so that tiny
 * limits cost nothing: after the first full cut every further one begins and ends a request.
 */
void
kvp_gather_tally(const struct kvp_plan *plan, const struct kvp_gather_limits *limits,
		 struct kvp_gather_tally *tally_out)
{
	struct kvp_extent extent[EXTENTS_AT_ONCE];
	struct kvp_gather_tally tally = {0};
	struct open_request open = {0};
	struct kvp_cursor cursor;
	uint32_t count;

	KVP_ASSERT(limits->pieces_max >= 1);
	KVP_ASSERT(limits->bytes_stop >= 1 && limits->bytes_stop <= limits->bytes_max);
	kvp_cursor_init(&cursor, plan, 0, plan->bytes);
	while ((count = kvp_cursor_next(&cursor, EXTENTS_AT_ONCE, UINT64_MAX, extent)) > 0) {
		for (uint32_t i = 0; i < count; i++) {
			struct kvp_extent cut = extent[i];
			uint32_t full = (cut.bytes - 1) / limits->bytes_max;

			if (full > 0) {
				cut.bytes = limits->bytes_max;
				tally_add(&tally, limits, &open, &cut);
				tally.requests += full - 1;
				tally.pieces += full - 1;
				tally.large += full - 1;
				cut.bytes = extent[i].bytes - full * limits->bytes_max;
				cut.remote_offset += (uint64_t)full * limits->bytes_max;
				open.end_offset = cut.remote_offset;
			}
			tally_add(&tally, limits, &open, &cut);
		}
	}
	*tally_out = tally;
}

void
kvp_gather_count(const struct kvp_plan *plan, const struct kvp_gather_limits *limits,
		 uint64_t *requests_out, uint64_t *pieces_out)
{
	struct kvp_gather_tally tally;

	kvp_gather_tally(plan, limits, &tally);
	*requests_out = tally.requests;
	*pieces_out = tally.pieces;
}

uint64_t
kvp_cost_ns(const struct kvp_cost *cost, uint64_t requests, uint64_t pieces)
{
	struct kvp_cost full = kvp_cost_complete(cost);

	KVP_ASSERT(pieces >= requests);
	return requests * full.request_ns + (pieces - requests) * full.piece_ns;
}
