/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_pin.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/capability.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

#define PARALLEL_BYTES (16U << 20) /* less is done before a thread has started */

/* --- limits -------------------------------------------------------------------- */

struct limits {
	bool is_bounded; /* by RLIMIT_MEMLOCK */
	uint64_t limit;
	uint64_t pinned; /* by this process */
};

static uint64_t
page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Number behind "\n<name>:" in a /proc status file, 0 when it is not there. */
static uint64_t
status_value(const char *text, const char *name, int base)
{
	const char *at = strstr(text, name);

	return at != NULL ? strtoull(at + strlen(name), NULL, base) : 0;
}

/*
 * The kernel counts every MR's pages anew, against VmPin alone: pages that were only locked (VmLck) do
 * not count. Helpers have the capabilities of the thread that starts them.
 */
static void
limits_read(const struct kvp_verbs_pins *pins, struct limits *limits_out)
{
	char text[8192] = "";
	struct rlimit rlimit;
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = 0;

	if (fd >= 0) {
		bytes = read(fd, text, sizeof(text) - 1);
		(void)close(fd);
	}
	text[bytes > 0 ? bytes : 0] = '\0';
	limits_out->pinned = status_value(text, "\nVmPin:", 10) << 10;
	if (limits_out->pinned < pins->pages)
		limits_out->pinned = pins->pages;
	limits_out->limit = UINT64_MAX;
	if (getrlimit(RLIMIT_MEMLOCK, &rlimit) == 0 && rlimit.rlim_cur != RLIM_INFINITY)
		limits_out->limit = rlimit.rlim_cur;
	limits_out->is_bounded = limits_out->limit != UINT64_MAX &&
				 (status_value(text, "\nCapEff:", 16) & 1ULL << CAP_IPC_LOCK) == 0;
}

/* "1.5 GiB" */
static const char *
size_text(uint64_t bytes, char text[24])
{
	static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
	double value = (double)bytes / 1024;
	size_t i = 0;

	for (; value >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0]); i++)
		value /= 1024;
	snprintf(text, 24, "%.1f %s", value, unit[i]);
	return text;
}

static KVP_COLD kvp_status
fail_limit(const struct kvp_verbs_pins *pins, const struct limits *limits, const char *why,
	   uint64_t need, uint32_t devices, struct kvp_error *err)
{
	char n[24], l[24], p[24], o[24];

	if (!limits->is_bounded)
		return kvp_fail(
			err, KVP_NO_RESOURCE,
			"verbs: %s%s to pin (%u devices), %s pinned (%s ours), no memlock limit: "
			"the device's or the system's memory ends; fewer verbs_devices, smaller "
			"caches, or huge pages",
			why, size_text(need, n), devices, size_text(limits->pinned, p),
			size_text(pins->pages, o));
	return kvp_fail(err, KVP_NO_RESOURCE,
			"verbs: %s%s to pin (%u devices), %s pinned (%s ours), memlock limit %s: "
			"ulimit -l unlimited; LimitMEMLOCK=infinity (unit); --ulimit memlock=-1 "
			"(container); or fewer verbs_devices",
			why, size_text(need, n), devices, size_text(limits->pinned, p),
			size_text(pins->pages, o), size_text(limits->limit, l));
}

/* --- jobs ---------------------------------------------------------------------- */

/* One MR. */
struct job {
	struct kvp_verbs_registration *registration;
	uint32_t span;
	uint32_t device;
	int error; /* errno of the device's refusal */
};

struct work {
	struct kvp_verbs_pins *pins;
	struct job *job;
	uint32_t jobs;
	int fd;
	bool is_unpin;
	_Atomic uint32_t next;
	_Atomic bool is_refused;
};

static struct ibv_mr *
register_span(const struct work *work, const struct job *job, unsigned int access)
{
	struct ibv_pd *pd = work->pins->devices->device[job->device].pd;
	const struct kvp_verbs_registration *registration = job->registration;
	const struct kvp_verbs_pinned *span = &registration->span[job->span];

	if (registration->is_device)
		return ibv_reg_dmabuf_mr(
			pd, registration->offset + (span->address - registration->address),
			span->bytes, span->address, work->fd, (int)access);
	return ibv_reg_mr(pd, (void *)(uintptr_t)span->address, span->bytes, access);
}

/* Relaxed ordering is a wish, and not every provider knows it. */
static void
pin_one(struct work *work, struct job *job)
{
	unsigned int access = work->pins->access;
	struct ibv_mr *mr = register_span(work, job, access);

	if (mr == NULL && (errno == EINVAL || errno == EOPNOTSUPP))
		mr = register_span(work, job, access & ~(unsigned int)IBV_ACCESS_RELAXED_ORDERING);
	if (mr == NULL) {
		job->error = errno != 0 ? errno : EIO;
		atomic_store_explicit(&work->is_refused, true, memory_order_relaxed);
	}
	job->registration->span[job->span].mr[job->device] = mr;
}

