/*-------------------------------------------------------------------------
 *
 * service.c
 *		The GPU service: the one process that calls CUDA.
 *
 * A background worker without a database.  It is started with the server if
 * gpusort is preloaded, else by the first backend that needs it, and ends when
 * it has been idle for a while.  It owns the CUDA context, so a query pays
 * neither for a context nor for pinning memory.
 *
 * Its loop looks at every request in turn and moves each one step on: upload
 * what has been gathered, sort what is complete (first submitted, first
 * sorted), download while there is an empty result chunk.  Copies of one
 * request run while another is sorted; nothing waits here but for the device.
 *
 * Device memory: requests still gathering hold what they have uploaded, but
 * the request that is first in line may take it from them; they upload again
 * later.  So a sort fails for lack of device memory only if it does not fit
 * alone.
 *
 * A CUDA error that is not about memory may have poisoned the context, which
 * cannot be repaired within a process.  The service then ends, after marking
 * every request as failed; the backends sort on the CPU from their chunks, and
 * the next sort starts a new service.
 *
 * Signals are blocked whenever CUDA may be running, so that its threads
 * inherit the mask and no handler of PostgreSQL's ever runs in one of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "control.h"
#include "gpusort_cuda.h"
#include "guc.h"
#include "pool.h"
#include "service.h"

#define POLL_MICROSECONDS		20	/* between looks at a busy device */
#define POLLS_BEFORE_SLEEP		500 /* then 1 ms at a time */
#define TRIM_AFTER_MS			1000	/* idle device memory is given back */

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
static GpusortCudaDevice *device = NULL;

/* Did cudaHostRegister accept every segment? */
static bool segment_registered[GPUSORT_MAX_SEGMENTS];

/*
 * Why the service ends, for requests in flight and, if it is a failure, for
 * gpusort_status().  Empty: it was idle.
 */
static char ending[160];
static bool ending_is_failure = false;
static int	retry_after_ms = 0;

static inline GpusortRequest *
request_of(const Job *job)
{
	return &gpusort_control->requests[job - jobs];
}

/* ----------------------------------------------------------------
 *		Ending
 * ----------------------------------------------------------------
 */

/* Leaves a consistent control block behind, however the process ends. */
static void
service_exit(int code, Datum arg)
{
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	gpusort_control->service_pid = 0;
	gpusort_control->service_latch = NULL;
	strlcpy(gpusort_control->failure, ending_is_failure ? ending : "",
			sizeof(gpusort_control->failure));
	gpusort_control->retry_at = GetCurrentTimestamp() + retry_after_ms * INT64CONST(1000);
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);

	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];

		switch (gpusort_request_state(request))
		{
			case GPUSORT_REQUEST_ABANDONED:
				gpusort_control_free_request(i);
				break;
			case GPUSORT_REQUEST_LEFT:
				pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FINISHED);
				break;
			case GPUSORT_REQUEST_GATHERING:
			case GPUSORT_REQUEST_SUBMITTED:
			case GPUSORT_REQUEST_RETURNING:
				/* who came while an idle service was ending is for the next one */
				if (ending[0] != '\0')
				{
					strlcpy(request->error, ending, sizeof(request->error));
					pg_write_barrier();
					pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FAILED);
					SetLatch(request->latch);
				}
				break;
			default:
				break;
		}
	}
	gpusort_pool_on_unmap = NULL;
	gpusort_pool_trim();
	LWLockRelease(&gpusort_control->lock);
}

/* Ends the service for a reason that makes it useless to start another at once. */
static void
pg_attribute_noreturn()
end_in_failure(int exit_code, int retry_ms, const char *reason)
{
	strlcpy(ending, reason, sizeof(ending));
	ending_is_failure = true;
	retry_after_ms = retry_ms;
	ereport(LOG,
			(errmsg("gpusort service is ending"),
			 errdetail("%s", reason)));
	proc_exit(exit_code);
}

