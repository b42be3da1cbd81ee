/*-------------------------------------------------------------------------
 *
 * device_setting.c
 *		The setting gpusort.device.
 *
 * A name that no device has is refused where a person is told about it at once: by
 * ALTER SYSTEM.  Anywhere else it is accepted, because devices come and go: when the
 * server starts, when a process reads postgresql.conf again, and when a session loads
 * the library.  The service then says that the device was not found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/guc.h"

#include "gpu/control.h"
#include "gpu/device_name.h"
#include "gpu/device_setting.h"
#include "gpu/library.h"

StaticAssertDecl(sizeof(((GpusortDeviceState *) 0)->setting) >= sizeof(((GpusortCudaListed *) 0)->uuid),
				 "every valid name must fit into the control block");

char	   *gpusort_device_setting = NULL;

static bool is_defined = false;

/*
 * Does a statement of a session set the value?  ALTER SYSTEM calls the check with the
 * same source as a process that reads the file.  But a process reads the file between
 * statements, when it has no portal.
 */
static bool
is_in_statement(void)
{
	return is_defined && IsUnderPostmaster && ActivePortal != NULL;
}

/* Does the name fit a usable device of the service's last list?  Without a list, every name does. */
static bool
names_device(const char *name)
{
	const GpusortDeviceState *devices;
	const char *reason;
	char		there[800];
	int			found;

	if (gpusort_device_name_is_auto(name) || gpusort_cuda_missing() != NULL || !gpusort_control_attach(&reason))
		return true;
	devices = &gpusort_control->devices;
	if (devices->count == 0)
		return true;
	found = gpusort_device_find(devices->list, devices->count, name);
	if (found >= 0 && devices->list[found].unusable[0] == '\0')
		return true;
	gpusort_device_enumerate(devices->list, devices->count, there, sizeof(there));
	if (found >= 0)
		GUC_check_errdetail("The device cannot be used: %s. The devices are %s.", devices->list[found].unusable, there);
	else if (found == GPUSORT_DEVICE_SEVERAL)
		GUC_check_errdetail("The UUIDs of several devices begin so. The devices are %s.", there);
	else
		GUC_check_errdetail("There is no such device. The devices are %s.", there);
	return false;
}

static bool
check_device(char **newval, void **extra, GucSource source)
{
	if (!gpusort_device_name_is_valid(*newval))
	{
		GUC_check_errdetail("The value must be \"auto\", the number of a device, or its UUID or the beginning of it, such as \"GPU-8932f937\".");
		return false;
	}
	return !is_in_statement() || names_device(*newval);
}

void
gpusort_device_setting_define(void)
{
	DefineCustomStringVariable("gpusort.device",
							   "Selects the GPU that sorts: \"auto\", its number, or its UUID.",
							   "\"auto\" uses the device with the most memory, and another one after a failure. "
							   "Numbers and UUIDs are those of gpusort_device_list().",
							   &gpusort_device_setting,
							   "auto",
							   PGC_SIGHUP, 0,
							   check_device, NULL, NULL);
	is_defined = true;
}
