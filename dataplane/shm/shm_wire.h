/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_wire.h - what two engines on one host tell each other
 *
 *   description  in HELLO: enough to see that both share a host
 *   offer        in the PATH frame: where to connect, and the path's secret
 *   message      on the UNIX connection, each with descriptors:
 *                ATTACH (rings, one eventfd per endpoint) both ways, then
 *                REGION (its memfd), REGION_GONE, in any order
 *
 * Shape:      fixed size; the byte order of the host, which is the same for both
 */
#ifndef KVP_SHM_WIRE_H
#define KVP_SHM_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define KVP_SHM_MAGIC   0x4D485356U
#define KVP_SHM_VERSION 1U
#define KVP_SHM_NAME_BYTES \
	32U /* of the abstract UNIX address, without its leading NUL; NUL padded */

struct kvp_shm_description {
	uint32_t magic;
	uint32_t version;
	uint64_t boot_hash; /* of the kernel's boot id: the same for all who share memory */
	uint64_t netns;     /* inode of the network namespace: abstract addresses are local to it */
	uint32_t uid;
	uint32_t unused;
};
_Static_assert(sizeof(struct kvp_shm_description) == 32, "no padding");
_Static_assert(sizeof(struct kvp_shm_description) <= KVP_BLOB_MAX, "fits HELLO");

struct kvp_shm_offer {
	uint32_t magic;
	uint32_t version;
	uint8_t token
		[KVP_TOKEN_BYTES]; /* names the path; random, so nobody else can attach to it */
	char name[KVP_SHM_NAME_BYTES];
};
_Static_assert(sizeof(struct kvp_shm_offer) == 56, "no padding");
_Static_assert(sizeof(struct kvp_shm_offer) <= KVP_BLOB_MAX, "fits a PATH frame");

enum kvp_shm_message_type {
	KVP_SHM_ATTACH = 1,
	KVP_SHM_REGION = 2,
	KVP_SHM_REGION_GONE = 3,
};

struct kvp_shm_message {
	uint32_t magic;
	uint32_t type;                  /* enum kvp_shm_message_type */
	uint8_t token[KVP_TOKEN_BYTES]; /* ATTACH: of the side that was connected to */
	uint64_t bytes;                 /* ATTACH, REGION: of the memfd */
	uint64_t probe_address;         /* ATTACH: where in the sender's memory ... */
	uint64_t probe_value;           /* ... this stands */
	uint32_t endpoints;             /* ATTACH */
	uint32_t region;                /* REGION, REGION_GONE: >= 1 */
	uint32_t pid;                   /* ATTACH: as the sender sees itself */
	uint32_t unused;
};
_Static_assert(sizeof(struct kvp_shm_message) == 64, "no padding");

#endif /* KVP_SHM_WIRE_H */
