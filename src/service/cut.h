/*-------------------------------------------------------------------------
 *
 * cut.h
 *		Where a request of the GPU service is cut into pieces.
 *
 * These functions set the fields of a job and of its pieces that say which chunks
 * belong to a piece.  They do nothing on the device.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CUT_H
#define GPUSORT_SERVICE_CUT_H

#include "service/state.h"

/*
 * Forgets all pieces, none of which is on the device, and decides the size of the pieces.
 */
extern void gpusort_cut_reset(GpusortJob *job);

/*
 * Notes the oldest unreturned piece in the request, so that another service can
 * continue there: gpusort_cut_resume() begins with that piece, after a reset.
 * The request's chunks are sound.
 */
extern void gpusort_cut_note(GpusortJob *job);
extern void gpusort_cut_resume(GpusortJob *job);

/* Begins pieces for the chunks that the request has by now. */
extern void gpusort_cut_begin(GpusortJob *job);

/* Counts the piece's chunks among those that the request has closed by now. */
extern void gpusort_cut_count(const GpusortJob *job, GpusortPiece *piece);

/* Has piece p, which is begun, all the chunks that it will get? */
extern bool gpusort_cut_complete(GpusortJob *job, uint32 p);

/* Is piece p, which is begun, the request's last one? */
extern bool gpusort_cut_last(GpusortJob *job, uint32 p);

/* Is the device likely to have room for piece p beside the job's other pieces? */
extern bool gpusort_cut_fits(GpusortJob *job, uint32 p);

/*
 * Makes the oldest unsorted piece smaller and forgets the later ones.  The caller has taken
 * them all off the device (gpusort_piece_drop()).  Returns false, with job->failure set, if
 * the piece is not larger than a large chunk or some of its result has been sent.
 */
extern bool gpusort_cut_shrink(GpusortJob *job);

#endif							/* GPUSORT_SERVICE_CUT_H */
