/*-------------------------------------------------------------------------
 *
 * cpu_options.h
 *		How the CPU engine may run in this backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_CPU_OPTIONS_H
#define GPUSORT_RUN_CPU_OPTIONS_H

#include "cpu/cpu.h"

/*
 * The threads that work on so many rows may have, and a cancel flag that is
 * up when CHECK_FOR_INTERRUPTS() would raise.
 */
extern GpusortCpuOptions gpusort_cpu_options(uint64 rows);

#endif							/* GPUSORT_RUN_CPU_OPTIONS_H */
