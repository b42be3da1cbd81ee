/*-------------------------------------------------------------------------
 *
 * control.h
 *		The control block: shared memory of the backends and the GPU service.
 *
 * It holds the requests and the state of the service, but no keys and no rows: these are in
 * files in memory that the sessions make (base/arena.h).  No process ever waits for another
 * one to release a lock: each change is one atomic write.
 *
 * "Published by X": the writer writes the field, issues a write barrier and then changes X;
 * the reader reads X, issues a read barrier and then reads the field.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CONTROL_H
#define GPUSORT_GPU_CONTROL_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/latch.h"

#include "base/arena.h"
#include "base/clock.h"

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

/* Rows of the result, side by side */
typedef struct GpusortRequestWindow
{
	uint64		first;			/* the place of its first row in the sorted order */
	uint64		count;
	uint64		bytes;
} GpusortRequestWindow;

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
	uint64		rows;
	uint8		key_bytes;		/* bytes of one key word: 4 or 8 */
	uint8		words;			/* words of one key: 1 to GPUSORT_MAX_WORDS; above 1 only with words of 8
								 * bytes and positions */
	bool		positions;		/* return input positions (uint32), not keys */
	uint8		algorithm;		/* GpusortAlgorithm */
	GpusortFileName file;		/* has the lists, and gets the result */
	GpusortPlace lists;			/* where they are: gpu/lists.h */
	uint64		lists_bytes;

	/*
	 * The windows.  Window w is in ring[w % GPUSORT_RING] while consumed <= w < ready.  After state
	 * SORTED, ready publishes it.  The backend writes consumed after a full barrier, since the service
	 * overwrites what it has read.
	 */
	GpusortRequestWindow ring[GPUSORT_RING];
	pg_atomic_uint32 ready;
	pg_atomic_uint32 consumed;

	/* The report.  States SORTED and FINISHED publish it; copy_out_ms and copy_out_bytes are complete in FINISHED. */
	uint8		algorithm_used; /* GpusortAlgorithm */
	bool		pinned;			/* all files were registered with CUDA */
	int			blocks;			/* largest launch: blocks of the grid */
	int			threads;		/* largest launch: threads of a block */
	int			bins_used;		/* bins of mppsort; 0 if another algorithm ran */
	uint64		copy_in_bytes;
	double		copy_in_ms;
	double		kernels_ms;
	double		arrange_ms;
	uint64		copy_out_bytes;
	double		copy_out_ms;

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
	GpusortRequest *requests;	/* the slots; constant, the same address in every process */
} GpusortControl;

/* NULL until gpusort_control_attach() has succeeded in this process. */
extern GpusortControl *gpusort_control;

/* Reserves main shared memory for the block.  _PG_init calls it under preload. */
extern void gpusort_control_request_memory(void);

/*
 * Finds the control block, or makes it, and sets gpusort_control.  Returns false, with a
 * static *reason, if main shared memory has no room for it.
 */
extern bool gpusort_control_attach(const char **reason);

/* Changes service_state.  Returns false if it is not "from" any more.  A full barrier. */
extern bool gpusort_control_change(GpusortServiceState from, GpusortServiceState to);

/* Notes why the service, or its start, has failed: no backend starts one for retry_ms.  NULL: it has not. */
extern void gpusort_control_note_failure(const char *failure, uint64 retry_ms);

/* Is there a request that the service has to serve? */
extern bool gpusort_control_has_request(void);

/*
 * In a service that ends: fails all requests for this reason; NULL: leaves those to the next service that
 * this one has not sorted.
 */
extern void gpusort_control_fail_all(const char *reason);

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

#endif							/* GPUSORT_GPU_CONTROL_H */
