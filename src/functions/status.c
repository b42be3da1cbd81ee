/*-------------------------------------------------------------------------
 *
 * status.c
 *		The engines, for gpusort_status().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/stat.h"
#include "cpu/cpu.h"
#include "gpu/gpu.h"
#include "run/run.h"

#define COLUMNS			9

PG_FUNCTION_INFO_V1(gpusort_engine_list);

static void
list_cpu(ReturnSetInfo *rsinfo)
{
	GpusortStatUse *use = gpusort_stat_use();
	char	   *detail = use != NULL ?
		psprintf("VQSort (%s), %ld processors, %u of %d extra threads in use", gpusort_cpu_target(),
				 sysconf(_SC_NPROCESSORS_ONLN), pg_atomic_read_u32(&use->threads), gpusort_cpu_threads_allowed()) :
		psprintf("VQSort (%s), no extra threads: %s", gpusort_cpu_target(), gpusort_stat_refusal());
	Datum		values[COLUMNS] = {
		CStringGetTextDatum("cpu"), BoolGetDatum(true), CStringGetTextDatum(detail), [7] = Int64GetDatum(0),
	};
	bool		nulls[COLUMNS] = {[3] = true, [4] = true, [5] = true, [6] = true, [8] = true};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* A version as CUDA has it: 13000 is 13.0 */
static Datum
cuda_version(int version)
{
	return CStringGetTextDatum(psprintf("CUDA %d.%d", version / 1000, version % 1000 / 10));
}

static const char *
gpu_detail(const GpusortControl *control, const char *reason)
{
	if (reason != NULL)
		return reason;
	if (control->failed_at == 0)
		return "GPU service ready";
	return psprintf("GPU service ready; the last failure was at %s: %s",
					timestamptz_to_str(control->failed_at), control->failure);
}

/* reason: why the GPU cannot be used, or NULL */
static void
list_gpu(ReturnSetInfo *rsinfo, GpusortControl *control, const char *reason)
{
	int			pid = (int) pg_atomic_read_u32(&control->service_pid);
	Datum		values[COLUMNS] = {
		CStringGetTextDatum(GPUSORT_CLIENT_ENGINE),
		BoolGetDatum(reason == NULL),
		CStringGetTextDatum(gpu_detail(control, reason)),
		CStringGetTextDatum(control->device),
		Int64GetDatum((int64) control->device_memory),
		cuda_version(control->driver_version),
		cuda_version(control->runtime_version),
		Int64GetDatum((int64) control->mapped_bytes),
		Int32GetDatum(pid),
	};
	bool		nulls[COLUMNS] = {
		[3] = control->device[0] == '\0',
		[4] = control->device_memory == 0,
		[5] = control->driver_version == 0,
		[6] = control->runtime_version == 0,
		[8] = pid == 0,
	};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_engine_list() returns setof record: a row for each engine.  May start the GPU service, and waits until it is ready. */
Datum
gpusort_engine_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *reason = gpusort_client_missing();
	GpusortControl none = {0};

	InitMaterializedSRF(fcinfo, 0);
	list_cpu(rsinfo);
	if (reason == NULL && gpusort_control_attach(&reason))
		reason = gpusort_service_wait();
	list_gpu(rsinfo, gpusort_control != NULL ? gpusort_control : &none, reason);
	return (Datum) 0;
}
