/*-------------------------------------------------------------------------
 *
 * pool.c
 *		The pool of shared chunks through which keys and results travel.
 *
 * Touching shared memory first costs five times as much as writing to it, in every
 * process.  So chunks are kept for the next sort, and a process preferably takes a chunk
 * that it has mapped already.
 *
 * Chunks come in segments of dynamic shared memory, which the postmaster removes after a
 * crash.  A segment stays pinned until gpusort_pool_trim() finds it unused.  MADV_REMOVE
 * frees its pages at once, although other processes may still have it mapped; they unmap
 * it when they next take a chunk.
 *
 * Other software may remove a segment's file, as systemd does with RemoveIPC.  The first
 * process that misses it marks the segment as gone: its free chunks are not taken any more,
 * and it is dropped when its last chunk is free.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "miscadmin.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/segment.h"
#include "gpu/chunk.h"
#include "gpu/control.h"
#include "gpu/pool.h"
#include "guc.h"

/* This process's mapping of one slot of the segment table; stale once the slot has another handle. */
typedef struct MappedSegment
{
	dsm_handle	handle;
	dsm_segment *segment;		/* NULL: not mapped */
	char	   *base;			/* its GPUSORT_SEGMENT_BYTES */
} MappedSegment;

static MappedSegment mapped[GPUSORT_MAX_SEGMENTS];

/* A process waits at most this long for others that make segments, and looks with these pauses. */
#define GROWTH_MS			2000
#define FIRST_PAUSE_US		1000
#define LONGEST_PAUSE_US	50000

/* The slot for which this process is making a segment; -1: none. */
static int	creating_slot = -1;

void		(*gpusort_pool_on_use) (int segment, char *base) = NULL;
void		(*gpusort_pool_on_unmap) (int segment, char *base) = NULL;

/* Notes that this process has mapped a segment. */
static void
remember(int index, dsm_handle handle, dsm_segment *segment)
{
	mapped[index].handle = handle;
	mapped[index].segment = segment;
	mapped[index].base = dsm_segment_address(segment);
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
 * Unmaps segments that other processes have dropped.  This works without the
 * lock: a dropped segment has no chunk of this process, and one that is dropped
 * at this moment is unmapped by the next call.
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

/*
 * Drops the segment of a slot, if the slot has one and no chunk of it is in use.
 * Does nothing if the lock is stuck.
 * Only the removal from the table needs the lock; after that no other process
 * drops the segment.  The rest takes long and happens without the lock: the
 * service unregisters the memory, and the kernel frees the pages.
 */
static void
drop_unused(int index)
{
	GpusortSegment *segment = &gpusort_control->segments[index];
	dsm_handle	handle;

	if (gpusort_lock_try() != NULL)
		return;
	handle = gpusort_chunk_segment_in_use(index) ? DSM_HANDLE_INVALID : segment->handle;
	if (handle != DSM_HANDLE_INVALID)
	{
		segment->handle = DSM_HANDLE_INVALID;
		segment->gone = false;
	}
	gpusort_lock_release();
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

/* Drops unused segments that are gone: they count towards gpusort.pool_limit. */
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
 * The most segments that may exist.  A session that sets gpusort.pool_limit before it loads
 * the library is left with the built-in default.  So the smaller one of its value and the
 * service's, which is the configuration file's, counts.
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
gpusort_pool_room(bool small)
{
	int			segments = 0;

	drop_gone();
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
		segments += gpusort_control->segments[i].handle != DSM_HANDLE_INVALID || gpusort_control->segments[i].creating;
	return gpusort_chunk_count_free(small, Max(segment_limit() - segments, 0));
}

/* Finds a slot for a new segment; -1: the limit is reached. */
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
		else if (slot < 0 && !gpusort_chunk_segment_in_use(i))
			slot = i;
	}
	return count < limit ? slot : -1;
}

/*
 * Makes a segment that outlives this process if handle is DSM_HANDLE_INVALID,
 * else maps the segment of that handle.  Returns NULL if this fails, with a
 * *reason in static memory; *gone is set if the segment's file does not exist,
 * so that no other process could map it either.
 */
