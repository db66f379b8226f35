/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_verbs_state.h"

#undef ibv_query_port

/* --- the fabric -------------------------------------------------------------------- */

/* ::ffff:10.network.0.host part, or fe80:: with the same. */
static void
gid_fill(union ibv_gid *gid, bool is_link_local, uint32_t network, uint32_t place)
{
	memset(gid, 0, sizeof(*gid));
	if (is_link_local) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		gid->raw[11] = 0xff;
		gid->raw[12] = 0xfe;
		gid->raw[13] = (uint8_t)network;
	} else {
		gid->raw[10] = gid->raw[11] = 0xff;
		gid->raw[12] = 10;
		gid->raw[13] = (uint8_t)network;
	}
	gid->raw[15] = (uint8_t)(place + 1);
}

static void
port_open(uint32_t place, const struct fake_verbs_device_plan *plan)
{
	struct fake_port *port = &fake.port[place];

	port->device = place / FAKE_VERBS_PORTS_MAX;
	port->network = plan->network[place % FAKE_VERBS_PORTS_MAX];
	port->lid = (uint16_t)(place + 1);
	if (plan->is_infiniband) {
		gid_fill(&port->gid[0], true, port->network, place);
		port->gid[0].raw[13] = 0; /* one subnet prefix, told apart by the GUID */
		port->type[0] = IBV_GID_TYPE_IB + 1;
		return;
	}
	for (uint32_t i = 0; i < 4; i++) {
		gid_fill(&port->gid[i], i < 2, port->network, place);
		port->type[i] = (i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2) + 1;
	}
}

void
fake_devices_open(void)
{
	for (uint32_t d = 0; d < fake.topology.devices; d++) {
		struct fake_verbs_device_plan *plan = &fake.topology.device[d];
		struct ibv_device *device = &fake.device[d];

		if (plan->ports == 0)
			plan->ports = 1;
		device->node_type = IBV_NODE_CA;
		device->transport_type = IBV_TRANSPORT_IB;
		snprintf(device->name, sizeof(device->name), "fake%u", d);
		snprintf(device->dev_name, sizeof(device->dev_name), "uverbs-fake%u", d);
		for (uint32_t p = 0; p < plan->ports; p++)
			port_open(d * FAKE_VERBS_PORTS_MAX + p, plan);
	}
}

uint32_t
fake_port_find(const struct ibv_ah_attr *ah, uint32_t from)
{
	for (uint32_t i = 0; i < FAKE_PORTS; i++) {
		const struct fake_port *port = &fake.port[i];
		const struct fake_verbs_device_plan *plan = &fake.topology.device[port->device];

		if (port->lid == 0 || port->network != fake.port[from].network)
			continue;
		if (plan->is_infiniband && !ah->is_global) {
			if (port->lid == ah->dlid)
				return i;
			continue;
		}
		for (uint32_t k = 0; k < FAKE_GIDS; k++)
			if (port->type[k] != 0 &&
			    memcmp(&port->gid[k], &ah->grh.dgid, sizeof(port->gid[k])) == 0)
				return i;
	}
	return FAKE_VERBS_ANY;
}

/* --- devices ------------------------------------------------------------------------ */

#undef ibv_get_device_list
struct ibv_device **
ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(FAKE_VERBS_DEVICES_MAX + 1, sizeof(struct ibv_device *));
	int count = 0;

	pthread_mutex_lock(&fake_lock);
	for (uint32_t d = 0; list != NULL && d < fake.topology.devices; d++)
		if (fake.host == FAKE_VERBS_ANY || fake.topology.device[d].host == fake.host)
			list[count++] = &fake.device[d];
	fake.lists += list != NULL;
	pthread_mutex_unlock(&fake_lock);
	if (num_devices != NULL)
		*num_devices = count;
	return list;
}

void
ibv_free_device_list(struct ibv_device **list)
{
	pthread_mutex_lock(&fake_lock);
	fake.lists--;
	pthread_mutex_unlock(&fake_lock);
	free(list);
}

