/*-------------------------------------------------------------------------
 *
 * limit.c
 *		How many rows the parent of a plan node fetches.
 *
 * Core tells a Sort its bound when the query runs: nodeLimit.c computes LIMIT and
 * OFFSET and calls ExecSetTupleBound(), which does not reach a custom scan.  So a
 * GpuSort gets copies of the two expressions, and computes them when it begins to
 * sort.  By then nodeLimit.c has computed them, so they raise no error.  An
 * expression whose second evaluation could have another result, or cost much, is
 * not copied: one with a volatile function or a subplan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "plan/plan.h"

const GpusortBound gpusort_unbounded = {.rows = -1};

/* Is there an expression other than a constant? */
static bool
varies(Node *node)
{
	return node != NULL && !IsA(node, Const);
}

/* The value of an expression of type int8; 0 if it is missing, NULL or not a constant. */
static double
constant_value(Node *node)
{
	if (node == NULL || varies(node) || ((Const *) node)->constisnull)
		return 0;
	return (double) Max(DatumGetInt64(((Const *) node)->constvalue), 0);
}

GpusortBound
gpusort_bound_clause(Node *count, Node *offset, LimitOption option, double rows)
{
	GpusortBound bound = {.rows = rows, .ties = option == LIMIT_OPTION_WITH_TIES};

	if (count == NULL || (!varies(count) && ((Const *) count)->constisnull))
		return gpusort_unbounded;
	bound.constant = !varies(count) && !varies(offset);
	if (!varies(count))
		bound.rows = constant_value(count);
	bound.rows += constant_value(offset);
	/* no sort has 10^15 rows or more */
	return bound.rows < 1e15 ? bound : gpusort_unbounded;
}

/* Is the child a Sort by no other columns than those by which the Limit WITH TIES compares rows? */
static bool
sorts_by_ties(Limit *limit, Plan *child)
{
	Sort	   *sort = (Sort *) child;

	if (!IsA(child, Sort))
		return false;
	for (int i = 0; i < sort->numCols; i++)
	{
		int			j = 0;

		while (j < limit->uniqNumCols && limit->uniqColIdx[j] != sort->sortColIdx[i])
			j++;
		if (j == limit->uniqNumCols)
			return false;
	}
	return true;
}

GpusortBound
gpusort_bound_child(Limit *limit)
{
	GpusortBound bound = gpusort_bound_clause(limit->limitCount, limit->limitOffset,
											  limit->limitOption, limit->plan.plan_rows);

	bool		copied = !gpusort_calls_volatile(limit->limitCount) && !gpusort_calls_volatile(limit->limitOffset);

	/* core does not bound a sort WITH TIES */
	if (bound.rows < 0 || (bound.ties && !(copied && sorts_by_ties(limit, outerPlan(limit)))))
		return gpusort_unbounded;
	if (copied)
	{
		bound.count = limit->limitCount;
		bound.offset = limit->limitOffset;
	}
	return bound;
}

static bool
is_unsafe_function(Oid function, void *context)
{
	return func_parallel(function) != PROPARALLEL_SAFE;
}

/*
 * Is there something in an expression that workers cannot compute?  Of parameters, they know those of the client, and of the
 * executor's, such as a subquery's result, only those of their part of the plan.
 */
static bool
needs_leader(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind != PARAM_EXTERN;
	return IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) || IsA(node, NextValueExpr) || IsA(node, CoerceToDomain) ||
		check_functions_in_node(node, is_unsafe_function, NULL) || expression_tree_walker(node, needs_leader, NULL);
}

GpusortBound
gpusort_bound_gathered(GpusortBound bound)
{
	if (!needs_leader(bound.count, NULL) && !needs_leader(bound.offset, NULL))
		return bound;
	/* core knows the number of a LIMIT, but no other */
	if (bound.unknown_to_core)
		return gpusort_unbounded;
	bound.count = bound.offset = NULL;
	return bound;
}
