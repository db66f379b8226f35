/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thousands of small worlds with two engines' verbs transports. A failing one is run again by
 * KVP_SEED=n; KVP_SEEDS=n runs so many, KVP_FIRST=n from this one on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "verbs_sim.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 1000U
#else
#define SEEDS 10000U
#endif
#define CHILDREN 2U

static uint64_t
from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

/* In a process of its own: a seed that fails leaves everything as it is. */
static int
run_seeds(uint64_t first, uint64_t last, uint64_t step)
{
	uint64_t submitted = 0, succeeded = 0, events = 0, breaks = 0, replayed = 0, withdrawn = 0;
	const char *text;

	sim_prepare();
	for (uint64_t seed = first; seed <= last; seed += step) {
		if (!sim_run(seed, &text)) {
			fprintf(stderr, "%s\nrun it again with KVP_SEED=%llu\n", text,
				(unsigned long long)seed);
			return 1;
		}
		submitted += sim.submitted;
		succeeded += sim.succeeded;
		events += sim.events;
		breaks += sim.breaks;
		replayed += sim.replayed;
		withdrawn += sim.withdrawn;
	}
	fprintf(stderr,
		"%llu transfers, %llu succeeded, %llu events, %llu QPs broke, %llu requests again, %llu "
		"caches withdrawn\n",
		(unsigned long long)submitted, (unsigned long long)succeeded,
		(unsigned long long)events, (unsigned long long)breaks,
		(unsigned long long)replayed, (unsigned long long)withdrawn);
	/* A simulation in which nothing happens proves nothing. */
	return last - first > 500 && (succeeded * 3 < submitted || events * 10 < submitted ||
				      breaks == 0 || replayed == 0 || withdrawn == 0);
}

static void
every_seed_keeps_the_promises(void **state)
{
	uint64_t one = from_environment("KVP_SEED", 0);
	uint64_t seeds = from_environment("KVP_SEEDS", SEEDS);
	uint64_t first = from_environment("KVP_FIRST", 1);
	pid_t child[CHILDREN];
	int failed = 0;

	(void)state;
	for (uint32_t i = 0; i < CHILDREN; i++) {
		fflush(NULL);
		child[i] = fork();
		assert_true(child[i] >= 0);
		if (child[i] == 0)
			_exit(one != 0 ? (i == 0 ? run_seeds(one, one, 1) : 0)
				       : run_seeds(first + i, first + seeds - 1, CHILDREN));
	}
	for (uint32_t i = 0; i < CHILDREN; i++) {
		int status;

		assert_int_equal(waitpid(child[i], &status, 0), child[i]);
		failed |= status;
	}
	assert_int_equal(failed, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_seed_keeps_the_promises),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