static dsm_segment *
open_segment(dsm_handle handle, bool *gone, const char **reason)
{
	static char text[64 + GPUSORT_SEGMENT_MESSAGE];
	char		message[GPUSORT_SEGMENT_MESSAGE];
	dsm_segment *segment = gpusort_segment_open(handle, GPUSORT_SEGMENT_BYTES, message, gone);

	if (segment == NULL)
	{
		snprintf(text, sizeof(text), handle == DSM_HANDLE_INVALID ?
				 "The chunk pool could not grow: %s." : "A segment of the chunk pool could not be mapped: %s.",
				 message);
		*reason = text;
	}
	else if (handle == DSM_HANDLE_INVALID)
		dsm_pin_segment(segment);
	return segment;
}

/* As gpusort_pool_take_existing(); sets *reason if the lock is stuck, else leaves it as it is. */
static int
take_existing(int request, bool small, const char **reason)
{
	const char *stuck;
	int			chunk;

	unmap_stale();
	stuck = gpusort_lock_try();
	if (stuck != NULL)
	{
		*reason = stuck;
		return -1;
	}
	chunk = GPUSORT_FAULT(FREE_CHUNK) ? -1 : gpusort_chunk_take(request, small, is_mapped);
	gpusort_lock_release();
	return chunk;
}

int
gpusort_pool_take_existing(int request, bool small)
{
	const char *reason;

	return take_existing(request, small, &reason);
}

/* Is any process making a segment? */
static bool
is_growing(void)
{
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		if (gpusort_control->segments[i].creating)
			return true;
	}
	return false;
}

/*
 * Looks for a free chunk once more, and if there is none takes an unused slot of the
 * segment table, whose first chunk, or the first small part of it, the request holds
 * from now on.  If wait, it does not take a slot while another process makes a segment.
 * Returns the chunk, or -1 with a *reason if there is none or the lock is stuck.
 * *growing says if another process makes a segment.
 */
static int
begin_segment(int request, bool small, bool wait, bool *growing, const char **reason)
{
	int			slot;
	int			chunk;

	*growing = false;
	*reason = gpusort_lock_try();
	if (*reason != NULL)
		return -1;
	/* first this: a process that has made a segment publishes it without the lock */
	*growing = is_growing();
	pg_read_barrier();
	chunk = gpusort_chunk_take(request, small, is_mapped);
	slot = chunk >= 0 || (wait && *growing) ? -1 : find_segment_slot();
	if (slot >= 0)
	{
		gpusort_control->segments[slot].creating = true;
		creating_slot = slot;
		chunk = gpusort_chunk_take_part(slot * GPUSORT_SEGMENT_CHUNKS, request, small);
	}
	else if (chunk < 0)
		*reason = GPUSORT_POOL_EXHAUSTED;
	gpusort_lock_release();
	return chunk;
}

/*
 * Takes a free chunk, or the first one of a segment that this process is to make; then
 * *slot is that segment's, else -1.
 *
 * If many sessions begin to sort at once, one of them makes a segment for the small
 * chunks of all, and the others wait for it.  A process that wants a large chunk waits
 * only if no further segment is allowed.
 */
static int
take_or_begin(int request, bool small, int *slot, const char **reason)
{
	uint64		begin = gpusort_clock_ms();
	long		pause_us = FIRST_PAUSE_US;

	for (;;)
	{
		bool		may_wait = gpusort_clock_ms() - begin < GROWTH_MS;
		bool		growing = true;
		int			chunk;

		*slot = -1;
		*reason = NULL;
		chunk = take_existing(request, small, reason);
		if (chunk >= 0 || *reason != NULL)
			return chunk;
		if (!small || !is_growing() || !may_wait)
		{
			drop_gone();
			chunk = begin_segment(request, small, small && may_wait, &growing, reason);
			*slot = creating_slot;
			if (chunk >= 0 || !growing || !may_wait)
				return chunk;
		}
		/* hundreds of processes that look too often would delay the one that makes the segment */
		pg_usleep(pause_us);
		pause_us = Min(2 * pause_us, LONGEST_PAUSE_US);
		CHECK_FOR_INTERRUPTS();
	}
}

