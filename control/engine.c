/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - opening, closing, and telling a live handle from another one */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "check.h"
#include "config.h"
#include "eal.h"
#include "report.h"
#include "state.h"
#include "wake.h"

#define ENGINES_MAX 256U       /* open at one time in one process */
#define FAREWELL_NS 200000000U /* for peers to answer BYE */

/* Open engines, so that a call after kvp_close is refused instead of reading freed memory. */
static _Atomic(struct kvp_engine *) live[ENGINES_MAX];
static _Atomic uint32_t live_high; /* slots ever used */
static _Atomic uint32_t forks;     /* a child's handles belong to the parent's threads */

static void
count_fork(void)
{
	atomic_fetch_add(&forks, 1);
}

__attribute__((constructor)) static void
watch_forks(void)
{
	(void)pthread_atfork(NULL, NULL, count_fork);
}

kvp_status
kvp_engine_check(const struct kvp_engine *engine, struct kvp_error *err)
{
	uint32_t high = atomic_load_explicit(&live_high, memory_order_acquire);

	if (engine == NULL)
		return kvp_fail(err, KVP_FAILED, "engine is NULL: kvp_open gives one");
	for (uint32_t i = 0; i < high; i++) {
		if (atomic_load_explicit(&live[i], memory_order_acquire) != engine)
			continue;
		if (engine->fork_generation != atomic_load_explicit(&forks, memory_order_relaxed))
			return kvp_fail(
				err, KVP_FAILED,
				"engine belongs to the parent process: open one after fork");
		return KVP_SUCCESS;
	}
	return kvp_fail(err, KVP_FAILED, "engine is closed or was never open");
}

static kvp_status
live_add(struct kvp_engine *engine, struct kvp_error *err)
{
	for (uint32_t i = 0; i < ENGINES_MAX; i++) {
		struct kvp_engine *expected = NULL;

		if (!atomic_compare_exchange_strong(&live[i], &expected, engine))
			continue;
		uint32_t high = atomic_load(&live_high);

		while (high < i + 1 && !atomic_compare_exchange_weak(&live_high, &high, i + 1))
			;
		return KVP_SUCCESS;
	}
	return kvp_fail(err, KVP_NO_RESOURCE,
			"%u engines are open in this process, the most there can be", ENGINES_MAX);
}

static void
live_remove(struct kvp_engine *engine)
{
	for (uint32_t i = 0; i < ENGINES_MAX; i++) {
		struct kvp_engine *expected = engine;

		if (atomic_compare_exchange_strong(&live[i], &expected, NULL))
			return;
	}
}

static kvp_status
unknown_transport(const char *name, struct kvp_error *err)
{
	char known[KVP_TRANSPORTS * (KVP_NAME_MAX + 2)] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < KVP_TRANSPORTS && used < sizeof(known); i++)
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
					 i > 0 ? ", " : "", kvp_transports[i]->name);
	return kvp_fail(err, KVP_PARAM_INVALID, "transports: '%s' is not one of this build: %s",
			name, known);
}

static kvp_status
choose_transports(struct kvp_engine *engine, struct kvp_error *err)
{
	char names[4][KVP_NAME_MAX];
	int count = kvp_config_transports(&engine->config, names);

	for (int i = 0; i < count; i++) {
		const struct kvp_transport *transport = kvp_transport_find(names[i], NULL);

		if (transport == NULL)
			return unknown_transport(names[i], err);
		engine->transport[engine->transports++] = transport;
	}
	return KVP_SUCCESS;
}

static void
stop_transports(struct kvp_engine *engine)
{
	for (uint32_t i = 0; i < engine->transports; i++) {
		uint32_t slot;

		kvp_transport_find(engine->transport[i]->name, &slot);
		if (engine->dataplane.state[slot] != NULL)
			engine->transport[i]->stop(engine->dataplane.state[slot]);
		engine->dataplane.state[slot] = NULL;
	}
}

/* A preferred transport that this machine has not got is left out, but never silently. */
static bool
may_leave_out(const struct kvp_engine *engine, const struct kvp_transport *transport)
{
	return engine->transports > 1 &&
	       (transport->is_required == NULL || !transport->is_required(&engine->config));
}

