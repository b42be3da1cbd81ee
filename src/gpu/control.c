/*-------------------------------------------------------------------------
 *
 * control.c
 *		Makes the control block in shared memory and finds it again.
 *
 * The first process that needs the block makes it.  Without
 * shared_preload_libraries it takes the memory from the spare room of
 * PostgreSQL's main shared memory (base/shmem.c).  The request slots are memory of
 * their own: their number depends on max_connections, and without preload on the
 * reserve, of which they leave a part to other extensions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker_internals.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/shmem.h"
#include "compat.h"
#include "gpu/control.h"

/* The name of the tranche of the control block's lock */
#define TRANCHE		"gpusort"

StaticAssertDecl(sizeof(GpusortControl) < 28000,
				 "the control block must leave room for other extensions");

GpusortControl *gpusort_control = NULL;

/* Without preload, fewer slots than this are not worth a service. */
#define FEWEST_REQUESTS		16

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

void
gpusort_control_request_memory(void)
{
	preloaded = true;
	gpusort_shmem_request(sizeof(GpusortControl));
	gpusort_shmem_request(wanted_requests() * sizeof(GpusortRequest));
}

/* Sets every field to its value before the first use, with this table of slots. */
static void
init_control(GpusortControl *control, GpusortRequest *requests, int nrequests)
{
	memset(control, 0, sizeof(*control));
	pg_atomic_init_u32(&control->lock_uses, 0);
	pg_atomic_init_u32(&control->lock_stuck_at, PG_UINT32_MAX);
	pg_atomic_init_u64(&control->next_sequence, 0);
	pg_atomic_init_u64(&control->heartbeat, 1);
	pg_atomic_init_u32(&control->step_ms, 0);
	pg_atomic_init_u64(&control->given_up_at, 0);
	pg_atomic_init_u32(&control->service_state, GPUSORT_SERVICE_DOWN);
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
		control->segments[i].handle = DSM_HANDLE_INVALID;
	for (int i = 0; i < GPUSORT_MAX_CHUNKS; i++)
		control->chunks[i].request = -1;
	for (int i = 0; i < GPUSORT_MAX_SPLITS; i++)
		control->splits[i] = -1;
	for (int i = 0; i < lengthof(control->in_use); i++)
		pg_atomic_init_u64(&control->in_use[i], 0);

	memset(requests, 0, nrequests * sizeof(GpusortRequest));
	for (int i = 0; i < nrequests; i++)
	{
		pg_atomic_init_u32(&requests[i].state, GPUSORT_REQUEST_FREE);
		pg_atomic_init_u32(&requests[i].nclosed, 0);
		pg_atomic_init_u32(&requests[i].ready, 0);
		pg_atomic_init_u32(&requests[i].consumed, 0);
	}
	control->requests = requests;
	control->nrequests = nrequests;
}

/* Makes the block: takes room for the slots, and the lock's tranche. */
static void
make_control(void *made)
{
	GpusortControl *control = made;
	int			nrequests = wanted_requests();
	GpusortRequest *requests;

	control->nrequests = 0;
	while ((requests = ShmemAllocNoError(nrequests * sizeof(GpusortRequest))) == NULL)
	{
		nrequests = nrequests / 4 * 3;
		if (nrequests < FEWEST_REQUESTS)
			return;
	}
	init_control(control, requests, nrequests);
	control->tranche = gpusort_new_tranche(TRANCHE);
	LWLockInitialize(&control->lock, control->tranche);
}

bool
gpusort_control_attach(const char **reason)
{
	static GpusortShmem shared = {GPUSORT_SHMEM_NAME("control"), sizeof(GpusortControl), make_control};
	GpusortControl *control;

	if (gpusort_control != NULL)
		return true;
	if (!gpusort_shmem_attach(&shared))
	{
		*reason = shared.refusal;
		return false;
	}
	control = shared.mem;
	if (control->nrequests == 0)
	{
		*reason = "There is no shared memory left for gpusort's requests; add gpusort to shared_preload_libraries.";
		return false;
	}
	/* from PostgreSQL 19 on, tranches can run out while the block is initialised */
	if (control->tranche == 0)
	{
		*reason = "PostgreSQL has no tranche left for gpusort's lock.";
		return false;
	}
	gpusort_register_tranche(control->tranche, TRANCHE);
	gpusort_control = control;
	return true;
}

