/*-------------------------------------------------------------------------
 *
 * job.h
 *		The steps of a request of the GPU service: upload, sort, return.
 *
 * A job is the service's private state for a slot of the request table.  Its keys and rows are
 * in one lane of the device.  service/queue.c says when a job takes a step.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

#include "gpu/control.h"
#include "gpusort_cuda.h"
#include "service/lists.h"

typedef enum GpusortJobStage
{
	GPUSORT_JOB_NONE,			/* no request, or one that has not been looked at */
	GPUSORT_JOB_QUEUED,			/* the lists are read; nothing is on the device */
	GPUSORT_JOB_UPLOADS,		/* copies to the device are queued */
	GPUSORT_JOB_RESULT,			/* sorted; copies of the result are queued */
	GPUSORT_JOB_WINDOWS			/* the backend has the result; rows go to it */
} GpusortJobStage;

typedef struct GpusortJob
{
	GpusortRequest *request;
	GpusortJobStage stage;

	/* From QUEUED on */
	MemoryContext cxt;			/* has the lists; NULL: none */
	GpusortJobInput in;

	/* From UPLOADS on */
	GpusortCudaLane *lane;
	uint64		uploads;		/* copies queued */
	uint64		downloads;

	/* From RESULT on */
	uint64		result_done;	/* the result is there when this many downloads are */
	uint64		nwindows;		/* 0: no rows */
	uint32		queued;			/* windows queued for download */
	uint32		sent;			/* windows published to the backend */
	GpusortRequestWindow ring[GPUSORT_RING];	/* those queued */
	uint64		window_done[GPUSORT_RING];	/* likewise */

	/* Of the queue (service/queue.c) */
	uint64		waiting_since;	/* since then, in ms of base/clock.h, the service has only waited for the
								 * backend; 0: it has work to do */
	uint32		seen_consumed;	/* the request as it was when the wait began */
	uint64		queued_at;		/* when it came, in ms of base/clock.h */
	uint64		full_at;		/* bytes of device memory in use when the sort had too little; 0: it has not failed */
	uint64		copies_seen;	/* copies queued, and windows sent, at the last look */
	uint64		progress_at;	/* when that number changed, or no copy was in flight, by gpusort_watch_time() */
} GpusortJob;

/* Bytes of device memory that the job takes at most, with or without its rows */
extern uint64 gpusort_job_memory(const GpusortJob *job, bool rows);

/* Reads and checks the lists of a request that is new.  This and other steps may fail the request. */
extern void gpusort_job_begin(GpusortJob *job);

/* Queues the uploads.  Returns false if the device has too little memory now; nothing of the job is there then. */
extern bool gpusort_job_upload(GpusortJob *job);

/* Are keys and rows on the device or, if they are few, on the way to it? */
extern bool gpusort_job_is_uploaded(GpusortJob *job);

/* Sorts a job that is uploaded, and queues the downloads of the result.  Waits for the device.  Returns as upload() does. */
extern bool gpusort_job_sort(GpusortJob *job);

/* Publishes what has arrived, and queues windows that the backend has room for. */
extern void gpusort_job_return(GpusortJob *job);

/* Are copies of the job in flight? */
extern bool gpusort_job_copies(GpusortJob *job);

/* Ends a job whose backend has the result: it gets no further rows. */
extern void gpusort_job_cut(GpusortJob *job);

/* Takes the job off the device, and lets go of its files. */
extern void gpusort_job_end(GpusortJob *job);

/* Ends the job, and fails the request, unless its backend has left it. */
extern void gpusort_job_fail(GpusortJob *job, const char *reason);

#endif							/* GPUSORT_SERVICE_JOB_H */
