/*-------------------------------------------------------------------------
 *
 * stat.h
 *		What all processes do and have done, for the views gpusort_activity, gpusort_stat and
 *		gpusort_stat_reasons, and the report of a sort, for gpusort_last_sort().
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

/*
 * The report of one sort.  Times are in milliseconds.  The last stages overlap: the
 * caller gets the first rows while others are copied from the device.  So each
 * stage is at most the total, but their sum may exceed it.  Runs of a few rows are
 * not timed (run/sort.c); gather_ms, return_ms and total_ms are 0 then.
 */
typedef struct GpusortReport
{
	uint64_t	rows;
	const char *key_type;		/* static */
	const char *engine;			/* "cpu" or "cuda", of an index also "core"; static */
	const char *algorithm;		/* static */
	double		gather_ms;		/* from the begin of the run until its sort */
	uint64_t	gather_bytes;	/* bytes of all keys */
	double		copy_in_ms;		/* copies to the device; 0 if it was not used */
	uint64_t	copy_in_bytes;
	double		kernels_ms;		/* the sort itself, on the device or the CPU */
	double		arrange_ms;		/* finding the places of rows in order, on the device */
	double		wait_ms;		/* that the caller has waited for rows */
	double		copy_out_ms;	/* copies from the device; 0 if it was not used */
	uint64_t	copy_out_bytes;
	double		return_ms;		/* from the end of the sort until the caller has the
								 * result */
	bool		pinned;			/* all keys were in memory registered with CUDA */
	int			blocks;			/* blocks of the largest kernel launch; 0: no device */
	int			threads;		/* threads of a block of that launch, or threads of the CPU
								 * engine */
	int			bins;			/* bins of the first partition: 1 if the CPU engine made
								 * none, 0 if the device did not run mppsort */
	double		total_ms;		/* from the begin of the run until its finish */
	uint64_t	memory;			/* of a whole sort of a node: bytes at its peak */
	uint64_t	disk;			/* bytes of temporary files */
	int			runs;			/* spilled ones */
	int			workers;		/* that have gathered rows */
	bool		checked;		/* the result has been checked (gpusort.verify) */
	bool		failed;			/* and was wrong; nothing else is known */
	const char *reason;			/* why the GPU did not sort; NULL if it did or was not
								 * asked for; valid until the run ends */
} GpusortReport;

/*
 * Keeps a copy of the report, and of its reason, as the session's last sort, done
 * for the current user.
 */
extern void gpusort_report_keep(const GpusortReport *report);

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

#endif							/* GPUSORT_BASE_STAT_H */
