/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_wire.h - what crosses a data stream between two lanes
 *
 *   WRITE  extents payload   ->  <- WRITE_ACK                    push
 *   READ   extents           ->  <- READ_DATA payload READ_END   pull (refused: READ_DATA alone)
 *   NOTIFY body payload      ->  <- NOTIFY_ACK                   after everything of a push landed
 *
 * Both directions of a stream do all of this at once. A message is a 32-byte
 * preamble and what it announces, little-endian. READ_END exists so that an
 * owner whose cache goes away halfway through READ_DATA can keep the framing
 * with zeros and still say that the bytes are worthless.
 *
 * Shape:      extents in [1, KVP_TCP_EXTENTS], payload in [1, KVP_TCP_PAYLOAD] bytes; at most
 *             KVP_TCP_REQUESTS requests without an answer per direction, more is a protocol error
 * Threads:    pure
 */
#ifndef KVP_DATAPLANE_TCP_WIRE_H
#define KVP_DATAPLANE_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/status.h>
#include <kvpush/transfer.h>

#include "compiler.h"

#define KVP_TCP_VERSION        1U
#define KVP_TCP_PREAMBLE       32U
#define KVP_TCP_EXTENT         16U
#define KVP_TCP_EXTENTS        64U
#define KVP_TCP_PAYLOAD        (1U << 20)
#define KVP_TCP_REQUESTS       64U
#define KVP_TCP_NOTIFY_BODY    8U /* bytes of the push, before the payload */
#define KVP_TCP_BODY_MAX       (KVP_TCP_EXTENTS * KVP_TCP_EXTENT)
#define KVP_TCP_GREETING       16U
#define KVP_TCP_GREETING_MAGIC 0x5450564BU /* "KVPT" */

enum kvp_tcp_type {
	KVP_TCP_WRITE = 1,
	KVP_TCP_WRITE_ACK = 2,
	KVP_TCP_READ = 3,
	KVP_TCP_READ_DATA = 4,
	KVP_TCP_READ_END = 5,
	KVP_TCP_NOTIFY = 6,
	KVP_TCP_NOTIFY_ACK = 7,
};

/* In host order here; the same fields at the same places, little-endian, on the wire. */
struct kvp_tcp_preamble {
	uint8_t type; /* enum kvp_tcp_type */
	uint8_t zero;
	uint16_t extents;  /* WRITE, READ; NOTIFY: 1 + the layer it tells of, 0 = of all; else 0 */
	uint32_t bytes;    /* WRITE, READ, READ_DATA: payload; NOTIFY: body and payload; else 0 */
	uint32_t request;  /* the asking side's; answers repeat it */
	kvp_status status; /* answers; else 0 */
	int64_t cache;     /* WRITE, READ, NOTIFY: of the side that owns the memory; else 0 */
	uint64_t tag;      /* NOTIFY; else 0 */
};
_Static_assert(sizeof(struct kvp_tcp_preamble) == KVP_TCP_PREAMBLE, "no padding on the wire");
_Static_assert(offsetof(struct kvp_tcp_preamble, extents) == 2, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_preamble, bytes) == 4, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_preamble, request) == 8, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_preamble, status) == 12, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_preamble, cache) == 16, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_preamble, tag) == 24, "wire layout");

struct kvp_tcp_extent {
	uint32_t tensor;
	uint32_t bytes;
	uint64_t offset; /* from the base of the tensor */
};
_Static_assert(sizeof(struct kvp_tcp_extent) == KVP_TCP_EXTENT, "no padding on the wire");
_Static_assert(offsetof(struct kvp_tcp_extent, bytes) == 4, "wire layout");
_Static_assert(offsetof(struct kvp_tcp_extent, offset) == 8, "wire layout");
_Static_assert(KVP_TCP_NOTIFY_BODY + KVP_NOTIFY_BYTES_MAX <= KVP_TCP_BODY_MAX,
	       "a notification fits where extents do");

/* Write KVP_TCP_PREAMBLE bytes. */
KVP_HOT void
kvp_tcp_preamble_encode(const struct kvp_tcp_preamble *preamble, uint8_t *out);

/*
 * Read KVP_TCP_PREAMBLE bytes of a peer. False (*preamble_out untouched) when anything is not as
 * the comments above say: unknown type, a count or size out of its range, a status that this answer
 * never carries, a field that should be 0. The cache is not judged.
 */
KVP_MUST_USE KVP_HOT bool
kvp_tcp_preamble_decode(const uint8_t *in, struct kvp_tcp_preamble *preamble_out);

/* Bytes after the preamble that are needed to judge the message: extents, or all of a notification. */
KVP_HOT uint32_t
kvp_tcp_body_bytes(const struct kvp_tcp_preamble *preamble);

/* KVP_TCP_EXTENT bytes each. Nothing of a decoded one is judged. */
KVP_HOT void
kvp_tcp_extent_encode(const struct kvp_tcp_extent *extent, uint8_t *out);
KVP_HOT void
kvp_tcp_extent_decode(const uint8_t *in, struct kvp_tcp_extent *extent_out);

/* KVP_TCP_NOTIFY_BODY bytes. */
void
kvp_tcp_u64_encode(uint64_t value, uint8_t *out);
uint64_t
kvp_tcp_u64_decode(const uint8_t *in);

/* The KVP_TCP_GREETING bytes that say: stream `endpoint` was taken. */
void
kvp_tcp_greeting_encode(uint32_t endpoint, uint8_t *out);
KVP_MUST_USE bool
kvp_tcp_greeting_check(const uint8_t *in, uint32_t endpoint);

#endif /* KVP_DATAPLANE_TCP_WIRE_H */
