/*-------------------------------------------------------------------------
 *
 * device_state.h
 *		The part of the control block that describes the devices.
 *
 * The GPU service lists the devices when it starts, opens one of them, counts what
 * that one does, and notes the device on which it failed.  Users see all of this
 * (gpu/device_list.c).
 *
 * Only the service writes.  It writes the list, the faults, setting and in_use under
 * the lock.  Others read without it, and may see a mixture while a service starts
 * or ends, as in gpusort_status().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_DEVICE_STATE_H
#define GPUSORT_GPU_DEVICE_STATE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "listed_device.h"

/* The device that failed longest ago is forgotten if more devices than these fail. */
#define GPUSORT_MAX_FAULTS		4

/* The last fault of a device. */
typedef struct GpusortDeviceFault
{
	char		uuid[sizeof(((GpusortCudaListed *) 0)->uuid)];	/* empty: an unused entry */
	uint64		at_ms;			/* when it was, in ms of base/clock.h */
	TimestampTz at;				/* the same by the system's clock */
	uint64		avoid_until;	/* gpusort.device = auto prefers other devices until then, in
								 * ms of base/clock.h */
	char		reason[160];
} GpusortDeviceFault;

/*
 * The time in which the device worked is kept for the last minute, in slots of 5 s.
 * Period n since the beginning of the clock is in slot n % GPUSORT_BUSY_SLOTS.  A slot
 * is one word, so that it can be read while it is written: n is in the upper half, the
 * ms are in the lower one.
 */
#define GPUSORT_BUSY_SLOTS		12
#define GPUSORT_BUSY_SLOT_MS	5000

typedef struct GpusortDeviceState
{
	int			count;			/* devices that the last service found */
	int			in_use;			/* number of the open device; -1: none */
	char		setting[48];	/* gpusort.device as the service read it last */
	GpusortCudaListed list[GPUSORT_CUDA_MAX_DEVICES];
	GpusortDeviceFault faults[GPUSORT_MAX_FAULTS];

	/* since the device was opened */
	uint64		opened_at;		/* when that was, in ms of base/clock.h */
	pg_atomic_uint64 sorts;		/* pieces that the device has sorted */
	pg_atomic_uint64 bytes;		/* bytes of their keys */

	pg_atomic_uint64 busy[GPUSORT_BUSY_SLOTS];
} GpusortDeviceState;

/* Initialises the state, which is zeroed. */
static inline void
gpusort_device_state_init(GpusortDeviceState *state)
{
	state->in_use = -1;
	pg_atomic_init_u64(&state->sorts, 0);
	pg_atomic_init_u64(&state->bytes, 0);
	for (int i = 0; i < GPUSORT_BUSY_SLOTS; i++)
		pg_atomic_init_u64(&state->busy[i], 0);
}

/* The last fault of the device with this UUID, or NULL. */
static inline const GpusortDeviceFault *
gpusort_device_state_fault(const GpusortDeviceState *state, const char *uuid)
{
	for (int i = 0; i < GPUSORT_MAX_FAULTS; i++)
	{
		if (uuid[0] != '\0' && strncmp(state->faults[i].uuid, uuid, sizeof(state->faults[i].uuid)) == 0)
			return &state->faults[i];
	}
	return NULL;
}

/* Until when other devices are preferred to this one, in ms of base/clock.h; 0: they are not. */
static inline uint64
gpusort_device_state_avoided(const GpusortDeviceState *state, const char *uuid, uint64 now)
{
	const GpusortDeviceFault *fault = gpusort_device_state_fault(state, uuid);

	return fault != NULL && fault->avoid_until > now ? fault->avoid_until : 0;
}

#endif							/* GPUSORT_GPU_DEVICE_STATE_H */
