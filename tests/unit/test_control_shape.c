/* SPDX-License-Identifier: Apache-2.0 */
#include <kvpush/cache.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define UNTOUCHED 0x77

static void
dtype_bytes__all_numbers(void **state)
{
	static const uint32_t known[28] = {4, 2, 1, 4, 1, 0, 2, 2, 4, 8, 8, 8, 1, 0,
					   0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

	(void)state;
	for (uint32_t dtype = 0; dtype < 28; dtype++)
		assert_int_equal(kvp_dtype_bytes(dtype), known[dtype]);
	for (uint32_t dtype = 28; dtype < 300; dtype++)
		assert_int_equal(kvp_dtype_bytes(dtype), 0);
	assert_int_equal(kvp_dtype_bytes(UINT32_MAX), 0);
}

static void
assert_refused(uint32_t dtype, const int64_t *shape, size_t dims, uint32_t num_tensors,
	       const char *text)
{
	struct kvp_tensor tensors[2], before[2];

	memset(tensors, UNTOUCHED, sizeof(tensors));
	memset(before, UNTOUCHED, sizeof(before));
	assert_int_equal(kvp_tensors_uniform(dtype, shape, dims, NULL, num_tensors, tensors),
			 KVP_PARAM_INVALID);
	assert_memory_equal(tensors, before, sizeof(tensors));
	if (strcmp(kvp_error_message(), text) != 0)
		fail_msg("message is   \"%s\"\n          not  \"%s\"", kvp_error_message(), text);
}

static void
uniform__refused(void **state)
{
	const int64_t good[2] = {4, 16}, zero[2] = {4, 0}, negative[2] = {-1, 16};
	const int64_t many[1] = {0xFFFFFFFF}, large[3] = {1LL << 31, 1LL << 31, 2};
	const int64_t product[2] = {-(1LL << 32), -(1LL << 31)};
	int64_t ones[32];

	(void)state;
	for (int i = 0; i < 32; i++)
		ones[i] = 1;
	assert_refused(KVP_DT_INT32, NULL, 2, 2, "shape is NULL");
	assert_refused(KVP_DT_INT32, good, 0, 2, "dims is 0; it must be in [1, 31]");
	assert_refused(KVP_DT_INT32, ones, 32, 2, "dims is 32; it must be in [1, 31]");
	assert_refused(KVP_DT_INT32, good, 2, 0, "num_tensors is 0; it must be in [1, 4096]");
	assert_refused(KVP_DT_INT32, good, 2, 4097, "num_tensors is 4097; it must be in [1, 4096]");
	assert_refused(5, good, 2, 2, "dtype is 5; no such element type");
	assert_refused(KVP_DT_INT32, zero, 2, 2, "shape[1] is 0; at least 1");
	assert_refused(KVP_DT_INT32, negative, 2, 2, "shape[0] is -1; at least 1");
	assert_refused(KVP_DT_INT32, product, 2, 2, "shape[0] is -4294967296; at least 1");
	assert_refused(KVP_DT_INT8, many, 1, 2,
		       "shape[0] is 4294967295; at most 4294967294 blocks");
	assert_refused(KVP_DT_INT8, large, 3, 2,
		       "shape[0] to shape[2] of dtype 2 are more than 2^63 bytes");
	assert_refused(KVP_DT_FLOAT16, large, 2, 2,
		       "shape[0] to shape[1] of dtype 1 are more than 2^63 bytes");
	assert_int_equal(kvp_tensors_uniform(KVP_DT_INT8, good, 2, NULL, 2, NULL),
			 KVP_PARAM_INVALID);
	assert_string_equal(kvp_error_message(), "tensors is NULL");
}

static void
uniform__fills(void **state)
{
	const int64_t shape[4] = {64, 16, 8, 128}, one[1] = {7};
	const int64_t large[2] = {1LL << 31, 1LL << 31};
	void *bases[3] = {(void *)0x1000, (void *)0x2000, NULL};
	struct kvp_tensor tensors[3];

	(void)state;
	memset(tensors, UNTOUCHED, sizeof(tensors));
	assert_int_equal(kvp_tensors_uniform(KVP_DT_BF16, shape, 4, bases, 3, tensors),
			 KVP_SUCCESS);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(tensors[i].base, bases[i]);
		assert_int_equal(tensors[i].num_blocks, 64);
		assert_int_equal(tensors[i].block_bytes, 32768);
		assert_int_equal(tensors[i].block_stride, 32768);
	}
	assert_int_equal(kvp_tensors_uniform(KVP_DT_INT8, one, 1, NULL, 1, tensors), KVP_SUCCESS);
	assert_null(tensors[0].base);
	assert_int_equal(tensors[0].num_blocks, 7);
	assert_int_equal(tensors[0].block_bytes, 1);
	assert_ptr_equal(tensors[1].base, bases[1]);
	assert_int_equal(kvp_tensors_uniform(KVP_DT_INT8, large, 2, NULL, 1, tensors), KVP_SUCCESS);
	assert_int_equal(tensors[0].block_bytes, 1LL << 31);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dtype_bytes__all_numbers),
		cmocka_unit_test(uniform__refused),
		cmocka_unit_test(uniform__fills),
	};

	return cmocka_run_group_tests_name("control_shape", tests, NULL, NULL);
}
