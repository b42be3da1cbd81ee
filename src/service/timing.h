/*-------------------------------------------------------------------------
 *
 * timing.h
 *		Measured times, in microseconds.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_TIMING_H
#define GPUSORT_SERVICE_TIMING_H

#include "portability/instr_time.h"

extern double gpusort_microseconds_since(instr_time begin);

/* The median of n times, which are sorted; of an even number, the larger one. */
extern double gpusort_median(double *times, int n);

/*
 * The time that a backend and the service take to wake each other once: two
 * wake-ups.  Negative if it cannot be measured.
 */
extern double gpusort_time_wake_ups(void);

#endif							/* GPUSORT_SERVICE_TIMING_H */
