/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights.h - what peers may do to an engine's caches
 *
 * The setting peer_rights as text, here as bits; each engine tells its own in HELLO.
 *
 * Threads:    pure
 */
#ifndef KVP_ENGINE_RIGHTS_H
#define KVP_ENGINE_RIGHTS_H

#include <stdbool.h>
#include <stdint.h>

enum kvp_right {
	KVP_RIGHT_PUSH = 1, /* write into them */
	KVP_RIGHT_PULL = 2, /* read them */
};
#define KVP_RIGHTS_ALL ((uint32_t)KVP_RIGHT_PUSH | (uint32_t)KVP_RIGHT_PULL)

/* "push,pull", "push", "pull" or "". False: another text, or one word twice. */
bool
kvp_rights_parse(const char *text, uint32_t *rights_out);

/* Of a text that was checked. */
static inline uint32_t
kvp_rights_of(const char *text)
{
	uint32_t rights = 0;

	return kvp_rights_parse(text, &rights) ? rights : 0;
}

#endif /* KVP_ENGINE_RIGHTS_H */
