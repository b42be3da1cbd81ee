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

#include "gpu/silence.h"

/* Has the postmaster start the service with the server.  _PG_init calls it under preload. */
extern void gpusort_service_preload(void);

/* The reason if the service does not respond; %d is the time in seconds. */
#define GPUSORT_SILENT_REASON	"The GPU service has not responded for %d seconds."

/*
 * Starts the service if it is down; does not wait for it.  Returns NULL, or a
 * reason if the service cannot be started, takes longer than 15 s to start or to
 * end, has failed recently, or has not responded to another process, or if the
 * control lock is stuck.  The reason is in static memory, valid until the next
 * call of a function of this header or of gpusort_lock_try().  Processes
 * interrupts.
 */
extern const char *gpusort_service_start(void);

/*
 * Starts the service if it is down, and waits until it is ready, at most 15 s.
 * Processes interrupts and resets MyLatch.  Returns NULL, or a reason as above.
 */
extern const char *gpusort_service_wait(void);

/*
 * Called at each look by a process that waits for a READY service.  Returns NULL,
 * or GPUSORT_SILENT_REASON, in static memory, if the service has shown no sign of
 * life for 5 s longer than the device call that it makes may take.
 */
extern const char *gpusort_service_silent(GpusortSilence *silence);

/* Sets the service's latch, if a service runs.  Any process may call it. */
extern void gpusort_service_wake(void);

#endif							/* GPUSORT_GPU_START_H */
