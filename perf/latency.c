/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpush-latency - how long a small push and a large submit take
 *
 * Two engines in two processes over shm. The prompt's lane polls, the decoder's
 * is adaptive; nothing is pinned, so on two cores the measuring thread and the
 * prompt's lane have one each.
 */
#include <argp.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <kvpush/kvpush.h>

#include "histogram.h"

#define NAME            "kvpush-latency"
#define PROMPT_CLUSTER  1U
#define DECODER_CLUSTER 2U
#define SMALL_BYTES     4096U
#define SMALL_SLOTS     64U
#define SMALL_WARM      1000U
#define W1_TENSORS      64U
#define W1_SLOTS        128U
#define W1_BLOCKS       64U
#define W1_BYTES        32768U
#define W1_PUSHES       200U
#define W1_WARM         4U
#define MEASURE_NS      20000000000U /* no measurement takes longer */
#define PUSH_TIMEOUT_MS 10000U
#define YIELD_EVERY     65536U /* tests without an end: the lane may need this core */

struct settings {
	uint32_t iterations;
	bool is_json;
};

struct ready {
	int64_t small, w1; /* the decoder's caches */
	uint32_t port;
	uint32_t unused;
};

struct side {
	struct kvp_engine *engine;
	int64_t small, w1;
};

struct measured {
	struct kvp_histogram spin, sync, submit, plan;
};

static uint64_t
now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static int
engine_failed(const char *what, kvp_status status)
{
	(void)fprintf(stderr, "%s: %s: %s: %s\n", NAME, what, kvp_status_name(status),
		      kvp_error_message());
	return -1;
}

static int
system_failed(const char *what)
{
	(void)fprintf(stderr, "%s: %s: %s\n", NAME, what, strerror(errno));
	return -1;
}

static int
open_side(struct side *side, bool is_prompt)
{
	struct kvp_tensor small = {
		.num_blocks = SMALL_SLOTS,
		.block_bytes = SMALL_BYTES,
		.block_stride = SMALL_BYTES,
	};
	struct kvp_tensor w1[W1_TENSORS];
	struct kvp_config config;
	kvp_status status;

	kvp_config_init(&config);
	config.cluster_id = is_prompt ? PROMPT_CLUSTER : DECODER_CLUSTER;
	config.role = is_prompt ? KVP_ROLE_PROMPT : KVP_ROLE_DECODER;
	config.idle = is_prompt ? KVP_IDLE_POLL : KVP_IDLE_ADAPTIVE;
	(void)snprintf(config.transports, sizeof(config.transports), "shm");
	(void)snprintf(config.listen, sizeof(config.listen), "%s", is_prompt ? "" : "127.0.0.1:0");
	status = kvp_open(&config, &side->engine);
	if (status != KVP_SUCCESS)
		return engine_failed("kvp_open", status);
	for (uint32_t i = 0; i < W1_TENSORS; i++)
		w1[i] = (struct kvp_tensor){
			.num_blocks = W1_SLOTS,
			.block_bytes = W1_BYTES,
			.block_stride = W1_BYTES,
		};
	status = kvp_cache_allocate(side->engine, &small, 1, &side->small);
	if (status == KVP_SUCCESS)
		status = kvp_cache_allocate(side->engine, w1, W1_TENSORS, &side->w1);
	return status == KVP_SUCCESS ? 0 : engine_failed("kvp_cache_allocate", status);
}

/* The decoder only offers memory; it ends when the prompt closes its end of `fd`. */
static int
run_decoder(int fd)
{
	struct side side = {0};
	struct ready ready = {0};
	char end;
	int rc = open_side(&side, false);

	if (rc == 0) {
		ready.small = side.small;
		ready.w1 = side.w1;
		ready.port = kvp_port(side.engine);
		if (send(fd, &ready, sizeof(ready), MSG_NOSIGNAL) != (ssize_t)sizeof(ready))
			rc = system_failed("decoder's word");
	}
	while (rc == 0 && read(fd, &end, 1) != 0) {
		if (errno != EINTR)
			break;
	}
	kvp_close(side.engine);
	return rc;
}

