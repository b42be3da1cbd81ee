/*-------------------------------------------------------------------------
 *
 * piece.h
 *		A request of the GPU service, its pieces, and the steps of a piece.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_PIECE_H
#define GPUSORT_SERVICE_PIECE_H

#include "gpu/control.h"
#include "gpusort_cuda.h"

/* Pieces of a request on the device: one comes, one is sorted, one goes. */
#define GPUSORT_MAX_PIECES	3

/* A stretch of a request's chunks, sorted by itself: often all of them. */
typedef struct GpusortPiece
{
	GpusortCudaLane *lane;		/* NULL: nothing of it is on the device */
	uint32		first;			/* its first chunk, counted in the request */
	uint32		most;			/* chunks; fewer if no more come */
	int			before;			/* the chunk before it, or -1 */
	int			last;			/* the chunk uploaded last, or before */
	uint32		uploaded;		/* chunks queued for upload */
	uint64		rows;			/* in those */

	/* once sorted: blocks of the result, see gpu/control.h */
	uint32		nblocks;
	uint32		nkey_blocks;	/* keys come first, the rest are rows */
	uint32		queued;			/* for download */
	uint32		resumed;		/* of which before this lane was opened */
	uint32		sent;			/* the backend knows of these */
} GpusortPiece;

/* The service's own side of a request. */
typedef struct GpusortJob
{
	GpusortRequest *request;
	uint32		serial;			/* of the use of the request that the rest is about */

	/* what it said when that began, and may no longer say if it is damaged */
	uint8		key_bytes;
	uint8		words;
	bool		want_rows;

	/*
	 * Piece p is pieces[p % GPUSORT_MAX_PIECES], for returned <= p < begun.
	 * Those below sorted are; returned <= sorted <= begun, and begun - returned
	 * is at most GPUSORT_MAX_PIECES.
	 */
	GpusortPiece pieces[GPUSORT_MAX_PIECES];
	uint32		returned;
	uint32		sorted;
	uint32		begun;

	uint32		piece_chunks;	/* for the next piece to be begun */
	uint32		blocks;			/* of the pieces returned */
	bool		starved;		/* gave device memory up; uploads no more until
								 * first in line, and one piece only */

	/*
	 * Since when there is nothing to do for the request but to wait for its
	 * backend, 0 if there is, and what the backend had done by then.  parked:
	 * that was long ago, and the request has nothing on the device, nor will
	 * before its backend does more.
	 */
	TimestampTz waiting_since;
	GpusortRequestState seen_state;
	uint32		seen_nclosed;
	uint32		seen_consumed;
	bool		parked;
	/* Since when copies are in flight with none queued or finished; 0: none are. */
	TimestampTz copying_since;
	uint64		copies_seen;

	char		failure[160];	/* why a piece failed */
} GpusortJob;

/* Bytes from one key of the request to the next. */
static inline Size
gpusort_job_width(const GpusortJob *job)
{
	return (Size) job->key_bytes * job->words;
}

static inline GpusortPiece *
gpusort_job_piece(GpusortJob *job, uint32 p)
{
	return &job->pieces[p % GPUSORT_MAX_PIECES];
}

/* How a step of a piece went.  FAILED: the job's failure says why. */
typedef enum GpusortPieceOutcome
{
	GPUSORT_PIECE_OK,
	GPUSORT_PIECE_NO_MEMORY,
	GPUSORT_PIECE_FAILED
} GpusortPieceOutcome;

/*
 * Bytes of device memory with which that many chunks of the request's keys
 * can be uploaded and sorted.
 */
extern uint64 gpusort_piece_memory(const GpusortJob *job, uint32 chunks);

/*
 * Forgets all pieces, reads what is to be sorted, and decides how large the
 * request's pieces shall be.
 */
extern void gpusort_piece_reset(GpusortJob *job);

/*
 * Notes in the request which piece is the oldest that is not returned, and, in
 * another service, begins with that one after a reset.
 */
extern void gpusort_piece_note(GpusortJob *job);
extern void gpusort_piece_resume(GpusortJob *job);

/* Begins pieces for the chunks that there are.  Fails if these are damaged. */
extern GpusortPieceOutcome gpusort_piece_begin(GpusortJob *job);

/* Will no more chunks come to piece p, which is begun? */
extern bool gpusort_piece_complete(const GpusortJob *job, uint32 p);

/* Is piece p, which is begun, the one that no other will follow? */
extern bool gpusort_piece_last(const GpusortJob *job, uint32 p);

/* Is the device likely to have room for piece p beside the job's others? */
extern bool gpusort_piece_fits(GpusortJob *job, uint32 p);

/* Queues the piece's chunks that there are for upload. */
extern GpusortPieceOutcome gpusort_piece_upload(GpusortJob *job, uint32 p);

/* Is the piece complete and on the device? */
extern bool gpusort_piece_uploaded(GpusortJob *job, uint32 p);

/* Sorts the piece that is next, which is on the device. */
extern GpusortPieceOutcome gpusort_piece_sort(GpusortJob *job);

/*
 * Queues downloads of the oldest sorted piece into empty result chunks; *ready
 * is how many blocks of the whole result have arrived.  If that is all of the
 * piece, it has been returned, and is gone from the device.
 */
extern GpusortPieceOutcome gpusort_piece_return(GpusortJob *job, uint32 *ready);

/* Takes pieces from p on off the device; they are uploaded and sorted again. */
extern void gpusort_piece_drop(GpusortJob *job, uint32 p);

/*
 * Makes the oldest unsorted piece smaller.  False if it cannot be, or a part of
 * it has been sent: the job's failure says why.
 */
extern bool gpusort_piece_shrink(GpusortJob *job);

#endif							/* GPUSORT_SERVICE_PIECE_H */
