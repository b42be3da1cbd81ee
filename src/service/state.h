/*-------------------------------------------------------------------------
 *
 * state.h
 *		The GPU service's private state of a request: a job and its pieces.
 *
 * A job is the service's private state for a request.  A piece is a part of
 * the request's chunks that the device sorts by itself; most requests have one
 * piece.  service/cut.c says which chunks belong to a piece, service/piece.c
 * uploads, sorts and returns it, and service/line.c and service/job.c say when.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_STATE_H
#define GPUSORT_SERVICE_STATE_H

#include "gpu/chunk.h"
#include "gpusort_cuda.h"

/* Pieces of a request on the device: one arrives, one is sorted, one leaves. */
#define GPUSORT_MAX_PIECES	3

typedef struct GpusortPiece
{
	GpusortCudaLane *lane;		/* NULL: nothing of the piece is on the device */
	bool		waiting;		/* on the device, and not sorted yet */
	uint32		first;			/* index of its first chunk within the request */
	uint32		most;			/* its limit, in large chunks */
	int			before;			/* pool number of the chunk before it, or -1 */

	/* The chunks that belong to it, as far as they have been counted */
	uint32		count;
	uint32		small;			/* their size, in small chunks */
	int			last_counted;	/* pool number of the last one; if there is none, the
								 * same as before */
	bool		full;			/* the next chunk has come, and does not belong to it */

	int			last;			/* pool number of the chunk uploaded last; before
								 * the first upload: the same as before */
	uint32		uploaded;		/* chunks queued for upload */
	uint64		rows;			/* rows in the uploaded chunks */

	/* Set by the sort: blocks of the result, as in gpu/control.h. */
	uint32		nblocks;		/* all blocks: keys, then row numbers */
	uint32		nkey_blocks;	/* the blocks that hold keys */
	uint32		queued;			/* blocks queued for download */
	uint32		resumed;		/* blocks sent before this lane was opened */
	uint32		sent;			/* blocks published to the backend */
} GpusortPiece;

typedef struct GpusortJob
{
	GpusortRequest *request;
	uint32		serial;			/* serial of the request to which this state belongs */

	/*
	 * Piece p is pieces[p % GPUSORT_MAX_PIECES] for returned <= p < begun.
	 * Pieces below sorted are sorted.  Invariants: returned <= sorted <= begun,
	 * and begun - returned <= GPUSORT_MAX_PIECES.
	 */
	GpusortPiece pieces[GPUSORT_MAX_PIECES];
	uint32		returned;
	uint32		sorted;
	uint32		begun;

	uint32		piece_chunks;	/* limit of the next piece to begin, in large chunks */
	uint32		blocks;			/* result blocks of the returned pieces */
	Size		block_bytes;	/* bytes of a result block; set by the first sort, and
								 * constant from the first block on */
	bool		starved;		/* gave up device memory; uploads nothing until it is
								 * first in line, and then one piece only */

	/*
	 * Since waiting_since (ms of the monotonic clock), the service has only
	 * waited for the request's backend; 0: it has work to do for the request.
	 * The seen_ fields are the state of the request when the wait began.  A
	 * request that waits for gpusort.service_idle_timeout is parked: it has
	 * nothing on the device until its backend does more.
	 */
	uint64		waiting_since;
	GpusortRequestState seen_state;
	uint32		seen_nclosed;
	uint32		seen_consumed;
	bool		parked;

	/*
	 * While copies are in flight: the watchdog's time (gpusort_watch_time()) of
	 * their last progress, and the number of copies queued and finished by then,
	 * by which progress is recognised.
	 */
	bool		copying;
	uint64		progress_at;
	uint64		copies_seen;

	char		failure[160];	/* why a piece failed */
} GpusortJob;

/* Bytes from one key of the request to the next. */
static inline Size
gpusort_job_width(const GpusortJob *job)
{
	return (Size) job->request->key_bytes * job->request->words;
}

/* The index of the job's request in the table of requests. */
static inline int
gpusort_job_index(const GpusortJob *job)
{
	return job->request - gpusort_control->requests;
}

/* The request's chunk after chunk, or its first one if chunk is -1. */
static inline int
gpusort_job_next_chunk(const GpusortJob *job, int chunk)
{
	return chunk < 0 ? job->request->first_chunk : gpusort_control->chunks[chunk].next;
}

static inline GpusortPiece *
gpusort_job_piece(GpusortJob *job, uint32 p)
{
	return &job->pieces[p % GPUSORT_MAX_PIECES];
}

/* The outcome of a step.  FAILED: job->failure says why. */
typedef enum GpusortPieceOutcome
{
	GPUSORT_PIECE_OK,
	GPUSORT_PIECE_NO_MEMORY,	/* the device has too little free memory now */
	GPUSORT_PIECE_FAILED
} GpusortPieceOutcome;

/* Notes why a step of the job failed. */
static inline GpusortPieceOutcome
gpusort_job_failed(GpusortJob *job, const char *reason)
{
	strlcpy(job->failure, reason, sizeof(job->failure));
	return GPUSORT_PIECE_FAILED;
}

#endif							/* GPUSORT_SERVICE_STATE_H */
