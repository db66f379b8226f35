/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - events of links and caches; arrivals come from the lanes directly */
#include <stdlib.h>

#include "report.h"
#include "state.h"

/* An event that found the inbox full. Bounded by links and caches, which raise them. */
struct kvp_event_backlog {
	struct kvp_event_backlog *next;
	struct kvp_event event;
};

static bool
deliver(struct kvp_engine *engine, const struct kvp_event *event)
{
	struct kvp_event *slot = kvp_inbox_take(engine->inbox);

	if (slot == NULL)
		return false;
	*slot = *event;
	slot->layer = -1;
	kvp_inbox_put(engine->inbox, engine->config.lanes, slot);
	return true;
}

void
kvp_event_raise(struct kvp_engine *engine, const struct kvp_event *event)
{
	struct kvp_event_backlog *kept;

	if (engine->backlog == NULL && deliver(engine, event))
		return;
	kept = malloc(sizeof(*kept));
	if (kept == NULL) {
		kvp_log(engine->config.log_level, 1,
			"event kind %u of cluster %llu lost: no memory", event->kind,
			(unsigned long long)event->cluster_id);
		return;
	}
	kept->next = NULL;
	kept->event = *event;
	*engine->backlog_end = kept;
	engine->backlog_end = &kept->next;
}

void
kvp_event_flush(struct kvp_engine *engine)
{
	while (engine->backlog != NULL && deliver(engine, &engine->backlog->event)) {
		struct kvp_event_backlog *first = engine->backlog;

		engine->backlog = first->next;
		if (engine->backlog == NULL)
			engine->backlog_end = &engine->backlog;
		free(first);
	}
}

void
kvp_event_drop_all(struct kvp_engine *engine)
{
	while (engine->backlog != NULL) {
		struct kvp_event_backlog *first = engine->backlog;

		engine->backlog = first->next;
		free(first);
	}
}

kvp_status
kvp_event_poll(struct kvp_engine *engine, struct kvp_event *event_out)
{
	struct kvp_error *err = kvp_error_here();
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (event_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "event_out is NULL");
	return kvp_inbox_poll(engine->inbox, event_out);
}

int
kvp_event_fd(struct kvp_engine *engine)
{
	if (kvp_engine_check(engine, kvp_error_here()) != KVP_SUCCESS)
		return -1;
	return kvp_inbox_fd(engine->inbox);
}
