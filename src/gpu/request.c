/*-------------------------------------------------------------------------
 *
 * request.c
 *		Takes and releases a backend's request to the GPU service.
 *
 * The service may be copying to and from a request's chunks when its backend raises an
 * error.  So a backend frees its request itself only if the service does not use it;
 * otherwise it abandons the request, and the service frees it.  That neither needs the lock
 * nor waits, since the service may be stopped, or a process that holds the lock.
 *
 * A reset callback of the run's memory context does this, and one at the process's exit:
 * memory contexts are not always reset after FATAL.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "gpu/pool.h"
#include "gpu/request.h"
#include "gpu/start.h"
#include "guc.h"

static int	held_requests = 0;

/* By slot: the serial of the request that this process holds there, or 0.  NULL before the first request. */
static uint32 *held_serials = NULL;

static const char *const no_slot = "Every request slot of the GPU service is in use.";

int
gpusort_requests_held(void)
{
	return held_requests;
}

/*
 * Gives up the request that this process holds in this slot, if any: frees it if the
 * service does not use it, else leaves that to the service.
 */
static void
give_up(int index)
{
	GpusortRequest *request = &gpusort_control->requests[index];
	uint32		serial = held_serials[index];

	held_serials[index] = 0;
	while (serial != 0 && gpusort_request_serial(request) == serial)
	{
		GpusortRequestState state = gpusort_request_state(request);

		switch (state)
		{
			case GPUSORT_REQUEST_GATHERING:
			case GPUSORT_REQUEST_SUBMITTED:
			case GPUSORT_REQUEST_RETURNING:
			case GPUSORT_REQUEST_LEFT:
				(void) gpusort_request_change(request, serial, state, GPUSORT_REQUEST_ABANDONED);
				break;

			case GPUSORT_REQUEST_ABANDONED:
				if (!gpusort_control_served())
					gpusort_pool_free_request(index, serial, state);
				return;

			case GPUSORT_REQUEST_FINISHED:
			case GPUSORT_REQUEST_FAILED:
				gpusort_pool_free_request(index, serial, state);
				return;

			case GPUSORT_REQUEST_FREE:
			case GPUSORT_REQUEST_CLEARING:
				return;
		}
	}
}

/* Lets the service free what this process has given up, or trims the pool if there is no service. */
static void
after_release(void)
{
	if (gpusort_control->service_pid == 0)
		gpusort_pool_trim();
	gpusort_service_wake();
}

void
gpusort_request_release(GpusortHeldRequest *held)
{
	int			index = held->index;

	if (index < 0)
		return;
	held->index = -1;
	held_requests--;
	/* an error may have interrupted gpusort_pool_take(), which does not run now */
	gpusort_pool_forget_creation();
	/* on FATAL, backend_exit() has given it up already */
	if (held_serials[index] == held->serial)
		give_up(index);
	after_release();
}

static void
release_callback(void *arg)
{
	gpusort_request_release((GpusortHeldRequest *) arg);
}

/* Gives up every request that this process still holds. */
static void
backend_exit(int code, Datum arg)
{
	/*
	 * FATAL runs this callback before the one that releases all locks.  Trimming
	 * the pool needs the control lock and one of PostgreSQL's.
	 */
	LWLockReleaseAll();
	gpusort_pool_forget_creation();
	for (int i = 0; i < gpusort_control->nrequests; i++)
		give_up(i);
	after_release();
}

/* Finds a free slot; -1: none.  A slot whose bit is clear may be about to become FREE.  The caller holds the lock. */
static int
find_slot(void)
{
	for (int first = 0; first < gpusort_control->nrequests; first += 64)
	{
		uint64		unused = ~pg_atomic_read_u64(&gpusort_control->in_use[first / 64]);

		for (; unused != 0; unused &= unused - 1)
		{
			int			i = first + pg_rightmost_one_pos64(unused);

			if (i >= gpusort_control->nrequests)
				break;
			if (gpusort_request_state(&gpusort_control->requests[i]) == GPUSORT_REQUEST_FREE)
				return i;
		}
	}
	return -1;
}

/* Takes a free slot and fills it in.  Returns its index, or -1 with a *reason. */
static int
take_slot(const GpusortClientSpec *spec, const char **reason)
{
	int			index;

	*reason = GPUSORT_FAULT(REQUEST) ? no_slot : gpusort_lock_try();
	if (*reason != NULL)
		return -1;
	index = find_slot();
	if (index >= 0)
	{
		GpusortRequest *request = &gpusort_control->requests[index];
		uint32		serial = gpusort_request_serial(request) % GPUSORT_MAX_SERIAL + 1;

		request->pid = MyProcPid;
		request->latch = MyLatch;
		request->key_bytes = spec->key_bytes;
		request->words = spec->words;
		request->want_rows = spec->positions;
		request->algorithm = gpusort_algorithm;
		request->first_chunk = request->last_chunk = -1;
		request->nring = 0;
		request->large_result = -1;
		request->error[0] = '\0';
		pg_atomic_write_u32(&request->nclosed, 0);
		pg_atomic_write_u32(&request->ready, 0);
		pg_atomic_write_u32(&request->consumed, 0);
		pg_atomic_fetch_or_u64(&gpusort_control->in_use[index / 64], UINT64CONST(1) << index % 64);
		held_serials[index] = serial;
		pg_write_barrier();
		pg_atomic_write_u32(&request->state, gpusort_request_word(serial, GPUSORT_REQUEST_GATHERING));
	}
	gpusort_lock_release();
	if (index < 0)
		*reason = no_slot;
	return index;
}

const char *
gpusort_request_take(GpusortHeldRequest *held, MemoryContext cxt, const GpusortClientSpec *spec)
{
	const char *reason;

	if (held_serials == NULL)
	{
		held_serials = MemoryContextAllocZero(TopMemoryContext,
											  gpusort_control->nrequests * sizeof(*held_serials));
		before_shmem_exit(backend_exit, 0);
	}
	held->index = take_slot(spec, &reason);
	if (held->index < 0)
		return reason;
	held_requests++;
	held->serial = held_serials[held->index];
	held->callback.func = release_callback;
	held->callback.arg = held;
	MemoryContextRegisterResetCallback(cxt, &held->callback);
	return NULL;
}
