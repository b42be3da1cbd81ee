/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		PostgreSQL's main shared memory, with or without preloading.
 *
 * If gpusort is in shared_preload_libraries, it requests the memory before the
 * server allocates it.  Otherwise the first backend that needs the memory takes
 * it from the 100 kB that PostgreSQL reserves for structures it cannot foresee.
 * pg_prewarm does the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/shmem.h"

static Size requested = 0;
static shmem_request_hook_type prev_shmem_request_hook = NULL;

static void
request_all(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(requested);
}

void
gpusort_shmem_request(Size size)
{
	if (requested == 0)
	{
		prev_shmem_request_hook = shmem_request_hook;
		shmem_request_hook = request_all;
	}
	requested += CACHELINEALIGN(size);
}

void *
gpusort_shmem_attach(const char *name, Size size, void (*init) (void *made))
{
	MemoryContext cxt = CurrentMemoryContext;
	void	   *volatile shared = NULL;
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	PG_TRY();
	{
		shared = ShmemInitStruct(name, size, &found);
		if (!found)
			init(shared);
	}
	PG_CATCH();
	{
		/* the reserve has been used up, or init() had no tranche left */
		MemoryContextSwitchTo(cxt);
		FlushErrorState();

		/*
		 * In PostgreSQL 19, ShmemInitStruct() raises it with a lock of its own
		 * held, which only shmem.c can name.  Callers of this function hold no
		 * locks.
		 */
		LWLockReleaseAll();
	}
	PG_END_TRY();
	if (LWLockHeldByMe(AddinShmemInitLock))
		LWLockRelease(AddinShmemInitLock);
	return shared;
}
