/*-------------------------------------------------------------------------
 *
 * job.c
 *		The steps of a request of the GPU service: read, upload, sort, return.
 *
 * The session has written what a request says of its files, and may have dropped them since.  So each
 * place is checked.
 *
 * Each job has a lane of its own, and each lane a stream of its own.  So the copies of
 * some jobs run while another is sorted.
 *
 * Rows that the device has no room for stay where they are.  The backend has the order of all
 * rows before the first row in order, so it can do without any of these.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "service/service.h"

/*
 * The service begins to sort this many bytes while they are copied: the lane
 * sorts after the copy, which takes less than 0.1 ms, and another look at the copy
 * would take longer.
 */
#define FEW_BYTES		((uint64) 4 * 1024 * 1024)

/* Longer lists are an error. */
#define MAX_LISTS_BYTES	((uint64) 256 * 1024 * 1024)

static const char *const cannot_open = "The GPU service cannot open the session's memory.";

static GpusortCudaError err;	/* of the device's last call */

/* Makes a call of the device that copies or sorts this many bytes, watched.  Ends the service if the device may be lost. */
#define CALL(status, bytes, call) \
	do { \
		GPUSORT_WATCHED(bytes, status = gpusort_cuda->call); \
		gpusort_service_check(status, &err); \
	} while (0)

static void
close_lane(GpusortJob *job)
{
	/* closing the lane waits for its copies in flight */
	if (job->lane != NULL)
		GPUSORT_WATCHED(gpusort_cuda->memory_used(gpusort_service_device),
						gpusort_cuda->lane_close(job->lane));
	job->lane = NULL;
	job->uploads = job->downloads = 0;
	if (job->stage > GPUSORT_JOB_QUEUED)
		job->stage = GPUSORT_JOB_QUEUED;
}

void
gpusort_job_end(GpusortJob *job)
{
	close_lane(job);
	while (job->nopen > 0)
		job->files[--job->nopen]->users--;
	if (job->cxt != NULL)
		MemoryContextDelete(job->cxt);
	job->cxt = NULL;
	job->nwindows = job->queued = job->sent = 0;
	job->stage = GPUSORT_JOB_NONE;
}

/* Changes the state of a request that has not been left, and wakes its backend, which may free the slot at once. */
static void
change(GpusortRequest *request, GpusortRequestState state)
{
	Latch	   *latch = request->latch;

	if (gpusort_request_change(request, GPUSORT_REQUEST_SUBMITTED, state) ||
		gpusort_request_change(request, GPUSORT_REQUEST_SORTED, state))
		SetLatch(latch);
}

void
gpusort_job_fail(GpusortJob *job, const char *reason)
{
	/* first this: the session uses its files again as soon as it knows */
	gpusort_job_end(job);
	strlcpy(job->request->error, reason, sizeof(job->request->error));
	change(job->request, GPUSORT_REQUEST_FAILED);
}

void
gpusort_job_cut(GpusortJob *job)
{
	gpusort_job_end(job);
	change(job->request, GPUSORT_REQUEST_FINISHED);
}

/* No copy is in flight, so the backend need not wait until the lane is closed, which takes some 10 us. */
static void
finish(GpusortJob *job)
{
	change(job->request, GPUSORT_REQUEST_FINISHED);
	gpusort_job_end(job);
}

/* ---- the lists ---- */

static bool
in_file(const GpusortListedFile *files, uint32 nfiles, uint32 file, GpusortPlace place, uint64 bytes)
{
	return file < nfiles && bytes <= files[file].bytes && place <= files[file].bytes - bytes;
}

/* Checks that parts lie in the files, and sums up their bytes, each rounded up to a multiple of "align". */
static bool
check_parts(const GpusortLists *lists, const GpusortListedFile *files, const GpusortListedPart *parts, uint32 nparts,
			int align, uint64 *bytes)
{
	*bytes = 0;
	for (uint32 i = 0; i < nparts; i++)
	{
		if (!in_file(files, lists->nfiles, parts[i].file, parts[i].place, parts[i].bytes))
			return false;
		*bytes += TYPEALIGN(align, parts[i].bytes);
	}
	return true;
}

