/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "fake_verbs_state.h"

struct fake_world fake;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	uint32_t count;
	char first[400];
	bool is_muted;
} failures;

static struct {
	pthread_t thread;
	_Atomic bool is_on;
} runner;

/* --- failures ------------------------------------------------------------------------- */

static void __attribute__((format(printf, 1, 0))) failed(const char *format, va_list args)
{
	char text[360];

	vsnprintf(text, sizeof(text), format, args);
	if (failures.count++ == 0)
		snprintf(failures.first, sizeof(failures.first), "seed %llu: %s",
			 (unsigned long long)fake.seed, text);
	if (!failures.is_muted && failures.count < 10)
		fprintf(stderr, "fake verbs, seed %llu: %s\n", (unsigned long long)fake.seed, text);
}

void
fake_failed(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	failed(format, args);
	va_end(args);
}

void
fake_verbs_failed(const char *format, ...)
{
	va_list args;

	pthread_mutex_lock(&fake_lock);
	va_start(args, format);
	failed(format, args);
	va_end(args);
	pthread_mutex_unlock(&fake_lock);
}

uint32_t
fake_verbs_failures(void)
{
	uint32_t count;

	pthread_mutex_lock(&fake_lock);
	count = failures.count;
	pthread_mutex_unlock(&fake_lock);
	return count;
}

const char *
fake_verbs_failure(void)
{
	return failures.first;
}

void
fake_verbs_forgive(bool is_muted)
{
	pthread_mutex_lock(&fake_lock);
	failures.count = 0;
	failures.first[0] = '\0';
	failures.is_muted = is_muted;
	pthread_mutex_unlock(&fake_lock);
}

/* --- open, close ------------------------------------------------------------------------ */

static void
fill_in(struct fake_verbs_topology *t)
{
	if (t->segment == 0)
		t->segment = 64U << fake_random(7);
	if (t->segment > FAKE_SEGMENT_MAX)
		t->segment = FAKE_SEGMENT_MAX;
	if (t->window == 0)
		t->window = 1 + fake_random(8);
	if (t->max_sge == 0)
		t->max_sge = 30;
	if (t->max_qp_wr == 0)
		t->max_qp_wr = 8192;
	if (t->max_cqe == 0)
		t->max_cqe = 65536;
	if (t->max_inline == 0)
		t->max_inline = 220;
	if (t->max_mr == 0)
		t->max_mr = FAKE_MRS_MAX;
}

void
fake_verbs_open(uint64_t seed, const struct fake_verbs_topology *topology)
{
	if (fake.is_open || topology->devices > FAKE_VERBS_DEVICES_MAX) {
		fprintf(stderr, "fake verbs: one world at a time, and at most %u devices\n",
			FAKE_VERBS_DEVICES_MAX);
		abort();
	}
	memset(&fake, 0, sizeof(fake));
	failures.count = 0;
	failures.first[0] = '\0';
	fake.is_open = true;
	fake.seed = seed;
	fake.random = seed * 0xD1342543DE82EF95ULL + 1;
	fake.topology = *topology;
	fake.host = FAKE_VERBS_ANY;
	fill_in(&fake.topology);
	fake.keeps_cqes = fake_random(2) == 0;
	fake.lazy = 1U << fake_random(7);
	fake.qp_next = FAKE_QPS_MAX + fake_random(1U << 20);
	fake.mr_next = fake_random(FAKE_MRS_MAX);
	(void)ibv_fork_init(); /* has fake_verbs_text.c linked, like the rest */
	fake_host_open();
	fake_wire_open();
	fake_grants_open();
	fake_devices_open();
}

uint32_t
fake_verbs_close(void)
{
	uint32_t contexts = 0;

	fake_verbs_run_thread(false);
	pthread_mutex_lock(&fake_lock);
	for (uint32_t i = 0; i < FAKE_CONTEXTS_MAX; i++)
		contexts += fake.context[i] != NULL;
	if (contexts + fake.pds + fake.tds + fake.mrs + fake.cqs + fake.channels + fake.lives +
		    fake.lists >
	    0)
		fake_failed(
			"left behind: %u contexts, %u PDs, %u thread domains, %u MRs, %u CQs, %u "
			"channels, %u QPs, %u device lists",
			contexts, fake.pds, fake.tds, fake.mrs, fake.cqs, fake.channels, fake.lives,
			fake.lists);
	fake_grants_close();
	fake.is_open = false;
	pthread_mutex_unlock(&fake_lock);
	return fake_verbs_failures();
}

void
fake_verbs_host(uint32_t host)
{
	pthread_mutex_lock(&fake_lock);
	fake.host = host;
	pthread_mutex_unlock(&fake_lock);
}

uint32_t
fake_verbs_random(uint32_t below)
{
	uint32_t value;

	pthread_mutex_lock(&fake_lock);
	value = fake_random(below);
	pthread_mutex_unlock(&fake_lock);
	return value;
}

const struct fake_verbs_counters *
fake_verbs_counters(void)
{
	return &fake.count;
}

/* --- stepping ----------------------------------------------------------------------------- */

enum fake_verbs_moved
fake_verbs_step(void)
{
	enum fake_verbs_moved moved;

	pthread_mutex_lock(&fake_lock);
	moved = fake_step();
	pthread_mutex_unlock(&fake_lock);
	return moved;
}

void
fake_verbs_land(void)
{
	pthread_mutex_lock(&fake_lock);
	for (uint32_t i = 0; i < fake.lives; i++)
		fake_land_all(fake.live[i]);
	pthread_mutex_unlock(&fake_lock);
}

uint32_t
fake_verbs_run(uint32_t steps)
{
	uint32_t done = 0;

	pthread_mutex_lock(&fake_lock);
	while (done < steps && fake_step() != FAKE_VERBS_IDLE)
		done++;
	pthread_mutex_unlock(&fake_lock);
	return done;
}

/* Timers are slow, and an idle wire costs no CPU. */
static void *
run(void *ctx)
{
	(void)ctx;
	while (atomic_load_explicit(&runner.is_on, memory_order_relaxed)) {
		enum fake_verbs_moved moved = fake_verbs_step();

		if (moved == FAKE_VERBS_WAITED)
			usleep(2000);
		else if (moved == FAKE_VERBS_IDLE)
			usleep(20);
	}
	return NULL;
}

void
fake_verbs_run_thread(bool is_on)
{
	if (is_on == runner.is_on)
		return;
	runner.is_on = is_on;
	if (is_on && pthread_create(&runner.thread, NULL, run, NULL) != 0)
		abort();
	if (!is_on)
		pthread_join(runner.thread, NULL);
}

void
fake_verbs_on_post(void (*hook)(struct ibv_qp *qp, const struct ibv_send_wr *wr, void *ctx),
		   void *ctx)
{
	fake.hook_ctx = ctx;
	fake.hook = hook;
}
