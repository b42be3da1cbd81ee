/*-------------------------------------------------------------------------
 *
 * stat.h
 *		Counters of all processes, for the views gpusort_stat and gpusort_stat_reasons.
 *
 * Each sort is counted once, when it ends.  None of these functions raises an error, except the
 * functions that SQL calls.  If there is no shared memory, nothing is counted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_STAT_H
#define GPUSORT_BASE_STAT_H

#include "base/report.h"

typedef enum GpusortStatKind
{
	GPUSORT_STAT_SORT,			/* of a GpuSort */
	GPUSORT_STAT_INDEX,			/* a build of a btree */
	GPUSORT_STAT_FUNCTION,		/* of a function or an aggregate */
	GPUSORT_STAT_AGGREGATE,		/* the rows of a GpuSort Aggregate */
	GPUSORT_STAT_PLAN			/* a Sort that the planner has left to core: has reasons only */
} GpusortStatKind;

/* Counts a sort and, if its report has one, its reason.  The report's engine may be "core"; NULL counts as the CPU. */
extern void gpusort_stat_count(GpusortStatKind kind, const GpusortReport *report);

/* Counts a result that a check of gpusort.verify has found wrong: its sort does not end. */
extern void gpusort_stat_count_failure(GpusortStatKind kind, const char *engine);

/* Counts a reason alone: why the engine, and no better one, does the work. */
extern void gpusort_stat_reason(GpusortStatKind kind, const char *engine, const char *reason);

/* Is a warning with this reason the server's first one?  Without shared memory: the session's first one? */
extern bool gpusort_stat_first_warning(const char *reason);

/* Requests main shared memory.  _PG_init calls this when preloading. */
extern void gpusort_stat_preload(void);

#endif							/* GPUSORT_BASE_STAT_H */
