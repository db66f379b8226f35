/* SPDX-License-Identifier: Apache-2.0 */
/* Which stretches are registered, who shares them, where they are cut. */
#include "verbs_nic.h"

/* --- stretches ---------------------------------------------------------------------- */

static void
hold__makes_one_mr_per_device(void **state)
{
	struct cache cache = cache_of(BASE + 100, 5000);

	(void)state;
	hold_ok(&cache);
	assert_int_equal(nic.live, DEVICES);
	assert_int_equal(held_of(&cache)->spans->count, 1);
	for (const struct mr *mr = nic.mrs; mr != NULL; mr = mr->next) {
		/* Not a byte more than the cache has. */
		assert_int_equal((uintptr_t)mr->mr.addr, BASE + 100);
		assert_int_equal(mr->mr.length, 5000);
		assert_int_equal(mr->iova, BASE + 100);
	}
	forget(&cache);
	assert_int_equal(nic.live, 0);
	kvp_verbs_cache_forget(&world.dataplane, NULL);
}

static void
hold__gives_the_rights_of_the_setting(void **state)
{
	static const struct {
		const char *text;
		unsigned int remote;
	} rights[] = {
		{"push,pull", IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ},
		{"push", IBV_ACCESS_REMOTE_WRITE},
		{"pull", IBV_ACCESS_REMOTE_READ},
		{"", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
		struct cache cache = cache_of(BASE, PAGE);

		world_close();
		world_open(rights[i].text);
		hold_ok(&cache);
		assert_int_equal(nic.mrs->access,
				 rights[i].remote | (unsigned int)IBV_ACCESS_LOCAL_WRITE |
					 (unsigned int)IBV_ACCESS_RELAXED_ORDERING);
		forget(&cache);
	}
}

static void
hold__joins_tensors_whose_pages_touch(void **state)
{
	struct cache cache = {0};

	(void)state;
	cache_add(&cache, BASE + 64 * PAGE, 8, 1000);     /* ends in page 65 */
	cache_add(&cache, BASE + 66 * PAGE, 8, 1000);     /* begins with the next */
	cache_add(&cache, BASE + 68 * PAGE + 8, 8, 1000); /* a byte of page 67 is missing? no */
	cache_add(&cache, BASE, 8, 1000);                 /* alone, and out of order */
	cache_add(&cache, BASE + 40 * PAGE, 8, 512);      /* page 40 */
	cache_add(&cache, BASE + 42 * PAGE, 8, 512);      /* page 42: page 41 is nobody's */
	hold_ok(&cache);
	assert_int_equal(held_of(&cache)->spans->count, 4);
	assert_int_equal(nic.live, 4 * DEVICES);
	assert_int_equal(held_of(&cache)->spans->span[3].address, BASE + 64 * PAGE);
	assert_int_equal(held_of(&cache)->spans->span[3].bytes, 4 * PAGE + 8 + 8000);
	forget(&cache);
}

static void
hold__registers_a_region_once_for_all_its_caches(void **state)
{
	struct kvp_region region = {.id = 1, .base = (void *)(uintptr_t)BASE, .bytes = 1024 * PAGE};
	struct cache cache[2] = {0};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		cache_add(&cache[i], BASE + (512 * i + 100) * PAGE, 4, PAGE);
		cache_add(&cache[i], BASE + (512 * i + 200) * PAGE, 4, PAGE);
		cache[i].region[0] = cache[i].region[1] = &region;
		hold_ok(&cache[i]);
		/* All of it is registered, the peer is told of what the cache has. */
		assert_int_equal(nic.live, DEVICES);
		assert_int_equal(nic.mrs->mr.length, region.bytes);
		assert_int_equal(held_of(&cache[i])->spans->count, 1);
		assert_int_equal(held_of(&cache[i])->spans->span[0].address,
				 BASE + (512 * i + 100) * PAGE);
		assert_int_equal(held_of(&cache[i])->spans->span[0].bytes, 104 * PAGE);
	}
	forget(&cache[0]);
	assert_int_equal(nic.live, DEVICES);
	hold_ok(&cache[0]);
	assert_int_equal(nic.live, DEVICES);
	forget(&cache[0]);
	forget(&cache[1]);
	assert_int_equal(nic.live, 0);
}

