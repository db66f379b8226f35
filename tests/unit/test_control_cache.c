/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_control_cache.c - caches and the transports that must make their memory usable first
 *
 * Engines run over three transports that this file makes of tcp: the same streams under other names,
 * with hooks that write down what control asked of them, and that fail when a test wants it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

#include "integ/pair.h"

#include "transports.h"

#define BLOCK 4096U
#define LOG   256U

enum what {
	HOLD,
	FORGET,
	OFFER,
	VIEW,
	STOP,
};

struct entry {
	enum what what;
	uint32_t slot;
	int64_t cache; /* OFFER, VIEW */
	void *held;
	pthread_t thread;
};

static struct world {
	pthread_mutex_t lock;
	struct entry entry[LOG];
	uint32_t entries;
	uint32_t holding;                  /* caches held and not forgotten, all transports */
	kvp_status refuse[KVP_TRANSPORTS]; /* cache_hold's answer */
	kvp_status refuse_offer;
	bool is_null;                /* hold succeeds with nothing to hold */
	struct kvp_local_cache seen; /* by the last hold */
	const struct kvp_region *region;
	struct kvp_device_memory memory;
	/* forget: what the application could do at that moment */
	struct kvp_engine *engine;
	void *release;
	kvp_status released;
	uint8_t *touch;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
note(enum what what, uint32_t slot, int64_t cache, void *held)
{
	pthread_mutex_lock(&world.lock);
	assert_true(world.entries < LOG);
	world.entry[world.entries++] = (struct entry){
		.what = what, .slot = slot, .cache = cache, .held = held, .thread = pthread_self()};
	pthread_mutex_unlock(&world.lock);
}

/* Place of the first entry from `from` on, or LOG. */
static uint32_t
find(enum what what, uint32_t from)
{
	uint32_t at;

	pthread_mutex_lock(&world.lock);
	for (at = from; at < world.entries && world.entry[at].what != what; at++)
		;
	at = at < world.entries ? at : LOG;
	pthread_mutex_unlock(&world.lock);
	return at;
}

static uint32_t
count(enum what what)
{
	uint32_t times = 0;

	for (uint32_t at = find(what, 0); at < LOG; at = find(what, at + 1))
		times++;
	return times;
}

static kvp_status
cache_hold(uint32_t slot, const struct kvp_local_cache *cache, void **held_out,
	   struct kvp_error *err)
{
	if (world.refuse[slot] != KVP_SUCCESS)
		return kvp_fail(err, world.refuse[slot], "transport %u: no room for %u tensors",
				slot, cache->num_tensors);
	*held_out = world.is_null ? NULL : malloc(1);
	note(HOLD, slot, 0, *held_out);
	pthread_mutex_lock(&world.lock);
	world.holding += *held_out != NULL;
	world.seen = *cache;
	world.region = cache->regions[0];
	if (cache->memory != NULL)
		world.memory = *cache->memory;
	pthread_mutex_unlock(&world.lock);
	return KVP_SUCCESS;
}

static void
cache_forget(uint32_t slot, void *held)
{
	assert_non_null(held);
	note(FORGET, slot, 0, held);
	if (world.touch != NULL)
		(*world.touch)++; /* the memory is still there */
	if (world.release != NULL)
		world.released = kvp_memory_release(world.engine, world.release);
	world.holding--;
	free(held);
}

static kvp_status
cache_offer(struct kvp_path *path, const struct kvp_local_cache *cache, struct kvp_error *err)
{
	(void)path;
	/* A cache that was told of before would be seen by now. */
	usleep(20000);
	note(OFFER, 0, cache->id, cache->held[0]);
	return world.refuse_offer == KVP_SUCCESS
		       ? KVP_SUCCESS
		       : kvp_fail(err, world.refuse_offer, "no offer today");
}

static kvp_status
view_open(struct kvp_path *path, const struct kvp_remote_cache *cache, struct kvp_view **view_out,
	  struct kvp_error *err)
{
	note(VIEW, 0, cache->id, NULL);
	return kvp_tcp_transport.view_open(path, cache, view_out, err);
}

/* One transport of this file. */
#define HOOKS(mine, slot)                                                                   \
	static struct kvp_transport mine;                                                   \
	static kvp_status mine##_hold(struct kvp_dataplane *dataplane,                      \
				      const struct kvp_local_cache *cache, void **held_out, \
				      struct kvp_error *err)                                \
	{                                                                                   \
		(void)dataplane;                                                            \
		return cache_hold(slot, cache, held_out, err);                              \
	}                                                                                   \
	static void mine##_forget(struct kvp_dataplane *dataplane, void *held)              \
	{                                                                                   \
		(void)dataplane;                                                            \
		cache_forget(slot, held);                                                   \
	}                                                                                   \
	static void mine##_stop(void *state)                                                \
	{                                                                                   \
		(void)state;                                                                \
		note(STOP, slot, 0, NULL);                                                  \
	}                                                                                   \
	static kvp_status mine##_start(struct kvp_dataplane *dataplane, void **state_out,   \
				       struct kvp_error *err)                               \
	{                                                                                   \
		(void)dataplane;                                                            \
		(void)err;                                                                  \
		*state_out = &world; /* stop is called for a state only */                  \
		return KVP_SUCCESS;                                                         \
	}                                                                                   \
	static kvp_status mine##_path(const struct kvp_path_config *config,                 \
				      struct kvp_path **path_out, struct kvp_error *err)    \
	{                                                                                   \
		kvp_status status = kvp_tcp_transport.path_create(config, path_out, err);   \
                                                                                            \
		if (status == KVP_SUCCESS)                                                  \
			(*path_out)->transport = &mine;                                     \
		return status;                                                              \
	}                                                                                   \
	static void mine##_init(void)                                                       \
	{                                                                                   \
		mine = kvp_tcp_transport;                                                   \
		mine.name = #mine;                                                          \
		mine.start = mine##_start;                                                  \
		mine.stop = mine##_stop;                                                    \
		mine.path_create = mine##_path;                                             \
		mine.cache_hold = mine##_hold;                                              \
		mine.cache_forget = mine##_forget;                                          \
		mine.cache_offer = cache_offer;                                             \
		mine.view_open = view_open;                                                 \
	}

