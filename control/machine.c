/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <linux/capability.h>

#define HUGE_PAGES "/sys/kernel/mm/hugepages/hugepages-2048kB/"

static FILE *
open_below(const char *root, const char *folder, const char *name)
{
	char path[PATH_MAX];
	int bytes = snprintf(path, sizeof(path), "%s%s%s", root, folder, name);

	return bytes > 0 && (size_t)bytes < sizeof(path) ? fopen(path, "re") : NULL;
}

/* The number behind `key` at the beginning of a line. False: none is there. */
static bool
read_number(const char *root, const char *folder, const char *name, const char *key, int base,
	    uint64_t *value_out)
{
	FILE *file = open_below(root, folder, name);
	char line[256], *end;
	bool has_value = false;

	while (file != NULL && !has_value && fgets(line, sizeof(line), file) != NULL) {
		uint64_t value;

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		value = strtoull(line + strlen(key), &end, base);
		/* strtoull reads -1, which stands for no limit, as a number. */
		if (end != line + strlen(key) && strchr(line + strlen(key), '-') == NULL) {
			*value_out = value;
			has_value = true;
		}
	}
	if (file != NULL)
		fclose(file);
	return has_value;
}

/* --- control groups ----------------------------------------------------------------------- */

static void
take_quota(struct kvp_machine *machine, uint64_t quota_us, uint64_t period_us)
{
	if (quota_us == 0 || period_us == 0)
		return;
	if (machine->quota_us != 0 && (double)machine->quota_us / (double)machine->period_us <=
					      (double)quota_us / (double)period_us)
		return;
	machine->quota_us = quota_us;
	machine->period_us = period_us;
}

/* "mlx5_0 hca_handle=2 hca_object=max": a device with a number is limited. */
static void
take_rdma(struct kvp_machine *machine, FILE *file)
{
	char line[256];

	while (fgets(line, sizeof(line), file) != NULL) {
		size_t used = strlen(machine->rdma);

		line[strcspn(line, "\n")] = '\0';
		if (line[strcspn(line, "=")] == '\0' || (strstr(line, "hca_handle=max") != NULL &&
							 strstr(line, "hca_object=max") != NULL))
			continue;
		(void)snprintf(machine->rdma + used, sizeof(machine->rdma) - used, "%s%s",
			       used > 0 ? "; " : "", line);
	}
}

static void
look_into_group(struct kvp_machine *machine, const char *root, const char *folder)
{
	uint64_t quota = 0, period = 0;
	FILE *file;

	/* Version 2 has "max 100000" or "50000 100000" in one file, version 1 two files. */
	file = open_below(root, folder, "/cpu.max");
	if (file != NULL) {
		char line[64] = "", *end = line;

		if (fgets(line, sizeof(line), file) != NULL)
			quota = strtoull(line, &end, 10);
		if (end != line)
			take_quota(machine, quota, strtoull(end, NULL, 10));
		fclose(file);
	}
	if (read_number(root, folder, "/cpu.cfs_quota_us", "", 10, &quota) &&
	    read_number(root, folder, "/cpu.cfs_period_us", "", 10, &period))
		take_quota(machine, quota, period);
	file = open_below(root, folder, "/rdma.max");
	if (file != NULL) {
		take_rdma(machine, file);
		fclose(file);
	}
}

/* A group and those around it up to the mount: a limit of each counts. */
static void
look_into_groups(struct kvp_machine *machine, const char *root, const char *mount,
		 const char *group)
{
	char folder[PATH_MAX];
	int bytes = snprintf(folder, sizeof(folder), "%s%s", mount, group);

	if (bytes < 0 || (size_t)bytes >= sizeof(folder))
		return;
	while (strlen(folder) > strlen(mount)) {
		if (folder[strlen(folder) - 1] != '/')
			look_into_group(machine, root, folder);
		*strrchr(folder, '/') = '\0';
	}
	/* Inside a container the mount itself is the container's group. */
	look_into_group(machine, root, folder);
}

/* "0::/user.slice" is version 2; "4:cpu,cpuacct:/docker/..." version 1, mounted by its controllers' names. */
static void
look_at_groups(struct kvp_machine *machine, const char *root)
{
	FILE *file = open_below(root, "/proc/self/cgroup", "");
	char line[PATH_MAX];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		char *controllers = strchr(line, ':');
		char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
		char mount[128];
		int bytes;

		line[strcspn(line, "\n")] = '\0';
		if (group == NULL || group[1] != '/')
			continue;
		*group++ = '\0';
		bytes = snprintf(mount, sizeof(mount), "/sys/fs/cgroup%s%s",
				 controllers[1] != '\0' ? "/" : "", controllers + 1);
		if (bytes > 0 && (size_t)bytes < sizeof(mount))
			look_into_groups(machine, root, mount, group);
	}
	if (file != NULL)
		fclose(file);
}

/* --- the rest ------------------------------------------------------------------------------ */

static uint32_t
cores_of_this_thread(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

void
kvp_machine_read(const char *root, struct kvp_machine *machine_out)
{
	struct rlimit limit;
	uint64_t bits = 0;

	memset(machine_out, 0, sizeof(*machine_out));
	machine_out->memlock = UINT64_MAX;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		machine_out->memlock = limit.rlim_cur;
	if (read_number(root, "/proc/thread-self/status", "", "CapEff:", 16, &bits))
		machine_out->may_lock = (bits >> CAP_IPC_LOCK & 1) != 0;
	if (read_number(root, "/proc/thread-self/status", "", "VmPin:", 10, &machine_out->pinned))
		machine_out->pinned <<= 10;
	(void)read_number(root, HUGE_PAGES, "nr_hugepages", "", 10, &machine_out->huge_pages);
	(void)read_number(root, HUGE_PAGES, "free_hugepages", "", 10, &machine_out->huge_free);
	machine_out->cores = cores_of_this_thread();
	look_at_groups(machine_out, root);
}
