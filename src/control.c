/*-------------------------------------------------------------------------
 *
 * control.c
 *		The control block in shared memory.
 *
 * Without shared_preload_libraries the block is made by the first backend
 * that needs it, from the 100 kB that PostgreSQL sets aside for such late
 * comers; pg_prewarm does the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "control.h"
#include "pool.h"

StaticAssertDecl(sizeof(GpusortControl) < 50000,
				 "control block must leave room for other extensions");

GpusortControl *gpusort_control = NULL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(GpusortControl)));
}

void
gpusort_control_request_memory(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
}

static void
init_control(GpusortControl *control)
{
	memset(control, 0, sizeof(*control));
	control->tranche = LWLockNewTrancheId();
	LWLockInitialize(&control->lock, control->tranche);
	pg_atomic_init_u32(&control->service_state, GPUSORT_SERVICE_DOWN);
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
		control->segments[i].handle = DSM_HANDLE_INVALID;
	for (int i = 0; i < GPUSORT_MAX_CHUNKS; i++)
		control->chunks[i].request = -1;
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequest *request = &control->requests[i];

		pg_atomic_init_u32(&request->state, GPUSORT_REQUEST_FREE);
		pg_atomic_init_u32(&request->nclosed, 0);
		pg_atomic_init_u32(&request->ready, 0);
		pg_atomic_init_u32(&request->consumed, 0);
	}
}

bool
gpusort_control_attach(const char **reason)
{
	volatile bool attached = true;
	MemoryContext cxt = CurrentMemoryContext;
	GpusortControl *volatile control = NULL;
	bool		found;

	if (gpusort_control != NULL)
		return true;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	PG_TRY();
	{
		control = ShmemInitStruct("gpusort", sizeof(GpusortControl), &found);
		if (!found)
			init_control(control);
	}
	PG_CATCH();
	{
		/* the only error here is that the spare room has been used up */
		MemoryContextSwitchTo(cxt);
		FlushErrorState();
		HOLD_INTERRUPTS();		/* the error reset what LWLockRelease resumes */
		attached = false;
	}
	PG_END_TRY();
	LWLockRelease(AddinShmemInitLock);

	if (!attached)
	{
		*reason = "There is no shared memory left for gpusort; add gpusort to shared_preload_libraries.";
		return false;
	}
	LWLockRegisterTranche(control->tranche, "gpusort");
	gpusort_control = control;
	return true;
}

void
gpusort_control_free_request(int index)
{
	GpusortRequest *request = &gpusort_control->requests[index];

	Assert(LWLockHeldByMeInMode(&gpusort_control->lock, LW_EXCLUSIVE));
	/* the open chunk and the ring are in no list */
	for (int chunk = 0; chunk < GPUSORT_MAX_CHUNKS; chunk++)
	{
		if (gpusort_control->chunks[chunk].request == index)
			gpusort_pool_give(chunk);
	}
	request->first_chunk = request->last_chunk = -1;
	request->nring = 0;
	request->pid = 0;
	pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FREE);
}
