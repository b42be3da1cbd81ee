/*-------------------------------------------------------------------------
 *
 * arena.h
 *		Memory of one process that another process reads when it is filled.
 *
 * A parallel worker allocates memory in an arena, and the leader maps the arena's
 * segments when the worker is done.  Each process has its own addresses, so
 * what the leader is to find is handed over as a place: a segment's number and an
 * offset.
 *
 * The table of segments lies in shared memory that both processes have.  The
 * segments exist until gpusort_arena_drop() is called, in any process, even after
 * the worker has exited.  Nothing else frees them: see node/feed.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_ARENA_H
#define GPUSORT_BASE_ARENA_H

#include "storage/dsm.h"

/* Segments grow, so this many hold 9 GB. */
#define GPUSORT_ARENA_SEGMENTS	64
#define GPUSORT_ARENA_BYTES		((Size) 9 * 1024 * 1024 * 1024)

/* In shared memory; zeroed by its owner at first */
typedef struct GpusortArenaTable
{
	int			nsegments;
	dsm_handle	handles[GPUSORT_ARENA_SEGMENTS];
} GpusortArenaTable;

/* The segment's number in the upper 16 bits, the offset in bytes in the lower 48 bits */
typedef uint64 GpusortPlace;

typedef struct GpusortArena GpusortArena;

/*
 * Begins to fill an arena, in the current memory context.  The table must be
 * empty.  When the context is reset, this process unmaps the segments.
 */
extern GpusortArena *gpusort_arena_begin(GpusortArenaTable *table);

/*
 * Allocates MAXALIGNed memory.  Returns NULL if no shared memory is to be
 * had: raises no error.  The memory cannot be freed by itself.
 */
extern void *gpusort_arena_alloc(GpusortArena *arena, Size bytes);

/* The place of an address in memory that gpusort_arena_alloc() has returned. */
extern GpusortPlace gpusort_arena_place(const GpusortArena *arena, const void *address);

/*
 * Maps all segments of an arena that another process has filled, in the current
 * memory context.  When the context is reset, this process unmaps them.  Raises an
 * error if one cannot be mapped.
 */
extern GpusortArena *gpusort_arena_map(GpusortArenaTable *table);

/* The address of a place in this process. */
extern void *gpusort_arena_address(const GpusortArena *arena, GpusortPlace place);

/* Bytes of all segments that this process has mapped. */
extern Size gpusort_arena_bytes(const GpusortArena *arena);

/*
 * Drops the segments of a table, which becomes empty.  Processes that have them
 * mapped keep their mappings.  Raises no error.
 */
extern void gpusort_arena_drop(GpusortArenaTable *table);

#endif							/* GPUSORT_BASE_ARENA_H */
