/*-------------------------------------------------------------------------
 *
 * start.h
 *		Starts the GPU service, waits for it, and wakes it.
 *
 * All functions except gpusort_service_preload() need an attached control block
 * (gpu/control.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_START_H
#define GPUSORT_GPU_START_H

/* Has the postmaster start the service with the server.  _PG_init calls it under preload. */
extern void gpusort_service_preload(void);

/*
 * Starts the service if it is down; does not wait for it.  Returns NULL, or a
 * reason if the service cannot be started, takes longer than 15 s to start, or
 * has failed recently.  The reason is in static memory, valid until the next call
 * of this function or of gpusort_service_wait().
 */
extern const char *gpusort_service_start(void);

/*
 * Starts the service if it is down, and waits until it is ready, at most 15 s.
 * Processes interrupts and resets MyLatch.  Returns NULL, or a reason as above.
 */
extern const char *gpusort_service_wait(void);

/* Sets the service's latch, if a service runs.  Any process may call it. */
extern void gpusort_service_wake(void);

#endif							/* GPUSORT_GPU_START_H */
