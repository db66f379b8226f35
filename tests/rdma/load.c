/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load - keeps a link busy and checks it, for tests that break things meanwhile; see load.h
 *
 *   load receive --meet=SOCKET ... &   load send --meet=SOCKET ...
 *   load try --set=KEY=VALUE ... [--peer=KEY=VALUE ...]   open, register and link once
 */
#include "load.h"

#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LINGER_S 60U

volatile sig_atomic_t load_stop;

static void
on_term(int number)
{
	(void)number;
	load_stop = 1;
}

uint64_t
load_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void
load_refuse(const struct load_options *options, const char *what, kvp_status status)
{
	fprintf(stderr, "load: %s: %s: %s: %s\n", options->role, what, kvp_status_name(status),
		kvp_error_message());
	exit(LOAD_REFUSED);
}

void
load_die(const char *what)
{
	fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
	exit(LOAD_WRONG);
}

struct kvp_engine *
load_open(const struct load_options *options, uint64_t cluster, const char *listen,
	  const char *const *setting, size_t settings)
{
	struct kvp_engine *engine = NULL;
	struct kvp_config config;
	kvp_status status;

	kvp_config_init(&config);
	config.cluster_id = cluster;
	snprintf(config.listen, sizeof(config.listen), "%s", listen);
	snprintf(config.transports, sizeof(config.transports), "verbs");
	for (size_t i = 0; i < settings; i++) {
		status = kvp_config_set(&config, setting[i]);
		if (status != KVP_SUCCESS)
			load_refuse(options, setting[i], status);
	}
	status = kvp_open(&config, &engine);
	if (status != KVP_SUCCESS)
		load_refuse(options, "open", status);
	return engine;
}

void
load_link(const struct load_options *options, struct kvp_engine *engine, uint64_t port)
{
	struct kvp_link_info info;
	uint64_t cluster = 0;
	char address[32];
	kvp_status status;

	snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned int)port);
	status = kvp_link(engine, address, LOAD_PATIENCE, &cluster);
	if (status == KVP_SUCCESS)
		status = kvp_link_query(engine, cluster, &info);
	if (status != KVP_SUCCESS)
		load_refuse(options, "link", status);
	printf("path: %s\n", info.path);
	if (strncmp(info.path, options->path, strlen(options->path)) == 0)
		return;
	fprintf(stderr, "load: the path is no %s path\n", options->path);
	exit(LOAD_WRONG);
}

bool
load_say(int fd, const struct load_message *message)
{
	return send(fd, message, sizeof(*message), MSG_NOSIGNAL) == (ssize_t)sizeof(*message);
}

int
load_hear(int fd, struct load_message *message_out, int wait_ms)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	ssize_t bytes;

	if (poll(&ready, 1, wait_ms) <= 0)
		return 0;
	bytes = recv(fd, message_out, sizeof(*message_out), MSG_DONTWAIT);
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return bytes == (ssize_t)sizeof(*message_out) ? 1 : -1;
}

void
load_close(const struct load_options *options, struct kvp_engine *engine)
{
	kvp_close(engine);
	if (!options->linger)
		return;
	load_stop = 0;
	printf("closed\n");
	for (uint32_t i = 0; i < LINGER_S * 20 && load_stop == 0; i++)
		usleep(50000);
}

/* All that may be refused, in one process. */
static enum load_end
try_it(const struct load_options *options)
{
	struct kvp_engine *engine, *peer = NULL;
	size_t bytes = (size_t)options->mib << 20;
	struct kvp_tensor tensor = {
		.num_blocks = bytes >> 16, .block_bytes = 1U << 16, .block_stride = 1U << 16};
	kvp_status status;
	int64_t id;

	engine =
		load_open(options, LOAD_SENDER, "127.0.0.1:0", options->setting, options->settings);
	tensor.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (tensor.base == MAP_FAILED)
		load_die("mmap");
	status = kvp_cache_register(engine, &tensor, 1, &id);
	if (status != KVP_SUCCESS)
		load_refuse(options, "register", status);
	if (options->peers > 0) {
		peer = load_open(options, LOAD_RECEIVER, "127.0.0.1:0", options->peer,
				 options->peers);
		load_link(options, engine, kvp_port(peer));
	}
	kvp_close(peer);
	load_close(options, engine);
	printf("not refused\n");
	return LOAD_OK;
}

enum option_key {
	KEY_MEET = 256,
	KEY_PATH,
	KEY_STATUS,
	KEY_SET,
	KEY_PEER,
	KEY_EXPECT,
	KEY_SECONDS,
	KEY_SLOTS,
	KEY_PULLS,
	KEY_BLOCKS,
	KEY_BYTES,
	KEY_TIMEOUT,
	KEY_RELEASE,
	KEY_MIB,
	KEY_LINGER,
};

