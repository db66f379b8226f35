/* SPDX-License-Identifier: Apache-2.0 */
/*
 * content.h - what a block holds, so that every byte can be checked
 *
 * The bytes of a piece follow from what it is: the run's seed, the block's key
 * (prefix hash and position in it), the epoch of its computation and its
 * tensor. A block that is in the wrong slot, of the wrong layer, shifted,
 * torn or of an earlier computation differs in nearly every word.
 */
#ifndef DEMO_CONTENT_H
#define DEMO_CONTENT_H

#include <stddef.h>
#include <stdint.h>

struct demo_content {
	uint64_t seed;
	uint64_t key;
	uint64_t epoch; /* counts computations of blocks by the prompt side */
	uint32_t tensor;
};

/* Write `bytes` of content at `piece`; any alignment, any size. */
void
demo_content_fill(const struct demo_content *content, void *piece, size_t bytes);

/* How many of the `bytes` at `piece` are not what fill wrote; 0 = all right. */
uint64_t
demo_content_wrong(const struct demo_content *content, const void *piece, size_t bytes);

/*
 * Spoil the first word of every 4 KiB and the last word, so that a piece that
 * never arrives does not pass for the same piece of an earlier push.
 */
void
demo_content_spoil(void *piece, size_t bytes);

#endif /* DEMO_CONTENT_H */
