/*-------------------------------------------------------------------------
 *
 * stat.c
 *		What all processes do and have done, for the views gpusort_activity, gpusort_stat and
 *		gpusort_stat_reasons, and the report of a session's last sort, for gpusort_last_sort().
 *
 * A sort adds its figures once, by atomic additions to the counters of its kind and engine.
 *
 * The reasons are a table of texts to which processes only append: the first nreasons of them
 * are final, and are read without a lock.  Everybody may read them, and nobody shall fill the
 * table, so names and numbers are taken out of a text.  All that come when the table is full
 * share its last place.
 *
 * A sort that runs for more than a second takes a place, and gives it back when its memory
 * context is reset, which the end of its transaction does at the latest.  Each process of a parallel query has a place, which names the leader's sort; the view adds
 * up the places of a sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/shmem.h"
#include "base/stat.h"

#define KINDS			GPUSORT_STAT_PLAN	/* that have counters */
#define REASONS			64
#define REASON_BYTES	106		/* of a text that is kept */
#define PLACES			128

/* Age from which a running sort is shown, in us; users cannot look at shorter ones. */
#define SHOWN_AFTER_US	1000000

/* The largest estimate that is shown, below 2^63; the planner's may be 1e100. */
#define MOST_ROWS		1e18

static const char *const kinds[] = {"sort", "index", "function", "aggregate", "plan"};
static const char *const engines[] = {"core", "cpu", "cuda"};
static const char *const phases[] = {"gathering", "sorting", "merging", "returning"};

#define CORE			0
#define CPU				1

/* The columns of gpusort_stat_list() behind kind and engine, which gpusort_stat_count() lists, and some of them */
#define FIELDS			14
#define FIELD_ROWS		3
#define FIELD_BYTES		4
#define FIELD_TIMES		8		/* from here on times, in ns */

typedef struct Reason
{
	pg_atomic_uint64 count;
	pg_atomic_uint32 warned;	/* a session was warned */
	uint8		kind;
	uint8		engine;
	char		text[REASON_BYTES]; /* padded with zeros */
} Reason;

/* A sort that runs, in one of its processes */
typedef struct GpusortPlace
{
	int			pid;			/* 0: the place is free */
	Oid			role;			/* the session's */
	GpusortActivitySort sort;
	TimestampTz begun_at;
	GpusortPhase phase;
	int			engine;			/* in engines; -1: not chosen yet */
	uint64		rows;			/* rows and bytes done in this phase */
	uint64		bytes;
} GpusortPlace;

/* In main shared memory */
typedef struct Stat
{
	GpusortStatUse use;
	pg_atomic_uint64 reset_at;	/* TimestampTz */
	pg_atomic_uint64 counters[KINDS][lengthof(engines)][FIELDS];
	slock_t		lock;			/* of those who append a reason, and of the places; who has one frees it without */
	pg_atomic_uint32 nreasons;
	Reason		reasons[REASONS];
	GpusortPlace places[PLACES];
} Stat;

PG_FUNCTION_INFO_V1(gpusort_last_sort);
PG_FUNCTION_INFO_V1(gpusort_activity_list);
PG_FUNCTION_INFO_V1(gpusort_stat_list);
PG_FUNCTION_INFO_V1(gpusort_stat_reason_list);
PG_FUNCTION_INFO_V1(gpusort_stat_reset);

static void
init_stat(void *made)
{
	Stat	   *stat = made;

	/* zero is what pg_atomic_init_u64() would write */
	memset(stat, 0, sizeof(*stat));
	pg_atomic_init_u64(&stat->reset_at, (uint64) GetCurrentTimestamp());
	SpinLockInit(&stat->lock);
}

static GpusortShmem shmem = {GPUSORT_SHMEM_NAME("stat"), sizeof(Stat), init_stat};

void
gpusort_stat_preload(void)
{
	gpusort_shmem_request(shmem.size);
}

GpusortStatUse *
gpusort_stat_use(void)
{
	Stat	   *stat = gpusort_shmem_attach(&shmem);

	return stat != NULL ? &stat->use : NULL;
}

const char *
gpusort_stat_refusal(void)
{
	return shmem.refusal;
}

static int
engine_number(const char *name)
{
	int			i = lengthof(engines) - 1;

	while (i > 0 && (name == NULL || strcmp(name, engines[i]) != 0))
		i--;
	return name == NULL ? CPU : i;
}

