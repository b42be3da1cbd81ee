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

/* Is an accelerator to sort a run of this many rows, by gpusort.min_rows? */
extern bool gpusort_handover_pays(const GpusortRunSpec *spec, uint64 rows);

/*
 * Hands the run with the keys gathered so far to an accelerator, if the settings
 * allow one and it does not decline.  Afterwards gpusort_run_accelerated() tells
 * whether it has the run; if not, run->declined is set, and run->reason unless no
 * accelerator was asked for.  Copying the keys can be interrupted.  Raises an error
 * where gpusort.engine demands the accelerator.
 */
extern void gpusort_handover_try(GpusortRun *run);

/*
 * Copies the keys of the blocks from number first on to the accelerator that has the
 * run.  If it declines, the run is left to the CPU engine.  Does nothing if none has
 * the run.  Interrupts and errors as for gpusort_handover_try().
 */
extern void gpusort_handover_catch_up(GpusortRun *run, int first);

/*
 * Leaves the run to the CPU engine, because engine gave this reason, which is copied,
 * not to sort it.  Raises the reason as an error if gpusort.engine demands the
 * accelerator.
 */
extern void gpusort_handover_decline(GpusortRun *run, const GpusortEngine *engine, const char *reason);

#endif							/* GPUSORT_RUN_HANDOVER_H */
