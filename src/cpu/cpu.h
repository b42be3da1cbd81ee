/*-------------------------------------------------------------------------
 *
 * cpu.h
 *		The CPU engine: histogram, partition, then VQSort of each bin.
 *
 * The same plan as mppSort on the device: keys are range-compressed, spread
 * into bins by their leading bits, and bins small enough for the cache are
 * sorted one by one, by as many threads as the caller allows.  Bins also
 * bound the time between two looks at the caller's cancel flag.
 *
 * No PostgreSQL type and no C++ type appears here.  Nothing is raised:
 * every function returns a GpusortCpuStatus and leaves its input as it was.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_CPU_H
#define GPUSORT_CPU_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "key/keybits.h"

#ifdef __cplusplus
extern "C"
{
#endif

typedef enum GpusortCpuStatus
{
	GPUSORT_CPU_OK = 0,
	GPUSORT_CPU_CANCELLED,		/* cancelled() said so; output undefined */
	GPUSORT_CPU_NO_MEMORY		/* scratch could not be allocated */
} GpusortCpuStatus;

/* A piece of the input: count keys, in input order. */
typedef struct GpusortSpan
{
	const void *words;
	size_t		count;
} GpusortSpan;

/* What to sort.  Keys are made of the words each time they are looked at. */
typedef struct GpusortCpuInput
{
	const GpusortSpan *spans;
	size_t		nspans;
	int			key_bytes;		/* of a word: 4 or 8 */
	GpusortEncoding encoding;	/* none for keys of several words */
	int			words;			/* of a key, at most GPUSORT_MAX_WORDS, side by side, the most
								 * significant first; 0 is 1; of 8 bytes if several */
} GpusortCpuInput;

/*
 * How a call may run.  threads counts the calling thread; 1 makes none.
 * cancelled is called by the calling thread alone, at least every 50 ms or
 * so; it must not longjmp.  NULL never cancels.
 */
typedef struct GpusortCpuOptions
{
	int			threads;
	bool		(*cancelled) (void *arg);
	void	   *cancel_arg;
} GpusortCpuOptions;

/* What a call did, for gpusort_last_sort(). */
typedef struct GpusortCpuReport
{
	int			threads;		/* threads that ran */
	uint32_t	bins;			/* bins of the first partition, 1 if none */
} GpusortCpuReport;

/*
 * Sorts the input's keys, of one word (unsigned, ascending), into out, which
 * has room for all and overlaps no span.
 */
extern GpusortCpuStatus gpusort_cpu_sort(const GpusortCpuInput *input, void *out,
										 const GpusortCpuOptions *options,
										 GpusortCpuReport *report);

/*
 * Writes to rows the input positions (from 0, counted through all spans,
 * fewer than 2^32) of the keys in ascending order, which for several words is
 * lexicographic; equal keys keep their input order.  Scratch is malloc'ed and freed here.
 */
extern GpusortCpuStatus gpusort_cpu_argsort(const GpusortCpuInput *input, uint32_t *rows,
											const GpusortCpuOptions *options,
											GpusortCpuReport *report);

/*
 * Bytes that sorting n keys, or their rows, needs at most besides the result.
 */
extern size_t gpusort_cpu_scratch(uint64_t n, int key_bytes, bool rows, int threads);

/* The instruction set in use, such as "AVX3"; static storage. */
extern const char *gpusort_cpu_target(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_CPU_H */
