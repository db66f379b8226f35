/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm.h"

#define YAMA_PATH "/proc/sys/kernel/yama/ptrace_scope"
#define REMEDY    "allocate the peer's cache with kvp_cache_allocate, or use transports=tcp"

static void
unusable(struct kvp_shm_foreign *foreign, const char *why)
{
	foreign->status = KVP_FEATURE_NOT_ENABLED;
	snprintf(foreign->why, sizeof(foreign->why), "%s; " REMEDY, why);
}

/* EPERM has one cause that administrators can change: name it when it is there. */
static void
unusable_by_error(struct kvp_shm_foreign *foreign, int error)
{
	char why[96], scope[8] = "";
	FILE *file;

	if (error != EPERM) {
		snprintf(why, sizeof(why), "process_vm_readv fails: %s", strerrorname_np(error));
		unusable(foreign, why);
		return;
	}
	file = fopen(YAMA_PATH, "re");
	if (file != NULL) {
		if (fgets(scope, sizeof(scope), file) == NULL)
			scope[0] = '\0';
		fclose(file);
	}
	if (scope[0] == '\0' || scope[0] == '0')
		unusable(foreign, "process_vm_readv fails: EPERM (no ptrace rights)");
	else
		unusable(foreign,
			 "process_vm_readv fails: EPERM (kernel.yama.ptrace_scope is not 0)");
}

/*
 * Once the peer is dead its pid may become another process's, and an address
 * there means something else. The pid_fd tells, and pids are not reused within
 * the microsecond between asking and acting.
 */
static bool
is_dead(const struct kvp_shm_foreign *foreign)
{
	struct pollfd item = {.fd = foreign->pid_fd, .events = POLLIN};

	return poll(&item, 1, 0) != 0;
}

static kvp_status
foreign_move(const struct kvp_shm_foreign *foreign, bool is_push, const struct iovec *local,
	     const struct iovec *remote, uint32_t count)
{
	size_t wanted = 0;
	ssize_t moved;

	for (uint32_t i = 0; i < count; i++)
		wanted += local[i].iov_len;
	if (is_dead(foreign))
		return KVP_PEER_LOST;
	if (is_push)
		moved = process_vm_writev(foreign->pid, local, count, remote, count, 0);
	else
		moved = process_vm_readv(foreign->pid, local, count, remote, count, 0);
	if (moved >= 0 && (size_t)moved == wanted)
		return KVP_SUCCESS;
	/* Short, or EFAULT: the peer no longer has that memory. EPERM: rights were taken away. */
	if (moved < 0 && errno == ESRCH)
		return KVP_PEER_LOST;
	return KVP_FEATURE_NOT_ENABLED;
}

void
kvp_shm_foreign_open(struct kvp_shm_foreign *foreign, pid_t pid, uint64_t address, uint64_t value)
{
	uint64_t seen = ~value;
	const struct iovec local = {.iov_base = &seen, .iov_len = sizeof(seen)};
	/* An address of the peer, never used as one here. */
	const struct iovec remote = {.iov_base = (void *)(uintptr_t)address,
				     .iov_len = sizeof(seen)};
	ssize_t got;

	foreign->pid = pid;
	foreign->move = foreign_move;
	if (pid <= 0) {
		unusable(foreign, "it runs in another pid namespace");
		return;
	}
	foreign->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (foreign->pid_fd < 0) {
		unusable(foreign, "pidfd_open fails (Linux before 5.3, or a filter)");
		return;
	}
	got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
	if (got < 0)
		unusable_by_error(foreign, errno);
	else if ((size_t)got != sizeof(seen) || seen != value)
		unusable(foreign, "its pid names another process here (pid namespaces differ)");
	else
		foreign->status = KVP_SUCCESS;
}

void
kvp_shm_foreign_close(struct kvp_shm_foreign *foreign)
{
	if (foreign->pid_fd >= 0)
		close(foreign->pid_fd);
	foreign->pid_fd = -1;
}
