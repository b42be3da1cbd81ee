/*-------------------------------------------------------------------------
 *
 * cost.c
 *		The estimated cost of a GpuSort, on the scale of core's sorts.
 *
 * In core's model a sort of n rows makes n log2 n comparisons, each of which
 * costs two cpu_operator_costs, and returns each row for one more.  In gpusort an
 * engine replaces the comparisons, so the cost of a row does not grow with n:
 * nearly all of it is encoding the key and fetching the row in its new order.
 *
 * The constants (costs.h) are units of cpu_operator_cost, measured with the CPU engine and one
 * thread (bench/order_by.sh; docs/performance.md has the figures).  The set-up costs
 * correct what core's model does not know: small sorts stay in the processor's caches,
 * and few distinct values need few comparisons.  They put the break-even where it was
 * measured.  The time of one unit of core's sort depends on how core compares: by strcoll()
 * it takes several times as long, and for citext tens of times, so these have constants
 * of their own.
 *
 * Core's model does not know either that a comparison looks at the second column where
 * the first is equal.  Where core's sort seems cheaper, the statistics tell how many
 * columns its comparisons look at (gpusort_plan_compared_columns()).
 *
 * Rows beyond the memory limit are written and read once, as in core's model.  If a
 * LIMIT fetches k of n rows, core keeps k rows in a heap, which a row in random order
 * enters with probability k / i, if it is the i-th: k * (1 + ln(n / k)) rows.  GpuSort
 * copies about as many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"
#include "utils/syscache.h"

#include "aggregate/aggregate.h"
#include "compat.h"
#include "guc.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* ---- sorts ---- */

GpusortSortColumn *
gpusort_cost_columns(const Sort *sort)
{
	GpusortSortColumn *columns = palloc(sort->numCols * sizeof(GpusortSortColumn));

	for (int i = 0; i < sort->numCols; i++)
		columns[i] = gpusort_rowkey_column(sort->sortColIdx[i], sort->sortOperators[i], sort->collations[i], sort->nullsFirst[i],
										   get_tle_by_resno(outerPlan(sort)->targetlist, sort->sortColIdx[i])->expr);
	return columns;
}

bool
gpusort_cost_by_pages(const Node *node)
{
	List	   *children = IsA(node, Append) ? ((const Append *) node)->appendplans :
		IsA(node, AppendPath) ? ((const AppendPath *) node)->subpaths : NIL;
	List	   *columns = NIL;
	ListCell   *cell;

	if (IsA(node, SeqScan))
		columns = ((const Plan *) node)->targetlist;
	else if (IsA(node, Path) && ((const Path *) node)->pathtype == T_SeqScan)
		columns = ((const Path *) node)->pathtarget->exprs;
	else if (children == NIL)
		return false;
	foreach(cell, children)
	{
		if (!gpusort_cost_by_pages(lfirst(cell)))
			return false;
	}
	foreach(cell, columns)
	{
		Node	   *column = lfirst(cell);
		Node	   *expr = IsA(column, TargetEntry) ? (Node *) ((TargetEntry *) column)->expr : column;

		if (!IsA(expr, Const) && (!IsA(expr, Var) || ((Var *) expr)->varattno <= 0))
			return false;
	}
	return true;
}

GpusortCostInput
gpusort_cost_input(double rows, int width, const void *child, const GpusortKeyPlan *key)
{
	return (GpusortCostInput) {
		.rows = rows,
		.width = width,
		.fetched = -1,
		.key = key,
		.by_pages = gpusort_cost_by_pages(child),
	};
}

/* The estimated bytes of a row of this width in memory, without its key */
static double
row_bytes(int width)
{
	return MAXALIGN(width) + MAXALIGN(SizeofHeapTupleHeader) + 32.0;
}

/*
 * Are only the rows kept that are fetched, within this memory?  See
 * puttuple_common() in tuplesort.c, and gpusort_limit_trim().
 */
static bool
is_bounded(const GpusortCostInput *input, double row, double memory)
{
	return input->fetched >= 0 && input->fetched * 2 < input->rows && input->fetched * row <= memory;
}

/* Rows that get among those that are kept, if they come in random order. */
static double
entering_rows(const GpusortCostInput *input)
{
	double		kept = Max(input->fetched, 1);

	return kept * (1 + log(input->rows / kept));
}

/* Units of a sort's steps */
typedef struct Units
{
	double		setup;			/* once per sort */
	double		read;			/* per row, to make its key and to compare it with a bound */
	double		copy;			/* per row that is copied and sorted */
	double		heap;			/* per comparison in core's heap */
	int			words;			/* words of a key */
} Units;

