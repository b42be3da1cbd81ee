/*-------------------------------------------------------------------------
 *
 * lock.h
 *		The lock of the control block.
 *
 * All functions need an attached control block (gpu/control.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_LOCK_H
#define GPUSORT_GPU_LOCK_H

/*
 * Takes the lock, exclusively.  Returns NULL, or a reason if another process has
 * held the lock for more than 5 s.  The reason is in static memory, valid until
 * the next call.  Processes interrupts while it waits, before it holds the lock.
 */
extern const char *gpusort_lock_try(void);

/* Takes the lock, and waits for it as long as that takes: for the GPU service. */
extern void gpusort_lock_take(void);

/* Releases the lock. */
extern void gpusort_lock_release(void);

#endif							/* GPUSORT_GPU_LOCK_H */
