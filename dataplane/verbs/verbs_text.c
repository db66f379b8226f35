/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_text.c - what people are told about a path: its text, the log's lines, why it failed */
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "line.h"
#include "verbs_path.h"

#define SAY_NS 1000000000ULL /* a rail that comes and goes says so once in this time */

static uint32_t
proven_of(const struct kvp_verbs_path *path, uint32_t rail)
{
	uint32_t proven = 0;

	for (uint32_t i = 0; i < path->total; i++)
		proven += path->control[i].queue->rail == rail && path->control[i].is_proven;
	return proven;
}

void
kvp_verbs_path_text(struct kvp_verbs_path *path)
{
	struct kvp_line line = kvp_line_start(path->base.text, sizeof(path->base.text));
	uint32_t each = path->base.config.endpoints * path->per_rail;

	kvp_line_add(&line, "verbs (");
	for (uint32_t r = 0; r < path->rails; r++) {
		const struct kvp_verbs_rail_state *rail = &path->rail[r];
		const struct kvp_verbs_port *port = &path->verbs->devices.port[rail->port];
		char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
		uint32_t proven = proven_of(path, r);

		kvp_verbs_gid_text(port->address.gid, from, sizeof(from));
		kvp_verbs_gid_text(rail->peer.gid, to, sizeof(to));
		kvp_line_add(&line, "%s%s %s -> %s %s%s, %u of %u QPs", r > 0 ? "; " : "",
			     port->address.name, from, rail->peer.name, to,
			     rail->is_routed ? " routed" : "", proven, each);
		if (proven == 0 && rail->why[0] != '\0')
			kvp_line_add(&line, ", down: %s", rail->why);
	}
	kvp_line_add(&line, path->rails > 0 ? ")" : "connecting)");
	for (uint32_t r = 0; r < path->rails; r++)
		kvp_line_add(&line, "; %s: %s",
			     path->verbs->devices.port[path->rail[r].port].address.name,
			     path->verbs->devices.port[path->rail[r].port].why);
}

/* --- log and failure -------------------------------------------------------------------------- */

uint64_t
kvp_verbs_rail_say(struct kvp_verbs_path *path, uint32_t r)
{
	struct kvp_verbs_rail_state *rail = &path->rail[r];
	bool is_up = proven_of(path, r) > 0;
	char line[320];

	if (path->is_ending)
		return UINT64_MAX; /* that a link's end breaks its QPs is no news */
	/* At first: neither proven nor broken yet. */
	if (rail->is_told ? is_up == rail->is_told_up : !is_up && rail->why[0] == '\0')
		return UINT64_MAX;
	if (rail->is_told && path->now_ns - rail->told_ns < SAY_NS)
		return SAY_NS - (path->now_ns - rail->told_ns);
	rail->is_told = true;
	rail->is_told_up = is_up;
	rail->told_ns = path->now_ns;
	snprintf(line, sizeof(line), "rail %s -> %s is %s%s%s",
		 path->verbs->devices.port[rail->port].address.name, rail->peer.name,
		 is_up ? "in service" : "out of service: ", is_up ? "" : rail->why,
		 is_up ? "" : "; it is tried again");
	if (path->base.config.say != NULL)
		path->base.config.say(&path->base, is_up ? 3 : 2, line, path->base.config.ctx);
	return UINT64_MAX;
}

void
kvp_verbs_path_failed(struct kvp_verbs_path *path)
{
	const struct kvp_verbs_rail_state *rail = &path->rail[0];
	const struct kvp_verbs_port *port = &path->verbs->devices.port[rail->port];
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN], more[32] = "";

	kvp_verbs_path_text(path);
	kvp_verbs_gid_text(port->address.gid, from, sizeof(from));
	kvp_verbs_gid_text(rail->peer.gid, to, sizeof(to));
	if (path->rails > 1)
		snprintf(more, sizeof(more), ", nor do %u others", path->rails - 1);
	/* An error has no room for every rail; the path's text has. */
	kvp_fail(&path->base.error, KVP_NO_TRANSPORT,
		 "verbs: %s %s -> %s %s does not answer: %.60s%s; one network? UDP port 4791 open? "
		 "VLAN, PFC, MTU right?",
		 port->address.name, from, rail->peer.name, to, rail->why, more);
}
