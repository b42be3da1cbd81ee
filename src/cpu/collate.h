/*-------------------------------------------------------------------------
 *
 * collate.h
 *		Verifies the order of strings by strcoll(), in several threads.
 *
 * Like cpu/cpu.h: no PostgreSQL types, no errors raised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_COLLATE_H
#define GPUSORT_CPU_COLLATE_H

#include <locale.h>

#include "cpu/cpu.h"

#ifdef __cplusplus
extern "C"
{
#endif

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

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_COLLATE_H */
