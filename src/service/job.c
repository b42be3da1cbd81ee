/*-------------------------------------------------------------------------
 *
 * job.c
 *		The steps of a request of the GPU service: upload, sort, return.
 *
 * Each job has a lane of its own, and each lane a stream of its own.  So the copies of
 * some jobs run while another is sorted.
 *
 * The service only reads input chunks.  So it can take a job off the device at any time,
 * and upload and sort it again, as another service can: the same keys in the same order,
 * so that the result continues at the block where it broke off.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gpu/pool.h"
#include "service/device.h"
#include "service/job.h"
#include "service/watch.h"

/*
 * The service begins to sort this many bytes of keys while they are copied: the lane
 * sorts after the copy, which takes less than 0.1 ms, and another look at the copy
 * would take longer.
 */
#define FEW_BYTES		((uint64) 4 * 1024 * 1024)

void
gpusort_job_drop(GpusortJob *job)
{
	/* closing the lane waits for its copies in flight */
	if (job->lane != NULL)
		GPUSORT_WATCHED(gpusort_cuda->memory_used(gpusort_service_device),
						gpusort_cuda->lane_close(job->lane));
	job->lane = NULL;
	job->sorted = false;
	job->last = -1;
	job->uploaded = 0;
	job->rows = 0;
	job->queued = job->sent;
}

void
gpusort_job_begin(GpusortJob *job, uint32 serial)
{
	gpusort_job_drop(job);
	job->serial = serial;
	job->queued = job->sent = pg_atomic_read_u32(&job->request->ready);
	job->starved = job->parked = false;
	job->waiting_since = 0;
}

void
gpusort_job_fail(GpusortJob *job, const char *reason)
{
	gpusort_job_drop(job);
	gpusort_control_fail(job->request, job->serial, reason);
}

static bool
open_lane(GpusortJob *job)
{
	GpusortCudaError err;
	GpusortCudaStatus status;

	GPUSORT_WATCHED(0, status = gpusort_cuda->lane_open(gpusort_service_device, &job->lane, &err));
	gpusort_service_check(status, &err);
	job->request->pinned = true;
	return status == GPUSORT_CUDA_OK;
}

static bool
upload_chunk(GpusortJob *job, int chunk)
{
	uint32		bytes = gpusort_control->chunks[chunk].bytes;
	const char *reason = NULL;
	char	   *keys = gpusort_pool_map(chunk, &reason);
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (keys == NULL)
	{
		gpusort_job_fail(job, reason);
		return true;
	}
	if (!gpusort_service_registered[gpusort_chunk_segment(gpusort_control, chunk)])
		job->request->pinned = false;
	GPUSORT_WATCHED(job->rows * gpusort_job_width(job) + bytes,
					status = gpusort_cuda->upload(job->lane, keys, bytes, &err));
	gpusort_service_check(status, &err);
	if (status != GPUSORT_CUDA_OK)
		return false;
	job->last = chunk;
	job->uploaded++;
	job->rows += bytes / gpusort_job_width(job);
	return true;
}

bool
gpusort_job_upload(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		nclosed = pg_atomic_read_u32(&request->nclosed);

	pg_read_barrier();
	if (job->uploaded < nclosed && job->lane == NULL && !open_lane(job))
		return false;
	while (job->uploaded < nclosed && job->lane != NULL)
	{
		if (!upload_chunk(job, job->last < 0 ? request->first_chunk : gpusort_control->chunks[job->last].next))
			return false;
	}
	return true;
}

bool
gpusort_job_is_uploaded(GpusortJob *job)
{
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (job->lane == NULL || job->uploaded < pg_atomic_read_u32(&job->request->nclosed))
		return false;
	if (job->rows * gpusort_job_width(job) <= FEW_BYTES)
		return true;
	GPUSORT_WATCHED(0, status = gpusort_cuda->uploaded(job->lane, &err));
	gpusort_service_check(status, &err);
	return status == GPUSORT_CUDA_OK;
}

static GpusortCudaStatus
sort_on_device(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	GpusortCudaSort sort = {
		.rows = job->rows,
		.key_bytes = request->key_bytes,
		.words = request->words,
		.with_rows = request->want_rows,
		.algorithm = (GpusortAlgorithm) request->algorithm,
	};
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;

	GPUSORT_WATCHED(job->rows * gpusort_job_width(job),
					status = gpusort_cuda->sort(job->lane, &sort, &report, &err));
	gpusort_service_check(status, &err);
	if (status == GPUSORT_CUDA_UNSORTED)
		ereport(LOG,
				(errmsg("gpusort found the device's result out of order"),
				 errdetail("Algorithm \"%s\" sorted " UINT64_FORMAT " keys of %zu bytes.",
						   gpusort_algorithm_name(report.algorithm), job->rows, gpusort_job_width(job)),
				 errhint("Report this as a bug, and set gpusort.algorithm to \"cub\" until it is fixed.")));
	request->algorithm_used = report.algorithm;
	request->blocks = report.blocks;
	request->threads = report.threads;
	request->bins_used = report.bins;
	request->copy_in_ms = report.upload_ms;
	request->kernels_ms = report.kernels_ms;
	request->copy_out_ms = 0;
	return status;
}

