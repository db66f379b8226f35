/* SPDX-License-Identifier: Apache-2.0 */
#include <kvpush/plan.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gather.h"

#define BLOCKS 64U

/* 8 layers of K and V, 64 blocks of 4 KiB; layouts as each test wants. */
static struct kvp_tensor src[16], dst[16];
static uint64_t src_blocks[BLOCKS], dst_blocks[BLOCKS];
static struct kvp_plan_query query;
static struct kvp_plan_report report;

static void
layout(struct kvp_tensor *tensors, uint64_t base, uint64_t step, uint64_t stride)
{
	for (uint32_t i = 0; i < 16; i++)
		tensors[i] = (struct kvp_tensor){
			(void *)(uintptr_t)(base == 0 ? 0 : base + i * step), BLOCKS, 4096, stride};
}

static int
query_setup(void **state)
{
	(void)state;
	layout(src, 0x10000000, 0x100000, 4096);
	layout(dst, 0x90000000, 0x100000, 4096);
	for (uint32_t i = 0; i < BLOCKS; i++)
		src_blocks[i] = dst_blocks[i] = i;
	query = (struct kvp_plan_query){
		.src = src,
		.dst = dst,
		.src_tensors = 16,
		.dst_tensors = 16,
		.tensors_per_layer = 2,
		.src_blocks = src_blocks,
		.dst_blocks = dst_blocks,
		.count = BLOCKS,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
	};
	memset(&report, 0, sizeof(report));
	return 0;
}

static void
assert_refused(const char *text)
{
	report.bytes = 4711;
	assert_int_equal(kvp_plan_explain(&query, &report), KVP_PARAM_INVALID);
	assert_int_equal(report.bytes, 4711);
	if (strcmp(kvp_error_message(), text) != 0)
		fail_msg("message is   \"%s\"\n          not  \"%s\"", kvp_error_message(), text);
}

static void
explain(void)
{
	if (kvp_plan_explain(&query, &report) != KVP_SUCCESS)
		fail_msg("refused: %s", kvp_error_message());
}

static void
explain__refused(void **state)
{
	(void)state;
	assert_int_equal(kvp_plan_explain(NULL, &report), KVP_PARAM_INVALID);
	assert_string_equal(kvp_error_message(), "query is NULL");
	assert_int_equal(kvp_plan_explain(&query, NULL), KVP_PARAM_INVALID);
	assert_string_equal(kvp_error_message(), "report_out is NULL");
	query.count = 0;
	assert_refused("count is 0; at least 1 block must move");
	query.count = BLOCKS;
	query.src_layers.first = -2;
	assert_refused("src_layers is {-2, -1}; bounds are at least 0, or both -1 for all layers");
	query.src_layers.first = -1;
	query.src = NULL;
	assert_refused("src: tensors is NULL");
	query.src = src;
	query.dst_tensors = 0;
	assert_refused("dst: num_tensors is 0; it must be in [1, 4096]");
	query.dst_tensors = 16;
	dst[3].block_stride = 1;
	assert_refused("dst: tensors[3].block_stride is 1; it must be at least block_bytes, 4096");
	dst[3].block_stride = 4096;
	dst_blocks[9] = 64;
	assert_refused("dst_blocks[9] is 64; dst has 64 blocks, so at most 63");
	dst_blocks[9] = 10;
	assert_refused("dst_blocks[9] and dst_blocks[10] are both 10; a block can be a destination "
		       "only once");
}

static void
explain__separate_tensors(void **state)
{
	(void)state;
	explain();
	assert_int_equal(report.bytes, 16 * 64 * 4096);
	assert_int_equal(report.pieces, 1024);
	assert_int_equal(report.runs, 16);
	assert_int_equal(report.requests, 16); /* 256 KiB runs, one piece per request */
	assert_int_equal(report.block_runs, 1);
	assert_int_equal(report.groups, 16);
	assert_int_equal(report.folded, 0);
	assert_int_equal(report.sorted, 0);
	assert_true(report.plan_bytes > 0 && report.plan_bytes <= 16 * 64 + 16);
	assert_string_equal(report.why, "16 tensors are 16 groups: 0 and 1 are not neighbours in a "
					"slot on both sides");
}

