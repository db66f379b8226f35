/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_port.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIDS_MAX  16384U /* of a device */
#define IPV4_BITS 96U    /* before an IPv4 address in a GID */

/* --- GIDs ------------------------------------------------------------------------------ */

static uint8_t
mask_bits(const void *mask, uint32_t bytes)
{
	const uint8_t *byte = mask;
	uint32_t bits = 0;

	for (uint32_t i = 0; i < bytes; i++)
		bits += (uint32_t)__builtin_popcount(byte[i]);
	return (uint8_t)bits;
}

/* Prefix of the interface's address that is this GID, 0: none is. */
static uint8_t
prefix_of(const struct ifaddrs *all, const uint8_t *gid)
{
	for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
		uint8_t as_gid[KVP_VERBS_GID_BYTES] = {[10] = 0xFF, [11] = 0xFF};
		struct sockaddr_in6 v6, mask6;
		struct sockaddr_in v4, mask4;

		if (one->ifa_addr == NULL || one->ifa_netmask == NULL)
			continue;
		if (one->ifa_addr->sa_family == AF_INET) {
			memcpy(&v4, one->ifa_addr, sizeof(v4));
			memcpy(&mask4, one->ifa_netmask, sizeof(mask4));
			memcpy(as_gid + 12, &v4.sin_addr, 4);
			if (memcmp(as_gid, gid, sizeof(as_gid)) == 0)
				return (uint8_t)(IPV4_BITS + mask_bits(&mask4.sin_addr, 4));
		} else if (one->ifa_addr->sa_family == AF_INET6) {
			memcpy(&v6, one->ifa_addr, sizeof(v6));
			memcpy(&mask6, one->ifa_netmask, sizeof(mask6));
			if (memcmp(&v6.sin6_addr, gid, sizeof(v6.sin6_addr)) == 0)
				return mask_bits(&mask6.sin6_addr, 16);
		}
	}
	return 0;
}

/* Room for the tables of all ports: with less, the library returns nothing at all. */
static uint32_t
gids_room(const struct kvp_verbs_device *device)
{
	uint32_t room = 0;

	for (uint32_t n = 1; n <= device->attr.phys_port_cnt; n++) {
		struct ibv_port_attr attr;

		if (ibv_query_port(device->context, (uint8_t)n, &attr) == 0 && attr.gid_tbl_len > 0)
			room += (uint32_t)attr.gid_tbl_len;
	}
	return room < 1 ? 1 : room > GIDS_MAX ? GIDS_MAX : room;
}

int
kvp_verbs_gids_read(const struct kvp_verbs_device *device, uint8_t number,
		    struct kvp_verbs_gid **gid_out, uint32_t *gids_out)
{
	uint32_t room = gids_room(device), gids = 0;
	struct ibv_gid_entry *entry = calloc(room, sizeof(*entry));
	struct kvp_verbs_gid *gid = calloc(room, sizeof(*gid));
	struct ifaddrs *addresses = NULL;
	ssize_t entries = -ENOMEM;

	if (entry != NULL && gid != NULL)
		entries = getifaddrs(&addresses) == 0
				  ? ibv_query_gid_table(device->context, entry, room, 0)
				  : -errno;
	for (ssize_t i = 0; i < entries; i++) {
		if (entry[i].port_num != number)
			continue;
		gid[gids].index = entry[i].gid_index;
		gid[gids].is_roce_v2 = entry[i].gid_type == IBV_GID_TYPE_ROCE_V2;
		memcpy(gid[gids].gid, entry[i].gid.raw, KVP_VERBS_GID_BYTES);
		gid[gids].prefix = prefix_of(addresses, gid[gids].gid);
		gids++;
	}
	if (addresses != NULL)
		freeifaddrs(addresses);
	free(entry);
	if (entries < 0) {
		free(gid);
		return (int)-entries;
	}
	*gid_out = gid;
	*gids_out = gids;
	return 0;
}

/* RoCE: by rule, or the one that the configuration says. */
static void
choose_gid(const struct kvp_verbs_device *device, struct kvp_verbs_port *port, uint32_t forced)
{
	struct kvp_verbs_gid *gid;
	uint32_t gids;
	int rc = kvp_verbs_gids_read(device, port->number, &gid, &gids), chosen;

	if (rc != 0) {
		snprintf(port->why, sizeof(port->why), "its GIDs cannot be read: %s",
			 strerrorname_np(rc));
		return;
	}
	chosen = kvp_verbs_gid_choose(gid, gids,
				      forced == KVP_VERBS_GID_AUTOMATIC ? -1 : (int)forced,
				      port->why, sizeof(port->why));
	if (chosen >= 0) {
		port->is_active = true;
		port->gid_index = gid[chosen].index;
		port->address.prefix = gid[chosen].prefix;
		memcpy(port->address.gid, gid[chosen].gid, KVP_VERBS_GID_BYTES);
	}
	free(gid);
}

