/*-------------------------------------------------------------------------
 *
 * functions.h
 *		What SQL calls, for the other files of functions/ and for aggregates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_FUNCTIONS_H
#define GPUSORT_FUNCTIONS_FUNCTIONS_H

#include "fmgr.h"
#include "utils/array.h"

#include "key/key.h"
#include "run/run.h"

/* ---- array.c: arrays of fixed-width values ---- */

/* Values to sort, side by side.  NULLs take no place among them. */
typedef struct GpusortArrayInput
{
	const GpusortType *type;
	Oid			elemtype;		/* element type: type, or a domain over it */
	const char *values;
	const uint8 *nulls;			/* null bitmap, a bit is 0 for NULL; NULL: no bitmap */
	uint64		nitems;			/* elements, NULLs included */
	uint64		nnulls;
	bool		descending;
	bool		nulls_first;
} GpusortArrayInput;

/* Sorts them into an array in the current memory context, for this function of SQL. */
extern ArrayType *gpusort_array_sort(const GpusortArrayInput *input, const char *name);

/*
 * Allocates a one-dimensional array of nvalues values of value_bytes each and
 * nnulls NULLs, in the current memory context.  Its lower bound is 1, and the
 * NULLs are in front of all values or behind them.  Sets *values to the
 * uninitialized room for the values.  Raises an error if the array would be too
 * large.
 */
extern ArrayType *gpusort_array_build(Oid elemtype, int value_bytes,
									  uint64 nvalues, uint64 nnulls,
									  bool nulls_first, char **values);

/* Raises an error if an array cannot hold this many elements, or would exceed 1 GB. */
extern void gpusort_array_check_size(int value_bytes, uint64 nvalues, uint64 nnulls);

/* ---- aggregate.c ---- */

/* The functions of the aggregates, by which they are told whatever their names */
extern Datum gpu_sort_agg_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_sort_agg_finalfn(PG_FUNCTION_ARGS);

#endif							/* GPUSORT_FUNCTIONS_FUNCTIONS_H */
