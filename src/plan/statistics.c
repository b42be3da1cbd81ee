/*-------------------------------------------------------------------------
 *
 * statistics.c
 *		Distinct values, NULLs and order of the columns of a plan, by the statistics.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"

#include "plan/costs.h"
#include "plan/plan.h"

/*
 * Follows a column of a plan down to a table.  Returns the table's statistics of it,
 * which the caller releases, or NULL.
 */
static HeapTuple
find_statistics(PlannedStmt *stmt, const Plan *plan, AttrNumber attno, double *tuples)
{
	while (plan != NULL)
	{
		TargetEntry *entry = get_tle_by_resno(plan->targetlist, attno);
		Var		   *var;
		RangeTblEntry *rte;
		HeapTuple	class;

		if (entry == NULL || !IsA(entry->expr, Var))
			return NULL;
		var = (Var *) entry->expr;
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

double
gpusort_plan_distinct(PlannedStmt *stmt, Plan *plan, AttrNumber attno, double unknown)
{
	double		tuples;
	HeapTuple	statistics = find_statistics(stmt, plan, attno, &tuples);
	double		distinct = unknown;

	if (!HeapTupleIsValid(statistics))
		return unknown;
	distinct = ((Form_pg_statistic) GETSTRUCT(statistics))->stadistinct;
	ReleaseSysCache(statistics);
	if (distinct < 0 && tuples > 0)
		return -distinct * tuples;
	return distinct > 0 ? distinct : unknown;
}

double
gpusort_plan_null_part(PlannedStmt *stmt, const Plan *plan, AttrNumber attno)
{
	double		tuples;
	HeapTuple	statistics = find_statistics(stmt, plan, attno, &tuples);
	double		part;

	if (!HeapTupleIsValid(statistics))
		return 0;
	part = ((Form_pg_statistic) GETSTRUCT(statistics))->stanullfrac;
	ReleaseSysCache(statistics);
	return part;
}

bool
gpusort_plan_lies_in_order(PlannedStmt *stmt, const Plan *plan, AttrNumber attno, Oid operator, Oid collation)
{
	HeapTuple	statistics = NULL;
	AttStatsSlot slot;
	double		tuples;
	bool		lies = false;

	if (IsA(plan, SeqScan))
		statistics = find_statistics(stmt, plan, attno, &tuples);
	if (!HeapTupleIsValid(statistics))
		return false;
	if (((Form_pg_statistic) GETSTRUCT(statistics))->stanullfrac == 0 &&
		get_attstatsslot(&slot, statistics, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		lies = slot.stacoll == collation &&
			(slot.staop == operator ? slot.numbers[0] >= LEAST_CORRELATION :
			 slot.staop == get_commutator(operator) && slot.numbers[0] <= -LEAST_CORRELATION);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(statistics);
	return lies;
}

/* Returns how many values "x % constant" has at most, with NULL; 0 for all other expressions. */
static double
count_remainders(const Node *expr)
{
	const OpExpr *op = (const OpExpr *) expr;
	const Const *divisor;

	if (!IsA(expr, OpExpr) || (op->opfuncid != F_INT2MOD && op->opfuncid != F_INT4MOD && op->opfuncid != F_INT8MOD))
		return 0;
	divisor = lsecond(op->args);
	if (!IsA(divisor, Const) || divisor->constisnull)
		return 0;
	switch (divisor->constlen)
	{
		case sizeof(int16):
			return 2 * fabs((double) DatumGetInt16(divisor->constvalue));
		case sizeof(int32):
			return 2 * fabs((double) DatumGetInt32(divisor->constvalue));
		default:
			return 2 * fabs((double) DatumGetInt64(divisor->constvalue));
	}
}

double
gpusort_plan_count_groups(PlannerInfo *root, List *exprs, double rows)
{
	double		remainders = 1;
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, exprs)
	{
		double		n = count_remainders(lfirst(lc));

		if (n > 0)
			remainders *= n;
		else
			others = lappend(others, lfirst(lc));
	}
	rows = estimate_num_groups(root, exprs, rows, NULL, NULL);
	return list_length(others) == list_length(exprs) ? rows :
		Min(rows, remainders * estimate_num_groups(root, others, rows, NULL, NULL));
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
		double		distinct = gpusort_plan_distinct(stmt, child, columns[later].attno, rows);
		double		before = levels;

		levels = Min(before + log2(Max(distinct, 1)), log2(rows));
		looks += later * (levels - before);
	}
	return 1 + looks / log2(rows);
}
