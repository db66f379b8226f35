/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <kvpush/engine.h>

#include "transport.h"
#include "verbs_near.h"
#include "verbs_port.h"

#define EVENTS_MAX 64U /* taken in one go */
#define EVERY_PORT UINT32_MAX
#define WHY_BYTES  240U
/* A GID appears up to a second after its address. */
#define LOOKS         10
#define LOOK_AFTER_NS 200000000

/* --- what the configuration names --------------------------------------------------------- */

struct name {
	char device[64];
	uint32_t port; /* or EVERY_PORT */
};

/* Take the next name off a checked text. False: there is none. */
static bool
next_name(const char **text, struct name *name_out)
{
	const char *at = *text;
	size_t length = strcspn(at, ":,");

	if (length == 0 || length >= sizeof(name_out->device))
		return false;
	memset(name_out, 0, sizeof(*name_out));
	memcpy(name_out->device, at, length);
	name_out->port =
		at[length] == ':' ? (uint32_t)strtoul(at + length + 1, NULL, 10) : EVERY_PORT;
	at += strcspn(at, ",");
	*text = at + (*at == ',');
	return true;
}

/* --- opening ------------------------------------------------------------------------------- */

static kvp_status
no_devices(struct kvp_error *err)
{
	if (access("/sys/class/infiniband", F_OK) != 0)
		return kvp_fail(
			err, KVP_NO_TRANSPORT,
			"verbs: no RDMA in this kernel, /sys/class/infiniband is missing: load "
			"the adapter's driver, or leave verbs out of transports");
	if (access("/dev/infiniband", F_OK) != 0)
		return kvp_fail(
			err, KVP_NO_TRANSPORT,
			"verbs: /dev/infiniband is missing: load ib_uverbs, or give it to the "
			"container (--device=/dev/infiniband)");
	return kvp_fail(err, KVP_NO_TRANSPORT,
			"verbs: no RDMA device found: ls /sys/class/infiniband shows the kernel's, "
			"ibverbs-providers has the libraries that they need");
}

/* Why a device that is there could not be opened, and what to do about it. */
static void
say_unopened(const struct ibv_device *found, int error, char *why, size_t size)
{
	char file[IBV_SYSFS_NAME_MAX + 32];
	const char *hint = "";

	/* libibverbs goes on to look for it elsewhere: ENOENT also where rights are missing. */
	snprintf(file, sizeof(file), "/dev/infiniband/%s", found->dev_name);
	if (access(file, R_OK | W_OK) != 0)
		error = errno;
	if (error == EACCES || error == EPERM)
		hint = ": give this user rights to it";
	else if (error == ENOENT || error == ENXIO || error == ENODEV)
		hint = ": load ib_uverbs, or give it to the container (--device=/dev/infiniband)";
	else if (error == EMFILE || error == ENFILE)
		hint = ": raise the limit of open files";
	snprintf(why, size, "%.40s: opening %.40s: %s%s", found->name, file, strerrorname_np(error),
		 hint);
}

static void
close_device(struct kvp_verbs_device *device)
{
	if (device->pd != NULL)
		(void)ibv_dealloc_pd(device->pd);
	if (device->context != NULL)
		(void)ibv_close_device(device->context);
	device->pd = NULL;
	device->context = NULL;
}

