/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/verbs_rail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

static char why[512];

/* "10.0.0.1" or "fe80::1" as a GID. */
static void
gid_of(const char *text, uint8_t *gid)
{
	memset(gid, 0, KVP_VERBS_GID_BYTES);
	if (strchr(text, ':') != NULL) {
		assert_int_equal(inet_pton(AF_INET6, text, gid), 1);
		return;
	}
	gid[10] = gid[11] = 0xFF;
	assert_int_equal(inet_pton(AF_INET, text, gid + 12), 1);
}

static struct kvp_verbs_gid
entry(uint32_t index, const char *text, uint8_t prefix, bool is_roce_v2)
{
	struct kvp_verbs_gid gid = {.index = index, .prefix = prefix, .is_roce_v2 = is_roce_v2};

	gid_of(text, gid.gid);
	return gid;
}

static struct kvp_verbs_address
roce(const char *name, const char *text, uint8_t prefix)
{
	struct kvp_verbs_address address = {
		.prefix = prefix, .link = KVP_VERBS_ROCE, .mtu = 5, .speed = 100};

	gid_of(text, address.gid);
	snprintf(address.name, sizeof(address.name), "%s", name);
	return address;
}

static void
choose__passes_over_what_cannot_work(void **state)
{
	const struct kvp_verbs_gid table[] = {
		entry(0, "fe80::1", 64, false),    entry(1, "fe80::1", 64, true),
		entry(2, "10.1.2.3", 120, false),  entry(3, "10.1.2.3", 120, true),
		entry(4, "2001:db8::7", 64, true), entry(5, "10.9.9.9", 0, true),
	};

	(void)state;
	assert_int_equal(kvp_verbs_gid_choose(table, 6, -1, why, sizeof(why)), 3);
	assert_non_null(strstr(why, "GID 3 10.1.2.3/24"));
	/* IPv6 only when there is no IPv4. */
	assert_int_equal(kvp_verbs_gid_choose(table, 3, -1, why, sizeof(why)), -1);
	assert_non_null(strstr(why, "0 fe80::1 is RoCE v1"));
	assert_non_null(strstr(why, "1 fe80::1 is link-local"));
	assert_int_equal(kvp_verbs_gid_choose(table + 4, 2, -1, why, sizeof(why)), 0);
	assert_non_null(strstr(why, "2001:db8::7/64"));
	assert_int_equal(kvp_verbs_gid_choose(table + 5, 1, -1, why, sizeof(why)), -1);
	assert_non_null(strstr(why, "belongs to no interface"));
	assert_int_equal(kvp_verbs_gid_choose(NULL, 0, -1, why, sizeof(why)), -1);
}

static void
choose__lowest_index_of_equals(void **state)
{
	const struct kvp_verbs_gid table[] = {entry(7, "10.0.0.2", 120, true),
					      entry(5, "10.0.0.1", 120, true)};

	(void)state;
	assert_int_equal(kvp_verbs_gid_choose(table, 2, -1, why, sizeof(why)), 1);
}

static void
choose__forced_index_is_checked(void **state)
{
	static const struct {
		int forced, expected;
		const char *words;
	} cases[] = {
		{0, -1, "is RoCE v1; set 255"},     {1, -1, "is link-local"},
		{2, 2, "as verbs_gid_index says"},  {3, -1, "is empty"},
		{4, -1, "belongs to no interface"}, {9, -1, "there is no GID at that index"},
	};
	const struct kvp_verbs_gid table[] = {
		entry(0, "10.0.0.1", 120, false), entry(1, "169.254.3.4", 112, true),
		entry(2, "10.0.0.1", 120, true),  entry(3, "::", 0, true),
		entry(4, "10.0.0.3", 0, true),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(kvp_verbs_gid_choose(table, 5, cases[i].forced, why, sizeof(why)),
				 cases[i].expected);
		if (strstr(why, cases[i].words) == NULL)
			fail_msg("'%s' is not in '%s'", cases[i].words, why);
	}
}

static uint32_t
pair_up(const struct kvp_verbs_address *local, uint32_t locals,
	const struct kvp_verbs_address *remote, uint32_t remotes, uint32_t max,
	struct kvp_verbs_pair *pair)
{
	struct kvp_verbs_pair mirror[8];
	uint32_t pairs =
		kvp_verbs_pair_up(local, locals, remote, remotes, max, pair, why, sizeof(why));