/* Copies a reason without names, which are in quotation marks, and without numbers that are words. */
static void
copy_reason(const char *reason, char *text)
{
	const char *last_quote = strrchr(reason, '"');
	char	   *end = text + REASON_BYTES - 4;

	for (const char *from = reason; *from != '\0' && text < end; from++)
	{
		size_t		digits = from > reason && from[-1] == ' ' ? strspn(from, "0123456789") : 0;

		*text++ = *from;
		if (*from == '"' && from < last_quote)
		{
			text = (char *) memcpy(text, "...", 3) + 3;
			from = last_quote - 1;
		}
		else if (digits > 0 && (from[digits] == ' ' || from[digits] == '\0'))
		{
			text[-1] = 'N';
			from += digits - 1;
		}
	}
	*text = '\0';
}

/* Finds a reason in the table, or appends it.  Returns NULL if there is no shared memory. */
static Reason *
find_reason(GpusortStatKind kind, int engine, const char *text)
{
	Reason		wanted = {.kind = kind, .engine = engine};
	Stat	   *stat = gpusort_shmem_attach(&shmem);
	Reason	   *reason;

	if (stat == NULL)
		return NULL;
	copy_reason(text, wanted.text);
	for (reason = stat->reasons; reason < stat->reasons + REASONS - 1; reason++)
	{
		uint32		i = reason - stat->reasons;

		if (i == pg_atomic_read_u32(&stat->nreasons))
		{
			SpinLockAcquire(&stat->lock);
			/* unless another process has just appended one */
			if (i == pg_atomic_read_u32(&stat->nreasons))
			{
				*reason = wanted;
				pg_write_barrier();
				pg_atomic_write_u32(&stat->nreasons, i + 1);
			}
			SpinLockRelease(&stat->lock);
		}
		pg_read_barrier();
		if (reason->kind == wanted.kind && reason->engine == wanted.engine && strcmp(reason->text, wanted.text) == 0)
			break;
	}
	return reason;
}

bool
gpusort_stat_first_warning(const char *reason)
{
	static bool warned = false;
	Reason	   *found = find_reason(GPUSORT_STAT_FUNCTION, CPU, reason);
	bool		first = found != NULL ? pg_atomic_exchange_u32(&found->warned, 1) == 0 : !warned;

	warned = true;
	return first;
}

static inline uint64
nanoseconds(double ms)
{
	return ms > 0 ? (uint64) (ms * 1e6) : 0;
}

void
gpusort_stat_count(GpusortStatKind kind, const GpusortReport *report)
{
	const uint64 more[FIELDS] = {
		!report->failed, report->checked, report->failed,
		report->rows, Max(report->memory, report->gather_bytes), report->disk, report->runs, report->workers,
		nanoseconds(report->gather_ms), nanoseconds(report->copy_in_ms), nanoseconds(report->kernels_ms),
		nanoseconds(report->arrange_ms), nanoseconds(report->copy_out_ms), nanoseconds(report->wait_ms),
	};
	int			engine = engine_number(report->engine);
	Stat	   *stat = gpusort_shmem_attach(&shmem);
	Reason	   *reason = report->reason != NULL ? find_reason(kind, engine, report->reason) : NULL;

	for (int i = 0; stat != NULL && kind < KINDS && i < FIELDS; i++)
	{
		if (more[i] > 0)
			pg_atomic_fetch_add_u64(&stat->counters[kind][engine][i], more[i]);
	}
	if (reason != NULL)
		pg_atomic_fetch_add_u64(&reason->count, 1);
}

/* The session's last sort, and the user for whom it was done, who may be another one than the session's. */
static GpusortReport last_sort;
static char last_reason[256];	/* last_sort.reason points here, or is NULL */
static Oid	last_user;

void
gpusort_report_keep(const GpusortReport *report)
{
	last_sort = *report;
	last_user = GetUserId();
	if (report->reason != NULL)
	{
		strlcpy(last_reason, report->reason, sizeof(last_reason));
		last_sort.reason = last_reason;
	}
}

/* ---- sorts that run ---- */

void
gpusort_activity_end(GpusortActivity *activity)
{
	if (activity->place != NULL)
		activity->place->pid = 0;
	activity->place = NULL;
}

