/*-------------------------------------------------------------------------
 *
 * cost.c
 *		The estimated cost of a GpuSort, on the scale of core's sorts.
 *
 * In core's model a sort of n rows makes n log2 n comparisons, each of which
 * costs two cpu_operator_costs, and returns each row for one more.  In gpusort an
 * engine replaces the comparisons, so the cost of a row does not grow with n.
 * Nearly all of it is encoding the key and fetching the row in its new order.
 *
 * The constants are measured in units of cpu_operator_cost, with the CPU engine
 * and one thread.  The time of the same query without ORDER BY is subtracted
 * (bench/order_by.sh: 1,000 to 1,000,000 rows of 90 bytes, by one integer and by
 * two).  The unit is coarse: one cpu_operator_cost of core's sort takes 4 to
 * 7 ns, and more in larger sorts.  Fitted by least squares of the relative
 * errors, three measurements gave 9 to 12 units for a row (4 of them to fetch it)
 * and 1 to 3 units for each column of one word; in sorts by eight columns, 1 to 2
 * units for a column.
 * A column of two words, such as a uuid, a numeric or a string, costs as much as
 * two columns.  If a string may be longer than its words, the sorted rows are
 * searched for ties, at 3 units a row (a million rows of 60 bytes take 100 ns
 * each by strings of 20 bytes, and 85 ns by strings of 12).  The model ignores
 * the actual length of strings: a finished plan does not show where the values
 * of a sort column come from, and the set-up cost hides a larger error.
 *
 * Beginning a sort takes no time that this method could measure.  But core's
 * model does not know that small sorts stay in the processor's caches: core
 * sorts 300 rows in 16 to 30 us, and the unit above would make it 25 to 35 us.  So
 * core and gpusort take the same time at about 300 rows, not at 100 as the two
 * models would say.  At 1,000 rows gpusort saves 25 to 35 us of 80 to 100 us, but
 * nothing in a session's first sort (by two integers, 300 us with core or without);
 * at 3,000 rows it saves 0.2 to 0.4 ms.  SETUP_OPERATORS corrects that.  With it,
 * the planner's break-even is at 1,100 rows for one column, at 1,300 for two and at
 * 11,000 for eight.  If strings may be longer than their words, breaking ties may
 * cost more than core's sort, and TIE_SETUP_OPERATORS leaves small sorts to core:
 * up to 3,200 rows by one string.
 * Arrays, ranges, rows and bit strings may tie as well, but one of their comparisons costs
 * core several times as much as its model says.  At 1,000 rows gpusort takes 0.16 to 0.36
 * of core's time, and 0.6 to 0.9 with 31 distinct values.  So they count as two words.
 *
 * Core's model does not know that a comparison looks at the second column where the
 * first is equal, and so on.  Each such look takes as long as a comparison, or
 * longer: with 1,000 rows by eight columns, the first four of 3 to 7 values, the unit
 * is 48 to 83 ns, and GpuSort is 8.5 times as fast; if the first column is unique, the
 * unit is 3 ns, and core is 1.5 times as fast.  So where core's sort seems cheaper,
 * the statistics tell how many columns its comparisons look at
 * (gpusort_plan_compared_columns()).
 *
 * GpuSort's model does not know how many distinct values there are.  Core is faster
 * on few of them, but gpusort is, too: with 1, 3 or 100 distinct integers, numerics
 * or uuids among 3,000 to 100,000 rows it takes 0.4 to 0.94 times as long as core
 * (CPU time), and the set-up cost hides the rest.
 * Booleans, enums and single characters are few by nature: there core is faster up to
 * 5,000 rows (at 3,000 rows 0.25 ms for an enum against 0.34, and for "char" against
 * 0.40), which FEW_SETUP_OPERATORS tells.
 *
 * If core compares the first column by strcoll(), one unit of core's sort takes 17 to
 * 30 ns, and GpuSort's row takes 9 to 12 such units, verifying included: from 0.18 us
 * under C.UTF-8 to 0.33 us under en_US.UTF-8 (1,000 and 3,000 names and md5 sums, CPU
 * engine, one thread).  LIBC_COPY_OPERATORS and LIBC_SETUP_OPERATORS put the break-even
 * at 330 rows.  Measured under en_US.UTF-8: with 100 rows core takes 50 to 60 us and
 * GpuSort 60 to 80, with 300 rows 140 to 240 and 130 to 180.
 *
 * If the first column is citext, one unit of core's sort takes 150 to 250 ns, and
 * GpuSort's row 1 to 3 such units.  With 100 names core takes 0.21 ms and GpuSort 0.02
 * (C.UTF-8) or 0.05 (en_US.UTF-8), with 30 names 42 us and 9 or 17, and with 3 GpuSort
 * takes 1 us more.  But to plan and to begin it takes some 10 us.  The break-even is at
 * 45 rows.
 *
 * Rows beyond the memory limit are written and read once, as in core's model.
 *
 * If the parent fetches only k of n rows, because of a LIMIT, core keeps k rows in
 * a heap (a bounded sort).  It forms each row's tuple and compares it with the
 * heap's top.  GpuSort makes each row's key and compares it with its bound
 * (node/limit.c), which takes half as long: 20 to 25 ns for a row of two integers,
 * 9 ns for a single one, and core 60 and 18.  In random order, a row enters the
 * heap with probability k / i, if it is the i-th: k * (1 + ln(n / k)) rows, and k
 * leave it in the end.  Each takes log2(k) comparisons, of 13 to 16 ns up to
 * k = 10,000, and of 40 ns at k = 100,000, where the heap exceeds the processor's
 * caches.  GpuSort copies about as many rows, and sorts and moves them in a cut,
 * which does not depend on k.  It needs memory for up to 2 k rows.  Touching it costs
 * 0.1 ns a byte if the session has kept memory, and up to 1 ns if not.
 *
 * Of 2 million rows in random, ascending or descending order, or with 8 distinct
 * values, of 8 and of 300 bytes, at k = 10 to 500,000, GpuSort took 0.13 to 0.99
 * times core's CPU time: nowhere more.  With few rows, setting up decides: at
 * k = 10, integers break even at 1,000 rows and strings at 3,000 to 10,000, in the
 * model at 7,000 and 18,000; two integers do above 10,000 (0.56 ms against 0.50), which
 * BOUND_SETUP_OPERATORS tells.  Input in ascending order enters either sort k times
 * only, and input in descending order n times.  The model leaves both out, since
 * GpuSort gains from either.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "guc.h"
#include "plan/plan.h"

/*
 * In units of cpu_operator_cost: once per sort; once more if keys may tie, and if all
 * columns have few values by nature; once for each word but the first if a LIMIT bounds
 * the sort; per row, to read it; per row that is copied and sorted; per row that is
 * fetched; per row and word; per row if keys may tie; per byte of a row that core would
 * not keep.
 */
