/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TENSORS 3U
#define HEAD    KVP_FRAME_HEADER

static uint8_t frame[4096];
static uint8_t again[4096];
static struct kvp_error error;

static struct kvp_hello
some_hello(void)
{
	struct kvp_hello hello = {
		.boot_id = 0x1122334455667788U,
		.cluster_id = UINT64_MAX,
		.role = KVP_ROLE_DECODER,
		.heartbeat_ms = 1000,
		.lanes = 2,
		.rights = 2,
		.rails = KVP_RAILS_MAX,
		.rail = {{.name = "shm", .blob = {.bytes = KVP_DESCRIPTION_MAX}},
			 {.name = "tcp", .blob = {.bytes = 5, .data = "hello"}},
			 {.name = "fifteen-letters", .blob = {.bytes = 1, .data = {0}}},
			 {.name = "~", .blob = {.bytes = 0}}},
	};

	memset(hello.rail[0].blob.data, 0xAB, KVP_DESCRIPTION_MAX);
	return hello;
}

static const struct kvp_refuse some_refuse = {KVP_NO_TRANSPORT,
					      "shm: another host; tcp: not asked"};
static const struct kvp_path_frame some_path = {"tcp", 16, {3, {1, 2, 3}}};
static const struct kvp_stream_frame some_stream = {
	{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, 15};
static const struct kvp_cache_add some_add = {INT64_MAX, TENSORS};

static void
some_tensors(struct kvp_remote_tensor tensors[TENSORS])
{
	memset(tensors, 0, TENSORS * sizeof(*tensors));
	for (uint32_t i = 0; i < TENSORS; i++) {
		tensors[i].tensor.base = (void *)(uintptr_t)(0x7F0000000000U + i);
		tensors[i].tensor.num_blocks = 100;
		tensors[i].tensor.block_bytes = 4096 + i;
		tensors[i].tensor.block_stride = 8192;
		tensors[i].region = i;
		tensors[i].region_offset = 64 * i;
	}
}

static size_t
encode_hello(uint8_t *out, size_t size)
{
	struct kvp_hello hello = some_hello();

	return kvp_frame_encode_hello(KVP_FRAME_HELLO, &hello, out, size);
}

static size_t
encode_welcome(uint8_t *out, size_t size)
{
	struct kvp_hello hello = some_hello();

	hello.rails = 0;
	return kvp_frame_encode_hello(KVP_FRAME_WELCOME, &hello, out, size);
}

static size_t
encode_refuse(uint8_t *out, size_t size)
{
	return kvp_frame_encode_refuse(&some_refuse, out, size);
}

static size_t
encode_path(uint8_t *out, size_t size)
{
	return kvp_frame_encode_path(&some_path, out, size);
}

static size_t
encode_cache_add(uint8_t *out, size_t size)
{
	struct kvp_remote_tensor tensors[TENSORS];

	some_tensors(tensors);
	return kvp_frame_encode_cache_add(&some_add, tensors, out, size);
}

static size_t
encode_stream(uint8_t *out, size_t size)
{
	return kvp_frame_encode_stream(&some_stream, out, size);
}

static size_t
encode_sync(uint8_t *out, size_t size)
{
	return kvp_frame_encode_value(KVP_FRAME_SYNC, 0xFEDCBA9876543210U, out, size);
}

static size_t
encode_ready(uint8_t *out, size_t size)
{
	return kvp_frame_encode_empty(KVP_FRAME_READY, out, size);
}

/* Decode a body; outputs go to storage that must stay 0x5A when it is refused. */
static kvp_status
decode_hello(const uint8_t *body, uint32_t bytes, void *out)
{
	return kvp_frame_decode_hello(body, bytes, out, &error);
}

static kvp_status
decode_refuse(const uint8_t *body, uint32_t bytes, void *out)
{
	return kvp_frame_decode_refuse(body, bytes, out, &error);
}

static kvp_status
decode_path(const uint8_t *body, uint32_t bytes, void *out)
{
	return kvp_frame_decode_path(body, bytes, out, &error);
}

static kvp_status
decode_cache_add(const uint8_t *body, uint32_t bytes, void *out)
{
	struct kvp_cache_add add = {0};
	kvp_status fixed = kvp_frame_decode_cache_add(body, bytes, &add, &error);

	/* The second half must hold on its own, whatever the first said. */
	add.num_tensors = TENSORS;
	if (kvp_frame_decode_tensors(body, bytes, &add, out, &error) != KVP_SUCCESS)
		return KVP_PROTOCOL;
	assert_int_equal(fixed, KVP_SUCCESS);
	return fixed;
}

static kvp_status
decode_stream(const uint8_t *body, uint32_t bytes, void *out)
{
	return kvp_frame_decode_stream(body, bytes, out, &error);
}

static kvp_status
decode_value(const uint8_t *body, uint32_t bytes, void *out)
{
	return kvp_frame_decode_value(body, bytes, out, &error);
}

static kvp_status
decode_empty(const uint8_t *body, uint32_t bytes, void *out)
{
	(void)body;
	(void)out;
	return kvp_frame_decode_empty(bytes, &error);
}

static const struct form {
	const char *name;
	size_t (*encode)(uint8_t *out, size_t size);
	kvp_status (*decode)(const uint8_t *body, uint32_t bytes, void *out);
	uint8_t type;
	uint32_t body_bytes;
} forms[] = {
	{"hello", encode_hello, decode_hello, KVP_FRAME_HELLO,
	 36 + 4 * 20 + KVP_DESCRIPTION_MAX + 5 + 1},
	{"welcome", encode_welcome, decode_hello, KVP_FRAME_WELCOME, 36},
	{"refuse", encode_refuse, decode_refuse, KVP_FRAME_REFUSE, 8 + 33},
	{"path", encode_path, decode_path, KVP_FRAME_PATH, 16 + 4 + 4 + 3},
	{"cache_add", encode_cache_add, decode_cache_add, KVP_FRAME_CACHE_ADD, 12 + 3 * 44},
	{"stream", encode_stream, decode_stream, KVP_FRAME_STREAM, 20},
	{"sync", encode_sync, decode_value, KVP_FRAME_SYNC, 8},
	{"ready", encode_ready, decode_empty, KVP_FRAME_READY, 0},
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

/* Decode in a buffer of exactly `bytes`, so that the sanitizer sees a read beyond it. */
static kvp_status
decode_tight(const struct form *form, const uint8_t *body, uint32_t bytes)
{
	static uint8_t untouched[sizeof(struct kvp_hello)], out[sizeof(struct kvp_hello)];
	uint8_t *tight = malloc(bytes > 0 ? bytes : 1);
	kvp_status status;

	assert_non_null(tight);
	memcpy(tight, body, bytes);
	memset(untouched, 0x5A, sizeof(untouched));
	memset(out, 0x5A, sizeof(out));
	status = form->decode(tight, bytes, out);
	if (status != KVP_SUCCESS) {
		assert_int_equal(status, KVP_PROTOCOL);
		assert_memory_equal(out, untouched, sizeof(out));
	}
	free(tight);
	return status;
}

static void
assert_message(const char *words)
{
	if (strstr(error.text, words) == NULL)
		fail_msg("'%s' is not in '%s'", words, error.text);
}

static void
frame__every_size_too_small(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		size_t bytes = HEAD + forms[i].body_bytes;

		for (size_t size = 0; size < bytes; size++) {
			uint8_t *tight = malloc(size > 0 ? size : 1);

			assert_non_null(tight);
			assert_int_equal(forms[i].encode(tight, size), 0);
			free(tight);
		}
		assert_int_equal(forms[i].encode(NULL, 0), 0);
		assert_int_equal(forms[i].encode(frame, bytes), bytes);
	}
}

static void
frame__every_truncation(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		assert_true(forms[i].encode(frame, sizeof(frame)) > 0);
		for (uint32_t bytes = 0; bytes < forms[i].body_bytes; bytes++)
			assert_int_equal(decode_tight(&forms[i], frame + HEAD, bytes),
					 KVP_PROTOCOL);
		assert_int_equal(decode_tight(&forms[i], frame + HEAD, forms[i].body_bytes),
				 KVP_SUCCESS);
	}
}

