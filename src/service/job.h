/*-------------------------------------------------------------------------
 *
 * job.h
 *		The GPU service: moves requests on, one step at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

/*
 * Moves one request on.  True if the device is, or soon will be, at work for
 * it; *idle is cleared if there is a request that is not parked.
 */
extern bool gpusort_job_step(int index, bool *idle);

/*
 * The service is about to end because it is idle.  False if a backend has
 * come, or come back, meanwhile; else all is noted that the next service needs
 * to go on with what is parked.  The control lock is held exclusively.
 */
extern bool gpusort_job_hand_over(void);

/* Gives up what every request has on the device. */
extern void gpusort_job_drop_all(void);

#endif							/* GPUSORT_SERVICE_JOB_H */
