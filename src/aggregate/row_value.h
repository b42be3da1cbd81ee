/*-------------------------------------------------------------------------
 *
 * row_value.h
 *		Evaluates expressions for the rows of a page.
 *
 * A column is fetched from the page; anything else is evaluated for the row in a slot, in the memory of an expression
 * context, which the caller resets.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_ROW_VALUE_H
#define GPUSORT_AGGREGATE_ROW_VALUE_H

#include "executor/executor.h"

#include "scan/page.h"

typedef struct GpusortRowValue
{
	AttrNumber	attno;			/* this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
} GpusortRowValue;

/* Prepares for an expression that refers to the child of a plan node. */
static inline GpusortRowValue
gpusort_row_value_init(Expr *expr, PlanState *ps)
{
	GpusortRowValue value = {0};

	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		value.attno = ((Var *) expr)->varattno;
	else
		value.state = ExecInitExpr(expr, ps);
	return value;
}

/* Evaluates it for row i. */
static inline Datum
gpusort_row_value_get(const GpusortRowValue *value, ExprContext *econtext, GpusortPage *page, int i, bool *isnull)
{
	if (likely(value->attno > 0))
		return gpusort_page_value(page, i, value->attno, isnull);
	econtext->ecxt_outertuple = gpusort_page_slot(page, i);
	return ExecEvalExprSwitchContext(value->state, econtext, isnull);
}

/* Does row i pass a FILTER?  NULL: there is none. */
static inline bool
gpusort_row_passes(ExprState *filter, ExprContext *econtext, GpusortPage *page, int i)
{
	if (likely(filter == NULL))
		return true;
	econtext->ecxt_outertuple = gpusort_page_slot(page, i);
	return ExecQual(filter, econtext);
}

#endif							/* GPUSORT_AGGREGATE_ROW_VALUE_H */
