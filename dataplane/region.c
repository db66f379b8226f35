/* SPDX-License-Identifier: Apache-2.0 */
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define LINE_MAX_BYTES  512

/* Missing in the headers of Debian 12. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
/*
 * In one call to the kernel: it holds the map of the process meanwhile, and every
 * other thread that maps memory (or merely grows its heap) waits for it, heartbeats
 * included. Whole 2 MiB pages.
 */
#define POPULATE_BYTES (UINT64_C(32) << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The number after `key` at the start of a line of `path`; `key` "" takes the first line. */
static bool
read_number(const char *path, const char *key, uint64_t *value_out)
{
	FILE *file = fopen(path, "re");
	char line[LINE_MAX_BYTES];
	bool is_found = false;

	if (file == NULL)
		return false;
	while (!is_found && fgets(line, sizeof(line), file) != NULL) {
		char *end = NULL;
		char *number;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		number = line + strlen(key);
		errno = 0;
		*value_out = strtoull(number, &end, 10);
		is_found = end != number && errno == 0;
	}
	fclose(file);
	return is_found;
}

/*
 * What one control group still lets its members allocate. Page cache of files
 * counts as free: the kernel drops it before it kills anybody.
 */
static uint64_t
group_room_bytes(const char *group)
{
	char path[LINE_MAX_BYTES + 64];
	uint64_t limit = 0, used = 0, active = 0, inactive = 0, files;

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
	if (!read_number(path, "", &limit)) /* "max" is no number */
		return UINT64_MAX;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
	if (!read_number(path, "", &used))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.stat", group);
	if (!read_number(path, "active_file ", &active))
		active = 0;
	if (!read_number(path, "inactive_file ", &inactive))
		inactive = 0;
	files = active + inactive;
	used = used > files ? used - files : 0;
	return limit > used ? limit - used : 0;
}

/* The tightest limit on the way from our own control group (version 2) to the root. */
static uint64_t
groups_room_bytes(void)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[LINE_MAX_BYTES];
	char group[LINE_MAX_BYTES] = "";
	uint64_t room = UINT64_MAX;

	if (file == NULL)
		return room;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, "0::/", 4) == 0) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(group, sizeof(group), "%s", line + 3);
		}
	}
	fclose(file);
	for (;;) {
		char *slash = strrchr(group, '/');
		uint64_t one = group_room_bytes(group);

		room = one < room ? one : room;
		if (slash == NULL)
			return room;
		*slash = '\0';
	}
}

/* Pages of this size that a mapping could still reserve. */
static uint64_t
huge_pages_left(void)
{
	static const char dir[] = "/sys/kernel/mm/hugepages/hugepages-2048kB";
	char path[LINE_MAX_BYTES];
	uint64_t free_pages = 0, reserved = 0, extra = 0, surplus = 0;

	snprintf(path, sizeof(path), "%s/free_hugepages", dir);
	if (!read_number(path, "", &free_pages))
		return 0;
	snprintf(path, sizeof(path), "%s/resv_hugepages", dir);
	if (!read_number(path, "", &reserved))
		reserved = 0;
	snprintf(path, sizeof(path), "%s/nr_overcommit_hugepages", dir);
	if (!read_number(path, "", &extra))
		extra = 0;
	snprintf(path, sizeof(path), "%s/surplus_hugepages", dir);
	if (!read_number(path, "", &surplus))
		surplus = 0;
	extra = extra > surplus ? extra - surplus : 0;
	return free_pages > reserved ? free_pages - reserved + extra : extra;
}

static kvp_status
check_room(uint64_t bytes, bool is_huge, struct kvp_error *err)
{
	uint64_t available_kib = 0, group;
	struct rlimit limit;

	/* ftruncate beyond this limit would raise SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"region of %" PRIu64 " bytes: above the file size limit of %" PRIu64
				"; raise it (ulimit -f)",
				bytes, (uint64_t)limit.rlim_cur);
	if (is_huge) {
		uint64_t left = huge_pages_left();

		if (bytes / HUGE_PAGE_BYTES > left)
			return kvp_fail(err, KVP_NO_RESOURCE,
					"region of %" PRIu64 " bytes needs %" PRIu64
					" huge pages of 2 MiB, %" PRIu64
					" are free; raise vm.nr_hugepages or set huge_pages=0",
					bytes, bytes / HUGE_PAGE_BYTES, left);
		return KVP_SUCCESS;
	}
	if (read_number("/proc/meminfo", "MemAvailable:", &available_kib) &&
	    bytes / 1024 > available_kib)
		return kvp_fail(err, KVP_OUT_OF_MEMORY,
				"region of %" PRIu64 " bytes: the machine has %" PRIu64
				" KiB available; allocate fewer or smaller blocks",
				bytes, available_kib);
	group = groups_room_bytes();
	if (bytes > group)
		return kvp_fail(err, KVP_OUT_OF_MEMORY,
				"region of %" PRIu64
				" bytes: the control group has room for %" PRIu64
				"; raise its memory.max or allocate less",
				bytes, group);
	return KVP_SUCCESS;
}

static int
open_memfd(bool is_huge)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (is_huge)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create("kvpush", flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("kvpush", flags); /* Linux before 6.3 */
	return fd;
}

