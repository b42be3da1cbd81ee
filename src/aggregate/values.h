/*-------------------------------------------------------------------------
 *
 * values.h
 *		Gathers the values of aggregates that sort, and computes these.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_VALUES_H
#define GPUSORT_AGGREGATE_VALUES_H

#include "nodes/execnodes.h"

#include "scan/page.h"

typedef struct GpusortAggregates GpusortAggregates;

/*
 * Prepares for Aggrefs that gpusort_aggregate_accepts() and that refer to the child of a plan node, in the
 * current memory context, the query's.  grouped: they are computed for each of several groups, and are core's.
 * sorts: the number of other sorts, with which they share gpusort.memory_limit.
 */
extern GpusortAggregates *gpusort_aggregates_init(PlanState *ps, List *aggrefs, bool grouped, int sorts);

/* The bytes of memory that each of the sorts may use. */
extern Size gpusort_aggregates_memory(const GpusortAggregates *aggregates);

/* With groups: returns the bytes that the results of a group and its place in lists take. */
extern Size gpusort_aggregates_group_bytes(GpusortAggregates *aggregates);

/* Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], or to none of them. */
extern void gpusort_aggregates_add(GpusortAggregates *aggregates, GpusortPage *page, const uint32 *groups);

/* After the last row: computes the results, in the order of the Aggrefs, which live until gpusort_aggregates_forget(). */
extern void gpusort_aggregates_finish(GpusortAggregates *aggregates, Datum *values, bool *nulls);

/*
 * The same for this many groups.  *results and *nulls point to arrays then: those of a group are side by side, in the order
 * of the Aggrefs.
 */
extern void gpusort_aggregates_finish_groups(GpusortAggregates *aggregates, uint32 ngroups, Datum **results, bool **nulls);

/* Forgets all rows and results. */
extern void gpusort_aggregates_forget(GpusortAggregates *aggregates);

#endif							/* GPUSORT_AGGREGATE_VALUES_H */
