/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h - seeded 64-bit numbers (splitmix64), the same on every machine */
#ifndef DEMO_MIX_H
#define DEMO_MIX_H

#include <stdint.h>

static inline uint64_t
demo_mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xBF58476D1CE4E5B9U;
	x ^= x >> 27;
	x *= 0x94D049BB133111EBU;
	return x ^ (x >> 31);
}

/* The next number of the stream in *state. */
static inline uint64_t
demo_random(uint64_t *state)
{
	*state += 0x9E3779B97F4A7C15U;
	return demo_mix(*state);
}

/* [0, below); `below` >= 1, far under 2^64, so the bias does not matter here. */
static inline uint64_t
demo_random_below(uint64_t *state, uint64_t below)
{
	return demo_random(state) % below;
}

#endif /* DEMO_MIX_H */
