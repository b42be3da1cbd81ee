/*-------------------------------------------------------------------------
 *
 * version.h
 *		Detects that different versions of gpusort meet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_VERSION_H
#define GPUSORT_BASE_VERSION_H

#include "access/tupdesc.h"
#include "nodes/plannodes.h"

/*
 * Raises an error if a C function returns another number of columns than its SQL
 * declaration has.
 */
extern void gpusort_version_check_columns(TupleDesc declared, int columns);

/* Writes this library's version into a plan node, behind what custom_private has. */
extern void gpusort_version_mark(CustomScan *scan);

/* Raises an error if a library of another version has made the plan node. */
extern void gpusort_version_check(const CustomScan *scan);

#endif							/* GPUSORT_BASE_VERSION_H */
