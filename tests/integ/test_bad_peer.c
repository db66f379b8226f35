/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings that no engine can be opened with, addresses that nobody can be
 * reached at, and peers that are not kvpush.
 */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define NOTHING ((struct kvp_engine *)(uintptr_t)0x5A5A)

/* kvp_config's numbers and what is out of their range, in decimal. */
static const struct {
	const char *key;
	const char *low, *high; /* allowed */
	const char *below, *above;
} numbers[] = {
	{"role", "1", "3", "0", "4"},
	{"lanes", "1", "16", "0", "17"},
	{"idle", "0", "1", "-1", "2"},
	{"idle_us", "0", "1000000", "-1", "1000001"},
	{"timeout_ms", "1", "3600000", "0", "3600001"},
	{"heartbeat_ms", "10", "60000", "9", "60001"},
	{"dead_ms", "30", "600000", "29", "600001"},
	{"streams", "1", "16", "0", "17"},
	{"max_transfers", "16", "65536", "15", "131072"},
	{"max_events", "16", "65536", "15", "65537"},
	{"window_requests", "1", "1024", "0", "1025"},
	{"window_kib", "64", "65536", "63", "65537"},
	{"huge_pages", "0", "1", "-1", "2"},
	{"insecure", "0", "1", "-1", "2"},
	{"eal_mem_mb", "16", "4096", "15", "4097"},
	{"log_level", "0", "4", "-1", "5"},
};

static const char *const bad_settings[] = {
	"",
	"lanes",
	"=1",
	"lanes 1",
	"lane=1",
	"lanesx=1",
	" lanes=1",
	"LANES=1",
	"size=1",
	"lanes=",
	"lanes= 1",
	"lanes=1 ",
	"lanes=1x",
	"lanes=0x1",
	"lanes=1.0",
	"lanes=+1",
	"lanes=99999999999999999999",
	"lanes=4294967297",
	"cluster_id=18446744073709551616",
	"cluster_id=-1",
	"max_transfers=17",
	"max_transfers=100",
	"role=prefill",
	"role=",
	"idle=spin",
	"transports=",
	"transports=shm,",
	"transports=,shm",
	"transports=shm,shm",
	"transports=shm tcp",
	"lane_cpus=x",
	"lane_cpus=1,",
	"lane_cpus=-1",
	"listen=localhost:1",
	"listen=127.0.0.1",
	"listen=127.0.0.1:65536",
	"listen=[::1]",
};

static void
config_set__refuses(void **state)
{
	struct kvp_config config, before;
	char text[400];

	(void)state;
	kvp_config_init(&config);
	before = config;
	for (size_t i = 0; i < sizeof(bad_settings) / sizeof(bad_settings[0]); i++) {
		kvp_status status = kvp_config_set(&config, bad_settings[i]);

		if (status != KVP_PARAM_INVALID)
			print_error("'%s'\n", bad_settings[i]);
		assert_refused(KVP_PARAM_INVALID, "", status);
		assert_memory_equal(&config, &before, sizeof(config));
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		snprintf(text, sizeof(text), "%s=%s", numbers[i].key, numbers[i].below);
		assert_refused(KVP_PARAM_INVALID, numbers[i].key, kvp_config_set(&config, text));
		snprintf(text, sizeof(text), "%s=%s", numbers[i].key, numbers[i].above);
		assert_refused(KVP_PARAM_INVALID, numbers[i].key, kvp_config_set(&config, text));
	}
	snprintf(text, sizeof(text), "listen=%0200d", 1);
	assert_refused(KVP_PARAM_INVALID, "listen", kvp_config_set(&config, text));
	assert_memory_equal(&config, &before, sizeof(config));
	assert_refused(KVP_PARAM_INVALID, "config", kvp_config_set(NULL, "lanes=1"));
	assert_refused(KVP_PARAM_INVALID, "setting", kvp_config_set(&config, NULL));
	kvp_config_init(NULL);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		snprintf(text, sizeof(text), "%s=%s", numbers[i].key, numbers[i].low);
		assert_ok(kvp_config_set(&config, text));
		snprintf(text, sizeof(text), "%s=%s", numbers[i].key, numbers[i].high);
		assert_ok(kvp_config_set(&config, text));
	}
}