/* At the end of the list; there is room. */
static bool
open_device(struct kvp_verbs_devices *devices, struct ibv_device *found, char *why, size_t size)
{
	struct kvp_verbs_device *device = &devices->device[devices->devices];
	int rc, flags;

	memset(device, 0, sizeof(*device));
	device->watch.fd = -1;
	device->all = devices;
	snprintf(device->name, sizeof(device->name), "%s", found->name);
	if (found->transport_type != IBV_TRANSPORT_IB) {
		snprintf(why, size, "%s: is neither RoCE nor InfiniBand%s", found->name,
			 found->transport_type == IBV_TRANSPORT_IWARP ? " but iWARP" : "");
		return false;
	}
	errno = 0;
	device->context = ibv_open_device(found);
	if (device->context == NULL) {
		say_unopened(found, errno != 0 ? errno : ENODEV, why, size);
		return false;
	}
	rc = ibv_query_device(device->context, &device->attr);
	if (rc == 0) {
		device->pd = ibv_alloc_pd(device->context);
		flags = fcntl(device->context->async_fd, F_GETFL);
		if (device->pd == NULL || flags < 0 ||
		    fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
			rc = errno;
	}
	if (rc != 0) {
		say_unopened(found, rc, why, size);
		close_device(device);
		return false;
	}
	device->numa = kvp_verbs_numa_of(device->name);
	devices->devices++;
	return true;
}

/* Returns how many of them are active; -1: there are too many. */
static int
add_ports(struct kvp_verbs_devices *devices, uint32_t index, uint32_t only, uint32_t forced)
{
	const struct kvp_verbs_device *device = &devices->device[index];
	int active = 0;

	for (uint32_t n = 1; n <= device->attr.phys_port_cnt; n++) {
		struct kvp_verbs_port *port = &devices->port[devices->ports];

		if (only != EVERY_PORT && n != only)
			continue;
		if (devices->ports == KVP_VERBS_PORTS_MAX)
			return -1;
		memset(port, 0, sizeof(*port));
		port->device = index;
		port->number = (uint8_t)n;
		kvp_verbs_port_read(device, port, forced);
		active += port->is_active;
		devices->ports++;
	}
	return active;
}

/* --- by name ------------------------------------------------------------------------------- */

static struct ibv_device *
find_device(struct ibv_device **list, int count, const char *name, struct kvp_error *err)
{
	char found[128] = "";
	size_t used = 0;

	for (int i = 0; i < count; i++) {
		if (strcmp(list[i]->name, name) == 0)
			return list[i];
		if (used < sizeof(found))
			used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s",
						 i > 0 ? ", " : "", list[i]->name);
	}
	kvp_fail(err, KVP_NO_TRANSPORT, "verbs_devices: there is no RDMA device '%s', but %s", name,
		 found);
	return NULL;
}

/* Was the port, or one that `name` would add, taken already? */
static bool
is_taken(const struct kvp_verbs_devices *devices, uint32_t index, const struct name *name)
{
	for (uint32_t i = 0; i < devices->ports; i++) {
		if (devices->port[i].device == index &&
		    (name->port == EVERY_PORT || devices->port[i].number == name->port))
			return true;
	}
	return false;
}

static kvp_status
open_name(struct kvp_verbs_devices *devices, struct ibv_device *found, const struct name *name,
	  uint32_t forced, struct kvp_error *err)
{
	char why[WHY_BYTES];
	uint32_t index = 0, ports;

	while (index < devices->devices && strcmp(devices->device[index].name, name->device) != 0)
		index++;
	if (index == KVP_VERBS_DEVICES_MAX)
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs_devices: %s is one more than %u",
				name->device, KVP_VERBS_DEVICES_MAX);
	if (index == devices->devices && !open_device(devices, found, why, sizeof(why)))
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs_devices: %s", why);
	ports = devices->device[index].attr.phys_port_cnt;
	if (name->port != EVERY_PORT && (name->port < 1 || name->port > ports))
		return kvp_fail(err, KVP_NO_TRANSPORT,
				"verbs_devices: %s has no port %u, its ports are 1 to %u",
				name->device, name->port, ports);
	if (is_taken(devices, index, name))
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs_devices names a port of %s twice",
				name->device);
	if (add_ports(devices, index, name->port, forced) < 0)
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs_devices: with %s more than %u ports",
				name->device, KVP_VERBS_PORTS_MAX);
	return KVP_SUCCESS;
}

static kvp_status
open_named(struct kvp_verbs_devices *devices, struct ibv_device **list, int count,
	   const struct kvp_config *config, struct kvp_error *err)
{
	const char *text = config->verbs_devices;
	kvp_status status = KVP_SUCCESS;
	struct name name;

	while (status == KVP_SUCCESS && next_name(&text, &name)) {
		struct ibv_device *found = find_device(list, count, name.device, err);

		if (found == NULL)
			return KVP_NO_TRANSPORT;
		status = open_name(devices, found, &name, config->verbs_gid_index, err);
	}
	return status;
}

/* --- all ------------------------------------------------------------------------------------ */

