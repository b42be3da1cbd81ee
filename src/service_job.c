/*-------------------------------------------------------------------------
 *
 * service_job.c
 *		The GPU service: what it does for a request.
 *
 * A request is moved on one step at a time: upload what has been gathered,
 * sort when it is complete (first submitted, first sorted), download while
 * there is an empty result chunk.  Copies of one request run while another is
 * sorted; nothing waits here but for the device.
 *
 * Device memory: requests still gathering hold what they have uploaded, but
 * the request that is first in line may take it from them; they upload again
 * later.  So a sort fails for lack of device memory only if it does not fit
 * alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "pool.h"
#include "service_job.h"

/* The service's own side of a request. */
typedef struct Job
{
	uint32		serial;			/* of the request that the rest is about */
	GpusortCudaLane *lane;		/* NULL: nothing is on the device */
	int			next_chunk;		/* to upload; -1: the first */
	uint32		uploaded;		/* chunks queued for upload */
	bool		starved;		/* gave its device memory up until first in line */
	uint64		bytes;			/* of the result */
	uint32		nblocks;		/* of the result */
	uint32		queued;			/* blocks queued for download */
} Job;

static Job	jobs[GPUSORT_MAX_REQUESTS];

static inline GpusortRequest *
request_of(const Job *job)
{
	return &gpusort_control->requests[job - jobs];
}

static void
drop_lane(Job *job)
{
	gpusort_cuda_lane_close(job->lane);
	job->lane = NULL;
	job->uploaded = 0;
	job->next_chunk = -1;
}

static void
fail_request(Job *job, const char *reason)
{
	GpusortRequest *request = request_of(job);

	drop_lane(job);
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	switch (gpusort_request_state(request))
	{
		case GPUSORT_REQUEST_GATHERING:
		case GPUSORT_REQUEST_SUBMITTED:
		case GPUSORT_REQUEST_RETURNING:
			strlcpy(request->error, reason, sizeof(request->error));
			pg_write_barrier();
			pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FAILED);
			SetLatch(request->latch);
			break;
		default:
			break;				/* the backend has gone already */
	}
	LWLockRelease(&gpusort_control->lock);
}

/* Changes a request's state unless its backend has changed it meanwhile. */
static bool
advance_request(GpusortRequest *request, GpusortRequestState from, GpusortRequestState to)
{
	bool		advanced;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	advanced = gpusort_request_state(request) == from;
	if (advanced)
		pg_atomic_write_u32(&request->state, to);
	LWLockRelease(&gpusort_control->lock);
	return advanced;
}

/* The submitted request that is first in line, or NULL. */
static Job *
first_in_line(void)
{
	Job		   *first = NULL;

	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];

		if (gpusort_request_state(request) == GPUSORT_REQUEST_SUBMITTED &&
			(first == NULL || request->sequence < request_of(first)->sequence))
			first = &jobs[i];
	}
	return first;
}

/*
 * The device has no memory for job.  Takes some from a request that can wait;
 * fails the job if none holds any.
 */
static void
out_of_device_memory(Job *job)
{
	bool		others = false;

	if (job != first_in_line())
	{
		drop_lane(job);
		job->starved = true;
		return;
	}
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (&jobs[i] == job || jobs[i].lane == NULL)
			continue;
		others = true;
		if (gpusort_request_state(&gpusort_control->requests[i]) != GPUSORT_REQUEST_RETURNING)
		{
			drop_lane(&jobs[i]);
			jobs[i].starved = true;
			return;
		}
	}
	if (!others)
	{
		char		reason[160];

		snprintf(reason, sizeof(reason),
				 "The device has too little memory to sort " UINT64_FORMAT " keys of %d bytes "
				 "(gpusort.device_memory_limit).",
				 request_of(job)->rows, request_of(job)->key_bytes);
		fail_request(job, reason);
	}
}

/* Queues every complete chunk for upload.  True if all are. */
static bool
upload(Job *job)
{
	GpusortRequest *request = request_of(job);
	uint32		nclosed = pg_atomic_read_u32(&request->nclosed);
	GpusortCudaError err;
	GpusortCudaStatus status;

	pg_read_barrier();
	if (job->starved && job != first_in_line())
		return false;
	if (job->lane == NULL && nclosed > 0)
	{
		status = gpusort_cuda_lane_open(gpusort_service_device, &job->lane, &err);
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
		{
			out_of_device_memory(job);
			return false;
		}
	}
	while (job->uploaded < nclosed)
	{
		int			chunk = job->uploaded == 0 ? request->first_chunk :
			gpusort_control->chunks[job->next_chunk].next;
		char	   *keys = gpusort_pool_map(chunk);

		if (keys == NULL)
		{
			fail_request(job, "A segment of the chunk pool could not be mapped.");
			return false;
		}
		if (!gpusort_service_registered[chunk / GPUSORT_SEGMENT_CHUNKS])
			request->pinned = false;
		status = gpusort_cuda_upload(job->lane, keys, gpusort_control->chunks[chunk].bytes, &err);
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
		{
			out_of_device_memory(job);
			return false;
		}
		job->next_chunk = chunk;
		job->uploaded++;
	}
	return true;
}

