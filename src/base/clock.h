/*-------------------------------------------------------------------------
 *
 * clock.h
 *		The clock of all timeouts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_CLOCK_H
#define GPUSORT_BASE_CLOCK_H

/*
 * Milliseconds of the monotonic clock, never 0.  All processes of the server see
 * the same clock, and changes of the system's date and time do not affect it.
 * Only differences mean anything.
 */
extern uint64 gpusort_clock_ms(void);

#endif							/* GPUSORT_BASE_CLOCK_H */
