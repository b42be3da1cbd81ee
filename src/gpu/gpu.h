/*-------------------------------------------------------------------------
 *
 * gpu.h
 *		A backend's side of the GPU, and the control block that it shares with the service.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_GPU_H
#define GPUSORT_GPU_GPU_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/latch.h"

#include "device_sort.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/stat.h"
#include "base/span.h"
#include "key/keybits.h"

/* ---- control.c: the control block ---- */

/*
 * It holds the requests and the state of the service, but no keys and no rows: these are in
 * files in memory that the sessions make (base/arena.h).  No process ever waits for another
 * one to release a lock: each change is one atomic write.
 *
 * "Published by X": the writer writes the field, issues a write barrier and then changes X;
 * the reader reads X, issues a read barrier and then reads the field.
 */

/* The most requests of all backends together. */
#define GPUSORT_MAX_REQUESTS	4096

typedef enum GpusortServiceState
{
	GPUSORT_SERVICE_DOWN,		/* no service; 0, as a new control block has it */
	GPUSORT_SERVICE_STARTING,	/* registered, or opening the device */
	GPUSORT_SERVICE_READY,		/* serves requests */
	GPUSORT_SERVICE_ENDING		/* fails the requests that it has, and ends */
} GpusortServiceState;

/*
 * The life of a request.  B: the backend makes the change; S: the service does.
 *
 *   FREE -B-> FILLING -B-> SUBMITTED -S-> SORTED -S-> FINISHED -B-> FREE
 *                              |             |
 *                              +-------------+-S-> FAILED -B-> FREE
 *                              |             |
 *                              +-------------+-B-> LEFT -S-> FREE
 *
 * Every change is a compare-and-exchange.  The service uses the session's files in the states
 * SUBMITTED, SORTED and LEFT, and writes only to the result and the windows.  Without a service,
 * the backend that has left a request frees it.
 */
typedef enum GpusortRequestState
{
	GPUSORT_REQUEST_FREE,		/* 0, likewise */
	GPUSORT_REQUEST_FILLING,	/* a backend fills the slot in */
	GPUSORT_REQUEST_SUBMITTED,	/* the service is to sort */
	GPUSORT_REQUEST_SORTED,		/* the result is there; rows may still come */
	GPUSORT_REQUEST_FINISHED,	/* the service is done with the request */
	GPUSORT_REQUEST_FAILED,		/* the same; error says why there is no result, or no further row */
	GPUSORT_REQUEST_LEFT		/* the backend wants nothing more */
} GpusortRequestState;

/* The reason of a sort that the device cannot hold. */
#define GPUSORT_TOO_LARGE	"The device has too little memory for this sort (gpusort.device_memory_limit)."

/* Windows of rows that may wait for the backend at a time */
#define GPUSORT_RING		4

/* One slot of the request table */
typedef struct GpusortRequest
{
	/*
	 * The GpusortRequestState and a serial, which counts the uses of the slot, so that a backend
	 * does not free a later request.  Read by anyone.
	 */
	pg_atomic_uint32 state;

	/* The sort.  The backend writes these fields in FILLING; state SUBMITTED publishes them. */
	uint64		sequence;		/* the lowest number is sorted first */
	int			pid;
	Latch	   *latch;			/* which the service sets */
	GpusortCudaSort sort;
	GpusortFileName file;		/* has the lists, and gets the result */
	GpusortPlace lists;			/* where they are */
	uint64		lists_bytes;

	/*
	 * The windows.  Window w is in ring[w % GPUSORT_RING] while consumed <= w < ready.  After state
	 * SORTED, ready publishes it.  The backend writes consumed after a full barrier, since the service
	 * overwrites what it has read.
	 */
	GpusortCudaWindow ring[GPUSORT_RING];
	pg_atomic_uint32 ready;
	pg_atomic_uint32 consumed;

	/* The report.  States SORTED and FINISHED publish it; what is said of copies out is complete in FINISHED. */
	GpusortCudaReport report;
	bool		pinned;			/* all files were registered with CUDA */
	uint64		copy_in_bytes;
	uint64		copy_out_bytes;

	char		error[160];		/* written by the service; published by state FAILED */
} GpusortRequest;

