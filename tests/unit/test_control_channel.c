/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors control/channel.c: a channel on one end of a socketpair, the test on the other. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "channel.h"

#define VALUE_FRAME (KVP_FRAME_HEADER + 8)

struct fixture {
	struct kvp_reactor reactor;
	struct kvp_channel channel;
	int peer;
	/* what came */
	uint32_t frames;
	uint8_t type;
	uint64_t value;
	uint32_t closes;
	kvp_status status;
	struct kvp_error error;
	bool is_releasing; /* hand the socket out at the first frame */
	int released;
};

static void
on_frame(struct kvp_channel *channel, uint8_t type, const uint8_t *body, uint32_t bytes)
{
	struct fixture *f = channel->owner;
	struct kvp_error error;

	f->frames++;
	f->type = type;
	if (type == KVP_FRAME_SYNC)
		assert_int_equal(kvp_frame_decode_value(body, bytes, &f->value, &error),
				 KVP_SUCCESS);
	if (f->is_releasing)
		f->released = kvp_channel_release(channel);
}

static void
on_closed(struct kvp_channel *channel, kvp_status status, const struct kvp_error *error)
{
	struct fixture *f = channel->owner;

	f->closes++;
	f->status = status;
	f->error = *error;
}

static const struct kvp_channel_events events = {.frame = on_frame, .closed = on_closed};

static int
setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int ends[2];

	assert_non_null(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
	assert_int_equal(kvp_reactor_init(&f->reactor), 0);
	assert_int_equal(kvp_channel_open(&f->channel, &f->reactor, ends[0], false, &events, f), 0);
	f->peer = ends[1];
	f->released = -1;
	*state = f;
	return 0;
}

static int
teardown(void **state)
{
	struct fixture *f = *state;

	kvp_channel_close(&f->channel);
	kvp_channel_close(&f->channel); /* twice is a no-op */
	if (f->peer >= 0)
		close(f->peer);
	if (f->released >= 0)
		close(f->released);
	kvp_reactor_fini(&f->reactor);
	free(f);
	return 0;
}

static void
spin(struct fixture *f)
{
	for (int i = 0; i < 8; i++)
		kvp_reactor_wait(&f->reactor, 0);
}

static size_t
value_frame(uint64_t value, uint8_t *frame)
{
	size_t bytes = kvp_frame_encode_value(KVP_FRAME_SYNC, value, frame, 64);

	assert_int_equal(bytes, VALUE_FRAME);
	return bytes;
}

static void
readable__a_frame_in_single_bytes(void **state)
{
	struct fixture *f = *state;
	uint8_t frame[64];
	size_t bytes = value_frame(77, frame);

	for (size_t i = 0; i < bytes; i++) {
		assert_int_equal(f->frames, 0);
		assert_int_equal(write(f->peer, frame + i, 1), 1);
		spin(f);
		if (i + 1 < bytes) {
			uint64_t limit_ns = f->channel.frame_ns + KVP_CHANNEL_STALL_MS * 1000000ULL;

			assert_true(f->channel.frame_ns > 0);
			assert_false(kvp_channel_is_stalled(&f->channel, limit_ns));
			assert_true(kvp_channel_is_stalled(&f->channel, limit_ns + 1));
		}
	}
	assert_false(kvp_channel_is_stalled(&f->channel, UINT64_MAX));
	assert_int_equal(f->frames, 1);
	assert_int_equal(f->value, 77);
	assert_int_equal(f->channel.frame_ns, 0);
}

static void
readable__frames_back_to_back(void **state)
{
	struct fixture *f = *state;
	uint8_t frames[3 * VALUE_FRAME];

	for (uint64_t i = 0; i < 3; i++) {
		uint8_t one[64];

		memcpy(frames + i * VALUE_FRAME, one, value_frame(i + 1, one));
	}
	assert_int_equal(write(f->peer, frames, sizeof(frames)), sizeof(frames));
	kvp_reactor_wait(&f->reactor, 0);
	assert_int_equal(f->frames, 1); /* one per dispatch: the owner may be gone after it */
	assert_int_equal(f->value, 1);
	spin(f);
	assert_int_equal(f->frames, 3);
	assert_int_equal(f->value, 3);
}

static void
readable__never_reads_past_a_frame(void **state)
{
	struct fixture *f = *state;
	uint8_t frame[64 + 5];
	size_t bytes = value_frame(5, frame);
	char rest[8];

	memcpy(frame + bytes, "rest!", 5);
	f->is_releasing = true;
	assert_int_equal(write(f->peer, frame, bytes + 5), bytes + 5);
	spin(f);
	assert_int_equal(f->frames, 1);
	assert_true(f->released >= 0);
	assert_false(kvp_channel_is_open(&f->channel));
	assert_int_equal(read(f->released, rest, sizeof(rest)), 5);
	assert_memory_equal(rest, "rest!", 5);
}

