/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_verbs_state.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define KNOWN_ACCESS                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_OPTIONAL_RANGE)

static struct fake_cq *
cq_of(struct ibv_cq *cq)
{
	return (struct fake_cq *)(void *)cq;
}

static bool
is_fatal(struct ibv_context *context)
{
	if (!fake.is_fatal[fake_context_of(context)->device])
		return false;
	errno = EIO;
	return true;
}

/* --- protection domains ----------------------------------------------------------- */

struct ibv_pd *
ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd;

	if (is_fatal(context))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL)
		return NULL;
	pd->pd.context = context;
	pd->parent = pd;
	pthread_mutex_lock(&fake_lock);
	fake.pds++;
	fake_context_of(context)->children++;
	pthread_mutex_unlock(&fake_lock);
	return &pd->pd;
}

int
ibv_dealloc_pd(struct ibv_pd *base)
{
	struct fake_pd *pd = (struct fake_pd *)(void *)base;
	bool is_used;

	pthread_mutex_lock(&fake_lock);
	is_used = pd->users > 0;
	if (is_used) {
		fake_failed("a PD is freed with %u objects on it", pd->users);
	} else {
		if (pd->parent != pd)
			pd->parent->users--;
		if (pd->td != NULL)
			pd->td->users--;
		fake.pds--;
		fake_context_of(base->context)->children--;
	}
	pthread_mutex_unlock(&fake_lock);
	if (is_used)
		return EBUSY;
	free(pd);
	return 0;
}

/* --- memory ------------------------------------------------------------------------ */

static int
mr_refused(const struct fake_mr *want, unsigned int access)
{
	const struct fake_verbs_topology *t = &fake.topology;

	if (is_fatal(want->pd->pd.context))
		return EIO;
	if ((access & ~(unsigned int)KNOWN_ACCESS) != 0 || want->mr.length == 0)
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 &&
	    (access & IBV_ACCESS_LOCAL_WRITE) == 0)
		return EINVAL;
	if (t->max_mr_size > 0 && want->mr.length > t->max_mr_size)
		return EINVAL;
	if (fake.mrs >= t->max_mr || fake.mrs >= FAKE_MRS_MAX)
		return ENOMEM;
	if (t->memlock > 0 && fake.mr_bytes + want->mr.length > t->memlock)
		return ENOMEM;
	return 0;
}

/* lkey and rkey differ, so that one taken for the other shows; a key that comes again does so late. */
static struct ibv_mr *
mr_make(struct fake_mr *want)
{
	struct fake_mr *mr = malloc(sizeof(*mr));
	uint32_t place;
	int rc;

	if (mr == NULL)
		return NULL;
	pthread_mutex_lock(&fake_lock);
	rc = mr_refused(want, want->access);
	if (rc == 0) {
		while (fake.mr[fake.mr_next % FAKE_MRS_MAX] != NULL)
			fake.mr_next++;
		place = fake.mr_next++ % FAKE_MRS_MAX;
		fake.mr_tag[place]++;
		want->mr.context = want->pd->pd.context;
		want->mr.pd = &want->pd->pd;
		want->mr.lkey = place << 8 | fake.mr_tag[place];
		want->mr.rkey = 0x80000000U | want->mr.lkey;
		*mr = *want;
		fake.mr[place] = mr;
		fake.mrs++;
		fake.count.mrs++;
		fake.mr_bytes += mr->mr.length;
		mr->pd->users++;
	}
	pthread_mutex_unlock(&fake_lock);
	if (rc == 0)
		return &mr->mr;
	free(mr);
	errno = rc;
	return NULL;
}

struct ibv_mr *
ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	uintptr_t page = (uintptr_t)addr & ~(uintptr_t)4095;
	struct fake_mr want = {.mr = {.addr = addr, .length = length},
			       .pd = (struct fake_pd *)(void *)pd,
			       .iova = iova,
			       .base = addr,
			       .access = access};

	/* Changes nothing but says whether it is all mapped. */
	if (length > 0 && msync((void *)page, length + ((uintptr_t)addr - page), MS_ASYNC) != 0 &&
	    errno == ENOMEM) {
		errno = EFAULT;
		return NULL;
	}
	return mr_make(&want);
}

