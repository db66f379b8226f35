/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.h - opening and closing an engine
 *
 * An engine is one cluster id, its caches, its links and its lanes (polling
 * threads). Several engines may live in one process.
 *
 * Ownership:  kvp_open gives a handle that kvp_close takes back
 * Threads:    every call may come from any thread; kvp_close must be the last
 *             call on its engine. A child made by fork must not use the handle:
 *             calls there return KVP_FAILED.
 */
#ifndef KVPUSH_ENGINE_H
#define KVPUSH_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvp_engine; /* opaque */

/* LLM-DataDist's LlmRole. Told to peers; what it forbids is the setting role_rule. */
enum kvp_role {
	KVP_ROLE_PROMPT = 1,
	KVP_ROLE_DECODER = 2,
	KVP_ROLE_MIX = 3
};

enum kvp_role_rule {
	KVP_ROLE_LABEL = 0,  /* the role forbids nothing */
	KVP_ROLE_STRICT = 1, /* a decoder's pushes and a prompt's pulls are FAILED */
};

/* What a lane does when it has nothing to do. */
enum kvp_idle {
	KVP_IDLE_ADAPTIVE = 0, /* spin, pause, yield, then sleep until woken: for shared cores */
	KVP_IDLE_POLL = 1,     /* spin for ever: for cores given to the lane */
};

#define KVP_TEXT_MAX 128 /* bytes of a text setting, with its NUL */

/*
 * One field per setting, named as its `key=value` key. Fill with
 * kvp_config_init, change by name, pass to kvp_open.
 */
struct kvp_config {
	size_t size;         /* sizeof(struct kvp_config), set by kvp_config_init */
	uint64_t cluster_id; /* unique among linked peers; default 0 */
	uint32_t role;       /* enum kvp_role, or prompt|decoder|mix; default mix */
	uint32_t role_rule;  /* enum kvp_role_rule, or label|strict; default label */
	uint32_t lanes;      /* polling threads, [1, 16]; default 1 */
	char listen
		[KVP_TEXT_MAX]; /* "ipv4:port" or "[ipv6]:port", port 0 = any; "" = do not listen */
	char transports[KVP_TEXT_MAX]; /* order of preference; default "verbs,shm,tcp" */
	char peer_rights
		[KVP_TEXT_MAX]; /* what peers may do to this engine's caches: "push,pull", "push", "pull"
					   or "". Peers on this host that move by shm are asked, not
					   stopped: they map the memory. Default "push,pull" */
	char lane_cpus[KVP_TEXT_MAX]; /* "2,3": CPU of lane 0, 1, ...; "" = not pinned */
	uint32_t idle;                /* enum kvp_idle, or adaptive|poll; default adaptive */
	uint32_t idle_us; /* adaptive: sleep after this much idleness, [0, 1000000]; default 100 */
	uint32_t timeout_ms;   /* of a call that gives 0, [1, 3600000]; default 1000 */
	uint32_t heartbeat_ms; /* [10, 60000]; default 1000 */
	uint32_t
		dead_ms; /* silence after which a peer is lost, [30, 600000], > heartbeat_ms; default 3000 */
	uint32_t streams; /* tcp streams per link, [1, 16]; default 2 */
	char verbs_devices
		[KVP_TEXT_MAX]; /* "mlx5_0,mlx5_1:2": RDMA devices or ports to use, in this order, and an
				   error when they are not there; "" = every one that is active, nearest first */
	uint32_t verbs_gid_index; /* [0, 255] of the GID table, 255 = chosen by rule; default 255 */
	uint32_t verbs_rails;     /* ports of one link at most, [1, 4]; default 4 */
	uint32_t verbs_qps;       /* queue pairs per peer and rail, [1, 8]; default 2 */
	uint32_t verbs_mtu; /* 256, 512, 1024, 2048, 4096, or 0 = what both ports have; default 0 */
	uint32_t verbs_traffic_class; /* [0, 255], DSCP is a quarter of it; default 106 */
	uint32_t verbs_service_level; /* [0, 15]; default 0 */
	uint32_t
		verbs_timeout; /* [1, 31], of an acknowledgement: 4.096 us x 2^n; default 16 (0.27 s) */
	uint32_t verbs_retry; /* times a request is sent again, [0, 7]; default 6. Some providers
				   take 7 for ever */
	uint32_t
		verbs_rnr_retry; /* the same when the peer has no receive posted, [0, 6]; default 6 */
	uint32_t verbs_rnr_timer; /* [1, 31], code of the wait before that; default 12 (0.64 ms) */
	uint32_t verbs_pieces;    /* gathered by one request at most, [1, 30]; default 30 */
	uint32_t
		max_transfers; /* in flight per engine and lane, power of two in [16, 65536]; default 4096 */
	uint32_t max_events;      /* not yet polled, [16, 65536]; default 4096 */
	uint32_t window_requests; /* outstanding per endpoint and transfer, [1, 1024]; default 32 */
	uint32_t window_kib; /* outstanding per endpoint and transfer, [64, 65536]; default 4096 */
	uint32_t
		huge_pages; /* 1: caches from 2 MiB pages, an error when there are none; default 0 */
	uint32_t
		insecure; /* 1: allow control connections off loopback without encryption; default 0 */
	uint32_t
		eal_mem_mb; /* DPDK heap, first engine of the process decides, [16, 4096]; default 64 */
	uint32_t
		log_level; /* 0 silent, 1 error, 2 warning, 3 info, 4 debug, on stderr; default 2 */
};

