/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "demo/clock.h"
#include "side.h"

#define OUTPUT_MAX     16384U
#define WORDS          32U
#define ITERATIONS_MIN 5U
#define ITERATIONS_MAX 2000000000U
#define LISTEN_WAIT_MS 10000
#define END_WAIT_MS    120000
#define TRIES          5U
#define FREQUENCY_NS   100000000U
#define MIB            1048576.0

struct program {
	pid_t pid;
	int fd; /* what it prints */
	size_t bytes;
	char text[OUTPUT_MAX];
	bool has_ended;
	int status;
	uint64_t cpu_ns;
};

static int
system_failed(const char *what)
{
	(void)fprintf(stderr, "%s: %s: %s\n", BENCH_NAME, what, strerror(errno));
	return -1;
}

/* --- the frequency ---------------------------------------------------------------- */

static bool
says_frequency(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[4096];
	bool found = false;

	while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
		found = strncmp(line, "cpu MHz", 7) == 0;
	if (file != NULL)
		(void)fclose(file);
	return found;
}

static double
frequency_mhz(void)
{
	uint64_t start_ns = demo_now_ns(), end_ns;
	uint64_t start = __builtin_ia32_rdtsc(), cycles;

	do {
		end_ns = demo_now_ns();
		cycles = __builtin_ia32_rdtsc() - start;
	} while (end_ns - start_ns < FREQUENCY_NS);
	return (double)cycles * 1e3 / (double)(end_ns - start_ns);
}

/* A file that says it, on /proc/cpuinfo; for this process and what it executes only. */
static int
mount_frequency(double mhz)
{
	char path[] = "/tmp/" BENCH_NAME "-XXXXXX", text[64];
	int fd = mkstemp(path), rc = -1;
	int bytes = snprintf(text, sizeof(text), "cpu MHz : %.6f\n", mhz);

	if (fd < 0)
		return -1;
	if (write(fd, text, (size_t)bytes) == bytes && unshare(CLONE_NEWNS) == 0 &&
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
		rc = mount(path, "/proc/cpuinfo", NULL, MS_BIND, NULL);
	(void)close(fd);
	(void)unlink(path);
	return rc;
}

/* --- one process ------------------------------------------------------------------- */

static void
become(char *const *words, int out, double mhz)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	if (mhz > 0 && mount_frequency(mhz) != 0)
		(void)dprintf(2, "cannot tell the frequency on /proc/cpuinfo: %s\n",
			      strerror(errno));
	(void)execvp(words[0], words);
	(void)dprintf(2, "%s: %s\n", words[0], strerror(errno));
	_exit(127);
}

static int
start(struct program *program, char *const *words, double mhz)
{
	int fds[2];

	*program = (struct program){.fd = -1};
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
		return system_failed("pipe");
	program->pid = fork();
	if (program->pid == 0)
		become(words, fds[1], mhz);
	(void)close(fds[1]);
	program->fd = fds[0];
	return program->pid > 0 ? 0 : system_failed("fork");
}

static void
read_some(struct program *program)
{
	char drop[512];
	ssize_t got;

	for (;;) {
		bool is_full = program->bytes == sizeof(program->text) - 1;

		got = is_full ? read(program->fd, drop, sizeof(drop))
			      : read(program->fd, program->text + program->bytes,
				     sizeof(program->text) - 1 - program->bytes);
		if (got <= 0)
			return;
		program->bytes += is_full ? 0 : (size_t)got;
	}
}

