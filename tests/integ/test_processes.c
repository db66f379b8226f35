/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes: bytes that cross, peers that die, stop and come back, and what
 * an engine does to the program that it lives in.
 */
#include "child.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define BEAT_MS         PAIR_SLOW(50U)
#define DEAD_MS         PAIR_SLOW(500U)
#define MARGIN_MS       PAIR_SLOW(1000U) /* for a busy machine, on top of what is promised */
#define STOPPED_DEAD_MS 600000U          /* a stopped one is not to be lost */
#define BLOCKS          64U
#define TENSORS         8U
#define IN_FLIGHT       16U

static const struct pair_shape large = {
	.tensors = TENSORS, .blocks = BLOCKS, .block_bytes = 32768, .is_shareable = true};

/* This process's engine and cache, and a child whose cache has the same shape. */
struct bench {
	struct kvp_engine *engine;
	struct pair_cache cache;
	struct pair_cache model; /* of the child's cache */
	struct child_spec spec;
	struct child child;
	uint64_t blocks[BLOCKS];
	struct pair_move all;
};

static void
bench_link(struct bench *bench)
{
	struct kvp_event event;
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", bench->child.port);
	assert_ok(kvp_link(bench->engine, address, PAIR_LONG_MS, NULL));
	pair_event_is(bench->engine, KVP_EVENT_PEER_LINKED, PAIR_B, &event);
}

static void
bench_open(struct bench *bench, const char *transport, const struct pair_shape *shape,
	   uint32_t beat_ms, uint32_t dead_ms)
{
	struct kvp_config config;

	memset(bench, 0, sizeof(*bench));
	pair_config(&config, PAIR_A, transport);
	config.heartbeat_ms = beat_ms;
	config.dead_ms = dead_ms;
	config.log_level = 0;
	assert_ok(kvp_open(&config, &bench->engine));
	pair_cache_open(&bench->cache, bench->engine, shape, 1);
	bench->cache.is_far = true;
	pair_cache_open(&bench->model, NULL, shape, CHILD_SEED);
	bench->spec = (struct child_spec){
		.cluster = PAIR_B, .heartbeat_ms = beat_ms, .dead_ms = dead_ms, .shape = *shape};
	snprintf(bench->spec.transports, sizeof(bench->spec.transports), "%s", transport);
	child_start(&bench->child, &bench->spec);
	for (uint64_t i = 0; i < BLOCKS; i++)
		bench->blocks[i] = i;
	bench->all = (struct pair_move){bench->blocks, bench->blocks, shape->blocks, 0, 0,
					shape->tensors};
	bench_link(bench);
}

static void
bench_close(struct bench *bench)
{
	pair_cache_close(&bench->model);
	pair_cache_close(&bench->cache);
	kvp_close(bench->engine);
}

/* A push of everything to the child. */
static struct kvp_push
push_of(const struct bench *bench)
{
	struct pair_cache remote = {.id = bench->child.cache};

	return pair_push(&bench->cache, PAIR_B, &remote, &bench->all);
}

static void
child_has(struct bench *bench, const struct pair_cache *model)
{
	uint64_t digest = 0;

	assert_ok(child_ask(&bench->child, CHILD_DIGEST, 0, 0, &digest));
	assert_true(digest == pair_digest(model->model, model->bytes));
}

