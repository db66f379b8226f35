/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - the frames of the control connection
 *
 * Every frame is a 16-byte header and a body, little-endian, fixed fields.
 * Decoders check everything: a body that is short, long, or out of range is
 * KVP_PROTOCOL with a line that says which field. Nothing allocates.
 *
 *   HELLO -> <- WELCOME            who we are, what we can (or <- REFUSE)
 *   PATH  -> <- PATH               which transport, and its opaque offer
 *   REGION*, CACHE_ADD*, CATALOGUE_END, READY   both ways; then
 *   HEARTBEAT, CACHE_ADD, CACHE_GONE/_ACK, SYNC/_ACK, UNLINK/_ACK, BYE
 *   NOTE                           between the two paths, opaque here, from the catalogue on
 *   STREAM                         first frame of a data connection instead of HELLO
 *
 * Shape:      body <= KVP_FRAME_EARLY_MAX before WELCOME, <= KVP_FRAME_BODY_MAX after
 * Threads:    pure
 */
#ifndef KVP_ENGINE_WIRE_H
#define KVP_ENGINE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <kvpush/cache.h>

#include "compiler.h"
#include "error.h"

#define KVP_WIRE_MAGIC      0x3150564BU /* "KVP1" */
#define KVP_WIRE_VERSION    1
#define KVP_FRAME_HEADER    16U
#define KVP_FRAME_EARLY_MAX 2048U
#define KVP_FRAME_BODY_MAX  (1U << 20)
#define KVP_DESCRIPTION_MAX 448U  /* of a transport, in HELLO */
#define KVP_BLOB_MAX        1024U /* a transport's offer */
#define KVP_TOKEN_BYTES     16U
#define KVP_RAILS_MAX       4U
#define KVP_NAME_MAX        16U /* with at least one NUL */

/* Ranges that both ends hold each other to; the settings of the same names have them too. */
#define KVP_LANES_MAX          16U
#define KVP_PATH_ENDPOINTS_MAX 16U
#define KVP_HEARTBEAT_MS_MIN   10U
#define KVP_HEARTBEAT_MS_MAX   60000U

enum kvp_frame_type {
	KVP_FRAME_HELLO = 1,
	KVP_FRAME_WELCOME = 2,
	KVP_FRAME_REFUSE = 3,
	KVP_FRAME_PATH = 4,
	KVP_FRAME_CACHE_ADD = 5,
	KVP_FRAME_CACHE_GONE = 6,
	KVP_FRAME_CACHE_GONE_ACK = 7,
	KVP_FRAME_CATALOGUE_END = 8,
	KVP_FRAME_READY = 9,
	KVP_FRAME_HEARTBEAT = 10,
	KVP_FRAME_SYNC = 11,
	KVP_FRAME_SYNC_ACK = 12,
	KVP_FRAME_UNLINK = 13,
	KVP_FRAME_UNLINK_ACK = 14,
	KVP_FRAME_BYE = 15,
	KVP_FRAME_STREAM = 16,
	KVP_FRAME_NOTE = 17,
	KVP_FRAME_TYPES,
};

/*
 * On the wire: magic u32, version u8, type u8, zero u16, body bytes u32,
 * checksum u32. The checksum is XXH32 of the body, seeded with XXH32 of the
 * header's first 12 bytes, so that it covers all that is not itself. It is there
 * against accidents, not against an attacker.
 */
struct kvp_frame_header {
	uint8_t version;
	uint8_t type;
	uint32_t body_bytes;
	uint32_t checksum;
};

struct kvp_blob {
	uint32_t bytes; /* <= KVP_BLOB_MAX, in HELLO <= KVP_DESCRIPTION_MAX */
	uint8_t data[KVP_BLOB_MAX];
};

/* HELLO and WELCOME. */
struct kvp_hello {
	uint64_t boot_id; /* random per engine: a restarted peer has another */
	uint64_t cluster_id;
	uint32_t role;         /* enum kvp_role */
	uint32_t heartbeat_ms; /* [KVP_HEARTBEAT_MS_MIN, KVP_HEARTBEAT_MS_MAX] */
	uint32_t lanes;        /* [1, KVP_LANES_MAX] */
	uint32_t rights;       /* enum kvp_right: what the sender lets its peers do */
	uint32_t rails;        /* <= KVP_RAILS_MAX, in the sender's order of preference */
	struct {
		char name[KVP_NAME_MAX]; /* "shm", NUL padded */
		struct kvp_blob blob;    /* what the peer needs to judge reachability */
	} rail[KVP_RAILS_MAX];
};

