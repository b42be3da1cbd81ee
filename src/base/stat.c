/*-------------------------------------------------------------------------
 *
 * stat.c
 *		Counters of all processes, for the views gpusort_stat and gpusort_stat_reasons, and
 *		the report of a session's last sort, for gpusort_last_sort().
 *
 * A sort adds its figures once, by atomic additions to the counters of its kind and engine.
 *
 * The reasons are a table of texts to which processes only append: the first nreasons of them
 * are final, and are read without a lock.  Everybody may read them, and nobody shall fill the
 * table, so names and numbers are taken out of a text.  All that come when the table is full
 * share its last place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "base/shmem.h"
#include "base/stat.h"

#define KINDS			GPUSORT_STAT_PLAN	/* that have counters */
#define REASONS			64
#define REASON_BYTES	106		/* of a text that is kept */

static const char *const kinds[] = {"sort", "index", "function", "aggregate", "plan"};
static const char *const engines[] = {"core", "cpu", "cuda"};

#define CORE			0
#define CPU				1

/* The columns of gpusort_stat_list() behind kind and engine; times are in ns */
typedef enum Field
{
	COUNT,
	CHECKED,
	FAILURES,
	ROWS,
	BYTES,
	DISK_BYTES,
	RUNS,
	WORKERS,
	GATHER,						/* the first time */
	COPY_IN,
	SORT,
	ARRANGE,
	COPY_OUT,
	WAIT,
	FIELDS
} Field;

typedef struct Reason
{
	pg_atomic_uint64 count;
	pg_atomic_uint32 warned;	/* a session was warned */
	uint8		kind;
	uint8		engine;
	char		text[REASON_BYTES];
} Reason;

/* In main shared memory */
typedef struct Stat
{
	pg_atomic_uint64 reset_at;	/* TimestampTz */
	pg_atomic_uint64 counters[KINDS][lengthof(engines)][FIELDS];
	slock_t		lock;			/* of those who append a reason */
	pg_atomic_uint32 nreasons;
	Reason		reasons[REASONS];
} Stat;

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

/* Returns the number of a reason among those from first to nreasons, or nreasons. */
static uint32
search_reasons(const Stat *stat, const Reason *wanted, uint32 first, uint32 nreasons)
{
	while (first < nreasons && (stat->reasons[first].kind != wanted->kind || stat->reasons[first].engine != wanted->engine ||
								strcmp(stat->reasons[first].text, wanted->text) != 0))
		first++;
	return first;
}

/* Finds a reason in the table, or adds it.  Returns NULL if there is no shared memory. */
static Reason *
find_reason(GpusortStatKind kind, int engine, const char *reason)
{
	Reason		wanted = {.kind = kind, .engine = engine};
	Stat	   *stat = gpusort_shmem_attach(&shmem);
	uint32		nreasons;
	uint32		i;

	if (stat == NULL)
		return NULL;
	copy_reason(reason, wanted.text);
	nreasons = pg_atomic_read_u32(&stat->nreasons);
	pg_read_barrier();
	i = search_reasons(stat, &wanted, 0, nreasons);
	if (i < nreasons || nreasons == REASONS)
		return &stat->reasons[Min(i, REASONS - 1)];
	SpinLockAcquire(&stat->lock);
	i = nreasons;
	nreasons = pg_atomic_read_u32(&stat->nreasons);
	i = search_reasons(stat, &wanted, i, nreasons);
	if (i == nreasons && i < REASONS)
	{
		stat->reasons[i].kind = kind;
		stat->reasons[i].engine = engine;
		strlcpy(stat->reasons[i].text, i < REASONS - 1 ? wanted.text : "all other reasons", REASON_BYTES);
		pg_write_barrier();
		pg_atomic_write_u32(&stat->nreasons, nreasons + 1);
	}
	SpinLockRelease(&stat->lock);
	return &stat->reasons[Min(i, REASONS - 1)];
}

void
gpusort_stat_reason(GpusortStatKind kind, const char *engine, const char *reason)
{
	Reason	   *place = find_reason(kind, engine_number(engine), reason);

	if (place != NULL)
		pg_atomic_fetch_add_u64(&place->count, 1);
}

