/*-------------------------------------------------------------------------
 *
 * bulk.c
 *		Writes the pages of a new relation before PostgreSQL 17.
 *
 * Pages wait until there are as many as one WAL record may have.  Blocks between the end of the
 * file and a page that is written are filled with zeros, as core does.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "access/xlogrecord.h"
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
	bool		logged;
	BlockNumber blocks;			/* of the file */
	int			nwaiting;
	BlockNumber numbers[XLR_MAX_BLOCK_ID];	/* of the waiting pages */
	char	   *pages[XLR_MAX_BLOCK_ID];
	char	   *free;			/* the memory of pages that are written: each begins with the address of the next one */
	MemoryContext cxt;
	PGAlignedBlock zeros;
};

GpusortBulk *
gpusort_bulk_begin(Relation relation)
{
	GpusortBulk *bulk = palloc0(sizeof(GpusortBulk));

	bulk->relation = relation;
	bulk->logged = RelationNeedsWAL(relation);
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

static void
write_page(GpusortBulk *bulk, BlockNumber block, char *page)
{
	SMgrRelation smgr = RelationGetSmgr(bulk->relation);

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
}

static void
write_waiting(GpusortBulk *bulk)
{
	if (bulk->nwaiting == 0)
		return;
	CHECK_FOR_INTERRUPTS();
	if (bulk->logged)
		log_newpages(gpusort_rel_files(bulk->relation), MAIN_FORKNUM, bulk->nwaiting, bulk->numbers, bulk->pages, true);
	for (int i = 0; i < bulk->nwaiting; i++)
	{
		write_page(bulk, bulk->numbers[i], bulk->pages[i]);
		*(char **) bulk->pages[i] = bulk->free;
		bulk->free = bulk->pages[i];
	}
	bulk->nwaiting = 0;
}

void
gpusort_bulk_write(GpusortBulk *bulk, BlockNumber block, Page page)
{
	bulk->numbers[bulk->nwaiting] = block;
	bulk->pages[bulk->nwaiting++] = page;
	if (bulk->nwaiting == XLR_MAX_BLOCK_ID)
		write_waiting(bulk);
}

/* The checkpointer does not know of these writes, so that no checkpoint makes them durable. */
void
gpusort_bulk_end(GpusortBulk *bulk)
{
	write_waiting(bulk);
	if (bulk->logged)
		smgrimmedsync(RelationGetSmgr(bulk->relation), MAIN_FORKNUM);
}

#endif
