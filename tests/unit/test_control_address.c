/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cmocka.h>

static struct kvp_error error;

static struct sockaddr_storage
parse(const char *text)
{
	struct sockaddr_storage address;

	if (kvp_address_parse(text, &address, &error) != KVP_SUCCESS)
		fail_msg("%s: %s", text, error.text);
	return address;
}

static void
parse__malformed(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{"", "has no ':port'"},
		{"1.2.3.4", "has no ':port'"},
		{"localhost", "has no ':port'"},
		{"1.2.3.4:", "no port after"},
		{":26000", "not an IPv4 address"},
		{"localhost:26000", "not an IPv4 address (host names are not looked up)"},
		{"1.2.3:26000", "not an IPv4 address"},
		{"1.2.3.256:26000", "not an IPv4 address"},
		{"1.2.3.4.5:26000", "not an IPv4 address"},
		{" 1.2.3.4:26000", "not an IPv4 address"},
		{"1.2.3.4 :26000", "not an IPv4 address"},
		{"0x7f000001:26000", "not an IPv4 address"},
		{"1.2.3.4:65536", "port is not in [0, 65535]"},
		{"1.2.3.4:99999999999999999999", "port is not in [0, 65535]"},
		{"1.2.3.4:4294967297", "port is not in [0, 65535]"},
		{"1.2.3.4:-1", "not a decimal number"},
		{"1.2.3.4:+1", "not a decimal number"},
		{"1.2.3.4: 1", "not a decimal number"},
		{"1.2.3.4:1 ", "not a decimal number"},
		{"1.2.3.4:0x10", "not a decimal number"},
		{"1.2.3.4:http", "not a decimal number"},
		{"::1:26000", "IPv6 is written [ipv6]:port"},
		{"::1", "IPv6 is written [ipv6]:port"},
		{"[::1]", "no ':port' right after its ']'"},
		{"[::1]26000", "no ':port' right after its ']'"},
		{"[::1] :26000", "no ':port' right after its ']'"},
		{"[::1:26000", "no ']'"},
		{"[", "no ']'"},
		{"[]:1", "not an IPv6 address"},
		{"[1.2.3.4]:1", "not an IPv6 address"},
		{"[::g]:1", "not an IPv6 address"},
		{"[1:2:3:4:5:6:7:8:9]:1", "not an IPv6 address"},
		{"[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:1", "not an IPv6 address"},
		{"[::1]:", "no port after"},
		{"[::1]:65536", "port is not in [0, 65535]"},
		{"[::1]:1:2", "not a decimal number"},
	};
	struct sockaddr_storage address, untouched;

	(void)state;
	memset(&untouched, 0x5A, sizeof(untouched));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memcpy(&address, &untouched, sizeof(address));
		if (kvp_address_parse(bad[i].text, &address, &error) != KVP_ADDRESS)
			fail_msg("'%s' passed", bad[i].text);
		if (strstr(error.text, bad[i].words) == NULL)
			fail_msg("'%s': '%s' is not in '%s'", bad[i].text, bad[i].words,
				 error.text);
		/* The address itself is in every message. */
		if (strstr(error.text, bad[i].text) == NULL)
			fail_msg("'%s' is not in '%s'", bad[i].text, error.text);
		assert_memory_equal(&address, &untouched, sizeof(address));
	}
}

static void
parse__any_length(void **state)
{
	static char text[1000];
	struct sockaddr_storage address;

	(void)state;
	/* Around what inet_pton is given at most. */
	for (size_t length = INET6_ADDRSTRLEN - 2; length < INET6_ADDRSTRLEN + 2; length++) {
		memset(text, '0', length + 1);
		memcpy(text + 1 + length, "]:1", 4);
		text[0] = '[';
		assert_int_equal(kvp_address_parse(text, &address, &error), KVP_ADDRESS);
		memcpy(text + length, ":1", 3);
		text[0] = '0';
		assert_int_equal(kvp_address_parse(text, &address, &error), KVP_ADDRESS);
	}
	memset(text, '1', sizeof(text) - 1);
	assert_int_equal(kvp_address_parse(text, &address, &error), KVP_ADDRESS);
	text[500] = ':';
	assert_int_equal(kvp_address_parse(text, &address, &error), KVP_ADDRESS);
	text[0] = '[';
	text[499] = ']';
	assert_int_equal(kvp_address_parse(text, &address, &error), KVP_ADDRESS);
}

