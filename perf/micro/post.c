/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.c - what the verbs transport costs per piece, without a device's own time
 *
 * A whole transfer over one endpoint with one QP, driven by the lane's loop: walk the plan, make requests,
 * post, poll, retire. The device is a function behind the context's table that writes descriptors as an mlx5
 * does (units of 64 bytes: 16 of control, 16 of remote address, 16 per piece; one fenced store per doorbell)
 * and has completed everything at the next poll. A window of 1 to 16 requests gives as many per doorbell, the default of 32 two full chains.
 * Each line is the median of many rounds in ns per piece, its best, and what it made of a thousand pieces.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "eal.h"
#include "histogram.h"
#include "lane_state.h"
#include "plan.h"
#include "reactor.h"
#include "transports.h"
#include "verbs/verbs_lane.h"

#define TENSORS    64U
#define BLOCKS     1864U
#define NUM_BLOCKS 65536U
#define ROUNDS     60U
#define UNITS      1024U /* of 64 bytes: a send queue of 128 requests with up to 30 pieces */
#define WINDOW     (4U << 20)
#define HEAP_MB    32U

/* --- the device --------------------------------------------------------------------------- */

static _Alignas(
	64) uint8_t ring[UNITS + 8][64]; /* a descriptor that begins in it may end behind it */
static uint32_t unit;
static volatile uint64_t doorbell;
static uint64_t finished[KVP_VERBS_SQ]; /* wr_ids whose completions wait to be polled */
static uint32_t finished_count;

static int
device_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	uint64_t head = 0, number = (uint64_t)__builtin_bswap32(qp->qp_num << 8) << 32;
	uint32_t at = unit;

	(void)bad;
	for (; wr != NULL; wr = wr->next) {
		uint64_t *out = (uint64_t *)(void *)ring[at & (UNITS - 1)];
		const struct ibv_sge *sge = wr->sg_list, *end = sge + wr->num_sge;

		head = number | __builtin_bswap32(at << 8 | (uint32_t)wr->opcode);
		out[0] = head;
		out[1] = (uint64_t)wr->imm_data << 32 | wr->send_flags;
		out[2] = __builtin_bswap64(wr->wr.rdma.remote_addr);
		out[3] = __builtin_bswap32(wr->wr.rdma.rkey);
		out += 4;
		for (; sge < end; sge++) {
			out[0] = __builtin_bswap64((uint64_t)sge->length << 32 | sge->lkey);
			out[1] = __builtin_bswap64(sge->addr);
			out += 2;
		}
		at += ((uint32_t)wr->num_sge + 2U + 3U) / 4U;
		if ((wr->send_flags & IBV_SEND_SIGNALED) != 0)
			finished[finished_count++] = wr->wr_id;
	}
	unit = at;
	__builtin_ia32_sfence();
	doorbell = head;
	__builtin_ia32_sfence();
	return 0;
}

static int
device_poll(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	int count = 0;

	(void)cq;
	for (; count < entries && (uint32_t)count < finished_count; count++) {
		wc[count].wr_id = finished[count];
		wc[count].status = IBV_WC_SUCCESS;
		wc[count].opcode = IBV_WC_RDMA_WRITE;
	}
	finished_count -= (uint32_t)count;
	memmove(finished, finished + count, finished_count * sizeof(finished[0]));
	return count;
}

static int
device_receive(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)wr;
	(void)bad;
	return 0;
}

static struct ibv_context context = {
	.ops = {.post_send = device_post, .poll_cq = device_poll, .post_recv = device_receive}};
static struct ibv_comp_channel channel = {.context = &context, .fd = -1};
static struct ibv_cq device_cq = {.context = &context, .channel = &channel};
static struct ibv_qp device_qp = {.context = &context, .qp_num = 1};

/* --- what is measured -------------------------------------------------------------------------- */

