/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ZEROS   "000000000000000000000000000000"
#define LONGEST "[::1]:0" ZEROS ZEROS ZEROS ZEROS /* KVP_TEXT_MAX - 1 characters */

static struct kvp_config config;
static struct kvp_error error;

static int
reset(void **state)
{
	(void)state;
	kvp_config_init(&config);
	return 0;
}

static void
assert_in(const char *words, const char *text)
{
	if (strstr(text, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, text);
}

static void
assert_set(const char *setting)
{
	if (kvp_config_set(&config, setting) != KVP_SUCCESS)
		fail_msg("%s: %s", setting, kvp_error_message());
}

static void
init__null(void **state)
{
	(void)state;
	kvp_config_init(NULL);
}

/* As engine.h promises them. */
static void
init__defaults(void **state)
{
	struct kvp_config expected;

	(void)state;
	memset(&expected, 0, sizeof(expected));
	expected.size = sizeof(expected);
	expected.cluster_id = 0;
	expected.role = KVP_ROLE_MIX;
	expected.lanes = 1;
	strcpy(expected.transports, "verbs,shm,tcp");
	strcpy(expected.peer_rights, "push,pull");
	expected.idle = KVP_IDLE_ADAPTIVE;
	expected.idle_us = 100;
	expected.timeout_ms = 1000;
	expected.heartbeat_ms = 1000;
	expected.dead_ms = 3000;
	expected.streams = 2;
	expected.verbs_gid_index = 255;
	expected.verbs_rails = 4;
	expected.verbs_qps = 2;
	expected.verbs_traffic_class = 106;
	expected.verbs_timeout = 16;
	expected.verbs_retry = 6;
	expected.verbs_rnr_retry = 6;
	expected.verbs_rnr_timer = 12;
	expected.verbs_pieces = 30;
	expected.max_transfers = 4096;
	expected.max_events = 4096;
	expected.window_requests = 32;
	expected.window_kib = 4096;
	expected.huge_pages = 0;
	expected.insecure = 0;
	expected.eal_mem_mb = 64;
	expected.log_level = 2;
	memset(&config, 0xA5, sizeof(config));
	kvp_config_init(&config);
	assert_memory_equal(&config, &expected, sizeof(config));
	assert_int_equal(kvp_config_check(&config, &error), KVP_SUCCESS);
}

/* lint: long (a table of refusals) */
static void
set__refused(void **state)
{
	static const struct {
		const char *setting, *words;
	} bad[] = {
		{"", "no '='"},
		{"lanes", "'lanes' has no '='"},
		{"=3", "unknown; kvp_config_help()"},
		{"lane=3", "'lane=3' is unknown"},
		{"laness=3", "unknown"},
		{"Lanes=3", "unknown"},
		{" lanes=3", "unknown"},
		{"size=3", "unknown"},
		{"lanes=", "lanes '' is not a number in [1, 16]"},
		{"lanes=0", "lanes 0 is not in [1, 16]"},
		{"lanes=17", "lanes 17 is not in [1, 16]"},
		{"lanes=two", "lanes 'two' is not a number"},
		{"lanes=+2", "not a number"},
		{"lanes=-1", "not a number"},
		{"lanes= 2", "not a number"},
		{"lanes=2 ", "not a number"},
		{"lanes=2k", "not a number"},
		{"lanes=2.0", "not a number"},
		{"lanes=0x2", "not a number"},
		{"lanes==2", "not a number"},
		{"lanes=4294967298", "lanes 4294967298 is not in"}, /* 2 in 32 bits */
		{"lanes=18446744073709551618", "not a number"},     /* 2 in 64 bits */
		{"cluster_id=-1", "not a number"},
		{"cluster_id=0x", "not a number"},
		{"cluster_id=0xg", "not a number"},
		{"cluster_id=ff", "not a number"},
		{"cluster_id=18446744073709551616", "not a number"},
		{"cluster_id=0x10000000000000000", "not a number"},
		{"role=0", "role 0 is not in [1, 3]"},
		{"role=4", "role 4 is not in [1, 3]"},
		{"role=", "role '' is not prompt|decoder|mix or a number in [1, 3]"},
		{"role=Mix", "role 'Mix' is not prompt|decoder|mix"},
		{"role=mi", "role 'mi' is not"},
		{"role=prompt|decoder", "role 'prompt|decoder' is not"},
		{"idle=2", "idle 2 is not in [0, 1]"},
		{"idle=sleep", "idle 'sleep' is not adaptive|poll"},
		{"idle_us=1000001", "[0, 1000000]"},
		{"timeout_ms=0", "timeout_ms 0 is not in [1, 3600000]"},
		{"timeout_ms=3600001", "timeout_ms 3600001"},
		{"heartbeat_ms=9", "[10, 60000]"},
		{"heartbeat_ms=60001", "[10, 60000]"},
		{"dead_ms=29", "[30, 600000]"},
		{"dead_ms=600001", "[30, 600000]"},
		{"streams=0", "[1, 16]"},
		{"streams=17", "[1, 16]"},
		{"max_transfers=8", "power of two in [16, 65536]"},
		{"max_transfers=4095", "max_transfers 4095 is not a power of two"},
		{"max_transfers=131072", "power of two in [16, 65536]"},
		{"max_events=15", "[16, 65536]"},
		{"max_events=65537", "[16, 65536]"},
		{"window_requests=0", "[1, 1024]"},
		{"window_requests=1025", "[1, 1024]"},
		{"window_kib=63", "[64, 65536]"},
		{"window_kib=65537", "[64, 65536]"},
		{"huge_pages=2", "[0, 1]"},
		{"huge_pages=yes", "[0, 1]"},
		{"insecure=2", "[0, 1]"},
		{"eal_mem_mb=15", "[16, 4096]"},
		{"eal_mem_mb=4097", "[16, 4096]"},
		{"log_level=5", "[0, 4]"},
		{"listen=1.2.3.4", "listen: address '1.2.3.4' has no ':port'"},
		{"listen=host:1", "listen: address 'host:1'"},
		{"listen=[::1]:65536", "port is not in"},
		{"listen=" LONGEST "0", "listen is longer than 127 bytes"},
		{"transports=", "transports '' are not names"},
		{"transports=,", "not names"},
		{"transports=shm,", "not names"},
		{"transports=,shm", "not names"},
		{"transports=shm,,tcp", "not names"},
		{"transports=shm, tcp", "not names"},
		{"transports=SHM", "not names"},
		{"transports=tcp4", "not names"},
		{"transports=shm,tcp,shm", "name shm twice"},
		{"transports=a,b,c,d,e", "more than 4"},
		{"transports=abcdefghijklmnop", "longer than 15"},
		{"verbs_gid_index=256", "[0, 255]"},
		{"verbs_rails=0", "[1, 4]"},
		{"verbs_rails=5", "[1, 4]"},
		{"verbs_qps=0", "[1, 8]"},
		{"verbs_qps=9", "[1, 8]"},
		{"verbs_mtu=1500", "verbs_mtu 1500 is not 0 or a power of two in [256, 4096]"},
		{"verbs_mtu=128", "0 or a power of two in [256, 4096]"},
		{"verbs_mtu=8192", "0 or a power of two in [256, 4096]"},
		{"verbs_mtu=-0", "not a number"},
		{"verbs_traffic_class=256", "[0, 255]"},
		{"verbs_service_level=16", "[0, 15]"},
		{"verbs_timeout=0", "[1, 31]"}, /* would be for ever */
		{"verbs_timeout=32", "[1, 31]"},
		{"verbs_retry=8", "[0, 7]"},
		{"verbs_rnr_retry=7", "[0, 6]"}, /* the same */
		{"verbs_rnr_timer=0", "[1, 31]"},
		{"verbs_rnr_timer=32", "[1, 31]"},
		{"verbs_pieces=0", "[1, 30]"},
		{"verbs_pieces=31", "[1, 30]"},
		{"verbs_devices=,", "verbs_devices ',' are not names"},
		{"verbs_devices=mlx5_0,", "not names"},
		{"verbs_devices=,mlx5_0", "not names"},
		{"verbs_devices=mlx5_0,,mlx5_1", "not names"},
		{"verbs_devices=mlx5_0, mlx5_1", "not names"},
		{"verbs_devices=mlx5_0:", "not names"},
		{"verbs_devices=:1", "not names"},
		{"verbs_devices=mlx5_0:1:2", "not names"},
		{"verbs_devices=mlx5_0:x", "not names"},
		{"verbs_devices=mlx5_0:-1", "not names"},
		{"verbs_devices=mlx5_0:1000", "not names"},
		{"verbs_devices=../../dev", "not names"},
		{"verbs_devices=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		 "not names"}, /* 64 letters */
		{"peer_rights=write", "'write' are not push, pull"},
		{"peer_rights=push,", "are not push, pull"},
		{"peer_rights=push,push", "are not push, pull"},
		{"lane_cpus=,", "lane_cpus ',' are not numbers"},
		{"lane_cpus=2,", "not numbers"},
		{"lane_cpus=,2", "not numbers"},
		{"lane_cpus=2,,3", "not numbers"},
		{"lane_cpus=2-3", "not numbers"},
		{"lane_cpus=-1", "not numbers"},
		{"lane_cpus=2, 3", "not numbers"},
		{"lane_cpus=1024", "not numbers in [0, 1023]"},
		{"lane_cpus=00000000000000000000000000001", "not numbers"},
		{"lane_cpus=18446744073709551617", "not numbers"},
		{"lane_cpus=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", "more than 16"},
	};
	struct kvp_config before;

	(void)state;
	memcpy(&before, &config, sizeof(before));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (kvp_config_set(&config, bad[i].setting) != KVP_PARAM_INVALID)
			fail_msg("'%s' passed", bad[i].setting);
		assert_in(bad[i].words, kvp_error_message());
		assert_memory_equal(&config, &before, sizeof(config));
	}
}

static void
set__null_or_not_a_config(void **state)
{
	(void)state;
	assert_int_equal(kvp_config_set(NULL, "lanes=2"), KVP_PARAM_INVALID);
	assert_in("config is NULL", kvp_error_message());
	assert_int_equal(kvp_config_set(&config, NULL), KVP_PARAM_INVALID);
	assert_in("setting is NULL", kvp_error_message());
	config.size--;
	assert_int_equal(kvp_config_set(&config, "lanes=2"), KVP_PARAM_INVALID);
	assert_in("config.size", kvp_error_message());
	assert_int_equal(config.lanes, 1);
}

static void
set__message_is_one_line(void **state)
{
	(void)state;
	assert_int_equal(kvp_config_set(&config, "lanes=1\n\x1b[2J"), KVP_PARAM_INVALID);
	for (const char *c = kvp_error_message(); *c != '\0'; c++)
		assert_true(*c >= ' ');
}

/* Every number: lowest and highest, into its own field and no other. */
static void
set__numbers(void **state)
{
#define NUMBER(field, low, high)                                      \
	{                                                             \
#field, offsetof(struct kvp_config, field), low, high \
	}
	static const struct {
		const char *key;
		size_t offset;
		uint32_t low, high;
	} row[] = {
		NUMBER(role, 1, 3),
		NUMBER(role_rule, 0, 1),
		NUMBER(lanes, 1, 16),
		NUMBER(idle, 0, 1),
		NUMBER(idle_us, 0, 1000000),
		NUMBER(timeout_ms, 1, 3600000),
		NUMBER(heartbeat_ms, 10, 60000),
		NUMBER(dead_ms, 30, 600000),
		NUMBER(streams, 1, 16),
		NUMBER(verbs_gid_index, 0, 255),
		NUMBER(verbs_rails, 1, 4),
		NUMBER(verbs_qps, 1, 8),
		NUMBER(verbs_mtu, 0, 4096),
		NUMBER(verbs_mtu, 256, 1024),
		NUMBER(verbs_traffic_class, 0, 255),
		NUMBER(verbs_service_level, 0, 15),
		NUMBER(verbs_timeout, 1, 31),
		NUMBER(verbs_retry, 0, 7),
		NUMBER(verbs_rnr_retry, 0, 6),
		NUMBER(verbs_rnr_timer, 1, 31),
		NUMBER(verbs_pieces, 1, 30),
		NUMBER(max_transfers, 16, 65536),
		NUMBER(max_events, 16, 65536),
		NUMBER(window_requests, 1, 1024),
		NUMBER(window_kib, 64, 65536),
		NUMBER(huge_pages, 0, 1),
		NUMBER(insecure, 0, 1),
		NUMBER(eal_mem_mb, 16, 4096),
		NUMBER(log_level, 0, 4),
	};
	struct kvp_config expected;
	char setting[64];

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(row) / sizeof(row[0]); i++) {
		uint32_t value = i % 2 == 0 ? row[i / 2].low : row[i / 2].high;

		kvp_config_init(&config);
		kvp_config_init(&expected);
		memcpy((char *)&expected + row[i / 2].offset, &value, sizeof(value));
		snprintf(setting, sizeof(setting), "%s=%u", row[i / 2].key, value);
		assert_set(setting);
		assert_memory_equal(&config, &expected, sizeof(config));
	}
}

