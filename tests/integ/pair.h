/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pair.h - two linked engines in one process, and caches with known content
 *
 * Every cache has a model: the bytes that its whole memory must hold, gaps
 * between blocks and guards around tensors included. A test moves bytes with
 * the library, moves the same blocks of the models one memcpy at a time, and
 * compares everything.
 *
 * Environment, for machines that are not like the usual one:
 *   KVP_TEST_TRANSPORTS  which variants of a test run, "shm,tcp" by default
 *   KVP_TEST_VERBS_A, _B verbs_devices of engines with an odd and with an even cluster id
 *   KVP_TEST_SLOW        how many times longer everything may take (and waits, where a wait is
 *                        the test), [1, 100], 1 by default: for emulated processors
 *   KVP_TEST_ONLY        run the tests whose names match, with * and ?
 *
 * Threads:    the asserting functions only on cmocka's thread
 */
#ifndef KVP_TESTS_PAIR_H
#define KVP_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <kvpush/kvpush.h>

#define PAIR_A       11U /* cluster id of the engine that links */
#define PAIR_B       22U /* cluster id of the engine that listens first */
#define PAIR_LONG_MS PAIR_SLOW(20000U)
#define PAIR_ALARM_S PAIR_SLOW(120U)
#define PAIR_GUARD   256U /* bytes before the first and after the last tensor */

/* Every time that a test gives, waits or allows, on this machine. */
#define PAIR_SLOW(time) (pair_slow() * (time))
uint32_t
pair_slow(void);

/* For CMUnitTest.initial_state of pair_setup. */
extern char pair_shm[];
extern char pair_tcp[];
extern char pair_verbs[];

struct pair {
	struct kvp_engine *a; /* linked to b; both listen */
	struct kvp_engine *b;
	const char *transport;
};

enum pair_layout {
	PAIR_SEPARATE,    /* one tensor after the other, blocks touch */
	PAIR_INTERLEAVED, /* [blocks][tensors per layer][block] per layer */
	PAIR_PADDED,      /* as separate, `pad_bytes` between blocks */
};

struct pair_shape {
	uint32_t tensors;
	uint32_t per_layer; /* interleaved: tensors that share a row; 0 = 1 */
	uint64_t blocks;
	uint64_t block_bytes;
	uint64_t pad_bytes;
	enum pair_layout layout;
	bool is_shareable; /* kvp_memory_allocate, else malloc */
};

struct pair_cache {
	struct kvp_engine *engine;
	int64_t id;
	struct kvp_tensor *tensor;
	uint32_t tensors;
	bool is_shareable;
	bool is_far;     /* another process says when to touch it: ThreadSanitizer sees no order */
	uint8_t *memory; /* all of it, guards included */
	uint8_t *model;
	size_t bytes;
};

/* What moves, in tensors instead of layers. */
struct pair_move {
	const uint64_t *src_blocks;
	const uint64_t *dst_blocks;
	size_t count;
	uint32_t src_tensor;
	uint32_t dst_tensor;
	uint32_t tensors;
};

/* Fails the test with the call's text and kvp_error_message unless `got` is `expected`. */
void
pair_status_is(kvp_status expected, kvp_status got, const char *call, const char *file, int line);
#define assert_status(expected, call) pair_status_is((expected), (call), #call, __FILE__, __LINE__)
#define assert_ok(call)               assert_status(KVP_SUCCESS, call)

/* As assert_status, and the message is one non-empty line that contains `word`. */
void
pair_refused(kvp_status expected, kvp_status got, const char *word, const char *call,
	     const char *file, int line);