void
gpusort_control_set_down(const char *failure, uint64 retry_ms)
{
	gpusort_control->retry_at = 0;
	if (failure != NULL)
	{
		strlcpy(gpusort_control->failure, failure, sizeof(gpusort_control->failure));
		gpusort_control->failed_at = GetCurrentTimestamp();
		gpusort_control->retry_at = gpusort_clock_ms() + retry_ms;
	}
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);
}

void
gpusort_control_fail(GpusortRequest *request, uint32 serial, const char *reason)
{
	GpusortRequestState state = gpusort_request_state(request);

	if (!gpusort_request_is_active(state) || gpusort_request_serial(request) != serial)
		return;
	strlcpy(request->error, reason, sizeof(request->error));
	while (!gpusort_request_change(request, serial, state, GPUSORT_REQUEST_FAILED))
	{
		/* the backend has submitted the request, or left it */
		state = gpusort_request_state(request);
		if (!gpusort_request_is_active(state) || gpusort_request_serial(request) != serial)
			return;
	}
	SetLatch(request->latch);
}

/* ----------------------------------------------------------------
 *		The lock
 *
 * Any process may be stopped at any instruction: by SIGSTOP, by a debugger, or with its
 * cgroup.  LWLockAcquire() would wait for it, and could not be cancelled.  So gpusort takes
 * its lock by LWLockConditionalAcquire() only.  A process that finds it held by one use for
 * LOCK_STUCK_MS gives up and notes that use, and others that find the same use give up at
 * once.  Nothing that ends a sort needs the lock (gpu/request.c).
 * ----------------------------------------------------------------
 */

/* The lock is stuck if one process holds it for this long. */
#define LOCK_STUCK_MS		5000

/* A process looks this often before it first sleeps.  A holder needs a few microseconds. */
#define LOOKS_BEFORE_SLEEP	100

#define FIRST_PAUSE_US		50
#define LONGEST_PAUSE_US	1000

/* Has one process held the lock for too long?  uses is the use that this process found. */
static bool
is_stuck(GpusortSilence *silence, uint32 uses)
{
	if (pg_atomic_read_u32(&gpusort_control->lock_stuck_at) == uses)
		return true;
	if (gpusort_silence_ms(silence, uses) < LOCK_STUCK_MS)
		return false;
	pg_atomic_write_u32(&gpusort_control->lock_stuck_at, uses);
	return true;
}

static const char *
stuck_reason(void)
{
	static char reason[100];

	snprintf(reason, sizeof(reason), "Process %d has held the lock of gpusort's shared memory for more than %d seconds.",
			 gpusort_control->lock_pid, LOCK_STUCK_MS / 1000);
	return reason;
}

const char *
gpusort_lock_try(void)
{
	GpusortSilence silence = {0};
	long		pause_us = FIRST_PAUSE_US;

	for (int looks = 1; !LWLockConditionalAcquire(&gpusort_control->lock, LW_EXCLUSIVE); looks++)
	{
		if (is_stuck(&silence, pg_atomic_read_u32(&gpusort_control->lock_uses)))
			return stuck_reason();
		if (looks < LOOKS_BEFORE_SLEEP)
			continue;
		pgstat_report_wait_start(PG_WAIT_LWLOCK | gpusort_control->tranche);
		pg_usleep(pause_us);
		pgstat_report_wait_end();
		pause_us = Min(2 * pause_us, LONGEST_PAUSE_US);
		CHECK_FOR_INTERRUPTS();
	}
	gpusort_control->lock_pid = MyProcPid;
	pg_atomic_write_u32(&gpusort_control->lock_uses, pg_atomic_read_u32(&gpusort_control->lock_uses) + 1);
	(void) GPUSORT_FAULT(LOCK);
	return NULL;
}

void
gpusort_lock_take(void)
{
	while (gpusort_lock_try() != NULL)
		pg_usleep(LONGEST_PAUSE_US);
}

void
gpusort_lock_release(void)
{
	LWLockRelease(&gpusort_control->lock);
}
