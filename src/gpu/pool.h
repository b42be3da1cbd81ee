/*-------------------------------------------------------------------------
 *
 * pool.h
 *		The pool of shared chunks through which keys and results travel.
 *
 * Backends and the service use the pool.  Every function needs an attached
 * control block (gpu/control.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_POOL_H
#define GPUSORT_GPU_POOL_H

#include "gpu/control.h"

/* The reason if no chunk is free and gpusort.pool_limit allows no further segment. */
#define GPUSORT_POOL_EXHAUSTED	"The chunk pool is exhausted (gpusort.pool_limit)."

/*
 * Takes a free chunk for the request of this index, and makes a segment if no
 * chunk is free.  The chunk is large; if small, it is small, or large where no further
 * chunk can be split.  It may wait for two seconds for a segment that another process makes.
 * Returns the chunk's number, or -1 with a *reason if
 * gpusort.pool_limit allows no segment, making it fails or the lock is stuck.  The
 * reason is in static memory, valid until the next call of this function, of
 * gpusort_pool_map() or of gpusort_lock_try().  Processes interrupts.  The caller
 * does not hold the control lock.
 */
extern int	gpusort_pool_take(int request, bool small, const char **reason);

/*
 * Takes such a chunk without making a segment, for the service.  Returns -1 if
 * no chunk is free or the lock is stuck.  The caller does not hold the control lock.
 */
extern int	gpusort_pool_take_existing(int request, bool small);

/*
 * The number of large or small chunks that could be taken now, or somewhat more.
 * Other processes may take them first, so this only tells a caller not to begin
 * work that is bound to fail.  Drops unused segments that are gone; the caller does
 * not hold the control lock.
 */
extern int	gpusort_pool_room(bool small);

/*
 * The address of a chunk's memory (gpusort_chunk_bytes()) in this process, valid
 * while the chunk is held.  Maps its segment if necessary.  Returns NULL if that fails,
 * with a *reason as above.  The caller does not hold the control lock.
 */
extern char *gpusort_pool_map(int chunk, const char **reason);

/*
 * Frees the slot of the request of this index and serial and all its chunks, unless
 * its state is not "from" any more.  Needs no lock.
 */
extern void gpusort_pool_free_request(int request, uint32 serial, GpusortRequestState from);

/*
 * Clears the mark of a segment that this process was making when an error
 * interrupted it.  Needs no lock.
 */
extern void gpusort_pool_forget_creation(void);

/*
 * Drops all segments of which no chunk is in use, unless the lock is stuck.
 * Processes no interrupts.  The caller does not hold the control lock.
 */
extern void gpusort_pool_trim(void);

/*
 * Sets *exist to the bytes of all segments and *used to the bytes of held chunks.
 * Reads both without the lock, while other processes may change them.
 */
extern void gpusort_pool_usage(uint64 *exist, uint64 *used);

/*
 * Callbacks, NULL in backends: called whenever gpusort_pool_map() has found a chunk of a
 * segment, which is mapped at base, and before this process unmaps the segment.  With
 * these the service registers the memory with CUDA and unregisters it.  They must not
 * raise.
 */
extern void (*gpusort_pool_on_use) (int segment, char *base);
extern void (*gpusort_pool_on_unmap) (int segment, char *base);

#endif							/* GPUSORT_GPU_POOL_H */
