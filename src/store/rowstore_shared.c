/*-------------------------------------------------------------------------
 *
 * rowstore_shared.c
 *		Hands the rows of one process's store over to another process's store.
 *
 * A parallel worker stores rows in an arena and publishes a directory: where the
 * places of its rows and its blocks are.  The leader appends these blocks to its own.
 * It copies only the places, because their block numbers count from other blocks here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/rowstore.h"

/* The directory that a store's owner publishes: where its places and blocks are in its arena. */
typedef struct Directory
{
	uint64		rows;
	int			nblocks;		/* entries in blocks */
	GpusortPlace segments;		/* of an array of SharedSegments */
	GpusortPlace blocks;		/* of an array of SharedBlocks */
} Directory;

typedef struct SharedSegment
{
	GpusortPlace places;
	int			first_block;
} SharedSegment;

typedef struct SharedBlock
{
	GpusortPlace rows;
	Size		bytes;
} SharedBlock;

/* Segments for that many rows */
static inline int
segments_for(uint64 rows)
{
	return (rows + GPUSORT_ROW_SEGMENT_ROWS - 1) / GPUSORT_ROW_SEGMENT_ROWS;
}

bool
gpusort_rowstore_publish(GpusortRowStore *store, GpusortPlace *place)
{
	int			nsegments = segments_for(store->rows);
	int			nblocks = store->block + 1;
	Directory  *directory = gpusort_arena_alloc(store->arena, sizeof(Directory));
	SharedSegment *segments = gpusort_arena_alloc(store->arena, nsegments * sizeof(SharedSegment));
	SharedBlock *blocks = gpusort_arena_alloc(store->arena, nblocks * sizeof(SharedBlock));

	if (directory == NULL || segments == NULL || blocks == NULL)
		return false;
	for (int i = 0; i < nsegments; i++)
	{
		segments[i].places = gpusort_arena_place(store->arena, store->segments[i].places);
		segments[i].first_block = store->segments[i].first_block;
	}
	for (int i = 0; i < nblocks; i++)
	{
		blocks[i].rows = gpusort_arena_place(store->arena, store->blocks[i].rows);
		blocks[i].bytes = store->blocks[i].bytes;
	}
	*directory = (Directory)
	{
		.rows = store->rows,
			.nblocks = nblocks,
			.segments = gpusort_arena_place(store->arena, segments),
			.blocks = gpusort_arena_place(store->arena, blocks),
	};
	*place = gpusort_arena_place(store->arena, directory);
	return true;
}

/* Another process's places, as this process sees them */
typedef struct ForeignPlaces
{
	const GpusortArena *arena;
	const SharedSegment *segments;
	uint64		rows;
} ForeignPlaces;

static const uint32 *
foreign_place(const ForeignPlaces *from, uint64 row)
{
	const uint32 *places = gpusort_arena_address(from->arena, from->segments[row / GPUSORT_ROW_SEGMENT_ROWS].places);

	return &places[row % GPUSORT_ROW_SEGMENT_ROWS];
}

/* The block of a row, counted from the other store's first */
static int
foreign_block(const ForeignPlaces *from, uint64 row)
{
	return from->segments[row / GPUSORT_ROW_SEGMENT_ROWS].first_block +
		(*foreign_place(from, row) >> GPUSORT_ROW_BLOCK_BITS);
}

/* Rows from one on that lie in one segment of each store */
static inline uint64
rows_side_by_side(const ForeignPlaces *from, uint64 row, uint64 to)
{
	uint64		rows = Min(GPUSORT_ROW_SEGMENT_ROWS - row % GPUSORT_ROW_SEGMENT_ROWS,
						   GPUSORT_ROW_SEGMENT_ROWS - to % GPUSORT_ROW_SEGMENT_ROWS);

	return Min(rows, from->rows - row);
}

/* Can places number all blocks, the first of which becomes the store's block "base"? */
static bool
places_suffice(const GpusortRowStore *store, const ForeignPlaces *from, int base)
{
	uint64		to = store->rows;
	int			first_block = to % GPUSORT_ROW_SEGMENT_ROWS == 0 ? 0 :
		store->segments[to / GPUSORT_ROW_SEGMENT_ROWS].first_block;
	uint64		rows;

	for (uint64 row = 0; row < from->rows; row += rows, to += rows)
	{
		rows = rows_side_by_side(from, row, to);
		if (to % GPUSORT_ROW_SEGMENT_ROWS == 0)
			first_block = base + foreign_block(from, row);
		if (base + foreign_block(from, row + rows - 1) - first_block >= GPUSORT_ROW_SEGMENT_BLOCKS)
			return false;
	}
	return true;
}

bool
gpusort_rowstore_adopt(GpusortRowStore *store, const GpusortArena *arena, GpusortPlace place)
{
	const Directory *directory = gpusort_arena_address(arena, place);
	const SharedBlock *blocks = gpusort_arena_address(arena, directory->blocks);
	ForeignPlaces from = {arena, gpusort_arena_address(arena, directory->segments), directory->rows};
	uint64		rows;
	int			base;

	gpusort_rowstore_trim(store, store->spare_bytes);
	base = store->nblocks;
	if (!places_suffice(store, &from, base))
		return false;

	for (int i = 0; i < directory->nblocks; i++)
	{
		if (store->nblocks == store->max_blocks)
			store->blocks = gpusort_rowstore_grow_array(store, store->blocks, &store->max_blocks, sizeof(GpusortRowBlock));
		store->blocks[store->nblocks++] = (GpusortRowBlock)
		{
			.rows = gpusort_arena_address(arena, blocks[i].rows),
				.bytes = blocks[i].bytes,
				.shared = true,
		};
		store->bytes += blocks[i].bytes;
	}
	for (uint64 row = 0; row < from.rows; row += rows)
	{
		const uint32 *source = foreign_place(&from, row);
		int			first_block = from.segments[row / GPUSORT_ROW_SEGMENT_ROWS].first_block;
		uint32	   *places;
		uint32		shift;
		uint64		room;

		CHECK_FOR_INTERRUPTS();
		/* a new segment counts blocks from the block of its first row */
		store->block = base + foreign_block(&from, row);
		store->next = store->end = store->blocks[store->block].rows;
		room = gpusort_rowstore_reserve(store, from.rows - row);
		rows = Min(room, rows_side_by_side(&from, row, store->rows));

		places = store->places + store->rows % GPUSORT_ROW_SEGMENT_ROWS;
		shift = (uint32) (base + first_block -
						  store->segments[store->rows / GPUSORT_ROW_SEGMENT_ROWS].first_block) << GPUSORT_ROW_BLOCK_BITS;
		for (uint64 i = 0; i < rows; i++)
			places[i] = source[i] + shift;
		store->rows += rows;
	}

	/* a row that is appended now begins a block of its own */
	store->block = store->nblocks - 1;
	store->next = store->end = NULL;
	store->full = store->rows % GPUSORT_ROW_SEGMENT_ROWS != 0 &&
		store->block - store->segments[store->rows / GPUSORT_ROW_SEGMENT_ROWS].first_block >= GPUSORT_ROW_SEGMENT_BLOCKS - 1;
	gpusort_rowstore_limit(store, store->limit);
	return true;
}
