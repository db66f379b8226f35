/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer of the verbs transport says, as bytes: descriptions, offers, notes, notifications.
 * Decoded, everything is in range, and encoded again it is the same.
 */
#include "verbs/verbs_wire.h"

#include <string.h>

#include "check.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
try_blob(const uint8_t *data, uint32_t size)
{
	struct kvp_verbs_ports ports;
	struct kvp_verbs_offer offer;
	struct kvp_blob blob = {.bytes = size}, again = {0};

	memcpy(blob.data, data, size);
	if (kvp_verbs_ports_decode(&blob, &ports, NULL) == KVP_SUCCESS) {
		KVP_CHECK(ports.ports >= 1 && ports.ports <= KVP_VERBS_PORTS_MAX);
		kvp_verbs_ports_encode(&ports, &again);
		KVP_CHECK(again.bytes == size);
	}
	if (kvp_verbs_offer_decode(&blob, &offer, NULL) == KVP_SUCCESS) {
		KVP_CHECK(offer.rails * offer.endpoints * offer.per_rail <= KVP_VERBS_TOTAL_MAX);
		kvp_verbs_offer_encode(&offer, &again);
		KVP_CHECK(again.bytes == size);
	}
}

static void
try_note(const uint8_t *data, uint32_t size)
{
	struct kvp_verbs_queue_note note;
	struct kvp_verbs_keys keys;
	uint8_t again[KVP_VERBS_NOTE_BYTES];
	uint32_t type = kvp_verbs_note_type(data, size);

	if (kvp_verbs_queue_note_decode(data, size, &note, NULL) == KVP_SUCCESS)
		KVP_CHECK(kvp_verbs_queue_note_encode(type, &note, again) == size);
	if (kvp_verbs_keys_decode(data, size, &keys, NULL) != KVP_SUCCESS)
		return;
	for (uint32_t i = 0; i < keys.spans; i++) {
		uint32_t rkey[KVP_VERBS_RAILS_MAX];
		uint64_t address, bytes;

		kvp_verbs_keys_span_decode(data, &keys, i, &address, &bytes, rkey);
	}
}

static void
try_send(const uint8_t *data, uint32_t size)
{
	uint8_t again[KVP_VERBS_SEND_MAX];
	struct kvp_verbs_send send;
	const uint8_t *payload;

	if (!kvp_verbs_send_decode(data, size, &send, &payload))
		return;
	KVP_CHECK(kvp_verbs_send_encode(&send, payload, again) == size);
	KVP_CHECK(memcmp(again, data, size) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > KVP_FRAME_BODY_MAX)
		return 0;
	if (size <= KVP_BLOB_MAX)
		try_blob(data, (uint32_t)size);
	try_note(data, (uint32_t)size);
	try_send(data, (uint32_t)size);
	return 0;
}
