/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define STEP 0x9E3779B97F4A7C15U

static uint32_t
slot_blocks(const struct load_cache *cache)
{
	return cache->blocks + 1;
}

void
load_cache_make(struct load_cache *cache, struct kvp_engine *engine,
		const struct load_options *options)
{
	size_t bytes;

	*cache = (struct load_cache){.engine = engine,
				     .slots = options->slots,
				     .blocks = options->blocks,
				     .block_bytes = options->block_bytes};
	bytes = (size_t)cache->slots * slot_blocks(cache) * cache->block_bytes;
	cache->memory = mmap(NULL, bytes * LOAD_TENSORS, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (cache->memory == MAP_FAILED)
		load_die("mmap");
	for (uint32_t i = 0; i < LOAD_TENSORS; i++)
		cache->tensor[i] = (struct kvp_tensor){
			.base = cache->memory + i * bytes,
			.num_blocks = (uint64_t)cache->slots * slot_blocks(cache),
			.block_bytes = cache->block_bytes,
			.block_stride = cache->block_bytes,
		};
}

kvp_status
load_cache_register(struct load_cache *cache)
{
	return kvp_cache_register(cache->engine, cache->tensor, LOAD_TENSORS, &cache->id);
}

static uint64_t
mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
	return value ^ (value >> 31);
}

static void
shuffle(uint64_t *list, uint32_t count, uint64_t seed)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t other = (uint32_t)(mix(seed + i) % i);
		uint64_t value = list[i - 1];

		list[i - 1] = list[other];
		list[other] = value;
	}
}

void
load_blocks(const struct load_cache *cache, uint32_t slot, uint64_t generation, uint64_t *src,
	    uint64_t *dst)
{
	uint64_t first = (uint64_t)slot * slot_blocks(cache);

	for (uint32_t i = 0; i < cache->blocks; i++)
		src[i] = dst[i] = first + i;
	/* Alternately gathered, scattered on both sides, and merged. */
	if (generation % 3 != 0)
		shuffle(src, cache->blocks, generation);
	if (generation % 3 == 1)
		shuffle(dst, cache->blocks, ~generation);
}

static uint64_t *
words(const struct load_cache *cache, uint32_t tensor, uint64_t block)
{
	return (uint64_t *)(void *)((uint8_t *)cache->tensor[tensor].base +
				    block * cache->block_bytes);
}

static uint64_t
first_word(uint32_t slot, uint64_t generation, uint32_t place, uint32_t tensor)
{
	return mix(generation * STEP + ((uint64_t)slot << 40 | (uint64_t)place << 8 | tensor));
}

static void
write_words(uint64_t *at, size_t count, uint64_t value, uint64_t step)
{
	for (size_t i = 0; i < count; i++, value += step)
		at[i] = value;
}

/* The first word that differs, or `count`. */
static size_t
differs(const uint64_t *at, size_t count, uint64_t value, uint64_t step)
{
	for (size_t i = 0; i < count; i++, value += step)
		if (at[i] != value)
			return i;
	return count;
}

void
load_fill(const struct load_cache *cache, uint32_t slot, uint64_t generation,
	  const uint64_t *blocks)
{
	for (uint32_t t = 0; t < LOAD_TENSORS; t++)
		for (uint32_t i = 0; i < cache->blocks; i++)
			write_words(words(cache, t, blocks[i]), cache->block_bytes / 8,
				    first_word(slot, generation, i, t), STEP);
}

bool
load_check(const struct load_cache *cache, uint32_t slot, uint64_t generation,
	   const uint64_t *blocks, const char *what)
{
	size_t count = cache->block_bytes / 8;

	for (uint32_t t = 0; t < LOAD_TENSORS; t++) {
		for (uint32_t i = 0; i < cache->blocks; i++) {
			const uint64_t *at = words(cache, t, blocks[i]);
			uint64_t value = first_word(slot, generation, i, t);
			size_t wrong = differs(at, count, value, STEP);

			if (wrong == count)
				continue;
			fprintf(stderr,
				"%s: slot %u generation %llu tensor %u block %llu: word %zu is "
				"0x%016llx, not 0x%016llx\n",
				what, slot, (unsigned long long)generation, t,
				(unsigned long long)blocks[i], wrong, (unsigned long long)at[wrong],
				(unsigned long long)(value + wrong * STEP));
			return false;
		}
	}
	return true;
}

void
load_canary(const struct load_cache *cache, uint32_t slot, uint64_t word)
{
	uint64_t first = (uint64_t)slot * slot_blocks(cache);

	for (uint32_t t = 0; t < LOAD_TENSORS; t++)
		write_words(words(cache, t, first), slot_blocks(cache) * cache->block_bytes / 8,
			    word, 0);
}

bool
load_canary_check(const struct load_cache *cache, uint32_t slot, uint64_t word, const char *what)
{
	uint64_t first = (uint64_t)slot * slot_blocks(cache);
	size_t count = (size_t)slot_blocks(cache) * cache->block_bytes / 8;

	for (uint32_t t = 0; t < LOAD_TENSORS; t++) {
		const uint64_t *at = words(cache, t, first);
		size_t wrong = differs(at, count, word, 0);

		if (wrong == count)
			continue;
		fprintf(stderr,
			"%s: slot %u tensor %u block %llu: a late write: word %zu is 0x%016llx, "
			"the canary was 0x%016llx\n",
			what, slot, t,
			(unsigned long long)(first + wrong / (cache->block_bytes / 8)),
			wrong % (cache->block_bytes / 8), (unsigned long long)at[wrong],
			(unsigned long long)word);
		return false;
	}
	return true;
}

bool
load_clean(const struct load_cache *cache, uint32_t slot, const char *what)
{
	uint64_t first = (uint64_t)slot * slot_blocks(cache);
	size_t count = (size_t)slot_blocks(cache) * cache->block_bytes / 8;

	for (uint32_t t = 0; t < LOAD_TENSORS; t++) {
		const uint64_t *at = words(cache, t, first);

		for (size_t i = 0; i < count; i++) {
			if (at[i] != LOAD_POISON)
				continue;
			fprintf(stderr,
				"%s: slot %u tensor %u: a late read: the source was released before "
				"it held this\n",
				what, slot, t);
			return false;
		}
	}
	return true;
}
