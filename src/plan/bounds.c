/*-------------------------------------------------------------------------
 *
 * bounds.c
 *		How many rows of a plan node its parent uses.
 *
 * Core tells a Sort the bound of a LIMIT when the query runs: nodeLimit.c computes LIMIT and
 * OFFSET and calls ExecSetTupleBound(), which does not reach a custom scan.  So a
 * GpuSort gets copies of the two expressions, and computes them when it begins to
 * sort.  By then nodeLimit.c has computed them, so they raise no error.  An
 * expression whose second evaluation could have another result, or cost much, is
 * not copied: one with a volatile function or a subplan.
 *
 * A Unique, and a GroupAggregate without aggregates, use the first row of each group.  A WindowAgg
 * whose run condition is that row_number(), rank() or dense_rank() is at most N, ends each partition
 * where the condition is false, if it is the last one in the plan.  So it needs no later rows, unless
 * one of its functions looks at these from an earlier row.  DuckDB's rewrite of such queries did not
 * ask that at first, and returned wrong results.
 *
 * Groups may be smaller than the parent's: then the sort keeps more rows than the parent uses.  Peers
 * must be the parent's own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_opfamily_d.h"
#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "plan/plan.h"

const GpusortBound gpusort_unbounded = {.rows = -1};

/* ---- LIMIT ---- */

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
sorts_by_ties(const Limit *limit, const Plan *child)
{
	const Sort *sort = (const Sort *) child;

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

/* The bound of a Limit node, for its child. */
static GpusortBound
bound_of_limit(const Limit *limit)
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

/* Do workers know the value of an expression, mostly of int8?  Of the parameters, they know the client's. */
static bool
known_to_workers(const Node *node)
{
	const FuncExpr *cast = (const FuncExpr *) node;

	if (node != NULL && IsA(node, FuncExpr) && (cast->funcid == F_INT8_INT4 || cast->funcid == F_INT8_INT2))
		node = linitial(cast->args);
	return node == NULL || IsA(node, Const) || (IsA(node, Param) && ((const Param *) node)->paramkind == PARAM_EXTERN);
}

/* The bound for the child of a Gather, which is executed in other processes, too. */
static GpusortBound
bound_of_gathered(GpusortBound bound)
{
	if (known_to_workers(bound.count) && known_to_workers(bound.offset))
		return bound;
	/* core knows the number of a LIMIT, but no other */
	if (bound.unknown_to_core)
		return gpusort_unbounded;
	bound.count = bound.offset = NULL;
	return bound;
}

/* ---- the first rows of each group ---- */

/* Columns of a plan node.  A sort may have one twice, under two collations or, as citext and text, by two operators. */
typedef struct Columns
{
	int			n;
	const AttrNumber *attnos;
	const Oid  *equals;			/* the operators that find values equal */
	const Oid  *collations;
} Columns;

/* Returns the columns of a sort by these operators. */
static Columns
sorted_by(int n, const AttrNumber *attnos, const Oid *operators, const Oid *collations)
{
	Oid		   *equals = palloc(n * sizeof(Oid));

	for (int i = 0; i < n; i++)
		equals[i] = get_equality_op_for_ordering_op(operators[i], NULL);
	return (Columns) {n, attnos, equals, collations};
}

/* The columns of a Result that hold the columns by which the rows below are sorted, up to the first one that it lacks */
static Columns
projected(const Plan *result, Columns sorted)
{
	AttrNumber *attnos = palloc(sorted.n * sizeof(AttrNumber));
	int			n;

	for (n = 0; n < sorted.n; n++)
	{
		if ((attnos[n] = gpusort_plan_projected(result, sorted.attnos[n])) == 0)
			break;
	}
	sorted.n = n;
	sorted.attnos = attnos;
	return sorted;
}

/* The columns by which a plan node's rows are sorted, the first ones at least; none if they are not known */
static Columns
sort_columns(const Plan *plan)
{
	const Sort *sort = (const Sort *) plan;
	const GatherMerge *gather = (const GatherMerge *) plan;
	const MergeAppend *append = (const MergeAppend *) plan;

	switch (nodeTag(plan))
	{
		case T_Sort:
			return sorted_by(sort->numCols, sort->sortColIdx, sort->sortOperators, sort->collations);
		case T_GatherMerge:
			return sorted_by(gather->numCols, gather->sortColIdx, gather->sortOperators, gather->collations);
		case T_MergeAppend:
			return sorted_by(append->numCols, append->sortColIdx, append->sortOperators, append->collations);
		case T_Result:
			return outerPlan(plan) == NULL ? (Columns) {0} : projected(plan, sort_columns(outerPlan(plan)));
		default:
			return (Columns) {0};
	}
}

/* Returns the place, from 1, of column i of some columns among others, or 0. */
static int
find_column(const Columns *columns, const Columns *wanted, int i)
{
	for (int place = 1; place <= columns->n; place++)
	{
		if (columns->attnos[place - 1] == wanted->attnos[i] && columns->equals[place - 1] == wanted->equals[i] &&
			columns->collations[place - 1] == wanted->collations[i])
			return place;
	}
	return 0;
}

/* Returns how many first columns of a sort have these columns among them, or -1 if the sort lacks one. */
static int
columns_with(const Columns *sorted, const Columns *wanted)
{
	int			most = 0;

	for (int i = 0; i < wanted->n; i++)
	{
		int			place = find_column(sorted, wanted, i);

		if (place == 0)
			return -1;
		most = Max(most, place);
	}
	return most;
}

/* One row of each group of rows of a child that are equal in these columns */
static GpusortBound
bound_to_one(const Plan *child, Columns wanted)
{
	GpusortBound bound = {.rows = -1, .unknown_to_core = true, .groups.count = GPUSORT_GROUP_ROWS};
	Columns		sorted = sort_columns(child);

	bound.groups.columns = columns_with(&sorted, &wanted);
	if (bound.groups.columns <= 0)
		return gpusort_unbounded;
	bound.count = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(1), false, FLOAT8PASSBYVAL);
	return bound;
}

