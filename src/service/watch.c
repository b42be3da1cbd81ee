/*-------------------------------------------------------------------------
 *
 * watch.c
 *		The GPU service's watchdog: ends a service whose device hangs.
 *
 * Most calls of CUDA wait for the device, and nothing interrupts them: with a
 * kernel that never ends or a driver that has lost its device, the service
 * would stay in one for ever, and all its backends with it.  So a thread looks
 * on, once a second.  When a call has taken too long, the thread ends the
 * process in the place of the one that is stuck.  The driver then ends what
 * runs on the device.
 *
 * PostgreSQL's code is not made for threads.  The rule that keeps this right is
 * that only one of the two ever runs any of it: the service's own thread
 * between calls of the device, the watchdog once it has taken over, which it
 * can only in the middle of a call.  One atomic word decides: it is odd during
 * a call, another number for each, and the last of all numbers after the
 * watchdog has taken over.  A call that returns then finds that out, and waits
 * for its end.
 *
 * That rule does not cover the C library, whose locks the stuck thread, or one
 * of the driver's, may hold: malloc's, say.  So the log is told first, by
 * write(), and the kernel is asked for a SIGALRM in a while: both are safe
 * whatever is held.  Only then is shared memory put in order, for which much of
 * PostgreSQL runs.  If that succeeds, the process exits as if by an error and
 * nobody else ends.  If it gets stuck, too, SIGALRM ends the process, and the
 * postmaster, for which that is a crash, restarts the others.
 *
 * Time is counted in looks, so that what a stopped process has slept through,
 * watchdog and all, does not count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"

#include "service/watch.h"

#define LOOK_MS			1000
#define TAKEN_OVER		PG_UINT64_MAX

static pg_atomic_uint64 call;
static pg_atomic_uint32 call_patience_ms;
static void (*on_hang) (int patience_ms) = NULL;	/* NULL: nobody looks */

/*
 * A line for the log.  No ereport(), which allocates memory and has a buffer of
 * stderr's to lock; PostgreSQL's own snprintf() does neither.
 */
static void
tell_log(int patience_ms)
{
	char		line[200];

	snprintf(line, sizeof(line), "LOG:  gpusort service (PID %d) is ending: " GPUSORT_HANG_REASON "\n",
			 MyProcPid, patience_ms / 1000);
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return;					/* nobody is left to be told */
}

/* The kernel ends the process if it does not end before long. */
static void
end_before_long(void)
{
	struct sigaction action;
	sigset_t	alarm_signal;

	memset(&action, 0, sizeof(action));
	action.sa_handler = SIG_DFL;
	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&alarm_signal);
	sigaddset(&alarm_signal, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarm_signal, NULL);
	alarm(Max(gpusort_watch_patience(0) / 1000, 1));
}

static void *
watch(void *arg)
{
	uint64		seen = 0;
	int			looks = 0;

	for (;;)
	{
		struct timespec time = {LOOK_MS / 1000, LOOK_MS % 1000 * 1000000L};
		uint64		now;
		int			patience_ms;

		(void) nanosleep(&time, NULL);
		now = pg_atomic_read_u64(&call);
		pg_read_barrier();
		patience_ms = (int) pg_atomic_read_u32(&call_patience_ms);
		looks = now == seen ? looks + 1 : 0;
		seen = now;
		if (now % 2 == 1 && looks >= patience_ms / LOOK_MS &&
			pg_atomic_compare_exchange_u64(&call, &now, TAKEN_OVER))
		{
			end_before_long();
			tell_log(patience_ms);
			on_hang(patience_ms);
		}
	}
	return NULL;
}

void
gpusort_watch_start(void (*hangs) (int patience_ms))
{
	pthread_t	thread;
	sigset_t	all;
	sigset_t	old;

	pg_atomic_init_u64(&call, 0);
	pg_atomic_init_u32(&call_patience_ms, 0);
	on_hang = hangs;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		pthread_detach(thread);
	else
	{
		on_hang = NULL;
		ereport(LOG,
				(errmsg("gpusort service could not start its watchdog"),
				 errdetail("Should the device hang, so will the service.")));
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
gpusort_watch_begin(int patience_ms)
{
	if (on_hang == NULL)
		return;
	pg_atomic_write_u32(&call_patience_ms, (uint32) patience_ms);
	pg_write_barrier();
	pg_atomic_write_u64(&call, pg_atomic_read_u64(&call) + 1);
}

void
gpusort_watch_end(void)
{
	uint64		now;

	if (on_hang == NULL)
		return;
	now = pg_atomic_read_u64(&call);
	Assert(now % 2 == 1);
	while (now == TAKEN_OVER || !pg_atomic_compare_exchange_u64(&call, &now, now + 1))
		pause();
}
