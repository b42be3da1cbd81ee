/*-------------------------------------------------------------------------
 *
 * job.h
 *		The steps of a request of the GPU service: upload, sort, return.
 *
 * A job is the service's private state for a slot of the request table.  Its keys are
 * in one lane of the device.  service/queue.c says when a job takes a step.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

#include "gpu/chunk.h"
#include "gpusort_cuda.h"

typedef struct GpusortJob
{
	GpusortRequest *request;
	uint32		serial;			/* serial of the request to which this state belongs */

	/* What is on the device */
	GpusortCudaLane *lane;		/* NULL: nothing */
	bool		sorted;
	int			last;			/* pool number of the chunk uploaded last; -1: none */
	uint32		uploaded;		/* chunks queued for upload */
	uint64		rows;			/* rows in these */

	/* The result, in blocks as in gpu/control.h */
	Size		block_bytes;	/* constant from the first block on */
	uint32		nblocks;		/* known once it is sorted */
	uint32		resumed;		/* blocks sent before this lane was opened */
	uint32		queued;			/* blocks queued for download */
	uint32		sent;			/* blocks published to the backend */

	/* Of the queue (service/queue.c) */
	bool		starved;		/* gave up device memory; uploads nothing until it is first in the queue */
	bool		parked;			/* has nothing on the device until its backend does more */
	uint64		waiting_since;	/* since then, in ms of base/clock.h, the service has only waited for the
								 * backend; 0: it has work to do */
	uint32		seen_word;		/* the request as it was when the wait began */
	uint32		seen_nclosed;
	uint32		seen_consumed;
	uint64		copies_seen;	/* copies queued and finished at the last look */
	uint64		progress_at;	/* when that number changed, or no copy was in flight, by gpusort_watch_time() */
} GpusortJob;

static inline Size
gpusort_job_width(const GpusortJob *job)
{
	return (Size) job->request->key_bytes * job->request->words;
}

/* Begins a job for the request of this serial, which is new in the slot or was begun by another service. */
extern void gpusort_job_begin(GpusortJob *job, uint32 serial);

/* Takes the job off the device.  Its keys can be uploaded and sorted again. */
extern void gpusort_job_drop(GpusortJob *job);

/*
 * Queues the upload of the chunks that have come and are not queued yet.  This step and
 * the next one return false if the device has too little memory now.  If a step fails, it
 * fails the request, and returns true.
 */
extern bool gpusort_job_upload(GpusortJob *job);

/* Are all keys of a request that gathers no more on the device or, if they are few, on the way to it? */
extern bool gpusort_job_is_uploaded(GpusortJob *job);

/* Sorts a job that is uploaded.  Waits for the device. */
extern bool gpusort_job_sort(GpusortJob *job);

/* Queues downloads of a sorted job into empty result chunks, and publishes the blocks that have arrived. */
extern void gpusort_job_return(GpusortJob *job);

/* Are copies of the job in flight? */
extern bool gpusort_job_copies(GpusortJob *job);

/* Fails the request, unless its backend has left it meanwhile. */
extern void gpusort_job_fail(GpusortJob *job, const char *reason);

#endif							/* GPUSORT_SERVICE_JOB_H */
