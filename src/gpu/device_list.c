/*-------------------------------------------------------------------------
 *
 * device_list.c
 *		What users see of the devices: gpusort_device_list().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "gpu/control.h"
#include "gpu/device_list.h"
#include "gpu/device_name.h"
#include "gpu/library.h"

/* The share of the last minute, or of the time since the device was opened, in which it worked. */
static double
busy_share(GpusortDeviceState *devices, uint64 now)
{
	uint64		oldest = now / GPUSORT_BUSY_SLOT_MS - (GPUSORT_BUSY_SLOTS - 1);
	uint64		begin = Max(oldest * GPUSORT_BUSY_SLOT_MS, devices->opened_at);
	uint64		busy = 0;

	for (int i = 0; i < GPUSORT_BUSY_SLOTS; i++)
	{
		uint64		word = pg_atomic_read_u64(&devices->busy[i]);

		if (word >> 32 >= oldest)
			busy += word & PG_UINT32_MAX;
	}
	return now > begin ? Min((double) busy / (now - begin), 1.0) : 0;
}

/* Why device i is not in use.  The text is static. */
static const char *
reason_of(const GpusortDeviceState *devices, int i, uint64 now)
{
	static char text[256];
	const GpusortCudaListed *device = &devices->list[i];
	const GpusortDeviceFault *fault = gpusort_device_state_fault(devices, device->uuid);
	int			in_use = devices->in_use;

	if (device->unusable[0] != '\0')
		strlcpy(text, device->unusable, sizeof(text));
	else if (!gpusort_device_name_is_auto(devices->setting) &&
			 gpusort_device_find(devices->list, devices->count, devices->setting) != i)
		snprintf(text, sizeof(text), "gpusort.device is \"%s\"", devices->setting);
	else if (fault != NULL && fault->avoid_until > now)
		snprintf(text, sizeof(text), "failed %d s ago: %s", (int) ((now - Min(now, fault->at_ms)) / 1000), fault->reason);
	else if (in_use < 0 || in_use >= devices->count)
		strlcpy(text, "the GPU service does not run", sizeof(text));
	else if (device->total_memory < devices->list[in_use].total_memory)
		strlcpy(text, "less memory than the one in use", sizeof(text));
	else if (device->total_memory == devices->list[in_use].total_memory && i > in_use)
		strlcpy(text, "as much memory as the one in use, which comes first", sizeof(text));
	else
		strlcpy(text, "another was chosen when the GPU service started", sizeof(text));
	return text;
}

void
gpusort_devices_put(GpusortPutDevice put, void *arg)
{
	GpusortDeviceState *devices;
	const char *reason;
	uint64		now;

	if ((gpusort_control == NULL && gpusort_cuda_missing() != NULL) || !gpusort_control_attach(&reason))
		return;
	now = gpusort_clock_ms();
	devices = &gpusort_control->devices;
	for (int i = 0; i < devices->count; i++)
	{
		GpusortCudaListed *device = &devices->list[i];
		const GpusortDeviceFault *fault = gpusort_device_state_fault(devices, device->uuid);
		GpusortDeviceInfo info = {.number = i, .name = device->name, .uuid = device->uuid, .memory = device->total_memory};

		info.in_use = i == devices->in_use;
		if (info.in_use)
		{
			info.sorts = pg_atomic_read_u64(&devices->sorts);
			info.bytes = pg_atomic_read_u64(&devices->bytes);
			info.busy = busy_share(devices, now);
		}
		else
			info.reason = reason_of(devices, i, now);
		if (fault != NULL)
		{
			info.fault = fault->reason;
			info.fault_at = fault->at;
		}
		put(arg, &info);
	}
}
