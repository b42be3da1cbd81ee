/*-------------------------------------------------------------------------
 *
 * control.h
 *		What the backends and the GPU service share: requests, the chunk
 *		table, the state of the service.
 *
 * The control block is small enough for the spare room in PostgreSQL's main
 * shared memory, so that no preload is needed.  Keys are never in it: they
 * lie in chunks (pool.c) that live in dynamic shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CONTROL_H
#define GPUSORT_GPU_CONTROL_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "merge_key.h"

#define GPUSORT_MAX_REQUESTS	96
#define GPUSORT_CHUNK_BYTES		((size_t) 16 * 1024 * 1024)
#define GPUSORT_SEGMENT_CHUNKS	4
#define GPUSORT_SEGMENT_BYTES	(GPUSORT_SEGMENT_CHUNKS * GPUSORT_CHUNK_BYTES)
#define GPUSORT_MAX_SEGMENTS	256
#define GPUSORT_MAX_CHUNKS		(GPUSORT_MAX_SEGMENTS * GPUSORT_SEGMENT_CHUNKS)

/* Result chunks that one request cycles through. */
#define GPUSORT_RING			4

typedef enum GpusortServiceState
{
	GPUSORT_SERVICE_DOWN,		/* failure says why, unless it ended idle */
	GPUSORT_SERVICE_STARTING,	/* registered; pid is set once it runs */
	GPUSORT_SERVICE_READY
} GpusortServiceState;

/* Why a request of which nothing makes sense is not served. */
#define GPUSORT_REQUEST_DAMAGED "The request to the GPU service was damaged."

/*
 * A request's life.  Every change is made under the control lock; who may
 * make it is said behind each state.  The service touches a request's chunks
 * in the states marked *, and only then.
 */
typedef enum GpusortRequestState
{
	GPUSORT_REQUEST_FREE,
	GPUSORT_REQUEST_GATHERING,	/* * backend, from FREE: it adds chunks */
	GPUSORT_REQUEST_SUBMITTED,	/* * backend: all keys are there */
	GPUSORT_REQUEST_RETURNING,	/* * service: all has been sorted, results flow */
	GPUSORT_REQUEST_FINISHED,	/* service: every result is in its chunk */
	GPUSORT_REQUEST_FAILED,		/* service: error says why */
	GPUSORT_REQUEST_LEFT,		/* * backend: stop, but let me keep the chunks;
								 * the service makes it FINISHED */
	GPUSORT_REQUEST_ABANDONED	/* * backend: stop and free everything */
} GpusortRequestState;

typedef struct GpusortRequest
{
	pg_atomic_uint32 state;		/* GpusortRequestState */
	uint32		serial;			/* new for each use of the slot */
	int			pid;			/* the backend, and how to wake it */
	Latch	   *latch;

	/* the backend's: what to sort */
	uint64		sequence;		/* place in line; the service may move it back */
	uint64		expected_rows;	/* at least so many, as far as known */
	uint8		key_bytes;		/* of a key's word */
	uint8		words;			/* of a key; several only if want_rows */
	bool		want_rows;
	uint8		algorithm;		/* GpusortAlgorithm */
	uint16		bins;

	/*
	 * Input chunks, a list through chunks[].next.  The first nclosed of them
	 * are complete and linked; the service reads no further.  Each holds whole
	 * keys, and all but the last as many as have room.
	 */
	int			first_chunk;
	int			last_chunk;
	pg_atomic_uint32 nclosed;

	/*
	 * Result blocks of GPUSORT_CHUNK_BYTES, but for the last: block b lies in
	 * ring[b % nring], from when ready > b until consumed > b.
	 *
	 * A run that is too large for the device is sorted in_pieces, which is
	 * known before its first block is ready.  Then each piece is returned as
	 * soon as it is sorted, also while keys are still gathered: the blocks of
	 * its keys and, if want_rows, those of their positions in the piece, which
	 * has piece_rows[b % nring] rows.  What comes back of keys of several words
	 * is made as merge_key says, once there is a piece.
	 */
	int			ring[GPUSORT_RING];
	uint64		piece_rows[GPUSORT_RING];
	int			nring;
	bool		in_pieces;
	GpusortMergeKey merge_key;	/* service's */
	pg_atomic_uint32 ready;		/* service's */
	pg_atomic_uint32 consumed;	/* backend's */

	/*
	 * Where the next service goes on, if blocks are ready when this one ends for
	 * having nothing to do: with piece resume_piece, which begins after that many
	 * chunks and blocks, and has resume_most chunks at most.
	 */
	uint32		resume_piece;
	uint32		resume_chunks;
	uint32		resume_blocks;
	uint32		resume_most;

	/* the service's: how it went; complete in FINISHED */
	uint8		algorithm_used;
	bool		pinned;
	bool		resorted;		/* the device's check failed once, and CUB sorted again */
	int			blocks;
	int			threads;
	int			bins_used;
	int			pieces;
	double		copy_in_ms;
	double		kernels_ms;
	double		copy_out_ms;
	char		error[160];
} GpusortRequest;

typedef struct GpusortChunk
{
	int16		next;			/* in its request's list; -1 at the end */
	int16		request;		/* who holds it; -1: free */
	uint32		bytes;			/* of keys, once closed */
} GpusortChunk;

typedef struct GpusortSegment
{
	dsm_handle	handle;			/* DSM_HANDLE_INVALID: no such segment */
	bool		creating;		/* some backend is about to set handle */
	bool		gone;			/* by name: only who has mapped it can use it */
} GpusortSegment;

typedef struct GpusortControl
{
	int			tranche;
	LWLock		lock;
	uint64		next_sequence;

	/* the service */
	pg_atomic_uint32 service_state;
	int			service_pid;	/* 0: none runs */
	Latch	   *service_latch;
	TimestampTz started_at;		/* when STARTING was set */
	TimestampTz retry_at;		/* not to be started before, after a failure */
	char		failure[160];	/* why it is DOWN; empty: for no bad reason */
	int			pool_limit;		/* MB, the service's gpusort.pool_limit; 0: no service yet */

	/* the device, once READY was reached */
	char		device[64];
	uint64		device_memory;
	int			driver_version;
	int			runtime_version;

	GpusortSegment segments[GPUSORT_MAX_SEGMENTS];
	GpusortChunk chunks[GPUSORT_MAX_CHUNKS];
	GpusortRequest requests[GPUSORT_MAX_REQUESTS];
} GpusortControl;

extern GpusortControl *gpusort_control;

/* Asks for room in main shared memory; from _PG_init when preloaded. */
extern void gpusort_control_request_memory(void);

/* Sets gpusort_control.  False, with *reason, if there is no room for it. */
extern bool gpusort_control_attach(const char **reason);

/* Is this the latch of a process, current or not? */
extern bool gpusort_control_is_latch(const Latch *latch);

/* Wakes the request's backend, unless what should be its latch is none. */
extern void gpusort_control_wake(const GpusortRequest *request);

/* Bytes from one of the request's keys to the next. */
static inline Size
gpusort_request_width(const GpusortRequest *request)
{
	return (Size) request->key_bytes * request->words;
}

/*
 * May a service be using requests' chunks?  One that is starting has not looked
 * at them, and one that has announced its end will not again.  The lock is held.
 */
static inline bool
gpusort_control_served(void)
{
	return pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_READY;
}

static inline GpusortRequestState
gpusort_request_state(GpusortRequest *request)
{
	return (GpusortRequestState) pg_atomic_read_u32(&request->state);
}

#endif							/* GPUSORT_GPU_CONTROL_H */
