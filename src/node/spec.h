/*-------------------------------------------------------------------------
 *
 * spec.h
 *		The order that a GpuSort makes, as its plan states it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_SPEC_H
#define GPUSORT_NODE_SPEC_H

#include "nodes/execnodes.h"

#include "key/keytype.h"
#include "key/rowkey.h"

/*
 * The parent can use only the first rows of each group, N of them, by one of these counts.  A group
 * is rows that are equal in the first columns of the sort; peers are equal in some more of them.
 */
typedef enum GpusortGroupCount
{
	GPUSORT_GROUP_ALL,			/* there are no groups */
	GPUSORT_GROUP_ROWS,			/* rows of the group so far */
	GPUSORT_GROUP_RANK,			/* rows of the group before the row's peers, and 1 */
	GPUSORT_GROUP_DENSE_RANK	/* peers so far, each set of them counted once */
} GpusortGroupCount;

typedef struct GpusortGroups
{
	GpusortGroupCount count;
	int			columns;		/* that a group's rows have in common: the first ones of the sort */
	int			peer_columns;	/* the same for peers, if they count */
} GpusortGroups;

/*
 * Constant while the query runs.  "For values": a row is a single value of a type
 * whose keys can be decoded, and keys are kept instead of rows.  "For rows": all
 * other cases.
 */
typedef struct GpusortSortSpec
{
	int			ncolumns;		/* length of the ORDER BY list and of these arrays */
	GpusortSortColumn *columns;
	AttrNumber *attnos;
	Oid		   *operators;
	Oid		   *collations;
	bool	   *nulls_first;
	TupleDesc	desc;			/* of the rows */
	const struct GpusortForm *form; /* of the sort, by value_type */
	const GpusortType *value_type;	/* for values: the type; NULL: for rows */
	bool		descending;		/* for values: ORDER BY ... DESC */
	bool		bare;			/* for rows: they are bare (store/rowstore.h) */
	bool		padded;			/* for rows: the padding of their headers has data of the caller's */
	int			processes;		/* that share the memory limit, since they sort or execute the node together */
	bool		random_access;	/* the parent may read backward, rewind or mark */
	ExprState  *limit_count;	/* LIMIT above the sort; NULL: the parent may fetch all rows */
	ExprState  *limit_offset;	/* OFFSET; NULL: none */
	bool		limit_of_core;	/* no more rows are asked for: core can bound its sort, too, without ties */
	bool		limit_ties;		/* the parent also fetches the rows equal to the last one */
	bool		limit_below;	/* it fetches one row less than limit_count */
	GpusortGroups groups;		/* if there are any, the limit is that of each group */
} GpusortSortSpec;

/*
 * Unpacks the plan of a GpuSort or a GpuSort Feed, whose child has been initialized, and
 * prepares the node's slot.
 */
extern void gpusort_spec_init(GpusortSortSpec *spec, CustomScanState *css, bool random_access);

/* Describes a sort of rows of this kind by these columns, which stay the caller's.  spec is all zeros. */
extern void gpusort_spec_set(GpusortSortSpec *spec, TupleDesc desc, GpusortSortColumn *columns, int n);

/* Returns the rows that the parent fetches at most, of each group if there are any, as the LIMIT is now; -1: all. */
extern int64 gpusort_spec_limit(const GpusortSortSpec *spec, ExprContext *context);

/* The kind of slots that rows are kept in */
static inline const TupleTableSlotOps *
gpusort_spec_slots(const GpusortSortSpec *spec)
{
	return spec->value_type != NULL || spec->bare ? &TTSOpsVirtual : &TTSOpsMinimalTuple;
}

#endif							/* GPUSORT_NODE_SPEC_H */
