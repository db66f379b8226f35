/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_wire.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"

#define MAGIC_PORTS    0x5650U /* first two bytes of each kind, behind them the version */
#define MAGIC_OFFER    0x564FU
#define MAGIC_NOTE     0x564EU
#define MAGIC_SEND     0x5653U
#define ADDRESS_BYTES  38U
#define PORTS_HEAD     4U
#define OFFER_HEAD     8U
#define OFFER_RAIL     (ADDRESS_BYTES + 2U + 12U + 8U + 4U)
#define OFFER_QUEUE    8U
#define KEYS_HEAD      20U
#define SEND_HEAD      32U
#define SEND_PART      12U
#define NUMBER_MAX     0xFFFFFFU
#define GENERATION_MAX 0xFFFU

_Static_assert(PORTS_HEAD + KVP_VERBS_PORTS_MAX * ADDRESS_BYTES <= KVP_DESCRIPTION_MAX,
	       "it fits HELLO");
_Static_assert(OFFER_HEAD + KVP_VERBS_RAILS_MAX * OFFER_RAIL + KVP_VERBS_TOTAL_MAX * OFFER_QUEUE <=
		       KVP_BLOB_MAX,
	       "the largest offer");
_Static_assert(SEND_HEAD + KVP_VERBS_SEND_PARTS * SEND_PART + KVP_NOTIFY_BYTES_MAX <=
		       KVP_VERBS_SEND_MAX,
	       "the largest notification");
_Static_assert(4U + 5U * 4U + OFFER_QUEUE + ADDRESS_BYTES <= KVP_VERBS_NOTE_BYTES, "a note");

/* Little-endian, whatever the host is. */
static uint8_t *
put(uint8_t *out, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(value >> (8 * i));
	return out + bytes;
}

static uint64_t
get(const uint8_t *in, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)in[i] << (8 * i);
	return value;
}

/* --- ports ------------------------------------------------------------------------ */

static uint8_t *
put_address(uint8_t *out, const struct kvp_verbs_address *address)
{
	memcpy(out, address->gid, KVP_VERBS_GID_BYTES);
	out = put(out + KVP_VERBS_GID_BYTES, address->prefix, 1);
	out = put(out, address->link, 1);
	out = put(out, address->mtu, 1);
	out = put(out, address->speed, 1);
	out = put(out, address->lid, 2);
	memset(out, 0, sizeof(address->name));
	memcpy(out, address->name, strnlen(address->name, sizeof(address->name) - 1));
	return out + sizeof(address->name);
}

/* NULL: a field is out of its range; *what_out names it. */
static const uint8_t *
get_address(const uint8_t *in, struct kvp_verbs_address *address_out, const char **what_out)
{
	struct kvp_verbs_address *a = address_out;

	memcpy(a->gid, in, KVP_VERBS_GID_BYTES);
	in += KVP_VERBS_GID_BYTES;
	a->prefix = in[0];
	a->link = in[1];
	a->mtu = in[2];
	a->speed = in[3];
	a->lid = (uint16_t)get(in + 4, 2);
	memcpy(a->name, in + 6, sizeof(a->name));
	a->name[sizeof(a->name) - 1] = '\0';
	for (char *c = a->name; *c != '\0'; c++) {
		if (*c <= ' ' || *c > '~')
			*c = '?';
	}
	*what_out = a->prefix > 128                                                ? "prefix"
		    : a->link != KVP_VERBS_INFINIBAND && a->link != KVP_VERBS_ROCE ? "link layer"
		    : a->mtu < 1 || a->mtu > 5                                     ? "MTU"
										   : NULL;
	return *what_out == NULL ? in + 6 + sizeof(a->name) : NULL;
}
_Static_assert(ADDRESS_BYTES == KVP_VERBS_GID_BYTES + 6U + 16U, "what the two above do");

static uint8_t *
put_head(uint8_t *out, uint32_t magic, uint32_t count)
{
	out = put(out, magic, 2);
	out = put(out, KVP_VERBS_VERSION, 1);
	return put(out, count, 1);
}