/* Every key has a line, and the size that snprintf would want is told. */
static void
config_help__lists_every_key(void **state)
{
	int bytes = kvp_config_help(NULL, 0);
	char *text, small[8];

	(void)state;
	assert_true(bytes > 100);
	text = malloc((size_t)bytes + 1);
	assert_non_null(text);
	assert_int_equal(kvp_config_help(text, (size_t)bytes + 1), bytes);
	assert_int_equal(strlen(text), bytes);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		char key[40];

		snprintf(key, sizeof(key), "%s\t", numbers[i].key);
		assert_non_null(strstr(text, key));
	}
	assert_int_equal(kvp_config_help(small, sizeof(small)), bytes);
	assert_int_equal(strlen(small), sizeof(small) - 1);
	free(text);
}

static void
open_is_refused(const struct kvp_config *config, kvp_status expected, const char *word)
{
	struct kvp_engine *engine = NOTHING;

	assert_refused(expected, word, kvp_open(config, &engine));
	assert_ptr_equal(engine, NOTHING);
}

/* One field wrong in the struct that kvp_open gets. */
#define OPEN_WITH(change, expected, word)                 \
	do {                                              \
		struct kvp_config config;                 \
		pair_config(&config, 1, "shm,tcp");       \
		change;                                   \
		open_is_refused(&config, expected, word); \
	} while (0)
#define SET(field, value) snprintf(config.field, sizeof(config.field), "%s", value)

static void
open__refuses_bad_fields(void **state)
{
	struct kvp_engine *engine = NOTHING;
	static const char *const settings[] = {"cluster_id=1", "lanes=0"};
	struct kvp_config good;

	(void)state;
	pair_config(&good, 1, "shm");
	assert_refused(KVP_PARAM_INVALID, "config", kvp_open(NULL, &engine));
	assert_refused(KVP_PARAM_INVALID, "engine_out", kvp_open(&good, NULL));
	OPEN_WITH(config.size = 0, KVP_PARAM_INVALID, "size");
	OPEN_WITH(config.size--, KVP_PARAM_INVALID, "size");
	OPEN_WITH(config.role = 0, KVP_PARAM_INVALID, "role");
	OPEN_WITH(config.role = 4, KVP_PARAM_INVALID, "role");
	OPEN_WITH(config.lanes = 0, KVP_PARAM_INVALID, "lanes");
	OPEN_WITH(config.lanes = 17, KVP_PARAM_INVALID, "lanes");
	OPEN_WITH(config.idle = 2, KVP_PARAM_INVALID, "idle");
	OPEN_WITH(config.idle_us = 1000001, KVP_PARAM_INVALID, "idle_us");
	OPEN_WITH(config.timeout_ms = 0, KVP_PARAM_INVALID, "timeout_ms");
	OPEN_WITH(config.heartbeat_ms = 9, KVP_PARAM_INVALID, "heartbeat_ms");
	OPEN_WITH(config.dead_ms = 600001, KVP_PARAM_INVALID, "dead_ms");
	OPEN_WITH(config.dead_ms = config.heartbeat_ms, KVP_PARAM_INVALID, "dead_ms");
	OPEN_WITH(config.streams = 0, KVP_PARAM_INVALID, "streams");
	OPEN_WITH(config.max_transfers = 48, KVP_PARAM_INVALID, "max_transfers");
	OPEN_WITH(config.max_events = 15, KVP_PARAM_INVALID, "max_events");
	OPEN_WITH(config.window_requests = 0, KVP_PARAM_INVALID, "window_requests");
	OPEN_WITH(config.window_kib = 63, KVP_PARAM_INVALID, "window_kib");
	OPEN_WITH(config.huge_pages = 2, KVP_PARAM_INVALID, "huge_pages");
	OPEN_WITH(config.insecure = 2, KVP_PARAM_INVALID, "insecure");
	OPEN_WITH(config.eal_mem_mb = 15, KVP_PARAM_INVALID, "eal_mem_mb");
	OPEN_WITH(config.log_level = 5, KVP_PARAM_INVALID, "log_level");
	OPEN_WITH(config.transports[0] = '\0', KVP_PARAM_INVALID, "transports");
	OPEN_WITH(SET(transports, "shm,warp"), KVP_PARAM_INVALID, "warp");
	OPEN_WITH(SET(lane_cpus, "0,1"), KVP_PARAM_INVALID, "lane_cpus"); /* for one lane */
	OPEN_WITH(memset(config.listen, 'x', KVP_TEXT_MAX), KVP_PARAM_INVALID, "listen");
	OPEN_WITH(SET(lane_cpus, "1000"), KVP_NO_RESOURCE, "1000");

	assert_refused(KVP_PARAM_INVALID, "lanes", kvp_open_settings(settings, 2, &engine));
	assert_refused(KVP_PARAM_INVALID, "settings", kvp_open_settings(NULL, 1, &engine));
	assert_refused(KVP_PARAM_INVALID, "engine_out", kvp_open_settings(settings, 1, NULL));
	assert_ptr_equal(engine, NOTHING);
	assert_ok(kvp_open_settings(settings, 1, &engine));
	assert_int_equal(kvp_port(engine), 0);
	kvp_close(engine);
}