/* The text is meant for a terminal: decoded and encoded as printable ASCII, the rest becomes '?'. */
struct kvp_refuse {
	kvp_status status; /* a failure */
	char text[KVP_ERROR_TEXT_MAX];
};

struct kvp_path_frame {
	char name[KVP_NAME_MAX];
	uint32_t endpoints; /* [1, KVP_PATH_ENDPOINTS_MAX] */
	struct kvp_blob blob;
};

/* Tensors of a peer's cache: where they are over there, and in which shareable region. */
struct kvp_remote_tensor {
	struct kvp_tensor tensor; /* base is the peer's address */
	uint32_t region;          /* 0 = private memory */
	uint64_t region_offset;   /* of block 0 */
};

struct kvp_cache_add {
	int64_t cache_id;     /* >= 1 */
	uint32_t num_tensors; /* [1, KVP_TENSORS_MAX] */
};

struct kvp_stream_frame {
	uint8_t token[KVP_TOKEN_BYTES];
	uint32_t endpoint; /* [0, KVP_PATH_ENDPOINTS_MAX) */
};

/*
 * Encoders: write header and body to `out`, return the frame's bytes, or 0 when
 * `size` is too small (never written beyond). They take what the decoders would
 * accept. Decoders: `body` of header.body_bytes, checksum already
 * verified; return KVP_SUCCESS or KVP_PROTOCOL (outputs untouched).
 */
size_t
kvp_frame_encode_hello(uint8_t type, const struct kvp_hello *hello, uint8_t *out, size_t size);
size_t
kvp_frame_encode_refuse(const struct kvp_refuse *refuse, uint8_t *out, size_t size);
size_t
kvp_frame_encode_path(const struct kvp_path_frame *path, uint8_t *out, size_t size);
size_t
kvp_frame_encode_cache_add(const struct kvp_cache_add *add, const struct kvp_remote_tensor *tensors,
			   uint8_t *out, size_t size);
size_t
kvp_frame_encode_stream(const struct kvp_stream_frame *stream, uint8_t *out, size_t size);
/* `bytes` <= KVP_FRAME_BODY_MAX; its body is not decoded here. */
size_t
kvp_frame_encode_note(const uint8_t *note, uint32_t bytes, uint8_t *out, size_t size);
/* CACHE_GONE, _ACK (value = cache id), SYNC, _ACK (value = number). */
size_t
kvp_frame_encode_value(uint8_t type, uint64_t value, uint8_t *out, size_t size);
/* CATALOGUE_END, READY, HEARTBEAT, UNLINK, _ACK, BYE. */
size_t
kvp_frame_encode_empty(uint8_t type, uint8_t *out, size_t size);

/* Largest frame of a cache with `num_tensors`, header included. */
size_t
kvp_frame_cache_add_bytes(uint32_t num_tensors);

/*
 * The first KVP_FRAME_HEADER bytes of anything: PROTOCOL for a wrong magic ("peer does not speak
 * kvpush"), version (both named), type, or body above `body_max`.
 */
KVP_MUST_USE kvp_status
kvp_frame_decode_header(const uint8_t *in, uint32_t body_max, struct kvp_frame_header *header_out,
			struct kvp_error *err);
/* Is `body` (header->body_bytes of it) what the checksum says? PROTOCOL. */
KVP_MUST_USE kvp_status
kvp_frame_check(const struct kvp_frame_header *header, const uint8_t *body, struct kvp_error *err);

KVP_MUST_USE kvp_status
kvp_frame_decode_hello(const uint8_t *body, uint32_t bytes, struct kvp_hello *hello_out,
		       struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_refuse(const uint8_t *body, uint32_t bytes, struct kvp_refuse *refuse_out,
			struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_path(const uint8_t *body, uint32_t bytes, struct kvp_path_frame *path_out,
		      struct kvp_error *err);
/* First the fixed part (num_tensors checked against the body's size), then the tensors into caller's array. */
KVP_MUST_USE kvp_status
kvp_frame_decode_cache_add(const uint8_t *body, uint32_t bytes, struct kvp_cache_add *add_out,
			   struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_tensors(const uint8_t *body, uint32_t bytes, const struct kvp_cache_add *add,
			 struct kvp_remote_tensor *tensors_out, struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_stream(const uint8_t *body, uint32_t bytes, struct kvp_stream_frame *stream_out,
			struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_value(const uint8_t *body, uint32_t bytes, uint64_t *value_out,
		       struct kvp_error *err);
KVP_MUST_USE kvp_status
kvp_frame_decode_empty(uint32_t bytes, struct kvp_error *err);

#endif /* KVP_ENGINE_WIRE_H */