static kvp_status
head_check(const struct kvp_blob *blob, uint32_t magic, uint32_t head, const char *name,
	   struct kvp_error *err)
{
	if (blob->bytes < head || get(blob->data, 2) != magic)
		return kvp_fail(err, KVP_PROTOCOL, "verbs: the peer's %s of %u bytes is none", name,
				blob->bytes);
	if (blob->data[2] != KVP_VERBS_VERSION)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer's %s has version %u, this engine's %u", name,
				blob->data[2], KVP_VERBS_VERSION);
	return KVP_SUCCESS;
}

void
kvp_verbs_ports_encode(const struct kvp_verbs_ports *ports, struct kvp_blob *blob_out)
{
	uint8_t *out = put_head(blob_out->data, MAGIC_PORTS, ports->ports);

	KVP_CHECK(ports->ports <= KVP_VERBS_PORTS_MAX);
	for (uint32_t i = 0; i < ports->ports; i++)
		out = put_address(out, &ports->port[i]);
	blob_out->bytes = (uint32_t)(out - blob_out->data);
}

kvp_status
kvp_verbs_ports_decode(const struct kvp_blob *blob, struct kvp_verbs_ports *ports_out,
		       struct kvp_error *err)
{
	kvp_status status = head_check(blob, MAGIC_PORTS, PORTS_HEAD, "description", err);
	struct kvp_verbs_ports ports = {0};
	const uint8_t *in = blob->data + PORTS_HEAD;
	const char *what;

	if (status != KVP_SUCCESS)
		return status;
	ports.ports = blob->data[3];
	if (ports.ports < 1 || ports.ports > KVP_VERBS_PORTS_MAX ||
	    blob->bytes != PORTS_HEAD + ports.ports * ADDRESS_BYTES)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer describes %u ports in %u bytes, [1, %u] can be",
				ports.ports, blob->bytes, KVP_VERBS_PORTS_MAX);
	for (uint32_t i = 0; i < ports.ports; i++) {
		in = get_address(in, &ports.port[i], &what);
		if (in == NULL)
			return kvp_fail(err, KVP_PROTOCOL,
					"verbs: port %u of the peer's description: bad %s", i,
					what);
	}
	*ports_out = ports;
	return KVP_SUCCESS;
}

/* --- offer -------------------------------------------------------------------------- */

static uint32_t
total_of(uint32_t rails, uint32_t endpoints, uint32_t per_rail)
{
	return rails * endpoints * per_rail;
}

void
kvp_verbs_offer_encode(const struct kvp_verbs_offer *offer, struct kvp_blob *blob_out)
{
	uint32_t total = total_of(offer->rails, offer->endpoints, offer->per_rail);
	uint8_t *out = put_head(blob_out->data, MAGIC_OFFER, offer->rails);

	KVP_CHECK(offer->rails <= KVP_VERBS_RAILS_MAX && total <= KVP_VERBS_TOTAL_MAX);
	out = put(out, offer->endpoints, 2);
	out = put(out, offer->per_rail, 2);
	for (uint32_t r = 0; r < offer->rails; r++) {
		out = put_address(out, &offer->rail[r].address);
		out = put(out, offer->rail[r].local, 1);
		out = put(out, offer->rail[r].remote, 1);
		for (uint32_t i = 0; i < 3; i++)
			out = put(out, offer->rail[r].ece[i], 4);
		out = put(out, offer->rail[r].credit, 8);
		out = put(out, offer->rail[r].credit_rkey, 4);
	}
	for (uint32_t q = 0; q < total; q++) {
		out = put(out, offer->queue[q].number, 4);
		out = put(out, offer->queue[q].psn, 4);
	}
	blob_out->bytes = (uint32_t)(out - blob_out->data);
}

static kvp_status
offer_rail_decode(const uint8_t **in, struct kvp_verbs_offer *offer, uint32_t r,
		  struct kvp_error *err)
{
	const char *what;
	const uint8_t *at = get_address(*in, &offer->rail[r].address, &what);