static void
push__between_processes(void **state)
{
	for (uint32_t i = 0; i < 2; i++) {
		struct pair_shape shape = {.tensors = 8,
					   .blocks = 60,
					   .block_bytes = 5000,
					   .layout = PAIR_PADDED,
					   .pad_bytes = 24,
					   .is_shareable = i == 0};
		struct pair_cache remote;
		struct kvp_event event;
		struct kvp_push push;
		struct kvp_pull pull;
		struct bench bench;
		uint64_t tag = 0;

		bench_open(&bench, *state, &shape, BEAT_MS, DEAD_MS);
		push = push_of(&bench);
		push.notify = (struct kvp_notify){.enabled = 1, .tag = 4711};
		assert_ok(kvp_push_blocks(bench.engine, &push));
		assert_ok(child_ask(&bench.child, CHILD_EVENT, KVP_EVENT_PUSH_ARRIVED, 0, &tag));
		assert_true(tag == 4711);
		pair_model_move(&bench.model, &bench.cache, &bench.all);
		child_has(&bench, &bench.model);

		/* It pushes something else back. */
		assert_ok(child_ask(&bench.child, CHILD_FILL, 3, 0, NULL));
		pair_cache_fill(&bench.model, 3);
		assert_ok(child_ask(&bench.child, CHILD_PUSH, PAIR_A, bench.cache.id, NULL));
		pair_event_is(bench.engine, KVP_EVENT_PUSH_ARRIVED, PAIR_B, &event);
		assert_int_equal(event.tag, 5);
		pair_model_move(&bench.cache, &bench.model, &bench.all);
		pair_cache_check(&bench.cache, "pushed by the child");

		/* And is pulled from. */
		assert_ok(child_ask(&bench.child, CHILD_FILL, 4, 0, NULL));
		pair_cache_fill(&bench.model, 4);
		remote = (struct pair_cache){.id = bench.child.cache};
		pull = pair_pull(PAIR_B, &remote, &bench.cache, &bench.all);
		assert_ok(kvp_pull_blocks(bench.engine, &pull));
		pair_model_move(&bench.cache, &bench.model, &bench.all);
		pair_cache_check(&bench.cache, "pulled from the child");
		child_has(&bench, &bench.model);
		child_stop(&bench.child);
		pair_event_is(bench.engine, KVP_EVENT_CACHE_GONE, PAIR_B, &event);
		pair_event_is(bench.engine, KVP_EVENT_PEER_UNLINKED, PAIR_B, &event);
		bench_close(&bench);
	}
}

static bool
is_end_of_lost_peer(kvp_status status)
{
	return status == KVP_SUCCESS || status == KVP_PEER_LOST;
}

static void
lost_within(struct bench *bench, uint64_t since_ms, uint32_t limit_ms)
{
	struct kvp_event event;

	pair_event_is(bench->engine, KVP_EVENT_PEER_LOST, PAIR_B, &event);
	assert_int_equal(event.status, KVP_PEER_LOST);
	assert_true(pair_now_ms() - since_ms <= limit_ms);
}

static void
killed_receiver__ends_every_push(void **state)
{
	struct kvp_transfer *transfer[IN_FLIGHT];
	struct bench bench;
	struct kvp_push push;
	uint64_t start_ms;
	uint32_t lost = 0;
	bool is_tcp = strcmp(*state, pair_tcp) == 0;

	bench_open(&bench, *state, &large, BEAT_MS, DEAD_MS);
	push = push_of(&bench);
	/* Stopped first, so that over tcp none can end well. */
	if (is_tcp)
		child_signal(&bench.child, SIGSTOP);
	for (uint32_t i = 0; i < IN_FLIGHT; i++)
		assert_ok(kvp_push_submit(bench.engine, &push, &transfer[i]));
	start_ms = pair_now_ms();
	child_signal(&bench.child, SIGKILL);
	for (uint32_t i = 0; i < IN_FLIGHT; i++) {
		kvp_status status = kvp_transfer_wait(transfer[i], PAIR_LONG_MS);

		assert_true(is_end_of_lost_peer(status));
		lost += status == KVP_PEER_LOST;
		kvp_transfer_free(transfer[i]);
	}
	assert_true(pair_now_ms() - start_ms <= DEAD_MS + MARGIN_MS);
	if (is_tcp)
		assert_int_equal(lost, IN_FLIGHT);
	lost_within(&bench, start_ms, DEAD_MS + MARGIN_MS);
	assert_status(KVP_NOT_YET_LINK, kvp_push_blocks(bench.engine, &push));
	pair_cache_check(&bench.cache, "source");
	bench_close(&bench);
}

