/*-------------------------------------------------------------------------
 *
 * cpu.h
 *		The CPU engine: histogram, partition, then VQSort of each bin.
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "key/keybits.h"

#ifdef __cplusplus
extern "C"
{
#endif

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
 * serve(), pending() every 10 ms or more often.  When it returns true, the other threads
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

/* Threads leave longer strings to the caller, because reading them cannot be interrupted. */
#define GPUSORT_STRING_BYTES	8192

/* A string of at most GPUSORT_STRING_BYTES, not terminated; the caller owns the bytes */
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

/* Up to this many keys are sorted by one thread, whatever the options say. */
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
 * Finds the keys at nplaces places of the sorted order, which count from 0 and are below the
 * number of keys, and writes them to found.  The input's encoding is GPUSORT_ENCODING_WORD without
 * a flip.  Overwrites the places.
 */
extern GpusortCpuStatus gpusort_cpu_select(const GpusortCpuInput *input, uint64_t *places, size_t nplaces,
										   void *found, const GpusortCpuOptions *options);

/*
 * The most bytes of scratch memory that a call needs for n keys of key_bytes
 * and this many threads: gpusort_cpu_argsort() if rows, else gpusort_cpu_sort().
 */
extern size_t gpusort_cpu_scratch(uint64_t n, int key_bytes, bool rows, int threads);

/* Returns the instructions that VQSort uses, such as "AVX2"; "scalar" on an x86 processor without SSE4. */
extern const char *gpusort_cpu_target(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_CPU_H */
