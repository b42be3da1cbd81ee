/*-------------------------------------------------------------------------
 *
 * handover.h
 *		Hands a sort run over to an accelerator, and takes it back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_HANDOVER_H
#define GPUSORT_RUN_HANDOVER_H

#include "run/engine.h"

/* May an accelerator sort a run of this many rows, by gpusort.min_rows or the crossover? */
extern bool gpusort_handover_pays(const GpusortRunSpec *spec, uint64 rows);

/*
 * Hands the run with the keys gathered so far to an accelerator, if the settings
 * allow one and it does not decline.
 */
extern void gpusort_handover_try(GpusortRun *run);

/*
 * Copies the keys of the blocks from this one on to the accelerator that has the run.
 * If it declines, so does the run.  Does nothing if none has the run.
 */
extern void gpusort_handover_catch_up(GpusortRun *run, int first);

/*
 * Leaves the run to the CPU engine, because engine gave this reason not to sort it.
 * Raises the reason as an error if gpusort.engine demands the accelerator.
 */
extern void gpusort_handover_decline(GpusortRun *run, const GpusortEngine *engine, const char *reason);

#endif							/* GPUSORT_RUN_HANDOVER_H */
