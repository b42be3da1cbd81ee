/*-------------------------------------------------------------------------
 *
 * sqlarray.h
 *		Arrays of fixed-width values, read and built without a copy.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SQLARRAY_H
#define GPUSORT_SQLARRAY_H

#include "utils/array.h"

#include "keytype.h"
#include "sortrun.h"

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

/* Sorts the run's keys and decodes them to values, which has room for all. */
extern void gpusort_array_fill(GpusortRun *run, const GpusortType *type,
							   bool descending, char *values);

#endif							/* GPUSORT_SQLARRAY_H */
