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
#include "functions/percentile.h"

typedef struct GpusortFractionsState
{
	ExprState  *state;			/* NULL: the median */
	bool		several;		/* they are an array */
	bool		late;			/* without rows nobody looks at them */
	bool		evaluated;		/* value is set, in this scan of the child */
	GpusortFractions value;
} GpusortFractionsState;

static inline void
gpusort_fractions_init(GpusortFractionsState *fractions, const Aggref *aggref, PlanState *ps)
{
	Expr	   *expr = gpusort_aggregate_fractions(aggref);

	fractions->state = ExecInitExpr(expr, ps);
	fractions->several = expr != NULL && exprType((Node *) expr) == FLOAT8ARRAYOID;
	/* core looks at a single fraction first, and then whether there are rows */
	fractions->late = fractions->several || gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_PERCENTILE;
}

/* Evaluates the fractions, once, in an expression context that has no row.  An array is copied to cxt. */
static inline void
gpusort_fractions_evaluate(GpusortFractionsState *fractions, bool has_rows, ExprContext *econtext, MemoryContext cxt)
{
	Datum		value = Float8GetDatum(0.5);
	bool		isnull = false;

	if (fractions->evaluated)
		return;
	fractions->value.null = true;
	if (fractions->late && !has_rows)
		return;
	fractions->evaluated = true;
	if (fractions->state != NULL)
		value = ExecEvalExprSwitchContext(fractions->state, econtext, &isnull);
	gpusort_fractions_set(&fractions->value, value, isnull, fractions->several, cxt);
}

#endif							/* GPUSORT_AGGREGATE_FRACTIONS_H */
