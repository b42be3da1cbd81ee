/*-------------------------------------------------------------------------
 *
 * pool.c
 *		The pool of shared chunks that keys travel in.
 *
 * Backends write keys into chunks, and the service, which has them registered
 * with CUDA, copies them to the device at full speed without touching them.
 * Making and first touching such memory costs five times as much as writing
 * it, in every process, so chunks are kept for the next sort, and a backend is
 * given chunks that it has mapped before where there are any.
 *
 * Chunks come in segments of dynamic shared memory, which the postmaster
 * removes after a crash.  A segment is pinned until gpusort_pool_trim() finds
 * it unused.  Other backends may still have it mapped then: its pages are
 * given back at once all the same, by MADV_REMOVE, and they unmap it when they
 * next look.
 *
 * A segment's file may be removed behind the server's back; systemd does so
 * with RemoveIPC when a user logs out.  The first process that misses it marks
 * the segment as gone.  Its free chunks are then offered to nobody, and it is
 * dropped with its last chunk in use.  A process that cannot map a segment
 * for reasons of its own, such as too many open files, leaves it to the others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/fault.h"
#include "gpu/control.h"
#include "gpu/pool.h"
#include "guc.h"

/* This process's view of a segment: valid while the handles agree. */
typedef struct MappedSegment
{
	dsm_handle	handle;
	dsm_segment *segment;		/* NULL: not mapped */
	char	   *base;
} MappedSegment;

static MappedSegment mapped[GPUSORT_MAX_SEGMENTS];

/* The slot that this process is making a segment for, or -1. */
static int	creating_slot = -1;

void		(*gpusort_pool_on_map) (int segment, char *base) = NULL;
void		(*gpusort_pool_on_unmap) (int segment, char *base) = NULL;

static void
remember(int index, dsm_handle handle, dsm_segment *segment)
{
	mapped[index].handle = handle;
	mapped[index].segment = segment;
	mapped[index].base = dsm_segment_address(segment);
	if (gpusort_pool_on_map)
		gpusort_pool_on_map(index, mapped[index].base);
}

static void
unmap(int index)
{
	if (gpusort_pool_on_unmap)
		gpusort_pool_on_unmap(index, mapped[index].base);
	dsm_detach(mapped[index].segment);
	mapped[index].segment = NULL;
}

/*
 * Unmaps what others have dropped.  The lock need not be held: what is dropped
 * has no chunk of ours, and what is dropped just now can wait.
 */
static void
unmap_stale(void)
{
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		if (mapped[i].segment != NULL &&
			mapped[i].handle != gpusort_control->segments[i].handle)
			unmap(i);
	}
}

static bool
is_mapped(int index)
{
	return mapped[index].segment != NULL &&
		mapped[index].handle == gpusort_control->segments[index].handle;
}

/* A free chunk, preferably one that this process has mapped, or -1. */
static int
find_free(void)
{
	int			found = -1;

	for (int chunk = 0; chunk < GPUSORT_MAX_CHUNKS; chunk++)
	{
		int			segment = chunk / GPUSORT_SEGMENT_CHUNKS;

		if (gpusort_control->segments[segment].handle == DSM_HANDLE_INVALID ||
			gpusort_control->segments[segment].gone ||
			gpusort_control->chunks[chunk].request >= 0)
			continue;
		if (is_mapped(segment))
			return chunk;
		if (found < 0)
			found = chunk;
	}
	return found;
}

static void
hold(int chunk, int request)
{
	gpusort_control->chunks[chunk].request = request;
	gpusort_control->chunks[chunk].next = -1;
	gpusort_control->chunks[chunk].bytes = 0;
}

/* Is a chunk of the segment in use? */
static bool
in_use(int index)
{
	for (int i = 0; i < GPUSORT_SEGMENT_CHUNKS; i++)
	{
		if (gpusort_control->chunks[index * GPUSORT_SEGMENT_CHUNKS + i].request >= 0)
			return true;
	}
	return false;
}

/*
 * Drops a segment, if it is one and no chunk of it is in use.  It is taken out
 * of the table under the lock, and is this process's alone to destroy from then
 * on.  That takes long: pages are given back, and the service has them
 * unregistered first.
 */
