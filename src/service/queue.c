/*-------------------------------------------------------------------------
 *
 * queue.c
 *		The queue of the GPU service's requests: their order, and which of them hold
 *		device memory.
 *
 * The service uploads chunks of all requests while they are gathered.  A request that is
 * gathered stands in the queue, which is first come, first served.
 *
 * The first request in the queue may take the device memory of the others, which upload
 * again later: of those that are not sorted at once, of those that are sorted when their
 * backend has fetched nothing for a second.  If nothing can be taken and no download will
 * free memory, the sort is left to the CPU.
 *
 * A request that has waited for its backend for gpusort.service_idle_timeout is parked:
 * it has nothing on the device, and the service may end.  When the backend goes on, this
 * service or the next one sorts again, from the request's chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "gpu/pool.h"
#include "guc.h"
#include "service/device.h"
#include "service/job.h"
#include "service/queue.h"
#include "service/watch.h"

/* A sorted result may be taken from a request whose backend has fetched nothing for this long. */
#define TAKE_AFTER_MS		1000

/*
 * Where this number of requests waits on the device to be sorted, only the first one in
 * the queue begins to upload: CUDA keeps 0.5 MB for each stream that was open at one time.
 */
#define MOST_WAITING		32

/* The most sorts, and bytes of sorted keys, after which the service looks at all requests again. */
#define SORTS_PER_STEP		4
#define SORTED_PER_STEP		((uint64) 4 * 1024 * 1024)

/* jobs[i] belongs to request i. */
static GpusortJob *jobs = NULL;

/* The jobs whose request is in use or has something on the device. */
static GpusortJob **active = NULL;
static int	nactive = 0;

/* Bit i says that jobs[i] was active in the last pass: it may have something on the device. */
static uint64 was_active[GPUSORT_MAX_REQUESTS / 64];

/* The first request in the queue when this pass began; NULL: none. */
static GpusortJob *head;

/* Lanes with unsorted keys when this pass began, and those opened since. */
static int	waiting;

static bool moved;				/* see GpusortStepped */

void
gpusort_queue_start(void)
{
	int			count = gpusort_control->nrequests;

	jobs = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob));
	active = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob *));
	for (int i = 0; i < count; i++)
		jobs[i].request = &gpusort_control->requests[i];
}

void
gpusort_queue_drop_all(void)
{
	for (int i = 0; i < gpusort_control->nrequests; i++)
		gpusort_job_drop(&jobs[i]);
}

/* Is the next change of a request in this state perhaps the service's? */
static bool
is_due(GpusortRequestState state)
{
	return gpusort_request_is_active(state) || state == GPUSORT_REQUEST_LEFT || state == GPUSORT_REQUEST_ABANDONED;
}

/* Makes the job active if its request may need a step, or it has something on the device. */
static void
find_if_active(int index)
{
	GpusortJob *job = &jobs[index];

	if (!is_due(gpusort_request_state(job->request)) && job->lane == NULL)
		return;
	active[nactive++] = job;
	waiting += job->lane != NULL && !job->sorted;
	was_active[index / 64] |= UINT64CONST(1) << index % 64;
}

static void
find_active(void)
{
	nactive = waiting = 0;
	for (int first = 0; first < gpusort_control->nrequests; first += 64)
	{
		uint64		bits = pg_atomic_read_u64(&gpusort_control->in_use[first / 64]) | was_active[first / 64];

		was_active[first / 64] = 0;
		for (; bits != 0; bits &= bits - 1)
			find_if_active(first + pg_rightmost_one_pos64(bits));
	}
}

/* Is the job in the queue: has it all its keys, which are not sorted? */
static bool
is_queued(const GpusortJob *job)
{
	uint32		word = pg_atomic_read_u32(&job->request->state);
	GpusortRequestState state = gpusort_word_state(word);

	pg_read_barrier();
	/* a request that is RETURNING has been taken off the device */
	return job->serial == word >> GPUSORT_STATE_BITS && !job->sorted && !job->parked &&
		(state == GPUSORT_REQUEST_SUBMITTED || state == GPUSORT_REQUEST_RETURNING);
}

static GpusortJob *
first_in_queue(void)
{
	GpusortJob *first = NULL;

	for (int i = 0; i < nactive; i++)
	{
		if (is_queued(active[i]) && (first == NULL || active[i]->request->sequence < first->request->sequence))
			first = active[i];
	}
	return first;
}

static void
starve(GpusortJob *job)
{
	gpusort_job_drop(job);
	job->starved = true;
}

/* Takes the job's device memory until its backend does more. */
static void
park(GpusortJob *job)
{
	starve(job);
	job->parked = true;
}

/* Has the job waited for its backend for this many ms? */
static bool
has_waited(const GpusortJob *job, uint64 ms)
{
	return job->waiting_since != 0 && gpusort_clock_ms() - job->waiting_since >= ms;
}

/* The device has no memory for the job.  The job tries again in a later pass, unless nothing can help. */
static void
make_room(GpusortJob *job)
{
	bool		returning = false;

	if (job != first_in_queue())
	{
		starve(job);
		return;
	}
	for (int i = 0; i < nactive; i++)
	{
		GpusortJob *holder = active[i];

		if (holder == job || holder->lane == NULL)
			continue;
		if (!holder->sorted)
		{
			starve(holder);
			return;
		}
		returning = true;
		if (has_waited(holder, TAKE_AFTER_MS))
		{
			park(holder);
			return;
		}
	}
	if (!returning)
		gpusort_job_fail(job, GPUSORT_TOO_LARGE);
}

