/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the doctor says about transports that can and cannot start, and about the machine's limits.
 *
 * links: control/doctor.o control/config.o control/address.o control/report.o engine/error.o
 *        engine/line.o engine/rights.o engine/status.o engine/check.o
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvpush/kvpush.h>

#include "machine.h"
#include "transport.h"

#define assert_in(words)                                              \
	do {                                                          \
		if (strstr(text, (words)) == NULL)                    \
			fail_msg("'%s' is not in '%s'", words, text); \
	} while (0)
#define assert_not_in(words)                                      \
	do {                                                      \
		if (strstr(text, (words)) != NULL)                \
			fail_msg("'%s' is in '%s'", words, text); \
	} while (0)

/* --- transports and machines as they are wanted here ---------------------------------- */

static struct {
	bool can_start;
	bool is_required;
	const char *lines;
} wish;

static kvp_status
explain(const struct kvp_config *config, char *out, size_t size)
{
	assert_non_null(config);
	assert_true(size > 1024);
	snprintf(out, size, "%s", wish.lines);
	return wish.can_start ? KVP_SUCCESS : KVP_NO_TRANSPORT;
}

static bool
is_required(const struct kvp_config *config)
{
	(void)config;
	return wish.is_required;
}

static const struct kvp_transport picky = {
	.name = "picky", .explain = explain, .is_required = is_required};
static const struct kvp_transport easy = {.name = "easy"};
static const struct kvp_transport other = {.name = "other"};
const struct kvp_transport *const kvp_transports[KVP_TRANSPORTS] = {&picky, &easy, &other};

const struct kvp_transport *
kvp_transport_find(const char *name, uint32_t *slot_out)
{
	assert_null(slot_out);
	for (uint32_t i = 0; i < KVP_TRANSPORTS; i++) {
		if (strcmp(kvp_transports[i]->name, name) == 0)
			return kvp_transports[i];
	}
	return NULL;
}

static struct kvp_machine machine;

void
kvp_machine_read(const char *root, struct kvp_machine *machine_out)
{
	assert_string_equal(root, "");
	*machine_out = machine;
}

/* --- tests --------------------------------------------------------------------------------- */

static struct kvp_config config;
static char text[8192];

static int
begin(void **state)
{
	(void)state;
	kvp_config_init(&config);
	assert_int_equal(kvp_config_set(&config, "transports=picky,easy"), KVP_SUCCESS);
	machine = (struct kvp_machine){.memlock = UINT64_MAX, .cores = 8};
	wish.can_start = true;
	wish.is_required = false;
	wish.lines = "dev0: taken\ndev1: not taken\n";
	return 0;
}

static kvp_status
ask(void)
{
	kvp_status status = kvp_doctor(&config, text, sizeof(text));

	for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
		assert_non_null(strchr(line, '\n'));
		if (strncmp(line, "ok    ", 6) != 0 && strncmp(line, "note  ", 6) != 0 &&
		    strncmp(line, "BAD   ", 6) != 0 && strncmp(line, "        ", 8) != 0)
			fail_msg("this line says neither ok, note nor BAD: %s", line);
	}
	/* A bad line and a bad status go together. */
	assert_int_equal(strstr(text, "BAD   ") == NULL, status == KVP_SUCCESS);
	return status;
}

static void
ask__all_well(void **state)
{
	(void)state;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    transports of this build: picky, easy, other\n");
	assert_in(
		"ok    transport picky: can start\n        dev0: taken\n        dev1: not taken\n");
	assert_in("ok    transport easy: can start\n");
	assert_not_in("transport other"); /* not asked for */
	assert_not_in("note");
}

static void
ask__a_transport_that_cannot_start(void **state)
{
	(void)state;
	wish.can_start = false;
	wish.lines = "picky: no device; buy one\ndev7: not taken\n";
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in(
		"note  transport picky: cannot start, links go over the others and say so: picky: "
		"no device; buy one\n        dev7: not taken\nok    transport easy");
	/* A setting asks for it. */
	wish.is_required = true;
	assert_int_equal(ask(), KVP_NO_TRANSPORT);
	assert_in(
		"BAD   transport picky: cannot start: picky: no device; buy one\n        dev7: not "
		"taken\n");
	assert_non_null(strstr(kvp_error_message(), "picky: no device; buy one"));
	/* There is no other. */
	wish.is_required = false;
	assert_int_equal(kvp_config_set(&config, "transports=picky"), KVP_SUCCESS);
	assert_int_equal(ask(), KVP_NO_TRANSPORT);
	wish.can_start = true;
	assert_int_equal(ask(), KVP_SUCCESS);
}