static void
drop_unused(int index)
{
	GpusortSegment *segment = &gpusort_control->segments[index];
	dsm_handle	handle;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	handle = in_use(index) ? DSM_HANDLE_INVALID : segment->handle;
	if (handle != DSM_HANDLE_INVALID)
	{
		segment->handle = DSM_HANDLE_INVALID;
		segment->gone = false;
	}
	LWLockRelease(&gpusort_control->lock);
	if (handle == DSM_HANDLE_INVALID)
		return;

	if (mapped[index].segment != NULL && mapped[index].handle == handle)
	{
		if (gpusort_pool_on_unmap)
			gpusort_pool_on_unmap(index, mapped[index].base);
#ifdef MADV_REMOVE
		(void) madvise(mapped[index].base, GPUSORT_SEGMENT_BYTES, MADV_REMOVE);
#endif
		dsm_detach(mapped[index].segment);
		mapped[index].segment = NULL;
	}
	dsm_unpin_segment(handle);
}

/* Segments that few can use would be in the way of others, as long as there is a limit. */
static void
drop_gone(void)
{
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		if (gpusort_control->segments[i].gone)
			drop_unused(i);
	}
}

/*
 * Segments that there may be.  A session that had an opinion of
 * gpusort.pool_limit before the library was loaded has lost it then, but the
 * configuration file's, too: its value is the built-in default.  The service
 * takes no client's options, so what it read counts as well.
 */
static int
segment_limit(void)
{
	int			limit = gpusort_pool_limit;

	if (gpusort_control->pool_limit > 0)
		limit = Min(limit, gpusort_control->pool_limit);
	return Min(GPUSORT_MAX_SEGMENTS,
			   (int) ((uint64) limit * 1024 * 1024 / GPUSORT_SEGMENT_BYTES));
}

int
gpusort_pool_room(void)
{
	int			room = 0;
	int			count = 0;

	drop_gone();
	LWLockAcquire(&gpusort_control->lock, LW_SHARED);
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		GpusortSegment *segment = &gpusort_control->segments[i];

		if (segment->handle == DSM_HANDLE_INVALID && !segment->creating)
			continue;
		count++;
		if (segment->creating || segment->gone)
			continue;
		for (int j = 0; j < GPUSORT_SEGMENT_CHUNKS; j++)
			room += gpusort_control->chunks[i * GPUSORT_SEGMENT_CHUNKS + j].request < 0;
	}
	LWLockRelease(&gpusort_control->lock);
	return room + Max(segment_limit() - count, 0) * GPUSORT_SEGMENT_CHUNKS;
}

/* A slot for a new segment, or -1 if the limit is reached. */
static int
find_segment_slot(void)
{
	int			limit = segment_limit();
	int			slot = -1;
	int			count = 0;

	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		GpusortSegment *segment = &gpusort_control->segments[i];

		if (segment->handle != DSM_HANDLE_INVALID || segment->creating)
			count++;
		else if (slot < 0)
			slot = i;
	}
	return count < limit ? slot : -1;
}

/*
 * Makes a segment that outlives this process, or maps the one that handle
 * names.  dsm_create() and dsm_attach() raise an error when /dev/shm is full or
 * there are too many files open or mappings; a resource owner of our own lets
 * us drop what they left behind and go on without aborting the transaction, or,
 * in the service, without ending.  Returns NULL with *reason, and with *gone if
 * no other process could map it either.
 */