HOOKS(first, 0)
HOOKS(second, 1)

const struct kvp_transport *const kvp_transports[KVP_TRANSPORTS] = {&first, &second,
								    &kvp_tcp_transport};

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	for (uint32_t i = 0; i < KVP_TRANSPORTS; i++) {
		if (strcmp(kvp_transports[i]->name, name) != 0)
			continue;
		if (slot_out != NULL)
			*slot_out = i;
		return kvp_transports[i];
	}
	return NULL;
}

static int
setup(void **state)
{
	(void)state;
	memset(world.entry, 0, sizeof(world) - offsetof(struct world, entry));
	first_init();
	second_init();
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	assert_int_equal(world.holding, 0);
	return 0;
}

static struct kvp_engine *
open_one(const char *transports)
{
	struct kvp_engine *engine;
	struct kvp_config config;

	pair_config(&config, PAIR_A, transports);
	assert_ok(kvp_open(&config, &engine));
	return engine;
}

static void
open_two(struct pair *pair, const char *transports)
{
	struct kvp_config a, b;

	pair_config(&a, PAIR_A, transports);
	pair_config(&b, PAIR_B, transports);
	pair_open(pair, &a, &b);
}

static struct kvp_tensor
tensor_at(void *base)
{
	return (struct kvp_tensor){
		.base = base, .num_blocks = 4, .block_bytes = BLOCK, .block_stride = BLOCK};
}

static _Alignas(4096) uint8_t private_memory[4 * BLOCK];

/* --- hold ---------------------------------------------------------------------- */

static void
register__holds_on_the_callers_thread(void **state)
{
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("first,second,tcp");
	int64_t id;

	(void)state;
	assert_ok(kvp_cache_register(engine, &tensor, 1, &id));
	assert_int_equal(world.entries, 2);
	assert_int_equal(world.entry[0].slot, 0);
	assert_int_equal(world.entry[1].slot, 1);
	assert_true(pthread_equal(world.entry[0].thread, pthread_self()));
	assert_null(world.seen.memory);
	assert_null(world.region);
	assert_ok(kvp_cache_release(engine, id));
	assert_int_equal(count(FORGET), 2);
	assert_true(pthread_equal(world.entry[find(FORGET, 0)].thread, pthread_self()));
	kvp_close(engine);
	assert_int_equal(count(FORGET), 2);
}

static void
register__asks_only_transports_of_the_setting(void **state)
{
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("tcp,second");
	int64_t id;

	(void)state;
	assert_ok(kvp_cache_register(engine, &tensor, 1, &id));
	assert_int_equal(count(HOLD), 1);
	assert_int_equal(world.entry[0].slot, 1);
	kvp_close(engine);
}

