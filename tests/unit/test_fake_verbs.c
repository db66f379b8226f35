/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake RDMA devices themselves: objects, what moves, what is refused, what fails.
 */
#include "fake_ends.h"

/* --- devices ------------------------------------------------------------------------- */

static void
devices_have_names_ports_and_gids(void **state)
{
	struct fake_verbs_topology t = {
		.devices = 3, .device = {{.host = 0}, {.host = 1}, {.host = 1, .ports = 2}}};
	struct ibv_gid_entry entry[32];
	struct ibv_port_attr port;
	struct ibv_device_attr attr;
	struct ibv_device **list;
	struct ibv_context *context;
	int count;

	(void)state;
	fake_verbs_open(1, &t);
	list = ibv_get_device_list(&count);
	assert_int_equal(count, 3);
	assert_null(list[3]);
	ibv_free_device_list(list);
	fake_verbs_host(1);
	list = ibv_get_device_list(&count);
	assert_int_equal(count, 2);
	assert_string_equal(ibv_get_device_name(list[1]), "fake2");
	context = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	assert_int_equal(ibv_query_device(context, &attr), 0);
	assert_int_equal(attr.phys_port_cnt, 2);
	assert_int_equal(ibv_query_port(context, 2, &port), 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(ibv_query_port(context, 3, &port), EINVAL);
	assert_int_equal(ibv_query_gid_table(context, entry, 32, 0), 8);
	assert_int_equal(entry[0].gid_type, IBV_GID_TYPE_ROCE_V1);
	assert_int_equal(entry[0].gid.raw[0], 0xfe);
	assert_int_equal(entry[3].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(entry[3].gid.raw[12], 10);
	assert_int_equal(ibv_query_gid_ex(context, 1, 5, entry, 0), ENODATA);
	assert_int_equal(ibv_close_device(context), 0);
	assert_int_equal(fake_verbs_close(), 0);
}

/* A GID is an address that an interface of the host has, with its mask. */
static void
interfaces_have_the_addresses_of_gids(void **state)
{
	struct ifaddrs *list, *at;
	union ibv_gid gid;
	uint32_t found = 0;

	(void)state;
	world_open(1, &two);
	assert_int_equal(ibv_query_gid(b.context, 1, 3, &gid), 0);
	assert_int_equal(getifaddrs(&list), 0);
	for (at = list; at != NULL; at = at->ifa_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(void *)at->ifa_addr;

		found += memcmp(&in->sin_addr, &gid.raw[12], 4) == 0;
	}
	freeifaddrs(list);
	assert_int_equal(found, 1);
	world_close();
	assert_int_equal(getifaddrs(&list), 0); /* this host's */
	freeifaddrs(list);
}

static void
thread_domains_come_and_go(void **state)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr attr = {0};
	struct fake_verbs_topology t = two;
	struct ibv_td *td;
	struct ibv_pd *pd;

	(void)state;
	world_open(1, &two);
	td = ibv_alloc_td(a.context, &td_attr);
	assert_non_null(td);
	attr.pd = a.pd;
	attr.td = td;
	pd = ibv_alloc_parent_domain(a.context, &attr);
	assert_non_null(pd);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_dealloc_td(td), 0);
	world_close();
	t.has_no_domains = true;
	world_open(1, &t);
	assert_null(ibv_alloc_td(a.context, &td_attr));
	assert_int_equal(errno, EOPNOTSUPP);
	world_close();
}

