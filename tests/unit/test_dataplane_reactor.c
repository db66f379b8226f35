/* SPDX-License-Identifier: Apache-2.0 */
#include "reactor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "wake.h"

#define NS_PER_MS 1000000U

struct seen {
	struct kvp_reactor reactor;
	struct kvp_watch watch[2];
	uint32_t calls[2];
	uint32_t events[2];
	bool removes_other; /* the callback removes the other watch */
};

static void
ready(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct seen *seen = watch->ctx;
	size_t i = watch == &seen->watch[0] ? 0 : 1;

	seen->calls[i]++;
	seen->events[i] = epoll_events;
	if (seen->removes_other)
		kvp_reactor_remove(&seen->reactor, &seen->watch[1 - i]);
}

static void
set_up(struct seen *seen)
{
	*seen = (struct seen){.removes_other = false};
	assert_int_equal(kvp_reactor_init(&seen->reactor), 0);
	for (size_t i = 0; i < 2; i++) {
		seen->watch[i] = (struct kvp_watch){.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
						    .events = EPOLLIN,
						    .ready = ready,
						    .ctx = seen};
		assert_true(seen->watch[i].fd >= 0);
		assert_int_equal(kvp_reactor_add(&seen->reactor, &seen->watch[i]), 0);
	}
}

static void
tear_down(struct seen *seen)
{
	for (size_t i = 0; i < 2; i++) {
		kvp_reactor_remove(&seen->reactor, &seen->watch[i]);
		(void)close(seen->watch[i].fd);
	}
	kvp_reactor_fini(&seen->reactor);
}

static void
reactor_add__refuses_bad_and_double_fds(void **state)
{
	struct seen seen;
	struct kvp_watch bad = {.fd = -1, .events = EPOLLIN, .ready = ready, .ctx = &seen};

	(void)state;
	set_up(&seen);
	assert_int_equal(kvp_reactor_add(&seen.reactor, &bad), -EBADF);
	assert_int_equal(kvp_reactor_add(&seen.reactor, &seen.watch[0]), -EEXIST);
	tear_down(&seen);
}

static void
reactor_wait__nothing_ready_times_out(void **state)
{
	struct seen seen;
	uint64_t start_ns;

	(void)state;
	set_up(&seen);
	start_ns = kvp_now_ns();
	kvp_reactor_wait(&seen.reactor, 20);
	assert_true(kvp_now_ns() - start_ns >= 20U * NS_PER_MS);
	assert_int_equal(seen.calls[0] + seen.calls[1], 0);
	tear_down(&seen);
}

static void
reactor_wait__one_event_per_wait_so_a_callback_may_remove_any(void **state)
{
	struct seen seen;

	(void)state;
	set_up(&seen);
	kvp_wake_fd(seen.watch[0].fd);
	kvp_wake_fd(seen.watch[1].fd);
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0] + seen.calls[1], 1);
	/* Level-triggered and in turn: the other one is next, though the first is still readable. */
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0], 1);
	assert_int_equal(seen.calls[1], 1);

	seen.removes_other = true;
	for (int i = 0; i < 4; i++)
		kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0] + seen.calls[1], 6);
	assert_true(seen.calls[0] == 1 || seen.calls[1] == 1);
	tear_down(&seen);
}

static void
reactor_change__asks_for_other_events(void **state)
{
	struct seen seen;

	(void)state;
	set_up(&seen);
	kvp_reactor_change(&seen.reactor, &seen.watch[0], EPOLLIN | EPOLLOUT);
	assert_int_equal(seen.watch[0].events, EPOLLIN | EPOLLOUT);
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0], 1);
	assert_int_equal(seen.events[0], EPOLLOUT);
	kvp_reactor_change(&seen.reactor, &seen.watch[0], EPOLLIN);
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0], 1);
	tear_down(&seen);
}

static void
reactor_remove__unknown_watch_is_ignored(void **state)
{
	struct seen seen;
	struct kvp_watch never = {.fd = -1};

	(void)state;
	set_up(&seen);
	kvp_reactor_remove(&seen.reactor, &never);
	kvp_reactor_remove(&seen.reactor, &seen.watch[0]);
	kvp_reactor_remove(&seen.reactor, &seen.watch[0]);
	kvp_wake_fd(seen.watch[0].fd);
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0], 0);
	assert_int_equal(kvp_reactor_add(&seen.reactor, &seen.watch[0]), 0);
	kvp_reactor_wait(&seen.reactor, 0);
	assert_int_equal(seen.calls[0], 1);
	tear_down(&seen);
}

static void *
wake_main(void *arg)
{
	kvp_reactor_wake(arg);
	return NULL;
}

