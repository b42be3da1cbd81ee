/*-------------------------------------------------------------------------
 *
 * rowstore.c
 *		Stores the rows of a sort, in input order, in large blocks.
 *
 * Touching the pages of tuples for the first time costs more than copying the tuples.  The
 * row store copies rows one after the other into blocks of up to 16 MB in huge
 * pages: append.c.
 *
 * The sort reads rows by number, in sorted order.  With many rows each access misses every
 * cache, and so does a look at a table of their places, which takes as long.  So there is such
 * a table only where rows differ in size: the blocks' directories.
 *
 * A parallel worker stores rows in an arena and publishes where its blocks are.  The leader
 * appends these blocks to its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/memory.h"
#include "store/rowstore.h"

#define FIRST_BLOCK_BYTES	((Size) 8 * 1024)
#define FIRST_ENTRIES		16

/* The look-ahead of prefetches, in rows: of the rows, and of the directories' entries */
#define ROWS_AHEAD			32
#define ENTRIES_AHEAD		64

/* Bytes that a prefetch brings */
#define CACHE_LINE			64

/* Rows that are moved between two checks for interrupts */
#define INTERRUPT_ROWS		65536

void
gpusort_rowstore_begin(GpusortRowStore *store, Size memory, GpusortArena *arena, bool bare)
{
	memset(store, 0, sizeof(GpusortRowStore));
	store->cxt = CurrentMemoryContext;
	store->arena = arena;
	store->bare = bare;
	store->block = -1;
	store->limit = memory;
	store->block_bytes = FIRST_BLOCK_BYTES;
	/* the unused part of a block must be small against the limit */
	store->max_block_bytes = Min(GPUSORT_ROW_BLOCK_BYTES, Max(FIRST_BLOCK_BYTES, MAXALIGN(memory / 16)));
}

void
gpusort_rowstore_limit(GpusortRowStore *store, Size bytes)
{
	store->limit = bytes;
	store->over = store->bytes > bytes;
}

/*
 * Allocates a block.  Returns NULL only if an arena of another process has no memory.  Without memory
 * in its own arena, the store goes on in cxt.
 */
static void *
allocate(GpusortRowStore *store, Size bytes)
{
	void	   *mem = store->arena != NULL ? gpusort_arena_alloc(store->arena, bytes) : NULL;

	if (mem != NULL || (store->arena != NULL && !gpusort_arena_is_own(store->arena)))
		return mem;
	store->arena = NULL;
	return gpusort_memory_alloc_pages(store->cxt, bytes);
}

static void
free_block(GpusortRowStore *store, const GpusortRowBlock *block)
{
	store->bytes -= block->bytes;
	if (!block->shared)
		gpusort_memory_free(block->rows, block->bytes);
}

void
gpusort_rowstore_trim(GpusortRowStore *store, Size bytes)
{
	Size		wanted = store->bytes > bytes ? store->bytes - bytes : 0;

	while (store->nblocks > store->block + 1 && store->bytes > wanted)
	{
		store->spare_bytes -= store->blocks[store->nblocks - 1].bytes;
		free_block(store, &store->blocks[--store->nblocks]);
	}
}

void
gpusort_rowstore_reset(GpusortRowStore *store)
{
	int			kept = 0;

	store->spare_bytes = 0;
	for (int i = 0; i < store->nblocks; i++)
	{
		GpusortRowBlock block = store->blocks[i];

		/* the memory of a block that is not full may be needed elsewhere, and one may be small because the limit left no more */
		if (i >= store->block || block.bytes < FIRST_BLOCK_BYTES || block.shared)
		{
			free_block(store, &block);
			continue;
		}
		store->spare_bytes += block.bytes;
		store->blocks[kept++] = block;
	}
	store->nblocks = kept;
	store->rows = 0;
	store->block = -1;
	store->next = store->end = NULL;
	store->directed = false;
	gpusort_rowstore_limit(store, store->limit);
}

/* Makes an array of the store larger, so that it has this many entries, or allocates it. */
static void *
grow_array(GpusortRowStore *store, void *array, int *max, int entries, Size entry_bytes)
{
	int			old_max = *max;

	if (entries <= old_max)
		return array;
	*max = Max(FIRST_ENTRIES, Max(entries, 2 * old_max));
	store->bytes += (*max - old_max) * entry_bytes;
	return array == NULL ? MemoryContextAlloc(store->cxt, *max * entry_bytes) :
		repalloc(array, *max * entry_bytes);
}

