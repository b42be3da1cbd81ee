/*-------------------------------------------------------------------------
 *
 * activity.h
 *		Progress of running sorts, for the view gpusort_activity.
 *
 * A sort that runs for more than a second takes a slot in shared memory.  It reports every
 * few thousand rows and at each change of phase.
 *
 * None of these functions raises an error.  If no slot is to be had, the sort is not shown.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_ACTIVITY_H
#define GPUSORT_BASE_ACTIVITY_H

#include "datatype/timestamp.h"

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
	MemoryContext cxt;			/* its reset or deletion ends the activity */
	GpusortActivitySort sort;
	TimestampTz started_at;
	TimestampTz due_at;			/* when to take a slot */
	int			slot;			/* number of the sort's slot, from 1; 0: it has none */
	bool		registered;		/* callback is registered with cxt */
	MemoryContextCallback callback;
} GpusortActivity;

/*
 * Begins a sort, after ending the one before if there is one.  The activity, all zeros at
 * first, must live as long as cxt, whose reset ends it.  Each call names the same cxt.
 */
extern void gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt,
								   double estimated_rows);

/* As gpusort_activity_begin(), for a process that takes part in a sort of its leader's. */
extern void gpusort_activity_join(GpusortActivity *activity, MemoryContext cxt,
								  const GpusortActivitySort *sort);

/*
 * Reports rows and bytes done in this phase, and the engine's name, of which 8 characters
 * are kept (NULL: not chosen yet).
 */
extern void gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
									uint64 rows, uint64 bytes, const char *engine);

/* Ends the sort.  Does nothing if it has ended or has not begun. */
extern void gpusort_activity_end(GpusortActivity *activity);

/* May the current user see the sorts of this role?  The rule is pg_stat_activity's. */
extern bool gpusort_activity_is_visible(Oid role);

/* Requests main shared memory.  _PG_init calls this when preloading. */
extern void gpusort_activity_preload(void);

#endif							/* GPUSORT_BASE_ACTIVITY_H */
