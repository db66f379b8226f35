/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_chain.h - the hot loop: from a cursor to linked requests with their lists of pieces
 *
 * A part of verbs_post_fast.c, which alone includes it. Everything is inline but the way to other keys,
 * which is taken once per tensor or span.
 *
 * Invariant:  requests before open.wr are complete but for the tail's signal, and their entries are written; the
 *             bytes in them are the plan's up to open.at
 * Threads:    [L]
 */
#ifndef KVP_VERBS_CHAIN_H
#define KVP_VERBS_CHAIN_H

#include "check.h"
#include "verbs_lane.h"

#define BURST 32U /* extents asked of the cursor at once */

/* Where a chain is. In registers while extents are added. */
struct open {
	struct ibv_send_wr *wr; /* the next one */
	uint64_t wr_id;         /* of the next one */
	uint64_t end_offset;    /* where the open request's remote range ends */
	uint64_t at;            /* byte of the plan that comes next */
	uint32_t pieces;        /* 0: the next extent starts another request */
	uint32_t bytes;
	uint32_t gathered; /* pieces beyond the first of each request */
};

/* What is the same for one extent and most that follow it. */
struct place {
	uint64_t base; /* of the tensor, over there */
	/* An extent of at most `bytes` bytes that begins in these ranges lies in one span on both sides. */
	uint64_t local_first, local_room;
	uint64_t offset_first, offset_room;
	uint32_t tensor;
	uint32_t bytes;
	uint32_t lkey, rkey;
};

/* A chain of requests on its way together. */
struct chain {
	struct kvp_verbs_endpoint *ep;
	struct kvp_verbs_queue *queue;
	struct kvp_part *part;
	const struct kvp_remote_cache *cache;
	const struct kvp_verbs_spans *local_spans;
	const struct kvp_verbs_spans *remote_spans;
	struct kvp_gather_limits limits;
	struct kvp_verbs_tag tag; /* of its entries */
	struct ibv_send_wr *end;  /* full */
	kvp_status lost;          /* there is no key for an extent */
	struct place place;
	struct open open;
};

/* A piece that lies in `place`. */
struct piece {
	uint64_t local;
	uint64_t offset;
	uint64_t bytes;
};

/* Does it join the open request? */
static inline bool
piece_fits(const struct chain *chain, const struct place *place, const struct open *open,
	   const struct piece *piece)
{
	const struct kvp_extent extent = {.remote_offset = piece->offset,
					  .remote_tensor = place->tensor,
					  .bytes = (uint32_t)piece->bytes};

	return kvp_gather_fits(&chain->limits, open->pieces, open->bytes, open->end_offset,
			       place->tensor, &extent);
}

/* One that fits. The request and its entry learn of it by request_count, once for several. */
static inline void
piece_join(const struct place *place, struct open *open, const struct piece *piece)
{
	open->wr[-1].sg_list[open->pieces++] = (struct ibv_sge){
		.addr = piece->local, .length = (uint32_t)piece->bytes, .lkey = place->lkey};
	open->bytes += (uint32_t)piece->bytes;
	open->end_offset += piece->bytes;
	open->at += piece->bytes;
	open->gathered++;
}

static inline void
request_count(const struct chain *chain, const struct open *open)
{
	open->wr[-1].num_sge = (int)open->pieces;
	kvp_verbs_entry(chain->queue, (uint32_t)open->wr_id - 1)->bytes = open->bytes;
}

/* One that needs a request. False: the chain is full. */
static inline bool
piece_begin(const struct chain *chain, const struct place *place, struct open *open,
	    const struct piece *piece)
{
	struct ibv_send_wr *wr = open->wr;
	struct kvp_verbs_request *entry;

	if (wr == chain->end)
		return false;
	wr->wr_id = open->wr_id;
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = place->base + piece->offset;
	wr->wr.rdma.rkey = place->rkey;
	wr->sg_list[0] = (struct ibv_sge){
		.addr = piece->local, .length = (uint32_t)piece->bytes, .lkey = place->lkey};
	entry = kvp_verbs_entry(chain->queue, (uint32_t)open->wr_id);
	entry->part = chain->part;
	entry->first = open->at;
	entry->bytes = (uint32_t)piece->bytes;
	entry->tag = chain->tag;
	open->wr = wr + 1;
	open->wr_id++;
	open->pieces = 1;
	open->bytes = (uint32_t)piece->bytes;
	open->end_offset = piece->offset + piece->bytes;
	open->at += piece->bytes;
	return true;
}

