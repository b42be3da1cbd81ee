/*-------------------------------------------------------------------------
 *
 * spill.h
 *		Spilled runs in temporary files, and their merge.
 *
 * A spill is either of rows (store/rowstore.h), ordered by keys of several words, or of
 * single words.  The caller writes sorted runs, then starts the merge, then
 * fetches rows one by one.
 *
 * The temporary files, but those of workers, belong to the resource owner that is current when the
 * spill begins, as tuplesort's do, and the memory to a child of the memory context that is current then.  In
 * the executor both end with the query, whatever subtransactions begin and end between two
 * fetches from a cursor.  Other callers must not keep the context longer than the owner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_H
#define GPUSORT_STORE_SPILL_H

#include "storage/fileset.h"
#include "storage/spin.h"

typedef struct GpusortSpill GpusortSpill;

/*
 * How a key becomes a code.  The values of most words differ in a few bits only.  So each of the first words has a field: the
 * difference of the word from base, in that many bits.  The fields side by side, as far as 64 bits reach, and shifted to the
 * right, are the code.  If a word lies below its base, the bits of its field and of all later ones are 0; if the difference
 * is too large, they are all set.
 */
#define GPUSORT_SPILL_FIELDS	4

typedef struct GpusortSpillCode
{
	int			nfields;		/* one for each of the first words */
	struct
	{
		uint64		base;
		int			bits;		/* 1 to 64 */
	}			fields[GPUSORT_SPILL_FIELDS];
	int			shift;			/* 0 to 63 */
	bool		exact;			/* rows with equal codes have equal words */
} GpusortSpillCode;

/*
 * The spills of several processes that one of them, the leader, merges.  In shared memory, until
 * the leader has adopted the last one.  The codes of all are made as those of the first one that
 * has a run.
 */
typedef struct GpusortSpillShared
{
	FileSet		files;			/* of the workers */
	Size		extent_bytes;	/* of all files */
	int			processes;
	slock_t		mutex;			/* protects: */
	bool		adapted;
	GpusortSpillCode code;
} GpusortSpillShared;

/* A part of an extent of the files */
typedef struct GpusortSpillPart
{
	uint64		begin:44;		/* its first byte */
	uint64		bytes:20;
} GpusortSpillPart;

typedef struct GpusortSpillRun
{
	int			file;			/* which of the spill's files it is in: 0 is its own */
	GpusortSpillPart first;		/* of its parts */
	uint64		bytes;			/* bytes of all its rows */
} GpusortSpillRun;

/* A worker's spill, for the leader, which reads the runs from the worker's file */
#define GPUSORT_SPILL_MAX_PUBLISHED	128

typedef struct GpusortSpillPublished
{
	int			nruns;			/* 0: the worker has not spilled */
	GpusortSpillRun runs[GPUSORT_SPILL_MAX_PUBLISHED];
	bool		lossy;
	uint64		rows;
	uint64		repeated;		/* of them, those that merges have left out */
	int64		bytes;			/* of the file */
	Size		memory;			/* that the worker has used, and the leader can use now */
} GpusortSpillPublished;

/*
 * The keys of rows.  Both functions are called with arg and may raise errors.  The merge makes an
 * entry for each row that it may have to compare by more than its code.  The row stays in its
 * place as long as compare may be called.
 *
 * encode makes the entry: the row's key, in words that compare with those of all other
 * rows of the spill as the words did with which the rows were written; further words, which order
 * rows with equal keys before compare does; and value_bytes for compare.
 *
 * compare compares two rows with equal words by their entries, if the words do not decide.  It
 * returns a value below, equal to or above 0, as for qsort().  It may be NULL if
 * gpusort_spill_set_lossy() is never called.
 */
typedef struct GpusortSpillKey
{
	int			words;			/* words of a key, 1 to GPUSORT_MAX_WORDS */
	int			more_words;		/* further words of an entry, 0 or more */
	Size		value_bytes;	/* of an entry behind its words, a multiple of 8 */
	bool		bare;			/* the rows are bare */
	bool		padded;			/* the padding of their tuples' headers is kept, too */
	bool		distinct;		/* of equal rows, the merge may leave out all but the first one */
	void		(*encode) (void *arg, const void *row, uint64 *entry);
	int			(*compare) (void *arg, const uint64 *a, const uint64 *b);
	void	   *arg;
} GpusortSpillKey;

