/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_job.h - transfers for tcp_pair.h: random blocks, a model of the outcome, and the loop of two lanes */
#ifndef KVP_TEST_TCP_JOB_H
#define KVP_TEST_TCP_JOB_H

#include <sched.h>

#include "tcp_pair.h"

struct job {
	struct kvp_transfer *transfer;
	struct kvp_part *part;
	void *plan_memory;
	uint64_t peak_bytes; /* outstanding, as seen after every step */
	uint32_t peak_requests;
};

struct rig {
	struct side a, b;
	uint64_t now_ns;
};

static inline void
job_shuffle(uint64_t *blocks, uint32_t count, uint64_t *seed)
{
	for (uint32_t i = 0; i < count; i++)
		blocks[i] = i;
	for (uint32_t i = count - 1; i > 0; i--) {
		uint32_t other = (uint32_t)(side_random(seed) % (i + 1));
		uint64_t block = blocks[i];

		blocks[i] = blocks[other];
		blocks[other] = block;
	}
}

/* What the destination must look like afterwards: byte by byte copies, without plan or cursor. */
static inline void
job_model(const struct side *src, struct side *dst, const uint64_t *src_blocks,
	  const uint64_t *dst_blocks, uint32_t count)
{
	for (uint32_t t = 0; t < SIDE_TENSORS; t++) {
		const struct kvp_tensor *from = &src->tensor[t];
		const struct kvp_tensor *to = &dst->tensor[t];
		size_t at = (size_t)((uint8_t *)to->base - dst->memory);

		for (uint32_t i = 0; i < count; i++)
			memcpy(dst->model + at + dst_blocks[i] * to->block_stride,
			       (uint8_t *)from->base + src_blocks[i] * from->block_stride,
			       from->block_bytes);
	}
}

/* `count` random pairs of blocks between the caches of two sides; pieces stay scattered, or all in one run. */
static inline struct job
job_create(struct side *local, struct side *remote, bool is_push, uint32_t count, uint64_t seed)
{
	uint64_t local_blocks[512], remote_blocks[512];
	struct kvp_pairing pairing = {.local = local->tensor,
				      .remote = remote->tensor,
				      .tensors = SIDE_TENSORS,
				      .local_blocks = local_blocks,
				      .remote_blocks = remote_blocks,
				      .count = count,
				      .is_push = is_push};
	struct job job = {0};
	void *scratch;

	KVP_CHECK(local->tensor[0].num_blocks <= 512 && remote->tensor[0].num_blocks <= 512);
	job_shuffle(local_blocks, (uint32_t)local->tensor[0].num_blocks, &seed);
	job_shuffle(remote_blocks, (uint32_t)remote->tensor[0].num_blocks, &seed);
	job.transfer = aligned_alloc(KVP_SHARE_SPAN, sizeof(*job.transfer));
	scratch = malloc(kvp_plan_scratch_bytes(count));
	KVP_CHECK(job.transfer != NULL && scratch != NULL);
	memset(job.transfer, 0, sizeof(*job.transfer));
	KVP_CHECK(kvp_plan_prepare(&pairing, scratch, &job.transfer->plan, NULL) == KVP_SUCCESS);
	job.plan_memory = malloc(kvp_plan_bytes(&job.transfer->plan));
	KVP_CHECK(job.plan_memory != NULL);
	kvp_plan_fill(&pairing, scratch, job.plan_memory, &job.transfer->plan);
	free(scratch);
	job.transfer->local_cache = SIDE_CACHE;
	job.transfer->remote_cache = SIDE_CACHE;
	job.transfer->is_push = is_push;
	job.transfer->parts = 1;
	job.part = &job.transfer->part[0];
	job.part->transfer = job.transfer;
	job.part->endpoint = local->endpoint;
	job.part->bytes = job.transfer->plan.bytes;
	kvp_cursor_init(&job.part->cursor, &job.transfer->plan, 0, job.part->bytes);
	if (is_push)
		job_model(local, remote, local_blocks, remote_blocks, count);
	else
		job_model(remote, local, remote_blocks, local_blocks, count);
	return job;
}

static inline void
job_free(struct job *job)
{
	free(job->plan_memory);
	free(job->transfer);
}

static inline kvp_status
job_error(const struct job *job)
{
	return atomic_load(&job->transfer->first_error);
}

/* What a lane does with one active part. */
static inline uint32_t
job_step(struct job *job, uint64_t now_ns)
{
	struct kvp_endpoint *endpoint = job->part->endpoint;
	uint32_t work = 0;

	if (job->part->phase == KVP_PART_MOVING && !kvp_transfer_is_stopped(job->transfer))
		work = kvp_tcp_transport.post(endpoint, job->part, now_ns);
	if (job->part->bytes_inflight > job->peak_bytes)
		job->peak_bytes = job->part->bytes_inflight;
	if (job->part->requests_inflight > job->peak_requests)
		job->peak_requests = job->part->requests_inflight;
	return work;
}

/* One loop of both lanes. `b` without an fd does not run: the test speaks for it. */
static inline uint32_t
rig_step(struct rig *rig, struct job *jobs, uint32_t count)
{
	uint32_t work = 0;

	rig->now_ns += 1000;
	for (uint32_t i = 0; i < count; i++)
		work += job_step(&jobs[i], rig->now_ns);
	work += kvp_tcp_transport.progress(rig->a.endpoint, rig->now_ns);
	if (rig->b.endpoint->fd >= 0)
		work += kvp_tcp_transport.progress(rig->b.endpoint, rig->now_ns);
	if (work == 0)
		sched_yield(); /* loopback tcp works on another stack */
	return work;
}

/* Until all have moved, or one stopped, or an endpoint failed. False: nothing ended it. */
static inline bool
rig_run(struct rig *rig, struct job *jobs, uint32_t count)
{
	for (uint32_t loop = 0; loop < 2000000; loop++) {
		uint32_t ended = 0;

		rig_step(rig, jobs, count);
		for (uint32_t i = 0; i < count; i++)
			ended += jobs[i].part->phase != KVP_PART_MOVING ||
				 kvp_transfer_is_stopped(jobs[i].transfer);
		if (ended == count || rig->a.lane.failures > 0 || rig->b.lane.failures > 0)
			return true;
	}
	return false;
}

static inline void
rig_init(struct rig *rig, const struct side_shape *a, const struct side_shape *b)
{
	side_init(&rig->a, a, 11);
	side_init(&rig->b, b, 22);
	rig->now_ns = 1000000000;
}

static inline void
rig_fini(struct rig *rig)
{
	side_fini(&rig->a);
	side_fini(&rig->b);
}

static inline bool
side_is_as_modelled(const struct side *side)
{
	return memcmp(side->memory, side->model, side->bytes) == 0;
}

#endif /* KVP_TEST_TCP_JOB_H */
