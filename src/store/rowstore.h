/*-------------------------------------------------------------------------
 *
 * rowstore.h
 *		Rows as a sort keeps them, and their store in large blocks, in input order.
 *
 * A row is either a minimal tuple or bare.  The header of a tuple takes 16 bytes, as
 * much as many values.  So if the rows of a sort have a single column and that is a
 * varlena, they are bare: a row is the value itself, without a tuple.  The bare row of
 * NULL is a uint32 of 0, which no varlena begins with.
 *
 * Rows are MAXALIGNed, and 4 bytes can be read of each, even if it is shorter.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_ROWSTORE_H
#define GPUSORT_STORE_ROWSTORE_H

#include "access/htup_details.h"
#include "executor/tuptable.h"

#include "base/arena.h"
#include "base/span.h"
#include "compat.h"
#include "key/key.h"

/* ---- a row ---- */

/* Is a bare row the row of NULL? */
static inline bool
gpusort_row_is_null(const void *row)
{
	return *(const uint32 *) row == 0;
}

/* Returns a row's size in bytes, without padding. */
static inline Size
gpusort_row_bytes(const void *row, bool bare)
{
	if (!bare)
		return ((const MinimalTupleData *) row)->t_len;
	return gpusort_row_is_null(row) ? sizeof(uint32) : VARSIZE_ANY(row);
}

/* Copies the first and the last bytes, which may overlap, and loads both before it stores them. */
#define COPY_ENDS(type) \
	do { \
		type		first; \
		type		last; \
\
		memcpy(&first, from, sizeof(type)); \
		memcpy(&last, from + bytes - sizeof(type), sizeof(type)); \
		memcpy(to, &first, sizeof(type)); \
		memcpy(to + bytes - sizeof(type), &last, sizeof(type)); \
	} while (0)

/* memmove() for short rows and values, without a call: to is not above from, or they do not overlap. */
static pg_attribute_always_inline void
gpusort_row_copy(char *to, const char *from, Size bytes)
{
	/* each step loads before it stores, and the last bytes are loaded first */
	if (likely(bytes >= 16 && bytes <= 128))
	{
		uint64		last[2];

		memcpy(last, from + bytes - 16, 16);
		for (Size i = 0; i < bytes - 16; i += 16)
		{
			uint64		part[2];

			memcpy(part, from + i, 16);
			memcpy(to + i, part, 16);
		}
		memcpy(to + bytes - 16, last, 16);
	}
	else if (likely(bytes >= 8 && bytes < 16))
		COPY_ENDS(uint64);
	else if (likely(bytes >= 4 && bytes < 8))
		COPY_ENDS(uint32);
	else
		memmove(to, from, bytes);
}

#undef COPY_ENDS

/*
 * Puts a row into a slot, which must be virtual if rows are bare, and else of minimal
 * tuples.  The row stays where it is.
 */
static inline void
gpusort_row_put(const void *row, bool bare, TupleTableSlot *slot)
{
	if (!bare)
	{
		ExecStoreMinimalTuple((MinimalTuple) row, slot, false);
		return;
	}
	ExecClearTuple(slot);
	slot->tts_values[0] = PointerGetDatum(row);
	slot->tts_isnull[0] = gpusort_row_is_null(row);
	ExecStoreVirtualTuple(slot);
}

/* ---- a store ---- */

/*
 * Memory for rows, one after the other.  As long as all rows of a block take as many bytes,
 * their places follow from that.  A row of another size gives the block a directory: an entry
 * for each row, which grows down from the end of the block.
 *
 *		+-------+-------+-------+--------+---------+---------+---------+
 *		| row 0 | row 1 | row 2 |  free  | entry 2 | entry 1 | entry 0 |
 *		+-------+-------+-------+--------+---------+---------+---------+
 *
 * An entry is a uint32: where the row begins, in units of MAXIMUM_ALIGNOF bytes.
 */
typedef struct GpusortRowBlock
{
	char	   *rows;			/* the block's memory */
	Size		bytes;			/* its size, MAXALIGNed */
	uint32		first;			/* the number of its first row; PG_UINT32_MAX: it has none yet */
	uint32		stride;			/* bytes from a row to the next; 0: the block has a directory */
	bool		shared;			/* it is in an arena, which owns it */
} GpusortRowBlock;

/* The index knows the block of each row whose number is a multiple of this. */
#define GPUSORT_ROW_INDEX_BITS	12
#define GPUSORT_ROW_INDEX_ROWS	(1 << GPUSORT_ROW_INDEX_BITS)