/* The device may be lost: no further CUDA call in this process. */
static void
pg_attribute_noreturn()
end_in_fault(const GpusortCudaError *err)
{
	char		reason[160];

	snprintf(reason, sizeof(reason), "CUDA call %s failed: %s (error %d).",
			 err->call, err->text, err->code);
	device = NULL;
	end_in_failure(1, 1000, reason);
}

static void
check_fault(GpusortCudaStatus status, const GpusortCudaError *err)
{
	if (status != GPUSORT_CUDA_OK && status != GPUSORT_CUDA_BUSY &&
		status != GPUSORT_CUDA_NO_MEMORY && status != GPUSORT_CUDA_UNSORTED)
		end_in_fault(err);
}

/* ----------------------------------------------------------------
 *		Requests
 * ----------------------------------------------------------------
 */

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
		status = gpusort_cuda_lane_open(device, &job->lane, &err);
		check_fault(status, &err);
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
		if (!segment_registered[chunk / GPUSORT_SEGMENT_CHUNKS])
			request->pinned = false;
		status = gpusort_cuda_upload(job->lane, keys, gpusort_control->chunks[chunk].bytes, &err);
		check_fault(status, &err);
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

	check_fault(status, &err);
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
		check_fault(gpusort_cuda_download(job->lane, request->want_rows, offset, to,
										  Min(GPUSORT_CHUNK_BYTES, job->bytes - offset), &err), &err);
		job->queued++;
	}

	check_fault(gpusort_cuda_downloaded(job->lane, &finished, &err), &err);
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

				check_fault(status, &err);
				return status == GPUSORT_CUDA_BUSY;
			}

		case GPUSORT_REQUEST_SUBMITTED:
			if (upload(job) && job == first_in_line())
			{
				GpusortCudaStatus status = gpusort_cuda_uploaded(job->lane, &err);

				check_fault(status, &err);
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

/* ----------------------------------------------------------------
 *		Process
 * ----------------------------------------------------------------
 */

/*
 * Registered memory is copied at full speed; other memory is, slowly.  Called
 * under the control lock or not, so it must not raise: a fault shows at the
 * next CUDA call.
 */
static void
register_segment(int segment, char *base)
{
	GpusortCudaError err;

	segment_registered[segment] =
		gpusort_cuda_register(base, GPUSORT_SEGMENT_BYTES, &err) == GPUSORT_CUDA_OK;
}

static void
unregister_segment(int segment, char *base)
{
	GpusortCudaError err;

	if (segment_registered[segment])
		(void) gpusort_cuda_unregister(base, &err);
	segment_registered[segment] = false;
}

/* Gives back everything that is not in use; the context stays. */
static void
give_memory_back(void)
{
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	gpusort_pool_trim();
	LWLockRelease(&gpusort_control->lock);
	gpusort_cuda_trim(device);
}

/* Ends CUDA in good order. */
static void
close_device(void)
{
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
		drop_lane(&jobs[i]);
	gpusort_cuda_close(device);
	device = NULL;
}

static void
open_device(void)
{
	GpusortCudaInfo info;
	GpusortCudaError err;
	GpusortCudaStatus status;
	char		reason[160];

	memset(&info, 0, sizeof(info));
	memset(&err, 0, sizeof(err));
	status = gpusort_cuda_probe(&info, &err);
	if (status == GPUSORT_CUDA_OK)
		status = gpusort_cuda_open(&device, (uint64) gpusort_device_memory_limit * 1024 * 1024,
								   &info, &err);

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	strlcpy(gpusort_control->device, info.name, sizeof(gpusort_control->device));
	gpusort_control->device_memory = info.total_memory;
	gpusort_control->driver_version = info.driver_version;
	gpusort_control->runtime_version = info.runtime_version;
	LWLockRelease(&gpusort_control->lock);

	switch (status)
	{
		case GPUSORT_CUDA_OK:
			return;
		case GPUSORT_CUDA_NO_DRIVER:
			strlcpy(reason, "No NVIDIA driver was found.", sizeof(reason));
			break;
		case GPUSORT_CUDA_OLD_DRIVER:
			snprintf(reason, sizeof(reason),
					 "The NVIDIA driver supports CUDA %d.%d, but gpusort was built with CUDA %d.%d.",
					 info.driver_version / 1000, info.driver_version % 1000 / 10,
					 info.runtime_version / 1000, info.runtime_version % 1000 / 10);
			break;
		case GPUSORT_CUDA_NO_DEVICE:
			snprintf(reason, sizeof(reason), "The NVIDIA driver finds no usable device: %s.", err.text);
			break;
		default:
			snprintf(reason, sizeof(reason), "CUDA call %s failed: %s (error %d).",
					 err.call, err.text, err.code);
			break;
	}
	/* a missing driver is not worth a look at every query */
	end_in_failure(0, 60000, reason);
}

/* True if this process is the service; false if another one is already. */
static bool
become_service(void)
{
	bool		alone;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	alone = gpusort_control->service_pid == 0;
	if (alone)
	{
		gpusort_control->service_pid = MyProcPid;
		gpusort_control->service_latch = MyLatch;
		gpusort_control->started_at = GetCurrentTimestamp();
		pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_STARTING);
	}
	LWLockRelease(&gpusort_control->lock);
	return alone;
}