static void
set__cluster_id(void **state)
{
	(void)state;
	assert_set("cluster_id=18446744073709551615");
	assert_true(config.cluster_id == UINT64_MAX);
	assert_set("cluster_id=0xFfffffffFFFFFFFE");
	assert_true(config.cluster_id == UINT64_MAX - 1);
	assert_set("cluster_id=010");
	assert_int_equal(config.cluster_id, 10);
	assert_set("cluster_id=0");
	assert_int_equal(config.cluster_id, 0);
}

static void
set__words(void **state)
{
	(void)state;
	assert_set("role=prompt");
	assert_int_equal(config.role, KVP_ROLE_PROMPT);
	assert_set("role=decoder");
	assert_int_equal(config.role, KVP_ROLE_DECODER);
	assert_set("role_rule=strict");
	assert_int_equal(config.role_rule, KVP_ROLE_STRICT);
	assert_set("role=mix");
	assert_int_equal(config.role, KVP_ROLE_MIX);
	assert_set("idle=poll");
	assert_int_equal(config.idle, KVP_IDLE_POLL);
	assert_set("idle=adaptive");
	assert_int_equal(config.idle, KVP_IDLE_ADAPTIVE);
}

static void
set__texts(void **state)
{
	struct kvp_config expected;

	(void)state;
	kvp_config_init(&expected);
	assert_set("listen=[::1]:26000");
	strcpy(expected.listen, "[::1]:26000");
	assert_memory_equal(&config, &expected, sizeof(config));
	/* A shorter one leaves nothing of the longer one behind. */
	assert_set("listen=");
	memset(expected.listen, 0, sizeof(expected.listen));
	assert_memory_equal(&config, &expected, sizeof(config));
	assert_set(
		"verbs_devices=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:255,b");
	assert_set("verbs_devices=mlx5_0:1,rocep1s0f0.x-2");
	strcpy(expected.verbs_devices, "mlx5_0:1,rocep1s0f0.x-2");
	assert_memory_equal(&config, &expected, sizeof(config));
	assert_set("verbs_devices=");
	memset(expected.verbs_devices, 0, sizeof(expected.verbs_devices));
	assert_set("transports=tcp");
	assert_set("lane_cpus=0,1023");
	memset(expected.transports, 0, sizeof(expected.transports));
	strcpy(expected.transports, "tcp");
	strcpy(expected.lane_cpus, "0,1023");
	assert_memory_equal(&config, &expected, sizeof(config));
}