/* A region and private memory right behind it, which may go away alone. */
static void
hold__does_not_join_a_region_with_its_neighbour(void **state)
{
	struct kvp_region region = {.id = 1, .base = (void *)(uintptr_t)BASE, .bytes = 16 * PAGE};
	struct cache cache = {0};

	(void)state;
	cache_add(&cache, BASE, 16, PAGE);
	cache_add(&cache, BASE + 16 * PAGE, 16, PAGE);
	cache.region[0] = &region;
	hold_ok(&cache);
	assert_int_equal(held_of(&cache)->spans->count, 2);
	forget(&cache);
}

static void
hold__shares_a_longer_stretch_while_its_owner_lives(void **state)
{
	struct cache whole = cache_of(BASE, 8 * PAGE);
	struct cache part = cache_of(BASE + 2 * PAGE, PAGE);
	struct cache other = cache_of(BASE + 5 * PAGE, PAGE);
	struct cache again = cache_of(BASE + 2 * PAGE, PAGE);
	const struct mr *old;

	(void)state;
	hold_ok(&whole);
	hold_ok(&part);
	assert_int_equal(nic.live, DEVICES);
	assert_int_equal(held_of(&part)->spans->span[0].address, BASE + 2 * PAGE);
	assert_int_equal(held_of(&part)->spans->span[0].bytes, PAGE);
	old = mr_of(&world.pd[0], held_of(&part)->spans->span[0].key[0]);
	forget(&whole);
	assert_int_equal(nic.live, DEVICES); /* `part` uses it still */
	/*
	 * The pages of `other` may have been unmapped since and be others now: the old MR must not serve
	 * them, nor anybody new.
	 */
	hold_ok(&other);
	assert_int_equal(nic.live, 2 * DEVICES);
	assert_ptr_not_equal(mr_of(&world.pd[0], held_of(&other)->spans->span[0].key[0]), old);
	hold_ok(&again);
	assert_ptr_not_equal(mr_of(&world.pd[0], held_of(&again)->spans->span[0].key[0]), old);
	assert_int_equal(nic.live, 3 * DEVICES);
	forget(&part);
	assert_int_equal(nic.live, 2 * DEVICES);
	check_spans(&again);
	check_spans(&other);
	forget(&again);
	forget(&other);
}

static void
hold__the_same_stretch_twice_has_two_owners(void **state)
{
	struct cache a = cache_of(BASE, PAGE), b = cache_of(BASE, PAGE), c = cache_of(BASE, PAGE);

	(void)state;
	hold_ok(&a);
	hold_ok(&b);
	forget(&a);
	hold_ok(&c);
	assert_int_equal(nic.live, DEVICES);
	forget(&b);
	assert_int_equal(nic.live, DEVICES);
	check_spans(&c);
	forget(&c);
	assert_int_equal(nic.live, 0);
}

/* --- cuts ----------------------------------------------------------------------------- */

static void
cut__is_at_a_block_boundary_and_the_same_on_all_devices(void **state)
{
	struct cache cache = {0};

	(void)state;
	world.verbs.devices.device[0].attr.max_mr_size = 64 * PAGE;
	world.verbs.devices.device[1].attr.max_mr_size = 10 * PAGE + 100;
	cache_add(&cache, BASE, 20, 3 * PAGE + 8);
	hold_ok(&cache);
	/* Three blocks of 3 pages and 8 bytes are all that fits. */
	assert_int_equal(held_of(&cache)->spans->count, 7);
	assert_int_equal(nic.live, 7 * DEVICES);
	for (uint32_t i = 0; i < 7; i++) {
		const struct kvp_verbs_span *span = &held_of(&cache)->spans->span[i];

		assert_int_equal((span->address - BASE) % (3 * PAGE + 8), 0);
		assert_int_equal(span->bytes, (i < 6 ? 3 : 2) * (3 * PAGE + 8));
	}
	forget(&cache);
}

