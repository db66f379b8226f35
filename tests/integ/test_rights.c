/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer may do to an engine's caches: the setting peer_rights, seen from the other side. */
#include "pair.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct pair_shape shape = {
	.tensors = 2, .blocks = 4, .block_bytes = 4096, .is_shareable = true};
static const uint64_t blocks[4] = {0, 1, 2, 3};
static const struct pair_move all = {blocks, blocks, 4, 0, 0, 2};

/* B has `rights`, A all: what A may do at B, and that B may do everything at A. */
static void
rights_are(const char *transport, const char *rights, bool can_push, bool can_pull)
{
	struct kvp_config config_a, config_b;
	struct pair_cache a, b;
	struct kvp_push push;
	struct kvp_pull pull;
	struct pair pair;

	pair_config(&config_a, PAIR_A, transport);
	pair_config(&config_b, PAIR_B, transport);
	memset(config_b.peer_rights, 0, sizeof(config_b.peer_rights));
	snprintf(config_b.peer_rights, sizeof(config_b.peer_rights), "%s", rights);
	pair_open(&pair, &config_a, &config_b);
	pair_cache_open(&a, pair.a, &shape, 1);
	pair_cache_open(&b, pair.b, &shape, 2);

	push = pair_push(&a, PAIR_B, &b, &all);
	push.notify = (struct kvp_notify){.enabled = 1, .tag = 7};
	if (can_push) {
		assert_ok(kvp_push_blocks(pair.a, &push));
		pair_model_move(&b, &a, &all);
	} else {
		struct kvp_event event;

		assert_refused(KVP_FEATURE_NOT_ENABLED, "peer_rights lacks 'push'",
			       kvp_push_blocks(pair.a, &push));
		assert_status(KVP_NO_EVENT, kvp_event_poll(pair.b, &event));
	}
	pair_cache_check(&b, "pushed into");
	pair_cache_fill(&b, 3);
	pull = pair_pull(PAIR_B, &b, &a, &all);
	if (can_pull) {
		assert_ok(kvp_pull_blocks(pair.a, &pull));
		pair_model_move(&a, &b, &all);
	} else {
		assert_refused(KVP_FEATURE_NOT_ENABLED, "peer_rights lacks 'pull'",
			       kvp_pull_blocks(pair.a, &pull));
	}
	pair_cache_check(&a, "pulled into");

	/* The other way round nothing is forbidden. */
	push = pair_push(&b, PAIR_A, &a, &all);
	assert_ok(kvp_push_blocks(pair.b, &push));
	pair_model_move(&a, &b, &all);
	pair_cache_check(&a, "pushed back into");
	pair_cache_fill(&a, 4);
	pull = pair_pull(PAIR_A, &a, &b, &all);
	assert_ok(kvp_pull_blocks(pair.b, &pull));
	pair_model_move(&b, &a, &all);
	pair_cache_check(&b, "pulled back into");
	pair_cache_close(&a);
	pair_cache_close(&b);
	pair_close(&pair);
}

static void
peer_rights__bind_the_peer_alone(void **state)
{
	rights_are(*state, "push,pull", true, true);
	rights_are(*state, "push", true, false);
	rights_are(*state, "pull", false, true);
	rights_are(*state, "", false, false);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_BOTH(peer_rights__bind_the_peer_alone),
	};

	return PAIR_RUN(tests);
}
