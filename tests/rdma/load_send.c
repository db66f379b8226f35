/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TELL_MS     200U
#define LOST_END_MS 5000U /* within which a lost peer's transfers must have ended */
#define SAID_MAX    8U    /* messages of failed transfers that are printed */
#define CANARY      0xCA9A000000000000U

enum phase {
	IDLE,
	FLYING,   /* no terminal status yet */
	CHECKING, /* a push: the receiver has not said that it is done with it */
	QUIET,    /* a pull that failed: its canaries are watched */
};

struct flight {
	enum phase phase;
	uint32_t slot;
	bool is_pull;
	uint64_t generation;
	uint64_t remote_cache;
	uint64_t begun_ms;
	uint64_t quiet_ms; /* until then */
	uint64_t canary;
	kvp_status last;
	struct kvp_transfer *transfer;
	uint64_t *src, *dst;
};

struct sender {
	const struct load_options *options;
	struct kvp_engine *engine;
	struct load_cache cache;
	int fd;
	int status_fd;
	uint64_t remote_cache;
	struct flight flight[LOAD_SLOTS_MAX];
	uint64_t ok, timeout, lost, gone, other;
	uint64_t max_ms;
	uint32_t said;
	uint32_t releases;
	bool is_wrong;
	bool is_lost;
	uint64_t lost_ms;
	uint64_t told_ms, released_ms, start_ms;
};

static void
meet(struct sender *sender)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint64_t end_ms = load_now_ms() + LOAD_PATIENCE;
	struct load_message message = {0};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", sender->options->meet);
	sender->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	while (connect(sender->fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		if (load_now_ms() > end_ms)
			load_die(sender->options->meet);
		usleep(20000);
	}
	for (uint64_t port = 0; port == 0 || sender->remote_cache == 0;) {
		int rc = load_hear(sender->fd, &message, 1000);

		if (rc < 0 || load_now_ms() > end_ms)
			load_die("the receiver is gone");
		if (rc > 0 && message.word == LOAD_CACHE)
			sender->remote_cache = message.value;
		if (rc > 0 && message.word == LOAD_HELLO) {
			port = message.value;
			load_link(sender->options, sender->engine, port);
		}
	}
}

static bool
is_allowed(const struct sender *sender, kvp_status status)
{
	switch (sender->options->expect) {
	case EXPECT_ALL:
		return status == KVP_SUCCESS;
	case EXPECT_RECOVER:
		return status == KVP_SUCCESS || status == KVP_TIMEOUT ||
		       status == KVP_CACHE_NOT_EXIST;
	case EXPECT_LOST:
		return status == KVP_SUCCESS || status == KVP_TIMEOUT || status == KVP_NO_CREDIT ||
		       status == KVP_PEER_LOST || status == KVP_NOT_YET_LINK;
	}
	return false;
}

static void
count(struct sender *sender, const struct flight *flight, kvp_status status)
{
	uint64_t took_ms = load_now_ms() - flight->begun_ms;

	sender->ok += status == KVP_SUCCESS;
	sender->timeout += status == KVP_TIMEOUT;
	sender->lost += status == KVP_PEER_LOST || status == KVP_NOT_YET_LINK;
	sender->gone += status == KVP_CACHE_NOT_EXIST;
	sender->other += status != KVP_SUCCESS && status != KVP_TIMEOUT &&
			 status != KVP_PEER_LOST && status != KVP_NOT_YET_LINK &&
			 status != KVP_CACHE_NOT_EXIST;
	if (took_ms > sender->max_ms)
		sender->max_ms = took_ms;
	if (status != KVP_SUCCESS && (sender->said++ < SAID_MAX || !is_allowed(sender, status)))
		fprintf(stderr, "%s of slot %u after %llu ms: %s: %s\n",
			flight->is_pull ? "pull" : "push", flight->slot,
			(unsigned long long)took_ms, kvp_status_name(status), kvp_error_message());
	sender->is_wrong |= !is_allowed(sender, status);
}

/* A pull's n-th source block is at its n-th destination now. */
static bool
is_pulled(const struct sender *sender, const struct flight *flight)
{
	const struct load_cache *cache = &sender->cache;
	uint64_t first = (uint64_t)flight->slot * (cache->blocks + 1);
	uint64_t *at = calloc(cache->blocks, sizeof(*at));
	bool is_right;

	if (at == NULL)
		load_die("calloc");
	for (uint32_t i = 0; i < cache->blocks; i++)
		at[flight->src[i] - first] = flight->dst[i];
	is_right = load_check(cache, flight->slot, 0, at, "pulled");
	free(at);
	return is_right;
}