static void
a_qp_moves_only_through_its_states(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	(void)state;
	world_open(1, &two);
	set_state(&a, IBV_QPS_RESET);
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);
	assert_int_equal(post(&a, IBV_WR_RDMA_WRITE, 1, 0, 0, 8, 0), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	assert_int_equal(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	to_rts(&a, &b, 3);
	set_state(&a, IBV_QPS_ERR);
	set_state(&a, IBV_QPS_RESET);
	/* While its port is down it has no address. */
	fake_verbs_cable(0, 0, FAKE_VERBS_CUT);
	assert_int_equal(try_rtr(&a, &b), ENODATA);
	fake_verbs_cable(0, 0, FAKE_VERBS_PLUGGED);
	set_state(&a, IBV_QPS_RESET);
	to_rts(&a, &b, 3);
	world_close();
}

static void
networks_that_do_not_touch_are_out_of_reach(void **state)
{
	struct fake_verbs_topology t = {.devices = 2,
					.device = {{.network = {1}}, {.network = {2}}}};

	(void)state;
	fake_verbs_open(1, &t);
	end_open(&a, 0, ALL);
	end_open(&b, 1, ALL);
	assert_int_equal(try_rtr(&a, &b), ENETUNREACH);
	world_close();
}

/* --- what moves ------------------------------------------------------------------------ */

static void
a_write_gathers_and_lands(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct ibv_sge sge[3];
		struct ibv_send_wr *bad, wr = {.wr_id = 9,
					       .opcode = IBV_WR_RDMA_WRITE,
					       .sg_list = sge,
					       .num_sge = 3,
					       .send_flags = IBV_SEND_SIGNALED};
		uint32_t from[3] = {100, 20000, 7}, bytes[3] = {5000, 1, 333}, at = 0;

		world_open(seed, &two);
		for (uint32_t i = 0; i < 3; i++)
			sge[i] = (struct ibv_sge){.addr = (uintptr_t)a.memory + from[i],
						  .length = bytes[i],
						  .lkey = a.mr->lkey};
		wr.wr.rdma.remote_addr = (uintptr_t)b.memory + 64;
		wr.wr.rdma.rkey = b.mr->rkey;
		assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
		wire();
		expect_wc(&a, 9, IBV_WC_SUCCESS);
		expect_none(&a);
		for (uint32_t i = 0; i < 3; at += bytes[i++])
			assert_memory_equal(b.memory + 64 + at, a.memory + from[i], bytes[i]);
		assert_int_equal(b.memory[63], 0);
		assert_int_equal(b.memory[64 + at], 0);
		assert_int_equal(fake_verbs_counters()->sges, 3);
		world_close();
	}
}

/* One completion stands for all before it, and their places come back with it, not earlier. */
static void
unsignaled_requests_are_silent(void **state)
{
	(void)state;
	world_open(3, &two);
	for (uint32_t i = 0; i < SQ; i++)
		write_ok(&a, i, 0, 0, 32, i == SQ - 1 ? IBV_SEND_SIGNALED : 0);
	wire();
	assert_int_equal(fake_verbs_outstanding(a.qp), SQ);
	expect_wc(&a, SQ - 1, IBV_WC_SUCCESS);
	expect_none(&a);
	assert_int_equal(fake_verbs_outstanding(a.qp), 0);
	world_close();
}

static void
an_immediate_comes_after_its_data(void **state)
{
	uint32_t acknowledged_first = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct ibv_wc wc;
		bool is_acked = false;

		world_open(seed, &two);
		post_recv(&b, 77, 0, 0);
		write_ok(&a, 1, 0, 4096, 3000, 0);
		write_ok(&a, 2, 3000, 7096, 1000, IBV_SEND_SIGNALED);
		assert_int_equal(
			post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 4000, 8096, 5, IBV_SEND_SIGNALED),
			0);
		do {
			assert_int_not_equal(fake_verbs_step(), FAKE_VERBS_IDLE);
			if (!is_acked && ibv_poll_cq(a.cq, 1, &wc) == 1) {
				is_acked = true;
				acknowledged_first += memcmp(b.memory + 4096, a.memory, 4000) != 0;
			}
		} while (ibv_poll_cq(b.cq, 1, &wc) == 0);
		assert_int_equal(wc.wr_id, 77);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(wc.imm_data, 3);
		assert_int_equal(wc.byte_len, 5);
		assert_true((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
		assert_memory_equal(b.memory + 4096, a.memory, 4005);
		wire();
		drain(&a);
		world_close();
	}
	/* An acknowledgement proves nothing to a reader. */
	assert_true(acknowledged_first > 0);
}

