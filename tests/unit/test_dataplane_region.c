/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "region.h"

static uint32_t
open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void
create_fails(uint32_t id, uint64_t bytes, kvp_status status, const char *word)
{
	const struct kvp_region_config config = {.id = id, .bytes = bytes};
	struct kvp_region *region = NULL;
	struct kvp_error err = {""};
	uint32_t before = open_fds();

	assert_int_equal(kvp_region_create(&config, &region, &err), status);
	assert_null(region);
	assert_non_null(strstr(err.text, word));
	assert_int_equal(open_fds(), before);
}

static void
create__id_zero(void **state)
{
	(void)state;
	create_fails(0, 4096, KVP_PARAM_INVALID, "region 0");
}

static void
create__no_bytes(void **state)
{
	(void)state;
	create_fails(1, 0, KVP_PARAM_INVALID, "0 bytes");
}

static void
create__more_than_the_machine_has(void **state)
{
	(void)state;
	create_fails(1, 1ULL << 50, KVP_OUT_OF_MEMORY, "1125899906842624");
	create_fails(1, UINT64_MAX, KVP_OUT_OF_MEMORY, "address space");
}

static void
create__file_size_limit_is_an_error_not_a_signal(void **state)
{
	struct rlimit old, low;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	low = old;
	low.rlim_cur = 65536;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
	create_fails(1, 65537, KVP_NO_RESOURCE, "ulimit -f");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

static void
create__no_descriptor_left(void **state)
{
	const struct kvp_region_config config = {.id = 1, .bytes = 4096};
	struct kvp_region *region = NULL;
	struct kvp_error err = {""};
	struct rlimit old, low;
	kvp_status status;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	status = kvp_region_create(&config, &region, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(status, KVP_NO_RESOURCE);
	assert_non_null(strstr(err.text, "ulimit -n"));
}

static void
create__without_an_error_line(void **state)
{
	const struct kvp_region_config config = {.id = 1};
	struct kvp_region *region = NULL;

	(void)state;
	assert_int_equal(kvp_region_create(&config, &region, NULL), KVP_PARAM_INVALID);
}

static void
create__zeroed_rounded_and_sealed(void **state)
{
	const struct kvp_region_config config = {.id = 7, .bytes = 3 * 4096 + 1};
	struct kvp_region *region = NULL;
	struct kvp_error err = {""};
	struct stat st;
	int seals;

	(void)state;
	assert_int_equal(kvp_region_create(&config, &region, &err), KVP_SUCCESS);
	assert_int_equal(region->id, 7);
	assert_int_equal(region->bytes, 4 * 4096);
	assert_int_equal((uintptr_t)region->base % 4096, 0);
	for (uint64_t i = 0; i < region->bytes; i++)
		assert_int_equal(((uint8_t *)region->base)[i], 0);
	assert_int_equal(fstat(region->fd, &st), 0);
	assert_int_equal(st.st_size, 4 * 4096);
	assert_true(st.st_blocks >= 4 * 4096 / 512); /* every page is there */
	seals = fcntl(region->fd, F_GET_SEALS);
	assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(fcntl(region->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	kvp_region_destroy(region);
}

static void
create__nobody_can_shrink_or_grow_it(void **state)
{
	const struct kvp_region_config config = {.id = 1, .bytes = 8192};
	struct kvp_region *region = NULL;

	(void)state;
	assert_int_equal(kvp_region_create(&config, &region, NULL), KVP_SUCCESS);
	assert_int_equal(ftruncate(region->fd, 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(region->fd, 16384), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fcntl(region->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	kvp_region_destroy(region);
}

static void
create__a_second_map_sees_the_same_bytes(void **state)
{
	const struct kvp_region_config config = {.id = 1, .bytes = 1 << 20};
	struct kvp_region *region = NULL;
	uint8_t *second;

	(void)state;
	assert_int_equal(kvp_region_create(&config, &region, NULL), KVP_SUCCESS);
	second = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	assert_ptr_not_equal(second, MAP_FAILED);
	memset(region->base, 0x5A, region->bytes);
	assert_int_equal(second[0], 0x5A);
	assert_int_equal(second[region->bytes - 1], 0x5A);
	second[77] = 1;
	assert_int_equal(((uint8_t *)region->base)[77], 1);
	munmap(second, region->bytes);
	kvp_region_destroy(region);
}

static void
create__huge_pages_or_what_to_change(void **state)
{
	const struct kvp_region_config config = {.id = 1, .bytes = 4097, .is_huge = true};
	struct kvp_region *region = NULL;
	struct kvp_error err = {""};
	kvp_status status = kvp_region_create(&config, &region, &err);

	(void)state;
	if (status != KVP_SUCCESS) {
		assert_int_equal(status, KVP_NO_RESOURCE);
		assert_null(region);
		assert_non_null(strstr(err.text, "vm.nr_hugepages"));
		return;
	}
	assert_int_equal(region->bytes, 2U << 20);
	assert_int_equal((uintptr_t)region->base % (2U << 20), 0);
	kvp_region_destroy(region);
}

static void
destroy__leaves_nothing(void **state)
{
	const struct kvp_region_config config = {.id = 1, .bytes = 4096};
	struct kvp_region *region = NULL;
	uint32_t before = open_fds();
	unsigned char there;
	void *base;

	(void)state;
	kvp_region_destroy(NULL);
	assert_int_equal(kvp_region_create(&config, &region, NULL), KVP_SUCCESS);
	base = region->base;
	assert_int_equal(open_fds(), before + 1);
	kvp_region_destroy(region);
	assert_int_equal(open_fds(), before);
	assert_int_equal(mincore(base, 4096, &there), -1);
	assert_int_equal(errno, ENOMEM);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(create__id_zero),
		cmocka_unit_test(create__no_bytes),
		cmocka_unit_test(create__more_than_the_machine_has),
		cmocka_unit_test(create__file_size_limit_is_an_error_not_a_signal),
		cmocka_unit_test(create__no_descriptor_left),
		cmocka_unit_test(create__without_an_error_line),
		cmocka_unit_test(create__zeroed_rounded_and_sealed),
		cmocka_unit_test(create__nobody_can_shrink_or_grow_it),
		cmocka_unit_test(create__a_second_map_sees_the_same_bytes),
		cmocka_unit_test(create__huge_pages_or_what_to_change),
		cmocka_unit_test(destroy__leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
