/*-------------------------------------------------------------------------
 *
 * activity.c
 *		Progress of running sorts, for the view gpusort_activity.
 *
 * A slot has one writer, so it needs no lock: a reader compares the owner before and after
 * it reads the rest.  The number of rows and that of bytes may come from two successive
 * reports.  Each process of a parallel query has a slot, which names the leader's sort; the
 * view adds up the slots of a sort.
 *
 * The owner of a slot is a pid and the number of the process's PGPROC.  If a process leaves a
 * slot behind, readers skip it, because there is no such process any more, and the next sort
 * may take it.
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
#include "utils/tuplestore.h"

#include "base/activity.h"
#include "base/shmem.h"
#include "compat.h"

#define SLOTS			128
#define COLUMNS			10		/* of gpusort_activity_list() */

/* Age in microseconds from which a sort is shown; users cannot look at shorter ones. */
#define SHOWN_AFTER_US	1000000

/* By GpusortPhase */
static const char *const phases[] = {"gathering", "sorting", "merging", "returning"};

/* The largest estimate that is shown, below 2^63; the planner's may be 1e100. */
#define MOST_ROWS		1e18

/* Owners that are not a process: the slot is free, or a process is taking it. */
#define OWNER_NONE		UINT64CONST(0)
#define OWNER_CLAIMING	PG_UINT64_MAX

typedef struct ActivitySlot
{
	/*
	 * The number of the owner's PGPROC plus 1 in the upper 32 bits, and its pid
	 * in the lower 32 bits.  Only the owner writes the other fields.  They have
	 * no meaning while the slot has no owner.
	 */
	pg_atomic_uint64 owner;
	GpusortActivitySort sort;
	TimestampTz started;
	uint64		rows;			/* rows done in this phase */
	uint64		bytes;			/* bytes done in this phase */
	uint64		engine;			/* up to 8 characters, padded with zeros */
	uint64		phase;			/* GpusortPhase */
} ActivitySlot;

StaticAssertDecl(sizeof(ActivitySlot) == 64, "a slot must be a cache line");

static bool exiting = false;	/* this process has given back its slots */
static bool exit_registered = false;	/* give_back_all() will be called */
static uint32 sorts_begun = 0;	/* by this process */

PG_FUNCTION_INFO_V1(gpusort_activity_list);

void
gpusort_activity_preload(void)
{
	gpusort_shmem_request(SLOTS * sizeof(ActivitySlot));
}

static void
init_shared(void *made)
{
	for (int i = 0; i < SLOTS; i++)
		pg_atomic_init_u64(&((ActivitySlot *) made)[i].owner, OWNER_NONE);
}

static GpusortShmem shmem = {GPUSORT_SHMEM_NAME("sorts"), SLOTS * sizeof(ActivitySlot), init_shared};
static ActivitySlot *slots = NULL;	/* NULL until attached */

/* Sets slots.  Returns false if they cannot be had. */
static bool
attach(void)
{
	slots = gpusort_shmem_attach(&shmem);
	return slots != NULL;
}

static uint64
owner_of(PGPROC *proc, int pid)
{
	return ((uint64) GPUSORT_PROC_NUMBER(proc) + 1) << 32 | (uint32) pid;
}

/* Returns the process that owns a slot, or NULL if there is none or it has exited. */
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
	/* this owner's reports must not become visible as the next owner's */
	pg_write_barrier();
	pg_atomic_write_u64(&slot->owner, OWNER_NONE);
}

/* on_shmem_exit callback */
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
 * Takes a slot and returns its number, from 1, or 0 if all are taken.  Its owner
 * is OWNER_CLAIMING, which hides it from readers until the caller has filled it
 * in and sets the owner.
 */
static int
take_slot(const GpusortActivity *activity)
{
	/* the second round also takes slots of processes that have exited */
	for (int n = 0; n < 2 * SLOTS; n++)
	{
		ActivitySlot *slot = &slots[(MyProcPid + n) % SLOTS];
		uint64		owner = pg_atomic_read_u64(&slot->owner);

		if (owner != OWNER_NONE &&
			(n < SLOTS || owner == OWNER_CLAIMING || find_owner(owner) != NULL))
			continue;
		if (pg_atomic_compare_exchange_u64(&slot->owner, &owner, OWNER_CLAIMING))
		{
			slot->started = activity->started_at;
			slot->sort = activity->sort;
			return slot - slots + 1;
		}
	}
	return 0;
}

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
gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt, double estimated_rows)
{
	GpusortActivitySort sort = {
		.leader = MyProcPid,
		.number = ++sorts_begun,
		.estimated_rows = Min(estimated_rows, MOST_ROWS),
	};

	gpusort_activity_join(activity, cxt, &sort);
}