static void
a_send_fills_a_receive(void **state)
{
	struct ibv_wc wc;

	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		world_open(seed, &two);
		post_recv(&b, 5, 1000, 500);
		post_recv(&b, 6, 2000, 500);
		assert_int_equal(post(&a, IBV_WR_SEND, 1, 10, 0, 40, IBV_SEND_INLINE), 0);
		memset(a.memory + 10, 0, 40); /* inline data was taken already */
		assert_int_equal(post(&a, IBV_WR_SEND_WITH_IMM, 2, 100, 0, 500, IBV_SEND_SIGNALED),
				 0);
		wire();
		assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, 5);
		assert_int_equal(wc.byte_len, 40);
		assert_int_equal(b.memory[1000], 70);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
		assert_int_equal(wc.imm_data, 2);
		assert_memory_equal(b.memory + 2000, a.memory + 100, 500);
		expect_wc(&a, 2, IBV_WC_SUCCESS);
		world_close();
	}
}

static void
a_read_fetches(void **state)
{
	struct ibv_wc wc;

	(void)state;
	for (uint64_t seed = 1; seed <= 200; seed++) {
		world_open(seed, &two);
		for (uint32_t i = 0; i < 6; i++)
			assert_int_equal(post(&b, IBV_WR_RDMA_READ, i, 1000 * i, 5000 + 1000 * i,
					      1000, IBV_SEND_SIGNALED),
					 0);
		assert_int_equal(
			post(&b, IBV_WR_RDMA_WRITE, 6, 0, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE),
			0);
		wire();
		for (uint32_t i = 0; i < 6; i++) {
			assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 1);
			assert_int_equal(wc.wr_id, i);
			assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
			assert_int_equal(wc.byte_len, 1000);
		}
		expect_wc(&b, 6, IBV_WC_SUCCESS);
		assert_memory_equal(b.memory, a.memory + 5000, 6000);
		/* The fence: the WRITE carried what the READ had brought. */
		assert_memory_equal(a.memory, a.memory + 5000, 8);
		world_close();
	}
}

/* --- what is refused -------------------------------------------------------------------- */

static void
remote_rights_are_checked(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < 5; kind++) {
		struct ibv_qp_attr attr = {.qp_access_flags = 0};
		struct ibv_mr *mr;

		world_open(kind + 1, &two);
		mr = b.mr;
		if (kind == 0)
			b.mr = NULL; /* a key that never was */
		if (kind == 1)
			assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
		if (kind == 2) { /* deregistered */
			assert_int_equal(ibv_dereg_mr(b.mr), 0);
			b.mr = ibv_reg_mr(b.pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
			mr = b.mr;
		}
		write_ok(&a, 1, 0, kind == 3 ? MEMORY - 10 : 0, 100, 0);
		if (kind == 4) { /* only reading is left */
			drain(&a);
			assert_int_equal(ibv_dereg_mr(b.mr), 0);
			b.mr = mr = ibv_reg_mr(b.pd, b.memory, MEMORY, IBV_ACCESS_REMOTE_READ);
		}
		b.mr = mr;
		write_ok(&a, 2, 0, 0, 100, 0);
		post_recv(&b, 3, 0, 0);
		expect_refused(IBV_WC_REM_ACCESS_ERR);
		expect_wc(&b, 3, IBV_WC_WR_FLUSH_ERR);
		expect_event(&b, IBV_EVENT_QP_ACCESS_ERR);
		for (uint32_t i = 0; i < MEMORY; i++)
			assert_int_equal(b.memory[i], 0);
		world_close();
	}
}

static void
zero_bytes_prove_no_key(void **state)
{
	struct ibv_mr *mr;

	(void)state;
	world_open(1, &two);
	mr = b.mr;
	b.mr = NULL;
	write_ok(&a, 1, 0, 0, 0, IBV_SEND_SIGNALED);
	b.mr = mr;
	wire();
	expect_wc(&a, 1, IBV_WC_SUCCESS);
	world_close();
}

static void
local_keys_are_checked(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};

	(void)state;
	for (uint32_t kind = 0; kind < 2; kind++) {
		world_open(1, &two);
		sge = (struct ibv_sge){.addr = (uintptr_t)a.memory + MEMORY - 8,
				       .length = 16,
				       .lkey = kind == 0 ? a.mr->lkey : a.mr->rkey};
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = (uintptr_t)b.memory;
		wr.wr.rdma.rkey = b.mr->rkey;
		assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
		write_ok(&a, 2, 0, 0, 8, 0);
		expect_refused(kind == 0 ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_QP_OP_ERR);
		world_close();
	}
}