/* False: it needs a request, and the chain is full. */
static inline bool
piece_put(const struct chain *chain, const struct place *place, struct open *open, uint64_t local,
	  uint64_t offset, uint32_t bytes)
{
	const struct piece piece = {local, offset, bytes};

	if (!piece_fits(chain, place, open, &piece))
		return piece_begin(chain, place, open, &piece);
	piece_join(place, open, &piece);
	request_count(chain, open);
	return true;
}

static inline const struct kvp_verbs_span *
find(const struct kvp_verbs_spans *spans, uint64_t address, uint32_t hint)
{
	return kvp_verbs_span_find(spans, address, hint < spans->count ? &spans->span[hint] : NULL);
}

static inline uint32_t
rest_of(const struct kvp_verbs_span *span, uint64_t address, uint32_t bytes)
{
	uint64_t rest = span->bytes - (address - span->address);

	return rest < bytes ? (uint32_t)rest : bytes;
}

/* The place of the beginning of a piece. Returns how much of it one key each is enough for; 0: there is none. */
static inline uint32_t
place_find(struct chain *chain, uint64_t local, uint64_t offset, uint32_t bytes)
{
	struct kvp_verbs_endpoint *ep = chain->ep;
	struct place *place = &chain->place;
	uint64_t remote = place->base + offset;
	const struct kvp_verbs_span *from = find(chain->local_spans, local, ep->hint_local);
	const struct kvp_verbs_span *to = find(chain->remote_spans, remote, ep->hint_remote);

	if (from == NULL || to == NULL) {
		chain->lost = from == NULL ? KVP_CACHE_NOT_EXIST : KVP_PROTOCOL;
		return 0;
	}
	bytes = rest_of(to, remote, rest_of(from, local, bytes));
	if (to->address - place->base != place->offset_first)
		chain->open.pieces = 0; /* one key per request */
	ep->hint_local = (uint32_t)(from - chain->local_spans->span);
	ep->hint_remote = (uint32_t)(to - chain->remote_spans->span);
	place->local_first = from->address;
	place->local_room = from->bytes - bytes;
	place->offset_first = to->address - place->base;
	place->offset_room = to->bytes - bytes;
	place->bytes = bytes;
	place->lkey = from->key[chain->queue->device];
	place->rkey = to->key[chain->queue->rail];
	return bytes;
}

/* Another tensor than the last one's, other spans, longer, or across the end of a span: then it is cut. */
static KVP_NOINLINE bool
extent_switch(struct chain *chain, const struct kvp_extent *extent)
{
	struct place *place = &chain->place;
	uint64_t local = (uint64_t)(uintptr_t)extent->local;
	uint64_t offset = extent->remote_offset;
	uint32_t left = extent->bytes;

	if (extent->remote_tensor != place->tensor) {
		KVP_ASSERT(extent->remote_tensor < chain->cache->num_tensors);
		place->base = (uint64_t)(uintptr_t)chain->cache->tensors[extent->remote_tensor]
				      .tensor.base;
		place->tensor = extent->remote_tensor;
		chain->open.pieces = 0;
	}
	while (left > 0) {
		uint32_t bytes = place_find(chain, local, offset, left);

		if (bytes == 0 || !piece_put(chain, place, &chain->open, local, offset, bytes))
			return false;
		local += bytes;
		offset += bytes;
		left -= bytes;
	}
	return true;
}

/* False: the chain is full before the last of them; the cursor has to go back to open.at. */
static inline bool
extents_add(struct chain *chain, const struct kvp_extent *extent, uint32_t count)
{
	const struct place *place = &chain->place;
	struct open open = chain->open;
	const struct kvp_extent *end = extent + count;

	for (; extent < end; extent++) {
		uint64_t local = (uint64_t)(uintptr_t)extent->local;
		uint64_t offset = extent->remote_offset;
		uint32_t bytes = extent->bytes;

		if (KVP_LIKELY(extent->remote_tensor == place->tensor && bytes <= place->bytes &&
			       local - place->local_first <= place->local_room &&
			       offset - place->offset_first <= place->offset_room)) {
			if (KVP_UNLIKELY(!piece_put(chain, place, &open, local, offset, bytes)))
				break;
		} else {
			chain->open = open;
			if (!extent_switch(chain, extent))
				return false;
			open = chain->open;
		}
	}
	chain->open = open;
	return extent == end;
}

