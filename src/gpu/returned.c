/*-------------------------------------------------------------------------
 *
 * returned.c
 *		Collects the sorted pieces of a run and merges them.
 *
 * A device that cannot hold a run sorts it in pieces.  The backend copies each
 * sorted piece to memory of its own while the device works on the next ones.  It
 * does not overwrite the input with sorted pieces: if the device were lost
 * half way, the keys not returned yet would be lost, and a stable order could
 * not be made without the input order.  So the input stays unchanged until the
 * whole result has come.
 *
 * The copies take as much memory as the keys (or, of keys of several words, the
 * merge keys) and the rows.  That is less than the CPU engine needs to sort
 * positions, and none of it is in the shared pool.  If there is no memory for a
 * piece, this file returns a reason and raises no error, since the CPU engine
 * may need less.
 *
 * The caller fetches the result a few rows at a time, and each fetch merges only
 * these rows, directly into the caller's memory if the caller provides any.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/huge_page.h"
#include "cpu/merge.h"
#include "gpu/returned.h"
#include "run/cpu_options.h"

/* The most rows that one call merges. */
#define MERGE_ROWS		((uint64) 4 * 1024 * 1024)

struct GpusortPieces
{
	MemoryContext cxt;			/* where everything is allocated */
	int			key_bytes;		/* bytes of one key in the pieces: 4 or 8 */
	bool		with_rows;
	Size		block_bytes;

	/* the pieces, in input order; all are complete except perhaps the last */
	GpusortSortedPiece *pieces;
	int			npieces;
	int			maxpieces;
	Size		received;		/* bytes of the last piece's keys and rows that have
								 * come; 0 if it is complete */
	uint64		rows;			/* rows of the complete pieces */
	char	   *merged;			/* room for MERGE_ROWS rows of the result, for callers
								 * that provide none; NULL until it is needed */

	/* gpusort_pieces_set_words() sets these */
	bool		several_words;	/* the pieces' keys are merge keys */
	GpusortCpuInput input;		/* the run's keys */
	GpusortMergeKey merge_key;
};

static const char *const no_memory = "The backend has too little memory for the sorted pieces.";

GpusortPieces *
gpusort_pieces_create(MemoryContext cxt, int key_bytes, bool with_rows,
					  Size block_bytes)
{
	GpusortPieces *pieces = MemoryContextAllocZero(cxt, sizeof(GpusortPieces));

	pieces->cxt = cxt;
	pieces->key_bytes = key_bytes;
	pieces->with_rows = with_rows;
	pieces->block_bytes = block_bytes;
	pieces->maxpieces = 16;
	pieces->pieces = MemoryContextAlloc(cxt, sizeof(GpusortSortedPiece) * pieces->maxpieces);
	return pieces;
}

/* Allocates size bytes, at least 1; NULL if there is no memory. */
static void *
allocate(GpusortPieces *pieces, Size size)
{
	void	   *mem;

	if (GPUSORT_FAULT(PIECE))
		return NULL;
	mem = MemoryContextAllocExtended(pieces->cxt, Max(size, 1),
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (mem != NULL)
		gpusort_huge_pages_ask(mem, size);
	return mem;
}

/* Adds an empty piece of count rows.  Returns false if there is no memory for it. */
static bool
begin_piece(GpusortPieces *pieces, uint64 count)
{
	GpusortSortedPiece *piece;

	if (pieces->npieces == pieces->maxpieces)
	{
		pieces->maxpieces *= 2;
		pieces->pieces = repalloc(pieces->pieces, sizeof(GpusortSortedPiece) * pieces->maxpieces);
	}
	piece = &pieces->pieces[pieces->npieces++];
	piece->count = count;
	piece->taken = 0;
	piece->rows = NULL;
	piece->keys = allocate(pieces, count * pieces->key_bytes);
	if (pieces->with_rows && piece->keys != NULL)
		piece->rows = allocate(pieces, count * sizeof(uint32));
	pieces->received = 0;
	return piece->keys != NULL && (!pieces->with_rows || piece->rows != NULL);
}

/* Copies rows; offset turns positions within a piece into input positions. */
static void
copy_rows(uint32 *to, const uint32 *from, Size count, uint32 offset)
{
	for (Size i = 0; i < count; i++)
		to[i] = from[i] + offset;
}

const char *
gpusort_pieces_add(GpusortPieces *pieces, const void *block, uint64 piece_rows)
{
	Size		key_size = piece_rows * pieces->key_bytes;
	Size		row_size = pieces->with_rows ? piece_rows * sizeof(uint32) : 0;
	GpusortSortedPiece *piece;
	Size		bytes;

	if (pieces->received == 0 && !begin_piece(pieces, piece_rows))
		return no_memory;
	piece = &pieces->pieces[pieces->npieces - 1];
	if (piece->count != piece_rows)
		return "The GPU service returned a sorted piece of an unexpected size.";

	if (pieces->received < key_size)
	{
		bytes = Min(key_size - pieces->received, pieces->block_bytes);
		memcpy((char *) piece->keys + pieces->received, block, bytes);
	}
	else
	{
		Size		offset = pieces->received - key_size;

		bytes = Min(row_size - offset, pieces->block_bytes);
		copy_rows((uint32 *) piece->rows + offset / sizeof(uint32), block,
				  bytes / sizeof(uint32), (uint32) pieces->rows);
	}
	pieces->received += bytes;
	if (pieces->received == key_size + row_size)
	{
		pieces->rows += piece_rows;
		pieces->received = 0;
	}
	return NULL;
}

void
gpusort_pieces_set_words(GpusortPieces *pieces, const GpusortCpuInput *input,
						 const GpusortMergeKey *merge_key)
{
	pieces->several_words = true;
	pieces->input = *input;
	pieces->merge_key = *merge_key;
}

uint64
gpusort_pieces_rows(const GpusortPieces *pieces)
{
	return pieces->rows;
}

const char *
gpusort_pieces_merge(GpusortPieces *pieces, uint64 left, void *out,
					 const void **data, size_t *count)
{
	GpusortCpuOptions options;
	GpusortCpuStatus status;

	if (out == NULL && pieces->merged == NULL)
	{
		pieces->merged = allocate(pieces, MERGE_ROWS * (pieces->with_rows ? sizeof(uint32) : pieces->key_bytes));
		if (pieces->merged == NULL)
			return no_memory;
	}
	*data = out != NULL ? out : pieces->merged;
	*count = Min(left, MERGE_ROWS);
	do
	{
		CHECK_FOR_INTERRUPTS();
		options = gpusort_cpu_options_take(*count);
		if (pieces->several_words)
			status = gpusort_cpu_merge_words(pieces->pieces, pieces->npieces, &pieces->input,
											 &pieces->merge_key, *count, (void *) *data, &options);
		else
			status = gpusort_cpu_merge(pieces->pieces, pieces->npieces, pieces->key_bytes,
									   *count, (void *) *data, &options);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);
	return status == GPUSORT_CPU_NO_MEMORY ? no_memory : NULL;
}

void
gpusort_pieces_free(GpusortPieces *pieces)
{
	for (int i = 0; i < pieces->npieces; i++)
	{
		if (pieces->pieces[i].keys != NULL)
			pfree((void *) pieces->pieces[i].keys);
		if (pieces->pieces[i].rows != NULL)
			pfree((void *) pieces->pieces[i].rows);
	}
	if (pieces->merged != NULL)
		pfree(pieces->merged);
	pfree(pieces->pieces);
	pfree(pieces);
}