static void
leave_out(struct kvp_engine *engine, uint32_t i, const struct kvp_error *why)
{
	size_t used = strlen(engine->left_out);

	snprintf(engine->left_out + used, sizeof(engine->left_out) - used, "%s%s",
		 used > 0 ? "; " : "", why->text);
	kvp_log(engine->config.log_level, 3, "without %s: %s", engine->transport[i]->name,
		why->text);
	engine->transports--;
	memmove(&engine->transport[i], &engine->transport[i + 1],
		(engine->transports - i) * sizeof(engine->transport[0]));
}

static kvp_status
start_transports(struct kvp_engine *engine, struct kvp_error *err)
{
	uint32_t i = 0;

	while (i < engine->transports) {
		const struct kvp_transport *transport = engine->transport[i];
		kvp_status status;
		uint32_t slot;

		kvp_transport_find(transport->name, &slot);
		status = transport->start(&engine->dataplane, &engine->dataplane.state[slot], err);
		if (status == KVP_SUCCESS) {
			i++;
		} else if (status == KVP_NO_TRANSPORT && may_leave_out(engine, transport)) {
			leave_out(engine, i, err);
		} else {
			stop_transports(engine);
			return status;
		}
	}
	return KVP_SUCCESS;
}

static void
stop_lanes(struct kvp_engine *engine)
{
	for (uint32_t i = 0; i < KVP_LANES_MAX; i++) {
		kvp_lane_destroy(engine->lane[i]);
		engine->lane[i] = NULL;
	}
}

static kvp_status
start_lanes(struct kvp_engine *engine, struct kvp_error *err)
{
	int cpu[KVP_LANES_MAX];

	kvp_config_cpus(&engine->config, cpu);
	for (uint32_t i = 0; i < engine->config.lanes; i++) {
		char name[24];
		struct kvp_lane_config config = {
			.index = i,
			.cpu = cpu[i],
			.idle = engine->config.idle,
			.idle_us = engine->config.idle_us,
			/* Every transfer may have all its parts on one lane: submit never finds it full. */
			.ring_parts = 2 * engine->config.max_transfers * KVP_PARTS_MAX,
			.reactor = &engine->reactor,
			.name = name,
		};
		kvp_status status;

		snprintf(name, sizeof(name), "kvp-lane-%u", i);
		status = kvp_lane_create(&config, &engine->lane[i], err);
		if (status != KVP_SUCCESS) {
			stop_lanes(engine);
			return status;
		}
	}
	return KVP_SUCCESS;
}

static kvp_status
init_lock(struct kvp_engine *engine, struct kvp_error *err)
{
	pthread_condattr_t monotonic;
	int rc;

	pthread_mutex_init(&engine->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&engine->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	rc = kvp_reactor_init(&engine->reactor);
	if (rc != 0)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"epoll or eventfd: %s; raise the limit of open files",
				strerror(-rc));
	engine->reactor.lock = &engine->lock;
	return KVP_SUCCESS;
}

/* The control thread must not run the host program's signal handlers. */
static kvp_status
start_control(struct kvp_engine *engine, struct kvp_error *err)
{
	sigset_t all;
	sigset_t before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&engine->thread, NULL, kvp_loop_main, engine);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"control thread: %s; raise the limit of threads", strerror(rc));
	pthread_setname_np(engine->thread, "kvp-control");
	return KVP_SUCCESS;
}

static kvp_status
fill_dataplane(struct kvp_engine *engine, struct kvp_error *err)
{
	struct kvp_dataplane *dataplane = &engine->dataplane;

	*dataplane = (struct kvp_dataplane){
		.config = &engine->config,
		.cluster_id = engine->config.cluster_id,
		.reactor = &engine->reactor,
		.inbox = engine->inbox,
		.lane = engine->lane,
		.lanes = engine->config.lanes,
		.streams = engine->config.streams,
		.window_requests = engine->config.window_requests,
		.window_bytes = (uint64_t)engine->config.window_kib << 10,
		.log_level = engine->config.log_level,
	};
	if (getrandom(&dataplane->boot_id, sizeof(dataplane->boot_id), 0) !=
	    (ssize_t)sizeof(dataplane->boot_id))
		return kvp_fail(err, KVP_NO_RESOURCE, "getrandom: %s", strerror(errno));
	return KVP_SUCCESS;
}