/* Checks that all places lie in the files, and sums up the rows' bytes.  The device checks where the rows are in these. */
static bool
check_lists(GpusortJob *job, const GpusortListedFile *files)
{
	const GpusortLists *lists = &job->lists;
	const GpusortCudaSort *sort = &job->request->sort;
	uint64		keys;

	if (lists->nfiles == 0 || lists->window_bytes > GPUSORT_SHARED_BYTES || sort->rows > PG_UINT64_MAX / 1024)
		return false;
	for (uint32 i = 0; i < lists->nfiles; i++)
		if (files[i].bytes > GPUSORT_SHARED_BYTES)
			return false;
	return check_parts(lists, files, job->keys, lists->nkeys, 1, &keys) && keys == gpusort_request_key_bytes(sort) &&
		check_parts(lists, files, job->rows, lists->nrows, MAXIMUM_ALIGNOF, &job->row_bytes) &&
		sort->words >= 1 && sort->words <= GPUSORT_MAX_WORDS &&
		(sort->key_bytes == 4 || sort->key_bytes == 8) &&
		(sort->with_rows || (sort->words == 1 && lists->ties == 0 && lists->nrows == 0)) &&
		in_file(files, lists->nfiles, 0, lists->result, gpusort_request_result_bytes(sort)) &&
		in_file(files, lists->nfiles, 0, lists->ties, lists->ties != 0 ? sort->rows : 0) &&
		in_file(files, lists->nfiles, 0, lists->windows, GPUSORT_RING * lists->window_bytes);
}

/* Reads the lists.  Returns the list of files, or NULL. */
static const GpusortListedFile *
read_lists(GpusortJob *job)
{
	const GpusortRequest *request = job->request;
	const GpusortLists *lists = &job->lists;
	uint64		bytes = request->lists_bytes;
	char	   *read;

	if (bytes < sizeof(GpusortLists) || bytes > MAX_LISTS_BYTES)
		return NULL;
	read = MemoryContextAllocHuge(job->cxt, bytes);
	/* a read of mapped memory could end this process if the session has none left */
	if (!gpusort_file_read(&request->file, request->lists, read, bytes))
		return NULL;
	memcpy(&job->lists, read, sizeof(GpusortLists));
	if (bytes != sizeof(GpusortLists) + lists->nfiles * sizeof(GpusortListedFile) +
		((uint64) lists->nkeys + lists->nrows) * sizeof(GpusortListedPart) + lists->nblocks * sizeof(GpusortCudaRowBlock))
		return NULL;
	read += sizeof(GpusortLists);
	job->keys = (const GpusortListedPart *) (read + lists->nfiles * sizeof(GpusortListedFile));
	job->rows = job->keys + lists->nkeys;
	job->blocks = (const GpusortCudaRowBlock *) (job->rows + lists->nrows);
	return (const GpusortListedFile *) read;
}

/* Reads and checks the lists, and opens the files; sets request->pinned.  Returns NULL, or a reason, a static text. */
static const char *
read_request(GpusortJob *job)
{
	const GpusortListedFile *files = read_lists(job);

	if (files == NULL)
		return cannot_open;
	if (!check_lists(job, files))
		return "The GPU service cannot read the request.";
	job->request->pinned = true;
	job->files = MemoryContextAlloc(job->cxt, job->lists.nfiles * sizeof(GpusortServiceFile *));
	while (job->nopen < (int) job->lists.nfiles)
	{
		GpusortServiceFile *file = gpusort_file_open(&files[job->nopen].name, files[job->nopen].bytes);

		if (file == NULL)
			return cannot_open;
		if (gpusort_file_registered(file) < files[job->nopen].bytes)
			job->request->pinned = false;
		job->files[job->nopen++] = file;
	}
	return NULL;
}

void
gpusort_job_begin(GpusortJob *job)
{
	const char *reason;

	job->cxt = AllocSetContextCreate(TopMemoryContext, "gpusort job", ALLOCSET_SMALL_SIZES);
	job->waiting_since = 0;
	job->queued_at = gpusort_clock_ms();
	job->full_at = 0;
	job->stage = GPUSORT_JOB_QUEUED;
	reason = read_request(job);
	if (reason != NULL)
		gpusort_job_fail(job, reason);
}

/*
 * A sort in kernels/ needs the keys and a spare buffer of the same size; with rows two buffers of (key,
 * position) packed into 8 bytes instead, and with keys of several words also the 8 bytes of each key
 * that are sorted at a time and the order so far.  The tables of CUB and mppSort take less
 * than 1/16 of that.  Afterwards the places of rows take the memory of the keys.
 */
uint64
gpusort_job_memory(const GpusortJob *job, bool rows)
{
	const GpusortCudaSort *sort = &job->request->sort;
	uint64		scratch = sort->rows * (sort->with_rows ? 2 * sizeof(uint64) : sort->key_bytes);

	if (sort->words > 1)
		scratch += sort->rows * (sizeof(uint64) + sizeof(uint32));
	if (job->lists.ties != 0)
		scratch += sort->rows;
	return (gpusort_request_key_bytes(sort) + scratch) / 16 * 17 + (rows ? job->row_bytes + job->lists.window_bytes : 0);
}

