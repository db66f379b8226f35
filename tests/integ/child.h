/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - an engine in another process, which does what it is told
 *
 * The child is this program again, with --child: engines start threads, so it
 * must not merely be forked. It dies with its parent.
 *
 * Threads:    one per child
 */
#ifndef KVP_TESTS_CHILD_H
#define KVP_TESTS_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "pair.h"

#define CHILD_SEED 77U /* content of its cache at first */

enum child_what {
	CHILD_LINK = 1, /* to port `arg` */
	CHILD_PUSH = 2, /* all of its cache to cache `cache` of cluster `arg`, with notify */
	CHILD_PUSH_FOREVER = 3, /* answers, then pushes until it dies */
	CHILD_FILL = 4,         /* the memory of its cache, from seed `arg` */
	CHILD_DIGEST = 5,       /* of all memory of its cache */
	CHILD_EVENT = 6, /* wait for an event of kind `arg`, passing over others; gives its tag */
};

struct child_spec {
	uint64_t cluster;
	uint32_t heartbeat_ms;
	uint32_t dead_ms;
	uint16_t port; /* 0 = any */
	char transports[16];
	struct pair_shape shape;
};

struct child {
	pid_t pid;
	int fd;
	uint16_t port;
	int64_t cache;
};

/* Start it and wait until it listens and has registered its cache. */
void
child_start(struct child *child, const struct child_spec *spec);
/* One command and its answer; *value_out may be NULL. */
kvp_status
child_ask(struct child *child, enum child_what what, uint64_t arg, int64_t cache,
	  uint64_t *value_out);
/* Send `number` and, unless that stops it, wait for its end. */
void
child_signal(struct child *child, int number);
/* Close its engine and see it exit with 0. */
void
child_stop(struct child *child);
/* Fork and exec argv[0] with `option`, its stdin being *fd_out, its stdout `out_fd` unless -1. */
pid_t
child_exec(const char *option, int out_fd, int *fd_out);
/* The --child side of main. */
int
child_main(void);

#endif /* KVP_TESTS_CHILD_H */