static const char *const bad_addresses[] = {"",
					    "localhost:1",
					    "127.0.0.1",
					    "127.0.0.1:",
					    "127.0.0.1:65536",
					    "127.0.0.1:-1",
					    "127.0.0.1:5 ",
					    "127.0.0.1:0x5",
					    "300.1.1.1:1",
					    "127.0.0:1",
					    ":1",
					    "::1:5",
					    "[::1]",
					    "[::1]5",
					    "[::1:5",
					    "[::1]:x",
					    "[127.0.0.1]:5",
					    "[]:5",
					    "127.0.0.1:1:2",
					    "127.0.0.1:99999999999999999999"};

static void
addresses__malformed(void **state)
{
	const struct pair *pair = *state;
	uint64_t cluster = 4711;

	for (size_t i = 0; i < sizeof(bad_addresses) / sizeof(bad_addresses[0]); i++) {
		kvp_status status = kvp_link(pair->a, bad_addresses[i], 1000, &cluster);

		if (status != KVP_ADDRESS)
			print_error("'%s'\n", bad_addresses[i]);
		assert_refused(KVP_ADDRESS, bad_addresses[i], status);
		if (bad_addresses[i][0] != '\0')
			OPEN_WITH(SET(listen, bad_addresses[i]), KVP_ADDRESS, "listen");
	}
	/* Port 0 is for listeners. */
	assert_true(kvp_link(pair->a, "127.0.0.1:0", 1000, &cluster) != KVP_SUCCESS);
	assert_int_equal(cluster, 4711);
}

static int
listen_somewhere(uint16_t *port_out)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t bytes = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
	*port_out = ntohs(address.sin_port);
	return fd;
}

static const char *
loopback(uint16_t port)
{
	static char text[32];

	snprintf(text, sizeof(text), "127.0.0.1:%u", port);
	return text;
}

