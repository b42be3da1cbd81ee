/*-------------------------------------------------------------------------
 *
 * fractions.h
 *		The fractions of a percentile in GpuSort Aggregate, which are evaluated once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_FRACTIONS_H
#define GPUSORT_AGGREGATE_FRACTIONS_H

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"

#include "aggregate/node.h"
#include "aggregate/percentile.h"

typedef struct GpusortFractionsState
{
	ExprState  *state;			/* NULL: the aggregate has no fractions */
	bool		several;		/* they are an array */
	bool		evaluated;		/* value is set, in this scan of the child */
	GpusortFractions value;
} GpusortFractionsState;

static inline void
gpusort_fractions_init(GpusortFractionsState *fractions, const Aggref *aggref, PlanState *ps)
{
	Expr	   *expr = gpusort_aggregate_fractions(aggref);

	fractions->state = ExecInitExpr(expr, ps);
	fractions->several = expr != NULL && exprType((Node *) expr) == FLOAT8ARRAYOID;
}

/*
 * Evaluates the fractions, once, in an expression context that has no row.  An array is copied to cxt.  As in core, a
 * single fraction is evaluated and checked even if there are no rows, and an array is not.
 */
static inline void
gpusort_fractions_evaluate(GpusortFractionsState *fractions, bool has_rows, ExprContext *econtext, MemoryContext cxt)
{
	Datum		value;
	bool		isnull;

	if (fractions->evaluated)
		return;
	fractions->value.null = true;
	if (fractions->state == NULL || (fractions->several && !has_rows))
		return;
	fractions->evaluated = true;
	value = ExecEvalExprSwitchContext(fractions->state, econtext, &isnull);
	gpusort_fractions_set(&fractions->value, value, isnull, fractions->several, cxt);
}

#endif							/* GPUSORT_AGGREGATE_FRACTIONS_H */