/* It can fail only for a device that is gone, and with it what it could have written. */
static void
unpin_one(struct job *job)
{
	(void)ibv_dereg_mr(job->registration->span[job->span].mr[job->device]);
	job->registration->span[job->span].mr[job->device] = NULL;
}

static void *
work_some(void *arg)
{
	struct work *work = arg;

	for (;;) {
		uint32_t i = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);

		if (i >= work->jobs ||
		    atomic_load_explicit(&work->is_refused, memory_order_relaxed))
			return NULL;
		if (work->is_unpin)
			unpin_one(&work->job[i]);
		else
			pin_one(work, &work->job[i]);
	}
}

static uint32_t
threads_for(const struct work *work)
{
	uint64_t bytes = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t threads = cpus < 1 ? 1 : (uint32_t)cpus * 2;

	for (uint32_t i = 0; i < work->jobs; i++)
		bytes += work->job[i].registration->span[work->job[i].span].bytes;
	if (bytes < PARALLEL_BYTES)
		return 1;
	if (threads > KVP_VERBS_PIN_THREADS)
		threads = KVP_VERBS_PIN_THREADS;
	return work->jobs < threads ? work->jobs : threads;
}

/* The caller is one of the threads; without the others it does all itself. */
static void
work_all(struct work *work)
{
	pthread_t helper[KVP_VERBS_PIN_THREADS];
	uint32_t threads = threads_for(work);
	uint32_t helpers = 0;
	sigset_t all;
	sigset_t before;

	if (threads > 1) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		while (helpers + 1 < threads &&
		       pthread_create(&helper[helpers], NULL, work_some, work) == 0)
			pthread_setname_np(helper[helpers++], "kvp-memory");
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	(void)work_some(work);
	while (helpers > 0)
		(void)pthread_join(helper[--helpers], NULL);
}

/* One job per MR to make, or per MR that is there. NULL: no memory. */
static struct job *
jobs_make(const struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
	  uint32_t count, bool is_unpin, uint32_t *jobs_out)
{
	uint32_t devices = pins->devices->devices;
	uint64_t most = 1;
	uint32_t jobs = 0;
	struct job *job;

	for (uint32_t i = 0; i < count; i++)
		most += (uint64_t)registration[i]->spans * devices;
	job = calloc(most, sizeof(*job));
	for (uint32_t i = 0; job != NULL && i < count; i++) {
		for (uint32_t at = 0; at < registration[i]->spans * devices; at++) {
			const struct kvp_verbs_device *device =
				&pins->devices->device[at % devices];
			bool is_there =
				registration[i]->span[at / devices].mr[at % devices] != NULL;
			/* Control may find it out this moment: then the device refuses. */
			bool is_fatal = __atomic_load_n(&device->is_fatal, __ATOMIC_RELAXED);

			if (is_unpin ? is_there : !is_fatal)
				job[jobs++] = (struct job){.registration = registration[i],
							   .span = at / devices,
							   .device = at % devices};
		}
	}
	*jobs_out = jobs;
	return job;
}

/* --- before and after ---------------------------------------------------------- */

/* Bytes of the pages that one span covers. */
static uint64_t
pages_of(const struct kvp_verbs_pinned *span)
{
	uint64_t page = page_bytes();

	return ((span->address + span->bytes + page - 1) & ~(page - 1)) -
	       (span->address & ~(page - 1));
}

/* What pinning is going to take, against what there is. */
static kvp_status
predict(const struct kvp_verbs_pins *pins, const struct work *work, struct kvp_error *err)
{
	uint64_t mrs[KVP_VERBS_DEVICES_MAX] = {0};
	struct limits limits;
	uint64_t need = 0;

	for (uint32_t i = 0; i < work->jobs; i++) {
		struct job *job = &work->job[i];

		mrs[job->device]++;
		/* Pages of a dma-buf are its exporter's. */
		if (!job->registration->is_device)
			need += pages_of(&job->registration->span[job->span]);
	}
	for (uint32_t i = 0; i < pins->devices->devices; i++) {
		const struct kvp_verbs_device *device = &pins->devices->device[i];

		if (device->attr.max_mr > 0 && pins->mrs + mrs[i] > (uint64_t)device->attr.max_mr)
			return kvp_fail(
				err, KVP_NO_RESOURCE,
				"verbs: %s holds %d memory regions (max_mr), this engine has "
				"%" PRIu64 ", the cache needs %" PRIu64
				" more; tensors that lie together need fewer: "
				"kvp_cache_allocate, or one kvp_memory_allocate",
				device->name, device->attr.max_mr, pins->mrs, mrs[i]);
	}
	limits_read(pins, &limits);
	if (need > 0 && limits.is_bounded &&
	    (limits.pinned > limits.limit || need > limits.limit - limits.pinned))
		return fail_limit(pins, &limits, "", need, pins->devices->devices, err);
	return KVP_SUCCESS;
}

