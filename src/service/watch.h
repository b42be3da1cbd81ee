/*-------------------------------------------------------------------------
 *
 * watch.h
 *		The GPU service's watchdog: ends a service whose device hangs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_WATCH_H
#define GPUSORT_SERVICE_WATCH_H

/*
 * How long a call of the device may take: so long, and longer by a hundred
 * times what a slow device wants for each gigabyte that it has to copy or sort.
 */
#define GPUSORT_PATIENCE_MS			30000
#define GPUSORT_PATIENCE_MS_PER_GB	10000

/* How long opening it may take: a driver may have many devices to wake up. */
#define GPUSORT_OPEN_PATIENCE_MS	120000

static inline int
gpusort_watch_patience(uint64 bytes)
{
	int			patience = GPUSORT_PATIENCE_MS;

#ifdef GPUSORT_FAULTS
	if (getenv("GPUSORT_STANDIN_PATIENCE") != NULL)
		patience = atoi(getenv("GPUSORT_STANDIN_PATIENCE"));
#endif
	return patience +
		(int) Min(bytes / (1024 * 1024) * GPUSORT_PATIENCE_MS_PER_GB / 1024, INT_MAX / 2);
}

/* What the log, and who waits, is told of a call that took that many seconds. */
#define GPUSORT_HANG_REASON	"The device did not finish what it was at within %d seconds."

/*
 * Starts the watchdog.  When a call takes too long, the log is told and hangs()
 * is called, in a thread that is then the only one to run any of PostgreSQL's
 * code; it must not return.  A process that then does not end within
 * GPUSORT_PATIENCE_MS is killed.  If no thread can be had, nothing is watched.
 */
extern void gpusort_watch_start(void (*hangs) (int patience_ms));

/* The calling thread begins, and ends, something that may hang. */
extern void gpusort_watch_begin(int patience_ms);
extern void gpusort_watch_end(void);

/* A call of the device, with so many bytes to copy or sort. */
#define GPUSORT_WATCHED(bytes, call) \
	do { \
		gpusort_watch_begin(gpusort_watch_patience(bytes)); \
		call; \
		gpusort_watch_end(); \
	} while (0)

#endif							/* GPUSORT_SERVICE_WATCH_H */