static void
register__refused_leaves_nothing(void **state)
{
	struct kvp_tensor tensor = tensor_at(NULL);
	struct kvp_engine *engine = open_one("first,second");
	struct kvp_cache_info info;
	int64_t id = 99;
	void *memory;

	(void)state;
	world.refuse[1] = KVP_NO_RESOURCE;
	assert_ok(kvp_memory_allocate(engine, 4 * BLOCK, &memory));
	tensor.base = memory;
	assert_refused(KVP_NO_RESOURCE, "transport 1: no room for 1 tensors",
		       kvp_cache_register(engine, &tensor, 1, &id));
	assert_int_equal(id, 99);
	/* The one that had it lets go; no cache, and the region is free to go. */
	assert_int_equal(count(HOLD), 1);
	assert_int_equal(count(FORGET), 1);
	assert_ptr_equal(world.entry[0].held, world.entry[1].held);
	assert_status(KVP_CACHE_NOT_EXIST, kvp_cache_query(engine, 1, &info));
	assert_ok(kvp_memory_release(engine, memory));
	/* An allocation is taken back whole. */
	tensor.base = NULL;
	assert_refused(KVP_NO_RESOURCE, "no room", kvp_cache_allocate(engine, &tensor, 1, &id));
	assert_null(tensor.base);
	world.refuse[1] = KVP_SUCCESS;
	assert_ok(kvp_cache_allocate(engine, &tensor, 1, &id));
	assert_int_equal(id, 1);
	kvp_close(engine);
}

static void
register__nothing_to_hold_is_fine(void **state)
{
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("first");
	int64_t id;

	(void)state;
	world.is_null = true;
	assert_ok(kvp_cache_register(engine, &tensor, 1, &id));
	assert_ok(kvp_cache_release(engine, id));
	assert_int_equal(count(FORGET), 0);
	kvp_close(engine);
}

static void
hold__sees_the_region_around_each_tensor(void **state)
{
	struct kvp_tensor tensor[2] = {tensor_at(NULL), tensor_at(private_memory)};
	struct kvp_engine *engine = open_one("first");
	int64_t id;
	void *memory;

	(void)state;
	assert_ok(kvp_memory_allocate(engine, 16 * BLOCK, &memory));
	tensor[0].base = (uint8_t *)memory + 8 * BLOCK;
	assert_ok(kvp_cache_register(engine, tensor, 2, &id));
	assert_non_null(world.region);
	assert_ptr_equal(world.region->base, memory);
	assert_int_equal(world.region->bytes, 16 * BLOCK);
	assert_null(world.seen.regions[1]);
	kvp_close(engine);
}

/* --- forget -------------------------------------------------------------------- */

static void
forget__comes_while_the_region_stays(void **state)
{
	struct kvp_engine *engine = open_one("first");
	struct kvp_tensor tensor = tensor_at(NULL);
	int64_t id;
	void *memory;

	(void)state;
	assert_ok(kvp_memory_allocate(engine, 4 * BLOCK, &memory));
	tensor.base = memory;
	assert_ok(kvp_cache_register(engine, &tensor, 1, &id));
	world.engine = engine;
	world.release = memory;
	world.touch = memory;
	assert_ok(kvp_cache_release(engine, id));
	/* Asked for while devices still had it: refused, or its address could become other memory. */
	assert_int_equal(world.released, KVP_PARAM_INVALID);
	assert_int_equal(count(FORGET), 1);
	assert_ok(kvp_memory_release(engine, memory));
	kvp_close(engine);
}

static void
forget__of_an_allocated_cache_comes_before_its_memory_goes(void **state)
{
	struct kvp_engine *engine = open_one("first");
	struct kvp_tensor tensor = tensor_at(NULL);
	int64_t id;

	(void)state;
	assert_ok(kvp_cache_allocate(engine, &tensor, 1, &id));
	world.touch = tensor.base;
	assert_ok(kvp_cache_release(engine, id));
	assert_int_equal(count(FORGET), 1);
	tensor.base = NULL;
	assert_ok(kvp_cache_allocate(engine, &tensor, 1, &id));
	world.touch = tensor.base;
	kvp_close(engine);
	assert_int_equal(count(FORGET), 2);
	assert_true(find(FORGET, find(FORGET, 0) + 1) < find(STOP, 0));
}

