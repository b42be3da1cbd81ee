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

typedef struct GpusortNumbers GpusortNumbers;

/*
 * Prepares to number groups of rows that are equal in these columns, by these operators and collations, in the current
 * memory context.  desc: of the rows.  Raises an error if the type of a column cannot be hashed.
 */
extern GpusortNumbers *gpusort_numbers_init(TupleDesc desc, int ncolumns, const AttrNumber *attnos,
											const Oid *operators, const Oid *collations);

/*
 * Begins with no groups.  They take up to limit bytes, but 63 groups fit in any case; other_bytes of each group are the
 * caller's.
 */
extern void gpusort_numbers_begin(GpusortNumbers *numbers, Size limit, Size other_bytes);

/*
 * Returns the number of the group of row i of a page, from 0 in the order of their first rows, or
 * GPUSORT_NUMBERS_NONE.  Sets *hash to the hash of the group.  Allocates nothing but groups.  must: a new group is added
 * also if there is no memory for it.
 */
extern uint32 gpusort_numbers_find(GpusortNumbers *numbers, GpusortPage *page, int i, bool must, uint32 *hash);

/* From now on, there is no memory for another group. */
extern void gpusort_numbers_close(GpusortNumbers *numbers);

/* The number of groups. */
extern uint32 gpusort_numbers_count(const GpusortNumbers *numbers);

/* Returns the columns of a group, as they are in its first row, valid until they are freed. */
extern void gpusort_numbers_get(const GpusortNumbers *numbers, uint32 number, Datum *values, bool *nulls);

/* Frees all groups. */
extern void gpusort_numbers_end(GpusortNumbers *numbers);

#endif							/* GPUSORT_AGGREGATE_GROUP_NUMBERS_H */
