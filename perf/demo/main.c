/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpush-demo - a prompt and a decoder process on this host
 *
 * The decoder is forked before any engine exists. It lives as long as the talk:
 * whatever ends the prompt closes that, and a killed prompt also sends SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "decoder.h"
#include "limit.h"
#include "options.h"
#include "prompt.h"
#include "report.h"
#include "start.h"
#include "trace.h"
#include "w1.h"

#define EXIT_STOPPED  130 /* as a shell reports SIGINT */
#define CHILD_WAIT_NS 15000000000U
#define CHILD_ALARM_S 15U
#define W1_MEMORY_MIN (3 * DEMO_W1_CACHE_BYTES + (256U << 20)) /* two caches, the loop's, room */

volatile sig_atomic_t demo_stop;

static void
on_stop(int signal_number)
{
	(void)signal_number;
	demo_stop = 1;
}

/* In the decoder: stop, and do not survive what does not stop. */
static void
on_stop_decoder(int signal_number)
{
	(void)signal_number;
	demo_stop = 1;
	(void)alarm(CHILD_ALARM_S);
}

static void
handle(int signal_number, void (*handler)(int), unsigned int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = (int)flags};

	(void)sigemptyset(&action.sa_mask);
	(void)sigaction(signal_number, &action, NULL);
}

/* Ctrl-C goes to both processes of the terminal; the prompt alone decides what it means. */
static int
run_decoder(const struct demo_options *options, int fd, pid_t parent)
{
	handle(SIGINT, SIG_IGN, 0);
	handle(SIGTERM, on_stop_decoder, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		return EXIT_FAILURE;
	return demo_decoder_main(options, fd);
}

/* Returns whether the decoder ended well; kills it when it does not end. */
static bool
wait_decoder(pid_t child)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	uint64_t end_ns = demo_now_ns() + CHILD_WAIT_NS;
	int status = 0;
	pid_t pid;

	while ((pid = waitpid(child, &status, WNOHANG)) == 0 && demo_now_ns() < end_ns)
		(void)nanosleep(&pause, NULL);
	if (pid == 0) {
		(void)fprintf(stderr, "%s: the decoder does not end; killed\n", DEMO_NAME);
		(void)kill(child, SIGKILL);
		pid = waitpid(child, &status, 0);
	}
	return pid == child && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

static enum demo_end
run_w1(const struct demo_options *options, struct demo_prompt *prompt, struct demo_talk *talk,
       struct demo_w1_result *w1)
{
	uint64_t available = limit_memory_available();

	*w1 = (struct demo_w1_result){0};
	if (!options->has_w1) {
		(void)snprintf(w1->why, sizeof(w1->why), "--skip-w1");
		return DEMO_OK;
	}
	if (available < W1_MEMORY_MIN) {
		(void)snprintf(w1->why, sizeof(w1->why), "needs %llu MiB, %llu are available",
			       (unsigned long long)(W1_MEMORY_MIN >> 20),
			       (unsigned long long)(available >> 20));
		return DEMO_OK;
	}
	return demo_w1_run(options, demo_prompt_engine(prompt), talk, w1);
}

static enum demo_end
run_prompt(const struct demo_options *options, const struct demo_trace *trace,
	   struct demo_talk *talk, struct demo_replay *replay, struct demo_w1_result *w1)
{
	struct demo_prompt *prompt;
	enum demo_end end = demo_prompt_open(options, trace, talk, &prompt);

	if (end == DEMO_OK)
		end = demo_prompt_replay(prompt, replay);
	if (end == DEMO_OK)
		end = run_w1(options, prompt, talk, w1);
	demo_prompt_close(prompt);
	return end;
}

static int
report(const struct demo_options *options, const struct demo_replay *replay,
       const struct demo_w1_result *w1)
{
	int rc = 0;

	if (options->is_json)
		rc = demo_report_json(stdout, options, replay, w1);
	else
		demo_report_table(stdout, options, replay, w1);
	if (rc != 0 || fflush(stdout) != 0) {
		(void)fprintf(stderr, "%s: the report could not be written\n", DEMO_NAME);
		return EXIT_FAILURE;
	}
	return demo_report_is_right(replay, w1) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int
run(const struct demo_options *options, const struct demo_trace *trace)
{
	static struct demo_replay replay;
	struct demo_w1_result w1;
	struct demo_talk talk;
	pid_t parent = getpid();
	enum demo_end end;
	bool is_well;
	pid_t child;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return (int)demo_system_failed("prompt", "socketpair", -errno);
	child = fork();
	if (child < 0)
		return (int)demo_system_failed("prompt", "fork", -errno);
	if (child == 0) {
		(void)close(fds[0]);
		return run_decoder(options, fds[1], parent);
	}
	(void)close(fds[1]);
	handle(SIGINT, on_stop, SA_RESETHAND); /* a second one ends the prompt at once */
	handle(SIGTERM, on_stop, SA_RESETHAND);
	demo_talk_init(&talk, fds[0]);
	end = run_prompt(options, trace, &talk, &replay, &w1);
	demo_talk_fini(&talk);
	is_well = wait_decoder(child);
	if (end == DEMO_STOPPED) {
		(void)fprintf(stderr, "%s: stopped\n", DEMO_NAME);
		return EXIT_STOPPED;
	}
	if (end == DEMO_OK && !is_well)
		(void)fprintf(stderr, "%s: the decoder ended with an error\n", DEMO_NAME);
	if (end != DEMO_OK || !is_well)
		return EXIT_FAILURE;
	return report(options, &replay, &w1);
}

int
main(int argc, char **argv)
{
	struct demo_options options;
	struct demo_trace trace;
	char error[DEMO_TEXT_MAX];
	int rc;

	demo_options_parse(argc, argv, &options);
	if (options.trace_path != NULL)
		rc = demo_trace_load(&trace, options.trace_path, options.requests, error);
	else
		rc = demo_trace_generate(&trace, options.seed, options.requests, error);
	if (rc != 0) {
		(void)fprintf(stderr, "%s: %s\n", DEMO_NAME, error);
		return EXIT_FAILURE;
	}
	(void)fprintf(stderr, "%s: %s, %zu requests (%s), over %s\n", DEMO_NAME,
		      options.model->name, trace.count,
		      options.trace_path != NULL ? options.trace_path : "generated",
		      options.transport);
	rc = run(&options, &trace);
	demo_trace_fini(&trace);
	return rc;
}
