/*-------------------------------------------------------------------------
 *
 * watch.c
 *		The GPU service's watchdog: ends a service whose device hangs.
 *
 * Most CUDA calls wait for the device, and nothing interrupts them.  So a thread looks
 * once a second.  When a call has exceeded its timeout, the thread ends the process in
 * place of the one that is stuck.  A mere _exit() would leave the process's PGPROC in use,
 * which the postmaster takes for a crash: it would end all sessions of the server.  So the
 * watchdog runs shmem_exit().  PostgreSQL's code is not thread-safe, but safe here:
 *
 *	1.	At any time, one thread at most runs it: the service's own thread between device
 *		calls, or the watchdog after it has taken over during one.  The atomic word
 *		"call" decides.  It is odd during a call, changes with every call, and is
 *		TAKEN_OVER after the watchdog's compare-and-exchange, which is a full barrier.
 *		A device call that returns later finds that, and its thread pauses for good.
 *	2.	PostgreSQL keeps its state in plain variables, not in thread-local ones.
 *	3.	PG_exception_stack points into the stuck thread's stack, so the watchdog's caller
 *		sets its own (service/device.c).
 *	4.	No callback of shmem_exit() in PostgreSQL 15 to 19 calls check_stack_depth(), which
 *		measures the distance from the first thread's stack.  If one did, the caller's
 *		handler would end the process as crashed.
 *
 * The C library is the exception to 1: the stuck thread, or a thread of the driver, may
 * hold a lock of malloc() or stdio.  So the watchdog first asks the kernel for a SIGALRM
 * and writes to the log by write().  If shmem_exit() blocks, SIGALRM kills the process.
 *
 * The thread counts its looks instead of reading a clock, so that time during which the
 * process is stopped does not count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"

#include "gpu/control.h"
#include "service/watch.h"

#define LOOK_MS			1000
#define TAKEN_OVER		PG_UINT64_MAX

static pg_atomic_uint64 all_looks;	/* since the watchdog was started */
static pg_atomic_uint64 call;	/* see 1. above */
static pg_atomic_uint32 call_patience_ms;	/* timeout of the present call */
static void (*on_hang) (int patience_ms) = NULL;	/* NULL: there is no watchdog */

uint64
gpusort_watch_time(void)
{
	return pg_atomic_read_u64(&all_looks) * LOOK_MS;
}

/*
 * Writes a line to the log.  ereport() would allocate memory and lock stderr's
 * buffer; PostgreSQL's own snprintf() does neither.
 */
static void
tell_log(int patience_ms)
{
	char		line[200];

	snprintf(line, sizeof(line), "LOG:  gpusort service (PID %d) is ending: " GPUSORT_HANG_REASON "\n",
			 MyProcPid, patience_ms / 1000);
	if (write(STDERR_FILENO, line, strlen(line)) < 0)
		return;					/* the log is closed: nothing else can be done */
}

/* Has the kernel kill the process if it does not end within the timeout. */
static void
set_alarm(void)
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
		pg_atomic_fetch_add_u64(&all_looks, 1);
		now = pg_atomic_read_u64(&call);
		pg_read_barrier();
		patience_ms = (int) pg_atomic_read_u32(&call_patience_ms);
		looks = now == seen ? looks + 1 : 0;
		seen = now;
		if (now % 2 == 1 && looks >= patience_ms / LOOK_MS &&
			pg_atomic_compare_exchange_u64(&call, &now, TAKEN_OVER))
		{
			set_alarm();
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
				 errdetail("If the device hangs, the service will hang, too.")));
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void
gpusort_watch_beat(int patience_ms)
{
	if (pg_atomic_read_u32(&gpusort_control->service_pid) != (uint32) MyProcPid)
		return;
	/* one heartbeat before the step's time is shortened, and one after it is lengthened */
	pg_atomic_fetch_add_u64(&gpusort_control->heartbeat, 1);
	pg_write_barrier();
	pg_atomic_write_u32(&gpusort_control->step_ms, (uint32) patience_ms);
	pg_write_barrier();
	pg_atomic_fetch_add_u64(&gpusort_control->heartbeat, 1);
}

void
gpusort_watch_begin(int patience_ms)
{
	gpusort_watch_beat(patience_ms);
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

	if (on_hang != NULL)
	{
		now = pg_atomic_read_u64(&call);
		Assert(now % 2 == 1);
		while (now == TAKEN_OVER || !pg_atomic_compare_exchange_u64(&call, &now, now + 1))
			pause();
	}
	gpusort_watch_beat(0);
}
