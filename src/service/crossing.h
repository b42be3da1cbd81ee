/*-------------------------------------------------------------------------
 *
 * crossing.h
 *		Computes from measured times from how many rows on the device is faster.
 *
 * Plain C without PostgreSQL, for the unit test.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CROSSING_H
#define GPUSORT_SERVICE_CROSSING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The times of a sort of this many rows, in microseconds. */
typedef struct GpusortTiming
{
	uint32_t	rows;			/* at least 1 */
	double		device_us;
	double		cpu_us;
} GpusortTiming;

/* The crossover of a device that is never faster. */
#define GPUSORT_CROSSOVER_NEVER		((uint32_t) INT32_MAX)

static inline bool
gpusort_device_wins(const GpusortTiming *timing)
{
	return timing->device_us < timing->cpu_us;
}

/* Has the device, from one size to the next, taken on more than twice the time that the CPU has? */
static inline bool
gpusort_device_falls_back(const GpusortTiming *timing, const GpusortTiming *next)
{
	return !gpusort_device_wins(next) &&
		next->device_us - timing->device_us > 2 * (next->cpu_us - timing->cpu_us);
}

/*
 * Fewer rows decide nothing: the CPU engine sorts up to 2^17 by one thread, and the
 * device's fixed costs and their noise weigh much.
 */
#define GPUSORT_CROSSING_SURE_ROWS	(1 << 18)

/*
 * Do the timings decide the crossover, so that no larger size need be measured?  A
 * device that is faster at two sizes in succession is taken to be faster above them,
 * because its fixed costs weigh less there.  A device that falls back twice in
 * succession needs more time for each row than the CPU, and is never faster.
 */
static inline bool
gpusort_crossing_is_clear(const GpusortTiming *timings, int n)
{
	const GpusortTiming *last = timings + n - 1;

	if (n < 3 || last->rows < GPUSORT_CROSSING_SURE_ROWS)
		return false;
	return (gpusort_device_wins(last - 1) && gpusort_device_wins(last)) ||
		(gpusort_device_falls_back(last - 2, last - 1) && gpusort_device_falls_back(last - 1, last));
}

/* The logarithm of how many times as long the device takes as the CPU. */
static inline double
gpusort_log_ratio(const GpusortTiming *timing)
{
	return log(fmax(timing->device_us, 1e-3) / fmax(timing->cpu_us, 1e-3));
}

/*
 * The smallest number of rows from which on the device is faster at each of n measured
 * sizes, which ascend; GPUSORT_CROSSOVER_NEVER if it is slower at the largest one.
 * Between the last size at which the device is slower and the next one, the ratio
 * of the times is taken to be a power of the number of rows.
 */
static inline uint32_t
gpusort_crossing(const GpusortTiming *timings, int n)
{
	int			first = n;		/* the device wins from here on */
	double		before,
				after;

	while (first > 0 && gpusort_device_wins(&timings[first - 1]))
		first--;
	if (first == n)
		return GPUSORT_CROSSOVER_NEVER;
	if (first == 0)
		return timings[0].rows;
	before = gpusort_log_ratio(&timings[first - 1]);
	after = gpusort_log_ratio(&timings[first]);
	if (!(before > after))
		return timings[first].rows;
	return (uint32_t) ceil(timings[first - 1].rows *
						   pow((double) timings[first].rows / timings[first - 1].rows, before / (before - after)));
}

#endif							/* GPUSORT_SERVICE_CROSSING_H */
