/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WATCHED_EACH \
	8U /* of the pushes that ended well, one in so many is watched for late writes */
#define EVENT_MS 20000U /* an event may come so much later than the sender's status */
#define CANARY   0xCA9B000000000000U

struct slot {
	uint64_t seen;    /* generation of the last event */
	uint64_t settled; /* generation of the last push that both sides are done with */
	uint64_t ended;   /* generation that the sender says has ended, 0 = none */
	uint64_t ended_cache;
	uint64_t ended_ms;
	kvp_status status;
	bool is_watched; /* canaries lie in it, until quiet_ms */
	uint64_t quiet_ms;
	uint64_t canary;
};

struct receiver {
	const struct load_options *options;
	struct kvp_engine *engine;
	struct load_cache cache;
	int fd;
	uint32_t pushes; /* slots of them, the first ones */
	struct slot slot[LOAD_SLOTS_MAX];
	uint64_t *src, *dst;
	uint64_t checked, watched, late, releases;
	uint64_t released_ms;
	bool is_wrong;
	bool is_lost;
	bool is_bye;
};

static void
meet(struct receiver *receiver)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", receiver->options->meet);
	(void)unlink(address.sun_path);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	    listen(listener, 1) != 0)
		load_die(address.sun_path);
	printf("ready\n");
	receiver->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	close(listener);
	if (receiver->fd < 0)
		load_die("accept");
}

/* What pull slots hold, all the time. */
static void
fill_pulled(struct receiver *receiver)
{
	for (uint32_t i = receiver->pushes; i < receiver->options->slots; i++) {
		load_blocks(&receiver->cache, i, 0, receiver->src, receiver->dst);
		load_fill(&receiver->cache, i, 0, receiver->dst);
	}
}

static void
register_cache(struct receiver *receiver)
{
	struct load_message message = {.word = LOAD_CACHE};
	kvp_status status = load_cache_register(&receiver->cache);

	if (status != KVP_SUCCESS)
		load_refuse(receiver->options, "register", status);
	message.value = (uint64_t)receiver->cache.id;
	if (receiver->fd >= 0)
		(void)load_say(receiver->fd, &message);
}

/* Both sides know of the end of this slot's push: its blocks are somebody else's now. */
static void
settle(struct receiver *receiver, uint32_t index)
{
	struct slot *slot = &receiver->slot[index];

	if (slot->status != KVP_SUCCESS)
		receiver->is_wrong |= !load_clean(&receiver->cache, index, "push that failed");
	slot->canary = CANARY + slot->ended;
	load_canary(&receiver->cache, index, slot->canary);
	slot->is_watched = true;
	slot->quiet_ms = load_now_ms();
	if (slot->status != KVP_SUCCESS || slot->ended % WATCHED_EACH == 0)
		slot->quiet_ms += LOAD_QUIET_MS;
	slot->settled = slot->ended;
	slot->ended = 0;
}

static void
look(struct receiver *receiver, uint32_t index)
{
	struct slot *slot = &receiver->slot[index];
	struct load_message message = {.word = LOAD_CHECKED, .slot = index};
	uint64_t now_ms = load_now_ms();

	if (slot->ended != 0 && slot->status == KVP_SUCCESS && slot->seen != slot->ended &&
	    slot->ended_cache == (uint64_t)receiver->cache.id) {
		if (now_ms < slot->ended_ms + EVENT_MS)
			return;
		fprintf(stderr, "slot %u generation %llu: SUCCESS, but no event came\n", index,
			(unsigned long long)slot->ended);
		receiver->is_wrong = true;
	}
	if (slot->ended != 0)
		settle(receiver, index);
	if (!slot->is_watched || now_ms < slot->quiet_ms)
		return;
	receiver->is_wrong |= !load_canary_check(&receiver->cache, index, slot->canary, "received");
	receiver->watched++;
	slot->is_watched = false;
	message.generation = slot->settled;
	(void)load_say(receiver->fd, &message);
}

static void
arrived(struct receiver *receiver, const struct kvp_event *event)
{
	const struct load_cache *cache = &receiver->cache;
	uint32_t index = (uint32_t)(event->tag & 0xFF);
	uint64_t generation = event->tag >> 8 & 0xFFFFFFFF;
	struct slot *slot = &receiver->slot[index % LOAD_SLOTS_MAX];

	if (index >= receiver->pushes || generation <= slot->seen ||
	    event->bytes != (uint64_t)cache->blocks * cache->block_bytes * LOAD_TENSORS) {
		fprintf(stderr, "event of slot %u, generation %llu, %llu bytes: that is none\n",
			index, (unsigned long long)generation, (unsigned long long)event->bytes);
		receiver->is_wrong = true;
		return;
	}
	slot->seen = generation;
	if (generation <= slot->settled) { /* the sender knew it as failed */
		receiver->late++;
		return;
	}
	if (event->tag >> 40 != (uint64_t)cache->id)
		return; /* of a cache that was released meanwhile, and its memory overwritten */
	load_blocks(cache, index, generation, receiver->src, receiver->dst);
	receiver->is_wrong |= !load_check(cache, index, generation, receiver->dst, "arrived");
	receiver->checked++;
}