/* Rows of two tensors that share a stride: no cut within a row. */
static void
cut__keeps_rows_of_interleaved_tensors(void **state)
{
	struct cache cache = {0};

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		cache_add(&cache, BASE + i * PAGE, 50, PAGE);
	for (uint32_t i = 0; i < 2; i++)
		cache.tensor[i].block_stride = 2 * PAGE;
	world.verbs.devices.device[1].attr.max_mr_size = 5 * PAGE;
	hold_ok(&cache);
	assert_int_equal(held_of(&cache)->spans->count, 25);
	for (uint32_t i = 0; i < 25; i++)
		assert_int_equal((held_of(&cache)->spans->span[i].address - BASE) % (2 * PAGE), 0);
	forget(&cache);
}

static void
cut__of_blocks_longer_than_an_mr_is_at_pages(void **state)
{
	struct cache cache = {0};

	(void)state;
	world.verbs.devices.device[0].attr.max_mr_size = 3 * PAGE + 5;
	cache_add(&cache, BASE + 77, 2, 10 * PAGE);
	hold_ok(&cache);
	for (uint32_t i = 1; i < held_of(&cache)->spans->count; i++) {
		uint64_t address = held_of(&cache)->spans->span[i].address;

		assert_true(address % PAGE == 0 || (address - BASE - 77) % (10 * PAGE) == 0);
	}
	assert_in_range(held_of(&cache)->spans->count, 7, 9);
	forget(&cache);
}

static void
cut__into_more_than_a_note_holds_is_refused(void **state)
{
	struct cache cache = cache_of(BASE, 1ULL << 40);

	(void)state;
	world.verbs.devices.device[0].attr.max_mr_size = 100; /* taken as a page */
	hold_refused(&cache, KVP_NO_RESOURCE, "register it as several caches");
	assert_int_equal(nic.made, 0);
}

/* --- device memory ------------------------------------------------------------------------------ */

static void
dmabuf__is_registered_whole_and_shared_by_inode(void **state)
{
	int fd = dmabuf(), same = dup(fd), other = dmabuf();
	struct kvp_device_memory memory[4] = {
		{.fd = fd,
		 .offset = 5 * PAGE + 16,
		 .base = (void *)(BASE + 16),
		 .bytes = 64 * PAGE},
		{.fd = same,
		 .offset = 5 * PAGE + 16,
		 .base = (void *)(BASE + 16),
		 .bytes = 64 * PAGE},
		{.fd = other,
		 .offset = 5 * PAGE + 16,
		 .base = (void *)(BASE + 16),
		 .bytes = 64 * PAGE},
		/* The same addresses are another place in it. */
		{.fd = fd,
		 .offset = 6 * PAGE + 16,
		 .base = (void *)(BASE + 16),
		 .bytes = 64 * PAGE},
	};
	struct cache plain = cache_of(BASE + 16 + PAGE, PAGE);
	struct cache cache[4] = {0};

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		cache_add(&cache[i], BASE + 16 + PAGE, 4, PAGE);
		cache_add(&cache[i], BASE + 16 + 30 * PAGE, 4, PAGE);
		cache[i].local.memory = &memory[i];
		hold_ok(&cache[i]);
		assert_int_equal(held_of(&cache[i])->spans->count, 1);
		assert_int_equal(held_of(&cache[i])->spans->span[0].bytes, 33 * PAGE);
		assert_int_equal(nic.live, (i < 2 ? 1 : i) * DEVICES);
		assert_true(nic.mrs->is_dmabuf);
		assert_int_equal(nic.mrs->fd, i == 1 ? fd : memory[i].fd);
		assert_int_equal(nic.mrs->offset, memory[i].offset);
		assert_int_equal(nic.mrs->iova, BASE + 16);
		assert_int_equal(nic.mrs->mr.length, 64 * PAGE);
	}
	/* Ordinary memory never shares with it. */
	hold_ok(&plain);
	assert_false(nic.mrs->is_dmabuf);
	forget(&plain);
	for (uint32_t i = 0; i < 4; i++)
		forget(&cache[i]);
	close(fd);
	close(same);
	close(other);
}