bool
gpusort_stat_first_warning(const char *reason)
{
	static bool warned = false;
	Reason	   *place = find_reason(GPUSORT_STAT_FUNCTION, CPU, reason);
	bool		first = place != NULL ? pg_atomic_exchange_u32(&place->warned, 1) == 0 : !warned;

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
		[COUNT] = 1,
		[CHECKED] = report->checked,
		[ROWS] = report->rows,
		[BYTES] = Max(report->memory, report->gather_bytes),
		[DISK_BYTES] = report->disk,
		[RUNS] = report->runs,
		[WORKERS] = report->workers,
		[GATHER] = nanoseconds(report->gather_ms),
		[COPY_IN] = nanoseconds(report->copy_in_ms),
		[SORT] = nanoseconds(report->kernels_ms),
		[ARRANGE] = nanoseconds(report->arrange_ms),
		[COPY_OUT] = nanoseconds(report->copy_out_ms),
		[WAIT] = nanoseconds(report->wait_ms),
	};
	int			engine = engine_number(report->engine);
	Stat	   *stat = gpusort_shmem_attach(&shmem);

	for (int i = 0; stat != NULL && i < FIELDS; i++)
	{
		if (more[i] > 0)
			pg_atomic_fetch_add_u64(&stat->counters[kind][engine][i], more[i]);
	}
	if (report->reason != NULL)
		gpusort_stat_reason(kind, report->engine, report->reason);
}

void
gpusort_stat_count_failure(GpusortStatKind kind, const char *engine)
{
	Stat	   *stat = gpusort_shmem_attach(&shmem);

	if (stat != NULL)
		pg_atomic_fetch_add_u64(&stat->counters[kind][engine_number(engine)][FAILURES], 1);
}

/* All zero, with a NULL engine, before the session's first sort. */
static GpusortReport last_sort;
static char last_reason[256];	/* last_sort.reason points here, or is NULL */

/*
 * The user for whom the sort was done.  This may be another user than the
 * session's: a SECURITY DEFINER function and SET ROLE change the current user.
 */
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

const GpusortReport *
gpusort_report_last(Oid *user)
{
	*user = last_user;
	return &last_sort;
}

/*
 * Functions of the views
 */

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
		int			known = engine == CORE ? ROWS : kind == GPUSORT_STAT_AGGREGATE ? BYTES : FIELDS;
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
			values[2 + i] = i < GATHER ? Int64GetDatum((int64) value) : Float8GetDatum(value / 1e6);
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
	uint32		nreasons = stat != NULL ? pg_atomic_read_u32(&stat->nreasons) : 0;

	pg_read_barrier();
	for (uint32 i = 0; i < nreasons; i++)
	{
		const Reason *reason = &stat->reasons[i];
		uint64		count = pg_atomic_read_u64((pg_atomic_uint64 *) &reason->count);
		Datum		values[] = {CStringGetTextDatum(kinds[reason->kind]), CStringGetTextDatum(engines[reason->engine]),
		CStringGetTextDatum(reason->text), Int64GetDatum((int64) count)};
		bool		other = i == REASONS - 1;
		bool		nulls[] = {other, other, false, false};

		if (count > 0)
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* gpusort_stat_reset() returns void */
Datum
gpusort_stat_reset(PG_FUNCTION_ARGS)
{
	Stat	   *stat = gpusort_shmem_attach(&shmem);
	pg_atomic_uint64 *counters = stat != NULL ? &stat->counters[0][0][0] : NULL;

	for (int i = 0; stat != NULL && i < KINDS * lengthof(engines) * FIELDS; i++)
		pg_atomic_write_u64(&counters[i], 0);
	for (int i = 0; stat != NULL && i < REASONS; i++)
		pg_atomic_write_u64(&stat->reasons[i].count, 0);
	if (stat != NULL)
		pg_atomic_write_u64(&stat->reset_at, (uint64) GetCurrentTimestamp());
	PG_RETURN_VOID();
}
