/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_ends.h - two hosts on fake devices with one connected QP each, for tests of the fake itself
 *
 * Included by one file per program.
 */
#ifndef KVP_TEST_FAKE_ENDS_H
#define KVP_TEST_FAKE_ENDS_H

#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_verbs.h"

#define MEMORY 65536U
#define SQ     16U
#define RQ     8U
#define ALL                                                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_RELAXED_ORDERING)

/* One host's half of a connection. */
struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
	uint32_t psn;
};

static struct end a, b;

static const struct fake_verbs_topology two = {.devices = 2, .device = {{.host = 0}, {.host = 1}}};

/* --- helpers ----------------------------------------------------------------------- */

static inline void
end_open(struct end *end, uint32_t device, unsigned int access)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = SQ,
						.max_recv_wr = RQ,
						.max_send_sge = 4,
						.max_recv_sge = 2,
						.max_inline_data = 64}};

	end->context = ibv_open_device(list[device]);
	ibv_free_device_list(list);
	assert_non_null(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->channel = ibv_create_comp_channel(end->context);
	end->cq = ibv_create_cq(end->context, SQ + RQ, end, end->channel, 0);
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	assert_non_null(end->qp);
	end->memory = calloc(1, MEMORY);
	end->mr = ibv_reg_mr(end->pd, end->memory, MEMORY, access);
	assert_non_null(end->mr);
	end->psn = fake_verbs_random(1U << 24);
}

static inline void
end_close(struct end *end)
{
	if (end->qp != NULL)
		assert_int_equal(ibv_destroy_qp(end->qp), 0);
	assert_int_equal(ibv_destroy_cq(end->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(end->channel), 0);
	if (end->mr != NULL)
		assert_int_equal(ibv_dereg_mr(end->mr), 0);
	assert_int_equal(ibv_dealloc_pd(end->pd), 0);
	assert_int_equal(ibv_close_device(end->context), 0);
	free(end->memory);
	memset(end, 0, sizeof(*end));
}

static inline int
try_rtr(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags =
					   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	assert_int_equal(
		ibv_modify_qp(end->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_4096;
	attr.dest_qp_num = peer->qp->qp_num;
	attr.rq_psn = peer->psn;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.hop_limit = 64;
	assert_int_equal(ibv_query_gid(peer->context, 1, 3, &attr.ah_attr.grh.dgid), 0);
	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static inline void
to_rts(struct end *end, const struct end *peer, uint8_t retry)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .timeout = 14,
				   .retry_cnt = retry,
				   .rnr_retry = retry,
				   .sq_psn = end->psn,
				   .max_rd_atomic = 4};

	assert_int_equal(try_rtr(end, peer), 0);
	assert_int_equal(ibv_modify_qp(end->qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static inline void
world_open(uint64_t seed, const struct fake_verbs_topology *topology)
{
	fake_verbs_open(seed, topology);
	end_open(&a, 0, ALL);
	end_open(&b, 1, ALL);
	to_rts(&a, &b, 3);
	to_rts(&b, &a, 3);
	for (uint32_t i = 0; i < MEMORY; i++)
		a.memory[i] = (uint8_t)(i * 7 + (i >> 8));
}

static inline void
world_close(void)
{
	end_close(&a);
	end_close(&b);
	if (fake_verbs_close() != 0)
		fail_msg("%s", fake_verbs_failure());
}

/* The world is torn down, and one thing was found that has `word`. */
static inline void
world_close_failed(const char *word)
{
	end_close(&a);
	end_close(&b);
	assert_true(fake_verbs_close() >= 1);
	if (strstr(fake_verbs_failure(), word) == NULL)
		fail_msg("not '%s': %s", word, fake_verbs_failure());
	fake_verbs_forgive(false);
}

static inline int
post(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t from, uint32_t to,
     uint32_t bytes, unsigned int flags)
{
	const struct end *peer = end == &a ? &b : &a;
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->memory + from, .length = bytes, .lkey = end->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
				       .opcode = opcode,
				       .sg_list = &sge,
				       .num_sge = bytes > 0,
				       .send_flags = flags,
				       .imm_data = (uint32_t)id,
				       .wr.rdma = {.remote_addr = (uintptr_t)peer->memory + to,
						   .rkey = peer->mr != NULL ? peer->mr->rkey : 1}};

	return ibv_post_send(end->qp, &wr, &bad);
}

static inline void
write_ok(struct end *end, uint64_t id, uint32_t from, uint32_t to, uint32_t bytes,
	 unsigned int flags)
{
	assert_int_equal(post(end, IBV_WR_RDMA_WRITE, id, from, to, bytes, flags), 0);
}

static inline void
post_recv(struct end *end, uint64_t id, uint32_t at, uint32_t bytes)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)end->memory + at, .length = bytes, .lkey = end->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &sge, .num_sge = bytes > 0};

	assert_int_equal(ibv_post_recv(end->qp, &wr, &bad), 0);
}

static inline void
expect_wc(struct end *end, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.qp_num, end->qp->qp_num);
}

static inline void
expect_none(struct end *end)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(end->cq, 1, &wc), 0);
}

static inline void
expect_event(struct end *end, enum ibv_event_type type)
{
	struct pollfd fd = {.fd = end->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(ibv_get_async_event(end->context, &event), 0);
	assert_int_equal(event.event_type, type);
	ibv_ack_async_event(&event);
}

static inline void
set_state(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	assert_int_equal(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
}

static inline void
wire(void)
{
	assert_true(fake_verbs_run(1000000) < 1000000);
}

static inline void
drain(struct end *end)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(end->cq, 1, &wc) > 0)
		;
}

/* The first failed so, the rest was flushed. */
static inline void
expect_refused(enum ibv_wc_status status)
{
	wire();
	expect_wc(&a, 1, status);
	expect_wc(&a, 2, IBV_WC_WR_FLUSH_ERR);
	expect_none(&a);
	assert_int_equal(fake_verbs_state(a.qp), IBV_QPS_ERR);
}

#endif /* KVP_TEST_FAKE_ENDS_H */