/* ---- uploads ---- */

/* Queues the copies of keys or rows to the device, in pieces.  Returns false if there is no memory. */
static bool
upload(GpusortJob *job, GpusortCudaPart to, const GpusortListedPart *parts, uint32 nparts, uint64 bytes)
{
	uint64		offset = 0;
	GpusortCudaStatus status;

	CALL(status, 0, reserve(job->lane, to, bytes, &err));
	if (status != GPUSORT_CUDA_OK)
		return false;
	for (const GpusortListedPart *part = parts; part < parts + nparts; part++)
	{
		const GpusortServiceFile *file = job->files[part->file];

		for (uint64 done = 0; done < part->bytes;)
		{
			uint64		piece = gpusort_file_piece(file, part->place + done, part->bytes - done);

			CALL(status, piece, upload(job->lane, to, offset + done, file->mem + part->place + done, piece, &err));
			if (status != GPUSORT_CUDA_OK)
				return false;
			job->uploads++;
			done += piece;
		}
		offset += to == GPUSORT_CUDA_ROWS ? MAXALIGN(part->bytes) : part->bytes;
	}
	return true;
}

bool
gpusort_job_upload(GpusortJob *job)
{
	GpusortCudaStatus status;

	CALL(status, 0, lane_open(gpusort_service_device, &job->lane, &err));
	job->stage = GPUSORT_JOB_UPLOADS;
	if (status == GPUSORT_CUDA_OK &&
		upload(job, GPUSORT_CUDA_KEYS, job->keys, job->lists.nkeys, gpusort_request_key_bytes(&job->request->sort)) &&
		(job->row_bytes == 0 || upload(job, GPUSORT_CUDA_ROWS, job->rows, job->lists.nrows, job->row_bytes)))
		return true;
	close_lane(job);
	return false;
}

bool
gpusort_job_is_uploaded(GpusortJob *job)
{
	GpusortCudaStatus status;

	if (gpusort_request_key_bytes(&job->request->sort) + job->row_bytes <= FEW_BYTES)
		return true;
	CALL(status, 0, uploaded(job->lane, &err));
	return status == GPUSORT_CUDA_OK;
}

/* ---- the sort ---- */

static GpusortCudaStatus
sort_on_device(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	GpusortCudaStatus status;

	CALL(status, gpusort_request_key_bytes(&job->request->sort), sort(job->lane, &request->sort, &request->report, &err));
	if (status == GPUSORT_CUDA_UNSORTED)
		ereport(LOG,
				(errmsg("gpusort found the device's result out of order"),
				 errdetail("Algorithm \"%s\" sorted " UINT64_FORMAT " keys of %zu bytes.",
						   gpusort_algorithm_name(request->report.algorithm), request->sort.rows,
						   gpusort_cuda_width(&request->sort)),
				 errhint("Report this as a bug, and set gpusort.algorithm to \"cub\" until it is fixed.")));
	return status;
}

/* Queues the copy of a part of the device to the request's own file, in pieces.  Returns false if there is no memory. */
static bool
download(GpusortJob *job, GpusortCudaPart part, GpusortPlace place, uint64 bytes)
{
	const GpusortServiceFile *file = job->files[0];
	uint64		offset = 0;
	GpusortCudaStatus status;

	while (offset < bytes)
	{
		uint64		piece = gpusort_file_piece(file, place + offset, bytes - offset);

		CALL(status, piece, download(job->lane, part, offset, file->mem + place + offset, piece, &err));
		if (status != GPUSORT_CUDA_OK)
			return false;
		job->downloads++;
		offset += piece;
	}
	return true;
}

/* Queues the downloads of the result, and of ties if they are wanted. */
static bool
return_result(GpusortJob *job)
{
	GpusortCudaStatus status = GPUSORT_CUDA_OK;

	if (job->lists.ties != 0)
		CALL(status, gpusort_request_key_bytes(&job->request->sort), mark_ties(job->lane, &err));
	if (status != GPUSORT_CUDA_OK || !download(job, GPUSORT_CUDA_RESULT, job->lists.result, gpusort_request_result_bytes(&job->request->sort)) ||
		(job->lists.ties != 0 && !download(job, GPUSORT_CUDA_TIES, job->lists.ties, job->request->sort.rows)))
		return false;
	job->result_done = job->downloads;
	return true;
}

