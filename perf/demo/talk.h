/* SPDX-License-Identifier: Apache-2.0 */
/*
 * talk.h - what the two processes say to each other beside the engine
 *
 * The part of an inference server's scheduler: the prompt asks where a request's
 * blocks go, the decoder grants slots and says when the request is done. Both
 * ends are the same binary, so bodies are plain structs.
 *
 * Shape:      a head, one fixed body, then `count` items where the body has one
 * Ownership:  init takes the descriptor, fini closes it
 * Threads:    one per end
 */
#ifndef DEMO_TALK_H
#define DEMO_TALK_H

#include <stddef.h>
#include <stdint.h>

#define DEMO_MESSAGE_MAX (64U << 20) /* bytes of a body */

enum demo_message_type {
	DEMO_READY = 1,  /* D: struct demo_ready */
	DEMO_ASK,        /* P: struct demo_ask + demo_ask_block[count] */
	DEMO_GRANT,      /* D: struct demo_grant + demo_grant_block[count] */
	DEMO_DONE,       /* D: struct demo_done */
	DEMO_FINISH,     /* P: no body; sweep the cache and release it */
	DEMO_SUMMARY,    /* D: struct demo_summary */
	DEMO_W1_OPEN,    /* P: no body */
	DEMO_W1_READY,   /* D: struct demo_w1_ready */
	DEMO_W1_PREPARE, /* P: struct demo_w1_round; spoil its destination */
	DEMO_W1_CHECK,   /* P: struct demo_w1_round; verify its destination */
	DEMO_W1_ANSWER,  /* D: struct demo_w1_answer, to the two above */
	DEMO_W1_SOCKET,  /* P: struct demo_w1_round; answered, then receive on the plain socket */
	DEMO_BYE,        /* P: no body */
};

struct demo_ready {
	int64_t cache;
	uint32_t port;
	uint32_t num_slots;
};

struct demo_ask {
	uint64_t request;
	uint32_t count;
	uint32_t output_blocks;
};

struct demo_ask_block {
	uint64_t key;
	uint64_t epoch; /* of the prompt's copy */
};

struct demo_grant {
	uint64_t request;
	uint32_t count; /* blocks to push; 0: the decoder holds all */
	uint32_t unused;
};

struct demo_grant_block {
	uint32_t index; /* into the ask's blocks */
	uint32_t slot;  /* the decoder's */
};

struct demo_done {
	uint64_t request;
	uint64_t verified_bytes;
	uint64_t wrong_bytes;
};

struct demo_summary {
	uint64_t verified_bytes, wrong_bytes;    /* of pushes, all requests */
	uint64_t swept_bytes, swept_wrong_bytes; /* of what the cache held at the end */
	uint64_t evictions;
	uint64_t cpu_ns;        /* of the process, from READY to FINISH */
	uint64_t verify_cpu_ns; /* of that, checking and spoiling bytes */
};

struct demo_w1_ready {
	int64_t cache;
	uint32_t limit_port;
	uint32_t unused;
};

struct demo_w1_round {
	uint32_t round;
	uint32_t unused;
};

struct demo_w1_answer {
	uint64_t wrong_bytes;
};

struct demo_talk {
	int fd;
	uint32_t has_head;
	uint32_t type;
	size_t in_bytes; /* of head or body so far */
	size_t body_bytes;
	size_t room;
	uint8_t *body;
	uint8_t head[8];
};

struct demo_message {
	uint32_t type;
	size_t body_bytes;
	const void *body;  /* aligned; valid until the next receive */
	const void *items; /* sending: appended to the body */
	size_t items_bytes;
};

void
demo_talk_init(struct demo_talk *talk, int fd);

void
demo_talk_fini(struct demo_talk *talk);

/* Send, waiting for room. 0, -EMSGSIZE, or the socket's -errno (-EPIPE: the other end is gone). */
int
demo_talk_send(struct demo_talk *talk, const struct demo_message *message);

/* Without items. */
int
demo_talk_say(struct demo_talk *talk, uint32_t type, const void *body, size_t body_bytes);

/*
 * The next message, waiting at most `wait_ms` (-1: for ever, 0: not). 0, -EAGAIN
 * (none yet), -EPIPE (the other end is gone), -EINTR, -EPROTO (too long), -ENOMEM.
 */
int
demo_talk_receive(struct demo_talk *talk, int wait_ms, struct demo_message *message_out);

#endif /* DEMO_TALK_H */
