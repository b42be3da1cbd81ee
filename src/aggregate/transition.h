/*-------------------------------------------------------------------------
 *
 * transition.h
 *		The states of aggregates that do not sort: for group_states.c, and for combine.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_TRANSITION_H
#define GPUSORT_AGGREGATE_TRANSITION_H

#include "executor/nodeAgg.h"
#include "fmgr.h"

#include "aggregate/group_states.h"
#include "aggregate/row_value.h"

/* The state of an aggregate for a group */
typedef struct GpusortState
{
	Datum		value;
	bool		isnull;
	bool		empty;			/* the first value that is not NULL becomes the state */
} GpusortState;

/* The step for each row, of one aggregate, or of several that share their states */
typedef struct GpusortTransition
{
	Aggref	   *aggref;			/* the first one */
	bool		counts;			/* count(*): no function is called */
	ExprState  *filter;			/* NULL: none */
	int			nargs;
	GpusortRowValue *args;
	FmgrInfo	function;
	FunctionCallInfo call;
	bool		by_value;		/* the state's type */
	int16		length;
	Datum		initial;
	bool		initial_null;
} GpusortTransition;

/* How states of another process get into those of a transition */
typedef struct GpusortCombination
{
	GpusortTransition step;		/* whose argument is the other state */
	FmgrInfo	pack;			/* a state is sent as bytea */
	FmgrInfo	unpack;
	FunctionCallInfo pack_call; /* NULL: it is sent as it is */
	FunctionCallInfo unpack_call;
} GpusortCombination;

/* The step at the end, which makes a result of a state */
typedef struct GpusortFinal
{
	int			transition;		/* index */
	FmgrInfo	function;
	FunctionCallInfo call;		/* NULL: there is no final function */
	int16		length;			/* of its result's type */
} GpusortFinal;

struct GpusortStates
{
	PlanState  *ps;
	AggState   *agg;			/* for the functions */
	ExprContext *call_context;	/* the temporary one of calls that are not made for a page */
	int			ntransitions;
	GpusortTransition *transitions;
	int			nfinals;
	GpusortFinal *finals;
	GpusortCombination *combinations;	/* by the numbers of the transitions; NULL until they are needed */
	TupleTableSlot *sent;		/* states of a group for another process, */
	TupleTableSlot *received;	/* and from one */
	bool		grow;			/* states are of types of variable length, or internal */
	uint64		rows;			/* that have been added, */
	uint64		measured_at;	/* when that many were, */
	Size		bytes;			/* states that grow took these bytes */
	uint32		ngroups;
	uint32		room;			/* groups that there is room for */
	GpusortState *states;			/* that of transition t of group g is at g * ntransitions + t */
};

/* Looks up a function and makes a call of it with this many arguments.  expr tells their types. */
extern FunctionCallInfo gpusort_states_make_call(GpusortStates *states, FmgrInfo *function, Oid oid, Expr *expr, int nargs,
												 Oid collation);

/* Calls a transition's function for a state, with the arguments in the call from 1 on. */
extern void gpusort_states_step(GpusortStates *states, GpusortTransition *transition, GpusortState *state);

/*
 * Has the functions that ask find out for which aggregate they are called, by AggGetAggref() and AggStateIsShared(): those of
 * a transition,
 */
static inline void
gpusort_states_set_transition(GpusortStates *states, int transition)
{
	states->agg->curperagg = NULL;
	states->agg->curpertrans = &states->agg->pertrans[transition];
}

/* and a final function. */
static inline void
gpusort_states_set_final(GpusortStates *states, int final)
{
	states->agg->curperagg = &states->agg->peragg[final];
	states->agg->curpertrans = NULL;
}

#endif							/* GPUSORT_AGGREGATE_TRANSITION_H */
