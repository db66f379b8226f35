/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "serve.h"

#define ANSWER_WAIT_MS 180000
#define END_WAIT_MS    10000

static const char *
name_of(const struct bench_side *side)
{
	return side->is_sender ? "sender" : "receiver";
}

int
bench_side_start(struct bench_side *side, bool is_sender)
{
	pid_t parent = getpid();
	int fds[2];

	side->is_sender = is_sender;
	/* Packets: a question is one, and cannot be torn. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
		(void)fprintf(stderr, "%s: socketpair: %s\n", BENCH_NAME, strerror(errno));
		return -1;
	}
	side->pid = fork();
	if (side->pid == 0) {
		/* The other side's socket too: it must see its end when the parent closes it. */
		(void)close_range(3, (unsigned int)fds[1] - 1, 0);
		(void)close_range((unsigned int)fds[1] + 1, ~0U, 0);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == parent ? bench_serve(is_sender, fds[1]) : 1);
	}
	(void)close(fds[1]);
	if (side->pid < 0) {
		(void)close(fds[0]);
		side->pid = 0;
		(void)fprintf(stderr, "%s: fork: %s\n", BENCH_NAME, strerror(errno));
		return -1;
	}
	side->fd = fds[0];
	return 0;
}

int
bench_side_ask(struct bench_side *side, const struct bench_ask *ask,
	       struct bench_answer *answer_out)
{
	struct pollfd pfd = {.fd = side->fd, .events = POLLIN};
	ssize_t got = -1;

	if (send(side->fd, ask, sizeof(*ask), MSG_NOSIGNAL) == (ssize_t)sizeof(*ask) &&
	    poll(&pfd, 1, ANSWER_WAIT_MS) > 0)
		got = recv(side->fd, answer_out, sizeof(*answer_out), 0);
	if (got != (ssize_t)sizeof(*answer_out)) {
		(void)fprintf(stderr, "%s: the %s %s\n", BENCH_NAME, name_of(side),
			      got == 0 ? "process ended" : "process does not answer");
		return -1;
	}
	if (answer_out->rc != 0) {
		(void)fprintf(stderr, "%s: %s: %s\n", BENCH_NAME, name_of(side), answer_out->text);
		return -1;
	}
	return 0;
}

int
bench_side_end(struct bench_side *side)
{
	int status = 0;

	if (side->pid == 0)
		return 0;
	(void)close(side->fd); /* the word to end */
	for (int waited = 0; waitpid(side->pid, &status, WNOHANG) == 0; waited++) {
		if (waited == END_WAIT_MS) {
			(void)fprintf(stderr, "%s: the %s does not end; killed\n", BENCH_NAME,
				      name_of(side));
			(void)kill(side->pid, SIGKILL);
		}
		(void)poll(NULL, 0, 1);
	}
	side->pid = 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}