void
gpusort_activity_join(GpusortActivity *activity, MemoryContext cxt, const GpusortActivitySort *sort)
{
	Assert(!activity->registered || activity->cxt == cxt);
	gpusort_activity_end(activity);
	activity->cxt = cxt;
	activity->sort = *sort;
	activity->started_at = GetCurrentTimestamp();
	activity->due_at = activity->started_at + SHOWN_AFTER_US;
}

/*
 * Takes a slot for a sort that has run long enough, and registers the callbacks
 * that give it back.  Returns false if it has not taken one.  The caller sets
 * the slot's owner.
 */
static bool
claim(GpusortActivity *activity)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now < activity->due_at || exiting || !attach())
		return false;

	/* before taking the slot, so that an error here does not leave it taken */
	if (!exit_registered)
	{
		/* not before_shmem_exit(): at PG_END_ENSURE_ERROR_CLEANUP() core's own callback must be the latest one of these */
		on_shmem_exit(give_back_all, (Datum) 0);
		exit_registered = true;
	}
	if (!activity->registered)
	{
		activity->callback.func = context_is_reset;
		activity->callback.arg = activity;
		MemoryContextRegisterResetCallback(activity->cxt, &activity->callback);
		activity->registered = true;
	}
	activity->slot = take_slot(activity);
	if (activity->slot == 0)
		activity->due_at = now + SHOWN_AFTER_US;
	return activity->slot > 0;
}

void
gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
						uint64 rows, uint64 bytes, const char *engine)
{
	ActivitySlot *slot;
	uint64		name = 0;		/* written at once, so that no reader sees a part of it */

	if (activity->slot == 0 && !claim(activity))
		return;
	slot = &slots[activity->slot - 1];
	if (engine != NULL)
		memcpy(&name, engine, strnlen(engine, sizeof(name)));
	slot->rows = rows;
	slot->bytes = bytes;
	slot->engine = name;
	slot->phase = phase;
	/* after the first report, that is the owner already */
	pg_write_barrier();
	pg_atomic_write_u64(&slot->owner, owner_of(MyProc, MyProcPid));
}

bool
gpusort_activity_is_visible(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

/* Adds the sort in a slot, if there is one, to the result.  For the leader, leader_pid is NULL. */
static void
put_activity(ReturnSetInfo *rsinfo, ActivitySlot *slot)
{
	Datum		values[COLUMNS];
	bool		nulls[COLUMNS] = {0};
	uint64		owner = pg_atomic_read_u64(&slot->owner);
	PGPROC	   *proc = find_owner(owner);
	Oid			role;
	char		engine[sizeof(uint64) + 1] = {0};
	ActivitySlot copy;
	int			pid = (int) (uint32) owner;
	int			i = 0;

	if (proc == NULL)
		return;
	role = proc->roleId;
	pg_read_barrier();
	copy = *slot;
	pg_read_barrier();
	if (pg_atomic_read_u64(&slot->owner) != owner)
		return;					/* the sort has ended meanwhile */

	memcpy(engine, &copy.engine, sizeof(copy.engine));
	values[i++] = Int32GetDatum(pid);
	nulls[i] = copy.sort.leader == pid;
	values[i++] = Int32GetDatum(copy.sort.leader);
	values[i++] = Int64GetDatum((int64) copy.sort.number);
	values[i++] = CStringGetTextDatum(phases[copy.phase]);
	values[i++] = Int64GetDatum((int64) copy.rows);
	values[i++] = Int64GetDatum((int64) copy.bytes);
	nulls[i] = engine[0] == '\0';
	values[i++] = CStringGetTextDatum(engine);
	values[i++] = TimestampTzGetDatum(copy.started);
	values[i++] = Int64GetDatum((int64) copy.sort.estimated_rows);
	nulls[i] = copy.phase != GPUSORT_PHASE_GATHERING || copy.sort.estimated_rows == 0;
	values[i++] = Float8GetDatum(100.0 * copy.rows / Max(copy.sort.estimated_rows, 1));
	Assert(i == lengthof(values));
	if (!gpusort_activity_is_visible(role))
		memset(nulls + 1, true, sizeof(nulls) - sizeof(nulls[0]));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* gpusort_activity_list() returns setof record: a row for each process, which view gpusort_activity adds up */
Datum
gpusort_activity_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	if (!attach())
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort cannot show what sorts are doing"),
				 errdetail("%s", shmem.refusal)));
	for (int i = 0; slots != NULL && i < SLOTS; i++)
		put_activity(rsinfo, &slots[i]);
	return (Datum) 0;
}
