/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_dataplane_tcp_wire.c - what may stand in a preamble
 *
 * links: dataplane/tcp/tcp_wire_fast.o
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "tcp/tcp_wire.h"

static void
preamble__is_little_endian_at_fixed_places(void **state)
{
	const struct kvp_tcp_preamble p = {.type = KVP_TCP_WRITE,
					   .extents = 0x0102,
					   .bytes = 0x03040506,
					   .request = 0x0708090A,
					   .status = 0x0B0C0D0E,
					   .cache = 0x1112131415161718,
					   .tag = 0x191A1B1C1D1E1F20};
	const uint8_t wire[KVP_TCP_PREAMBLE] = {1,    0,    0x02, 0x01, 0x06, 0x05, 0x04, 0x03,
						0x0A, 0x09, 0x08, 0x07, 0x0E, 0x0D, 0x0C, 0x0B,
						0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
						0x20, 0x1F, 0x1E, 0x1D, 0x1C, 0x1B, 0x1A, 0x19};
	uint8_t out[KVP_TCP_PREAMBLE];

	(void)state;
	kvp_tcp_preamble_encode(&p, out);
	assert_memory_equal(out, wire, sizeof(wire));
}

/* Refused, and then nothing was written. */
static void
refused(struct kvp_tcp_preamble p)
{
	struct kvp_tcp_preamble out = {.tag = 77};
	uint8_t wire[KVP_TCP_PREAMBLE];

	kvp_tcp_preamble_encode(&p, wire);
	assert_false(kvp_tcp_preamble_decode(wire, &out));
	assert_int_equal(out.tag, 77);
	assert_int_equal(out.type, 0);
}

static void
taken(struct kvp_tcp_preamble p, uint32_t body_bytes)
{
	struct kvp_tcp_preamble out;
	uint8_t wire[KVP_TCP_PREAMBLE];

	kvp_tcp_preamble_encode(&p, wire);
	assert_true(kvp_tcp_preamble_decode(wire, &out));
	assert_memory_equal(&out, &p, sizeof(p));
	assert_int_equal(kvp_tcp_body_bytes(&out), body_bytes);
	/* The byte that says nothing is 0. */
	wire[1] = 1;
	assert_false(kvp_tcp_preamble_decode(wire, &out));
}

static void
request__out_of_range_is_refused(void **state)
{
	static const uint8_t types[] = {KVP_TCP_WRITE, KVP_TCP_READ};

	(void)state;
	for (size_t i = 0; i < sizeof(types); i++) {
		const struct kvp_tcp_preamble good = {.type = types[i],
						      .extents = 64,
						      .bytes = KVP_TCP_PAYLOAD,
						      .request = UINT32_MAX,
						      .cache = -1};
		struct kvp_tcp_preamble p = good;

		taken(p, 1024);
		p.extents = 0;
		refused(p);
		p.extents = 65;
		refused(p);
		p = good;
		p.bytes = 0;
		refused(p);
		p.bytes = KVP_TCP_PAYLOAD + 1;
		refused(p);
		p.bytes = UINT32_MAX;
		refused(p);
		p = good;
		p.status = KVP_FAILED;
		refused(p);
		p = good;
		p.tag = 1;
		refused(p);
		p = good;
		p.extents = 1;
		p.bytes = 1;
		taken(p, 16);
	}
}

static void
notify__out_of_range_is_refused(void **state)
{
	const struct kvp_tcp_preamble good = {
		.type = KVP_TCP_NOTIFY, .bytes = 264, .request = 1, .cache = 1, .tag = UINT64_MAX};
	struct kvp_tcp_preamble p = good;

	(void)state;
	taken(p, 264);
	p.bytes = 8;
	taken(p, 8);
	p.bytes = 7;
	refused(p);
	p.bytes = 265;
	refused(p);
	p = good;
	p.extents = KVP_TENSORS_MAX; /* 1 + the last layer there can be */
	taken(p, 264);
	p.extents = KVP_TENSORS_MAX + 1;
	refused(p);
	p = good;
	p.status = 1;
	refused(p);
}

