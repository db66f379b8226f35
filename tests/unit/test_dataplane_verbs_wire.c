/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/verbs_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kvp_error error;

static struct kvp_verbs_address
some_address(uint8_t n)
{
	struct kvp_verbs_address address = {
		.prefix = 120, .link = KVP_VERBS_ROCE, .mtu = 5, .speed = 200, .lid = 0x1234};

	for (uint32_t i = 0; i < KVP_VERBS_GID_BYTES; i++)
		address.gid[i] = (uint8_t)(n + i);
	snprintf(address.name, sizeof(address.name), "mlx5_%u:1", n);
	return address;
}

static struct kvp_verbs_offer
some_offer(uint32_t rails, uint32_t endpoints, uint32_t per_rail)
{
	struct kvp_verbs_offer offer = {
		.rails = rails, .endpoints = endpoints, .per_rail = per_rail};

	for (uint32_t r = 0; r < rails; r++) {
		offer.rail[r].address = some_address((uint8_t)r);
		offer.rail[r].local = r;
		offer.rail[r].remote = 7 - r;
		offer.rail[r].ece[0] = r + 1;
		offer.rail[r].ece[2] = 0xFFFFFFFFU;
		offer.rail[r].credit = 0x7F00000000000000U + r;
		offer.rail[r].credit_rkey = 0xABCD0000U + r;
	}
	for (uint32_t q = 0; q < rails * endpoints * per_rail; q++) {
		offer.queue[q].number = 0xFFFFFFU - q;
		offer.queue[q].psn = q;
	}
	return offer;
}

/* Every shorter blob is refused, and nothing behind it is read (the sanitizer sees that). */
static void
assert_tight(kvp_status (*decode)(const struct kvp_blob *, void *, struct kvp_error *),
	     const struct kvp_blob *blob)
{
	static uint8_t out[sizeof(struct kvp_verbs_offer)];
	struct kvp_blob cut = *blob;

	for (uint32_t bytes = 0; bytes < blob->bytes; bytes++) {
		cut.bytes = bytes;
		assert_int_equal(decode(&cut, out, &error), KVP_PROTOCOL);
	}
	cut.bytes = blob->bytes + 1;
	assert_int_equal(decode(&cut, out, &error), KVP_PROTOCOL);
}

static kvp_status
decode_ports(const struct kvp_blob *blob, void *out, struct kvp_error *err)
{
	return kvp_verbs_ports_decode(blob, out, err);
}

static kvp_status
decode_offer(const struct kvp_blob *blob, void *out, struct kvp_error *err)
{
	return kvp_verbs_offer_decode(blob, out, err);
}

static void
ports__round_trip(void **state)
{
	struct kvp_verbs_ports ports = {.ports = KVP_VERBS_PORTS_MAX}, got;
	struct kvp_blob blob = {0};

	(void)state;
	for (uint32_t i = 0; i < ports.ports; i++)
		ports.port[i] = some_address((uint8_t)i);
	kvp_verbs_ports_encode(&ports, &blob);
	assert_true(blob.bytes <= KVP_DESCRIPTION_MAX);
	assert_int_equal(kvp_verbs_ports_decode(&blob, &got, &error), KVP_SUCCESS);
	assert_memory_equal(&got, &ports, sizeof(ports));
	assert_tight(decode_ports, &blob);
}

static void
ports__names_are_made_printable(void **state)
{
	struct kvp_verbs_ports ports = {.ports = 1, .port = {some_address(0)}}, got;
	struct kvp_blob blob = {0};

	(void)state;
	memset(ports.port[0].name, '\x1B', sizeof(ports.port[0].name) - 1);
	kvp_verbs_ports_encode(&ports, &blob);
	assert_int_equal(kvp_verbs_ports_decode(&blob, &got, &error), KVP_SUCCESS);
	assert_string_equal(got.port[0].name, "???????????????");
}

static void
address__ranges(void **state)
{
	/* prefix, link, mtu: offsets in the blob behind its head and the GID */
	static const struct {
		uint32_t at;
		uint8_t value;
		const char *words;
	} bad[] = {{20, 129, "prefix"}, {21, 0, "link layer"}, {21, 3, "link layer"},
		   {22, 0, "MTU"},      {22, 6, "MTU"},        {2, 9, "version 9"}};
	struct kvp_verbs_ports ports = {.ports = 1, .port = {some_address(0)}}, got;
	struct kvp_blob blob = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kvp_verbs_ports_encode(&ports, &blob);
		blob.data[bad[i].at] = bad[i].value;
		assert_int_equal(kvp_verbs_ports_decode(&blob, &got, &error), KVP_PROTOCOL);
		assert_non_null(strstr(error.text, bad[i].words));
	}
}