static void
dmabuf__is_cut_with_its_offset(void **state)
{
	int fd = dmabuf();
	struct kvp_device_memory memory = {
		.fd = fd, .offset = 3 * PAGE, .base = (void *)BASE, .bytes = 16 * PAGE};
	struct cache cache = {0};

	(void)state;
	world.verbs.devices.device[0].attr.max_mr_size = 5 * PAGE;
	cache_add(&cache, BASE, 8, 2 * PAGE);
	cache.local.memory = &memory;
	hold_ok(&cache);
	assert_int_equal(held_of(&cache)->spans->count, 4);
	for (const struct mr *mr = nic.mrs; mr != NULL; mr = mr->next)
		assert_int_equal(mr->offset - 3 * PAGE, mr->iova - BASE);
	forget(&cache);
	close(fd);
}

static void
dmabuf__refusals(void **state)
{
	int fd = dmabuf();
	struct kvp_device_memory memory = {
		.fd = fd, .offset = 1, .base = (void *)BASE, .bytes = 16 * PAGE};
	struct cache cache = cache_of(BASE, PAGE);

	(void)state;
	cache.local.memory = &memory;
	hold_refused(&cache, KVP_PARAM_INVALID, "within a page");
	memory.offset = 0;
	nic.error = EOPNOTSUPP;
	nic.refuse_access = (unsigned int)IBV_ACCESS_LOCAL_WRITE;
	hold_refused(&cache, KVP_FEATURE_NOT_ENABLED, "the driver of nic0 does not take a dma-buf");
	nic.error = 0;
	memory.fd = 9999;
	hold_refused(&cache, KVP_PARAM_INVALID, "memory->fd 9999: Bad file descriptor");
	memory.fd = fd;
	world.verbs.devices.devices = 0;
	hold_refused(&cache, KVP_FEATURE_NOT_ENABLED, "no device");
	/* Ordinary memory needs none. */
	cache.local.memory = NULL;
	assert_int_equal(hold(&cache, NULL), KVP_SUCCESS);
	assert_null(cache.local.held[SLOT]);
	world.verbs.devices.devices = DEVICES;
	close(fd);
}

static void
fatal_device__is_left_out(void **state)
{
	struct cache before = cache_of(BASE, PAGE), after = cache_of(BASE + MIB, PAGE);

	(void)state;
	hold_ok(&before);
	world.verbs.devices.device[0].is_fatal = true;
	hold_ok(&after);
	assert_int_equal(nic.live, DEVICES + 1);
	assert_int_equal(held_of(&after)->spans->span[0].key[0], 0);
	forget(&before);
	forget(&after);
}

/* --- all together ------------------------------------------------------------------------------------- */

static uint64_t
draw(uint64_t *seed, uint64_t below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (*seed >> 11) % below;
}

