/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals, limits, and the threads that make MRs. */
#include "verbs_nic.h"

/* --- refusals --------------------------------------------------------------------------- */

static void
refusal__of_any_mr_leaves_none(void **state)
{
	struct cache cache = {0};

	(void)state;
	for (uint32_t i = 0; i < 6; i++)
		cache_add(&cache, BASE + i * 16 * PAGE, 2, PAGE);
	nic.error = ENOMEM;
	for (uint32_t at = 1; at <= 6 * DEVICES; at++) {
		nic.refuse_at = nic.made + at;
		hold_refused(&cache, KVP_NO_RESOURCE, "refused");
		assert_int_equal(nic.live, 0);
	}
	nic.error = 0;
	hold_ok(&cache);
	forget(&cache);
}

static void
refusal__says_why(void **state)
{
	static const struct {
		int error;
		kvp_status status;
		const char *word;
	} why[] = {
		{EFAULT, KVP_PARAM_INVALID, "not mapped from first to last byte, or not writable"},
		{ENOMEM, KVP_NO_RESOURCE, "nic0 refused 8.0 KiB (ENOMEM)"},
		{EINVAL, KVP_NO_RESOURCE, "Invalid argument"},
		{EIO, KVP_NO_RESOURCE, "nic0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(why) / sizeof(why[0]); i++) {
		struct cache cache = cache_of(BASE, 2 * PAGE);

		nic.error = why[i].error;
		nic.refuse_access = (unsigned int)IBV_ACCESS_LOCAL_WRITE;
		hold_refused(&cache, why[i].status, why[i].word);
	}
}

static void
refusal__of_relaxed_ordering_is_no_refusal(void **state)
{
	static const int errors[] = {EINVAL, EOPNOTSUPP};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct cache cache = cache_of(BASE, 2 * PAGE);

		nic.error = errors[i];
		nic.refuse_access = (unsigned int)IBV_ACCESS_RELAXED_ORDERING;
		hold_ok(&cache);
		assert_int_equal(nic.mrs->access & (unsigned int)IBV_ACCESS_RELAXED_ORDERING, 0);
		assert_int_not_equal(nic.mrs->access & (unsigned int)IBV_ACCESS_REMOTE_WRITE, 0);
		forget(&cache);
		/* Any other refusal stands. */
		nic.error = ENOMEM;
		hold_refused(&cache, KVP_NO_RESOURCE, "ENOMEM");
	}
}

/* --- limits -------------------------------------------------------------------------------- */

static void
memlock__is_predicted_before_anything_is_pinned(void **state)
{
	struct cache first = cache_of(BASE, MIB), second = cache_of(BASE + 16 * MIB, MIB);
	struct cache third = cache_of(BASE + 32 * MIB + PAGE - 1, 2);
	bool was_on = ipc_lock(false);

	(void)state;
	memlock = 3 * MIB;
	/* Two devices: 2 MiB of the 3, and then 2 more are too many. */
	hold_ok(&first);
	assert_int_equal(nic.made, DEVICES);
	hold_refused(&second, KVP_NO_RESOURCE, "LimitMEMLOCK=infinity");
	hold_refused(&second, KVP_NO_RESOURCE, "ulimit -l unlimited");
	hold_refused(&second, KVP_NO_RESOURCE, "--ulimit memlock=-1");
	hold_refused(&second, KVP_NO_RESOURCE, "fewer verbs_devices");
	hold_refused(&second, KVP_NO_RESOURCE,
		     "2.0 MiB to pin (2 devices), 2.0 MiB pinned (2.0 MiB ours), memlock "
		     "limit 3.0 MiB");
	assert_int_equal(nic.made, DEVICES);
	forget(&first);
	hold_ok(&second);
	/* Two bytes on two pages are two pages, on each device. */
	memlock = 2 * MIB + 4 * PAGE - 1;
	hold_refused(&third, KVP_NO_RESOURCE, "16.0 KiB to pin");
	memlock = 2 * MIB + 4 * PAGE;
	hold_ok(&third);
	forget(&third);
	forget(&second);
	/* The device says no where the limit did not: both are in the line. */
	nic.error = ENOMEM;
	nic.refuse_at = nic.made + 1;
	hold_refused(&first, KVP_NO_RESOURCE, "memlock limit 2.0 MiB");
	nic.error = 0;
	/* Who may lock memory without end is not bound. */
	memlock = PAGE;
	if (was_on) {
		ipc_lock(true);
		hold_ok(&first);
		forget(&first);
	}
}