/* The size of a block, at most, unless a single row is larger */
#define GPUSORT_ROW_BLOCK_BYTES	((Size) 16 * 1024 * 1024)

typedef struct GpusortRowStore
{
	MemoryContext cxt;			/* owns all memory of the store, except: */
	GpusortArena *arena;		/* where further blocks are allocated; NULL: in cxt */
	bool		bare;			/* rows are bare */
	uint64		rows;			/* rows stored, fewer than 2^32 - 1 */
	GpusortRowBlock *blocks;	/* behind the one being filled is one with first = PG_UINT32_MAX */
	int			nblocks;		/* blocks allocated */
	int			max_blocks;		/* entries in the array blocks */
	int			block;			/* the block being filled, or -1; blocks after it are
								 * kept from before rows were removed, and empty */
	uint32	   *index;			/* where to look for the block of row i * GPUSORT_ROW_INDEX_ROWS */
	int			max_index;		/* entries in the array index */
	Size		spare_bytes;	/* bytes of the empty blocks */

	/* of the block being filled */
	char	   *next;			/* begin of the free part, MAXALIGNed */
	char	   *end;			/* end of the free part */
	Size		stride;			/* as in the block; its first row has been added */

	bool		directed;		/* a block has a directory */
	bool		over;			/* the store takes more bytes than its limit */
	Size		limit;			/* bytes that the store may take */
	Size		bytes;			/* all memory of the store */
	Size		block_bytes;	/* size of the next block to be allocated */
	Size		max_block_bytes;	/* the most that block_bytes grows to */
} GpusortRowStore;

/*
 * Makes an empty store in the current memory context.  memory: bytes that the owner may use in
 * all; the size of blocks depends on it.  arena: if not NULL, rows are allocated there, for
 * another process.
 */
extern void gpusort_rowstore_begin(GpusortRowStore *store, Size memory, GpusortArena *arena, bool bare);

/* Removes all rows.  Keeps the memory of full blocks for the next rows. */
extern void gpusort_rowstore_reset(GpusortRowStore *store);

/*
 * Sets the bytes that the store may take.  A block is cut to what is left of them.  If not even
 * the next row fits, it gets a block of its own, and store->over tells so.
 */
extern void gpusort_rowstore_limit(GpusortRowStore *store, Size bytes);

/* Frees blocks that were kept for the next rows, until these bytes are free or no such block is left. */
extern void gpusort_rowstore_trim(GpusortRowStore *store, Size bytes);

/*
 * Copies the slot's row to the end of the store.  Returns false, and has not copied the row,
 * only if an arena of another process has no memory.
 */
extern bool gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot);

/* How columns of a heap tuple become a row, or a bare row.  Values stay as they are, toasted ones too. */
typedef struct GpusortColumns
{
	int			count;			/* columns of the row; 0: there is no plan */
	int			natts;			/* the first columns of a tuple: the row's are among these */
	bool		bare;
	bool		null_constant;	/* one of the constants is NULL */
	struct
	{
		int16		from;		/* the tuple's column, from 0; -1: a constant */
		int16		bytes;		/* -1: a varlena */
		uint16		mask;		/* its alignment, less 1 */
	}			columns[GPUSORT_PLACES_MAX];
} GpusortColumns;

/*
 * Plans rows of this descriptor: column i is column attnos[i], from 1, of a tuple, or if that is 0, constants[i].  Returns false
 * if columns are too many, or if one has C strings.
 */
extern bool gpusort_columns_plan(GpusortColumns *plan, TupleDesc to, const AttrNumber *attnos, const GpusortConstant *constants,
								 bool bare);

/*
 * Of n tuples of a page, from number first on, whose columns have been found: returns how many have all of the plan's, and
 * varlenas with short headers.
 */
extern int	gpusort_columns_fit(const GpusortColumns *plan, const GpusortPlaces *places, const HeapTupleHeader *tuples,
								int first, int n);

/*
 * Copies n tuples of a heap page, of that many bytes each.  Returns how many: it stops if store->over is true, or
 * if the arena has no memory.
 */
extern int	gpusort_rowstore_append_tuples(GpusortRowStore *store, const HeapTupleHeader *tuples, const uint16 *bytes, int n);

/*
 * Copies the plan's columns of n tuples of a page, from number first on.  None of them is unknown.  constants: those of the plan.
 * Returns how many: it stops where gpusort_rowstore_append_tuples() does, and in front of a row that is too long.
 */