/* Tensors that do not overlap, some close, some far, some in regions. */
static struct cache
draw_cache(uint64_t *seed, const struct kvp_region *region)
{
	uint64_t at = BASE + draw(seed, 64) * PAGE, bytes = 1 + draw(seed, 3 * PAGE);
	uint64_t blocks = 1 + draw(seed, 8);
	uint32_t tensors = 1 + (uint32_t)draw(seed, 10);
	struct cache cache = {0};

	if (draw(seed, 4) == 0)
		at = (uint64_t)(uintptr_t)region->base;
	for (uint32_t i = 0; i < tensors; i++) {
		uint64_t first = (uint64_t)(uintptr_t)region->base;

		cache_add(&cache, at, blocks, bytes);
		if (at >= first && at + blocks * bytes <= first + region->bytes)
			cache.region[i] = region;
		at += blocks * bytes + (draw(seed, 2) == 0 ? 0 : draw(seed, 4 * PAGE));
	}
	/* Any order will do. */
	for (uint32_t i = 1; i < tensors && draw(seed, 2) == 0; i++) {
		uint32_t other = (uint32_t)draw(seed, i);
		struct kvp_tensor tensor = cache.tensor[i];
		const struct kvp_region *around = cache.region[i];

		cache.tensor[i] = cache.tensor[other];
		cache.region[i] = cache.region[other];
		cache.tensor[other] = tensor;
		cache.region[other] = around;
	}
	return cache;
}

static void
random__caches_come_and_go(void **state)
{
	enum {
		CACHES = 24
	};
	struct cache *cache = calloc(CACHES, sizeof(*cache));

	(void)state;
	assert_non_null(cache);
	for (uint64_t run = 1; run <= 200; run++) {
		uint64_t seed = run * 0x9E3779B97F4A7C15ULL;
		const struct kvp_region region = {.id = 1,
						  .base = (void *)(uintptr_t)(BASE + 100 * PAGE),
						  .bytes = 64 * PAGE};

		world.verbs.devices.device[0].attr.max_mr_size =
			draw(&seed, 2) == 0 ? UINT64_MAX : PAGE + draw(&seed, 20 * PAGE);
		for (uint32_t step = 0; step < 60; step++) {
			struct cache *at = &cache[draw(&seed, CACHES)];
			struct kvp_error err = {""};

			if (at->local.held[SLOT] != NULL) {
				forget(at);
			} else {
				*at = draw_cache(&seed, &region);
				nic.error = draw(&seed, 4) == 0 ? ENOMEM : 0;
				nic.refuse_at = nic.made + 1 + (uint32_t)draw(&seed, 8);
				if (hold(at, &err) == KVP_SUCCESS)
					check_cover(at);
				else
					assert_non_null(strstr(err.text, "ENOMEM"));
			}
			for (uint32_t i = 0; i < CACHES && step % 8 == 0; i++)
				if (cache[i].local.held[SLOT] != NULL)
					check_spans(&cache[i]);
		}
		for (uint32_t i = 0; i < CACHES; i++)
			forget(&cache[i]);
		assert_int_equal(nic.live, 0);
	}
	free(cache);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DEVICES(hold__makes_one_mr_per_device),
		ON_DEVICES(hold__gives_the_rights_of_the_setting),
		ON_DEVICES(hold__joins_tensors_whose_pages_touch),
		ON_DEVICES(hold__registers_a_region_once_for_all_its_caches),
		ON_DEVICES(hold__does_not_join_a_region_with_its_neighbour),
		ON_DEVICES(hold__shares_a_longer_stretch_while_its_owner_lives),
		ON_DEVICES(hold__the_same_stretch_twice_has_two_owners),
		ON_DEVICES(cut__is_at_a_block_boundary_and_the_same_on_all_devices),
		ON_DEVICES(cut__keeps_rows_of_interleaved_tensors),
		ON_DEVICES(cut__of_blocks_longer_than_an_mr_is_at_pages),
		ON_DEVICES(cut__into_more_than_a_note_holds_is_refused),
		ON_DEVICES(dmabuf__is_registered_whole_and_shared_by_inode),
		ON_DEVICES(dmabuf__is_cut_with_its_offset),
		ON_DEVICES(dmabuf__refusals),
		ON_DEVICES(fatal_device__is_left_out),
		ON_DEVICES(random__caches_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
