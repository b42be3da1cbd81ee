/*-------------------------------------------------------------------------
 *
 * words.h
 *		The CPU engine: sorts positions by keys of several words.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_WORDS_H
#define GPUSORT_CPU_WORDS_H

#include "cpu/cpu.h"

/*
 * gpusort_cpu_argsort() for an input whose keys have several words.  A C++
 * function, for cpu/cpu.cc.
 */
extern GpusortCpuStatus gpusort_cpu_argsort_words(const GpusortCpuInput *input, uint32_t *rows, uint8_t *may_tie,
												  const GpusortCpuOptions *options,
												  GpusortCpuReport *report);

#endif							/* GPUSORT_CPU_WORDS_H */
