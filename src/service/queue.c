/*-------------------------------------------------------------------------
 *
 * queue.c
 *		The queue of the GPU service's requests: first come, first served.
 *
 * A request is uploaded when those before it have been, or nearly so: the bus takes one after
 * the other.  It waits if the device has no memory for it.  Then those that return rows lose their
 * memory if their backends have read nothing for a second: they read their rows in host memory
 * instead.  If nothing holds memory that the first request needs, its rows stay in host
 * memory, or its sort is left to the CPU.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/clock.h"
#include "guc.h"
#include "service/service.h"

/* Rows may be taken from a request whose backend has read nothing for this long. */
#define TAKE_AFTER_MS		1000

/* The first request in the queue takes them from any other after this. */
#define TAKE_ANY_AFTER_MS	5000

/* The next request begins to upload when less than this is left of those before. */
#define UPLOAD_BYTES		((uint64) 64 * 1024 * 1024)

/* The most sorts, and bytes of sorted keys, after which the service looks at all requests again. */
#define SORTS_PER_STEP		4
#define SORTED_PER_STEP		((uint64) 4 * 1024 * 1024)

/* jobs[i] belongs to request i. */
static GpusortJob *jobs = NULL;

/* The jobs of requests that are not done with */
static GpusortJob **active = NULL;
static int	nactive = 0;

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
	for (int i = 0; i < gpusort_control_slots(); i++)
		gpusort_job_end(&jobs[i]);
}

/* Brings a job in line with its request.  Returns false if there is nothing to do for it. */
static bool
is_active(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	GpusortRequestState state = gpusort_request_state(request);

	if (state == GPUSORT_REQUEST_SUBMITTED && job->stage == GPUSORT_JOB_NONE)
	{
		pg_read_barrier();
		gpusort_job_begin(job);
		moved = true;
	}
	else if (state == GPUSORT_REQUEST_LEFT)
	{
		gpusort_job_end(job);
		(void) gpusort_request_change(request, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FREE);
	}
	return job->stage != GPUSORT_JOB_NONE;
}

/* The first job of this stage in the queue; NULL: there is none. */
static GpusortJob *
first_of(GpusortJobStage stage)
{
	GpusortJob *first = NULL;

	for (int i = 0; i < nactive; i++)
	{
		if (active[i]->stage == stage && (first == NULL || active[i]->request->sequence < first->request->sequence))
			first = active[i];
	}
	return first;
}

/* Has the job waited for its backend for this many ms? */
static bool
has_waited(const GpusortJob *job, uint64 ms)
{
	return job->waiting_since != 0 && gpusort_clock_ms() - job->waiting_since >= ms;
}

/* Notes whether the job waits for its backend.  It is cut after gpusort.service_idle_timeout. */
static void
note_wait(GpusortJob *job, bool copying)
{
	uint32		consumed = pg_atomic_read_u32(&job->request->consumed);

	if (job->stage != GPUSORT_JOB_WINDOWS || copying)
		job->waiting_since = 0;
	else if (job->waiting_since == 0 || consumed != job->seen_consumed)
		job->waiting_since = gpusort_clock_ms();
	else if (gpusort_service_idle_timeout > 0 && has_waited(job, gpusort_service_idle_timeout * UINT64CONST(1000)))
		gpusort_job_cut(job);
	job->seen_consumed = consumed;
}

/*
 * Ends the service if the job's copies have made no progress for longer than the timeout.
 * The watchdog's time stands still while the process or the virtual machine is paused.
 */
