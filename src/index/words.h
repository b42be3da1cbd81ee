/*-------------------------------------------------------------------------
 *
 * words.h
 *		Rows of an index that fit a word each.
 *
 * If the index has one column, an integer of up to 4 bytes or a date, a row is its key, its TID
 * and two flags.  They fit 64 bits, and the order of the words is that of the index.  So words
 * are sorted in place of rows, and no row is kept.  From the most significant bit on:
 *
 *		null	1 bit	1: the value is NULL, if NULLs come last; else 1: it is not
 *		key		32 bits	0 for NULL
 *		block	21 bits; 16 GB of pages of 8 kB
 *		offset	9 bits; 1 bit more, of the block's, for pages of 16 kB, and 2 for those of 32 kB
 *		dead	1 bit	the tuple is dead for new snapshots: unique does not count it
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_WORDS_H
#define GPUSORT_INDEX_WORDS_H

#include "index/btree.h"

/* How a value becomes a word, and back */
typedef struct GpusortIndexWords
{
	const GpusortType *type;
	uint64		flip;			/* all ones for descending order */
	bool		nulls_first;
} GpusortIndexWords;

#define GPUSORT_WORD_DEAD_BITS		1
#define GPUSORT_WORD_OFFSET_BITS	(BLCKSZ <= 8192 ? 9 : BLCKSZ <= 16384 ? 10 : 11)
#define GPUSORT_WORD_BLOCK_BITS		(30 - GPUSORT_WORD_OFFSET_BITS)
#define GPUSORT_WORD_ROW_BITS		(GPUSORT_WORD_DEAD_BITS + GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_BLOCK_BITS)
#define GPUSORT_WORD_NULL			(UINT64CONST(1) << 63)

StaticAssertDecl(MaxHeapTuplesPerPage < 1 << GPUSORT_WORD_OFFSET_BITS, "a word has room for the offset of a tuple");

/* Makes the word of a row.  flags: as those of a row in a store. */
static inline uint64
gpusort_word_make(const GpusortIndexWords *words, Datum value, bool isnull, BlockNumber block, OffsetNumber offset, uint16 flags)
{
	uint64		word = isnull == words->nulls_first ? 0 : GPUSORT_WORD_NULL;
	uint32		key = 0;

	if (!isnull)
		key = (words->type->kind == GPUSORT_KIND_INT2 ? gpusort_key_int2(DatumGetInt16(value)) :
			   gpusort_key_int4(DatumGetInt32(value))) ^ (uint32) words->flip;
	return word | (uint64) key << GPUSORT_WORD_ROW_BITS |
		(uint64) block << (GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_DEAD_BITS) |
		(uint64) offset << GPUSORT_WORD_DEAD_BITS | ((flags & GPUSORT_INDEX_DEAD) != 0);
}

/* The part of a word that equal values share */
static inline uint64
gpusort_word_key(uint64 word)
{
	return word >> GPUSORT_WORD_ROW_BITS;
}

static inline bool
gpusort_word_is_null(const GpusortIndexWords *words, uint64 word)
{
	return ((word & GPUSORT_WORD_NULL) == 0) == words->nulls_first;
}

static inline bool
gpusort_word_is_dead(uint64 word)
{
	return (word & 1) != 0;
}

static inline void
gpusort_word_tid(uint64 word, ItemPointer tid)
{
	ItemPointerSet(tid,
				   word >> (GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_DEAD_BITS) & ((1 << GPUSORT_WORD_BLOCK_BITS) - 1),
				   word >> GPUSORT_WORD_DEAD_BITS & ((1 << GPUSORT_WORD_OFFSET_BITS) - 1));
}

/* Returns the value of a word that is not NULL. */
static inline Datum
gpusort_word_value(const GpusortIndexWords *words, uint64 word)
{
	uint32		key = (uint32) gpusort_word_key(word) ^ (uint32) words->flip;

	return words->type->kind == GPUSORT_KIND_INT2 ? Int16GetDatum(gpusort_unkey_int2(key)) :
		Int32GetDatum(gpusort_unkey_int4(key));
}

/* Adds a row that is a word: the value, with the TID and the flags of row i of the stream's page. */
static inline void
gpusort_word_add(GpusortIndexBuild *build, Datum value, bool isnull, int i)
{
	const GpusortPage *page = gpusort_stream_page(build->stream);
	int			room;
	uint64	   *word = gpusort_stream_reserve(build->stream, &room);

	if (unlikely(build->check != NULL))
		gpusort_index_check_note(build, &value, &isnull, page->block, page->numbers[i], page->flags[i]);
	*word = gpusort_word_make(build->words, value, isnull, page->block, page->numbers[i], page->flags[i]);
	gpusort_stream_commit(build->stream, 1);
	build->rows++;
}

#endif							/* GPUSORT_INDEX_WORDS_H */
