/* SPDX-License-Identifier: Apache-2.0 */
/* Each case in a child of its own: EAL starts once per process. */
#include "eal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_lcore.h>
#include <rte_malloc.h>

#include "cpus.h"

#define CHECK(cond)                                                                \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

/* Run `body` in a child; it must end with 0. */
static void
in_child(void (*body)(void))
{
	pid_t child;
	int status;

	(void)fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Names in a folder that have `part` in them, -1 when there is no folder. */
static int
count_entries(const char *path, const char *part)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (dir == NULL)
		return -1;
	while ((entry = readdir(dir)) != NULL)
		count += strstr(entry->d_name, part) != NULL;
	(void)closedir(dir);
	return count;
}

/* Other processes may come and go there meanwhile; what is named after us, or is empty, is ours. */
static void
check_nothing_left(const char *dpdk, bool had_dpdk)
{
	char own[32];

	(void)snprintf(own, sizeof(own), "-%ld", (long)getpid());
	CHECK(count_entries(dpdk, own) <= 0);
	CHECK(count_entries("/dev/shm", own) <= 0);
	CHECK(had_dpdk || count_entries(dpdk, "") != 2);
}

static const char *
runtime_parent(void)
{
	if (getenv("RUNTIME_DIRECTORY") != NULL)
		return getenv("RUNTIME_DIRECTORY");
	if (geteuid() == 0)
		return "/var/run";
	return getenv("XDG_RUNTIME_DIR") == NULL ? "/tmp" : getenv("XDG_RUNTIME_DIR");
}

static void
start_quietly(void)
{
	struct kvp_error err = {""};
	char dpdk[4096];
	cpu_set_t before;
	cpu_set_t after;
	sigset_t mask_before;
	sigset_t mask_after;
	struct stat out;
	char name[] = "/tmp/kvp_eal_XXXXXX";
	bool had_dpdk;
	int fd = mkstemp(name);

	CHECK(fd >= 0 && unlink(name) == 0);
	CHECK(dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
	(void)snprintf(dpdk, sizeof(dpdk), "%s/dpdk", runtime_parent());
	had_dpdk = count_entries(dpdk, "") >= 0;
	(void)sigemptyset(&mask_before);
	(void)sigaddset(&mask_before, SIGUSR2);
	CHECK(pthread_sigmask(SIG_SETMASK, &mask_before, NULL) == 0);
	CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);

	CHECK(kvp_eal_start(32, &err) == KVP_SUCCESS);
	CHECK(kvp_eal_start(64, &err) == KVP_SUCCESS);

	CHECK(sched_getaffinity(0, sizeof(after), &after) == 0 && CPU_EQUAL(&before, &after));
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
	for (int sig = 1; sig < NSIG; sig++)
		CHECK(sigismember(&mask_before, sig) == sigismember(&mask_after, sig));
	(void)fflush(stdout);
	CHECK(fstat(STDOUT_FILENO, &out) == 0 && out.st_size == 0);
	check_nothing_left(dpdk, had_dpdk);
	CHECK(rte_lcore_id() == LCORE_ID_ANY);
}

static void
eal_start__leaves_host_program_alone(void **state)
{
	(void)state;
	in_child(start_quietly);
}

/* Every thread but ours: its SigBlk line must have all blockable signals. */
static void
check_other_threads_block_signals(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int others = 0;

	CHECK(dir != NULL);
	while ((entry = readdir(dir)) != NULL) {
		unsigned long long blocked = 0;
		char path[300];
		char line[200];
		FILE *file;

		if (entry->d_name[0] == '.' || atol(entry->d_name) == getpid())
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		while (fgets(line, sizeof(line), file) != NULL)
			(void)sscanf(line, "SigBlk: %llx", &blocked);
		(void)fclose(file);
		CHECK((blocked & (1ULL << (SIGTERM - 1))) != 0);
		CHECK((blocked & (1ULL << (SIGUSR1 - 1))) != 0);
		CHECK((blocked & (1ULL << (SIGPROF - 1))) != 0);
		others++;
	}
	(void)closedir(dir);
	CHECK(others >= 1);
}

static void
start_and_look_at_threads(void)
{
	struct kvp_error err = {""};

	CHECK(kvp_eal_start(32, &err) == KVP_SUCCESS);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	/* A sanitizer may have a thread of its own. */
	check_other_threads_block_signals();
#else
	(void)check_other_threads_block_signals;
#endif
}

static void
eal_start__its_threads_take_no_signal(void **state)
{
	(void)state;
	in_child(start_and_look_at_threads);
}

static void
start_pinned(void)
{
	struct kvp_error err = {""};
	cpu_set_t cpus;
	cpu_set_t one;

	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	CPU_ZERO(&one);
	for (size_t cpu = CPU_SETSIZE; cpu-- > 0;) {
		if (!CPU_ISSET(cpu, &cpus))
			continue;
		CPU_SET(cpu, &one);
		break;
	}
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	CHECK(kvp_eal_start(32, &err) == KVP_SUCCESS);
	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_EQUAL(&cpus, &one));
}

static void
eal_start__works_on_one_cpu(void **state)
{
	(void)state;
	in_child(start_pinned);
}

static void
fail_then_report_again(void)
{
	struct kvp_error first = {""};
	struct kvp_error second = {""};

	CHECK(kvp_eal_thread_enter(&first) == KVP_NO_RESOURCE && first.text[0] != '\0');
	/* EAL says why on stderr as well; that is not this test's output. */
	CHECK(freopen("/dev/null", "w", stderr) != NULL);
	CHECK(kvp_eal_start(UINT32_MAX, &first) == KVP_NO_RESOURCE);
	CHECK(strstr(first.text, "eal_mem_mb 4294967295: ") != NULL);
	CHECK(strlen(first.text) > strlen("EAL did not start with eal_mem_mb 4294967295: "));
	/* Either EAL lets us try again, or the first reason is reported. */
	if (kvp_eal_start(UINT32_MAX, &second) == KVP_SUCCESS)
		_exit(2);
	CHECK(strcmp(first.text, second.text) == 0);
}