	/* The other end finds the same ones. */
	assert_int_equal(
		kvp_verbs_pair_up(remote, remotes, local, locals, max, mirror, why, sizeof(why)),
		pairs);
	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t same = 0;

		for (uint32_t k = 0; k < pairs; k++)
			same += mirror[k].local == pair[i].remote &&
				mirror[k].remote == pair[i].local &&
				mirror[k].is_routed == pair[i].is_routed;
		assert_int_equal(same, 1);
	}
	return pairs;
}

static void
pair__by_subnet_not_by_position(void **state)
{
	const struct kvp_verbs_address local[] = {roce("a:1", "10.0.1.1", 120),
						  roce("b:1", "10.0.2.1", 120)};
	const struct kvp_verbs_address remote[] = {roce("c:1", "10.0.2.9", 120),
						   roce("d:1", "10.0.1.9", 120)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(local, 2, remote, 2, 4, pair), 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(pair[i].local, 1 - pair[i].remote);
		assert_false(pair[i].is_routed);
	}
	assert_int_equal(pair_up(local, 2, remote, 2, 1, pair), 1);
}

static void
pair__each_port_once(void **state)
{
	const struct kvp_verbs_address local[] = {roce("a:1", "10.0.1.1", 120),
						  roce("b:1", "10.0.1.2", 120),
						  roce("c:1", "10.0.1.3", 120)};
	const struct kvp_verbs_address remote[] = {roce("x:1", "10.0.1.11", 120),
						   roce("y:1", "10.0.1.12", 120)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(local, 3, remote, 2, 4, pair), 2);
	assert_int_not_equal(pair[0].local, pair[1].local);
	assert_int_not_equal(pair[0].remote, pair[1].remote);
}

static void
pair__routed_by_the_longest_common_prefix(void **state)
{
	const struct kvp_verbs_address local[] = {roce("a:1", "10.0.4.1", 127),
						  roce("b:1", "10.0.8.1", 127)};
	const struct kvp_verbs_address remote[] = {roce("x:1", "10.0.8.65", 127),
						   roce("y:1", "10.0.4.65", 127)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(local, 2, remote, 2, 4, pair), 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(pair[i].is_routed);
		assert_int_equal(pair[i].local, 1 - pair[i].remote);
	}
}

static void
pair__itself_only_as_a_last_resort(void **state)
{
	const struct kvp_verbs_address both[] = {roce("a:1", "10.0.1.1", 120),
						 roce("b:1", "10.0.1.2", 120)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(both, 2, both, 2, 4, pair), 2);
	assert_int_not_equal(pair[0].local, pair[0].remote);
	assert_int_not_equal(pair[1].local, pair[1].remote);
	assert_int_equal(pair_up(both, 1, both, 1, 4, pair), 1);
	assert_int_equal(pair[0].local, pair[0].remote);
}

/* Two engines of one host on the same two ports, which are in different networks. */
static void
pair__itself_rather_than_by_a_route(void **state)
{
	const struct kvp_verbs_address both[] = {roce("a:1", "192.0.2.1", 120),
						 roce("b:1", "198.51.100.1", 120)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(both, 2, both, 2, 4, pair), 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(pair[i].local, pair[i].remote);
		assert_false(pair[i].is_routed);
	}
}

static void
pair__families_and_link_layers_do_not_mix(void **state)
{
	struct kvp_verbs_address v4 = roce("a:1", "10.0.1.1", 120);
	struct kvp_verbs_address v6 = roce("b:1", "2001:db8::1", 64);
	struct kvp_verbs_address near = roce("c:1", "fe80::2", 64);
	struct kvp_verbs_address ib = roce("d:1", "fe80::9", 64);
	struct kvp_verbs_address other = ib, foreign = ib;
	struct kvp_verbs_pair pair[4];

	(void)state;
	ib.link = other.link = foreign.link = KVP_VERBS_INFINIBAND;
	other.gid[15] = 77;
	foreign.gid[7] = 1;
	assert_int_equal(pair_up(&v4, 1, &v6, 1, 4, pair), 0);
	assert_int_equal(kvp_verbs_pair_up(&v4, 1, &v6, 1, 4, pair, why, sizeof(why)), 0);
	assert_non_null(strstr(why, "here a:1 RoCE 10.0.1.1; there b:1 RoCE 2001:db8::1"));
	assert_int_equal(pair_up(&near, 1, &near, 1, 4, pair), 0); /* link-local */
	assert_int_equal(pair_up(&v6, 1, &ib, 1, 4, pair), 0);
	assert_int_equal(pair_up(&ib, 1, &other, 1, 4, pair), 1);
	assert_int_equal(pair_up(&ib, 1, &foreign, 1, 4, pair), 0);
	/* A port that is down has no GID. */
	memset(v4.gid, 0, sizeof(v4.gid));
	assert_int_equal(pair_up(&v4, 1, &v4, 1, 4, pair), 0);
}

