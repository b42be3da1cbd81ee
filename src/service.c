/*-------------------------------------------------------------------------
 *
 * service.c
 *		The GPU service: the one process that calls CUDA.
 *
 * A background worker without a database.  It is started with the server if
 * gpusort is preloaded, else by the first backend that needs it, and ends when
 * it has been idle for a while, which it also is if it only waits for backends
 * that do nothing.  It owns the CUDA context, so a query pays
 * neither for a context nor for pinning memory.
 *
 * Its loop looks at every request in turn and moves each one step on
 * (service_job.c).
 *
 * A CUDA error that is not about memory may have poisoned the context, which
 * cannot be repaired within a process.  The service then ends, after marking
 * every request as failed; the backends sort on the CPU from their chunks, and
 * the next sort starts a new service.  So it does, by its watchdog
 * (service_watch.c), when a call does not come back.
 *
 * Signals are blocked whenever CUDA may be running, so that its threads
 * inherit the mask and no handler of PostgreSQL's ever runs in one of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guc.h"
#include "pool.h"
#include "service.h"
#include "service_job.h"

#define POLL_MICROSECONDS		20	/* between looks at a busy device */
#define POLLS_BEFORE_SLEEP		500 /* then 1 ms at a time */
#define TRIM_AFTER_MS			1000	/* idle device memory is given back */

GpusortCudaDevice *gpusort_service_device = NULL;

/* Bytes free when it was opened. */
static uint64 device_free_memory = 0;

bool		gpusort_service_registered[GPUSORT_MAX_SEGMENTS];

/*
 * Why the service ends, for requests in flight and, if it is a failure, for
 * gpusort_status().  Empty: it was idle.
 */
static char ending[160];
static bool ending_is_failure = false;
static int	retry_after_ms = 0;

/* ----------------------------------------------------------------
 *		Ending
 * ----------------------------------------------------------------
 */

/* Leaves a consistent control block behind, however the process ends. */
static void
service_exit(int code, Datum arg)
{
	/*
	 * An error, or the watchdog, ends the service wherever it is, be it with the
	 * control lock held.  Callbacks that want locks run before the one that
	 * releases them in general (ProcKill).
	 */
	LWLockReleaseAll();
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
				/* who came while an idle service was ending, or was parked, is for the next one */
				if (ending[0] != '\0')
				{
					strlcpy(request->error, ending, sizeof(request->error));
					pg_write_barrier();
					pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FAILED);
					gpusort_job_wake(request);
				}
				break;
			default:
				break;
		}
	}
	LWLockRelease(&gpusort_control->lock);
	gpusort_pool_on_unmap = NULL;
	gpusort_pool_trim();
}

/* Notes a reason to end the service that makes it useless to start another at once. */
static void
set_ending(int retry_ms, const char *reason)
{
	strlcpy(ending, reason, sizeof(ending));
	ending_is_failure = true;
	retry_after_ms = retry_ms;
}

GPUSORT_NORETURN static void
end_in_failure(int exit_code, int retry_ms, const char *reason)
{
	set_ending(retry_ms, reason);
	ereport(LOG,
			(errmsg("gpusort service is ending"),
			 errdetail("%s", reason)));
	proc_exit(exit_code);
}

/* The device may be lost: no further CUDA call in this process. */
GPUSORT_NORETURN static void
end_in_fault(const GpusortCudaError *err)
{
	char		reason[160];

	snprintf(reason, sizeof(reason), "CUDA call %s failed: %s (error %d).",
			 err->call, err->text, err->code);
	gpusort_service_device = NULL;
	end_in_failure(1, 1000, reason);
}

static const char *
hang_reason(int patience_ms)
{
	static char reason[160];

	snprintf(reason, sizeof(reason), GPUSORT_HANG_REASON, patience_ms / 1000);
	return reason;
}

void
gpusort_service_hangs(int patience_ms)
{
	gpusort_service_device = NULL;
	end_in_failure(1, 60000, hang_reason(patience_ms));
}