typedef struct GpusortControl
{
	pg_atomic_uint64 next_sequence; /* the next GpusortRequest.sequence */

	/*
	 * How long a request waits: what the service has found at its last look.  Written by the service,
	 * and read as an estimate.
	 */
	pg_atomic_uint64 first_unsorted;	/* the lowest sequence that was not sorted; else next_sequence */
	pg_atomic_uint32 pace_us;	/* time from a sort to the next while others wait, smoothed, in us */

	/*
	 * Signs of life of the service, which anyone reads.  It increases heartbeat
	 * whenever it looks at its requests, and its watchdog does during a call of the device.
	 * A process that gives up waiting writes the heartbeat that it saw to given_up_at:
	 * no other process waits for the service until heartbeat changes.
	 */
	pg_atomic_uint64 heartbeat; /* from 1 */
	pg_atomic_uint64 given_up_at;	/* 0: no process has given up yet */

	/*
	 * The state of the service and its device.  The process that changes service_state to STARTING, and
	 * then the service, write the other fields; a reader may see a mixture, in texts only.
	 */
	pg_atomic_uint32 service_state; /* GpusortServiceState */
	pg_atomic_uint32 service_pid;	/* 0: no service runs */
	Latch	   *service_latch;	/* NULL: no service runs */
	uint64		changed_at;		/* when service_state became STARTING or ENDING, in ms of base/clock.h */
	uint64		retry_at;		/* no backend starts a service before this time */
	char		failure[160];	/* why the service, or its start, failed last */
	TimestampTz failed_at;		/* when that was; 0: never */
	char		device[64];		/* name of the last one; empty, as 0 below, if not known */
	uint64		device_memory;	/* bytes */
	uint64		mapped_bytes;	/* bytes of sessions' files that the service has registered with CUDA */
	int			driver_version; /* CUDA version of the driver: 13000 is 13.0 */
	int			runtime_version;

	int			nrequests;		/* slots; constant */
	pg_atomic_uint32 used;		/* slots from this one on have never been used */
	GpusortRequest requests[FLEXIBLE_ARRAY_MEMBER];
} GpusortControl;

/* NULL until gpusort_control_attach() has succeeded in this process. */
extern GpusortControl *gpusort_control;

/*
 * Finds the control block, or makes it, and sets gpusort_control.  Returns false, with a
 * static *reason, if main shared memory has no room for it.
 */
extern bool gpusort_control_attach(const char **reason);

/* Changes service_state.  Returns false if it is not "from" any more.  A full barrier. */
extern bool gpusort_control_change(GpusortServiceState from, GpusortServiceState to);

/* Notes why the service, or its start, has failed: no backend starts one for retry_ms.  NULL: it has not. */
extern void gpusort_control_note_failure(const char *failure, uint64 retry_ms);

/* Slots that may be in use: the first ones */
static inline int
gpusort_control_slots(void)
{
	return (int) pg_atomic_read_u32(&gpusort_control->used);
}

static inline GpusortServiceState
gpusort_service_state(void)
{
	return (GpusortServiceState) pg_atomic_read_u32(&gpusort_control->service_state);
}

/* GpusortRequest.state: the state in the lower bits, and the serial, by which it increases with each use */
#define GPUSORT_STATE_MASK		((uint32) 15)
#define GPUSORT_STATE_SERIAL	((uint32) 16)

/* Reads the state.  It has no barrier. */
static inline GpusortRequestState
gpusort_request_state(GpusortRequest *request)
{
	return (GpusortRequestState) (pg_atomic_read_u32(&request->state) & GPUSORT_STATE_MASK);
}

/* Changes the word of the state.  Returns false if it is not "from" any more.  A full barrier. */
static inline bool
gpusort_request_exchange(GpusortRequest *request, uint32 from, uint32 to)
{
	bool		changed = pg_atomic_compare_exchange_u32(&request->state, &from, to);

	/* before Armv8.1 the exchange is a loop, whose store may follow later loads */
	pg_memory_barrier();
	return changed;
}

/* Changes the state of a request, which this process has, or the service.  Returns false if it is not "from" any more. */
static inline bool
gpusort_request_change(GpusortRequest *request, GpusortRequestState from, GpusortRequestState to)
{
	uint32		word = pg_atomic_read_u32(&request->state);

	return (word & GPUSORT_STATE_MASK) == (uint32) from && gpusort_request_exchange(request, word, word - from + to);
}

/* ---- client.c: requests ---- */

/*
 * Functions that return a string return NULL, or the reason why the GPU cannot sort:
 * one sentence for errdetail, static or valid until the next call.  They process
 * interrupts, and may raise an error if memory runs out.
 */

/* The engine's name in gpusort.engine and in reports */
#define GPUSORT_CLIENT_ENGINE	"cuda"

/* A sort on the GPU, from gpusort_client_sort() to gpusort_client_end() */
typedef struct GpusortClient GpusortClient;

typedef struct GpusortClientSpec
{
	GpusortCudaSort sort;		/* of the keys of all spans, at least 1 */
	bool		ties;			/* of a sort with rows: tell which keys are equal */
	GpusortEncoding encoding;	/* turns the words of the spans into keys */
	const GpusortSpan *keys;
	int			nkeys;
	const GpusortRowSpan *row_spans;	/* of a sort with rows: those that come back in order */
	int			nrow_spans;		/* 0: none */
} GpusortClientSpec;

