/*-------------------------------------------------------------------------
 *
 * activity_test.c
 *		SQL functions that test src/base/activity.c.
 *
 * They begin, report and end sorts that do not exist.  The tested file is included here,
 * so that these functions can write to shared memory what otherwise only a
 * fault could leave there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/shmem.h"
#include "utils/memutils.h"

#include "../../src/base/activity.c"

PG_FUNCTION_INFO_V1(activity_begin);
PG_FUNCTION_INFO_V1(activity_report);
PG_FUNCTION_INFO_V1(activity_end);
PG_FUNCTION_INFO_V1(activity_forge);
PG_FUNCTION_INFO_V1(activity_fill_memory);

static GpusortActivity activities[2];

/*
 * activity_begin(sort integer, age float8, transaction boolean, estimated_rows float8) returns void
 *
 * Begins sort 0 or 1, as if age seconds ago, in a memory context that ends with the
 * transaction or with the session.
 */
Datum
activity_begin(PG_FUNCTION_ARGS)
{
	GpusortActivity *activity = &activities[PG_GETARG_INT32(0)];

	gpusort_activity_begin(activity, PG_GETARG_BOOL(2) ? TopTransactionContext : TopMemoryContext,
						   PG_GETARG_FLOAT8(3));
	activity->started_at -= (TimestampTz) (PG_GETARG_FLOAT8(1) * USECS_PER_SEC);
	activity->due_at = activity->started_at + SHOWN_AFTER_US;
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

/*
 * activity_forge(owner text) returns integer
 *
 * Takes all free slots for an owner: this process ("me"), this pid with the number of
 * another process ("number"), or this process's number with a pid that no process
 * has ("pid").  Returns the number of slots taken.
 */
Datum
activity_forge(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	uint64		owner = owner_of(MyProc, MyProcPid);
	int			count = 0;

	if (strcmp(name, "number") == 0)
		owner += UINT64CONST(1) << 32;
	else if (strcmp(name, "pid") == 0)
		owner |= UINT64CONST(0x7fffffff);
	if (!attach())
		elog(ERROR, "could not attach");
	for (int i = 0; i < SLOTS; i++)
	{
		uint64		none = OWNER_NONE;

		if (pg_atomic_compare_exchange_u64(&slots[i].owner, &none, owner))
			count++;
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
