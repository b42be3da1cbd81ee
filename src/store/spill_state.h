/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		Sorted runs on disk: what writing them and merging them share.
 *
 * The file is a row of extents of one size, and a run a chain of them; each
 * begins by saying where the next one is.  Whatever is read or written is an
 * extent, through a buffer of its size for the run being written and for each
 * one being merged.  An extent that was merged to a longer run is used
 * again, so that the file never takes much more than the rows do.
 *
 * Within a run, rows are one stream of bytes across the extents, each padded
 * to MAXALIGN; extents and their headers keep that alignment.  So nearly
 * every row can be handed out where it lies in the buffer, as a MinimalTuple
 * that nobody copied; one that goes on in the next extent, or is longer than
 * several, is put together in memory of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_STATE_H
#define GPUSORT_STORE_SPILL_STATE_H

#include "base/losertree.h"
#include "store/spill.h"
#include "store/spill_file.h"

/* Runs that are ever merged at once. */
#define GPUSORT_SPILL_MAX_INPUTS	256

typedef struct GpusortSpillExtent
{
	int64		next;			/* of the same run; -1: none */
	int64		used;			/* bytes that follow, of the run's stream */
} GpusortSpillExtent;

StaticAssertDecl(sizeof(GpusortSpillExtent) == MAXALIGN(sizeof(GpusortSpillExtent)),
				 "rows after an extent's header must be aligned");

typedef struct GpusortSpillRun
{
	int64		first;			/* extent */
	uint64		bytes;			/* of all its rows */
} GpusortSpillRun;

/* A run being merged. */
typedef struct GpusortSpillInput
{
	/* its current row; words is NULL when the run has ended */
	const uint64 *words;
	MinimalTuple tuple;			/* NULL in a spill without tuples */
	void	   *gathered;		/* the row's memory if not the buffer, or NULL */

	char	   *buffer;			/* an extent */
	char	   *next;			/* what was not looked at yet lies from here */
	char	   *end;			/* to here */
	int64		extent;			/* to be read after it; -1: none */
} GpusortSpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* all of this, and the file's state */
	GpusortSpillFile file;
	Size		memory;
	GpusortSpillCompare compare;
	void	   *compare_arg;
	bool		lossy;

	/* rows */
	int			words;			/* of a key */
	bool		has_tuples;		/* known from the first row on */
	Size		words_bytes;
	Size		head_bytes;		/* of a row's start that tells its length */
	uint64		rows;			/* written by the caller */
	uint64		bytes;			/* that they take */

	/* runs, in the order in which equal rows of theirs are returned */
	GpusortSpillRun *runs;
	int			nruns;
	int			maxruns;
	int			nwritten;		/* how many the caller wrote */

	/* the run being written, if one is open */
	bool		out_open;
	char	   *out_buffer;		/* an extent, header and all */
	char	   *out_next;
	char	   *out_end;
	int64		out_extent;		/* where it will be; -1: the run's first, anywhere */
	GpusortSpillRun out_run;

	/* the merge */
	int			nbuffers;
	char	   *buffers;		/* NULL before */
	GpusortSpillInput *inputs;	/* as many as buffers */
	int			ninputs;		/* runs being merged */
	bool		returned;		/* the winner's row was handed out */
	bool		reclaim;		/* extents that were read are free */
	GpusortLoserTree tree;
	GpusortLoser *losers;
};

/* ---- spill.c ---- */

/*
 * A run that is the caller's or merged from others: opens it, adds a row and
 * returns the bytes it takes, closes it.  out_run is the run then.
 */
extern void gpusort_spill_open_output(GpusortSpill *spill);
extern Size gpusort_spill_put_row(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple);
extern void gpusort_spill_close_output(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