static void
parse__ipv4(void **state)
{
	struct sockaddr_storage address = parse("1.2.3.4:26000");
	struct sockaddr_in expected = {.sin_family = AF_INET, .sin_port = htons(26000)};

	(void)state;
	expected.sin_addr.s_addr = htonl(0x01020304);
	assert_int_equal(kvp_address_bytes(&address), sizeof(expected));
	assert_memory_equal(&address, &expected, sizeof(expected));
}

static void
parse__ipv6(void **state)
{
	struct sockaddr_storage address = parse("[2001:db8::7]:65535");
	struct sockaddr_in6 expected = {.sin6_family = AF_INET6, .sin6_port = htons(65535)};

	(void)state;
	expected.sin6_addr.s6_addr[0] = 0x20;
	expected.sin6_addr.s6_addr[1] = 0x01;
	expected.sin6_addr.s6_addr[2] = 0x0d;
	expected.sin6_addr.s6_addr[3] = 0xb8;
	expected.sin6_addr.s6_addr[15] = 7;
	assert_int_equal(kvp_address_bytes(&address), sizeof(expected));
	assert_memory_equal(&address, &expected, sizeof(expected));
}

static void
format__round_trip(void **state)
{
	static const char *const texts[] = {
		"0.0.0.0:0",
		"255.255.255.255:65535",
		"127.0.0.1:1",
		"[::]:0",
		"[::1]:26000",
		"[::ffff:10.0.0.1]:80",
		"[1111:2222:3333:4444:5555:6666:7777:8888]:65535",
	};
	char text[KVP_ADDRESS_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct sockaddr_storage address = parse(texts[i]);

		kvp_address_format(&address, text);
		assert_string_equal(text, texts[i]);
	}
}

static void
format__other_family(void **state)
{
	struct sockaddr_storage address = {.ss_family = AF_UNIX};
	char text[KVP_ADDRESS_TEXT_MAX];

	(void)state;
	kvp_address_format(&address, text);
	assert_string_equal(text, "?");
	assert_int_equal(kvp_address_bytes(&address), 0);
	assert_false(kvp_address_is_loopback(&address));
}

static void
is_loopback__no(void **state)
{
	static const char *const texts[] = {
		"126.255.255.255:1",
		"128.0.0.0:1",
		"0.0.0.0:1",
		"1.0.0.127:1",
		"10.0.0.1:1",
		"[::]:1",
		"[::2]:1",
		"[::101]:1",
		"[1::1]:1",
		"[::127.0.0.1]:1", /* compatible, not mapped */
		"[::ffff:126.0.0.1]:1",
		"[::ffff:128.0.0.1]:1",
		"[::fffe:127.0.0.1]:1",
		"[1::ffff:127.0.0.1]:1",
		"[fe80::1]:1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct sockaddr_storage address = parse(texts[i]);

		if (kvp_address_is_loopback(&address))
			fail_msg("%s", texts[i]);
	}
}

static void
is_loopback__yes(void **state)
{
	static const char *const texts[] = {
		"127.0.0.1:1", "127.0.0.0:1",          "127.255.255.255:0",
		"[::1]:1",     "[::ffff:127.0.0.1]:1", "[::ffff:127.255.255.255]:1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct sockaddr_storage address = parse(texts[i]);

		if (!kvp_address_is_loopback(&address))
			fail_msg("%s", texts[i]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__malformed),   cmocka_unit_test(parse__any_length),
		cmocka_unit_test(parse__ipv4),        cmocka_unit_test(parse__ipv6),
		cmocka_unit_test(format__round_trip), cmocka_unit_test(format__other_family),
		cmocka_unit_test(is_loopback__no),    cmocka_unit_test(is_loopback__yes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
