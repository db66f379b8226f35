/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h - making and freeing shareable memory
 *
 * A region is a memfd, sealed so that no holder of the fd can shrink it (which
 * would kill the others with SIGBUS), mapped shared, zero, and with every page
 * already there: later writes, here or by a peer, cannot run out of memory.
 *
 * Shape:      bytes is rounded up to pages (4 KiB, or 2 MiB when huge)
 * Ownership:  the caller's until kvp_region_destroy; peers keep their own maps
 * Threads:    any; creating takes about 0.2 s per GiB
 */
#ifndef KVP_DATAPLANE_REGION_H
#define KVP_DATAPLANE_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "compiler.h"
#include "error.h"
#include "transport.h"

struct kvp_region_config {
	uint32_t id;    /* >= 1 */
	uint64_t bytes; /* >= 1 */
	bool is_huge;   /* 2 MiB pages, an error when there are not enough */
};

/*
 * Make the region. PARAM_INVALID: id or bytes 0. OUT_OF_MEMORY: more than the
 * machine or the control group can hold now. NO_RESOURCE: descriptors, address
 * space, file size limit, huge pages, or the kernel refused; the line says what
 * to change. Nothing is left behind on an error.
 */
KVP_MUST_USE kvp_status
kvp_region_create(const struct kvp_region_config *config, struct kvp_region **region_out,
		  struct kvp_error *err);

/* Unmap, close, free. No path may know it any more. NULL is a no-op. */
void
kvp_region_destroy(struct kvp_region *region);

#endif /* KVP_DATAPLANE_REGION_H */
