/*-------------------------------------------------------------------------
 *
 * load.c
 *		Loads sorted rows into the pages of a btree.
 *
 * Writing a leaf, to the WAL and to the file, takes about as long as filling it.  So a thread
 * fills a batch of leaves while the backend ends and writes the batch before, in rounds of a few
 * milliseconds.  The backend fills leaves itself if it has no thread, if sorted runs are merged,
 * and from a row on that needs core's functions to the end of the batch.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"

#include "cpu/share.h"
#include "index/fill.h"
#include "index/tree.h"
#include "run/cpu_options.h"

typedef struct Loader
{
	GpusortFiller *filler;
	GpusortTree *tree;
	GpusortLeafBatch batches[2];
	int			filling;		/* this batch is filled, the other one written */
	GpusortFillStop stop;		/* why the filler has stopped */
	bool		failed;			/* writing has raised an error */
} Loader;

/* Runs in a thread. */
static void
fill(void *arg)
{
	Loader	   *loader = arg;

	loader->stop = gpusort_fill(loader->filler, &loader->batches[loader->filling], true);
}

/* Writes the other batch while the thread works: no error leaves this function, and no interrupt is served. */
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
	GpusortCpuOptions options = {.threads = 1};

	CHECK_FOR_INTERRUPTS();
	gpusort_tree_prepare(loader->tree, &loader->batches[loader->filling]);
	if (filler->build->gather.spill == NULL)
		options = gpusort_cpu_options_take(filler->sorted->count);
	loader->stop = GPUSORT_FILL_CORE;
	if (options.threads > 1)
		gpusort_share_two(write_beside, fill, loader, &options);
	gpusort_cpu_options_give(&options);
	if (loader->failed)
		PG_RE_THROW();
	gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
	if (loader->stop == GPUSORT_FILL_CORE)
		loader->stop = gpusort_fill(filler, &loader->batches[loader->filling], false);
	loader->filling = 1 - loader->filling;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, filler->rows);
}

/* Gets the rows behind those of the block.  Returns false if there are none. */
static bool
next_block(GpusortFiller *filler)
{
	GpusortGather *gather = &filler->build->gather;

	filler->next = 0;
	return gather->spill == NULL && gpusort_sort_next_block(gather, filler->sorted);
}

void
gpusort_index_load(GpusortIndexBuild *build, GpusortSorted *sorted)
{
	Loader	   *loader = palloc0(sizeof(Loader));
	GpusortLeafBatch *last;

	loader->tree = gpusort_tree_begin(build->heap, build->index);
	loader->filler = gpusort_fill_begin(build, sorted, gpusort_tree_is_equal_image(loader->tree));
	do
		run_round(loader);
	while (loader->stop != GPUSORT_FILL_ROWS || next_block(loader->filler));
	gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
	last = &loader->batches[loader->filling];
	gpusort_tree_prepare(loader->tree, last);
	gpusort_fill_end(loader->filler, last);
	gpusort_tree_write(loader->tree, last);
	gpusort_tree_end(loader->tree, &loader->filler->leaf);
}