static void
watch_copies(GpusortJob *job, bool copying)
{
	uint64		seen = job->uploads + job->downloads + job->sent;
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

/* Does any job hold device memory?  bytes: what they hold and will take to sort, and what is being uploaded. */
static bool
count_memory(uint64 *bytes, uint64 *uploading)
{
	bool		any = false;

	*bytes = gpusort_cuda->memory_used(gpusort_service_device);
	*uploading = 0;
	for (int i = 0; i < nactive; i++)
	{
		const GpusortJob *job = active[i];

		any |= job->lane != NULL;
		if (job->stage != GPUSORT_JOB_UPLOADS)
			continue;
		*uploading += gpusort_request_key_bytes(&job->request->sort) + job->row_bytes;
		*bytes += gpusort_job_memory(job, false) - gpusort_request_key_bytes(&job->request->sort);
	}
	return any;
}

/*
 * Takes the device from a job that has waited for its backend, or, if this one has waited for long, from any
 * whose backend can do without.  Returns false if there is none.
 */
static bool
cut_one(const GpusortJob *job)
{
	bool		any = gpusort_clock_ms() - job->queued_at >= TAKE_ANY_AFTER_MS;

	for (int i = 0; i < nactive; i++)
	{
		if (active[i]->stage == GPUSORT_JOB_WINDOWS && (any || has_waited(active[i], TAKE_AFTER_MS)))
		{
			gpusort_job_cut(active[i]);
			return true;
		}
	}
	return false;
}

/* Begins to upload the first job in the queue that is not on the device.  Returns false if none can begin now. */
static bool
upload_first(void)
{
	GpusortJob *job = first_of(GPUSORT_JOB_QUEUED);
	uint64		limit = gpusort_service_memory;
	uint64		bytes;
	uint64		uploading;
	bool		others;

	if (job == NULL)
		return false;
	others = count_memory(&bytes, &uploading);
	if (uploading >= UPLOAD_BYTES)
		return false;
	if (gpusort_job_memory(job, true) > limit)
		job->row_bytes = 0;
	if (gpusort_job_memory(job, false) > limit)
	{
		gpusort_job_fail(job, GPUSORT_TOO_LARGE);
		return true;
	}
	if (others && bytes + gpusort_job_memory(job, job->row_bytes > 0) > limit)
		return cut_one(job);
	if (others && job->full_at != 0 && gpusort_cuda->memory_used(gpusort_service_device) >= job->full_at)
		return cut_one(job);
	if (!gpusort_job_upload(job))
	{
		/* other processes may use the device */
		if (others)
			return cut_one(job);
		if (job->row_bytes > 0)
			job->row_bytes = 0;
		else
			gpusort_job_fail(job, GPUSORT_TOO_LARGE);
	}
	moved = true;
	return true;
}

/* Sorts the first jobs that are on the device.  Returns how many. */
static int
sort_first(void)
{
	uint64		sorted = 0;
	int			jobs_sorted = 0;

	for (; jobs_sorted < SORTS_PER_STEP && sorted < SORTED_PER_STEP; jobs_sorted++)
	{
		GpusortJob *job = first_of(GPUSORT_JOB_UPLOADS);

		if (job == NULL || !gpusort_job_is_uploaded(job))
			break;
		sorted += gpusort_request_key_bytes(&job->request->sort);
		moved = true;
		if (!gpusort_job_sort(job))
		{
			/* it begins anew, later or without its rows */
			uint64		bytes;
			uint64		uploading;

			if (job->row_bytes > 0)
				job->row_bytes = 0;
			else if (count_memory(&bytes, &uploading))
				job->full_at = gpusort_cuda->memory_used(gpusort_service_device);
			else
				gpusort_job_fail(job, GPUSORT_TOO_LARGE);
			break;
		}
		gpusort_job_return(job);
	}
	return jobs_sorted;
}

/* Publishes how long requests wait.  sequence: next_sequence before the step; sorted: jobs that the step has sorted. */
static void
publish_wait(uint64 sequence, int sorted)
{
	static uint64 since = 0;	/* when a step sorted last, in ns of base/clock.h, if others waited; else 0 */
	uint64		now = gpusort_clock_ns();
	uint64		first = sequence;

	for (int i = 0; i < nactive; i++)
	{
		if (active[i]->stage == GPUSORT_JOB_QUEUED || active[i]->stage == GPUSORT_JOB_UPLOADS)
			first = Min(first, active[i]->request->sequence);
	}
	if (sorted > 0 && since != 0)
	{
		uint64		pace = Min((now - since) / 1000 / sorted, PG_INT32_MAX);
		uint64		before = pg_atomic_read_u32(&gpusort_control->pace_us);

		pg_atomic_write_u32(&gpusort_control->pace_us, (uint32) (before == 0 ? pace : (7 * before + pace) / 8));
	}
	if (sorted > 0 || first == sequence)
		since = first < sequence ? now : 0;
	pg_atomic_write_u64(&gpusort_control->first_unsorted, first);
}

/* Moves a job on.  Returns true if the device works, or soon will, for it. */
static bool
step_job(GpusortJob *job)
{
	bool		copying;

	gpusort_job_return(job);
	copying = gpusort_job_copies(job);
	watch_copies(job, copying);
	note_wait(job, copying);
	return copying || job->stage == GPUSORT_JOB_QUEUED || job->stage == GPUSORT_JOB_UPLOADS;
}

GpusortStepped
gpusort_queue_step(void)
{
	GpusortStepped stepped = {0};
	uint64		sequence = pg_atomic_read_u64(&gpusort_control->next_sequence);

	moved = false;
	nactive = 0;
	for (int i = 0; i < gpusort_control_slots(); i++)
	{
		if (is_active(&jobs[i]))
			active[nactive++] = &jobs[i];
	}
	while (upload_first())
		;
	publish_wait(sequence, sort_first());
	for (int i = 0; i < nactive; i++)
		stepped.busy |= step_job(active[i]);
	stepped.idle = (nactive == 0);
	stepped.moved = moved;
	return stepped;
}