static void
frame__trailing_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		memset(frame, 0, sizeof(frame));
		assert_true(forms[i].encode(frame, sizeof(frame)) > 0);
		assert_int_equal(decode_tight(&forms[i], frame + HEAD, forms[i].body_bytes + 1),
				 KVP_PROTOCOL);
		assert_int_equal(decode_tight(&forms[i], frame + HEAD, forms[i].body_bytes + 44),
				 KVP_PROTOCOL);
	}
}

/* A receiver believes the length in the header; what is behind the frame reads as zero here. */
static kvp_status
receive(const uint8_t *bytes, size_t size)
{
	static uint8_t stream[KVP_FRAME_HEADER + KVP_FRAME_BODY_MAX];
	struct kvp_frame_header header;
	kvp_status status = kvp_frame_decode_header(bytes, KVP_FRAME_BODY_MAX, &header, &error);

	if (status != KVP_SUCCESS)
		return status;
	memcpy(stream, bytes, size);
	return kvp_frame_check(&header, stream + HEAD, &error);
}

static void
frame__every_flipped_bit(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		size_t bytes = forms[i].encode(frame, sizeof(frame));

		assert_int_equal(receive(frame, bytes), KVP_SUCCESS);
		for (size_t bit = 0; bit < 8 * bytes; bit++) {
			frame[bit / 8] ^= (uint8_t)(1U << bit % 8);
			if (receive(frame, bytes) != KVP_PROTOCOL)
				fail_msg("%s: bit %zu", forms[i].name, bit);
			frame[bit / 8] ^= (uint8_t)(1U << bit % 8);
		}
	}
}

