/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.h - copy kernels for the shm path
 *
 * Cold data (larger than the caches) moves with non-temporal stores, which skip
 * the read for ownership: 25-45 % over memcpy (engineering notes 5.3). Hot data
 * moves with memcpy. Non-temporal stores are weakly ordered: kvp_copy_fence
 * before anything that publishes them.
 */
#ifndef KVP_DATAPLANE_COPY_H
#define KVP_DATAPLANE_COPY_H

#include <stddef.h>

#include "compiler.h"

#define KVP_COPY_HOT_BYTES \
	(256U << 10) /* what moves together and is no more stays in the CPU's caches */

typedef void (*kvp_copy_fn)(void *dst, const void *src, size_t bytes);

struct kvp_copy_kernels {
	kvp_copy_fn cold; /* non-temporal; any alignment, any size */
	kvp_copy_fn hot;  /* memcpy */
	const char *name; /* of the cold kernel: "avx512", "avx2", "sse2", "plain" */
};

/* Chosen once by CPUID at load; KVP_COPY=avx512|avx2|sse2|plain in the environment forces one that the CPU has. */
const struct kvp_copy_kernels *
kvp_copy_kernels(void);

/* Order earlier non-temporal stores before later stores (sfence). */
KVP_HOT void
kvp_copy_fence(void);

#endif /* KVP_DATAPLANE_COPY_H */
