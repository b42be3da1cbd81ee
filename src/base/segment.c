/*-------------------------------------------------------------------------
 *
 * segment.c
 *		Segments of dynamic shared memory, without errors.
 *
 * dsm_create() and dsm_attach() raise an error if /dev/shm is full, or if there
 * are too many open files or mappings.  This must neither abort the backend's
 * transaction nor end the GPU service: both can go on without the segment.  So the error is
 * caught, and a resource owner of its own releases whatever the failed call left.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/fault.h"
#include "base/segment.h"

dsm_segment *
gpusort_segment_open(dsm_handle handle, Size bytes, char *message, bool *gone)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner old = CurrentResourceOwner;
	ResourceOwner owner = ResourceOwnerCreate(NULL, "gpusort segment");
	dsm_segment *volatile segment = NULL;

	*gone = false;
	strlcpy(message, handle == DSM_HANDLE_INVALID ? "there are too many dynamic shared memory segments" :
			"the segment no longer exists", GPUSORT_SEGMENT_MESSAGE);
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		if (handle == DSM_HANDLE_INVALID)
		{
			(void) GPUSORT_FAULT(SEGMENT);
			segment = dsm_create(bytes, DSM_CREATE_NULL_IF_MAXSEGMENTS);
		}
		else
			segment = GPUSORT_FAULT(MAP) ? NULL : dsm_attach(handle);
		if (segment != NULL)
			dsm_pin_mapping(segment);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		strlcpy(message, error->message, GPUSORT_SEGMENT_MESSAGE);
		*gone = error->sqlerrcode == ERRCODE_UNDEFINED_FILE;
		FreeErrorData(error);
		segment = NULL;
	}
	PG_END_TRY();
	CurrentResourceOwner = old;
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, true);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_LOCKS, false, true);
	ResourceOwnerRelease(owner, RESOURCE_RELEASE_AFTER_LOCKS, false, true);
	ResourceOwnerDelete(owner);
	return segment;
}
