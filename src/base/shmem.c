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
 * Structures of different versions differ in size and meaning.  So the first
 * process to make one leaves its version in a structure of its own, whose name and
 * size are the same in all versions.  A process of another version uses none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "base/shmem.h"

/* Room for a version; never change it. */
#define VERSION_BYTES	64

static Size requested = 0;
static shmem_request_hook_type prev_shmem_request_hook = NULL;

static void
request_all(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(requested + CACHELINEALIGN(VERSION_BYTES));
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

/*
 * Have processes of this version made gpusort's structures, or none yet?  Otherwise
 * sets *reason.
 */
static bool
is_ours(const char **reason)
{
	static char other[160];
	bool		found;
	char	   *version = ShmemInitStruct("gpusort version", VERSION_BYTES, &found);

	if (!found)
		strlcpy(version, GPUSORT_VERSION, VERSION_BYTES);
	if (strcmp(version, GPUSORT_VERSION) == 0)
		return true;
	snprintf(other, sizeof(other),
			 "This session has gpusort %s, and the server's shared memory is that of gpusort %s; restart the server.",
			 GPUSORT_VERSION, version);
	*reason = other;
	return false;
}

void *
gpusort_shmem_attach(const char *name, Size size, void (*init) (void *made), const char **reason)
{
	MemoryContext cxt = CurrentMemoryContext;
	void	   *volatile shared = NULL;
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	PG_TRY();
	{
		if (is_ours(reason))
		{
			shared = ShmemInitStruct(name, size, &found);
			if (!found)
				init(shared);
		}
	}
	PG_CATCH();
	{
		/* the reserve has been used up, or init() had no tranche left */
		*reason = "There is no shared memory left for gpusort; add gpusort to shared_preload_libraries.";
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
