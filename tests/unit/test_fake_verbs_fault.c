/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake RDMA devices themselves: fences, grants, limits, events, and all of it at once.
 */
#include "fake_ends.h"

/* --- fences ------------------------------------------------------------------------------ */

/* Resetting the sender does not call back what is on the wire; resetting the receiver makes it silent. */
static void
only_the_receiver_can_fence(void **state)
{
	uint32_t late[2] = {0};

	(void)state;
	for (uint64_t seed = 1; seed <= 600; seed++) {
		struct fake_verbs_topology t = two;
		bool is_fenced = seed % 2 == 0;

		t.segment = 256;
		t.window = 8;
		world_open(seed, &t);
		write_ok(&a, 1, 0, 0, 4096, 0);
		(void)fake_verbs_run(3 + fake_verbs_random(20));
		set_state(&a, seed % 3 == 0 ? IBV_QPS_ERR : IBV_QPS_RESET);
		if (is_fenced)
			set_state(&b, seed % 5 == 0 ? IBV_QPS_ERR : IBV_QPS_RESET);
		memset(b.memory, 0, MEMORY);
		wire();
		for (uint32_t i = 0; i < 4096; i++)
			if (b.memory[i] != 0) {
				late[is_fenced]++;
				break;
			}
		drain(&a);
		world_close();
	}
	assert_true(late[0] > 50);
	assert_int_equal(late[1], 0);
}

/* A build with new PSNs does not take segments of the old one. */
static void
a_rebuilt_qp_takes_no_old_segments(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct ibv_wc wc;

		world_open(seed, &two);
		post_recv(&b, 3, 0, 0);
		for (uint32_t i = 0; i < 5; i++)
			write_ok(&a, i, 0, 0, 4096, 0);
		(void)fake_verbs_run(fake_verbs_random(100));
		set_state(&a, IBV_QPS_RESET);
		set_state(&b, IBV_QPS_RESET);
		drain(&a);
		drain(&b);
		memset(b.memory, 0, MEMORY);
		a.psn = fake_verbs_random(1U << 24);
		b.psn = fake_verbs_random(1U << 24);
		to_rts(&a, &b, 3);
		to_rts(&b, &a, 3);
		wire();
		assert_int_equal(b.memory[1], 0);
		write_ok(&a, 9, 100, 100, 1000, IBV_SEND_SIGNALED);
		wire();
		assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, 9);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_memory_equal(b.memory + 100, a.memory + 100, 1000);
		world_close();
	}
}

static void
deregistering_is_a_fence_too(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 200; seed++) {
		world_open(seed, &two);
		write_ok(&a, 1, 1, 0, 8192, 0);
		(void)fake_verbs_run(fake_verbs_random(40));
		assert_int_equal(ibv_dereg_mr(b.mr), 0);
		b.mr = NULL;
		memset(b.memory, 0, MEMORY);
		wire();
		for (uint32_t i = 0; i < 8192; i++)
			assert_int_equal(b.memory[i], 0);
		drain(&a);
		world_close();
	}
}

/* --- grants ------------------------------------------------------------------------------ */

static void
grants_catch_what_is_late(void **state)
{
	uint32_t caught = 0, missed = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct fake_verbs_grant grant = {
			.bytes = 64, .stride = 128, .count = 4, .cookie = 42};
		struct fake_verbs_topology t = two;
		uint32_t number;

		t.segment = 64;
		world_open(seed, &t);
		fake_verbs_forgive(true);
		fake_verbs_guard((uintptr_t)b.memory, MEMORY);
		grant.address = (uintptr_t)b.memory;
		number = fake_verbs_grant_open(&grant);
		for (uint32_t i = 0; i < 4; i++)
			write_ok(&a, i, 0, i * 128, 64, i == 3 ? IBV_SEND_SIGNALED : 0);
		if (seed % 2 == 0)
			wire();
		else
			(void)fake_verbs_run(fake_verbs_random(8));
		fake_verbs_grant_close(number);
		wire();
		drain(&a);
		if (seed % 2 == 0)
			missed += fake_verbs_failures() != 0;
		else
			caught += fake_verbs_failures() != 0;
		if (fake_verbs_failures() != 0) {
			assert_non_null(strstr(fake_verbs_failure(), "without a grant"));
			assert_non_null(strstr(fake_verbs_failure(), "0x2a"));
		}
		fake_verbs_forgive(false);
		world_close();
	}
	assert_int_equal(missed, 0);
	assert_true(caught > 40);
}

