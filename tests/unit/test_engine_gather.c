/* SPDX-License-Identifier: Apache-2.0 */
#include "gather.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define KIB 1024U
#define MIB 1048576U

static const struct kvp_cost device = {.pieces_max = 30};

/* --- limits ------------------------------------------------------------------- */

static void
limits__of_a_cost(void **state)
{
	static const struct {
		struct kvp_cost cost;
		struct kvp_gather_limits want;
	} rows[] = {
		{{0, 0, 0, 0, 0}, {1, 256 * KIB, MIB}},
		{{0, 0, 30, 0, 0}, {30, 256 * KIB, MIB}},
		{{0, 0, 30, 64 * KIB, 128 * KIB}, {30, 64 * KIB, 128 * KIB}},
		{{0, 0, 30, 2 * MIB, 0}, {30, MIB, MIB}}, /* no more is ever in it */
		{{0, 0, 30, 0, 1}, {30, 1, 1}},
		{{0, 0, 30, 1, 0}, {30, 1, MIB}},
		{{0, 0, 30, UINT64_MAX, UINT64_MAX}, {30, 0x80000000U, 0x80000000U}},
		{{20, 19, 30, 0, 0}, {30, 256 * KIB, MIB}},
		{{20, 20, 30, 0, 0}, {1, 256 * KIB, MIB}}, /* a piece costs a request */
		{{20, 21, 30, 0, 0}, {1, 256 * KIB, MIB}},
		{{15, 0, 30, 0, 0}, {1, 256 * KIB, MIB}}, /* the default of the other */
		{{0, 190, 30, 0, 0}, {1, 256 * KIB, MIB}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvp_gather_limits is = kvp_gather_limits_of(&rows[i].cost);

		if (is.pieces_max != rows[i].want.pieces_max ||
		    is.bytes_stop != rows[i].want.bytes_stop ||
		    is.bytes_max != rows[i].want.bytes_max)
			fail_msg("row %zu: %u pieces, stop at %u, at most %u", i, is.pieces_max,
				 is.bytes_stop, is.bytes_max);
	}
}

static void
cost__of_requests_and_pieces(void **state)
{
	const struct kvp_cost cost = {.request_ns = 100, .piece_ns = 7};

	(void)state;
	assert_int_equal(kvp_cost_ns(&cost, 0, 0), 0);
	assert_int_equal(kvp_cost_ns(&cost, 1, 1), 100);
	assert_int_equal(kvp_cost_ns(&cost, 3, 3), 300);
	assert_int_equal(kvp_cost_ns(&cost, 3, 13), 370);
	assert_int_equal(kvp_cost_ns(&device, 2, 12),
			 2 * KVP_COST_REQUEST_NS + 10 * KVP_COST_PIECE_NS);
	assert_int_equal(kvp_cost_ns(&cost, 1ULL << 40, 1ULL << 41), (1ULL << 40) * 107);
}

/* --- the rule --------------------------------------------------------------------- */

static void
fits__every_limit_alone(void **state)
{
	const struct kvp_gather_limits limits = {4, 1000, 1500};
	const struct kvp_gather_limits widest = {UINT32_MAX, 0x80000000U, 0x80000000U};
	const struct kvp_extent next = {NULL, 5000, 3, 500};
	struct kvp_extent other = next;

	(void)state;
	assert_true(kvp_gather_fits(&limits, 1, 500, 5000, 3, &next));
	assert_false(kvp_gather_fits(&limits, 0, 0, 5000, 3, &next)); /* there is none */
	assert_false(kvp_gather_fits(&limits, 1, 500, 5001, 3, &next));
	assert_false(kvp_gather_fits(&limits, 1, 500, 4999, 3, &next));
	assert_false(kvp_gather_fits(&limits, 1, 500, 5000, 2, &next)); /* another tensor */
	assert_true(kvp_gather_fits(&limits, 3, 500, 5000, 3, &next));
	assert_false(kvp_gather_fits(&limits, 4, 500, 5000, 3, &next));
	assert_true(kvp_gather_fits(&limits, 1, 999, 5000, 3, &next));
	assert_false(kvp_gather_fits(&limits, 1, 1000, 5000, 3, &next));
	other.bytes = 501;
	assert_true(kvp_gather_fits(&limits, 1, 999, 5000, 3, &other));
	other.bytes = 502;
	assert_false(kvp_gather_fits(&limits, 1, 999, 5000, 3, &other));
	/* Sums that do not fit 32 bits. */
	other.bytes = 0x80000000U;
	assert_false(kvp_gather_fits(&widest, 1, 0x7FFFFFFFU, 5000, 3, &other));
	assert_false(kvp_gather_fits(&widest, 1, 0x80000000U, 5000, 3, &other));
	other.bytes = 1;
	assert_true(kvp_gather_fits(&widest, 1, 0x7FFFFFFFU, 5000, 3, &other));
}

/* --- counting ------------------------------------------------------------------------ */

struct counted {
	uint64_t requests, pieces;
};

/* `groups` tensors of blocks of `block_bytes`; runs as given, their ordinals not. */
static struct counted
count(const struct kvp_run *given, uint32_t runs, uint32_t groups, uint64_t block_bytes,
      const struct kvp_cost *cost)
{
	struct kvp_gather_limits limits = kvp_gather_limits_of(cost);
	struct kvp_run run[256];
	struct kvp_group group[4];
	struct kvp_plan plan = {.run = run, .group = group, .runs = runs, .groups = groups};
	struct counted counted;

	assert_true(runs <= 256 && groups <= 4);
	for (uint32_t i = 0; i < runs; i++) {
		run[i] = given[i];
		run[i].ordinal = plan.blocks;
		plan.blocks += run[i].count;
	}
	for (uint32_t i = 0; i < groups; i++)
		group[i] = (struct kvp_group){
			0x1000000ULL * (i + 1), block_bytes, block_bytes, block_bytes, i, 1, true};
	plan.bytes = groups * plan.blocks * block_bytes;
	kvp_gather_count(&plan, &limits, &counted.requests, &counted.pieces);
	return counted;
}

static void
assert_counted(struct counted is, uint64_t requests, uint64_t pieces)
{
	assert_int_equal(is.requests, requests);
	assert_int_equal(is.pieces, pieces);
}

/* Sources everywhere, destinations one after the other: what gather lists are for. */
static void
count__contiguous_over_there(void **state)
{
	struct kvp_cost cost = device;
	struct kvp_run run[240];

	(void)state;
	for (uint32_t i = 0; i < 240; i++)
		run[i] = (struct kvp_run){.local = 7 * i, .remote = 100 + i, .count = 1};
	assert_counted(count(run, 240, 1, 4 * KIB, &cost), 8, 240);
	assert_counted(count(run, 239, 1, 4 * KIB, &cost), 8, 239);
	assert_counted(count(run, 1, 1, 4 * KIB, &cost), 1, 1);
	assert_counted(count(run, 240, 3, 4 * KIB, &cost), 24, 720);
	assert_counted(count(run, 25, 3, 4 * KIB, &cost), 3, 75);     /* never over two tensors */
	assert_counted(count(run, 240, 1, 16 * KIB, &cost), 15, 240); /* 16 hold 256 KiB */
	assert_counted(count(run, 240, 1, 15 * KIB, &cost), 14, 240); /* 18 are the first to */
	assert_counted(count(run, 240, 1, 256 * KIB, &cost), 240, 240);
	assert_counted(count(run, 240, 1, 255 * KIB, &cost), 120, 240);
	cost.pieces_max = 1;
	assert_counted(count(run, 240, 1, 4 * KIB, &cost), 240, 240);
	cost.pieces_max = 16;
	assert_counted(count(run, 240, 1, 4 * KIB, &cost), 15, 240);
	cost.piece_ns = cost.request_ns = 50;
	assert_counted(count(run, 240, 1, 4 * KIB, &cost), 240, 240);
}

static void
count__scattered_over_there(void **state)
{
	const struct kvp_run gaps[4] = {{0, 2, 1, 0}, {1, 4, 1, 0}, {2, 5, 1, 0}, {9, 8, 2, 0}};
	struct kvp_run run[240];

	(void)state;
	for (uint32_t i = 0; i < 240; i++)
		run[i] = (struct kvp_run){.local = i, .remote = 2 * i, .count = 1};
	assert_counted(count(run, 240, 1, 4 * KIB, &device), 240, 240);
	assert_counted(count(gaps, 4, 1, 4 * KIB, &device), 3, 4);
	assert_counted(count(gaps, 4, 2, 4 * KIB, &device), 6, 8);
}

/* A pull that reads a block twice: not contiguous, but the second reading's neighbour is. */
static void
count__read_twice(void **state)
{
	const struct kvp_run run[3] = {{0, 5, 1, 0}, {4, 5, 1, 0}, {7, 6, 1, 0}};

	(void)state;
	assert_counted(count(run, 3, 1, 4 * KIB, &device), 2, 3);
}

/* Long runs are cut at bytes_max only; what remains of one takes neighbours in again. */
static void
count__long_runs(void **state)
{
	struct kvp_run one = {0, 0, 64, 0};
	const struct kvp_run pair[2] = {{0, 0, 64, 0}, {100, 64, 1, 0}};
	struct kvp_cost cost = device;

	(void)state;
	assert_counted(count(&one, 1, 1, 16 * KIB, &cost), 1, 1); /* 1 MiB, above bytes_preferred */
	one.count = 63;
	assert_counted(count(&one, 1, 1, 16 * KIB, &cost), 1, 1);
	one.count = 65;
	assert_counted(count(&one, 1, 1, 16 * KIB, &cost), 2, 2);
	one.count = 640;
	assert_counted(count(&one, 1, 1, 16 * KIB, &cost), 10, 10);
	assert_counted(count(pair, 2, 1, 16 * KIB, &cost), 2, 2);
	cost.bytes_max = 1008 * KIB; /* 16 KiB remain */
	assert_counted(count(pair, 2, 1, 16 * KIB, &cost), 2, 3);
	cost.bytes_max = 1;
	assert_counted(count(pair, 2, 1, 16 * KIB, &cost), 65 * 16 * KIB, 65 * 16 * KIB);
}

/* Would be too long together: the second starts its own although the first is below bytes_stop. */
static void
count__sum_above_bytes_max(void **state)
{
	const struct kvp_run run[2] = {{0, 0, 15, 0}, {100, 15, 50, 0}};

	(void)state;
	assert_counted(count(run, 2, 1, 16 * KIB, &device), 2, 2);
	assert_counted(count(run, 2, 1, 16000, &device), 1, 2);
}

/* What ends a request is told apart, and each but the last is ended once. */
static void
tally__names_the_limit(void **state)
{
	const struct kvp_cost cost = {.pieces_max = 3, .bytes_preferred = 100, .bytes_max = 200};
	const struct kvp_gather_limits limits = kvp_gather_limits_of(&cost);
	/* Blocks: 1 1 1 | 1 gap 10 | 1 (210 bytes would be too many) | 20 | 20 cut | 5 */
	struct kvp_run run[8] = {{100, 0, 1, 0},    {0, 1, 1, 1},     {200, 2, 1, 2},
				 {50, 3, 1, 3},     {300, 10, 10, 4}, {400, 20, 1, 14},
				 {500, 21, 20, 15}, {600, 41, 25, 35}};
	struct kvp_group group = {0x1000, 10, 10, 10, 0, 1, true};
	const struct kvp_plan plan = {
		.run = run, .group = &group, .runs = 8, .groups = 1, .blocks = 60, .bytes = 600};
	struct kvp_gather_tally tally;

	(void)state;
	kvp_gather_tally(&plan, &limits, &tally);
	assert_int_equal(tally.full, 1);
	assert_int_equal(tally.gaps, 1);
	assert_int_equal(tally.large, 4);
	assert_int_equal(tally.requests, 7);
	assert_int_equal(tally.pieces, 9);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits__of_a_cost),
		cmocka_unit_test(cost__of_requests_and_pieces),
		cmocka_unit_test(fits__every_limit_alone),
		cmocka_unit_test(count__contiguous_over_there),
		cmocka_unit_test(count__scattered_over_there),
		cmocka_unit_test(count__read_twice),
		cmocka_unit_test(count__long_runs),
		cmocka_unit_test(count__sum_above_bytes_max),
		cmocka_unit_test(tally__names_the_limit),
	};

	return cmocka_run_group_tests_name("engine_gather", tests, NULL, NULL);
}