static struct kvp_reactor reactor;
static struct kvp_dataplane dataplane = {.reactor = &reactor};
static struct kvp_path path = {.config = {.dataplane = &dataplane, .endpoints = 1}};
static struct kvp_verbs_cq cq = {.cq = &device_cq, .channel = &channel};
static struct kvp_verbs_mail mail;
static _Atomic uint64_t credit;
static struct kvp_tensor local_tensors[TENSORS], remote_tensors[TENSORS];
static struct kvp_remote_tensor announced[TENSORS];
static struct kvp_remote_cache remote_cache = {.tensors = announced, .num_tensors = TENSORS};
static struct kvp_local_cache local_cache = {.id = 1};
static struct kvp_verbs_held held;
static struct kvp_view view = {.cache = &remote_cache};
static uint64_t src_blocks[BLOCKS], dst_blocks[BLOCKS];
static struct kvp_transfer *transfer;
static struct kvp_lane *lane;
static struct kvp_verbs_endpoint *ep;
static struct kvp_histogram times;

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID,
		      &now); /* what others take from this CPU is not ours */
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void *
zeros(size_t bytes)
{
	void *memory = aligned_alloc(KVP_SHARE_SPAN,
				     (bytes + KVP_SHARE_SPAN - 1) & ~(KVP_SHARE_SPAN - 1UL));

	KVP_CHECK(memory != NULL);
	memset(memory, 0, bytes);
	return memory;
}

static void
loop_once(void)
{
	static uint64_t time_ns = 1;

	(void)kvp_lane_run_once(lane, ++time_ns);
}

/* One span per tensor, as for tensors that are apart. */
static struct kvp_verbs_spans *
spans_of(const struct kvp_tensor *tensor)
{
	struct kvp_verbs_spans *spans =
		zeros(sizeof(*spans) + TENSORS * sizeof(struct kvp_verbs_span));

	spans->count = TENSORS;
	for (uint32_t i = 0; i < TENSORS; i++)
		spans->span[i] = (struct kvp_verbs_span){
			.address = (uint64_t)(uintptr_t)tensor[i].base,
			.bytes = tensor[i].num_blocks * tensor[i].block_bytes,
			.key = {i + 1}};
	return spans;
}

static void
caches_make(uint32_t block_bytes)
{
	uint64_t step = (uint64_t)NUM_BLOCKS * 2 * block_bytes;

	for (uint32_t i = 0; i < TENSORS; i++) {
		local_tensors[i] = (struct kvp_tensor){(void *)(uintptr_t)((i + 1) * step),
						       NUM_BLOCKS, block_bytes, block_bytes};
		remote_tensors[i] = local_tensors[i];
		remote_tensors[i].base = (void *)(uintptr_t)((i + 100) * step);
		announced[i].tensor = remote_tensors[i];
	}
	free(held.spans);
	free(view.spans);
	held.spans = spans_of(local_tensors);
	view.spans = spans_of(remote_tensors);
}

static void
endpoint_make(void)
{
	struct kvp_error err;
	struct kvp_verbs_queue *queue;

	KVP_CHECK(kvp_reactor_init(&reactor) == 0);
	KVP_CHECK(kvp_eal_start(HEAP_MB, &err) == KVP_SUCCESS);
	KVP_CHECK(kvp_lane_prepare(&(struct kvp_lane_config){.cpu = -1, .ring_parts = 64}, &lane,
				   &err) == KVP_SUCCESS);
	ep = kvp_verbs_endpoint_create(1);
	KVP_CHECK(ep != NULL);
	ep->base.transport = &kvp_verbs_transport;
	ep->base.path = &path;
	ep->base.lane = lane;
	ep->base.fd = -1;
	ep->is_initiator = true;
	ep->window_bytes = WINDOW;
	ep->window_requests = KVP_VERBS_WINDOW;
	ep->limits[0] = kvp_gather_limits_of(&(struct kvp_cost){.pieces_max = KVP_VERBS_SGES});
	path.endpoint[0] = &ep->base;
	queue = &ep->queue[0];
	queue->qp = &device_qp;
	queue->cq = &cq;
	queue->mail = &mail;
	queue->credit = &credit;
	queue->generation = 1;
	queue->inline_max = 64;
	queue->pieces_max = KVP_VERBS_SGES;
	KVP_CHECK(kvp_transport_find(kvp_verbs_transport.name, &ep->slot_of_transport) != NULL);
	local_cache.held[ep->slot_of_transport] = &held;
	KVP_CHECK(kvp_lane_attach(lane, &ep->base, &err) == KVP_SUCCESS);
	KVP_CHECK(kvp_lane_cache_add(lane, &local_cache, &err) == KVP_SUCCESS);
	atomic_store(&queue->phase, KVP_VERBS_READY);
	atomic_fetch_add(&ep->attention, 1);
	for (uint32_t i = 0; i < 4; i++)
		loop_once();
	KVP_CHECK(ep->up == 1);
	transfer = zeros(sizeof(*transfer));
}

