/*-------------------------------------------------------------------------
 *
 * index.h
 *		Builds btrees in core's place.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_INDEX_H
#define GPUSORT_INDEX_INDEX_H

/* Makes core call gpusort where it is about to build a btree (build.c).  _PG_init() calls this once. */
extern void gpusort_takeover_init(void);

#endif							/* GPUSORT_INDEX_INDEX_H */