/* Its pages are pinned by who exports them. */
static void
memlock__does_not_bind_a_dmabuf(void **state)
{
	struct kvp_device_memory memory = {
		.fd = dmabuf(), .base = (void *)BASE, .bytes = 16 * PAGE};
	struct cache cache = cache_of(BASE, 16 * PAGE);

	(void)state;
	(void)ipc_lock(false);
	memlock = PAGE;
	hold_refused(&cache, KVP_NO_RESOURCE, "memlock limit 4.0 KiB");
	cache.local.memory = &memory;
	hold_ok(&cache);
	forget(&cache);
	close(memory.fd);
}

static void
max_mr__is_predicted(void **state)
{
	struct cache cache = {0}, one = cache_of(BASE + 64 * MIB, PAGE);

	(void)state;
	world.verbs.devices.device[1].attr.max_mr = 4;
	for (uint32_t i = 0; i < 4; i++)
		cache_add(&cache, BASE + i * 16 * PAGE, 2, PAGE);
	hold_ok(&one);
	hold_refused(
		&cache, KVP_NO_RESOURCE,
		"nic1 holds 4 memory regions (max_mr), this engine has 1, the cache needs 4 more");
	assert_int_equal(nic.made, DEVICES);
	forget(&one);
	hold_ok(&cache);
	forget(&cache);
}

/* --- threads --------------------------------------------------------------------------------- */

static uint32_t
threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	uint32_t count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static void
helpers__work_in_parallel_and_are_gone_afterwards(void **state)
{
	struct cache cache = {0};
	uint32_t before;

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		cache_add(&cache, BASE + i * 16 * MIB, 4, MIB);
	/* The first threads of a process may bring others, of a sanitizer. */
	hold_ok(&cache);
	forget(&cache);
	before = threads();
	nic.slow = 5000;
	nic.running_max = 0;
	hold_ok(&cache);
	assert_in_range(nic.running_max, 2, 8);
	assert_int_equal(nic.made, 2 * 8 * DEVICES);
	nic.running_max = 0;
	forget(&cache);
	assert_in_range(nic.running_max, 2, 8);
	assert_int_equal(nic.unblocked, 0);
	/* A joined thread may still be listed for a moment. */
	for (uint32_t i = 0; i < 1000 && threads() != before; i++)
		usleep(1000);
	assert_int_equal(threads(), before);
}

static void
helpers__stop_at_the_first_refusal(void **state)
{
	struct cache cache = {0};

	(void)state;
	for (uint32_t i = 0; i < TENSORS; i++)
		cache_add(&cache, BASE + i * 16 * MIB, 4, MIB);
	nic.slow = 1000;
	nic.error = EFAULT;
	nic.refuse_at = 3;
	hold_refused(&cache, KVP_PARAM_INVALID, "EFAULT");
	/* What the other threads had begun is all that came after. */
	assert_in_range(nic.made, 3, 3 + 2 * 8);
}

static void *
come_and_go(void *arg)
{
	const uint32_t *number = arg;

	for (uint32_t i = 0; i < 200; i++) {
		/* All of it, or a part that may lie in another thread's. */
		struct cache cache = cache_of(BASE + (*number + i) % 3 * PAGE, (4 - i % 3) * PAGE);

		kvp_layout_spans(cache.tensor, 1, cache.span);
		if (hold(&cache, NULL) != KVP_SUCCESS)
			return arg;
		forget(&cache);
	}
	return NULL;
}

static void
hold__from_many_threads(void **state)
{
	uint32_t number[4] = {0, 1, 2, 3};
	pthread_t thread[4];
	void *failed;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &number[i]), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(thread[i], &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(nic.live, 0);
	assert_int_equal(nic.running_max, 1); /* too little for helpers */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DEVICES(refusal__of_any_mr_leaves_none),
		ON_DEVICES(refusal__says_why),
		ON_DEVICES(refusal__of_relaxed_ordering_is_no_refusal),
		ON_DEVICES(memlock__is_predicted_before_anything_is_pinned),
		ON_DEVICES(memlock__does_not_bind_a_dmabuf),
		ON_DEVICES(max_mr__is_predicted),
		ON_DEVICES(helpers__work_in_parallel_and_are_gone_afterwards),
		ON_DEVICES(helpers__stop_at_the_first_refusal),
		ON_DEVICES(hold__from_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
