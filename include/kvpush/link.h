/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - the relation to one peer engine
 *
 * A link is usable from both ends, whoever asked for it: after A linked to B,
 * B can push to A under the cluster id that A declared.
 */
#ifndef KVPUSH_LINK_H
#define KVPUSH_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_LINKS_MAX 1024U /* per engine */

/*
 * Link to the engine that listens on `address` ("ipv4:port", "[ipv6]:port") and
 * wait until both ends are ready. timeout_ms 0 = the engine's. The peer's
 * declared cluster id goes to *cluster_id_out (may be NULL).
 * PARAM_INVALID: NULL, or the peer has this engine's own cluster id. ADDRESS:
 * malformed, or off loopback without `insecure`. LINK_FAILED: nobody listens, or
 * the peer refused. PROTOCOL: the peer is not kvpush, or of another protocol
 * version. NO_TRANSPORT: none of both lists in common reaches (the message says
 * why for each). ALREADY_LINK, PROCESSING_LINK. TIMEOUT. NO_RESOURCE. No link
 * exists after an error, except ALREADY_LINK.
 */
KVP_API kvp_status
kvp_link(struct kvp_engine *engine, const char *address, uint32_t timeout_ms,
	 uint64_t *cluster_id_out);

/*
 * End the link: transfers on it end with KVP_NOT_YET_LINK, the peer is told
 * and drops its side. Unknown cluster: SUCCESS. force 1: do not wait for the
 * peer. NOTIFY_UNLINK_FAILED: the peer did not answer in time; gone on this side.
 */
KVP_API kvp_status
kvp_unlink(struct kvp_engine *engine, uint64_t cluster_id, uint32_t timeout_ms, int force);

enum kvp_link_state {
	KVP_LINK_CONNECTING = 1,
	KVP_LINK_READY = 2,
	KVP_LINK_CLOSING = 3,
};

struct kvp_link_info {
	uint64_t cluster_id;
	uint32_t state; /* enum kvp_link_state */
	uint32_t role;  /* enum kvp_role the peer declared */
	uint32_t endpoints;
	uint32_t remote_caches; /* in the peer's catalogue */
	char address[64];       /* peer of the control connection */
	char path
		[704]; /* what moves the bytes, and why: "shm (mapped, boot 1f..)", "tcp (2 streams,
			   10.0.0.1); not verbs: no RDMA device"; rails of verbs as they are now */
	uint64_t bytes_out, bytes_in; /* by this engine's pushes, pulls */
	uint64_t transfers_ok, transfers_failed;
	uint64_t requests, pieces; /* handed to the transport */
	uint64_t
		doorbells; /* hand-overs to the device, each of up to 16 requests; 0 where there is none */
	uint64_t gathered;    /* pieces of memory that requests named */
	uint64_t completions; /* taken from the device */
	uint64_t replayed;    /* requests made again after a connection broke */
	uint64_t silence_ms;  /* since the peer's last frame */
};

/* NOT_YET_LINK (*info_out untouched) when there is no link to `cluster_id`. PARAM_INVALID. */
KVP_API kvp_status
kvp_link_query(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_link_info *info_out);

/* Cluster ids of all links, at most `max`; *count_out is the number there are. */
KVP_API kvp_status
kvp_link_list(struct kvp_engine *engine, uint64_t *cluster_ids, size_t max, size_t *count_out);

/* A cache of a peer, as it was announced. */
struct kvp_remote_info {
	int64_t cache_id;
	uint32_t num_tensors;
	uint32_t unused;
	uint64_t num_blocks;
	uint64_t block_bytes; /* of its first tensor */
};

/*
 * The caches of a linked peer, in no order, at most `max`; *count_out is the number there are. Asks the
 * peer, so that what it registered before this call is among them. Outputs untouched: NOT_YET_LINK,
 * PARAM_INVALID, TIMEOUT (the engine's timeout_ms).
 */
KVP_API kvp_status
kvp_remote_list(struct kvp_engine *engine, uint64_t cluster_id, struct kvp_remote_info *infos,
		size_t max, size_t *count_out);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_LINK_H */
