/*-------------------------------------------------------------------------
 *
 * activity.c
 *		What sorts are doing, for all sessions to see: view gpusort_activity.
 *
 * Sorts that run for more than a second take one of a few slots in main
 * shared memory, with one compare-and-swap, and keep it up to date with plain
 * atomic stores.  There is no lock: a slot has one writer, and a reader that
 * finds it the same process's before and after has a row, whose rows and
 * bytes may be of two reports.  Shorter sorts never touch shared memory.
 *
 * A slot says which process holds it, by pid and by the number of its PGPROC.
 * It is given back when the sort ends, when the memory context that the sort
 * lives in is reset, or when the process exits, whichever comes first.  Should
 * one be left behind all the same, its process is not found any more: then
 * readers pass over it, and the next sort may take it.
 *
 * The slots need no preload (shmem.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/activity.h"
#include "base/shmem.h"
#include "compat.h"

#define SLOTS			128

/* Owners that are no process: nobody, and somebody about to be one. */
#define OWNER_NONE		UINT64CONST(0)
#define OWNER_CLAIMING	PG_UINT64_MAX

typedef struct ActivitySlot
{
	/*
	 * PGPROC's number + 1 above 32 bits of pid.  The rest counts only if this
	 * is a process, and then is its to write.
	 */
	pg_atomic_uint64 owner;
	pg_atomic_uint64 started;	/* TimestampTz */
	pg_atomic_uint64 rows;
	pg_atomic_uint64 bytes;
	pg_atomic_uint64 engine;	/* up to 8 characters, zeros behind them */
	pg_atomic_uint32 phase;		/* GpusortPhase */
	uint32		unused[5];
} ActivitySlot;

StaticAssertDecl(sizeof(ActivitySlot) == 64, "a slot must be a cache line");

/* What this cluster's processes share. */
typedef struct ActivityShared
{
	/* all sorts since the server started: those done here, and by core */
	pg_atomic_uint64 sorts;
	pg_atomic_uint64 core_sorts;
	pg_atomic_uint64 rows;		/* of sorts */
	char		unused[40];		/* of the counters' cache line */
	ActivitySlot slots[SLOTS];
} ActivityShared;

static ActivityShared *shared = NULL;	/* once attached */
static ActivitySlot *slots = NULL;	/* shared->slots */
static bool no_room = false;	/* attaching has failed */
static bool exiting = false;	/* this process has given back its slots */
static bool exit_registered = false;

PG_FUNCTION_INFO_V1(gpusort_activity_list);
PG_FUNCTION_INFO_V1(gpusort_counters);

/*
 * Shared memory
 */

void
gpusort_activity_preload(void)
{
	gpusort_shmem_request(sizeof(ActivityShared));
}

static void
init_shared(void *made)
{
	ActivityShared *created = made;
	ActivitySlot *slot = created->slots;

	pg_atomic_init_u64(&created->sorts, 0);
	pg_atomic_init_u64(&created->core_sorts, 0);
	pg_atomic_init_u64(&created->rows, 0);
	for (int i = 0; i < SLOTS; i++, slot++)
	{
		pg_atomic_init_u64(&slot->owner, OWNER_NONE);
		pg_atomic_init_u64(&slot->started, 0);
		pg_atomic_init_u64(&slot->rows, 0);
		pg_atomic_init_u64(&slot->bytes, 0);
		pg_atomic_init_u64(&slot->engine, 0);
		pg_atomic_init_u32(&slot->phase, GPUSORT_PHASE_GATHERING);
	}
}

/* Sets shared and slots; false if there is no room for them. */
static bool
attach(void)
{
	if (slots != NULL)
		return true;
	if (no_room)
		return false;
	shared = gpusort_shmem_attach("gpusort activity", sizeof(ActivityShared), init_shared);
	slots = shared != NULL ? shared->slots : NULL;
	no_room = (shared == NULL);
	return shared != NULL;
}

/*
 * Slots
 */

static uint64
owner_of(PGPROC *proc, int pid)
{
	return ((uint64) GPUSORT_PROC_NUMBER(proc) + 1) << 32 | (uint32) pid;
}

/* The process that holds a slot, or NULL if it is gone. */
static PGPROC *
find_owner(uint64 owner)
{
	int			pid = (int) (uint32) owner;
	PGPROC	   *proc;

	if (owner == OWNER_NONE || owner == OWNER_CLAIMING)
		return NULL;
	proc = BackendPidGetProc(pid);
	return proc != NULL && owner_of(proc, pid) == owner ? proc : NULL;
}

static void
give_back(ActivitySlot *slot)
{
	/* what was reported must not be taken for the next owner's */
	pg_write_barrier();
	pg_atomic_write_u64(&slot->owner, OWNER_NONE);
}

/* before_shmem_exit callback */
static void
give_back_all(int code, Datum arg)
{
	uint64		mine = owner_of(MyProc, MyProcPid);

	exiting = true;
	for (int i = 0; i < SLOTS; i++)
	{
		if (pg_atomic_read_u64(&slots[i].owner) == mine)
			give_back(&slots[i]);
	}
}

/*
 * Takes a slot, from 1, or returns 0.  It shows to nobody until its owner is
 * set, so that it is seen complete or not at all.
 */
static int
take_slot(TimestampTz started)
{
	/* the second time round, also slots of processes that are gone */
	for (int n = 0; n < 2 * SLOTS; n++)
	{
		ActivitySlot *slot = &slots[(MyProcPid + n) % SLOTS];
		uint64		owner = pg_atomic_read_u64(&slot->owner);

		if (owner != OWNER_NONE &&
			(n < SLOTS || owner == OWNER_CLAIMING || find_owner(owner) != NULL))
			continue;
		if (pg_atomic_compare_exchange_u64(&slot->owner, &owner, OWNER_CLAIMING))
		{
			pg_atomic_write_u64(&slot->started, (uint64) started);
			return slot - slots + 1;
		}
	}
	return 0;
}

