/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_ring.h - notifications from one process to another through shared memory
 *
 * A bounded ring for one writer and one reader that do not trust each other:
 * what the other side writes is read once, checked, and otherwise only copied.
 *
 * Shape:      64 records of 384 bytes; free-running 32-bit counters
 * Invariant:  head - tail is in [0, KVP_SHM_SLOTS], modulo 2^32, or the other
 *             side broke the ring
 * Ownership:  the reader's engine made the memory; all of it is zero at first
 * Threads:    [W] lane of the writing endpoint  [R] lane of the reading endpoint
 */
#ifndef KVP_SHM_RING_H
#define KVP_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvpush/transfer.h>

#include "compiler.h"

#define KVP_SHM_SLOTS 64U /* power of two */

/* Atomic so that what was checked is what is used, whatever the peer writes meanwhile. */
struct kvp_shm_record {
	_Atomic uint64_t tag;
	_Atomic uint64_t bytes;
	_Atomic int64_t cache; /* the reader's */
	_Atomic uint32_t payload_bytes;
	_Atomic uint32_t layer;
	uint8_t payload[KVP_NOTIFY_BYTES_MAX];
	uint8_t fill[96];
};
_Static_assert(sizeof(struct kvp_shm_record) == 384, "three spans: no two records share one");

struct kvp_shm_ring {
	/* writer: wo. reader: ro. */
	KVP_SPAN_START _Atomic uint32_t head;

	/* reader: wo. writer: ro. */
	KVP_SPAN_START _Atomic uint32_t tail;

	/* Set by the reader before it sleeps, taken back by whoever comes first. */
	KVP_SPAN_START _Atomic uint32_t reader_sleeps;

	/* writer: wo. reader: ro. */
	KVP_SPAN_START struct kvp_shm_record record[KVP_SHM_SLOTS];
};
_Static_assert(offsetof(struct kvp_shm_ring, tail) == KVP_SHARE_SPAN, "one span per writer");
_Static_assert(offsetof(struct kvp_shm_ring, reader_sleeps) == 2 * KVP_SHARE_SPAN,
	       "polling the tail must not pull it");
_Static_assert(offsetof(struct kvp_shm_ring, record) == 3 * KVP_SHARE_SPAN, "records come last");
_Static_assert(sizeof(struct kvp_shm_ring) % KVP_SHARE_SPAN == 0, "rings lie in an array");

struct kvp_shm_note {
	uint64_t tag;
	uint64_t bytes;
	int64_t cache;
	uint32_t payload_bytes; /* [0, KVP_NOTIFY_BYTES_MAX] */
	uint32_t layer;         /* 1 + the layer it tells of, [0, KVP_TENSORS_MAX]; 0: of all */
};

struct kvp_shm_writer {
	struct kvp_shm_ring *ring;
	uint32_t head; /* our own truth; the ring's is for the reader */
};

struct kvp_shm_reader {
	struct kvp_shm_ring *ring;
	uint32_t tail; /* our own truth; the ring's is for the writer */
};

/*
 * [W] Publish a record, with everything stored before it. 1: done. 0: the ring is full, nothing
 * written. -1: the reader's counter is impossible; use the ring no more.
 */
KVP_HOT int
kvp_shm_writer_put(struct kvp_shm_writer *writer, const struct kvp_shm_note *note,
		   const uint8_t *payload);

/* [W] After a put: does the reader sleep, so that the caller must wake it? True once per sleep. */
bool
kvp_shm_writer_must_wake(struct kvp_shm_writer *writer);

/*
 * [R] Look at the oldest record. 1: *note_out is it. 0: none. -1: the writer's counter or the
 * record is impossible; use the ring no more.
 */
KVP_HOT int
kvp_shm_reader_peek(const struct kvp_shm_reader *reader, struct kvp_shm_note *note_out);

/* [R] Copy the payload of the record just peeked, then give its slot back. */
KVP_HOT void
kvp_shm_reader_take(struct kvp_shm_reader *reader, const struct kvp_shm_note *note,
		    uint8_t *payload_out);

/* [R] Give the peeked record's slot back unread. */
void
kvp_shm_reader_skip(struct kvp_shm_reader *reader);

/* [R] Ask to be woken. True: a record is there already, do not sleep. */
bool
kvp_shm_reader_sleep(struct kvp_shm_reader *reader);

/* [R] No longer asks to be woken. */
void
kvp_shm_reader_awake(struct kvp_shm_reader *reader);

#endif /* KVP_SHM_RING_H */
