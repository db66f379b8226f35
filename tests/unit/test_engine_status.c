/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <kvpush/status.h>

/* Value and name from the same word: a swapped row in status.c shows. */
#define ROW(name)                 \
	{                         \
		KVP_##name, #name \
	}

static const struct {
	kvp_status status;
	const char *name;
} all[] = {
	ROW(SUCCESS),
	ROW(FAILED),
	ROW(WAIT_PROC_TIMEOUT),
	ROW(CACHE_NOT_EXIST),
	ROW(PARAM_INVALID),
	ROW(NOT_YET_LINK),
	ROW(ALREADY_LINK),
	ROW(LINK_FAILED),
	ROW(UNLINK_FAILED),
	ROW(NOTIFY_UNLINK_FAILED),
	ROW(CLUSTER_NUM_EXCEED),
	ROW(PROCESSING_LINK),
	ROW(DEVICE_OUT_OF_MEMORY),
	ROW(EXIST_LINK),
	ROW(FEATURE_NOT_ENABLED),
	ROW(TIMEOUT),
	ROW(LINK_BUSY),
	ROW(OUT_OF_MEMORY),
	ROW(IN_PROGRESS),
	ROW(NO_EVENT),
	ROW(CANCELLED),
	ROW(PEER_LOST),
	ROW(PEER_RESTARTED),
	ROW(NO_CREDIT),
	ROW(PROTOCOL),
	ROW(ADDRESS),
	ROW(NO_TRANSPORT),
	ROW(NO_RESOURCE),
	ROW(QUEUE_FULL),
};
#define ALL (sizeof(all) / sizeof(all[0]))

static void
status_name__unknown(void **state)
{
	static const kvp_status none[] = {1,           0x5010B000U, 0x5010B003U, KVP_STATUS_OWN,
					  0x5010C00CU, 0xFFFFFFFEU};

	(void)state;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_string_equal(kvp_status_name(none[i]), "UNKNOWN");
}

static void
status_name__each(void **state)
{
	(void)state;
	for (size_t i = 0; i < ALL; i++)
		assert_string_equal(kvp_status_name(all[i].status), all[i].name);
}

/* A value that is in status.h but not in the list above, or twice, would be missed. */
static void
status_name__covers_own_block(void **state)
{
	size_t named = 0, own = 0;

	(void)state;
	for (kvp_status i = KVP_STATUS_OWN; i < KVP_STATUS_OWN + 0x1000; i++)
		named += strcmp(kvp_status_name(i), "UNKNOWN") != 0;
	for (size_t i = 0; i < ALL; i++) {
		own += (all[i].status & 0xFFFFF000U) == KVP_STATUS_OWN;
		for (size_t j = 0; j < i; j++)
			assert_true(all[i].status != all[j].status);
	}
	assert_int_equal(named, own);
}

/* LLM-DataDist's callers have these numbers compiled in. */
static void
status_name__upstream_numbers(void **state)
{
	(void)state;
	assert_string_equal(kvp_status_name(0), "SUCCESS");
	assert_string_equal(kvp_status_name(0xFFFFFFFFU), "FAILED");
	assert_string_equal(kvp_status_name(0x5010B005U), "PARAM_INVALID");
	assert_string_equal(kvp_status_name(0x5010B007U), "NOT_YET_LINK");
	assert_string_equal(kvp_status_name(0x5010B01AU), "TIMEOUT");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(status_name__unknown),
		cmocka_unit_test(status_name__each),
		cmocka_unit_test(status_name__covers_own_block),
		cmocka_unit_test(status_name__upstream_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
