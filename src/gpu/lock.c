/*-------------------------------------------------------------------------
 *
 * lock.c
 *		The lock of the control block.
 *
 * Any process may be stopped at any instruction: by SIGSTOP, by a debugger, or
 * because its cgroup is frozen.  If it holds a lock then, a process that waits in
 * LWLockAcquire() waits until the other one goes on, and cannot be cancelled.  So
 * gpusort takes its own lock by LWLockConditionalAcquire() only, and looks again
 * after a pause that doubles from 50 us to 1 ms.
 *
 * A process that finds the lock held counts for how long the lock has not
 * changed hands.  After LOCK_STUCK_MS it gives up, and notes by which use the
 * lock is held.  Other processes that find the lock held by that use give up at
 * once.  The note needs no reset: as soon as the lock is free, the next process
 * takes it, and that is another use.
 *
 * The lock protects what processes take from the control block: request slots,
 * chunks and segments, and the start of the service.  Nothing that ends a sort
 * needs it (gpu/request.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/wait_event.h"

#include "base/fault.h"
#include "gpu/control.h"
#include "gpu/lock.h"
#include "gpu/silence.h"

/* The lock is stuck if one process holds it for this long. */
#define LOCK_STUCK_MS		5000

/* A process looks this often before it first sleeps.  A holder needs a few microseconds. */
#define LOOKS_BEFORE_SLEEP	100

#define FIRST_PAUSE_US		50
#define LONGEST_PAUSE_US	1000

/* Has one process held the lock for too long?  uses is the use that this process found. */
static bool
is_stuck(GpusortSilence *silence, uint32 uses)
{
	if (pg_atomic_read_u32(&gpusort_control->lock_stuck_at) == uses)
		return true;
	if (gpusort_silence_ms(silence, uses) < LOCK_STUCK_MS)
		return false;
	pg_atomic_write_u32(&gpusort_control->lock_stuck_at, uses);
	return true;
}

static const char *
stuck_reason(void)
{
	static char reason[100];

	snprintf(reason, sizeof(reason), "Process %d has held the lock of gpusort's shared memory for more than %d seconds.",
			 gpusort_control->lock_pid, LOCK_STUCK_MS / 1000);
	return reason;
}

const char *
gpusort_lock_try(void)
{
	GpusortSilence silence = {0};
	long		pause_us = FIRST_PAUSE_US;

	for (int looks = 1; !LWLockConditionalAcquire(&gpusort_control->lock, LW_EXCLUSIVE); looks++)
	{
		if (is_stuck(&silence, pg_atomic_read_u32(&gpusort_control->lock_uses)))
			return stuck_reason();
		if (looks < LOOKS_BEFORE_SLEEP)
			continue;
		pgstat_report_wait_start(PG_WAIT_LWLOCK | gpusort_control->tranche);
		pg_usleep(pause_us);
		pgstat_report_wait_end();
		pause_us = Min(2 * pause_us, LONGEST_PAUSE_US);
		CHECK_FOR_INTERRUPTS();
	}
	gpusort_control->lock_pid = MyProcPid;
	pg_atomic_write_u32(&gpusort_control->lock_uses, pg_atomic_read_u32(&gpusort_control->lock_uses) + 1);
	(void) GPUSORT_FAULT(LOCK);
	return NULL;
}

void
gpusort_lock_take(void)
{
	while (gpusort_lock_try() != NULL)
		pg_usleep(LONGEST_PAUSE_US);
}

void
gpusort_lock_release(void)
{
	LWLockRelease(&gpusort_control->lock);
}
