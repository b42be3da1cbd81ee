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
 * The model does not know how many distinct values there are, and neither does
 * core's.  Core is faster on few distinct values, but gpusort is, too: with 1, 3 or
 * 100 distinct integers, numerics or uuids among 3,000 to 100,000 rows it takes 0.4
 * to 0.94 times as long as core (CPU time), and the set-up cost hides the rest.
 * Booleans and enums are few by nature: there core is faster up to 5,000 rows (at
 * 3,000 rows 0.25 ms for an enum against 0.34), which FEW_SETUP_OPERATORS tells.
 *
 * Rows beyond the memory limit are written and read once, as in core's model.
 *
 * If the parent fetches only k of n rows, because of a LIMIT, core keeps k rows in
 * a heap (a bounded sort).  It forms each row's tuple and compares it with the
 * heap's top.  That takes as long as GpuSort's encoding and copying: 35 to 50 ns
 * for an integer, 70 ns for a text.  In random order, a row enters the heap with
 * probability k / i, if it is the i-th: k * (1 + ln(n / k)) rows, and k leave it in
 * the end.  Each takes log2(k) comparisons, of 13 to 16 ns up to k = 10,000, and of
 * 40 ns at k = 100,000, where the heap exceeds the processor's caches.  GpuSort
 * sorts all rows, but fetches only k.  Touching the memory of the others costs 0.1
 * ns a byte if the session has kept memory, and up to 1 ns if not; core uses the
 * memory of k rows again and again.  With BYTE_OPERATORS in between, GpuSort is
 * chosen from k = 1.5 to 3 % of the rows on if rows are narrow, and from 9 % on if
 * they have 300 bytes.  Measured (CPU time, one integer): at 1 % of a million
 * narrow rows core takes 1.2 to 1.4 times as long as GpuSort, at 3 % 1.6 times, at
 * 10 % 2.6 times, at 25 % over 4 times; with 300 bytes and no kept memory, 0.6
 * times at 1 %, 0.9 times at 3 %, 1.1 times at 10 % and 2 times at 25 %.  Input in
 * ascending order enters the heap k times only, but then either sort is fast;
 * input in descending order enters it n times, which this model leaves out.
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
 * In units of cpu_operator_cost: once per sort; once more if keys may tie, and if
 * all columns are booleans or enums; per row, to gather and sort it; per row that is
 * fetched; per row and word; per row if keys may tie; per byte of a row that is not
 * fetched.
 */
#define SETUP_OPERATORS		9000.0
#define TIE_SETUP_OPERATORS	11000.0
#define FEW_SETUP_OPERATORS	60000.0
#define GATHER_OPERATORS	7.0
#define FETCH_OPERATORS		4.0
#define WORD_OPERATORS		2.0
#define TIE_OPERATORS		3.0
#define BYTE_OPERATORS		0.05

/* The same, for a comparison in core's bounded heap */
#define HEAP_OPERATORS		3.0

/* The most rows that gpusort_cost_most_rows() looks for */
#define MANY_ROWS			1e15

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

/* Bytes of a row in memory, without its key's words. */
static double
row_bytes(const GpusortCostInput *input)
{
	return MAXALIGN(input->width) + MAXALIGN(SizeofHeapTupleHeader) + 32.0;
}

/* Does core keep only the rows that are fetched?  See puttuple_common() in tuplesort.c. */
static bool
is_bounded(const GpusortCostInput *input)
{
	return input->fetched >= 0 && input->fetched * 2 < input->rows &&
		input->fetched * row_bytes(input) <= work_mem * 1024.0;
}

/* Are all columns booleans or enums? */
static bool
has_few_values(const GpusortCostInput *input)
{
	for (int i = 0; i < input->ncolumns; i++)
	{
		if (input->columns[i].type != BOOLOID && !type_is_enum(input->columns[i].type))
			return false;
	}
	return true;
}

/* Units to read a row and its sort columns.  Sets *words, and *strings: may keys tie? */
static double
row_operators(const GpusortCostInput *input, int *words, bool *strings)
{
	*words = gpusort_rowkey_plan(input->columns, input->ncolumns, strings);
	return GATHER_OPERATORS + WORD_OPERATORS * *words + (*strings ? TIE_OPERATORS : 0);
}

double
gpusort_cost_sort(const GpusortCostInput *input)
{
	int			words;
	bool		strings;
	double		operators = input->rows * row_operators(input, &words, &strings);
	double		bytes = input->rows * (row_bytes(input) + 8.0 * words);
	double		fetched = is_bounded(input) ? input->fetched : input->rows;
	double		cost;

	operators += SETUP_OPERATORS + (strings ? TIE_SETUP_OPERATORS : 0) +
		(has_few_values(input) ? FEW_SETUP_OPERATORS : 0);
	operators += fetched * FETCH_OPERATORS + (input->rows - fetched) * row_bytes(input) * BYTE_OPERATORS;
	cost = cpu_operator_cost * operators;
	if (bytes > (double) gpusort_guc_memory_limit())
		cost += 2.0 * ceil(bytes / BLCKSZ) * (seq_page_cost * 0.75 + random_page_cost * 0.25);
	return cost;
}

double
gpusort_cost_core_sort(const GpusortCostInput *input)
{
	double		fetched = Max(input->fetched, 1);
	double		operators;
	int			words;
	bool		strings;
	Path		path;

	gpusort_cost_core(&path, input->rows, input->width);
	if (!is_bounded(input))
		return path.total_cost;
	operators = input->rows * row_operators(input, &words, &strings) +
		fetched * (2 + log(input->rows / fetched)) * log2(fetched + 1) * HEAP_OPERATORS;
	return Min(cpu_operator_cost * operators, path.total_cost);
}

double
gpusort_cost_most_rows(GpusortCostInput input)
{
	while (input.rows < MANY_ROWS && gpusort_cost_sort(&input) < gpusort_cost_core_sort(&input))
		input.rows *= 2;
	return input.rows;
}
