/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a broken QP are let go before the peer fenced it: the simulation notices. */
#define KVP_BREAK_FENCE
#include "verbs/verbs_fence.c"

#include "verbs_sim_broken.h"
