/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - a configuration as the engine uses it: checked, and its lists taken apart
 *
 * One table in config.c describes every setting; kvp_config_init, _set, _help
 * and the check below all walk it.
 *
 * Threads:    pure
 */
#ifndef KVP_CONTROL_CONFIG_H
#define KVP_CONTROL_CONFIG_H

#include <kvpush/engine.h>

#include "compiler.h"
#include "error.h"
#include "wire.h"

#define KVP_CPU_MAX 1023 /* sched_setaffinity's default set ends there */

/*
 * Is every field in its range, and do they fit each other? A caller may have
 * written anything into it. PARAM_INVALID naming the field; ADDRESS when `listen`
 * is malformed. Whether transports, addresses and CPUs exist is asked elsewhere.
 */
KVP_MUST_USE kvp_status
kvp_config_check(const struct kvp_config *config, struct kvp_error *err);

/*
 * The two below take a checked configuration.
 *
 * CPU of each lane, -1 = not pinned. Returns how many are pinned.
 */
int
kvp_config_cpus(const struct kvp_config *config, int cpu_out[KVP_LANES_MAX]);

/* The names in order of preference. Returns how many, in [1, KVP_RAILS_MAX]. */
int
kvp_config_transports(const struct kvp_config *config, char names_out[KVP_RAILS_MAX][KVP_NAME_MAX]);

#endif /* KVP_CONTROL_CONFIG_H */
