/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern.h - which blocks a push of the benchmark moves, and what they hold
 *
 * A cache has two slots for every piece of a push and one tensor, so a block is a piece. The three
 * patterns differ in what the planner can make of a push, not in the bytes that move.
 *
 * Invariant:  the lists follow from pattern and count alone, so that both processes and the
 *             prediction use the same ones
 * Threads:    any
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

enum bench_pattern {
	BENCH_SCATTERED = 0, /* neither side has neighbours: a request per piece */
	BENCH_GATHERED = 1,  /* destinations are neighbours, sources are not: gather lists */
	BENCH_MERGED = 2, /* neighbours on both sides: requests as long as the engine makes them */
};

#define BENCH_PATTERNS 3U

const char *
bench_pattern_name(enum bench_pattern pattern);

/* Slots of a cache for pushes of `count` pieces. */
static inline uint64_t
bench_slots(uint64_t count)
{
	return 2 * count;
}

/* src[count] and dst[count]; no slot twice in either. */
void
bench_lists(enum bench_pattern pattern, uint64_t count, uint64_t *src, uint64_t *dst);

/* Write the content that `is_sender`'s side keeps in the slot of this number. */
void
bench_fill(bool is_sender, uint64_t slot, void *piece, uint64_t piece_bytes);

/*
 * The receiver's memory after one push into slots that bench_fill had filled: every byte of the
 * pushed pieces must be the sender's, every other the receiver's own. Returns wrong bytes, or
 * UINT64_MAX without memory for the lists.
 */
uint64_t
bench_wrong(enum bench_pattern pattern, uint64_t count, const void *base, uint64_t piece_bytes);

#endif /* BENCH_PATTERN_H */