/* MemoryContextCallback */
static void
context_is_reset(void *arg)
{
	GpusortActivity *activity = arg;

	gpusort_activity_end(activity);
	activity->callback.func = NULL;
}

GpusortActivitySort
gpusort_activity_new_sort(double estimated_rows)
{
	static uint32 sorts_begun = 0;

	return (GpusortActivitySort) {MyProcPid, ++sorts_begun, Min(estimated_rows, MOST_ROWS)};
}

void
gpusort_activity_begin(GpusortActivity *activity, MemoryContext cxt, double estimated_rows)
{
	gpusort_activity_end(activity);
	if (activity->callback.func == NULL)
	{
		activity->callback.func = context_is_reset;
		activity->callback.arg = activity;
		MemoryContextRegisterResetCallback(cxt, &activity->callback);
	}
	activity->sort = gpusort_activity_new_sort(estimated_rows);
	activity->begun_at = GetCurrentTimestamp();
}

void
gpusort_activity_report(GpusortActivity *activity, GpusortPhase phase,
						uint64 rows, uint64 bytes, const char *engine)
{
	const GpusortPlace report = {
		.pid = MyProcPid,
		.role = MyProc->roleId,
		.sort = activity->sort,
		.begun_at = activity->begun_at,
		.phase = phase,
		.engine = engine != NULL ? engine_number(engine) : -1,
		.rows = rows,
		.bytes = bytes,
	};
	Stat	   *stat = shmem.mem;

	if (activity->place == NULL &&
		(GetCurrentTimestamp() < activity->begun_at + SHOWN_AFTER_US || (stat = gpusort_shmem_attach(&shmem)) == NULL))
		return;
	SpinLockAcquire(&stat->lock);
	for (int i = 0; activity->place == NULL && i < PLACES; i++)
	{
		if (stat->places[i].pid == 0)
			activity->place = &stat->places[i];
	}
	if (activity->place != NULL)
		*activity->place = report;
	SpinLockRelease(&stat->lock);
}

/* ---- functions of SQL ---- */

/* May the current user see the sorts of this role?  The rule is pg_stat_activity's. */
static bool
is_visible(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

static Datum
text_or_empty(const char *text)
{
	return CStringGetTextDatum(text != NULL ? text : "");
}

/*
 * gpusort_last_sort() returns record: NULL before the session's first sort, or if
 * that sort was done for a user whose activity the current user may not see
 */
Datum
gpusort_last_sort(PG_FUNCTION_ARGS)
{
	const GpusortReport *last = &last_sort;
	bool		device = last->copy_in_bytes > 0;
	Datum		values[] = {
		Int64GetDatum((int64) last->rows),
		text_or_empty(last->key_type),
		text_or_empty(last->engine),
		text_or_empty(last->algorithm),
		Float8GetDatum(last->gather_ms),
		Int64GetDatum((int64) last->gather_bytes),
		Float8GetDatum(last->copy_in_ms),
		Int64GetDatum((int64) last->copy_in_bytes),
		Float8GetDatum(last->kernels_ms),
		Float8GetDatum(last->copy_out_ms),
		Int64GetDatum((int64) last->copy_out_bytes),
		Float8GetDatum(last->return_ms),
		BoolGetDatum(last->pinned),
		Int32GetDatum(last->blocks),
		Int32GetDatum(last->threads),
		Int32GetDatum(last->bins),
		Float8GetDatum(last->total_ms),
		text_or_empty(last->reason),
	};
	bool		nulls[lengthof(values)] = {
		[3] = last->algorithm == NULL,
		[6] = !device, [7] = !device, [9] = !device, [10] = !device,
		[13] = last->blocks == 0, [14] = last->threads == 0, [15] = last->bins == 0,
		[17] = last->reason == NULL,
	};
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (last->engine == NULL || !is_visible(last_user))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}

/* Begins the result.  Without shared memory, warns and returns NULL. */
static Stat *
begin_list(FunctionCallInfo fcinfo)
{
	Stat	   *stat = gpusort_shmem_attach(&shmem);

	InitMaterializedSRF(fcinfo, 0);
	if (stat == NULL)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort cannot count what it does"),
				 errdetail("%s", shmem.refusal)));
	return stat;
}

