/* SPDX-License-Identifier: Apache-2.0 */
/* Roles: what they forbid when they do, and changing them together with the listener. */
#include "pair.h"

#include <stdio.h>
#include <string.h>

static const uint64_t blocks[] = {0, 1};
static const struct pair_move two = {blocks, blocks, 2, 0, 0, 2};
static const struct pair_shape small = {
	.tensors = 2, .blocks = 4, .block_bytes = 64, .is_shareable = true};

/* Whether a link to 127.0.0.1:`port` from another engine comes up; it is gone afterwards. */
static kvp_status
try_port(struct kvp_engine *from, uint16_t port)
{
	char address[32];
	uint64_t cluster;
	kvp_status status;

	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	status = kvp_link(from, address, PAIR_SLOW(2000), &cluster);
	if (status == KVP_SUCCESS)
		assert_ok(kvp_unlink(from, cluster, PAIR_SLOW(2000), 0));
	return status;
}

static void
listen_text(uint16_t port, char text[32])
{
	snprintf(text, 32, "127.0.0.1:%u", port);
}

/* A port that was free a moment ago: what another engine listened on. */
static uint16_t
free_port(void)
{
	static const char *const settings[] = {"transports=shm,tcp", "listen=127.0.0.1:0",
					       "log_level=0"};
	struct kvp_engine *engine;
	uint16_t port;

	assert_ok(kvp_open_settings(settings, 3, &engine));
	port = kvp_port(engine);
	kvp_close(engine);
	return port;
}

static void
role_rule__strict(void **state)
{
	static const struct {
		uint32_t role;
		kvp_status push, pull;
	} rule[] = {
		{KVP_ROLE_PROMPT, KVP_SUCCESS, KVP_FAILED},
		{KVP_ROLE_DECODER, KVP_FAILED, KVP_SUCCESS},
		{KVP_ROLE_MIX, KVP_SUCCESS, KVP_SUCCESS},
	};

	for (uint32_t i = 0; i < 6; i++) {
		bool is_strict = i < 3;
		struct kvp_config a, b;
		struct pair_cache src, dst;
		struct kvp_push push;
		struct kvp_pull pull;
		struct pair pair;

		pair_config(&a, PAIR_A, *state);
		pair_config(&b, PAIR_B, *state);
		a.role = rule[i % 3].role;
		a.role_rule = is_strict ? KVP_ROLE_STRICT : KVP_ROLE_LABEL;
		pair_open(&pair, &a, &b);
		pair_cache_open(&src, pair.a, &small, 1);
		pair_cache_open(&dst, pair.b, &small, 2);
		push = pair_push(&src, PAIR_B, &dst, &two);
		pull = pair_pull(PAIR_B, &dst, &src, &two);
		if (is_strict && rule[i].push != KVP_SUCCESS)
			assert_refused(KVP_FAILED, "role_rule=label",
				       kvp_push_blocks(pair.a, &push));
		else
			assert_ok(kvp_push_blocks(pair.a, &push));
		if (is_strict && rule[i].pull != KVP_SUCCESS)
			assert_refused(KVP_FAILED, "role_rule=label",
				       kvp_pull_blocks(pair.a, &pull));
		else
			assert_ok(kvp_pull_blocks(pair.a, &pull));
		pair_cache_close(&src);
		pair_cache_close(&dst);
		pair_close(&pair);
	}
}

