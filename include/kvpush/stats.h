/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats.h - what an engine, or one of its links, has moved so far
 *
 * Counted when a transfer ends; a link's numbers begin with the link, the
 * engine's with the engine and keep those of links that ended.
 *
 * Threads:    any. Numbers are read one by one while transfers go on: each is
 *             right, together they may be a transfer apart.
 */
#ifndef KVPUSH_STATS_H
#define KVPUSH_STATS_H

#include <stdint.h>

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_STATS_REASONS 12U

struct kvp_stats {
	uint64_t pushes, pulls; /* this engine's, that ended with SUCCESS */
	uint64_t failed;        /* that ended with anything else */
	uint64_t refused;       /* calls that were refused before a byte moved; 0 for a link */
	uint64_t in_flight;     /* transfers now */
	uint64_t links;         /* ready now; for a link 1 */
	uint64_t bytes;         /* landed, also of transfers that failed later */
	uint64_t pieces;        /* blocks x tensors, of transfers that ended well */
	uint64_t runs;          /* contiguous on both sides, of those */
	uint64_t requests;      /* handed to transports */
	/* From submit to the end of pushes and pulls that ended well. Percentiles are upper
	   edges of buckets 6 % wide. */
	uint64_t latency_mean_ns, latency_max_ns;
	uint64_t latency_p50_ns, latency_p90_ns, latency_p99_ns, latency_p999_ns;
	struct {
		kvp_status status; /* KVP_FAILED, the last, stands for all that have no place */
		uint64_t ended;    /* transfers that ended with it: together `failed` */
		uint64_t refused;  /* calls that returned it: together `refused` */
	} error[KVP_STATS_REASONS];
};

/* PARAM_INVALID: stats_out NULL. OUT_OF_MEMORY. */
KVP_API kvp_status
kvp_stats_query(struct kvp_engine *engine, struct kvp_stats *stats_out);

/* NOT_YET_LINK (*stats_out untouched): no link to that cluster. Else as kvp_stats_query. */
KVP_API kvp_status
kvp_stats_query_link(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_stats *stats_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_STATS_H */
