/*-------------------------------------------------------------------------
 *
 * start.h
 *		Starts the GPU service, waits for it, and wakes it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_START_H
#define GPUSORT_GPU_START_H

#include "gpu/control.h"

/* Has the postmaster start the service with the server.  _PG_init calls it under preload. */
extern void gpusort_service_preload(void);

/*
 * Starts the service if it is down; does not wait for it.  Returns NULL, or a reason if
 * it will not be ready soon; in static memory, valid until the next call of a function of
 * this header.
 */
extern const char *gpusort_service_start(void);

/* The same, and waits until the service is ready, at most 15 s.  Resets MyLatch. */
extern const char *gpusort_service_wait(void);

/*
 * Called at each look by a process that waits for a READY service.  Returns NULL, or a
 * reason, if the service has shown no sign of life for 5 s.
 */
extern const char *gpusort_service_silent(void);

/* Sets the service's latch, if a service runs.  Any process may call it. */
extern void gpusort_service_wake(void);

#endif							/* GPUSORT_GPU_START_H */