/*
 * Replaces the ring's only chunk, a small one, by a large one: by the backend's, or by
 * another if there is one.  The backend has read no block yet.  The small chunk is freed
 * with the request.
 */
static void
make_ring_large(GpusortRequest *request, int index)
{
	int			chunk = request->large_result;

	if (chunk < 0 || gpusort_chunk_is_small(chunk))
		chunk = gpusort_pool_take_existing(index, false);
	if (chunk >= 0)
		request->ring[0] = chunk;
}

/* Makes the ring fit a result of this number of bytes, as far as the pool has chunks. */
static void
grow_ring(GpusortRequest *request, uint64 bytes)
{
	int			index = request - gpusort_control->requests;
	Size		block_bytes;

	if (gpusort_chunk_is_small(request->ring[0]) && bytes > GPUSORT_RING * GPUSORT_SMALL_BYTES)
		make_ring_large(request, index);
	block_bytes = gpusort_chunk_bytes(request->ring[0]);
	while (request->nring < GPUSORT_RING && request->nring * block_bytes < bytes)
	{
		int			chunk = gpusort_pool_take_existing(index, gpusort_chunk_is_small(request->ring[0]));

		if (chunk < 0)
			break;
		if (gpusort_chunk_bytes(chunk) != block_bytes)
		{
			gpusort_control->chunks[chunk].request = -1;
			break;
		}
		request->ring[request->nring++] = chunk;
	}
}

static uint64
result_bytes(const GpusortJob *job)
{
	return job->rows * (job->request->want_rows ? sizeof(uint32) : job->request->key_bytes);
}

bool
gpusort_job_sort(GpusortJob *job)
{
	GpusortRequest *request = job->request;

	switch (sort_on_device(job))
	{
		case GPUSORT_CUDA_NO_MEMORY:
			/* a sort that failed may have overwritten the keys */
			gpusort_job_drop(job);
			return false;
		case GPUSORT_CUDA_UNSORTED:
			gpusort_job_fail(job, "The device's result was out of order.");
			return true;
		default:
			break;
	}
	/* block b lies in ring[b % nring], so the ring must not change after the first block */
	if (job->sent == 0)
		grow_ring(request, result_bytes(job));
	job->block_bytes = gpusort_chunk_bytes(request->ring[0]);
	job->nblocks = (result_bytes(job) + job->block_bytes - 1) / job->block_bytes;
	job->queued = job->resumed = job->sent;
	job->sorted = true;
	job->starved = false;
	if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_SUBMITTED, GPUSORT_REQUEST_RETURNING))
		SetLatch(request->latch);
	return true;
}

static bool
download_block(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint64		offset = (uint64) job->queued * job->block_bytes;
	const char *reason = NULL;
	char	   *to = gpusort_pool_map(request->ring[job->queued % request->nring], &reason);
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (to != NULL)
	{
		GPUSORT_WATCHED(job->block_bytes,
						status = gpusort_cuda->download(job->lane, offset, to,
													   Min(job->block_bytes, result_bytes(job) - offset), &err));
		gpusort_service_check(status, &err);
		/* a download takes no device memory, so this is host memory */
		if (status != GPUSORT_CUDA_OK)
			reason = "The GPU service has too little memory.";
	}
	if (reason != NULL)
	{
		gpusort_job_fail(job, reason);
		return false;
	}
	job->queued++;
	return true;
}

/*
 * Publishes the last block and, by the state, the request's report.  The service must not
 * touch the request afterwards: its backend may free the slot, and another may take it.
 */
static void
finish(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	Latch	   *latch = request->latch;
	GpusortCudaReport report;

	gpusort_cuda->lane_report(job->lane, &report);
	request->copy_out_ms = report.download_ms;
	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, job->sent);
	if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_RETURNING, GPUSORT_REQUEST_FINISHED))
		SetLatch(latch);
	/* only now, because closing the lane takes some 10 us */
	gpusort_job_drop(job);
}

void
gpusort_job_return(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		end;
	uint64		finished;
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (!job->sorted)
		return;
	end = Min(job->nblocks, pg_atomic_read_u32(&request->consumed) + request->nring);
	while (job->queued < end)
	{
		if (!download_block(job))
			return;
	}
	GPUSORT_WATCHED(0, status = gpusort_cuda->downloaded(job->lane, &finished, &err));
	gpusort_service_check(status, &err);
	job->sent = job->resumed + (uint32) finished;
	if (job->sent == job->nblocks)
		finish(job);
	else if (job->sent != pg_atomic_read_u32(&request->ready))
	{
		pg_write_barrier();
		pg_atomic_write_u32(&request->ready, job->sent);
		SetLatch(request->latch);
	}
}

bool
gpusort_job_copies(GpusortJob *job)
{
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (job->lane == NULL || job->sorted)
		return job->queued > job->sent;
	GPUSORT_WATCHED(0, status = gpusort_cuda->uploaded(job->lane, &err));
	gpusort_service_check(status, &err);
	return status == GPUSORT_CUDA_BUSY;
}
