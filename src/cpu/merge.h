/*-------------------------------------------------------------------------
 *
 * merge.h
 *		The CPU engine: merges sorted pieces.
 *
 * What a device cannot hold at once is sorted there in pieces, and put
 * together here, as much at a time as the caller likes: whoever fetches a
 * result block by block merges it block by block.
 *
 * No PostgreSQL type and no C++ type appears here.  Nothing is raised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_MERGE_H
#define GPUSORT_CPU_MERGE_H

#include "cpu/cpu.h"
#include "merge_key.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* A sorted piece, the caller's; pieces are in input order. */
typedef struct GpusortSortedPiece
{
	const void *keys;			/* count keys, unsigned and ascending */
	const uint32_t *rows;		/* the keys' rows, or NULL in all pieces */
	size_t		count;
	size_t		taken;			/* how many have been merged; 0 at first */
} GpusortSortedPiece;

/*
 * Merges the next count keys, in ascending order, of what has not been taken
 * from the pieces, which must be as many; equal keys come in the order of
 * their pieces.  out gets the keys, or their rows where the pieces have rows,
 * and overlaps no piece.  npieces is below 2^32, key_bytes 4 or 8.
 *
 * If the status is not GPUSORT_CPU_OK, nothing has been taken and out is
 * undefined.  Scratch is a few hundred bytes a piece and thread, malloc'ed.
 */
extern GpusortCpuStatus gpusort_cpu_merge(GpusortSortedPiece *pieces, size_t npieces,
										  int key_bytes, size_t count, void *out,
										  const GpusortCpuOptions *options);

/*
 * The same for keys of several words, which are in the input, in lexicographic
 * order: the pieces' rows are rows of the input, and their keys, of 8 bytes, are
 * made of what is there as settled.  out gets the rows.
 */
extern GpusortCpuStatus gpusort_cpu_merge_words(GpusortSortedPiece *pieces, size_t npieces,
												const GpusortCpuInput *input,
												const GpusortMergeKey *settled, size_t count,
												uint32_t *out, const GpusortCpuOptions *options);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_MERGE_H */
