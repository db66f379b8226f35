/* SPDX-License-Identifier: Apache-2.0 */
#include "pattern.h"

#include <stdlib.h>

#include "demo/content.h"

#define GOLDEN 0.6180339887498949

const char *
bench_pattern_name(enum bench_pattern pattern)
{
	static const char *const names[BENCH_PATTERNS] = {"scattered", "gathered", "merged"};

	return names[pattern];
}

static uint64_t
common_divisor(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Coprime to count, far from 1 and from count: consecutive multiples of it lie far apart. */
static uint64_t
step_of(uint64_t count)
{
	uint64_t step = (uint64_t)((double)count * GOLDEN) | 1U;

	while (common_divisor(step, count) != 1)
		step += 2;
	return step;
}

void
bench_lists(enum bench_pattern pattern, uint64_t count, uint64_t *src, uint64_t *dst)
{
	uint64_t step = step_of(count);

	for (uint64_t i = 0; i < count; i++) {
		src[i] = pattern == BENCH_MERGED ? i : i * step % count * 2;
		dst[i] = pattern == BENCH_SCATTERED ? i * 2 : i;
	}
}

static struct demo_content
content_of(bool is_sender, uint64_t slot)
{
	return (struct demo_content){.seed = is_sender ? 1 : 2, .key = slot};
}

void
bench_fill(bool is_sender, uint64_t slot, void *piece, uint64_t piece_bytes)
{
	struct demo_content content = content_of(is_sender, slot);

	demo_content_fill(&content, piece, piece_bytes);
}

uint64_t
bench_wrong(enum bench_pattern pattern, uint64_t count, const void *base, uint64_t piece_bytes)
{
	uint64_t slots = bench_slots(count), wrong = 0;
	uint64_t *src = calloc(2 * count, sizeof(*src));
	uint64_t *from = calloc(slots, sizeof(*from)); /* by destination: source + 1 */

	if (src == NULL || from == NULL) {
		free(src);
		free(from);
		return UINT64_MAX;
	}
	bench_lists(pattern, count, src, src + count);
	for (uint64_t i = 0; i < count; i++)
		from[src[count + i]] = src[i] + 1;
	for (uint64_t slot = 0; slot < slots; slot++) {
		struct demo_content content = from[slot] != 0 ? content_of(true, from[slot] - 1)
							      : content_of(false, slot);

		wrong += demo_content_wrong(&content, (const char *)base + slot * piece_bytes,
					    piece_bytes);
	}
	free(src);
	free(from);
	return wrong;
}