struct ibv_mr *
ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *
ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *
ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
		  int access)
{
	uint64_t page = offset & 4095;
	struct fake_mr want = {.mr = {.length = length},
			       .pd = (struct fake_pd *)(void *)pd,
			       .iova = iova,
			       .map_bytes = length + page,
			       .access = (unsigned int)access};
	struct ibv_mr *mr;

	if (fake.topology.has_no_dmabuf || page != (iova & 4095)) {
		errno = fake.topology.has_no_dmabuf ? EOPNOTSUPP : EINVAL;
		return NULL;
	}
	want.map = mmap(NULL, want.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			(off_t)(offset - page));
	if (want.map == MAP_FAILED)
		return NULL;
	want.base = (uint8_t *)want.map + page;
	mr = mr_make(&want);
	if (mr == NULL) {
		int rc = errno;

		munmap(want.map, want.map_bytes);
		errno = rc;
	}
	return mr;
}

/* Segments that it took are in memory when this returns, and no more come. */
int
ibv_dereg_mr(struct ibv_mr *base)
{
	struct fake_mr *mr = (struct fake_mr *)(void *)base;
	uint32_t place = base->lkey >> 8 & (FAKE_MRS_MAX - 1);

	pthread_mutex_lock(&fake_lock);
	if (fake.mr[place] != mr) {
		fake_failed("an MR with lkey 0x%x is freed twice", base->lkey);
		pthread_mutex_unlock(&fake_lock);
		return EINVAL;
	}
	for (uint32_t i = 0; i < fake.lives; i++)
		fake_land_all(fake.live[i]);
	fake.mr[place] = NULL;
	fake.mrs--;
	fake.mr_bytes -= mr->mr.length;
	mr->pd->users--;
	pthread_mutex_unlock(&fake_lock);
	if (mr->map != NULL)
		munmap(mr->map, mr->map_bytes);
	free(mr);
	return 0;
}

struct fake_mr *
fake_mr_find(const struct fake_qp *qp, uint32_t key, bool is_remote)
{
	struct fake_mr *mr = fake.mr[key >> 8 & (FAKE_MRS_MAX - 1)];

	if (mr == NULL || (is_remote ? mr->mr.rkey : mr->mr.lkey) != key)
		return NULL;
	if (mr->pd->parent != qp->pd->parent)
		return NULL;
	return mr;
}

uint8_t *
fake_mr_reach(const struct fake_qp *qp, uint32_t key, bool is_remote, uint64_t address,
	      uint64_t bytes, unsigned int access)
{
	const struct fake_mr *mr = fake_mr_find(qp, key, is_remote);

	if (mr == NULL || (mr->access & access) != access)
		return NULL;
	if (address < mr->iova || bytes > mr->mr.length ||
	    address - mr->iova > mr->mr.length - bytes)
		return NULL;
	return mr->base + (address - mr->iova);
}

/* --- completion channels --------------------------------------------------------------- */

struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel;

	if (is_fatal(context))
		return NULL;
	channel = calloc(1, sizeof(*channel));
	if (channel == NULL)
		return NULL;
	channel->channel.context = context;
	channel->channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel->channel.fd < 0)
		abort();
	pthread_mutex_lock(&fake_lock);
	fake.channels++;
	fake_context_of(context)->children++;
	pthread_mutex_unlock(&fake_lock);
	return &channel->channel;
}

int
ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
	bool is_used;

	pthread_mutex_lock(&fake_lock);
	is_used = base->refcnt > 0;
	if (is_used) {
		fake_failed("a completion channel is destroyed with %d CQs on it", base->refcnt);
	} else {
		fake.channels--;
		fake_context_of(base->context)->children--;
	}
	pthread_mutex_unlock(&fake_lock);
	if (is_used)
		return EBUSY;
	close(base->fd);
	free(base);
	return 0;
}

