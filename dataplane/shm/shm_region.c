/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "shm.h"

/* In one go, about half a millisecond: the control thread has other things to do. */
#define POPULATE_BYTES (UINT64_C(4) << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* missing in the headers of Debian 12 */
#endif

int
kvp_shm_map(int fd, uint64_t bytes, uint8_t **base_out)
{
	int seals = fcntl(fd, F_GET_SEALS); /* only a memfd has them */
	struct stat st;
	void *base;

	if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
		return -EPROTO;
	if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size != bytes || bytes == 0)
		return -EPROTO;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*base_out = base;
	return 0;
}

static struct kvp_shm_region *
region_find(const struct kvp_shm_path *path, uint32_t id)
{
	struct kvp_shm_region *region = path->regions;

	while (region != NULL && (region->id != id || region->is_gone))
		region = region->next;
	return region;
}

static void
region_free(struct kvp_shm_path *path, struct kvp_shm_region *region)
{
	struct kvp_shm_region **at;

	for (at = &path->regions; *at != region; at = &(*at)->next)
		;
	*at = region->next;
	path->num_regions--;
	if (region->base != NULL)
		munmap(region->base, region->bytes);
	free(region);
}

void
kvp_shm_regions_free(struct kvp_shm_path *path)
{
	while (path->regions != NULL)
		region_free(path, path->regions);
}

int
kvp_shm_region_came(struct kvp_shm_path *path, const struct kvp_shm_message *message, int fd)
{
	struct kvp_shm_state *state = path->state;
	struct kvp_shm_region *region;
	int rc;

	if (path->num_regions >= KVP_SHM_REGIONS_MAX || region_find(path, message->region) != NULL)
		return -EPROTO;
	region = calloc(1, sizeof(*region));
	if (region == NULL)
		return -ENOMEM;
	region->id = message->region;
	region->bytes = message->bytes;
	rc = kvp_shm_map(fd, message->bytes, &region->base);
	if (rc == -EPROTO) {
		free(region);
		return rc;
	}
	region->error = -rc; /* of our system, not the peer's doing: views will show it */
	region->next = path->regions;
	path->regions = region;
	path->num_regions++;
	if (rc == 0)
		(void)madvise(region->base, region->bytes, MADV_HUGEPAGE);
	if (rc == 0 && !state->is_populating)
		state->is_populating =
			kvp_reactor_add(state->dataplane->reactor, &state->populate) == 0;
	return 0;
}

void
kvp_shm_region_left(struct kvp_shm_path *path, uint32_t id)
{
	struct kvp_shm_region *region = region_find(path, id);

	if (region == NULL)
		return; /* never came, or left before */
	region->is_gone = true;
	if (region->uses == 0)
		region_free(path, region);
}

/*
 * A page's first use would cost a fault on the lane, as much as copying it. So
 * they are taken here beforehand, a few at a time.
 */
void
kvp_shm_populate_ready(struct kvp_watch *watch, uint32_t events)
{
	struct kvp_shm_state *state = watch->ctx;

	(void)events;
	for (struct kvp_shm_path *path = state->paths; path != NULL; path = path->next) {
		for (struct kvp_shm_region *r = path->regions; r != NULL; r = r->next) {
			uint64_t left = r->bytes - r->populated;
			uint64_t step = left < POPULATE_BYTES ? left : POPULATE_BYTES;

			if (r->base == NULL || left == 0)
				continue;
			if (madvise(r->base + r->populated, step, MADV_POPULATE_WRITE) == 0)
				r->populated += step;
			else
				r->populated = r->bytes; /* Linux before 5.14: lanes will fault */
			return;
		}
	}
	kvp_reactor_remove(state->dataplane->reactor, watch);
	state->is_populating = false;
}

/* The connection is there, or still to come: send or keep the message. */
static kvp_status
send_or_queue(struct kvp_shm_path *path, const struct kvp_shm_message *message, const int *fd,
	      uint32_t fds, struct kvp_error *err)
{
	kvp_status status;
	int rc;

	if (path->is_closed)
		return kvp_fail(err, KVP_PEER_LOST, "shm: the peer's connection is closed");
	status = kvp_shm_socket_queue(path, message, fd, fds, err);
	if (status != KVP_SUCCESS)
		return status;
	rc = kvp_shm_socket_flush(path);
	if (rc == 0)
		return KVP_SUCCESS;
	kvp_shm_socket_close(path);
	return kvp_fail(err, KVP_PEER_LOST, "shm: send region %" PRIu32 " to the peer: %s",
			message->region, strerrorname_np(-rc));
}

