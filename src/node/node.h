/*-------------------------------------------------------------------------
 *
 * node.h
 *		The custom scans that sort: GpuSort and GpuSort Feed; and GpuSort Start.
 *
 * plan/plan.c puts a GpuSort into a plan that is already finished, in place of a Sort, so the node's
 * parent has been planned for a Sort.  The node therefore behaves as nodeSort.c
 * does: it returns the same columns, and supports rewinding, backward scans, mark and
 * restore.  It returns minimal tuples, or virtual ones where it keeps values instead of
 * tuples.  It is a client of the sorted stream (sort/stream.h).
 *
 * Until it returns its first row, the node can hand all rows over to core's tuplesort: if
 * gpusort.enabled was turned off after the plan was made, if EvalPlanQual rechecks a row, or if the
 * result needs random access and exceeds the memory limit.  Where several processes gather the rows,
 * it then hands over the sorted rows, because a Gather cannot be stopped halfway:
 *
 *		GpuSort
 *		  ->  Gather
 *				->  GpuSort Feed
 *					  ->  a partial plan
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_NODE_H
#define GPUSORT_NODE_NODE_H

#include "nodes/extensible.h"

#include "sort/stream.h"

extern const CustomScanMethods gpusort_node_methods;	/* exec.c */
extern const CustomScanMethods gpusort_feed_methods;	/* feed.c */
extern const CustomScanMethods gpusort_start_methods;	/* start.c */

/* ---- unpack.c ---- */

/*
 * Unpacks the plan of a GpuSort or a GpuSort Feed, whose child has been initialized, and
 * prepares the node's slot.
 */
extern void gpusort_node_unpack(GpusortSortSpec *spec, CustomScanState *css, bool random_access);

/* Unpacks the columns of its order, *n of them. */
extern GpusortSortColumn *gpusort_node_columns(const CustomScan *scan, int *n);

/* Returns the rows that the parent fetches at most, of each group if there are any, as the LIMIT is now; -1: all. */
extern int64 gpusort_node_limit(const GpusortSortSpec *spec, ExprContext *context);

/* ---- exec.c ---- */

/*
 * If a plan node's state is a GpuSort of single values, without shares, executes it, and returns its stream, of which the caller reads the
 * words in place of rows, once.  NULL: rows must be fetched.  *spec: its description
 */
extern GpusortStream *gpusort_node_words(PlanState *state, const GpusortSortSpec **spec);

/* ---- feed.c ---- */

typedef struct GpusortFeed GpusortFeed;

/* If a plan node's state is a Gather above a feed, returns the feed, else NULL. */
extern GpusortFeed *gpusort_feed_below(PlanState *state);

/*
 * Says to which sort, which has begun, the feed's part in this process will add rows, before the Gather is
 * executed.  If core sorts, the feed returns all rows instead.
 */
extern void gpusort_feed_use(GpusortFeed *feed, GpusortStream *stream, bool pass);

/*
 * Executes the Gather to its end and adds the rows of all processes to the sort.  Returns the number
 * of workers.
 */
extern int	gpusort_feed_gather(GpusortFeed *feed, PlanState *gather);

/* ---- explain.c ---- */

/* Shows the sort of a GpuSort.  Only reads. */
extern void gpusort_node_explain(CustomScanState *css, const GpusortSortSpec *spec, const GpusortStreamFigures *figures,
								 List *ancestors, ExplainState *es);

/* Shows workers from number 0 on, and in front of them the leader, which is participants[nworkers]. */
extern void gpusort_participant_explain(const GpusortParticipant *participants, int nworkers,
										ExplainState *es);

#endif							/* GPUSORT_NODE_NODE_H */