int
ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **cq_context)
{
	struct fake_channel *channel = (struct fake_channel *)(void *)base;
	struct fake_cq *first;
	uint64_t one;

	if (read(base->fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	pthread_mutex_lock(&fake_lock);
	first = channel->first;
	channel->first = first->next;
	if (channel->first == NULL)
		channel->last = NULL;
	first->is_queued = false;
	first->unacked++;
	pthread_mutex_unlock(&fake_lock);
	*cq = &first->cq;
	*cq_context = first->cq.cq_context;
	return 0;
}

void
ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	pthread_mutex_lock(&fake_lock);
	if (nevents > cq_of(cq)->unacked)
		fake_failed("%u events of a CQ are acknowledged, %u came", nevents,
			    cq_of(cq)->unacked);
	else
		cq_of(cq)->unacked -= nevents;
	pthread_mutex_unlock(&fake_lock);
}

/* --- completion queues ------------------------------------------------------------------- */

struct ibv_cq *
ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	      struct ibv_comp_channel *channel, int comp_vector)
{
	struct fake_cq *cq;

	if (is_fatal(context))
		return NULL;
	if (cqe < 1 || cqe > (int)fake.topology.max_cqe || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (cq != NULL)
		cq->ring = malloc((size_t)cqe * sizeof(*cq->ring));
	if (cq == NULL || cq->ring == NULL) {
		free(cq);
		return NULL;
	}
	cq->depth = (uint32_t)cqe;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = cqe;
	pthread_mutex_lock(&fake_lock);
	if (channel != NULL)
		channel->refcnt++;
	fake.cqs++;
	fake.count.cqs++;
	fake_context_of(context)->children++;
	pthread_mutex_unlock(&fake_lock);
	return &cq->cq;
}

int
ibv_resize_cq(struct ibv_cq *base, int cqe)
{
	struct fake_cq *cq = cq_of(base);
	struct fake_cqe *ring;
	int rc = 0;

	if (cqe < 1 || cqe > (int)fake.topology.max_cqe)
		return EINVAL;
	ring = malloc((size_t)cqe * sizeof(*ring));
	if (ring == NULL)
		return ENOMEM;
	pthread_mutex_lock(&fake_lock);
	if (cq->pushed - cq->polled > (uint32_t)cqe) {
		rc = EINVAL;
	} else {
		for (uint32_t i = cq->polled; i != cq->pushed; i++)
			ring[i % (uint32_t)cqe] = cq->ring[i % cq->depth];
		free(cq->ring);
		cq->ring = ring;
		cq->depth = (uint32_t)cqe;
		base->cqe = cqe;
	}
	pthread_mutex_unlock(&fake_lock);
	if (rc != 0)
		free(ring);
	return rc;
}

/* An event that was sent and not taken goes with it. */
static void
unqueue(struct fake_cq *cq)
{
	struct fake_channel *channel = (struct fake_channel *)(void *)cq->cq.channel;
	struct fake_cq **at = &channel->first, *before = NULL;
	uint64_t one;

	for (; *at != cq; at = &(*at)->next)
		before = *at;
	*at = cq->next;
	if (channel->last == cq)
		channel->last = before;
	if (read(channel->channel.fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

int
ibv_destroy_cq(struct ibv_cq *base)
{
	struct fake_cq *cq = cq_of(base);
	bool is_used;

	pthread_mutex_lock(&fake_lock);
	is_used = cq->users > 0;
	if (is_used) {
		fake_failed("a CQ is destroyed with %u queues of QPs on it", cq->users);
	} else {
		if (cq->unacked > 0 || cq->async_unacked > 0)
			fake_failed("a CQ is destroyed with %u events not acknowledged: a real one "
				    "waits for ever",
				    cq->unacked + cq->async_unacked);
		if (cq->is_queued)
			unqueue(cq);
		fake_events_purge(fake_context_of(base->context), base);
		if (base->channel != NULL)
			base->channel->refcnt--;
		fake.cqs--;
		fake_context_of(base->context)->children--;
	}
	pthread_mutex_unlock(&fake_lock);
	if (is_used)
		return EBUSY;
	free(cq->ring);
	free(cq);
	return 0;
}

uint32_t
fake_verbs_completions(const struct ibv_cq *base)
{
	const struct fake_cq *cq = (const struct fake_cq *)(const void *)base;
	uint32_t count;

	pthread_mutex_lock(&fake_lock);
	count = cq->pushed - cq->polled;
	pthread_mutex_unlock(&fake_lock);
	return count;
}
