/*-------------------------------------------------------------------------
 *
 * interrupts_test.c
 *		How often gpu_argsort() checks for interrupts, for test/t/026_interrupts.pl.
 *
 * The module has its own copy of src/functions/array.c, of which each
 * CHECK_FOR_INTERRUPTS() ends in the ProcessInterrupts() below, and a run that
 * sorts nothing.  So the checks that are counted are those of array.c's own
 * loops, and their number does not depend on the machine's speed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/stat.h"
#include "guc.h"
#include "run/run.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(argsort_checks);

extern Datum gpu_argsort(PG_FUNCTION_ARGS);

/* A run whose result is its rows in the order they came in. */
struct GpusortKeySet
{
	size_t		rows;
};

static int64 checks;

void
ProcessInterrupts(void)
{
	checks++;
}

GpusortKeySet *
gpusort_keyset_begin(const GpusortKeySetSpec *spec)
{
	return palloc0(sizeof(GpusortKeySet));
}

void
gpusort_keyset_lend(GpusortKeySet *set, const void *words, size_t count, const GpusortEncoding *encoding)
{
	set->rows = count;
}

void *
gpusort_keyset_sort(GpusortKeySet *set, void *out, uint8 *ties, const GpusortRowSpan *spans, int nspans)
{
	for (size_t i = 0; i < set->rows; i++)
		((uint32 *) out)[i] = i;
	return out;
}

uint64_t
gpusort_keyset_rows(const GpusortKeySet *set)
{
	return set->rows;
}

void
gpusort_keyset_finish(GpusortKeySet *set, GpusortReport *report)
{
	*report = (GpusortReport) {0};
}

void
gpusort_report_keep(const GpusortReport *report)
{
}

void
gpusort_stat_count(GpusortStatKind kind, const GpusortReport *report)
{
}

/* Results are not checked, so that none of these is called. */
bool		gpusort_verify = false;
int			gpusort_min_rows = 0;

const char *
gpusort_keyset_engine(const GpusortKeySet *set)
{
	return NULL;
}

const void *
gpusort_keyset_keys(const GpusortKeySet *set, uint64_t row, uint64_t *count)
{
	return NULL;
}

/* For few values only, which gpusort.min_rows leaves to the key set here */
void
gpusort_cpu_sort_few(void *keys, size_t count, int key_bytes)
{
}

void
gpusort_keyset_end(GpusortKeySet *set)
{
	pfree(set);
}

/* For arrays of smallint only, which are not lent. */
void *
gpusort_keyset_reserve(GpusortKeySet *set, size_t most, size_t *room)
{
	elog(ERROR, "not expected of this type");
}

void
gpusort_keyset_commit(GpusortKeySet *set, size_t count)
{
	elog(ERROR, "not expected of this type");
}

/* argsort_checks(anyarray) returns bigint: the checks during gpu_argsort() of that array */
Datum
argsort_checks(PG_FUNCTION_ARGS)
{
	checks = 0;
	InterruptPending = true;
	(void) gpu_argsort(fcinfo);
	InterruptPending = false;
	PG_RETURN_INT64(checks);
}
