/* SPDX-License-Identifier: Apache-2.0 */
/*
 * eal.h - DPDK's environment, started once per process inside a host program
 *
 * rte_eal_init pins its caller, so it runs in a helper thread with all signals
 * blocked and a floating main lcore (engineering notes 5.1). It is never
 * cleaned up: 22.11 cannot start twice, so engines come and go on one EAL.
 */
#ifndef KVP_DATAPLANE_EAL_H
#define KVP_DATAPLANE_EAL_H

#include <stdint.h>

#include "error.h"

/*
 * Start EAL with a heap of `heap_mb`, or find it started (then the heap is what the first caller
 * asked for). Caller's affinity, signal mask, stdout stay untouched. NO_RESOURCE with EAL's reason.
 */
KVP_MUST_USE kvp_status
kvp_eal_start(uint32_t heap_mb, struct kvp_error *err);

/* Make the calling thread an lcore / undo it. NO_RESOURCE when lcore ids run out. */
KVP_MUST_USE kvp_status
kvp_eal_thread_enter(struct kvp_error *err);
void
kvp_eal_thread_leave(void);

#endif /* KVP_DATAPLANE_EAL_H */