/* Of a transfer with a terminal status, or one that was refused. The error message is still this one's. */
static void
end(struct sender *sender, struct flight *flight, kvp_status status)
{
	struct load_message message = {.word = LOAD_ENDED,
				       .slot = flight->slot,
				       .generation = flight->generation,
				       .value = flight->remote_cache,
				       .status = status};

	count(sender, flight, status);
	flight->last = status;
	kvp_transfer_free(flight->transfer);
	flight->transfer = NULL;
	flight->phase = CHECKING;
	if (!flight->is_pull) {
		(void)load_say(sender->fd, &message);
		return;
	}
	flight->phase = IDLE;
	if (status == KVP_SUCCESS) {
		sender->is_wrong |= !is_pulled(sender, flight);
		return;
	}
	sender->is_wrong |= !load_clean(&sender->cache, flight->slot, "pull that failed");
	flight->canary = CANARY + flight->generation;
	load_canary(&sender->cache, flight->slot, flight->canary);
	flight->quiet_ms = load_now_ms() + LOAD_QUIET_MS;
	flight->phase = QUIET;
}

static kvp_status
submit_push(struct sender *sender, struct flight *flight)
{
	const struct load_options *options = sender->options;

	load_fill(&sender->cache, flight->slot, flight->generation, flight->src);
	return kvp_push_submit(
		sender->engine,
		&(struct kvp_push){.src_cache = sender->cache.id,
				   .dst = {LOAD_RECEIVER, (int64_t)flight->remote_cache},
				   .src_blocks = flight->src,
				   .dst_blocks = flight->dst,
				   .count = options->blocks,
				   .src_layers = {-1, -1},
				   .dst_layers = {-1, -1},
				   .tensors_per_layer = LOAD_PER_LAYER,
				   .timeout_ms = options->timeout_ms,
				   .notify = {.enabled = 1,
					      .tag = flight->remote_cache << 40 |
						     flight->generation << 8 | flight->slot}},
		&flight->transfer);
}

static kvp_status
submit_pull(struct sender *sender, struct flight *flight)
{
	const struct load_options *options = sender->options;

	load_canary(&sender->cache, flight->slot, CANARY);
	return kvp_pull_submit(
		sender->engine,
		&(struct kvp_pull){.src = {LOAD_RECEIVER, (int64_t)flight->remote_cache},
				   .dst_cache = sender->cache.id,
				   .src_blocks = flight->src,
				   .dst_blocks = flight->dst,
				   .count = options->blocks,
				   .src_layers = {-1, -1},
				   .dst_layers = {-1, -1},
				   .tensors_per_layer = LOAD_PER_LAYER,
				   .timeout_ms = options->timeout_ms},
		&flight->transfer);
}

static void
begin(struct sender *sender, struct flight *flight)
{
	kvp_status status;

	flight->generation++;
	flight->remote_cache = sender->remote_cache;
	flight->begun_ms = load_now_ms();
	flight->phase = FLYING;
	load_blocks(&sender->cache, flight->slot, flight->generation, flight->src, flight->dst);
	status = flight->is_pull ? submit_pull(sender, flight) : submit_push(sender, flight);
	if (status != KVP_SUCCESS)
		end(sender, flight, status);
}

static void
look(struct sender *sender, struct flight *flight)
{
	kvp_status status;

	if (flight->phase == FLYING) {
		status = kvp_transfer_test(flight->transfer);
		if (status != KVP_IN_PROGRESS)
			end(sender, flight, status);
	}
	if (flight->phase == QUIET && load_now_ms() > flight->quiet_ms) {
		sender->is_wrong |= !load_canary_check(&sender->cache, flight->slot, flight->canary,
						       "pull that failed");
		flight->phase = IDLE;
	}
}

static void
register_cache(struct sender *sender)
{
	kvp_status status = load_cache_register(&sender->cache);

	if (status != KVP_SUCCESS)
		load_refuse(sender->options, "register", status);
}

/* Release under load: transfers have ended when it returns, and the source may hold anything. */
static void
release(struct sender *sender)
{
	const struct load_options *options = sender->options;
	kvp_status status = kvp_cache_release(sender->engine, sender->cache.id);

	if (status != KVP_SUCCESS)
		load_refuse(options, "release", status);
	for (uint32_t i = 0; i < options->slots; i++) {
		struct flight *flight = &sender->flight[i];

		if (flight->phase == FLYING &&
		    kvp_transfer_test(flight->transfer) == KVP_IN_PROGRESS) {
			fprintf(stderr, "slot %u: still moving after its cache was released\n", i);
			sender->is_wrong = true;
		}
		look(sender, flight);
	}
	for (uint32_t i = 0; i < options->slots; i++) {
		load_canary(&sender->cache, i, LOAD_POISON);
		sender->flight[i].canary = LOAD_POISON;
	}
	usleep(LOAD_QUIET_MS * 1000);
	for (uint32_t i = 0; i < options->slots; i++)
		sender->is_wrong |=
			!load_canary_check(&sender->cache, i, LOAD_POISON, "released source");
	register_cache(sender);
	sender->releases++;
	sender->released_ms = load_now_ms();
}

