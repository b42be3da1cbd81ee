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

#include "run/run.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(argsort_checks);

extern Datum gpu_argsort(PG_FUNCTION_ARGS);

/* A run whose result is its rows in the order they came in, as one block. */
struct GpusortRun
{
	size_t		rows;
	uint32	   *result;			/* NULL: fetched */
};

static int64 checks;

void
ProcessInterrupts(void)
{
	checks++;
}

GpusortRun *
gpusort_run_begin(const GpusortRunSpec *spec)
{
	return palloc0(sizeof(GpusortRun));
}

void
gpusort_run_lend(GpusortRun *run, const void *words, size_t count, const GpusortEncoding *encoding)
{
	run->rows = count;
}

void
gpusort_run_sort(GpusortRun *run, void *out, uint8 *may_tie)
{
	run->result = out;
	for (size_t i = 0; i < run->rows; i++)
		run->result[i] = i;
}

bool
gpusort_run_fetch(GpusortRun *run, GpusortBlock *block)
{
	block->data = run->result;
	block->count = run->rows;
	run->result = NULL;
	return block->data != NULL;
}

void
gpusort_run_finish(GpusortRun *run, GpusortReport *report)
{
	*report = (GpusortReport) {0};
}

void
gpusort_report_keep(const GpusortReport *report)
{
}

void
gpusort_run_end(GpusortRun *run)
{
	pfree(run);
}

/* For arrays of smallint only, which are not lent. */
void *
gpusort_run_reserve(GpusortRun *run, size_t most, size_t *room)
{
	elog(ERROR, "not expected of this type");
}

void
gpusort_run_commit(GpusortRun *run, size_t count)
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
