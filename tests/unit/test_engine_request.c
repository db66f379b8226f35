/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TENSORS_MAX 12U

static const uint64_t zero_one[2] = {0, 1};

/* Both sides' tensors of one test; LLM-DataDist's example: 10 int32 tensors of shape {4, 16}. */
static struct kvp_tensor src_tensors[TENSORS_MAX], dst_tensors[TENSORS_MAX];
static struct kvp_side src_side, dst_side;
static struct kvp_request request;

static int
caches_setup(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < TENSORS_MAX; i++) {
		src_tensors[i] =
			(struct kvp_tensor){(void *)(uintptr_t)(0x10000 + i * 0x1000), 4, 64, 64};
		dst_tensors[i] =
			(struct kvp_tensor){(void *)(uintptr_t)(0x90000 + i * 0x1000), 4, 64, 64};
	}
	src_side = (struct kvp_side){src_tensors, 10, "local cache 1"};
	dst_side = (struct kvp_side){dst_tensors, 10, "cache 2 of cluster 7"};
	request = (struct kvp_request){
		.is_push = true,
		.src_blocks = zero_one,
		.dst_blocks = zero_one,
		.count = 2,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 2,
	};
	return 0;
}

static void
assert_text(const struct kvp_error *err, const char *text)
{
	if (strcmp(err->text, text) != 0)
		fail_msg("message is   \"%s\"\n          not  \"%s\"", err->text, text);
}

static void
assert_check_refused(const char *text)
{
	struct kvp_error err = {""};

	assert_int_equal(kvp_request_check(&request, &err), KVP_PARAM_INVALID);
	assert_text(&err, text);
}

/* Refused by the second step only, with *pairing_out untouched. */
static void
assert_pair_refused(const char *text)
{
	struct kvp_error err = {""};
	struct kvp_pairing pairing = {.count = 4242};

	assert_int_equal(kvp_request_check(&request, &err), KVP_SUCCESS);
	assert_string_equal(err.text, "");
	assert_int_equal(kvp_request_pair(&request, &src_side, &dst_side, &pairing, &err),
			 KVP_PARAM_INVALID);
	assert_int_equal(pairing.count, 4242);
	assert_text(&err, text);
}

static void
assert_paired(uint32_t src_first, uint32_t dst_first, uint32_t tensors)
{
	struct kvp_error err = {""};
	struct kvp_pairing pairing = {0};
	uint32_t local_first = request.is_push ? src_first : dst_first;
	uint32_t remote_first = request.is_push ? dst_first : src_first;

	assert_int_equal(kvp_request_check(&request, &err), KVP_SUCCESS);
	if (kvp_request_pair(&request, &src_side, &dst_side, &pairing, &err) != KVP_SUCCESS)
		fail_msg("refused: %s", err.text);
	assert_ptr_equal(pairing.local,
			 (request.is_push ? src_tensors : dst_tensors) + local_first);
	assert_ptr_equal(pairing.remote,
			 (request.is_push ? dst_tensors : src_tensors) + remote_first);
	assert_int_equal(pairing.remote_tensor, remote_first);
	assert_int_equal(pairing.tensors, tensors);
	assert_int_equal(pairing.count, request.count);
	assert_int_equal(pairing.is_push, request.is_push);
	assert_ptr_equal(pairing.local_blocks,
			 request.is_push ? request.src_blocks : request.dst_blocks);
	assert_ptr_equal(pairing.remote_blocks,
			 request.is_push ? request.dst_blocks : request.src_blocks);
}

static void
check__lists(void **state)
{
	(void)state;
	request.src_blocks = NULL;
	assert_check_refused("src_blocks is NULL; it must list count (2) blocks");
	request.src_blocks = zero_one;
	request.dst_blocks = NULL;
	assert_check_refused("dst_blocks is NULL; it must list count (2) blocks");
	request.dst_blocks = zero_one;
	request.count = 0;
	assert_check_refused("count is 0; at least 1 block must move");
	request.count = (size_t)KVP_BLOCKS_MAX + 1;
	assert_check_refused("count is 4294967295; at most 4294967294 blocks can move");
	request.count = KVP_BLOCKS_MAX;
	assert_int_equal(kvp_request_check(&request, NULL), KVP_SUCCESS);
}

