/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		The state of a spill, and the format of its temporary file.
 *
 * store/spill.c writes spilled runs, store/spill_merge.c merges them, those of parallel workers included, and
 * store/spill_words.c makes blocks of single words, and merges these.  store/spill_stream.c writes and reads the bytes of all.
 *
 * A temporary file consists of extents of equal size.  A run is a chain of extents: each
 * one's header has the number of the next.  Every read and write transfers one extent.
 * Extents whose rows were merged into a longer run are reused, but not those of a worker.
 *
 * A run's rows are one stream of bytes across its extents:
 *
 *		bytes of the body		number
 *		code, as the difference	number
 *			from the code of
 *			the row before
 *		body					bytes		a tuple from t_infomask2 on, or a bare row
 *
 * A number takes 1 to 9 bytes, the most significant first.  As many bytes follow the first one as it
 * begins with bits that are set.  Those bits and the next one, which is not set, are not part of the
 * number.  The code of the row before a run's first one is 0.
 *
 * A row's code has the order of its key, but keys that differ little may share a code.  Where codes are
 * equal, and at the end of an extent, the merge makes the words of a key again.  These and the code are the
 * parts of the loser tree's keys (base/losertree.h).  Since a run is sorted, two or three bytes suffice to
 * tell nearly all keys of a sort apart.
 *
 * Almost every row is returned in its buffer.  The body moves down by up to seven bytes there, over what
 * has been read, to where the row is aligned.  Only a row that continues in the next extent is copied.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_STATE_H
#define GPUSORT_STORE_SPILL_STATE_H

#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"

#include "base/losertree.h"
#include "compat.h"
#include "store/spill.h"
#include "store/spill_file.h"

/* The most runs that one merge reads. */
#define GPUSORT_SPILL_MAX_INPUTS	256

typedef struct GpusortSpillExtent
{
	int64		next;			/* number of the run's next extent, or -1 */
	int64		used;			/* bytes of the run's stream in this extent, after this header */
} GpusortSpillExtent;

StaticAssertDecl(sizeof(GpusortSpillExtent) == MAXALIGN(sizeof(GpusortSpillExtent)),
				 "rows after an extent's header must be aligned");

/* The most words of a block, in a spill of words */
#define GPUSORT_SPILL_BLOCK_WORDS	256

/* The most bytes of a number, and of a row's two numbers */
#define GPUSORT_SPILL_NUMBER_BYTES	9
#define GPUSORT_SPILL_HEAD_BYTES	(2 * GPUSORT_SPILL_NUMBER_BYTES)

/* A run being merged. */
typedef struct GpusortSpillInput
{
	uint64		code;			/* the current row's code */
	void	   *row;			/* the current row */
	bool		encoded;		/* entry is the current row's: see GpusortSpillKey */
	uint64	   *entry;			/* in a spill of words: the words of a block */
	const uint64 *words;		/* of them, the unread ones */
	int			nwords;			/* their number */
	uint64	   *before;			/* room for another entry */
	void	   *gathered;		/* a copy of the current row, to be pfree'd; NULL if the row is
								 * in the buffer */

	bool		ahead;			/* the numbers of the next row have been read */
	Size		next_bytes;		/* they are: the bytes of its body */
	uint64		next_code;		/* and its code */

	GpusortSpillFile *file;		/* that the run is in */
	char	   *buffer;			/* one extent */
	char	   *next;			/* the buffer's unread bytes: from here */
	char	   *end;			/* to here */
	int64		extent;			/* number of the extent to read next, or -1 */
	uint64		unread;			/* bytes of the run that are not in the buffer yet */
} GpusortSpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* owns this struct, everything below and the file's state */
	GpusortSpillFile *files;	/* its own, and those of workers */
	int			nfiles;
	GpusortSpillShared *shared; /* NULL: no other process has a part.  Used until the merge begins */
	Size		memory;			/* bytes that buffers may take, while writing and while merging */

	/* rows */
	bool		has_rows;		/* it is not of words, and these are set: */
	Size		unwritten;		/* bytes at a row's begin that are not part of its body */
	GpusortSpillKey key;
	bool		lossy;			/* equal words do not imply equal rows */
	GpusortSpillCode code;

	/* words */
	int			block_words;	/* the most words of a block */

	uint64		rows;			/* rows or words that the caller wrote */

	/* the runs; equal rows are returned in the order of their runs */
	GpusortSpillRun *runs;
	int			nruns;			/* runs to merge; merges on disk reduce it */
	int			maxruns;		/* runs that the array has room for */
	int			nwritten;		/* runs that the caller wrote, without empty ones */

	/* the run being written, if one is open */
	char	   *out_buffer;		/* one extent, header included */
	char	   *out_next;		/* where the next byte goes */
	char	   *out_end;		/* end of out_buffer */
	int64		out_extent;		/* number of the extent that the buffer will become; -1: not chosen
								 * yet, the run's first */
	uint64		out_code;		/* code of the run's last row, or 0 */
	uint64	   *out_words;		/* of words: those that are not in the buffer */
	int			out_nwords;		/* their number, less than block_words */
	GpusortSpillRun out_run;

	/* the merge */
	int			nbuffers;		/* the most runs that can be merged at once */
	char	   *buffers;		/* nbuffers extents; NULL until merging begins */
	GpusortSpillInput *inputs;	/* nbuffers inputs, one for each buffer; the entries of all are
								 * one array */
	int			ninputs;		/* runs being merged */
	bool		returned;		/* the winner's row was returned, so its input must advance */
	bool		reclaim;		/* extents are free for reuse once they have been read */
	GpusortLoserTree tree;
	GpusortLoser *nodes;		/* the tree's, for nbuffers inputs */
	uint64	   *batch;			/* of words: the next words in order */
	int			batch_words;	/* their number */
	int			batch_next;		/* the first one that was not returned */
};