static int
link_decoder(struct side *side, int fd, struct ready *ready_out)
{
	char address[32];
	kvp_status status;

	if (recv(fd, ready_out, sizeof(*ready_out), MSG_WAITALL) != (ssize_t)sizeof(*ready_out)) {
		(void)fprintf(stderr, "%s: the decoder did not start\n", NAME);
		return -1;
	}
	(void)snprintf(address, sizeof(address), "127.0.0.1:%u", ready_out->port);
	status = kvp_link(side->engine, address, 0, NULL);
	return status == KVP_SUCCESS ? 0 : engine_failed("kvp_link", status);
}

/* Submit, spin until the end. *submit_ns_out: of the submit call alone. */
static kvp_status
push_spinning(struct kvp_engine *engine, const struct kvp_push *push, uint64_t *elapsed_ns_out,
	      uint64_t *submit_ns_out, struct kvp_transfer_info *info_out)
{
	uint64_t start_ns = now_ns();
	struct kvp_transfer *transfer;
	kvp_status status = kvp_push_submit(engine, push, &transfer);
	uint32_t tests = 0;

	*submit_ns_out = now_ns() - start_ns;
	if (status != KVP_SUCCESS)
		return status;
	while ((status = kvp_transfer_test(transfer)) == KVP_IN_PROGRESS) {
		if (++tests % YIELD_EVERY == 0)
			(void)sched_yield();
	}
	*elapsed_ns_out = now_ns() - start_ns;
	if (status == KVP_SUCCESS)
		status = kvp_transfer_query(transfer, info_out);
	kvp_transfer_free(transfer);
	return status;
}

static int
measure_small(const struct settings *settings, const struct side *side, const struct ready *ready,
	      struct measured *measured)
{
	uint64_t src = 0, dst = 0;
	struct kvp_push push = {
		.src_cache = side->small,
		.dst = {.cluster = DECODER_CLUSTER, .cache = ready->small},
		.src_blocks = &src,
		.dst_blocks = &dst,
		.count = 1,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 1,
		.timeout_ms = PUSH_TIMEOUT_MS,
	};
	uint64_t end_ns = now_ns() + MEASURE_NS;

	for (uint32_t i = 0; i < settings->iterations + SMALL_WARM && now_ns() < end_ns; i++) {
		uint64_t spin_ns = 0, submit_ns = 0, start_ns;
		struct kvp_transfer_info info;
		kvp_status status;

		src = i % SMALL_SLOTS;
		dst = i * 7 % SMALL_SLOTS;
		status = push_spinning(side->engine, &push, &spin_ns, &submit_ns, &info);
		if (status != KVP_SUCCESS)
			return engine_failed("kvp_push_submit", status);
		start_ns = now_ns();
		status = kvp_push_blocks(side->engine, &push);
		if (status != KVP_SUCCESS)
			return engine_failed("kvp_push_blocks", status);
		if (i < SMALL_WARM)
			continue;
		kvp_histogram_add(&measured->sync, now_ns() - start_ns);
		kvp_histogram_add(&measured->spin, spin_ns);
	}
	return 0;
}

/* Every second slot, so that nothing merges, in an order that must be sorted. */
static void
scatter(uint32_t round, uint64_t *src, uint64_t *dst)
{
	for (uint32_t i = 0; i < W1_BLOCKS; i++) {
		src[i] = (i * 2 + round) % W1_SLOTS;
		dst[i] = (i * 37 % W1_BLOCKS * 2 + round) % W1_SLOTS;
	}
}

static int
measure_w1(const struct side *side, const struct ready *ready, struct measured *measured)
{
	uint64_t src[W1_BLOCKS], dst[W1_BLOCKS];
	struct kvp_push push = {
		.src_cache = side->w1,
		.dst = {.cluster = DECODER_CLUSTER, .cache = ready->w1},
		.src_blocks = src,
		.dst_blocks = dst,
		.count = W1_BLOCKS,
		.src_layers = {-1, -1},
		.dst_layers = {-1, -1},
		.tensors_per_layer = 2,
		.timeout_ms = PUSH_TIMEOUT_MS,
	};
	uint64_t end_ns = now_ns() + MEASURE_NS;

	for (uint32_t i = 0; i < W1_PUSHES + W1_WARM && now_ns() < end_ns; i++) {
		struct kvp_transfer_info info;
		uint64_t elapsed_ns = 0, submit_ns = 0;
		kvp_status status;

		scatter(i, src, dst);
		status = push_spinning(side->engine, &push, &elapsed_ns, &submit_ns, &info);
		if (status != KVP_SUCCESS)
			return engine_failed("kvp_push_submit of W1", status);
		if (i < W1_WARM)
			continue;
		kvp_histogram_add(&measured->submit, submit_ns);
		kvp_histogram_add(&measured->plan, info.plan_ns);
	}
	return 0;
}

