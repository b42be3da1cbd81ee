/*-------------------------------------------------------------------------
 *
 * result_array.h
 *		Arrays of fixed-width values, read and built without a copy.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_RESULT_ARRAY_H
#define GPUSORT_FUNCTIONS_RESULT_ARRAY_H

#include "utils/array.h"

#include "key/keytype.h"
#include "run/run.h"

/*
 * Builds a one-dimensional array, lower bound 1, of nvalues values and nnulls
 * NULLs, which stand together in front or behind.  *values is set to the room
 * for the values.  Raises an error if the array would be too large.
 */
extern ArrayType *gpusort_array_build(Oid elemtype, int value_bytes,
									  uint64 nvalues, uint64 nnulls,
									  bool nulls_first, char **values);

/* Raises the error that an array of this many elements deserves, if any. */
extern void gpusort_array_check_size(int value_bytes, uint64 nvalues, uint64 nnulls);

/*
 * Sorts the run's keys, decodes them to values, which has room for all, and
 * keeps the report of the sort.
 */
extern void gpusort_array_fill(GpusortRun *run, const GpusortType *type,
							   bool descending, char *values);

#endif							/* GPUSORT_FUNCTIONS_RESULT_ARRAY_H */