static void
explain__all_is_one(void **state)
{
	(void)state;
	layout(src, 0x10000000, 4096, 65536);
	layout(dst, 0x90000000, 4096, 65536);
	explain();
	assert_int_equal(report.runs, 1);
	assert_int_equal(report.groups, 1);
	assert_int_equal(report.folded, 15);
	assert_int_equal(report.requests, 4); /* 4 MiB by the default of 1 MiB */
	assert_string_equal(report.why, "nothing: all of it is one run");
}

/* Without bases: separate allocations. */
static void
explain__without_memory(void **state)
{
	(void)state;
	layout(src, 0, 0, 4096);
	layout(dst, 0, 0, 4096);
	explain();
	assert_int_equal(report.groups, 16);
	assert_int_equal(report.runs, 16);
}

static void
explain__scattered_blocks(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		src_blocks[i] = i * 5 % 64;
		dst_blocks[i] = i * 3 % 64;
	}
	explain();
	assert_int_equal(report.sorted, 1);
	assert_int_equal(report.runs, 1024);
	assert_int_equal(report.block_runs, 64);
	assert_int_equal(report.requests, 1024);
	assert_non_null(
		strstr(report.why, "64 blocks are 64 runs: gaps on src 63, on dst 0, on both 0;"));

	/* dst blocks ascend without gaps: 64 pieces of a tensor touch at the peer's. */
	query.pieces_max = 16;
	explain();
	assert_int_equal(report.requests, 64);
	query.request_bytes_max = 20480; /* 5 pieces */
	explain();
	assert_int_equal(report.requests, 16 * 13);
	query.request_bytes_max = 6000; /* no two pieces fit */
	explain();
	assert_int_equal(report.requests, 1024);
	query.request_bytes_max = 1;
	explain();
	assert_int_equal(report.requests, 4194304);
	query.pieces_max = 1;
	query.request_bytes_max = 3000;
	explain();
	assert_int_equal(report.requests, 2048);
}

/* A posting loop over the cursor, its rule written out. */
static uint64_t
requests_walked(uint64_t bytes_max, uint32_t pieces_max, uint64_t *pieces_out)
{
	static uint64_t scratch[1024], memory[1024];
	const struct kvp_pairing pairing = {
		.local = src,
		.remote = dst,
		.tensors = 16,
		.local_blocks = src_blocks,
		.remote_blocks = dst_blocks,
		.count = BLOCKS,
		.is_push = true,
	};
	uint64_t requests = 0, end = 0, bytes = 0;
	uint32_t pieces = 0, tensor = UINT32_MAX;
	struct kvp_cursor cursor;
	struct kvp_extent e;
	struct kvp_plan plan;

	assert_true(kvp_plan_scratch_bytes(BLOCKS) <= sizeof(scratch));
	assert_int_equal(kvp_plan_prepare(&pairing, scratch, &plan, NULL), KVP_SUCCESS);
	assert_true(kvp_plan_bytes(&plan) <= sizeof(memory));
	kvp_plan_fill(&pairing, scratch, memory, &plan);
	kvp_cursor_init(&cursor, &plan, 0, plan.bytes);
	*pieces_out = 0;
	while (kvp_cursor_next(&cursor, 1, bytes_max, &e) > 0) {
		if (e.remote_tensor != tensor || e.remote_offset != end || pieces == pieces_max ||
		    bytes >= 262144 || bytes + e.bytes > bytes_max) {
			requests++;
			pieces = 0;
			bytes = 0;
		}
		pieces++;
		bytes += e.bytes;
		*pieces_out += 1;
		tensor = e.remote_tensor;
		end = e.remote_offset + e.bytes;
	}
	return requests;
}