static void
readable__garbage_is_a_protocol_error(void **state)
{
	struct fixture *f = *state;
	const char *http = "HTTP/1.1 400 Bad Request\r\n\r\n";

	assert_true(write(f->peer, http, strlen(http)) > 0);
	spin(f);
	assert_int_equal(f->closes, 1);
	assert_int_equal(f->status, KVP_PROTOCOL);
	assert_true(f->error.text[0] != '\0');
	assert_false(kvp_channel_is_open(&f->channel));
}

static void
readable__a_flipped_bit_is_a_protocol_error(void **state)
{
	struct fixture *f = *state;
	uint8_t frame[64];
	size_t bytes = value_frame(9, frame);

	frame[bytes - 1] ^= 0x10;
	assert_int_equal(write(f->peer, frame, bytes), bytes);
	spin(f);
	assert_int_equal(f->frames, 0);
	assert_int_equal(f->status, KVP_PROTOCOL);
}

static void
readable__a_body_above_the_limit_is_refused_at_its_header(void **state)
{
	struct fixture *f = *state;
	size_t size = kvp_frame_cache_add_bytes(100);
	struct kvp_cache_add add = {.cache_id = 1, .num_tensors = 100};
	struct kvp_remote_tensor *tensors = calloc(100, sizeof(*tensors));
	uint8_t *frame = malloc(size);

	assert_non_null(tensors);
	assert_non_null(frame);
	assert_true(size > KVP_FRAME_HEADER + KVP_FRAME_EARLY_MAX);
	for (int i = 0; i < 100; i++)
		tensors[i].tensor = (struct kvp_tensor){(void *)0x1000, 1, 1, 1};
	size = kvp_frame_encode_cache_add(&add, tensors, frame, size);
	assert_true(size > 0);
	assert_int_equal(write(f->peer, frame, KVP_FRAME_HEADER), KVP_FRAME_HEADER);
	spin(f);
	assert_int_equal(f->status, KVP_PROTOCOL);
	assert_null(f->channel.body); /* nothing was allocated for it */
	free(frame);
	free(tensors);
}

static void
readable__end_of_stream(void **state)
{
	struct fixture *f = *state;

	close(f->peer);
	f->peer = -1;
	spin(f);
	assert_int_equal(f->closes, 1);
	assert_int_equal(f->status, KVP_PEER_LOST);
}

static void
send__queues_what_the_socket_does_not_take(void **state)
{
	struct fixture *f = *state;
	uint8_t frame[64];
	size_t bytes = value_frame(3, frame);
	uint64_t sent = 0;
	uint64_t got = 0;
	uint8_t buffer[4096];

	while (f->channel.queue_bytes == 0) {
		assert_true(kvp_channel_send(&f->channel, frame, bytes));
		sent += bytes;
	}
	for (int i = 0; i < 100; i++) {
		assert_true(kvp_channel_send(&f->channel, frame, bytes));
		sent += bytes;
	}
	assert_true(f->channel.watch.events & EPOLLOUT);
	while (got < sent) {
		ssize_t n = read(f->peer, buffer, sizeof(buffer));

		if (n > 0)
			got += (uint64_t)n;
		kvp_reactor_wait(&f->reactor, 0);
	}
	assert_int_equal(got, sent);
	assert_int_equal(f->channel.queue_bytes, 0);
	assert_false(f->channel.watch.events & EPOLLOUT);
}

static void
send__a_peer_that_never_reads_does_not_take_our_memory(void **state)
{
	struct fixture *f = *state;
	size_t size = 1U << 20;
	uint8_t *block = calloc(1, size);
	uint32_t taken = 0;

	assert_non_null(block);
	while (kvp_channel_send(&f->channel, block, size))
		taken++;
	assert_in_range(taken, 16, 17); /* KVP_CHANNEL_QUEUE_MAX and a socket buffer */
	free(block);
}

static void
move__the_rest_arrives_at_the_new_owner(void **state)
{
	struct fixture *f = *state;
	struct kvp_channel second = {.watch.fd = -1};
	struct fixture other = {.released = -1};
	uint8_t frame[64];
	size_t bytes = value_frame(42, frame);

	assert_int_equal(write(f->peer, frame, 10), 10);
	spin(f);
	kvp_channel_move(&second, &f->channel, &events, &other);
	assert_false(kvp_channel_is_open(&f->channel));
	assert_int_equal(write(f->peer, frame + 10, bytes - 10), bytes - 10);
	spin(f);
	assert_int_equal(f->frames, 0);
	assert_int_equal(other.frames, 1);
	assert_int_equal(other.value, 42);
	kvp_channel_close(&second);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(readable__a_frame_in_single_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(readable__frames_back_to_back, setup, teardown),
		cmocka_unit_test_setup_teardown(readable__never_reads_past_a_frame, setup,
						teardown),
		cmocka_unit_test_setup_teardown(readable__garbage_is_a_protocol_error, setup,
						teardown),
		cmocka_unit_test_setup_teardown(readable__a_flipped_bit_is_a_protocol_error, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			readable__a_body_above_the_limit_is_refused_at_its_header, setup, teardown),
		cmocka_unit_test_setup_teardown(readable__end_of_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(send__queues_what_the_socket_does_not_take, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			send__a_peer_that_never_reads_does_not_take_our_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(move__the_rest_arrives_at_the_new_owner, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