static kvp_status
engine_start(struct kvp_engine *engine, struct kvp_error *err)
{
	kvp_status status = choose_transports(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	status = kvp_eal_start(engine->config.eal_mem_mb, err);
	if (status != KVP_SUCCESS)
		return status;
	status = init_lock(engine, err);
	if (status != KVP_SUCCESS)
		goto fini_lock;
	status = kvp_inbox_create(engine->config.lanes + 1, engine->config.max_events,
				  &engine->inbox, err);
	if (status != KVP_SUCCESS)
		goto fini_reactor;
	status = fill_dataplane(engine, err);
	if (status != KVP_SUCCESS)
		goto destroy_inbox;
	status = start_lanes(engine, err);
	if (status != KVP_SUCCESS)
		goto destroy_inbox;
	status = start_transports(engine, err);
	if (status != KVP_SUCCESS)
		goto stop_lanes;
	status = kvp_listen_open(engine, engine->config.listen, err);
	if (status != KVP_SUCCESS)
		goto stop_transports;
	status = live_add(engine, err);
	if (status != KVP_SUCCESS)
		goto close_listener;
	status = start_control(engine, err);
	if (status != KVP_SUCCESS)
		goto remove_live;
	return KVP_SUCCESS;

remove_live:
	live_remove(engine);
close_listener:
	kvp_listen_close(engine);
stop_transports:
	stop_transports(engine);
stop_lanes:
	stop_lanes(engine);
destroy_inbox:
	kvp_inbox_destroy(engine->inbox);
fini_reactor:
	kvp_reactor_fini(&engine->reactor);
fini_lock:
	pthread_cond_destroy(&engine->changed);
	pthread_mutex_destroy(&engine->lock);
	return status;
}

kvp_status
kvp_open(const struct kvp_config *config, struct kvp_engine **engine_out)
{
	struct kvp_error *err = kvp_error_here();
	struct kvp_engine *engine;
	kvp_status status;

	if (config == NULL || engine_out == NULL)
		return kvp_fail(err, KVP_PARAM_INVALID, "%s is NULL",
				config == NULL ? "config" : "engine_out");
	status = kvp_config_check(config, err);
	if (status != KVP_SUCCESS)
		return status;
	engine = aligned_alloc(_Alignof(struct kvp_engine), sizeof(*engine));
	if (engine == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "no memory for an engine");
	memset(engine, 0, sizeof(*engine));
	engine->config = *config;
	engine->fork_generation = atomic_load(&forks);
	engine->commands_end = &engine->commands;
	engine->backlog_end = &engine->backlog;
	engine->next_region = 1;
	engine->next_cache = 1;
	engine->listener.fd = -1;
	engine->now_ns = kvp_now_ns();
	status = engine_start(engine, err);
	if (status != KVP_SUCCESS) {
		free(engine);
		return status;
	}
	if (engine->config.insecure != 0)
		kvp_log(engine->config.log_level, 2,
			"insecure=1: control connections are neither authenticated nor encrypted; "
			"anybody who reaches the port can read and write the caches");
	*engine_out = engine;
	return KVP_SUCCESS;
}

kvp_status
kvp_open_settings(const char *const *settings, size_t count, struct kvp_engine **engine_out)
{
	struct kvp_config config;

	if (settings == NULL && count > 0)
		return kvp_fail(kvp_error_here(), KVP_PARAM_INVALID,
				"settings is NULL, count is %zu", count);
	kvp_config_init(&config);
	for (size_t i = 0; i < count; i++) {
		kvp_status status = kvp_config_set(&config, settings[i]);

		if (status != KVP_SUCCESS)
			return status;
	}
	return kvp_open(&config, engine_out);
}

/* Silence first, then BYE: the peer answers by closing the connection. */
static void
leave_links(struct kvp_engine *engine, void *arg)
{
	(void)arg;
	kvp_listen_close(engine);
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (link->step != KVP_STEP_READY)
			continue;
		link->is_unlinking = true;
		kvp_link_silence(link, KVP_CANCELLED);
		kvp_link_send(link, KVP_FRAME_BYE);
	}
}

