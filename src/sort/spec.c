/*-------------------------------------------------------------------------
 *
 * spec.c
 *		Describes the order of a sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/lsyscache.h"

#include "compat.h"
#include "sort/stream.h"

/*
 * If a row is a single pass-by-value column whose keys can be decoded, returns
 * its type and sets descending.  NULL in all other cases.
 */
static const GpusortType *
find_value_type(GpusortSortSpec *spec)
{
	Oid			opfamily;
	Oid			opcintype;
	GPUSORT_ORDERING ordering;

	if (spec->desc->natts != 1 || !TupleDescAttr(spec->desc, 0)->attbyval ||
		!get_ordering_op_properties(spec->operators[0], &opfamily, &opcintype, &ordering))
		return NULL;
	spec->descending = (ordering == GPUSORT_ORDERING_DESC);
	return gpusort_type_find(TupleDescAttr(spec->desc, 0)->atttypid);
}

void
gpusort_spec_set(GpusortSortSpec *spec, TupleDesc desc, GpusortSortColumn *columns, int n)
{
	spec->desc = desc;
	spec->ncolumns = n;
	spec->columns = columns;
	spec->attnos = palloc(n * sizeof(AttrNumber));
	spec->operators = palloc(n * sizeof(Oid));
	spec->collations = palloc(n * sizeof(Oid));
	spec->nulls_first = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		spec->attnos[i] = columns[i].attno;
		spec->operators[i] = columns[i].sort_operator;
		spec->collations[i] = columns[i].collation;
		spec->nulls_first[i] = columns[i].nulls_first;
	}
	spec->value_type = find_value_type(spec);
	spec->bare = desc->natts == 1 && GPUSORT_ATTRIBUTE(desc, 0)->attlen == -1;
}
