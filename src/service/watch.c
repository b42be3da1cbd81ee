/*-------------------------------------------------------------------------
 *
 * watch.c
 *		The GPU service's watchdog: ends a service whose device hangs.
 *
 * Most CUDA calls wait for the device, and nothing but a signal interrupts them.  So a thread looks
 * once a second.  When a call has exceeded its timeout, the thread sends a signal to the service's own
 * thread, whose handler ends the process from within the call.  A mere _exit() would leave the
 * process's PGPROC in use, which the postmaster takes for a crash: it would end all sessions of the
 * server.  So the handler runs shmem_exit().  It is the thread that always runs PostgreSQL's code, and
 * the callbacks of other modules, so these find the stack and the thread-local variables that they
 * expect.  And it interrupts no code of PostgreSQL:
 *
 *	1.	The atomic word "call" is odd during a device call, changes with every call, and is TAKEN_OVER
 *		after the watchdog's compare-and-exchange, which is a full barrier.  A device call that returns
 *		meanwhile finds that, and waits for the signal.
 *	2.	The handler does nothing in another thread, or unless "call" is TAKEN_OVER.
 *	3.	It does not jump out of the device call: its caller sets a PG_exception_stack of its own
 *		(service/device.c).
 *
 * The C library is the exception: the call, or a thread of the driver, may hold a lock of malloc() or
 * stdio.  So the watchdog writes to the log by write(), and the handler first asks the kernel for a
 * SIGALRM.  If shmem_exit() blocks, SIGALRM kills the process.  A call that sleeps in the kernel where
 * no signal wakes it ends the process when it wakes.
 *
 * The thread counts its looks instead of reading a clock, so that time during which the
 * process is stopped does not count.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/atomics.h"

#include "base/thread.h"
#include "gpu/gpu.h"
#include "service/service.h"

#define LOOK_MS			1000
#define TAKEN_OVER		PG_UINT64_MAX

/* From the watchdog to the service's own thread.  Background workers ignore it otherwise. */
#define HANG_SIGNAL		SIGUSR2

static pg_atomic_uint64 all_looks;	/* since the watchdog was started */
static pg_atomic_uint64 call;	/* see 1. above */
static pg_atomic_uint32 call_patience_ms;	/* timeout of the present call */
static void (*on_hang) (int patience_ms) = NULL;	/* NULL: there is no watchdog */
static pthread_t own_thread;	/* the service's own thread */

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

/* A handler of HANG_SIGNAL */
static void
end_call(int signal)
{
	if (pg_atomic_read_u64(&call) != TAKEN_OVER || !pthread_equal(pthread_self(), own_thread))
		return;
	set_alarm();
	on_hang((int) pg_atomic_read_u32(&call_patience_ms));
}

void
gpusort_watch_beat(void)
{
	if (pg_atomic_read_u32(&gpusort_control->service_pid) == (uint32) MyProcPid)
		pg_atomic_fetch_add_u64(&gpusort_control->heartbeat, 1);
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
		if (now % 2 == 1)
			gpusort_watch_beat();
		if (now % 2 == 1 && looks >= patience_ms / LOOK_MS &&
			pg_atomic_compare_exchange_u64(&call, &now, TAKEN_OVER))
		{
			tell_log(patience_ms);
			pthread_kill(own_thread, HANG_SIGNAL);
			return NULL;
		}
	}
}

void
gpusort_watch_start(void (*hangs) (int patience_ms))
{
	struct sigaction action = {.sa_handler = end_call};
	sigset_t	hang;
	pthread_t	thread;

	on_hang = hangs;
	own_thread = pthread_self();
	sigfillset(&action.sa_mask);
	sigaction(HANG_SIGNAL, &action, NULL);
	if (gpusort_thread_start(&thread, watch, NULL) == 0)
		pthread_detach(thread);
	else
	{
		on_hang = NULL;
		ereport(LOG,
				(errmsg("gpusort service could not start its watchdog"),
				 errdetail("If the device hangs, the service will hang, too.")));
	}
	sigemptyset(&hang);
	sigaddset(&hang, HANG_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &hang, NULL);
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
