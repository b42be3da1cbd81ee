/*-------------------------------------------------------------------------
 *
 * activity.h
 *		What sorts are doing, for all sessions to see: view gpusort_activity.
 *
 * A sort's state embeds a GpusortActivity, all zeros before the first begin.
 * The sort begins it, reports every few thousand rows and at each change of
 * phase, and ends it; after an error, the memory context ends it.  Nothing
 * here raises an error.  If there is no room to report to, the sort is not
 * shown, and goes on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_ACTIVITY_H
#define GPUSORT_BASE_ACTIVITY_H

#include "datatype/timestamp.h"

/* Sorts that are over before have no time to be looked at. */
#define GPUSORT_ACTIVITY_AFTER_US	((int64) 1000000)

typedef enum GpusortPhase
{
	GPUSORT_PHASE_GATHERING,
	GPUSORT_PHASE_SORTING,
	GPUSORT_PHASE_MERGING,
	GPUSORT_PHASE_RETURNING
} GpusortPhase;

typedef struct GpusortActivity
{
	MemoryContext cxt;
	TimestampTz started_at;
	TimestampTz retry_at;		/* not before, if all slots were taken */
	int			slot;			/* from 1; 0: none, as nobody needs to know yet */
	bool		registered;		/* callback is the context's */
	MemoryContextCallback callback;
} GpusortActivity;

/* Whether a sort that has no slot should have one by now. */
static inline bool
gpusort_activity_is_due(const GpusortActivity *activity, TimestampTz now)
{
	return now - activity->started_at >= GPUSORT_ACTIVITY_AFTER_US && now >= activity->retry_at;
}

/*
 * A sort begins now, or, if it has begun, anew.  The activity lives as long as
 * the context or longer, and is begun in the same context every time.  Ended
 * when that is reset or deleted.
 */
extern void gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt);

/*
 * Says what the sort is at: rows and bytes of this phase so far, and the
 * engine, of whose name 8 characters are kept (NULL: none yet).  Costs reading
 * the clock in a sort's first second, and a few stores to shared memory after.
 */
extern void gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
									uint64 rows, uint64 bytes, const char *engine);

/* The sort is over.  May be called again, and without begin. */
extern void gpusort_activity_end(GpusortActivity *activity);

/* May the current user see what sorts of that role do, as in pg_stat_activity? */
extern bool gpusort_activity_is_visible(Oid role);

/* Counts a sort of the plan node, for gpusort_counters(); by_core: handed over. */
extern void gpusort_activity_count(bool by_core, uint64 rows);

/* Asks for room in main shared memory; from _PG_init when preloaded. */
extern void gpusort_activity_preload(void);

#endif							/* GPUSORT_BASE_ACTIVITY_H */