#define SETUP_OPERATORS		9000.0
#define TIE_SETUP_OPERATORS	11000.0
#define FEW_SETUP_OPERATORS	60000.0
#define BOUND_SETUP_OPERATORS	10000.0
#define READ_OPERATORS		4.0
#define COPY_OPERATORS		3.0
#define FETCH_OPERATORS		4.0
#define WORD_OPERATORS		2.0
#define TIE_OPERATORS		3.0
#define BYTE_OPERATORS		0.05

/* Rows that are gathered before the first cut, at least: LEAST_ROWS in node/limit.c */
#define FIRST_CUT_ROWS		4096.0

/* The same, for a comparison in core's bounded heap */
#define HEAP_OPERATORS		3.0

/*
 * The same if core compares by strcoll() or citext, whose time makes these units longer:
 * once per sort; per row that is copied and sorted; per comparison, with the bound or in
 * the heap.
 */
#define LIBC_SETUP_OPERATORS	2200.0
#define LIBC_COPY_OPERATORS		7.0
#define LIBC_COMPARE_OPERATORS	2.0
#define CITEXT_SETUP_OPERATORS	250.0
#define CITEXT_COPY_OPERATORS	3.0

/* The words of a string in a key: the COPY_OPERATORS of libc and citext contain their cost */
#define STRING_WORDS		2

GpusortSortColumn *
gpusort_cost_columns(Sort *sort)
{
	GpusortSortColumn *columns = palloc(sort->numCols * sizeof(GpusortSortColumn));

	for (int i = 0; i < sort->numCols; i++)
	{
		TargetEntry *entry = get_tle_by_resno(sort->plan.targetlist, sort->sortColIdx[i]);

		columns[i] = (GpusortSortColumn)
		{
			.attno = sort->sortColIdx[i],
				.sort_operator = sort->sortOperators[i],
				.collation = sort->collations[i],
				.nulls_first = sort->nullsFirst[i],
				.type = exprType((Node *) entry->expr),
				.row = gpusort_rowkey_row_type(get_tle_by_resno(outerPlan(sort)->targetlist, sort->sortColIdx[i])->expr),
		};
	}
	return columns;
}