/* Divides the rows into windows.  If that fails, they stay where they are. */
static void
arrange(GpusortJob *job)
{
	GpusortCudaStatus status;

	CALL(status, gpusort_request_key_bytes(&job->request->sort) + job->row_bytes,
		 arrange(job->lane, job->blocks, job->lists.nblocks, job->lists.window_bytes, &job->nwindows, &err));
	/* a session that has left the request uses its memory for something else */
	if (status == GPUSORT_CUDA_UNSORTED && gpusort_request_state(job->request) != GPUSORT_REQUEST_LEFT)
		ereport(LOG,
				(errmsg("gpusort found that rows of a request are damaged"),
				 errdetail("%s", err.text)));
	if (status != GPUSORT_CUDA_OK)
		job->nwindows = 0;
}

bool
gpusort_job_sort(GpusortJob *job)
{
	GpusortCudaStatus status = sort_on_device(job);

	job->stage = GPUSORT_JOB_RESULT;
	if (status == GPUSORT_CUDA_UNSORTED)
	{
		gpusort_job_fail(job, "The device's result was out of order.");
		return true;
	}
	if (status != GPUSORT_CUDA_OK || !return_result(job))
	{
		/* a sort that failed may have overwritten the keys */
		close_lane(job);
		return false;
	}
	if (job->row_bytes > 0)
		arrange(job);
	return true;
}

/* ---- the return ---- */

static void
fill_report(GpusortJob *job)
{
	gpusort_cuda->lane_report(job->lane, &job->request->report);
	job->request->copy_in_bytes = gpusort_request_key_bytes(&job->request->sort) + job->row_bytes;
}

/* Queues a window for the backend.  Returns false if there is no memory. */
static bool
queue_window(GpusortJob *job)
{
	int			slot = job->queued % GPUSORT_RING;
	GpusortCudaWindow *window = &job->request->ring[slot];
	GpusortCudaStatus status;

	CALL(status, job->lists.window_bytes, gather(job->lane, job->queued, window, &err));
	if (status != GPUSORT_CUDA_OK || window->bytes > job->lists.window_bytes ||
		!download(job, GPUSORT_CUDA_WINDOW, job->lists.windows + slot * job->lists.window_bytes, window->bytes))
		return false;
	job->window_done[slot] = job->downloads;
	job->queued++;
	return true;
}

/* Publishes the result, once it has arrived. */
static void
publish_result(GpusortJob *job)
{
	GpusortRequest *request = job->request;

	fill_report(job);
	request->copy_out_bytes = gpusort_request_result_bytes(&job->request->sort) + (job->lists.ties != 0 ? request->sort.rows : 0);
	if (job->nwindows == 0)
	{
		finish(job);
		return;
	}
	job->stage = GPUSORT_JOB_WINDOWS;
	change(request, GPUSORT_REQUEST_SORTED);
}

/* Publishes windows that have arrived. */
static void
publish_windows(GpusortJob *job, uint64 finished)
{
	GpusortRequest *request = job->request;
	uint32		before = job->sent;

	while (job->sent < job->queued && job->window_done[job->sent % GPUSORT_RING] <= finished)
	{
		request->copy_out_bytes += request->ring[job->sent % GPUSORT_RING].bytes;
		job->sent++;
	}
	if (job->sent == before)
		return;
	fill_report(job);
	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, job->sent);
	if (job->sent == job->nwindows)
		finish(job);
	else
		SetLatch(request->latch);
}

void
gpusort_job_return(GpusortJob *job)
{
	uint64		finished;
	GpusortCudaStatus status;

	if (job->stage < GPUSORT_JOB_RESULT)
		return;
	CALL(status, 0, downloaded(job->lane, &finished, &err));
	if (job->stage == GPUSORT_JOB_RESULT && finished >= job->result_done)
		publish_result(job);
	if (job->stage != GPUSORT_JOB_WINDOWS)
		return;
	while (job->queued < job->nwindows &&
		   job->queued < pg_atomic_read_u32(&job->request->consumed) + GPUSORT_RING)
	{
		if (!queue_window(job))
		{
			gpusort_job_cut(job);
			return;
		}
	}
	publish_windows(job, finished);
}

bool
gpusort_job_copies(GpusortJob *job)
{
	GpusortCudaStatus status;

	if (job->stage != GPUSORT_JOB_UPLOADS)
		return job->stage == GPUSORT_JOB_RESULT || (job->stage == GPUSORT_JOB_WINDOWS && job->queued > job->sent);
	CALL(status, 0, uploaded(job->lane, &err));
	return status == GPUSORT_CUDA_BUSY;
}