static void
reactor_wake__ends_the_current_or_the_next_wait_once(void **state)
{
	struct seen seen;
	pthread_t waker;
	uint64_t start_ns;

	(void)state;
	set_up(&seen);
	kvp_reactor_wake(&seen.reactor);
	kvp_reactor_wake(&seen.reactor);
	kvp_reactor_wait(&seen.reactor, -1);
	start_ns = kvp_now_ns();
	kvp_reactor_wait(&seen.reactor, 10);
	assert_true(kvp_now_ns() - start_ns >= 10U * NS_PER_MS);

	assert_int_equal(pthread_create(&waker, NULL, wake_main, &seen.reactor), 0);
	kvp_reactor_wait(&seen.reactor, -1);
	assert_int_equal(pthread_join(waker, NULL), 0);
	assert_int_equal(seen.calls[0] + seen.calls[1], 0);
	tear_down(&seen);
}

static _Atomic uint32_t shared_word;

static void *
set_word_main(void *arg)
{
	atomic_store_explicit(&shared_word, 1, memory_order_release);
	kvp_wake_word(&shared_word);
	return arg;
}

static void
sleep_word__other_value_timeout_and_wake(void **state)
{
	pthread_t waker;
	uint64_t start_ns = kvp_now_ns();

	(void)state;
	kvp_sleep_word(&shared_word, 1, UINT64_MAX);
	kvp_sleep_word(&shared_word, 0, 20U * NS_PER_MS);
	assert_true(kvp_now_ns() - start_ns >= 20U * NS_PER_MS);
	assert_int_equal(pthread_create(&waker, NULL, set_word_main, NULL), 0);
	while (atomic_load_explicit(&shared_word, memory_order_acquire) == 0)
		kvp_sleep_word(&shared_word, 0, UINT64_MAX);
	assert_int_equal(pthread_join(waker, NULL), 0);
}

static void
wake_fd__a_full_counter_does_not_block(void **state)
{
	const uint64_t full = UINT64_MAX - 1;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &full, sizeof(full)), sizeof(full));
	kvp_wake_fd(fd);
	(void)close(fd);
}

/* Descriptors run out: the peer is told by a close, the listener falls silent, and later all is well. */
static void
reactor_accept__without_descriptors_closes_instead_of_firing(void **state)
{
	const struct sockaddr_un at = {.sun_family = AF_UNIX}; /* autobind: an abstract name */
	struct sockaddr_un name;
	socklen_t bytes = sizeof(name);
	struct pollfd fired = {.events = POLLIN};
	struct rlimit before, none;
	struct kvp_reactor reactor;
	int client[3];
	char byte;
	int fd;

	(void)state;
	assert_int_equal(kvp_reactor_init(&reactor), 0);
	fired.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fired.fd, (const struct sockaddr *)&at, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fired.fd, 8), 0);
	assert_int_equal(getsockname(fired.fd, (struct sockaddr *)&name, &bytes), 0);
	for (int i = 0; i < 3; i++) {
		client[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		assert_true(client[i] >= 0);
	}
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)client[2] + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(connect(client[i], (struct sockaddr *)&name, bytes), 0);
		assert_int_equal(poll(&fired, 1, 1000), 1);
		assert_int_equal(kvp_reactor_accept(&reactor, fired.fd), -EMFILE);
		assert_int_equal(poll(&fired, 1, 0), 0);
		assert_int_equal(read(client[i], &byte, 1), 0);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(connect(client[2], (struct sockaddr *)&name, bytes), 0);
	fd = kvp_reactor_accept(&reactor, fired.fd);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(kvp_reactor_accept(&reactor, fired.fd), -EAGAIN);
	(void)close(fd);
	for (int i = 0; i < 3; i++)
		(void)close(client[i]);
	(void)close(fired.fd);
	kvp_reactor_fini(&reactor);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reactor_add__refuses_bad_and_double_fds),
		cmocka_unit_test(reactor_wait__nothing_ready_times_out),
		cmocka_unit_test(reactor_wait__one_event_per_wait_so_a_callback_may_remove_any),
		cmocka_unit_test(reactor_change__asks_for_other_events),
		cmocka_unit_test(reactor_remove__unknown_watch_is_ignored),
		cmocka_unit_test(reactor_wake__ends_the_current_or_the_next_wait_once),
		cmocka_unit_test(sleep_word__other_value_timeout_and_wake),
		cmocka_unit_test(wake_fd__a_full_counter_does_not_block),
		cmocka_unit_test(reactor_accept__without_descriptors_closes_instead_of_firing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
