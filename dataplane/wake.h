/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wake.h - the only system calls a lane makes for others: waking who sleeps
 *
 * Called only when the other side said that it sleeps, so never while polling.
 */
#ifndef KVP_DATAPLANE_WAKE_H
#define KVP_DATAPLANE_WAKE_H

#include <stdatomic.h>
#include <stdint.h>

#include "compiler.h"

/* Add 1 to an eventfd. */
KVP_COLD void
kvp_wake_fd(int event_fd);
/* Wake all futex waiters of *word; the memory may be gone. */
KVP_COLD void
kvp_wake_word(_Atomic uint32_t *word);
/* Sleep while *word == value, at most `timeout_ns` (UINT64_MAX = for ever). May return early. */
void
kvp_sleep_word(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);
/* CLOCK_MONOTONIC. */
uint64_t
kvp_now_ns(void);

#endif /* KVP_DATAPLANE_WAKE_H */
