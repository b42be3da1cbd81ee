/*-------------------------------------------------------------------------
 *
 * rowstore_shared.c
 *		Hands the rows of one process's store over to another process's store.
 *
 * A parallel worker stores rows in an arena and publishes where its blocks are.  The leader
 * appends these blocks to its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/rowstore.h"

/* A block whose memory is at this place of the arena */
typedef struct SharedBlock
{
	GpusortPlace place;
	GpusortRowBlock block;		/* as the worker has it */
} SharedBlock;

typedef struct SharedStore
{
	uint64		rows;
	int			nblocks;
	SharedBlock blocks[FLEXIBLE_ARRAY_MEMBER];
} SharedStore;

bool
gpusort_rowstore_publish(GpusortRowStore *store, GpusortPlace *place)
{
	int			nblocks = store->block + 1;
	SharedStore *shared = gpusort_arena_alloc(store->arena, offsetof(SharedStore, blocks) + nblocks * sizeof(SharedBlock));

	if (shared == NULL)
		return false;
	shared->rows = store->rows;
	shared->nblocks = nblocks;
	for (int i = 0; i < nblocks; i++)
		shared->blocks[i] = (SharedBlock) {gpusort_arena_place(store->arena, store->blocks[i].rows), store->blocks[i]};
	*place = gpusort_arena_place(store->arena, shared);
	return true;
}

void
gpusort_rowstore_adopt(GpusortRowStore *store, const GpusortArena *arena, GpusortPlace place)
{
	const SharedStore *shared = gpusort_arena_address(arena, place);

	gpusort_rowstore_trim(store, store->spare_bytes);
	for (int i = 0; i < shared->nblocks; i++)
	{
		const GpusortRowBlock *theirs = &shared->blocks[i].block;
		uint64		behind = i + 1 < shared->nblocks ? shared->blocks[i + 1].block.first : shared->rows;
		GpusortRowBlock *block;

		CHECK_FOR_INTERRUPTS();
		block = gpusort_rowstore_add_block(store, gpusort_arena_address(arena, shared->blocks[i].place),
										   theirs->bytes, true);
		block->first = store->rows;
		block->stride = theirs->stride;
		store->directed |= theirs->stride == 0;
		gpusort_rowstore_index_block(store, store->nblocks - 1, behind - theirs->first);
		store->rows += behind - theirs->first;
	}
	/* a row that is appended now begins a block of its own */
	store->block = store->nblocks - 1;
	store->next = store->end = NULL;
	gpusort_rowstore_limit(store, store->limit);
}
