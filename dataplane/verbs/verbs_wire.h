/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_wire.h - what two verbs transports tell each other, as bytes
 *
 *   description   HELLO: candidate ports. verbs_wire_ports
 *   offer         PATH: chosen rails and the QPs on them
 *   note          over the control connection, while the path lives: KEYS, KEYS_GONE, BROKEN, REBUILD, REBUILT, PROVEN
 *   send          SEND over a QP: a notification
 *
 * Little-endian, fixed fields. Decoders check everything: counts, ranges, sums; PROTOCOL with a line that says
 * which field. Nothing allocates.
 *
 * Life of a QP, both ends (the initiator of the link drives):
 *
 *   initiator                                 acceptor
 *   offer (QPs, PSNs)                    ->   to RTS
 *   to RTS, probe                        <-   offer
 *   probe completed: PROVEN{q, g}        ->   UP
 *   UP
 *   ... breaks here: flush, reset, REBUILD{q, g+1, own QP, PSN, taken of g} ->  break, flush, reset,
 *       to RTS, orphans of g are released
 *   orphans released, to RTS, probe      <-   REBUILT{q, g+1, own QP, PSN, taken of g}
 *   PROVEN{q, g+1} ...; probe failed: back off, REBUILD{g+2} (100 ms doubling to 5 s; at once on PORT_ACTIVE)
 *   ... breaks there:                    <-   BROKEN{q, g}   (after its flush), then as above
 *
 * A REBUILD for a generation that is not newer than the last one built is answered by nothing.
 *
 * Threads:    pure
 */
#ifndef KVP_VERBS_WIRE_H
#define KVP_VERBS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/transfer.h>

#include "compiler.h"
#include "error.h"
#include "transfer.h"
#include "verbs_device.h"
#include "verbs_rail.h"
#include "wire.h"

#define KVP_VERBS_VERSION       1U
#define KVP_VERBS_ENDPOINTS_MAX 8U  /* of a path over verbs */
#define KVP_VERBS_TOTAL_MAX     32U /* QPs of a path: rails x max(endpoints, QPs per rail) */
#define KVP_VERBS_SEND_PARTS    KVP_VERBS_ENDPOINTS_MAX
#define KVP_VERBS_SEND_MAX      (40U + KVP_VERBS_SEND_PARTS * 12U + KVP_NOTIFY_BYTES_MAX)

struct kvp_verbs_ports {
	uint32_t ports; /* [1, KVP_VERBS_PORTS_MAX] */
	struct kvp_verbs_address port[KVP_VERBS_PORTS_MAX];
};

/* One QP as the other end must know it to connect. */
struct kvp_verbs_peer_queue {
	uint32_t number; /* 24 bits; 0: there is none for now */
	uint32_t psn;    /* 24 bits */
};

struct kvp_verbs_offer {
	uint32_t rails;     /* [1, KVP_VERBS_RAILS_MAX] */
	uint32_t endpoints; /* [1, KVP_VERBS_ENDPOINTS_MAX], equals the PATH frame's */
	uint32_t
		per_rail; /* QPs of one endpoint on one rail, >= 1; product of the three <= KVP_VERBS_TOTAL_MAX */
	struct {
		struct kvp_verbs_address address; /* sender's port, as of now */
		uint32_t local;                   /* place of it in the sender's description */
		uint32_t remote; /* place of the other end's port in the other's description */
		uint32_t ece[3]; /* vendor id, options, comp mask; zeros: none */
		uint64_t
			credit; /* address of the credit words on this rail: one u64 per QP of the rail, in the order
				    endpoint * per_rail + n */
		uint32_t credit_rkey;
	} rail[KVP_VERBS_RAILS_MAX];
	struct kvp_verbs_peer_queue
		queue[KVP_VERBS_TOTAL_MAX]; /* [(endpoint * rails + rail) * per_rail + n] */
};

enum kvp_verbs_note_type {
	KVP_VERBS_KEYS = 1, /* a cache of the sender: spans with an rkey per rail */
	KVP_VERBS_KEYS_GONE =
		2, /* reserved for a withdrawal before CACHE_ADD; ignored when unknown */
	KVP_VERBS_BROKEN = 3,
	KVP_VERBS_REBUILD = 4,
	KVP_VERBS_REBUILT = 5,
	KVP_VERBS_PROVEN = 6,
};

