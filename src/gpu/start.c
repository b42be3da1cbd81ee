/*-------------------------------------------------------------------------
 *
 * start.c
 *		The GPU service as others see it: started, waited for, woken.
 *
 * Whoever first needs the service registers it as a dynamic background worker
 * and everybody waits for it on their own latch.  A service that failed is
 * not started again at once: its reason is good for a while, so that a
 * machine without a driver does not fork at every query.
 *
 * A driver may hang.  Who asks for a service that has been starting for
 * START_TIMEOUT_MS, be it for the first time, is told so at once: whoever comes
 * first waits that long, and nobody else has to.  If the service starts after
 * all, it is used from then on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "gpu/control.h"
#include "gpu/start.h"

#define START_TIMEOUT_MS	15000

/*
 * The file that this code was loaded from, for the worker to load, too: who
 * loads gpusort by its path need not have it where a bare name is looked for.
 */
static const char *
library_name(size_t room)
{
	Dl_info		info;

	if (dladdr((void *) gpusort_service_preload, &info) != 0 && info.dli_fname != NULL &&
		strlen(info.dli_fname) < room)
		return info.dli_fname;
	return "gpusort";
}

static void
fill_worker(BackgroundWorker *worker, bool permanent)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = permanent ? 60 : BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, library_name(sizeof(worker->bgw_library_name)),
			sizeof(worker->bgw_library_name));
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

const char *
gpusort_service_start(void)
{
	BackgroundWorker worker;
	TimestampTz now;
	const char *reason = NULL;
	bool		start = false;
	bool		overdue;

	if (pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_READY)
		return NULL;

	now = GetCurrentTimestamp();
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	overdue = pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_STARTING &&
		TimestampDifferenceExceeds(gpusort_control->started_at, now, START_TIMEOUT_MS);
	if (gpusort_control->service_pid != 0)
	{
		if (overdue)
			reason = "The GPU service takes too long to start.";
	}
	else
	{
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
	if (GPUSORT_FAULT(WORKER) || !RegisterDynamicBackgroundWorker(&worker, NULL))
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
		/* the one that is ending may hang, too */
		if (TimestampDifferenceExceeds(begun, GetCurrentTimestamp(), START_TIMEOUT_MS))
			return "The GPU service takes too long to end and start again.";
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
