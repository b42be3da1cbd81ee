/*-------------------------------------------------------------------------
 *
 * guc.h
 *		The settings gpusort.*
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GUC_H
#define GPUSORT_GUC_H

typedef enum GpusortEngineChoice
{
	GPUSORT_ENGINE_AUTO,
	GPUSORT_ENGINE_CPU,
	GPUSORT_ENGINE_CUDA
} GpusortEngineChoice;

extern bool gpusort_enabled;
extern bool gpusort_force;
extern bool gpusort_index_builds;
extern bool gpusort_verify;
extern int	gpusort_memory_limit;	/* kB; -1: work_mem times hash_mem_multiplier */
extern int	gpusort_max_memory_limit;	/* kB, the administrator's bound; -1: none */
extern int	gpusort_engine_choice;	/* GpusortEngineChoice */
extern int	gpusort_algorithm;	/* GpusortAlgorithm */
extern int	gpusort_min_rows;
extern char *gpusort_device;	/* CUDA_VISIBLE_DEVICES of the GPU service; empty: the server's */
extern int	gpusort_device_memory_limit;	/* MB; 0: nine tenths of the free memory */
extern int	gpusort_service_idle_timeout;	/* s; 0: no timeout */

/* Defines all settings; _PG_init() calls this once. */
extern void gpusort_guc_define(void);

/* A sort gets at least these bytes, as work_mem is at least: with less, each row would be a spilled run. */
#define GPUSORT_LEAST_MEMORY	((Size) 64 * 1024)

/*
 * Returns how many bytes of backend memory a GpuSort may use in each of the processes that execute
 * it.  They share gpusort.memory_limit; if it is -1, each gets what it would get from core.
 */
extern Size gpusort_guc_memory_limit(int processes);

#endif							/* GPUSORT_GUC_H */
