/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prompt.h - the side that computes blocks and pushes them
 *
 * For each request: pin or allocate its blocks, ask the decoder which it lacks,
 * compute (fill) the new ones, push what was granted, forget the request when
 * the decoder has verified it. Several requests are on their way at once.
 */
#ifndef DEMO_PROMPT_H
#define DEMO_PROMPT_H

#include <kvpush/kvpush.h>

#include "demo.h"
#include "talk.h"
#include "trace.h"

struct demo_prompt; /* prompt.c */

/* Engine, link to the decoder, cache. *prompt_out also after a failure, for close. */
enum demo_end
demo_prompt_open(const struct demo_options *options, const struct demo_trace *trace,
		 struct demo_talk *talk, struct demo_prompt **prompt_out);

/* All requests of the trace, then the decoder's sweep; both caches are released. */
enum demo_end
demo_prompt_replay(struct demo_prompt *prompt, struct demo_replay *replay_out);

struct kvp_engine *
demo_prompt_engine(struct demo_prompt *prompt);

/* Cancels what is on its way. NULL is a no-op. */
void
demo_prompt_close(struct demo_prompt *prompt);

#endif /* DEMO_PROMPT_H */
