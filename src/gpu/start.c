/*-------------------------------------------------------------------------
 *
 * start.c
 *		Starts the GPU service, waits for it, and wakes it.
 *
 * The first backend that needs the service registers it as a dynamic background worker.
 * After a service has failed, backends use the reason of the failure until retry_at:
 * otherwise a machine without a driver would start a process at every query.
 *
 * A driver may hang.  The first backend waits START_TIMEOUT_MS for a service
 * that is starting.  After this time, every backend gives up at once, even at its
 * first request.  If the service becomes ready after all, it is used from then on.
 *
 * A service may be stopped: by SIGSTOP, by a debugger, or with its cgroup.  Its
 * watchdog is stopped with it.  So a backend that waits watches the service's
 * heartbeat.  A service that runs shows it soon after its latch is set, and before
 * and after each call of the device.  If there is none for SILENCE_MS longer than
 * the timeout of the call, the backend gives up, and every backend gives up at
 * once until the heartbeat goes on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/library.h"
#include "compat.h"
#include "gpu/control.h"
#include "gpu/start.h"

/* The longest wait for a service to start, or to end and start again. */
#define START_TIMEOUT_MS	15000

/* A backend waits this much longer for a heartbeat than a call of the device may take. */
#define SILENCE_MS		5000

/* Backends start no service for this time after a registered one did not start. */
#define RETRY_AFTER_TIMEOUT_MS	60000

/* The same after there was no free background worker slot. */
#define RETRY_AFTER_NO_SLOT_MS	1000

static const char *const too_slow_to_end = "The GPU service takes too long to end and start again.";

static void
fill_worker(BackgroundWorker *worker, bool permanent)
{
	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker->bgw_start_time = BgWorkerStart_ConsistentState;
	worker->bgw_restart_time = permanent ? 60 : BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, gpusort_library_name(sizeof(worker->bgw_library_name)),
			sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, "gpusort_service_main", BGW_MAXLEN);
	strlcpy(worker->bgw_name, "gpusort service", BGW_MAXLEN);
	strlcpy(worker->bgw_type, "gpusort service", BGW_MAXLEN);
	strlcpy(worker->bgw_extra, GPUSORT_VERSION, BGW_EXTRALEN);
	worker->bgw_main_arg = BoolGetDatum(permanent);
}

void
gpusort_service_preload(void)
{
	BackgroundWorker worker;

	fill_worker(&worker, true);
	RegisterBackgroundWorker(&worker);
}

/* Copies the reason of the service's failure to static memory. */
static const char *
copy_failure(void)
{
	static char reason[sizeof(gpusort_control->failure)];

	strlcpy(reason, gpusort_control->failure, sizeof(reason));
	return reason;
}

/* Marks a service that does not start as down.  If several processes do so, one notes the reason. */
static void
give_up_start(const char *reason, uint64 retry_ms)
{
	if (gpusort_control_change(GPUSORT_SERVICE_STARTING, GPUSORT_SERVICE_DOWN))
		gpusort_control_note_failure(reason, retry_ms);
}

/*
 * Returns true if the service is down and may be started.  It is then marked as
 * STARTING, and this backend must register it.  Otherwise *reason says why no
 * service will be ready soon, or is NULL if one will.
 */
static bool
claim_start(const char **reason)
{
	GpusortServiceState state = gpusort_service_state();
	uint64		started_at;
	bool		overdue;

	/* another process may have written it just before it changed the state */
	pg_read_barrier();
	started_at = gpusort_control->started_at;
	overdue = state == GPUSORT_SERVICE_STARTING && started_at + START_TIMEOUT_MS <= gpusort_clock_ms();
	*reason = NULL;
	if (overdue && pg_atomic_read_u32(&gpusort_control->service_pid) != 0)
		*reason = "The GPU service takes too long to start.";
	else if (overdue)
		give_up_start("The GPU service did not start; see the server log.", RETRY_AFTER_TIMEOUT_MS);
	else if (state != GPUSORT_SERVICE_DOWN)
		return false;
	if (*reason == NULL && gpusort_clock_ms() < gpusort_control->retry_at)
		*reason = copy_failure();
	if (*reason != NULL)
		return false;
	gpusort_control->started_at = gpusort_clock_ms();
	return gpusort_control_change(GPUSORT_SERVICE_DOWN, GPUSORT_SERVICE_STARTING);
}

/* Registers the service.  Returns NULL, or the reason if no worker slot is free. */
static const char *
register_service(void)
{
	BackgroundWorker worker;

	fill_worker(&worker, false);
	if (!GPUSORT_FAULT(WORKER) && RegisterDynamicBackgroundWorker(&worker, NULL))
		return NULL;
	give_up_start("No background worker slot is free for the GPU service (max_worker_processes).", RETRY_AFTER_NO_SLOT_MS);
	return copy_failure();
}

/* Has all processes give up, unless the service has shown a heartbeat after the given one. */
static void
note_silence(uint64 heartbeat)
{
	pg_atomic_write_u64(&gpusort_control->given_up_at, heartbeat);
}

/* The reason if the service has shown no heartbeat since a process gave up waiting for it, else NULL. */
static const char *
silent_reason(void)
{
	static char reason[80];

	/* without a service process, it is to be started */
	if (pg_atomic_read_u32(&gpusort_control->service_pid) == 0 ||
		pg_atomic_read_u64(&gpusort_control->given_up_at) != pg_atomic_read_u64(&gpusort_control->heartbeat))
		return NULL;
	/* have the service show a heartbeat as soon as it goes on */
	gpusort_service_wake();
	if (gpusort_service_state() != GPUSORT_SERVICE_READY)
		return too_slow_to_end;
	snprintf(reason, sizeof(reason), "The GPU service has not responded for %d seconds.",
			 (int) (pg_atomic_read_u32(&gpusort_control->step_ms) + SILENCE_MS) / 1000);
	return reason;
}

const char *
gpusort_service_silent(GpusortSilence *silence)
{
	uint64		heartbeat = pg_atomic_read_u64(&gpusort_control->heartbeat);
	uint64		ms = gpusort_silence_ms(silence, heartbeat);

	if (ms >= pg_atomic_read_u32(&gpusort_control->step_ms) + (uint64) SILENCE_MS)
		note_silence(heartbeat);
	else if (ms > 0)
		gpusort_service_wake();
	/* if step_ms was shortened meanwhile, the heartbeat before that must be seen, too */
	pg_read_barrier();
	return silent_reason();
}

const char *
gpusort_service_start(void)
{
	const char *reason = silent_reason();

	if (reason != NULL || gpusort_service_state() == GPUSORT_SERVICE_READY)
		return reason;
	return claim_start(&reason) ? register_service() : reason;
}

const char *
gpusort_service_wait(void)
{
	static uint32 event = 0;
	GpusortSilence wait = {0};	/* until the service is ready */

	for (;;)
	{
		uint64		heartbeat = pg_atomic_read_u64(&gpusort_control->heartbeat);
		const char *reason = gpusort_service_start();

		if (reason != NULL)
			return reason;
		if (gpusort_service_state() == GPUSORT_SERVICE_READY)
			return NULL;
		/* gpusort_service_start() limits the time of a start; the service may also hang as it ends */
		if (gpusort_service_state() != GPUSORT_SERVICE_STARTING && gpusort_silence_ms(&wait, 0) >= START_TIMEOUT_MS)
		{
			if (pg_atomic_read_u32(&gpusort_control->service_pid) != 0)
				note_silence(heartbeat);
			return too_slow_to_end;
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 20L, gpusort_wait_event(event, "GpusortService"));
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
