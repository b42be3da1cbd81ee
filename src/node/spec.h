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
	bool		bare;			/* for rows: they are bare (store/row.h) */
	bool		padded;			/* for rows: the padding of their headers has data of the caller's */
	bool		random_access;	/* the parent may read backward, rewind or mark */
	ExprState  *limit_count;	/* LIMIT above the sort; NULL: the parent may fetch all rows */
	ExprState  *limit_offset;	/* OFFSET; NULL: none */
	bool		limit_ties;		/* the parent also fetches the rows equal to the last one */
} GpusortSortSpec;

/*
 * Unpacks the plan of a GpuSort or a GpuSort Feed, whose child has been initialized, and
 * prepares the node's slot.
 */
extern void gpusort_spec_init(GpusortSortSpec *spec, CustomScanState *css, bool random_access);

/* Returns the rows that the parent fetches at most: LIMIT and OFFSET as they are now; -1: all. */
extern int64 gpusort_spec_limit(const GpusortSortSpec *spec, ExprContext *context);

/* The kind of slots that rows are kept in */
static inline const TupleTableSlotOps *
gpusort_spec_slots(const GpusortSortSpec *spec)
{
	return spec->value_type != NULL || spec->bare ? &TTSOpsVirtual : &TTSOpsMinimalTuple;
}

#endif							/* GPUSORT_NODE_SPEC_H */
