/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - two processes that keep a link busy and check every byte of it
 *
 * Both have one cache of the same shape. Its blocks are dealt to slots; a slot has one transfer at a
 * time. Push slots: the sender writes a pattern of its own for each transfer (its generation), the
 * receiver checks it when the event comes. Pull slots: the receiver's blocks hold a pattern that
 * stays, the sender pulls and checks. The two talk about transfers over a local socket that no
 * fault touches. Where blocks change hands they are overwritten with canaries:
 * once a transfer has a terminal status, nothing of it may land in its blocks any more, and nothing
 * that its source holds from then on (poison) may be found on the other side.
 *
 * Threads:    one application thread per process
 */
#ifndef KVP_TESTS_LOAD_H
#define KVP_TESTS_LOAD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/kvpush.h>

#define LOAD_TENSORS   4U
#define LOAD_PER_LAYER 2U
#define LOAD_SLOTS_MAX 16U
#define LOAD_SENDER    1U /* cluster ids */
#define LOAD_RECEIVER  2U
#define LOAD_SETTINGS  16U
#define LOAD_QUIET_MS  150U   /* how long canaries are watched */
#define LOAD_LOST_MS   1500U  /* the same after a peer was lost */
#define LOAD_PATIENCE  60000U /* ms, for what should come at once */
#define LOAD_POISON    0xBAD0BAD0BAD0BAD0U

/* Exit statuses. */
enum load_end {
	LOAD_OK = 0,
	LOAD_WRONG = 1, /* bytes, statuses or events that must not be */
	LOAD_USAGE = 2,
	LOAD_REFUSED = 3, /* open, register or link was refused: stderr has its line */
};

enum load_expect {
	EXPECT_ALL,     /* every transfer ends with SUCCESS */
	EXPECT_RECOVER, /* some may time out, each slot's last one ends with SUCCESS */
	EXPECT_LOST,    /* the peer gets lost */
};

struct load_options {
	const char *role;   /* send, receive, try */
	const char *meet;   /* path of the local socket */
	const char *status; /* file for the sender's latest counts */
	const char *path;   /* what the link's path must begin with */
	const char *setting[LOAD_SETTINGS];
	size_t settings;
	const char *peer[LOAD_SETTINGS]; /* try: of a second engine to link to */
	size_t peers;
	enum load_expect expect;
	uint32_t seconds;
	uint32_t slots, pulls; /* the last `pulls` of the slots pull */
	uint32_t blocks;       /* per transfer */
	uint32_t block_bytes;
	uint32_t timeout_ms; /* of a transfer */
	uint32_t release_ms; /* release and register the cache this often, 0 = never */
	uint32_t mib;        /* try: size of the cache to register */
	bool linger;         /* stay after closing the engine until SIGTERM */
};

/* Messages on the local socket, one datagram each. */
enum load_word {
	LOAD_HELLO = 1, /* receiver: listens on port `value` */
	LOAD_CACHE,     /* receiver: its cache is `value` now */
	LOAD_ENDED,     /* sender: the push of `slot` and `generation` ended with `status` */
	LOAD_CHECKED,   /* receiver: that one is checked, its blocks are free */
	LOAD_BYE,       /* sender: no more pushes */
};

struct load_message {
	uint32_t word;
	uint32_t slot;
	uint64_t generation;
	uint64_t value;
	kvp_status status;
};

struct load_cache {
	struct kvp_engine *engine;
	int64_t id;
	uint32_t slots, blocks, block_bytes;
	uint8_t *memory;
	struct kvp_tensor tensor[LOAD_TENSORS];
};

extern volatile sig_atomic_t load_stop;

/* load_cache.c: memory, patterns. One spare block after each slot's blocks is never a destination. */
void
load_cache_make(struct load_cache *cache, struct kvp_engine *engine,
		const struct load_options *options);
kvp_status
load_cache_register(struct load_cache *cache);
/* Source and destination lists of a transfer: the same on both sides, different for each generation. */
void
load_blocks(const struct load_cache *cache, uint32_t slot, uint64_t generation, uint64_t *src,
	    uint64_t *dst);
/* Write the pattern of a transfer's n-th block into blocks[n]. */
void
load_fill(const struct load_cache *cache, uint32_t slot, uint64_t generation,
	  const uint64_t *blocks);
/* Does blocks[n] hold it? Says on stderr what is wrong. */
bool
load_check(const struct load_cache *cache, uint32_t slot, uint64_t generation,
	   const uint64_t *blocks, const char *what);
/* All words of the slot's blocks, the spare one too, become `word`. */
void
load_canary(const struct load_cache *cache, uint32_t slot, uint64_t word);
bool
load_canary_check(const struct load_cache *cache, uint32_t slot, uint64_t word, const char *what);
/* No poison in the slot's blocks. */
bool
load_clean(const struct load_cache *cache, uint32_t slot, const char *what);

/* load.c */
uint64_t
load_now_ms(void);
/* "load: <role>: <what>: <status>: <message>" on stderr, exit with LOAD_REFUSED. */
void
load_refuse(const struct load_options *options, const char *what, kvp_status status)
	__attribute__((noreturn));
void
load_die(const char *what) __attribute__((noreturn));
struct kvp_engine *
load_open(const struct load_options *options, uint64_t cluster, const char *listen,
	  const char *const *setting, size_t settings);
/* Link to a port of this host and say over what; dies unless that is options->path. */
void
load_link(const struct load_options *options, struct kvp_engine *engine, uint64_t port);
bool
load_say(int fd, const struct load_message *message);
/* Wait at most wait_ms; 1: *message_out is there, 0: not yet, -1: the other one is gone. */
int
load_hear(int fd, struct load_message *message_out, int wait_ms);
/* Close the engine and, if asked to, stay. */
void
load_close(const struct load_options *options, struct kvp_engine *engine);

enum load_end
load_send(const struct load_options *options);
enum load_end
load_receive(const struct load_options *options);

#endif /* KVP_TESTS_LOAD_H */
