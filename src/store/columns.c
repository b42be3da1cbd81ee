/*-------------------------------------------------------------------------
 *
 * columns.c
 *		Stores some columns of the rows of a heap page.
 *
 * A row with all columns is copied in one piece.  Of one whose columns are chosen, each
 * column is copied: if all have a fixed width and lie at the same offset in all rows, without
 * a slot, by a plan that is made once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"

#include "store/rowstore.h"

bool
gpusort_columns_plan(GpusortColumns *plan, TupleDesc from, TupleDesc to, const AttrNumber *attnos)
{
	int			offset = MAXALIGN(SizeofMinimalTupleHeader);

	plan->count = plan->natts = 0;
	if (to->natts > GPUSORT_COLUMNS_MAX)
		return false;
	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(to, i);
		int			source = GPUSORT_ATTRIBUTE(from, attnos[i] - 1)->attcacheoff;

		if (attribute->attlen <= 0 || source < 0)
			return false;
		offset = att_align_nominal(offset, attribute->attalign);
		plan->natts = Max(plan->natts, attnos[i]);
		plan->columns[i].from = source;
		plan->columns[i].to = offset;
		plan->columns[i].bytes = attribute->attlen;
		offset += attribute->attlen;
	}
	plan->count = to->natts;
	plan->bytes = offset;
	return true;
}

void
gpusort_columns_copy(const GpusortColumns *plan, HeapTupleHeader from, void *row)
{
	MinimalTuple tuple = row;

	/* the padding is zero, as in other tuples */
	memset(row, 0, MAXALIGN(plan->bytes));
	tuple->t_len = plan->bytes;
	tuple->t_hoff = MAXALIGN(SizeofMinimalTupleHeader) + MINIMAL_TUPLE_OFFSET;
	HeapTupleHeaderSetNatts(tuple, plan->count);
	for (int i = 0; i < plan->count; i++)
	{
		const char *source = (const char *) from + from->t_hoff + plan->columns[i].from;
		char	   *target = (char *) row + plan->columns[i].to;

		switch (plan->columns[i].bytes)
		{
			case sizeof(int32):
				memcpy(target, source, sizeof(int32));
				break;
			case sizeof(int64):
				memcpy(target, source, sizeof(int64));
				break;
			default:
				memcpy(target, source, plan->columns[i].bytes);
		}
	}
}
