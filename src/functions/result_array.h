/*-------------------------------------------------------------------------
 *
 * result_array.h
 *		Builds result arrays of fixed-width values without a copy.
 *
 * construct_md_array() takes a Datum of 8 bytes for each element, and calls a function for
 * each.  Here the engine sorts into the array, or its blocks are decoded into it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_RESULT_ARRAY_H
#define GPUSORT_FUNCTIONS_RESULT_ARRAY_H

#include "utils/array.h"

#include "key/key.h"
#include "functions/check_keys.h"
#include "run/run.h"

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

/*
 * Sorts the key set's keys and decodes them to values, which has room for all of
 * them.  Checks them, unless check is NULL.  Finishes the sort and keeps its report for
 * gpusort_last_sort(); the caller ends the key set.
 */
extern void gpusort_array_fill(GpusortKeySet *set, const GpusortType *type,
							   bool descending, char *values, GpusortCheckKeys *check);

#endif							/* GPUSORT_FUNCTIONS_RESULT_ARRAY_H */