double
gpusort_cost_row_bytes(int width)
{
	return MAXALIGN(width) + MAXALIGN(SizeofHeapTupleHeader) + 32.0;
}

static double
row_bytes(const GpusortCostInput *input)
{
	return gpusort_cost_row_bytes(input->width);
}

/*
 * Are only the rows kept that are fetched, within this memory?  See
 * puttuple_common() in tuplesort.c, and gpusort_node_cut().
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

/* Are all columns booleans, enums or single characters ("char")? */
static bool
has_few_values(const GpusortCostInput *input)
{
	for (int i = 0; i < input->ncolumns; i++)
	{
		Oid			type = input->columns[i].type;

		if (type != BOOLOID && type != CHAROID && !type_is_enum(type))
			return false;
	}
	return true;
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
	bool		strings;		/* may keys tie? */
	GpusortComparison comparison;
	int			words = gpusort_rowkey_plan(input->columns, input->ncolumns, &strings, &comparison);
	bool		citext = comparison == GPUSORT_COMPARISON_CITEXT;

	if (comparison != GPUSORT_COMPARISON_FAST)
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
		.setup = SETUP_OPERATORS + (strings ? TIE_SETUP_OPERATORS : 0) +
			(has_few_values(input) ? FEW_SETUP_OPERATORS : 0) +
			(bounded ? BOUND_SETUP_OPERATORS * (words - 1) : 0),
			.read = READ_OPERATORS + WORD_OPERATORS * words,
			.copy = COPY_OPERATORS + (strings ? TIE_OPERATORS : 0),
			.heap = HEAP_OPERATORS,
			.words = words,
	};
}

bool
gpusort_cost_few_rows(double rows, int width, int ncolumns, GpusortComparison comparison)
{
	double		setup = comparison == GPUSORT_COMPARISON_CITEXT ? CITEXT_SETUP_OPERATORS :
		comparison == GPUSORT_COMPARISON_LIBC ? LIBC_SETUP_OPERATORS : SETUP_OPERATORS;

	return 2.0 * rows * log2(Max(rows, 2)) * ncolumns < setup &&
		rows * gpusort_cost_row_bytes(width) < work_mem * 1024.0;
}

double
gpusort_cost_sort(const GpusortCostInput *input)
{
	double		memory = (double) gpusort_guc_memory_limit();
	double		fetched = input->fetched >= 0 ? Min(input->fetched, input->rows) : input->rows;
	double		copied = input->rows;
	Units		units = units_of(input, input->fetched >= 0);
	double		row = row_bytes(input) + 8.0 * units.words;
	bool		bounded = is_bounded(input, row, memory);
	double		operators = units.setup;
	double		cost;

	if (bounded)
	{
		copied = Min(input->rows, Max(entering_rows(input), FIRST_CUT_ROWS));
		operators += fetched * row_bytes(input) * BYTE_OPERATORS;
	}
	operators += input->rows * units.read + copied * units.copy + fetched * FETCH_OPERATORS;
	cost = cpu_operator_cost * operators;
	if (!bounded && input->rows * row > memory)
		cost += 2.0 * ceil(input->rows * row / BLCKSZ) * (seq_page_cost * 0.75 + random_page_cost * 0.25);
	return cost;
}

double
gpusort_cost_shared(const GpusortCostInput *input, double processes)
{
	Units		units = units_of(input, false);
	double		each = (units.read + units.copy / 2) / processes + units.copy / 2 + FETCH_OPERATORS;

	return cpu_operator_cost * (units.setup + input->rows * each);
}

double
gpusort_cost_core_sort(const GpusortCostInput *input)
{
	double		fetched = Max(input->fetched, 1);
	double		operators;
	Units		units;
	Path		path;

	gpusort_cost_core(&path, input->rows, input->width);
	if (input->ties || !is_bounded(input, row_bytes(input), work_mem * 1024.0))
		return path.total_cost +
			2.0 * cpu_operator_cost * input->rows * log2(Max(input->rows, 2)) * (Max(input->compared, 1) - 1);
	units = units_of(input, true);
	operators = input->rows * (units.read + COPY_OPERATORS) +
		(fetched + entering_rows(input)) * log2(fetched + 1) * units.heap;
	return Min(cpu_operator_cost * operators, path.total_cost);
}