int
gpusort_pool_take(int request, bool small, const char **reason)
{
	int			chunk;
	int			slot;
	bool		gone;
	dsm_segment *segment;

	*reason = GPUSORT_FAULT(CHUNK) ? GPUSORT_POOL_EXHAUSTED : NULL;
	if (*reason != NULL)
		return -1;
	chunk = take_or_begin(request, small, &slot, reason);
	if (chunk < 0 || slot < 0)
		return chunk;
	segment = open_segment(DSM_HANDLE_INVALID, &gone, reason);
	if (segment != NULL)
		gpusort_control->segments[slot].handle = dsm_segment_handle(segment);
	else
		gpusort_control->chunks[chunk].request = -1;
	gpusort_pool_forget_creation();
	if (segment == NULL)
		return -1;
	remember(slot, dsm_segment_handle(segment), segment);
	return chunk;
}

char *
gpusort_pool_map(int chunk, const char **reason)
{
	int			large = gpusort_chunk_large(gpusort_control, chunk);
	int			index = large / GPUSORT_SEGMENT_CHUNKS;

	if (!is_mapped(index))
	{
		dsm_handle	handle = gpusort_control->segments[index].handle;
		bool		gone;
		dsm_segment *segment;

		if (mapped[index].segment != NULL)
			unmap(index);
		segment = open_segment(handle, &gone, reason);
		/* if the lock is stuck, the next process that misses the file marks the segment */
		if (gone && gpusort_lock_try() == NULL)
		{
			gpusort_control->segments[index].gone = gpusort_control->segments[index].handle == handle;
			gpusort_lock_release();
		}
		if (segment == NULL)
			return NULL;
		remember(index, handle, segment);
	}
	if (gpusort_pool_on_use)
		gpusort_pool_on_use(index, mapped[index].base);
	return mapped[index].base + gpusort_chunk_offset(chunk, large);
}

void
gpusort_pool_forget_creation(void)
{
	if (creating_slot < 0)
		return;
	/* another process may use the slot as soon as creating is false */
	pg_write_barrier();
	gpusort_control->segments[creating_slot].creating = false;
	creating_slot = -1;
}

void
gpusort_pool_free_request(int index, uint32 serial, GpusortRequestState from)
{
	GpusortRequest *request = &gpusort_control->requests[index];

	if (!gpusort_request_change(request, serial, from, GPUSORT_REQUEST_CLEARING))
		return;
	/* search the table: the open chunk and the ring are in no list */
	for (int chunk = 0; chunk < GPUSORT_MAX_CHUNKS; chunk++)
	{
		if (gpusort_control->chunks[chunk].request == index)
			gpusort_control->chunks[chunk].request = -1;
	}
	request->first_chunk = request->last_chunk = -1;
	request->nring = 0;
	request->pid = 0;
	pg_atomic_fetch_and_u64(&gpusort_control->in_use[index / 64], ~(UINT64CONST(1) << index % 64));
	pg_write_barrier();
	pg_atomic_write_u32(&request->state, gpusort_request_word(serial, GPUSORT_REQUEST_FREE));
}

void
gpusort_pool_trim(void)
{
	/* a request's release may call this where no error may be raised */
	HOLD_INTERRUPTS();
	for (int i = 0; i < GPUSORT_MAX_SEGMENTS; i++)
	{
		if (gpusort_control->segments[i].handle != DSM_HANDLE_INVALID)
			drop_unused(i);
	}
	RESUME_INTERRUPTS();
}

void
gpusort_pool_usage(uint64 *exist, uint64 *used)
{
	*exist = *used = 0;
	for (int i = 0; i < GPUSORT_MAX_CHUNKS; i++)
	{
		int			large = gpusort_chunk_large(gpusort_control, i);
		int			request = gpusort_control->chunks[i].request;

		if (large < 0 || gpusort_control->segments[large / GPUSORT_SEGMENT_CHUNKS].handle == DSM_HANDLE_INVALID)
			continue;
		if (!gpusort_chunk_is_small(i))
			*exist += GPUSORT_CHUNK_BYTES;
		if (request >= 0 && request != GPUSORT_CHUNK_SPLIT)
			*used += gpusort_chunk_bytes(i);
	}
}
