/*-------------------------------------------------------------------------
 *
 * spill_state.h
 *		The state of a spill, and the format of its temporary files.
 *
 * store/spill.c writes spilled runs; spill_merge.c merges them, those of parallel workers included, row by row in
 * spill_rows.c; spill_file.c has the files.
 *
 * The file is read and written by extents: of the first and the last extent of a run, only its part.  Nothing is between the
 * runs.  Parts whose rows were merged into a longer run are reused, but not those of a worker.  So a run has parts anywhere,
 * and each but the last one ends with the place of the next, a GpusortSpillPart.
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
 * A run of single words has nothing but these, of 4 or 8 bytes each.
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
	int64		bytes;			/* ever taken, free ones included */
	GpusortSpillPart *free;		/* the free parts */
	int			nfree;			/* entries in use */
	int			maxfree;		/* entries allocated */
	File	   *files;			/* each has 1 GB; the last may have less */
	int			nfiles;
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
	uint64	   *words;
	int			nwords;

	GpusortSpillFile *file;		/* that the run is in */
	char	   *buffer;			/* one extent; there is room in front of it and behind it */
	char	   *next;			/* the buffer's unread bytes: from here */
	char	   *end;			/* to here */
	uint64		unread;			/* bytes of the run that are not in the buffer yet */
	GpusortSpillPart part;		/* where they begin */
} GpusortSpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* owns this struct, everything below and the file's state */
	GpusortSpillFile *files;	/* its own, and those of workers */
	int			nfiles;
	GpusortSpillShared *shared; /* NULL: no other process has a part.  Used until the merge begins */
	Size		memory;			/* bytes that buffers may take, while writing and while merging */
	int			word_bytes;		/* of single words; 0: it is of rows, and key is set */
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
	char		out_header[GPUSORT_SPILL_HEADER_BYTES]; /* of its last row, or zeros */

	/* the merge */
	int			nbuffers;		/* the most runs that can be merged at once; 0: merging has not begun */
	GpusortSpillInput *inputs;	/* one for each buffer */
	int			ninputs;		/* runs being merged */
	bool		reclaim;		/* extents are free for reuse once they have been read */
	GpusortLoserTree tree;
	GpusortLoser *nodes;		/* the tree's, for nbuffers inputs */
	uint64		repeated;		/* rows that merges have left out */

	/* of rows */
	GpusortSpillInput *last;	/* whose row was returned last; NULL: none was */
	char	   *row;			/* memory for that row, unless its input has it */
	Size		row_room;		/* its bytes */

	/* of single words */
	int			words_ahead;	/* that an input reads ahead, at most */
	uint64	   *batch;			/* words in order, from all inputs */
	uint64	   *next_word;		/* the first one of them that was not returned */
	uint64	   *end_word;		/* behind the last one */
};

/*
 * Writes a number at out, where 9 bytes must be writable.  Returns the byte after the number.
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

/* Append a row, or bytes of single words, to the open run.  Raise errors of temporary files, temp_file_limit included. */
extern void gpusort_spill_put(GpusortSpill *spill, uint64 code, const void *row);
extern void gpusort_spill_put_bytes(GpusortSpill *spill, const void *data, Size size);

/* Adds a run behind the others. */
extern void gpusort_spill_add_run(GpusortSpill *spill, GpusortSpillRun run);

/* ---- spill_rows.c ---- */

/* Begins to merge the inputs. */
extern void gpusort_spill_open(GpusortSpill *spill);

/* ---- spill_file.c ---- */

/*
 * Initialises *file for the current memory context and resource owner, inside a transaction.  Creates no file yet.
 * set: NULL, or a set of files, of which those with this number are made here, or were made by another process.
 */
extern void gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes, const FileSet *set, int number, bool make);

/* Takes a free part, or what is behind the last byte taken, up to the end of its extent. */
extern GpusortSpillPart gpusort_spillfile_take(GpusortSpillFile *file);

/* Frees a part. */
extern void gpusort_spillfile_give(GpusortSpillFile *file, GpusortSpillPart part);

/*
 * Write the first bytes of a part, and free its rest; and read a part.  Reading returns how many bytes there are, which are
 * fewer at the end of a file.  Raise the errors of file access, and that of temp_file_limit.
 */
extern void gpusort_spillfile_write(GpusortSpillFile *file, GpusortSpillPart part, const void *data, Size bytes);
extern Size gpusort_spillfile_read(GpusortSpillFile *file, GpusortSpillPart part, void *data);

/* Lets the system begin to read a part. */
extern void gpusort_spillfile_prefetch(GpusortSpillFile *file, GpusortSpillPart part);

/* Closes the files, which removes them, unless they are those of a set. */
extern void gpusort_spillfile_end(GpusortSpillFile *file);

#endif							/* GPUSORT_STORE_SPILL_STATE_H */
