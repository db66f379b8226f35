/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reactor.h - one epoll set with callbacks, for the control thread
 *
 * Dispatches one event per wait, so that a callback may remove any watch.
 *
 * Ownership:  a watch is the caller's, kept until kvp_reactor_remove
 * Threads:    one thread per reactor; kvp_reactor_wake from any
 */
#ifndef KVP_DATAPLANE_REACTOR_H
#define KVP_DATAPLANE_REACTOR_H

#include <pthread.h>
#include <stdint.h>

#include "compiler.h"

struct kvp_watch;
typedef void (*kvp_ready_fn)(struct kvp_watch *watch, uint32_t epoll_events);

struct kvp_watch {
	int fd;
	uint32_t events; /* EPOLLIN | EPOLLOUT */
	kvp_ready_fn ready;
	void *ctx;
};

struct kvp_reactor {
	int epoll_fd;
	int wake_fd;
	int spare_fd; /* given up for a moment when descriptors have run out; -1: it was, and none came back */
	pthread_mutex_t
		*lock; /* held around callbacks, not while waiting; NULL after init = none */
};

/* 0, or -errno (nothing left open). */
KVP_MUST_USE int
kvp_reactor_init(struct kvp_reactor *reactor);
void
kvp_reactor_fini(struct kvp_reactor *reactor);
/* 0, or -errno. */
KVP_MUST_USE int
kvp_reactor_add(struct kvp_reactor *reactor, struct kvp_watch *watch);
/* Change the events waited for. */
void
kvp_reactor_change(struct kvp_reactor *reactor, struct kvp_watch *watch, uint32_t events);
/* Does not close the fd. A watch that is not in the set is ignored. */
void
kvp_reactor_remove(struct kvp_reactor *reactor, struct kvp_watch *watch);
/* Wait at most `timeout_ms` (-1 = for ever) for one event or a wake, call its function. */
void
kvp_reactor_wait(struct kvp_reactor *reactor, int timeout_ms);
/* [any thread] Make the current or next wait return. */
void
kvp_reactor_wake(struct kvp_reactor *reactor);

/*
 * Accept from a nonblocking listener: a nonblocking, close-on-exec descriptor, or -errno. When
 * descriptors have run out (-EMFILE, -ENFILE) the waiting connection is taken and closed: left
 * alone, the listener would fire for ever.
 */
KVP_MUST_USE int
kvp_reactor_accept(struct kvp_reactor *reactor, int listener);

#endif /* KVP_DATAPLANE_REACTOR_H */