	if (at == NULL)
		return kvp_fail(err, KVP_PROTOCOL, "verbs: rail %u of the peer's offer: bad %s", r,
				what);
	offer->rail[r].local = at[0];
	offer->rail[r].remote = at[1];
	if (at[0] >= KVP_VERBS_PORTS_MAX || at[1] >= KVP_VERBS_PORTS_MAX)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: rail %u of the peer's offer pairs ports %u and %u", r,
				at[0], at[1]);
	for (uint32_t i = 0; i < 3; i++)
		offer->rail[r].ece[i] = (uint32_t)get(at + 2 + 4U * i, 4);
	offer->rail[r].credit = get(at + 14, 8);
	offer->rail[r].credit_rkey = (uint32_t)get(at + 22, 4);
	*in = at + 26;
	return KVP_SUCCESS;
}

static bool
is_peer_queue(const struct kvp_verbs_peer_queue *queue)
{
	return queue->number <= NUMBER_MAX && queue->psn <= NUMBER_MAX;
}

kvp_status
kvp_verbs_offer_decode(const struct kvp_blob *blob, struct kvp_verbs_offer *offer_out,
		       struct kvp_error *err)
{
	kvp_status status = head_check(blob, MAGIC_OFFER, OFFER_HEAD, "offer", err);
	struct kvp_verbs_offer offer = {0};
	const uint8_t *in = blob->data + OFFER_HEAD;
	uint32_t total;

	if (status != KVP_SUCCESS)
		return status;
	offer.rails = blob->data[3];
	offer.endpoints = (uint32_t)get(blob->data + 4, 2);
	offer.per_rail = (uint32_t)get(blob->data + 6, 2);
	if (offer.rails < 1 || offer.rails > KVP_VERBS_RAILS_MAX || offer.endpoints < 1 ||
	    offer.endpoints > KVP_VERBS_ENDPOINTS_MAX || offer.per_rail < 1 ||
	    offer.per_rail > KVP_VERBS_QPS_MAX)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer offers %u rails, %u endpoints, %u queue pairs of "
				"each on each",
				offer.rails, offer.endpoints, offer.per_rail);
	total = total_of(offer.rails, offer.endpoints, offer.per_rail);
	if (total > KVP_VERBS_TOTAL_MAX ||
	    blob->bytes != OFFER_HEAD + offer.rails * OFFER_RAIL + total * OFFER_QUEUE)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: the peer's offer of %u queue pairs has %u bytes", total,
				blob->bytes);
	for (uint32_t r = 0; r < offer.rails && status == KVP_SUCCESS; r++)
		status = offer_rail_decode(&in, &offer, r, err);
	for (uint32_t q = 0; q < total && status == KVP_SUCCESS; q++, in += OFFER_QUEUE) {
		offer.queue[q].number = (uint32_t)get(in, 4);
		offer.queue[q].psn = (uint32_t)get(in + 4, 4);
		if (!is_peer_queue(&offer.queue[q]))
			status = kvp_fail(
				err, KVP_PROTOCOL,
				"verbs: queue pair %u of the peer's offer: number %u, PSN %u", q,
				offer.queue[q].number, offer.queue[q].psn);
	}
	if (status == KVP_SUCCESS)
		*offer_out = offer;
	return status;
}

/* --- notes --------------------------------------------------------------------------- */

uint32_t
kvp_verbs_note_type(const uint8_t *body, uint32_t bytes)
{
	if (bytes < 4 || get(body, 2) != MAGIC_NOTE || body[2] != KVP_VERBS_VERSION ||
	    body[3] < KVP_VERBS_KEYS || body[3] > KVP_VERBS_PROVEN)
		return 0;
	return body[3];
}

static bool
has_peer(uint32_t type)
{
	return type == KVP_VERBS_REBUILD || type == KVP_VERBS_REBUILT;
}

