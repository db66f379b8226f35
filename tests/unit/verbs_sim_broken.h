/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_sim_broken.h - main of a test that breaks the library on purpose: the simulation must notice
 *
 * Included by one file per program, which includes a source of the library with a hook defined; so that file
 * replaces the library's own.
 */
#ifndef KVP_TEST_VERBS_SIM_BROKEN_H
#define KVP_TEST_VERBS_SIM_BROKEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "verbs_sim.h"

#define BROKEN_SEEDS 2000U

static void
the_simulation_notices(void **state)
{
	const char *text;
	int status, pipe_fd[2];
	char line[400] = "";
	pid_t child;

	(void)state;
	assert_int_equal(pipe(pipe_fd), 0);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		sim_prepare();
		fake_verbs_forgive(true);
		dup2(pipe_fd[1], STDERR_FILENO); /* an assertion may come first */
		for (uint64_t seed = 1; seed <= BROKEN_SEEDS; seed++) {
			if (!sim_run(seed, &text)) {
				(void)!write(pipe_fd[1], text, strlen(text));
				_exit(1);
			}
		}
		_exit(0);
	}
	close(pipe_fd[1]);
	(void)!read(pipe_fd[0], line, sizeof(line) - 1);
	close(pipe_fd[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	printf("noticed: %s\n", line);
	assert_int_not_equal(status, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_simulation_notices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif /* KVP_TEST_VERBS_SIM_BROKEN_H */