static inline uint32_t
chain_requests(const struct chain *chain)
{
	return (uint32_t)(chain->open.wr - chain->ep->wr);
}

static inline bool
is_in_place(const struct place *place, const struct piece *piece)
{
	return piece->bytes <= place->bytes &&
	       piece->local - place->local_first <= place->local_room &&
	       piece->offset - place->offset_first <= place->offset_room;
}

static inline struct piece
piece_of(const struct kvp_run *run, uint64_t local_base, uint64_t block_bytes)
{
	return (struct piece){.local = local_base + run->local * block_bytes,
			      .offset = run->remote * block_bytes,
			      .bytes = run->count * block_bytes};
}

/*
 * Whole runs of the group at hand, each one piece: what a cursor would give, without the way over an extent.
 * Ends before a run that is longer, or elsewhere. False: the chain is full.
 */
static inline bool
runs_add(struct chain *chain, struct kvp_cursor *cursor, uint64_t room)
{
	const struct kvp_plan *plan = cursor->plan;
	const struct kvp_group *group = &plan->group[cursor->group];
	const struct kvp_run *run = plan->run + cursor->run, *end = plan->run + plan->runs;
	const uint64_t block_bytes = group->block_bytes, local_base = group->local_base;
	const struct place *place = &chain->place;
	struct open open = chain->open;
	uint64_t stop = open.at + room;
	bool is_in = true;

	while (run < end) {
		struct piece piece = piece_of(run, local_base, block_bytes);

		if (KVP_UNLIKELY(!is_in_place(place, &piece) || piece.bytes > stop - open.at))
			break;
		if (!piece_fits(chain, place, &open, &piece)) {
			is_in = piece_begin(chain, place, &open, &piece);
			if (KVP_UNLIKELY(!is_in))
				break;
			run++;
			continue;
		}
		do {
			piece_join(place, &open, &piece);
			if (++run == end)
				break;
			piece = piece_of(run, local_base, block_bytes);
		} while (is_in_place(place, &piece) && piece.bytes <= stop - open.at &&
			 piece_fits(chain, place, &open, &piece));
		request_count(chain, &open);
	}
	cursor->left -= open.at - chain->open.at;
	cursor->run = (uint32_t)(run - plan->run);
	if (run == end) {
		cursor->run = 0;
		cursor->group++;
	}
	chain->open = open;
	return is_in;
}

/* Is the cursor where runs_add goes on? */
static inline bool
is_at_run(const struct chain *chain, const struct kvp_cursor *cursor)
{
	const struct kvp_group *group = &cursor->plan->group[cursor->group];

	return group->is_dense && cursor->offset == 0 &&
	       group->remote_tensor == chain->place.tensor;
}

/* What comes next in the plan, whatever it is. False: the chain is full. */
static inline bool
any_add(struct chain *chain, struct kvp_cursor *cursor, uint64_t bytes_max)
{
	struct kvp_extent extent[BURST];
	uint32_t want = 1, count;

	/* As many as there are requests left need not be given back; where they gather, few are. */
	if (!cursor->plan->group[cursor->group].is_dense)
		want = chain->open.pieces > 1 ? BURST : (uint32_t)(chain->end - chain->open.wr);
	if (want == 0)
		return false;
	count = kvp_cursor_next_each(cursor, want, bytes_max, chain->limits.bytes_max, extent);
	return extents_add(chain, extent, count);
}

/* Until the chain is full, `bytes_max` bytes are in it, or the cursor is at its end. */
static inline void
chain_fill(struct chain *chain, struct kvp_cursor *cursor, uint64_t bytes_max)
{
	while (bytes_max > 0 && cursor->left > 0) {
		uint64_t at = chain->open.at;
		uint64_t room = bytes_max < cursor->left ? bytes_max : cursor->left;

		if (is_at_run(chain, cursor) && !runs_add(chain, cursor, room))
			return;
		if (chain->open.at == at && !any_add(chain, cursor, bytes_max))
			return;
		bytes_max -= chain->open.at - at;
	}
}

#endif /* KVP_VERBS_CHAIN_H */
