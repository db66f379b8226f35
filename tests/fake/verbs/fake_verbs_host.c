/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libc tells of a host with fake devices: their interfaces' addresses, and random numbers that follow
 * from the seed. Without an open world, libc's own.
 */
#include <dlfcn.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/random.h>

#include "fake_verbs_state.h"

static struct interface {
	struct ifaddrs entry;
	char name[32];
	struct sockaddr_in address, mask;
} interfaces[FAKE_PORTS];

static void
interface_fill(struct interface *interface, uint32_t port)
{
	snprintf(interface->name, sizeof(interface->name), "eth-fake%u", port);
	interface->address = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr.s_addr =
			htonl(10U << 24 | (fake.port[port].network & 255) << 16 | (port + 1))};
	interface->mask =
		(struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xFFFFFF00U)};
	interface->entry = (struct ifaddrs){.ifa_name = interface->name,
					    .ifa_addr = (struct sockaddr *)&interface->address,
					    .ifa_netmask = (struct sockaddr *)&interface->mask};
}

/* The function of this name behind ours; ISO C has no cast from an object to a function. */
static void
find_next(const char *name, void *function_out)
{
	void *at = dlsym(RTLD_NEXT, name);

	memcpy(function_out, &at, sizeof(at));
}

void
fake_host_open(void)
{
	memset(interfaces, 0, sizeof(interfaces));
}

int
getifaddrs(struct ifaddrs **list)
{
	int (*libc)(struct ifaddrs **);
	bool is_open;

	pthread_mutex_lock(&fake_lock);
	is_open = fake.is_open;
	*list = NULL;
	for (uint32_t i = FAKE_PORTS; is_open && i-- > 0;) {
		if (fake.port[i].lid == 0 ||
		    fake.topology.device[fake.port[i].device].is_infiniband)
			continue;
		interface_fill(&interfaces[i], i);
		interfaces[i].entry.ifa_next = *list;
		*list = &interfaces[i].entry;
	}
	pthread_mutex_unlock(&fake_lock);
	if (is_open)
		return 0;
	find_next("getifaddrs", &libc);
	return libc(list);
}

void
freeifaddrs(struct ifaddrs *list)
{
	uintptr_t at = (uintptr_t)list, first = (uintptr_t)interfaces;
	void (*libc)(struct ifaddrs *);

	if (list == NULL || (at >= first && at < first + sizeof(interfaces)))
		return;
	find_next("freeifaddrs", &libc);
	libc(list);
}

ssize_t
getrandom(void *buffer, size_t bytes, unsigned int flags)
{
	ssize_t (*libc)(void *, size_t, unsigned int);
	bool is_open;

	pthread_mutex_lock(&fake_lock);
	is_open = fake.is_open;
	for (size_t i = 0; is_open && i < bytes; i++)
		((uint8_t *)buffer)[i] = (uint8_t)fake_random(256);
	pthread_mutex_unlock(&fake_lock);
	if (is_open)
		return (ssize_t)bytes;
	find_next("getrandom", &libc);
	return libc(buffer, bytes, flags);
}