static bool
no_requests(void)
{
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (gpusort_request_state(&gpusort_control->requests[i]) != GPUSORT_REQUEST_FREE)
			return false;
	}
	return true;
}

static void
announce_ready(void)
{
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	gpusort_control->failure[0] = '\0';
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_READY);
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (gpusort_request_state(&gpusort_control->requests[i]) == GPUSORT_REQUEST_SUBMITTED)
			SetLatch(gpusort_control->requests[i].latch);
	}
	LWLockRelease(&gpusort_control->lock);
}

/*
 * Sleeps until there is something to do, with signals let in.  busy: the
 * device is at work and must be polled.
 */
static void
rest(bool busy, int *polls, long idle_ms)
{
	sigset_t	blocked;

	sigprocmask(SIG_SETMASK, &UnBlockSig, &blocked);
	if (busy && ++*polls < POLLS_BEFORE_SLEEP)
		pg_usleep(POLL_MICROSECONDS);
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 busy ? 1L : idle_ms, PG_WAIT_EXTENSION);
		if (!busy)
			*polls = 0;
	}
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

void
gpusort_service_main(Datum arg)
{
	bool		permanent = DatumGetBool(arg);
	const char *reason;
	sigset_t	all;
	TimestampTz idle_since;
	bool		trimmed = false;
	int			polls = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	if (!gpusort_control_attach(&reason))
	{
		ereport(LOG, (errmsg("gpusort service cannot start"), errdetail("%s", reason)));
		proc_exit(0);
	}
	if (!become_service())
		proc_exit(0);
	strlcpy(ending, "The GPU service was shut down.", sizeof(ending));
	before_shmem_exit(service_exit, 0);

	/* SIGQUIT's handler only calls _exit(): any thread may run it */
	sigfillset(&all);
	sigdelset(&all, SIGQUIT);
	sigprocmask(SIG_SETMASK, &all, NULL);
	open_device();
	gpusort_pool_on_map = register_segment;
	gpusort_pool_on_unmap = unregister_segment;
	announce_ready();

	idle_since = GetCurrentTimestamp();
	for (;;)
	{
		bool		busy = false;
		bool		idle = true;

		ResetLatch(MyLatch);
		if (ShutdownRequestPending)
		{
			close_device();
			proc_exit(0);
		}
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			gpusort_cuda_set_memory_limit(device, (uint64) gpusort_device_memory_limit * 1024 * 1024);
		}

		for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
		{
			if (jobs[i].lane == NULL &&
				gpusort_request_state(&gpusort_control->requests[i]) == GPUSORT_REQUEST_FREE)
				continue;
			idle = false;
			busy |= step_job(&jobs[i]);
		}

		if (!idle)
		{
			idle_since = GetCurrentTimestamp();
			trimmed = false;
		}
		else
		{
			TimestampTz now = GetCurrentTimestamp();

			if (!trimmed && TimestampDifferenceExceeds(idle_since, now, TRIM_AFTER_MS))
			{
				gpusort_cuda_trim(device);
				trimmed = true;
			}
			if (gpusort_service_idle_timeout > 0 &&
				TimestampDifferenceExceeds(idle_since, now, gpusort_service_idle_timeout * 1000))
			{
				bool		ending_now = false;

				give_memory_back();
				idle_since = now;
				if (!permanent)
				{
					LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
					ending_now = no_requests();
					if (ending_now)
						pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);
					LWLockRelease(&gpusort_control->lock);
				}
				if (ending_now)
				{
					ending[0] = '\0';
					close_device();
					proc_exit(0);
				}
			}
		}
		rest(busy, &polls, idle && !trimmed ? TRIM_AFTER_MS :
			 idle && gpusort_service_idle_timeout > 0 ? gpusort_service_idle_timeout * 1000L :
			 60000L);
	}
}