static void
ask__a_transport_of_another_build(void **state)
{
	(void)state;
	assert_int_equal(kvp_config_set(&config, "transports=easy,rocket"), KVP_SUCCESS);
	assert_int_equal(ask(), KVP_NO_TRANSPORT);
	assert_in("BAD   transport rocket: not one of this build\n");
	assert_in("ok    transport easy: can start\n");
}

static void
ask__locked_memory(void **state)
{
	(void)state;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    locked memory: no limit (CAP_IPC_LOCK is not effective)\n");
	machine.memlock = 8 << 20;
	machine.pinned = 64 << 10;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("note  locked memory: at most 8192 KiB, 64 KiB of them pinned");
	assert_in("ulimit -l unlimited, LimitMEMLOCK=infinity");
	machine.may_lock = true;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    locked memory: no limit (CAP_IPC_LOCK is effective)\n");
}

static void
ask__huge_pages(void **state)
{
	(void)state;
	machine.huge_pages = 5;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    huge pages: 5 of 2 MiB, 0 of them free, not asked for");
	config.huge_pages = 1;
	assert_int_equal(ask(), KVP_NO_TRANSPORT);
	assert_in("BAD   huge pages: 5 of 2 MiB, 0 of them free, and huge_pages=1 asks for them: "
		  "raise vm.nr_hugepages");
	machine.huge_free = 1;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    huge pages: 5 of 2 MiB, 1 of them free, asked for\n");
}

static void
ask__cores_and_quota(void **state)
{
	(void)state;
	machine.quota_us = 150000;
	machine.period_us = 100000;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("note  CPU quota: the control group has 1.5 cores (150000 us in 100000 us)");
	assert_in("ok    cores: 8 for 1 lanes\n");
	machine.cores = 2;
	config.lanes = 2;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    cores: 2 for 2 lanes\n"); /* they sleep when idle */
	config.idle = KVP_IDLE_POLL;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("note  cores: 2 for 2 lanes that poll for ever");
	machine.cores = 3;
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    cores: 3 for 2 lanes\n");
}

static void
ask__rdma_limits(void **state)
{
	(void)state;
	strcpy(machine.rdma, "mlx5_0 hca_handle=2 hca_object=max");
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("note  RDMA objects: the control group limits them (mlx5_0 hca_handle=2");
	machine.rdma[0] = '\0';
	assert_int_equal(ask(), KVP_SUCCESS);
	assert_in("ok    RDMA objects: no limit");
}

static void
ask__wrongly(void **state)
{
	(void)state;
	assert_int_equal(kvp_doctor(NULL, text, sizeof(text)), KVP_PARAM_INVALID);
	assert_non_null(strstr(kvp_error_message(), "config is NULL"));
	assert_int_equal(kvp_doctor(&config, NULL, 5), KVP_PARAM_INVALID);
	assert_int_equal(kvp_doctor(&config, text, 0), KVP_PARAM_INVALID);
	config.lanes = 99;
	strcpy(text, "x");
	assert_int_equal(kvp_doctor(&config, text, sizeof(text)), KVP_PARAM_INVALID);
	assert_non_null(strstr(kvp_error_message(), "lanes 99"));
	assert_string_equal(text, "");
}

static void
ask__cut(void **state)
{
	char *whole;
	size_t length;

	(void)state;
	assert_int_equal(ask(), KVP_SUCCESS);
	whole = strdup(text);
	assert_non_null(whole);
	length = strlen(whole);
	for (size_t size = 1; size <= length + 1; size++) {
		char *tight = malloc(size);

		assert_non_null(tight);
		assert_int_equal(kvp_doctor(&config, tight, size), KVP_SUCCESS);
		assert_int_equal(strlen(tight), size - 1);
		assert_memory_equal(tight, whole, size - 1);
		free(tight);
	}
	free(whole);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(ask__all_well, begin),
		cmocka_unit_test_setup(ask__a_transport_that_cannot_start, begin),
		cmocka_unit_test_setup(ask__a_transport_of_another_build, begin),
		cmocka_unit_test_setup(ask__locked_memory, begin),
		cmocka_unit_test_setup(ask__huge_pages, begin),
		cmocka_unit_test_setup(ask__cores_and_quota, begin),
		cmocka_unit_test_setup(ask__rdma_limits, begin),
		cmocka_unit_test_setup(ask__wrongly, begin),
		cmocka_unit_test_setup(ask__cut, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