static void
grants_are_exact_to_the_byte(void **state)
{
	struct fake_verbs_grant grant = {.bytes = 64, .stride = 128, .count = 2};

	(void)state;
	for (uint32_t off = 0; off < 3; off++) {
		world_open(1, &two);
		fake_verbs_forgive(true);
		fake_verbs_guard((uintptr_t)b.memory, 1024);
		grant.address = (uintptr_t)b.memory + 128;
		(void)fake_verbs_grant_open(&grant);
		write_ok(&a, 1, 0, 127 + off, 64, 0);
		write_ok(&a, 2, 0, 256, 64, 0);
		wire();
		assert_int_equal(fake_verbs_failures(), off == 1 ? 0 : 1);
		fake_verbs_forgive(false);
		world_close();
	}
}

static void
reads_need_grants_too(void **state)
{
	struct fake_verbs_grant grant = {.bytes = 100, .is_read = true};
	uint32_t number;

	(void)state;
	world_open(1, &two);
	fake_verbs_forgive(true);
	fake_verbs_guard((uintptr_t)a.memory, 1024);
	grant.address = (uintptr_t)a.memory;
	number = fake_verbs_grant_open(&grant);
	write_ok(&a, 1, 0, 0, 100, 0);
	assert_int_equal(post(&b, IBV_WR_RDMA_READ, 1, 500, 0, 100, 0), 0);
	wire();
	assert_int_equal(fake_verbs_failures(), 0);
	fake_verbs_grant_close(number);
	write_ok(&a, 1, 0, 0, 100, 0);
	wire();
	assert_non_null(strstr(fake_verbs_failure(), "a request of QP"));
	fake_verbs_forgive(true);
	assert_int_equal(post(&b, IBV_WR_RDMA_READ, 1, 500, 0, 100, 0), 0);
	wire();
	assert_non_null(strstr(fake_verbs_failure(), "a peer's READ"));
	fake_verbs_forgive(false);
	world_close();
}

/* --- limits and misuse --------------------------------------------------------------------- */

static void
enomem_names_the_first_that_was_not_taken(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr[6], *bad = NULL;

	(void)state;
	world_open(1, &two);
	sge = (struct ibv_sge){.addr = (uintptr_t)a.memory, .length = 10, .lkey = a.mr->lkey};
	for (uint32_t i = 0; i < 6; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i,
			.next = i < 5 ? &wr[i + 1] : NULL,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = (uintptr_t)b.memory, .rkey = b.mr->rkey}};
	fake_verbs_refuse(FAKE_VERBS_ANY, 4, 1);
	assert_int_equal(ibv_post_send(a.qp, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[4]);
	assert_int_equal(ibv_post_send(a.qp, bad, &bad), 0);
	wire();
	for (uint32_t i = 0; i < 6; i++)
		expect_wc(&a, i, IBV_WC_SUCCESS);
	expect_none(&a);
	assert_int_equal(fake_verbs_counters()->requests, 6);
	assert_int_equal(fake_verbs_counters()->doorbells, 2);
	world_close();
}

static void
a_full_queue_is_a_mistake(void **state)
{
	(void)state;
	world_open(1, &two);
	fake_verbs_forgive(true);
	for (uint32_t i = 0; i < SQ; i++)
		write_ok(&a, i, 0, 0, 10, IBV_SEND_SIGNALED);
	wire();
	/* Complete, but not polled. */
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, 99, 0, 0, 10, 0), ENOMEM);
	world_close_failed("more requests than its 16 places");
}

static void
an_overrun_kills_the_cq(void **state)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 100, .max_send_sge = 1}};
	struct fake_verbs_topology t = two;

	(void)state;
	t.is_slack = true;
	world_open(1, &t);
	assert_int_equal(ibv_destroy_qp(a.qp), 0);
	init.send_cq = init.recv_cq = a.cq;
	a.qp = ibv_create_qp(a.pd, &init);
	set_state(&b, IBV_QPS_RESET);
	to_rts(&a, &b, 3);
	to_rts(&b, &a, 3);
	for (uint32_t i = 0; i < SQ + RQ + 1; i++)
		write_ok(&a, i, 0, 0, 10, IBV_SEND_SIGNALED);
	wire();
	expect_event(&a, IBV_EVENT_CQ_ERR);
	assert_int_equal(fake_verbs_state(a.qp), IBV_QPS_ERR);
	drain(&a);
	world_close();
}

