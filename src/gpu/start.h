/*-------------------------------------------------------------------------
 *
 * start.h
 *		The GPU service as backends see it: started, waited for, woken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_START_H
#define GPUSORT_GPU_START_H

/* Registers the service to be started with the server; from _PG_init. */
extern void gpusort_service_preload(void);

/*
 * Starts the service if none runs or is about to.  Returns a static reason if
 * that cannot be done or has failed a moment ago, else NULL.
 */
extern const char *gpusort_service_start(void);

/*
 * Waits, interruptibly, until the service is ready.  Returns a static reason
 * if it will not be, else NULL.
 */
extern const char *gpusort_service_wait(void);

/* Wakes the service, if it runs. */
extern void gpusort_service_wake(void);

#endif							/* GPUSORT_GPU_START_H */