const char *
ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64
ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(0x0200000000000000ULL + (uint64_t)(device - fake.device) + 1);
}

int
ibv_get_device_index(struct ibv_device *device)
{
	return (int)(device - fake.device);
}

struct fake_context *
fake_context_of(struct ibv_context *context)
{
	return (struct fake_context *)(void *)verbs_get_ctx(context);
}

static int
query_port(struct ibv_context *base, uint8_t number, struct ibv_port_attr *attr, size_t bytes)
{
	const struct fake_context *context = fake_context_of(base);
	const struct fake_port *port;
	bool is_up;

	if (number < 1 || number > fake.topology.device[context->device].ports)
		return EINVAL;
	pthread_mutex_lock(&fake_lock);
	port = &fake.port[context->device * FAKE_VERBS_PORTS_MAX + number - 1];
	is_up = port->cable != FAKE_VERBS_CUT;
	pthread_mutex_unlock(&fake_lock);
	memset(attr, 0, bytes);
	attr->state = is_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	attr->max_mtu = IBV_MTU_4096;
	attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = FAKE_GIDS;
	attr->max_msg_sz = 1U << 31;
	attr->pkey_tbl_len = 1;
	attr->lid = port->lid;
	attr->active_width = 2;  /* 4x */
	attr->active_speed = 32; /* EDR */
	attr->phys_state = is_up ? 5 : 3;
	attr->link_layer = fake.topology.device[context->device].is_infiniband
				   ? IBV_LINK_LAYER_INFINIBAND
				   : IBV_LINK_LAYER_ETHERNET;
	if (attr->link_layer == IBV_LINK_LAYER_ETHERNET)
		attr->lid = 0;
	return 0;
}

/* What callers built against the first ABI get; the structure's first part is the same. */
int
ibv_query_port(struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)(void *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static struct ibv_td *
alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct fake_td *td;

	if (attr->comp_mask != 0) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (td == NULL)
		return NULL;
	td->td.context = context;
	pthread_mutex_lock(&fake_lock);
	fake.tds++;
	fake_context_of(context)->children++;
	pthread_mutex_unlock(&fake_lock);
	return &td->td;
}

static int
dealloc_td(struct ibv_td *base)
{
	struct fake_td *td = (struct fake_td *)(void *)base;
	bool is_used;

	pthread_mutex_lock(&fake_lock);
	is_used = td->users > 0;
	if (!is_used) {
		fake.tds--;
		fake_context_of(base->context)->children--;
	} else {
		fake_failed("a thread domain is freed before its parent domain");
	}
	pthread_mutex_unlock(&fake_lock);
	if (is_used)
		return EBUSY;
	free(td);
	return 0;
}

static struct ibv_pd *
alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct fake_pd *pd, *parent = (struct fake_pd *)(void *)attr->pd;

	if (attr->pd == NULL || attr->comp_mask != 0) {
		errno = EINVAL;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return NULL;
	pd->pd.context = context;
	pd->td = (struct fake_td *)(void *)attr->td;
	pthread_mutex_lock(&fake_lock);
	pd->parent = parent->parent;
	pd->parent->users++;
	if (pd->td != NULL)
		pd->td->users++;
	fake.pds++;
	fake_context_of(context)->children++;
	pthread_mutex_unlock(&fake_lock);
	return &pd->pd;
}

static void
context_fill(struct fake_context *context, uint32_t d)
{
	struct ibv_context *base = &context->verbs.context;

	context->device = d;
	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = query_port;
	if (!fake.topology.has_no_domains) {
		context->verbs.alloc_td = alloc_td;
		context->verbs.dealloc_td = dealloc_td;
		context->verbs.alloc_parent_domain = alloc_parent_domain;
	}
	base->abi_compat = __VERBS_ABI_IS_EXTENDED;
	base->device = &fake.device[d];
	base->num_comp_vectors = 1;
	base->cmd_fd = -1;
	base->ops.post_send = fake_post_send;
	base->ops.post_recv = fake_post_recv;
	base->ops.poll_cq = fake_poll_cq;
	base->ops.req_notify_cq = fake_req_notify_cq;
	pthread_mutex_init(&base->mutex, NULL);
}