static void
pair__loopback_leads_to_the_same_host_only(void **state)
{
	const struct kvp_verbs_address here = roce("a:1", "127.0.0.1", 104);
	const struct kvp_verbs_address other = roce("b:1", "127.0.0.2", 104);
	const struct kvp_verbs_address far = roce("c:1", "10.0.0.1", 120);
	const struct kvp_verbs_address here6 = roce("d:1", "::1", 128);
	const struct kvp_verbs_address far6 = roce("e:1", "2001:db8::1", 64);
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(&here, 1, &here, 1, 4, pair), 1);
	assert_int_equal(pair_up(&here, 1, &other, 1, 4, pair), 0);
	assert_int_equal(pair_up(&here, 1, &far, 1, 4, pair), 0);
	assert_int_equal(pair_up(&here6, 1, &far6, 1, 4, pair), 0);
}

/* An address that both hosts have, such as a bridge's, does not count beside a way that leads somewhere. */
static void
pair__an_address_of_both_hosts(void **state)
{
	const struct kvp_verbs_address local[] = {roce("a:1", "172.17.0.1", 112),
						  roce("b:1", "10.0.0.1", 120)};
	const struct kvp_verbs_address remote[] = {roce("a:1", "172.17.0.1", 112),
						   roce("b:1", "10.0.0.2", 120)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(local, 2, remote, 2, 4, pair), 1);
	assert_int_equal(pair[0].local, 1);
	assert_int_equal(pair[0].remote, 1);
}

/* The narrower of two prefixes decides: who has the wide one asks by ARP, in vain. */
static void
pair__prefixes_that_differ(void **state)
{
	const struct kvp_verbs_address wide = roce("a:1", "10.0.0.1", 104);
	const struct kvp_verbs_address narrow = roce("b:1", "10.0.1.1", 120);
	struct kvp_verbs_pair pair[4];

	(void)state;
	assert_int_equal(pair_up(&wide, 1, &narrow, 1, 4, pair), 1);
	assert_true(pair[0].is_routed);
}

/* Within a subnet the serial numbers only order: first with first, second with second. */
static void
pair__infiniband_by_subnet_then_in_order(void **state)
{
	struct kvp_verbs_address local[] = {roce("a:1", "fec0::11", 64),
					    roce("b:1", "fec0::12", 64),
					    roce("c:1", "fec0:0:0:1::7", 64)};
	struct kvp_verbs_address remote[] = {roce("x:1", "fec0:0:0:1::9", 64),
					     roce("y:1", "fec0::12:21", 64),
					     roce("z:1", "fec0::22", 64)};
	struct kvp_verbs_pair pair[4];

	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		local[i].link = remote[i].link = KVP_VERBS_INFINIBAND;
	assert_int_equal(pair_up(local, 3, remote, 3, 4, pair), 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_false(pair[i].is_routed);
		assert_int_equal(pair[i].remote, 2 - pair[i].local);
	}
	/* A port reaches itself only where nothing else is. */
	assert_int_equal(pair_up(local, 2, local, 2, 4, pair), 2);
	assert_int_not_equal(pair[0].local, pair[0].remote);
	assert_int_equal(pair_up(local, 1, local, 1, 4, pair), 1);
}

