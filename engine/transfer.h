/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - one push or pull from submit to its single terminal status
 *
 *   word:  PENDING -> (WAITED ->) DONE      the only hand-over to the application
 *   part:  MOVING -> (NOTIFYING) -> retired; a stopped part drains first
 *
 * An open push is one whose layers are submitted one by one (open.h): each is a transfer of its own inside the
 * push's allocation, and the push itself has one part without bytes per endpoint, which waits for them.
 *
 *   part of an open push:  WAITING -> (MOVING -> (NOTIFYING)) -> retired
 *
 * The application thread builds the transfer and its parts, lanes move and
 * retire the parts, and the lane that retires the last one sends the
 * notification, publishes the status and wakes the waiter: exactly once.
 *
 * Ownership:  the application frees it after DONE. A lane must not touch a part
 *             after kvp_transfer_retire returned true to it or handed on.
 * Threads:    [A] application  [L] lane of the part
 */
#ifndef KVP_ENGINE_TRANSFER_H
#define KVP_ENGINE_TRANSFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvpush/transfer.h>

#include "cursor.h"

#define KVP_PARTS_MAX 16U /* endpoints a transfer can be split over */
#define KVP_HOLDS     4U

enum kvp_transfer_word {
	KVP_WORD_PENDING = 0,
	KVP_WORD_WAITED = 1, /* somebody sleeps on the word (futex) */
	KVP_WORD_DONE = 2,
};

enum kvp_part_phase {
	KVP_PART_MOVING = 0,
	KVP_PART_NOTIFYING = 1, /* last part, all bytes landed, notification on its way */
	KVP_PART_STOPPING = 2,  /* posts nothing new, waits until its requests are accounted for */
	KVP_PART_WAITING = 3,   /* of an open push: layers are still to come, or under way */
};

struct kvp_endpoint;
struct kvp_lane;
struct kvp_view;
struct kvp_tally;
struct kvp_open;

struct kvp_part {
	/* const after submit */
	struct kvp_transfer *transfer;
	struct kvp_endpoint *endpoint;
	struct kvp_lane *lane; /* the endpoint's; stays valid after the endpoint is gone */
	uint64_t first;        /* byte of the plan that it starts at */
	uint64_t bytes;

	/* lane: rw */
	struct kvp_part
		*next; /* ring of the endpoint's active parts, or the lane's free use before */
	struct kvp_part *prev;
	struct kvp_cursor cursor;
	uint64_t stop_ns;        /* when it began to stop */
	uint64_t bytes_inflight; /* posted, not yet accounted for */
	uint64_t bytes_done;     /* landed */
	uint32_t requests_inflight;
	uint32_t passed;      /* the transport's, 0 at first: connections that carried data of it */
	uint32_t carried;     /* ... and whose arrival the receiver has to be told of */
	uint32_t told;        /* ... that the receiver was told about */
	uint32_t heard;       /* ... and that it has confirmed */
	uint32_t id;          /* the transport's, to find the part of an acknowledgement */
	uint8_t phase;        /* enum kvp_part_phase */
	uint8_t notify_state; /* the transport's, 0 at first */
	bool is_refused; /* the receiver takes no notification: once all bytes landed, its deadline
			    means NO_CREDIT */
};

struct kvp_transfer {
	/* const after submit */
	uint64_t id;
	uint64_t submit_ns;
	uint64_t deadline_ns; /* CLOCK_MONOTONIC */
	uint64_t plan_ns;
	struct kvp_plan plan;  /* memory behind it belongs to the transfer's allocation */
	size_t room;           /* bytes of the allocation */
	struct kvp_view *view; /* the path's handle of the remote cache */
	int64_t local_cache;
	int64_t remote_cache;
	_Atomic uint32_t *holds[KVP_HOLDS]; /* engine, link, local cache, remote cache: each counted
					       down at the end; NULL = none */
	struct kvp_tally *
		tally; /* of the link, one per lane: the publishing lane adds to its own; NULL = none */
	uint32_t parts;
	bool is_push;
	bool is_hot; /* small enough for cached copies: decided at submit */
	bool has_notify;
	uint16_t notify_bytes;
	uint16_t notify_layer; /* 1 + the destination layer it tells of; 0: of all */
	uint64_t notify_tag;
	struct kvp_transfer *whole; /* of a layer: the open push; else NULL */
	struct kvp_open *open;      /* of an open push: its layers; else NULL */
	uint8_t notify_payload[KVP_NOTIFY_BYTES_MAX];

	/* lanes and application: rw, atomics */
	KVP_SPAN_START _Atomic uint32_t word; /* enum kvp_transfer_word */
	_Atomic uint32_t parts_left;
	_Atomic uint32_t
		first_error; /* kvp_status; not SUCCESS = stop. First writer wins. After DONE
					 read it through kvp_transfer_status only. */
	_Atomic uint64_t moved;
	_Atomic uint64_t requests;
	_Atomic uint64_t end_ns; /* written before DONE */

	struct kvp_part part[KVP_PARTS_MAX];
};

/* [A][L] Ask the transfer to end with `why` unless an error came first. True when this call was first. */
bool
kvp_transfer_stop(struct kvp_transfer *transfer, kvp_status why);

/* [A][L] Should its parts stop? */
static inline bool
kvp_transfer_is_stopped(const struct kvp_transfer *transfer)
{
	return atomic_load_explicit(&transfer->first_error, memory_order_relaxed) != KVP_SUCCESS;
}

/*
 * [L] This part is through: nothing of it is in flight. Adds its bytes to `moved`.
 * Returns true when it was the last one, so that the caller goes on to notify
 * (when has_notify and not stopped) or to kvp_transfer_publish.
 */
bool
kvp_transfer_retire(struct kvp_transfer *transfer, struct kvp_part *part);

/*
 * [L] Lane number `lane` publishes the terminal status (first_error, or SUCCESS), drop the holds. Returns true when a
 * waiter sleeps on *word_out and must be woken; the transfer may already be freed then.
 */
bool
kvp_transfer_publish(struct kvp_transfer *transfer, uint32_t lane, uint64_t now_ns,
		     _Atomic uint32_t **word_out);

/* [A] The terminal status, or KVP_IN_PROGRESS. */
kvp_status
kvp_transfer_status(const struct kvp_transfer *transfer);

#endif /* KVP_ENGINE_TRANSFER_H */
