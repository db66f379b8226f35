/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_rail.h"

#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "line.h"

#define IPV4_PREFIX       96U /* bits before an IPv4 address in a GID */
#define INFINIBAND_PREFIX 64U
#define PAIRS_MAX         64U

static bool
is_ipv4(const uint8_t *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static bool
is_link_local(const uint8_t *gid)
{
	if (is_ipv4(gid))
		return gid[12] == 169 && gid[13] == 254;
	return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80;
}

/* A host's way to itself, whatever the host. */
static bool
is_loopback(const uint8_t *gid)
{
	static const uint8_t one[KVP_VERBS_GID_BYTES] = {[15] = 1};

	return is_ipv4(gid) ? gid[12] == 127 : memcmp(gid, one, sizeof(one)) == 0;
}

static bool
is_zero(const uint8_t *gid)
{
	static const uint8_t zero[KVP_VERBS_GID_BYTES];

	return memcmp(gid, zero, sizeof(zero)) == 0;
}

void
kvp_verbs_gid_text(const uint8_t *gid, char *text, size_t size)
{
	const char *done;

	if (is_ipv4(gid))
		done = inet_ntop(AF_INET, gid + 12, text, (socklen_t)size);
	else
		done = inet_ntop(AF_INET6, gid, text, (socklen_t)size);
	if (done == NULL && size > 0)
		text[0] = '\0';
}

/* --- which GID ------------------------------------------------------------------------ */

const char *
kvp_verbs_gid_fault(const struct kvp_verbs_gid *gid)
{
	if (is_zero(gid->gid))
		return "is empty";
	if (!gid->is_roce_v2)
		return "is RoCE v1";
	if (is_link_local(gid->gid))
		return "is link-local";
	if (gid->prefix == 0)
		return "belongs to no interface here";
	return NULL;
}

static int
choose_forced(const struct kvp_verbs_gid *gid, uint32_t gids, int forced, struct kvp_line *line)
{
	char text[INET6_ADDRSTRLEN];

	for (uint32_t i = 0; i < gids; i++) {
		const char *fault;

		if (gid[i].index != (uint32_t)forced)
			continue;
		kvp_verbs_gid_text(gid[i].gid, text, sizeof(text));
		fault = kvp_verbs_gid_fault(&gid[i]);
		if (fault == NULL) {
			kvp_line_add(line, "GID %d %s as verbs_gid_index says", forced, text);
			return (int)i;
		}
		kvp_line_add(line,
			     "verbs_gid_index=%d: that GID, %s, %s; set 255 to have one chosen",
			     forced, text, fault);
		return -1;
	}
	kvp_line_add(
		line,
		"verbs_gid_index=%d: there is no GID at that index; set 255 to have one chosen",
		forced);
	return -1;
}

int
kvp_verbs_gid_choose(const struct kvp_verbs_gid *gid, uint32_t gids, int forced, char *why,
		     size_t size)
{
	struct kvp_line line = kvp_line_start(why, size);
	char text[INET6_ADDRSTRLEN];
	int best = -1;

	if (size > 0)
		why[0] = '\0';
	if (forced >= 0)
		return choose_forced(gid, gids, forced, &line);
	for (uint32_t i = 0; i < gids; i++) {
		if (kvp_verbs_gid_fault(&gid[i]) != NULL)
			continue;
		if (best < 0 || (is_ipv4(gid[i].gid) && !is_ipv4(gid[best].gid)) ||
		    (is_ipv4(gid[i].gid) == is_ipv4(gid[best].gid) &&
		     gid[i].index < gid[best].index))
			best = (int)i;
	}
	if (best >= 0) {
		kvp_verbs_gid_text(gid[best].gid, text, sizeof(text));
		kvp_line_add(&line, "GID %u %s/%u: first RoCE v2 %s address", gid[best].index, text,
			     is_ipv4(gid[best].gid) ? gid[best].prefix - IPV4_PREFIX
						    : gid[best].prefix,
			     is_ipv4(gid[best].gid) ? "IPv4" : "IPv6");
		return best;
	}
	kvp_line_add(&line, "no usable GID: give the interface an address");
	for (uint32_t i = 0; i < gids; i++) {
		kvp_verbs_gid_text(gid[i].gid, text, sizeof(text));
		kvp_line_add(&line, "%s %u %s %s", i == 0 ? ";" : ",", gid[i].index, text,
			     kvp_verbs_gid_fault(&gid[i]));
	}
	return -1;
}

/* --- which pairs ------------------------------------------------------------------------ */

static uint32_t
common_bits(const uint8_t *a, const uint8_t *b)
{
	for (uint32_t i = 0; i < KVP_VERBS_GID_BYTES; i++) {
		uint8_t differs = (uint8_t)(a[i] ^ b[i]);

		if (differs != 0)
			return 8 * i + (uint32_t)__builtin_clz(differs) - 24;
	}
	return 8 * KVP_VERBS_GID_BYTES;
}

#define SCORE_ROUTED 256U /* + bits that the addresses have in common */
/* A port reaches itself: two engines of one host that share it. Surer than a route that may not be. */
#define SCORE_SELF   512U
#define SCORE_SUBNET 1024U /* the same */

/* How good a pair is, more is better; 0: no packet gets there. */
static uint32_t
score(const struct kvp_verbs_address *local, const struct kvp_verbs_address *remote,
      bool *is_routed_out)
{
	uint32_t common = common_bits(local->gid, remote->gid);
	uint32_t prefix = local->prefix > remote->prefix ? local->prefix : remote->prefix;

	*is_routed_out = false;
	if (local->link != remote->link || is_zero(local->gid) || is_zero(remote->gid))
		return 0;
	if (local->link == KVP_VERBS_ROCE &&
	    (is_link_local(local->gid) || is_link_local(remote->gid)))
		return 0;
	if (common == 8 * KVP_VERBS_GID_BYTES)
		return SCORE_SELF;
	/* What follows the prefix is a serial number: no measure of anything. */
	if (local->link == KVP_VERBS_INFINIBAND)
		return common >= INFINIBAND_PREFIX ? SCORE_SUBNET : 0;
	if (is_ipv4(local->gid) != is_ipv4(remote->gid) || is_loopback(local->gid) ||
	    is_loopback(remote->gid))
		return 0;
	if (prefix > 0 && common >= prefix)
		return SCORE_SUBNET + common;
	*is_routed_out = true;
	return SCORE_ROUTED + common;
}

struct candidate {
	uint32_t score;
	struct kvp_verbs_pair pair;
};

/*
 * The better of two. Ties are broken by the addresses, in an order that both ends see alike: the
 * smaller GID of the pair, then the larger.
 */
static bool
is_better(const struct candidate *a, const struct candidate *b,
	  const struct kvp_verbs_address *local, const struct kvp_verbs_address *remote)
{
	const uint8_t *a_low = local[a->pair.local].gid, *a_high = remote[a->pair.remote].gid;
	const uint8_t *b_low = local[b->pair.local].gid, *b_high = remote[b->pair.remote].gid;
	const uint8_t *swap;
	int order;

	if (a->score != b->score)
		return a->score > b->score;
	if (memcmp(a_low, a_high, KVP_VERBS_GID_BYTES) > 0) {
		swap = a_low;
		a_low = a_high;
		a_high = swap;
	}
	if (memcmp(b_low, b_high, KVP_VERBS_GID_BYTES) > 0) {
		swap = b_low;
		b_low = b_high;
		b_high = swap;
	}
	order = memcmp(a_low, b_low, KVP_VERBS_GID_BYTES);
	if (order == 0)
		order = memcmp(a_high, b_high, KVP_VERBS_GID_BYTES);
	return order < 0;
}

static void
say_why_none(const struct kvp_verbs_address *local, uint32_t locals,
	     const struct kvp_verbs_address *remote, uint32_t remotes, struct kvp_line *line)
{
	char text[INET6_ADDRSTRLEN];

	kvp_line_add(line, "no port reaches one of the peer's: here");
	for (uint32_t i = 0; i < locals; i++) {
		kvp_verbs_gid_text(local[i].gid, text, sizeof(text));
		kvp_line_add(line, "%s %s %s %s", i > 0 ? "," : "", local[i].name,
			     local[i].link == KVP_VERBS_ROCE ? "RoCE" : "InfiniBand", text);
	}
	kvp_line_add(line, "; there");
	for (uint32_t i = 0; i < remotes; i++) {
		kvp_verbs_gid_text(remote[i].gid, text, sizeof(text));
		kvp_line_add(line, "%s %s %s %s", i > 0 ? "," : "", remote[i].name,
			     remote[i].link == KVP_VERBS_ROCE ? "RoCE" : "InfiniBand", text);
	}
}

uint32_t
kvp_verbs_pair_up(const struct kvp_verbs_address *local, uint32_t locals,
		  const struct kvp_verbs_address *remote, uint32_t remotes, uint32_t max,
		  struct kvp_verbs_pair *pair_out, char *why, size_t size)
{
	struct kvp_line line = kvp_line_start(why, size);
	uint64_t taken_local = 0, taken_remote = 0;
	bool has_subnet = false;
	uint32_t pairs = 0;

	if (size > 0)
		why[0] = '\0';
	while (pairs < max) {
		struct candidate best = {0};

		for (uint32_t l = 0; l < locals && l < PAIRS_MAX; l++) {
			for (uint32_t r = 0; r < remotes && r < PAIRS_MAX; r++) {
				struct candidate one = {.pair = {.local = l, .remote = r}};

				if ((taken_local >> l & 1) != 0 || (taken_remote >> r & 1) != 0)
					continue;
				one.score = score(&local[l], &remote[r], &one.pair.is_routed);
				/* Beside a way to another host, an address of both is a bridge's. */
				if (one.score == SCORE_SELF && has_subnet)
					continue;
				if (one.score > 0 &&
				    (best.score == 0 || is_better(&one, &best, local, remote)))
					best = one;
			}
		}
		if (best.score == 0)
			break;
		has_subnet |= best.score >= SCORE_SUBNET;
		taken_local |= UINT64_C(1) << best.pair.local;
		taken_remote |= UINT64_C(1) << best.pair.remote;
		pair_out[pairs++] = best.pair;
	}
	if (pairs == 0)
		say_why_none(local, locals, remote, remotes, &line);
	return pairs;
}
