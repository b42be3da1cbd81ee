/*-------------------------------------------------------------------------
 *
 * returned.h
 *		The sorted pieces of a run, as they come back, and their merge.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_RETURNED_H
#define GPUSORT_GPU_RETURNED_H

#include "cpu/cpu.h"
#include "merge_key.h"

typedef struct GpusortPieces GpusortPieces;

/*
 * Makes an empty list of pieces in cxt.  key_bytes is 4 or 8; a block has
 * block_bytes but for the last of a piece's keys and the last of its rows.
 */
extern GpusortPieces *gpusort_pieces_create(MemoryContext cxt, int key_bytes, bool with_rows,
											Size block_bytes);

/*
 * Copies the next block: pieces come in input order, each as the blocks of
 * its sorted keys and then, with rows, those of their positions (uint32)
 * within the piece.  piece_rows is how many rows the block's piece has, at
 * least one.  Returns a static reason if there is no memory for it, else NULL.
 */
extern const char *gpusort_pieces_add(GpusortPieces *pieces, const void *block, uint64 piece_rows);

/*
 * Keys have several words, and the pieces' keys are made of them as settled:
 * where that does not decide, the merge looks into input, which was sorted and
 * stays until the pieces are freed.  Said once, when all pieces are there.
 */
extern void gpusort_pieces_of_words(GpusortPieces *pieces, const GpusortCpuInput *input,
									const GpusortMergeKey *settled);

/* Rows of the pieces that are complete. */
extern uint64 gpusort_pieces_rows(const GpusortPieces *pieces);

/*
 * Merges the next rows of the result, at most as many as are left: keys, or
 * input positions if pieces have rows.  They are put at out, or if that is
 * NULL where they stay until the next call; *data and *count say where and
 * how many.  Returns a static reason if there is no memory for it, else NULL.
 */
extern const char *gpusort_pieces_merge(GpusortPieces *pieces, uint64 left, void *out,
										const void **data, size_t *count);

/* Frees everything. */
extern void gpusort_pieces_free(GpusortPieces *pieces);

#endif							/* GPUSORT_GPU_RETURNED_H */
