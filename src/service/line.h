/*-------------------------------------------------------------------------
 *
 * line.h
 *		The line: the GPU service's requests in their order, and which of them
 *		hold device memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_LINE_H
#define GPUSORT_SERVICE_LINE_H

#include "service/state.h"

/* Makes the table of jobs.  Called once, when the control block is attached. */
extern void gpusort_line_start(void);

/*
 * Finds the active jobs: those whose request is in use or has something on the device.
 * Returns their number.  All others are not in line and hold no device memory.
 */
extern int	gpusort_line_find(void);

/* Active job i, for 0 <= i < gpusort_line_find().  Valid until the next call of that function. */
extern GpusortJob *gpusort_line_active(int i);

/* Is the job in line: has it something to sort, without having to wait for its own sorted pieces to leave? */
extern bool gpusort_line_has(GpusortJob *job);

/* The first active job in line; NULL: none. */
extern GpusortJob *gpusort_line_first(void);

extern void gpusort_line_go_to_end(GpusortRequest *request);

/*
 * The device has no memory for the job.  Frees what can be freed now: memory of this job if
 * others are before it in line, else of one that can wait; or makes the job's piece smaller;
 * or does nothing if a download will free memory.  The job's unsorted pieces may be off the
 * device afterwards: the caller tries again in a later pass.  Returns false, with
 * job->failure set, if nothing can help.
 */
extern bool gpusort_line_make_room(GpusortJob *job);

/*
 * Called when there is nothing to do for the job, which is not parked.  Parks it after
 * gpusort.service_idle_timeout.
 */
extern void gpusort_line_wait(GpusortJob *job);

/* Is the job parked?  Unparks it, at the end of the line, if its backend has done anything. */
extern bool gpusort_line_parked(GpusortJob *job);

/*
 * Prepares the end of an idle service.  Returns false if a backend has come, or
 * come back, meanwhile: the service must go on.  Otherwise notes in each parked
 * request how the next service continues it.  The caller holds the control lock
 * exclusively.
 */
extern bool gpusort_line_hand_over(void);

/* Closes every lane: no request has anything on the device afterwards. */
extern void gpusort_line_drop_all(void);

#endif							/* GPUSORT_SERVICE_LINE_H */
