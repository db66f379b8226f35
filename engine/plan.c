/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <string.h>

#include "check.h"

#define INSERTION_MAX  32U                /* pairs; above it radix passes are cheaper */
#define DIGIT_BITS_MAX 11U                /* 8 KiB of counters per radix pass, on the stack */
#define NEXT_PAIR      ((1ULL << 32) + 1) /* both blocks one further */

enum order_kind {
	ORDER_FORWARD = 0,  /* the caller's own */
	ORDER_BACKWARD = 1, /* the caller's, from its end */
	ORDER_SORTED = 2,   /* order.pair from `first` on */
};

/* A pair is remote block << 32 | local block: sorting pairs sorts remote blocks. */
struct order {
	uint32_t kind; /* enum order_kind */
	uint32_t first;
	uint64_t pair[]; /* 2 x count; unused unless sorted */
};

struct lists {
	const uint64_t *remote;
	const uint64_t *local;
	uint32_t count;
	bool is_push;
};

static struct lists
lists_of(const struct kvp_pairing *pairing)
{
	return (struct lists){
		.remote = pairing->remote_blocks,
		.local = pairing->local_blocks,
		.count = pairing->count,
		.is_push = pairing->is_push,
	};
}

/* The pair at place `i` of the ascending order. */
static inline uint64_t
pair_at(const struct order *order, const struct lists *lists, uint32_t i)
{
	if (order->kind == ORDER_SORTED)
		return order->pair[order->first + i];
	if (order->kind == ORDER_BACKWARD)
		i = lists->count - 1 - i;
	return lists->remote[i] << 32 | lists->local[i];
}

static enum order_kind
order_found(const uint64_t *block, uint32_t count)
{
	uint32_t i = 1;

	while (i < count && block[i] >= block[i - 1])
		i++;
	if (i == count)
		return ORDER_FORWARD;
	if (i > 1)
		return ORDER_SORTED;
	while (i < count && block[i] <= block[i - 1])
		i++;
	return i == count ? ORDER_BACKWARD : ORDER_SORTED;
}

static void
sort_by_insertion(uint64_t *pair, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		uint64_t key = pair[i];
		uint32_t hole = i;

		while (hole > 0 && pair[hole - 1] > key) {
			pair[hole] = pair[hole - 1];
			hole--;
		}
		pair[hole] = key;
	}
}

/* Bits that hold `value`, at least 1. */
static uint32_t
bits_of(uint32_t value)
{
	return 32 - (uint32_t)__builtin_clz(value | 1);
}

static inline uint32_t
digit_of(uint64_t pair, uint32_t least, uint32_t shift)
{
	return ((uint32_t)(pair >> 32) - least) >> shift;
}

/* One stable pass over the digit `shift`, `bits` of the upper half - least. */
static void
radix_pass(const uint64_t *from, uint64_t *to, uint32_t count, uint32_t least, uint32_t shift,
	   uint32_t bits)
{
	uint32_t place[1U << DIGIT_BITS_MAX];
	uint32_t digits = 1U << bits, next = 0;

	memset(place, 0, digits * sizeof(place[0]));
	for (uint32_t i = 0; i < count; i++)
		place[digit_of(from[i], least, shift) & (digits - 1)]++;
	for (uint32_t digit = 0; digit < digits; digit++) {
		uint32_t here = place[digit];

		place[digit] = next;
		next += here;
	}
	for (uint32_t i = 0; i < count; i++)
		to[place[digit_of(from[i], least, shift) & (digits - 1)]++] = from[i];
}

/*
 * Sort pair[0..count) by the upper half with pair[count..2*count) as the other buffer; returns
 * where the result starts. Only the bits in which upper halves differ are looked at, in passes of
 * equal width whose counters do not outnumber the pairs by much.
 */