static void
set__longest_text(void **state)
{
	(void)state;
	assert_int_equal(strlen(LONGEST), KVP_TEXT_MAX - 1);
	assert_set("listen=" LONGEST);
	assert_string_equal(config.listen, LONGEST);
	assert_int_equal(kvp_config_check(&config, &error), KVP_SUCCESS);
}

static void
check__null_or_wrong_size(void **state)
{
	(void)state;
	assert_int_equal(kvp_config_check(NULL, &error), KVP_PARAM_INVALID);
	config.size = 0;
	assert_int_equal(kvp_config_check(&config, &error), KVP_PARAM_INVALID);
	assert_in("config.size is 0", error.text);
}

static void
assert_refused(kvp_status status, const char *words)
{
	assert_int_equal(kvp_config_check(&config, &error), status);
	assert_in(words, error.text);
	kvp_config_init(&config);
}

/* Written into the struct, past kvp_config_set. */
static void
check__fields(void **state)
{
	(void)state;
	config.role = 0;
	assert_refused(KVP_PARAM_INVALID, "role 0 is not in [1, 3]");
	config.lanes = 17;
	assert_refused(KVP_PARAM_INVALID, "lanes 17");
	config.idle = 2;
	assert_refused(KVP_PARAM_INVALID, "idle 2");
	config.idle_us = 1000001;
	assert_refused(KVP_PARAM_INVALID, "idle_us");
	config.timeout_ms = 0;
	assert_refused(KVP_PARAM_INVALID, "timeout_ms 0");
	config.heartbeat_ms = 9;
	assert_refused(KVP_PARAM_INVALID, "heartbeat_ms 9");
	config.dead_ms = 600001;
	assert_refused(KVP_PARAM_INVALID, "dead_ms 600001");
	config.streams = 0;
	assert_refused(KVP_PARAM_INVALID, "streams 0");
	config.verbs_rails = 5;
	assert_refused(KVP_PARAM_INVALID, "verbs_rails 5");
	config.verbs_qps = 0;
	assert_refused(KVP_PARAM_INVALID, "verbs_qps 0");
	config.verbs_mtu = 1500;
	assert_refused(KVP_PARAM_INVALID, "verbs_mtu 1500 is not 0 or a power of two");
	config.verbs_rnr_retry = 7;
	assert_refused(KVP_PARAM_INVALID, "verbs_rnr_retry 7");
	config.max_transfers = 0;
	assert_refused(KVP_PARAM_INVALID, "max_transfers 0");
	config.max_transfers = 48;
	assert_refused(KVP_PARAM_INVALID, "max_transfers 48 is not a power of two");
	config.max_events = 0;
	assert_refused(KVP_PARAM_INVALID, "max_events 0");
	config.window_requests = 0;
	assert_refused(KVP_PARAM_INVALID, "window_requests 0");
	config.window_kib = 0;
	assert_refused(KVP_PARAM_INVALID, "window_kib 0");
	config.huge_pages = 2;
	assert_refused(KVP_PARAM_INVALID, "huge_pages 2");
	config.insecure = 2;
	assert_refused(KVP_PARAM_INVALID, "insecure 2");
	config.eal_mem_mb = 0;
	assert_refused(KVP_PARAM_INVALID, "eal_mem_mb 0");
	config.log_level = UINT32_MAX;
	assert_refused(KVP_PARAM_INVALID, "log_level 4294967295");
}