/* Any garbage gets an answer, also where the checksum is right, as from a hostile peer. */
static void
frame__every_flipped_byte_of_a_body(void **state)
{
	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		assert_true(forms[i].encode(frame, sizeof(frame)) > 0);
		for (uint32_t at = 0; at < forms[i].body_bytes; at++) {
			uint8_t *byte = &frame[HEAD + at];

			for (uint32_t flip = 1; flip < 256; flip += flip < 16 ? 1 : 31) {
				*byte ^= (uint8_t)flip;
				decode_tight(&forms[i], frame + HEAD, forms[i].body_bytes);
				*byte ^= (uint8_t)flip;
			}
		}
	}
}

static void
header__refused(void **state)
{
	static const struct {
		uint8_t at, value;
		const char *words;
	} bad[] = {
		{0, 'G', "does not speak kvpush"},
		{3, '2', "does not speak kvpush"},
		{4, 2, "version 2 of the protocol, this engine version 1"},
		{4, 0, "version 0 of the protocol, this engine version 1"},
		{5, 0, "frame type 0"},
		{5, KVP_FRAME_TYPES, "frame type 18"},
		{6, 1, "reserved"},
		{7, 1, "reserved"},
		{8, 101, "101 body bytes is above the limit of 100"},
		{11, 1, "above the limit of 100"},
	};
	struct kvp_frame_header header;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(&header, 0x5A, sizeof(header));
		assert_int_equal(encode_ready(frame, sizeof(frame)), HEAD);
		frame[bad[i].at] = bad[i].value;
		assert_int_equal(kvp_frame_decode_header(frame, 100, &header, &error),
				 KVP_PROTOCOL);
		assert_message(bad[i].words);
		assert_int_equal(header.body_bytes, 0x5A5A5A5A);
	}
}

static void
header__body_of_exactly_the_limit(void **state)
{
	struct kvp_frame_header header;

	(void)state;
	assert_int_equal(encode_sync(frame, sizeof(frame)), HEAD + 8);
	assert_int_equal(kvp_frame_decode_header(frame, 7, &header, &error), KVP_PROTOCOL);
	assert_int_equal(kvp_frame_decode_header(frame, 8, &header, &error), KVP_SUCCESS);
	assert_int_equal(header.body_bytes, 8);
}

