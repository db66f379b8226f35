/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_nic.h - devices that keep a list of MRs, and caches to register with them
 *
 * Included by one file per program: it defines the functions of libibverbs that register memory, the
 * seam's table look-up, and getrlimit. Nothing is freed twice, and no address is touched, so that
 * most of them are made up.
 */
#ifndef KVP_TEST_VERBS_NIC_H
#define KVP_TEST_VERBS_NIC_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <kvpush/kvpush.h>

#include "transports.h"
#include "verbs/verbs_memory.h"

#define SLOT    2U
#define DEVICES 2U
#define MIB     (1ULL << 20)
#define PAGE    4096ULL
#define BASE    0x100000000000ULL

/* --- devices --------------------------------------------------------------------- */

struct mr {
	struct ibv_mr mr; /* first member */
	struct mr *next;
	unsigned int access;
	bool is_dmabuf;
	uint64_t offset;
	uint64_t iova;
	int fd;
};

static struct nic {
	pthread_mutex_t lock;
	struct mr *mrs;
	uint32_t made; /* asked for */
	uint32_t live;
	uint32_t next_key;
	uint32_t running, running_max; /* calls at one time */
	uint32_t unblocked;            /* calls on another thread that takes signals */
	useconds_t slow;
	pthread_t caller;
	/* Refuse with `error`: the refuse_at-th call, and what has a flag of refuse_access. */
	int error;
	uint32_t refuse_at;
	unsigned int refuse_access;
} nic = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void
enter(void)
{
	sigset_t mask;

	pthread_mutex_lock(&nic.lock);
	if (++nic.running > nic.running_max)
		nic.running_max = nic.running;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	if (!pthread_equal(nic.caller, pthread_self()) && sigismember(&mask, SIGTERM) != 1)
		nic.unblocked++;
	pthread_mutex_unlock(&nic.lock);
	if (nic.slow > 0)
		usleep(nic.slow);
}

static inline struct ibv_mr *
make(const struct mr *want)
{
	struct mr *mr = NULL;

	enter();
	pthread_mutex_lock(&nic.lock);
	nic.running--;
	nic.made++;
	if (nic.error != 0 &&
	    (nic.made == nic.refuse_at || (want->access & nic.refuse_access) != 0)) {
		errno = nic.error;
	} else {
		mr = malloc(sizeof(*mr));
		assert_non_null(mr);
		*mr = *want;
		mr->mr.lkey = ++nic.next_key;
		mr->mr.rkey = 0x80000000U | mr->mr.lkey;
		mr->next = nic.mrs;
		nic.mrs = mr;
		nic.live++;
	}
	pthread_mutex_unlock(&nic.lock);
	return mr != NULL ? &mr->mr : NULL;
}

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return make(&(struct mr){
		.mr = {.pd = pd, .addr = addr, .length = length}, .access = access, .iova = iova});
}

struct ibv_mr *
ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
		  int access)
{
	return make(&(struct mr){.mr = {.pd = pd, .length = length},
				 .access = (unsigned int)access,
				 .is_dmabuf = true,
				 .offset = offset,
				 .iova = iova,
				 .fd = fd});
}

int
ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr **at;

	enter();
	pthread_mutex_lock(&nic.lock);
	nic.running--;
	for (at = &nic.mrs; *at != NULL && &(*at)->mr != mr; at = &(*at)->next)
		;
	assert_non_null(*at);
	*at = (*at)->next;
	nic.live--;
	free(mr);
	pthread_mutex_unlock(&nic.lock);
	return 0;
}

/* Of the device, by either key. */
static inline const struct mr *
mr_of(const struct ibv_pd *pd, uint32_t key)
{
	const struct mr *mr = nic.mrs;

	while (mr != NULL && (mr->mr.pd != pd || (mr->mr.lkey != key && mr->mr.rkey != key)))
		mr = mr->next;
	return mr;
}

/* --- an engine's part of it -------------------------------------------------------- */

const struct kvp_transport kvp_verbs_transport = {.name = "verbs"};

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	assert_string_equal(name, "verbs");
	*slot_out = SLOT;
	return &kvp_verbs_transport;
}

static struct world {
	struct kvp_config config;
	struct kvp_dataplane dataplane;
	struct kvp_verbs verbs;
	struct ibv_pd pd[KVP_VERBS_DEVICES_MAX];
} world;

static inline void
world_open(const char *rights)
{
	struct kvp_error err;

	memset(&world, 0, sizeof(world));
	nic = (struct nic){.lock = PTHREAD_MUTEX_INITIALIZER, .caller = pthread_self()};
	snprintf(world.config.peer_rights, sizeof(world.config.peer_rights), "%s", rights);
	world.dataplane.config = &world.config;
	world.dataplane.state[SLOT] = &world.verbs;
	world.verbs.dataplane = &world.dataplane;
	world.verbs.slot = SLOT;
	world.verbs.devices.devices = DEVICES;
	for (uint32_t i = 0; i < KVP_VERBS_DEVICES_MAX; i++) {
		struct kvp_verbs_device *device = &world.verbs.devices.device[i];

		device->pd = &world.pd[i];
		device->attr.max_mr = 100000;
		device->attr.max_mr_size = UINT64_MAX;
		snprintf(device->name, sizeof(device->name), "nic%u", i);
	}
	assert_int_equal(kvp_verbs_memory_create(&world.verbs, &world.verbs.memory, &err),
			 KVP_SUCCESS);
}