static Units
units_of(const GpusortCostInput *input, bool bounded)
{
	const GpusortKeyPlan *key = input->key;
	int			words = key->words;
	bool		citext = key->comparison == GPUSORT_COMPARISON_CITEXT;

	if (key->comparison != GPUSORT_COMPARISON_FAST)
		return (Units)
	{
		.setup = citext ? CITEXT_SETUP_OPERATORS : LIBC_SETUP_OPERATORS,
			.read = WORD_OPERATORS * Max(words - STRING_WORDS, 0) + (bounded ? LIBC_COMPARE_OPERATORS : 0),
			.copy = citext ? CITEXT_COPY_OPERATORS : LIBC_COPY_OPERATORS,
			.heap = LIBC_COMPARE_OPERATORS,
			.words = words,
	};
	return (Units)
	{
		.setup = SETUP_OPERATORS + (key->strings ? TIE_SETUP_OPERATORS : 0) +
			(key->few_values ? FEW_SETUP_OPERATORS : 0) +
			(bounded ? BOUND_SETUP_OPERATORS * (words - 1) : 0),
			.read = (input->by_pages ? PAGE_READ_OPERATORS : READ_OPERATORS) + WORD_OPERATORS * words,
			.copy = COPY_OPERATORS + (key->strings ? TIE_OPERATORS : 0),
			.heap = HEAP_OPERATORS,
			.words = words,
	};
}

bool
gpusort_cost_few_rows(double rows, int width, double ncolumns, GpusortComparison comparison)
{
	double		setup = comparison == GPUSORT_COMPARISON_CITEXT ? CITEXT_SETUP_OPERATORS :
		comparison == GPUSORT_COMPARISON_LIBC ? LIBC_SETUP_OPERATORS : SETUP_OPERATORS;

	return 2.0 * rows * log2(Max(rows, 2)) * ncolumns < setup &&
		rows * row_bytes(width) < work_mem * 1024.0;
}

/* The cost of writing rows to temporary files and reading them again: columns, a short header and a code. */
static double
spill_cost(const GpusortCostInput *input)
{
	return 2.0 * ceil(input->rows * (input->width + SPILL_BYTES) / BLCKSZ) * (seq_page_cost * 0.75 + random_page_cost * 0.25);
}

bool
gpusort_cost_fits(double rows, int width, double processes)
{
	return rows * row_bytes(width) <= processes * gpusort_guc_memory_limit((int) ceil(processes));
}

bool
gpusort_cost_exceeds_files(double rows, int width)
{
	return temp_file_limit >= 0 && !gpusort_cost_fits(SURPLUS_ROWS * rows, width, 1) &&
		SURPLUS_ROWS * rows * (width + SPILL_BYTES) > temp_file_limit * 1024.0;
}

double
gpusort_cost_sort(const GpusortCostInput *input)
{
	double		memory = (double) gpusort_guc_memory_limit(1);
	double		kept = input->kept > 0 ? Min(input->kept, input->rows) : input->rows;
	double		fetched = input->fetched >= 0 ? Min(input->fetched, input->rows) : kept;
	double		copied = input->rows;
	Units		units = units_of(input, input->fetched >= 0);
	double		row = row_bytes(input->width) + 8.0 * units.words;
	bool		bounded = is_bounded(input, row, memory);
	double		operators = units.setup;
	double		cost;

	if (bounded)
	{
		copied = Min(input->rows, Max(entering_rows(input), FIRST_CUT_ROWS));
		operators += fetched * row_bytes(input->width) * BYTE_OPERATORS;
	}
	operators += input->rows * units.read + copied * units.copy + fetched * FETCH_OPERATORS;
	cost = cpu_operator_cost * operators;
	/* half of the memory is for rows that groups have too many of */
	if (!bounded && input->rows * row > memory && (kept == input->rows || 2 * kept * row > memory))
		cost += spill_cost(input);
	return cost;
}

double
gpusort_cost_shared(const GpusortCostInput *input, double processes)
{
	Units		units = units_of(input, false);
	double		each = (units.read + units.copy / 2) / processes + units.copy / 2 + FETCH_OPERATORS;
	double		cost = cpu_operator_cost * (units.setup + input->rows * each);
	double		row = row_bytes(input->width) + 8.0 * units.words;
	double		kept = input->kept > 0 ? Min(2 * input->kept * processes, input->rows) : input->rows;

	/* the processes write together, and the leader reads */
	if (kept * row > processes * gpusort_guc_memory_limit((int) ceil(processes)))
		cost += spill_cost(input) / 2 * (1 / processes + 1);
	return cost;
}

double
gpusort_cost_core_sort(const GpusortCostInput *input)
{
	double		fetched = Max(input->fetched, 1);
	double		operators;
	Units		units;
	Path		path;

	gpusort_cost_core(&path, input->rows, input->width);
	if (input->ties || !is_bounded(input, row_bytes(input->width), work_mem * 1024.0))
		return path.total_cost +
			2.0 * cpu_operator_cost * input->rows * log2(Max(input->rows, 2)) * (Max(input->compared, 1) - 1);
	units = units_of(input, true);
	operators = input->rows * (units.read + COPY_OPERATORS) +
		(fetched + entering_rows(input)) * log2(fetched + 1) * units.heap;
	return Min(cpu_operator_cost * operators, path.total_cost);
}

/* Each column of a row's group and each aggregate does something with the row. */
Cost
gpusort_plan_aggregate_cost(double rows, int columns, int aggregates)
{
	return AGGREGATE_OPERATORS * cpu_operator_cost * rows * (columns + aggregates);
}

/* ---- distinct values, NULLs and order of the columns of a plan, by the statistics ---- */

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