extern int	gpusort_rowstore_append_columns(GpusortRowStore *store, const GpusortColumns *plan, const GpusortPlaces *places,
											const GpusortConstant *constants, const HeapTupleHeader *tuples, int first, int n);

/*
 * Removes all rows but n, at least 1: row i of the store becomes what row rows[i] was.  rows
 * ascends.  Keeps the store's memory for the next rows.
 */
extern void gpusort_rowstore_keep(GpusortRowStore *store, const uint32 *rows, uint64 n);

/* Returns the block of a row. */
static inline const GpusortRowBlock *
gpusort_rowstore_block(const GpusortRowStore *store, uint32 row)
{
	const GpusortRowBlock *block = &store->blocks[store->index[row >> GPUSORT_ROW_INDEX_BITS]];

	while (row >= block[1].first)
		block++;
	return block;
}

/* Returns the directory's entry of a row. */
static inline const uint32 *
gpusort_rowblock_entry(const GpusortRowBlock *block, uint32 row)
{
	return (const uint32 *) (block->rows + block->bytes) - 1 - (row - block->first);
}

/* Returns a row of a block. */
static inline void *
gpusort_rowblock_row(const GpusortRowBlock *block, uint32 row)
{
	if (likely(block->stride != 0))
		return block->rows + (Size) (row - block->first) * block->stride;
	return block->rows + (Size) *gpusort_rowblock_entry(block, row) * MAXIMUM_ALIGNOF;
}

/* Returns a row by its number, from 0.  It is valid until rows are removed. */
static inline void *
gpusort_rowstore_row(const GpusortRowStore *store, uint32 row)
{
	return gpusort_rowblock_row(gpusort_rowstore_block(store, row), row);
}

/*
 * Prefetches rows that are read soon, in steps of GPUSORT_ROW_STEP rows.  order: n numbers of
 * rows; element i, a multiple of the step, is read next.  bytes: of each row that are wanted.
 */
#define GPUSORT_ROW_STEP	8

extern void gpusort_rowstore_look_ahead(const GpusortRowStore *store, const uint32 *order, uint64 n, uint64 i, Size bytes);

/* Puts a row, by its number, into a slot: gpusort_row_put(). */
static inline void
gpusort_rowstore_put(const GpusortRowStore *store, uint32 row, TupleTableSlot *slot)
{
	gpusort_row_put(gpusort_rowstore_row(store, row), store->bare, slot);
}

/* Makes room for a row of that many bytes, MAXALIGNed.  Returns false only if the arena has no memory. */
extern bool gpusort_rowstore_grow(GpusortRowStore *store, Size bytes);

/* Has the block being filled room for a row of that many bytes, MAXALIGNed, as it is? */
static inline bool
gpusort_rowstore_has_room(const GpusortRowStore *store, Size bytes)
{
	Size		room = store->end - store->next;

	return bytes == store->stride ? room >= bytes : store->stride == 0 && room >= bytes + sizeof(uint32);
}

/*
 * Adds a row of that many bytes and returns its memory, which the caller fills, or
 * NULL if the arena has none.
 */
static inline void *
gpusort_rowstore_add(GpusortRowStore *store, Size bytes)
{
	void	   *row;

	bytes = MAXALIGN(bytes);
	if (unlikely(!gpusort_rowstore_has_room(store, bytes)) && !gpusort_rowstore_grow(store, bytes))
		return NULL;
	row = store->next;
	if (store->stride == 0)
	{
		store->end -= sizeof(uint32);
		*(uint32 *) store->end = (store->next - store->blocks[store->block].rows) / MAXIMUM_ALIGNOF;
	}
	store->next += bytes;
	store->rows++;
	return row;
}

/* Describes the store's blocks.  Returns an array in the current memory context, and its length. */
extern GpusortRowSpan *gpusort_rowstore_spans(const GpusortRowStore *store, int *count);

/*
 * Writes what gpusort_rowstore_adopt() needs into the store's arena and sets *place to where it
 * is.  Returns false if the arena has no memory.  No row may be appended afterwards.
 */
extern bool gpusort_rowstore_publish(GpusortRowStore *store, GpusortPlace *place);

/*
 * Appends the rows of another process's store, without copying them: what it has published is at
 * this place of an arena that is kept as long as the store has the rows.
 */
extern void gpusort_rowstore_adopt(GpusortRowStore *store, const GpusortArena *arena, GpusortPlace place);

#endif							/* GPUSORT_STORE_ROWSTORE_H */