static void
offer__round_trip(void **state)
{
	static const uint32_t shape[][3] = {{1, 1, 1}, {4, 1, 8}, {4, 8, 1}, {1, 8, 1}, {2, 3, 5}};
	struct kvp_verbs_offer got;

	(void)state;
	for (size_t i = 0; i < sizeof(shape) / sizeof(shape[0]); i++) {
		struct kvp_verbs_offer offer = some_offer(shape[i][0], shape[i][1], shape[i][2]);
		struct kvp_blob blob = {0};

		kvp_verbs_offer_encode(&offer, &blob);
		assert_true(blob.bytes <= KVP_BLOB_MAX);
		assert_int_equal(kvp_verbs_offer_decode(&blob, &got, &error), KVP_SUCCESS);
		assert_memory_equal(&got, &offer, sizeof(offer));
		if (blob.bytes < KVP_BLOB_MAX)
			assert_tight(decode_offer, &blob);
	}
}

static void
offer__ranges(void **state)
{
	static const struct {
		uint32_t at;
		uint8_t value;
	} bad[] = {{3, 0}, {3, 5}, {4, 0}, {4, 9}, {5, 1}, {6, 0}, {6, 9}, {46, 8}, {47, 8}};
	struct kvp_verbs_offer offer = some_offer(1, 1, 1), got;
	struct kvp_blob blob = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kvp_verbs_offer_encode(&offer, &blob);
		blob.data[bad[i].at] = bad[i].value;
		assert_int_equal(kvp_verbs_offer_decode(&blob, &got, &error), KVP_PROTOCOL);
	}
	offer.queue[0].number = 0x1000000U;
	kvp_verbs_offer_encode(&offer, &blob);
	assert_int_equal(kvp_verbs_offer_decode(&blob, &got, &error), KVP_PROTOCOL);
	offer.queue[0].number = 0; /* none for now */
	kvp_verbs_offer_encode(&offer, &blob);
	assert_int_equal(kvp_verbs_offer_decode(&blob, &got, &error), KVP_SUCCESS);
}

static void
note__round_trip(void **state)
{
	struct kvp_verbs_queue_note note = {.endpoint = 7,
					    .queue = 31,
					    .generation = 4095,
					    .fenced = 4094,
					    .taken = 0xFFFFFFFFU,
					    .peer = {0xFFFFFFU, 0xFFFFFFU},
					    .address = some_address(3)};
	struct kvp_verbs_queue_note got;
	uint8_t body[KVP_VERBS_NOTE_BYTES + 1];

	(void)state;
	for (uint32_t type = KVP_VERBS_BROKEN; type <= KVP_VERBS_PROVEN; type++) {
		bool is_long = type == KVP_VERBS_REBUILD || type == KVP_VERBS_REBUILT;
		struct kvp_verbs_queue_note expected = note;
		uint32_t bytes = (uint32_t)kvp_verbs_queue_note_encode(type, &note, body);

		if (!is_long)
			expected = (struct kvp_verbs_queue_note){
				.endpoint = 7, .queue = 31, .generation = 4095};
		assert_true(bytes <= KVP_VERBS_NOTE_BYTES);
		assert_int_equal(kvp_verbs_note_type(body, bytes), type);
		assert_int_equal(kvp_verbs_queue_note_decode(body, bytes, &got, &error),
				 KVP_SUCCESS);
		/* Without the padding at the end. */
		assert_memory_equal(&got, &expected,
				    offsetof(struct kvp_verbs_queue_note, address) +
					    sizeof(got.address));
		for (uint32_t cut = 0; cut <= bytes + 1; cut++) {
			if (cut != bytes)
				assert_int_equal(
					kvp_verbs_queue_note_decode(body, cut, &got, &error),
					KVP_PROTOCOL);
		}
	}
}

