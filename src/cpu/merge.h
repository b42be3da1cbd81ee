/*-------------------------------------------------------------------------
 *
 * merge.h
 *		The CPU engine: merges sorted pieces.
 *
 * A device sorts a run that it cannot hold at once in pieces, and the backend
 * merges the sorted pieces here.  Each call merges as many keys as the caller
 * asks for, so a result that is fetched block by block is merged block by
 * block.
 *
 * The header has no PostgreSQL types and no C++ types.  The functions raise no
 * errors; they are thread-safe for different pieces.
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

/* A sorted piece.  The caller owns its memory and passes the pieces in input order. */
typedef struct GpusortSortedPiece
{
	const void *keys;			/* count unsigned keys of 4 or 8 bytes, ascending */
	const uint32_t *rows;		/* the row of each key, or NULL in all pieces */
	size_t		count;
	size_t		taken;			/* keys merged so far; the caller sets it to 0 before the first call */
} GpusortSortedPiece;

/*
 * Merges the next count keys, in ascending order, and adds them to the pieces'
 * taken counts.  At least count keys must be left.  Equal keys come in the
 * order of their pieces.  out receives the keys or, if the pieces have rows,
 * the rows; it must not overlap a piece.  npieces is below 2^32 - 1, key_bytes
 * 4 or 8.
 *
 * If the status is not GPUSORT_CPU_OK, no key has been taken and the contents
 * of out are undefined.  The call allocates a few hundred bytes of scratch
 * memory for each piece and thread, and frees them.
 */
extern GpusortCpuStatus gpusort_cpu_merge(GpusortSortedPiece *pieces, size_t npieces,
										  int key_bytes, size_t count, void *out,
										  const GpusortCpuOptions *options);

/*
 * The same for keys of several words, in lexicographic order.  The pieces'
 * rows are positions in input, which has the words; the pieces' keys are the
 * rows' merge keys of 8 bytes, made by merge_key.  out receives the rows.
 */
extern GpusortCpuStatus gpusort_cpu_merge_words(GpusortSortedPiece *pieces, size_t npieces,
												const GpusortCpuInput *input,
												const GpusortMergeKey *merge_key, size_t count,
												uint32_t *out, const GpusortCpuOptions *options);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_MERGE_H */