static void
header__each_form(void **state)
{
	struct kvp_frame_header header;

	(void)state;
	for (size_t i = 0; i < FORMS; i++) {
		forms[i].encode(frame, sizeof(frame));
		assert_int_equal(
			kvp_frame_decode_header(frame, KVP_FRAME_EARLY_MAX, &header, &error),
			KVP_SUCCESS);
		assert_int_equal(header.version, KVP_WIRE_VERSION);
		assert_int_equal(header.type, forms[i].type);
		assert_int_equal(header.body_bytes, forms[i].body_bytes);
		assert_int_equal(kvp_frame_check(&header, frame + HEAD, &error), KVP_SUCCESS);
	}
}

/* These bytes are the protocol: a change here is a new version. */
static void
header__golden_bytes(void **state)
{
	/* The checksum was made with the library's XXH32(body, 8, XXH32(first 12, 12, 0)). */
	static const uint8_t golden[] = {'K', 'V', 'P', '1', 1,    11,   0,    0,
					 8,   0,   0,   0,   0x91, 0x02, 0xBA, 0x04};

	(void)state;
	assert_int_equal(encode_sync(frame, sizeof(frame)), 24);
	assert_memory_equal(frame, golden, sizeof(golden));
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(frame[HEAD + i], 0x10 + 0x22 * i);
}

static void
check__other_body(void **state)
{
	struct kvp_frame_header header;

	(void)state;
	encode_sync(frame, sizeof(frame));
	assert_int_equal(kvp_frame_decode_header(frame, 8, &header, &error), KVP_SUCCESS);
	frame[HEAD] ^= 1;
	assert_int_equal(kvp_frame_check(&header, frame + HEAD, &error), KVP_PROTOCOL);
	assert_message("damaged");
}

/* Overwrite `bytes` at `at` in the body with `value`, decode, put back. */
static kvp_status
decode_with(const struct form *form, uint32_t at, uint32_t bytes, uint64_t value)
{
	kvp_status status;

	assert_true(form->encode(frame, sizeof(frame)) > 0);
	assert_true(at + bytes <= form->body_bytes);
	error.text[0] = '\0';
	for (uint32_t i = 0; i < bytes; i++)
		frame[HEAD + at + i] = (uint8_t)(value >> (8 * i));
	status = decode_tight(form, frame + HEAD, form->body_bytes);
	return status;
}

static const struct form *
form_of(const char *name)
{
	for (size_t i = 0; i < FORMS; i++) {
		if (strcmp(forms[i].name, name) == 0)
			return &forms[i];
	}
	fail_msg("no form %s", name);
	return NULL;
}

/* Where they begin in the bodies of the forms above. */
#define RAIL2 (36U + 16 + 4 + KVP_DESCRIPTION_MAX + 16 + 4 + 5)
#define RAIL3 (RAIL2 + 16 + 4 + 1)
#define T0    12U
#define T1    (T0 + 44U)