static void
transfer_run(const struct kvp_plan *plan, bool is_push)
{
	struct kvp_part *part = &transfer->part[0];

	memset(transfer, 0, offsetof(struct kvp_transfer, part) + sizeof(*part));
	transfer->plan = *plan;
	transfer->view = &view;
	transfer->local_cache = local_cache.id;
	transfer->deadline_ns = UINT64_MAX;
	transfer->parts = 1;
	transfer->is_push = is_push;
	atomic_store(&transfer->parts_left, 1);
	*part = (struct kvp_part){
		.transfer = transfer, .endpoint = &ep->base, .lane = lane, .bytes = plan->bytes};
	kvp_cursor_init(&part->cursor, plan, 0, plan->bytes);
	KVP_CHECK(kvp_lane_submit(lane, &part, 1));
	while (atomic_load_explicit(&transfer->word, memory_order_relaxed) != KVP_WORD_DONE)
		loop_once();
	KVP_CHECK(kvp_transfer_status(transfer) == KVP_SUCCESS);
}

static uint32_t only; /* this window; 0: all */

static void
measure(const char *name, uint32_t block_bytes, uint32_t window, bool is_push)
{
	const struct kvp_pairing pairing = {.local = local_tensors,
					    .remote = remote_tensors,
					    .tensors = TENSORS,
					    .local_blocks = src_blocks,
					    .remote_blocks = dst_blocks,
					    .count = BLOCKS,
					    .is_push = is_push};
	void *scratch = zeros(kvp_plan_scratch_bytes(BLOCKS));
	uint64_t requests, doorbells;
	struct kvp_error err;
	struct kvp_plan plan;
	void *memory;

	if (only != 0 && only != window)
		return;
	KVP_CHECK(kvp_plan_prepare(&pairing, scratch, &plan, &err) == KVP_SUCCESS);
	memory = zeros(kvp_plan_bytes(&plan));
	kvp_plan_fill(&pairing, scratch, memory, &plan);
	ep->window_requests = window;
	requests = atomic_load(&ep->base.requests);
	doorbells = atomic_load(&ep->doorbells);
	times = (struct kvp_histogram){0};
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t start = now_ns();

		transfer_run(&plan, is_push);
		kvp_histogram_add(&times, now_ns() - start);
	}
	requests = atomic_load(&ep->base.requests) - requests;
	doorbells = atomic_load(&ep->doorbells) - doorbells;
	printf("%-34s %3u KiB %3u %9.2f %9.2f %9.1f %9.1f\n", name, block_bytes >> 10, window,
	       (double)kvp_histogram_at(&times, 0.5) / (double)plan.pieces,
	       (double)kvp_histogram_at(&times, 0.0) / (double)plan.pieces,
	       1000.0 * (double)requests / (double)(ROUNDS * plan.pieces),
	       1000.0 * (double)doorbells / (double)(ROUNDS * plan.pieces));
	free(memory);
	free(scratch);
}

/* Pairs in stretches of `src` and `dst` blocks that are adjacent on their side. */
static void
blocks_fill(uint32_t src, uint32_t dst)
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		src_blocks[i] = i / src * (src + 1) + i % src;
		dst_blocks[i] = i / dst * (dst + 1) + i % dst;
	}
}

int
main(int argc, char **argv)
{
	static const uint32_t block_bytes[] = {32U << 10, 64U << 10};

	only = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	endpoint_make();
	printf("%-34s %7s %3s %9s %9s %9s %9s\n", "post", "piece", "win", "ns/piece", "best",
	       "requests", "doorbells");
	for (uint32_t i = 0; i < sizeof(block_bytes) / sizeof(block_bytes[0]); i++) {
		caches_make(block_bytes[i]);
		blocks_fill(1, 1);
		for (uint32_t window = 1; window <= KVP_VERBS_WINDOW; window *= 2)
			measure("scattered", block_bytes[i], window, true);
		measure("scattered, pull", block_bytes[i], KVP_VERBS_WINDOW, false);
		blocks_fill(1, BLOCKS);
		for (uint32_t window = 1; window <= KVP_VERBS_WINDOW; window *= 2)
			measure("gathered: remote side contiguous", block_bytes[i], window, true);
		blocks_fill(8, 8);
		for (uint32_t window = 1; window <= KVP_VERBS_WINDOW; window *= 2)
			measure("merged: runs of 8 blocks", block_bytes[i], window, true);
	}
	return EXIT_SUCCESS;
}