static void
explain__requests_as_they_are_posted(void **state)
{
	uint64_t pieces;

	(void)state;
	/* runs of 8 and of 4 */
	for (uint32_t i = 0; i < BLOCKS; i++)
		dst_blocks[i] = i ^ (i / 8 % 2 == 0 ? 0 : 4);
	for (query.pieces_max = 1; query.pieces_max <= 20; query.pieces_max++) {
		for (uint64_t max = 700; max < 3 * 1048576; max = max * 5 / 3) {
			query.request_bytes_max = max;
			explain();
			assert_int_equal(report.requests,
					 requests_walked(max, query.pieces_max, &pieces));
			assert_int_equal(report.gathered, pieces);
			assert_int_equal(report.request_bytes, report.bytes / report.requests);
		}
	}
}

/* 64 sources anywhere into 64 destinations in a row, 16 tensors. */
static void
explain__costs(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		src_blocks[i] = i * 5 % 64;
	query.pieces_max = 30;
	explain();
	assert_int_equal(report.requests, 48); /* 30 + 30 + 4 */
	assert_int_equal(report.gathered, 1024);
	assert_int_equal(report.request_bytes, 4194304 / 48);
	assert_int_equal(report.gather_ns, 48 * 190 + (1024 - 48) * 15);
	assert_int_equal(report.single_ns, 1024 * 190);
	query.request_ns = 100;
	query.piece_ns = 99;
	explain();
	assert_int_equal(report.requests, 48);
	assert_int_equal(report.gather_ns, 48 * 100 + (1024 - 48) * 99);
	assert_int_equal(report.single_ns, 1024 * 100);
	/* Costs say no: requests are the single ones, and what gathering would have cost is told. */
	query.piece_ns = 100;
	explain();
	assert_int_equal(report.requests, 1024);
	assert_int_equal(report.gathered, 1024);
	assert_int_equal(report.request_bytes, 4096);
	assert_int_equal(report.gather_ns, 1024 * 100);
	query.piece_ns = 200;
	explain();
	assert_int_equal(report.gather_ns, 48 * 100 + (1024 - 48) * 200);
	assert_int_equal(report.single_ns, 1024 * 100);
	assert_non_null(strstr(report.why, "; each run has its own request: a piece costs 200 ns, "
					   "a request 100"));
	/* No gather list at all. */
	query.pieces_max = 1;
	explain();
	assert_int_equal(report.gather_ns, report.single_ns);
	assert_null(strstr(report.why, "request"));
}

static void
assert_why_ends(const char *text)
{
	size_t all = strlen(report.why), end = strlen(text);

	if (all < end || strcmp(report.why + all - end, text) != 0)
		fail_msg("\"%s\"\n  does not end with \"%s\"", report.why, text);
}

static void
explain__says_what_limits_gathering(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		src_blocks[i] = i * 5 % 64;
	query.pieces_max = 30;
	explain();
	assert_why_ends(
		"; 1024 pieces are gathered in 48 requests, which end at gaps on dst 15, at "
		"30 pieces 32, at their bytes 0");
	query.bytes_preferred = 65536;
	explain();
	assert_why_ends(
		"; 1024 pieces are gathered in 64 requests, which end at gaps on dst 15, at "
		"30 pieces 0, at their bytes 48");
	/* Every second destination: nothing touches. */
	for (uint32_t i = 0; i < 32; i++)
		dst_blocks[i] = 2 * i;
	query.count = 32;
	explain();
	assert_int_equal(report.requests, 512);
	assert_why_ends(
		"; 512 pieces are gathered in 512 requests, which end at gaps on dst 511, at "
		"30 pieces 0, at their bytes 0");
	/* One run has nothing to gather, however it is cut. */
	query_setup(state);
	query.pieces_max = 30;
	query.count = 1;
	query.src_layers = query.dst_layers = (struct kvp_layers){0, 0};
	query.tensors_per_layer = 1;
	explain();
	assert_string_equal(report.why, "nothing: all of it is one run");
}