static void
a_message_that_is_too_long_breaks_both(void **state)
{
	(void)state;
	world_open(1, &two);
	post_recv(&b, 8, 0, 100);
	assert_int_equal(post(&a, IBV_WR_SEND, 1, 0, 0, 101, 0), 0);
	write_ok(&a, 2, 0, 0, 8, 0);
	expect_refused(IBV_WC_REM_INV_REQ_ERR);
	expect_wc(&b, 8, IBV_WC_LOC_LEN_ERR);
	expect_event(&b, IBV_EVENT_QP_REQ_ERR);
	world_close();
}

/* --- what fails ----------------------------------------------------------------------------- */

/* Every status, on a request in the middle: before it all is well, after it all is flushed. */
static void
any_status_can_be_forced(void **state)
{
	(void)state;
	for (int status = 1; status <= IBV_WC_GENERAL_ERR; status++) {
		world_open((uint64_t)status, &two);
		fake_verbs_force(a.qp->qp_num, 2, (enum ibv_wc_status)status);
		for (uint32_t i = 0; i < 5; i++)
			write_ok(&a, i, i * 100, i * 100, 100, i == 1 ? IBV_SEND_SIGNALED : 0);
		wire();
		expect_wc(&a, 1, IBV_WC_SUCCESS);
		expect_wc(&a, 2, (enum ibv_wc_status)status);
		expect_wc(&a, 3, IBV_WC_WR_FLUSH_ERR);
		expect_wc(&a, 4, IBV_WC_WR_FLUSH_ERR);
		expect_none(&a);
		assert_memory_equal(b.memory, a.memory, 200);
		assert_int_equal(b.memory[201], 0);
		/* What is posted now is flushed too. */
		write_ok(&a, 9, 0, 0, 8, 0);
		wire();
		expect_wc(&a, 9, IBV_WC_WR_FLUSH_ERR);
		world_close();
	}
}

static void
a_failed_completion_says_nothing_else(void **state)
{
	uint32_t wrong = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct ibv_wc wc;

		world_open(seed, &two);
		write_ok(&a, 1, 0, 0, 100, 0);
		set_state(&a, IBV_QPS_ERR);
		wire();
		assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		wrong += wc.opcode != IBV_WC_RDMA_WRITE;
		world_close();
	}
	assert_true(wrong > 10);
}

static void
an_err_flushes_receives_and_unsignaled_requests(void **state)
{
	(void)state;
	world_open(4, &two);
	fake_verbs_stick(a.qp->qp_num, true);
	for (uint32_t i = 0; i < 3; i++)
		write_ok(&a, i, 0, 0, 100, 0);
	post_recv(&a, 10, 0, 0);
	set_state(&a, IBV_QPS_ERR);
	wire();
	expect_none(&a); /* stuck */
	fake_verbs_stick(a.qp->qp_num, false);
	wire();
	for (uint32_t i = 0, sends = 0; i < 4; i++) {
		struct ibv_wc wc;

		assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		if (wc.wr_id != 10)
			assert_int_equal(wc.wr_id, sends++);
	}
	expect_none(&a);
	world_close();
}

static void
a_peer_that_is_gone_is_noticed(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < 3; kind++) {
		struct fake_verbs_topology t = two;

		t.is_seven_endless = kind == 2;
		world_open(kind + 1, &t);
		if (kind == 0)
			set_state(&b, IBV_QPS_ERR);
		if (kind == 1) {
			assert_int_equal(ibv_destroy_qp(b.qp), 0);
			b.qp = NULL;
		}
		if (kind == 2) { /* rxe: retry_cnt 7 is for ever */
			set_state(&a, IBV_QPS_RESET);
			to_rts(&a, &b, 7);
			set_state(&b, IBV_QPS_ERR);
			write_ok(&a, 1, 0, 0, 100, 0);
			assert_int_equal(fake_verbs_run(100000), 100000);
			expect_none(&a);
			world_close();
			continue;
		}
		write_ok(&a, 1, 0, 0, 100, 0);
		write_ok(&a, 2, 0, 0, 100, 0);
		expect_refused(IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(fake_verbs_counters()->landed, 0);
		world_close();
	}
}

