/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, ports and GIDs of a host, and what happens to them. Devices are the fake ones: two ports each at
 * most, with GIDs 0 to 3: link-local as RoCE v1 and v2, 10.network.0.place as v1 and v2.
 *
 * links: dataplane/verbs/verbs_device.o dataplane/verbs/verbs_port.o dataplane/verbs/verbs_near.o
 *        dataplane/verbs/verbs_rail.o dataplane/verbs/verbs_explain.o dataplane/reactor.o dataplane/wake.o engine/error.o engine/line.o
 *        engine/check.o
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <kvpush/engine.h>

#include "fake_verbs.h"
#include "transport.h"
#include "verbs/verbs_device.h"

#define CHANGES_MAX 32U

#define assert_in(words, text)                                        \
	do {                                                          \
		if (strstr((text), (words)) == NULL)                  \
			fail_msg("'%s' is not in '%s'", words, text); \
	} while (0)

struct change {
	uint32_t device;
	const struct kvp_verbs_port *port;
	const struct ibv_qp *qp;
	bool is_active; /* of the port, then */
};

static struct host {
	struct kvp_config config;
	struct kvp_reactor reactor;
	struct kvp_dataplane dataplane;
	struct kvp_verbs_devices devices;
	struct kvp_error error;
	struct change change[CHANGES_MAX];
	uint32_t changes;
} host;

/* Three RoCE devices, the second with two ports, and one of another host. */
static const struct fake_verbs_topology three = {
	.devices = 4,
	.device = {{.network = {1}},
		   {.ports = 2, .network = {2, 3}},
		   {.network = {4}},
		   {.host = 1, .network = {1}}},
};

static void
changed(struct kvp_verbs_devices *devices, uint32_t device, struct kvp_verbs_port *port,
	struct ibv_qp *qp, void *ctx)
{
	assert_ptr_equal(devices, &host.devices);
	assert_ptr_equal(ctx, &host);
	assert_true(host.changes < CHANGES_MAX);
	host.change[host.changes++] = (struct change){.device = device,
						      .port = port,
						      .qp = qp,
						      .is_active = port != NULL && port->is_active};
}

static void
host_init(const struct fake_verbs_topology *topology)
{
	memset(&host, 0, sizeof(host));
	host.config.verbs_gid_index = 255;
	host.dataplane.config = &host.config;
	host.dataplane.reactor = &host.reactor;
	host.devices.changed = changed;
	host.devices.ctx = &host;
	assert_int_equal(kvp_reactor_init(&host.reactor), 0);
	fake_verbs_open(1, topology);
	fake_verbs_host(0);
}

static void
host_fini(void)
{
	kvp_reactor_fini(&host.reactor);
	if (fake_verbs_close() != 0)
		fail_msg("%s", fake_verbs_failure());
}

static kvp_status
open_named(const char *names)
{
	kvp_status status;

	memset(&host.devices, 0, offsetof(struct kvp_verbs_devices, changed));
	snprintf(host.config.verbs_devices, sizeof(host.config.verbs_devices), "%s", names);
	host.error.text[0] = '\0';
	status = kvp_verbs_devices_open(&host.dataplane, &host.devices, &host.error);
	if (status != KVP_SUCCESS)
		assert_int_equal(host.devices.devices, 0);
	return status;
}

static void
assert_opened(const char *names)
{
	if (open_named(names) != KVP_SUCCESS)
		fail_msg("'%s': %s", names, host.error.text);
}

static void
assert_refused(const char *names, const char *words)
{
	assert_int_equal(open_named(names), KVP_NO_TRANSPORT);
	assert_in(words, host.error.text);
	assert_true(strchr(host.error.text, '\n') == NULL);
}

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Run the reactor until so many changes were told. */
static void
wait_changes(uint32_t changes)
{
	for (uint64_t end = now_ms() + 10000; host.changes < changes && now_ms() < end;)
		kvp_reactor_wait(&host.reactor, 100);
	assert_int_equal(host.changes, changes);
}

/* --- opening ------------------------------------------------------------------------------ */

