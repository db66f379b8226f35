/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.h - one control connection: frames in, frames out, never waiting
 *
 * Invariant:  at most KVP_CHANNEL_QUEUE_MAX bytes queued for a peer that does
 *             not read: then the channel breaks, not our memory
 * Threads:    [C] control thread
 */
#ifndef KVP_CONTROL_CHANNEL_H
#define KVP_CONTROL_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/status.h>

#include "error.h"
#include "reactor.h"
#include "wire.h"

#define KVP_CHANNEL_QUEUE_MAX (16U << 20) /* bytes */
#define KVP_CHANNEL_STALL_MS  5000U       /* for one frame to arrive whole */

struct kvp_channel;

struct kvp_channel_events {
	/* A whole, checked frame. May close the channel; must not free it. */
	void (*frame)(struct kvp_channel *channel, uint8_t type, const uint8_t *body,
		      uint32_t bytes);
	/* Connected (initiator only). */
	void (*connected)(struct kvp_channel *channel);
	/* Broken or closed by the peer; the channel is already shut. */
	void (*closed)(struct kvp_channel *channel, kvp_status status,
		       const struct kvp_error *error);
};

struct kvp_channel {
	struct kvp_watch watch; /* ctx = the channel */
	struct kvp_reactor *reactor;
	const struct kvp_channel_events *events;
	void *owner;
	uint32_t body_max; /* early limit until the peer is known */
	bool is_connecting;
	uint64_t heard_ns; /* last bytes came */
	uint64_t frame_ns; /* the frame now arriving began, 0 = none */
	uint8_t header[KVP_FRAME_HEADER];
	uint32_t header_bytes; /* so far */
	struct kvp_frame_header frame;
	uint8_t *body;
	uint32_t body_bytes; /* so far */
	uint32_t body_size;  /* allocated */
	uint8_t *queue;      /* to send */
	size_t queue_bytes, queue_sent, queue_size;
};

/* Take over a connected or connecting nonblocking socket. 0, or -errno (fd still the caller's). */
KVP_MUST_USE int
kvp_channel_open(struct kvp_channel *channel, struct kvp_reactor *reactor, int fd,
		 bool is_connecting, const struct kvp_channel_events *events, void *owner);
/* Change hands, with what has arrived so far; `to` must be closed. The frame being delivered stays valid. */
void
kvp_channel_move(struct kvp_channel *to, struct kvp_channel *from,
		 const struct kvp_channel_events *events, void *owner);
/* Close the socket and free the buffers. Closing twice is a no-op. */
void
kvp_channel_close(struct kvp_channel *channel);
/* Hand the socket out (a STREAM connection); the channel is closed without it. */
int
kvp_channel_release(struct kvp_channel *channel);
bool
kvp_channel_is_open(const struct kvp_channel *channel);
/* Has a frame been arriving for longer than KVP_CHANNEL_STALL_MS? */
bool
kvp_channel_is_stalled(const struct kvp_channel *channel, uint64_t now_ns);
/*
 * Queue one encoded frame and send what the socket takes. False: the queue is full, memory ran out
 * or the socket broke; the caller ends the connection.
 */
bool
kvp_channel_send(struct kvp_channel *channel, const uint8_t *frame, size_t bytes);

#endif /* KVP_CONTROL_CHANNEL_H */