static const struct argp_option option_list[] = {
	{"meet", KEY_MEET, "SOCKET", 0, "where sender and receiver meet", 0},
	{"path", KEY_PATH, "NAME", 0, "what the path must begin with, default verbs", 0},
	{"status", KEY_STATUS, "FILE", 0, "where the sender leaves its latest counts", 0},
	{"set", KEY_SET, "KEY=VALUE", 0, "a setting of the engine", 0},
	{"peer", KEY_PEER, "KEY=VALUE", 0, "try: a setting of a second engine", 0},
	{"expect", KEY_EXPECT, "WHAT", 0,
	 "all (default): only SUCCESS; recover: timeouts, then SUCCESS; lost: the peer is lost", 0},
	{"seconds", KEY_SECONDS, "N", 0, "end after N, default 30; or by SIGTERM", 0},
	{"slots", KEY_SLOTS, "N", 0, "transfers in flight, default 4", 0},
	{"pulls", KEY_PULLS, "N", 0, "so many of them pull, default 1", 0},
	{"blocks", KEY_BLOCKS, "N", 0, "of a transfer, default 16", 0},
	{"bytes", KEY_BYTES, "N", 0, "of a block, default 4096", 0},
	{"timeout", KEY_TIMEOUT, "MS", 0, "of a transfer, default 10000", 0},
	{"release", KEY_RELEASE, "MS", 0, "release and register the cache this often", 0},
	{"mib", KEY_MIB, "N", 0, "try: size of the cache, default 8", 0},
	{"linger", KEY_LINGER, NULL, 0, "stay after closing until SIGTERM", 0},
	{0},
};

static uint32_t
number(struct argp_state *state, const char *text, uint32_t low, uint32_t high)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || value < low || value > high)
		argp_error(state, "%s: not a number in [%u, %u]", text, low, high);
	return (uint32_t)value;
}

static enum load_expect
expectation(struct argp_state *state, const char *text)
{
	static const char *const name[] = {"all", "recover", "lost"};

	for (uint32_t i = 0; i < 3; i++)
		if (strcmp(text, name[i]) == 0)
			return (enum load_expect)i;
	argp_error(state, "--expect=%s: there is all, recover and lost", text);
	return EXPECT_ALL;
}

static void
add_setting(struct argp_state *state, const char **list, size_t *count, const char *text)
{
	if (*count == LOAD_SETTINGS)
		argp_error(state, "more than %u settings", LOAD_SETTINGS);
	list[(*count)++] = text;
}

/* lint: long (one switch) */
static error_t
parse_one(int key, char *value, struct argp_state *state)
{
	struct load_options *options = state->input;

	switch (key) {
	case KEY_MEET:
		options->meet = value;
		break;
	case KEY_PATH:
		options->path = value;
		break;
	case KEY_STATUS:
		options->status = value;
		break;
	case KEY_SET:
		add_setting(state, options->setting, &options->settings, value);
		break;
	case KEY_PEER:
		add_setting(state, options->peer, &options->peers, value);
		break;
	case KEY_EXPECT:
		options->expect = expectation(state, value);
		break;
	case KEY_SECONDS:
		options->seconds = number(state, value, 1, 3600);
		break;
	case KEY_SLOTS:
		options->slots = number(state, value, 1, LOAD_SLOTS_MAX);
		break;
	case KEY_PULLS:
		options->pulls = number(state, value, 0, LOAD_SLOTS_MAX);
		break;
	case KEY_BLOCKS:
		options->blocks = number(state, value, 1, 4096);
		break;
	case KEY_BYTES:
		options->block_bytes = number(state, value, 8, 1U << 20) / 8 * 8;
		break;
	case KEY_TIMEOUT:
		options->timeout_ms = number(state, value, 1, 600000);
		break;
	case KEY_RELEASE:
		options->release_ms = number(state, value, 1, 600000);
		break;
	case KEY_MIB:
		options->mib = number(state, value, 1, 4096);
		break;
	case KEY_LINGER:
		options->linger = true;
		break;
	case ARGP_KEY_ARG:
		if (options->role != NULL)
			argp_error(state, "one of send, receive, try");
		options->role = value;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int
main(int argc, char **argv)
{
	static const struct argp argp = {option_list,
					 parse_one,
					 "send|receive|try",
					 "Keeps a link busy and checks every byte.",
					 NULL,
					 NULL,
					 NULL};
	struct load_options options = {.path = "verbs",
				       .seconds = 30,
				       .slots = 4,
				       .pulls = 1,
				       .blocks = 16,
				       .block_bytes = 4096,
				       .timeout_ms = 10000,
				       .mib = 8};
	struct sigaction action = {.sa_handler = on_term};

	argp_err_exit_status = LOAD_USAGE;
	(void)argp_parse(&argp, argc, argv, 0, NULL, &options);
	setvbuf(stdout, NULL, _IOLBF, 0);
	sigaction(SIGTERM, &action, NULL);
	if (options.role != NULL && strcmp(options.role, "try") == 0)
		return (int)try_it(&options);
	if (options.role == NULL || options.meet == NULL || options.pulls > options.slots) {
		fprintf(stderr, "load: send, receive or try; --meet is needed for the first two\n");
		return LOAD_USAGE;
	}
	if (strcmp(options.role, "send") == 0)
		return (int)load_send(&options);
	if (strcmp(options.role, "receive") == 0)
		return (int)load_receive(&options);
	return LOAD_USAGE;
}