/* The same for a GroupAggregate without aggregates */
static GpusortBound
bound_of_agg(const Agg *agg)
{
	if (agg->groupingSets != NIL || agg->chain != NIL || agg->aggsplit != AGGSPLIT_SIMPLE || gpusort_aggregate_list(agg) != NIL)
		return gpusort_unbounded;
	return bound_to_one(outerPlan(agg), (Columns) {agg->numCols, agg->grpColIdx, agg->grpOperators, agg->grpCollations});
}

/* The bound of a GpuSort Aggregate, for its child: if it needs only distinct rows, one of those that are equal. */
static GpusortBound
bound_of_own(const CustomScan *own)
{
	ListCell   *lc;

	if (!linitial_int(lfourth(own->custom_private)) || lsecond(own->custom_private) != NIL)
		return gpusort_unbounded;
	foreach(lc, linitial(own->custom_private))
	{
		if (lfirst_node(Aggref, lc)->aggdistinct == NIL || lfirst_node(Aggref, lc)->aggfilter != NULL)
			return gpusort_unbounded;
	}
	/* a Sort or a Gather Merge, all of whose columns are known */
	return bound_to_one(outerPlan(own), sort_columns(outerPlan(own)));
}

/* Is lag()'s offset, its second argument, a constant that is not negative? */
static bool
looks_back(const WindowFunc *function)
{
	const Const *offset = list_length(function->args) > 1 ? lsecond(function->args) : NULL;

	return offset == NULL || (IsA(offset, Const) && !offset->constisnull && DatumGetInt32(offset->constvalue) >= 0);
}

typedef struct Search
{
	const WindowAgg *window;
	bool		peers;			/* the rows that are kept have all their peers */
} Search;

