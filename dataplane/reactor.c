/* SPDX-License-Identifier: Apache-2.0 */
#include "reactor.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "wake.h"

int
kvp_reactor_init(struct kvp_reactor *reactor)
{
	/* The wake fd is the only member without a watch. */
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
	int epoll_fd;
	int wake_fd;
	int spare_fd;
	int rc;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0) {
		rc = -errno;
		goto close_epoll;
	}
	spare_fd = eventfd(0, EFD_CLOEXEC);
	if (spare_fd < 0) {
		rc = -errno;
		goto close_wake;
	}
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
		rc = -errno;
		goto close_spare;
	}
	reactor->spare_fd = spare_fd;
	reactor->epoll_fd = epoll_fd;
	reactor->wake_fd = wake_fd;
	reactor->lock = NULL;
	return 0;

close_spare:
	(void)close(spare_fd);
close_wake:
	(void)close(wake_fd);
close_epoll:
	(void)close(epoll_fd);
	return rc;
}

void
kvp_reactor_fini(struct kvp_reactor *reactor)
{
	if (reactor->spare_fd >= 0)
		(void)close(reactor->spare_fd);
	(void)close(reactor->wake_fd);
	(void)close(reactor->epoll_fd);
	reactor->spare_fd = -1;
	reactor->wake_fd = -1;
	reactor->epoll_fd = -1;
}

int
kvp_reactor_add(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	struct epoll_event event = {.events = watch->events, .data.ptr = watch};

	if (epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
		return -errno;
	return 0;
}

void
kvp_reactor_change(struct kvp_reactor *reactor, struct kvp_watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	if (watch->events == events)
		return;
	/* Fails only for an fd that is not in the set: the caller's mistake. */
	KVP_CHECK(epoll_ctl(reactor->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) == 0);
	watch->events = events;
}

void
kvp_reactor_remove(struct kvp_reactor *reactor, struct kvp_watch *watch)
{
	if (watch->fd < 0)
		return;
	(void)epoll_ctl(reactor->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
}

void
kvp_reactor_wait(struct kvp_reactor *reactor, int timeout_ms)
{
	struct epoll_event event;
	struct kvp_watch *watch;
	uint64_t wakes;

	/* EINTR counts as a wait that is over. */
	if (epoll_wait(reactor->epoll_fd, &event, 1, timeout_ms) != 1)
		return;
	watch = event.data.ptr;
	if (watch == NULL) {
		(void)!read(reactor->wake_fd, &wakes, sizeof(wakes));
		return;
	}
	if (reactor->lock != NULL)
		pthread_mutex_lock(reactor->lock);
	watch->ready(watch, event.events);
	if (reactor->lock != NULL)
		pthread_mutex_unlock(reactor->lock);
}

void
kvp_reactor_wake(struct kvp_reactor *reactor)
{
	kvp_wake_fd(reactor->wake_fd);
}

int
kvp_reactor_accept(struct kvp_reactor *reactor, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	int rc = errno;

	if (fd >= 0)
		return fd;
	if (rc != EMFILE && rc != ENFILE)
		return -rc;
	if (reactor->spare_fd >= 0)
		(void)close(reactor->spare_fd);
	fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		(void)close(fd);
	reactor->spare_fd = eventfd(0, EFD_CLOEXEC);
	return -rc;
}
