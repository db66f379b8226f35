/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm.h"

#define CONTROL_BYTES CMSG_SPACE(KVP_SHM_FDS_MAX * sizeof(int))

bool
kvp_shm_socket_is_trusted(int sock, pid_t *pid_out, uint32_t *uid_out)
{
	struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
	socklen_t bytes = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
		peer.uid = (uid_t)-1;
	*pid_out = peer.pid;
	*uid_out = peer.uid;
	return peer.uid == geteuid();
}

int
kvp_shm_socket_open(struct kvp_shm_path *path, int sock)
{
	int rc;

	path->watch = (struct kvp_watch){
		.fd = sock, .events = EPOLLIN, .ready = kvp_shm_path_ready, .ctx = path};
	rc = kvp_reactor_add(path->base.config.dataplane->reactor, &path->watch);
	if (rc != 0)
		path->watch.fd = -1;
	return rc;
}

static void
drop_first(struct kvp_shm_path *path)
{
	struct kvp_shm_outgoing *first = path->out_first;

	path->out_first = first->next;
	if (first->next == NULL)
		path->out_last = NULL;
	free(first);
}

void
kvp_shm_socket_close(struct kvp_shm_path *path)
{
	while (path->out_first != NULL)
		drop_first(path);
	if (path->watch.fd < 0)
		return;
	kvp_reactor_remove(path->base.config.dataplane->reactor, &path->watch);
	close(path->watch.fd);
	path->watch.fd = -1;
	path->is_closed = true;
}

kvp_status
kvp_shm_socket_queue(struct kvp_shm_path *path, const struct kvp_shm_message *message,
		     const int *fd, uint32_t fds, struct kvp_error *err)
{
	struct kvp_shm_outgoing *outgoing = calloc(1, sizeof(*outgoing));

	if (outgoing == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "shm: no memory for a message");
	outgoing->message = *message;
	outgoing->fds = fds;
	for (uint32_t i = 0; i < fds; i++)
		outgoing->fd[i] = fd[i];
	if (path->out_last == NULL)
		path->out_first = outgoing;
	else
		path->out_last->next = outgoing;
	path->out_last = outgoing;
	return KVP_SUCCESS;
}

bool
kvp_shm_socket_unqueue(struct kvp_shm_path *path, uint32_t region)
{
	struct kvp_shm_outgoing *before = NULL;
	struct kvp_shm_outgoing *now = path->out_first;

	while (now != NULL &&
	       (now->message.type != KVP_SHM_REGION || now->message.region != region)) {
		before = now;
		now = now->next;
	}
	if (now == NULL)
		return false;
	if (before == NULL) {
		drop_first(path);
		return true;
	}
	before->next = now->next;
	if (path->out_last == now)
		path->out_last = before;
	free(now);
	return true;
}

static int
send_one(int sock, const struct kvp_shm_outgoing *outgoing)
{
	struct kvp_shm_message message = outgoing->message;
	struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
	union {
		struct cmsghdr head;
		char bytes[CONTROL_BYTES];
	} control;
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t sent;

	if (outgoing->fds > 0) {
		size_t fd_bytes = outgoing->fds * sizeof(int);

		memset(&control, 0, sizeof(control));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(fd_bytes);
		memcpy(CMSG_DATA(&control.head), outgoing->fd, fd_bytes);
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(fd_bytes);
	}
	do {
		sent = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0; /* a packet goes whole or not at all */
}

int
kvp_shm_socket_flush(struct kvp_shm_path *path)
{
	int rc = 0;

	if (path->watch.fd < 0)
		return 0; /* not connected yet: sent when it is */
	while (path->out_first != NULL && rc == 0) {
		rc = send_one(path->watch.fd, path->out_first);
		if (rc == 0)
			drop_first(path);
	}
	if (rc != 0 && rc != -EAGAIN)
		return rc;
	kvp_reactor_change(path->base.config.dataplane->reactor, &path->watch,
			   rc == 0 ? EPOLLIN : EPOLLIN | EPOLLOUT);
	return 0;
}

/* Descriptors of every control message, so that none leaks; more than `fd` holds are closed. */
static uint32_t
collect_fds(struct msghdr *msg, int *fd)
{
	uint32_t fds = 0;

	for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head != NULL;
	     head = CMSG_NXTHDR(msg, head)) {
		size_t count;

		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int one;

			memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof(one));
			if (fds < KVP_SHM_FDS_MAX)
				fd[fds++] = one;
			else
				close(one);
		}
	}
	return fds;
}

/* Has the message what its type needs, and the right number of descriptors? */
static bool
message_ok(const struct kvp_shm_message *message, uint32_t fds)
{
	if (message->magic != KVP_SHM_MAGIC)
		return false;
	switch (message->type) {
	case KVP_SHM_ATTACH:
		return message->endpoints >= 1 && message->endpoints <= KVP_ENDPOINTS_MAX &&
		       fds == 1 + message->endpoints;
	case KVP_SHM_REGION:
		return message->region >= 1 && message->bytes >= 1 && fds == 1;
	case KVP_SHM_REGION_GONE:
		return message->region >= 1 && fds == 0;
	default:
		return false;
	}
}

int
kvp_shm_socket_receive(int sock, struct kvp_shm_message *message_out, int *fd, uint32_t *fds_out)
{
	struct kvp_shm_message message;
	struct iovec iov = {.iov_base = &message, .iov_len = sizeof(message)};
	union {
		struct cmsghdr head;
		char bytes[CONTROL_BYTES];
	} control;
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	uint32_t fds;
	ssize_t got;

	do {
		got = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == EAGAIN ? 0 : -errno;
	fds = collect_fds(&msg, fd);
	if (got == 0 && fds == 0)
		return -EPIPE;
	if (got != (ssize_t)sizeof(message) || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
	    !message_ok(&message, fds)) {
		for (uint32_t i = 0; i < fds; i++)
			close(fd[i]);
		return -EPROTO;
	}
	*message_out = message;
	*fds_out = fds;
	return 1;
}
