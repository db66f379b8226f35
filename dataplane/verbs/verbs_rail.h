/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_rail.h - which GID a port uses, and which ports of two hosts make a rail
 *
 * Two ports can be a rail when packets get from one to the other: InfiniBand with the same
 * subnet prefix; RoCE v2 with GIDs of one family, first of one subnet, else routed (both not
 * link-local). Pairs are taken best first, by the longest common prefix of the two addresses, each port
 * once. Positions in lists never decide, only break ties.
 *
 * Threads:    pure
 */
#ifndef KVP_VERBS_RAIL_H
#define KVP_VERBS_RAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler.h"
#include "error.h"

#define KVP_VERBS_GID_BYTES 16U

enum kvp_verbs_link {
	KVP_VERBS_INFINIBAND = 1,
	KVP_VERBS_ROCE = 2,
};

/* A port as the other side must know it. All of it may be a peer's word once decoded. */
struct kvp_verbs_address {
	uint8_t gid[KVP_VERBS_GID_BYTES]; /* RoCE: an IPv6 address, or ::ffff:a.b.c.d */
	uint8_t prefix; /* bits of the subnet in the GID: 96 + n for IPv4; InfiniBand: 64 */
	uint8_t link;   /* enum kvp_verbs_link */
	uint8_t mtu;    /* enum ibv_mtu, [1, 5] */
	uint8_t speed;  /* Gb/s, 0 = unknown, 255 = more */
	uint16_t lid;   /* InfiniBand */
	char name[16];  /* "mlx5_0:1", for people; NUL padded, printable */
};

/* One entry of a port's GID table. */
struct kvp_verbs_gid {
	uint32_t index;
	uint8_t gid[KVP_VERBS_GID_BYTES];
	uint8_t prefix; /* of the interface's address, 0 = no interface has it */
	bool is_roce_v2;
};

/* Why an entry cannot be used, as in "that GID is RoCE v1"; NULL: it can. */
const char *
kvp_verbs_gid_fault(const struct kvp_verbs_gid *gid);

/*
 * The GID to use: RoCE v2, not link-local, with an address that an interface has; IPv4 before IPv6, then
 * lowest index. `forced` >= 0: that index, checked. Returns the place in `gid`, or -1; `why` says how, or what is
 * wrong with each (one line).
 */
int
kvp_verbs_gid_choose(const struct kvp_verbs_gid *gid, uint32_t gids, int forced, char *why,
		     size_t size);

struct kvp_verbs_pair {
	uint32_t local; /* places in the two lists */
	uint32_t remote;
	bool is_routed; /* not of one subnet */
};

/*
 * Pair up ports, at most `max` pairs, best first. Deterministic, and the
 * same pairs from either side. Returns
 * how many; 0: `why` names for each local port what it has and why no remote port is reached.
 */
uint32_t
kvp_verbs_pair_up(const struct kvp_verbs_address *local, uint32_t locals,
		  const struct kvp_verbs_address *remote, uint32_t remotes, uint32_t max,
		  struct kvp_verbs_pair *pair_out, char *why, size_t size);

/* "192.0.2.1", "2001:db8::1" or "fe80:...": as people know the address. */
void
kvp_verbs_gid_text(const uint8_t *gid, char *text, size_t size);

#endif /* KVP_VERBS_RAIL_H */
