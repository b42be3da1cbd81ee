/*-------------------------------------------------------------------------
 *
 * arena.h
 *		Memory that one process fills, and another one reads afterwards.
 *
 * All that another process reads is in files in memory that a session makes.  The leader of a
 * parallel query makes one for each worker.  The worker maps it and allocates from it; then the
 * leader adopts what it has filled.  A session also makes files for itself, in which the GPU
 * service reads keys and rows, and to which it writes results.  Each process has its own
 * addresses, so what another one is to find is handed over as a place: an offset in the file.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_ARENA_H
#define GPUSORT_BASE_ARENA_H

#include "base/pages.h"

/* The name of a file for another process */
typedef struct GpusortFileName
{
	int			pid;			/* the session */
	int			fd;				/* there */
	uint64		device;			/* device and inode tell the file from any other */
	uint64		inode;
} GpusortFileName;

/* Where a worker finds its file; in shared memory */
typedef struct GpusortArenaFile
{
	bool		lent;			/* there is a file; else the other fields are undefined */
	GpusortFileName name;
	GpusortSharedBuffer buffer; /* in the leader; the worker updates bytes */
	Size		used;			/* bytes that the worker has allocated */
} GpusortArenaFile;

/* Bytes from the beginning of the file */
typedef uint64 GpusortPlace;

typedef struct GpusortArena GpusortArena;

/* Can processes of this server share files in memory?  Takes no time once it has answered yes. */
extern bool gpusort_arena_available(void);

/*
 * In the leader: makes a file for a worker, or takes one that the session has kept, and sets
 * *file.  If none is to be had, file->lent is false.  Raises no error.  The leader must adopt
 * the file or take it back.
 */
extern void gpusort_arena_lend(GpusortArenaFile *file);

/*
 * In the leader: keeps the file for the session's next query, if it has not been adopted; but not if
 * the worker may still use it.  Raises no error.
 */
extern void gpusort_arena_take_back(GpusortArenaFile *file, bool used);

/*
 * In the worker: begins to allocate from the file, in the current memory context.  When the
 * context is reset, this process unmaps the file.  An arena whose file cannot be mapped
 * has no memory.
 */
extern GpusortArena *gpusort_arena_begin(GpusortArenaFile *file);

/*
 * In a session: makes a file for itself, or takes one that it has kept, and allocates from it in
 * the current memory context.  When the context is reset, the session keeps the file for its next
 * query.  ahead: a thread makes pages before they are allocated, as more will be.  Returns NULL if no
 * file is to be had.
 */
extern GpusortArena *gpusort_arena_make(bool ahead);

/* Has this process files, kept or in use? */
extern bool gpusort_arena_has_file(void);

/* Has this process made the arena's file for itself? */
extern bool gpusort_arena_is_own(const GpusortArena *arena);

/* Has the session's own file dropped, not kept, at the end: another process may still write to it. */
extern void gpusort_arena_drop(GpusortArena *arena);

/*
 * Finds the file of this session, its own or adopted, that has the memory.  Returns false if it is
 * in none.  Sets *name and *place.
 */
extern bool gpusort_arena_find(const void *mem, GpusortFileName *name, GpusortPlace *place);

/* Opens a file of another process.  Returns -1 if that fails.  The caller closes it. */
extern int	gpusort_arena_open(const GpusortFileName *name);

/*
 * In the process that fills it: allocates MAXALIGNed memory, with undefined contents.  Returns
 * NULL if no memory is to be had: raises no error.
 */
extern void *gpusort_arena_alloc(GpusortArena *arena, Size bytes);

/* In the process that fills it: frees all that has been allocated. */
extern void gpusort_arena_reset(GpusortArena *arena);

/*
 * In the leader: takes over what the worker has filled, until the current memory context is reset.
 * Then the session keeps the file for its next query.
 */
extern GpusortArena *gpusort_arena_adopt(GpusortArenaFile *file);

/*
 * In any process, while the file is lent: maps what another one has filled, until the current memory context is reset.
 * Raises an error if that fails.
 */
extern GpusortArena *gpusort_arena_attach(GpusortArenaFile *file);

/* The place of an address in memory that gpusort_arena_alloc() has returned. */
extern GpusortPlace gpusort_arena_place(const GpusortArena *arena, const void *address);

/* The address of a place in this process. */
extern void *gpusort_arena_address(const GpusortArena *arena, GpusortPlace place);

#endif							/* GPUSORT_BASE_ARENA_H */
