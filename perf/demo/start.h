/* SPDX-License-Identifier: Apache-2.0 */
/* start.h - what both sides do with the engine in the same way */
#ifndef DEMO_START_H
#define DEMO_START_H

#include <kvpush/kvpush.h>

#include "demo.h"
#include "talk.h"

/* Print "kvpush-demo: <side>: <what>: <STATUS>: <kvp_error_message>". Returns DEMO_FAILED. */
enum demo_end
demo_engine_failed(const char *side, const char *what, kvp_status status);

/*
 * The same for -errno. A decoder that finds the prompt gone (-EPIPE) says nothing,
 * the prompt has said why: DEMO_STOPPED.
 */
enum demo_end
demo_system_failed(const char *side, const char *what, int error);

/* Open this side's engine; the decoder listens on a port of loopback. DEMO_FAILED has been printed. */
enum demo_end
demo_engine_open(const struct demo_options *options, enum kvp_role role,
		 struct kvp_engine **engine_out);

/* The message of `type`, of at least `body_bytes`; others are an error. DEMO_FAILED has been printed. */
enum demo_end
demo_expect(struct demo_talk *talk, uint32_t type, size_t body_bytes,
	    struct demo_message *message_out);

#endif /* DEMO_START_H */
