/*-------------------------------------------------------------------------
 *
 * start.h
 *		GpuSort Start: starts the foreign scans below a MergeAppend together, and warns
 *		if their rows are out of order.
 *
 *		GpuSort Start
 *		  ->  Merge Append
 *				->  Append
 *					  ->  Async Foreign Scan
 *				->  other nodes
 *
 * plan/start.c makes this plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_START_H
#define GPUSORT_NODE_START_H

#include "nodes/extensible.h"

extern const CustomScanMethods gpusort_start_methods;

#endif							/* GPUSORT_NODE_START_H */
