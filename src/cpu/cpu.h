/*-------------------------------------------------------------------------
 *
 * cpu.h
 *		The CPU engine, for code that calls it.
 *
 * Keys are range-compressed, partitioned into bins by their leading bits, and the bins, which
 * fit the cache, are sorted one by one, by as many threads as the caller allows.
 *
 * No types of PostgreSQL or C++.  The functions raise no errors and do not change their
 * input.  Any thread may call them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_CPU_H
#define GPUSORT_CPU_CPU_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "key/keybits.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* ---- cpu.cc: sorts ---- */

typedef enum GpusortCpuStatus
{
	GPUSORT_CPU_OK = 0,
	GPUSORT_CPU_CANCELLED,		/* serve() returned false; the output is undefined */
	GPUSORT_CPU_NO_MEMORY		/* could not allocate scratch memory; the output is undefined */
} GpusortCpuStatus;

/*
 * An input: the concatenation of its spans, all owned by the caller.  Words are
 * encoded to keys whenever they are read.
 */
typedef struct GpusortCpuInput
{
	const GpusortSpan *spans;
	size_t		nspans;
	int			key_bytes;		/* bytes of a word: 4 or 8, and 8 if a key has several words */
	GpusortEncoding encoding;	/* how a word becomes a key; ignored if a key has several words */
	int			words;			/* words of a key, at most GPUSORT_MAX_WORDS; 0 means 1.  They are
								 * adjacent, the most significant first */
} GpusortCpuInput;

/*
 * Options of a call.  threads is the number of threads, the calling thread
 * included; with 1, no thread is created.  Only the calling thread calls pending() and
 * serve(), pending() every 40 ms or more often.  When it returns true, the other threads
 * pause, the calling thread calls serve(), and all go on, unless serve() returns false, which
 * cancels the call.  No thread works while serve() runs, so it may end the process, which frees the
 * memory that they use; it must not longjmp.  If pending is NULL, nothing interrupts the call.
 */
typedef struct GpusortCpuOptions
{
	int			threads;
	bool		(*pending) (void);
	bool		(*serve) (void);
} GpusortCpuOptions;

/* Longer strings of stored rows are left to the backend, because reading them cannot be interrupted. */
#define GPUSORT_STRING_BYTES	8192

/* A string, not terminated; the caller owns the bytes */
typedef struct GpusortString
{
	const char *bytes;			/* NULL: a NULL */
	size_t		length;
} GpusortString;

/* A report of a call, for gpusort_last_sort(). */
typedef struct GpusortCpuReport
{
	int			threads;		/* threads used, the calling thread included */
	uint32_t	bins;			/* bins of the first partition; 1 if the input was not partitioned */
} GpusortCpuReport;

/* Up to this many keys, an insertion sort is faster than the set-up of a vector sort, and is used. */
#define GPUSORT_CPU_FEW_KEYS	24

/* Up to this many keys are sorted by one thread, whatever the options say: that is faster than partitioning them. */
#define GPUSORT_CPU_DIRECT_KEYS	(128 * 1024)

/*
 * Sorts count keys of key_bytes (4 or 8) in place, as unsigned integers,
 * ascending, without threads, scratch memory or report.  More keys than fit in the cache
 * are sorted faster by gpusort_cpu_sort().
 */
extern void gpusort_cpu_sort_few(void *keys, size_t count, int key_bytes);

/*
 * Sorts the input's keys, of one word, as unsigned integers, ascending.  out
 * has room for all keys and does not overlap a span.
 */
extern GpusortCpuStatus gpusort_cpu_sort(const GpusortCpuInput *input, void *out,
										 const GpusortCpuOptions *options,
										 GpusortCpuReport *report);

/*
 * Sorts positions: writes to rows, which has room for all, the positions of the
 * input's keys in ascending order.  Positions count from 0 through all spans,
 * of fewer than 2^32 keys.  Keys of several words are in lexicographic order.
 * Equal keys keep their input order.  The call allocates its scratch memory,
 * at most gpusort_cpu_scratch() bytes, and frees it.
 *
 * ties is NULL or has room for a byte per key.  Then the call sets ties[i] to 1 if the keys at
 * rows[i - 1] and rows[i] are equal, else to 0; ties[0] to 0.
 */
extern GpusortCpuStatus gpusort_cpu_argsort(const GpusortCpuInput *input, uint32_t *rows, uint8_t *ties,
											const GpusortCpuOptions *options,
											GpusortCpuReport *report);

/*
 * Is the input in order already, ascending or strictly descending?  Then either sort is little more than a copy.
 * Costs next to nothing unless most of it is.  False also if the call is cancelled.
 */
extern bool gpusort_cpu_in_order(const GpusortCpuInput *input, const GpusortCpuOptions *options);

/*
 * The most bytes of scratch memory that a call needs for n keys of key_bytes
 * and this many threads: gpusort_cpu_argsort() if rows, else gpusort_cpu_sort().
 */
extern size_t gpusort_cpu_scratch(uint64_t n, int key_bytes, bool rows, int threads);

/* Returns the instructions that VQSort uses, such as "AVX2"; "scalar" on an x86 processor without SSE4. */
extern const char *gpusort_cpu_target(void);

/* ---- share.cc ---- */

/*
 * Does the work on the elements from begin to end - 1.  Any thread calls it, and
 * several at a time: it must use nothing of PostgreSQL's, and change only what
 * belongs to its elements.
 */