/* When there are too many, those without an active port are passed over. */
static kvp_status
open_all(struct kvp_verbs_devices *devices, struct ibv_device **list, int count,
	 const struct kvp_config *config, struct kvp_error *err)
{
	char first[WHY_BYTES] = "", why[WHY_BYTES];

	for (int i = 0; i < count; i++) {
		uint32_t ports = devices->ports;

		if (devices->devices == KVP_VERBS_DEVICES_MAX || ports == KVP_VERBS_PORTS_MAX)
			break;
		if (!open_device(devices, list[i], why, sizeof(why))) {
			if (first[0] == '\0')
				memcpy(first, why, sizeof(first));
			continue;
		}
		if (add_ports(devices, devices->devices - 1, EVERY_PORT, config->verbs_gid_index) ==
			    0 &&
		    count > (int)KVP_VERBS_DEVICES_MAX) {
			devices->ports = ports;
			close_device(&devices->device[--devices->devices]);
		}
	}
	if (devices->devices == 0)
		return kvp_fail(err, KVP_NO_TRANSPORT, "verbs: %s",
				first[0] != '\0' ? first : "no device has an active port");
	kvp_verbs_nearest_first(devices);
	return KVP_SUCCESS;
}

/* Is there a port to begin with? All of them may come and go later. */
static kvp_status
check_ports(const struct kvp_verbs_devices *devices, struct kvp_error *err)
{
	char text[KVP_ERROR_TEXT_MAX] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < devices->ports; i++) {
		const struct kvp_verbs_port *port = &devices->port[i];

		if (port->is_active)
			return KVP_SUCCESS;
		if (used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s: %s",
						 i > 0 ? "; " : "", port->address.name, port->why);
	}
	return kvp_fail(err, KVP_NO_TRANSPORT, "verbs: no usable port: %s",
			text[0] != '\0' ? text : "the devices have none");
}

kvp_status
kvp_verbs_devices_find(const struct kvp_config *config, struct kvp_verbs_devices *devices,
		       struct kvp_error *err)
{
	struct ibv_device **list;
	kvp_status status;
	int count = 0;

	devices->config = config;
	devices->again.fd = -1;
	list = ibv_get_device_list(&count);
	if (list == NULL || count == 0) {
		status = no_devices(err);
	} else {
		/* Before Linux 5.12 a fork makes pinned pages the child's. */
		if (ibv_is_fork_initialized() == IBV_FORK_DISABLED)
			(void)ibv_fork_init();
		if (config->verbs_devices[0] != '\0')
			status = open_named(devices, list, count, config, err);
		else
			status = open_all(devices, list, count, config, err);
	}
	if (list != NULL)
		ibv_free_device_list(list);
	return status == KVP_SUCCESS ? check_ports(devices, err) : status;
}

/* --- changes -------------------------------------------------------------------------------- */

/* Read a port again, and tell when it differs, or always. */
static void
port_again(struct kvp_verbs_devices *devices, struct kvp_verbs_port *port, bool is_told)
{
	struct kvp_verbs_port now = *port;

	kvp_verbs_port_read(&devices->device[port->device], &now, devices->config->verbs_gid_index);
	if (now.is_active != port->is_active || now.gid_index != port->gid_index ||
	    memcmp(&now.address, &port->address, sizeof(now.address)) != 0)
		is_told = true;
	*port = now;
	if (is_told)
		devices->changed(devices, port->device, port, NULL, devices->ctx);
}

static void
look_after(struct kvp_verbs_devices *devices, uint32_t looks)
{
	const struct itimerspec after = {.it_value.tv_nsec = looks > 0 ? LOOK_AFTER_NS : 0};

	devices->looks = looks;
	(void)timerfd_settime(devices->again.fd, 0, &after, NULL);
}

static void
look_again(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct kvp_verbs_devices *devices = watch->ctx;
	uint64_t times;

	(void)epoll_events;
	if (read(watch->fd, &times, sizeof(times)) != sizeof(times))
		return;
	for (uint32_t i = 0; i < devices->ports; i++) {
		struct kvp_verbs_port *port = &devices->port[i];

		if (!devices->device[port->device].is_fatal)
			port_again(devices, port, false);
	}
	look_after(devices, devices->looks > 0 ? devices->looks - 1 : 0);
}

static void
port_event(struct kvp_verbs_devices *devices, uint32_t device, int number)
{
	for (uint32_t i = 0; i < devices->ports; i++) {
		if (devices->port[i].device == device && devices->port[i].number == number)
			port_again(devices, &devices->port[i], true);
	}
	look_after(devices, LOOKS);
}

