/* SPDX-License-Identifier: Apache-2.0 */
/*
 * w1.h - a fixed push beside what the machine can do
 *
 * W1 is 32 layers x 2 tensors x 64 blocks of 32 KiB, 128 MiB, between random
 * slots of caches four times as large, so that neither side finds it in its
 * CPU's caches. Engine and limit (a plain copy loop, or a plain socket) move the
 * same pieces in turn, in the same run.
 */
#ifndef DEMO_W1_H
#define DEMO_W1_H

#include <kvpush/kvpush.h>

#include "content.h"
#include "demo.h"
#include "talk.h"

#define DEMO_W1_TENSORS     64U
#define DEMO_W1_BLOCKS      64U
#define DEMO_W1_BLOCK_BYTES 32768U
#define DEMO_W1_SLOTS       256U
#define DEMO_W1_PIECES      (DEMO_W1_TENSORS * DEMO_W1_BLOCKS)
#define DEMO_W1_WARM_ROUNDS (DEMO_W1_SLOTS / DEMO_W1_BLOCKS) /* these touch every slot once */
#define DEMO_W1_ROUNDS      9U
#define DEMO_W1_CACHE_BYTES ((uint64_t)DEMO_W1_TENSORS * DEMO_W1_SLOTS * DEMO_W1_BLOCK_BYTES)

/* The round's block lists: distinct slots in random order, the same on both sides. */
void
demo_w1_lists(uint64_t seed, uint32_t round, uint64_t *src, uint64_t *dst);

void
demo_w1_layout(struct kvp_tensor *tensors);

/* What the prompt's slot holds in `tensor`. */
struct demo_content
demo_w1_content(uint64_t seed, uint64_t slot, uint32_t tensor);

/* Prompt side: all rounds. DEMO_FAILED has been printed. */
enum demo_end
demo_w1_run(const struct demo_options *options, struct kvp_engine *engine, struct demo_talk *talk,
	    struct demo_w1_result *result_out);

/* Decoder side, zero before open. */
struct demo_w1_serving {
	const struct demo_options *options;
	struct kvp_engine *engine;
	struct kvp_tensor tensors[DEMO_W1_TENSORS];
	int64_t cache;
	int listener, fd;
	bool is_open;
};

enum demo_end
demo_w1_serve_open(struct demo_w1_serving *w1, const struct demo_options *options,
		   struct kvp_engine *engine, struct demo_talk *talk);

/* PREPARE, CHECK or SOCKET of an open W1. */
enum demo_end
demo_w1_serve(struct demo_w1_serving *w1, struct demo_talk *talk,
	      const struct demo_message *message);

void
demo_w1_serve_close(struct demo_w1_serving *w1);

#endif /* DEMO_W1_H */