static void
note__ranges(void **state)
{
	static const struct {
		uint32_t at;
		uint8_t value;
	} bad[] = {{4, 8}, {8, 32}, {13, 0x10}, {17, 0x10}, {27, 1}, {31, 1}, {48, 129}, {3, 9}};
	struct kvp_verbs_queue_note note = {
		.generation = 1, .peer = {1, 1}, .address = some_address(3)};
	struct kvp_verbs_queue_note got;
	uint8_t body[KVP_VERBS_NOTE_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint32_t bytes =
			(uint32_t)kvp_verbs_queue_note_encode(KVP_VERBS_REBUILD, &note, body);

		body[bad[i].at] = bad[i].value;
		assert_int_equal(kvp_verbs_queue_note_decode(body, bytes, &got, &error),
				 KVP_PROTOCOL);
	}
}

static void
keys__round_trip(void **state)
{
	struct kvp_verbs_keys keys = {.cache_id = 9, .spans = 3, .rails = 2}, got;
	size_t size = kvp_verbs_keys_bytes(3, 2);
	uint8_t *body = malloc(size);
	size_t at;

	(void)state;
	assert_non_null(body);
	at = kvp_verbs_keys_encode(&keys, body);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t rkey[2] = {i, 0x80000000U + i};

		at += kvp_verbs_keys_span_encode(0x1000U * i, UINT64_MAX - i, rkey, 2, body + at);
	}
	assert_int_equal(at, size);
	assert_int_equal(kvp_verbs_note_type(body, (uint32_t)size), KVP_VERBS_KEYS);
	assert_int_equal(kvp_verbs_keys_decode(body, (uint32_t)size, &got, &error), KVP_SUCCESS);
	assert_memory_equal(&got, &keys, sizeof(keys));
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t address, bytes;
		uint32_t rkey[4];

		kvp_verbs_keys_span_decode(body, &got, i, &address, &bytes, rkey);
		assert_int_equal(address, 0x1000U * i);
		assert_int_equal(bytes, UINT64_MAX - i);
		assert_int_equal(rkey[1], 0x80000000U + i);
	}
	for (uint32_t cut = 0; cut < size; cut++)
		assert_int_equal(kvp_verbs_keys_decode(body, cut, &got, &error), KVP_PROTOCOL);
	body[12] = 4; /* one span more than there are bytes */
	assert_int_equal(kvp_verbs_keys_decode(body, (uint32_t)size, &got, &error), KVP_PROTOCOL);
	free(body);
}

static void
send__round_trip(void **state)
{
	struct kvp_verbs_send send = {.cache = INT64_MAX,
				      .tag = UINT64_MAX,
				      .bytes = 5,
				      .parts = KVP_VERBS_SEND_PARTS,
				      .payload_bytes = KVP_NOTIFY_BYTES_MAX,
				      .layer = KVP_TENSORS_MAX};
	uint8_t payload[KVP_NOTIFY_BYTES_MAX], out[KVP_VERBS_SEND_MAX + 1];
	struct kvp_verbs_send got = {0};
	const uint8_t *got_payload;
	uint32_t bytes;

	(void)state;
	memset(payload, 0x5C, sizeof(payload));
	for (uint32_t i = 0; i < send.parts; i++)
		send.part[i] = (struct kvp_verbs_send_part){i, i + 1, UINT32_MAX - i};
	bytes = kvp_verbs_send_encode(&send, payload, out);
	assert_true(bytes <= KVP_VERBS_SEND_MAX);
	assert_true(kvp_verbs_send_decode(out, bytes, &got, &got_payload));
	assert_memory_equal(&got, &send, sizeof(send));
	out[6]++; /* a layer that no cache has */
	assert_false(kvp_verbs_send_decode(out, bytes, &got, &got_payload));
	out[6]--;
	assert_memory_equal(got_payload, payload, sizeof(payload));
	for (uint32_t cut = 0; cut <= bytes + 1; cut++) {
		if (cut != bytes)
			assert_false(kvp_verbs_send_decode(out, cut, &got, &got_payload));
	}
	out[32] = KVP_VERBS_ENDPOINTS_MAX; /* the first part's endpoint */
	assert_false(kvp_verbs_send_decode(out, bytes, &got, &got_payload));
	out[32] = 0;
	out[36] = 0; /* its key, 1: 0 is none */
	assert_false(kvp_verbs_send_decode(out, bytes, &got, &got_payload));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ports__round_trip),
		cmocka_unit_test(ports__names_are_made_printable),
		cmocka_unit_test(address__ranges),
		cmocka_unit_test(offer__round_trip),
		cmocka_unit_test(offer__ranges),
		cmocka_unit_test(note__round_trip),
		cmocka_unit_test(note__ranges),
		cmocka_unit_test(keys__round_trip),
		cmocka_unit_test(send__round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
