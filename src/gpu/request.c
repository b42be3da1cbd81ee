/*-------------------------------------------------------------------------
 *
 * request.c
 *		Takes and releases a backend's request to the GPU service.
 *
 * A backend that raises an error must not free its request at once: the service
 * may be copying to and from its chunks.  So a backend frees its request itself
 * only if the service does not use it; otherwise it abandons the request, and
 * the service frees it.
 *
 * A reset callback of the run's memory context does this, however the
 * transaction ends.  A second callback does it when the process exits: memory
 * contexts are usually reset before, but not always after FATAL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "gpu/pool.h"
#include "gpu/request.h"
#include "gpu/start.h"
#include "guc.h"

static int	held_requests = 0;

int
gpusort_requests_held(void)
{
	return held_requests;
}

void
gpusort_request_release(GpusortHeldRequest *held)
{
	GpusortRequest *request;
	bool		unserved;

	if (held->index < 0)
		return;
	request = &gpusort_control->requests[held->index];
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	/* an error may have interrupted gpusort_pool_take(), which does not run now */
	gpusort_pool_forget_creation();
	if (request->serial == held->serial && request->pid == MyProcPid)
	{
		GpusortRequestState state = gpusort_request_state(request);

		if (!gpusort_control_served() ||
			state == GPUSORT_REQUEST_FINISHED || state == GPUSORT_REQUEST_FAILED)
			gpusort_pool_free_request(held->index);
		else
			pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_ABANDONED);
	}
	unserved = gpusort_control->service_pid == 0;
	LWLockRelease(&gpusort_control->lock);
	held->index = -1;
	held_requests--;
	/* a service would trim the pool; without one, backends do */
	if (unserved)
		gpusort_pool_trim();
	gpusort_service_wake();
}

static void
release_callback(void *arg)
{
	gpusort_request_release((GpusortHeldRequest *) arg);
}

/* Abandons, or frees, every request that this process still holds. */
static void
backend_exit(int code, Datum arg)
{
	bool		unserved;

	/*
	 * FATAL runs this callback before the one that releases all locks.  No code
	 * under the control lock raises, so it left no change half done.
	 */
	LWLockReleaseAll();
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	gpusort_pool_forget_creation();
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];

		if (request->pid != MyProcPid ||
			gpusort_request_state(request) == GPUSORT_REQUEST_FREE)
			continue;
		if (!gpusort_control_served())
			gpusort_pool_free_request(i);
		else
			pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_ABANDONED);
		request->pid = 0;
	}
	unserved = gpusort_control->service_pid == 0;
	LWLockRelease(&gpusort_control->lock);
	if (unserved)
		gpusort_pool_trim();
	gpusort_service_wake();
}

/* Takes a free slot and fills it in for the run.  Returns its index, or -1 if none is free. */
static int
take_slot(const GpusortRun *run)
{
	int			index = -1;

	if (GPUSORT_FAULT(REQUEST))
		return -1;
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];

		if (gpusort_request_state(request) != GPUSORT_REQUEST_FREE)
			continue;
		request->serial++;
		request->pid = MyProcPid;
		request->latch = MyLatch;
		request->sequence = gpusort_control->next_sequence++;
		request->expected_rows = Max(run->rows, run->spec.expected_rows);
		request->key_bytes = run->spec.key_bytes;
		request->words = Max(run->spec.words, 1);
		request->want_rows = run->spec.rows;
		request->algorithm = gpusort_algorithm;
		request->bins = gpusort_bins;
		request->first_chunk = request->last_chunk = -1;
		request->nring = 0;
		request->in_pieces = false;
		request->merge_key.parts = 0;
		request->error[0] = '\0';
		pg_atomic_write_u32(&request->nclosed, 0);
		pg_atomic_write_u32(&request->ready, 0);
		pg_atomic_write_u32(&request->consumed, 0);
		pg_write_barrier();
		pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_GATHERING);
		index = i;
		break;
	}
	LWLockRelease(&gpusort_control->lock);
	return index;
}

bool
gpusort_request_take(GpusortHeldRequest *held, GpusortRun *run)
{
	static bool exit_registered = false;

	if (!exit_registered)
	{
		before_shmem_exit(backend_exit, 0);
		exit_registered = true;
	}
	held->index = take_slot(run);
	if (held->index < 0)
		return false;
	held_requests++;
	held->serial = gpusort_control->requests[held->index].serial;
	held->callback.func = release_callback;
	held->callback.arg = held;
	MemoryContextRegisterResetCallback(run->cxt, &held->callback);
	return true;
}
