/* SPDX-License-Identifier: Apache-2.0 */
#include "eal.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>

#include "cpus.h"

#define FILES_WANTED 16U /* open at one time while EAL starts, with some to spare */

struct eal_start {
	uint32_t heap_mb;
	cpu_set_t cpus; /* the caller's */
	int rc;
	struct kvp_error reason;
};

static pthread_mutex_t eal_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool eal_is_started;         /* under eal_mutex */
static struct kvp_error eal_reason; /* of the last failed start, under eal_mutex */

/*
 * Without shared configuration EAL's directory stays empty; leave nothing behind. Its parent is
 * the one that EAL makes when it has EAL's mode and owner, and is in use when it is not empty.
 */
static void
remove_runtime_dir(void)
{
	const char *made = rte_eal_get_runtime_dir();
	char path[PATH_MAX];
	char *parent;
	struct stat st;

	if (made == NULL || made[0] != '/')
		return;
	(void)snprintf(path, sizeof(path), "%s", made);
	if (rmdir(path) != 0)
		return;
	parent = dirname(path);
	if (stat(parent, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700)
		(void)rmdir(parent);
}

/* The first line of EAL's log says what failed first. */
static void
keep_reason(struct kvp_error *reason, const char *log, int error)
{
	size_t bytes = log == NULL ? 0 : strcspn(log, "\n");

	if (bytes > 0)
		(void)kvp_fail(reason, KVP_NO_RESOURCE, "%.*s (%s)", (int)bytes, log,
			       rte_strerror(error));
	else
		(void)kvp_fail(reason, KVP_NO_RESOURCE, "%s", rte_strerror(error));
}

static int
init_with(struct eal_start *start, char **argv, int argc)
{
	char *log_text = NULL;
	size_t log_bytes = 0;
	FILE *log;
	int error;
	int rc;

	/* EAL tells the cause only to its log. */
	log = open_memstream(&log_text, &log_bytes);
	if (log != NULL)
		(void)rte_openlog_stream(log);
	rc = rte_eal_init(argc, argv);
	error = rte_errno;
	if (log != NULL) {
		(void)rte_openlog_stream(NULL);
		(void)fclose(log);
	}
	if (rc < 0)
		keep_reason(&start->reason, log_text, error);
	free(log_text);
	remove_runtime_dir();
	return rc < 0 ? -error : 0;
}

static void *
start_main(void *arg)
{
	struct eal_start *start = arg;
	char lcores[KVP_CPUS_TEXT_MAX + 8];
	char cpus[KVP_CPUS_TEXT_MAX];
	char heap[16];
	char prefix[32];
	char program[] = "kvpush";
	char no_huge[] = "--no-huge";
	char mem_option[] = "-m";
	char no_pci[] = "--no-pci";
	char no_shconf[] = "--no-shconf";
	char no_telemetry[] = "--no-telemetry";
	char iova[] = "--iova-mode=va";
	char level[] = "--log-level=error";
	char lcores_option[] = "--lcores";
	char prefix_option[] = "--file-prefix";
	char *argv[] = {program,   mem_option,    heap,   no_huge, no_pci,
			no_shconf, no_telemetry,  iova,   level,   lcores_option,
			lcores,    prefix_option, prefix, NULL};

	/* A host program that runs EAL itself shares it with us. */
	if (rte_thread_register() == 0) {
		rte_thread_unregister();
		return NULL;
	}
	kvp_cpus_format(&start->cpus, cpus, sizeof(cpus));
	(void)snprintf(lcores, sizeof(lcores), "0@(%s)", cpus);
	(void)snprintf(heap, sizeof(heap), "%u", start->heap_mb);
	(void)snprintf(prefix, sizeof(prefix), "kvpush-%ld", (long)getpid());
	start->rc = init_with(start, argv, (int)(sizeof(argv) / sizeof(argv[0])) - 1);
	return NULL;
}

/* EAL pins its caller, and its threads inherit the caller's signal mask: give it a thread to spoil. */
static kvp_status
start_in_helper(struct eal_start *start, struct kvp_error *err)
{
	pthread_attr_t attr;
	pthread_t helper;
	sigset_t all;
	int rc;

	(void)sigfillset(&all);
	rc = pthread_attr_init(&attr);
	if (rc != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "thread to start EAL: %s", strerror(rc));
	rc = pthread_attr_setsigmask_np(&attr, &all);
	if (rc == 0)
		rc = pthread_create(&helper, &attr, start_main, start);
	(void)pthread_attr_destroy(&attr);
	if (rc != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "thread to start EAL: %s", strerror(rc));
	(void)pthread_join(helper, NULL);
	return KVP_SUCCESS;
}

/*
 * EAL cannot be started again in a process where it failed once, so what can be
 * seen to be missing beforehand is refused without trying.
 */
static kvp_status
check_descriptors(struct kvp_error *err)
{
	int fd[FILES_WANTED];
	uint32_t count = 0;
	kvp_status status = KVP_SUCCESS;

	while (count < FILES_WANTED && status == KVP_SUCCESS) {
		fd[count] = eventfd(0, EFD_CLOEXEC);
		if (fd[count] >= 0)
			count++;
		else
			status = kvp_fail(
				err, KVP_NO_RESOURCE,
				"EAL needs %u descriptors, %u are free (%s): raise the limit "
				"of open files (ulimit -n)",
				FILES_WANTED, count, strerror(errno));
	}
	while (count > 0)
		(void)close(fd[--count]);
	return status;
}

static kvp_status
start_locked(uint32_t heap_mb, struct kvp_error *err)
{
	struct eal_start start = {.heap_mb = heap_mb};
	kvp_status status;

	if (eal_is_started)
		return KVP_SUCCESS;
	CPU_ZERO(&start.cpus);
	if (sched_getaffinity(0, sizeof(start.cpus), &start.cpus) != 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "EAL: CPUs of this process: %s",
				strerror(errno));
	status = check_descriptors(err);
	if (status != KVP_SUCCESS)
		return status;
	status = start_in_helper(&start, err);
	if (status != KVP_SUCCESS)
		return status;
	if (start.rc == 0) {
		eal_is_started = true;
		return KVP_SUCCESS;
	}
	/* EALREADY: EAL lets nobody try twice, so the first reason stands. */
	if (start.rc != -EALREADY || eal_reason.text[0] == '\0')
		eal_reason = start.reason;
	return kvp_fail(err, KVP_NO_RESOURCE, "EAL did not start with eal_mem_mb %u: %s", heap_mb,
			eal_reason.text);
}

kvp_status
kvp_eal_start(uint32_t heap_mb, struct kvp_error *err)
{
	kvp_status status;

	(void)pthread_mutex_lock(&eal_mutex);
	status = start_locked(heap_mb, err);
	(void)pthread_mutex_unlock(&eal_mutex);
	return status;
}

kvp_status
kvp_eal_thread_enter(struct kvp_error *err)
{
	if (rte_thread_register() == 0)
		return KVP_SUCCESS;
	if (rte_errno == ENOMEM)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"no DPDK lcore is free: %u per process, one for each lane",
				RTE_MAX_LCORE);
	return kvp_fail(err, KVP_NO_RESOURCE, "thread is refused as a DPDK lcore: %s",
			rte_strerror(rte_errno));
}

void
kvp_eal_thread_leave(void)
{
	rte_thread_unregister();
}
