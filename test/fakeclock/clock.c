/*-------------------------------------------------------------------------
 *
 * clock.c
 *		A system clock that a test can set, for a server that preloads this.
 *
 * gettimeofday() and clock_gettime(CLOCK_REALTIME) return the system's time plus
 * the number of seconds in the file that GPUSORT_FAKE_CLOCK names; 0 if there is
 * no such file.  Other clocks stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long
offset_seconds(void)
{
	const char *name = getenv("GPUSORT_FAKE_CLOCK");
	FILE	   *file = name != NULL ? fopen(name, "r") : NULL;
	long		seconds = 0;

	if (file != NULL)
	{
		if (fscanf(file, "%ld", &seconds) != 1)
			seconds = 0;
		fclose(file);
	}
	return seconds;
}

int
clock_gettime(clockid_t clock, struct timespec *time)
{
	int			result = (int) syscall(SYS_clock_gettime, clock, time);

	if (result == 0 && clock == CLOCK_REALTIME)
		time->tv_sec += offset_seconds();
	return result;
}

int
gettimeofday(struct timeval *time, void *zone)
{
	struct timespec now;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	time->tv_sec = now.tv_sec;
	time->tv_usec = now.tv_nsec / 1000;
	return 0;
}
