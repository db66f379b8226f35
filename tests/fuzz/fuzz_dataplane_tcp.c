/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dataplane_tcp.c - hostile bytes into an endpoint that also has requests of its own out
 *
 * An input is a list of records that make messages, so that the fuzzer need not
 * find out how a preamble looks: each record begins with a byte that says what to
 * send. Whatever comes, nothing is written outside of the blocks of the cache, or
 * into a cache that was withdrawn, and a stream that ended stays silent.
 */
#include "unit/tcp_job.h"

static const struct side_shape shape = {.blocks = 8, .block_bytes = 100, .stride = 128};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t left;
	size_t owed; /* payload announced and not yet sent */
};

static uint64_t
take(struct input *input, uint32_t bytes)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < bytes && input->left > 0; i++, input->left--)
		value = value << 8 | *input->at++;
	return value;
}

/* Mostly near what is allowed: `kind` picks right, a little wrong, or wild. */
static uint64_t
near(struct input *input, uint64_t right)
{
	uint64_t kind = take(input, 1);

	if (kind < 200)
		return right;
	if (kind < 230)
		return right + take(input, 1) - 128;
	return take(input, 8);
}

/* What is sent stays small, or the socket fills: the endpoint reads, nobody reads the endpoint's answers. */
static void
put(int fd, const void *bytes, size_t count)
{
	(void)!send(fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The rest of a payload, or its half, so that things happen in the middle. */
static void
put_payload(struct input *input, int fd, bool is_half)
{
	uint8_t payload[3200];
	size_t bytes = is_half ? input->owed / 2 : input->owed;

	if (bytes > sizeof(payload))
		bytes = sizeof(payload);
	memset(payload, 0xEE, sizeof(payload));
	put(fd, payload, bytes);
	input->owed -= bytes;
}

static void
put_message(struct input *input, int fd, uint32_t request)
{
	uint8_t head[KVP_TCP_PREAMBLE + 2 * KVP_TCP_EXTENT];
	struct kvp_tcp_preamble p = {0};
	struct kvp_tcp_extent extent;
	uint32_t extents = (uint32_t)take(input, 1) % 3;
	uint32_t bytes = 0;

	p.type = (uint8_t)(take(input, 1) % 9);
	for (uint32_t i = 0; i < extents; i++) {
		extent.tensor = (uint32_t)near(input, take(input, 1) % SIDE_TENSORS);
		extent.bytes = (uint32_t)near(input, take(input, 1) % 101);
		extent.offset = near(input, take(input, 1) % 8 * 128);
		bytes += extent.bytes;
		kvp_tcp_extent_encode(&extent, head + KVP_TCP_PREAMBLE + i * KVP_TCP_EXTENT);
	}
	if (p.type == KVP_TCP_READ_DATA)
		bytes = 3200; /* what the pull below asks for */
	if (p.type == KVP_TCP_NOTIFY)
		bytes = 8 + (uint32_t)take(input, 1);
	if (p.type != KVP_TCP_WRITE && p.type != KVP_TCP_READ)
		extents = 0;
	if (p.type == KVP_TCP_WRITE_ACK || p.type == KVP_TCP_READ_END ||
	    p.type == KVP_TCP_NOTIFY_ACK)
		bytes = 0;
	p.extents = (uint16_t)near(input, extents);
	p.bytes = (uint32_t)near(input, bytes);
	p.request = (uint32_t)near(input, request);
	p.cache = (int64_t)near(input, extents > 0 || p.type == KVP_TCP_NOTIFY ? SIDE_CACHE : 0);
	p.status = (uint32_t)near(input, KVP_SUCCESS);
	p.tag = p.type == KVP_TCP_NOTIFY ? take(input, 2) : 0;
	kvp_tcp_preamble_encode(&p, head);
	put(fd, head, KVP_TCP_PREAMBLE + extents * KVP_TCP_EXTENT);
	if (p.type == KVP_TCP_WRITE || p.type == KVP_TCP_READ_DATA || p.type == KVP_TCP_NOTIFY)
		input->owed = p.bytes;
	put_payload(input, fd, take(input, 1) >= 200);
}

/* Every byte between blocks is still what it was; blocks too once the cache is gone. */
static void
check_memory(const struct side *side, bool is_gone)
{
	const uint8_t *from = side->memory;

	for (uint32_t t = 0; t < SIDE_TENSORS; t++) {
		const uint8_t *base = side->tensor[t].base;

		for (uint64_t block = 0; block < shape.blocks; block++) {
			const uint8_t *to = base + block * shape.stride;

			KVP_CHECK(memcmp(from, side->model + (from - side->memory),
					 (size_t)(to - from)) == 0);
			from = to + shape.block_bytes;
		}
	}
	KVP_CHECK(memcmp(from, side->model + (from - side->memory),
			 side->bytes - (size_t)(from - side->memory)) == 0);
	KVP_CHECK(!is_gone || memcmp(side->memory, side->model, side->bytes) == 0);
}

static void
step(struct rig *rig, struct job *jobs)
{
	rig->now_ns += 1000;
	for (int i = 0; i < 2; i++)
		job_step(&jobs[i], rig->now_ns);
	if (jobs[0].part->phase == KVP_PART_NOTIFYING)
		kvp_tcp_transport.notify(rig->a.endpoint, jobs[0].part, rig->now_ns);
	kvp_tcp_transport.progress(rig->a.endpoint, rig->now_ns);
	KVP_CHECK(kvp_tcp_rx_ok(kvp_tcp_of(rig->a.endpoint)) &&
		  kvp_tcp_tx_ok(kvp_tcp_of(rig->a.endpoint)));
	KVP_CHECK(rig->a.lane.failures <= 1);
}

static void
withdraw(struct rig *rig, struct job *jobs)
{
	rig->a.lane.cache = NULL;
	kvp_tcp_transport.cache_gone(rig->a.endpoint, SIDE_CACHE);
	for (int i = 0; i < 2; i++)
		kvp_transfer_stop(jobs[i].transfer, KVP_CACHE_NOT_EXIST);
	memcpy(rig->a.model, rig->a.memory, rig->a.bytes);
}

static void
drop(int fd)
{
	uint8_t bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		continue;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {.at = data, .left = size};
	bool is_gone = false;
	struct job jobs[2];
	struct rig rig;
	int fd[2];

	rig_init(&rig, &shape, &shape);
	pair_unix(fd, 0);
	side_plug(&rig.a, fd[0]);
	jobs[0] = job_create(&rig.a, &rig.b, true, 2, 1);
	jobs[1] = job_create(&rig.a, &rig.b, false, 8, 2);
	/* The models of these jobs are not what this is about. */
	memcpy(rig.a.model, rig.a.memory, rig.a.bytes);
	rig.a.inbox.free = 2;
	step(&rig, jobs);
	while (input.left > 0 && rig.a.lane.failures == 0) {
		uint64_t op = take(&input, 1);

		if (input.owed > 0 && op < 200)
			put_payload(&input, fd[1], false);
		if (op < 160)
			put_message(&input, fd[1], op % 2 == 0 ? 0x100 : 0x201);
		else if (op < 190)
			step(&rig, jobs);
		else if (op < 210)
			drop(fd[1]);
		else if (op < 250)
			put(fd[1], input.at, input.left < op - 210 ? input.left : op - 210);
		else if (op == 255 && !is_gone) {
			withdraw(&rig, jobs);
			is_gone = true;
		}
		if ((op & 3) == 0)
			step(&rig, jobs);
	}
	for (int i = 0; i < 5; i++)
		step(&rig, jobs);
	check_memory(&rig.a, is_gone);
	close(fd[1]);
	job_free(&jobs[0]);
	job_free(&jobs[1]);
	rig_fini(&rig);
	return 0;
}