/* gpusort_activity_list() returns setof record: a row for each process, which view gpusort_activity adds up */
Datum
gpusort_activity_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Stat	   *stat = begin_list(fcinfo);

	for (int i = 0; stat != NULL && i < PLACES; i++)
	{
		GpusortPlace place;

		SpinLockAcquire(&stat->lock);
		place = stat->places[i];
		SpinLockRelease(&stat->lock);
		if (place.pid != 0)
		{
			Datum		values[] = {
				Int32GetDatum(place.pid),
				Int32GetDatum(place.sort.leader),
				Int64GetDatum((int64) place.sort.number),
				CStringGetTextDatum(phases[place.phase]),
				Int64GetDatum((int64) place.rows),
				Int64GetDatum((int64) place.bytes),
				CStringGetTextDatum(engines[Max(place.engine, 0)]),
				TimestampTzGetDatum(place.begun_at),
				Int64GetDatum((int64) place.sort.estimated_rows),
				Float8GetDatum(100.0 * place.rows / Max(place.sort.estimated_rows, 1)),
			};
			bool		nulls[lengthof(values)] = {
				[1] = place.sort.leader == place.pid,
				[6] = place.engine < 0,
				[9] = place.phase != GPUSORT_PHASE_GATHERING || place.sort.estimated_rows == 0,
			};

			if (!is_visible(place.role))
				memset(nulls + 1, true, sizeof(nulls) - sizeof(nulls[0]));
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}

/* gpusort_stat_list() returns setof record: a row for each kind and engine */
Datum
gpusort_stat_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Stat	   *stat = begin_list(fcinfo);

	for (int n = 0; stat != NULL && n < KINDS * lengthof(engines); n++)
	{
		int			kind = n / lengthof(engines);
		int			engine = n % lengthof(engines);
		int			known = engine == CORE ? FIELD_ROWS : kind == GPUSORT_STAT_AGGREGATE ? FIELD_BYTES : FIELDS;
		Datum		values[FIELDS + 3];
		bool		nulls[FIELDS + 3] = {0};

		if ((kind == GPUSORT_STAT_FUNCTION && engine == CORE) || (kind == GPUSORT_STAT_AGGREGATE && engine != CPU))
			continue;
		values[0] = CStringGetTextDatum(kinds[kind]);
		values[1] = CStringGetTextDatum(engines[engine]);
		for (int i = 0; i < FIELDS; i++)
		{
			uint64		value = pg_atomic_read_u64(&stat->counters[kind][engine][i]);

			nulls[2 + i] = i >= known;
			values[2 + i] = i < FIELD_TIMES ? Int64GetDatum((int64) value) : Float8GetDatum(value / 1e6);
		}
		nulls[1] = kind == GPUSORT_STAT_AGGREGATE;	/* each of its aggregates may have another one */
		values[FIELDS + 2] = TimestampTzGetDatum((TimestampTz) pg_atomic_read_u64(&stat->reset_at));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* gpusort_stat_reason_list() returns setof record: a row for each reason that was counted */
Datum
gpusort_stat_reason_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Stat	   *stat = begin_list(fcinfo);

	for (int i = 0; stat != NULL && i < REASONS; i++)
	{
		const Reason *reason = &stat->reasons[i];
		uint64		count = pg_atomic_read_u64((pg_atomic_uint64 *) &reason->count);
		bool		other = i == REASONS - 1;
		Datum		values[4];
		bool		nulls[4] = {other, other};

		if (count == 0)
			continue;
		pg_read_barrier();
		values[0] = CStringGetTextDatum(kinds[reason->kind]);
		values[1] = CStringGetTextDatum(engines[reason->engine]);
		values[2] = CStringGetTextDatum(other ? "all other reasons" : reason->text);
		values[3] = Int64GetDatum((int64) count);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* gpusort_stat_reset() returns void */
Datum
gpusort_stat_reset(PG_FUNCTION_ARGS)
{
	Stat	   *stat = gpusort_shmem_attach(&shmem);
	pg_atomic_uint64 *counters;

	if (stat == NULL)
		PG_RETURN_VOID();
	counters = &stat->counters[0][0][0];
	for (int i = 0; i < KINDS * lengthof(engines) * FIELDS; i++)
		pg_atomic_write_u64(&counters[i], 0);
	for (int i = 0; i < REASONS; i++)
		pg_atomic_write_u64(&stat->reasons[i].count, 0);
	pg_atomic_write_u64(&stat->reset_at, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