/* Takes what it printed, and whether it ended. */
static void
look_at(struct program *program)
{
	struct rusage usage;

	if (program->has_ended || program->pid <= 0)
		return;
	program->has_ended = wait4(program->pid, &program->status, WNOHANG, &usage) == program->pid;
	read_some(program);
	if (!program->has_ended)
		return;
	program->cpu_ns =
		((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000U +
		((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000U;
}

static void
finish(struct program *program)
{
	if (program->pid > 0 && !program->has_ended) {
		(void)kill(program->pid, SIGKILL);
		(void)waitpid(program->pid, &program->status, 0);
	}
	if (program->fd >= 0)
		(void)close(program->fd);
	program->pid = 0;
	program->fd = -1;
}

static bool
ended_well(const struct program *program)
{
	return program->has_ended && WIFEXITED(program->status) &&
	       WEXITSTATUS(program->status) == 0;
}

/* --- both ------------------------------------------------------------------------------ */

/* A connection would take the place of the client's. */
static bool
is_listening(uint32_t port)
{
	static const char *const files[] = {"/proc/net/tcp", "/proc/net/tcp6"};
	bool found = false;

	for (size_t i = 0; i < 2; i++) {
		FILE *file = fopen(files[i], "re");
		char line[512], address[64];
		unsigned int local, state;

		while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
			found = sscanf(line, " %*d: %63[0-9A-F]:%x %*[0-9A-F]:%*x %x", address,
				       &local, &state) == 3 &&
				local == port && state == 0x0A;
		if (file != NULL)
			(void)fclose(file);
	}
	return found;
}

static int
told(const struct program *server, const struct program *client, const char *what)
{
	(void)fprintf(stderr, "%s: %s. Server:\n%s\nClient:\n%s\n", BENCH_NAME, what, server->text,
		      client->text);
	return -1;
}

static int
run_both(struct program *server, struct program *client, char *const *server_words,
	 char *const *client_words, uint32_t port)
{
	double mhz = says_frequency() ? 0 : frequency_mhz();

	*client = (struct program){.fd = -1};
	if (start(server, server_words, mhz) != 0)
		return -1;
	for (int waited = 0; !server->has_ended && !is_listening(port); waited++) {
		if (waited == LISTEN_WAIT_MS)
			return told(server, client, "the server of ib_write_bw does not listen");
		(void)poll(NULL, 0, 1);
		look_at(server);
	}
	if (!server->has_ended && start(client, client_words, mhz) != 0)
		return -1;
	/* Sleeps long: this process must not take the processor from those it measures. */
	for (int waited = 0; !server->has_ended || !client->has_ended; waited += 20) {
		if (waited >= END_WAIT_MS)
			return told(server, client, "ib_write_bw does not end");
		(void)poll(NULL, 0, 20);
		look_at(server);
		look_at(client);
		if (server->has_ended && client->pid <= 0)
			break;
	}
	if (!ended_well(server) || !ended_well(client))
		return told(server, client, "ib_write_bw failed");
	return 0;
}

/* The line " #bytes #iterations BW peak BW average MsgRate". */
static int
parse(const char *text, uint64_t size, uint64_t iterations, double *mib_per_s_out)
{
	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		uint64_t bytes, count;
		double peak, average, rate;

		line += *line == '\n';
		if (sscanf(line, " %" SCNu64 " %" SCNu64 " %lf %lf %lf", &bytes, &count, &peak,
			   &average, &rate) != 5)
			continue;
		if (bytes != size || count != iterations || !(average > 0 && average < 1e9))
			return -1;
		*mib_per_s_out = average;
		return 0;
	}
	return -1;
}

int
bench_reference_look(const struct bench_reference *reference)
{
	char *words[] = {(char *)(uintptr_t)reference->program, (char *)(uintptr_t) "--version",
			 NULL};
	struct program program;
	int rc = start(&program, words, 0);

	for (int waited = 0; rc == 0 && !program.has_ended && waited < LISTEN_WAIT_MS; waited++) {
		(void)poll(NULL, 0, 1);
		look_at(&program);
	}
	if (rc == 0 && strstr(program.text, "ersion") == NULL) {
		(void)fprintf(stderr,
			      "%s: %s does not run: %s\ninstall Debian's perftest, or give "
			      "--no-reference\n",
			      BENCH_NAME, reference->program, program.text);
		rc = -1;
	}
	finish(&program);
	return rc;
}

/* 0, -1, or 1: it ran and printed no rate. */
static int
run_once(struct bench_reference *reference, uint64_t size, uint64_t iterations, bool is_last,
	 struct bench_reference_run *run_out)
{
	char size_text[24], iterations_text[24], qps[16], port[16], gid[16], post[16];
	struct program server, client;
	double mib_per_s = 0;
	int rc;

	(void)snprintf(size_text, sizeof(size_text), "%" PRIu64, size);
	(void)snprintf(iterations_text, sizeof(iterations_text), "%" PRIu64, iterations);
	(void)snprintf(qps, sizeof(qps), "%u", reference->qps);
	(void)snprintf(port, sizeof(port), "%u", reference->port);
	(void)snprintf(gid, sizeof(gid), "%d", reference->gid_index);
	(void)snprintf(post, sizeof(post), "%u", reference->post_list);

	/* Not const: execvp's words are not. */
	const char *words[WORDS] = {reference->program,        "-F", "-N", "-s", size_text, "-n",
				    iterations_text,           "-q", qps,  "-p", port,      "-d",
				    reference->receiver_device};
	size_t count = 13;

	if (reference->gid_index >= 0) {
		words[count++] = "-x";
		words[count++] = gid;
	}
	if (reference->post_list > 1) {
		words[count++] = "-l";
		words[count++] = post;
	}

	const char *client_words[WORDS];

	memcpy(client_words, words, sizeof(words));
	client_words[12] = reference->sender_device;
	client_words[count] = "127.0.0.1";
	rc = run_both(&server, &client, (char *const *)(uintptr_t)words,
		      (char *const *)(uintptr_t)client_words, reference->port);
	reference->port++;
	if (rc == 0 && parse(client.text, size, iterations * reference->qps, &mib_per_s) != 0)
		rc = is_last ? told(&server, &client, "ib_write_bw printed no rate") : 1;
	*run_out = (struct bench_reference_run){
		.bytes_per_s = mib_per_s * MIB,
		.bytes = iterations * reference->qps * size,
		.cpu_ns = server.cpu_ns + client.cpu_ns,
	};
	finish(&server);
	finish(&client);
	return rc;
}

int
bench_reference_run(struct bench_reference *reference, uint64_t size, uint64_t bytes,
		    struct bench_reference_run *run_out)
{
	uint64_t iterations = bytes / size / reference->qps;
	int rc = 1;

	iterations = iterations < ITERATIONS_MIN ? ITERATIONS_MIN : iterations;
	iterations = iterations > ITERATIONS_MAX ? ITERATIONS_MAX : iterations;
	/* It takes only whole lists. */
	iterations = (iterations + reference->post_list - 1) / reference->post_list *
		     reference->post_list;
	/* On a busy machine its own measurement of the frequency fails now and then. */
	for (uint32_t try = 1; rc > 0 && try <= TRIES; try++) {
		rc = run_once(reference, size, iterations, try == TRIES && bytes > 0, run_out);
		if (bytes == 0)
			return rc < 0 ? -1 : 0;
	}
	return rc;
}
