/*-------------------------------------------------------------------------
 *
 * bulk.h
 *		Writes the pages of a new relation past the buffers, and logs them.
 *
 * From PostgreSQL 17 on, that is core's storage/bulk_write.h.  Before, it is bulk.c, with the
 * same functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_BULK_H
#define GPUSORT_INDEX_BULK_H

#include "utils/rel.h"

#include "compat.h"

#ifdef GPUSORT_HAS_BULK_WRITE

#include "storage/bulk_write.h"

typedef BulkWriteState GpusortBulk;

#define gpusort_bulk_begin(relation)		smgr_bulk_start_rel(relation, MAIN_FORKNUM)
#define gpusort_bulk_page(bulk)				((Page) smgr_bulk_get_buf(bulk))
#define gpusort_bulk_write(bulk, block, page)	smgr_bulk_write(bulk, block, (BulkWriteBuffer) (page), true)
#define gpusort_bulk_end(bulk)				smgr_bulk_finish(bulk)

#else

typedef struct GpusortBulk GpusortBulk;

/* Begins to write a relation's main fork, which is empty, in the current memory context. */
extern GpusortBulk *gpusort_bulk_begin(Relation relation);

/* Returns memory for a page, which gpusort_bulk_write() takes back. */
extern Page gpusort_bulk_page(GpusortBulk *bulk);

/* Writes a page of the standard layout, some time.  Blocks may come in any order, each once. */
extern void gpusort_bulk_write(GpusortBulk *bulk, BlockNumber block, Page page);

/* Writes what is left, and makes it durable if the relation is logged. */
extern void gpusort_bulk_end(GpusortBulk *bulk);

#endif

#endif							/* GPUSORT_INDEX_BULK_H */