static void
addresses__not_ours(void **state)
{
	const struct pair *pair = *state;
	char port_text[8];
	uint16_t port;
	int fd;

	fd = listen_somewhere(&port);
	snprintf(port_text, sizeof(port_text), "%u", port);
	OPEN_WITH(SET(listen, loopback(port)), KVP_ADDRESS, port_text);
	close(fd);
	/* 203.0.113.0/24 is kept for documentation: nobody has it. */
	OPEN_WITH((SET(listen, "203.0.113.7:0"), config.insecure = 1), KVP_ADDRESS, "203.0.113.7");
	OPEN_WITH(SET(listen, "203.0.113.7:0"), KVP_ADDRESS, "insecure");
	OPEN_WITH(SET(listen, "0.0.0.0:0"), KVP_ADDRESS, "insecure");
	OPEN_WITH(SET(listen, "[::]:0"), KVP_ADDRESS, "insecure");
	assert_refused(KVP_ADDRESS, "insecure", kvp_link(pair->a, "203.0.113.7:9", 100, NULL));
	assert_refused(KVP_ADDRESS, "insecure", kvp_link(pair->a, "[2001:db8::1]:9", 100, NULL));
}

static void
link__nobody_listens(void **state)
{
	const struct pair *pair = *state;
	uint64_t cluster = 4711;
	char port_text[8];
	uint16_t port;

	close(listen_somewhere(&port));
	snprintf(port_text, sizeof(port_text), "%u", port);
	assert_refused(KVP_LINK_FAILED, port_text,
		       kvp_link(pair->a, loopback(port), PAIR_SLOW(2000), &cluster));
	assert_int_equal(cluster, 4711);
}

/* A peer that answers `bytes` of `answer` to whoever connects, and waits for the end. */
struct impostor {
	pthread_t thread;
	int listener;
	uint16_t port;
	const void *answer;
	size_t bytes;
	bool is_shut; /* closes after its answer */
};

static void *
impostor_run(void *arg)
{
	struct impostor *impostor = arg;
	char buffer[4096];
	int fd = accept(impostor->listener, NULL, NULL);

	if (fd < 0)
		return NULL;
	if (impostor->bytes > 0 && send(fd, impostor->answer, impostor->bytes, MSG_NOSIGNAL) < 0) {
		close(fd);
		return NULL;
	}
	while (!impostor->is_shut && recv(fd, buffer, sizeof(buffer), 0) > 0)
		;
	close(fd);
	return NULL;
}

/* Link to an impostor; returns the milliseconds it took. */
static uint64_t
link_to_impostor(struct kvp_engine *engine, const void *answer, size_t bytes, bool is_shut,
		 uint32_t timeout_ms, kvp_status *status_out)
{
	struct impostor impostor = {.answer = answer, .bytes = bytes, .is_shut = is_shut};
	uint64_t start_ms, cluster = 4711;
	char message[512];

	impostor.listener = listen_somewhere(&impostor.port);
	assert_int_equal(pthread_create(&impostor.thread, NULL, impostor_run, &impostor), 0);
	start_ms = pair_now_ms();
	*status_out = kvp_link(engine, loopback(impostor.port), timeout_ms, &cluster);
	start_ms = pair_now_ms() - start_ms;
	snprintf(message, sizeof(message), "%s", kvp_error_message());
	assert_int_equal(pthread_join(impostor.thread, NULL), 0);
	close(impostor.listener);
	assert_int_equal(cluster, 4711);
	assert_int_not_equal(message[0], '\0');
	assert_null(strchr(message, '\n'));
	return start_ms;
}

#define MAGIC 0x4B, 0x56, 0x50, 0x31