kvp_status
kvp_shm_region_add(struct kvp_path *base, const struct kvp_region *region, struct kvp_error *err)
{
	const struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC,
		.type = KVP_SHM_REGION,
		.bytes = region->bytes,
		.region = region->id,
	};

	return send_or_queue(kvp_shm_path_of(base), &message, &region->fd, 1, err);
}

void
kvp_shm_region_gone(struct kvp_path *base, uint32_t region_id)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);
	const struct kvp_shm_message message = {
		.magic = KVP_SHM_MAGIC,
		.type = KVP_SHM_REGION_GONE,
		.region = region_id,
	};

	if (kvp_shm_socket_unqueue(path, region_id))
		return; /* the peer never heard of it */
	/* A peer that cannot be told has lost the connection, and drops the map with its path. */
	(void)send_or_queue(path, &message, NULL, 0, NULL);
}

/* Where the peer's tensor is for our lanes. */
static kvp_status
reach_tensor(struct kvp_shm_path *path, const struct kvp_remote_tensor *remote,
	     struct kvp_shm_tensor *tensor_out, struct kvp_error *err)
{
	uint64_t address = (uint64_t)(uintptr_t)remote->tensor.base;
	uint64_t extent = kvp_tensor_extent(&remote->tensor);
	struct kvp_shm_region *region;

	if (remote->region == 0) {
		if (path->foreign.status != KVP_SUCCESS)
			return kvp_fail(err, path->foreign.status,
					"shm: the peer's memory is private, and %s",
					path->foreign.why);
		*tensor_out =
			(struct kvp_shm_tensor){.address = address, .limit = UINT64_MAX - address};
		return KVP_SUCCESS;
	}
	region = region_find(path, remote->region);
	if (region == NULL && path->is_closed)
		return kvp_fail(err, KVP_PEER_LOST,
				"shm: the connection closed before region %" PRIu32 " came",
				remote->region);
	if (region == NULL)
		return KVP_IN_PROGRESS;
	if (region->base == NULL)
		return kvp_fail(err, KVP_NO_RESOURCE,
				"shm: mapping region %" PRIu32 " of %" PRIu64
				" bytes: %s; raise vm.max_map_count or ulimit -v",
				region->id, region->bytes, strerrorname_np(region->error));
	if (remote->region_offset > region->bytes || extent > region->bytes - remote->region_offset)
		return kvp_fail(err, KVP_PROTOCOL,
				"shm: a tensor of %" PRIu64 " bytes at offset %" PRIu64
				" of region %" PRIu32 ", which has %" PRIu64,
				extent, remote->region_offset, region->id, region->bytes);
	*tensor_out = (struct kvp_shm_tensor){.mapped = region->base + remote->region_offset,
					      .limit = region->bytes - remote->region_offset,
					      .address = address,
					      .region = region};
	return KVP_SUCCESS;
}

kvp_status
kvp_shm_view_open(struct kvp_path *base, const struct kvp_remote_cache *cache,
		  struct kvp_view **view_out, struct kvp_error *err)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);
	struct kvp_view *view;

	if (base->state == KVP_PATH_CONNECTING)
		return KVP_IN_PROGRESS;
	if (base->state == KVP_PATH_FAILED)
		return kvp_fail(err, KVP_PEER_LOST, "%s", base->error.text);
	view = calloc(1, sizeof(*view) + cache->num_tensors * sizeof(view->tensor[0]));
	if (view == NULL)
		return kvp_fail(err, KVP_OUT_OF_MEMORY,
				"shm: no memory for a view of %" PRIu32 " tensors",
				cache->num_tensors);
	view->num_tensors = cache->num_tensors;
	for (uint32_t i = 0; i < cache->num_tensors; i++) {
		kvp_status status = reach_tensor(path, &cache->tensors[i], &view->tensor[i], err);

		if (status != KVP_SUCCESS) {
			free(view);
			return status;
		}
	}
	for (uint32_t i = 0; i < cache->num_tensors; i++) {
		if (view->tensor[i].region != NULL)
			view->tensor[i].region->uses++;
	}
	*view_out = view;
	return KVP_SUCCESS;
}

void
kvp_shm_view_close(struct kvp_path *base, struct kvp_view *view)
{
	struct kvp_shm_path *path = kvp_shm_path_of(base);

	if (view == NULL)
		return;
	for (uint32_t i = 0; i < view->num_tensors; i++) {
		struct kvp_shm_region *region = view->tensor[i].region;

		if (region != NULL && --region->uses == 0 && region->is_gone)
			region_free(path, region);
	}
	free(view);
}
