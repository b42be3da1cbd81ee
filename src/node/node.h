/*-------------------------------------------------------------------------
 *
 * node.h
 *		GpuSort, a custom scan that replaces a Sort.
 *
 * plan/plan.c puts this node into a plan that is already finished, so the node's
 * parent has been planned for a Sort.  The node therefore behaves as nodeSort.c
 * does: it returns the same columns, and supports rewinding, backward scans, mark and
 * restore.  It returns minimal tuples, or virtual ones where it keeps values instead of
 * tuples.
 *
 * Until it returns its first row, the node can hand all rows over to core's tuplesort: if
 * gpusort.enabled was turned off after the plan was made, if EvalPlanQual rechecks a row, or if the
 * result needs random access and exceeds the memory limit.  Where several processes gather the rows
 * (feed.c), it then hands over the sorted rows, because a Gather cannot be stopped halfway.
 *
 * spec.c unpacks the plan, exec.c does one sort after the other.  gather.c reads the child; values.c and
 * rows.c say how rows are kept.  limit.c and bound.c remove rows that a LIMIT does not fetch.  sort.c sorts a
 * key set, or writes it to temporary files; ties.c and verify.c complete its order.  result.c returns rows,
 * and explain.c shows the statistics.  sorter.c sorts rows that are put instead of read, for aggregates.  check.c checks
 * results (gpusort.verify).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_NODE_H
#define GPUSORT_NODE_NODE_H

#include "nodes/extensible.h"

#include "node/result.h"

typedef struct GpusortNode
{
	CustomScanState css;
	GpusortSortSpec spec;
	GpusortGather gather;
	GpusortResult result;
	struct GpusortFeed *feed;	/* below the Gather that is the child: the processes of
								 * the parallel query gather the rows; NULL: the node
								 * does it */
	GpusortNodeStats stats;
	GpusortReport report;		/* of one sort, for base/stat.h: its times are complete when it ends */
} GpusortNode;

extern const CustomScanMethods gpusort_node_methods;
extern const CustomScanMethods gpusort_start_methods;	/* start.c */

/* The ExplainCustomScan callback.  Only reads the node.  In explain.c. */
extern void gpusort_node_explain(CustomScanState *css, List *ancestors, ExplainState *es);

#endif							/* GPUSORT_NODE_NODE_H */
