/*-------------------------------------------------------------------------
 *
 * control.c
 *		Makes the control block in shared memory and finds it again.
 *
 * The first process that needs the block makes it.  Without
 * shared_preload_libraries it takes the memory from the spare room of
 * PostgreSQL's main shared memory (base/shmem.c).  The number of request slots
 * depends on max_connections, and without preload on that room, of which they
 * leave a part to other extensions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker_internals.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
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

void
gpusort_control_request_memory(void)
{
	preloaded = true;
	gpusort_shmem_request(control_bytes());
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
