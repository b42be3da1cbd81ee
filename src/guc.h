/*-------------------------------------------------------------------------
 *
 * guc.h
 *		The settings gpusort.*
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GUC_H
#define GPUSORT_GUC_H

#include "utils/guc.h"

#include "algorithm.h"

typedef enum GpusortEngineChoice
{
	GPUSORT_ENGINE_AUTO,
	GPUSORT_ENGINE_CPU,
	GPUSORT_ENGINE_CUDA
} GpusortEngineChoice;

extern bool gpusort_enabled;
extern bool gpusort_force;
extern int	gpusort_memory_limit;	/* kB; -1: by work_mem */
extern int	gpusort_engine_choice;	/* GpusortEngineChoice */
extern int	gpusort_algorithm;	/* GpusortAlgorithm */
extern int	gpusort_bins;
extern int	gpusort_min_rows;
extern int	gpusort_pool_limit; /* MB */
extern int	gpusort_device_memory_limit;	/* MB; 0: by what is free */
extern int	gpusort_service_idle_timeout;	/* s; 0: never */

/* The values of gpusort.algorithm, up to a NULL name. */
extern const struct config_enum_entry gpusort_algorithm_options[];

extern void gpusort_guc_define(void);

/* Bytes that one sort of the plan node may use in the backend. */
extern Size gpusort_guc_memory_limit(void);

#endif							/* GPUSORT_GUC_H */