/* Have every page now, as an error and not as a SIGBUS later. Returns 0 or an errno. */
static int
populate(int fd, uint8_t *base, uint64_t bytes)
{
	long page = sysconf(_SC_PAGESIZE);
	uint64_t done = 0;

	while (done < bytes) {
		uint64_t step = bytes - done < POPULATE_BYTES ? bytes - done : POPULATE_BYTES;

		if (madvise(base + done, step, MADV_POPULATE_WRITE) != 0)
			break;
		done += step;
	}
	if (done == bytes)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? ENOMEM : errno;
	/* Linux before 5.14: take the pages by fallocate, which reports, then map them. */
	if (fallocate(fd, 0, 0, (off_t)bytes) != 0)
		return errno == ENOSPC ? ENOMEM : errno;
	for (uint64_t at = 0; at < bytes; at += (uint64_t)page)
		atomic_fetch_or_explicit((_Atomic uint8_t *)(base + at), 0, memory_order_relaxed);
	return 0;
}

static kvp_status
fail_system(struct kvp_error *err, const char *what, uint64_t bytes, int error)
{
	const char *hint = "";
	kvp_status status = KVP_NO_RESOURCE;

	if (error == EMFILE || error == ENFILE) {
		hint = "; raise the limit of open files (ulimit -n)";
	} else if (error == ENOMEM || error == ENOSPC) {
		status = KVP_OUT_OF_MEMORY;
		hint = "; allocate less, or raise ulimit -v, vm.overcommit_memory or memory.max";
	}
	return kvp_fail(err, status, "region of %" PRIu64 " bytes: %s: %s%s", bytes, what,
			strerrorname_np(error), hint);
}

/* Size, map, populate and seal the fresh memfd. */
static kvp_status
fill_region(struct kvp_region *region, struct kvp_error *err)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	kvp_status status;
	int error;

	if (ftruncate(region->fd, (off_t)region->bytes) != 0)
		return fail_system(err, "ftruncate", region->bytes, errno);
	region->base = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	if (region->base == MAP_FAILED)
		return fail_system(err, "mmap", region->bytes, errno);
	/* Best effort: takes effect where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows. */
	(void)madvise(region->base, region->bytes, MADV_HUGEPAGE);
	error = populate(region->fd, region->base, region->bytes);
	if (error != 0) {
		status = fail_system(err, "populate", region->bytes, error);
		goto err_unmap;
	}
	if (fcntl(region->fd, F_ADD_SEALS, seals) != 0) {
		status = fail_system(err, "F_ADD_SEALS", region->bytes, errno);
		goto err_unmap;
	}
	return KVP_SUCCESS;
err_unmap:
	munmap(region->base, region->bytes);
	return status;
}

kvp_status
kvp_region_create(const struct kvp_region_config *config, struct kvp_region **region_out,
		  struct kvp_error *err)
{
	uint64_t page = config->is_huge ? HUGE_PAGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
	struct kvp_region *region;
	kvp_status status;
	uint64_t bytes;

	if (config->id == 0 || config->bytes == 0)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"region %" PRIu32 " of %" PRIu64 " bytes: both must be at least 1",
				config->id, config->bytes);
	if (config->bytes > (uint64_t)INT64_MAX - page)
		return kvp_fail(err, KVP_OUT_OF_MEMORY,
				"region of %" PRIu64 " bytes: beyond any address space",
				config->bytes);
	bytes = (config->bytes + page - 1) / page * page;
	status = check_room(bytes, config->is_huge, err);
	if (status != KVP_SUCCESS)
		return status;
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return fail_system(err, "calloc", bytes, ENOMEM);
	region->id = config->id;
	region->bytes = bytes;
	region->fd = open_memfd(config->is_huge);
	if (region->fd < 0) {
		status = fail_system(err, "memfd_create", bytes, errno);
		goto err_free;
	}
	status = fill_region(region, err);
	if (status != KVP_SUCCESS)
		goto err_close;
	*region_out = region;
	return KVP_SUCCESS;
err_close:
	close(region->fd);
err_free:
	free(region);
	return status;
}

void
kvp_region_destroy(struct kvp_region *region)
{
	if (region == NULL)
		return;
	munmap(region->base, region->bytes);
	close(region->fd);
	free(region);
}