/* What must touch is the peer's side: dst of a push, src of a pull. */
static void
explain__directions(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 32; i++) {
		src_blocks[i] = i;
		dst_blocks[i] = i * 2 % 63;
	}
	query.count = 32;
	query.pieces_max = 16;
	query.is_pull = 1;
	explain();
	assert_int_equal(report.sorted, 0);
	assert_int_equal(report.requests, 32);
	assert_string_equal(report.why,
			    "32 blocks are 32 runs: gaps on src 0, on dst 31, on both 0; 16 "
			    "tensors are 16 groups: 0 and 1 are not neighbours in a slot on both "
			    "sides; 512 pieces are gathered in 32 requests, which end at gaps on "
			    "src 15, at 16 pieces 16, at their bytes 0");
	query.is_pull = 0;
	explain();
	assert_int_equal(report.requests, 512);
	/* Sides keep their names. */
	query.is_pull = 1;
	query.pieces_max = 1;
	query.count = 2;
	dst_blocks[1] = 1;
	layout(dst, 0x90000000, 4096, 65536 + 512);
	explain();
	assert_string_equal(report.why,
			    "blocks of a run stay apart: slots of 4096 bytes, strides 4096 on src, "
			    "66048 on dst; 16 tensors are 16 groups: 0 and 1 are not neighbours in "
			    "a slot on src");
	/* A pull may read a block twice, not write one twice. */
	src_blocks[0] = src_blocks[1];
	explain();
	dst_blocks[0] = dst_blocks[1];
	assert_refused("dst_blocks[0] and dst_blocks[1] are both 1; a block can be a destination "
		       "only once");
}

static void
explain__says_every_limit(void **state)
{
	(void)state;
	layout(src, 0x10000000, 4096, 65536 + 512);
	for (uint32_t i = 0; i < 32; i++) {
		src_blocks[i] = i;
		dst_blocks[i] = 32 + i;
	}
	for (uint32_t i = 32; i < 64; i++) {
		src_blocks[i] = i;
		dst_blocks[i] = i - 32;
	}
	explain();
	assert_int_equal(report.sorted, 1);
	assert_int_equal(report.runs, 1024);
	assert_int_equal(report.block_runs, 2);
	assert_string_equal(
		report.why,
		"64 blocks are 2 runs: gaps on src 1, on dst 0, on both 0; blocks of a run "
		"stay apart: slots of 4096 bytes, strides 66048 on src, 4096 on dst; 16 "
		"tensors are 16 groups: 0 and 1 are not neighbours in a slot on dst");
	layout(src, 0x10000000, 0x100000, 4096);
	layout(dst, 0x90000000, 4096, 65536);
	query.count = 1;
	explain();
	assert_string_equal(
		report.why,
		"16 tensors are 16 groups: 0 and 1 are not neighbours in a slot on src");
	query.src_layers = query.dst_layers = (struct kvp_layers){2, 2};
	query.tensors_per_layer = 1;
	explain();
	assert_int_equal(report.groups, 1);
	assert_string_equal(report.why, "nothing: all of it is one run");
}

#define WITH_QUERY(test) cmocka_unit_test_setup(test, query_setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_QUERY(explain__refused),
		WITH_QUERY(explain__separate_tensors),
		WITH_QUERY(explain__all_is_one),
		WITH_QUERY(explain__without_memory),
		WITH_QUERY(explain__scattered_blocks),
		WITH_QUERY(explain__requests_as_they_are_posted),
		WITH_QUERY(explain__says_every_limit),
		WITH_QUERY(explain__costs),
		WITH_QUERY(explain__says_what_limits_gathering),
		WITH_QUERY(explain__directions),
	};

	return cmocka_run_group_tests_name("control_explain", tests, NULL, NULL);
}
