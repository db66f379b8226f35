/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte is a frame type, the rest a body: as a hostile peer sends it,
 * with a checksum that is right. What a decoder takes, the encoder makes again,
 * byte for byte. The input is also read as a frame with header.
 */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* There was room, so an encoder that says otherwise is wrong. */
static size_t
made(size_t frame_bytes)
{
	KVP_CHECK(frame_bytes > 0);
	return frame_bytes;
}

/* A frame that we made is one that we take. */
static void
compare(const uint8_t *frame, size_t frame_bytes, const uint8_t *body, uint32_t bytes)
{
	struct kvp_frame_header header;

	KVP_CHECK(frame_bytes == KVP_FRAME_HEADER + (size_t)bytes);
	KVP_CHECK(bytes == 0 || memcmp(frame + KVP_FRAME_HEADER, body, bytes) == 0);
	KVP_CHECK(kvp_frame_decode_header(frame, bytes, &header, NULL) == KVP_SUCCESS);
	KVP_CHECK(header.body_bytes == bytes);
	KVP_CHECK(kvp_frame_check(&header, frame + KVP_FRAME_HEADER, NULL) == KVP_SUCCESS);
}

/* The text comes back printable, so a second time it comes back as it is. */
static size_t
again_refuse(const uint8_t *body, uint32_t bytes, uint8_t *frame, size_t size)
{
	struct kvp_refuse refuse, second;
	size_t frame_bytes;

	if (kvp_frame_decode_refuse(body, bytes, &refuse, NULL) != KVP_SUCCESS)
		return 0;
	for (const char *c = refuse.text; *c != '\0'; c++)
		KVP_CHECK(*c >= ' ' && *c <= '~');
	frame_bytes = made(kvp_frame_encode_refuse(&refuse, frame, size));
	KVP_CHECK(kvp_frame_decode_refuse(frame + KVP_FRAME_HEADER, bytes, &second, NULL) ==
		  KVP_SUCCESS);
	KVP_CHECK(memcmp(&refuse, &second, sizeof(second)) == 0);
	return strlen(refuse.text) + 8 == bytes && memcmp(refuse.text, body + 8, bytes - 8) == 0
		       ? frame_bytes
		       : 0;
}

static void
check_tensor(const struct kvp_tensor *tensor, uint64_t num_blocks)
{
	uint64_t base = (uintptr_t)tensor->base;

	KVP_CHECK(tensor->num_blocks == num_blocks && num_blocks >= 1);
	KVP_CHECK(tensor->block_bytes >= 1 && tensor->block_stride >= tensor->block_bytes);
	KVP_CHECK(base >= 1 && tensor->block_bytes <= UINT64_MAX - base);
	KVP_CHECK(tensor->num_blocks - 1 <=
		  (UINT64_MAX - base - tensor->block_bytes) / tensor->block_stride);
}

static size_t
again_cache_add(const uint8_t *body, uint32_t bytes, uint8_t *frame, size_t size)
{
	struct kvp_remote_tensor *tensors;
	struct kvp_cache_add add;
	size_t frame_bytes = 0;

	if (kvp_frame_decode_cache_add(body, bytes, &add, NULL) != KVP_SUCCESS)
		return 0;
	KVP_CHECK(kvp_frame_cache_add_bytes(add.num_tensors) == KVP_FRAME_HEADER + (size_t)bytes);
	tensors = calloc(add.num_tensors, sizeof(*tensors));
	if (tensors == NULL)
		return 0;
	if (kvp_frame_decode_tensors(body, bytes, &add, tensors, NULL) == KVP_SUCCESS) {
		for (uint32_t i = 0; i < add.num_tensors; i++)
			check_tensor(&tensors[i].tensor, tensors[0].tensor.num_blocks);
		frame_bytes = made(kvp_frame_encode_cache_add(&add, tensors, frame, size));
	}
	free(tensors);
	return frame_bytes;
}

static size_t
again_rest(uint8_t type, const uint8_t *body, uint32_t bytes, uint8_t *frame, size_t size)
{
	struct kvp_stream_frame stream;
	struct kvp_path_frame path;
	struct kvp_hello hello;
	uint64_t value;

	switch (type) {
	case KVP_FRAME_HELLO:
	case KVP_FRAME_WELCOME:
		if (kvp_frame_decode_hello(body, bytes, &hello, NULL) == KVP_SUCCESS)
			return made(kvp_frame_encode_hello(type, &hello, frame, size));
		return 0;
	case KVP_FRAME_PATH:
		if (kvp_frame_decode_path(body, bytes, &path, NULL) == KVP_SUCCESS)
			return made(kvp_frame_encode_path(&path, frame, size));
		return 0;
	case KVP_FRAME_STREAM:
		if (kvp_frame_decode_stream(body, bytes, &stream, NULL) == KVP_SUCCESS)
			return made(kvp_frame_encode_stream(&stream, frame, size));
		return 0;
	case KVP_FRAME_NOTE:
		return made(kvp_frame_encode_note(body, bytes, frame, size));
	case KVP_FRAME_CACHE_GONE:
	case KVP_FRAME_CACHE_GONE_ACK:
	case KVP_FRAME_SYNC:
	case KVP_FRAME_SYNC_ACK:
		if (kvp_frame_decode_value(body, bytes, &value, NULL) == KVP_SUCCESS)
			return made(kvp_frame_encode_value(type, value, frame, size));
		return 0;
	default:
		if (kvp_frame_decode_empty(bytes, NULL) == KVP_SUCCESS)
			return made(kvp_frame_encode_empty(type, frame, size));
		return 0;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvp_frame_header header;
	const uint8_t *body = data + 1;
	size_t frame_bytes;
	uint32_t bytes;
	uint8_t *frame;
	uint8_t type;

	if (size >= KVP_FRAME_HEADER &&
	    kvp_frame_decode_header(data, (uint32_t)(size - KVP_FRAME_HEADER), &header, NULL) ==
		    KVP_SUCCESS &&
	    kvp_frame_check(&header, data + KVP_FRAME_HEADER, NULL) == KVP_SUCCESS)
		KVP_CHECK(header.type >= 1 && header.type < KVP_FRAME_TYPES);
	if (size < 1 || size > KVP_FRAME_BODY_MAX)
		return 0;
	type = (uint8_t)(1 + data[0] % (KVP_FRAME_TYPES - 1));
	bytes = (uint32_t)size - 1;
	frame = malloc(KVP_FRAME_HEADER + size);
	if (frame == NULL)
		return 0;
	if (type == KVP_FRAME_REFUSE)
		frame_bytes = again_refuse(body, bytes, frame, KVP_FRAME_HEADER + bytes);
	else if (type == KVP_FRAME_CACHE_ADD)
		frame_bytes = again_cache_add(body, bytes, frame, KVP_FRAME_HEADER + bytes);
	else
		frame_bytes = again_rest(type, body, bytes, frame, KVP_FRAME_HEADER + bytes);
	if (frame_bytes > 0)
		compare(frame, frame_bytes, body, bytes);
	free(frame);
	return 0;
}
