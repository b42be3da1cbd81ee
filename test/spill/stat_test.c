/*-------------------------------------------------------------------------
 *
 * stat_test.c
 *		SQL functions that test src/base/stat.c.
 *
 * They begin, report and end sorts that do not exist, and count reasons that no sort has, in the shared
 * memory of the library's own counters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/memutils.h"

#include "../../src/base/stat.c"

PG_FUNCTION_INFO_V1(stat_reason);
PG_FUNCTION_INFO_V1(stat_first_warning);
PG_FUNCTION_INFO_V1(activity_begin);
PG_FUNCTION_INFO_V1(activity_report);
PG_FUNCTION_INFO_V1(activity_end);
PG_FUNCTION_INFO_V1(activity_take_places);
PG_FUNCTION_INFO_V1(activity_fill_memory);

/* stat_reason(engine text, reason text) returns void */
Datum
stat_reason(PG_FUNCTION_ARGS)
{
	const GpusortReport report = {
		.engine = text_to_cstring(PG_GETARG_TEXT_PP(0)),
		.reason = text_to_cstring(PG_GETARG_TEXT_PP(1)),
	};

	gpusort_stat_count(GPUSORT_STAT_PLAN, &report);
	PG_RETURN_VOID();
}

/* stat_first_warning(reason text) returns boolean */
Datum
stat_first_warning(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(gpusort_stat_first_warning(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

static GpusortActivity activities[2];

/*
 * activity_begin(sort integer, age float8, estimated_rows float8) returns void
 *
 * Begins sort 0 or 1, as if age seconds ago, in a memory context that ends with the transaction.
 */
Datum
activity_begin(PG_FUNCTION_ARGS)
{
	GpusortActivity *activity = &activities[PG_GETARG_INT32(0)];

	gpusort_activity_begin(activity, TopTransactionContext, PG_GETARG_FLOAT8(2));
	activity->begun_at -= (TimestampTz) (PG_GETARG_FLOAT8(1) * USECS_PER_SEC);
	PG_RETURN_VOID();
}

/* activity_report(sort integer, phase integer, rows bigint, bytes bigint, engine text) returns void */
Datum
activity_report(PG_FUNCTION_ARGS)
{
	gpusort_activity_report(&activities[PG_GETARG_INT32(0)], (GpusortPhase) PG_GETARG_INT32(1),
							PG_GETARG_INT64(2), PG_GETARG_INT64(3),
							PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4)));
	PG_RETURN_VOID();
}

/* activity_end(sort integer) returns void */
Datum
activity_end(PG_FUNCTION_ARGS)
{
	gpusort_activity_end(&activities[PG_GETARG_INT32(0)]);
	PG_RETURN_VOID();
}

/* activity_take_places() returns integer: takes all free places until the transaction ends, and returns their number. */
Datum
activity_take_places(PG_FUNCTION_ARGS)
{
	int			count = 0;

	for (int i = 0; i < PLACES; i++)
	{
		GpusortActivity *activity = MemoryContextAllocZero(TopTransactionContext, sizeof(GpusortActivity));

		gpusort_activity_begin(activity, TopTransactionContext, 0);
		activity->begun_at = 0;
		gpusort_activity_report(activity, GPUSORT_PHASE_GATHERING, 0, 0, NULL);
		count += activity->place != NULL;
	}
	PG_RETURN_INT32(count);
}

/*
 * activity_fill_memory() returns integer
 *
 * Allocates all spare shared memory of the server.  Returns its size in kB.
 */
Datum
activity_fill_memory(PG_FUNCTION_ARGS)
{
	int			count = 0;

	while (ShmemAllocNoError(1024) != NULL)
		count++;
	PG_RETURN_INT32(count);
}
