/*-------------------------------------------------------------------------
 *
 * values.h
 *		Gathers the values of aggregates that sort, and computes these.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_VALUES_H
#define GPUSORT_AGGREGATE_VALUES_H

#include "access/htup.h"
#include "nodes/execnodes.h"

#include "scan/page.h"

typedef struct GpusortAggregates GpusortAggregates;

/* Keys of an expression's values */
typedef struct GpusortKeys
{
	uint32		count;
	uint64		nnulls;			/* values that are NULL, and have no keys */
	const uint32 *groups;		/* the numbers of their groups */
	const void *keys;
	int			key_bytes;
	bool		checked;		/* there is, by gpusort.verify, */
	uint64		sum;			/* the sum of the hashes of values and numbers of groups */
} GpusortKeys;

/*
 * Prepares for Aggrefs that gpusort_aggregate_accepts() and that refer to the child of a plan node, in the
 * current memory context, the query's.  grouped: they are computed for each of several groups.
 * sorts: the number of other sorts, with which they share gpusort.memory_limit.
 */
extern GpusortAggregates *gpusort_aggregates_init(PlanState *ps, List *aggrefs, bool grouped, int sorts);

/* The bytes of memory that each of the sorts may use. */
extern Size gpusort_aggregates_memory(const GpusortAggregates *aggregates);

/* With groups: returns the bytes that a group's place in lists takes. */
extern Size gpusort_aggregates_group_bytes(const GpusortAggregates *aggregates);

/* Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], or to none of them. */
extern void gpusort_aggregates_add(GpusortAggregates *aggregates, GpusortPage *page, const uint32 *groups);

/*
 * In a process that gathers keys for another one, with groups: the number of expressions whose values are gathered; are
 * there enough keys of one to be taken, which must be done then before the next page; and takes them.  They
 * are valid until rows are added.
 */
extern int	gpusort_aggregates_values(const GpusortAggregates *aggregates);
extern bool gpusort_aggregates_are_many(const GpusortAggregates *aggregates, int number);
extern GpusortKeys gpusort_aggregates_take(GpusortAggregates *aggregates, int number);

/*
 * In the other process: adds these keys of an expression.  groups: the numbers of the groups here, by those in the process
 * that has gathered them.
 */
extern void gpusort_aggregates_put(GpusortAggregates *aggregates, int number, const uint32 *groups, GpusortKeys keys);

/*
 * The same of values that have no keys: returns the next one of an expression as a row, NULL at the end, after the last row
 * of the child; and adds such a row.
 */
extern TupleTableSlot *gpusort_aggregates_take_misfit(GpusortAggregates *aggregates, int number);
extern void gpusort_aggregates_put_misfit(GpusortAggregates *aggregates, int number, const uint32 *groups, MinimalTuple row);

/* After the last row: computes the results, in the order of the Aggrefs, which live until gpusort_aggregates_forget(). */
extern void gpusort_aggregates_finish(GpusortAggregates *aggregates, Datum *values, bool *nulls);

/* With groups, after the last row: begins to compute the results of this many. */
extern void gpusort_aggregates_begin_groups(GpusortAggregates *aggregates, uint32 ngroups);

/* Computes the results of a group: of each once, from number 0 on.  They live until the next call. */
extern void gpusort_aggregates_finish_group(GpusortAggregates *aggregates, uint32 group, Datum *values, bool *nulls);

/* With groups: these were all of them.  Checks that they had all values, if gpusort.verify is on. */
extern void gpusort_aggregates_end_groups(GpusortAggregates *aggregates);

/* Forgets all rows and results. */
extern void gpusort_aggregates_forget(GpusortAggregates *aggregates);

#endif							/* GPUSORT_AGGREGATE_VALUES_H */