static void
link__peer_speaks_something_else(void **state)
{
	static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	static const uint8_t version[] = {MAGIC, 99, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
	static const uint8_t type[] = {MAGIC, 1, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
	static const uint8_t large[] = {MAGIC, 1, 2, 0, 0, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0};
	static const uint8_t checksum[] = {MAGIC, 1, 2, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0};
	const struct {
		const void *answer;
		size_t bytes;
		const char *word;
	} answers[] = {
		{http, sizeof(http) - 1, ""},
		{version, sizeof(version), "99"},
		{type, sizeof(type), "77"},
		{large, sizeof(large), ""},
		{checksum, sizeof(checksum), "checksum"},
	};
	const struct pair *pair = *state;
	size_t count = 0;

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		kvp_status status;

		link_to_impostor(pair->a, answers[i].answer, answers[i].bytes, false, PAIR_LONG_MS,
				 &status);
		assert_refused(KVP_PROTOCOL, answers[i].word, status);
	}
	assert_ok(kvp_link_list(pair->a, NULL, 0, &count));
	assert_int_equal(count, 1); /* b alone */
}

static void
link__peer_hangs_up(void **state)
{
	const struct pair *pair = *state;
	static const uint8_t half[] = {MAGIC, 1, 2};
	kvp_status status;

	link_to_impostor(pair->a, "", 0, true, PAIR_LONG_MS, &status);
	assert_status(KVP_LINK_FAILED, status);
	link_to_impostor(pair->a, half, sizeof(half), true, PAIR_LONG_MS, &status);
	assert_true(status == KVP_LINK_FAILED || status == KVP_PROTOCOL);
}

static void
link__peer_is_silent(void **state)
{
	static const uint8_t half[] = {MAGIC, 1, 2};
	const struct pair *pair = *state;

	for (uint32_t i = 0; i < 3; i++) {
		uint32_t timeout_ms = PAIR_SLOW(100 + 150 * i);
		kvp_status status;
		uint64_t took_ms = link_to_impostor(pair->a, half, i == 2 ? sizeof(half) : 0, false,
						    timeout_ms, &status);

		assert_status(KVP_TIMEOUT, status);
		assert_in_range(took_ms, timeout_ms - 1, timeout_ms + PAIR_SLOW(100));
	}
}

/* Send `bytes` to the engine's listener and see it close the connection, or close it ourselves. */
static void
throw_at(struct kvp_engine *engine, const void *garbage, size_t bytes, bool is_closed_by_us)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons(kvp_port(engine))};
	struct timeval limit = {.tv_sec = PAIR_SLOW(10)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char buffer[4096];
	ssize_t got;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	/* The engine may have closed it before all was sent. */
	(void)send(fd, garbage, bytes, MSG_NOSIGNAL);
	while (!is_closed_by_us) {
		got = recv(fd, buffer, sizeof(buffer), 0);
		if (got == 0 || (got < 0 && errno == ECONNRESET))
			break;
		assert_true(got > 0);
	}
	close(fd);
}

static void
listener__survives_garbage(void **state)
{
	static const uint8_t types[] = {1, 2, 3, 4, 5, 8, 9, 10, 13, 16, 17, 255};
	const struct pair *pair = *state;
	struct kvp_engine *engine = NULL, *peer = NULL;
	struct kvp_config config;
	static uint8_t noise[65536];

	pair_config(&config, 31, pair->transport);
	config.log_level = 0;
	assert_ok(kvp_open(&config, &engine));
	throw_at(engine, "GET / HTTP/1.1\r\n\r\n", 18, false);
	for (uint64_t i = 0; i < 8; i++) {
		pair_fill(noise, sizeof(noise), i);
		throw_at(engine, noise, 16U << i, false);
	}
	for (size_t i = 0; i < sizeof(types); i++) {
		uint8_t frame[32] = {MAGIC, 1, types[i], 0, 0, 16};

		throw_at(engine, frame, sizeof(frame), false); /* wrong checksum */
		throw_at(engine, frame, 16, true);
		throw_at(engine, frame, 5, true);
		frame[8] = 0;
		throw_at(engine, frame, 16, false); /* empty */
	}
	for (uint32_t i = 0; i < 100; i++)
		throw_at(engine, noise, 0, true);
	pair_config(&config, 32, pair->transport);
	assert_ok(kvp_open(&config, &peer));
	pair_link(peer, 32, engine, 31);
	kvp_close(peer);
	kvp_close(engine);
}

