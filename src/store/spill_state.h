/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		The state of a spill, and the format of its temporary files.
 *
 * store/spill.c writes spilled runs; store/spill_merge.c merges them, those of parallel workers included, row by row in
 * spill_rows.c, perhaps in a thread of spill_ahead.c.  store/spill_stream.c reads the bytes of a run, and spill_file.c has
 * the files.
 *
 * The runs of the caller lie one behind the other, and nothing is between them.  The file is read and written by extents: of
 * the first and the last extent of a run, only its part.  Parts whose rows were merged into a longer run are reused, but not
 * those of a worker.  So a longer run has parts anywhere, and each but the last one ends with the place of the next, a
 * GpusortSpillPart.
 *
 * A run's rows are one stream of bytes across its parts:
 *
 *		bytes of the body, times 2,	number
 *			plus 1 if it lacks the header
 *		code, as the difference	number
 *			from the code of
 *			the row before
 *		body					bytes		a tuple from t_infomask2 on, or from its
 *			padding on if that is kept, or a bare row
 *
 * A single word is its own code, and has nothing else.
 *
 * The header of a tuple are the 6 bytes from t_infomask2 on, mostly those of all rows.  If it is that of the run's row before,
 * or all zeros in its first row, the body lacks it.  Bare rows have none.
 *
 * A number takes 1 to 9 bytes, the most significant first.  As many bytes follow the first one as it
 * begins with bits that are set.  Those bits and the next one, which is not set, are not part of the
 * number.  The code of the row before a run's first one is 0.
 *
 * A row's code has the order of its key, but keys that differ little may share a code.  Where codes are
 * equal, the merge makes the words of a key again.  These and the code are the parts of the loser tree's keys
 * (base/losertree.h).  Since a run is sorted, two or three bytes suffice to tell nearly all keys of a sort apart.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_STATE_H
#define GPUSORT_STORE_SPILL_STATE_H

#include "port/pg_bitutils.h"
#include "port/pg_bswap.h"
#include "storage/fd.h"
#include "utils/resowner.h"

#include "base/losertree.h"
#include "compat.h"
#include "store/rowstore.h"
#include "store/spill.h"

/* The most runs that one merge reads */
#define GPUSORT_SPILL_MAX_INPUTS	256

/* Bytes of a tuple's header: those from t_infomask2 to where the data begin, if it has no NULLs */
#define GPUSORT_SPILL_HEADER_BYTES	6

/* The most bytes of a row's two numbers */
#define GPUSORT_SPILL_HEAD_BYTES	18

/* Room in front of an input's buffer, for bytes of the extent before.  The kernel is faster to copy to a cache line's begin. */
#define GPUSORT_SPILL_FRONT_BYTES	64

/*
 * Temporary files as one array of bytes.  A read or write is of a part of an extent.  All extents have the same size, and begin
 * at multiples of it.
 */
typedef struct GpusortSpillFile
{
	ResourceOwner owner;		/* closes the files, and removes them unless they are those of a set */
	int			number;			/* in the set, of the process that writes them; -1: there is no set */
	bool		make;			/* this process writes them */
	FileSet		set;
	Size		extent_bytes;	/* a power of two, up to 256 kB */
	int64		bytes;			/* bytes ever taken, free ones included */
	GpusortSpillPart *free;		/* the free parts */
	int			nfree;			/* entries in use */
	int			maxfree;		/* entries allocated */
	File	   *files;			/* each has 1 GB; the last may have less */
	int			nfiles;
	int		   *fds;			/* their descriptors for a thread, as many as nfds */
	int			nfds;
	Size		written;		/* bytes written and read that are not counted as blocks yet */
	Size		read;
} GpusortSpillFile;

/* A run being merged */
typedef struct GpusortSpillInput
{
	/* the current row */
	bool		ended;			/* there is none */
	bool		encoded;		/* row and entry are set; if not, the body comes next */
	uint64		code;
	Size		body_bytes;		/* bytes of its body that come in the run */
	Size		above;			/* bytes of the row above these */
	char	   *row;			/* memory for a row */
	Size		row_room;		/* its bytes */
	uint64	   *entry;			/* as in GpusortSpillKey */
	uint64	   *before;			/* room for the entry of the row before */
	char		header[GPUSORT_SPILL_HEADER_BYTES]; /* of the last row that has one */

	/* of single words, those that are read ahead to entry and not in a batch yet */
	const uint64 *words;
	int			nwords;

	GpusortSpillFile *file;		/* that the run is in */
	char	   *buffer;			/* one extent; there is room in front of it and behind it */
	char	   *next;			/* the buffer's unread bytes: from here */
	char	   *end;			/* to here */
	uint64		unread;			/* bytes of the run that are not in the buffer yet */
	GpusortSpillPart part;		/* where they begin */
	bool		linked;			/* as in GpusortSpillRun */
} GpusortSpillInput;