/*
 * Writes a number at out, where 9 bytes must be writable.  Returns the byte after
 * the number.
 */
static inline char *
gpusort_spill_put_number(char *out, uint64 number)
{
	int			bytes = (pg_leftmost_one_pos64(number | 1) + 7) / 7;
	uint64		bits;

	if (unlikely(bytes > 8))
	{
		*out++ = (char) 0xff;
		bits = number;
		bytes = 8;
	}
	else
		bits = (number << (64 - 7 * bytes)) >> bytes | ~(PG_UINT64_MAX >> (bytes - 1));
	bits = pg_hton64(bits);
	memcpy(out, &bits, sizeof(bits));
	return out + bytes;
}

/* The bytes of a number that begins with this byte. */
static inline int
gpusort_spill_number_bytes(unsigned char first)
{
	return first == 0xff ? 9 : 8 - pg_leftmost_one_pos32((unsigned char) ~first);
}

/* Reads the number at *from, where 9 bytes must be readable.  Sets *from to the byte after it. */
static inline uint64
gpusort_spill_get_number(char **from)
{
	uint64		bits;
	int			bytes;

	/* a predicted branch is faster than waiting for what follows */
	if (likely((signed char) **from >= 0))
		return *(*from)++;
	memcpy(&bits, *from, sizeof(bits));
	bits = pg_ntoh64(bits);
	if (unlikely(bits >= UINT64CONST(0xff) << 56))
	{
		memcpy(&bits, *from + 1, sizeof(bits));
		*from += 9;
		return pg_ntoh64(bits);
	}
	bytes = 64 - pg_leftmost_one_pos64(~bits);
	*from += bytes;
	return (bits << bytes) >> (64 - 7 * bytes);
}

/* ---- spill.c ---- */

/* The size of an extent, for a spill that may use this memory */
extern Size gpusort_spill_extent(Size memory);

/* Appends a row to the open run.  Raises errors of temporary files, temp_file_limit included. */
extern void gpusort_spill_put_row(GpusortSpill *spill, uint64 code, const void *row);

/* Makes room in the array for more runs. */
extern void gpusort_spill_grow_runs(GpusortSpill *spill, int more);

/* Writes the open run's last extent and closes the run, which is then described by out_run. */
extern void gpusort_spill_close_output(GpusortSpill *spill);

/* ---- spill_stream.c ---- */

/* Writes the buffer as an extent of the open run.  more: another extent of this run follows. */
extern void gpusort_spill_write_extent(GpusortSpill *spill, bool more);

/* Appends bytes to the open run, over as many extents as they need. */
extern void gpusort_spill_put_bytes(GpusortSpill *spill, const void *data, Size size);

/* Copies the input's next size bytes to data, from as many extents as needed. */
extern void gpusort_spill_get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size);

/* Raises an error: the run has lost bytes, or has bytes that were not written.  detail: a sentence. */
GPUSORT_NORETURN extern void gpusort_spill_damaged(const GpusortSpillInput *input, const char *detail);

/* ---- spill_words.c ---- */

/* Writes the words of out_words to the open run, as a block, if there are any. */
extern void gpusort_spill_put_block(GpusortSpill *spill);

/* Appends a word to the open run.  Raises errors of temporary files, temp_file_limit included. */
static inline void
gpusort_spill_put_word(GpusortSpill *spill, uint64 word)
{
	spill->out_words[spill->out_nwords++] = word;
	if (unlikely(spill->out_nwords == spill->block_words))
		gpusort_spill_put_block(spill);
}

/* Makes a batch of the next words of all runs, in order.  Returns false at the end of them all. */
extern bool gpusort_spill_next_batch(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