static void
open__all_of_this_host(void **state)
{
	static const char *const names[] = {"fake0:1", "fake1:1", "fake1:2", "fake2:1"};

	(void)state;
	host_init(&three);
	assert_opened("");
	assert_int_equal(host.devices.devices, 3);
	assert_int_equal(host.devices.ports, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct kvp_verbs_port *port = &host.devices.port[i];

		assert_string_equal(port->address.name, names[i]);
		assert_true(port->is_active);
		assert_int_equal(port->gid_index, 3);
		assert_int_equal(port->address.prefix, 96 + 24);
		assert_int_equal(port->address.link, KVP_VERBS_ROCE);
		assert_int_equal(port->address.mtu, IBV_MTU_4096);
		assert_int_equal(port->address.speed, 100);
		assert_int_equal(port->address.gid[13], 1 + i);
		assert_in("first RoCE v2 IPv4 address", port->why);
	}
	assert_int_equal(host.devices.device[1].attr.phys_port_cnt, 2);
	assert_non_null(host.devices.device[1].pd);
	assert_int_equal(host.devices.device[1].numa, -1);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
open__by_name_in_that_order(void **state)
{
	(void)state;
	host_init(&three);
	assert_opened("fake2,fake1:2,fake0");
	assert_int_equal(host.devices.ports, 3);
	assert_string_equal(host.devices.port[0].address.name, "fake2:1");
	assert_string_equal(host.devices.port[1].address.name, "fake1:2");
	assert_string_equal(host.devices.port[2].address.name, "fake0:1");
	kvp_verbs_devices_close(&host.devices);
	/* Two ports of one device share it. */
	assert_opened("fake1:2,fake1:1");
	assert_int_equal(host.devices.devices, 1);
	assert_int_equal(host.devices.ports, 2);
	assert_string_equal(host.devices.port[0].address.name, "fake1:2");
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
open__names_that_are_wrong(void **state)
{
	(void)state;
	host_init(&three);
	assert_refused("mlx5_0", "no RDMA device 'mlx5_0', but fake0, fake1, fake2");
	assert_refused("fake0,fake3", "no RDMA device 'fake3'"); /* of the other host */
	assert_refused("fake", "no RDMA device 'fake'");
	assert_refused("fake0,fake1,fake0", "names a port of fake0 twice");
	assert_refused("fake1,fake1:2", "names a port of fake1 twice");
	assert_refused("fake1:2,fake1", "names a port of fake1 twice");
	assert_refused("fake1:1,fake1:1", "names a port of fake1 twice");
	assert_refused("fake0:2", "fake0 has no port 2, its ports are 1 to 1");
	assert_refused("fake1:3", "fake1 has no port 3, its ports are 1 to 2");
	assert_refused("fake1:0", "fake1 has no port 0");
	assert_refused("fake1:257", "fake1 has no port 257");
	host_fini();
}

static void
open__more_than_there_is_room_for(void **state)
{
	struct fake_verbs_topology eight = {.devices = 8};

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		eight.device[i] = (struct fake_verbs_device_plan){.ports = 2, .network = {1, 2}};
	host_init(&eight);
	assert_refused("fake0,fake1,fake2,fake3,fake4", "with fake4 more than 8 ports");
	assert_opened("");
	assert_int_equal(host.devices.ports, KVP_VERBS_PORTS_MAX);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
open__forced_gid_index(void **state)
{
	(void)state;
	host_init(&three);
	host.config.verbs_gid_index = 3;
	assert_opened("fake0");
	assert_int_equal(host.devices.port[0].gid_index, 3);
	assert_in("as verbs_gid_index says", host.devices.port[0].why);
	kvp_verbs_devices_close(&host.devices);
	host.config.verbs_gid_index = 0;
	assert_refused("fake0", "fake0:1: verbs_gid_index=0: that GID, fe80::");
	assert_in("is RoCE v1", host.error.text);
	host.config.verbs_gid_index = 1;
	assert_refused("fake0", "is link-local");
	host.config.verbs_gid_index = 2;
	assert_refused("fake0", "10.1.0.1, is RoCE v1");
	host.config.verbs_gid_index = 7;
	assert_refused("", "verbs_gid_index=7: there is no GID at that index");
	host_fini();
}

static void
open__ports_that_are_down(void **state)
{
	(void)state;
	host_init(&three);
	fake_verbs_cable(1, 0, FAKE_VERBS_CUT);
	assert_opened("fake1");
	assert_false(host.devices.port[0].is_active);
	assert_in("its state is down", host.devices.port[0].why);
	assert_true(host.devices.port[1].is_active);
	kvp_verbs_devices_close(&host.devices);
	assert_refused("fake1:1",
		       "no usable port: fake1:1: its state is down: set its interface up");
	fake_verbs_cable(1, 1, FAKE_VERBS_CUT);
	assert_refused("fake1", "fake1:1: its state is down");
	fake_verbs_cable(0, 0, FAKE_VERBS_CUT);
	fake_verbs_cable(2, 0, FAKE_VERBS_CUT);
	assert_refused("", "no usable port: fake0:1: its state is down");
	host_fini();
}

static void
open__infiniband(void **state)
{
	static const struct fake_verbs_topology ib = {
		.devices = 1, .device = {{.ports = 2, .is_infiniband = true}}};

	(void)state;
	host_init(&ib);
	/* Its index means nothing there. */
	host.config.verbs_gid_index = 7;
	assert_opened("");
	for (uint32_t i = 0; i < 2; i++) {
		const struct kvp_verbs_port *port = &host.devices.port[i];

		assert_true(port->is_active);
		assert_int_equal(port->address.link, KVP_VERBS_INFINIBAND);
		assert_int_equal(port->address.prefix, 64);
		assert_int_equal(port->address.lid, 1 + i);
		assert_int_equal(port->address.gid[0], 0xFE);
		assert_int_equal(port->gid_index, 0);
		assert_in("InfiniBand, LID", port->why);
	}
	kvp_verbs_devices_close(&host.devices);
	fake_verbs_cable(0, 0, FAKE_VERBS_CUT);
	assert_refused("fake0:1", "subnet manager");
	host_fini();
}

static void
open__not_for_this(void **state)
{
	struct ibv_device **list;

	(void)state;
	host_init(&three);
	list = ibv_get_device_list(NULL);
	list[0]->transport_type = IBV_TRANSPORT_IWARP;
	assert_refused("fake0", "verbs_devices: fake0: is neither RoCE nor InfiniBand but iWARP");
	assert_opened("");
	assert_int_equal(host.devices.devices, 2);
	assert_string_equal(host.devices.device[0].name, "fake1");
	kvp_verbs_devices_close(&host.devices);
	/* The end of a long name tells devices apart. */
	snprintf(list[1]->name, sizeof(list[1]->name), "rocep129s0f1v12");
	assert_opened("rocep129s0f1v12:2");
	assert_string_equal(host.devices.port[0].address.name, "cep129s0f1v12:2");
	kvp_verbs_devices_close(&host.devices);
	ibv_free_device_list(list);
	host_fini();
}

static void
open__no_device(void **state)
{
	static const struct fake_verbs_topology elsewhere = {.devices = 1, .device = {{.host = 1}}};

	(void)state;
	host_init(&elsewhere);
	if (access("/sys/class/infiniband", F_OK) != 0)
		assert_refused("",
			       "no RDMA in this kernel, /sys/class/infiniband is missing: load");
	else if (access("/dev/infiniband", F_OK) != 0)
		assert_refused("", "/dev/infiniband is missing: load ib_uverbs");
	else
		assert_refused("", "no RDMA device found");
	assert_int_equal(open_named("fake0"), KVP_NO_TRANSPORT);
	host_fini();
}

/* Nothing stays behind, however far it got. */
static void
open__descriptors_run_out(void **state)
{
	(void)state;
	host_init(&three);
	for (uint32_t round = 0; round < 4; round++) {
		int before = dup(STDERR_FILENO), after;

		close(before);
		assert_int_equal(open_named(round % 2 == 0 ? "fake0,fake9" : "fake1:3"),
				 KVP_NO_TRANSPORT);
		assert_opened("");
		kvp_verbs_devices_close(&host.devices);
		after = dup(STDERR_FILENO);
		close(after);
		assert_int_equal(after, before);
	}
	host_fini();
}

/* --- what happens to them ------------------------------------------------------------------ */

static void
event__port_down_and_up(void **state)
{
	(void)state;
	host_init(&three);
	assert_opened("");
	fake_verbs_cable(1, 1, FAKE_VERBS_CUT);
	wait_changes(1);
	assert_int_equal(host.change[0].device, 1);
	assert_ptr_equal(host.change[0].port, &host.devices.port[2]);
	assert_false(host.change[0].is_active);
	assert_null(host.change[0].qp);
	assert_in("its state is down", host.devices.port[2].why);
	assert_true(host.devices.port[1].is_active);
	fake_verbs_cable(1, 1, FAKE_VERBS_PLUGGED);
	wait_changes(2);
	assert_ptr_equal(host.change[1].port, &host.devices.port[2]);
	assert_true(host.change[1].is_active);
	assert_string_equal(host.devices.port[2].address.name, "fake1:2");
	/* Down and up before anybody looked: told twice all the same, since its QPs broke. */
	fake_verbs_cable(0, 0, FAKE_VERBS_CUT);
	fake_verbs_cable(0, 0, FAKE_VERBS_PLUGGED);
	wait_changes(4);
	assert_true(host.devices.port[0].is_active);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
event__gid_moves(void **state)
{
	(void)state;
	host_init(&three);
	assert_opened("fake2");
	assert_int_equal(host.devices.port[0].gid_index, 3);
	fake_verbs_gid_move(2, 0);
	wait_changes(1);
	assert_int_equal(host.devices.port[0].gid_index, 4);
	assert_true(host.devices.port[0].is_active);
	/* A forced index stays where it is, and what was there has gone. */
	kvp_verbs_devices_close(&host.devices);
	host.changes = 0;
	host.config.verbs_gid_index = 4;
	assert_opened("fake2");
	fake_verbs_gid_move(2, 0);
	wait_changes(1);
	assert_false(host.change[0].is_active);
	assert_in("verbs_gid_index=4", host.devices.port[0].why);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

/* A GID that comes without an event is found by looking again for a while. */
static void
event__none_but_the_gid_moved(void **state)
{
	struct ibv_async_event event;

	(void)state;
	host_init(&three);
	assert_opened("fake0");
	fake_verbs_gid_move(0, 0);
	assert_int_equal(ibv_get_async_event(host.devices.device[0].context, &event), 0);
	ibv_ack_async_event(&event);
	wait_changes(1);
	assert_ptr_equal(host.change[0].port, &host.devices.port[0]);
	assert_int_equal(host.devices.port[0].gid_index, 4);
	/* What did not change is not told. */
	for (uint64_t end = now_ms() + 500; now_ms() < end;)
		kvp_reactor_wait(&host.reactor, 50);
	assert_int_equal(host.changes, 1);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

/* Looking again ends: afterwards the reactor sleeps. */
static void
event__looking_again_ends(void **state)
{
	uint64_t start;

	(void)state;
	host_init(&three);
	assert_opened("fake0");
	for (uint64_t end = now_ms() + 10000; host.devices.looks > 0 && now_ms() < end;)
		kvp_reactor_wait(&host.reactor, 100);
	assert_int_equal(host.devices.looks, 0);
	start = now_ms();
	kvp_reactor_wait(&host.reactor, 400);
	assert_true(now_ms() - start >= 390);
	assert_int_equal(host.changes, 0);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
event__device_fatal(void **state)
{
	(void)state;
	host_init(&three);
	assert_opened("");
	fake_verbs_device_fatal(1);
	wait_changes(1);
	assert_int_equal(host.change[0].device, 1);
	assert_null(host.change[0].port);
	assert_null(host.change[0].qp);
	assert_true(host.devices.device[1].is_fatal);
	assert_false(host.devices.device[0].is_fatal);
	/* Once. */
	fake_verbs_device_fatal(1);
	for (uint32_t i = 0; i < 4; i++)
		kvp_reactor_wait(&host.reactor, 0);
	assert_int_equal(host.changes, 1);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

static void
event__queue_pair_fatal(void **state)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp;

	(void)state;
	host_init(&three);
	assert_opened("");
	init.send_cq = init.recv_cq =
		ibv_create_cq(host.devices.device[0].context, 4, NULL, NULL, 0);
	assert_non_null(init.send_cq);
	qp = ibv_create_qp(host.devices.device[0].pd, &init);
	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	fake_verbs_qp_fatal(qp->qp_num);
	wait_changes(1);
	assert_int_equal(host.change[0].device, 0);
	assert_null(host.change[0].port);
	assert_ptr_equal(host.change[0].qp, qp);
	assert_false(host.devices.device[0].is_fatal);
	/* Its event is acknowledged: otherwise this would wait for ever. */
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(init.send_cq), 0);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

/* A device that was taken away: its descriptor is ready for ever and gives errors. */
static void
event__device_gone(void **state)
{
	struct kvp_verbs_device *device = &host.devices.device[0];
	int folder;

	(void)state;
	host_init(&three);
	assert_opened("fake0,fake2");
	folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(folder >= 0);
	assert_true(dup3(folder, device->context->async_fd, O_CLOEXEC) >= 0); /* read: EISDIR */
	close(folder);
	device->watch.ready(&device->watch, EPOLLERR);
	assert_int_equal(host.changes, 1);
	assert_null(host.change[0].port);
	assert_true(device->is_fatal);
	assert_int_equal(device->watch.fd, -1);
	assert_false(host.devices.device[1].is_fatal);
	kvp_verbs_devices_close(&host.devices);
	host_fini();
}

/* --- order ---------------------------------------------------------------------------------- */

/* Two packages of two cores: fake1 at the first, fake0 at the second; fake2 anywhere. */
static const char machine[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
	"<topology version=\"2.0\">\n"
#define SETS(cpus, node)                                                    \
	" cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" node \
	"\" complete_nodeset=\"" node "\""
	"<object type=\"Machine\" os_index=\"0\"" SETS(
		"0x0000000f",
		"0x00000003") " allowed_cpuset=\"0x0000000f\" allowed_nodeset=\"0x00000003\" gp_index=\"1\">\n"
#define PACKAGE(n, cpus, node, pu0, set0, pu1, set1, name)                                                                 \
	"<object type=\"Package\" os_index=\"" n "\"" SETS(                                                                \
		cpus,                                                                                                      \
		node) " gp_index=\"1" n "1\">\n"                                                                           \
		      "<object type=\"NUMANode\" os_index=\"" n "\"" SETS(                                                 \
			      cpus,                                                                                        \
			      node) " gp_index=\"1" n "2\" local_memory=\"1048576\"/>\n"                                   \
				    "<object type=\"PU\" os_index=\"" pu0 "\"" SETS(                                       \
					    set0,                                                                          \
					    node) " gp_index=\"1" n "3\"/>\n"                                              \
						  "<object type=\"PU\" os_index=\"" pu1 "\"" SETS(                         \
							  set1,                                                            \
							  node) " gp_index=\"1" n "4\"/>\n"                                \
								"<object type=\"Bridge\" gp_index=\"1" n                   \
								"5\" bridge_type=\"0-1\" depth=\"0\" "                     \
								"bridge_pci=\"000" n                                       \
								":[00-0f]\">\n"                                            \
								"<object type=\"PCIDev\" gp_index=\"1" n                   \
								"6\" pci_busid=\"000" n                                    \
								":01:00.0\" pci_type=\"0207 [15b3:1013] [15b3:0033] 00\" " \
								"pci_link_speed=\"0.000000\">\n"                           \
								"<object type=\"OSDev\" gp_index=\"1" n                    \
								"7\" name=\"" name                                         \
								"\" osdev_type=\"3\"/>\n"                                  \
								"</object>\n</object>\n</object>\n"
	PACKAGE("0", "0x00000003", "0x00000001", "0", "0x00000001", "1", "0x00000002", "fake1")
		PACKAGE("1", "0x0000000c", "0x00000002", "2", "0x00000004", "3", "0x00000008",
			"fake0") "</object>\n</topology>\n";

static void
order__nearest_to_the_lanes_first(void **state)
{
	static const struct {
		const char *cpus;
		const char *first, *last;
	} row[] = {
		{"0", "fake1:1", "fake2:1"}, /* fake2 is nowhere */
		{"0,1", "fake1:1", "fake2:1"},   {"2", "fake0:1", "fake2:1"},
		{"2,3,0", "fake0:1", "fake2:1"}, /* most of them */
		{"0,2", "fake0:1", "fake2:1"},   /* both alike: as found */
		{"99", "fake0:1", "fake2:1"},    /* not in this machine */
	};
	char path[] = "/tmp/kvp-test-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, machine, sizeof(machine) - 1), sizeof(machine) - 1);
	close(fd);
	setenv("HWLOC_XMLFILE", path, 1);
	host_init(&three);
	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		snprintf(host.config.lane_cpus, sizeof(host.config.lane_cpus), "%s", row[i].cpus);
		assert_opened("");
		assert_int_equal(host.devices.ports, 4);
		assert_string_equal(host.devices.port[0].address.name, row[i].first);
		assert_string_equal(host.devices.port[3].address.name, row[i].last);
		/* A port keeps its device. */
		for (uint32_t p = 0; p < 4; p++)
			assert_int_equal(
				strncmp(host.devices.port[p].address.name,
					host.devices.device[host.devices.port[p].device].name, 5),
				0);
		kvp_verbs_devices_close(&host.devices);
	}
	snprintf(host.config.lane_cpus, sizeof(host.config.lane_cpus), "0");
	assert_opened("");
	assert_in("; near the lanes' cores", host.devices.port[0].why);
	assert_in("; far from the lanes' cores", host.devices.port[3].why);
	kvp_verbs_devices_close(&host.devices);
	/* Named ones stay in their order. */
	assert_opened("fake0,fake1");
	assert_string_equal(host.devices.port[0].address.name, "fake0:1");
	kvp_verbs_devices_close(&host.devices);
	host_fini();
	unsetenv("HWLOC_XMLFILE");
	unlink(path);
}

/* --- explaining --------------------------------------------------------------------------------- */

static void
explain__taken_or_not(void **state)
{
	char text[4096];

	(void)state;
	host_init(&three);
	fake_verbs_cable(1, 0, FAKE_VERBS_CUT);
	snprintf(host.config.verbs_devices, sizeof(host.config.verbs_devices), "fake0,fake1");
	assert_int_equal(kvp_verbs_devices_explain(&host.config, text, sizeof(text)), KVP_SUCCESS);
	assert_in("fake0: opened, firmware 1.0.0, ports 1, NUMA node unknown\n", text);
	assert_in("fake0:1: RoCE, 100 Gb/s, MTU 4096: taken, GID 3 10.1.0.1/24", text);
	assert_in("fake0:1 GID 0 fe80::", text);
	assert_in(": not taken, it is RoCE v1\n", text);
	assert_in(": not taken, it is link-local\n", text);
	assert_in("fake0:1 GID 3 10.1.0.1: taken\n", text);
	assert_in("fake1:1: RoCE, 100 Gb/s, MTU 4096: not taken, its state is down", text);
	assert_in("fake1:1 GID 3 10.2.0.3: not taken, the port is not active\n", text);
	assert_in("fake1:2: RoCE, 100 Gb/s, MTU 4096: taken", text);
	assert_in("fake2: not taken, verbs_devices does not name it\n", text);
	assert_true(strstr(text, "fake3") == NULL);
	/* Another one forced: the rule's would do as well. */
	host.config.verbs_gid_index = 0;
	assert_int_equal(kvp_verbs_devices_explain(&host.config, text, sizeof(text)),
			 KVP_NO_TRANSPORT);
	assert_in("fake0:1 GID 3 10.1.0.1: not taken, verbs_gid_index=3 would\n", text);
	host.config.verbs_gid_index = 255;
	snprintf(host.config.verbs_devices, sizeof(host.config.verbs_devices), "fake0,fake8");
	assert_int_equal(kvp_verbs_devices_explain(&host.config, text, sizeof(text)),
			 KVP_NO_TRANSPORT);
	assert_in("no RDMA device 'fake8', but fake0, fake1, fake2\n", text);
	assert_in("fake0:1: RoCE", text);
	host_fini();
}

static void
explain__cut(void **state)
{
	char whole[4096];

	(void)state;
	host_init(&three);
	assert_int_equal(kvp_verbs_devices_explain(&host.config, whole, sizeof(whole)),
			 KVP_SUCCESS);
	for (size_t size = 0; size < 1000; size += 37) {
		char *text = malloc(size > 0 ? size : 1);

		assert_non_null(text);
		text[0] = 'x';
		assert_int_equal(kvp_verbs_devices_explain(&host.config, text, size), KVP_SUCCESS);
		if (size == 0) {
			assert_int_equal(text[0], 'x');
		} else {
			assert_int_equal(strlen(text), size - 1);
			assert_memory_equal(text, whole, size - 1);
		}
		free(text);
	}
	host_fini();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open__all_of_this_host),
		cmocka_unit_test(open__by_name_in_that_order),
		cmocka_unit_test(open__names_that_are_wrong),
		cmocka_unit_test(open__more_than_there_is_room_for),
		cmocka_unit_test(open__forced_gid_index),
		cmocka_unit_test(open__ports_that_are_down),
		cmocka_unit_test(open__infiniband),
		cmocka_unit_test(open__not_for_this),
		cmocka_unit_test(open__no_device),
		cmocka_unit_test(open__descriptors_run_out),
		cmocka_unit_test(event__port_down_and_up),
		cmocka_unit_test(event__gid_moves),
		cmocka_unit_test(event__none_but_the_gid_moved),
		cmocka_unit_test(event__looking_again_ends),
		cmocka_unit_test(event__device_fatal),
		cmocka_unit_test(event__queue_pair_fatal),
		cmocka_unit_test(event__device_gone),
		cmocka_unit_test(order__nearest_to_the_lanes_first),
		cmocka_unit_test(explain__taken_or_not),
		cmocka_unit_test(explain__cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