/* Random ports of two hosts: each is used once, subnets go before routes, as many as can be. */
static void
pair__random(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (uint32_t round = 0; round < 2000; round++) {
		struct kvp_verbs_address side[2][5];
		struct kvp_verbs_pair pair[4];
		uint32_t count[2], used[2] = {0, 0}, pairs, least;
		bool was_routed = false;

		for (uint32_t s = 0; s < 2; s++) {
			seed = seed * 1664525 + 1013904223;
			count[s] = 1 + (seed >> 16) % 5;
			for (uint32_t i = 0; i < count[s]; i++) {
				char text[32];

				seed = seed * 1664525 + 1013904223;
				snprintf(text, sizeof(text), "10.0.%u.%u", (seed >> 16) % 4,
					 1 + s * 64 + i * 2);
				side[s][i] = roce("x:1", text, 120);
			}
		}
		pairs = pair_up(side[0], count[0], side[1], count[1], 4, pair);
		least = count[0] < count[1] ? count[0] : count[1];
		assert_int_equal(pairs, least < 4 ? least : 4);
		for (uint32_t i = 0; i < pairs; i++) {
			const uint8_t *local = side[0][pair[i].local].gid;
			const uint8_t *remote = side[1][pair[i].remote].gid;

			assert_int_equal((used[0] >> pair[i].local | used[1] >> pair[i].remote) & 1,
					 0);
			used[0] |= 1U << pair[i].local;
			used[1] |= 1U << pair[i].remote;
			assert_int_equal(pair[i].is_routed, local[14] != remote[14]);
			assert_true(pair[i].is_routed || !was_routed);
			was_routed = pair[i].is_routed;
		}
	}
}

/* Lines are cut, never written past their end. */
static void
line__cut(void **state)
{
	const struct kvp_verbs_gid table[] = {entry(0, "fe80::1", 64, false),
					      entry(1, "fe80::1", 64, true)};
	const struct kvp_verbs_address v4 = roce("a:1", "10.0.1.1", 120);
	const struct kvp_verbs_address v6 = roce("b:1", "2001:db8::1", 64);
	struct kvp_verbs_pair pair[4];

	(void)state;
	for (size_t size = 0; size < 120; size++) {
		char *text = malloc(size > 0 ? size : 1);

		assert_non_null(text);
		text[0] = 'x';
		assert_int_equal(kvp_verbs_gid_choose(table, 2, -1, text, size), -1);
		assert_true(size == 0 ? text[0] == 'x' : memchr(text, 0, size) != NULL);
		text[0] = 'x';
		assert_int_equal(kvp_verbs_pair_up(&v4, 1, &v6, 1, 4, pair, text, size), 0);
		assert_true(size == 0 ? text[0] == 'x' : memchr(text, 0, size) != NULL);
		free(text);
	}
}

static void
text__as_people_know_it(void **state)
{
	uint8_t gid[KVP_VERBS_GID_BYTES];
	char text[64];

	(void)state;
	gid_of("192.0.2.1", gid);
	kvp_verbs_gid_text(gid, text, sizeof(text));
	assert_string_equal(text, "192.0.2.1");
	gid_of("2001:db8::1", gid);
	kvp_verbs_gid_text(gid, text, sizeof(text));
	assert_string_equal(text, "2001:db8::1");
	kvp_verbs_gid_text(gid, text, 4); /* no room: empty, not half */
	assert_string_equal(text, "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(choose__passes_over_what_cannot_work),
		cmocka_unit_test(choose__lowest_index_of_equals),
		cmocka_unit_test(choose__forced_index_is_checked),
		cmocka_unit_test(pair__by_subnet_not_by_position),
		cmocka_unit_test(pair__each_port_once),
		cmocka_unit_test(pair__routed_by_the_longest_common_prefix),
		cmocka_unit_test(pair__itself_only_as_a_last_resort),
		cmocka_unit_test(pair__itself_rather_than_by_a_route),
		cmocka_unit_test(pair__families_and_link_layers_do_not_mix),
		cmocka_unit_test(pair__loopback_leads_to_the_same_host_only),
		cmocka_unit_test(pair__an_address_of_both_hosts),
		cmocka_unit_test(pair__prefixes_that_differ),
		cmocka_unit_test(pair__infiniband_by_subnet_then_in_order),
		cmocka_unit_test(pair__random),
		cmocka_unit_test(line__cut),
		cmocka_unit_test(text__as_people_know_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
