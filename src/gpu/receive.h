/*-------------------------------------------------------------------------
 *
 * receive.h
 *		Receives the result of a sort run from the GPU service.
 *
 * Functions that return a string return NULL, or the reason why the GPU cannot sort
 * the run (run/engine.h).  They process interrupts, and may raise an error if memory
 * runs out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_RECEIVE_H
#define GPUSORT_GPU_RECEIVE_H

#include "run/engine.h"

/* Returns why the run's request, which is in state FAILED, has failed, in the run's context. */
extern const char *gpusort_receive_failure(GpusortRun *run);

/*
 * Collects the blocks of sorted pieces that have arrived.  If the run is not in
 * pieces, leaves the blocks to gpusort_receive_fetch().
 */
extern const char *gpusort_receive_pieces(GpusortRun *run);

/* Waits until the result of a submitted run can be fetched: all pieces, if it is in pieces. */
extern const char *gpusort_receive_wait(GpusortRun *run);

/* The callback fetch of the engine. */
extern const char *gpusort_receive_fetch(GpusortRun *run, GpusortBlock *block);

/* Frees the pieces and what merges them, if there are any.  Nothing may be fetched afterwards. */
extern void gpusort_receive_end(GpusortRun *run);

#endif							/* GPUSORT_GPU_RECEIVE_H */