/* InfiniBand: each port has one GID that matters, its subnet's prefix and its serial number. */
static void
take_gid(const struct kvp_verbs_device *device, struct kvp_verbs_port *port)
{
	union ibv_gid gid;

	if (ibv_query_gid(device->context, port->number, 0, &gid) != 0) {
		snprintf(port->why, sizeof(port->why), "its GID cannot be read");
		return;
	}
	port->is_active = true;
	port->gid_index = 0;
	port->address.prefix = 64;
	memcpy(port->address.gid, gid.raw, KVP_VERBS_GID_BYTES);
	snprintf(port->why, sizeof(port->why), "InfiniBand, LID %u", port->address.lid);
}

/* --- the port ---------------------------------------------------------------------------- */

/* In Gb/s, 255 = more, 0 = not known. */
static uint8_t
speed_of(const struct ibv_port_attr *attr)
{
	static const struct {
		uint8_t code;
		uint32_t tenths; /* Gb/s of one of the port's wires, x 10 */
	} speed[] = {{1, 25},   {2, 50},   {4, 100},  {8, 100},
		     {16, 140}, {32, 250}, {64, 500}, {128, 1000}};
	static const struct {
		uint8_t code;
		uint32_t wires;
	} width[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	uint32_t tenths = 0, wires = 0;

	for (size_t i = 0; i < sizeof(speed) / sizeof(speed[0]); i++)
		tenths = speed[i].code == attr->active_speed ? speed[i].tenths : tenths;
	for (size_t i = 0; i < sizeof(width) / sizeof(width[0]); i++)
		wires = width[i].code == attr->active_width ? width[i].wires : wires;
	return tenths * wires / 10 > UINT8_MAX ? UINT8_MAX : (uint8_t)(tenths * wires / 10);
}

static uint8_t
mtu_of(const struct ibv_port_attr *attr)
{
	if (attr->active_mtu >= IBV_MTU_256 && attr->active_mtu <= IBV_MTU_4096)
		return (uint8_t)attr->active_mtu;
	return IBV_MTU_256; /* what every port can do */
}

/* "mlx5_0:1". The end of a long name tells more than its beginning. */
static void
name_port(const struct kvp_verbs_device *device, struct kvp_verbs_port *port)
{
	char name[IBV_SYSFS_NAME_MAX + 8];
	int bytes = snprintf(name, sizeof(name), "%s:%u", device->name, port->number);
	size_t room = sizeof(port->address.name) - 1, cut = 0;

	if (bytes > (int)room)
		cut = (size_t)bytes - room;
	memset(port->address.name, 0, sizeof(port->address.name));
	memcpy(port->address.name, name + cut, strnlen(name + cut, room));
}

void
kvp_verbs_port_read(const struct kvp_verbs_device *device, struct kvp_verbs_port *port,
		    uint32_t forced)
{
	struct ibv_port_attr attr;
	int rc = ibv_query_port(device->context, port->number, &attr);

	port->is_active = false;
	name_port(device, port);
	if (rc != 0) {
		snprintf(port->why, sizeof(port->why), "it cannot be queried: %s",
			 strerrorname_np(rc));
		return;
	}
	port->address.link =
		attr.link_layer == IBV_LINK_LAYER_ETHERNET ? KVP_VERBS_ROCE : KVP_VERBS_INFINIBAND;
	port->address.lid = attr.lid;
	port->address.mtu = mtu_of(&attr);
	port->address.speed = speed_of(&attr);
	if (attr.state != IBV_PORT_ACTIVE)
		snprintf(port->why, sizeof(port->why), "its state is %s: %s",
			 ibv_port_state_str(attr.state),
			 port->address.link == KVP_VERBS_ROCE
				 ? "set its interface up, look at cable and switch"
				 : "look at cable, switch and subnet manager");
	else if (port->address.link == KVP_VERBS_ROCE)
		choose_gid(device, port, forced);
	else
		take_gid(device, port);
}
