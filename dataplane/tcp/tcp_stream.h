/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_stream.h - how the streams of a path come up
 *
 *   initiator: connect -> STREAM frame with the acceptor's token leaves -> greeting comes
 *   acceptor:  control read the STREAM frame, the token is right -> greeting leaves
 *
 * The greeting is exactly read, so that nothing of the lanes' bytes behind it is
 * taken. When all streams are through the path is UP; the first that fails takes
 * the path with it.
 *
 * Threads:    [C] all
 */
#ifndef KVP_DATAPLANE_TCP_STREAM_H
#define KVP_DATAPLANE_TCP_STREAM_H

#include "tcp.h"

/*
 * Begin to connect stream `index` to config.peer. KVP_LINK_FAILED, KVP_NO_RESOURCE with the reason;
 * the stream is closed then.
 */
KVP_MUST_USE kvp_status
kvp_tcp_stream_connect(struct kvp_tcp_path *path, uint32_t index, struct kvp_error *err);

/* Take `fd` as stream `index` and greet the peer from the reactor. False: not taken, not closed. */
KVP_MUST_USE bool
kvp_tcp_stream_take(struct kvp_tcp_path *path, uint32_t index, int fd);

/* Stop watching, close what no endpoint has. */
void
kvp_tcp_streams_close(struct kvp_tcp_path *path);

/* "10.0.0.1" of the peer, "?" when it has none. */
void
kvp_tcp_peer_text(const struct kvp_path_config *config, char *text, size_t size);

#endif /* KVP_DATAPLANE_TCP_STREAM_H */