/* BROKEN, REBUILD, REBUILT, PROVEN. */
struct kvp_verbs_queue_note {
	uint32_t endpoint;
	uint32_t queue; /* index in the endpoint */
	uint32_t
		generation; /* BROKEN, PROVEN: the one meant; REBUILD, REBUILT: the new one; >= 1 */
	uint32_t fenced;    /* REBUILD, REBUILT: the generation that is fenced with this */
	uint32_t taken;     /* and messages of it that the sender's lane has taken */
	struct kvp_verbs_peer_queue peer; /* REBUILD, REBUILT */
	struct kvp_verbs_address
		address; /* REBUILD, REBUILT: sender's port now (its GID may have moved) */
};

struct kvp_verbs_keys {
	int64_t cache_id;
	uint32_t spans; /* [1, 65536] */
	uint32_t rails;
};

/* One part of a transfer, as its notification names it. */
struct kvp_verbs_send_part {
	uint32_t endpoint;
	uint32_t key;  /* its immediates */
	uint32_t mask; /* QPs of that endpoint that an immediate must have come on; 0: none */
};

struct kvp_verbs_send {
	int64_t cache; /* the receiver's */
	uint64_t tag;
	uint64_t bytes; /* of the transfer */
	uint32_t
		parts; /* [1, KVP_VERBS_SEND_PARTS]; part[0] is the sending endpoint's own, its key names the notification */
	uint16_t payload_bytes; /* <= KVP_NOTIFY_BYTES_MAX */
	uint16_t layer;         /* 1 + the layer it tells of, <= KVP_TENSORS_MAX; 0: of all */
	struct kvp_verbs_send_part part[KVP_VERBS_SEND_PARTS];
};

/* Encoders return the bytes written; `out` has room (blob: KVP_BLOB_MAX, queue note: KVP_VERBS_NOTE_BYTES,
   send: KVP_VERBS_SEND_MAX, keys: kvp_verbs_keys_bytes). */
#define KVP_VERBS_NOTE_BYTES 96U
void
kvp_verbs_ports_encode(const struct kvp_verbs_ports *ports, struct kvp_blob *blob_out);
void
kvp_verbs_offer_encode(const struct kvp_verbs_offer *offer, struct kvp_blob *blob_out);
size_t
kvp_verbs_queue_note_encode(enum kvp_verbs_note_type type, const struct kvp_verbs_queue_note *note,
			    uint8_t *out);
size_t
kvp_verbs_keys_bytes(uint32_t spans, uint32_t rails);
/* Header; then one span after the other: address, bytes, rails x rkey. */
size_t
kvp_verbs_keys_encode(const struct kvp_verbs_keys *keys, uint8_t *out);
size_t
kvp_verbs_keys_span_encode(uint64_t address, uint64_t bytes, const uint32_t *rkey, uint32_t rails,
			   uint8_t *out);
KVP_HOT uint32_t
kvp_verbs_send_encode(const struct kvp_verbs_send *send, const uint8_t *payload, uint8_t *out);

KVP_MUST_USE kvp_status
kvp_verbs_ports_decode(const struct kvp_blob *blob, struct kvp_verbs_ports *ports_out,
		       struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_verbs_offer_decode(const struct kvp_blob *blob, struct kvp_verbs_offer *offer_out,
		       struct kvp_error *err);
/* Type of a note, 0: none of them. */
uint32_t
kvp_verbs_note_type(const uint8_t *body, uint32_t bytes);
KVP_MUST_USE kvp_status
kvp_verbs_queue_note_decode(const uint8_t *body, uint32_t bytes,
			    struct kvp_verbs_queue_note *note_out, struct kvp_error *err);
/* Checks the size for all spans too; then span `i`. */
KVP_MUST_USE kvp_status
kvp_verbs_keys_decode(const uint8_t *body, uint32_t bytes, struct kvp_verbs_keys *keys_out,
		      struct kvp_error *err);
void
kvp_verbs_keys_span_decode(const uint8_t *body, const struct kvp_verbs_keys *keys, uint32_t i,
			   uint64_t *address_out, uint64_t *bytes_out, uint32_t *rkey_out);
/* False: not a notification. *payload_out points into `in`. Every field is in its range afterwards. */
KVP_HOT bool
kvp_verbs_send_decode(const uint8_t *in, uint32_t bytes, struct kvp_verbs_send *send_out,
		      const uint8_t **payload_out);

#endif /* KVP_VERBS_WIRE_H */
