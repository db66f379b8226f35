/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "rights.h"

#define CHECKED_BYTES   12U /* of the header: all but the checksum */
#define CACHE_ADD_BYTES 12U /* cache_id, num_tensors */
#define TENSOR_BYTES    44U
#define HELLO_BYTES_MAX (36U + KVP_RAILS_MAX * (KVP_NAME_MAX + 4U + KVP_DESCRIPTION_MAX))

_Static_assert(HELLO_BYTES_MAX <= KVP_FRAME_EARLY_MAX, "the largest HELLO is an early frame");
_Static_assert(KVP_NAME_MAX + 8U + KVP_BLOB_MAX <= KVP_FRAME_EARLY_MAX, "so is the largest PATH");
_Static_assert(8U + KVP_ERROR_TEXT_MAX <= KVP_FRAME_EARLY_MAX, "so is the largest REFUSE");
_Static_assert(CACHE_ADD_BYTES + KVP_TENSORS_MAX * TENSOR_BYTES <= KVP_FRAME_BODY_MAX,
	       "the largest cache fits one frame");

/* Writes only what fits, counts everything. */
struct writer {
	uint8_t *out;
	size_t size;
	size_t used; /* > size: did not fit */
};

/* The first refusal makes `status` stick; after it everything reads as zero. */
struct reader {
	const uint8_t *at;
	uint32_t left;
	kvp_status status;
	const char *frame;
	const uint32_t *tensor; /* number of the one being read, for messages; NULL outside */
	struct kvp_error *err;
};

static void
put_bytes(struct writer *writer, const void *data, size_t bytes)
{
	if (writer->used + bytes <= writer->size)
		memcpy(writer->out + writer->used, data, bytes);
	writer->used += bytes;
}

static void
store_number(uint8_t *out, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t
load_number(const uint8_t *in, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes; i++)
		value |= (uint64_t)in[i] << (8 * i);
	return value;
}

static void
put_u32(struct writer *writer, uint32_t value)
{
	uint8_t raw[4];

	store_number(raw, value, sizeof(raw));
	put_bytes(writer, raw, sizeof(raw));
}

static void
put_u64(struct writer *writer, uint64_t value)
{
	uint8_t raw[8];

	store_number(raw, value, sizeof(raw));
	put_bytes(writer, raw, sizeof(raw));
}

static void
put_name(struct writer *writer, const char name[KVP_NAME_MAX])
{
	char raw[KVP_NAME_MAX] = {0};

	memcpy(raw, name, strnlen(name, KVP_NAME_MAX - 1));
	put_bytes(writer, raw, sizeof(raw));
}

static void
put_blob(struct writer *writer, const struct kvp_blob *blob, uint32_t bytes_max)
{
	KVP_CHECK(blob->bytes <= bytes_max); /* else memory behind it goes to the peer */
	put_u32(writer, blob->bytes);
	put_bytes(writer, blob->data, blob->bytes);
}

static void
header_start(uint8_t *out, uint8_t version, uint8_t type, uint32_t body_bytes)
{
	store_number(out, KVP_WIRE_MAGIC, 4);
	out[4] = version;
	out[5] = type;
	store_number(out + 6, 0, 2);
	store_number(out + 8, body_bytes, 4);
}

static uint32_t
checksum(const uint8_t header[CHECKED_BYTES], const uint8_t *body, uint32_t body_bytes)
{
	XXH32_hash_t seed = XXH32(header, CHECKED_BYTES, 0);

	return XXH32(body_bytes != 0 ? body : header, body_bytes, seed);
}

static struct writer
frame_start(uint8_t *out, size_t size)
{
	return (struct writer){.out = out, .size = size, .used = KVP_FRAME_HEADER};
}

static size_t
frame_finish(struct writer *writer, uint8_t type)
{
	uint32_t body_bytes = (uint32_t)(writer->used - KVP_FRAME_HEADER);

	KVP_ASSERT(type >= 1 && type < KVP_FRAME_TYPES);
	if (writer->used > writer->size)
		return 0;
	header_start(writer->out, KVP_WIRE_VERSION, type, body_bytes);
	store_number(writer->out + CHECKED_BYTES,
		     checksum(writer->out, writer->out + KVP_FRAME_HEADER, body_bytes), 4);
	return writer->used;
}