static void
no_receive_no_message(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		world_open(seed, &two);
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 5000, 0), 0);
		write_ok(&a, 2, 0, 0, 8, 0);
		if (seed % 2 == 0) {
			expect_refused(IBV_WC_RNR_RETRY_EXC_ERR);
			assert_int_equal(fake_verbs_counters()->rnr, 4);
		} else {
			while (fake_verbs_counters()->rnr < 2)
				assert_int_not_equal(fake_verbs_step(), FAKE_VERBS_IDLE);
			post_recv(&b, 4, 0, 0);
			wire();
			expect_none(&a);
			expect_wc(&b, 4, IBV_WC_SUCCESS);
			assert_memory_equal(b.memory, a.memory, 5000);
		}
		world_close();
	}
}

/* Data and immediate are there, the sender hears the opposite. */
static void
a_lost_acknowledgement_divides_the_ends(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		world_open(seed, &two);
		fake_verbs_lose_acks(a.qp->qp_num, true);
		post_recv(&b, 4, 0, 0);
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 0, 3000, 0), 0);
		write_ok(&a, 2, 3000, 3000, 1000, 0);
		expect_refused(IBV_WC_RETRY_EXC_ERR);
		expect_wc(&b, 4, IBV_WC_SUCCESS);
		assert_memory_equal(b.memory, a.memory, 4000);
		assert_int_equal(fake_verbs_state(b.qp), IBV_QPS_RTS);
		world_close();
	}
}

static void
lost_packets_are_sent_again(void **state)
{
	uint64_t again = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		world_open(seed, &two);
		post_recv(&b, 4, 0, 0);
		write_ok(&a, 1, 0, 0, 9000, 0);
		assert_int_equal(post(&a, IBV_WR_RDMA_READ, 2, 20000, 1000, 3000, 0), 0);
		assert_int_equal(post(&a, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 9000, 9000, 9000,
				      IBV_SEND_SIGNALED),
				 0);
		for (uint32_t i = 0; i < 4; i++) {
			(void)fake_verbs_run(fake_verbs_random(40));
			fake_verbs_cable(i & 1, 0, FAKE_VERBS_LOSSY);
			for (uint32_t k = fake_verbs_random(4); k > 0; k--)
				if (fake_verbs_step() == FAKE_VERBS_WAITED)
					break; /* a second one in a row could be the last */
			fake_verbs_calm();
		}
		wire();
		expect_wc(&a, 3, IBV_WC_SUCCESS);
		expect_wc(&b, 4, IBV_WC_SUCCESS);
		assert_memory_equal(b.memory, a.memory, 18000);
		assert_memory_equal(a.memory + 20000, b.memory + 1000, 3000);
		again += fake_verbs_counters()->again;
		world_close();
	}
	assert_true(again > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_have_names_ports_and_gids),
		cmocka_unit_test(interfaces_have_the_addresses_of_gids),
		cmocka_unit_test(thread_domains_come_and_go),
		cmocka_unit_test(a_qp_moves_only_through_its_states),
		cmocka_unit_test(networks_that_do_not_touch_are_out_of_reach),
		cmocka_unit_test(a_write_gathers_and_lands),
		cmocka_unit_test(unsignaled_requests_are_silent),
		cmocka_unit_test(an_immediate_comes_after_its_data),
		cmocka_unit_test(a_send_fills_a_receive),
		cmocka_unit_test(a_read_fetches),
		cmocka_unit_test(remote_rights_are_checked),
		cmocka_unit_test(zero_bytes_prove_no_key),
		cmocka_unit_test(local_keys_are_checked),
		cmocka_unit_test(a_message_that_is_too_long_breaks_both),
		cmocka_unit_test(any_status_can_be_forced),
		cmocka_unit_test(a_failed_completion_says_nothing_else),
		cmocka_unit_test(an_err_flushes_receives_and_unsignaled_requests),
		cmocka_unit_test(a_peer_that_is_gone_is_noticed),
		cmocka_unit_test(no_receive_no_message),
		cmocka_unit_test(a_lost_acknowledgement_divides_the_ends),
		cmocka_unit_test(lost_packets_are_sent_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
