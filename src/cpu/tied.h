/*-------------------------------------------------------------------------
 *
 * tied.h
 *		Finds the tie groups of an order, and sorts most of them by strings, in
 *		several threads.
 *
 * Like cpu/cpu.h: no PostgreSQL types, no errors raised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_TIED_H
#define GPUSORT_CPU_TIED_H

#include "cpu/cpu.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Groups of more rows are left to the caller, who can sort them by words in several threads. */
#define GPUSORT_TIED_ROWS	1024

/* The relation of a place of the order to the one before it */
typedef enum GpusortTie
{
	GPUSORT_TIE_NONE,			/* their rows are in different groups */
	GPUSORT_TIE_LEFT,			/* their rows tie, and the caller must sort them */
	GPUSORT_TIE_BROKEN			/* their rows had equal words, and are sorted */
} GpusortTie;

typedef struct GpusortTieInput
{
	size_t		n;				/* places */
	bool		marked;			/* ties says which rows have equal words: 0 for those that differ */
	bool		by_bytes;		/* strings order by their bytes; otherwise the caller must
								 * sort all groups but those of equal strings */
	bool		descending;
	bool		decides;		/* rows with equal strings are equal; otherwise the caller must
								 * sort them by later columns */

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

#endif							/* GPUSORT_CPU_TIED_H */
