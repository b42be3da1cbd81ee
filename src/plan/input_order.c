/*-------------------------------------------------------------------------
 *
 * input_order.c
 *		What a finished plan and the statistics say about the order of a plan's rows.
 *
 * The planner knows the order of each path, but a finished plan has lost it.  So this
 * file follows the columns of a Sort or of a btree index up through the nodes that keep
 * the order of their input.  The column's correlation tells whether a table is in its order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_statistic.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "plan/aggregate.h"
#include "plan/plan.h"

/* A table of which a few rows have moved has a correlation of a little less than 1. */
#define SORTED_CORRELATION	0.9999

bool
gpusort_order_begins_with(const GpusortOrder *given, const GpusortOrder *wanted)
{
	if (given->ncolumns < wanted->ncolumns)
		return false;
	for (int i = 0; i < wanted->ncolumns; i++)
	{
		const GpusortSortColumn *a = &given->columns[i];
		const GpusortSortColumn *b = &wanted->columns[i];

		if (a->attno != b->attno || a->sort_operator != b->sort_operator ||
			a->collation != b->collation || a->nulls_first != b->nulls_first)
			return false;
	}
	return true;
}

/* Do two columns of an order sort the same values, in either direction? */
static bool
same_column(const GpusortSortColumn *a, const GpusortSortColumn *b)
{
	return a->attno == b->attno && a->collation == b->collation &&
		(a->sort_operator == b->sort_operator || a->sort_operator == get_commutator(b->sort_operator));
}

GpusortOrder
gpusort_order_concatenate(const GpusortOrder *first, const GpusortOrder *second)
{
	GpusortOrder order = *first;

	order.columns = palloc((first->ncolumns + second->ncolumns) * sizeof(GpusortSortColumn));
	if (first->ncolumns > 0)
		memcpy(order.columns, first->columns, first->ncolumns * sizeof(GpusortSortColumn));
	for (int i = 0; i < second->ncolumns; i++)
	{
		bool		found = false;

		for (int j = 0; j < order.ncolumns; j++)
			found |= same_column(&order.columns[j], &second->columns[i]);
		if (!found)
			order.columns[order.ncolumns++] = second->columns[i];
	}
	return order;
}

/* The number of the target that is this column, or 0. */
static AttrNumber
find_target(Plan *plan, int varno, AttrNumber attno)
{
	ListCell   *lc;

	foreach(lc, plan->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (IsA(entry->expr, Var) && ((Var *) entry->expr)->varno == varno &&
			((Var *) entry->expr)->varattno == attno)
			return entry->resno;
	}
	return 0;
}

/* The order of a scan of a btree index. */
static GpusortOrder
index_order(Plan *plan, Oid index_id, ScanDirection direction)
{
	GpusortOrder order = {NULL, 0, false};
	Relation	index;
	Form_pg_index form;

	/* an index that an extension only supposes is not there */
	if (!SearchSysCacheExists1(INDEXRELID, ObjectIdGetDatum(index_id)))
		return order;
	index = index_open(index_id, NoLock);
	form = index->rd_index;
	order.columns = palloc(form->indnkeyatts * sizeof(GpusortSortColumn));
	for (int i = 0; i < form->indnkeyatts && index->rd_rel->relam == BTREE_AM_OID; i++)
	{
		int			option = index->rd_indoption[i];
		bool		backward = ScanDirectionIsBackward(direction);
		bool		descending = ((option & INDOPTION_DESC) != 0) != backward;
		Oid			type = index->rd_opcintype[i];
		AttrNumber	attno = IsA(plan, IndexOnlyScan) ? find_target(plan, INDEX_VAR, i + 1) :
			find_target(plan, ((Scan *) plan)->scanrelid, form->indkey.values[i]);

		if (attno == 0)
			break;
		order.columns[order.ncolumns++] = (GpusortSortColumn)
		{
			.attno = attno,
				.sort_operator = get_opfamily_member(index->rd_opfamily[i], type, type,
													 descending ? BTGreaterStrategyNumber : BTLessStrategyNumber),
				.collation = index->rd_indcollation[i],
				.nulls_first = ((option & INDOPTION_NULLS_FIRST) != 0) != backward,
				.type = exprType((Node *) get_tle_by_resno(plan->targetlist, attno)->expr),
		};
	}
	index_close(index, NoLock);
	return order;
}

GpusortOrder
gpusort_input_known_order(Plan *plan)
{
	GpusortOrder order = {NULL, 0, false};
	Plan	   *child = outerPlan(plan);
	int			varno = OUTER_VAR;

	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_IncrementalSort:
			order.columns = gpusort_cost_columns((Sort *) plan);
			order.ncolumns = ((Sort *) plan)->numCols;
			return order;
		case T_IndexScan:
			return index_order(plan, ((IndexScan *) plan)->indexid, ((IndexScan *) plan)->indexorderdir);
		case T_IndexOnlyScan:
			return index_order(plan, ((IndexOnlyScan *) plan)->indexid, ((IndexOnlyScan *) plan)->indexorderdir);
		case T_SubqueryScan:
			child = ((SubqueryScan *) plan)->subplan;
			varno = ((Scan *) plan)->scanrelid;
			break;
		case T_Limit:
		case T_Material:
		case T_Unique:
		case T_LockRows:
			break;
		default:
			return order;
	}
	order = gpusort_input_known_order(child);
	for (int i = 0; i < order.ncolumns; i++)
	{
		order.columns[i].attno = find_target(plan, varno, order.columns[i].attno);
		if (order.columns[i].attno == 0)
			order.ncolumns = i;
	}
	return order;
}

