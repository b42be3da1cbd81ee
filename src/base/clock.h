/*-------------------------------------------------------------------------
 *
 * clock.h
 *		The monotonic clock, which changes of the system's date and time do not affect.
 *
 * All processes of the server see the same clock.  Only differences mean anything.  Plain C
 * without PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_CLOCK_H
#define GPUSORT_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t
gpusort_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* Milliseconds, never 0 */
static inline uint64_t
gpusort_clock_ms(void)
{
	return gpusort_clock_ns() / 1000000 + 1;
}

#endif							/* GPUSORT_BASE_CLOCK_H */