static void
answer__out_of_range_is_refused(void **state)
{
	static const uint8_t types[] = {KVP_TCP_WRITE_ACK, KVP_TCP_READ_DATA, KVP_TCP_READ_END,
					KVP_TCP_NOTIFY_ACK};
	static const kvp_status never[] = {
		KVP_FAILED,      KVP_TIMEOUT, KVP_PEER_LOST,     KVP_CANCELLED, KVP_STATUS_OWN,
		KVP_IN_PROGRESS, 1,           KVP_PEER_RESTARTED};

	(void)state;
	for (size_t i = 0; i < sizeof(types); i++) {
		const bool has_data = types[i] == KVP_TCP_READ_DATA;
		const struct kvp_tcp_preamble good = {
			.type = types[i], .request = 9, .bytes = has_data ? 1 : 0};
		struct kvp_tcp_preamble p = good;

		taken(p, 0);
		p.bytes = has_data ? 0 : 1;
		refused(p);
		p.bytes = KVP_TCP_PAYLOAD + 1;
		refused(p);
		p = good;
		p.extents = 1;
		refused(p);
		p = good;
		p.cache = 1;
		refused(p);
		p = good;
		p.tag = 1;
		refused(p);
		p = good;
		p.bytes = 0;
		p.status = KVP_PARAM_INVALID;
		taken(p, 0);
		p.status = KVP_CACHE_NOT_EXIST;
		taken(p, 0);
		p.status = KVP_NOT_YET_LINK;
		taken(p, 0);
		p.status = KVP_FEATURE_NOT_ENABLED;
		taken(p, 0);
		p.bytes = 1;
		refused(p);
		p.bytes = 0;
		for (size_t k = 0; k < sizeof(never) / sizeof(never[0]); k++) {
			p.status = never[k];
			refused(p);
		}
		p.status = KVP_NO_CREDIT;
		if (types[i] == KVP_TCP_NOTIFY_ACK)
			taken(p, 0);
		else
			refused(p);
	}
}

static void
type__unknown_is_refused(void **state)
{
	(void)state;
	for (uint32_t type = 0; type < 256; type++) {
		if (type >= KVP_TCP_WRITE && type <= KVP_TCP_NOTIFY_ACK)
			continue;
		refused((struct kvp_tcp_preamble){.type = (uint8_t)type});
		refused((struct kvp_tcp_preamble){.type = (uint8_t)type, .extents = 1, .bytes = 1});
	}
}

static void
extent__goes_round(void **state)
{
	const struct kvp_tcp_extent extent = {
		.tensor = 0x01020304, .bytes = 0x05060708, .offset = 0x1112131415161718};
	const uint8_t wire[KVP_TCP_EXTENT] = {4,    3,    2,    1,    8,    7,    6,    5,
					      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
	struct kvp_tcp_extent back;
	uint8_t out[KVP_TCP_EXTENT];

	(void)state;
	kvp_tcp_extent_encode(&extent, out);
	assert_memory_equal(out, wire, sizeof(wire));
	kvp_tcp_extent_decode(out, &back);
	assert_memory_equal(&back, &extent, sizeof(extent));
	kvp_tcp_u64_encode(0x1112131415161718, out);
	assert_memory_equal(out, wire + 8, 8);
	assert_int_equal(kvp_tcp_u64_decode(out), 0x1112131415161718);
}

static void
greeting__names_its_stream(void **state)
{
	uint8_t out[KVP_TCP_GREETING];

	(void)state;
	kvp_tcp_greeting_encode(5, out);
	assert_true(kvp_tcp_greeting_check(out, 5));
	assert_false(kvp_tcp_greeting_check(out, 4));
	for (size_t i = 0; i < sizeof(out); i++) {
		out[i] ^= 0x10;
		assert_false(kvp_tcp_greeting_check(out, 5));
		out[i] ^= 0x10;
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(preamble__is_little_endian_at_fixed_places),
		cmocka_unit_test(request__out_of_range_is_refused),
		cmocka_unit_test(notify__out_of_range_is_refused),
		cmocka_unit_test(answer__out_of_range_is_refused),
		cmocka_unit_test(type__unknown_is_refused),
		cmocka_unit_test(extent__goes_round),
		cmocka_unit_test(greeting__names_its_stream),
	};

	return cmocka_run_group_tests_name("dataplane/tcp_wire", tests, NULL, NULL);
}