static uint32_t
sort_by_radix(uint64_t *pair, uint32_t count)
{
	uint32_t least = UINT32_MAX, most = 0, at = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t block = (uint32_t)(pair[i] >> 32);

		least = block < least ? block : least;
		most = block > most ? block : most;
	}

	uint32_t range_bits = bits_of(most - least);
	uint32_t widest = bits_of(count) < DIGIT_BITS_MAX ? bits_of(count) : DIGIT_BITS_MAX;
	uint32_t passes = (range_bits + widest - 1) / widest;
	uint32_t bits = (range_bits + passes - 1) / passes;

	for (uint32_t pass = 0; pass < passes; pass++) {
		radix_pass(pair + at, pair + (count - at), count, least, pass * bits, bits);
		at = count - at;
	}
	return at;
}

/* Sort order->pair by `upper`, for pairs that also carry `lower`. */
static void
order_sort(struct order *order, const uint64_t *upper, const uint64_t *lower, uint32_t count)
{
	order->first = 0;
	for (uint32_t i = 0; i < count; i++)
		order->pair[i] = upper[i] << 32 | lower[i];
	if (count <= INSERTION_MAX)
		sort_by_insertion(order->pair, count);
	else
		order->first = sort_by_radix(order->pair, count);
}

static void
order_make(struct order *order, const struct lists *lists)
{
	order->kind = order_found(lists->remote, lists->count);
	if (order->kind == ORDER_SORTED)
		order_sort(order, lists->remote, lists->local, lists->count);
}

static KVP_COLD kvp_status
fail_twice(const struct lists *lists, uint64_t block, struct kvp_error *err)
{
	const uint64_t *dst = lists->is_push ? lists->remote : lists->local;
	uint32_t at[2] = {0, 0};

	for (uint32_t i = 0, found = 0; i < lists->count && found < 2; i++) {
		if (dst[i] == block)
			at[found++] = i;
	}
	return kvp_fail(err, KVP_PARAM_INVALID,
			"dst_blocks[%u] and dst_blocks[%u] are both %llu; "
			"a block can be a destination only once",
			at[0], at[1], (unsigned long long)block);
}

/* Strictly up or strictly down: then none occurs twice. */
static bool
is_monotonic(const uint64_t *block, uint32_t count)
{
	uint32_t up = 1, down = 1;

	while (up < count && block[up] > block[up - 1])
		up++;
	while (down < count && block[down] < block[down - 1])
		down++;
	return up == count || down == count;
}

/* Refuse a local block that comes twice, which the order of a pull's runs does not show. */
static kvp_status
local_once(struct order *order, const struct lists *lists, struct kvp_error *err)
{
	if (is_monotonic(lists->local, lists->count))
		return KVP_SUCCESS;
	order_sort(order, lists->local, lists->remote, lists->count);
	for (uint32_t i = 1; i < lists->count; i++) {
		const uint64_t *pair = &order->pair[order->first + i];

		if (KVP_UNLIKELY(pair[0] >> 32 == pair[-1] >> 32))
			return fail_twice(lists, pair[0] >> 32, err);
	}
	return KVP_SUCCESS;
}

/* Count runs. A remote block that comes twice is next to itself: a push must not have one. */
static kvp_status
runs_count(const struct order *order, const struct lists *lists, uint32_t *runs_out,
	   struct kvp_error *err)
{
	uint64_t before = pair_at(order, lists, 0);
	uint32_t runs = 1;

	for (uint32_t i = 1; i < lists->count; i++) {
		uint64_t pair = pair_at(order, lists, i);

		if (KVP_UNLIKELY(pair >> 32 == before >> 32 && lists->is_push))
			return fail_twice(lists, pair >> 32, err);
		runs += pair != before + NEXT_PAIR;
		before = pair;
	}
	*runs_out = runs;
	return KVP_SUCCESS;
}

/*
 * Does b's block follow a's in every slot? Must stay as narrow as in layout.c: the receiver holds
 * what arrives against its own spans.
 */
static bool
touches(const struct kvp_tensor *a, const struct kvp_tensor *b)
{
	return (uintptr_t)b->base == (uintptr_t)a->base + a->block_bytes &&
	       b->block_stride == a->block_stride && b->num_blocks == a->num_blocks;
}