/* The event says that the peer is lost: from then on nothing of its pushes lands. */
static void
killed_sender__is_lost_and_writes_no_more(void **state)
{
	struct bench bench;
	uint64_t start_ms;

	bench_open(&bench, *state, &large, BEAT_MS, DEAD_MS);
	for (uint32_t round = 0; round < 2; round++) {
		struct kvp_event event;

		assert_ok(
			child_ask(&bench.child, CHILD_PUSH_FOREVER, PAIR_A, bench.cache.id, NULL));
		pair_event_is(bench.engine, KVP_EVENT_PUSH_ARRIVED, PAIR_B, &event);
		child_signal(&bench.child, SIGKILL);
		start_ms = pair_now_ms();
		do {
			assert_ok(pair_event_next(bench.engine, PAIR_LONG_MS, &event));
		} while (event.kind == KVP_EVENT_PUSH_ARRIVED);
		assert_int_equal(event.kind, KVP_EVENT_PEER_LOST);
		assert_int_equal(event.status, KVP_PEER_LOST);
		assert_true(pair_now_ms() - start_ms <= DEAD_MS + MARGIN_MS);
		pair_cache_fill(&bench.cache, round);
		/* Bytes that a lane still had would be there by the time a new link works. */
		child_start(&bench.child, &bench.spec);
		bench_link(&bench);
		pair_cache_check(&bench.cache, "canary");
	}
	child_stop(&bench.child);
	bench_close(&bench);
}

static void
stopped_peer__is_lost_by_silence(void **state)
{
	struct bench bench;
	uint64_t start_ms;

	bench_open(&bench, *state, &large, BEAT_MS, DEAD_MS);
	child_signal(&bench.child, SIGSTOP);
	start_ms = pair_now_ms();
	lost_within(&bench, start_ms, DEAD_MS + BEAT_MS + MARGIN_MS);
	assert_true(pair_now_ms() - start_ms >= DEAD_MS - 2 * BEAT_MS);
	child_signal(&bench.child, SIGKILL);
	bench_close(&bench);
}

static void
stopped_receiver__times_the_push_out(void **state)
{
	struct kvp_event event;
	struct kvp_push push;
	struct bench bench;
	uint64_t start_ms, took_ms, block = 5;

	bench_open(&bench, *state, &large, 1000, STOPPED_DEAD_MS);
	for (uint32_t round = 0; round < 3; round++) {
		push = push_of(&bench);
		push.timeout_ms = PAIR_SLOW(300);
		child_signal(&bench.child, SIGSTOP);
		start_ms = pair_now_ms();
		assert_refused(KVP_TIMEOUT, "timeout_ms", kvp_push_blocks(bench.engine, &push));
		took_ms = pair_now_ms() - start_ms;
		assert_in_range(took_ms, PAIR_SLOW(300) - 1, PAIR_SLOW(300 + 250));

		/* "Nothing moves any more", though the sockets were full of it. */
		child_signal(&bench.child, SIGCONT);
		assert_ok(child_ask(&bench.child, CHILD_FILL, round + 10, 0, NULL));
		pair_cache_fill(&bench.model, round + 10);
		kvp_unlink(bench.engine, PAIR_B, PAIR_SLOW(5000), 0);
		while (kvp_event_poll(bench.engine, &event) == KVP_SUCCESS)
			;
		bench_link(&bench);
		child_has(&bench, &bench.model);
		push = push_of(&bench);
		push.src_blocks = push.dst_blocks = &block;
		push.count = 1;
		assert_ok(kvp_push_blocks(bench.engine, &push));
		pair_model_move(&bench.model, &bench.cache,
				&(struct pair_move){&block, &block, 1, 0, 0, TENSORS});
		child_has(&bench, &bench.model);
	}
	child_stop(&bench.child);
	bench_close(&bench);
}

