/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#define PORT_MAX 65535U

/* Of a text that may be a caller's mistake of any length. */
#define SHOWN "%.80s"

static kvp_status
parse_port(const char *text, const char *port, in_port_t *port_out, struct kvp_error *err)
{
	uint32_t value = 0;

	if (*port == '\0')
		return kvp_fail(err, KVP_ADDRESS, "address '" SHOWN "' has no port after its ':'",
				text);
	for (const char *c = port; *c != '\0'; c++) {
		if (*c < '0' || *c > '9')
			return kvp_fail(err, KVP_ADDRESS,
					"address '" SHOWN "': the port is not a decimal number",
					text);
		value = value * 10 + (uint32_t)(*c - '0');
		if (value > PORT_MAX)
			return kvp_fail(err, KVP_ADDRESS,
					"address '" SHOWN "': the port is not in [0, %u]", text,
					PORT_MAX);
	}
	*port_out = htons((uint16_t)value);
	return KVP_SUCCESS;
}

/* Read `bytes` of `host` as an address of `family` into *ip_out. */
static bool
is_ip(int family, const char *host, size_t bytes, void *ip_out)
{
	char copy[INET6_ADDRSTRLEN];

	if (bytes >= sizeof(copy))
		return false;
	memcpy(copy, host, bytes);
	copy[bytes] = '\0';
	return inet_pton(family, copy, ip_out) == 1;
}

static kvp_status
parse_ipv6(const char *text, struct sockaddr_in6 *in6, struct kvp_error *err)
{
	const char *end = strchr(text, ']');

	if (end == NULL)
		return kvp_fail(err, KVP_ADDRESS, "address '" SHOWN "' has no ']' for its '['",
				text);
	if (end[1] != ':')
		return kvp_fail(err, KVP_ADDRESS,
				"address '" SHOWN "' has no ':port' right after its ']'", text);
	if (!is_ip(AF_INET6, text + 1, (size_t)(end - text - 1), &in6->sin6_addr))
		return kvp_fail(err, KVP_ADDRESS,
				"address '" SHOWN
				"': what is in the brackets is not an IPv6 address",
				text);
	in6->sin6_family = AF_INET6;
	return parse_port(text, end + 2, &in6->sin6_port, err);
}

static kvp_status
parse_ipv4(const char *text, struct sockaddr_in *in, struct kvp_error *err)
{
	const char *colon = strchr(text, ':');

	if (colon == NULL)
		return kvp_fail(err, KVP_ADDRESS, "address '" SHOWN "' has no ':port'", text);
	if (strchr(colon + 1, ':') != NULL)
		return kvp_fail(err, KVP_ADDRESS,
				"address '" SHOWN "' has two ':'; IPv6 is written [ipv6]:port",
				text);
	if (!is_ip(AF_INET, text, (size_t)(colon - text), &in->sin_addr))
		return kvp_fail(err, KVP_ADDRESS,
				"address '" SHOWN "': the part before ':' is not an IPv4 address "
				"(host names are not looked up)",
				text);
	in->sin_family = AF_INET;
	return parse_port(text, colon + 1, &in->sin_port, err);
}

kvp_status
kvp_address_parse(const char *text, struct sockaddr_storage *address_out, struct kvp_error *err)
{
	union {
		struct sockaddr_storage any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} address;
	kvp_status status;

	memset(&address, 0, sizeof(address));
	if (text[0] == '[')
		status = parse_ipv6(text, &address.in6, err);
	else
		status = parse_ipv4(text, &address.in, err);
	if (status == KVP_SUCCESS)
		*address_out = address.any;
	return status;
}

void
kvp_address_format(const struct sockaddr_storage *address, char text[KVP_ADDRESS_TEXT_MAX])
{
	char ip[INET6_ADDRSTRLEN];
	struct sockaddr_in6 in6;
	struct sockaddr_in in;

	if (address->ss_family == AF_INET) {
		memcpy(&in, address, sizeof(in));
		inet_ntop(AF_INET, &in.sin_addr, ip, sizeof(ip));
		snprintf(text, KVP_ADDRESS_TEXT_MAX, "%s:%u", ip, ntohs(in.sin_port));
	} else if (address->ss_family == AF_INET6) {
		memcpy(&in6, address, sizeof(in6));
		inet_ntop(AF_INET6, &in6.sin6_addr, ip, sizeof(ip));
		snprintf(text, KVP_ADDRESS_TEXT_MAX, "[%s]:%u", ip, ntohs(in6.sin6_port));
	} else {
		snprintf(text, KVP_ADDRESS_TEXT_MAX, "?");
	}
}

socklen_t
kvp_address_bytes(const struct sockaddr_storage *address)
{
	switch (address->ss_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

bool
kvp_address_is_loopback(const struct sockaddr_storage *address)
{
	struct sockaddr_in6 in6;
	struct sockaddr_in in;

	if (address->ss_family == AF_INET) {
		memcpy(&in, address, sizeof(in));
		return ntohl(in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	}
	if (address->ss_family != AF_INET6)
		return false;
	memcpy(&in6, address, sizeof(in6));
	if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr))
		return in6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}
