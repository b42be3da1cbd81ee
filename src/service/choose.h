/*-------------------------------------------------------------------------
 *
 * choose.h
 *		The GPU service chooses among the devices.
 *
 * Nothing here calls a function of the server: test/unit/choose_test.c runs it
 * without one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CHOOSE_H
#define GPUSORT_SERVICE_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpusort_cuda.h"

/*
 * The number of the device that a valid value of gpusort.device means, or -1.  Then
 * reason, which has room for the given bytes, says why.  avoided_until[i] is the time
 * until which other devices are preferred to device i, because it has failed; 0: they
 * are not.
 *
 * "auto" takes the usable device with the most memory, and of several the first.  A
 * device that has failed comes after all others.  If all have failed, the one whose
 * time is over first is taken.
 */
extern int	gpusort_device_choose(const GpusortCudaListed *devices, int count, const char *setting,
								  const uint64_t *avoided_until, char *reason, size_t room);

/* Is there a usable device that has not failed? */
extern bool gpusort_device_is_spare(const GpusortCudaListed *devices, int count, const uint64_t *avoided_until);

#endif							/* GPUSORT_SERVICE_CHOOSE_H */
