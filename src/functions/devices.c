/*-------------------------------------------------------------------------
 *
 * devices.c
 *		gpusort_device_list() shows the devices.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "run/engine.h"

#define DEVICE_COLUMNS	11

PG_FUNCTION_INFO_V1(gpusort_device_list);

static void
put_device(void *arg, const GpusortDeviceInfo *device)
{
	ReturnSetInfo *rsinfo = arg;
	Datum		values[DEVICE_COLUMNS];
	bool		nulls[DEVICE_COLUMNS] = {0};
	int			i = 0;

	values[i++] = Int32GetDatum(device->number);
	nulls[i] = device->name[0] == '\0';
	values[i++] = CStringGetTextDatum(device->name);
	nulls[i] = device->uuid[0] == '\0';
	values[i++] = CStringGetTextDatum(device->uuid);
	nulls[i] = device->memory == 0;
	values[i++] = Int64GetDatum((int64) device->memory);
	values[i++] = BoolGetDatum(device->in_use);
	nulls[i] = device->reason == NULL;
	values[i++] = CStringGetTextDatum(device->reason ? device->reason : "");
	nulls[i] = !device->in_use;
	values[i++] = Int64GetDatum((int64) device->sorts);
	nulls[i] = !device->in_use;
	values[i++] = Int64GetDatum((int64) device->bytes);
	nulls[i] = !device->in_use;
	values[i++] = Float8GetDatum(device->busy);
	nulls[i] = device->fault == NULL;
	values[i++] = CStringGetTextDatum(device->fault ? device->fault : "");
	nulls[i] = device->fault == NULL;
	values[i++] = TimestampTzGetDatum(device->fault_at);
	Assert(i == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_device_list() returns setof record: one row per device */
Datum
gpusort_device_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	gpusort_accelerator->devices(put_device, rsinfo);
	return (Datum) 0;
}
