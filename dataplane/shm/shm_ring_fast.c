/* SPDX-License-Identifier: Apache-2.0 */
#include "shm_ring.h"

#include <string.h>

#define SLOT_MASK (KVP_SHM_SLOTS - 1)

_Static_assert((KVP_SHM_SLOTS & SLOT_MASK) == 0, "slots are found by a mask");

int
kvp_shm_writer_put(struct kvp_shm_writer *writer, const struct kvp_shm_note *note,
		   const uint8_t *payload)
{
	struct kvp_shm_ring *ring = writer->ring;
	struct kvp_shm_record *record = &ring->record[writer->head & SLOT_MASK];
	/* Pairs with kvp_shm_reader_skip(): the slot is no longer read. */
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	uint32_t used = writer->head - tail;

	if (KVP_UNLIKELY(used > KVP_SHM_SLOTS))
		return -1;
	if (used == KVP_SHM_SLOTS)
		return 0;
	atomic_store_explicit(&record->tag, note->tag, memory_order_relaxed);
	atomic_store_explicit(&record->bytes, note->bytes, memory_order_relaxed);
	atomic_store_explicit(&record->cache, note->cache, memory_order_relaxed);
	atomic_store_explicit(&record->payload_bytes, note->payload_bytes, memory_order_relaxed);
	atomic_store_explicit(&record->layer, note->layer, memory_order_relaxed);
	memcpy(record->payload, payload, note->payload_bytes);
	writer->head++;
	/*
	 * Releases the record, pairs with kvp_shm_reader_peek(). Sequentially
	 * consistent because kvp_shm_writer_must_wake() may not look before it.
	 */
	atomic_store_explicit(&ring->head, writer->head, memory_order_seq_cst);
	return 1;
}

bool
kvp_shm_writer_must_wake(struct kvp_shm_writer *writer)
{
	_Atomic uint32_t *sleeps = &writer->ring->reader_sleeps;

	/* Pairs with kvp_shm_reader_sleep(): of the two, at least one sees the other's store. */
	if (atomic_load_explicit(sleeps, memory_order_seq_cst) == 0)
		return false;
	return atomic_exchange_explicit(sleeps, 0, memory_order_seq_cst) != 0;
}

int
kvp_shm_reader_peek(const struct kvp_shm_reader *reader, struct kvp_shm_note *note_out)
{
	struct kvp_shm_ring *ring = reader->ring;
	struct kvp_shm_record *record = &ring->record[reader->tail & SLOT_MASK];
	/* Pairs with kvp_shm_writer_put(). */
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

	if (KVP_LIKELY(head == reader->tail))
		return 0;
	if (head - reader->tail > KVP_SHM_SLOTS)
		return -1;
	note_out->tag = atomic_load_explicit(&record->tag, memory_order_relaxed);
	note_out->bytes = atomic_load_explicit(&record->bytes, memory_order_relaxed);
	note_out->cache = atomic_load_explicit(&record->cache, memory_order_relaxed);
	note_out->payload_bytes =
		atomic_load_explicit(&record->payload_bytes, memory_order_relaxed);
	note_out->layer = atomic_load_explicit(&record->layer, memory_order_relaxed);
	return note_out->payload_bytes <= KVP_NOTIFY_BYTES_MAX && note_out->layer <= KVP_TENSORS_MAX
		       ? 1
		       : -1;
}

void
kvp_shm_reader_take(struct kvp_shm_reader *reader, const struct kvp_shm_note *note,
		    uint8_t *payload_out)
{
	const struct kvp_shm_record *record = &reader->ring->record[reader->tail & SLOT_MASK];

	memcpy(payload_out, record->payload, note->payload_bytes);
	kvp_shm_reader_skip(reader);
}

void
kvp_shm_reader_skip(struct kvp_shm_reader *reader)
{
	reader->tail++;
	/* Pairs with kvp_shm_writer_put(). */
	atomic_store_explicit(&reader->ring->tail, reader->tail, memory_order_release);
}

bool
kvp_shm_reader_sleep(struct kvp_shm_reader *reader)
{
	struct kvp_shm_ring *ring = reader->ring;

	/* Pairs with kvp_shm_writer_must_wake(). */
	atomic_store_explicit(&ring->reader_sleeps, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&ring->head, memory_order_seq_cst) == reader->tail)
		return false;
	kvp_shm_reader_awake(reader);
	return true;
}

void
kvp_shm_reader_awake(struct kvp_shm_reader *reader)
{
	atomic_store_explicit(&reader->ring->reader_sleeps, 0, memory_order_relaxed);
}