/* Role by role, with and without a listener, as LLM-DataDist's own sequence. */
static void
set_role__moves_the_listener(void **state)
{
	struct kvp_engine *engine, *other;
	struct kvp_link_info info;
	struct kvp_config config;
	char first[32], second[32];
	uint16_t ports[2] = {free_port(), 0};
	uint64_t cluster;

	pair_config(&config, PAIR_A, *state);
	assert_ok(kvp_open(&config, &other));
	config.cluster_id = PAIR_B;
	listen_text(ports[0], first);
	memcpy(config.listen, first, sizeof(first));
	config.role = KVP_ROLE_PROMPT;
	assert_ok(kvp_open(&config, &engine));
	ports[1] = free_port();
	listen_text(ports[1], second);
	assert_int_equal(kvp_port(engine), ports[0]);

	assert_ok(kvp_set_role(engine, KVP_ROLE_DECODER, ""));
	assert_int_equal(kvp_port(engine), 0);
	assert_int_equal(try_port(other, ports[0]), KVP_LINK_FAILED);
	assert_ok(kvp_set_role(engine, KVP_ROLE_PROMPT, first));
	assert_ok(kvp_set_role(engine, KVP_ROLE_DECODER, second));
	assert_int_equal(kvp_port(engine), ports[1]);
	assert_int_equal(try_port(other, ports[0]), KVP_LINK_FAILED);
	assert_ok(try_port(other, ports[1]));
	assert_ok(kvp_set_role(engine, KVP_ROLE_DECODER, second));
	assert_ok(kvp_set_role(engine, KVP_ROLE_MIX, NULL));
	assert_int_equal(kvp_port(engine), ports[1]);
	assert_ok(kvp_set_role(engine, KVP_ROLE_MIX, ""));
	assert_ok(kvp_set_role(engine, KVP_ROLE_PROMPT, first));

	/* The peer is told the role of now. Nothing changes under a link. */
	snprintf(second, sizeof(second), "%s", first);
	assert_ok(kvp_link(other, first, PAIR_LONG_MS, &cluster));
	assert_int_equal(cluster, PAIR_B);
	assert_ok(kvp_link_query(other, PAIR_B, &info));
	assert_int_equal(info.role, KVP_ROLE_PROMPT);
	assert_refused(KVP_EXIST_LINK, "unlink first", kvp_set_role(engine, KVP_ROLE_DECODER, ""));
	assert_int_equal(kvp_port(engine), ports[0]);
	assert_ok(kvp_unlink(other, PAIR_B, PAIR_LONG_MS, 0));
	kvp_close(engine);
	kvp_close(other);
}

static void
set_role__refusals_change_nothing(void **state)
{
	struct kvp_engine *engine, *other;
	struct kvp_config config;
	char taken[32], too_long[200];

	pair_config(&config, PAIR_A, *state);
	assert_ok(kvp_open(&config, &other));
	config.cluster_id = PAIR_B;
	config.role = KVP_ROLE_PROMPT;
	config.role_rule = KVP_ROLE_STRICT;
	assert_ok(kvp_open(&config, &engine));
	memset(too_long, '1', sizeof(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	listen_text(kvp_port(other), taken);
	assert_refused(KVP_FAILED, "engine", kvp_set_role(NULL, KVP_ROLE_MIX, NULL));
	assert_refused(KVP_PARAM_INVALID, "role is 0", kvp_set_role(engine, 0, NULL));
	assert_refused(KVP_PARAM_INVALID, "role is 4", kvp_set_role(engine, 4, ""));
	assert_refused(KVP_ADDRESS, "in use", kvp_set_role(engine, KVP_ROLE_DECODER, taken));
	assert_refused(KVP_ADDRESS, "", kvp_set_role(engine, KVP_ROLE_DECODER, "nonsense"));
	assert_refused(KVP_ADDRESS, "loopback",
		       kvp_set_role(engine, KVP_ROLE_DECODER, "0.0.0.0:0"));
	assert_refused(KVP_ADDRESS, "characters", kvp_set_role(engine, KVP_ROLE_DECODER, too_long));
	assert_ok(try_port(other, kvp_port(engine)));
	/* Still a prompt. */
	assert_refused(KVP_FAILED, "prompt does not pull",
		       kvp_pull_blocks(engine, &(struct kvp_pull){.src = {1, 1},
								  .dst_cache = 1,
								  .src_blocks = blocks,
								  .dst_blocks = blocks,
								  .count = 1,
								  .src_layers = {-1, -1},
								  .dst_layers = {-1, -1},
								  .tensors_per_layer = 1}));
	kvp_close(engine);
	kvp_close(other);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_BOTH(role_rule__strict),
		PAIR_BOTH(set_role__moves_the_listener),
		PAIR_BOTH(set_role__refusals_change_nothing),
	};

	return PAIR_RUN(tests);
}
