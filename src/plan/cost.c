/*-------------------------------------------------------------------------
 *
 * cost.c
 *		What a sort by gpusort costs, beside core's.
 *
 * In core's model a sort of n rows makes n log2 n comparisons at two
 * cpu_operator_costs each, and returns a row for one.  gpusort sorts by engine
 * what core compares one by one, so its price a row does not grow with n:
 * reading the keys off and fetching the rows in their new order is nearly all
 * of it.
 *
 * The constants are measured on core's scale, by the CPU engine with one
 * thread, less the time of the same query without ORDER BY (bench/order_by.sh:
 * rows of 90 bytes by one integer and by two, 1,000 to 1,000,000 of them).
 * The scale is a coarse one: a cpu_operator_cost of core's sort is 4 to 7 ns,
 * more in larger sorts.  By least squares of the relative errors, three runs
 * gave GpuSort 9 to 12 of these for a row and 1 to 3 for each column, of one
 * word; with eight columns, a column is 1 to 2.  A column of two words, such as
 * a uuid, a numeric or a string, costs as two columns do.  Where a string may
 * be longer than its words, the sorted rows are looked through for ties, at 3
 * a row (a million rows of 60 bytes by strings of 20 and of 12: 100 and 85 ns).
 * How long they are is not asked: a finished plan no longer says where a sort
 * column's values come from, and the set-up cost hides more than that.
 *
 * Beginning a sort costs nothing that could be measured so.  But the model
 * does not know that small sorts stay in the processor's caches: of 300 rows,
 * core sorts in 12 us what would be 20 or more by the scale.  So the two break
 * even at some 1,000 rows, instead of 100, and 0.1 to 0.2 ms is to be won at
 * 3,000.  The set-up cost is there to make the planner's break-even agree: it
 * is at 2,000 rows for one column, 2,400 for two, and 14,000 for eight.
 *
 * What exceeds the memory limit is written and read once, as core's would be.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"

#include "guc.h"
#include "plan/plan.h"

/* All in cpu_operator_costs */
#define SETUP_OPERATORS		20000.0
#define ROW_OPERATORS		11.0
#define WORD_OPERATORS		2.0
#define TIE_OPERATORS		3.0

double
gpusort_cost_sort(double rows, int width, const GpusortSortColumn *columns, int ncolumns)
{
	bool		strings;
	int			words = gpusort_rowkey_plan(columns, ncolumns, &strings);
	double		operators = ROW_OPERATORS + WORD_OPERATORS * words + (strings ? TIE_OPERATORS : 0);
	double		row_bytes = MAXALIGN(width) + MAXALIGN(SizeofHeapTupleHeader) + 32.0 + 8.0 * words;
	double		bytes = rows * row_bytes;
	double		cost = cpu_operator_cost * (SETUP_OPERATORS + rows * operators);

	if (bytes > (double) gpusort_guc_memory_limit())
		cost += 2.0 * ceil(bytes / BLCKSZ) * (seq_page_cost * 0.75 + random_page_cost * 0.25);
	return cost;
}
