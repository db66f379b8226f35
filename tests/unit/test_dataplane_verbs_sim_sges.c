/* SPDX-License-Identifier: Apache-2.0 */
/* Two pieces of a request change places: the simulation notices. */
#define KVP_BREAK_SGES
#include "verbs/verbs_post_fast.c"

#include "verbs_sim_broken.h"