/*
 * The watchdog, which has told the log, ends the service, whose own thread is
 * stuck in a call.  Not by exit(), whose handlers of CUDA's may wait for the
 * device, too.  An error must not go to where the other thread wants its errors:
 * who exits with a 2 has crashed.
 */
static void
end_in_hang(int patience_ms)
{
	set_ending(60000, hang_reason(patience_ms));
	PG_TRY();
	{
		shmem_exit(1);
	}
	PG_CATCH();
	{
		EmitErrorReport();
		_exit(2);
	}
	PG_END_TRY();
	_exit(1);
}

/* That is also why leaving by exit() is watched. */
static void
watch_exit(int code, Datum arg)
{
	gpusort_watch_begin(GPUSORT_PATIENCE_MS);
}

void
gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err)
{
	if (status != GPUSORT_CUDA_OK && status != GPUSORT_CUDA_BUSY &&
		status != GPUSORT_CUDA_NO_MEMORY && status != GPUSORT_CUDA_UNSORTED)
		end_in_fault(err);
}

/* ----------------------------------------------------------------
 *		Process
 * ----------------------------------------------------------------
 */

/*
 * Registered memory is copied at full speed; other memory is, slowly.  Must
 * not raise: a fault shows at the next CUDA call.
 */
static void
register_segment(int segment, char *base)
{
	GpusortCudaError err;

	GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, gpusort_service_registered[segment] =
					gpusort_cuda_register(base, GPUSORT_SEGMENT_BYTES, &err) == GPUSORT_CUDA_OK);
}

static void
unregister_segment(int segment, char *base)
{
	GpusortCudaError err;

	if (gpusort_service_registered[segment])
		GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, (void) gpusort_cuda_unregister(base, &err));
	gpusort_service_registered[segment] = false;
}

/* Gives back everything that is not in use; the context stays. */
static void
give_memory_back(void)
{
	gpusort_pool_trim();
	GPUSORT_WATCHED(0, gpusort_cuda_trim(gpusort_service_device));
}

/* Ends CUDA in good order. */
static void
close_device(void)
{
	gpusort_job_drop_all();
	GPUSORT_WATCHED(0, gpusort_cuda_close(gpusort_service_device));
	gpusort_service_device = NULL;
}

uint64
gpusort_service_memory(void)
{
	return gpusort_device_memory_limit > 0 ?
		(uint64) gpusort_device_memory_limit * 1024 * 1024 : device_free_memory / 10 * 9;
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
	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	status = gpusort_cuda_probe(&info, &err);
	if (status == GPUSORT_CUDA_OK)
		status = gpusort_cuda_open(&gpusort_service_device, (uint64) gpusort_device_memory_limit * 1024 * 1024,
								   &info, &err);
	gpusort_watch_end();

	device_free_memory = info.free_memory;
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
		gpusort_control->pool_limit = gpusort_pool_limit;
		pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_STARTING);
	}
	LWLockRelease(&gpusort_control->lock);
	return alone;
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
			gpusort_job_wake(&gpusort_control->requests[i]);
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
	gpusort_watch_start(end_in_hang);
	on_proc_exit(watch_exit, 0);
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
			LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
			gpusort_control->pool_limit = gpusort_pool_limit;
			LWLockRelease(&gpusort_control->lock);
			GPUSORT_WATCHED(0, gpusort_cuda_set_memory_limit(gpusort_service_device,
															 (uint64) gpusort_device_memory_limit * 1024 * 1024));
		}

		for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
			busy |= gpusort_job_step(i, &idle);

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
				GPUSORT_WATCHED(0, gpusort_cuda_trim(gpusort_service_device));
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
					ending_now = gpusort_job_hand_over();
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
			 gpusort_service_idle_timeout > 0 ? gpusort_service_idle_timeout * 1000L :
			 60000L);
	}
}
