/* SPDX-License-Identifier: Apache-2.0 */
#include "talk.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct head {
	uint32_t type;
	uint32_t body_bytes;
};
_Static_assert(sizeof(struct head) == sizeof(((struct demo_talk *)0)->head), "room for a head");

void
demo_talk_init(struct demo_talk *talk, int fd)
{
	*talk = (struct demo_talk){.fd = fd};
}

void
demo_talk_fini(struct demo_talk *talk)
{
	if (talk->fd >= 0)
		(void)close(talk->fd);
	free(talk->body);
	demo_talk_init(talk, -1);
}

static int
send_all(int fd, const void *bytes, size_t count, int flags)
{
	const char *at = bytes;

	while (count > 0) {
		ssize_t n = send(fd, at, count, flags | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == ECONNRESET ? -EPIPE : -errno;
		at += n;
		count -= (size_t)n;
	}
	return 0;
}

int
demo_talk_send(struct demo_talk *talk, const struct demo_message *message)
{
	size_t bytes = message->body_bytes + message->items_bytes;
	struct head head = {.type = message->type, .body_bytes = (uint32_t)bytes};
	int rc;

	if (bytes > DEMO_MESSAGE_MAX)
		return -EMSGSIZE;
	rc = send_all(talk->fd, &head, sizeof(head), bytes > 0 ? MSG_MORE : 0);
	if (rc == 0)
		rc = send_all(talk->fd, message->body, message->body_bytes,
			      message->items_bytes > 0 ? MSG_MORE : 0);
	if (rc == 0)
		rc = send_all(talk->fd, message->items, message->items_bytes, 0);
	return rc;
}

int
demo_talk_say(struct demo_talk *talk, uint32_t type, const void *body, size_t body_bytes)
{
	return demo_talk_send(talk, &(struct demo_message){
					    .type = type,
					    .body = body,
					    .body_bytes = body_bytes,
				    });
}

/* Read what is there towards `wanted` bytes at `into`. 0: complete. */
static int
read_some(struct demo_talk *talk, uint8_t *into, size_t wanted)
{
	while (talk->in_bytes < wanted) {
		ssize_t n = recv(talk->fd, into + talk->in_bytes, wanted - talk->in_bytes,
				 MSG_DONTWAIT);

		if (n < 0)
			return errno == ECONNRESET ? -EPIPE : -errno;
		if (n == 0)
			return -EPIPE;
		talk->in_bytes += (size_t)n;
	}
	talk->in_bytes = 0;
	return 0;
}

static int
take_head(struct demo_talk *talk)
{
	struct head head;
	uint8_t *bigger;

	memcpy(&head, talk->head, sizeof(head));
	if (head.body_bytes > DEMO_MESSAGE_MAX)
		return -EPROTO;
	if (head.body_bytes > talk->room) {
		bigger = realloc(talk->body, head.body_bytes);
		if (bigger == NULL)
			return -ENOMEM;
		talk->body = bigger;
		talk->room = head.body_bytes;
	}
	talk->type = head.type;
	talk->body_bytes = head.body_bytes;
	talk->has_head = 1;
	return 0;
}

static int
receive_now(struct demo_talk *talk, struct demo_message *message_out)
{
	int rc;

	if (talk->has_head == 0) {
		rc = read_some(talk, talk->head, sizeof(talk->head));
		if (rc == 0)
			rc = take_head(talk);
		if (rc != 0)
			return rc;
	}
	rc = read_some(talk, talk->body, talk->body_bytes);
	if (rc != 0)
		return rc;
	talk->has_head = 0;
	*message_out = (struct demo_message){
		.type = talk->type,
		.body = talk->body,
		.body_bytes = talk->body_bytes,
	};
	return 0;
}

int
demo_talk_receive(struct demo_talk *talk, int wait_ms, struct demo_message *message_out)
{
	struct pollfd pfd = {.fd = talk->fd, .events = POLLIN};
	int rc = receive_now(talk, message_out);

	if (rc != -EAGAIN || wait_ms == 0)
		return rc;
	rc = poll(&pfd, 1, wait_ms);
	if (rc < 0)
		return -errno;
	if (rc == 0)
		return -EAGAIN;
	return receive_now(talk, message_out);
}