/*
 * Returns NULL if the library gpusort_cuda is installed, and sessions can share memory with the
 * service, else a reason; then the functions below need not be called.  Cheap: it is called for
 * each sort that is large enough.
 */
extern const char *gpusort_client_missing(void);

/* Starts the service, if it has to be started, and does not wait.  Returns the reason if it will not be ready soon. */
extern const char *gpusort_client_prepare(void);

/* Returns how many us a new request would wait for those before it, as far as is known. */
extern uint64 gpusort_client_wait_us(void);

/*
 * Sorts.  Keys and rows are read where they are if that is in an arena of this process
 * (base/arena.h), else copied.  Returns when the result is there.  *client, which the caller has set
 * to NULL, is made below this memory context, with which it ends at the latest.  If there is a reason,
 * the caller ends it, too.
 */
extern const char *gpusort_client_sort(MemoryContext cxt, const GpusortClientSpec *spec, GpusortClient **client);

/* The result, which the caller may change, and, if ties were wanted, a byte for each row.  Valid until the client ends. */
extern void *gpusort_client_result(const GpusortClient *client);
extern const uint8 *gpusort_client_ties(const GpusortClient *client);

/* Do rows come back in order? */
extern bool gpusort_client_returns_rows(const GpusortClient *client);

/*
 * Waits for the next rows in order.  Returns false if none will come, although not all have: the
 * device has been taken by others, or failed.  *window is valid until the next call.
 */
extern bool gpusort_client_fetch(GpusortClient *client, GpusortRowWindow *window);

/* Sets *report to what the service has reported so far, with the time that this process has waited; all else is 0. */
extern void gpusort_client_report(const GpusortClient *client, GpusortReport *report);

/* Ends the client, in any state, also while a transaction aborts. */
extern void gpusort_client_end(GpusortClient *client);

/* ---- request_lists.c ---- */

/*
 * The backend writes a GpusortLists into its file, and behind it, side by side, the arrays that it
 * counts.  The service reads them by pread(), and checks that each place lies in its file.
 */

/* A file, and the bytes from its begin that have pages */
typedef struct GpusortListedFile
{
	GpusortFileName name;
	uint64		bytes;
} GpusortListedFile;

/* Keys, rows or a directory of rows, side by side */
typedef struct GpusortListedPart
{
	uint32		file;			/* index in the list of files */
	GpusortPlace place;
	uint64		bytes;
} GpusortListedPart;

/* All places but those of the arrays are in file 0, that of the request. */
typedef struct GpusortLists
{
	uint32		nfiles;			/* GpusortListedFile */
	uint32		nkeys;			/* GpusortListedPart: keys, in the order of input */
	uint32		nrows;			/* GpusortListedPart: rows and directories; 0: rows stay where they are */
	uint32		nblocks;		/* GpusortCudaRowBlock: where these are if each follows the one before at the next
								 * multiple of 8 */
	GpusortPlace result;		/* keys or positions, of all rows */
	GpusortPlace ties;			/* a byte for each row: may it tie with the one before?  0: not wanted */
	GpusortPlace windows;		/* GPUSORT_RING windows of window_bytes, side by side */
	uint64		window_bytes;
} GpusortLists;

/* Bytes of all keys of a sort, and of its result */
static inline uint64
gpusort_request_key_bytes(const GpusortCudaSort *sort)
{
	return sort->rows * gpusort_cuda_width(sort);
}

static inline uint64
gpusort_request_result_bytes(const GpusortCudaSort *sort)
{
	return sort->rows * (sort->with_rows ? sizeof(uint32) : sort->key_bytes);
}

/*
 * In a backend: allocates memory for the result in this arena, the request's own, writes the lists
 * there, and fills in *head and the request's places.  Returns false if there is no memory.  Copying
 * can be interrupted.
 */
extern bool gpusort_lists_write(GpusortArena *arena, const GpusortClientSpec *spec, GpusortRequest *request,
								GpusortLists *head);

/* ---- control.c: the service ---- */

/*
 * If gpusort_cuda is installed, reserves main shared memory for the control block, and has the postmaster start
 * the service with the server.  _PG_init calls it under preload.
 */
extern void gpusort_service_preload(void);

/*
 * Starts the service if it is down; does not wait for it.  Returns NULL, or a reason if
 * it will not be ready soon; in static memory, valid until the next call of a function of
 * this header.
 */
extern const char *gpusort_service_start(void);

/* The same, and waits until the service is ready, at most 15 s.  Resets MyLatch. */
extern const char *gpusort_service_wait(void);

/*
 * Called at each look by a process that waits for a READY service.  Returns NULL, or a
 * reason, if the service has shown no sign of life for 5 s.
 */
extern const char *gpusort_service_silent(void);

/* Sets the service's latch, if a service runs.  Any process may call it. */
extern void gpusort_service_wake(void);

#endif							/* GPUSORT_GPU_GPU_H */
