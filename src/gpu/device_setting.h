/*-------------------------------------------------------------------------
 *
 * device_setting.h
 *		The setting gpusort.device.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_DEVICE_SETTING_H
#define GPUSORT_GPU_DEVICE_SETTING_H

/* Its value: a valid name (gpu/device_name.h). */
extern char *gpusort_device_setting;

/* Defines the setting; _PG_init() calls this once. */
extern void gpusort_device_setting_define(void);

#endif							/* GPUSORT_GPU_DEVICE_SETTING_H */
