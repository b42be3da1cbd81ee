/*-------------------------------------------------------------------------
 *
 * queue.h
 *		The queue of the GPU service's requests: first come, first served.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_QUEUE_H
#define GPUSORT_SERVICE_QUEUE_H

/* The findings of one step of all requests. */
typedef struct GpusortStepped
{
	bool		busy;			/* the device works, or soon will, for a request: look again
								 * without waiting for the latch */
	bool		moved;			/* copies have begun or finished, or a sort has: the next look
								 * is likely to find more */
	bool		idle;			/* there is no request */
} GpusortStepped;

/* Makes the table of jobs.  Called once, when the control block is attached. */
extern void gpusort_queue_start(void);

/* Moves every request one step on. */
extern GpusortStepped gpusort_queue_step(void);

/* Takes all requests off the device. */
extern void gpusort_queue_drop_all(void);

#endif							/* GPUSORT_SERVICE_QUEUE_H */