static void
end_all_links(struct kvp_engine *engine, void *arg)
{
	(void)arg;
	for (struct kvp_link *link = engine->links; link != NULL; link = link->next)
		kvp_link_end(link, KVP_NOT_YET_LINK, KVP_CANCELLED, "this engine is closing");
}

static bool
has_standing_link(const struct kvp_engine *engine)
{
	const struct kvp_link *link = engine->links;

	while (link != NULL && link->step != KVP_STEP_READY)
		link = link->next;
	return link != NULL;
}

void
kvp_close(struct kvp_engine *engine)
{
	uint64_t deadline_ns;

	if (engine == NULL || kvp_engine_check(engine, kvp_error_here()) != KVP_SUCCESS)
		return;
	live_remove(engine);
	deadline_ns = kvp_now_ns() + FAREWELL_NS;
	kvp_loop_call(engine, leave_links, NULL);
	pthread_mutex_lock(&engine->lock);
	while (has_standing_link(engine) && kvp_engine_wait(engine, deadline_ns))
		;
	pthread_mutex_unlock(&engine->lock);
	kvp_loop_call(engine, end_all_links, NULL);
	/* Lanes end what is in flight; the tick frees the links once nothing uses them. */
	pthread_mutex_lock(&engine->lock);
	while (engine->links != NULL || atomic_load(&engine->holds) != 0)
		kvp_engine_wait(engine, kvp_now_ns() + 1000000);
	engine->is_stopping = true;
	pthread_mutex_unlock(&engine->lock);
	kvp_reactor_wake(&engine->reactor);
	pthread_join(engine->thread, NULL);

	kvp_cache_forget_all(engine);
	stop_transports(engine);
	stop_lanes(engine);
	kvp_cache_free_all(engine);
	kvp_event_drop_all(engine);
	kvp_inbox_destroy(engine->inbox);
	kvp_reactor_fini(&engine->reactor);
	pthread_cond_destroy(&engine->changed);
	pthread_mutex_destroy(&engine->lock);
	free(engine);
}

struct role_change {
	uint32_t role;
	const char *listen;
	kvp_status status;
	struct kvp_error *err;
};

static void
change_role(struct kvp_engine *engine, void *arg)
{
	struct role_change *change = arg;
	struct kvp_config *config = &engine->config;

	for (const struct kvp_link *link = engine->links; link != NULL; link = link->next) {
		if (link->step == KVP_STEP_CLOSING)
			continue;
		change->status = kvp_fail(change->err, KVP_EXIST_LINK,
					  "a link to cluster %" PRIu64
					  " exists: its peer was told the old role; unlink first",
					  link->cluster_id);
		return;
	}
	if (change->listen != NULL && strcmp(change->listen, config->listen) != 0) {
		change->status = kvp_listen_open(engine, change->listen, change->err);
		if (change->status != KVP_SUCCESS)
			return;
		snprintf(config->listen, sizeof(config->listen), "%s", change->listen);
	}
	config->role = change->role;
}

kvp_status
kvp_set_role(struct kvp_engine *engine, uint32_t role, const char *listen)
{
	struct kvp_error *err = kvp_error_here();
	struct role_change change = {.role = role, .listen = listen, .err = err};
	kvp_status status = kvp_engine_check(engine, err);

	if (status != KVP_SUCCESS)
		return status;
	if (role < KVP_ROLE_PROMPT || role > KVP_ROLE_MIX)
		return kvp_fail(err, KVP_PARAM_INVALID, "role is %u; 1 is prompt, 2 decoder, 3 mix",
				role);
	if (listen != NULL && strlen(listen) >= KVP_TEXT_MAX)
		return kvp_fail(err, KVP_ADDRESS, "listen has %zu characters, at most %d",
				strlen(listen), KVP_TEXT_MAX - 1);
	kvp_loop_call(engine, change_role, &change);
	return change.status;
}

uint16_t
kvp_port(const struct kvp_engine *engine)
{
	if (kvp_engine_check(engine, kvp_error_here()) != KVP_SUCCESS)
		return 0;
	return atomic_load_explicit(&engine->port, memory_order_relaxed);
}

const char *
kvp_version(void)
{
	return KVP_VERSION_TEXT;
}