/* Why a batch has no more rows */
typedef enum GpusortSpillStop
{
	GPUSORT_SPILL_FULL,			/* the next row needs more room */
	GPUSORT_SPILL_ENDED,		/* all runs have ended */
	GPUSORT_SPILL_FAILED		/* there is an error to raise */
} GpusortSpillStop;

/* Rows in order */
typedef struct GpusortSpillBatch
{
	char	   *data;			/* codes, each with its row behind it, MAXALIGNed, if there are rows; from malloc() */
	Size		bytes;			/* room for them; 0: data is NULL */
	char	   *end;			/* behind the last one; NULL: the batch was not filled yet */
	GpusortSpillStop stop;
	Size		read;			/* bytes of the files that a thread has read for it */
} GpusortSpillBatch;

/* Batches of a merge with a thread; one without has one. */
#define GPUSORT_SPILL_BATCHES	4

/* What gpusort_spill_raise() raises */
typedef struct GpusortSpillFailure
{
	bool		no_memory;		/* memory is missing, or if not: */
	const GpusortSpillInput *input;
	int			error;			/* an errno: its next extent could not be read; 0: the run is damaged */
	char		detail[96];		/* a sentence */
} GpusortSpillFailure;

typedef struct GpusortSpillAhead GpusortSpillAhead;

struct GpusortSpill
{
	MemoryContext cxt;			/* owns this struct, everything below and the file's state */
	GpusortSpillFile *files;	/* its own, and those of workers */
	int			nfiles;
	GpusortSpillShared *shared; /* NULL: no other process has a part.  Used until the merge begins */
	Size		memory;			/* bytes that buffers may take, while writing and while merging */
	bool		has_rows;		/* it is not of single words, and key is set */
	GpusortSpillKey key;
	Size		unwritten;		/* bytes at a row's begin that are not part of its body */
	bool		lossy;			/* equal words do not imply equal rows */
	GpusortSpillCode code;
	uint64		rows;			/* rows that the caller wrote */

	/* the runs; equal rows are returned in the order of their runs */
	GpusortSpillRun *runs;
	int			nruns;			/* runs to merge; merges on disk reduce it */
	int			maxruns;		/* runs that the array has room for */
	int			nwritten;		/* runs that the caller wrote, without empty ones */

	/* the run being written, if one is open */
	GpusortSpillRun out_run;
	char	   *out_buffer;		/* one extent */
	char	   *out_next;		/* where the next byte goes */
	char	   *out_end;		/* where the last one may end */
	GpusortSpillPart out_part;	/* to which the buffer will be written */
	uint64		out_code;		/* code of the run's last row, or 0 */
	int			out_bytes;		/* that single words take, and how many in sequence need less */
	int			out_less;
	char		out_header[GPUSORT_SPILL_HEADER_BYTES]; /* of its last row, or zeros */

	/* the merge */
	int			nbuffers;		/* the most runs that can be merged at once; 0: merging has not begun */
	GpusortSpillInput *inputs;	/* one for each buffer */
	int			ninputs;		/* runs being merged */
	bool		reclaim;		/* parts are free for reuse once they have been read */
	GpusortSpillFailure failure;
	GpusortLoserTree tree;
	GpusortLoser *nodes;		/* the tree's, for nbuffers inputs */
	uint64		repeated;		/* rows that merges have left out, */
	uint64		repeated_early; /* and those of them that were left out of longer runs */
	GpusortSpillBatch batches[GPUSORT_SPILL_BATCHES];
	Size		batch_bytes;	/* room in each, unless a single row takes more */
	GpusortSpillBatch *batch;	/* the one whose rows are returned */
	char	   *next_item;		/* the first one of it that was not returned */
	const GpusortSpillThreads *threads; /* NULL: no thread may merge */
	GpusortSpillAhead *ahead;	/* spill_ahead.c's, or NULL: there was no thread yet */
	bool		in_thread;		/* a thread has merged since the merge began */
	Size		read_bytes;		/* bytes that the thread has read, and is to count */
};

/*
 * Writes a number at out, where 9 bytes must be writable, in at least this many bytes, 1 to 8.  Returns the byte after
 * the number.
 */
