/*-------------------------------------------------------------------------
 *
 * timing.c
 *		Measured times, in microseconds.
 *
 * A backend and the service wake each other by latches, which are signals.  Here two
 * threads wake each other by pipes: a process would cost more to start than all
 * measurements together, and what takes the time, the kernel's scheduling of a
 * sleeping thread on maybe another processor, is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <unistd.h>

#include "service/timing.h"

/* Round trips, of which the median counts. */
#define ROUND_TRIPS		21

double
gpusort_microseconds_since(instr_time begin)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begin);
	return INSTR_TIME_GET_DOUBLE(now) * 1e6;
}

static int
compare_times(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

double
gpusort_median(double *times, int n)
{
	qsort(times, n, sizeof(double), compare_times);
	return times[n / 2];
}

/* The ends of two pipes: a thread answers on the second what it gets by the first. */
typedef struct Echo
{
	int			there[2];
	int			back[2];
} Echo;

static void *
run_echo(void *arg)
{
	const Echo *echo = arg;
	char		byte;

	while (read(echo->there[0], &byte, 1) == 1 && write(echo->back[1], &byte, 1) == 1)
		;
	return NULL;
}

/* The median time of a round trip through both pipes; negative: it failed. */
static double
time_round_trips(const Echo *echo)
{
	double		times[ROUND_TRIPS];
	char		byte = 0;

	for (int i = 0; i < ROUND_TRIPS; i++)
	{
		instr_time	begin;

		INSTR_TIME_SET_CURRENT(begin);
		if (write(echo->there[1], &byte, 1) != 1 || read(echo->back[0], &byte, 1) != 1)
			return -1;
		times[i] = gpusort_microseconds_since(begin);
	}
	return gpusort_median(times, ROUND_TRIPS);
}

double
gpusort_time_wake_ups(void)
{
	Echo		echo;
	pthread_t	thread;
	double		us = -1;

	if (pipe(echo.there) != 0)
		return -1;
	if (pipe(echo.back) == 0)
	{
		if (pthread_create(&thread, NULL, run_echo, &echo) == 0)
		{
			us = time_round_trips(&echo);
			/* the thread ends when its pipe does */
			close(echo.there[1]);
			echo.there[1] = -1;
			pthread_join(thread, NULL);
		}
		close(echo.back[0]);
		close(echo.back[1]);
	}
	close(echo.there[0]);
	if (echo.there[1] >= 0)
		close(echo.there[1]);
	return us;
}