bool
gpusort_input_find_group_order(Agg *agg, GpusortOrder *order)
{
	Plan	   *child = outerPlan(agg);

	*order = gpusort_input_known_order(child);
	if (order->ncolumns < agg->numCols || (IsA(child, Sort) && order->ncolumns > agg->numCols))
		return false;
	order->ncolumns = agg->numCols;
	/* each group column must be there: an index may have a column twice */
	for (int i = 0; i < agg->numCols; i++)
	{
		bool		found = false;

		for (int j = 0; j < agg->numCols; j++)
			found |= order->columns[j].attno == agg->grpColIdx[i];
		if (!found)
			return false;
	}
	return true;
}

/*
 * Follows a column of a plan down to a table.  Returns the table's statistics of it,
 * which the caller releases, or NULL.  Sets *in_place: are the rows read in the order
 * of the table?
 */
static HeapTuple
find_statistics(PlannedStmt *stmt, Plan *plan, AttrNumber attno, bool *in_place, double *tuples)
{
	*in_place = true;
	while (plan != NULL)
	{
		TargetEntry *entry = get_tle_by_resno(plan->targetlist, attno);
		Var		   *var;
		RangeTblEntry *rte;
		HeapTuple	class;

		if (entry == NULL || !IsA(entry->expr, Var))
			return NULL;
		var = (Var *) entry->expr;
		if (!IsA(plan, SeqScan) && !IsA(plan, SubqueryScan))
			*in_place = false;
		if (var->varno == INDEX_VAR && (IsA(plan, IndexOnlyScan) || IsA(plan, CustomScan)))
		{
			entry = get_tle_by_resno(IsA(plan, CustomScan) ? ((CustomScan *) plan)->custom_scan_tlist :
									 ((IndexOnlyScan *) plan)->indextlist, var->varattno);
			if (entry == NULL || !IsA(entry->expr, Var))
				return NULL;
			var = (Var *) entry->expr;
		}
		attno = var->varattno;
		if (IsA(plan, SubqueryScan))
		{
			plan = ((SubqueryScan *) plan)->subplan;
			continue;
		}
		if (IS_SPECIAL_VARNO(var->varno))
		{
			plan = var->varno == OUTER_VAR ? outerPlan(plan) :
				var->varno == INNER_VAR ? innerPlan(plan) : NULL;
			continue;
		}
		rte = rt_fetch(var->varno, stmt->rtable);
		if (rte->rtekind != RTE_RELATION)
			return NULL;
		class = SearchSysCache1(RELOID, ObjectIdGetDatum(rte->relid));
		if (!HeapTupleIsValid(class))
			return NULL;
		*tuples = ((Form_pg_class) GETSTRUCT(class))->reltuples;
		ReleaseSysCache(class);
		return SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
							   Int16GetDatum(attno), BoolGetDatum(false));
	}
	return NULL;
}

bool
gpusort_input_ask_statistics(PlannedStmt *stmt, Plan *plan, const GpusortSortColumn *column, double *distinct)
{
	bool		in_place;
	double		tuples;
	HeapTuple	statistics = find_statistics(stmt, plan, column->attno, &in_place, &tuples);
	Form_pg_statistic form;
	AttStatsSlot slot;
	bool		sorted = false;

	if (!HeapTupleIsValid(statistics))
		return false;
	form = (Form_pg_statistic) GETSTRUCT(statistics);
	if (form->stadistinct > 0)
		*distinct = form->stadistinct;
	else if (form->stadistinct < 0 && tuples > 0)
		*distinct = -form->stadistinct * tuples;
	if (in_place &&
		get_attstatsslot(&slot, statistics, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		TypeCacheEntry *type = lookup_type_cache(column->type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);

		sorted = slot.nnumbers == 1 &&
			((column->sort_operator == type->lt_opr && slot.numbers[0] >= SORTED_CORRELATION) ||
			 (column->sort_operator == type->gt_opr && slot.numbers[0] <= -SORTED_CORRELATION));
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(statistics);
	return sorted;
}

/*
 * Core's quicksort of n rows with d distinct values has log2(min(n, d)) levels, because it
 * does not sort equal rows among themselves.  The levels after the first log2(v) compare
 * rows that agree in columns with v distinct values, and look at the next column.
 */
double
gpusort_plan_compared_columns(PlannedStmt *stmt, Sort *sort)
{
	Plan	   *child = outerPlan(sort);
	GpusortSortColumn *columns = gpusort_cost_columns(sort);
	double		rows = Max(child->plan_rows, 2);
	double		levels = 0;		/* of a quicksort by the columns up to this one */
	double		looks = 0;		/* at later columns, in all levels */
	int			later;

	for (later = 0; later < sort->numCols && levels < log2(rows); later++)
	{
		double		distinct = rows;
		double		before = levels;

		(void) gpusort_input_ask_statistics(stmt, child, &columns[later], &distinct);
		levels = Min(before + log2(Max(distinct, 1)), log2(rows));
		looks += later * (levels - before);
	}
	return 1 + looks / log2(rows);
}
