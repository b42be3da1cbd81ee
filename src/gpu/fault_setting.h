/*-------------------------------------------------------------------------
 *
 * fault_setting.h
 *		The settings gpusort.fault and gpusort.fault_report, in builds for tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_FAULT_SETTING_H
#define GPUSORT_GPU_FAULT_SETTING_H

/* Defines both; from _PG_init. */
extern void gpusort_fault_define(void);

/* The status of gpusort_cuda.h with that name, as tests write it; 0 if there is none. */
extern int	gpusort_fault_status(const char *name);

#endif							/* GPUSORT_GPU_FAULT_SETTING_H */