/* --- offer --------------------------------------------------------------------- */

static void
offer__comes_before_the_peer_hears_of_the_cache(void **state)
{
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_tensor other = tensor_at(NULL);
	struct kvp_event event;
	struct pair pair;
	int64_t id[2];

	(void)state;
	open_two(&pair, "first");
	/* One while linked, one before the next link. */
	assert_ok(kvp_cache_register(pair.a, &tensor, 1, &id[0]));
	while (find(VIEW, 0) == LOG)
		pair_pause();
	assert_true(find(OFFER, 0) < find(VIEW, 0));
	assert_non_null(world.entry[find(OFFER, 0)].held);
	assert_int_equal(world.entry[find(OFFER, 0)].cache, id[0]);
	assert_ok(kvp_unlink(pair.a, PAIR_B, PAIR_LONG_MS, 0));
	pair_event_is(pair.b, KVP_EVENT_PEER_UNLINKED, PAIR_A, &event);
	assert_ok(kvp_cache_allocate(pair.a, &other, 1, &id[1]));
	world.entries = 0;
	pair_link(pair.b, PAIR_B, pair.a, PAIR_A);
	assert_int_equal(count(OFFER), 2);
	assert_int_equal(count(VIEW), 2);
	for (uint32_t at = find(VIEW, 0); at < LOG; at = find(VIEW, at + 1)) {
		uint32_t offer = find(OFFER, 0);

		while (offer < LOG && world.entry[offer].cache != world.entry[at].cache)
			offer = find(OFFER, offer + 1);
		assert_true(offer < at);
	}
	pair_close(&pair);
}

static void
offer__that_fails_breaks_the_link(void **state)
{
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_event event = {0};
	struct pair pair;
	int64_t id;

	(void)state;
	open_two(&pair, "first");
	world.refuse_offer = KVP_OUT_OF_MEMORY;
	assert_ok(kvp_cache_register(pair.a, &tensor, 1, &id));
	while (event.kind != KVP_EVENT_PEER_LOST)
		assert_ok(pair_event_next(pair.a, PAIR_LONG_MS, &event));
	assert_int_equal(event.status, KVP_OUT_OF_MEMORY);
	assert_int_equal(count(VIEW), 0);
	pair_close(&pair);
}

/* --- device memory --------------------------------------------------------------- */

static struct kvp_device_memory
device_memory(void)
{
	return (struct kvp_device_memory){
		.fd = 0, .base = private_memory, .bytes = sizeof(private_memory)};
}

