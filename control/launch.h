/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - from a planned transfer to its lanes; private to control/
 *
 * Threads:    [A] the caller's
 */
#ifndef KVP_CONTROL_LAUNCH_H
#define KVP_CONTROL_LAUNCH_H

#include "transfer.h"
#include "transport.h"

/*
 * Make the parts: shares of the plan over the path's endpoints, as many as it is worth and `parts_max` of them
 * at most. `turn` picks the first endpoint, so that small transfers spread too.
 */
void
kvp_launch_split(struct kvp_transfer *transfer, const struct kvp_path *path, uint32_t parts_max,
		 uint64_t turn);

/* Hand all parts to their lanes, which own the transfer afterwards. Waits while a lane's ring is full. */
void
kvp_launch(struct kvp_transfer *transfer);

#endif /* KVP_CONTROL_LAUNCH_H */
