/*-------------------------------------------------------------------------
 *
 * groups.c
 *		How many rows of each group the parent of a sort uses.
 *
 * A Unique uses the first row of each group.  A WindowAgg whose run condition is that row_number(),
 * rank() or dense_rank() is at most N, ends each partition where the condition is false, if it is the
 * last one in the plan.  So it needs no later rows, unless one of its functions looks at these from an
 * earlier row.  DuckDB's rewrite of such queries did not ask that at first, and returned wrong
 * results.
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
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "plan/aggregate.h"
#include "plan/plan.h"

/* Returns the number of columns by which a plan node's rows are sorted, and sets *columns; 0 and NULL: none is known. */
static int
sort_columns(const Plan *plan, const AttrNumber **columns)
{
	switch (nodeTag(plan))
	{
		case T_Sort:
			*columns = ((const Sort *) plan)->sortColIdx;
			return ((const Sort *) plan)->numCols;
		case T_GatherMerge:
			*columns = ((const GatherMerge *) plan)->sortColIdx;
			return ((const GatherMerge *) plan)->numCols;
		case T_MergeAppend:
			*columns = ((const MergeAppend *) plan)->sortColIdx;
			return ((const MergeAppend *) plan)->numCols;
		default:
			*columns = NULL;
			return 0;
	}
}

static bool
has_column(const AttrNumber *columns, int n, AttrNumber column)
{
	for (int i = 0; i < n; i++)
	{
		if (columns[i] == column)
			return true;
	}
	return false;
}

/* Returns how many first columns of a sort have these n columns among them, or -1 if the sort lacks one. */
static int
columns_with(const AttrNumber *sorted, int nsorted, const AttrNumber *columns, int n)
{
	int			most = 0;

	for (int i = 0; i < n; i++)
	{
		int			with = 1;

		while (with <= nsorted && sorted[with - 1] != columns[i])
			with++;
		if (with > nsorted)
			return -1;
		most = Max(most, with);
	}
	return most;
}

GpusortBound
gpusort_bound_unique(const Unique *unique)
{
	GpusortBound bound = {.rows = -1, .unknown_to_core = true, .groups.count = GPUSORT_GROUP_ROWS};
	const AttrNumber *sorted;
	int			nsorted = sort_columns(outerPlan(unique), &sorted);

	bound.groups.columns = columns_with(sorted, nsorted, unique->uniqColIdx, unique->numCols);
	if (nsorted == 0 || bound.groups.columns <= 0)
		return gpusort_unbounded;
	bound.count = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(1), false, FLOAT8PASSBYVAL);
	return bound;
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
	/* these see their frame only; if it is not made of rows, it has the current row's peers */
	return (frame & (FRAMEOPTION_END_CURRENT_ROW | FRAMEOPTION_END_OFFSET_PRECEDING)) == 0 ||
		((frame & FRAMEOPTION_ROWS) == 0 && !search->peers);
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
find_peers(const WindowAgg *window, const AttrNumber *sorted, int nsorted, GpusortGroups *groups)
{
	int			with = columns_with(sorted, nsorted, window->ordColIdx, window->ordNumCols);

	groups->peer_columns = Max(with, groups->columns);
	if (with < 0)
		return false;
	for (int i = 0; i < groups->peer_columns; i++)
	{
		if (!has_column(window->partColIdx, window->partNumCols, sorted[i]) &&
			!has_column(window->ordColIdx, window->ordNumCols, sorted[i]))
			return false;
	}
	return true;
}

/* The bound of one run condition, if it makes one, else gpusort_unbounded. */
static GpusortBound
bound_of(const WindowAgg *window, const OpExpr *run, const OpExpr *shown)
{
	GpusortBound bound = {.rows = -1, .unknown_to_core = true};
	GpusortGroups *groups = &bound.groups;
	Search		search = {.window = window};
	const AttrNumber *sorted;
	int			nsorted = sort_columns(outerPlan(window), &sorted);

	if (nsorted == 0)
		return gpusort_unbounded;
	groups->count = read_condition(run, shown, window, &bound);
	groups->columns = columns_with(sorted, nsorted, window->partColIdx, window->partNumCols);
	if (groups->count == GPUSORT_GROUP_ALL || groups->columns < 0)
		return gpusort_unbounded;
	search.peers = groups->count != GPUSORT_GROUP_ROWS;
	if ((search.peers && !find_peers(window, sorted, nsorted, groups)) ||
		looks_ahead((Node *) window->plan.targetlist, &search) || looks_ahead((Node *) window->plan.qual, &search))
		return gpusort_unbounded;
	/* the first rows of all are those of a LIMIT, WITH TIES if rows are ranked by all columns */
	if (window->partNumCols == 0 && (groups->count == GPUSORT_GROUP_ROWS ||
									 (groups->count == GPUSORT_GROUP_RANK && groups->peer_columns == nsorted)))
	{
		bound.ties = search.peers;
		bound.constant = IsA(bound.count, Const);
		bound.rows = bound.constant ? Max(DatumGetInt64(((Const *) bound.count)->constvalue), 1) : window->plan.plan_rows;
		*groups = (GpusortGroups) {0};
	}
	return bound;
}

GpusortBound
gpusort_bound_window(const WindowAgg *window)
{
	ListCell   *run;
	ListCell   *shown;

	if (!window->topWindow || list_length(window->runCondition) != list_length(window->runConditionOrig))
		return gpusort_unbounded;
	forboth(run, window->runCondition, shown, window->runConditionOrig)
	{
		GpusortBound bound = bound_of(window, lfirst(run), lfirst(shown));

		if (bound.count != NULL)
			return bound;
	}
	return gpusort_unbounded;
}

double
gpusort_bound_kept(PlannedStmt *stmt, Plan *child, const GpusortSortColumn *columns, GpusortBound bound)
{
	double		kept = 1;

	if (bound.groups.count == GPUSORT_GROUP_ALL || !IsA(bound.count, Const))
		return 0;
	for (int i = 0; i < bound.groups.columns; i++)
	{
		double		distinct = child->plan_rows;

		(void) gpusort_input_ask_statistics(stmt, child, &columns[i], &distinct);
		kept *= Max(distinct, 1);
	}
	return kept * Max(DatumGetInt64(((Const *) bound.count)->constvalue), 1);
}
