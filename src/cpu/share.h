/*-------------------------------------------------------------------------
 *
 * share.h
 *		Shares work on many elements among threads.
 *
 * Like cpu/cpu.h: no PostgreSQL types, no errors raised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_SHARE_H
#define GPUSORT_CPU_SHARE_H

#include "cpu/cpu.h"

#ifdef __cplusplus
extern "C"
{
#endif

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

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_CPU_SHARE_H */
