/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_pin.h - MRs of stretches, made and freed in parallel; for verbs_memory.c and tests
 *
 * A pin is all-or-nothing: what RLIMIT_MEMLOCK or max_mr would refuse is refused before the first
 * page is pinned, and after a refusal by a device what was made is freed again.
 *
 * Ownership:  registrations are the caller's; their MRs exist from pin to unpin
 * Threads:    one caller at a time; helpers are joined before a call returns, signals blocked in them
 */
#ifndef KVP_VERBS_PIN_H
#define KVP_VERBS_PIN_H

#include <sys/types.h>

#include "verbs.h"

#define KVP_VERBS_PIN_THREADS 8U

/* A part of a stretch: one MR per device. */
struct kvp_verbs_pinned {
	uint64_t address;
	uint64_t bytes;
	struct ibv_mr *mr[KVP_VERBS_DEVICES_MAX]; /* NULL: not on that device, it is fatal */
};

struct kvp_verbs_registration {
	uint64_t address;
	uint64_t bytes;
	uint32_t users;  /* caches */
	uint32_t owners; /* those of them whose own stretch is all of it */
	/* A dma-buf: which one, and where in it `address` is. */
	bool is_device;
	dev_t device;
	ino_t inode;
	uint64_t offset;
	uint64_t pages; /* bytes pinned and counted against RLIMIT_MEMLOCK, over all devices */
	uint32_t spans;
	struct kvp_verbs_pinned span[];
};

/* What is pinned already. */
struct kvp_verbs_pins {
	struct kvp_verbs_devices *devices;
	unsigned int access; /* enum ibv_access_flags */
	uint64_t pages;      /* as in kvp_verbs_registration, of all */
	uint64_t mrs;        /* per device */
};

/* Make the MRs of registration[0..count) and count them in `pins`. `fd`: of their dma-buf, or -1. */
KVP_MUST_USE kvp_status
kvp_verbs_pin(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
	      uint32_t count, int fd, struct kvp_error *err);
void
kvp_verbs_unpin(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
		uint32_t count);

#endif /* KVP_VERBS_PIN_H */
