/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histogram.h - log-linear histogram of nanoseconds, relative error <= 1 %
 *
 * Shape:      values in [0, 2^40), larger ones count as the largest; 128 linear
 *             steps per power of two, so a bucket is at most 1/128 of its values wide
 * Threads:    one writer; merge and read when it is quiet
 */
#ifndef KVP_ENGINE_HISTOGRAM_H
#define KVP_ENGINE_HISTOGRAM_H

#include <stdint.h>

#define KVP_HISTOGRAM_STEPS_LOG2 7
#define KVP_HISTOGRAM_BUCKETS    ((41 - KVP_HISTOGRAM_STEPS_LOG2) << KVP_HISTOGRAM_STEPS_LOG2)

/* Of log-linear histograms with 2^steps_log2 steps per power of two: values below that have a bucket each. */
static inline uint32_t
kvp_bucket_of(uint64_t value, uint32_t steps_log2)
{
	uint32_t shift;

	if (value >> steps_log2 == 0)
		return (uint32_t)value;
	/* Above, the power picks the row and the next bits the step. */
	shift = 63U - (uint32_t)__builtin_clzll(value) - steps_log2;
	return ((shift + 1) << steps_log2) + (uint32_t)(value >> shift) - (1U << steps_log2);
}

/* The largest value that falls into the bucket. */
static inline uint64_t
kvp_bucket_edge(uint32_t bucket, uint32_t steps_log2)
{
	uint32_t steps = 1U << steps_log2, shift;

	if (bucket < steps)
		return bucket;
	shift = (bucket >> steps_log2) - 1;
	return ((UINT64_C(1) + steps + bucket % steps) << shift) - 1;
}

struct kvp_histogram {
	uint64_t count;
	uint64_t max;
	uint64_t sum;
	uint64_t bucket[KVP_HISTOGRAM_BUCKETS];
};

/* All zeroes is the empty histogram. */
void
kvp_histogram_add(struct kvp_histogram *histogram, uint64_t value);

/* The same value so many times. */
void
kvp_histogram_add_many(struct kvp_histogram *histogram, uint64_t value, uint64_t times);

/* Value at `share` in [0, 1] (0.5 = median): the upper edge of its bucket, at most max; 0 when empty. */
uint64_t
kvp_histogram_at(const struct kvp_histogram *histogram, double share);

void
kvp_histogram_merge(struct kvp_histogram *into, const struct kvp_histogram *from);

#endif /* KVP_ENGINE_HISTOGRAM_H */
