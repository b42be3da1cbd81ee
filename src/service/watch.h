/*-------------------------------------------------------------------------
 *
 * watch.h
 *		The GPU service's watchdog: ends a service whose device hangs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_WATCH_H
#define GPUSORT_SERVICE_WATCH_H

#include <limits.h>

#include "base/fault.h"

/* A device call may take 30 s, plus 10 s for each GB to copy or sort; a slow bus needs 0.1 s for a GB. */
#define GPUSORT_PATIENCE_MS			30000
#define GPUSORT_PATIENCE_MS_PER_GB	10000

/* The timeout of opening the device: a driver may have to initialise many devices. */
#define GPUSORT_OPEN_PATIENCE_MS	120000

/* The timeout of a device call that copies or sorts this many bytes, in ms. */
static inline int
gpusort_watch_patience(uint64 bytes)
{
	return GPUSORT_FAULT_PATIENCE(GPUSORT_PATIENCE_MS) +
		(int) Min(bytes / (1024 * 1024) * GPUSORT_PATIENCE_MS_PER_GB / 1024, INT_MAX / 2);
}

/* The text for the log and for waiting backends; %d is the timeout in seconds. */
#define GPUSORT_HANG_REASON	"The device did not finish its work within %d seconds."

/* How long the watchdog has watched, in ms, in steps of 1 s.  Stays the same if there is none. */
extern uint64 gpusort_watch_time(void);

/*
 * Starts the watchdog thread, from the service's own one.  When a device call exceeds its timeout, the watchdog
 * writes a line to the log, and hangs() is called in the service's own thread, from a signal handler.  It must not return.
 */
extern void gpusort_watch_start(void (*hangs) (int patience_ms));

/* Shows backends that the service is alive.  Does nothing in a process that is not the service, or not any more. */
extern void gpusort_watch_beat(void);

/* Called by the service's own thread around every device call, during which the watchdog shows signs of life. */
extern void gpusort_watch_begin(int patience_ms);
extern void gpusort_watch_end(void);

/* Makes a device call that copies or sorts this many bytes, watched. */
#define GPUSORT_WATCHED(bytes, call) \
	do { \
		gpusort_watch_begin(gpusort_watch_patience(bytes)); \
		call; \
		gpusort_watch_end(); \
	} while (0)

#endif							/* GPUSORT_SERVICE_WATCH_H */