static void
check__texts(void **state)
{
	(void)state;
	memset(config.listen, '1', sizeof(config.listen));
	assert_refused(KVP_PARAM_INVALID, "listen is longer than 127 bytes");
	memset(config.transports, 'a', sizeof(config.transports));
	assert_refused(KVP_PARAM_INVALID, "transports is longer");
	memset(config.lane_cpus, '1', sizeof(config.lane_cpus));
	assert_refused(KVP_PARAM_INVALID, "lane_cpus is longer");
	strcpy(config.listen, "nowhere");
	assert_refused(KVP_ADDRESS, "listen: address 'nowhere'");
	strcpy(config.transports, "");
	assert_refused(KVP_PARAM_INVALID, "transports");
	strcpy(config.lane_cpus, "x");
	assert_refused(KVP_PARAM_INVALID, "lane_cpus");
	strcpy(config.verbs_devices, "mlx5_0:");
	assert_refused(KVP_PARAM_INVALID, "verbs_devices 'mlx5_0:'");
	strcpy(config.verbs_devices, "mlx5_0,,mlx5_1");
	assert_refused(KVP_PARAM_INVALID, "verbs_devices");
	strcpy(config.verbs_devices, "mlx5_0:1,rocep1s0f0.x-2");
	assert_int_equal(kvp_config_check(&config, &error), KVP_SUCCESS);
}

