/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h - "ipv4:port" and "[ipv6]:port" as text and as socket address
 *
 * Numbers only: a host name would have to be asked from somebody, and that can
 * take seconds.
 *
 * Threads:    pure
 */
#ifndef KVP_CONTROL_ADDRESS_H
#define KVP_CONTROL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include <sys/socket.h>

#include "compiler.h"
#include "error.h"

#define KVP_ADDRESS_TEXT_MAX 64 /* the longest text, with its NUL, needs 54 */

/*
 * Read `text` (never NULL), port in [0, 65535]; unused bytes of *address_out are
 * zero. ADDRESS (*address_out untouched): malformed; the message says what.
 */
KVP_MUST_USE kvp_status
kvp_address_parse(const char *text, struct sockaddr_storage *address_out, struct kvp_error *err);

/* Write the form that kvp_address_parse reads, or "?" for a family that has none. */
void
kvp_address_format(const struct sockaddr_storage *address, char text[KVP_ADDRESS_TEXT_MAX]);

/* Bytes of the family's own structure, for bind and connect; 0 for another family. */
socklen_t
kvp_address_bytes(const struct sockaddr_storage *address);

/* Does it stay on this host: 127.0.0.0/8, ::1, ::ffff:127.0.0.0/104? Not so the wildcards. */
bool
kvp_address_is_loopback(const struct sockaddr_storage *address);

#endif /* KVP_CONTROL_ADDRESS_H */
