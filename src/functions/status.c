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
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/activity.h"
#include "base/report.h"
#include "cpu/cpu.h"
#include "gpu/client.h"
#include "gpu/control.h"
#include "gpu/start.h"
#include "run/cpu_options.h"

#define STATUS_COLUMNS		9

PG_FUNCTION_INFO_V1(gpusort_status);
PG_FUNCTION_INFO_V1(gpusort_last_sort);

/* The CPU engine's row of gpusort_status() */
static void
describe_cpu(Datum *values, bool *nulls)
{
	const char *reason;
	int			used = gpusort_cpu_threads_used(&reason);
	char	   *detail;

	if (used >= 0)
		detail = psprintf("VQSort (%s), %ld processors, %d of %d extra threads in use",
						  gpusort_cpu_target(), sysconf(_SC_NPROCESSORS_ONLN), used, gpusort_cpu_threads_allowed());
	else
		detail = psprintf("VQSort (%s), no extra threads: %s", gpusort_cpu_target(), reason);
	values[0] = CStringGetTextDatum("cpu");
	values[1] = BoolGetDatum(true);
	values[2] = CStringGetTextDatum(detail);
	values[7] = Int64GetDatum(0);
	nulls[3] = nulls[4] = nulls[5] = nulls[6] = nulls[8] = true;
}

/* A version as CUDA has it: 13000 is 13.0 */
static Datum
cuda_version(int version)
{
	return CStringGetTextDatum(psprintf("CUDA %d.%d", version / 1000, version % 1000 / 10));
}

/* The row of the GPU, whose service this may start, and wait until it is ready */
static void
describe_gpu(Datum *values, bool *nulls)
{
	const char *reason = gpusort_client_missing();
	const GpusortControl none = {0};
	const GpusortControl *control = &none;
	int			pid = 0;

	if (reason == NULL && gpusort_control_attach(&reason))
		reason = gpusort_service_wait();
	if (gpusort_control != NULL)
	{
		control = gpusort_control;
		pid = (int) pg_atomic_read_u32(&gpusort_control->service_pid);
	}
	values[0] = CStringGetTextDatum(GPUSORT_CLIENT_ENGINE);
	values[1] = BoolGetDatum(reason == NULL);
	if (reason == NULL && control->failed_at != 0)
		reason = psprintf("GPU service ready; the last failure was at %s: %s",
						  timestamptz_to_str(control->failed_at), control->failure);
	values[2] = CStringGetTextDatum(reason != NULL ? reason : "GPU service ready");
	nulls[3] = control->device[0] == '\0';
	values[3] = CStringGetTextDatum(control->device);
	nulls[4] = control->device_memory == 0;
	values[4] = Int64GetDatum((int64) control->device_memory);
	nulls[5] = control->driver_version == 0;
	values[5] = cuda_version(control->driver_version);
	nulls[6] = control->runtime_version == 0;
	values[6] = cuda_version(control->runtime_version);
	values[7] = Int64GetDatum((int64) control->mapped_bytes);
	nulls[8] = pid == 0;
	values[8] = Int32GetDatum(pid);
}

/* gpusort_status() returns setof record: a row for each engine */
Datum
gpusort_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[STATUS_COLUMNS] = {0};
	bool		nulls[STATUS_COLUMNS] = {0};

	InitMaterializedSRF(fcinfo, 0);
	describe_cpu(values, nulls);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	describe_gpu(values, nulls);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
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
	Oid			user;
	const GpusortReport *last = gpusort_report_last(&user);
	bool		device = last->copy_in_bytes > 0;
	int			i = 0;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last->engine == NULL || !gpusort_activity_is_visible(user))
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