/* lint: long (a table of refusals) */
static void
body__fields_out_of_range(void **state)
{
	static const struct {
		const char *form;
		uint32_t at, bytes;
		uint64_t value;
		const char *words;
	} bad[] = {
		{"hello", 16, 4, 0, "role 0"},
		{"hello", 16, 4, 4, "role 4 is not in [1, 3]"},
		{"hello", 20, 4, 9, "heartbeat_ms 9 "},
		{"hello", 20, 4, 60001, "heartbeat_ms 60001 "},
		{"hello", 24, 4, 0, "lanes 0"},
		{"hello", 24, 4, 17, "lanes 17"},
		{"hello", 28, 4, 4, "rights 4 is not in [0, 3]"},
		{"hello", 32, 4, 5, "rails 5"},
		{"hello", 32, 4, UINT32_MAX, "rails 4294967295"},
		{"hello", 32, 4, 3, "bytes too many"},
		{"hello", 36, 1, 0, "rail name"},
		{"hello", 36, 1, ' ', "rail name"},
		{"hello", 37, 1, 0x1B, "rail name"},
		{"hello", 37, 1, 0x80, "rail name"},
		{"hello", 37, 1, 0, "rail name"},        /* s, NUL, m: not padding */
		{"hello", 36 + 15, 1, 'x', "rail name"}, /* s, h, m, NUL ..., x */
		{"hello", RAIL2 + 15, 1, 'x', "rail name of 16 characters"},
		{"hello", RAIL3, 1, 0, "rail name of 0 characters"},
		{"hello", 52, 4, 449, "rail description 449 is not in [0, 448]"},
		{"hello", 52, 4, UINT32_MAX, "rail description"},
		{"welcome", 32, 4, 1, "ends before the end of rail name"},
		{"refuse", 0, 4, KVP_SUCCESS, "status 00000000 is not a failure"},
		{"refuse", 0, 4, KVP_IN_PROGRESS, "is not a failure"},
		{"refuse", 0, 4, KVP_NO_EVENT, "is not a failure"},
		{"refuse", 4, 4, 256, "text 256"},
		{"refuse", 4, 4, UINT32_MAX, "text 4294967295"},
		{"refuse", 4, 4, 34, "ends before the end of text"},
		{"refuse", 4, 4, 32, "1 bytes too many"},
		{"path", 0, 1, 0, "name"},
		{"path", 16, 4, 0, "endpoints 0 is not in [1, 16]"},
		{"path", 16, 4, 17, "endpoints 17"},
		{"path", 20, 4, 1025, "offer 1025"},
		{"path", 20, 4, 4, "ends before the end of offer"},
		{"stream", 16, 4, 16, "endpoint 16 is not in [0, 15]"},
		{"cache_add", 0, 8, 0, "cache_id 0"},
		{"cache_add", 0, 8, UINT64_C(1) << 63, "cache_id"},
		{"cache_add", 8, 4, 0, "num_tensors 0 is not in [1, 4096]"},
		{"cache_add", 8, 4, 4097, "num_tensors 4097"},
		{"cache_add", 8, 4, 2, "num_tensors 2"},
		{"cache_add", 8, 4, 4, "num_tensors 4"},
		{"cache_add", T0, 8, 0, "tensor 0: base 0"},
		{"cache_add", T1, 8, 0, "tensor 1: base 0"},
		{"cache_add", T1, 8, UINT64_MAX, "tensor 1: base ffffffffffffffff"},
		{"cache_add", T0 + 8, 8, 0, "tensor 0: num_blocks 0"},
		{"cache_add", T0 + 8, 8, UINT64_C(0xFFFFFFFF), "tensor 0: num_blocks 4294967295"},
		{"cache_add", T0 + 8, 8, 101, "tensor 1: num_blocks 100 is not the 101"},
		{"cache_add", T1 + 8, 8, 99, "tensor 1: num_blocks 99 is not the 100"},
		{"cache_add", T0 + 16, 8, 0, "tensor 0: block_bytes 0"},
		{"cache_add", T0 + 16, 8, 8193, "tensor 0: block_stride 8192 is not in [8193"},
		{"cache_add", T1 + 24, 8, 4096, "tensor 1: block_stride 4096 is not in [4097"},
		{"cache_add", T0 + 24, 8, UINT64_MAX, "tensor 0: base"},
		{"cache_add", T0 + 24, 8, UINT64_MAX / 99, "tensor 0: base"},
		{"cache_add", T0 + 24, 8, UINT64_MAX / 99 + 1,
		 "tensor 0: base"}, /* x 99 = 2^64 + r */
		{"cache_add", T1 + 36, 8, UINT64_MAX - 99 * 8192, "tensor 1: region_offset"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kvp_status status =
			decode_with(form_of(bad[i].form), bad[i].at, bad[i].bytes, bad[i].value);

		if (status != KVP_PROTOCOL)
			fail_msg("%s at %u: %llu passed", bad[i].form, bad[i].at,
				 (unsigned long long)bad[i].value);
		assert_message(bad[i].words);
	}
}

static void
body__fields_at_their_limits(void **state)
{
	static const struct {
		const char *form;
		uint32_t at, bytes;
		uint64_t value;
	} good[] = {
		{"hello", 16, 4, 1},
		{"hello", 16, 4, 3},
		{"hello", 20, 4, 10},
		{"hello", 20, 4, 60000},
		{"hello", 24, 4, 1},
		{"hello", 24, 4, 16},
		{"hello", 28, 4, 0},
		{"hello", 28, 4, 3},
		{"refuse", 0, 4, KVP_FAILED},
		{"path", 16, 4, 1},
		{"stream", 16, 4, 0},
		{"cache_add", 0, 8, 1},
		{"cache_add", T0, 8, 1},
		/* The byte after the last one is 2^64 - 1, the largest there is. */
		{"cache_add", T0, 8, UINT64_MAX - 99 * 8192 - 4096},
		{"cache_add", T0 + 16, 8, 1},
		{"cache_add", T0 + 16, 8, 8192},
		{"cache_add", T0 + 32, 4, UINT32_MAX},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		kvp_status status = decode_with(form_of(good[i].form), good[i].at, good[i].bytes,
						good[i].value);

		if (status != KVP_SUCCESS)
			fail_msg("%s at %u: %s", good[i].form, good[i].at, error.text);
	}
	assert_int_equal(decode_with(form_of("cache_add"), T0, 8, UINT64_MAX - 99 * 8192 - 4095),
			 KVP_PROTOCOL);
}

static void
hello__round_trip(void **state)
{
	struct kvp_hello hello = some_hello(), got;
	size_t bytes = kvp_frame_encode_hello(KVP_FRAME_WELCOME, &hello, frame, sizeof(frame));

	(void)state;
	assert_int_equal(kvp_frame_decode_hello(frame + HEAD, (uint32_t)bytes - HEAD, &got, &error),
			 KVP_SUCCESS);
	assert_memory_equal(&got, &hello, sizeof(hello));
	assert_int_equal(kvp_frame_encode_hello(KVP_FRAME_WELCOME, &got, again, sizeof(again)),
			 bytes);
	assert_memory_equal(frame, again, bytes);
	/* Even when every rail is as long as it may be, it is an early frame. */
	for (uint32_t i = 0; i < KVP_RAILS_MAX; i++)
		hello.rail[i].blob.bytes = KVP_DESCRIPTION_MAX;
	bytes = kvp_frame_encode_hello(KVP_FRAME_HELLO, &hello, frame, sizeof(frame));
	assert_true(bytes > 0 && bytes - HEAD <= KVP_FRAME_EARLY_MAX);
}

static void
refuse__round_trip(void **state)
{
	struct kvp_refuse got;
	size_t bytes = encode_refuse(frame, sizeof(frame));

	(void)state;
	assert_int_equal(
		kvp_frame_decode_refuse(frame + HEAD, (uint32_t)bytes - HEAD, &got, &error),
		KVP_SUCCESS);
	assert_memory_equal(&got, &some_refuse, sizeof(got));
}

static void
refuse__longest_text(void **state)
{
	struct kvp_refuse refuse = {.status = KVP_FAILED}, got;
	size_t bytes;

	(void)state;
	/* Without its NUL: cut, never read beyond. */
	memset(refuse.text, 'x', sizeof(refuse.text));
	bytes = kvp_frame_encode_refuse(&refuse, frame, sizeof(frame));
	assert_int_equal(bytes, HEAD + 8 + KVP_ERROR_TEXT_MAX - 1);
	assert_int_equal(
		kvp_frame_decode_refuse(frame + HEAD, (uint32_t)bytes - HEAD, &got, &error),
		KVP_SUCCESS);
	assert_int_equal(strlen(got.text), KVP_ERROR_TEXT_MAX - 1);
}

static void
refuse__text_is_harmless_on_a_terminal(void **state)
{
	static const char evil[] = "a\x1b[2Jb\nc\x7f\x9b"
				   "d\te";
	struct kvp_refuse refuse = {.status = KVP_FAILED}, got;
	size_t bytes;

	(void)state;
	/* Both ends do it: ours cannot send it, and a hostile one cannot get it through. */
	memcpy(refuse.text, evil, sizeof(evil));
	bytes = kvp_frame_encode_refuse(&refuse, frame, sizeof(frame));
	for (size_t i = HEAD + 8; i < bytes; i++)
		assert_true(frame[i] >= ' ' && frame[i] <= '~');
	memcpy(frame + HEAD + 8, evil, sizeof(evil) - 1);
	frame[HEAD + 8] = '\0';
	assert_int_equal(
		kvp_frame_decode_refuse(frame + HEAD, (uint32_t)bytes - HEAD, &got, &error),
		KVP_SUCCESS);
	assert_string_equal(got.text, "??[2Jb?c??d?e");
}

static void
path__round_trip(void **state)
{
	struct kvp_path_frame got;
	size_t bytes = encode_path(frame, sizeof(frame));

	(void)state;
	assert_int_equal(kvp_frame_decode_path(frame + HEAD, (uint32_t)bytes - HEAD, &got, &error),
			 KVP_SUCCESS);
	assert_memory_equal(&got, &some_path, sizeof(got));
}

static void
note__is_carried_as_it_is(void **state)
{
	static const uint8_t note[] = {1, 2, 3, 0, 255};
	struct kvp_frame_header header;
	size_t bytes;

	(void)state;
	assert_int_equal(kvp_frame_encode_note(note, sizeof(note), frame, HEAD + 4), 0);
	bytes = kvp_frame_encode_note(note, sizeof(note), frame, sizeof(frame));
	assert_int_equal(bytes, HEAD + sizeof(note));
	assert_int_equal(kvp_frame_decode_header(frame, KVP_FRAME_BODY_MAX, &header, &error),
			 KVP_SUCCESS);
	assert_int_equal(header.type, KVP_FRAME_NOTE);
	assert_int_equal(kvp_frame_check(&header, frame + HEAD, &error), KVP_SUCCESS);
	assert_memory_equal(frame + HEAD, note, sizeof(note));
}

static void
stream__round_trip(void **state)
{
	struct kvp_stream_frame got;

	(void)state;
	encode_stream(frame, sizeof(frame));
	assert_int_equal(kvp_frame_decode_stream(frame + HEAD, 20, &got, &error), KVP_SUCCESS);
	assert_memory_equal(&got, &some_stream, sizeof(got));
}

static void
value__round_trip(void **state)
{
	static const uint8_t types[] = {KVP_FRAME_CACHE_GONE, KVP_FRAME_CACHE_GONE_ACK,
					KVP_FRAME_SYNC, KVP_FRAME_SYNC_ACK};
	uint64_t got;

	(void)state;
	for (size_t i = 0; i < sizeof(types); i++) {
		assert_int_equal(
			kvp_frame_encode_value(types[i], UINT64_MAX - i, frame, sizeof(frame)),
			HEAD + 8);
		assert_int_equal(frame[5], types[i]);
		assert_int_equal(kvp_frame_decode_value(frame + HEAD, 8, &got, &error),
				 KVP_SUCCESS);
		assert_true(got == UINT64_MAX - i);
	}
}

static void
empty__round_trip(void **state)
{
	static const uint8_t types[] = {KVP_FRAME_CATALOGUE_END, KVP_FRAME_READY,
					KVP_FRAME_HEARTBEAT,     KVP_FRAME_UNLINK,
					KVP_FRAME_UNLINK_ACK,    KVP_FRAME_BYE};
	struct kvp_frame_header header;

	(void)state;
	for (size_t i = 0; i < sizeof(types); i++) {
		assert_int_equal(kvp_frame_encode_empty(types[i], frame, sizeof(frame)), HEAD);
		assert_int_equal(kvp_frame_decode_header(frame, 0, &header, &error), KVP_SUCCESS);
		assert_int_equal(header.type, types[i]);
		assert_int_equal(kvp_frame_check(&header, frame + HEAD, &error), KVP_SUCCESS);
		assert_int_equal(kvp_frame_decode_empty(header.body_bytes, &error), KVP_SUCCESS);
	}
	assert_int_equal(kvp_frame_decode_empty(1, &error), KVP_PROTOCOL);
}

static void
cache_add__round_trip(void **state)
{
	struct kvp_remote_tensor tensors[TENSORS], got[TENSORS];
	struct kvp_cache_add add;
	size_t bytes = encode_cache_add(frame, sizeof(frame));

	(void)state;
	memset(got, 0, sizeof(got));
	some_tensors(tensors);
	assert_int_equal(bytes, kvp_frame_cache_add_bytes(TENSORS));
	assert_int_equal(
		kvp_frame_decode_cache_add(frame + HEAD, (uint32_t)bytes - HEAD, &add, &error),
		KVP_SUCCESS);
	assert_true(add.cache_id == INT64_MAX);
	assert_int_equal(add.num_tensors, TENSORS);
	assert_int_equal(
		kvp_frame_decode_tensors(frame + HEAD, (uint32_t)bytes - HEAD, &add, got, &error),
		KVP_SUCCESS);
	for (uint32_t i = 0; i < TENSORS; i++) {
		assert_memory_equal(&got[i].tensor, &tensors[i].tensor, sizeof(got[i].tensor));
		assert_int_equal(got[i].region, tensors[i].region);
		assert_int_equal(got[i].region_offset, tensors[i].region_offset);
	}
	assert_int_equal(kvp_frame_encode_cache_add(&add, got, again, sizeof(again)), bytes);
	assert_memory_equal(frame, again, bytes);
}

static void
cache_add__largest(void **state)
{
	struct kvp_cache_add add = {.cache_id = 7, .num_tensors = KVP_TENSORS_MAX};
	struct kvp_remote_tensor *tensors = calloc(KVP_TENSORS_MAX, sizeof(*tensors));
	size_t size = kvp_frame_cache_add_bytes(KVP_TENSORS_MAX);
	uint8_t *large = malloc(size);

	(void)state;
	assert_true(tensors != NULL && large != NULL);
	assert_true(size - HEAD <= KVP_FRAME_BODY_MAX);
	for (uint32_t i = 0; i < KVP_TENSORS_MAX; i++)
		tensors[i].tensor =
			(struct kvp_tensor){(void *)(uintptr_t)(4096 * (i + 1)), 1, 8, 8};
	assert_int_equal(kvp_frame_encode_cache_add(&add, tensors, large, size - 1), 0);
	assert_int_equal(kvp_frame_encode_cache_add(&add, tensors, large, size), size);
	assert_int_equal(
		kvp_frame_decode_cache_add(large + HEAD, (uint32_t)(size - HEAD), &add, &error),
		KVP_SUCCESS);
	assert_int_equal(kvp_frame_decode_tensors(large + HEAD, (uint32_t)(size - HEAD), &add,
						  tensors, &error),
			 KVP_SUCCESS);
	assert_int_equal((uintptr_t)tensors[KVP_TENSORS_MAX - 1].tensor.base,
			 4096 * KVP_TENSORS_MAX);
	free(large);
	free(tensors);
}

/* The array that the first half was sized for cannot be overrun by another body. */
static void
tensors__not_the_number_expected(void **state)
{
	struct kvp_cache_add add = {.cache_id = 1, .num_tensors = TENSORS - 1};
	struct kvp_remote_tensor got[TENSORS];
	size_t bytes = encode_cache_add(frame, sizeof(frame));

	(void)state;
	assert_int_equal(
		kvp_frame_decode_tensors(frame + HEAD, (uint32_t)bytes - HEAD, &add, got, &error),
		KVP_PROTOCOL);
	assert_message("num_tensors 3 is not the 2 expected");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frame__every_size_too_small),
		cmocka_unit_test(frame__every_truncation),
		cmocka_unit_test(frame__trailing_bytes),
		cmocka_unit_test(frame__every_flipped_bit),
		cmocka_unit_test(frame__every_flipped_byte_of_a_body),
		cmocka_unit_test(header__refused),
		cmocka_unit_test(header__body_of_exactly_the_limit),
		cmocka_unit_test(header__each_form),
		cmocka_unit_test(header__golden_bytes),
		cmocka_unit_test(check__other_body),
		cmocka_unit_test(body__fields_out_of_range),
		cmocka_unit_test(body__fields_at_their_limits),
		cmocka_unit_test(hello__round_trip),
		cmocka_unit_test(refuse__round_trip),
		cmocka_unit_test(refuse__longest_text),
		cmocka_unit_test(refuse__text_is_harmless_on_a_terminal),
		cmocka_unit_test(path__round_trip),
		cmocka_unit_test(stream__round_trip),
		cmocka_unit_test(note__is_carried_as_it_is),
		cmocka_unit_test(value__round_trip),
		cmocka_unit_test(empty__round_trip),
		cmocka_unit_test(cache_add__round_trip),
		cmocka_unit_test(cache_add__largest),
		cmocka_unit_test(tensors__not_the_number_expected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
