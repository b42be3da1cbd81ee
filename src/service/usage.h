/*-------------------------------------------------------------------------
 *
 * usage.h
 *		The GPU service counts what its device does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_USAGE_H
#define GPUSORT_SERVICE_USAGE_H

#include "gpu/control.h"

/* Begins to count: the device has been opened. */
extern void gpusort_usage_begin(void);

/*
 * Counts the time since the last call as busy if the device worked in it: if works is
 * true, or if it has sorted a piece.
 */
extern void gpusort_usage_note(bool works);

/* Counts a piece that the device has sorted. */
static inline void
gpusort_usage_sorted(uint64 bytes)
{
	GpusortDeviceState *devices = &gpusort_control->devices;

	/* nobody else writes these */
	pg_atomic_write_u64(&devices->sorts, pg_atomic_read_u64(&devices->sorts) + 1);
	pg_atomic_write_u64(&devices->bytes, pg_atomic_read_u64(&devices->bytes) + bytes);
}

#endif							/* GPUSORT_SERVICE_USAGE_H */
