/*-------------------------------------------------------------------------
 *
 * grouped.h
 *		Aggregates of groups of rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_GROUPED_H
#define GPUSORT_AGGREGATE_GROUPED_H

#include "nodes/execnodes.h"

#include "aggregate/group_numbers.h"

typedef struct GpusortGrouped GpusortGrouped;

/*
 * Prepares for Aggrefs that refer to the child of a plan node, in the current memory context, the query's.  own: those
 * that gpusort_aggregate_accepts(), ordered: those that gpusort_ordered_refuse() does not refuse, and others: those that
 * gpusort_states_accept().
 */
extern GpusortGrouped *gpusort_grouped_init(PlanState *ps, List *own, List *ordered, List *others,
											const GpusortGroupColumns *columns);

/* Adds all rows of a page of the child. */
extern void gpusort_grouped_add(GpusortGrouped *grouped, GpusortPage *page);

/*
 * Adds all rows that the processes of a parallel query have gathered below a Gather.  Returns their number.
 */
extern uint64 gpusort_grouped_collect(GpusortGrouped *grouped, PlanState *gather, int processes);

/* After the last row: computes the results and puts the groups in order. */
extern void gpusort_grouped_finish(GpusortGrouped *grouped);

/*
 * Fetches the next group: its columns, then the results of own and other Aggrefs, valid until the next call.  False at
 * the end.
 */
extern bool gpusort_grouped_next(GpusortGrouped *grouped, Datum *values, bool *nulls);

/* The groups will be fetched from the first one on again. */
extern void gpusort_grouped_rewind(GpusortGrouped *grouped);

/* Forgets all rows and results. */
extern void gpusort_grouped_forget(GpusortGrouped *grouped);

#endif							/* GPUSORT_AGGREGATE_GROUPED_H */
