/* SPDX-License-Identifier: Apache-2.0 */
#include "content.h"

#include <string.h>

#include "mix.h"

#define STEP        0x9E3779B97F4A7C15U
#define SPOIL_WORD  0xDEADFA11DEADFA11U
#define SPOIL_EVERY 4096U
#define WORD        sizeof(uint64_t)

/*
 * Two words at a time, by shifts, adds and xors only: SSE2 has no 64-bit
 * multiplication, and the generator must outrun memory on any x86-64.
 */
typedef uint64_t words2 __attribute__((vector_size(16)));

#define SCRAMBLE(x)               \
	do {                      \
		(x) ^= (x) >> 32; \
		(x) += (x) << 21; \
		(x) ^= (x) >> 15; \
		(x) += (x) << 7;  \
	} while (0)

static uint64_t
first_word(const struct demo_content *content)
{
	uint64_t x = demo_mix(content->seed + STEP);

	x = demo_mix(x ^ content->key) + STEP;
	x = demo_mix(x ^ content->epoch) + STEP;
	return demo_mix(x ^ content->tensor);
}

static uint64_t
word_at(uint64_t base, uint64_t index)
{
	uint64_t x = base + index * STEP;

	SCRAMBLE(x);
	return x;
}

void
demo_content_fill(const struct demo_content *content, void *piece, size_t bytes)
{
	uint64_t base = first_word(content);
	unsigned char *at = piece;
	size_t vectors = bytes / sizeof(words2);
	words2 counter = {base, base + STEP};
	size_t done;

	for (size_t i = 0; i < vectors; i++) {
		words2 x = counter;

		SCRAMBLE(x);
		memcpy(at + i * sizeof(x), &x, sizeof(x));
		counter += (words2){2 * STEP, 2 * STEP};
	}
	for (done = vectors * sizeof(words2); done < bytes; done += WORD) {
		uint64_t x = word_at(base, done / WORD);

		memcpy(at + done, &x, bytes - done < WORD ? bytes - done : WORD);
	}
}

/* The slow way, to say how much is wrong. */
static uint64_t
count_wrong(uint64_t base, const unsigned char *at, size_t bytes)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < bytes; i++) {
		uint64_t x = word_at(base, i / WORD);
		unsigned char expected[WORD];

		memcpy(expected, &x, WORD);
		wrong += at[i] != expected[i % WORD];
	}
	return wrong;
}

uint64_t
demo_content_wrong(const struct demo_content *content, const void *piece, size_t bytes)
{
	uint64_t base = first_word(content);
	const unsigned char *at = piece;
	size_t vectors = bytes / sizeof(words2);
	words2 counter = {base, base + STEP};
	words2 differs = {0, 0};

	for (size_t i = 0; i < vectors; i++) {
		words2 x = counter;
		words2 found;

		SCRAMBLE(x);
		memcpy(&found, at + i * sizeof(x), sizeof(found));
		differs |= x ^ found;
		counter += (words2){2 * STEP, 2 * STEP};
	}
	if ((differs[0] | differs[1]) == 0 && bytes % sizeof(words2) == 0)
		return 0;
	return count_wrong(base, at, bytes);
}

void
demo_content_spoil(void *piece, size_t bytes)
{
	const uint64_t word = SPOIL_WORD;
	unsigned char *at = piece;
	size_t last = bytes < WORD ? 0 : bytes - WORD;

	for (size_t i = 0; i < last; i += SPOIL_EVERY)
		memcpy(at + i, &word, WORD);
	memcpy(at + last, &word, bytes < WORD ? bytes : WORD);
}
