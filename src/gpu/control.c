/*-------------------------------------------------------------------------
 *
 * control.c
 *		The control block in shared memory, and the GPU service that serves it: starts it, waits
 *		for it, and wakes it.
 *
 * The first process that needs the block makes it.  Without
 * shared_preload_libraries it takes the memory from the spare room of
 * PostgreSQL's main shared memory (base/shmem.c).  The number of request slots
 * depends on max_connections, and without preload on that room, of which they
 * leave a part to other extensions.
 *
 * The first backend that needs the service registers it as a dynamic background worker.
 * After a service has failed, backends use the reason of the failure until retry_at:
 * otherwise a machine without a driver would start a process at every query.
 *
 * A driver may hang.  The first backend waits START_TIMEOUT_MS for a service
 * that is starting, or ending.  After this time, every backend gives up at once, even at its
 * first request.  If the service becomes ready after all, it is used from then on.
 *
 * A service may be stopped: by SIGSTOP, by a debugger, or with its cgroup.  Its
 * watchdog is stopped with it.  So a backend that waits watches the service's
 * heartbeat.  A service that runs shows it soon after its latch is set, and its
 * watchdog does during each call of the device.  If there is none for SILENCE_MS, the
 * backend gives up, and every backend gives up at once until the heartbeat goes on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/bgworker_internals.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/fault.h"
#include "base/shmem.h"
#include "compat.h"
#include "gpu/gpu.h"

GpusortControl *gpusort_control = NULL;

/* Has this process, or the postmaster from which it was forked, requested shared memory? */
static bool preloaded = false;

/* Without preload, the slots take at most this part of PostgreSQL's reserve of 100 kB. */
#define UNPRELOADED_BYTES	50000

/*
 * With preload, two request slots for each session, which may have a cursor that it has
 * not read to its end, and one for each worker.
 */
static int
wanted_requests(void)
{
	int			wanted = Min(2 * MaxConnections + max_worker_processes, GPUSORT_MAX_REQUESTS);

	return preloaded ? wanted : Min(wanted, (int) (UNPRELOADED_BYTES / sizeof(GpusortRequest)));
}

static Size
control_bytes(void)
{
	return offsetof(GpusortControl, requests) + wanted_requests() * sizeof(GpusortRequest);
}

static void
make_control(void *made)
{
	GpusortControl *control = made;

	/* zero is what pg_atomic_init_u64() would write */
	memset(control, 0, control_bytes());
	control->nrequests = wanted_requests();
	pg_atomic_init_u64(&control->heartbeat, 1);
}

bool
gpusort_control_attach(const char **reason)
{
	static GpusortShmem shared = {GPUSORT_SHMEM_NAME("control"), 0, make_control};

	shared.size = control_bytes();
	gpusort_control = gpusort_shmem_attach(&shared);
	*reason = shared.refusal;
	return gpusort_control != NULL;
}

bool
gpusort_control_change(GpusortServiceState from, GpusortServiceState to)
{
	uint32		expected = from;
	bool		changed = pg_atomic_compare_exchange_u32(&gpusort_control->service_state, &expected, to);

	pg_memory_barrier();
	return changed;
}

void
gpusort_control_note_failure(const char *failure, uint64 retry_ms)
{
	gpusort_control->retry_at = failure != NULL ? gpusort_clock_ms() + retry_ms : 0;
	if (failure == NULL)
		return;
	strlcpy(gpusort_control->failure, failure, sizeof(gpusort_control->failure));
	gpusort_control->failed_at = GetCurrentTimestamp();
}

/* ---- the service ---- */

/* The longest wait for a service to start, or to end and start again. */
#define START_TIMEOUT_MS	15000

/* A backend waits this long for a heartbeat. */
#define SILENCE_MS		5000

/*
 * The time between two looks at a heartbeat that has not changed counts, but at most this much: if the backend
 * was stopped as well, the service is not to blame.  A backend that waits looks once a second at least.
 */
#define SILENCE_LOOK_MS	1500

/* Backends start no service for this time after a registered one did not start. */
#define RETRY_AFTER_TIMEOUT_MS	60000

/* The same after there was no free background worker slot. */
#define RETRY_AFTER_NO_SLOT_MS	1000

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

	if (gpusort_cuda_missing() != NULL)
		return;
	preloaded = true;
	gpusort_shmem_request(control_bytes());
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
	bool		overdue = state == GPUSORT_SERVICE_STARTING || state == GPUSORT_SERVICE_ENDING;

	/* another process may have written the time just before it changed the state */
	pg_read_barrier();
	overdue = overdue && gpusort_control->changed_at + START_TIMEOUT_MS <= gpusort_clock_ms();
	*reason = NULL;
	if (overdue && pg_atomic_read_u32(&gpusort_control->service_pid) != 0)
		*reason = state == GPUSORT_SERVICE_STARTING ? "The GPU service takes too long to start." :
			"The GPU service takes too long to end and start again.";
	else if (overdue)
		give_up_start("The GPU service did not start; see the server log.", RETRY_AFTER_TIMEOUT_MS);
	else if (state != GPUSORT_SERVICE_DOWN)
		return false;
	if (*reason == NULL && gpusort_clock_ms() < gpusort_control->retry_at)
		*reason = copy_failure();
	if (*reason != NULL)
		return false;
	gpusort_control->changed_at = gpusort_clock_ms();
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

/* The reason if the service has shown no heartbeat since a process gave up waiting for it, else NULL. */
static const char *
silent_reason(void)
{
	/* without a service process, it is to be started */
	if (pg_atomic_read_u32(&gpusort_control->service_pid) == 0 ||
		pg_atomic_read_u64(&gpusort_control->given_up_at) != pg_atomic_read_u64(&gpusort_control->heartbeat))
		return NULL;
	/* have the service show a heartbeat as soon as it goes on */
	gpusort_service_wake();
	return "The GPU service has not responded for 5 seconds.";
}

const char *
gpusort_service_silent(void)
{
	static uint64 seen = 0;		/* the heartbeat at the last look, in this wait or an earlier one */
	static uint64 looked_at = 0;	/* the time of that, in ms of base/clock.h */
	static uint64 silent_ms = 0;	/* the time for which it has stayed the same */
	uint64		heartbeat = pg_atomic_read_u64(&gpusort_control->heartbeat);
	uint64		now = gpusort_clock_ms();

	silent_ms = heartbeat == seen ? silent_ms + Min(now - looked_at, SILENCE_LOOK_MS) : 0;
	seen = heartbeat;
	looked_at = now;
	if (silent_ms >= SILENCE_MS)
		pg_atomic_write_u64(&gpusort_control->given_up_at, heartbeat);
	else if (silent_ms > 0)
		gpusort_service_wake();
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

	for (;;)
	{
		const char *reason = gpusort_service_start();

		if (reason != NULL || gpusort_service_state() == GPUSORT_SERVICE_READY)
			return reason;
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
