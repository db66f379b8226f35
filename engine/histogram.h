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

struct kvp_histogram {
	uint64_t count;
	uint64_t max;
	uint64_t sum;
	uint64_t bucket[KVP_HISTOGRAM_BUCKETS];
};

/* All zeroes is the empty histogram. */
void
kvp_histogram_add(struct kvp_histogram *histogram, uint64_t value);

/* Value at `share` in [0, 1] (0.5 = median): the upper edge of its bucket, at most max; 0 when empty. */
uint64_t
kvp_histogram_at(const struct kvp_histogram *histogram, double share);

void
kvp_histogram_merge(struct kvp_histogram *into, const struct kvp_histogram *from);

#endif /* KVP_ENGINE_HISTOGRAM_H */
