/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		The state of a spill, shared by store/spill.c and store/spill_merge.c.
 *
 * The temporary files are an array of extents of one size (store/spill_file.h).
 * A spilled run is a linked list of extents: the header of each extent has the
 * number of the next one.
 *
 *		+--------+--------------------+      +--------+----------------+
 *		| header | row | row | row .. | ---> | header | .. row | row   |
 *		+--------+--------------------+      +--------+----------------+
 *
 * All reads and writes transfer one extent.  The run being written, and each run
 * being merged, has a buffer of an extent's size.  If the rows of an extent have
 * been merged into a longer run, the extent is used again, so that the files never
 * take much more space than the rows.
 *
 * The rows of a run are one stream of bytes across its extents.  Each row is
 * padded to MAXALIGN, and extents and their headers keep that alignment.  So the
 * merge can return nearly every row as a MinimalTuple in the buffer, without
 * copying it.  It copies a row that continues in another extent into memory of
 * its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_STATE_H
#define GPUSORT_STORE_SPILL_STATE_H

#include "base/losertree.h"
#include "store/spill.h"
#include "store/spill_file.h"

/* The most runs that are merged at once */
#define GPUSORT_SPILL_MAX_INPUTS	256

/* The header of an extent */
typedef struct GpusortSpillExtent
{
	int64		next;			/* number of the run's next extent; -1: none */
	int64		used;			/* bytes of rows after the header */
} GpusortSpillExtent;

StaticAssertDecl(sizeof(GpusortSpillExtent) == MAXALIGN(sizeof(GpusortSpillExtent)),
				 "rows after an extent's header must be aligned");

typedef struct GpusortSpillRun
{
	int64		first;			/* number of its first extent */
	uint64		bytes;			/* bytes of all its rows */
} GpusortSpillRun;

/* A run being merged */
typedef struct GpusortSpillInput
{
	/* its current row */
	const uint64 *words;		/* NULL: the run has no more rows */
	MinimalTuple tuple;			/* NULL in a spill without tuples */
	void	   *gathered;		/* the row's own memory; NULL: it lies in the buffer */

	char	   *buffer;			/* one extent */
	char	   *next;			/* rows not read yet: from here */
	char	   *end;			/* to here */
	int64		extent;			/* number of the extent to read next; -1: none */
} GpusortSpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* owns all memory of the spill */
	GpusortSpillFile file;
	Size		memory;			/* bytes that buffers may take */
	GpusortSpillCompare compare;
	void	   *compare_arg;
	bool		lossy;			/* compare is called for rows with equal words */

	/* rows */
	int			words;			/* words of a key */
	bool		has_tuples;		/* set by the first row */
	Size		words_bytes;	/* bytes of a key */
	Size		head_bytes;		/* bytes at the start of a row that give its length */
	uint64		rows;			/* rows that the caller has written */
	uint64		bytes;			/* bytes of these rows */

	/* runs; of equal rows, those of earlier runs come first */
	GpusortSpillRun *runs;
	int			nruns;
	int			maxruns;		/* entries allocated */
	int			nwritten;		/* runs that the caller has written */

	/* the run being written */
	bool		out_open;		/* there is one */
	char	   *out_buffer;		/* one extent, with its header */
	char	   *out_next;		/* free part of the buffer: from here */
	char	   *out_end;		/* to here */
	int64		out_extent;		/* number of the extent that the buffer will be
								 * written to; -1: not taken yet */
	GpusortSpillRun out_run;

	/* the merge */
	int			nbuffers;		/* the most runs that are merged at once */
	char	   *buffers;		/* NULL before the merge begins */
	GpusortSpillInput *inputs;	/* nbuffers of them */
	int			ninputs;		/* runs being merged */
	bool		returned;		/* the winner's row has been returned */
	bool		reclaim;		/* extents are free after they have been read */
	GpusortLoserTree tree;
	GpusortLoser *losers;
};

/* ---- spill.c ---- */

/*
 * Write a run, of the caller's rows or merged from other runs: open it, add a row
 * (returns the bytes that it takes), and close it.  out_run describes the run
 * after it is closed.
 */
extern void gpusort_spill_open_output(GpusortSpill *spill);
extern Size gpusort_spill_put_row(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple);
extern void gpusort_spill_close_output(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
