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

/* Moves every request one step on. */
extern GpusortStepped gpusort_job_step_all(void);

#endif							/* GPUSORT_SERVICE_JOB_H */
