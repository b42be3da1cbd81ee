/*-------------------------------------------------------------------------
 *
 * arena.c
 *		Memory of one process that another process reads when it is filled.
 *
 * PostgreSQL's own areas (dsa.c) would raise an error if /dev/shm is full, and a
 * parallel worker must go on then.  Neither is their freeing of single allocations
 * needed here.  So an arena fills one segment after the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/segment.h"

/*
 * Each segment is a quarter of those before it, within these bounds.  So there are few: all
 * queries of the cluster share some hundred.  And little is made in vain: making a segment takes
 * its memory, 0.3 ms for 1 MB, and cannot be interrupted.
 */
#define FIRST_SEGMENT_BYTES		((Size) 1024 * 1024)
#define LAST_SEGMENT_BYTES		((Size) 256 * 1024 * 1024)

#define OFFSET_BITS		48

struct GpusortArena
{
	MemoryContextCallback callback;
	GpusortArenaTable *table;
	dsm_segment *segments[GPUSORT_ARENA_SEGMENTS];
	int			nsegments;
	Size		bytes;			/* of all segments */
	char	   *next;			/* the free part of the last segment: from here */
	char	   *end;			/* to here */
};

/* Unmaps the segments; a callback of the arena's memory context. */
static void
unmap(void *arg)
{
	GpusortArena *arena = arg;

	while (arena->nsegments > 0)
		dsm_detach(arena->segments[--arena->nsegments]);
}

static GpusortArena *
make_arena(GpusortArenaTable *table)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));

	arena->table = table;
	arena->callback.func = unmap;
	arena->callback.arg = arena;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &arena->callback);
	return arena;
}

GpusortArena *
gpusort_arena_begin(GpusortArenaTable *table)
{
	Assert(table->nsegments == 0);
	return make_arena(table);
}

/* Adds a segment with room for at least these bytes.  Returns false if there is none to be had. */
static bool
add_segment(GpusortArena *arena, Size bytes)
{
	Size		size = Min(Max(FIRST_SEGMENT_BYTES, arena->bytes / 4), LAST_SEGMENT_BYTES);
	char		message[GPUSORT_SEGMENT_MESSAGE];
	bool		gone;
	dsm_segment *segment;
	Size		room = gpusort_segment_room();

	if (arena->nsegments == GPUSORT_ARENA_SEGMENTS)
		return false;
	/* where little is left, take half of it: there must be room for this arena's last, small allocations */
	size = Max(Min(TYPEALIGN(FIRST_SEGMENT_BYTES, size), room / 2), bytes);
	if (size > room)
		return false;
	segment = gpusort_segment_open(DSM_HANDLE_INVALID, size, message, &gone);
	if (segment == NULL)
		return false;

	/* once it is pinned it must be in the table, or nobody would drop it */
	arena->segments[arena->nsegments++] = segment;
	arena->bytes += dsm_segment_map_length(segment);
	arena->table->handles[arena->table->nsegments] = dsm_segment_handle(segment);
	dsm_pin_segment(segment);
	pg_write_barrier();
	arena->table->nsegments++;
	arena->next = dsm_segment_address(segment);
	arena->end = arena->next + dsm_segment_map_length(segment);
	return true;
}

void *
gpusort_arena_alloc(GpusortArena *arena, Size bytes)
{
	void	   *mem;

	bytes = MAXALIGN(bytes);
	if (GPUSORT_FAULT(ARENA) || (arena->end - arena->next < bytes && !add_segment(arena, bytes)))
		return NULL;
	mem = arena->next;
	arena->next += bytes;
	return mem;
}

GpusortPlace
gpusort_arena_place(const GpusortArena *arena, const void *address)
{
	/* most addresses are in a late segment */
	for (int i = arena->nsegments - 1; i >= 0; i--)
	{
		const char *base = dsm_segment_address(arena->segments[i]);

		if ((const char *) address >= base &&
			(const char *) address < base + dsm_segment_map_length(arena->segments[i]))
			return (uint64) i << OFFSET_BITS | ((const char *) address - base);
	}
	elog(ERROR, "address is not in the arena");
}

GpusortArena *
gpusort_arena_map(GpusortArenaTable *table)
{
	GpusortArena *arena = make_arena(table);

	for (int i = 0; i < table->nsegments; i++)
	{
		char		message[GPUSORT_SEGMENT_MESSAGE];
		bool		gone;
		dsm_segment *segment = gpusort_segment_open(table->handles[i], 0, message, &gone);

		if (segment == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("could not map the rows of a parallel worker"),
					 errdetail("Segment %d of %d: %s.", i + 1, table->nsegments, message)));
		arena->segments[arena->nsegments++] = segment;
		arena->bytes += dsm_segment_map_length(segment);
	}
	return arena;
}

void *
gpusort_arena_address(const GpusortArena *arena, GpusortPlace place)
{
	return (char *) dsm_segment_address(arena->segments[place >> OFFSET_BITS]) +
		(place & ((UINT64CONST(1) << OFFSET_BITS) - 1));
}

Size
gpusort_arena_bytes(const GpusortArena *arena)
{
	return arena->bytes;
}

void
gpusort_arena_drop(GpusortArenaTable *table)
{
	while (table->nsegments > 0)
		dsm_unpin_segment(table->handles[--table->nsegments]);
}
