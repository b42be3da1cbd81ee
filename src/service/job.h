/*-------------------------------------------------------------------------
 *
 * job.h
 *		The GPU service moves its requests on, one step at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

/*
 * Moves every request one step on.  Returns true if the device works, or soon
 * will, for one of them: then the caller must call again without waiting for
 * its latch.  Sets *idle to false if there is a request that is not parked.
 */
extern bool gpusort_job_step_all(bool *idle);

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