static dsm_segment *
open_segment(dsm_handle handle, bool *gone, const char **reason)
{
	static char message[160];
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner old = CurrentResourceOwner;
	ResourceOwner owner = ResourceOwnerCreate(NULL, "gpusort segment");
	dsm_segment *volatile segment = NULL;

	*gone = false;
	strlcpy(message, handle == DSM_HANDLE_INVALID ? "There are too many dynamic shared memory segments." :
			"A segment of the chunk pool has gone.", sizeof(message));
	CurrentResourceOwner = owner;
	PG_TRY();
	{
		if (handle == DSM_HANDLE_INVALID)
		{
			(void) GPUSORT_FAULT(SEGMENT);
			segment = dsm_create(GPUSORT_SEGMENT_BYTES, DSM_CREATE_NULL_IF_MAXSEGMENTS);
		}
		else
			segment = GPUSORT_FAULT(MAP) ? NULL : dsm_attach(handle);
		if (segment != NULL)
			dsm_pin_mapping(segment);
		if (segment != NULL && handle == DSM_HANDLE_INVALID)
			dsm_pin_segment(segment);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		snprintf(message, sizeof(message), handle == DSM_HANDLE_INVALID ?
				 "The chunk pool could not grow: %s." : "A segment of the chunk pool could not be mapped: %s.",
				 error->message);
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

	if (segment == NULL)
		*reason = message;
	return segment;
}

int
gpusort_pool_take_existing(int request)
{
	int			chunk;

	unmap_stale();
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	chunk = GPUSORT_FAULT(FREE_CHUNK) ? -1 : find_free();
	if (chunk >= 0)
		hold(chunk, request);
	LWLockRelease(&gpusort_control->lock);
	return chunk;
}

int
gpusort_pool_take(int request, const char **reason)
{
	int			chunk;
	int			slot;
	bool		gone;
	dsm_segment *segment;

	if (GPUSORT_FAULT(CHUNK))
	{
		*reason = GPUSORT_POOL_EXHAUSTED;
		return -1;
	}
	chunk = gpusort_pool_take_existing(request);
	if (chunk >= 0)
		return chunk;

	drop_gone();
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	slot = find_segment_slot();
	if (slot >= 0)
		gpusort_control->segments[slot].creating = true;
	creating_slot = slot;
	LWLockRelease(&gpusort_control->lock);
	if (slot < 0)
	{
		*reason = GPUSORT_POOL_EXHAUSTED;
		return -1;
	}

	segment = open_segment(DSM_HANDLE_INVALID, &gone, reason);

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	gpusort_control->segments[slot].creating = false;
	creating_slot = -1;
	if (segment != NULL)
	{
		gpusort_control->segments[slot].handle = dsm_segment_handle(segment);
		chunk = slot * GPUSORT_SEGMENT_CHUNKS;
		hold(chunk, request);
	}
	LWLockRelease(&gpusort_control->lock);
	if (segment != NULL)
		remember(slot, dsm_segment_handle(segment), segment);
	return chunk;
}

char *
gpusort_pool_map(int chunk, const char **reason)
{
	int			index = chunk / GPUSORT_SEGMENT_CHUNKS;

	if (!is_mapped(index))
	{
		dsm_handle	handle = gpusort_control->segments[index].handle;
		bool		gone;
		dsm_segment *segment;

		if (mapped[index].segment != NULL)
			unmap(index);
		segment = open_segment(handle, &gone, reason);
		if (gone)
		{
			LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
			gpusort_control->segments[index].gone = gpusort_control->segments[index].handle == handle;
			LWLockRelease(&gpusort_control->lock);
		}
		if (segment == NULL)
			return NULL;
		remember(index, handle, segment);
	}
	return mapped[index].base + (chunk % GPUSORT_SEGMENT_CHUNKS) * GPUSORT_CHUNK_BYTES;
}

void
gpusort_pool_exit(void)
{
	Assert(LWLockHeldByMeInMode(&gpusort_control->lock, LW_EXCLUSIVE));
	if (creating_slot >= 0)
		gpusort_control->segments[creating_slot].creating = false;
	creating_slot = -1;
}

void
gpusort_pool_give(int chunk)
{
	Assert(LWLockHeldByMeInMode(&gpusort_control->lock, LW_EXCLUSIVE));
	gpusort_control->chunks[chunk].request = -1;
}

void
gpusort_pool_free_request(int index)
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

void
gpusort_pool_trim(void)
{
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
		drop_unused(i);
}

void
gpusort_pool_usage(uint64 *exist, uint64 *used)
{
	*exist = *used = 0;
	LWLockAcquire(&gpusort_control->lock, LW_SHARED);
	for (int i = 0; i < GPUSORT_MAX_CHUNKS; i++)
	{
		if (gpusort_control->segments[i / GPUSORT_SEGMENT_CHUNKS].handle == DSM_HANDLE_INVALID)
			continue;
		*exist += GPUSORT_CHUNK_BYTES;
		if (gpusort_control->chunks[i].request >= 0)
			*used += GPUSORT_CHUNK_BYTES;
	}
	LWLockRelease(&gpusort_control->lock);
}