static void
eal_start__failure_names_reason_each_time(void **state)
{
	(void)state;
	in_child(fail_then_report_again);
}

static pthread_barrier_t all_in;

static void *
lcore_main(void *arg)
{
	unsigned int *lcore = arg;
	struct kvp_error err = {""};

	if (kvp_eal_thread_enter(&err) == KVP_SUCCESS)
		*lcore = rte_lcore_id();
	(void)pthread_barrier_wait(&all_in);
	if (*lcore != LCORE_ID_ANY)
		kvp_eal_thread_leave();
	return NULL;
}

static void
enter_and_leave(void)
{
	struct kvp_error err = {""};
	unsigned int lcore[4];
	pthread_t thread[4];
	void *memory;

	CHECK(kvp_eal_start(32, &err) == KVP_SUCCESS);
	for (int round = 0; round < 100; round++) {
		CHECK(pthread_barrier_init(&all_in, NULL, 4) == 0);
		for (size_t i = 0; i < 4; i++) {
			lcore[i] = LCORE_ID_ANY;
			CHECK(pthread_create(&thread[i], NULL, lcore_main, &lcore[i]) == 0);
		}
		for (size_t i = 0; i < 4; i++)
			CHECK(pthread_join(thread[i], NULL) == 0);
		CHECK(pthread_barrier_destroy(&all_in) == 0);
		for (size_t i = 0; i < 4; i++) {
			CHECK(lcore[i] != LCORE_ID_ANY && lcore[i] != 0);
			for (size_t j = 0; j < i; j++)
				CHECK(lcore[i] != lcore[j]);
		}
	}
	/* The heap is there, for threads that are no lcores as well. */
	memory = rte_malloc("test", 1U << 20, 64);
	CHECK(memory != NULL);
	rte_free(memory);
}

static void
eal_thread__lcore_ids_are_own_and_come_back(void **state)
{
	(void)state;
	in_child(enter_and_leave);
}

#define CROWD (RTE_MAX_LCORE + 2)

static unsigned int crowd_failed[CROWD];

static void *
crowd_main(void *arg)
{
	unsigned int *has_failed = arg;
	struct kvp_error err = {""};
	kvp_status status = kvp_eal_thread_enter(&err);

	*has_failed = status != KVP_SUCCESS;
	if (status != KVP_SUCCESS)
		CHECK(status == KVP_NO_RESOURCE && strstr(err.text, "lcore") != NULL);
	(void)pthread_barrier_wait(&all_in);
	if (status == KVP_SUCCESS)
		kvp_eal_thread_leave();
	return NULL;
}

static void
run_out(void)
{
	static pthread_t thread[CROWD];
	struct kvp_error err = {""};
	pthread_attr_t attr;
	unsigned int failed = 0;

	CHECK(kvp_eal_start(32, &err) == KVP_SUCCESS);
	CHECK(pthread_barrier_init(&all_in, NULL, CROWD) == 0);
	CHECK(pthread_attr_init(&attr) == 0 && pthread_attr_setstacksize(&attr, 1U << 18) == 0);
	for (size_t i = 0; i < CROWD; i++)
		CHECK(pthread_create(&thread[i], &attr, crowd_main, &crowd_failed[i]) == 0);
	for (size_t i = 0; i < CROWD; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	for (size_t i = 0; i < CROWD; i++)
		failed += crowd_failed[i];
	/* One lcore is EAL's own. */
	CHECK(failed == CROWD - (RTE_MAX_LCORE - 1));
}

static void
eal_thread__says_when_lcores_run_out(void **state)
{
	(void)state;
	in_child(run_out);
}

static void
cpus_format__ranges_and_edges(void **state)
{
	cpu_set_t cpus;
	char text[KVP_CPUS_TEXT_MAX];
	char tiny[4];

	(void)state;
	CPU_ZERO(&cpus);
	kvp_cpus_format(&cpus, text, sizeof(text));
	assert_string_equal(text, "none");
	CPU_SET(0, &cpus);
	kvp_cpus_format(&cpus, text, sizeof(text));
	assert_string_equal(text, "0");
	CPU_SET(1, &cpus);
	CPU_SET(3, &cpus);
	CPU_SET(130, &cpus);
	CPU_SET(131, &cpus);
	CPU_SET(132, &cpus);
	CPU_SET(CPU_SETSIZE - 1, &cpus);
	kvp_cpus_format(&cpus, text, sizeof(text));
	assert_string_equal(text, "0-1,3,130-132,1023");
	kvp_cpus_format(&cpus, tiny, sizeof(tiny));
	assert_string_equal(tiny, "0-1");
	CPU_ZERO(&cpus);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu += 2)
		CPU_SET(cpu, &cpus);
	kvp_cpus_format(&cpus, text, sizeof(text));
	assert_true(strlen(text) < sizeof(text) - 1);
	assert_string_equal(text + strlen(text) - 5, ",1022");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cpus_format__ranges_and_edges),
		cmocka_unit_test(eal_start__leaves_host_program_alone),
		cmocka_unit_test(eal_start__its_threads_take_no_signal),
		cmocka_unit_test(eal_start__works_on_one_cpu),
		cmocka_unit_test(eal_start__failure_names_reason_each_time),
		cmocka_unit_test(eal_thread__lcore_ids_are_own_and_come_back),
		cmocka_unit_test(eal_thread__says_when_lcores_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