static void
device__needs_a_transport_that_reaches_it(void **state)
{
	struct kvp_device_memory memory = device_memory();
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("second,tcp");
	int64_t id = 99;

	(void)state;
	first.caps.can_reach_device = true; /* not in the setting */
	assert_refused(KVP_FEATURE_NOT_ENABLED, "second,tcp",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	assert_int_equal(id, 99);
	assert_int_equal(count(HOLD), 0);
	kvp_close(engine);
}

static void
device__is_held_by_those_that_reach_it(void **state)
{
	struct kvp_device_memory memory = device_memory();
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("second,first,tcp");
	int64_t id;

	(void)state;
	first.caps.can_reach_device = true;
	memory.ctx = &tensor;
	assert_ok(kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	assert_int_equal(count(HOLD), 1);
	assert_int_equal(world.entry[0].slot, 0);
	assert_ptr_equal(world.memory.ctx, &tensor);
	memory.ctx = NULL; /* the engine has its own */
	assert_ptr_equal(world.seen.memory->ctx, &tensor);
	world.refuse[0] = KVP_FEATURE_NOT_ENABLED;
	assert_refused(KVP_FEATURE_NOT_ENABLED, "transport 0",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	kvp_close(engine);
}

static void
device__bad_memory_is_refused(void **state)
{
	const struct kvp_device_memory good = device_memory();
	struct kvp_tensor tensor = tensor_at(private_memory);
	struct kvp_engine *engine = open_one("first");
	struct kvp_device_memory memory;
	int64_t id = 99;

	(void)state;
	first.caps.can_reach_device = true;
	assert_refused(KVP_PARAM_INVALID, "memory is NULL",
		       kvp_cache_register_device(engine, &tensor, 1, NULL, &id));
	assert_refused(KVP_PARAM_INVALID, "tensors",
		       kvp_cache_register_device(engine, NULL, 1, &good, &id));
	memory = good;
	memory.fd = -1;
	assert_refused(KVP_PARAM_INVALID, "fd is -1",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	memory = good;
	memory.bytes = 0;
	assert_refused(KVP_PARAM_INVALID, "bytes 0",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	memory = good;
	memory.base = NULL;
	assert_refused(KVP_PARAM_INVALID, "NULL or wraps",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	memory = good;
	memory.offset = UINT64_MAX;
	assert_refused(KVP_PARAM_INVALID, "wraps",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	memory = good;
	memory.bytes--;
	assert_refused(KVP_PARAM_INVALID, "tensors[0]",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	memory = good;
	memory.base = private_memory + 1;
	assert_refused(KVP_PARAM_INVALID, "tensors[0]",
		       kvp_cache_register_device(engine, &tensor, 1, &memory, &id));
	assert_int_equal(id, 99);
	assert_int_equal(count(HOLD), 0);
	kvp_close(engine);
}

/*
 * Linked over `transports`, of which one reaches device memory: is B told of A's cache, and may A move it?
 * Nothing moves here: tcp must not touch such memory.
 */
static void
device_over(const char *transports, bool reaches)
{
	const uint64_t block[1] = {0};
	struct kvp_device_memory memory = device_memory();
	struct kvp_tensor tensor = tensor_at(private_memory), there = tensor_at(NULL);
	struct kvp_push push = {.dst = {.cluster = PAIR_B},
				.src_blocks = block,
				.dst_blocks = block,
				.count = 1,
				.tensors_per_layer = 1,
				.timeout_ms = PAIR_LONG_MS};
	struct kvp_push back = push;
	struct kvp_pull pull = {.src = {.cluster = PAIR_B},
				.src_blocks = block,
				.dst_blocks = block,
				.count = 1,
				.tensors_per_layer = 1,
				.timeout_ms = PAIR_LONG_MS};
	struct pair pair;
	int64_t device, ordinary;

	first.caps.can_reach_device = true;
	open_two(&pair, transports);
	assert_ok(kvp_cache_register_device(pair.a, &tensor, 1, &memory, &device));
	assert_ok(kvp_cache_allocate(pair.b, &there, 1, &ordinary));
	push.src_cache = device;
	push.dst.cache = ordinary;
	pull.dst_cache = device;
	pull.src.cache = ordinary;
	back.dst.cluster = PAIR_A;
	back.src_cache = ordinary;
	back.dst.cache = device;
	if (!reaches) {
		assert_refused(KVP_FEATURE_NOT_ENABLED, "device memory",
			       kvp_push_blocks(pair.a, &push));
		assert_refused(KVP_FEATURE_NOT_ENABLED, "device memory",
			       kvp_pull_blocks(pair.a, &pull));
		assert_refused(KVP_CACHE_NOT_EXIST, "has no cache", kvp_push_blocks(pair.b, &back));
	} else {
		/* Told of, and asked for: what then refuses is tcp, on A's lane. */
		assert_refused(KVP_FEATURE_NOT_ENABLED, "peer", kvp_push_blocks(pair.b, &back));
		assert_int_equal(count(OFFER), 2);
	}
	assert_ok(kvp_cache_release(pair.a, device));
	pair_close(&pair);
}

static void
device__is_told_only_where_it_is_reached(void **state)
{
	(void)state;
	device_over("first", true);
	setup(state);
	device_over("second,first", false);
	setup(state);
	device_over("tcp,first", false);
}

#define HOOKED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		HOOKED(register__holds_on_the_callers_thread),
		HOOKED(register__asks_only_transports_of_the_setting),
		HOOKED(register__refused_leaves_nothing),
		HOOKED(register__nothing_to_hold_is_fine),
		HOOKED(hold__sees_the_region_around_each_tensor),
		HOOKED(forget__comes_while_the_region_stays),
		HOOKED(forget__of_an_allocated_cache_comes_before_its_memory_goes),
		HOOKED(offer__comes_before_the_peer_hears_of_the_cache),
		HOOKED(offer__that_fails_breaks_the_link),
		HOOKED(device__needs_a_transport_that_reaches_it),
		HOOKED(device__is_held_by_those_that_reach_it),
		HOOKED(device__bad_memory_is_refused),
		HOOKED(device__is_told_only_where_it_is_reached),
	};

	alarm(PAIR_ALARM_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
