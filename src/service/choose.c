/*-------------------------------------------------------------------------
 *
 * choose.c
 *		The GPU service chooses among the devices.
 *
 * One device does all sorts of a server.  The others are there for other programs,
 * and in case that one fails.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "gpu/device_name.h"
#include "service/choose.h"

static int
choose_auto(const GpusortCudaListed *devices, int count, const uint64_t *avoided_until)
{
	int			best = -1;

	for (int i = 0; i < count; i++)
	{
		if (devices[i].unusable[0] != '\0')
			continue;
		if (best < 0 || avoided_until[i] < avoided_until[best] ||
			(avoided_until[i] == avoided_until[best] &&
			 devices[i].total_memory > devices[best].total_memory))
			best = i;
	}
	return best;
}

/* Writes a reason that ends with the devices that are there. */
static void
write_reason(char *reason, size_t room, const char *begin, const GpusortCudaListed *devices, int count)
{
	size_t		length;

	snprintf(reason, room, "%s The devices are ", begin);
	length = strlen(reason);
	gpusort_device_enumerate(devices, count, reason + length, room - length - 1);
	length = strlen(reason);
	snprintf(reason + length, room - length, ".");
}

int
gpusort_device_choose(const GpusortCudaListed *devices, int count, const char *setting,
					  const uint64_t *avoided_until, char *reason, size_t room)
{
	char		begin[120];
	int			number;

	if (gpusort_device_name_is_auto(setting))
	{
		number = choose_auto(devices, count, avoided_until);
		if (number < 0)
			snprintf(reason, room, "No device can be used.");
		return number;
	}
	number = gpusort_device_find(devices, count, setting);
	if (number >= 0 && devices[number].unusable[0] == '\0')
		return number;
	if (number >= 0)
		snprintf(reason, room, "The device %s (gpusort.device) cannot be used: %s.", setting, devices[number].unusable);
	else
	{
		snprintf(begin, sizeof(begin), number == GPUSORT_DEVICE_SEVERAL ?
				 "The UUIDs of several devices begin with %s (gpusort.device)." :
				 "The device %s (gpusort.device) was not found.", setting);
		write_reason(reason, room, begin, devices, count);
	}
	return -1;
}

bool
gpusort_device_is_spare(const GpusortCudaListed *devices, int count, const uint64_t *avoided_until)
{
	for (int i = 0; i < count; i++)
	{
		if (devices[i].unusable[0] == '\0' && avoided_until[i] == 0)
			return true;
	}
	return false;
}
