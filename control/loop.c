/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - the control thread: reactor, commands of callers, ticks
 *
 * The reactor takes the engine's lock around callbacks, so every one of them,
 * in control/ and in the transports' set-up code, may touch the tables.
 */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "state.h"
#include "wake.h"

static void
run_commands(struct kvp_engine *engine)
{
	struct kvp_command *command = engine->commands;

	if (command == NULL)
		return;
	engine->commands = NULL;
	engine->commands_end = &engine->commands;
	while (command != NULL) {
		struct kvp_command *next = command->next; /* gone once is_done */

		command->run(engine, command->arg);
		command->is_done = true;
		command = next;
	}
	kvp_engine_changed(engine);
}

void *
kvp_loop_main(void *arg)
{
	struct kvp_engine *engine = arg;
	int timeout_ms = 0;

	for (;;) {
		/* Waits without the lock, takes it around the callback. */
		kvp_reactor_wait(&engine->reactor, timeout_ms);
		pthread_mutex_lock(&engine->lock);
		engine->now_ns = kvp_now_ns();
		run_commands(engine);
		if (engine->is_stopping) {
			pthread_mutex_unlock(&engine->lock);
			return NULL;
		}
		kvp_listen_tick(engine);
		kvp_event_flush(engine);
		uint64_t next_ns = kvp_link_tick(engine);

		if (engine->backlog != NULL && next_ns > 1000000)
			next_ns = 1000000;
		timeout_ms = (int)((next_ns + 999999) / 1000000);
		pthread_mutex_unlock(&engine->lock);
	}
}

void
kvp_loop_call(struct kvp_engine *engine, void (*run)(struct kvp_engine *engine, void *arg),
	      void *arg)
{
	struct kvp_command command = {.run = run, .arg = arg};

	pthread_mutex_lock(&engine->lock);
	*engine->commands_end = &command;
	engine->commands_end = &command.next;
	kvp_reactor_wake(&engine->reactor);
	while (!command.is_done)
		pthread_cond_wait(&engine->changed, &engine->lock);
	pthread_mutex_unlock(&engine->lock);
}

bool
kvp_engine_wait(struct kvp_engine *engine, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / 1000000000U),
		.tv_nsec = (long)(deadline_ns % 1000000000U),
	};

	return pthread_cond_timedwait(&engine->changed, &engine->lock, &until) != ETIMEDOUT;
}

void
kvp_engine_changed(struct kvp_engine *engine)
{
	pthread_cond_broadcast(&engine->changed);
}