static inline char *
gpusort_spill_put_number(char *out, uint64 number, int least)
{
	int			bytes = Max((pg_leftmost_one_pos64(number | 1) + 7) / 7, least);
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

/* Append a row, or single words, of that many bytes each, to the open run.  Raise errors of temporary files, temp_file_limit included. */
extern void gpusort_spill_put(GpusortSpill *spill, uint64 code, const void *row);
extern void gpusort_spill_put_words(GpusortSpill *spill, const void *words, int bytes, uint64 n);

/* Adds a run behind the others. */
extern void gpusort_spill_add_run(GpusortSpill *spill, GpusortSpillRun run);

/* ---- spill_stream.c ---- */

/*
 * Copies the input's next size bytes to data, from as many extents as needed.  Returns false if they cannot be read: then
 * gpusort_spill_raise() has an error to raise.
 */
extern bool gpusort_spill_get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size);

/* Reads until this many bytes, fewer than GPUSORT_SPILL_FRONT_BYTES, or all that the run has, are in the buffer.  Returns the same. */
extern bool gpusort_spill_fill_buffer(GpusortSpill *spill, GpusortSpillInput *input, Size bytes);

/*
 * Prepares the error that the input's run has lost bytes, or has bytes that were not written, and returns false.  The
 * arguments make a sentence about it.  Any thread may call it.
 */
extern bool gpusort_spill_fail(GpusortSpill *spill, const GpusortSpillInput *input, const char *format,...) pg_attribute_printf(3, 4);

/* Raises the error of the last call that has returned false. */
GPUSORT_NORETURN extern void gpusort_spill_raise(const GpusortSpill *spill);

/* ---- spill_rows.c ---- */

/* The parts of a row's key in the loser tree: its code, and if that does not decide, the words of its entry. */
static inline int
gpusort_spill_parts(const GpusortSpill *spill)
{
	return spill->code.exact && !spill->lossy ? 1 : 1 + spill->key.words + spill->key.more_words;
}

/* Begins to merge the rows of the inputs. */
extern void gpusort_spill_open_rows(GpusortSpill *spill);

/*
 * Fills a batch with the next rows, and says in it why it has no more.  If keys have one part, it raises no error and uses
 * nothing of PostgreSQL's, but those of reading temporary files unless spill->in_thread is set.
 */
extern void gpusort_spill_fill(GpusortSpill *spill, GpusortSpillBatch *batch);

/* ---- spill_ahead.c ---- */

/* Starts the thread, if that is possible.  It fills the batches behind the first one, which the backend has. */
extern bool gpusort_spill_start_ahead(GpusortSpill *spill);

/* Waits for the thread's next batch.  The one before goes back to the thread. */
extern GpusortSpillBatch *gpusort_spill_next_ahead(GpusortSpill *spill);

/* Ends the thread, if there is one.  Raises no error. */
extern void gpusort_spill_stop_ahead(GpusortSpill *spill);

/* ---- spill_file.c ---- */

/*
 * Initialises *file for the current memory context and resource owner, inside a transaction.  Creates no file yet.
 * set: NULL, or a set of files, of which those with this number are made here, or were made by another process.
 */
extern void gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes, const FileSet *set, int number, bool make);

/* Takes what is behind the last byte taken, up to the end of its extent.  reuse: or a free part. */
extern GpusortSpillPart gpusort_spillfile_take(GpusortSpillFile *file, bool reuse);

/* Frees a part. */
extern void gpusort_spillfile_give(GpusortSpillFile *file, GpusortSpillPart part);

/*
 * Write the first bytes of a part, and free its rest; and read a part into data.  Reading returns how many bytes it has read: fewer than
 * the part has at the end of a file, and -1, with errno, if that fails.  Writing raises the errors of file access, and
 * that of temp_file_limit.
 */
extern void gpusort_spillfile_write(GpusortSpillFile *file, GpusortSpillPart part, const void *data, Size bytes);
extern ssize_t gpusort_spillfile_read(GpusortSpillFile *file, GpusortSpillPart part, void *data);

/* Lets the system begin to read a part. */
extern void gpusort_spillfile_prefetch(GpusortSpillFile *file, GpusortSpillPart part);

/*
 * Open descriptors of all that has been written, so that a thread may read and prefetch them, and no other; and close
 * them.  Opening returns false if the process may not have so many; close then, too.
 */
extern bool gpusort_spillfile_open_ahead(GpusortSpillFile *file);
extern void gpusort_spillfile_close_ahead(GpusortSpillFile *file);

/* Counts bytes that a thread has read, for EXPLAIN.  The time is not counted: the query does not wait. */
extern void gpusort_spillfile_count_read(GpusortSpillFile *file, Size bytes);

/* Closes the files, which removes them, unless they are those of a set. */
extern void gpusort_spillfile_end(GpusortSpillFile *file);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