size_t
kvp_verbs_queue_note_encode(enum kvp_verbs_note_type type, const struct kvp_verbs_queue_note *note,
			    uint8_t *out)
{
	uint8_t *at = put_head(out, MAGIC_NOTE, type);

	at = put(at, note->endpoint, 4);
	at = put(at, note->queue, 4);
	at = put(at, note->generation, 4);
	if (has_peer(type)) {
		at = put(at, note->fenced, 4);
		at = put(at, note->taken, 4);
		at = put(at, note->peer.number, 4);
		at = put(at, note->peer.psn, 4);
		at = put_address(at, &note->address);
	}
	return (size_t)(at - out);
}

kvp_status
kvp_verbs_queue_note_decode(const uint8_t *body, uint32_t bytes,
			    struct kvp_verbs_queue_note *note_out, struct kvp_error *err)
{
	uint32_t type = kvp_verbs_note_type(body, bytes);
	uint32_t expected = has_peer(type) ? 32U + ADDRESS_BYTES : 16U;
	struct kvp_verbs_queue_note note = {0};
	const char *what = NULL;

	if (type < KVP_VERBS_BROKEN || bytes != expected)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: a note of type %u and %u bytes is none about a queue pair",
				type, bytes);
	note.endpoint = (uint32_t)get(body + 4, 4);
	note.queue = (uint32_t)get(body + 8, 4);
	note.generation = (uint32_t)get(body + 12, 4);
	if (note.endpoint >= KVP_VERBS_ENDPOINTS_MAX || note.queue >= KVP_VERBS_TOTAL_MAX ||
	    note.generation > GENERATION_MAX)
		what = "endpoint, queue pair or generation";
	if (what == NULL && has_peer(type)) {
		note.fenced = (uint32_t)get(body + 16, 4);
		note.taken = (uint32_t)get(body + 20, 4);
		note.peer.number = (uint32_t)get(body + 24, 4);
		note.peer.psn = (uint32_t)get(body + 28, 4);
		(void)get_address(body + 32, &note.address, &what);
		/* Number 0: no QP was built, this is about the fence alone. */
		if (what == NULL && (note.fenced > GENERATION_MAX ||
				     note.peer.number > NUMBER_MAX || note.peer.psn > NUMBER_MAX))
			what = "number, PSN or fence";
	}
	if (what != NULL)
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: a note about queue pair %u of %u: bad %s", note.queue,
				note.endpoint, what);
	*note_out = note;
	return KVP_SUCCESS;
}

/* --- keys ---------------------------------------------------------------------------- */

static size_t
span_bytes(uint32_t rails)
{
	return 16U + 4U * (size_t)rails;
}

size_t
kvp_verbs_keys_bytes(uint32_t spans, uint32_t rails)
{
	return KEYS_HEAD + spans * span_bytes(rails);
}

size_t
kvp_verbs_keys_encode(const struct kvp_verbs_keys *keys, uint8_t *out)
{
	uint8_t *at = put_head(out, MAGIC_NOTE, KVP_VERBS_KEYS);

	at = put(at, (uint64_t)keys->cache_id, 8);
	at = put(at, keys->spans, 4);
	at = put(at, keys->rails, 4);
	return (size_t)(at - out);
}

size_t
kvp_verbs_keys_span_encode(uint64_t address, uint64_t bytes, const uint32_t *rkey, uint32_t rails,
			   uint8_t *out)
{
	uint8_t *at = put(put(out, address, 8), bytes, 8);

	for (uint32_t r = 0; r < rails; r++)
		at = put(at, rkey[r], 4);
	return (size_t)(at - out);
}

kvp_status
kvp_verbs_keys_decode(const uint8_t *body, uint32_t bytes, struct kvp_verbs_keys *keys_out,
		      struct kvp_error *err)
{
	struct kvp_verbs_keys keys;

