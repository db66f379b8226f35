/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal status means silence: transfers are ended at random moments, their blocks change hands at once, and
 * whatever lands in them later is found.
 *
 * A trial has a victim and a bystander over the same link. The victim is cancelled, or runs out of time, or is freed, a
 * random moment after its submit. When its status is there its destination blocks get canaries and its source
 * blocks poison, and both stay so for the next SLOTS - 1 trials: then the canaries are looked at. The
 * bystander has to end well, with every byte.
 *
 * KVP_TEST_TRIALS is how many per direction and kind, KVP_TEST_SEED where the random numbers start.
 */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOTS   8U /* of which one is the bystander's */
#define VICTIMS (SLOTS - 1)
#define EACH    24U /* blocks of a slot */
#define BLOCK   4096U
#define TENSORS 4U
#define SOON    100000U  /* ns from submit to the end, at most: half of them */
#define LATER   2000000U /* the others: some run out of time */

static const struct pair_shape shape = {
	.tensors = TENSORS, .blocks = SLOTS * EACH, .block_bytes = BLOCK, .is_shareable = true};

enum kind {
	PUSH,
	PULL,
	OPEN, /* a push layer by layer */
	KINDS,
};

struct field {
	const struct pair *pair;
	struct pair_cache src,
		dst; /* of a push's two ends: engines a and b. A pull goes the other way */
	enum kind kind;
	uint64_t seed;
	uint64_t trial;
	uint32_t statuses[4];  /* SUCCESS, CANCELLED, TIMEOUT, of the victims; freed */
	uint8_t canary[SLOTS]; /* what the slot's destination holds; 0: not looked at */
};

/* Blocks of the slot, on either side. */
static void
slot_blocks(struct field *field, uint32_t slot, uint64_t *src, uint64_t *dst)
{
	pair_shuffle(src, EACH, &field->seed);
	pair_shuffle(dst, EACH, &field->seed);
	for (uint64_t i = 0; i < EACH; i++) {
		src[i] += (uint64_t)slot * EACH;
		dst[i] += (uint64_t)slot * EACH;
	}
}

static uint8_t *
block_at(const struct pair_cache *cache, uint32_t tensor, uint64_t block)
{
	return (uint8_t *)cache->tensor[tensor].base + block * BLOCK;
}

static void
slot_fill(const struct pair_cache *cache, uint32_t slot, uint8_t byte)
{
	for (uint32_t tensor = 0; tensor < TENSORS; tensor++)
		memset(block_at(cache, tensor, (uint64_t)slot * EACH), byte, EACH * BLOCK);
}

/* Nothing has been written since the canaries were laid. */
static void
canary_check(const struct field *field, uint32_t slot)
{
	if (field->canary[slot] == 0)
		return;
	for (uint32_t tensor = 0; tensor < TENSORS; tensor++) {
		const uint8_t *bytes = block_at(&field->dst, tensor, (uint64_t)slot * EACH);

		/* Equal to itself one byte on, and its first byte right: all are. */
		if (bytes[0] == field->canary[slot] &&
		    memcmp(bytes, bytes + 1, EACH * BLOCK - 1) == 0)
			continue;
		for (size_t i = 0; i < EACH * BLOCK; i++) {
			if (bytes[i] != field->canary[slot])
				fail_msg(
					"a late write: trial %llu, seed in KVP_TEST_SEED, slot %u, tensor "
					"%u, byte %zu is 0x%02x, the canary was 0x%02x",
					(unsigned long long)field->trial, slot, tensor, i, bytes[i],
					field->canary[slot]);
		}
	}
}

static kvp_status
submit(struct field *field, const uint64_t *src, const uint64_t *dst, bool is_victim,
       struct kvp_transfer **transfer_out)
{
	const struct pair_move move = {src, dst, EACH, 0, 0, TENSORS};
	struct kvp_push push;
	struct kvp_pull pull;

	if (field->kind == PULL) {
		/* By engine b, whose cache is the destination. */
		pull = pair_pull(PAIR_A, &field->src, &field->dst, &move);
		if (is_victim && pair_below(&field->seed, 4) == 0)
			pull.timeout_ms = 1;
		return kvp_pull_submit(field->pair->b, &pull, transfer_out);
	}
	push = pair_push(&field->src, PAIR_B, &field->dst, &move);
	push.notify.enabled = pair_below(&field->seed, 2) == 0;
	if (is_victim && pair_below(&field->seed, 4) == 0)
		push.timeout_ms = 1;
	if (field->kind == PUSH || !is_victim)
		return kvp_push_submit(field->pair->a, &push, transfer_out);
	push.notify.layers = push.notify.enabled != 0 && pair_below(&field->seed, 2) == 0;
	return kvp_push_open(field->pair->a, &push, transfer_out);
}

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Events of pushes with notification; nobody needs them here, but they must not fill the queue. */
static void
events_drop(struct kvp_engine *engine)
{
	struct kvp_event event;

	while (kvp_event_poll(engine, &event) == KVP_SUCCESS)
		;
}

