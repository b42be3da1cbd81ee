/*-------------------------------------------------------------------------
 *
 * group_states.h
 *		Computes aggregates that do not sort.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_GROUP_STATES_H
#define GPUSORT_AGGREGATE_GROUP_STATES_H

#include "access/htup.h"
#include "nodes/execnodes.h"

#include "scan/page.h"

typedef struct GpusortStates GpusortStates;

/* Can these functions compute an aggregate?  It does not sort. */
extern bool gpusort_states_accept(const Aggref *aggref);

/*
 * Prepares for such Aggrefs, which refer to the child of a plan node, in the current memory context, the query's.  They may
 * also sort, if the caller does that for them.
 */
extern GpusortStates *gpusort_states_init(PlanState *ps, List *aggrefs);

/* Begins with this many groups, without rows, or goes on with this many. */
extern void gpusort_states_begin(GpusortStates *states, uint32 ngroups);

/*
 * Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], one of ngroups, or to none of
 * them.  Without groups, all belong to group 0.
 */
extern void gpusort_states_add(GpusortStates *states, GpusortPage *page, const uint32 *groups, uint32 ngroups);

/* Can the states of such an aggregate, made in several processes, be combined? */
extern bool gpusort_states_can_combine(const Aggref *aggref);

/* Returns the states of a group as a row, for another process.  The row is valid until the next call. */
extern TupleTableSlot *gpusort_states_get(GpusortStates *states, uint32 group);

/* Adds such a row to the states of a group. */
extern void gpusort_states_combine(GpusortStates *states, uint32 group, MinimalTuple row);

/* Advances the only aggregate, of which there is one group, by a row's arguments. */
extern void gpusort_states_advance(GpusortStates *states, const NullableDatum *args);

/* The bytes that the states take, or took before at most as many rows were added as there are groups. */
extern Size gpusort_states_bytes(GpusortStates *states);

/* Computes the results of a group, in the order of the Aggrefs, once.  They live until the expression context is reset. */
extern void gpusort_states_finish(GpusortStates *states, uint32 group, ExprContext *econtext, Datum *values, bool *nulls);

/* Forgets all rows. */
extern void gpusort_states_forget(GpusortStates *states);

#endif							/* GPUSORT_AGGREGATE_GROUP_STATES_H */