	if (kvp_verbs_note_type(body, bytes) != KVP_VERBS_KEYS || bytes < KEYS_HEAD)
		return kvp_fail(err, KVP_PROTOCOL, "verbs: a note of %u bytes has no keys", bytes);
	keys.cache_id = (int64_t)get(body + 4, 8);
	keys.spans = (uint32_t)get(body + 12, 4);
	keys.rails = (uint32_t)get(body + 16, 4);
	if (keys.cache_id < 1 || keys.spans < 1 || keys.spans > 65536 || keys.rails < 1 ||
	    keys.rails > KVP_VERBS_RAILS_MAX ||
	    bytes != kvp_verbs_keys_bytes(keys.spans, keys.rails))
		return kvp_fail(err, KVP_PROTOCOL,
				"verbs: keys of cache %" PRId64
				" for %u spans and %u rails in %u bytes",
				keys.cache_id, keys.spans, keys.rails, bytes);
	*keys_out = keys;
	return KVP_SUCCESS;
}

void
kvp_verbs_keys_span_decode(const uint8_t *body, const struct kvp_verbs_keys *keys, uint32_t i,
			   uint64_t *address_out, uint64_t *bytes_out, uint32_t *rkey_out)
{
	const uint8_t *in = body + KEYS_HEAD + i * span_bytes(keys->rails);

	*address_out = get(in, 8);
	*bytes_out = get(in + 8, 8);
	for (uint32_t r = 0; r < keys->rails; r++)
		rkey_out[r] = (uint32_t)get(in + 16 + 4U * r, 4);
}

/* --- notification ---------------------------------------------------------------------- */

uint32_t
kvp_verbs_send_encode(const struct kvp_verbs_send *send, const uint8_t *payload, uint8_t *out)
{
	uint8_t *at = put_head(out, MAGIC_SEND, send->parts);

	KVP_ASSERT(send->parts <= KVP_VERBS_SEND_PARTS);
	KVP_ASSERT(send->payload_bytes <= KVP_NOTIFY_BYTES_MAX);
	at = put(at, send->payload_bytes, 2);
	at = put(at, send->layer, 2);
	at = put(at, (uint64_t)send->cache, 8);
	at = put(at, send->tag, 8);
	at = put(at, send->bytes, 8);
	for (uint32_t i = 0; i < send->parts; i++) {
		at = put(at, send->part[i].endpoint, 4);
		at = put(at, send->part[i].key, 4);
		at = put(at, send->part[i].mask, 4);
	}
	memcpy(at, payload, send->payload_bytes);
	return (uint32_t)(at - out) + send->payload_bytes;
}

bool
kvp_verbs_send_decode(const uint8_t *in, uint32_t bytes, struct kvp_verbs_send *send_out,
		      const uint8_t **payload_out)
{
	struct kvp_verbs_send *send = send_out;
	const uint8_t *at = in + SEND_HEAD;

	if (bytes < SEND_HEAD || get(in, 2) != MAGIC_SEND || in[2] != KVP_VERBS_VERSION)
		return false;
	send->parts = in[3];
	send->payload_bytes = (uint16_t)get(in + 4, 2);
	send->layer = (uint16_t)get(in + 6, 2);
	send->cache = (int64_t)get(in + 8, 8);
	send->tag = get(in + 16, 8);
	send->bytes = get(in + 24, 8);
	if (send->parts < 1 || send->parts > KVP_VERBS_SEND_PARTS ||
	    send->payload_bytes > KVP_NOTIFY_BYTES_MAX || send->layer > KVP_TENSORS_MAX ||
	    bytes != SEND_HEAD + send->parts * SEND_PART + send->payload_bytes)
		return false;
	for (uint32_t i = 0; i < send->parts; i++, at += SEND_PART) {
		send->part[i].endpoint = (uint32_t)get(at, 4);
		send->part[i].key = (uint32_t)get(at + 4, 4);
		send->part[i].mask = (uint32_t)get(at + 8, 4);
		if (send->part[i].endpoint >= KVP_VERBS_ENDPOINTS_MAX || send->part[i].key == 0)
			return false;
	}
	*payload_out = at;
	return true;
}