/* Adds a block of that many bytes behind the others, and returns it. */
static GpusortRowBlock *
add_block(GpusortRowStore *store, char *rows, Size bytes, bool shared)
{
	GpusortRowBlock *block;

	/* and one more, which ends the search for a row's block */
	store->blocks = grow_array(store, store->blocks, &store->max_blocks, store->nblocks + 2, sizeof(GpusortRowBlock));
	block = &store->blocks[store->nblocks++];
	block[0] = (GpusortRowBlock) {.rows = rows, .bytes = bytes, .first = PG_UINT32_MAX, .shared = shared};
	block[1].first = PG_UINT32_MAX;
	store->bytes += bytes;
	return block;
}

/* Notes in the index that the rows from the block's first one on, at most this many, may lie in the block. */
static void
index_block(GpusortRowStore *store, int number, uint64 rows)
{
	uint64		first = store->blocks[number].first;
	int			begin = (first + GPUSORT_ROW_INDEX_ROWS - 1) >> GPUSORT_ROW_INDEX_BITS;
	int			end = (Min(first + rows, PG_UINT32_MAX) + GPUSORT_ROW_INDEX_ROWS - 1) >> GPUSORT_ROW_INDEX_BITS;

	store->index = grow_array(store, store->index, &store->max_index, end, sizeof(uint32));
	for (int i = begin; i < end; i++)
		store->index[i] = number;
}

/* Makes this block, which is empty, the one being filled.  Its first row has that many bytes. */
static void
fill_block(GpusortRowStore *store, int number, Size bytes)
{
	GpusortRowBlock *block = &store->blocks[number];

	store->block = number;
	store->next = block->rows;
	store->end = block->rows + block->bytes;
	block->first = store->rows;
	block->stride = store->stride = bytes;
	index_block(store, number, block->bytes / MAXIMUM_ALIGNOF);
	/* a kept block has the number of a row that it had */
	block[1].first = PG_UINT32_MAX;
}

/*
 * Makes the next block the one being filled; it has room for at least bytes, and
 * for no more than that if the limit does not allow it.  Returns false only if the
 * arena has no memory.
 */
static bool
next_block(GpusortRowStore *store, Size bytes)
{
	int			next = store->block + 1;

	/* a kept block may be too small for a row of this sort */
	if (next < store->nblocks && store->blocks[next].bytes < bytes)
		gpusort_rowstore_trim(store, store->spare_bytes);
	if (next < store->nblocks)
		store->spare_bytes -= store->blocks[next].bytes;
	else
	{
		Size		left = store->limit > store->bytes ? store->limit - store->bytes : 0;
		Size		size = Max(Min(store->block_bytes, MAXALIGN_DOWN(left)), bytes);
		char	   *rows = allocate(store, size);

		if (rows == NULL)
			return false;
		add_block(store, rows, size, store->arena != NULL);
		store->block_bytes = Min(2 * store->block_bytes, store->max_block_bytes);
	}
	fill_block(store, next, bytes);
	return true;
}

/* Gives the block being filled a directory.  Returns false if there is no room for it. */
static bool
add_directory(GpusortRowStore *store)
{
	GpusortRowBlock *block = &store->blocks[store->block];
	uint32		rows = store->rows - block->first;
	uint32	   *entry = (uint32 *) store->end;

	if ((Size) (store->end - store->next) < rows * sizeof(uint32))
		return false;
	for (uint32 i = 0; i < rows; i++)
		*--entry = i * (block->stride / MAXIMUM_ALIGNOF);
	store->end = (char *) entry;
	block->stride = store->stride = 0;
	store->directed = true;
	return true;
}

/* Has the block being filled room for a row, after it has got a directory if the row needs one? */
static bool
makes_room(GpusortRowStore *store, Size bytes)
{
	return store->next != NULL && bytes != store->stride && (store->stride == 0 || add_directory(store)) &&
		gpusort_rowstore_has_room(store, bytes);
}

bool
gpusort_rowstore_grow(GpusortRowStore *store, Size bytes)
{
	if (makes_room(store, bytes))
		return true;
	(void) GPUSORT_FAULT(ROWSTORE);
	if (!next_block(store, bytes))
		return false;
	gpusort_rowstore_limit(store, store->limit);
	return true;
}

/*
 * A row never moves to a place behind its old one: filled in the same order, the same
 * blocks take the rows that are kept no later than they took all rows.  A block needs no
 * directory for rows that had none in it, and a directory has no more entries than before.  So
 * neither a row nor an entry is overwritten before it has been read.
 */
