/*-------------------------------------------------------------------------
 *
 * bulk.c
 *		Writes the pages of a new relation before PostgreSQL 17.
 *
 * Blocks between the end of the file and a page that is written are filled with zeros, as core does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/bufpage.h"
#include "storage/smgr.h"

#include "index/btree.h"

#ifndef GPUSORT_HAS_BULK_WRITE

/* The memory of pages begins at such an address, for direct I/O */
#define ALIGNMENT		4096

struct GpusortBulk
{
	Relation	relation;
	BlockNumber blocks;			/* of the file */
	char	   *free;			/* the memory of pages that are written: each begins with the address of the next one */
	MemoryContext cxt;
	PGAlignedBlock zeros;
};

GpusortBulk *
gpusort_bulk_begin(Relation relation)
{
	GpusortBulk *bulk = palloc0(sizeof(GpusortBulk));

	bulk->relation = relation;
	bulk->cxt = CurrentMemoryContext;
	return bulk;
}

Page
gpusort_bulk_page(GpusortBulk *bulk)
{
	char	   *page = bulk->free;

	if (page == NULL)
		return (Page) TYPEALIGN(ALIGNMENT, MemoryContextAlloc(bulk->cxt, BLCKSZ + ALIGNMENT));
	bulk->free = *(char **) page;
	return page;
}

void
gpusort_bulk_write(GpusortBulk *bulk, BlockNumber block, Page page)
{
	SMgrRelation smgr = RelationGetSmgr(bulk->relation);

	CHECK_FOR_INTERRUPTS();
	if (RelationNeedsWAL(bulk->relation))
		log_newpage(gpusort_rel_files(bulk->relation), MAIN_FORKNUM, block, page, true);
	while (bulk->blocks < block)
		smgrextend(smgr, MAIN_FORKNUM, bulk->blocks++, bulk->zeros.data, true);
	PageSetChecksumInplace(page, block);
	if (block == bulk->blocks)
	{
		smgrextend(smgr, MAIN_FORKNUM, block, page, true);
		bulk->blocks++;
	}
	else
		smgrwrite(smgr, MAIN_FORKNUM, block, page, true);
	*(char **) page = bulk->free;
	bulk->free = page;
}

/* The checkpointer does not know of these writes, so that no checkpoint makes them durable. */
void
gpusort_bulk_end(GpusortBulk *bulk)
{
	if (RelationNeedsWAL(bulk->relation))
		smgrimmedsync(RelationGetSmgr(bulk->relation), MAIN_FORKNUM);
}

#endif