static void
take_events(struct receiver *receiver)
{
	struct kvp_event event;

	while (kvp_event_poll(receiver->engine, &event) == KVP_SUCCESS) {
		if (event.kind == KVP_EVENT_PUSH_ARRIVED)
			arrived(receiver, &event);
		if (event.kind != KVP_EVENT_PEER_LOST && event.kind != KVP_EVENT_PEER_UNLINKED)
			continue;
		fprintf(stderr, "event: the peer is lost (%s)\n", kvp_status_name(event.status));
		receiver->is_lost = true;
	}
}

static void
take_messages(struct receiver *receiver)
{
	struct load_message message;
	int rc;

	for (int wait_ms = 1; (rc = load_hear(receiver->fd, &message, wait_ms)) > 0; wait_ms = 0) {
		struct slot *slot = &receiver->slot[message.slot % LOAD_SLOTS_MAX];

		receiver->is_bye |= message.word == LOAD_BYE;
		if (message.word != LOAD_ENDED)
			continue;
		take_events(receiver); /* what came before that is no late event */
		slot->ended = message.generation;
		slot->ended_cache = message.value;
		slot->status = message.status;
		slot->ended_ms = load_now_ms();
	}
	if (rc < 0)
		usleep(1000); /* it is dead; the engine will say so */
}

/* Canaries into all blocks, watched for a while: nothing may write, whatever was under way. */
static void
watch_all(struct receiver *receiver, uint64_t canary, uint32_t quiet_ms, const char *what)
{
	for (uint32_t i = 0; i < receiver->options->slots; i++)
		load_canary(&receiver->cache, i, canary);
	usleep(quiet_ms * 1000);
	for (uint32_t i = 0; i < receiver->options->slots; i++)
		receiver->is_wrong |= !load_canary_check(&receiver->cache, i, canary, what);
}

static void
release(struct receiver *receiver)
{
	kvp_status status = kvp_cache_release(receiver->engine, receiver->cache.id);

	if (status != KVP_SUCCESS)
		load_refuse(receiver->options, "release", status);
	take_events(receiver);
	/* Also poison: pulls that ended well did not read it. */
	watch_all(receiver, LOAD_POISON, LOAD_QUIET_MS, "released destination");
	for (uint32_t i = 0; i < receiver->pushes; i++) {
		load_canary(&receiver->cache, i, CANARY);
		receiver->slot[i].canary = CANARY;
	}
	fill_pulled(receiver);
	register_cache(receiver);
	receiver->releases++;
	receiver->released_ms = load_now_ms();
}

static void
run(struct receiver *receiver)
{
	const struct load_options *options = receiver->options;
	uint64_t end_ms = load_now_ms() + options->seconds * 1000ULL + 2 * LOAD_PATIENCE;

	receiver->released_ms = load_now_ms();
	while (!receiver->is_bye && !receiver->is_lost) {
		take_events(receiver);
		take_messages(receiver);
		for (uint32_t i = 0; i < receiver->pushes; i++)
			look(receiver, i);
		if (options->release_ms != 0 && receiver->checked > 0 &&
		    load_now_ms() > receiver->released_ms + options->release_ms)
			release(receiver);
		if (load_now_ms() < end_ms)
			continue;
		fprintf(stderr, "the sender does not come to an end\n");
		receiver->is_wrong = true;
		return;
	}
}

enum load_end
load_receive(const struct load_options *options)
{
	static struct receiver receiver;
	struct load_message hello = {.word = LOAD_HELLO};

	receiver.options = options;
	receiver.fd = -1;
	receiver.pushes = options->slots - options->pulls;
	receiver.src = calloc(options->blocks, sizeof(uint64_t));
	receiver.dst = calloc(options->blocks, sizeof(uint64_t));
	if (receiver.src == NULL || receiver.dst == NULL)
		load_die("calloc");
	receiver.engine = load_open(options, LOAD_RECEIVER, "127.0.0.1:0", options->setting,
				    options->settings);
	load_cache_make(&receiver.cache, receiver.engine, options);
	fill_pulled(&receiver);
	register_cache(&receiver);
	meet(&receiver);
	hello.value = kvp_port(receiver.engine);
	(void)load_say(receiver.fd, &hello);
	hello.word = LOAD_CACHE;
	hello.value = (uint64_t)receiver.cache.id;
	(void)load_say(receiver.fd, &hello);
	run(&receiver);
	if (receiver.is_lost)
		watch_all(&receiver, CANARY - 1, LOAD_LOST_MS, "after the sender was lost");
	receiver.is_wrong |= receiver.is_lost != (options->expect == EXPECT_LOST);
	receiver.is_wrong |= receiver.checked == 0;
	printf("received checked=%llu watched=%llu late=%llu releases=%llu\n",
	       (unsigned long long)receiver.checked, (unsigned long long)receiver.watched,
	       (unsigned long long)receiver.late, (unsigned long long)receiver.releases);
	load_close(options, receiver.engine);
	return receiver.is_wrong ? LOAD_WRONG : LOAD_OK;
}
