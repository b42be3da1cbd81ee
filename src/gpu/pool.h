/*-------------------------------------------------------------------------
 *
 * pool.h
 *		The pool of shared chunks through which keys and results travel.
 *
 * The caller of these functions does not hold the control lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_POOL_H
#define GPUSORT_GPU_POOL_H

#include "gpu/control.h"

/* The reason if no chunk is free and gpusort.pool_limit allows no further segment. */
#define GPUSORT_POOL_EXHAUSTED	"The chunk pool is exhausted (gpusort.pool_limit)."

/*
 * Takes a free chunk for the request of this index, and makes a segment if no chunk is
 * free; it may wait for two seconds for one that another process makes.  If small, the
 * chunk is small, or large where no further chunk can be split.  Returns the chunk's number,
 * or -1 with a *reason, in static memory, valid until the next call of this function, of
 * gpusort_pool_map() or of gpusort_lock_try().  Processes interrupts.
 */
extern int	gpusort_pool_take(int request, bool small, const char **reason);

/* Takes such a chunk without making a segment, for the service; -1: none is free or the lock is stuck. */
extern int	gpusort_pool_take_existing(int request, bool small);

/*
 * The number of large or small chunks that could be taken now, or somewhat more: other
 * processes may take them first.  Drops unused segments that are gone.
 */
extern int	gpusort_pool_room(bool small);

/*
 * The address of a chunk's memory in this process, valid while the chunk is held.  Maps its
 * segment if necessary.  Returns NULL if that fails, with a *reason as above.
 */
extern char *gpusort_pool_map(int chunk, const char **reason);

/*
 * Frees the slot of the request of this index and serial and all its chunks, unless
 * its state is not "from" any more.  Needs no lock.
 */
extern void gpusort_pool_free_request(int request, uint32 serial, GpusortRequestState from);

/* Clears the mark of a segment that this process was making when an error interrupted it. */
extern void gpusort_pool_forget_creation(void);

/* Drops all segments of which no chunk is in use, unless the lock is stuck.  Processes no interrupts. */
extern void gpusort_pool_trim(void);

/* Sets *exist to the bytes of all segments and *used to the bytes of held chunks, without the lock. */
extern void gpusort_pool_usage(uint64 *exist, uint64 *used);

/*
 * The service registers segments with CUDA by these callbacks: when gpusort_pool_map() has
 * found a chunk, and before this process unmaps the segment.  They must not raise.
 */
extern void (*gpusort_pool_on_use) (int segment, char *base);
extern void (*gpusort_pool_on_unmap) (int segment, char *base);

#endif							/* GPUSORT_GPU_POOL_H */
