/*-------------------------------------------------------------------------
 *
 * status.c
 *		gpusort_status() shows the engines, gpusort_last_sort() the last sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "base/activity.h"
#include "base/report.h"
#include "cpu/cpu.h"
#include "gpu/client.h"
#include "run/cpu_options.h"

#define STATUS_COLUMNS		9

PG_FUNCTION_INFO_V1(gpusort_status);
PG_FUNCTION_INFO_V1(gpusort_last_sort);

static void
put_status(ReturnSetInfo *rsinfo, const char *engine, const GpusortEngineInfo *info)
{
	Datum		values[STATUS_COLUMNS];
	bool		nulls[STATUS_COLUMNS] = {0};
	int			i = 0;

	values[i++] = CStringGetTextDatum(engine);
	values[i++] = BoolGetDatum(info->available);
	values[i++] = CStringGetTextDatum(info->detail);
	nulls[i] = info->device[0] == '\0';
	values[i++] = CStringGetTextDatum(info->device);
	nulls[i] = info->device_memory == 0;
	values[i++] = Int64GetDatum((int64) info->device_memory);
	nulls[i] = info->driver[0] == '\0';
	values[i++] = CStringGetTextDatum(info->driver);
	nulls[i] = info->runtime[0] == '\0';
	values[i++] = CStringGetTextDatum(info->runtime);
	values[i++] = Int64GetDatum((int64) info->mapped_bytes);
	nulls[i] = info->service_pid == 0;
	values[i++] = Int32GetDatum(info->service_pid);
	Assert(i == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_status() returns setof record: a row for each engine */
Datum
gpusort_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	GpusortEngineInfo info = {.available = true};
	const char *reason;
	int			used;

	InitMaterializedSRF(fcinfo, 0);
	used = gpusort_cpu_threads_used(&reason);
	if (used >= 0)
		snprintf(info.detail, sizeof(info.detail), "VQSort (%s), %ld processors, %d of %d extra threads in use",
				 gpusort_cpu_target(), sysconf(_SC_NPROCESSORS_ONLN), used, gpusort_cpu_threads_allowed());
	else
		snprintf(info.detail, sizeof(info.detail), "VQSort (%s), no extra threads: %s",
				 gpusort_cpu_target(), reason);
	put_status(rsinfo, "cpu", &info);

	memset(&info, 0, sizeof(info));
	gpusort_client_describe(&info);
	put_status(rsinfo, GPUSORT_CLIENT_ENGINE, &info);
	return (Datum) 0;
}

/*
 * gpusort_last_sort() returns record: NULL before the session's first sort, or if
 * that sort was done for a user whose activity the current user may not see
 */
Datum
gpusort_last_sort(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[18];
	bool		nulls[18] = {0};
	const GpusortReport *last = gpusort_report_last();
	bool		device = last->copy_in_bytes > 0;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last->engine == NULL || !gpusort_activity_is_visible(gpusort_report_user()))
		PG_RETURN_NULL();

	values[i++] = Int64GetDatum((int64) last->rows);
	values[i++] = CStringGetTextDatum(last->key_type);
	values[i++] = CStringGetTextDatum(last->engine);
	nulls[i] = last->algorithm == NULL;
	values[i++] = CStringGetTextDatum(last->algorithm ? last->algorithm : "");
	values[i++] = Float8GetDatum(last->gather_ms);
	values[i++] = Int64GetDatum((int64) last->gather_bytes);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last->copy_in_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last->copy_in_bytes);
	values[i++] = Float8GetDatum(last->kernels_ms);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last->copy_out_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last->copy_out_bytes);
	values[i++] = Float8GetDatum(last->return_ms);
	values[i++] = BoolGetDatum(last->pinned);
	nulls[i] = last->blocks == 0;
	values[i++] = Int32GetDatum(last->blocks);
	nulls[i] = last->threads == 0;
	values[i++] = Int32GetDatum(last->threads);
	nulls[i] = last->bins == 0;
	values[i++] = Int32GetDatum(last->bins);
	values[i++] = Float8GetDatum(last->total_ms);
	nulls[i] = last->reason == NULL;
	values[i++] = CStringGetTextDatum(last->reason ? last->reason : "");
	Assert(i == lengthof(values));

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
