/*-------------------------------------------------------------------------
 *
 * piece.h
 *		The steps of a piece of a request of the GPU service.
 *
 * Piece p goes through begin (service/cut.h), upload, sort and return.  Pieces p+1
 * and p-1 may be uploaded and returned while piece p is sorted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_PIECE_H
#define GPUSORT_SERVICE_PIECE_H

#include "service/state.h"

/* The number of pieces of all jobs that are on the device and not sorted yet. */
extern int	gpusort_piece_waiting(void);

/* Queues the upload of those chunks of piece p that have come and are not queued yet. */
extern GpusortPieceOutcome gpusort_piece_upload(GpusortJob *job, uint32 p);

/* Is piece p complete, and are all its keys on the device or, if they are few, on the way to it? */
extern bool gpusort_piece_uploaded(GpusortJob *job, uint32 p);

/* Sorts the next unsorted piece, for which gpusort_piece_uploaded() is true.  Waits for the device. */
extern GpusortPieceOutcome gpusort_piece_sort(GpusortJob *job);

/*
 * Queues downloads of the oldest sorted piece into empty result chunks.  Sets
 * *ready to the number of blocks of the whole result that have arrived.  When
 * all blocks of the piece have arrived, counts it as returned; the caller then closes
 * it.
 */
extern GpusortPieceOutcome gpusort_piece_return(GpusortJob *job, uint32 *ready);

/* Takes piece p, which has just been returned, off the device. */
extern void gpusort_piece_close(GpusortJob *job, uint32 p);

/* Takes piece p and all later ones off the device; they will be uploaded and sorted again. */
extern void gpusort_piece_drop(GpusortJob *job, uint32 p);

#endif							/* GPUSORT_SERVICE_PIECE_H */
