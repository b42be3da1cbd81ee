/*-------------------------------------------------------------------------
 *
 * unique.h
 *		Finds keys that a unique index would have twice.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_UNIQUE_H
#define GPUSORT_INDEX_UNIQUE_H

#include "index/index.h"

/* The row that was checked last.  All zeros at first, except key, which is one that no word has */
typedef struct GpusortUnique
{
	bool		alive;			/* a row with its key is not dead */
	uint64		key;			/* of a word: gpusort_word_key() */
	MinimalTuple previous;		/* the row itself; NULL: there is none */
	int			turn;			/* which of these are its: */
	uint64		keys[2][GPUSORT_MAX_WORDS]; /* its words */
	PGAlignedBlock copies[2];	/* room for a row of a merge */
} GpusortUnique;

/*
 * Raises core's error if a live row with the same key came before this one, which is live itself.
 * Rows come in order: number of the store, where they stay, or of the merge of spilled runs.  NULLs
 * differ, unless the index says otherwise.  In a thread, returns false where core's functions are
 * needed, and has not checked the row then.
 */
extern bool gpusort_unique_check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row, uint32 number,
								 bool in_thread);
extern void gpusort_unique_check_merged(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row);

/* The same for a row that is a word. */
extern bool gpusort_unique_check_word(GpusortUnique *unique, const GpusortIndexBuild *build, uint64 word, bool in_thread);

#endif							/* GPUSORT_INDEX_UNIQUE_H */
