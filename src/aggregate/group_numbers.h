/*-------------------------------------------------------------------------
 *
 * group_numbers.h
 *		Numbers the groups of rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_GROUP_NUMBERS_H
#define GPUSORT_AGGREGATE_GROUP_NUMBERS_H

#include "access/tupdesc.h"

#include "scan/page.h"

/* There is no memory for another group. */
#define GPUSORT_NUMBERS_NONE	UINT32_MAX

/* The most memory for groups, or for their states: the cache holds no more, and a sort of other rows takes less than misses. */
#define GPUSORT_NUMBERS_MOST_BYTES	((Size) 8 * 1024 * 1024)

typedef struct GpusortNumbers GpusortNumbers;

/* The columns that a group's rows have in common, in the order of the columns of an ORDER BY of the groups */
typedef struct GpusortGroupColumns
{
	int			n;
	AttrNumber *attnos;			/* in the child */
	Oid		   *equals;			/* operators of equality, 0 for the last columns, if the others determine them, */
	Oid		   *orders;			/* and of the order of the groups */
	Oid		   *collations;
	bool	   *nulls_first;
} GpusortGroupColumns;

/* Returns n columns in palloc'ed arrays, all zeros. */
extern GpusortGroupColumns gpusort_group_columns_alloc(int n);

/* Unpacks a plan's list of attnos, orders, collations, nulls_first and equals, a list each, into palloc'ed arrays. */
extern GpusortGroupColumns gpusort_group_columns_unpack(List *list);

/*
 * Prepares to number groups of rows, of this descriptor, by columns, in the current memory context.  Raises an error if the
 * type of a column cannot be hashed.
 */
extern GpusortNumbers *gpusort_numbers_init(TupleDesc desc, const GpusortGroupColumns *by);

/*
 * Begins with no groups.  They take up to limit bytes, but 63 groups fit in any case; other_bytes of each group are the
 * caller's.
 */
extern void gpusort_numbers_begin(GpusortNumbers *numbers, Size limit, Size other_bytes);

/*
 * Returns the number of the group of row i of a page, from 0 in the order of their first rows, or
 * GPUSORT_NUMBERS_NONE.  Allocates nothing but groups.  must: a new group is added also if there is no memory for it.
 */
extern uint32 gpusort_numbers_find(GpusortNumbers *numbers, GpusortPage *page, int i, bool must);

/* From now on, there is no memory for another group. */
extern void gpusort_numbers_close(GpusortNumbers *numbers);

/* The number of groups. */
extern uint32 gpusort_numbers_count(const GpusortNumbers *numbers);

/* Returns the columns of a group, as they are in its first row, valid until they are freed. */
extern void gpusort_numbers_get(const GpusortNumbers *numbers, uint32 number, Datum *values, bool *nulls);

/* Frees all groups. */
extern void gpusort_numbers_end(GpusortNumbers *numbers);

#endif							/* GPUSORT_AGGREGATE_GROUP_NUMBERS_H */