static inline void
world_close(void)
{
	kvp_verbs_memory_destroy(world.verbs.memory);
	assert_int_equal(nic.live, 0);
}

/* Takes CAP_IPC_LOCK from this thread, or gives it back. False: never had it. */
static inline bool
ipc_lock(bool is_on)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	if ((data[0].permitted & 1U << CAP_IPC_LOCK) == 0)
		return false;
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	data[0].effective |= (uint32_t)is_on << CAP_IPC_LOCK;
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
	return true;
}

static rlim_t memlock; /* the limit that the library sees, whatever this machine's is */

int
getrlimit(__rlimit_resource_t resource, struct rlimit *limit_out)
{
	if (resource != RLIMIT_MEMLOCK)
		return prlimit(0, resource, NULL, limit_out);
	*limit_out = (struct rlimit){.rlim_cur = memlock, .rlim_max = RLIM_INFINITY};
	return 0;
}

static inline int
setup(void **state)
{
	(void)state;
	memlock = RLIM_INFINITY;
	world_open("push,pull");
	return 0;
}

static inline int
teardown(void **state)
{
	(void)state;
	(void)ipc_lock(true);
	world_close();
	return 0;
}

#define TENSORS 32U

struct cache {
	struct kvp_local_cache local;
	struct kvp_tensor tensor[TENSORS];
	struct kvp_span span[TENSORS];
	const struct kvp_region *region[TENSORS];
};

/* One tensor more: `blocks` of `block_bytes`, dense. */
static inline void
cache_add(struct cache *cache, uint64_t base, uint64_t blocks, uint64_t block_bytes)
{
	uint32_t i = cache->local.num_tensors++;

	assert_true(i < TENSORS);
	cache->tensor[i] = (struct kvp_tensor){.base = (void *)(uintptr_t)base,
					       .num_blocks = blocks,
					       .block_bytes = block_bytes,
					       .block_stride = block_bytes};
	cache->local.id = 1;
}

static inline struct cache
cache_of(uint64_t base, uint64_t bytes)
{
	struct cache cache = {0};

	cache_add(&cache, base, 1, bytes);
	return cache;
}

static inline const struct kvp_verbs_held *
held_of(const struct cache *cache)
{
	return cache->local.held[SLOT];
}

static inline kvp_status
hold(struct cache *cache, struct kvp_error *err)
{
	kvp_layout_spans(cache->tensor, cache->local.num_tensors, cache->span);
	cache->local.tensors = cache->tensor;
	cache->local.spans = cache->span;
	cache->local.regions = cache->region;
	return kvp_verbs_cache_hold(&world.dataplane, &cache->local, &cache->local.held[SLOT], err);
}

/* Spans ascend, and each key is of an MR on its device that has all of the span. */
static inline void
check_spans(const struct cache *cache)
{
	const struct kvp_verbs_held *held = held_of(cache);

	for (uint32_t i = 0; i < held->spans->count; i++) {
		const struct kvp_verbs_span *span = &held->spans->span[i];

		assert_true(span->bytes > 0);
		if (i > 0)
			assert_true(span->address >= span[-1].address + span[-1].bytes);
		for (uint32_t d = 0; d < world.verbs.devices.devices; d++) {
			const struct mr *mr = mr_of(&world.pd[d], span->key[d]);

			if (world.verbs.devices.device[d].is_fatal) {
				assert_int_equal(span->key[d], 0);
				continue;
			}
			assert_non_null(mr);
			assert_ptr_equal(
				mr_of(&world.pd[d], held->rkey[i * KVP_VERBS_DEVICES_MAX + d]), mr);
			assert_true(span->address >= mr->iova &&
				    span->address + span->bytes <= mr->iova + mr->mr.length);
			assert_true(mr->mr.length <=
				    world.verbs.devices.device[d].attr.max_mr_size);
		}
	}
}

/* Every byte of every tensor is in a span. */
static inline void
check_cover(const struct cache *cache)
{
	const struct kvp_verbs_span *span = NULL;

	for (uint32_t i = 0; i < cache->local.num_tensors; i++) {
		uint64_t at = (uint64_t)(uintptr_t)cache->tensor[i].base;
		uint64_t end = at + kvp_tensor_extent(&cache->tensor[i]);

		for (; at < end; at = span->address + span->bytes) {
			span = kvp_verbs_span_find(held_of(cache)->spans, at, span);
			assert_non_null(span);
		}
	}
}

static inline void
hold_ok(struct cache *cache)
{
	struct kvp_error err = {""};

	if (hold(cache, &err) != KVP_SUCCESS)
		fail_msg("%s", err.text);
	check_spans(cache);
	check_cover(cache);
}

/* The line is complete: it has `word`, and no end that was cut off. */
static inline void
hold_refused(struct cache *cache, kvp_status status, const char *word)
{
	uint32_t live = nic.live;
	struct kvp_error err = {""};

	assert_int_equal(hold(cache, &err), status);
	if (strstr(err.text, word) == NULL || strlen(err.text) >= KVP_ERROR_TEXT_MAX - 1)
		fail_msg("not '%s': %s", word, err.text);
	assert_null(cache->local.held[SLOT]);
	assert_int_equal(nic.live, live);
}

static inline void
forget(struct cache *cache)
{
	kvp_verbs_cache_forget(&world.dataplane, cache->local.held[SLOT]);
	cache->local.held[SLOT] = NULL;
}

static inline int
dmabuf(void)
{
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

#define ON_DEVICES(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif /* KVP_TEST_VERBS_NIC_H */