/*
 * A sort's side
 */

void
gpusort_activity_end(GpusortActivity *activity)
{
	if (activity->slot > 0 && !exiting)
		give_back(&slots[activity->slot - 1]);
	activity->slot = 0;
}

/* MemoryContextCallback */
static void
context_is_reset(void *arg)
{
	GpusortActivity *activity = arg;

	gpusort_activity_end(activity);
	activity->registered = false;
}

void
gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt)
{
	Assert(!activity->registered || activity->cxt == cxt);
	gpusort_activity_end(activity);
	activity->cxt = cxt;
	activity->started_at = GetCurrentTimestamp();
	activity->retry_at = 0;
}

/* Takes a slot for a sort if it is time; its owner is for the caller to set. */
static bool
claim(GpusortActivity *activity)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!gpusort_activity_is_due(activity, now) || exiting || !attach())
		return false;

	/* who gives it back comes first */
	if (!exit_registered)
	{
		before_shmem_exit(give_back_all, (Datum) 0);
		exit_registered = true;
	}
	if (!activity->registered)
	{
		activity->callback.func = context_is_reset;
		activity->callback.arg = activity;
		MemoryContextRegisterResetCallback(activity->cxt, &activity->callback);
		activity->registered = true;
	}
	activity->slot = take_slot(activity->started_at);
	if (activity->slot == 0)
		activity->retry_at = now + GPUSORT_ACTIVITY_AFTER_US;
	return activity->slot > 0;
}

void
gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
						uint64 rows, uint64 bytes, const char *engine)
{
	bool		claimed = false;
	ActivitySlot *slot;
	uint64		name = 0;

	if (activity->slot == 0)
	{
		claimed = claim(activity);
		if (!claimed)
			return;
	}
	slot = &slots[activity->slot - 1];
	if (engine != NULL)
		memcpy(&name, engine, strnlen(engine, sizeof(name)));
	pg_atomic_write_u64(&slot->rows, rows);
	pg_atomic_write_u64(&slot->bytes, bytes);
	pg_atomic_write_u64(&slot->engine, name);
	pg_atomic_write_u32(&slot->phase, phase);
	if (claimed)
	{
		pg_write_barrier();
		pg_atomic_write_u64(&slot->owner, owner_of(MyProc, MyProcPid));
	}
}

void
gpusort_activity_count(bool by_core, uint64 rows)
{
	if (!attach())
		return;
	pg_atomic_fetch_add_u64(by_core ? &shared->core_sorts : &shared->sorts, 1);
	if (!by_core)
		pg_atomic_fetch_add_u64(&shared->rows, rows);
}

/*
 * The view's side
 */

/* gpusort_counters() returns record */
Datum
gpusort_counters(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	memset(values, 0, sizeof(values));
	if (attach())
	{
		values[0] = Int64GetDatum((int64) pg_atomic_read_u64(&shared->sorts));
		values[1] = Int64GetDatum((int64) pg_atomic_read_u64(&shared->core_sorts));
		values[2] = Int64GetDatum((int64) pg_atomic_read_u64(&shared->rows));
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

static const char *
phase_name(uint32 phase)
{
	switch ((GpusortPhase) phase)
	{
		case GPUSORT_PHASE_GATHERING:
			return "gathering";
		case GPUSORT_PHASE_SORTING:
			return "sorting";
		case GPUSORT_PHASE_MERGING:
			return "merging";
		case GPUSORT_PHASE_RETURNING:
			return "returning";
	}
	return "unknown";
}

bool
gpusort_activity_is_visible(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

/* Adds the sort in a slot, if there is one. */
static void
put_activity(ReturnSetInfo *rsinfo, ActivitySlot *slot)
{
	Datum		values[6];
	bool		nulls[6] = {0};
	uint64		owner = pg_atomic_read_u64(&slot->owner);
	PGPROC	   *proc = find_owner(owner);
	Oid			role;
	char		engine[sizeof(uint64) + 1] = {0};
	uint64		name;
	int			i = 0;

	if (proc == NULL)
		return;
	role = proc->roleId;
	pg_read_barrier();
	values[i++] = Int32GetDatum((int32) (uint32) owner);
	values[i++] = CStringGetTextDatum(phase_name(pg_atomic_read_u32(&slot->phase)));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&slot->rows));
	values[i++] = Int64GetDatum((int64) pg_atomic_read_u64(&slot->bytes));
	name = pg_atomic_read_u64(&slot->engine);
	memcpy(engine, &name, sizeof(name));
	nulls[i] = engine[0] == '\0';
	values[i++] = CStringGetTextDatum(engine);
	values[i++] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&slot->started));
	Assert(i == lengthof(values));
	pg_read_barrier();
	if (pg_atomic_read_u64(&slot->owner) != owner)
		return;					/* has just ended */

	if (!gpusort_activity_is_visible(role))
		memset(nulls + 1, true, sizeof(nulls) - sizeof(nulls[0]));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_activity_list() returns setof record: what gpusort_activity shows */
Datum
gpusort_activity_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	if (!attach())
		ereport(WARNING,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("gpusort cannot show what sorts are doing"),
				 errdetail("There is no shared memory left for %d bytes.",
						   (int) (SLOTS * sizeof(ActivitySlot))),
				 errhint("Add gpusort to shared_preload_libraries.")));
	for (int i = 0; slots != NULL && i < SLOTS; i++)
		put_activity(rsinfo, &slots[i]);
	return (Datum) 0;
}