/* ----------------------------------------------------------------
 *		What backends call
 * ----------------------------------------------------------------
 */

static void
fill_worker(BackgroundWorker *worker, bool permanent)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = permanent ? 60 : BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, "gpusort", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, "gpusort_service_main", BGW_MAXLEN);
	strlcpy(worker->bgw_name, "gpusort service", BGW_MAXLEN);
	strlcpy(worker->bgw_type, "gpusort service", BGW_MAXLEN);
	worker->bgw_main_arg = BoolGetDatum(permanent);
}

void
gpusort_service_preload(void)
{
	BackgroundWorker worker;

	fill_worker(&worker, true);
	RegisterBackgroundWorker(&worker);
}

/* Why the service is down; static. */
static const char *
copy_failure(void)
{
	static char reason[160];

	strlcpy(reason, gpusort_control->failure, sizeof(reason));
	return reason;
}

#define START_TIMEOUT_MS	15000

const char *
gpusort_service_start(void)
{
	BackgroundWorker worker;
	TimestampTz now;
	const char *reason = NULL;
	bool		start = false;

	if (pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_READY)
		return NULL;

	now = GetCurrentTimestamp();
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	if (gpusort_control->service_pid == 0)
	{
		bool		overdue =
			pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_STARTING &&
			TimestampDifferenceExceeds(gpusort_control->started_at, now, START_TIMEOUT_MS);

		if (overdue)
		{
			pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);
			strlcpy(gpusort_control->failure, "The GPU service did not start; see the server log.",
					sizeof(gpusort_control->failure));
			gpusort_control->retry_at = now + 60 * USECS_PER_SEC;
		}
		if (pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_DOWN)
		{
			if (gpusort_control->failure[0] != '\0' && now < gpusort_control->retry_at)
				reason = copy_failure();
			else
			{
				start = true;
				gpusort_control->started_at = now;
				pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_STARTING);
			}
		}
	}
	LWLockRelease(&gpusort_control->lock);
	if (!start)
		return reason;

	fill_worker(&worker, false);
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
	{
		LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
		pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);
		strlcpy(gpusort_control->failure,
				"No background worker slot is free for the GPU service (max_worker_processes).",
				sizeof(gpusort_control->failure));
		gpusort_control->retry_at = now + USECS_PER_SEC;
		reason = copy_failure();
		LWLockRelease(&gpusort_control->lock);
	}
	return reason;
}

const char *
gpusort_service_wait(void)
{
	TimestampTz begun = GetCurrentTimestamp();

	for (;;)
	{
		const char *reason = gpusort_service_start();

		if (reason != NULL)
			return reason;
		if (pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_READY)
			return NULL;
		/* a driver may hang; nobody has to wait for that */
		if (TimestampDifferenceExceeds(begun, GetCurrentTimestamp(), START_TIMEOUT_MS))
			return "The GPU service takes too long to start.";
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 20L, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

void
gpusort_service_wake(void)
{
	Latch	   *latch = gpusort_control->service_latch;

	if (latch != NULL)
		SetLatch(latch);
}
