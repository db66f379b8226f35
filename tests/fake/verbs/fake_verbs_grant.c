/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fake_verbs_state.h"

#define GUARDS 64U
#define GRANTS 4096U

/* How many open grants each byte has. */
static struct guard {
	uint64_t address, bytes;
	uint8_t *count[2]; /* writes, reads */
} guard[GUARDS];
static uint32_t guards;

static struct {
	struct fake_verbs_grant grant;
	bool is_open;
} grant[GRANTS]; /* the last ones; closed ones are kept for reports */
static uint32_t grants;

void
fake_grants_open(void)
{
	guards = 0;
	grants = 0;
}

void
fake_grants_close(void)
{
	for (uint32_t i = 0; i < guards; i++)
		free(guard[i].count[0]);
	guards = 0;
}

void
fake_verbs_guard(uint64_t address, uint64_t bytes)
{
	pthread_mutex_lock(&fake_lock);
	if (guards == GUARDS) {
		fake_failed("more than %u guarded stretches", GUARDS);
	} else {
		struct guard *g = &guard[guards++];

		*g = (struct guard){.address = address, .bytes = bytes};
		g->count[0] = calloc(2, bytes);
		if (g->count[0] == NULL)
			abort();
		g->count[1] = g->count[0] + bytes;
	}
	pthread_mutex_unlock(&fake_lock);
}

/* The part of [address, + bytes) that guard `g` has. False: none. */
static bool
overlap(const struct guard *g, uint64_t address, uint64_t bytes, uint64_t *from, uint64_t *to)
{
	*from = address > g->address ? address : g->address;
	*to = address + bytes < g->address + g->bytes ? address + bytes : g->address + g->bytes;
	return *from < *to;
}

static void
count(const struct fake_verbs_grant *g, int by)
{
	for (uint64_t k = 0; k < (g->count > 0 ? g->count : 1); k++) {
		uint64_t from, to;

		for (uint32_t i = 0; i < guards; i++) {
			if (!overlap(&guard[i], g->address + k * g->stride, g->bytes, &from, &to))
				continue;
			for (; from < to; from++) {
				uint8_t *c = &guard[i].count[g->is_read][from - guard[i].address];

				*c = (uint8_t)(*c + by);
			}
		}
	}
}

uint32_t
fake_verbs_grant_open(const struct fake_verbs_grant *want)
{
	uint32_t number;

	pthread_mutex_lock(&fake_lock);
	while (grant[grants % GRANTS].is_open && grants >= GRANTS)
		grants++;
	number = grants++;
	grant[number % GRANTS].grant = *want;
	grant[number % GRANTS].is_open = true;
	count(want, 1);
	pthread_mutex_unlock(&fake_lock);
	return number;
}

void
fake_verbs_grant_close(uint32_t number)
{
	pthread_mutex_lock(&fake_lock);
	if (number >= grants || !grant[number % GRANTS].is_open) {
		fake_failed("grant %u is closed twice", number);
	} else {
		count(&grant[number % GRANTS].grant, -1);
		grant[number % GRANTS].is_open = false;
	}
	pthread_mutex_unlock(&fake_lock);
}

/* The last grant that ever had this byte, or NULL. */
static const struct fake_verbs_grant *
last_of(uint64_t address, bool is_read)
{
	uint32_t kept = grants < GRANTS ? grants : GRANTS;

	for (uint32_t i = 1; i <= kept; i++) {
		const struct fake_verbs_grant *g = &grant[(grants - i) % GRANTS].grant;
		uint64_t n = g->count > 0 ? g->count : 1;
		uint64_t at = address - g->address;

		if (g->is_read != is_read || address < g->address)
			continue;
		if (g->stride > 0 && n > 1 ? at / g->stride < n && at % g->stride < g->bytes
					   : at < g->bytes)
			return g;
	}
	return NULL;
}

void
fake_touch(uint64_t address, uint64_t bytes, bool is_read, const char *what, uint32_t qp_num)
{
	uint64_t from, to;

	for (uint32_t i = 0; i < guards; i++) {
		if (!overlap(&guard[i], address, bytes, &from, &to))
			continue;
		for (; from < to; from++) {
			const struct fake_verbs_grant *g;

			if (guard[i].count[is_read][from - guard[i].address] > 0)
				continue;
			g = last_of(from, is_read);
			fake_failed("%s of QP 0x%x %s byte 0x%llx without a grant (%llu bytes at "
				    "0x%llx); the last grant there was 0x%llx",
				    what, qp_num, is_read ? "reads" : "writes",
				    (unsigned long long)from, (unsigned long long)bytes,
				    (unsigned long long)address,
				    g != NULL ? (unsigned long long)g->cookie : 0ULL);
			return;
		}
	}
}
