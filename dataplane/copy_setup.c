/* SPDX-License-Identifier: Apache-2.0 */
#include "copy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "copy_kernels.h"

/* Best first: the order of kvp_copy_kernels_at. */
#if defined(__x86_64__)
static const struct kvp_copy_kernels kernels[KVP_COPY_KERNELS] = {
	{.cold = kvp_copy_avx512, .hot = kvp_copy_plain, .name = "avx512"},
	{.cold = kvp_copy_avx2, .hot = kvp_copy_plain, .name = "avx2"},
	{.cold = kvp_copy_sse2, .hot = kvp_copy_plain, .name = "sse2"},
	{.cold = kvp_copy_plain, .hot = kvp_copy_plain, .name = "plain"},
};

static bool
has_kernel(unsigned int index)
{
	__builtin_cpu_init();
	switch (index) {
	case 0:
		return __builtin_cpu_supports("avx512f") != 0;
	case 1:
		return __builtin_cpu_supports("avx2") != 0;
	default:
		return true;
	}
}
#else
static const struct kvp_copy_kernels kernels[KVP_COPY_KERNELS] = {
	[KVP_COPY_KERNELS - 1] = {.cold = kvp_copy_plain, .hot = kvp_copy_plain, .name = "plain"},
};

static bool
has_kernel(unsigned int index)
{
	return kernels[index].cold != NULL;
}
#endif

const struct kvp_copy_kernels *
kvp_copy_kernels_at(unsigned int index)
{
	if (index >= KVP_COPY_KERNELS || !has_kernel(index))
		return NULL;
	return &kernels[index];
}

const struct kvp_copy_kernels *
kvp_copy_kernels_choose(const char *wanted)
{
	const struct kvp_copy_kernels *best = NULL;

	for (unsigned int i = 0; i < KVP_COPY_KERNELS; i++) {
		const struct kvp_copy_kernels *one = kvp_copy_kernels_at(i);

		if (one == NULL)
			continue;
		if (wanted != NULL && strcmp(one->name, wanted) == 0)
			return one;
		if (best == NULL)
			best = one;
	}
	return best;
}

const struct kvp_copy_kernels *
kvp_copy_kernels(void)
{
	/* Two threads that come first together choose the same one. */
	static const struct kvp_copy_kernels *_Atomic chosen;
	const struct kvp_copy_kernels *now = atomic_load_explicit(&chosen, memory_order_relaxed);

	if (now == NULL) {
		now = kvp_copy_kernels_choose(getenv("KVP_COPY"));
		atomic_store_explicit(&chosen, now, memory_order_relaxed);
	}
	return now;
}