size_t
kvp_frame_encode_hello(uint8_t type, const struct kvp_hello *hello, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	KVP_ASSERT(type == KVP_FRAME_HELLO || type == KVP_FRAME_WELCOME);
	KVP_CHECK(hello->rails <= KVP_RAILS_MAX);
	put_u64(&writer, hello->boot_id);
	put_u64(&writer, hello->cluster_id);
	put_u32(&writer, hello->role);
	put_u32(&writer, hello->heartbeat_ms);
	put_u32(&writer, hello->lanes);
	put_u32(&writer, hello->rights);
	put_u32(&writer, hello->rails);
	for (uint32_t i = 0; i < hello->rails; i++) {
		put_name(&writer, hello->rail[i].name);
		put_blob(&writer, &hello->rail[i].blob, KVP_DESCRIPTION_MAX);
	}
	return frame_finish(&writer, type);
}

/* Copy `bytes` of text so that a terminal shows it and does nothing else. */
static void
copy_printable(char *out, const char *text, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		out[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

size_t
kvp_frame_encode_refuse(const struct kvp_refuse *refuse, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);
	uint32_t bytes = (uint32_t)strnlen(refuse->text, KVP_ERROR_TEXT_MAX - 1);
	char text[KVP_ERROR_TEXT_MAX];

	copy_printable(text, refuse->text, bytes);
	put_u32(&writer, refuse->status);
	put_u32(&writer, bytes);
	put_bytes(&writer, text, bytes);
	return frame_finish(&writer, KVP_FRAME_REFUSE);
}

size_t
kvp_frame_encode_path(const struct kvp_path_frame *path, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	put_name(&writer, path->name);
	put_u32(&writer, path->endpoints);
	put_blob(&writer, &path->blob, KVP_BLOB_MAX);
	return frame_finish(&writer, KVP_FRAME_PATH);
}

size_t
kvp_frame_encode_cache_add(const struct kvp_cache_add *add, const struct kvp_remote_tensor *tensors,
			   uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	KVP_CHECK(add->num_tensors >= 1 && add->num_tensors <= KVP_TENSORS_MAX);
	put_u64(&writer, (uint64_t)add->cache_id);
	put_u32(&writer, add->num_tensors);
	for (uint32_t i = 0; i < add->num_tensors; i++) {
		put_u64(&writer, (uintptr_t)tensors[i].tensor.base);
		put_u64(&writer, tensors[i].tensor.num_blocks);
		put_u64(&writer, tensors[i].tensor.block_bytes);
		put_u64(&writer, tensors[i].tensor.block_stride);
		put_u32(&writer, tensors[i].region);
		put_u64(&writer, tensors[i].region_offset);
	}
	return frame_finish(&writer, KVP_FRAME_CACHE_ADD);
}

size_t
kvp_frame_encode_stream(const struct kvp_stream_frame *stream, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	put_bytes(&writer, stream->token, KVP_TOKEN_BYTES);
	put_u32(&writer, stream->endpoint);
	return frame_finish(&writer, KVP_FRAME_STREAM);
}

size_t
kvp_frame_encode_note(const uint8_t *note, uint32_t bytes, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	KVP_CHECK(bytes <= KVP_FRAME_BODY_MAX);
	put_bytes(&writer, note, bytes);
	return frame_finish(&writer, KVP_FRAME_NOTE);
}

size_t
kvp_frame_encode_value(uint8_t type, uint64_t value, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	put_u64(&writer, value);
	return frame_finish(&writer, type);
}

size_t
kvp_frame_encode_empty(uint8_t type, uint8_t *out, size_t size)
{
	struct writer writer = frame_start(out, size);

	return frame_finish(&writer, type);
}

size_t
kvp_frame_cache_add_bytes(uint32_t num_tensors)
{
	return KVP_FRAME_HEADER + CACHE_ADD_BYTES + (size_t)num_tensors * TENSOR_BYTES;
}

kvp_status
kvp_frame_decode_header(const uint8_t *in, uint32_t body_max, struct kvp_frame_header *header_out,
			struct kvp_error *err)
{
	uint32_t magic = (uint32_t)load_number(in, 4);
	uint32_t body_bytes = (uint32_t)load_number(in + 8, 4);

	if (magic != KVP_WIRE_MAGIC)
		return kvp_fail(err, KVP_PROTOCOL,
				"peer does not speak kvpush (first bytes %02x %02x %02x %02x)",
				in[0], in[1], in[2], in[3]);
	if (in[4] != KVP_WIRE_VERSION)
		return kvp_fail(err, KVP_PROTOCOL,
				"peer speaks version %u of the protocol, this engine version %u",
				in[4], KVP_WIRE_VERSION);
	if (in[5] == 0 || in[5] >= KVP_FRAME_TYPES)
		return kvp_fail(err, KVP_PROTOCOL, "frame type %u from peer is not in [1, %d]",
				in[5], KVP_FRAME_TYPES - 1);
	if (load_number(in + 6, 2) != 0)
		return kvp_fail(err, KVP_PROTOCOL,
				"reserved bytes of a type %u frame header are not zero", in[5]);
	if (body_bytes > body_max)
		return kvp_fail(err, KVP_PROTOCOL,
				"type %u frame of %u body bytes is above the limit of %u", in[5],
				body_bytes, body_max);
	*header_out = (struct kvp_frame_header){
		.version = in[4],
		.type = in[5],
		.body_bytes = body_bytes,
		.checksum = (uint32_t)load_number(in + CHECKED_BYTES, 4),
	};
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_check(const struct kvp_frame_header *header, const uint8_t *body, struct kvp_error *err)
{
	uint8_t start[CHECKED_BYTES];
	uint32_t sum;

	header_start(start, header->version, header->type, header->body_bytes);
	sum = checksum(start, body, header->body_bytes);
	if (sum != header->checksum)
		return kvp_fail(
			err, KVP_PROTOCOL,
			"type %u frame of %u body bytes is damaged (checksum %08x, not %08x)",
			header->type, header->body_bytes, sum, header->checksum);
	return KVP_SUCCESS;
}

static void
refuse(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

KVP_COLD static void
refuse(struct reader *reader, const char *format, ...)
{
	char text[KVP_ERROR_TEXT_MAX / 2], tensor[32] = "";
	va_list args;

	if (reader->status != KVP_SUCCESS)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (reader->tensor != NULL)
		snprintf(tensor, sizeof(tensor), " tensor %u:", *reader->tensor);
	reader->status = kvp_fail(reader->err, KVP_PROTOCOL, "%s frame from peer:%s %s",
				  reader->frame, tensor, text);
}

/* The next `bytes`, or NULL and a refusal. */
static const uint8_t *
take_bytes(struct reader *reader, const char *field, uint32_t bytes)
{
	const uint8_t *at = reader->at;

	if (bytes > reader->left)
		refuse(reader, "ends before the end of %s", field);
	if (reader->status != KVP_SUCCESS)
		return NULL;
	reader->at += bytes;
	reader->left -= bytes;
	return at;
}

static uint32_t
take_u32(struct reader *reader, const char *field, uint32_t min, uint32_t max)
{
	const uint8_t *raw = take_bytes(reader, field, 4);
	uint32_t value = raw != NULL ? (uint32_t)load_number(raw, 4) : 0;

	if (value < min || value > max)
		refuse(reader, "%s %u is not in [%u, %u]", field, value, min, max);
	return value;
}

static uint64_t
take_u64(struct reader *reader, const char *field, uint64_t min, uint64_t max)
{
	const uint8_t *raw = take_bytes(reader, field, 8);
	uint64_t value = raw != NULL ? load_number(raw, 8) : 0;

	if (value < min || value > max)
		refuse(reader, "%s %llu is not in [%llu, %llu]", field, (unsigned long long)value,
		       (unsigned long long)min, (unsigned long long)max);
	return value;
}

static void
take_name(struct reader *reader, const char *field, char name[KVP_NAME_MAX])
{
	const uint8_t *raw = take_bytes(reader, field, KVP_NAME_MAX);
	uint32_t length = 0;

	if (raw == NULL)
		return;
	while (length < KVP_NAME_MAX && raw[length] > ' ' && raw[length] <= '~')
		length++;
	for (uint32_t i = length; i < KVP_NAME_MAX; i++) {
		if (raw[i] != 0) {
			refuse(reader, "byte %02x at %u of %s is not printable or not padding",
			       raw[i], i, field);
			return;
		}
	}
	if (length == 0 || length == KVP_NAME_MAX) {
		refuse(reader, "%s of %u characters is not in [1, %u]", field, length,
		       KVP_NAME_MAX - 1);
		return;
	}
	memcpy(name, raw, KVP_NAME_MAX);
}

static void
take_blob(struct reader *reader, const char *field, uint32_t bytes_max, struct kvp_blob *blob)
{
	uint32_t bytes = take_u32(reader, field, 0, bytes_max);
	const uint8_t *raw = take_bytes(reader, field, bytes);

	if (raw == NULL)
		return;
	blob->bytes = bytes;
	memcpy(blob->data, raw, bytes);
}

static kvp_status
reader_end(struct reader *reader)
{
	if (reader->left != 0)
		refuse(reader, "%u bytes too many", reader->left);
	return reader->status;
}

kvp_status
kvp_frame_decode_hello(const uint8_t *body, uint32_t bytes, struct kvp_hello *hello_out,
		       struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "HELLO", .err = err};
	struct kvp_hello hello = {0};
	kvp_status status;

	hello.boot_id = take_u64(&reader, "boot_id", 0, UINT64_MAX);
	hello.cluster_id = take_u64(&reader, "cluster_id", 0, UINT64_MAX);
	hello.role = take_u32(&reader, "role", KVP_ROLE_PROMPT, KVP_ROLE_MIX);
	hello.heartbeat_ms =
		take_u32(&reader, "heartbeat_ms", KVP_HEARTBEAT_MS_MIN, KVP_HEARTBEAT_MS_MAX);
	hello.lanes = take_u32(&reader, "lanes", 1, KVP_LANES_MAX);
	hello.rights = take_u32(&reader, "rights", 0, KVP_RIGHTS_ALL);
	hello.rails = take_u32(&reader, "rails", 0, KVP_RAILS_MAX);
	for (uint32_t i = 0; i < hello.rails && reader.status == KVP_SUCCESS; i++) {
		take_name(&reader, "rail name", hello.rail[i].name);
		take_blob(&reader, "rail description", KVP_DESCRIPTION_MAX, &hello.rail[i].blob);
	}
	status = reader_end(&reader);
	if (status != KVP_SUCCESS)
		return status;
	*hello_out = hello;
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_decode_refuse(const uint8_t *body, uint32_t bytes, struct kvp_refuse *refuse_out,
			struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "REFUSE", .err = err};
	kvp_status why = take_u32(&reader, "status", 0, UINT32_MAX);
	uint32_t length = take_u32(&reader, "text", 0, KVP_ERROR_TEXT_MAX - 1);
	const uint8_t *text = take_bytes(&reader, "text", length);
	kvp_status status;

	if (why == KVP_SUCCESS || why == KVP_IN_PROGRESS || why == KVP_NO_EVENT)
		refuse(&reader, "status %08x is not a failure", why);
	status = reader_end(&reader);
	if (status != KVP_SUCCESS)
		return status;
	*refuse_out = (struct kvp_refuse){.status = why};
	copy_printable(refuse_out->text, (const char *)text, length);
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_decode_path(const uint8_t *body, uint32_t bytes, struct kvp_path_frame *path_out,
		      struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "PATH", .err = err};
	struct kvp_path_frame path = {0};
	kvp_status status;

	take_name(&reader, "name", path.name);
	path.endpoints = take_u32(&reader, "endpoints", 1, KVP_PATH_ENDPOINTS_MAX);
	take_blob(&reader, "offer", KVP_BLOB_MAX, &path.blob);
	status = reader_end(&reader);
	if (status != KVP_SUCCESS)
		return status;
	*path_out = path;
	return KVP_SUCCESS;
}

static void
take_cache_add(struct reader *reader, struct kvp_cache_add *add)
{
	add->cache_id = (int64_t)take_u64(reader, "cache_id", 1, INT64_MAX);
	add->num_tensors = take_u32(reader, "num_tensors", 1, KVP_TENSORS_MAX);
	if (reader->status == KVP_SUCCESS && reader->left != add->num_tensors * TENSOR_BYTES)
		refuse(reader, "%u bytes are not the %u of num_tensors %u", reader->left,
		       add->num_tensors * TENSOR_BYTES, add->num_tensors);
}

kvp_status
kvp_frame_decode_cache_add(const uint8_t *body, uint32_t bytes, struct kvp_cache_add *add_out,
			   struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "CACHE_ADD", .err = err};
	struct kvp_cache_add add;

	take_cache_add(&reader, &add);
	if (reader.status != KVP_SUCCESS)
		return reader.status;
	*add_out = add;
	return KVP_SUCCESS;
}

/* Does the tensor end below 2^64, counted from `start`? */
static bool
is_inside(uint64_t start, const struct kvp_tensor *tensor)
{
	uint64_t bytes, end;

	return !__builtin_mul_overflow(tensor->num_blocks - 1, tensor->block_stride, &bytes) &&
	       !__builtin_add_overflow(bytes, tensor->block_bytes, &bytes) &&
	       !__builtin_add_overflow(start, bytes, &end);
}

static struct kvp_remote_tensor
take_tensor(struct reader *reader)
{
	struct kvp_remote_tensor remote = {0};
	struct kvp_tensor *tensor = &remote.tensor;
	uint64_t base = take_u64(reader, "base", 1, UINT64_MAX);

	tensor->base = (void *)(uintptr_t)base; /* only ever a number on this side */
	tensor->num_blocks = take_u64(reader, "num_blocks", 1, KVP_BLOCKS_MAX);
	tensor->block_bytes = take_u64(reader, "block_bytes", 1, UINT64_MAX);
	tensor->block_stride = take_u64(reader, "block_stride", tensor->block_bytes, UINT64_MAX);
	remote.region = take_u32(reader, "region", 0, UINT32_MAX);
	remote.region_offset = take_u64(reader, "region_offset", 0, UINT64_MAX);
	if (reader->status != KVP_SUCCESS)
		return remote;
	if (!is_inside(base, tensor))
		refuse(reader, "base %llx and its blocks wrap the address space",
		       (unsigned long long)base);
	if (!is_inside(remote.region_offset, tensor))
		refuse(reader, "region_offset %llx and its blocks wrap",
		       (unsigned long long)remote.region_offset);
	return remote;
}

kvp_status
kvp_frame_decode_tensors(const uint8_t *body, uint32_t bytes, const struct kvp_cache_add *add,
			 struct kvp_remote_tensor *tensors_out, struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "CACHE_ADD", .err = err};
	struct kvp_remote_tensor tensor;
	struct kvp_cache_add again;
	struct reader second;
	uint64_t num_blocks = 0;
	uint32_t number = 0;

	take_cache_add(&reader, &again);
	if (reader.status == KVP_SUCCESS && again.num_tensors != add->num_tensors)
		refuse(&reader, "num_tensors %u is not the %u expected", again.num_tensors,
		       add->num_tensors);
	second = reader;
	reader.tensor = &number;
	for (; number < add->num_tensors && reader.status == KVP_SUCCESS; number++) {
		tensor = take_tensor(&reader);
		if (number == 0)
			num_blocks = tensor.tensor.num_blocks;
		if (tensor.tensor.num_blocks != num_blocks)
			refuse(&reader, "num_blocks %llu is not the %llu of tensor 0",
			       (unsigned long long)tensor.tensor.num_blocks,
			       (unsigned long long)num_blocks);
	}
	if (reader.status != KVP_SUCCESS)
		return reader.status;
	/* Only now, so that the caller's array stays as it was after a refusal. */
	for (uint32_t i = 0; i < add->num_tensors; i++)
		tensors_out[i] = take_tensor(&second);
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_decode_stream(const uint8_t *body, uint32_t bytes, struct kvp_stream_frame *stream_out,
			struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "STREAM", .err = err};
	const uint8_t *token = take_bytes(&reader, "token", KVP_TOKEN_BYTES);
	uint32_t endpoint = take_u32(&reader, "endpoint", 0, KVP_PATH_ENDPOINTS_MAX - 1);
	kvp_status status = reader_end(&reader);

	if (status != KVP_SUCCESS)
		return status;
	memcpy(stream_out->token, token, KVP_TOKEN_BYTES);
	stream_out->endpoint = endpoint;
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_decode_value(const uint8_t *body, uint32_t bytes, uint64_t *value_out,
		       struct kvp_error *err)
{
	struct reader reader = {.at = body, .left = bytes, .frame = "value", .err = err};
	uint64_t value = take_u64(&reader, "value", 0, UINT64_MAX);
	kvp_status status = reader_end(&reader);

	if (status != KVP_SUCCESS)
		return status;
	*value_out = value;
	return KVP_SUCCESS;
}

kvp_status
kvp_frame_decode_empty(uint32_t bytes, struct kvp_error *err)
{
	if (bytes != 0)
		return kvp_fail(err, KVP_PROTOCOL, "frame from peer: %u bytes where none belong",
				bytes);
	return KVP_SUCCESS;
}