static void
check__bounds(void **state)
{
	static const struct {
		struct kvp_layers src, dst;
		const char *text;
	} rows[] = {
		{{-2, 0},
		 {0, 1},
		 "src_layers is {-2, 0}; bounds are at least 0, or both -1 for all layers"},
		{{0, 1},
		 {-2, 0},
		 "dst_layers is {-2, 0}; bounds are at least 0, or both -1 for all layers"},
		{{-2, -2},
		 {0, 0},
		 "src_layers is {-2, -2}; bounds are at least 0, or both -1 for all layers"},
		{{3, 2},
		 {0, 1},
		 "src_layers is {3, 2}; first must be at most last (both are inclusive)"},
		{{0, 1},
		 {1, 0},
		 "dst_layers is {1, 0}; first must be at most last (both are inclusive)"},
		{{0, -1},
		 {0, 1},
		 "src_layers is {0, -1}; first must be at most last (both are inclusive)"},
		{{-1, 3},
		 {0, 4},
		 "src_layers is {-1, 3}; -1 stands for all layers only in both bounds"},
		{{0, 4},
		 {-1, 3},
		 "dst_layers is {-1, 3}; -1 stands for all layers only in both bounds"},
		{{-1, -1},
		 {0, 0},
		 "src_layers is {-1, -1} but dst_layers is {0, 0}; {-1, -1} (all layers) "
		 "must be given on both sides or on none"},
		{{0, 4},
		 {-1, -1},
		 "src_layers is {0, 4} but dst_layers is {-1, -1}; {-1, -1} (all layers) "
		 "must be given on both sides or on none"},
		{{0, 1},
		 {0, 3},
		 "src_layers is {0, 1}, 2 layers, but dst_layers is {0, 3}, 4 layers; both "
		 "must be equally wide"},
		{{0, INT32_MAX},
		 {1, 1},
		 "src_layers is {0, 2147483647}, 2147483648 layers, but dst_layers is {1, "
		 "1}, 1 layers; both must be equally wide"},
		/* Two mistakes: the order of the checks says which is named. */
		{{-2, 0},
		 {-2, 0},
		 "src_layers is {-2, 0}; bounds are at least 0, or both -1 for all layers"},
		{{-1, 0},
		 {3, 0},
		 "dst_layers is {3, 0}; first must be at most last (both are inclusive)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		request.src_layers = rows[i].src;
		request.dst_layers = rows[i].dst;
		assert_check_refused(rows[i].text);
	}
}

static void
check__tensors_per_layer(void **state)
{
	(void)state;
	request.tensors_per_layer = 0;
	assert_check_refused("tensors_per_layer is 0; it is at least 1 (2 for K and V, 1 for MLA)");
	request.src_layers = (struct kvp_layers){0, 1}; /* widths come first */
	request.dst_layers = (struct kvp_layers){0, 0};
	assert_check_refused("src_layers is {0, 1}, 2 layers, but dst_layers is {0, 0}, 1 layers; "
			     "both must be equally wide");
}

/* LLM-DataDist's TestPushWithRangeAndTensorNumV2, row by row, then our rules beside it. */
static void
pair__range_table(void **state)
{
	static const struct {
		struct kvp_layers src, dst;
		uint32_t t;
		uint32_t tensors; /* 0 = refused */
	} rows[] = {
		{{-1, -1}, {-1, -1}, 1, 10},
		{{-1, -1}, {-1, -1}, 2, 10},
		{{0, 1}, {0, 1}, 1, 2},
		{{0, 1}, {0, 1}, 2, 4},
		{{0, 1}, {0, 1}, 3, 0},
		{{0, 1}, {0, 1}, 7, 0},
		{{0, 1}, {0, 1}, 17, 0},
		{{-2, 0}, {-2, 0}, 1, 0},
		{{-2, 0}, {0, 1}, 1, 0},
		{{-2, 1}, {0, 1}, 1, 0},
		{{0, 1}, {0, 2}, 1, 0},
		{{0, 1}, {0, 3}, 2, 0},
		{{4, 5}, {0, 1}, 2, 0},
		{{0, 1}, {4, 5}, 2, 0},
		/* one more and one less than what fits */
		{{3, 4}, {0, 1}, 2, 4},
		{{0, 1}, {3, 4}, 2, 4},
		{{4, 4}, {0, 0}, 2, 2},
		{{5, 5}, {0, 0}, 2, 0},
		{{0, 4}, {0, 4}, 2, 10},
		{{0, 5}, {0, 5}, 2, 0},
		{{9, 9}, {0, 0}, 1, 1},
		{{10, 10}, {0, 0}, 1, 0},
		{{0, 0}, {0, 0}, 10, 10},
		{{0, 0}, {0, 0}, 11, 0},
		{{0, 0}, {0, 0}, UINT32_MAX, 0},
		{{1, 1}, {0, 0}, 10, 0},
		{{-1, -1}, {-1, -1}, 0, 0},
		{{-1, -1}, {-1, -1}, 3, 0},
		{{-1, -1}, {-1, -1}, 11, 0},
		{{-1, -1}, {0, 4}, 2, 0},
		{{0, 4}, {-1, -1}, 2, 0},
		{{INT32_MAX, INT32_MAX}, {0, 0}, 2, 0},
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvp_pairing pairing = {0};
		kvp_status status;

		request.is_push = i % 2 == 0;
		request.src_layers = rows[i / 2].src;
		request.dst_layers = rows[i / 2].dst;
		request.tensors_per_layer = rows[i / 2].t;
		status = kvp_request_check(&request, NULL);
		if (status == KVP_SUCCESS)
			status = kvp_request_pair(&request, &src_side, &dst_side, &pairing, NULL);
		if (status != (rows[i / 2].tensors == 0 ? KVP_PARAM_INVALID : KVP_SUCCESS) ||
		    pairing.tensors != rows[i / 2].tensors)
			fail_msg("row %zu: status %x, %u tensors", i / 2, status, pairing.tensors);
	}
}

static void
pair__layers(void **state)
{
	(void)state;
	request.tensors_per_layer = 17;
	assert_pair_refused(
		"tensors_per_layer is 17; cache 2 of cluster 7 has 10 tensors, so at most 10");
	request.tensors_per_layer = 3;
	assert_pair_refused(
		"tensors_per_layer is 3; it must divide the 10 tensors of cache 2 of cluster 7");
	dst_side.num_tensors = 9;
	assert_pair_refused(
		"tensors_per_layer is 3; it must divide the 10 tensors of local cache 1");
	dst_side.num_tensors = 10;
	request.tensors_per_layer = 2;
	request.src_layers = (struct kvp_layers){4, 5};
	request.dst_layers = (struct kvp_layers){0, 1};
	assert_pair_refused(
		"src_layers is {4, 5}; local cache 1 has 5 layers of 2 tensors, so at most 4");
	request.src_layers = (struct kvp_layers){0, 1};
	request.dst_layers = (struct kvp_layers){4, 5};
	assert_pair_refused(
		"dst_layers is {4, 5}; cache 2 of cluster 7 has 5 layers of 2 tensors, so "
		"at most 4");
}

/* As upstream: what is wrong with the remote side is found before what is wrong here. */
static void
pair__remote_side_first(void **state)
{
	(void)state;
	request.src_layers = (struct kvp_layers){4, 5};
	request.dst_layers = (struct kvp_layers){4, 5};
	assert_pair_refused(
		"dst_layers is {4, 5}; cache 2 of cluster 7 has 5 layers of 2 tensors, so "
		"at most 4");
	request.is_push = false;
	assert_pair_refused(
		"src_layers is {4, 5}; local cache 1 has 5 layers of 2 tensors, so at most 4");
}

static void
pair__blocks(void **state)
{
	static const uint64_t late[4] = {0, 3, 2, 4}, huge[4] = {0, UINT64_MAX, 4, 1};
	static const uint64_t good[4] = {0, 3, 2, 1};

	(void)state;
	request.count = 4;
	request.src_blocks = good;
	request.dst_blocks = late;
	assert_pair_refused("dst_blocks[3] is 4; cache 2 of cluster 7 has 4 blocks, so at most 3");
	request.dst_blocks = huge;
	assert_pair_refused(
		"dst_blocks[1] is 18446744073709551615; cache 2 of cluster 7 has 4 blocks, "
		"so at most 3");
	request.src_blocks = late;
	request.dst_blocks = good;
	assert_pair_refused("src_blocks[3] is 4; local cache 1 has 4 blocks, so at most 3");
	request.count = 3;
	assert_paired(0, 0, 10);

	/* Each side has its own number of blocks. */
	for (uint32_t i = 0; i < TENSORS_MAX; i++)
		dst_tensors[i].num_blocks = 3;
	request.src_blocks = good;
	request.dst_blocks = good;
	assert_pair_refused("dst_blocks[1] is 3; cache 2 of cluster 7 has 3 blocks, so at most 2");
}

static void
pair__all_layers_of_unequal_caches(void **state)
{
	(void)state;
	dst_side.num_tensors = 8;
	assert_pair_refused(
		"all layers of local cache 1 are 10 tensors, of cache 2 of cluster 7 8; "
		"give layer ranges, or make them equal");
	request.src_layers = (struct kvp_layers){1, 4};
	request.dst_layers = (struct kvp_layers){0, 3};
	assert_paired(2, 0, 8);
}

static void
pair__block_bytes(void **state)
{
	(void)state;
	dst_tensors[5].block_bytes = 32;
	assert_pair_refused(
		"a block of tensor 5 of local cache 1 has 64 bytes but of tensor 5 of cache 2 "
		"of cluster 7 32; they must be equal");
	request.src_layers = (struct kvp_layers){3, 3};
	request.dst_layers = (struct kvp_layers){2, 2};
	assert_pair_refused(
		"a block of tensor 7 of local cache 1 has 64 bytes but of tensor 5 of cache 2 "
		"of cluster 7 32; they must be equal");
	src_tensors[7].block_bytes = 32;
	assert_paired(6, 4, 2);
	request.dst_layers = (struct kvp_layers){3, 3};
	assert_pair_refused(
		"a block of tensor 7 of local cache 1 has 32 bytes but of tensor 7 of cache 2 "
		"of cluster 7 64; they must be equal");
}

static void
pair__bytes_per_block(void **state)
{
	struct kvp_pairing pairing;

	(void)state;
	/* A part of each block: it must be within both, which need not be equal. */
	dst_tensors[5].block_bytes = 32;
	request.bytes_per_block = 33;
	assert_pair_refused(
		"bytes_per_block is 33; a block of tensor 5 of cache 2 of cluster 7 has 32 bytes, "
		"so at most that, or 0 for all of it");
	request.bytes_per_block = 32;
	assert_paired(0, 0, 10);
	assert_int_equal(kvp_request_pair(&request, &src_side, &dst_side, &pairing, NULL),
			 KVP_SUCCESS);
	assert_int_equal(pairing.bytes_per_block, 32);
	src_tensors[0].block_bytes = 8;
	assert_pair_refused("bytes_per_block is 32; a block of tensor 0 of local cache 1 has 8 "
			    "bytes, so at most that, or 0 for all of it");
	request.is_push = false;
	assert_pair_refused("bytes_per_block is 32; a block of tensor 0 of local cache 1 has 8 "
			    "bytes, so at most that, or 0 for all of it");
}

static void
pair__strides_may_differ(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < TENSORS_MAX; i++)
		dst_tensors[i].block_stride = 100;
	assert_paired(0, 0, 10);
}

static void
pair__push_and_pull(void **state)
{
	static const uint64_t other[2] = {3, 2};

	(void)state;
	request.src_blocks = other;
	request.src_layers = (struct kvp_layers){1, 2};
	request.dst_layers = (struct kvp_layers){3, 4};
	assert_paired(2, 6, 4);
	request.is_push = false;
	assert_paired(2, 6, 4);
}

#define WITH_CACHES(test) cmocka_unit_test_setup(test, caches_setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_CACHES(check__lists),
		WITH_CACHES(check__bounds),
		WITH_CACHES(check__tensors_per_layer),
		WITH_CACHES(pair__range_table),
		WITH_CACHES(pair__layers),
		WITH_CACHES(pair__remote_side_first),
		WITH_CACHES(pair__blocks),
		WITH_CACHES(pair__all_layers_of_unequal_caches),
		WITH_CACHES(pair__block_bytes),
		WITH_CACHES(pair__bytes_per_block),
		WITH_CACHES(pair__strides_may_differ),
		WITH_CACHES(pair__push_and_pull),
	};

	return cmocka_run_group_tests_name("engine_request", tests, NULL, NULL);
}
