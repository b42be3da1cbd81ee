/*-------------------------------------------------------------------------
 *
 * pool.h
 *		The pool of shared chunks that keys travel in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_POOL_H
#define GPUSORT_GPU_POOL_H

/* The reason when gpusort.pool_limit allows no more. */
#define GPUSORT_POOL_EXHAUSTED	"The chunk pool is exhausted (gpusort.pool_limit)."

/*
 * Takes a free chunk for a request, making a segment if there is none and
 * gpusort.pool_limit allows.  Returns -1 if not, with a static *reason.
 */
extern int	gpusort_pool_take(int request, const char **reason);

/* The same without making a segment, for the service. */
extern int	gpusort_pool_take_existing(int request);

/*
 * How many chunks could be taken now.  Others may take them before the caller
 * does, so this is only good for not beginning what would fail.
 */
extern int	gpusort_pool_room(void);

/*
 * The chunk's memory in this process; NULL with a static *reason if its segment
 * cannot be mapped.  Stays valid while the chunk is held.
 */
extern char *gpusort_pool_map(int chunk, const char **reason);

/* Returns a chunk.  The control lock is held exclusively. */
extern void gpusort_pool_give(int chunk);

/* Frees a request's slot and all its chunks.  Likewise. */
extern void gpusort_pool_free_request(int request);

/* Forgets a segment that this process was making when an error or its exit came between.  Likewise. */
extern void gpusort_pool_exit(void);

/* Drops segments without a chunk in use.  The control lock is not held. */
extern void gpusort_pool_trim(void);

/* Bytes that exist and bytes that requests hold. */
extern void gpusort_pool_usage(uint64 *exist, uint64 *used);

/*
 * Called when this process maps a segment, and before it unmaps one.  The
 * service registers the memory with CUDA here.
 */
extern void (*gpusort_pool_on_map) (int segment, char *base);
extern void (*gpusort_pool_on_unmap) (int segment, char *base);

#endif							/* GPUSORT_GPU_POOL_H */
