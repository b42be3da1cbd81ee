/*-------------------------------------------------------------------------
 *
 * main.c
 *		The GPU service: the one process that calls CUDA.
 *
 * A background worker without a database.  It is started with the server if
 * gpusort is preloaded, else by the first backend that needs it, and ends when
 * it has been idle for a while, which it also is if it only waits for backends
 * that do nothing.  It owns the CUDA context, so a query pays
 * neither for a context nor for pinning memory.
 *
 * Its loop looks at every request in turn and moves each one step on
 * (job.c).
 *
 * A CUDA error that is not about memory may have poisoned the context, which
 * cannot be repaired within a process.  The service then ends, after marking
 * every request as failed; the backends sort on the CPU from their chunks, and
 * the next sort starts a new service.  So it does, by its watchdog
 * (watch.c), when a call does not come back.
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

#include "base/fault.h"
#include "gpu/pool.h"
#include "gpu/start.h"
#include "guc.h"
#include "service/device.h"
#include "service/job.h"
#include "service/watch.h"

PGDLLEXPORT void gpusort_service_main(Datum arg);

#define POLL_MICROSECONDS		20	/* between looks at a busy device */
#define POLLS_BEFORE_SLEEP		500 /* then 1 ms at a time */
#define TRIM_AFTER_MS			1000	/* idle device memory is given back */

/* ----------------------------------------------------------------
 *		Process
 * ----------------------------------------------------------------
 */

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
	gpusort_device_close();
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
			gpusort_control_wake(&gpusort_control->requests[i]);
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
	gpusort_device_at_exit();
#ifdef GPUSORT_FAULTS
	gpusort_fault_serve();
#endif

	/* SIGQUIT's handler only calls _exit(): any thread may run it */
	sigfillset(&all);
	sigdelset(&all, SIGQUIT);
	sigprocmask(SIG_SETMASK, &all, NULL);
	gpusort_device_open();
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
					gpusort_device_end_idle();
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