/* Has the backend done anything since the last call? */
static bool
has_moved(GpusortJob *job)
{
	uint32		word = pg_atomic_read_u32(&job->request->state);
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);
	uint32		consumed = pg_atomic_read_u32(&job->request->consumed);
	bool		has = word != job->seen_word || nclosed != job->seen_nclosed || consumed != job->seen_consumed;

	job->seen_word = word;
	job->seen_nclosed = nclosed;
	job->seen_consumed = consumed;
	return has;
}

/* There is nothing to do for the job.  Parks it after gpusort.service_idle_timeout. */
static void
wait_for_backend(GpusortJob *job)
{
	if (has_moved(job) || job->waiting_since == 0)
		job->waiting_since = gpusort_clock_ms();
	else if (gpusort_service_idle_timeout > 0 &&
			 has_waited(job, gpusort_service_idle_timeout * UINT64CONST(1000)))
		park(job);
}

bool
gpusort_queue_may_end(void)
{
	for (int i = 0; i < gpusort_control->nrequests; i++)
	{
		if (is_due(gpusort_request_state(jobs[i].request)) && (!jobs[i].parked || has_moved(&jobs[i])))
		{
			/* has_moved() returns true only once for what the backend did, so unpark now */
			jobs[i].parked = false;
			return false;
		}
	}
	return true;
}

/* Uploads what has been gathered, if the job may begin to, or go on. */
static void
upload(GpusortJob *job)
{
	bool		begins = job->lane == NULL;

	if (job->sorted || (begins && job != head && (job->starved || waiting >= MOST_WAITING)))
		return;
	if (!gpusort_job_upload(job))
		make_room(job);
	waiting += begins && job->lane != NULL;
}

/*
 * Ends the service if the job's copies have made no progress for longer than the timeout.
 * The watchdog's time stands still while the process or the virtual machine is paused.
 */
static void
watch_copies(GpusortJob *job, bool copying)
{
	uint64		seen = (uint64) job->uploaded + job->queued + job->sent;
	uint64		now = gpusort_watch_time();

	if (seen != job->copies_seen)
		moved = true;
	if (!copying || seen != job->copies_seen)
	{
		job->copies_seen = seen;
		job->progress_at = now;
	}
	else
	{
		int			patience_ms = gpusort_watch_patience(gpusort_cuda->memory_used(gpusort_service_device));

		if (now - job->progress_at > (uint64) patience_ms)
			gpusort_service_hangs(patience_ms);
	}
}

/* Moves one request on.  Returns true if the device works, or soon will, for it. */
static bool
step_job(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		word = pg_atomic_read_u32(&request->state);
	uint32		serial = word >> GPUSORT_STATE_BITS;
	bool		copying;

	pg_read_barrier();
	/* in any other state, a backend may free the slot and fill in the next request now */
	if (gpusort_request_is_active(gpusort_word_state(word)) && job->serial != serial)
		gpusort_job_begin(job, serial);

	switch (gpusort_word_state(word))
	{
		case GPUSORT_REQUEST_FREE:
		case GPUSORT_REQUEST_FAILED:
		case GPUSORT_REQUEST_FINISHED:
		case GPUSORT_REQUEST_CLEARING:
			gpusort_job_drop(job);
			return false;

		case GPUSORT_REQUEST_LEFT:
			gpusort_job_drop(job);
			(void) gpusort_request_change(request, serial, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FINISHED);
			return false;

		case GPUSORT_REQUEST_ABANDONED:
			gpusort_job_drop(job);
			gpusort_pool_free_request(request - gpusort_control->requests, serial, GPUSORT_REQUEST_ABANDONED);
			return false;

		case GPUSORT_REQUEST_GATHERING:
		case GPUSORT_REQUEST_SUBMITTED:
		case GPUSORT_REQUEST_RETURNING:
			upload(job);
			gpusort_job_return(job);
			copying = gpusort_job_copies(job);
			watch_copies(job, copying);
			return copying || is_queued(job);
	}
	return false;
}

static bool
step_unless_parked(GpusortJob *job, bool *idle)
{
	bool		busy;

	if (job->parked && !has_moved(job))
		return false;
	job->parked = false;
	*idle = false;
	busy = step_job(job);
	if (busy || !gpusort_request_is_active(gpusort_request_state(job->request)))
		job->waiting_since = 0;
	else
		wait_for_backend(job);
	return busy;
}

/* Sorts the first requests in the queue, as far as their keys are on the device. */
static void
sort_first(void)
{
	uint64		sorted = 0;

	for (int i = 0; i < SORTS_PER_STEP && sorted < SORTED_PER_STEP; i++)
	{
		GpusortJob *job = first_in_queue();

		if (job == NULL || !gpusort_job_is_uploaded(job))
			return;
		sorted += job->rows * gpusort_job_width(job);
		moved = true;
		if (!gpusort_job_sort(job))
		{
			make_room(job);
			return;
		}
		gpusort_job_return(job);
	}
}

GpusortStepped
gpusort_queue_step(void)
{
	GpusortStepped stepped = {.idle = true};

	moved = false;
	find_active();
	head = first_in_queue();
	for (int i = 0; i < nactive; i++)
		stepped.busy |= step_unless_parked(active[i], &stepped.idle);
	sort_first();
	stepped.moved = moved;
	return stepped;
}
