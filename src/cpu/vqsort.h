/*-------------------------------------------------------------------------
 *
 * vqsort.h
 *		VQSort, the sort of unsigned integers by vector instructions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_VQSORT_H
#define GPUSORT_CPU_VQSORT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Sort n words in place, ascending, by the best instructions of the processor.
 * They allocate nothing and may be called by several threads at a time.
 */
extern void gpusort_vqsort(uint32_t *words, size_t n);
extern void gpusort_vqsort(uint64_t *words, size_t n);

#endif							/* GPUSORT_CPU_VQSORT_H */
