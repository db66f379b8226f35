/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvpush/doctor.h>

#include "config.h"
#include "line.h"
#include "machine.h"
#include "report.h"
#include "transport.h"

#define EXPLAIN_BYTES 8192U
#define LINE_BYTES    512U
#define BAD           "BAD"

/* Lines that are cut at the end of the caller's buffer. */
struct paper {
	struct kvp_line lines;
	char bad[KVP_ERROR_TEXT_MAX]; /* the first "BAD" line, "" = none */
};

static void
put_line(struct paper *paper, const char *word, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void
put_line(struct paper *paper, const char *word, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (paper->bad[0] == '\0' && strcmp(word, BAD) == 0)
		(void)snprintf(paper->bad, sizeof(paper->bad), "%.*s", (int)sizeof(paper->bad) - 1,
			       line);
	kvp_line_add(&paper->lines, "%-4s  %s\n", word, line);
}

/* Lines of a transport, which belong to the finding before them. */
static void
put_details(struct paper *paper, char *lines)
{
	char *line;

	while ((line = strsep(&lines, "\n")) != NULL) {
		if (*line != '\0')
			put_line(paper, "", "  %s", line);
	}
}

/* Can it start here? `is_only`: no other is asked for. */
static bool
look_at_transport(struct paper *paper, const struct kvp_config *config, const char *name,
		  bool is_only)
{
	const struct kvp_transport *transport = kvp_transport_find(name, NULL);
	char none[] = "there is no memory to look", *text, *lines;
	bool can_start;

	if (transport == NULL) {
		put_line(paper, BAD, "transport %s: not one of this build", name);
		return false;
	}
	text = calloc(1, EXPLAIN_BYTES);
	lines = text != NULL ? text : none;
	can_start =
		transport->explain == NULL ||
		(text != NULL && transport->explain(config, text, EXPLAIN_BYTES) == KVP_SUCCESS);
	if (can_start)
		put_line(paper, "ok", "transport %s: can start", name);
	else if (is_only || (transport->is_required != NULL && transport->is_required(config)))
		put_line(paper, BAD, "transport %s: cannot start: %s", name, strsep(&lines, "\n"));
	else
		put_line(paper, "note",
			 "transport %s: cannot start, links go over the others and say so: %s",
			 name, strsep(&lines, "\n"));
	put_details(paper, lines);
	free(text);
	return can_start;
}

static void
look_at_transports(struct paper *paper, const struct kvp_config *config)
{
	char names[KVP_RAILS_MAX][KVP_NAME_MAX];
	int count = kvp_config_transports(config, names), usable = 0;

	for (int i = 0; i < count; i++)
		usable += look_at_transport(paper, config, names[i], count == 1);
	if (usable == 0 && paper->bad[0] == '\0')
		put_line(paper, BAD, "transports: none of them can start");
}

/* Which there are at all, asked for or not. */
static void
list_transports(struct paper *paper)
{
	char names[KVP_TRANSPORTS * (KVP_NAME_MAX + 2)] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < KVP_TRANSPORTS && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 i > 0 ? ", " : "", kvp_transports[i]->name);
	put_line(paper, "ok", "transports of this build: %s", names);
}

static void
look_at_locked_memory(struct paper *paper, const struct kvp_machine *machine)
{
	if (machine->may_lock)
		put_line(paper, "ok", "locked memory: no limit (CAP_IPC_LOCK is effective)");
	else if (machine->memlock == UINT64_MAX)
		put_line(paper, "ok", "locked memory: no limit (CAP_IPC_LOCK is not effective)");
	else
		put_line(
			paper, "note",
			"locked memory: at most %" PRIu64 " KiB, %" PRIu64
			" KiB of them pinned, and CAP_IPC_LOCK is not effective; each device pins the "
			"size of all caches: ulimit -l unlimited, LimitMEMLOCK=infinity of a systemd "
			"unit, --ulimit memlock=-1 of a container",
			machine->memlock >> 10, machine->pinned >> 10);
}

static void
look_at_huge_pages(struct paper *paper, const struct kvp_config *config,
		   const struct kvp_machine *machine)
{
	bool is_bad = config->huge_pages == 1 && machine->huge_free == 0;

	put_line(
		paper, is_bad ? BAD : "ok",
		"huge pages: %" PRIu64 " of 2 MiB, %" PRIu64 " of them free, %s",
		machine->huge_pages, machine->huge_free,
		is_bad ? "and huge_pages=1 asks for them: raise vm.nr_hugepages, or set huge_pages=0"
		: config->huge_pages == 1
			? "asked for"
			: "not asked for (huge_pages=1 makes registering large caches faster)");
}

/* A quota stops a polling thread for tens of milliseconds at a time. */
static void
look_at_cores(struct paper *paper, const struct kvp_config *config,
	      const struct kvp_machine *machine)
{
	if (config->idle == KVP_IDLE_POLL && machine->cores <= config->lanes)
		put_line(paper, "note",
			 "cores: %u for %u lanes that poll for ever; give each lane a core and the "
			 "rest of the process another, or set idle=adaptive",
			 machine->cores, config->lanes);
	else
		put_line(paper, "ok", "cores: %u for %u lanes", machine->cores, config->lanes);
	if (machine->quota_us != 0)
		put_line(paper, "note",
			 "CPU quota: the control group has %.1f cores (%" PRIu64 " us in %" PRIu64
			 " us); a lane that polls is stopped when they are used up: give it whole "
			 "cores (a cpuset) instead of a quota, and keep idle=adaptive",
			 (double)machine->quota_us / (double)machine->period_us, machine->quota_us,
			 machine->period_us);
	else
		put_line(paper, "ok", "CPU quota: none");
}

static void
look_at_rdma_limits(struct paper *paper, const struct kvp_machine *machine)
{
	if (machine->rdma[0] != '\0')
		put_line(paper, "note",
			 "RDMA objects: the control group limits them (%s): each device needs a "
			 "handle, each cache and link some objects; raise rdma.max",
			 machine->rdma);
	else
		put_line(paper, "ok", "RDMA objects: no limit by a control group");
}

kvp_status
kvp_doctor(const struct kvp_config *config, char *text, size_t size)
{
	struct kvp_error *err = kvp_error_here();
	struct paper paper = {.lines = {.text = text, .size = size}};
	struct kvp_machine machine;
	kvp_status status;

	if (config == NULL || text == NULL || size == 0)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s",
				config == NULL ? "config is NULL"
				: text == NULL ? "text is NULL"
					       : "size is 0");
	text[0] = '\0';
	status = kvp_config_check(config, err);
	if (status != KVP_SUCCESS)
		return KVP_PARAM_INVALID;
	kvp_machine_read("", &machine);
	list_transports(&paper);
	look_at_transports(&paper, config);
	look_at_locked_memory(&paper, &machine);
	look_at_rdma_limits(&paper, &machine);
	look_at_huge_pages(&paper, config, &machine);
	look_at_cores(&paper, config, &machine);
	if (paper.bad[0] == '\0')
		return KVP_SUCCESS;
	return kvp_fail(err, KVP_NO_TRANSPORT, "%s", paper.bad);
}
