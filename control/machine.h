/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - what this machine, and the container or unit around this process, let it do
 *
 * Threads:    any; reads files, keeps nothing
 */
#ifndef KVP_CONTROL_MACHINE_H
#define KVP_CONTROL_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#define KVP_MACHINE_RDMA_MAX 256

struct kvp_machine {
	uint64_t memlock;    /* RLIMIT_MEMLOCK in bytes, UINT64_MAX = no limit */
	uint64_t pinned;     /* bytes that count against it already */
	bool may_lock;       /* CAP_IPC_LOCK is effective: the limit does not count */
	uint64_t huge_pages; /* of 2 MiB, in all */
	uint64_t huge_free;  /* of them */
	uint32_t cores;      /* that this thread may run on */
	uint64_t quota_us;   /* CPU time of the tightest control group per period, 0 = no quota */
	uint64_t period_us;
	char rdma
		[KVP_MACHINE_RDMA_MAX]; /* RDMA limits of control groups, "mlx5_0 hca_handle=2 ...", "" = none */
};

/* Look. `root` is put before the names of files: "" for the real ones. What cannot be read is as if not limited. */
void
kvp_machine_read(const char *root, struct kvp_machine *machine_out);

#endif /* KVP_CONTROL_MACHINE_H */
