/*-------------------------------------------------------------------------
 *
 * returned.h
 *		Collects the sorted pieces of a run and merges them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_RETURNED_H
#define GPUSORT_GPU_RETURNED_H

#include "cpu/cpu.h"
#include "merge_key.h"

/* The sorted pieces of one run. */
typedef struct GpusortPieces GpusortPieces;

/*
 * Makes an empty list of sorted pieces in cxt; gpusort_pieces_free() frees it.
 * key_bytes is 4 or 8.  Blocks have block_bytes bytes, except the last block of a
 * piece's keys and the last block of its rows.  Raises an error if there is no
 * memory.
 */
extern GpusortPieces *gpusort_pieces_create(MemoryContext cxt, int key_bytes, bool with_rows,
											Size block_bytes);

/*
 * Copies the next block.  Pieces come in input order.  Each comes as the blocks
 * of its sorted keys and then, if with_rows, the blocks of their rows: positions
 * (uint32) within the piece, from 0.  piece_rows, at least 1, is the number of
 * rows of the block's piece.  Returns NULL, or a static reason if there is no
 * memory for the piece or piece_rows is not the same for all of its blocks.
 */
extern const char *gpusort_pieces_add(GpusortPieces *pieces, const void *block, uint64 piece_rows);

/*
 * Says that the run's keys have several words, so that the pieces' keys are merge
 * keys, made as merge_key says.  Where two merge keys do not decide, the merge
 * compares words of input, which is what the device sorted.  Both are copied;
 * the memory that input points to must stay until the pieces are freed.  Called
 * once, when all pieces are complete.
 */
extern void gpusort_pieces_set_words(GpusortPieces *pieces, const GpusortCpuInput *input,
									 const GpusortMergeKey *merge_key);

/* The number of rows of all complete pieces. */
extern uint64 gpusort_pieces_rows(const GpusortPieces *pieces);

/*
 * Merges the next rows of the result: at least 1, and at most left, which is
 * the number of rows not merged yet.  The result is keys, or input positions
 * (uint32) if the pieces have rows.  It is written to out, which has room for
 * left rows; if out is NULL, to memory that stays valid until the next call.
 * Sets *data and *count to the place and the number of rows.  Processes
 * interrupts.  Returns NULL, or a static reason if there is no memory.
 */
extern const char *gpusort_pieces_merge(GpusortPieces *pieces, uint64 left, void *out,
										const void **data, size_t *count);

/* Frees the list, its pieces and the memory of merged rows. */
extern void gpusort_pieces_free(GpusortPieces *pieces);

#endif							/* GPUSORT_GPU_RETURNED_H */
