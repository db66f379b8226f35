/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decoder.h - the side that names slots, hears of arrival and verifies
 *
 * Runs in its own process, driven by the prompt's messages and by the engine's
 * events; ends when the prompt's end of the talk closes.
 */
#ifndef DEMO_DECODER_H
#define DEMO_DECODER_H

#include "demo.h"

/* Everything, from opening the engine to closing it. Takes `fd`. Returns an exit status. */
int
demo_decoder_main(const struct demo_options *options, int fd);

#endif /* DEMO_DECODER_H */