/* Devices move the bytes: the receiver's processor is not asked, also for the notification. */
static void
stopped_receiver__is_written_to(void **state)
{
	struct kvp_push push;
	struct bench bench;
	uint64_t tag = 0;

	bench_open(&bench, *state, &large, 1000, STOPPED_DEAD_MS);
	for (uint64_t round = 0; round < 3; round++) {
		pair_cache_fill(&bench.cache, round + 10);
		push = push_of(&bench);
		child_signal(&bench.child, SIGSTOP);
		assert_ok(kvp_push_blocks(bench.engine, &push));
		push.notify = (struct kvp_notify){.enabled = 1, .tag = round};
		assert_ok(kvp_push_blocks(bench.engine, &push));
		child_signal(&bench.child, SIGCONT);
		assert_ok(child_ask(&bench.child, CHILD_EVENT, KVP_EVENT_PUSH_ARRIVED, 0, &tag));
		assert_true(tag == round);
		pair_model_move(&bench.model, &bench.cache, &bench.all);
		child_has(&bench, &bench.model);
	}
	child_stop(&bench.child);
	bench_close(&bench);
}

static void
restarted_peer__links_again(void **state)
{
	struct kvp_event event;
	struct kvp_push push;
	struct bench bench;
	uint64_t start_ms;

	bench_open(&bench, *state, &large, BEAT_MS, DEAD_MS);
	for (uint32_t round = 0; round < 2; round++) {
		bench.spec.port = bench.child.port;
		child_signal(&bench.child, SIGKILL);
		start_ms = pair_now_ms();
		lost_within(&bench, start_ms, DEAD_MS + MARGIN_MS);
		child_start(&bench.child, &bench.spec);
		assert_int_equal(bench.child.port, bench.spec.port);
		bench_link(&bench);
		push = push_of(&bench);
		assert_ok(kvp_push_blocks(bench.engine, &push));
		pair_cache_fill(&bench.model, CHILD_SEED);
		pair_model_move(&bench.model, &bench.cache, &bench.all);
		child_has(&bench, &bench.model);
	}

	/* A successor that links by itself, before the loss is noticed or after. */
	bench.spec.port = bench.child.port;
	child_signal(&bench.child, SIGKILL);
	child_start(&bench.child, &bench.spec);
	assert_ok(child_ask(&bench.child, CHILD_LINK, kvp_port(bench.engine), 0, NULL));
	pair_event_is(bench.engine, KVP_EVENT_PEER_LOST, PAIR_B, &event);
	assert_true(event.status == KVP_PEER_LOST || event.status == KVP_PEER_RESTARTED);
	pair_event_is(bench.engine, KVP_EVENT_PEER_LINKED, PAIR_B, &event);
	push = push_of(&bench);
	assert_ok(kvp_push_blocks(bench.engine, &push));
	pair_cache_fill(&bench.model, CHILD_SEED);
	pair_model_move(&bench.model, &bench.cache, &bench.all);
	child_has(&bench, &bench.model);
	child_stop(&bench.child);
	bench_close(&bench);
}

