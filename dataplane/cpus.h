/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpus.h - sets of CPUs as text, in the form that taskset and EAL read
 *
 * Threads:    any
 */
#ifndef KVP_DATAPLANE_CPUS_H
#define KVP_DATAPLANE_CPUS_H

#include <sched.h>
#include <stddef.h>

/* CPUs of the largest cpu_set_t, "0,2,4,...": 512 numbers of at most 4 digits. */
#define KVP_CPUS_TEXT_MAX 2560U

/* Write the set as "0-3,8" into `text` (cut at `size` >= 1); "none" when it is empty. */
void
kvp_cpus_format(const cpu_set_t *cpus, char *text, size_t size);

#endif /* KVP_DATAPLANE_CPUS_H */