#define assert_refused(expected, word, call) \
	pair_refused((expected), (call), (word), #call, __FILE__, __LINE__)

/* Defaults, `cluster`, listening on a free loopback port, `transports`, only errors in the log. */
void
pair_config(struct kvp_config *config, uint64_t cluster, const char *transports);

/* Open both and link; takes the PEER_LINKED events. */
void
pair_open(struct pair *pair, const struct kvp_config *a, const struct kvp_config *b);
/* Link `from` to `to`, whose cluster ids these are; takes the PEER_LINKED events. */
void
pair_link(struct kvp_engine *from, uint64_t from_cluster, struct kvp_engine *to,
	  uint64_t to_cluster);
void
pair_close(struct pair *pair);

/* cmocka: *state is the transports string on entry, a struct pair after. */
int
pair_setup(void **state);
int
pair_teardown(void **state);
/* A test once over each transport. */
#define PAIR_OVER(test, setup, teardown)                               \
	{#test " over shm", test, setup, teardown, pair_shm},          \
		{#test " over tcp", test, setup, teardown, pair_tcp},  \
	{                                                              \
#test " over verbs", test, setup, teardown, pair_verbs \
	}
#define PAIR_TEST(test) PAIR_OVER(test, pair_setup, pair_teardown)
/* The same without a pair: *state is the transports string. */
#define PAIR_BOTH(test) PAIR_OVER(test, NULL, NULL)

/* Run those of `tests` whose transport is wanted, or that have none; exit status of the program. */
#define PAIR_RUN(tests) pair_run(tests, sizeof(tests) / sizeof((tests)[0]))
int
pair_run(const struct CMUnitTest *tests, size_t count);
/* Are all of these comma-separated transports wanted? */
bool
pair_wants(const char *transports);
/* The wanted ones, as KVP_TEST_TRANSPORTS has them. */
const char *
pair_transports(void);
/* Events come in the order of their pushes. Over verbs each QP has an order of its own. */
bool
pair_is_ordered(const char *transport);

/* Lay out, fill with bytes of `seed`, register. Engine NULL: only a model of another process's. */
void
pair_cache_open(struct pair_cache *cache, struct kvp_engine *engine, const struct pair_shape *shape,
		uint64_t seed);
/* Release and free. */
void
pair_cache_close(struct pair_cache *cache);
/* New content in memory and model. */
void
pair_cache_fill(struct pair_cache *cache, uint64_t seed);
/* Memory is the model, byte for byte. */
void
pair_cache_check(const struct pair_cache *cache, const char *name);
/* Where they differ first, or cache->bytes. */
size_t
pair_cache_diff(const struct pair_cache *cache);
/* Do to the models what a transfer does to the memory. */
void
pair_model_move(struct pair_cache *dst, const struct pair_cache *src, const struct pair_move *move);

/* The same for `bytes` of each block, from its start; 0 = all. */
void
pair_model_move_part(struct pair_cache *dst, const struct pair_cache *src,
		     const struct pair_move *move, uint64_t bytes);

/* A push of `move` with t = 1 and its tensor ranges as layers, no notify. */
struct kvp_push
pair_push(const struct pair_cache *src, uint64_t dst_cluster, const struct pair_cache *dst,
	  const struct pair_move *move);
struct kvp_pull
pair_pull(uint64_t src_cluster, const struct pair_cache *src, const struct pair_cache *dst,
	  const struct pair_move *move);

/* Wait for the next event; NO_EVENT after `wait_ms`. */
kvp_status
pair_event_next(struct kvp_engine *engine, uint32_t wait_ms, struct kvp_event *event_out);
/* The next event is of `kind` and from `cluster`. */
void
pair_event_is(struct kvp_engine *engine, uint32_t kind, uint64_t cluster,
	      struct kvp_event *event_out);

/* The next `count` events say that pushes `first`, `first` + 1 ... of `cluster` arrived. */
void
pair_tags_are(const char *transport, struct kvp_engine *engine, uint64_t cluster, uint64_t first,
	      uint64_t count);

/* Let others run: what every waiting loop does. */
void
pair_pause(void);
uint64_t
pair_now_ms(void);

/* Next of a sequence that `*seed` starts (splitmix64); any seed is fine. */
uint64_t
pair_random(uint64_t *seed);
/* In [0, limit). */
uint64_t
pair_below(uint64_t *seed, uint64_t limit);
/* `bytes` of content that depends on `seed` alone. */
void
pair_fill(void *memory, size_t bytes, uint64_t seed);
/* Of all bytes and their order. */
uint64_t
pair_digest(const void *memory, size_t bytes);
/* 0, 1, 2, ... shuffled. */
void
pair_shuffle(uint64_t *list, size_t count, uint64_t *seed);

#endif /* KVP_TESTS_PAIR_H */
