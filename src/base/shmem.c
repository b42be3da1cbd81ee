/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		What processes share: structures in PostgreSQL's main shared memory, plans, and libraries.
 *
 * If gpusort is in shared_preload_libraries, it requests the memory before the
 * server allocates it.  Otherwise the first backend that needs the memory takes
 * it from the 100 kB that PostgreSQL reserves for structures it cannot foresee.
 * pg_prewarm does the same.
 *
 * The library gpusort_cuda has the kernels and CUDA's runtime, many megabytes.  Only the GPU
 * service loads it; other processes ask whether its file exists, beside that of this library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "miscadmin.h"
#include "nodes/value.h"
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
gpusort_shmem_attach(GpusortShmem *shared)
{
	MemoryContext cxt = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	void	   *mem;
	bool		found;

	if (shared->mem != NULL || shared->refusal != NULL)
		return shared->mem;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	PG_TRY();
	{
		mem = ShmemInitStruct(shared->name, shared->size, &found);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_OUT_OF_MEMORY)
			PG_RE_THROW();
		/* the reserve has been used up */
		shared->refusal = "There is no shared memory left for gpusort; add gpusort to shared_preload_libraries.";
		mem = NULL;
		MemoryContextSwitchTo(cxt);
		FlushErrorState();

		/*
		 * In PostgreSQL 19, ShmemInitStruct() raises it with a lock of its own
		 * held, which only shmem.c can name.  Callers of this function hold no
		 * locks.
		 */
		LWLockReleaseAll();
		/* an error sets these to 0 */
		InterruptHoldoffCount = holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
	}
	PG_END_TRY();
	if (mem == NULL)
		return NULL;
	if (!found)
		shared->init(mem);
	shared->mem = mem;
	LWLockRelease(AddinShmemInitLock);
	return mem;
}

void
gpusort_plan_mark(CustomScan *scan)
{
	scan->custom_private = lappend(scan->custom_private, makeString(pstrdup(GPUSORT_VERSION)));
}

void
gpusort_version_check(const char *version)
{
	if (strcmp(version, GPUSORT_VERSION) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the processes of this parallel query have loaded different versions of gpusort"),
				 errdetail("The session has version %s, and its worker has version %s.",
						   version, GPUSORT_VERSION),
				 errhint("Reconnect, so that the session loads the new version.")));
}

Node *
gpusort_plan_make_state(const CustomScan *scan, Size bytes, const CustomExecMethods *methods)
{
	Node	   *last = scan->custom_private == NIL ? NULL : llast(scan->custom_private);
	CustomScanState *state = palloc0(bytes);

	gpusort_version_check(last != NULL && IsA(last, String) ? strVal(last) : "unknown");
	NodeSetTag(state, T_CustomScanState);
	state->methods = methods;
	return (Node *) state;
}

/* ---- libraries ---- */

/* The path of the file that this code was loaded from; empty if it is not known. */
static const char *
library_path(void)
{
	Dl_info		info;

	if (dladdr((void *) library_path, &info) != 0 && info.dli_fname != NULL)
		return info.dli_fname;
	return "";
}

const char *
gpusort_cuda_path(void)
{
	static char path[MAXPGPATH];
	const char *own = library_path();
	const char *slash = strrchr(own, '/');

	snprintf(path, sizeof(path), "%.*s" GPUSORT_CUDA_NAME, slash != NULL ? (int) (slash + 1 - own) : 0, own);
	return path;
}

const char *
gpusort_cuda_missing(void)
{
	return access(gpusort_cuda_path(), F_OK) == 0 ? NULL : "The library " GPUSORT_CUDA_NAME " is not installed.";
}

const char *
gpusort_library_name(size_t room)
{
	const char *path = library_path();

	return path[0] != '\0' && strlen(path) < room ? path : "gpusort";
}