/* Sorts a job whose keys are all on the device. */
static void
sort_job(Job *job)
{
	GpusortRequest *request = request_of(job);
	GpusortCudaSort sort = {
		.rows = request->rows,
		.key_bytes = request->key_bytes,
		.with_rows = request->want_rows,
		.algorithm = (GpusortCudaAlgorithm) request->algorithm,
		.bins = request->bins,
	};
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status = gpusort_cuda_sort(job->lane, &sort, &report, &err);

	gpusort_service_check(status, &err);
	if (status == GPUSORT_CUDA_NO_MEMORY)
	{
		/* what the sort left of the keys is not known: upload again */
		drop_lane(job);
		out_of_device_memory(job);
		return;
	}
	if (status == GPUSORT_CUDA_UNSORTED)
	{
		ereport(LOG,
				(errmsg("gpusort found the device's result out of order twice"),
				 errdetail("Sorted " UINT64_FORMAT " keys of %d bytes.", request->rows, request->key_bytes)));
		fail_request(job, "The device's result was out of order.");
		return;
	}
	if (report.resorted)
		ereport(LOG,
				(errmsg("gpusort found the device's result out of order and sorted it again by another algorithm"),
				 errdetail("Sorted " UINT64_FORMAT " keys of %d bytes.", request->rows, request->key_bytes)));

	request->algorithm_used = report.algorithm;
	request->kernels_ms = report.kernels_ms;
	request->blocks = report.blocks;
	request->threads = report.threads;
	request->bins_used = report.bins;

	job->bytes = request->rows * (request->want_rows ? sizeof(uint32) : request->key_bytes);
	job->nblocks = (job->bytes + GPUSORT_CHUNK_BYTES - 1) / GPUSORT_CHUNK_BYTES;
	job->queued = 0;
	while (request->nring < GPUSORT_RING && (uint32) request->nring < job->nblocks)
	{
		int			chunk = gpusort_pool_take_existing(job - jobs);

		if (chunk < 0)
			break;
		request->ring[request->nring++] = chunk;
	}
	if (advance_request(request, GPUSORT_REQUEST_SUBMITTED, GPUSORT_REQUEST_RETURNING))
		SetLatch(request->latch);
}

/* Downloads into empty result chunks and publishes what has arrived. */
static void
return_result(Job *job)
{
	GpusortRequest *request = request_of(job);
	uint32		consumed = pg_atomic_read_u32(&request->consumed);
	GpusortCudaReport report;
	GpusortCudaError err;
	uint64		finished;

	while (job->queued < job->nblocks && job->queued < consumed + request->nring)
	{
		int			chunk = request->ring[job->queued % request->nring];
		uint64		offset = (uint64) job->queued * GPUSORT_CHUNK_BYTES;
		char	   *to = gpusort_pool_map(chunk);

		if (to == NULL)
		{
			fail_request(job, "A segment of the chunk pool could not be mapped.");
			return;
		}
		gpusort_service_check(gpusort_cuda_download(job->lane, request->want_rows, offset, to,
										  Min(GPUSORT_CHUNK_BYTES, job->bytes - offset), &err), &err);
		job->queued++;
	}

	gpusort_service_check(gpusort_cuda_downloaded(job->lane, &finished, &err), &err);
	if (finished == pg_atomic_read_u32(&request->ready))
		return;
	if (finished == job->nblocks)
	{
		gpusort_cuda_lane_report(job->lane, &report);
		request->copy_in_ms = report.upload_ms;
		request->copy_out_ms = report.download_ms;
		drop_lane(job);
		/* the last block says that all of the report is there */
		pg_write_barrier();
		if (!advance_request(request, GPUSORT_REQUEST_RETURNING, GPUSORT_REQUEST_FINISHED))
			return;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, (uint32) finished);
	SetLatch(request->latch);
}

/* Moves one request on.  True if the device is, or soon will be, at work for it. */
static bool
step_job(Job *job)
{
	GpusortRequest *request = request_of(job);
	GpusortRequestState state = gpusort_request_state(request);
	GpusortCudaError err;

	pg_read_barrier();
	if (job->serial != request->serial)
	{
		drop_lane(job);
		job->serial = request->serial;
		job->starved = false;
		request->pinned = true;
	}

	switch (state)
	{
		case GPUSORT_REQUEST_FREE:
		case GPUSORT_REQUEST_FAILED:
		case GPUSORT_REQUEST_FINISHED:
			if (job->lane != NULL)
				drop_lane(job);
			return false;

		case GPUSORT_REQUEST_LEFT:
			drop_lane(job);
			advance_request(request, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FINISHED);
			return false;

		case GPUSORT_REQUEST_ABANDONED:
			drop_lane(job);
			LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
			gpusort_control_free_request(job - jobs);
			LWLockRelease(&gpusort_control->lock);
			return false;

		case GPUSORT_REQUEST_GATHERING:
			upload(job);
			if (job->lane == NULL)
				return false;
			{
				GpusortCudaStatus status = gpusort_cuda_uploaded(job->lane, &err);

				gpusort_service_check(status, &err);
				return status == GPUSORT_CUDA_BUSY;
			}

		case GPUSORT_REQUEST_SUBMITTED:
			if (upload(job) && job == first_in_line())
			{
				GpusortCudaStatus status = gpusort_cuda_uploaded(job->lane, &err);

				gpusort_service_check(status, &err);
				if (status == GPUSORT_CUDA_OK)
					sort_job(job);
			}
			return true;

		case GPUSORT_REQUEST_RETURNING:
			return_result(job);
			return job->queued > pg_atomic_read_u32(&request->ready);
	}
	return false;
}

bool
gpusort_job_step(int index, bool *idle)
{
	Job		   *job = &jobs[index];

	if (job->lane == NULL && gpusort_request_state(request_of(job)) == GPUSORT_REQUEST_FREE)
		return false;
	*idle = false;
	return step_job(job);
}

void
gpusort_job_drop_all(void)
{
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
		drop_lane(&jobs[i]);
}