static void
host_program__spawns_while_pushing(void **state)
{
	char path[] = "/bin/true";
	char *const argv[] = {path, NULL}, *const env[] = {NULL};
	struct bench bench;
	struct kvp_push push;

	bench_open(&bench, *state, &large, BEAT_MS, PAIR_SLOW(3000));
	for (uint64_t round = 0; round < 6; round++) {
		struct kvp_transfer *transfer;
		int status = -1;
		pid_t pid;

		pair_cache_fill(&bench.cache, round);
		push = push_of(&bench);
		assert_ok(kvp_push_submit(bench.engine, &push, &transfer));
		assert_int_equal(posix_spawn(&pid, path, NULL, NULL, argv, env), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		assert_ok(kvp_transfer_wait(transfer, UINT32_MAX));
		kvp_transfer_free(transfer);
		pair_model_move(&bench.model, &bench.cache, &bench.all);
		child_has(&bench, &bench.model);
	}
	child_stop(&bench.child);
	bench_close(&bench);
}

/* Entries of a folder; 0 when it is not there. */
static uint32_t
entries(const char *path)
{
	DIR *folder = opendir(path);
	uint32_t count = 0;

	if (folder == NULL)
		return 0;
	while (readdir(folder) != NULL)
		count++;
	closedir(folder);
	return count;
}

static uint32_t
maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	uint32_t lines = 0;
	int c;

	assert_non_null(file);
	while ((c = getc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

/* Wait until `path` has at most `count` entries: what is ended may still be listed for a moment. */
static bool
settles(const char *path, uint32_t count)
{
	uint64_t end_ms = pair_now_ms() + PAIR_SLOW(3000);

	while (entries(path) > count) {
		if (pair_now_ms() > end_ms)
			return false;
		pair_pause();
	}
	return true;
}

/* A sanitizer's allocator maps more as it goes; the plain build is the one that counts. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MAPS_SLACK 1000U
#else
#define MAPS_SLACK 8U
#endif

static void
open_close__leaves_nothing(void **state)
{
	const struct pair_shape small = {
		.tensors = 4, .blocks = 8, .block_bytes = 8192, .is_shareable = true};
	static const uint64_t blocks[] = {0, 1, 2, 3};
	uint32_t fds = 0, threads = 0, lines = 0;

	for (uint32_t round = 0; round < 24; round++) {
		struct pair_cache src, dst;
		struct kvp_push push;
		struct kvp_event event;
		void *pair = *state;
		struct pair *both;
		uint32_t linked;

		pair_setup(&pair);
		both = pair;
		linked = entries("/proc/self/fd");
		pair_cache_open(&src, both->a, &small, round);
		pair_cache_open(&dst, both->b, &small, round);
		push = pair_push(&src, PAIR_B, &dst,
				 &(struct pair_move){blocks, blocks, 4, 0, 0, 4});
		assert_ok(kvp_push_blocks(both->a, &push));
		pair_cache_close(&src);
		pair_cache_close(&dst);
		/* A link that goes and comes costs nothing either. */
		assert_ok(kvp_unlink(both->a, PAIR_B, PAIR_LONG_MS, 0));
		do {
			assert_ok(pair_event_next(both->b, PAIR_LONG_MS, &event));
		} while (event.kind != KVP_EVENT_PEER_UNLINKED);
		while (kvp_event_poll(both->a, &event) == KVP_SUCCESS)
			;
		pair_link(both->a, PAIR_A, both->b, PAIR_B);
		assert_true(settles("/proc/self/fd", linked));
		pair_teardown(&pair);
		if (round < 4) { /* stacks and heaps that the C library keeps */
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
			lines = maps();
			continue;
		}
		assert_true(settles("/proc/self/fd", fds));
		assert_true(settles("/proc/self/task", threads));
		assert_in_range(maps(), 0, lines + MAPS_SLACK);
	}
}

/* Files of an engine are not given to programs that the host starts. */
static void
open__marks_its_files_close_on_exec(void **state)
{
	struct kvp_engine *first = NULL;
	struct kvp_config config;
	bool was_open[1024];
	void *pair = *state;

	pair_config(&config, 7, *state);
	assert_ok(kvp_open(&config, &first)); /* EAL's own files are there from now on */
	for (int fd = 0; fd < 1024; fd++)
		was_open[fd] = fcntl(fd, F_GETFD) >= 0;
	pair_setup(&pair);
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (!was_open[fd] && flags >= 0)
			assert_true(flags & FD_CLOEXEC);
	}
	pair_teardown(&pair);
	kvp_close(first);
}

/* All threads but this one block what the host program may handle. */
static bool
threads_block_signals(void)
{
	DIR *folder = opendir("/proc/self/task");
	struct dirent *entry;
	bool is_right = folder != NULL;

	while (is_right && (entry = readdir(folder)) != NULL) {
		unsigned long long blocked = 0;
		char path[300], line[256];
		FILE *file;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = fopen(path, "r");
		if (file == NULL)
			continue; /* it ended meanwhile */
		while (fgets(line, sizeof(line), file) != NULL)
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(file);
		is_right = (blocked >> (SIGTERM - 1) & 1) && (blocked >> (SIGINT - 1) & 1) &&
			   (blocked >> (SIGUSR1 - 1) & 1) && (blocked >> (SIGCHLD - 1) & 1);
		if (!is_right)
			fprintf(stderr, "thread %s blocks %llx\n", entry->d_name, blocked);
	}
	if (folder != NULL)
		closedir(folder);
	return is_right;
}