/* The line for a device's refusal. */
static KVP_COLD kvp_status
refused(const struct kvp_verbs_pins *pins, const struct work *work, const struct job *job,
	struct kvp_error *err)
{
	const char *name = pins->devices->device[job->device].name;
	const struct kvp_verbs_pinned *span = &job->registration->span[job->span];
	struct limits limits;
	uint64_t need = 0;
	char why[64], size[24];

	size_text(span->bytes, size);
	if (job->error == ENOMEM) {
		for (uint32_t i = 0; i < work->jobs; i++)
			need += pages_of(&work->job[i].registration->span[work->job[i].span]);
		limits_read(pins, &limits);
		snprintf(why, sizeof(why), "%.16s refused %s (ENOMEM): ", name, size);
		return fail_limit(pins, &limits, why, need, pins->devices->devices, err);
	}
	if (job->error == EFAULT)
		return kvp_fail(err, KVP_PARAM_INVALID,
				"verbs: %s refused %s at 0x%" PRIx64
				" (EFAULT): not mapped from first to last byte, or not writable",
				name, size, span->address);
	if (job->registration->is_device && (job->error == EOPNOTSUPP || job->error == ENOSYS))
		return kvp_fail(err, KVP_FEATURE_NOT_ENABLED,
				"verbs: the driver of %s does not take a dma-buf (%s); use devices "
				"whose driver does (verbs_devices), or host memory",
				name, strerror(job->error));
	return kvp_fail(err, KVP_NO_RESOURCE, "verbs: %s refused %s at 0x%" PRIx64 "%s: %s", name,
			size, span->address, job->registration->is_device ? " of a dma-buf" : "",
			strerror(job->error));
}

static void
count(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *registration)
{
	for (uint32_t i = 0; i < registration->spans && !registration->is_device; i++) {
		for (uint32_t d = 0; d < pins->devices->devices; d++)
			if (registration->span[i].mr[d] != NULL)
				registration->pages += pages_of(&registration->span[i]);
	}
	pins->pages += registration->pages;
	pins->mrs += registration->spans;
}

static void
free_mrs(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
	 uint32_t registrations)
{
	struct work work = {.pins = pins, .fd = -1, .is_unpin = true};

	work.job = jobs_make(pins, registration, registrations, true, &work.jobs);
	if (work.job != NULL) {
		work_all(&work);
		free(work.job);
		return;
	}
	for (uint32_t i = 0; i < registrations; i++) {
		struct job job = {.registration = registration[i]};

		for (; job.span < registration[i]->spans; job.span++) {
			for (job.device = 0; job.device < KVP_VERBS_DEVICES_MAX; job.device++)
				if (registration[i]->span[job.span].mr[job.device] != NULL)
					unpin_one(&job);
		}
	}
}

kvp_status
kvp_verbs_pin(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
	      uint32_t registrations, int fd, struct kvp_error *err)
{
	struct work work = {.pins = pins, .fd = fd};
	const struct job *failed = NULL;
	kvp_status status;

	work.job = jobs_make(pins, registration, registrations, false, &work.jobs);
	if (work.job == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY, "verbs: no memory for a registration");
	status = predict(pins, &work, err);
	if (status == KVP_SUCCESS) {
		work_all(&work);
		for (uint32_t i = 0; i < work.jobs && failed == NULL; i++)
			failed = work.job[i].error != 0 ? &work.job[i] : NULL;
	}
	if (failed != NULL) {
		free_mrs(pins, registration, registrations);
		status = refused(pins, &work, failed, err);
	}
	free(work.job);
	for (uint32_t i = 0; i < registrations && status == KVP_SUCCESS; i++)
		count(pins, registration[i]);
	return status;
}

void
kvp_verbs_unpin(struct kvp_verbs_pins *pins, struct kvp_verbs_registration *const *registration,
		uint32_t registrations)
{
	free_mrs(pins, registration, registrations);
	for (uint32_t i = 0; i < registrations; i++) {
		pins->pages -= registration[i]->pages;
		pins->mrs -= registration[i]->spans;
	}
}
