/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#include <stddef.h>

#define STEPS_LOG2 KVP_HISTOGRAM_STEPS_LOG2
#define STEPS      (1U << STEPS_LOG2)
#define VALUE_MAX  ((UINT64_C(1) << 40) - 1)

_Static_assert(STEPS >= 100, "a bucket no wider than 1 % of its smallest value");

void
kvp_histogram_add_many(struct kvp_histogram *histogram, uint64_t value, uint64_t times)
{
	if (times == 0)
		return;
	if (value > VALUE_MAX)
		value = VALUE_MAX;
	if (value > histogram->max)
		histogram->max = value;
	histogram->count += times;
	histogram->sum += value * times;
	histogram->bucket[kvp_bucket_of(value, STEPS_LOG2)] += times;
}

void
kvp_histogram_add(struct kvp_histogram *histogram, uint64_t value)
{
	kvp_histogram_add_many(histogram, value, 1);
}

uint64_t
kvp_histogram_at(const struct kvp_histogram *histogram, double share)
{
	double want;
	uint64_t edge, rank, seen = 0;

	if (histogram->count == 0)
		return 0;
	if (share >= 1.0)
		return histogram->max;
	/* The slack keeps 0.07 * 100, which is 7.000000000000001, at the seventh value. */
	want = share > 0.0 ? share * (double)histogram->count * (1.0 - 1e-12) : 0.0;
	rank = (uint64_t)want;
	if ((double)rank < want || rank == 0)
		rank++;
	for (uint32_t i = 0; i < KVP_HISTOGRAM_BUCKETS; i++) {
		seen += histogram->bucket[i];
		if (seen < rank)
			continue;
		edge = kvp_bucket_edge(i, STEPS_LOG2);
		return edge < histogram->max ? edge : histogram->max;
	}
	return histogram->max;
}

void
kvp_histogram_merge(struct kvp_histogram *into, const struct kvp_histogram *from)
{
	into->count += from->count;
	into->sum += from->sum;
	if (from->max > into->max)
		into->max = from->max;
	for (uint32_t i = 0; i < KVP_HISTOGRAM_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
}