/* Where the group that starts at tensor `first` ends at the latest. */
static uint32_t
fold_end(const struct kvp_pairing *pairing, uint32_t first)
{
	uint32_t left = pairing->tensors - first, until;

	if (pairing->bytes_per_block != 0)
		return first + 1;
	if (pairing->fold == 0)
		return pairing->tensors;
	until = pairing->fold - first % pairing->fold;
	return first + (until < left ? until : left);
}

/* The group that starts at tensor `first` of the pairing. */
static struct kvp_group
group_at(const struct kvp_pairing *pairing, uint32_t first)
{
	const struct kvp_tensor *local = pairing->local, *remote = pairing->remote;
	uint32_t last = first, end = fold_end(pairing, first);
	uint64_t bytes = local[first].block_bytes;

	if (pairing->bytes_per_block != 0)
		bytes = pairing->bytes_per_block;
	while (last + 1 < end && touches(&local[last], &local[last + 1]) &&
	       touches(&remote[last], &remote[last + 1])) {
		last++;
		bytes += local[last].block_bytes;
	}
	return (struct kvp_group){
		.local_base = (uintptr_t)local[first].base,
		.local_stride = local[first].block_stride,
		.remote_stride = remote[first].block_stride,
		.block_bytes = bytes,
		.remote_tensor = pairing->remote_tensor + first,
		.tensors = last - first + 1,
		.is_dense =
			bytes == local[first].block_stride && bytes == remote[first].block_stride,
	};
}

size_t
kvp_plan_scratch_bytes(uint32_t count)
{
	return sizeof(struct order) + 2 * sizeof(uint64_t) * (size_t)count;
}

kvp_status
kvp_plan_prepare(const struct kvp_pairing *pairing, void *scratch, struct kvp_plan *plan,
		 struct kvp_error *err)
{
	struct kvp_plan sum = {.blocks = pairing->count};
	struct lists lists = lists_of(pairing);
	struct order *order = scratch;
	uint64_t slot_bytes = 0;
	kvp_status status;

	KVP_ASSERT(pairing->count >= 1);
	KVP_ASSERT(pairing->tensors >= 1);
	KVP_ASSERT((uintptr_t)scratch % 8 == 0);

	status = lists.is_push ? KVP_SUCCESS : local_once(order, &lists, err);
	if (status != KVP_SUCCESS)
		return status;
	order_make(order, &lists);
	status = runs_count(order, &lists, &sum.runs, err);
	if (status != KVP_SUCCESS)
		return status;

	for (uint32_t first = 0; first < pairing->tensors;) {
		struct kvp_group group = group_at(pairing, first);

		if (__builtin_add_overflow(slot_bytes, group.block_bytes, &slot_bytes))
			return kvp_fail(err, KVP_PARAM_INVALID,
					"one block of %u tensors is more than 2^64 bytes",
					pairing->tensors);
		first += group.tensors;
		sum.groups++;
		sum.extents += group.is_dense ? sum.runs : sum.blocks;
	}
	if (__builtin_mul_overflow(slot_bytes, sum.blocks, &sum.bytes))
		return kvp_fail(err, KVP_PARAM_INVALID,
				"%u blocks of %llu bytes over %u tensors are more than 2^64 bytes",
				sum.blocks, (unsigned long long)slot_bytes, pairing->tensors);
	sum.pieces = (uint64_t)sum.blocks * pairing->tensors;
	sum.is_sorted = order->kind == ORDER_SORTED;
	*plan = sum;
	return KVP_SUCCESS;
}

size_t
kvp_plan_bytes(const struct kvp_plan *plan)
{
	return plan->groups * sizeof(struct kvp_group) + plan->runs * sizeof(struct kvp_run);
}

