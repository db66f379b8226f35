/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_kernels.h - the copy kernels by name
 *
 * For copy_setup.c, which chooses one, and for tests and benchmarks, which run
 * all that the CPU has. Everybody else goes through copy.h.
 *
 * Shape:      dst and src of any alignment, not overlapping; any size, 0 included
 * Threads:    any; kvp_copy_fence before the bytes are published
 */
#ifndef KVP_DATAPLANE_COPY_KERNELS_H
#define KVP_DATAPLANE_COPY_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "copy.h"

#define KVP_COPY_KERNELS 4U

KVP_HOT void
kvp_copy_plain(void *dst, const void *src, size_t bytes);
#if defined(__x86_64__)
KVP_HOT void
kvp_copy_sse2(void *dst, const void *src, size_t bytes);
KVP_HOT void
kvp_copy_avx2(void *dst, const void *src, size_t bytes);
KVP_HOT void
kvp_copy_avx512(void *dst, const void *src, size_t bytes);
#endif

/* Entry `index` in [0, KVP_COPY_KERNELS), best first, or NULL when this CPU cannot run it. */
const struct kvp_copy_kernels *
kvp_copy_kernels_at(unsigned int index);

/* The best kernel, or the one called `wanted` (may be NULL) when this CPU can run it. */
const struct kvp_copy_kernels *
kvp_copy_kernels_choose(const char *wanted);

#endif /* KVP_DATAPLANE_COPY_KERNELS_H */
