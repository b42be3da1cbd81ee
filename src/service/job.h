/*-------------------------------------------------------------------------
 *
 * job.h
 *		The GPU service moves its requests on, one step at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

/* The findings of one step of all requests. */
typedef struct GpusortStepped
{
	bool		busy;			/* the device works, or soon will, for a request: look again
								 * without waiting for the latch */
	bool		moved;			/* a download or a sort has finished, or copies have begun: the
								 * next look is likely to find more */
	bool		idle;			/* every request is parked */
} GpusortStepped;

/* Makes the table of jobs.  Called once, when the control block is attached. */
extern void gpusort_job_start(void);

/* Moves every request one step on. */
extern GpusortStepped gpusort_job_step_all(void);

/*
 * Prepares the end of an idle service.  Returns false if a backend has come, or
 * come back, meanwhile: the service must go on.  Otherwise notes in each parked
 * request how the next service continues it.  The caller holds the control lock
 * exclusively.
 */
extern bool gpusort_job_hand_over(void);

/* Closes every lane: no request has anything on the device afterwards. */
extern void gpusort_job_drop_all(void);

#endif							/* GPUSORT_SERVICE_JOB_H */
