/*-------------------------------------------------------------------------
 *
 * load.c
 *		Loads sorted rows into the pages of a btree.
 *
 * Leaves are filled, and written to the WAL and to the file: each takes about as long.  So both go on at a time, in rounds of
 * a few milliseconds.  The backend ends and writes the leaves of the round before, and a thread fills leaves.
 *
 * The backend fills leaves itself if it has no thread, or if sorted runs are merged.  If a row needs
 * core's functions, the thread stops there, and the backend fills the rest of the batch.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"

#include "cpu/cpu.h"
#include "index/btree.h"
#include "run/cpu_options.h"

/* The first batch has twice as many leaves. */
#define FIRST_LEAVES	4

typedef struct Loader
{
	GpusortFiller *filler;
	GpusortTree *tree;
	GpusortLeafBatch batches[2];
	int			filling;		/* this batch is filled, the other one written */
	int			leaves;			/* of the batch, at most: few at first, since a small index takes no more */
	GpusortFillStop stop;		/* why the filler has stopped */
	bool		failed;			/* writing has raised an error */
} Loader;

/* Fills a batch.  Runs in a thread. */
static void
fill(void *arg)
{
	Loader	   *loader = arg;

	loader->stop = gpusort_fill(loader->filler, &loader->batches[loader->filling], true);
}

/* Writes the other batch while a thread works: no error leaves this function, and no interrupt is served. */
static void
write_beside(void *arg)
{
	Loader	   *loader = arg;

	PG_TRY();
	{
		HOLD_INTERRUPTS();
		gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
		RESUME_INTERRUPTS();
	}
	PG_CATCH();
	{
		loader->failed = true;
	}
	PG_END_TRY();
}

/* Fills a batch and writes the one before. */
static void
run_round(Loader *loader)
{
	GpusortFiller *filler = loader->filler;
	bool		threads = false;

	CHECK_FOR_INTERRUPTS();
	loader->leaves = Min(2 * loader->leaves, GPUSORT_BATCH_LEAVES);
	gpusort_tree_prepare(loader->tree, &loader->batches[loader->filling], loader->leaves);
	if (filler->sorted != NULL)
		threads = gpusort_cpu_options_take(Min(filler->sorted->count, GPUSORT_TWO_THREADS_ROWS)).threads > 1;
	loader->stop = GPUSORT_FILL_CORE;
	if (threads)
		gpusort_beside(write_beside, fill, loader);
	gpusort_cpu_options_give();
	if (loader->failed)
		PG_RE_THROW();
	if (!threads)
		gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
	if (loader->stop == GPUSORT_FILL_CORE)
		loader->stop = gpusort_fill(filler, &loader->batches[loader->filling], false);
	loader->filling = 1 - loader->filling;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, filler->rows);
}

void
gpusort_index_load(GpusortIndexBuild *build)
{
	Loader	   *loader = palloc0(sizeof(Loader));
	GpusortLeafBatch *last;

	loader->tree = gpusort_tree_begin(build->heap, build->index, build->check);
	loader->filler = gpusort_fill_begin(build);
	loader->leaves = FIRST_LEAVES;
	do
		run_round(loader);
	while (loader->stop != GPUSORT_FILL_ROWS);
	gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
	last = &loader->batches[loader->filling];
	gpusort_tree_prepare(loader->tree, last, 1);
	gpusort_fill_end(loader->filler, last);
	gpusort_tree_write(loader->tree, last);
	gpusort_tree_end(loader->tree, &loader->filler->leaf);
	if (build->check != NULL)
		gpusort_index_check_end(build->check);
}