struct ibv_context *
ibv_open_device(struct ibv_device *device)
{
	struct fake_context *context = calloc(1, sizeof(*context));
	uint32_t place = 0;

	if (context == NULL)
		return NULL;
	context_fill(context, (uint32_t)(device - fake.device));
	context->verbs.context.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	pthread_mutex_lock(&fake_lock);
	while (place < FAKE_CONTEXTS_MAX && fake.context[place] != NULL)
		place++;
	if (place == FAKE_CONTEXTS_MAX || context->verbs.context.async_fd < 0)
		abort();
	fake.context[place] = context;
	pthread_mutex_unlock(&fake_lock);
	return &context->verbs.context;
}

int
ibv_close_device(struct ibv_context *base)
{
	struct fake_context *context = fake_context_of(base);

	pthread_mutex_lock(&fake_lock);
	if (context->children > 0)
		fake_failed("device fake%u is closed with %u objects of it alive", context->device,
			    context->children);
	for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++)
		if (fake.context[i] == context)
			fake.context[i] = NULL;
	pthread_mutex_unlock(&fake_lock);
	close(base->async_fd);
	pthread_mutex_destroy(&base->mutex);
	free(context);
	return 0;
}

int
ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct fake_verbs_topology *t = &fake.topology;

	memset(attr, 0, sizeof(*attr));
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "1.0.0");
	attr->node_guid = ibv_get_device_guid(context->device);
	attr->sys_image_guid = attr->node_guid;
	attr->max_mr_size = t->max_mr_size > 0 ? t->max_mr_size : UINT64_MAX;
	attr->page_size_cap = 0xfffff000;
	attr->max_qp = (int)FAKE_QPS_MAX;
	attr->max_qp_wr = (int)t->max_qp_wr;
	attr->max_sge = (int)t->max_sge;
	attr->max_sge_rd = (int)t->max_sge;
	attr->max_cq = 65536;
	attr->max_cqe = (int)t->max_cqe;
	attr->max_mr = (int)t->max_mr;
	attr->max_pd = 65536;
	attr->max_qp_rd_atom = 16;
	attr->max_res_rd_atom = 4096;
	attr->max_qp_init_rd_atom = 16;
	attr->max_pkeys = 1;
	attr->phys_port_cnt = (uint8_t)t->device[fake_context_of(context)->device].ports;
	return 0;
}

/* --- GIDs ---------------------------------------------------------------------------- */

static int
gid_read(struct fake_context *context, uint32_t number, uint32_t index, struct ibv_gid_entry *out)
{
	const struct fake_port *port;
	int rc = 0;

	if (number < 1 || number > fake.topology.device[context->device].ports ||
	    index >= FAKE_GIDS)
		return EINVAL;
	pthread_mutex_lock(&fake_lock);
	port = &fake.port[context->device * FAKE_VERBS_PORTS_MAX + number - 1];
	if (port->type[index] == 0) {
		rc = ENODATA;
	} else {
		memset(out, 0, sizeof(*out));
		out->gid = port->gid[index];
		out->gid_index = index;
		out->port_num = number;
		out->gid_type = port->type[index] - 1;
		out->ndev_ifindex =
			port->type[index] - 1 == IBV_GID_TYPE_IB
				? 0
				: 1000 + context->device * FAKE_VERBS_PORTS_MAX + number - 1;
	}
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

int
ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int rc = gid_read(fake_context_of(context), port_num, (uint32_t)index, &entry);

	memset(gid, 0, sizeof(*gid));
	if (rc == ENODATA)
		return 0; /* an empty entry reads as zeros */
	if (rc != 0)
		return -1;
	*gid = entry.gid;
	return 0;
}

