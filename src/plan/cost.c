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
 * errors, three measurements gave 9 to 12 units for a row and 1 to 3 units for
 * each column of one word; in sorts by eight columns, 1 to 2 units for a column.
 * A column of two words, such as a uuid, a numeric or a string, costs as much as
 * two columns.  If a string may be longer than its words, the sorted rows are
 * searched for ties, at 3 units a row (a million rows of 60 bytes take 100 ns
 * each by strings of 20 bytes, and 85 ns by strings of 12).  The model ignores
 * the actual length of strings: a finished plan does not show where the values
 * of a sort column come from, and the set-up cost hides a larger error.
 *
 * Beginning a sort takes no time that this method could measure.  But core's
 * model does not know that small sorts stay in the processor's caches: core
 * sorts 300 rows in 12 us, and the unit above would make it 20 us or more.  So
 * core and gpusort take the same time at about 1,000 rows, not at 100 as the two
 * models would say, and at 3,000 rows gpusort saves 0.1 to 0.2 ms.
 * SETUP_OPERATORS corrects that.  With it, the planner's break-even is at 2,000
 * rows for one column, at 2,400 for two and at 14,000 for eight.
 *
 * Rows beyond the memory limit are written and read once, as in core's model.
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

/* In units of cpu_operator_cost: once per sort, per row, per row and word, per row if keys may tie. */
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