/* Let the victim run for a while, its layers become ready meanwhile. */
static void
victim_runs(struct field *field, struct kvp_transfer *victim)
{
	uint64_t most_ns = pair_below(&field->seed, 2) == 0 ? SOON : LATER;
	uint64_t end_ns = now_ns() + pair_below(&field->seed, most_ns);
	int32_t layers = field->kind == OPEN ? (int32_t)pair_below(&field->seed, TENSORS + 1) : 0;

	for (int32_t layer = 0; layer < layers; layer++)
		(void)kvp_push_layer(victim, layer); /* it may be over */
	while (now_ns() < end_ns) {
		if (kvp_transfer_test(victim) != KVP_IN_PROGRESS)
			break;
	}
}

static void
victim_ends(struct field *field, struct kvp_transfer *victim)
{
	kvp_status status;

	if (pair_below(&field->seed, 8) == 0) {
		kvp_transfer_free(victim); /* which cancels and waits */
		field->statuses[3]++;
		return;
	}
	assert_ok(kvp_transfer_cancel(victim));
	status = kvp_transfer_wait(victim, PAIR_LONG_MS);
	if (status != KVP_SUCCESS && status != KVP_CANCELLED && status != KVP_TIMEOUT)
		fail_msg("trial %llu: %s", (unsigned long long)field->trial, kvp_error_message());
	field->statuses[status == KVP_SUCCESS ? 0 : status == KVP_CANCELLED ? 1 : 2]++;
	kvp_transfer_free(victim);
}

static void
bystander_ends(struct field *field, struct kvp_transfer *bystander, const uint64_t *src,
	       const uint64_t *dst)
{
	assert_ok(kvp_transfer_wait(bystander, PAIR_LONG_MS));
	kvp_transfer_free(bystander);
	for (uint32_t tensor = 0; tensor < TENSORS; tensor++) {
		for (uint32_t i = 0; i < EACH; i++)
			assert_memory_equal(block_at(&field->dst, tensor, dst[i]),
					    block_at(&field->src, tensor, src[i]), BLOCK);
	}
}

static void
trial_run(struct field *field)
{
	uint32_t slot = (uint32_t)(field->trial % VICTIMS);
	uint64_t src[2][EACH], dst[2][EACH];
	struct kvp_transfer *victim, *bystander;
	uint8_t mark = (uint8_t)(1 + field->trial % 250);

	canary_check(field, slot);
	field->canary[slot] = 0;
	slot_fill(&field->src, slot, 0x5A);
	slot_fill(&field->src, VICTIMS, mark);
	slot_blocks(field, slot, src[0], dst[0]);
	slot_blocks(field, VICTIMS, src[1], dst[1]);
	assert_ok(submit(field, src[0], dst[0], true, &victim));
	assert_ok(submit(field, src[1], dst[1], false, &bystander));
	victim_runs(field, victim);
	victim_ends(field, victim);
	/* The blocks are somebody else's from here on. */
	field->canary[slot] = mark;
	slot_fill(&field->dst, slot, mark);
	slot_fill(&field->src, slot, 0xBD);
	bystander_ends(field, bystander, src[1], dst[1]);
	canary_check(field, slot);
	events_drop(field->pair->a);
	events_drop(field->pair->b);
}

static uint64_t
number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void
field_run(const struct pair *pair, enum kind kind)
{
	uint64_t trials = number_of("KVP_TEST_TRIALS", 200 / pair_slow() + 1);
	struct field field = {.pair = pair, .kind = kind, .seed = number_of("KVP_TEST_SEED", 1)};

	alarm((unsigned)(120 + trials / 50)); /* of all trials so far, too */
	pair_cache_open(&field.src, pair->a, &shape, 1);
	pair_cache_open(&field.dst, pair->b, &shape, 2);
	for (field.trial = 0; field.trial < trials; field.trial++)
		trial_run(&field);
	for (uint32_t slot = 0; slot < VICTIMS; slot++)
		canary_check(&field, slot);
	printf("%llu victims: %u ended well, %u cancelled, %u timed out, %u freed\n",
	       (unsigned long long)trials, field.statuses[0], field.statuses[1], field.statuses[2],
	       field.statuses[3]);
	/* All of it, and none of it, would prove nothing. */
	assert_true(field.statuses[1] + field.statuses[2] + field.statuses[3] > trials / 20);
	pair_cache_close(&field.src);
	pair_cache_close(&field.dst);
}

static void
push__ended_at_random(void **state)
{
	field_run(*state, PUSH);
}

static void
pull__ended_at_random(void **state)
{
	field_run(*state, PULL);
}

static void
open_push__ended_at_random(void **state)
{
	field_run(*state, OPEN);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAIR_TEST(push__ended_at_random),
		PAIR_TEST(pull__ended_at_random),
		PAIR_TEST(open_push__ended_at_random),
	};

	return PAIR_RUN(tests);
}
