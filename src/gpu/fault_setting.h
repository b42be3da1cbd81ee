/*-------------------------------------------------------------------------
 *
 * fault_setting.h
 *		The settings gpusort.fault and gpusort.fault_report of builds for tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_FAULT_SETTING_H
#define GPUSORT_GPU_FAULT_SETTING_H

/* Defines both settings.  _PG_init calls it. */
extern void gpusort_fault_define(void);

/*
 * The device's status, a GpusortCudaStatus, of a name such as "no_memory"; 0 if no
 * status has this name.  Tests use the names in gpusort.fault and GPUSORT_STANDIN.
 * Exported for the stand-in device, as the functions of base/fault.h are.
 */
#pragma GCC visibility push(default)
extern int	gpusort_fault_status(const char *name);
#pragma GCC visibility pop

#endif							/* GPUSORT_GPU_FAULT_SETTING_H */