static void
print_row(const char *what, const struct kvp_histogram *histogram)
{
	(void)printf("  %-42s %8.2f %8.2f %8.2f %8lu\n", what,
		     (double)kvp_histogram_at(histogram, 0.5) / 1e3,
		     (double)kvp_histogram_at(histogram, 0.99) / 1e3, (double)histogram->max / 1e3,
		     (unsigned long)histogram->count);
}

static json_t *
json_row(const struct kvp_histogram *histogram)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "p50_ns",
			 (json_int_t)kvp_histogram_at(histogram, 0.5), "p99_ns",
			 (json_int_t)kvp_histogram_at(histogram, 0.99), "max_ns",
			 (json_int_t)histogram->max, "count", (json_int_t)histogram->count);
}

static int
print(const struct settings *settings, const struct measured *measured)
{
	json_t *all;
	int rc;

	if (!settings->is_json) {
		(void)printf("  %-42s %8s %8s %8s %8s\n", "us", "p50", "p99", "max", "count");
		print_row("4 KiB push, submit and spinning test", &measured->spin);
		print_row("4 KiB push, kvp_push_blocks", &measured->sync);
		print_row("W1 submit (4096 pieces), whole call", &measured->submit);
		print_row("W1 submit, checks and plan", &measured->plan);
		return fflush(stdout) == 0 ? 0 : system_failed("stdout");
	}
	all = json_pack("{s:o, s:o, s:o, s:o}", "push_4k_spin", json_row(&measured->spin),
			"push_4k_sync", json_row(&measured->sync), "w1_submit",
			json_row(&measured->submit), "w1_plan", json_row(&measured->plan));
	rc = all == NULL ? -1 : json_dumpf(all, stdout, JSON_COMPACT);
	json_decref(all);
	return rc == 0 && putchar('\n') != EOF && fflush(stdout) == 0 ? 0 : system_failed("stdout");
}

static int
run_prompt(const struct settings *settings, int fd)
{
	static struct measured measured;
	struct side side = {0};
	struct ready ready = {0};
	int rc = open_side(&side, true);

	if (rc == 0)
		rc = link_decoder(&side, fd, &ready);
	if (rc == 0)
		rc = measure_small(settings, &side, &ready, &measured);
	if (rc == 0)
		rc = measure_w1(&side, &ready, &measured);
	if (side.engine != NULL)
		(void)kvp_unlink(side.engine, DECODER_CLUSTER, 0, 0);
	kvp_close(side.engine);
	return rc == 0 ? print(settings, &measured) : rc;
}

static error_t
parse_one(int key, char *value, struct argp_state *state)
{
	struct settings *settings = state->input;
	unsigned long number;
	char *end;

	switch (key) {
	case 'n':
		number = strtoul(value, &end, 10);
		if (*value < '0' || *value > '9' || *end != '\0' || number == 0 ||
		    number > 10000000)
			argp_error(state, "--iterations=%s: not a number in [1, 10000000]", value);
		settings->iterations = (uint32_t)number;
		return 0;
	case 'j':
		settings->is_json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", value);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int
main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"iterations", 'n', "N", 0, "of 4 KiB pushes, default 20000", 0},
		{"json", 'j', NULL, 0, "print one JSON object", 0},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_one,
		.doc = "Latency of a small push and of a large submit, two processes over shm.",
	};
	struct settings settings = {.iterations = 20000};
	pid_t parent = getpid(), child;
	int fds[2], rc, status = 0;

	(void)argp_parse(&argp, argc, argv, 0, NULL, &settings);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
		(void)system_failed("socketpair");
		return EXIT_FAILURE;
	}
	child = fork();
	if (child < 0) {
		(void)system_failed("fork");
		return EXIT_FAILURE;
	}
	if (child == 0) {
		(void)close(fds[0]);
		(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
		return getppid() == parent && run_decoder(fds[1]) == 0 ? EXIT_SUCCESS
								       : EXIT_FAILURE;
	}
	(void)close(fds[1]);
	rc = run_prompt(&settings, fds[0]);
	(void)close(fds[0]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	return rc == 0 && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