static void
hear(struct sender *sender)
{
	struct load_message message;
	struct kvp_event event;

	for (int wait_ms = 1; load_hear(sender->fd, &message, wait_ms) > 0; wait_ms = 0) {
		struct flight *flight = &sender->flight[message.slot % LOAD_SLOTS_MAX];

		if (message.word == LOAD_CACHE)
			sender->remote_cache = message.value;
		if (message.word == LOAD_CHECKED && flight->generation == message.generation &&
		    flight->phase == CHECKING)
			flight->phase = IDLE;
	}
	while (kvp_event_poll(sender->engine, &event) == KVP_SUCCESS) {
		if (event.kind != KVP_EVENT_PEER_LOST && event.kind != KVP_EVENT_PEER_UNLINKED)
			continue;
		fprintf(stderr, "event: the peer is lost (%s)\n", kvp_status_name(event.status));
		sender->is_wrong |= sender->options->expect != EXPECT_LOST;
		sender->is_lost = true;
		sender->lost_ms = load_now_ms();
	}
}

/* One line, rewritten in place: a reader that starts no process for it costs nothing. */
static void
tell(struct sender *sender, bool is_end)
{
	uint64_t now_ms = load_now_ms();
	char line[200];
	int bytes;

	if (!is_end && now_ms < sender->told_ms + TELL_MS)
		return;
	sender->told_ms = now_ms;
	bytes = snprintf(line, sizeof(line),
			 "ms=%llu ok=%llu timeout=%llu lost=%llu gone=%llu other=%llu max_ms=%llu "
			 "releases=%u\n",
			 (unsigned long long)(now_ms - sender->start_ms),
			 (unsigned long long)sender->ok, (unsigned long long)sender->timeout,
			 (unsigned long long)sender->lost, (unsigned long long)sender->gone,
			 (unsigned long long)sender->other, (unsigned long long)sender->max_ms,
			 sender->releases);
	if (is_end)
		printf("sent %s", line);
	else if (sender->status_fd >= 0 &&
		 pwrite(sender->status_fd, line, (size_t)bytes, 0) != (ssize_t)bytes)
		load_die(sender->options->status);
}

/* All slots at rest, and as it was expected. */
static bool
is_over(struct sender *sender, uint64_t end_ms)
{
	const struct load_options *options = sender->options;
	uint64_t now_ms = load_now_ms();
	bool is_over = true;

	for (uint32_t i = 0; i < options->slots; i++) {
		const struct flight *flight = &sender->flight[i];

		is_over &= flight->phase == IDLE || (sender->is_lost && flight->phase == CHECKING);
	}
	if (sender->is_lost) {
		if (is_over || now_ms < sender->lost_ms + LOST_END_MS)
			return is_over;
		fprintf(stderr, "transfers go on after the peer was lost\n");
	} else if (now_ms < end_ms + LOAD_PATIENCE) {
		return is_over && now_ms >= end_ms && options->expect != EXPECT_LOST;
	} else {
		fprintf(stderr, "it does not come to an end\n");
	}
	sender->is_wrong = true;
	return true;
}

static void
run(struct sender *sender)
{
	const struct load_options *options = sender->options;
	uint64_t end_ms = sender->start_ms + options->seconds * 1000ULL;

	sender->released_ms = sender->start_ms;
	do {
		bool is_ending = load_now_ms() >= end_ms || sender->is_lost;

		if (load_stop != 0 && !is_ending)
			end_ms = load_now_ms();
		for (uint32_t i = 0; i < options->slots; i++) {
			struct flight *flight = &sender->flight[i];

			look(sender, flight);
			/* A slot does not end with a failure, unless nothing else is to be had. */
			if (flight->phase == IDLE && !sender->is_lost &&
			    (!is_ending || flight->last != KVP_SUCCESS))
				begin(sender, flight);
		}
		if (options->release_ms != 0 && !is_ending &&
		    load_now_ms() > sender->released_ms + options->release_ms)
			release(sender);
		hear(sender);
		tell(sender, false);
	} while (!is_over(sender, end_ms) && !(sender->is_wrong && options->expect == EXPECT_ALL));
}

enum load_end
load_send(const struct load_options *options)
{
	static struct sender sender;
	struct load_message bye = {.word = LOAD_BYE};

	sender.options = options;
	sender.engine = load_open(options, LOAD_SENDER, "", options->setting, options->settings);
	load_cache_make(&sender.cache, sender.engine, options);
	register_cache(&sender);
	for (uint32_t i = 0; i < options->slots; i++) {
		sender.flight[i].slot = i;
		sender.flight[i].is_pull = i >= options->slots - options->pulls;
		sender.flight[i].src = calloc(options->blocks, sizeof(uint64_t));
		sender.flight[i].dst = calloc(options->blocks, sizeof(uint64_t));
		if (sender.flight[i].src == NULL || sender.flight[i].dst == NULL)
			load_die("calloc");
	}
	sender.status_fd = -1;
	if (options->status != NULL)
		sender.status_fd = open(options->status, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	meet(&sender);
	sender.start_ms = load_now_ms();
	run(&sender);
	tell(&sender, true);
	sender.is_wrong |= sender.ok == 0;
	if (!sender.is_lost) /* the receiver is to find out by itself */
		(void)load_say(sender.fd, &bye);
	load_close(options, sender.engine);
	return sender.is_wrong ? LOAD_WRONG : LOAD_OK;
}
