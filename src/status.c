/*-------------------------------------------------------------------------
 *
 * status.c
 *		gpusort_status() and gpusort_last_sort(): what there is, and what it did.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "activity.h"
#include "engine.h"
#include "engine_cpu.h"
#include "report.h"

PG_FUNCTION_INFO_V1(gpusort_status);
PG_FUNCTION_INFO_V1(gpusort_last_sort);

/* This session's last sort; rows are zero before the first. */
static GpusortReport last_sort;
static char last_reason[256];

/*
 * Who it was done for: not the session's user in a SECURITY DEFINER function,
 * or before SET ROLE.
 */
static Oid	last_user;

void
gpusort_report_keep(const GpusortReport *report)
{
	last_sort = *report;
	last_user = GetUserId();
	last_reason[0] = '\0';
	if (report->reason != NULL)
		strlcpy(last_reason, report->reason, sizeof(last_reason));
}

const GpusortReport *
gpusort_report_last(void)
{
	return &last_sort;
}

static void
put_status(ReturnSetInfo *rsinfo, const char *engine, const GpusortEngineInfo *info)
{
	Datum		values[10];
	bool		nulls[10] = {0};
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
	values[i++] = Int64GetDatum((int64) info->pool_bytes);
	values[i++] = Int64GetDatum((int64) info->pool_used);
	nulls[i] = info->service_pid == 0;
	values[i++] = Int32GetDatum(info->service_pid);
	Assert(i == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_status() returns setof record: one row an engine */
Datum
gpusort_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	GpusortEngineInfo info = {.available = true};

	InitMaterializedSRF(fcinfo, 0);

	snprintf(info.detail, sizeof(info.detail), "VQSort (%s), %ld processors",
			 gpusort_cpu_target(), sysconf(_SC_NPROCESSORS_ONLN));
	put_status(rsinfo, "cpu", &info);

	for (int i = 0; gpusort_engines[i] != NULL; i++)
	{
		memset(&info, 0, sizeof(info));
		gpusort_engines[i]->describe(&info);
		put_status(rsinfo, gpusort_engines[i]->name, &info);
	}
	if (gpusort_engines[0] == NULL)
	{
		memset(&info, 0, sizeof(info));
		strlcpy(info.detail, "gpusort was built without CUDA", sizeof(info.detail));
		put_status(rsinfo, "cuda", &info);
	}
	return (Datum) 0;
}

/* gpusort_last_sort() returns record: NULLs before a session's first sort, and of other users' */
Datum
gpusort_last_sort(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[19];
	bool		nulls[19] = {0};
	bool		device = last_sort.copy_in_bytes > 0;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last_sort.engine == NULL || !gpusort_activity_is_visible(last_user))
		PG_RETURN_NULL();

	values[i++] = Int64GetDatum((int64) last_sort.rows);
	values[i++] = CStringGetTextDatum(last_sort.key_type);
	values[i++] = CStringGetTextDatum(last_sort.engine);
	values[i++] = CStringGetTextDatum(last_sort.algorithm);
	values[i++] = Float8GetDatum(last_sort.gather_ms);
	values[i++] = Int64GetDatum((int64) last_sort.gather_bytes);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last_sort.copy_in_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last_sort.copy_in_bytes);
	values[i++] = Float8GetDatum(last_sort.kernels_ms);
	nulls[i] = !device;
	values[i++] = Float8GetDatum(last_sort.copy_out_ms);
	nulls[i] = !device;
	values[i++] = Int64GetDatum((int64) last_sort.copy_out_bytes);
	values[i++] = Float8GetDatum(last_sort.return_ms);
	values[i++] = BoolGetDatum(last_sort.pinned);
	nulls[i] = last_sort.blocks == 0;
	values[i++] = Int32GetDatum(last_sort.blocks);
	nulls[i] = last_sort.threads == 0;
	values[i++] = Int32GetDatum(last_sort.threads);
	nulls[i] = last_sort.bins == 0;
	values[i++] = Int32GetDatum(last_sort.bins);
	nulls[i] = last_sort.pieces == 0;
	values[i++] = Int32GetDatum(last_sort.pieces);
	values[i++] = Float8GetDatum(last_sort.total_ms);
	nulls[i] = last_reason[0] == '\0';
	values[i++] = CStringGetTextDatum(last_reason);
	Assert(i == lengthof(values));

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
