/* SPDX-License-Identifier: Apache-2.0 */
/* caps.h - what a transport can do: asked by everything above the seam instead of its name */
#ifndef KVP_ENGINE_CAPS_H
#define KVP_ENGINE_CAPS_H

#include <stdbool.h>
#include <stdint.h>

struct kvp_caps {
	uint32_t pieces_max;        /* memory pieces of one request, >= 1 */
	uint64_t request_bytes_max; /* >= 4096 */
	uint64_t part_bytes_min;    /* a transfer is not split into shares below this */
	bool is_split_by_lane; /* shares help only on different lanes (shm), or on each endpoint (tcp) */
	bool can_pull;
	bool can_reach_device; /* memory that the CPU cannot touch: dma-buf */
};

#endif /* KVP_ENGINE_CAPS_H */
