/*-------------------------------------------------------------------------
 *
 * send.h
 *		Sends the keys of a sort run to the GPU service, in chunks of shared memory.
 *
 * Functions that return a string return NULL, or the reason why the GPU cannot sort
 * the run (run/engine.h).  They process interrupts, and may raise an error if memory
 * runs out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_SEND_H
#define GPUSORT_GPU_SEND_H

#include "run/engine.h"

/*
 * Takes a request, and a chunk for its result, for a run that the engine does not have
 * yet, and sets the run's engine_state.  The callback release, or the end of the run's
 * context, gives both back.
 */
extern const char *gpusort_send_attach(GpusortRun *run);

/* The callbacks reserve and commit of the engine.  reserve collects sorted pieces that have arrived. */
extern const char *gpusort_send_reserve(GpusortRun *run, char **keys, size_t *bytes);
extern void gpusort_send_commit(GpusortRun *run, size_t bytes);

/* Hands over the last chunk and submits the request. */
extern void gpusort_send_submit(GpusortRun *run);

#endif							/* GPUSORT_GPU_SEND_H */