/* Is there a function of the WindowAgg whose value in a row depends on rows behind it that are not kept? */
static bool
looks_ahead(Node *node, void *context)
{
	const Search *search = context;
	const WindowFunc *function = (const WindowFunc *) node;
	int			frame = search->window->frameOptions;

	if (node == NULL)
		return false;
	if (!IsA(node, WindowFunc) || function->winref != search->window->winref)
		return expression_tree_walker(node, looks_ahead, context);
	switch (function->winfnoid)
	{
		case F_ROW_NUMBER:
		case F_RANK_:
		case F_DENSE_RANK_:
			return false;
		case F_LAG_ANYELEMENT:
		case F_LAG_ANYELEMENT_INT4:
		case F_LAG_ANYCOMPATIBLE_INT4_ANYCOMPATIBLE:
			return !looks_back(function);
		case F_FIRST_VALUE:
		case F_LAST_VALUE:
		case F_NTH_VALUE:
			break;
		default:
			if (!function->winagg)
				return true;
			break;
	}
	/* these see their frame only; an interval such as '1 mon -29 days' may lead ahead though it is PRECEDING */
	if ((frame & FRAMEOPTION_END_CURRENT_ROW) == 0 &&
		((frame & FRAMEOPTION_END_OFFSET_PRECEDING) == 0 || (frame & FRAMEOPTION_RANGE) != 0))
		return true;
	/* a frame that is not made of rows has the current row's peers */
	return (frame & FRAMEOPTION_ROWS) == 0 && !search->peers;
}

static GpusortGroupCount
count_of(const WindowFunc *function)
{
	switch (function->winfnoid)
	{
		case F_ROW_NUMBER:
			return GPUSORT_GROUP_ROWS;
		case F_RANK_:
			return GPUSORT_GROUP_RANK;
		case F_DENSE_RANK_:
			return GPUSORT_GROUP_DENSE_RANK;
		default:
			return GPUSORT_GROUP_ALL;
	}
}

/* Makes an int8 of a constant or a parameter of an integer type; NULL of anything else. */
static Node *
as_int8(Node *number)
{
	Oid			type = exprType(number);
	Expr	   *cast;

	if ((!IsA(number, Const) && !IsA(number, Param)) || (IsA(number, Const) && ((Const *) number)->constisnull))
		return NULL;
	if (type == INT8OID)
		return number;
	if (type != INT4OID && type != INT2OID)
		return NULL;
	cast = (Expr *) makeFuncExpr(type == INT4OID ? F_INT8_INT4 : F_INT8_INT2, INT8OID, list_make1(number),
								 InvalidOid, InvalidOid, COERCE_IMPLICIT_CAST);
	return IsA(number, Const) ? (Node *) evaluate_expr(cast, INT8OID, -1, InvalidOid) : (Node *) cast;
}

/*
 * Reads a run condition.  shown: as EXPLAIN shows it, with the function in place of its column.
 * Returns how rows are counted, and sets the bound's count and below.
 */
static GpusortGroupCount
read_condition(const OpExpr *run, const OpExpr *shown, const WindowAgg *window, GpusortBound *bound)
{
	bool		swapped;
	int			strategy;
	WindowFunc *function;

	if (!IsA(run, OpExpr) || !IsA(shown, OpExpr) || list_length(run->args) != 2)
		return GPUSORT_GROUP_ALL;
	swapped = !IsA(linitial(shown->args), WindowFunc);
	function = list_nth(shown->args, swapped);
	if (!IsA(function, WindowFunc) || function->winref != window->winref)
		return GPUSORT_GROUP_ALL;
	strategy = get_op_opfamily_strategy(run->opno, INTEGER_BTREE_FAM_OID);
	bound->below = strategy == (swapped ? BTGreaterStrategyNumber : BTLessStrategyNumber);
	if (!bound->below && strategy != (swapped ? BTGreaterEqualStrategyNumber : BTLessEqualStrategyNumber))
		return GPUSORT_GROUP_ALL;
	bound->count = as_int8(list_nth(run->args, !swapped));
	return bound->count != NULL ? count_of(function) : GPUSORT_GROUP_ALL;
}

/* Sets what rows are peers.  Returns false if that cannot be told by the first columns of the sort. */
static bool
find_peers(const WindowAgg *window, const Columns *sorted, GpusortGroups *groups)
{
	Columns		partition = {window->partNumCols, window->partColIdx, window->partOperators, window->partCollations};
	Columns		order = {window->ordNumCols, window->ordColIdx, window->ordOperators, window->ordCollations};
	int			with = columns_with(sorted, &order);

	groups->peer_columns = Max(with, groups->columns);
	if (with < 0)
		return false;
	for (int i = 0; i < groups->peer_columns; i++)
	{
		if (find_column(&partition, sorted, i) == 0 && find_column(&order, sorted, i) == 0)
			return false;
	}
	return true;
}

