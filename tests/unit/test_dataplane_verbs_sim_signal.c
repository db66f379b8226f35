/* SPDX-License-Identifier: Apache-2.0 */
/* The last request of a chain asks for no completion: the simulation notices. */
#define KVP_BREAK_SIGNAL
#include "verbs/verbs_post_fast.c"

#include "verbs_sim_broken.h"