static void
device_fatal(struct kvp_verbs_devices *devices, struct kvp_verbs_device *device)
{
	if (device->is_fatal)
		return;
	/* Also read by threads that register caches. */
	__atomic_store_n(&device->is_fatal, true, __ATOMIC_RELAXED);
	devices->changed(devices, (uint32_t)(device - devices->device), NULL, NULL, devices->ctx);
}

static void
one_event(struct kvp_verbs_devices *devices, struct kvp_verbs_device *device,
	  const struct ibv_async_event *event)
{
	uint32_t index = (uint32_t)(device - devices->device);

	switch ((int)event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		port_event(devices, index, event->element.port_num);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		devices->changed(devices, index, NULL, event->element.qp, devices->ctx);
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		device_fatal(devices, device);
		break;
	default: /* COMM_EST, SQ_DRAINED, LAST_WQE_REACHED ...: nothing to do */
		break;
	}
}

static void
events_ready(struct kvp_watch *watch, uint32_t epoll_events)
{
	struct kvp_verbs_device *device = watch->ctx;
	struct kvp_verbs_devices *devices = device->all;
	struct ibv_async_event event;

	(void)epoll_events;
	/* Bounded: a completion queue that overruns raises one event per lost entry. */
	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		if (ibv_get_async_event(device->context, &event) == 0) {
			one_event(devices, device, &event);
			ibv_ack_async_event(&event);
			continue;
		}
		if (errno == EAGAIN || errno == EINTR)
			return;
		/* The device was taken away: its descriptor stays ready for ever. */
		kvp_reactor_remove(devices->dataplane->reactor, &device->watch);
		device->watch.fd = -1;
		device_fatal(devices, device);
		return;
	}
}

static kvp_status
watch_one(struct kvp_verbs_devices *devices, struct kvp_watch *watch, int fd, kvp_ready_fn ready,
	  void *ctx, struct kvp_error *err)
{
	int rc;

	*watch = (struct kvp_watch){.fd = fd, .events = EPOLLIN, .ready = ready, .ctx = ctx};
	rc = kvp_reactor_add(devices->dataplane->reactor, watch);
	if (rc == 0)
		return KVP_SUCCESS;
	watch->fd = -1;
	return kvp_fail(err, KVP_NO_RESOURCE, "verbs: watching devices: %s", strerrorname_np(-rc));
}

static kvp_status
watch_all(struct kvp_verbs_devices *devices, struct kvp_error *err)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	kvp_status status;

	if (fd < 0)
		return kvp_fail(err, KVP_NO_RESOURCE, "verbs: timerfd_create: %s",
				strerrorname_np(errno));
	status = watch_one(devices, &devices->again, fd, look_again, devices, err);
	if (status != KVP_SUCCESS)
		close(fd);
	for (uint32_t i = 0; i < devices->devices && status == KVP_SUCCESS; i++) {
		struct kvp_verbs_device *device = &devices->device[i];

		status = watch_one(devices, &device->watch, device->context->async_fd, events_ready,
				   device, err);
	}
	if (status == KVP_SUCCESS)
		look_after(devices, LOOKS);
	return status;
}

/* --- open and close --------------------------------------------------------------------------- */

kvp_status
kvp_verbs_devices_open(struct kvp_dataplane *dataplane, struct kvp_verbs_devices *devices,
		       struct kvp_error *err)
{
	kvp_status status;

	devices->dataplane = dataplane;
	status = kvp_verbs_devices_find(dataplane->config, devices, err);
	if (status == KVP_SUCCESS)
		status = watch_all(devices, err);
	if (status != KVP_SUCCESS)
		kvp_verbs_devices_close(devices);
	return status;
}

void
kvp_verbs_devices_close(struct kvp_verbs_devices *devices)
{
	if (devices->again.fd >= 0) {
		kvp_reactor_remove(devices->dataplane->reactor, &devices->again);
		close(devices->again.fd);
		devices->again.fd = -1;
	}
	for (uint32_t i = 0; i < devices->devices; i++) {
		struct kvp_verbs_device *device = &devices->device[i];

		if (device->watch.fd >= 0)
			kvp_reactor_remove(devices->dataplane->reactor, &device->watch);
		close_device(device);
	}
	devices->devices = 0;
	devices->ports = 0;
}
