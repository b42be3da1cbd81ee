/*-------------------------------------------------------------------------
 *
 * service.h
 *		The GPU service's process: requests, queue, device, watchdog.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_SERVICE_H
#define GPUSORT_SERVICE_SERVICE_H

#include <limits.h>

#include "gpusort_cuda.h"

#include "base/arena.h"
#include "base/fault.h"
#include "gpu/gpu.h"

/* ---- watch.c: ends a service whose device hangs ---- */

/* A device call may take 30 s, plus 10 s for each GB to copy or sort; a slow bus needs 0.1 s for a GB. */
#define GPUSORT_PATIENCE_MS			30000
#define GPUSORT_PATIENCE_MS_PER_GB	10000

/* The timeout of opening the device: a driver may have to initialise many devices. */
#define GPUSORT_OPEN_PATIENCE_MS	120000

/* The timeout of a device call that copies or sorts this many bytes, in ms. */
static inline int
gpusort_watch_patience(uint64 bytes)
{
	return GPUSORT_FAULT_PATIENCE(GPUSORT_PATIENCE_MS) +
		(int) Min(bytes / (1024 * 1024) * GPUSORT_PATIENCE_MS_PER_GB / 1024, INT_MAX / 2);
}

/* The text for the log and for waiting backends; %d is the timeout in seconds. */
#define GPUSORT_HANG_REASON	"The device did not finish its work within %d seconds."

/* How long the watchdog has watched, in ms, in steps of 1 s.  Stays the same if there is none. */
extern uint64 gpusort_watch_time(void);

/*
 * Starts the watchdog thread, from the service's own one.  When a device call exceeds its timeout, the watchdog
 * writes a line to the log, and hangs() is called in the service's own thread, from a signal handler.  It must not return.
 */
extern void gpusort_watch_start(void (*hangs) (int patience_ms));

/* Shows backends that the service is alive.  Does nothing in a process that is not the service, or not any more. */
extern void gpusort_watch_beat(void);

/* Called by the service's own thread around every device call, during which the watchdog shows signs of life. */
extern void gpusort_watch_begin(int patience_ms);
extern void gpusort_watch_end(void);

/* Makes a device call that copies or sorts this many bytes, watched. */
#define GPUSORT_WATCHED(bytes, call) \
	do { \
		gpusort_watch_begin(gpusort_watch_patience(bytes)); \
		call; \
		gpusort_watch_end(); \
	} while (0)

/* ---- device.c ---- */

/* The functions of the library gpusort_cuda; NULL until it is loaded. */
extern const GpusortCudaFunctions *gpusort_cuda;

/* The device, while it is open; else NULL. */
extern GpusortCudaDevice *gpusort_service_device;

/* Bytes of device memory that sorts may take */
extern uint64 gpusort_service_memory;

/*
 * Registers the callback that leaves shared memory in order when this process ends, starts the watchdog,
 * loads gpusort_cuda, and opens the device with the most memory of those that gpusort.device allows.
 * Ends the service if there is no usable library or device.
 */
extern void gpusort_device_open(void);

/* Closes the device, which must have no lane open.  idle: the service is about to end because it is idle. */
extern void gpusort_device_close(bool idle);

/* Applies gpusort.device_memory_limit, which has been read again. */
extern void gpusort_device_limit_memory(void);

/* Ends the service if status says that the device may be lost.  The caller handles NO_MEMORY and UNSORTED. */
extern void gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err);

/* Ends the service because the device has not finished its work within the timeout. */
extern void gpusort_service_hangs(int patience_ms);

/* ---- files.c ---- */

/* CUDA registers what a file has got since the last request as one part; a copy must not cross two of them. */
#define GPUSORT_FILE_PARTS	64

typedef struct GpusortServiceFile
{
	struct GpusortServiceFile *next;
	GpusortFileName name;
	char	   *mem;
	int			users;			/* jobs that use it */
	int			nparts;
	uint64		ends[GPUSORT_FILE_PARTS];	/* of the registered parts, in bytes; each begins where the one before ends */
	bool		dropped;		/* by its session, or the session has ended */
	bool		refused;		/* CUDA has not registered a part, and is not asked again */
} GpusortServiceFile;

/*
 * Maps a file, if it is not mapped yet, and registers its first bytes, which have pages.  Returns NULL
 * if this process cannot open it, or has no addresses for it.  The caller is one of its users, until it lowers their
 * number; the file stays mapped while the session keeps it.
 */
extern GpusortServiceFile *gpusort_file_open(const GpusortFileName *name, uint64 bytes);

/* Reads bytes of a file, also if the session has no memory there.  Returns false if that fails. */
extern bool gpusort_file_read(const GpusortFileName *name, GpusortPlace place, void *to, size_t bytes);

/* Returns how many of these bytes, from this place on, one copy can take. */
extern uint64 gpusort_file_piece(const GpusortServiceFile *file, GpusortPlace place, uint64 bytes);

/* Returns how many of the file's first bytes are registered. */
extern uint64 gpusort_file_registered(const GpusortServiceFile *file);

/* Looks which files their sessions have dropped. */
extern void gpusort_files_look(void);

/*
 * Unmaps one file that was dropped and that no job uses, which takes some 50 us for each MB.  Returns false if
 * there is none.
 */
extern bool gpusort_files_let_go(void);

/* ---- job.c ---- */

/*
 * A job is the service's private state for a slot of the request table.  Its keys and rows are
 * in one lane of the device.  service/queue.c says when a job takes a step.
 */

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
	MemoryContext cxt;			/* has the lists, which have been checked; NULL: none */
	GpusortLists lists;
	const GpusortListedPart *keys;
	const GpusortListedPart *rows;
	const GpusortCudaRowBlock *blocks;
	GpusortServiceFile **files;
	int			nopen;			/* of files */
	uint64		row_bytes;		/* bytes of rows and directories on the device; 0: rows stay where they are */

	/* From UPLOADS on */
	GpusortCudaLane *lane;
	uint64		uploads;		/* copies queued */
	uint64		downloads;

	/* From RESULT on */
	uint64		result_done;	/* the result is there when this many downloads are */
	uint64		nwindows;		/* 0: no rows */
	uint32		queued;			/* windows queued for download */
	uint32		sent;			/* windows published to the backend */
	uint64		window_done[GPUSORT_RING];	/* window w is there when window_done[w % GPUSORT_RING] downloads are */

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

/* ---- queue.c ---- */

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

#endif							/* GPUSORT_SERVICE_SERVICE_H */