/* Nothing of the silent ones is left after the handshake limit; more than the limit is refused. */
static void
listener__drops_silent_connections(void **state)
{
	const struct pair *pair = *state;
	uint64_t end_ms = pair_now_ms() + PAIR_SLOW(6000);
	struct kvp_engine *peer = NULL;
	struct kvp_config config;

	throw_at(pair->b, "", 0, false);
	assert_true(pair_now_ms() < end_ms);
	pair_config(&config, 32, pair->transport);
	assert_ok(kvp_open(&config, &peer));
	pair_link(peer, 32, pair->b, PAIR_B);
	kvp_close(peer);
}

static void
link__wrong_ids(void **state)
{
	const struct pair *pair = *state;
	struct kvp_engine *twin = NULL;
	struct kvp_config config;
	struct kvp_event event;
	struct kvp_link_info info;
	uint64_t cluster = 4711;

	assert_refused(KVP_ALREADY_LINK, "exists",
		       kvp_link(pair->a, loopback(kvp_port(pair->b)), PAIR_SLOW(1000), NULL));
	assert_refused(KVP_ALREADY_LINK, "exists",
		       kvp_link(pair->b, loopback(kvp_port(pair->a)), PAIR_SLOW(1000), NULL));
	assert_ok(kvp_link_query(pair->a, PAIR_B, &info));
	assert_int_equal(info.state, KVP_LINK_READY);
	assert_refused(KVP_PARAM_INVALID, "cluster id",
		       kvp_link(pair->a, loopback(kvp_port(pair->a)), PAIR_SLOW(1000), &cluster));
	pair_config(&config, PAIR_A, pair->transport);
	config.log_level = 0;
	assert_ok(kvp_open(&config, &twin));
	assert_refused(KVP_PARAM_INVALID, "cluster id",
		       kvp_link(pair->a, loopback(kvp_port(twin)), PAIR_SLOW(1000), &cluster));
	kvp_close(twin);
	assert_int_equal(cluster, 4711);
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->a, &event));
	assert_status(KVP_NO_EVENT, kvp_event_poll(pair->b, &event));
}

static void
link__no_transport_in_common(void **state)
{
	struct kvp_engine *shm = NULL, *tcp = NULL;
	struct kvp_config config;
	struct kvp_event event;
	uint64_t cluster = 4711;
	size_t count = 4711;

	(void)state;
	pair_config(&config, 41, "shm");
	assert_ok(kvp_open(&config, &shm));
	pair_config(&config, 42, "tcp");
	assert_ok(kvp_open(&config, &tcp));
	assert_refused(KVP_NO_TRANSPORT, "shm",
		       kvp_link(shm, loopback(kvp_port(tcp)), PAIR_SLOW(2000), &cluster));
	assert_refused(KVP_NO_TRANSPORT, "tcp",
		       kvp_link(tcp, loopback(kvp_port(shm)), PAIR_SLOW(2000), &cluster));
	assert_int_equal(cluster, 4711);
	assert_ok(kvp_link_list(shm, NULL, 0, &count));
	assert_int_equal(count, 0);
	assert_status(KVP_NO_EVENT, kvp_event_poll(shm, &event));
	assert_status(KVP_NO_EVENT, kvp_event_poll(tcp, &event));
	kvp_close(shm);
	kvp_close(tcp);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_set__refuses),
		cmocka_unit_test(config_help__lists_every_key),
		cmocka_unit_test(open__refuses_bad_fields),
		{"addresses__malformed", addresses__malformed, pair_setup, pair_teardown, pair_shm},
		{"addresses__not_ours", addresses__not_ours, pair_setup, pair_teardown, pair_shm},
		PAIR_TEST(link__nobody_listens),
		PAIR_TEST(link__peer_speaks_something_else),
		PAIR_TEST(link__peer_hangs_up),
		PAIR_TEST(link__peer_is_silent),
		PAIR_TEST(listener__survives_garbage),
		{"listener__drops_silent_connections", listener__drops_silent_connections,
		 pair_setup, pair_teardown, pair_tcp},
		PAIR_TEST(link__wrong_ids),
		cmocka_unit_test(link__no_transport_in_common),
	};

	return PAIR_RUN(tests);
}