int
_ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		  struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	if (flags != 0 || entry_size < sizeof(*entry))
		return EINVAL;
	return gid_read(fake_context_of(context), port_num, gid_index, entry);
}

ssize_t
_ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
		     uint32_t flags, size_t entry_size)
{
	struct fake_context *own = fake_context_of(context);
	size_t count = 0;

	if (flags != 0 || entry_size < sizeof(*entries))
		return -EINVAL;
	for (uint32_t p = 1; p <= fake.topology.device[own->device].ports; p++)
		for (uint32_t i = 0; i < FAKE_GIDS && count < max_entries; i++)
			count += gid_read(own, p, i, &entries[count]) == 0;
	return (ssize_t)count;
}

int
ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	(void)context;
	if (port_num < 1 || index != 0)
		return -1;
	*pkey = htobe16(0xffff);
	return 0;
}

/* --- asynchronous events ---------------------------------------------------------------- */

static void
event_push(struct fake_context *context, const struct ibv_async_event *event)
{
	uint64_t one = 1;

	fake.count.events++;
	if (context->events - context->events_read == FAKE_EVENTS) {
		fake_failed("nobody reads the events of fake%u", context->device);
		return;
	}
	context->event[context->events++ % FAKE_EVENTS] = *event;
	if (write(context->verbs.context.async_fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

void
fake_event_qp(struct fake_qp *qp, enum ibv_event_type type)
{
	event_push(fake_context_of(qp->qp.context),
		   &(struct ibv_async_event){.element.qp = &qp->qp, .event_type = type});
}

void
fake_event_cq(struct fake_cq *cq, enum ibv_event_type type)
{
	event_push(fake_context_of(cq->cq.context),
		   &(struct ibv_async_event){.element.cq = &cq->cq, .event_type = type});
}

void
fake_event_port(uint32_t port, enum ibv_event_type type)
{
	for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++)
		if (fake.context[i] != NULL &&
		    fake.context[i]->device == port / FAKE_VERBS_PORTS_MAX)
			event_push(
				fake.context[i],
				&(struct ibv_async_event){
					.element.port_num = (int)(port % FAKE_VERBS_PORTS_MAX) + 1,
					.event_type = type});
}

static bool
is_about(const struct ibv_async_event *event, const void *object)
{
	switch ((int)event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq == object;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
		return event->element.qp == object;
	default:
		return false;
	}
}

void
fake_events_purge(struct fake_context *context, const void *object)
{
	uint32_t kept = context->events_read;
	uint64_t one;

	for (uint32_t i = context->events_read; i != context->events; i++) {
		if (!is_about(&context->event[i % FAKE_EVENTS], object))
			context->event[kept++ % FAKE_EVENTS] = context->event[i % FAKE_EVENTS];
		else if (read(context->verbs.context.async_fd, &one, sizeof(one)) != sizeof(one))
			abort();
	}
	context->events = kept;
}

static uint32_t *
unacked_of(const struct ibv_async_event *event)
{
	static uint32_t none;

	switch ((int)event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return &((struct fake_cq *)(void *)event->element.cq)->async_unacked;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
		return &((struct fake_qp *)(void *)event->element.qp)->async_unacked;
	default:
		return &none;
	}
}

int
ibv_get_async_event(struct ibv_context *base, struct ibv_async_event *event)
{
	struct fake_context *context = fake_context_of(base);
	uint64_t one;

	if (read(base->async_fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	pthread_mutex_lock(&fake_lock);
	*event = context->event[context->events_read++ % FAKE_EVENTS];
	++*unacked_of(event);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

void
ibv_ack_async_event(struct ibv_async_event *event)
{
	pthread_mutex_lock(&fake_lock);
	--*unacked_of(event);
	pthread_mutex_unlock(&fake_lock);
}
