/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of the machine and its control groups, read below a folder that looks like one.
 *
 * links: control/machine.o engine/check.o
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ftw.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "machine.h"

static char root[64];
static struct kvp_machine machine;

static int
begin(void **state)
{
	(void)state;
	strcpy(root, "/tmp/kvp-machine-XXXXXX");
	memset(&machine, 0xA5, sizeof(machine));
	return mkdtemp(root) == NULL;
}

static int
remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
	(void)st;
	(void)flag;
	(void)at;
	return remove(path);
}

static int
end(void **state)
{
	(void)state;
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A file with this content, and the folders to it. */
static void
put(const char *name, const char *content)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(content, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void
assert_quota(uint64_t quota_us, uint64_t period_us)
{
	kvp_machine_read(root, &machine);
	assert_int_equal(machine.quota_us, quota_us);
	assert_int_equal(machine.period_us, period_us);
}

/* What cannot be read limits nothing. */
static void
read__nothing_there(void **state)
{
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	assert_quota(0, 0);
	assert_int_equal(machine.memlock,
			 limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur);
	assert_int_equal(machine.pinned, 0);
	assert_false(machine.may_lock);
	assert_int_equal(machine.huge_pages, 0);
	assert_string_equal(machine.rdma, "");
}

static void
read__status(void **state)
{
	(void)state;
	put("/proc/thread-self/status", "Name:\tx\nVmPin:\t    12 kB\nCapInh:\t0000000000004000\n"
					"CapEff:\t0000000000004001\n");
	kvp_machine_read(root, &machine);
	assert_true(machine.may_lock);
	assert_int_equal(machine.pinned, 12 << 10);
	put("/proc/thread-self/status", "CapInh:\t0000000000004000\nCapEff:\t000001ffffffbfff\n");
	kvp_machine_read(root, &machine);
	assert_false(machine.may_lock);
	assert_int_equal(machine.pinned, 0);
}

static void
read__huge_pages(void **state)
{
	(void)state;
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "9\n");
	kvp_machine_read(root, &machine);
	assert_int_equal(machine.huge_pages, 64);
	assert_int_equal(machine.huge_free, 9);
}

static void
read__quota(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/kube/pod/container\n");
	put("/sys/fs/cgroup/kube/pod/container/cpu.max", "max 100000\n");
	assert_quota(0, 0);
	/* Each group around counts, the tightest most. */
	put("/sys/fs/cgroup/kube/cpu.max", "400000 100000\n");
	assert_quota(400000, 100000);
	put("/sys/fs/cgroup/kube/pod/cpu.max", "150000 50000\n");
	assert_quota(150000, 50000);
	put("/sys/fs/cgroup/kube/pod/container/cpu.max", "500000 100000\n");
	assert_quota(150000, 50000);
	/* A neighbour's does not. */
	put("/sys/fs/cgroup/kube/pod/other/cpu.max", "1000 100000\n");
	put("/sys/fs/cgroup/other/cpu.max", "1000 100000\n");
	assert_quota(150000, 50000);
	put("/sys/fs/cgroup/kube/pod/cpu.max", "nonsense\n");
	assert_quota(400000, 100000);
}

/* In a container of its own namespace the mount is the group. */
static void
read__quota_in_a_container(void **state)
{
	(void)state;
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
	assert_quota(200000, 100000);
}

static void
read__quota_of_version_1(void **state)
{
	(void)state;
	put("/proc/self/cgroup",
	    "9:name=systemd:/x\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/\n0::/\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
	assert_quota(0, 0);
	put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "250000\n");
	assert_quota(250000, 100000);
}

static void
read__rdma_limits(void **state)
{
	char line[300];

	(void)state;
	put("/proc/self/cgroup", "0::/unit\n");
	put("/sys/fs/cgroup/unit/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n");
	kvp_machine_read(root, &machine);
	assert_string_equal(machine.rdma, "");
	put("/sys/fs/cgroup/unit/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n"
					    "mlx5_1 hca_handle=2 hca_object=max\n");
	put("/sys/fs/cgroup/rdma.max", "mlx5_0 hca_handle=max hca_object=2000\n");
	kvp_machine_read(root, &machine);
	assert_string_equal(machine.rdma, "mlx5_1 hca_handle=2 hca_object=max; "
					  "mlx5_0 hca_handle=max hca_object=2000");
	/* Longer than there is room for: cut. */
	memset(line, 'x', sizeof(line) - 1);
	memcpy(line, "dev hca_handle=1 ", 17);
	line[sizeof(line) - 1] = '\0';
	put("/sys/fs/cgroup/unit/rdma.max", line);
	kvp_machine_read(root, &machine);
	assert_true(strlen(machine.rdma) < sizeof(machine.rdma));
}

static void
read__malformed_groups(void **state)
{
	static char longest[5000];

	(void)state;
	memset(longest, 'g', sizeof(longest) - 1);
	memcpy(longest, "0::/", 4);
	put("/proc/self/cgroup", longest);
	put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
	assert_quota(0, 0);
	put("/proc/self/cgroup", "no colon\n1:one\n2:two:relative\n0::/\n");
	assert_quota(200000, 100000);
}

/* The real one: as this process sees itself. */
static void
read__here(void **state)
{
	cpu_set_t set;

	(void)state;
	kvp_machine_read("", &machine);
	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	assert_int_equal(machine.cores, CPU_COUNT(&set));
	assert_true(machine.huge_free <= machine.huge_pages);
	assert_true(machine.quota_us == 0 || machine.period_us > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read__nothing_there, begin, end),
		cmocka_unit_test_setup_teardown(read__status, begin, end),
		cmocka_unit_test_setup_teardown(read__huge_pages, begin, end),
		cmocka_unit_test_setup_teardown(read__quota, begin, end),
		cmocka_unit_test_setup_teardown(read__quota_in_a_container, begin, end),
		cmocka_unit_test_setup_teardown(read__quota_of_version_1, begin, end),
		cmocka_unit_test_setup_teardown(read__rdma_limits, begin, end),
		cmocka_unit_test_setup_teardown(read__malformed_groups, begin, end),
		cmocka_unit_test_setup_teardown(read__here, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