/* The first engine of a process must not be noticed by it. The exit status says what was. */
static int
quiet_main(void)
{
	struct sigaction action[32][2];
	cpu_set_t cpus, cpus_after;
	sigset_t mask, mask_after;
	struct kvp_engine *engine = NULL;
	struct kvp_config config;
	int policy = sched_getscheduler(0);

	alarm(PAIR_ALARM_S);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int i = 1; i < 32; i++)
		sigaction(i, NULL, &action[i][0]);
	pair_config(&config, 1, pair_transports());
	if (kvp_open(&config, &engine) != KVP_SUCCESS)
		return 2;
	if (!threads_block_signals())
		return 3;
	for (uint32_t round = 0; round < 2; round++) {
		sched_getaffinity(0, sizeof(cpus_after), &cpus_after);
		if (!CPU_EQUAL(&cpus, &cpus_after) || sched_getscheduler(0) != policy)
			return 4;
		sigprocmask(SIG_SETMASK, NULL, &mask_after);
		for (int i = 1; i < 32; i++) {
			sigaction(i, NULL, &action[i][1]);
			if (sigismember(&mask, i) != sigismember(&mask_after, i))
				return 5;
			if (action[i][0].sa_handler != action[i][1].sa_handler)
				return 6;
		}
		kvp_close(engine);
		engine = NULL;
	}
	return 0;
}

static void
open__is_not_noticed_by_the_program(void **state)
{
	int out[2], fd, status = -1;
	char text[512];
	ssize_t bytes;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = child_exec("--quiet", out[1], &fd);
	close(out[1]);
	bytes = read(out[0], text, sizeof(text) - 1);
	close(out[0]);
	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	if (bytes > 0)
		print_error("on stdout: %.*s\n", (int)bytes, text);
	assert_int_equal(bytes, 0);
}

/* What engines could leave behind lives here; our own, empty ones when we may have them. */
static const char *const shared_folders[] = {"/dev/shm", "/run"};
static bool are_ours;

static void
take_shared_folders(void)
{
	are_ours = unshare(CLONE_NEWNS) == 0 &&
		   mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	for (uint32_t i = 0; are_ours && i < 2; i++)
		are_ours = mount("none", shared_folders[i], "tmpfs", 0, NULL) == 0;
}

/* Also after all the killing. */
static void
shared_folders__are_left_alone(void **state)
{
	(void)state;
	if (!are_ours)
		skip(); /* needs root: others use them too */
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(entries(shared_folders[i]), 2); /* . and .. */
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		PAIR_BOTH(push__between_processes),
		PAIR_BOTH(killed_receiver__ends_every_push),
		PAIR_BOTH(killed_sender__is_lost_and_writes_no_more),
		PAIR_BOTH(stopped_peer__is_lost_by_silence),
		{"stopped_receiver__times_the_push_out over tcp",
		 stopped_receiver__times_the_push_out, NULL, NULL, pair_tcp},
		{"stopped_receiver__is_written_to over verbs", stopped_receiver__is_written_to,
		 NULL, NULL, pair_verbs},
		PAIR_BOTH(restarted_peer__links_again),
		PAIR_BOTH(host_program__spawns_while_pushing),
		PAIR_BOTH(open_close__leaves_nothing),
		PAIR_BOTH(open__marks_its_files_close_on_exec),
		cmocka_unit_test(open__is_not_noticed_by_the_program),
		cmocka_unit_test(shared_folders__are_left_alone),
	};

	if (argc == 2 && strcmp(argv[1], "--child") == 0)
		return child_main();
	if (argc == 2 && strcmp(argv[1], "--quiet") == 0)
		return quiet_main();
	take_shared_folders();
	return PAIR_RUN(tests);
}
