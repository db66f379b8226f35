/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer is told of a cache, and what it believes. */
#include "verbs_nic.h"

/* --- keys ------------------------------------------------------------------------------------------ */

static void
keys__arrive_as_they_were_made(void **state)
{
	const uint32_t device[3] = {1, 0, 1};
	struct kvp_verbs_spans *spans;
	struct kvp_error err = {""};
	struct cache cache = {0};
	uint32_t bytes;
	int64_t id;
	uint8_t *note;

	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		cache_add(&cache, BASE + i * 16 * PAGE, 2, PAGE);
	hold_ok(&cache);
	cache.local.id = 77;
	note = kvp_verbs_keys_make(&cache.local, SLOT, device, 3, &bytes);
	assert_non_null(note);
	assert_int_equal(bytes, kvp_verbs_keys_bytes(5, 3));
	assert_int_equal(kvp_verbs_keys_take(note, bytes, 3, &id, &spans, &err), KVP_SUCCESS);
	assert_int_equal(id, 77);
	assert_int_equal(spans->count, 5);
	for (uint32_t i = 0; i < 5; i++) {
		const struct kvp_verbs_span *own = &held_of(&cache)->spans->span[i];

		assert_int_equal(spans->span[i].address, own->address);
		assert_int_equal(spans->span[i].bytes, own->bytes);
		for (uint32_t rail = 0; rail < 3; rail++)
			assert_int_equal(
				mr_of(&world.pd[device[rail]], spans->span[i].key[rail])->mr.lkey,
				own->key[device[rail]]);
	}
	free(spans);
	/* For other rails than the path has, and cut short. */
	assert_int_equal(kvp_verbs_keys_take(note, bytes, 2, &id, &spans, &err), KVP_PROTOCOL);
	assert_non_null(strstr(err.text, "3 rails"));
	for (uint32_t less = 0; less < bytes; less++)
		assert_int_equal(kvp_verbs_keys_take(note, less, 3, &id, &spans, &err),
				 KVP_PROTOCOL);
	free(note);
	forget(&cache);
}

struct range {
	uint64_t address;
	uint64_t bytes;
};

static kvp_status
take(const struct range *range, uint32_t ranges, struct kvp_verbs_spans **spans_out,
     struct kvp_error *err)
{
	struct kvp_verbs_keys keys = {.cache_id = 1, .spans = ranges, .rails = 1};
	uint8_t note[1024];
	size_t at = kvp_verbs_keys_encode(&keys, note);
	const uint32_t rkey = 5;
	int64_t id;

	for (uint32_t i = 0; i < ranges; i++)
		at += kvp_verbs_keys_span_encode(range[i].address, range[i].bytes, &rkey, 1,
						 note + at);
	return kvp_verbs_keys_take(note, (uint32_t)at, 1, &id, spans_out, err);
}

static void
keys__that_lie_are_refused(void **state)
{
	static const struct {
		struct range range[3];
		bool is_ok;
	} note[] = {
		{{{100, 10}, {110, 10}, {200, 1}}, true},
		{{{100, 10}, {120, 10}, {UINT64_MAX, 1}}, true},
		{{{100, 10}, {120, 10}, {UINT64_MAX, 2}}, false},
		{{{100, 10}, {120, 0}, {200, 1}}, false},
		{{{100, 10}, {109, 10}, {200, 1}}, false},
		{{{100, 10}, {100, 10}, {200, 1}}, false},
		{{{100, 10}, {90, 5}, {200, 1}}, false},
		{{{100, UINT64_MAX}, {110, 5}, {200, 1}}, false},
		{{{0, UINT64_MAX}, {110, 5}, {200, 1}}, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(note) / sizeof(note[0]); i++) {
		struct kvp_verbs_spans *spans = NULL;
		struct kvp_error err = {""};

		assert_int_equal(take(note[i].range, 3, &spans, &err),
				 note[i].is_ok ? KVP_SUCCESS : KVP_PROTOCOL);
		assert_int_equal(note[i].is_ok, err.text[0] == '\0');
		free(spans);
	}
}

static kvp_status
covers(const struct range *range, uint32_t ranges, uint64_t base, uint64_t blocks, uint64_t stride)
{
	struct kvp_remote_tensor tensor[2] = {
		{.tensor = {.base = (void *)(uintptr_t)range[0].address,
			    .num_blocks = 1,
			    .block_bytes = 1,
			    .block_stride = 1}},
		{.tensor = {.base = (void *)(uintptr_t)base,
			    .num_blocks = blocks,
			    .block_bytes = 10,
			    .block_stride = stride}},
	};
	struct kvp_remote_cache cache = {.id = 9, .num_tensors = 2, .tensors = tensor};
	struct kvp_verbs_spans *spans = NULL;
	struct kvp_error err = {""};
	kvp_status status;

	assert_int_equal(take(range, ranges, &spans, &err), KVP_SUCCESS);
	status = kvp_verbs_keys_cover(spans, &cache, &err);
	if (status != KVP_SUCCESS)
		assert_non_null(strstr(err.text, "tensor 1 of its cache 9"));
	free(spans);
	return status;
}

static void
keys__must_hold_every_tensor(void **state)
{
	static const struct range range[4] = {{1000, 100}, {1100, 50}, {1150, 50}, {1300, 100}};

	(void)state;
	assert_int_equal(covers(range, 4, 1000, 10, 10), KVP_SUCCESS);
	/* Over spans that touch, to the last byte. */
	assert_int_equal(covers(range, 4, 1000, 20, 10), KVP_SUCCESS);
	assert_int_equal(covers(range, 4, 1001, 20, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, 1145, 1, 10), KVP_SUCCESS);
	/* Not over a gap, though no block lies in it. */
	assert_int_equal(covers(range, 4, 1150, 3, 75), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, 1300, 10, 10), KVP_SUCCESS);
	assert_int_equal(covers(range, 4, 1300, 11, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 3, 1300, 10, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, 999, 1, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, 1200, 1, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, UINT64_MAX - 9, 1, 10), KVP_PROTOCOL);
	assert_int_equal(covers(range, 4, 0, 1, 10), KVP_PROTOCOL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DEVICES(keys__arrive_as_they_were_made),
		ON_DEVICES(keys__that_lie_are_refused),
		ON_DEVICES(keys__must_hold_every_tensor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