void
gpusort_rowstore_keep(GpusortRowStore *store, const uint32 *rows, uint64 n)
{
	int			nblocks = store->block + 1;
	GpusortRowBlock *blocks = palloc((nblocks + 1) * sizeof(GpusortRowBlock));
	const GpusortRowBlock *from = blocks;

	Assert(n > 0);
	memcpy(blocks, store->blocks, nblocks * sizeof(GpusortRowBlock));
	blocks[nblocks].first = PG_UINT32_MAX;
	for (int i = 0; i < nblocks; i++)
		store->spare_bytes += blocks[i].bytes;
	store->rows = 0;
	store->block = -1;
	store->next = store->end = NULL;

	for (uint64 i = 0; i < n; i++)
	{
		const char *row;
		Size		bytes;
		char	   *to;

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		while (rows[i] >= from[1].first)
			from++;
		row = gpusort_rowblock_row(from, rows[i]);
		bytes = gpusort_row_bytes(row, store->bare);
		while (!gpusort_rowstore_has_room(store, MAXALIGN(bytes)) && !makes_room(store, MAXALIGN(bytes)))
		{
			store->spare_bytes -= store->blocks[store->block + 1].bytes;
			fill_block(store, store->block + 1, MAXALIGN(bytes));
		}
		to = gpusort_rowstore_add(store, bytes);
		if (to != row)
			memmove(to, row, bytes);
	}
	pfree(blocks);
	gpusort_rowstore_limit(store, store->limit);
}

GpusortRowSpan *
gpusort_rowstore_spans(const GpusortRowStore *store, int *count)
{
	GpusortRowSpan *spans = palloc(sizeof(GpusortRowSpan) * (store->block + 1));
	int			n = 0;

	for (int i = 0; i <= store->block; i++)
	{
		const GpusortRowBlock *block = &store->blocks[i];
		uint32		behind = Min(block[1].first, store->rows);
		uint32		rows = behind - block->first;
		const char *last;

		if (behind <= block->first)
			continue;
		last = gpusort_rowblock_row(block, behind - 1);
		spans[n++] = (GpusortRowSpan) {
			.rows = block->rows,
			.bytes = last - block->rows +
			(block->stride != 0 ? block->stride : MAXALIGN(gpusort_row_bytes(last, store->bare))),
			.directory = block->stride != 0 ? NULL : gpusort_rowblock_entry(block, behind - 1),
			.first = block->first,
			.count = rows,
			.stride = block->stride,
		};
	}
	*count = n;
	return spans;
}

/*
 * A processor does not finish a prefetch before it knows the address in memory, which takes
 * long with pages of 4 kB.  It can look up some addresses at a time, if their prefetches follow
 * each other closely.  It forgets some of many prefetches.  So a loop makes a few of them.
 */
void
gpusort_rowstore_look_ahead(const GpusortRowStore *store, const uint32 *order, uint64 n, uint64 i, Size bytes)
{
	uint64		end = Min(i + ROWS_AHEAD + GPUSORT_ROW_STEP, n);

	/* what tells where the rows are */
	for (uint64 e = i + ENTRIES_AHEAD; store->directed && e < Min(i + ENTRIES_AHEAD + GPUSORT_ROW_STEP, n); e++)
	{
		const GpusortRowBlock *block = gpusort_rowstore_block(store, order[e]);

		if (block->stride == 0)
			__builtin_prefetch(gpusort_rowblock_entry(block, order[e]));
	}
	for (uint64 r = i == 0 ? 0 : i + ROWS_AHEAD; r < end; r++)
	{
		const char *row = gpusort_rowstore_row(store, order[r]);
		const char *line = (const char *) TYPEALIGN_DOWN(CACHE_LINE, row);

		/* also a short row may lie in two lines */
		do
			__builtin_prefetch(line);
		while ((line += CACHE_LINE) < row + bytes);
	}
}

/* ---- for another process ---- */

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
		block = add_block(store, gpusort_arena_address(arena, shared->blocks[i].place), theirs->bytes, true);
		block->first = store->rows;
		block->stride = theirs->stride;
		store->directed |= theirs->stride == 0;
		index_block(store, store->nblocks - 1, behind - theirs->first);
		store->rows += behind - theirs->first;
	}
	/* a row that is appended now begins a block of its own */
	store->block = store->nblocks - 1;
	store->next = store->end = NULL;
	gpusort_rowstore_limit(store, store->limit);
}
