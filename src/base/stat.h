/*-------------------------------------------------------------------------
 *
 * stat.h
 *		What all processes do and have done, for the views gpusort_activity, gpusort_stat and
 *		gpusort_stat_reasons.
 *
 * Each sort is counted once, when it ends.  One that runs for more than a second is shown while it
 * runs.  None of these functions raises an error.  If there is no shared memory, or no place for a
 * running sort, it is not shown.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_STAT_H
#define GPUSORT_BASE_STAT_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "base/report.h"

/* Requests main shared memory.  _PG_init calls this when preloading. */
extern void gpusort_stat_preload(void);

/* What all sorts of the cluster use now (run/cpu_options.c) */
typedef struct GpusortStatUse
{
	pg_atomic_uint32 threads;	/* beside the backends' own ones */
	pg_atomic_uint32 builds;	/* of indexes, each by one backend */
} GpusortStatUse;

/* Returns it, or NULL if it cannot be counted, and why it cannot.  Then a sort has one thread. */
extern GpusortStatUse *gpusort_stat_use(void);
extern const char *gpusort_stat_refusal(void);

/* ---- sorts that have ended ---- */

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

/* Is a warning with this reason the server's first one?  Without shared memory: the session's first one? */
extern bool gpusort_stat_first_warning(const char *reason);

/* ---- sorts that run ---- */

typedef enum GpusortPhase
{
	GPUSORT_PHASE_GATHERING,
	GPUSORT_PHASE_SORTING,
	GPUSORT_PHASE_MERGING,
	GPUSORT_PHASE_RETURNING
} GpusortPhase;

/* The part of a sort's activity that all its processes know */
typedef struct GpusortActivitySort
{
	int			leader;			/* pid of the process that began the sort */
	uint32		number;			/* counts the sorts that this process has begun */
	uint64		estimated_rows; /* the planner's estimate of the rows of the whole sort */
} GpusortActivitySort;

typedef struct GpusortActivity
{
	GpusortActivitySort sort;
	TimestampTz begun_at;
	struct GpusortPlace *place; /* in shared memory; NULL: it has none */
	MemoryContextCallback callback; /* its func is NULL unless it is registered */
} GpusortActivity;

/* Describes a new sort, which this process leads. */
extern GpusortActivitySort gpusort_activity_new_sort(double estimated_rows);

/*
 * Begins a sort, after ending the one before if there is one.  The activity, all zeros at first, must live as long
 * as cxt, whose reset ends it.  A process that takes part in a sort of its leader's then copies the leader's "sort".
 */
extern void gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt, double estimated_rows);

/* Reports rows and bytes done in this phase, and the engine as in a GpusortReport (NULL: not chosen yet). */
extern void gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
									uint64 rows, uint64 bytes, const char *engine);

/* Ends the sort.  Does nothing if it has ended or has not begun. */
extern void gpusort_activity_end(GpusortActivity *activity);

/* May the current user see the sorts of this role?  The rule is pg_stat_activity's. */
extern bool gpusort_activity_is_visible(Oid role);

#endif							/* GPUSORT_BASE_STAT_H */