typedef void (*GpusortShareWork) (void *arg, size_t begin, size_t end);

/*
 * Calls work(arg, ...) for all elements from 0 to n - 1, once for each, and returns
 * when all calls have returned.  A call gets part elements (at least 1), or what is
 * left of them: from a multiple of part on.  Makes no more threads than there are
 * parts.  The work cannot be cancelled, so the caller gives it no more than some
 * milliseconds of it at a time.
 */
extern void gpusort_share(size_t n, size_t part, GpusortShareWork work, void *arg,
						  const GpusortCpuOptions *options);

/*
 * The same with two more tasks, which are done first: the calling thread does own(arg), which may
 * use PostgreSQL but raises no error, and another thread does other(arg), to which the rules of
 * work() apply.  If no thread can be made, the calling thread does all.
 */
extern void gpusort_share_beside(void (*own) (void *), void (*other) (void *), size_t n, size_t part,
								 GpusortShareWork work, void *arg, const GpusortCpuOptions *options);

/* ---- collate.cc ---- */

/* The action that is needed for a place of the order and the one before it */
typedef enum GpusortCollateTask
{
	GPUSORT_COLLATE_SKIP,		/* nothing: something else decides */
	GPUSORT_COLLATE_COMPARE,	/* compare the two strings */
	GPUSORT_COLLATE_LEAVE		/* leave the comparison to the caller */
} GpusortCollateTask;

/* The findings of the call about a place and the one that it is compared with */
typedef enum GpusortCollateVerdict
{
	GPUSORT_COLLATE_IN_ORDER,
	GPUSORT_COLLATE_OUT_OF_ORDER,
	GPUSORT_COLLATE_LEFT		/* the caller must compare */
} GpusortCollateVerdict;

typedef struct GpusortCollateInput
{
	locale_t	locale;
	const uint8_t *small;		/* NULL, or 256 bytes: strings compare with each byte
								 * replaced; the caller must compare one with a byte
								 * that becomes 0 */
	bool		descending;
	bool		with_first;		/* each place is compared with the first one, not the one before */
	size_t		n;				/* places */

	/*
	 * Both are called by any thread, with arg, and change nothing.  task is called
	 * for each place except the first, in ascending order by each thread.  string
	 * returns false if the string is longer than GPUSORT_STRING_BYTES or cannot
	 * be read by a thread.  The caller must compare such a string, and NULL.
	 */
	GpusortCollateTask (*task) (void *arg, size_t place);
	bool		(*string) (void *arg, size_t place, GpusortString *string);
	void	   *arg;
} GpusortCollateInput;

/*
 * Sets verdicts[i], which has room for n, to the GpusortCollateVerdict about place i
 * and the one before, or the first one; verdicts[0] to GPUSORT_COLLATE_IN_ORDER.  Strings compare by strcoll_l(), and
 * by their bytes if that finds them equal, all that reversed if descending.
 */
extern GpusortCpuStatus gpusort_collate_verify(const GpusortCollateInput *input, uint8_t *verdicts,
											   const GpusortCpuOptions *options);

/* ---- tied.cc ---- */

/* The relation of a place of the order to the one before it */
typedef enum GpusortTie
{
	GPUSORT_TIE_NONE,			/* their rows are in different groups */
	GPUSORT_TIE_LEFT,			/* their rows tie, and the caller must sort them */
	GPUSORT_TIE_BROKEN,			/* their rows had equal words, and are sorted */
	GPUSORT_TIE_EQUAL			/* their strings are equal, and the caller must sort them by later columns */
} GpusortTie;

typedef struct GpusortTieInput
{
	size_t		n;				/* places */
	bool		marked;			/* ties says which rows have equal words: 0 for those that differ */
	bool		by_bytes;		/* strings order by their bytes; otherwise the caller must
								 * sort all groups but those of equal strings */
	bool		descending;
	bool		decides;		/* rows with equal strings are equal */

	/*
	 * All are called by any thread, with arg, and change nothing.  tied says whether
	 * the rows at a place and the one before it have equal words.  If they are not marked, it
	 * is called for each place, in ascending order by each thread, and before any row is moved.
	 * string returns false if the row's string is longer than GPUSORT_STRING_BYTES or cannot be
	 * read by a thread; then the caller must sort the group.  If string is NULL, the caller must sort all groups.  prefetch
	 * announces that a row's string will be wanted soon.
	 */
	bool		(*tied) (void *arg, size_t place);
	bool		(*string) (void *arg, uint32_t row, GpusortString *string);
	void		(*prefetch) (void *arg, uint32_t row);
	void	   *arg;
} GpusortTieInput;

/*
 * Sorts the groups of order, n row numbers, by strings: by their bytes, then the
 * shorter one first, all that reversed if descending; equal strings by row number.
 * Sets ties[i], which has room for n, to the GpusortTie between places i - 1 and i;
 * ties[0] to GPUSORT_TIE_NONE.  A group that the caller must sort as a whole is
 * unchanged.  If the call is cancelled, each group still has its own rows, and the
 * call may be repeated, with the marks that it has left.
 */
extern GpusortCpuStatus gpusort_tied_sort(const GpusortTieInput *input, uint32_t *order,
										  uint8_t *ties, const GpusortCpuOptions *options);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_CPU_H */
