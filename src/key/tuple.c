/*-------------------------------------------------------------------------
 *
 * tuple.c
 *		Finds columns in heap tuples without NULLs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"

#include "compat.h"
#include "key/tuple.h"

/* Returns the last column, up to this one, whose offset core has cached, or the first one, and sets its offset. */
static inline int
find_known(TupleDesc desc, int column, int *offset)
{
	while (column > 0 && GPUSORT_ATTRIBUTE(desc, column)->attcacheoff < 0)
		column--;
	*offset = Max(GPUSORT_ATTRIBUTE(desc, column)->attcacheoff, 0);
	return column;
}

bool
gpusort_places_add(GpusortPlaces *places, int column)
{
	TupleDesc	desc = places->desc;
	int			offset;
	int			known = find_known(desc, column, &offset);

	/* 19 caches no offset of a varlena, and core before 19 none until it deforms a tuple */
	for (; known < column && GPUSORT_ATTRIBUTE(desc, known)->attlen > 0; known++)
	{
		int			end = offset + GPUSORT_ATTRIBUTE(desc, known)->attlen;
		int			aligned = gpusort_align(end, desc, known + 1);

		/* a varlena with a short header is not aligned */
		if (GPUSORT_ATTRIBUTE(desc, known + 1)->attlen == -1 && aligned > end)
			break;
		offset = aligned;
	}
	places->offsets[places->count] = offset;
	places->steps[places->count++] = known < column ? column - known : -1;
	if (known < column)
	{
		places->first = known;
		places->begin = offset;
		places->last = Max(places->last, column);
	}
	return column - known < GPUSORT_PLACES_MAX;
}

void
gpusort_places_walk(const GpusortPlaces *places, HeapTupleHeader tuple, uint16 *found)
{
	const char *data = (const char *) tuple + tuple->t_hoff;
	TupleDesc	desc = places->desc;
	int			offset = places->begin;
	int			last = places->last;
	uint16		offsets[GPUSORT_PLACES_MAX];
	uint16	   *next = offsets;

	for (int column = places->first;; column++)
	{
		offset = gpusort_align_value(offset, desc, column, data + offset);
		*next++ = offset;
		if (column == last)
			break;
		offset = att_addlength_pointer(offset, GPUSORT_ATTRIBUTE(desc, column)->attlen, data + offset);
	}
	for (int i = 0; i < places->count; i++)
		found[i] = places->steps[i] >= 0 ? offsets[places->steps[i]] : places->offsets[i];
}

int
gpusort_tuple_find(HeapTupleHeader tuple, TupleDesc desc, int column)
{
	const char *data = (const char *) tuple + tuple->t_hoff;
	int			offset;
	int			known = find_known(desc, column, &offset);

	if (known == column || (GPUSORT_ATTRIBUTE(desc, known)->attlen > 0 && GPUSORT_ATTRIBUTE(desc, known + 1)->attlen > 0))
		return -1;
	for (; known < column; known++)
	{
		offset = att_addlength_pointer(offset, GPUSORT_ATTRIBUTE(desc, known)->attlen, data + offset);
		offset = gpusort_align_value(offset, desc, known + 1, data + offset);
	}
	return offset;
}
