/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		The state of a spill, and the format of its temporary file.
 *
 * store/spill.c writes spilled runs, store/spill_merge.c merges them.
 *
 * The temporary file consists of extents of equal size.  A run is a chain of
 * extents: each extent's header has the number of the next.  Every read and
 * write transfers one extent, through a buffer of that size; the run being
 * written has one buffer, and so has each run being merged.  Extents whose
 * rows were merged into a longer run are reused, so the file never grows much
 * larger than the rows.
 *
 * A run's rows are one stream of bytes across its extents.  Each row is padded
 * to MAXALIGN, and extents and their headers keep that alignment.  So almost
 * every row can be returned in place, as a MinimalTuple in the buffer.  Only a
 * row that continues in the next extent is copied, to memory of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_STATE_H
#define GPUSORT_STORE_SPILL_STATE_H

#include "base/losertree.h"
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

typedef struct GpusortSpillRun
{
	int64		first;			/* number of its first extent */
	uint64		bytes;			/* bytes of all its rows, padding included */
} GpusortSpillRun;

/* A run being merged. */
typedef struct GpusortSpillInput
{
	const uint64 *words;		/* the current row's key, or NULL after the last row */
	MinimalTuple tuple;			/* the current row's tuple; NULL in a spill without tuples */
	void	   *gathered;		/* a copy of the current row, to be pfree'd; NULL if the row is in
								 * the buffer */

	char	   *buffer;			/* one extent */
	char	   *next;			/* the buffer's unread bytes: from here */
	char	   *end;			/* to here */
	int64		extent;			/* number of the extent to read next, or -1 */
} GpusortSpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* owns this struct, everything below and the file's state */
	GpusortSpillFile file;
	Size		memory;			/* bytes that buffers may take, while writing and while merging */
	GpusortSpillCompare compare;	/* compares tuples with equal words, if lossy */
	void	   *compare_arg;	/* first argument of compare */
	bool		lossy;			/* equal words do not imply equal rows */

	/* rows */
	int			words;			/* words of a key, 1 to GPUSORT_MAX_WORDS */
	bool		has_tuples;		/* every row has a tuple; set by the first row */
	Size		words_bytes;	/* bytes of a key's words */
	Size		head_bytes;		/* a row's first bytes, through its tuple's length */
	uint64		rows;			/* rows that the caller wrote */
	uint64		bytes;			/* bytes of those rows, padding included */

	/* the runs; equal rows are returned in the order of their runs */
	GpusortSpillRun *runs;
	int			nruns;			/* runs to merge; merges on disk reduce it */
	int			maxruns;		/* runs that the array has room for */
	int			nwritten;		/* runs that the caller wrote, without empty ones */

	/* the run being written, if one is open */
	bool		out_open;
	char	   *out_buffer;		/* one extent, header included */
	char	   *out_next;		/* where the next byte goes */
	char	   *out_end;		/* end of out_buffer */
	int64		out_extent;		/* number of the extent that the buffer will become; -1: not chosen
								 * yet, the run's first */
	GpusortSpillRun out_run;

	/* the merge */
	int			nbuffers;		/* the most runs that can be merged at once */
	char	   *buffers;		/* nbuffers extents; NULL until merging begins */
	GpusortSpillInput *inputs;	/* nbuffers inputs, one for each buffer */
	int			ninputs;		/* runs being merged */
	bool		returned;		/* the winner's row was returned, so its input must advance */
	bool		reclaim;		/* extents are free for reuse once they have been read */
	GpusortLoserTree tree;
	GpusortLoser *nodes;		/* the tree's, for nbuffers inputs */
};

/* ---- spill.c ---- */

/* Opens a run for writing: one of the caller's, or the result of a merge.  No run may be open. */
extern void gpusort_spill_open_output(GpusortSpill *spill);

/*
 * Appends a row to the open run and returns the bytes that it takes.  tuple is
 * NULL in a spill without tuples.  Raises errors of temporary files,
 * temp_file_limit included.
 */
extern Size gpusort_spill_put_row(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple);

/* Writes the open run's last extent and closes the run, which is then described by out_run. */
extern void gpusort_spill_close_output(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
