/*-------------------------------------------------------------------------
 *
 * main.c
 *		The GPU service: the one process that calls CUDA.
 *
 * The service is a background worker without a database.  It ends when it has been idle
 * for gpusort.service_idle_timeout.
 *
 * Its loop moves each request on by one step (service/queue.c).  While the device works,
 * it looks again and again; otherwise it waits for its latch.  A small sort takes the
 * device less than 0.1 ms, as long as a short sleep.  So the service does not sleep before
 * it has found nothing new for SPIN_NANOSECONDS, but yields its processor.
 *
 * Signals are blocked except while the service waits.  So the threads that CUDA
 * makes inherit the mask, and PostgreSQL's signal handlers never run in them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sched.h>
#include <signal.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/fault.h"
#include "compat.h"
#include "gpu/gpu.h"
#include "guc.h"
#include "service/service.h"

PGDLLEXPORT void gpusort_service_main(Datum arg);

#define SPIN_NANOSECONDS		100000	/* looks follow each other at once for this long */
#define POLL_MICROSECONDS		20	/* then they are so far apart */
#define POLL_NANOSECONDS		10000000	/* and from here on, 1 ms */
#define TIMER_SLACK_NANOSECONDS	1000	/* Linux rounds sleeps up by 50 us by default */
#define TRIM_AFTER_MS			1000	/* an idle service gives device memory back after this */
#define LOOK_MS					1000L	/* at files that it can let go of, and at how long it has been idle */

/* Makes this process the service.  Returns false if another process is the service already. */
static bool
become_service(void)
{
	uint32		none = 0;

	if (!pg_atomic_compare_exchange_u32(&gpusort_control->service_pid, &none, MyProcPid))
		return false;
	gpusort_control->service_latch = MyLatch;
	gpusort_control->changed_at = gpusort_clock_ms();
	gpusort_control->mapped_bytes = 0;
	pg_atomic_write_u32(&gpusort_control->pace_us, 0);
	pg_write_barrier();
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_STARTING);
	gpusort_watch_beat();
	return true;
}

/*
 * Waits for the next look, with signals let in: briefly while the device is busy,
 * otherwise until the latch is set or ms have passed.
 */
static void
rest(const GpusortStepped *stepped, long ms)
{
	static uint32 event = 0;
	static uint64 since = 0;	/* when the service found something new last, in ns of base/clock.h */
	uint64		now = gpusort_clock_ns();
	sigset_t	blocked;

	sigprocmask(SIG_SETMASK, &UnBlockSig, &blocked);
	if (stepped->moved || !stepped->busy)
		since = now;
	if (stepped->busy && now - since < SPIN_NANOSECONDS)
		(void) sched_yield();
	else if (stepped->busy && now - since < POLL_NANOSECONDS)
		pg_usleep(POLL_MICROSECONDS);
	else
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 stepped->busy ? 1L : ms, gpusort_wait_event(event, "GpusortServiceMain"));
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* Closes all lanes and the device, and ends the process. */
static void
close_and_exit(bool idle)
{
	gpusort_queue_drop_all();
	gpusort_device_close(idle);
	proc_exit(0);
}

/* A service that has another device than the settings name ends: the next one chooses anew. */
static void
reload_settings(void)
{
	char	   *device = pstrdup(gpusort_device);
	bool		another;

	ProcessConfigFile(PGC_SIGHUP);
	another = strcmp(device, gpusort_device) != 0;
	pfree(device);
	if (another)
		close_and_exit(false);
	gpusort_device_limit_memory();
}

/*
 * Gives device memory back while the service is idle, since this time, and ends it in the end.  A request that comes
 * meanwhile starts the next service, which serves it.
 */
static void
be_idle(uint64 since, bool permanent)
{
	static uint64 trimmed = 0;	/* since when the service was idle when it gave device memory back last */
	uint64		idle_ms = gpusort_clock_ms() - since;
	uint64		timeout_ms = gpusort_service_idle_timeout * UINT64CONST(1000);

	if (trimmed != since && idle_ms >= TRIM_AFTER_MS)
	{
		GPUSORT_WATCHED(0, gpusort_cuda->trim(gpusort_service_device));
		pg_atomic_write_u32(&gpusort_control->pace_us, 0);
		trimmed = since;
	}
	if (timeout_ms > 0 && idle_ms >= timeout_ms && !permanent)
	{
		gpusort_control->changed_at = gpusort_clock_ms();
		(void) gpusort_control_change(GPUSORT_SERVICE_READY, GPUSORT_SERVICE_ENDING);
		close_and_exit(true);
	}
}

/* The loop of the service; does not return. */
static void
serve(bool permanent)
{
	uint64		idle_since = gpusort_clock_ms();
	uint64		looked_at = 0;	/* at the files, in ms of the monotonic clock */

	for (;;)
	{
		GpusortStepped stepped;

		ResetLatch(MyLatch);
		gpusort_watch_beat();
		if (ShutdownRequestPending)
			close_and_exit(false);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload_settings();
		}

		stepped = gpusort_queue_step();
		if (stepped.idle)
			be_idle(idle_since, permanent);
		else
			idle_since = gpusort_clock_ms();
		if (gpusort_clock_ms() - looked_at >= LOOK_MS)
		{
			looked_at = gpusort_clock_ms();
			gpusort_files_look();
		}
		rest(&stepped, gpusort_files_let_go() ? 0 : LOOK_MS);
	}
}

/* The background worker.  arg: it was started with the server, and does not end for being idle. */
void
gpusort_service_main(Datum arg)
{
	bool		permanent = DatumGetBool(arg);
	const char *reason;
	sigset_t	all;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	/* the control block of a session with another version's library is another one */
	if (strcmp(MyBgworkerEntry->bgw_extra, GPUSORT_VERSION) != 0)
		reason = "A session that has loaded another version of gpusort started it.";
	else
		(void) gpusort_control_attach(&reason);
	if (gpusort_control == NULL)
	{
		ereport(LOG, (errmsg("gpusort service cannot start"), errdetail("%s", reason)));
		proc_exit(0);
	}
	if (!become_service())
		proc_exit(0);
#ifdef PR_SET_TIMERSLACK
	(void) prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NANOSECONDS);
#endif
	GPUSORT_FAULT_SERVE();

	/* SIGQUIT's handler calls nothing but _exit(), so any thread may run it */
	sigfillset(&all);
	sigdelset(&all, SIGQUIT);
	sigprocmask(SIG_SETMASK, &all, NULL);
	gpusort_device_open();
	gpusort_queue_start();
	/* whatever others thought of the start; a session that waits for this looks every 20 ms */
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_READY);
	pg_memory_barrier();
	serve(permanent);
}
