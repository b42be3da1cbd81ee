/*-------------------------------------------------------------------------
 *
 * clock.c
 *		The clock of all timeouts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "base/clock.h"

uint64
gpusort_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64) now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}