/* Fill *config with the defaults above. `config` NULL is ignored. [any thread] */
KVP_API void
kvp_config_init(struct kvp_config *config);

/*
 * Set one field from "key=value". PARAM_INVALID (*config untouched): NULL, no
 * '=', unknown key, value not of the field's form or out of its range.
 */
KVP_API kvp_status
kvp_config_set(struct kvp_config *config, const char *setting);

/* Print all keys, one "key<TAB>default<TAB>range and meaning" per line, into `text` as snprintf does. */
KVP_API int
kvp_config_help(char *text, size_t size);

/*
 * Start an engine: EAL on first use in this process (own helper thread; the
 * caller's CPU affinity, signal mask and stdout stay as they are), lanes, the
 * control thread, the listener. *engine_out is written only on success.
 * PARAM_INVALID: a field out of range, or `size` wrong (struct of another
 * version). ADDRESS: `listen` malformed, not of this host, port taken, or off
 * loopback without `insecure`. NO_RESOURCE: threads, descriptors, cores,
 * lane_cpus not available, or EAL failed. OUT_OF_MEMORY. Nothing is left behind.
 */
KVP_API kvp_status
kvp_open(const struct kvp_config *config, struct kvp_engine **engine_out);

/* kvp_config_init, kvp_config_set for each of `count` settings, kvp_open. Errors of all three. */
KVP_API kvp_status
kvp_open_settings(const char *const *settings, size_t count, struct kvp_engine **engine_out);

/*
 * Cancel what is in flight, tell peers, stop threads, release caches (memory
 * from kvp_cache_allocate and kvp_memory_allocate is unmapped). NULL is a no-op.
 * Transfers not yet freed stay valid for kvp_transfer_test and _free.
 */
KVP_API void
kvp_close(struct kvp_engine *engine);

/*
 * Change the role, and the listener with it. `listen` as the setting: another address moves the listener, ""
 * stops it, the same one or NULL leaves it. Connections that were taken stay.
 * PARAM_INVALID: not an enum kvp_role. EXIST_LINK: unlink first. ADDRESS, NO_RESOURCE: as kvp_open; role and
 * listener are as before.
 */
KVP_API kvp_status
kvp_set_role(struct kvp_engine *engine, uint32_t role, const char *listen);

/* The listener's port, for `listen=...:0`; 0 when not listening or `engine` is NULL. */
KVP_API uint16_t
kvp_port(const struct kvp_engine *engine);

/* "0.1.0" */
KVP_API const char *
kvp_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KVPUSH_ENGINE_H */
