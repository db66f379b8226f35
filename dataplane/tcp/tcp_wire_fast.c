/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_wire.h"

#include <endian.h>
#include <string.h>

void
kvp_tcp_preamble_encode(const struct kvp_tcp_preamble *preamble, uint8_t *out)
{
	const struct kvp_tcp_preamble wire = {
		.type = preamble->type,
		.extents = htole16(preamble->extents),
		.bytes = htole32(preamble->bytes),
		.request = htole32(preamble->request),
		.status = htole32(preamble->status),
		.cache = (int64_t)htole64((uint64_t)preamble->cache),
		.tag = htole64(preamble->tag),
	};

	memcpy(out, &wire, sizeof(wire));
}

static bool
is_refusal(kvp_status status)
{
	return status == KVP_PARAM_INVALID || status == KVP_CACHE_NOT_EXIST ||
	       status == KVP_NOT_YET_LINK || status == KVP_FEATURE_NOT_ENABLED;
}

/* Fields that this type does not use are 0. */
static bool
is_request_ok(const struct kvp_tcp_preamble *p)
{
	if (p->status != KVP_SUCCESS)
		return false;
	if (p->type == KVP_TCP_NOTIFY)
		return p->extents <= KVP_TENSORS_MAX && p->bytes >= KVP_TCP_NOTIFY_BODY &&
		       p->bytes <= KVP_TCP_NOTIFY_BODY + KVP_NOTIFY_BYTES_MAX;
	return p->extents >= 1 && p->extents <= KVP_TCP_EXTENTS && p->bytes >= 1 &&
	       p->bytes <= KVP_TCP_PAYLOAD && p->tag == 0;
}

static bool
is_answer_ok(const struct kvp_tcp_preamble *p)
{
	bool is_success = p->status == KVP_SUCCESS;

	if (p->extents != 0 || p->cache != 0 || p->tag != 0)
		return false;
	if (p->type == KVP_TCP_READ_DATA && is_success)
		return p->bytes >= 1 && p->bytes <= KVP_TCP_PAYLOAD;
	if (p->bytes != 0)
		return false;
	if (p->type == KVP_TCP_NOTIFY_ACK && p->status == KVP_NO_CREDIT)
		return true;
	return is_success || is_refusal(p->status);
}

bool
kvp_tcp_preamble_decode(const uint8_t *in, struct kvp_tcp_preamble *preamble_out)
{
	struct kvp_tcp_preamble p;
	bool is_ok = false;

	memcpy(&p, in, sizeof(p));
	p.extents = le16toh(p.extents);
	p.bytes = le32toh(p.bytes);
	p.request = le32toh(p.request);
	p.status = le32toh(p.status);
	p.cache = (int64_t)le64toh((uint64_t)p.cache);
	p.tag = le64toh(p.tag);
	if (p.zero != 0)
		return false;
	switch (p.type) {
	case KVP_TCP_WRITE:
	case KVP_TCP_READ:
	case KVP_TCP_NOTIFY:
		is_ok = is_request_ok(&p);
		break;
	case KVP_TCP_WRITE_ACK:
	case KVP_TCP_READ_DATA:
	case KVP_TCP_READ_END:
	case KVP_TCP_NOTIFY_ACK:
		is_ok = is_answer_ok(&p);
		break;
	default:
		break;
	}
	if (!is_ok)
		return false;
	*preamble_out = p;
	return true;
}

uint32_t
kvp_tcp_body_bytes(const struct kvp_tcp_preamble *preamble)
{
	if (preamble->type == KVP_TCP_NOTIFY)
		return preamble->bytes;
	return preamble->extents * KVP_TCP_EXTENT; /* 0 for answers */
}

void
kvp_tcp_extent_encode(const struct kvp_tcp_extent *extent, uint8_t *out)
{
	const struct kvp_tcp_extent wire = {
		.tensor = htole32(extent->tensor),
		.bytes = htole32(extent->bytes),
		.offset = htole64(extent->offset),
	};

	memcpy(out, &wire, sizeof(wire));
}

void
kvp_tcp_extent_decode(const uint8_t *in, struct kvp_tcp_extent *extent_out)
{
	struct kvp_tcp_extent wire;

	memcpy(&wire, in, sizeof(wire));
	extent_out->tensor = le32toh(wire.tensor);
	extent_out->bytes = le32toh(wire.bytes);
	extent_out->offset = le64toh(wire.offset);
}

void
kvp_tcp_u64_encode(uint64_t value, uint8_t *out)
{
	uint64_t wire = htole64(value);

	memcpy(out, &wire, sizeof(wire));
}

uint64_t
kvp_tcp_u64_decode(const uint8_t *in)
{
	uint64_t wire;

	memcpy(&wire, in, sizeof(wire));
	return le64toh(wire);
}

void
kvp_tcp_greeting_encode(uint32_t endpoint, uint8_t *out)
{
	const uint32_t wire[KVP_TCP_GREETING / 4] = {
		htole32(KVP_TCP_GREETING_MAGIC),
		htole32(KVP_TCP_VERSION),
		htole32(endpoint),
	};

	memcpy(out, wire, sizeof(wire));
}

bool
kvp_tcp_greeting_check(const uint8_t *in, uint32_t endpoint)
{
	uint8_t expected[KVP_TCP_GREETING];

	kvp_tcp_greeting_encode(endpoint, expected);
	return memcmp(in, expected, sizeof(expected)) == 0;
}
