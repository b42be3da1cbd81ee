/*-------------------------------------------------------------------------
 *
 * sortcost.c
 *		What a sort by gpusort costs, beside core's.
 *
 * In core's model a sort of n rows makes n log n comparisons at two
 * cpu_operator_costs each; measured, that is 2.4 us a unit of cost.  gpusort
 * sorts by engine what core compares one by one, so its price a row hardly
 * grows with n: reading the keys off and fetching the rows in their new order
 * is nearly all of it.  The constants below are measured on that scale: a row
 * as core's comparisons of 32 rows would be, with a little more for each word
 * of the key, and a set-up cost which keeps small sorts with core.
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
#include "sortnode.h"

#define SETUP_OPERATORS		40000.0 /* cpu_operator_costs: 0.25 ms */
#define ROW_OPERATORS		8.0
#define WORD_OPERATORS		2.0

double
gpusort_cost_sort(double rows, int width, int words)
{
	double		row_bytes = MAXALIGN(width) + MAXALIGN(SizeofHeapTupleHeader) + 32.0 + 8.0 * words;
	double		bytes = rows * row_bytes;
	double		cost = cpu_operator_cost * (SETUP_OPERATORS + rows * (ROW_OPERATORS + WORD_OPERATORS * words));

	if (bytes > (double) gpusort_guc_memory_limit())
		cost += 2.0 * ceil(bytes / BLCKSZ) * (seq_page_cost * 0.75 + random_page_cost * 0.25);
	return cost;
}