void
kvp_plan_fill(const struct kvp_pairing *pairing, const void *scratch, void *memory,
	      struct kvp_plan *plan)
{
	const struct order *order = scratch;
	struct lists lists = lists_of(pairing);
	struct kvp_group *group = memory;
	struct kvp_run *run = (struct kvp_run *)(void *)(group + plan->groups);
	uint64_t before = pair_at(order, &lists, 0);
	uint32_t runs = 0;

	KVP_ASSERT((uintptr_t)memory % 8 == 0);
	plan->group = group;
	plan->run = run;
	for (uint32_t first = 0; first < pairing->tensors; first += group++->tensors)
		*group = group_at(pairing, first);
	KVP_CHECK(group == plan->group + plan->groups); /* else the runs are overwritten */

	for (uint32_t i = 0; i < lists.count; i++) {
		uint64_t pair = pair_at(order, &lists, i);

		KVP_ASSERT(i == 0 || pair >> 32 >= (before >> 32) + pairing->is_push);
		if (i == 0 || pair != before + NEXT_PAIR) {
			KVP_CHECK(runs < plan->runs);
			run[runs++] = (struct kvp_run){
				.local = (uint32_t)pair,
				.remote = (uint32_t)(pair >> 32),
				.ordinal = i,
			};
		}
		run[runs - 1].count = i + 1 - run[runs - 1].ordinal;
		before = pair;
	}
	KVP_CHECK(runs == plan->runs);
}

void
kvp_plan_slice(const struct kvp_plan *plan, uint32_t tensors, uint32_t *group_at_inout,
	       struct kvp_plan *slice)
{
	uint32_t first = *group_at_inout, at = first, found = 0;

	*slice = *plan;
	slice->group = &plan->group[first];
	slice->extents = 0;
	slice->bytes = 0;
	while (found < tensors) {
		const struct kvp_group *group = &plan->group[at++];

		KVP_ASSERT(at <= plan->groups);
		found += group->tensors;
		slice->extents += group->is_dense ? plan->runs : plan->blocks;
		slice->bytes += group->block_bytes * plan->blocks;
	}
	KVP_CHECK(found == tensors);
	slice->groups = at - first;
	slice->pieces = (uint64_t)plan->blocks * tensors;
	*group_at_inout = at;
}

/* Piece boundaries of a plan in ascending order of position. */
struct boundary {
	uint32_t group;
	uint64_t start; /* position of the group's first byte */
};

/* The piece boundary nearest to `target` that lies in [at_least, plan->bytes]. */
static uint64_t
boundary_near(const struct kvp_plan *plan, struct boundary *at, uint64_t target, uint64_t at_least)
{
	uint64_t group_bytes = plan->blocks * plan->group[at->group].block_bytes;

	if (target < at_least)
		target = at_least;
	while (target - at->start > group_bytes) {
		at->start += group_bytes;
		at->group++;
		group_bytes = plan->blocks * plan->group[at->group].block_bytes;
	}

	uint64_t slot = plan->group[at->group].block_bytes;
	uint64_t below = at->start + (target - at->start) / slot * slot;

	if (below == target || (target - below <= slot / 2 && below >= at_least))
		return below;
	return below + slot;
}

uint32_t
kvp_plan_split(const struct kvp_plan *plan, uint32_t parts_max, uint64_t bytes_min,
	       uint64_t *first_byte)
{
	struct boundary at = {0, 0};
	uint64_t begin = 0;
	uint32_t parts = 0;

	KVP_ASSERT(parts_max >= 1);
	if (bytes_min == 0)
		bytes_min = 1;
	if (plan->bytes / bytes_min < parts_max)
		parts_max = (uint32_t)(plan->bytes / bytes_min);

	first_byte[parts++] = 0;
	while (parts < parts_max) {
		uint64_t left = plan->bytes - begin;

		if (left / 2 < bytes_min)
			break;

		uint64_t cut = boundary_near(plan, &at, begin + left / (parts_max - parts + 1),
					     begin + bytes_min);

		if (plan->bytes - cut < bytes_min)
			break;
		first_byte[parts++] = cut;
		begin = cut;
	}
	first_byte[parts] = plan->bytes;
	return parts;
}
