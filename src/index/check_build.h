/*-------------------------------------------------------------------------
 *
 * check_build.h
 *		gpusort.verify: checks a btree that is being built.
 *
 * The rows are noted when they are read, and each page is checked before it is written: each two
 * neighbours by the operator classes' comparators, the TIDs of equal keys, the bounds of pages,
 * and the pointers to them.  At the end the index must have the rows that were read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_CHECK_BUILD_H
#define GPUSORT_INDEX_CHECK_BUILD_H

#include "access/nbtree.h"

#include "base/check.h"
#include "index/index.h"

/* Begins to check a build, if gpusort.verify is on: sets build->check in the current memory context. */
extern void gpusort_index_check_begin(GpusortIndexBuild *build);

/* Notes a row that is read: the values of the index's columns, the TID, and the flags that a row of a store has. */
extern void gpusort_index_check_note(GpusortIndexBuild *build, const Datum *values, const bool *isnull, BlockNumber block,
									 OffsetNumber offset, uint16 flags);

/* Checks a page that is complete.  Those of a level come from left to right. */
extern void gpusort_index_check_page(GpusortIndexCheck *check, BlockNumber block, Page page);

/* Checks the whole index, all pages of which have been checked. */
extern void gpusort_index_check_end(GpusortIndexCheck *check);

#endif							/* GPUSORT_INDEX_CHECK_BUILD_H */
