/* SPDX-License-Identifier: Apache-2.0 */
#include "child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct command {
	uint32_t what;
	uint64_t arg;
	int64_t cache;
};

struct reply {
	kvp_status status;
	uint64_t value;
};

/* What the child says of itself first. */
struct hello {
	uint16_t port;
	int64_t cache;
};

pid_t
child_exec(const char *option, int out_fd, int *fd_out)
{
	char self[] = "/proc/self/exe", text[32];
	char *const argv[] = {self, text, NULL};
	int fd[2];
	pid_t pid;

	snprintf(text, sizeof(text), "%s", option);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	pid = fork();
	assert_int_not_equal(pid, -1);
	if (pid == 0) {
		/* Only what is safe after a fork of a program with threads. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(fd[1], STDIN_FILENO) < 0 ||
		    (out_fd >= 0 && dup2(out_fd, STDOUT_FILENO) < 0))
			_exit(126);
		execv(self, argv);
		_exit(127);
	}
	close(fd[1]);
	*fd_out = fd[0];
	return pid;
}

static bool
read_all(int fd, void *memory, size_t bytes)
{
	return recv(fd, memory, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool
write_all(int fd, const void *memory, size_t bytes)
{
	return send(fd, memory, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

void
child_start(struct child *child, const struct child_spec *spec)
{
	struct hello hello;

	child->pid = child_exec("--child", -1, &child->fd);
	assert_true(write_all(child->fd, spec, sizeof(*spec)));
	assert_true(read_all(child->fd, &hello, sizeof(hello)));
	child->port = hello.port;
	child->cache = hello.cache;
}

kvp_status
child_ask(struct child *child, enum child_what what, uint64_t arg, int64_t cache,
	  uint64_t *value_out)
{
	struct command command = {.what = what, .arg = arg, .cache = cache};
	struct reply reply;

	assert_true(write_all(child->fd, &command, sizeof(command)));
	assert_true(read_all(child->fd, &reply, sizeof(reply)));
	if (value_out != NULL)
		*value_out = reply.value;
	return reply.status;
}

void
child_signal(struct child *child, int number)
{
	int status;

	assert_int_equal(kill(child->pid, number), 0);
	if (number == SIGCONT)
		return;
	assert_int_equal(waitpid(child->pid, &status, number == SIGSTOP ? WUNTRACED : 0),
			 child->pid);
	if (number == SIGSTOP) {
		assert_true(WIFSTOPPED(status));
		return;
	}
	assert_true(WIFSIGNALED(status));
	close(child->fd);
}

void
child_stop(struct child *child)
{
	int status;

	close(child->fd);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static kvp_status
push_all(struct kvp_engine *engine, const struct pair_cache *cache, uint64_t cluster,
	 int64_t remote_cache)
{
	uint64_t *blocks = malloc(cache->tensor[0].num_blocks * sizeof(*blocks));
	struct pair_cache remote = {.id = remote_cache};
	struct kvp_push push;
	kvp_status status;

	if (blocks == NULL)
		return KVP_OUT_OF_MEMORY;
	for (uint64_t i = 0; i < cache->tensor[0].num_blocks; i++)
		blocks[i] = i;
	push = pair_push(cache, cluster, &remote,
			 &(struct pair_move){blocks, blocks, cache->tensor[0].num_blocks, 0, 0,
					     cache->tensors});
	push.notify = (struct kvp_notify){.enabled = 1, .tag = 5};
	status = kvp_push_blocks(engine, &push);
	free(blocks);
	return status;
}

static struct reply
wait_event(struct kvp_engine *engine, uint32_t kind)
{
	struct kvp_event event;
	struct reply reply;

	do {
		reply.status = pair_event_next(engine, PAIR_LONG_MS, &event);
	} while (reply.status == KVP_SUCCESS && event.kind != kind);
	reply.value = event.tag;
	return reply;
}

static struct reply
run(struct kvp_engine *engine, struct pair_cache *cache, const struct command *command)
{
	struct reply reply = {KVP_SUCCESS, 0};
	char address[32];

	switch ((enum child_what)command->what) {
	case CHILD_LINK:
		snprintf(address, sizeof(address), "127.0.0.1:%u", (uint16_t)command->arg);
		reply.status = kvp_link(engine, address, PAIR_LONG_MS, NULL);
		break;
	case CHILD_PUSH:
		reply.status = push_all(engine, cache, command->arg, command->cache);
		break;
	case CHILD_PUSH_FOREVER:
		if (!write_all(STDIN_FILENO, &reply, sizeof(reply)))
			exit(1);
		for (;;)
			(void)push_all(engine, cache, command->arg, command->cache);
	case CHILD_FILL:
		pair_cache_fill(cache, command->arg);
		break;
	case CHILD_DIGEST:
		reply.value = pair_digest(cache->memory, cache->bytes);
		break;
	case CHILD_EVENT:
		reply = wait_event(engine, (uint32_t)command->arg);
		break;
	}
	return reply;
}

int
child_main(void)
{
	struct kvp_engine *engine = NULL;
	struct pair_cache cache;
	struct kvp_config config;
	struct child_spec spec;
	struct command command;
	struct hello hello;

	alarm(PAIR_ALARM_S);
	if (!read_all(STDIN_FILENO, &spec, sizeof(spec)))
		return 1;
	pair_config(&config, spec.cluster, spec.transports);
	config.heartbeat_ms = spec.heartbeat_ms;
	config.dead_ms = spec.dead_ms;
	config.log_level = 0;
	snprintf(config.listen, sizeof(config.listen), "127.0.0.1:%u", spec.port);
	if (kvp_open(&config, &engine) != KVP_SUCCESS) {
		fprintf(stderr, "child: %s\n", kvp_error_message());
		return 1;
	}
	pair_cache_open(&cache, engine, &spec.shape, CHILD_SEED);
	cache.is_far = true;
	hello = (struct hello){kvp_port(engine), cache.id};
	if (!write_all(STDIN_FILENO, &hello, sizeof(hello)))
		return 1;
	while (read_all(STDIN_FILENO, &command, sizeof(command))) {
		struct reply reply = run(engine, &cache, &command);

		if (!write_all(STDIN_FILENO, &reply, sizeof(reply)))
			break;
	}
	pair_cache_close(&cache);
	kvp_close(engine);
	return 0;
}