static void
a_cq_that_is_too_small_is_found_at_once(void **state)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1}};
	struct ibv_qp *qp;

	(void)state;
	world_open(1, &two);
	fake_verbs_forgive(true);
	init.send_cq = init.recv_cq = a.cq;
	qp = ibv_create_qp(a.pd, &init);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	world_close_failed("a CQ of 24 has QPs that can cause 25 completions");
}

static void
memory_has_limits(void **state)
{
	struct fake_verbs_topology t = two;
	struct ibv_mr *mr[3];
	uint8_t *hole;

	(void)state;
	t.max_mr = 5;
	t.max_mr_size = 1U << 20;
	t.memlock = 2 * MEMORY + (1U << 20) + 100;
	world_open(1, &t);
	hole = mmap(NULL, 3U << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(munmap(hole + 4096, 4096), 0);
	assert_null(ibv_reg_mr(a.pd, hole, 8193, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_mr(a.pd, hole + 8192, (1U << 20) + 1, IBV_ACCESS_LOCAL_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(a.pd, hole, 8, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	mr[0] = ibv_reg_mr(a.pd, hole + 8192, 1U << 20, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr[0]);
	assert_null(ibv_reg_mr(a.pd, hole, 101, 0));
	assert_int_equal(errno, ENOMEM); /* locked memory */
	mr[1] = ibv_reg_mr(a.pd, hole, 1, 0);
	mr[2] = ibv_reg_mr(a.pd, hole, 1, 0);
	assert_non_null(mr[2]);
	assert_null(ibv_reg_mr(a.pd, hole, 1, 0));
	assert_int_equal(errno, ENOMEM); /* max_mr */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	munmap(hole, 3U << 20);
	world_close();
}

/* A memfd stands for the dma-buf; requests name the iova. */
static void
device_memory_is_reached_through_its_fd(void **state)
{
	int fd = memfd_create("device memory", MFD_CLOEXEC);
	struct ibv_send_wr *bad, wr = {.wr_id = 1, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	uint64_t iova = 0x7000000100ULL;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	uint8_t *map;

	(void)state;
	assert_int_equal(ftruncate(fd, 65536), 0);
	map = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
	world_open(1, &two);
	assert_null(ibv_reg_dmabuf_mr(b.pd, 4096, 8192, iova, fd, ALL));
	assert_int_equal(errno, EINVAL); /* not the same place in a page */
	mr = ibv_reg_dmabuf_mr(b.pd, 4096 + 256, 8192, iova, fd, ALL);
	assert_non_null(mr);
	sge = (struct ibv_sge){.addr = (uintptr_t)a.memory, .length = 1000, .lkey = a.mr->lkey};
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = iova + 50;
	wr.wr.rdma.rkey = mr->rkey;
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	wire();
	assert_memory_equal(map + 4096 + 256 + 50, a.memory, 1000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(map, 65536);
	close(fd);
	world_close();
}

static void
what_is_in_use_cannot_be_destroyed(void **state)
{
	(void)state;
	world_open(1, &two);
	fake_verbs_forgive(true);
	assert_int_equal(ibv_dealloc_pd(a.pd), EBUSY);
	assert_int_equal(ibv_destroy_cq(a.cq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(a.channel), EBUSY);
	assert_int_equal(fake_verbs_failures(), 3);
	fake_verbs_forgive(false);
	world_close();
}

static void
what_is_left_behind_is_told(void **state)
{
	struct ibv_context *context;
	struct ibv_device **list;
	struct ibv_pd *pd;

	(void)state;
	fake_verbs_open(1, &two);
	fake_verbs_forgive(true);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(context);
	ibv_free_device_list(list);
	assert_int_equal(fake_verbs_close(), 1);
	assert_non_null(strstr(fake_verbs_failure(), "1 contexts, 1 PDs"));
	fake_verbs_forgive(false);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(context), 0);
}

/* --- events ------------------------------------------------------------------------------- */

static void
an_armed_cq_wakes_once(void **state)
{
	struct pollfd fd;
	struct ibv_cq *cq;
	void *ctx;

	(void)state;
	world_open(1, &two);
	fd = (struct pollfd){.fd = a.channel->fd, .events = POLLIN};
	write_ok(&a, 1, 0, 0, 10, IBV_SEND_SIGNALED);
	wire();
	/* What is there already wakes nobody. */
	assert_int_equal(ibv_req_notify_cq(a.cq, 0), 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
	write_ok(&a, 2, 0, 0, 10, IBV_SEND_SIGNALED);
	write_ok(&a, 3, 0, 0, 10, IBV_SEND_SIGNALED);
	wire();
	assert_int_equal(poll(&fd, 1, 0), 1);
	assert_int_equal(ibv_get_cq_event(a.channel, &cq, &ctx), 0);
	assert_ptr_equal(cq, a.cq);
	assert_ptr_equal(ctx, &a);
	assert_int_equal(poll(&fd, 1, 0), 0);
	fake_verbs_forgive(true);
	drain(&a);
	assert_int_equal(ibv_destroy_qp(a.qp), 0);
	a.qp = NULL;
	world_close_failed("waits for ever");
}

static void
ports_report_what_happens_to_them(void **state)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;

	(void)state;
	world_open(1, &two);
	write_ok(&a, 1, 0, 0, 30000, 0);
	write_ok(&a, 2, 0, 0, 30000, 0);
	(void)fake_verbs_run(5);
	fake_verbs_cable(0, 0, FAKE_VERBS_CUT);
	expect_event(&a, IBV_EVENT_PORT_ERR);
	assert_int_equal(ibv_query_port(a.context, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	expect_refused(IBV_WC_LOC_QP_OP_ERR);
	fake_verbs_calm();
	expect_event(&a, IBV_EVENT_PORT_ACTIVE);
	fake_verbs_gid_move(1, 0);
	expect_event(&b, IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_query_gid_ex(b.context, 1, 4, &entry, 0), 0);
	assert_int_equal(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(entry.gid.raw[12], 10);
	world_close();
}

static void
a_fatal_device_answers_eio(void **state)
{
	(void)state;
	world_open(1, &two);
	fake_verbs_qp_fatal(b.qp->qp_num);
	expect_event(&b, IBV_EVENT_QP_FATAL);
	assert_int_equal(fake_verbs_state(b.qp), IBV_QPS_ERR);
	fake_verbs_device_fatal(0);
	expect_event(&a, IBV_EVENT_DEVICE_FATAL);
	assert_null(ibv_alloc_pd(a.context));
	assert_int_equal(errno, EIO);
	set_state(&a, IBV_QPS_RESET);
	world_close();
}

/* --- everything at once ---------------------------------------------------------------------- */

/* What one end was told about its requests, in order. */
struct ledger {
	uint64_t posted, done, flushed;
	bool has_failed;
};

static void
account(struct end *end, struct ledger *ledger)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(end->cq, 1, &wc) > 0) {
		if (wc.wr_id >> 63 != 0)
			continue; /* a receive */
		assert_true(wc.wr_id >= ledger->done && wc.wr_id < ledger->posted);
		if (wc.status == IBV_WC_SUCCESS) {
			assert_false(ledger->has_failed);
		} else if (ledger->has_failed) {
			assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
			assert_int_equal(wc.wr_id, ledger->done);
		}
		ledger->has_failed |= wc.status != IBV_WC_SUCCESS;
		ledger->done = wc.wr_id + 1;
	}
}

static void
any_request(struct end *end, struct ledger *ledger)
{
	static const enum ibv_wr_opcode opcode[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						    IBV_WR_RDMA_READ, IBV_WR_SEND};
	uint32_t kind = fake_verbs_random(4), bytes = fake_verbs_random(2000);
	int rc;

	if (fake_verbs_outstanding(end->qp) == SQ)
		return;
	rc = post(end, opcode[kind], ledger->posted, fake_verbs_random(30000),
		  fake_verbs_random(30000), kind == 3 ? bytes % 64 : bytes,
		  fake_verbs_outstanding(end->qp) >= SQ / 2 || fake_verbs_random(3) == 0
			  ? IBV_SEND_SIGNALED
			  : 0);
	ledger->posted += rc == 0;
	assert_true(rc == 0 || rc == ENOMEM);
}

static void
chaos(uint64_t seed)
{
	struct fake_verbs_odds odds = {.lose_acks = 4000,
				       .lossy = 400,
				       .cut = 4000,
				       .status = 3000,
				       .refuse = 200,
				       .qp_fatal = 6000,
				       .gid_move = 500,
				       .hold = 200,
				       .while_max = 50};
	struct ledger of_a = {0}, of_b = {0};
	uint32_t receives[2] = {0};

	world_open(seed, &two);
	if (seed % 4 != 0)
		fake_verbs_odds(&odds);
	for (uint32_t i = 0; i < 200; i++) {
		struct end *end = fake_verbs_random(2) == 0 ? &a : &b;

		any_request(end, end == &a ? &of_a : &of_b);
		if (fake_verbs_random(3) == 0 && receives[end == &a]++ < RQ)
			post_recv(end, 1ULL << 63, 60000, 64);
		(void)fake_verbs_run(fake_verbs_random(20));
		account(end, end == &a ? &of_a : &of_b);
		for (uint32_t k = 0; k < 2; k++) {
			struct end *at = k == 0 ? &a : &b;
			struct pollfd fd = {.fd = at->context->async_fd, .events = POLLIN};
			struct ibv_async_event event;

			while (poll(&fd, 1, 0) == 1 &&
			       ibv_get_async_event(at->context, &event) == 0)
				ibv_ack_async_event(&event);
		}
	}
	fake_verbs_calm();
	wire();
	set_state(&a, IBV_QPS_ERR);
	set_state(&b, IBV_QPS_ERR);
	wire();
	account(&a, &of_a);
	account(&b, &of_b);
	/* A last success may stand for unsignaled ones; nothing else is missing after a flush. */
	assert_int_equal(of_a.done, of_a.posted - fake_verbs_outstanding(a.qp));
	assert_int_equal(of_b.done, of_b.posted - fake_verbs_outstanding(b.qp));
	assert_true(!of_a.has_failed || of_a.done == of_a.posted);
	world_close();
}

static void
every_request_is_accounted_for_in_order(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++)
		chaos(seed);
}

static void
the_same_seed_is_the_same_world(void **state)
{
	struct fake_verbs_counters first;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		chaos(seed);
		first = *fake_verbs_counters();
		chaos(seed);
		assert_memory_equal(&first, fake_verbs_counters(), sizeof(first));
	}
}

static void
a_wire_thread_moves_too(void **state)
{
	uint32_t done = 0;

	(void)state;
	world_open(1, &two);
	fake_verbs_run_thread(true);
	for (uint32_t i = 0; i < 200;) {
		struct ibv_wc wc;

		if (i - done < SQ) {
			write_ok(&a, i++, 0, 0, 1000, IBV_SEND_SIGNALED);
			continue;
		}
		while (ibv_poll_cq(a.cq, 1, &wc) == 0)
			;
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, done++);
	}
	fake_verbs_run_thread(false);
	wire();
	drain(&a);
	assert_memory_equal(b.memory, a.memory, 1000);
	world_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_receiver_can_fence),
		cmocka_unit_test(a_rebuilt_qp_takes_no_old_segments),
		cmocka_unit_test(deregistering_is_a_fence_too),
		cmocka_unit_test(grants_catch_what_is_late),
		cmocka_unit_test(grants_are_exact_to_the_byte),
		cmocka_unit_test(reads_need_grants_too),
		cmocka_unit_test(enomem_names_the_first_that_was_not_taken),
		cmocka_unit_test(a_full_queue_is_a_mistake),
		cmocka_unit_test(an_overrun_kills_the_cq),
		cmocka_unit_test(a_cq_that_is_too_small_is_found_at_once),
		cmocka_unit_test(memory_has_limits),
		cmocka_unit_test(device_memory_is_reached_through_its_fd),
		cmocka_unit_test(what_is_in_use_cannot_be_destroyed),
		cmocka_unit_test(what_is_left_behind_is_told),
		cmocka_unit_test(an_armed_cq_wakes_once),
		cmocka_unit_test(ports_report_what_happens_to_them),
		cmocka_unit_test(a_fatal_device_answers_eio),
		cmocka_unit_test(every_request_is_accounted_for_in_order),
		cmocka_unit_test(the_same_seed_is_the_same_world),
		cmocka_unit_test(a_wire_thread_moves_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