/*
 * Begins a spill, inside a transaction: of rows, with a key, which the call copies; or of single words of that many bytes, 4
 * or 8, if key is NULL.  memory: bytes that writing may use, and then merging; less than 64 kB counts as 64 kB.  The
 * merge needs more for rows that are larger than a buffer: one for each run.  shared: NULL, or
 * the leader merges the spills of several processes.  Their keys are the same.
 */
extern GpusortSpill *gpusort_spill_begin(const GpusortSpillKey *key, int word_bytes, Size memory, GpusortSpillShared *shared);

/*
 * Adapts a spill of rows to the distribution of its keys, before the first row is written.
 * keys: the keys of 2 * pairs rows of the sorted first run, in its order; each pair is two rows
 * that follow each other.
 */
extern void gpusort_spill_adapt(GpusortSpill *spill, const uint64 *const *keys, int pairs);

/* Begins the next run.  A run without rows takes no space and is not counted. */
extern void gpusort_spill_begin_run(GpusortSpill *spill);

/*
 * Add a row to the run, or n single words.  The caller adds rows in sorted order: by words, then,
 * if the words do not decide, by compare.  The call copies all.  Raise the errors of writing temporary files,
 * including that of temp_file_limit.
 */
extern void gpusort_spill_write(GpusortSpill *spill, const uint64 *words, const void *row);
extern void gpusort_spill_write_words(GpusortSpill *spill, const void *words, uint64 n);

/* Ends the run. */
extern void gpusort_spill_end_run(GpusortSpill *spill);

/* From now on, the merge calls compare for rows with equal words. */
extern void gpusort_spill_set_lossy(GpusortSpill *spill);

/*
 * Prepares the merge; after that, no row can be written.  If there are more runs
 * than buffers, merges some of them into longer runs first.  Raises the errors of temporary files.
 */
extern void gpusort_spill_merge(GpusortSpill *spill);

/*
 * Fetches the next row in order.  Equal rows come in the order of their runs, and
 * within a run in the order in which they were written.  Returns false at the
 * end, which may come before all rows if the key is distinct.  Sets *row, which is valid until the next call, or *word in a
 * spill of single words.  Raises the errors of temporary files.
 */
extern bool gpusort_spill_next(GpusortSpill *spill, uint64 *word, void **row);

/*
 * Fetches the next words in order, of a spill of single words: *n of them, valid until the next call; NULL
 * at the end.  The caller does not call gpusort_spill_next().
 */
extern uint64 *gpusort_spill_next_words(GpusortSpill *spill, uint64 *n);

/* Return the numbers of rows, and of runs with rows, that the caller has written. */
extern uint64 gpusort_spill_rows(const GpusortSpill *spill);
extern int	gpusort_spill_runs(const GpusortSpill *spill);

/* Returns the number of rows that the merge has left out, since they are equal to the one before: final at its end. */
extern uint64 gpusort_spill_repeated(const GpusortSpill *spill);

/* Returns the size of the temporary files in bytes. */
extern uint64 gpusort_spill_bytes(const GpusortSpill *spill);

/*
 * Closes the temporary files and frees the spill.  After an error, the resource
 * owner and the memory context do this.
 */
extern void gpusort_spill_end(GpusortSpill *spill);

/* ---- the spills of several processes ---- */

/*
 * In the leader, inside a transaction: prepares for spills that it merges.  The workers' files are
 * removed when the memory context is reset, and no worker may run any more then.  memory: bytes that each process may use.
 */
extern void gpusort_spill_share(GpusortSpillShared *shared, Size memory, int processes, MemoryContext cxt);

/*
 * In a process that will publish its spill, before the first run: the spill goes to the files with this number, which other
 * processes can read.
 */
extern void gpusort_spill_join(GpusortSpill *spill, int number);

/*
 * In such a process: describes the runs, of which there is one at least, for the process that merges.  No other run may follow.  Merges some of them
 * before if they are more than this process's part of the leader's buffers.
 */
extern void gpusort_spill_publish(GpusortSpill *spill, GpusortSpillPublished *published);

/* In the process that merges: adds the runs of the spill with this number, behind those of its own. */
extern void gpusort_spill_adopt(GpusortSpill *spill, const GpusortSpillPublished *published, int number);

#endif							/* GPUSORT_STORE_SPILL_H */