static void
check__fields_against_each_other(void **state)
{
	(void)state;
	config.dead_ms = config.heartbeat_ms;
	assert_refused(KVP_PARAM_INVALID, "dead_ms 1000 is not above heartbeat_ms 1000");
	config.heartbeat_ms = 3001;
	assert_refused(KVP_PARAM_INVALID, "dead_ms 3000 is not above heartbeat_ms 3001");
	strcpy(config.lane_cpus, "2,3");
	assert_refused(KVP_PARAM_INVALID, "lane_cpus '2,3' are 2 for lanes 1");
	config.dead_ms = config.heartbeat_ms + 1;
	config.lanes = 2;
	strcpy(config.lane_cpus, "2,3");
	assert_int_equal(kvp_config_check(&config, &error), KVP_SUCCESS);
}

static void
cpus__lists(void **state)
{
	int cpu[KVP_LANES_MAX];

	(void)state;
	assert_int_equal(kvp_config_cpus(&config, cpu), 0);
	for (uint32_t i = 0; i < KVP_LANES_MAX; i++)
		assert_int_equal(cpu[i], -1);
	assert_set("lane_cpus=7,0,1023");
	assert_int_equal(kvp_config_cpus(&config, cpu), 3);
	assert_int_equal(cpu[0], 7);
	assert_int_equal(cpu[1], 0);
	assert_int_equal(cpu[2], 1023);
	for (uint32_t i = 3; i < KVP_LANES_MAX; i++)
		assert_int_equal(cpu[i], -1);
	assert_set("lane_cpus=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15");
	assert_int_equal(kvp_config_cpus(&config, cpu), 16);
	for (int i = 0; i < 16; i++)
		assert_int_equal(cpu[i], i);
}

