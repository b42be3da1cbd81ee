/*-------------------------------------------------------------------------
 *
 * device_name.c
 *		The values of gpusort.device, and the devices that they name.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gpu/device_name.h"

#define DIGITS		"0123456789"
#define UUID_LETTERS	"-" DIGITS "abcdefABCDEF"
#define UUID_LENGTH	40			/* "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6" */
#define SHORT_UUID	12			/* "GPU-8932f937": enough to tell devices apart */

static bool
is_number(const char *name)
{
	return name[0] != '\0' && strlen(name) <= 4 && strspn(name, DIGITS) == strlen(name);
}

static bool
is_uuid(const char *name)
{
	return (strncasecmp(name, "GPU-", 4) == 0 || strncasecmp(name, "MIG-", 4) == 0) &&
		name[4] != '\0' && strspn(name + 4, UUID_LETTERS) == strlen(name + 4) &&
		strlen(name) <= UUID_LENGTH;
}

bool
gpusort_device_name_is_auto(const char *name)
{
	return strcasecmp(name, "auto") == 0;
}

bool
gpusort_device_name_is_valid(const char *name)
{
	return gpusort_device_name_is_auto(name) || is_number(name) || is_uuid(name);
}

int
gpusort_device_find(const GpusortCudaListed *devices, int count, const char *name)
{
	int			found = GPUSORT_DEVICE_NONE;

	if (is_number(name))
		return atoi(name) < count ? atoi(name) : GPUSORT_DEVICE_NONE;
	for (int i = 0; i < count; i++)
	{
		if (strncasecmp(devices[i].uuid, name, strlen(name)) != 0)
			continue;
		if (found != GPUSORT_DEVICE_NONE)
			return GPUSORT_DEVICE_SEVERAL;
		found = i;
	}
	return found;
}

void
gpusort_device_enumerate(const GpusortCudaListed *devices, int count, char *text, size_t room)
{
	size_t		used = 0;

	text[0] = '\0';
	for (int i = 0; i < count; i++)
	{
		char		one[120];
		char		more[24] = "";
		size_t		length;

		snprintf(one, sizeof(one), "%s%d (%s%s%.*s)", i > 0 ? ", " : "", i, devices[i].name,
				 devices[i].uuid[0] != '\0' ? ", " : "", SHORT_UUID, devices[i].uuid);
		length = strlen(one);
		/* leave room to count those that follow, unless this is the last one */
		if (i < count - 1)
			snprintf(more, sizeof(more), ", and %d more", count - 1 - i);
		if (used + length + strlen(more) >= room)
		{
			snprintf(text + used, room - used, "%s%d more", i > 0 ? ", and " : "", count - i);
			return;
		}
		memcpy(text + used, one, length + 1);
		used += length;
	}
}