/* The bound of one run condition, if it makes one, else gpusort_unbounded. */
static GpusortBound
bound_of_condition(const WindowAgg *window, const OpExpr *run, const OpExpr *shown)
{
	GpusortBound bound = {.rows = -1, .unknown_to_core = true};
	GpusortGroups *groups = &bound.groups;
	Search		search = {.window = window};
	Columns		sorted = sort_columns(outerPlan(window));
	Columns		partition = {window->partNumCols, window->partColIdx, window->partOperators, window->partCollations};

	if (sorted.n == 0)
		return gpusort_unbounded;
	groups->count = read_condition(run, shown, window, &bound);
	groups->columns = columns_with(&sorted, &partition);
	if (groups->count == GPUSORT_GROUP_ALL || groups->columns < 0)
		return gpusort_unbounded;
	search.peers = groups->count != GPUSORT_GROUP_ROWS;
	if ((search.peers && !find_peers(window, &sorted, groups)) ||
		looks_ahead((Node *) window->plan.targetlist, &search) || looks_ahead((Node *) window->plan.qual, &search) ||
		gpusort_calls_volatile(window->plan.targetlist))
		return gpusort_unbounded;
	/* the first rows of all are those of a LIMIT, WITH TIES if rows are ranked by all columns of this very Sort */
	if (window->partNumCols == 0 &&
		(groups->count == GPUSORT_GROUP_ROWS ||
		 (groups->count == GPUSORT_GROUP_RANK && groups->peer_columns == sorted.n && IsA(outerPlan(window), Sort))))
	{
		bound.ties = search.peers;
		bound.constant = IsA(bound.count, Const);
		bound.rows = bound.constant ? Max(DatumGetInt64(((Const *) bound.count)->constvalue), 1) : window->plan.plan_rows;
		*groups = (GpusortGroups) {0};
	}
	return bound;
}

/* The bound of a WindowAgg with run conditions, for its child */
static GpusortBound
bound_of_window(const WindowAgg *window)
{
	ListCell   *run;
	ListCell   *shown;

	if (!window->topWindow || list_length(window->runCondition) != list_length(window->runConditionOrig))
		return gpusort_unbounded;
	forboth(run, window->runCondition, shown, window->runConditionOrig)
	{
		GpusortBound bound = bound_of_condition(window, lfirst(run), lfirst(shown));

		if (bound.count != NULL)
			return bound;
	}
	return gpusort_unbounded;
}

/* ---- all nodes ---- */

GpusortBound
gpusort_bound_below(const Plan *plan, GpusortBound bound)
{
	const Unique *unique = (const Unique *) plan;

	switch (nodeTag(plan))
	{
		case T_Limit:
			return bound_of_limit((const Limit *) plan);
		case T_Unique:
			return bound_to_one(outerPlan(plan), (Columns) {unique->numCols, unique->uniqColIdx, unique->uniqOperators,
															unique->uniqCollations});
		case T_Agg:
			return bound_of_agg((const Agg *) plan);
		case T_WindowAgg:
			return bound_of_window((const WindowAgg *) plan);
		case T_Result:
			return bound.groups.count != GPUSORT_GROUP_ALL && plan->qual != NIL ? gpusort_unbounded : bound;
		case T_Gather:
		case T_GatherMerge:
			return bound_of_gathered(bound);
		case T_CustomScan:
			if (((const CustomScan *) plan)->methods == &gpusort_aggregate_methods)
				return bound_of_own((const CustomScan *) plan);
			return gpusort_unbounded;
		default:
			return gpusort_unbounded;
	}
}

double
gpusort_bound_kept(PlannedStmt *stmt, Plan *child, const GpusortSortColumn *columns, GpusortBound bound)
{
	double		kept = 1;

	if (bound.groups.count == GPUSORT_GROUP_ALL || !IsA(bound.count, Const))
		return 0;
	for (int i = 0; i < bound.groups.columns; i++)
		kept *= Max(gpusort_plan_distinct(stmt, child, columns[i].attno, child->plan_rows), 1);
	return kept * Max(DatumGetInt64(((Const *) bound.count)->constvalue), 1);
}