static void
transports__lists(void **state)
{
	char names[KVP_RAILS_MAX][KVP_NAME_MAX];

	(void)state;
	assert_int_equal(kvp_config_transports(&config, names), 3);
	assert_string_equal(names[0], "verbs");
	assert_string_equal(names[1], "shm");
	assert_string_equal(names[2], "tcp");
	memset(names, 'x', sizeof(names));
	assert_set("transports=abcdefghijklmno,b,a,ab");
	assert_int_equal(kvp_config_transports(&config, names), 4);
	assert_string_equal(names[0], "abcdefghijklmno");
	assert_string_equal(names[1], "b");
	assert_string_equal(names[2], "a");
	assert_string_equal(names[3], "ab");
}

static void
peer_rights__words_or_nothing(void **state)
{
	(void)state;
	assert_set("peer_rights=pull,push");
	assert_string_equal(config.peer_rights, "pull,push");
	assert_set("peer_rights=");
	assert_string_equal(config.peer_rights, "");
	strcpy(config.peer_rights, "all");
	assert_int_equal(kvp_config_check(&config, &error), KVP_PARAM_INVALID);
	assert_in("peer_rights 'all'", error.text);
}

/* Each line's default can be set, and is the default; all 34 fields have a line. */
static void
help__lines(void **state)
{
	static char text[8192];
	char setting[256];
	struct kvp_config defaults;
	uint32_t lines = 0;
	int bytes = kvp_config_help(text, sizeof(text));

	(void)state;
	kvp_config_init(&defaults);
	assert_true(bytes > 0 && (size_t)bytes < sizeof(text));
	assert_int_equal(strlen(text), bytes);
	for (char *line = text, *end; *line != '\0'; line = end + 1, lines++) {
		char *first = strchr(line, '\t');
		char *second = first != NULL ? strchr(first + 1, '\t') : NULL;

		end = strchr(line, '\n');
		assert_true(end != NULL && second != NULL && second < end);
		assert_true(end - second > 10);
		snprintf(setting, sizeof(setting), "%.*s=%.*s", (int)(first - line), line,
			 (int)(second - first - 1), first + 1);
		assert_set(setting);
	}
	assert_memory_equal(&config, &defaults, sizeof(config));
	assert_int_equal(lines, 34);
	assert_in("max_transfers\t4096\tpower of two in [16, 65536]", text);
	assert_in("role\tmix\tprompt|decoder|mix", text);
	assert_in("lanes\t1\t[1, 16]", text);
}

static void
help__as_snprintf(void **state)
{
	static char whole[8192];
	int bytes = kvp_config_help(whole, sizeof(whole));

	(void)state;
	assert_int_equal(kvp_config_help(NULL, 0), bytes);
	assert_int_equal(kvp_config_help(NULL, 100), bytes);
	for (size_t size = 0; size <= (size_t)bytes + 1; size++) {
		char *tight = malloc(size > 0 ? size : 1);

		assert_non_null(tight);
		tight[0] = 'x';
		assert_int_equal(kvp_config_help(tight, size), bytes);
		if (size == 0) {
			assert_int_equal(tight[0], 'x');
		} else {
			assert_int_equal(strlen(tight), size - 1);
			assert_memory_equal(tight, whole, size - 1);
		}
		free(tight);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(init__null, reset),
		cmocka_unit_test_setup(init__defaults, reset),
		cmocka_unit_test_setup(set__refused, reset),
		cmocka_unit_test_setup(set__null_or_not_a_config, reset),
		cmocka_unit_test_setup(set__message_is_one_line, reset),
		cmocka_unit_test_setup(set__numbers, reset),
		cmocka_unit_test_setup(set__cluster_id, reset),
		cmocka_unit_test_setup(set__words, reset),
		cmocka_unit_test_setup(set__texts, reset),
		cmocka_unit_test_setup(set__longest_text, reset),
		cmocka_unit_test_setup(check__null_or_wrong_size, reset),
		cmocka_unit_test_setup(check__fields, reset),
		cmocka_unit_test_setup(check__texts, reset),
		cmocka_unit_test_setup(check__fields_against_each_other, reset),
		cmocka_unit_test_setup(cpus__lists, reset),
		cmocka_unit_test_setup(transports__lists, reset),
		cmocka_unit_test_setup(peer_rights__words_or_nothing, reset),
		cmocka_unit_test_setup(help__lines, reset),
		cmocka_unit_test_setup(help__as_snprintf, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
