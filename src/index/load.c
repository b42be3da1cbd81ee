/*-------------------------------------------------------------------------
 *
 * load.c
 *		Loads sorted rows into the pages of a btree.
 *
 * Rows are fetched, leaves are filled, and leaves are written, to the WAL and to the file: each takes
 * about as long.  So the three go on at a time, in rounds of a few milliseconds.  The backend ends
 * and writes the leaves of the round before, a thread fills leaves with the rows of a window,
 * and each thread that has nothing else to do copies rows to the next window (sort/window.c).
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
#include "run/run.h"

/* The most bytes of a window, which are those of a batch's leaves, and its most rows */
#define WINDOW_BYTES	(GPUSORT_BATCH_LEAVES * BLCKSZ)
#define WINDOW_ROWS		32768

/* The first batch has twice as many leaves. */
#define FIRST_LEAVES	4

typedef struct Loader
{
	GpusortFiller *filler;
	GpusortTree *tree;
	GpusortLeafBatch batches[2];
	int			filling;		/* this batch is filled, the other one written */
	int			leaves;			/* of the batch, at most: few at first, since a small index takes no more */
	GpusortWindow windows[2];
	int			reading;		/* this window is read, the other one filled */
	GpusortFillStop stop;		/* why the filler has stopped */
	uint64		rows;			/* sorted in memory; 0: they come from a merge */
	bool		failed;			/* writing has raised an error */
} Loader;

/* Fills a batch.  Runs in a thread. */
static void
fill(void *arg)
{
	Loader	   *loader = arg;

	loader->stop = gpusort_fill(loader->filler, &loader->batches[loader->filling], true);
}

/* Writes the other batch while threads work: no error leaves this function, and no interrupt is served. */
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

/* Fills a part of the other window.  A GpusortShareWork */
static void
fetch(void *arg, size_t begin, size_t end)
{
	Loader	   *loader = arg;

	gpusort_window_fill(&loader->windows[1 - loader->reading], begin, end);
}

/* ---- windows ---- */

/* Begins with empty windows, behind which all rows are still to come; or, if none are used, with all rows. */
static void
begin_windows(Loader *loader)
{
	GpusortFiller *filler = loader->filler;
	GpusortStream *stream = filler->build->stream;

	filler->window = &loader->windows[loader->reading];
	filler->end = loader->rows;
	if (filler->build->words != NULL || loader->rows == 0 || !gpusort_window_pays(stream))
		return;
	filler->end = 0;
	for (int i = 0; i < 2; i++)
		gpusort_window_init(&loader->windows[i], stream, WINDOW_ROWS, WINDOW_BYTES);
}

/* Moves the other window behind the rows that are being read, unless it is there.  Returns its rows that must be fetched. */
static uint64
move_window(Loader *loader)
{
	GpusortWindow *window = &loader->windows[1 - loader->reading];
	uint64		begin = loader->filler->end;
	uint64		left = loader->rows - begin;

	if (left == 0 || window->begin + window->count > begin)
		return 0;
	return gpusort_window_move(window, begin, Min(left, window->max_count)) ? window->count : 0;
}

/* Leaves the rows of a window in the store. */
static void
skip_window(GpusortWindow *window)
{
	window->begin += window->count;
	window->count = 0;
}

/* The rows of a window are in leaves: reads the other one.  Returns false at the end of the block, or if there is none. */
static bool
turn_window(Loader *loader)
{
	GpusortFiller *filler = loader->filler;

	if (filler->end == loader->rows)
		return false;
	loader->windows[loader->reading].count = 0;
	loader->reading = 1 - loader->reading;
	filler->window = &loader->windows[loader->reading];
	filler->end = filler->window->begin + filler->window->count;
	return true;
}

/* ---- the load ---- */

/* Fills a batch and writes the one before. */
static void
run_round(Loader *loader)
{
	GpusortFiller *filler = loader->filler;
	GpusortCpuOptions options = {.threads = 1};
	uint64		rows;

	CHECK_FOR_INTERRUPTS();
	loader->leaves = Min(2 * loader->leaves, GPUSORT_BATCH_LEAVES);
	gpusort_tree_prepare(loader->tree, &loader->batches[loader->filling], loader->leaves);
	rows = move_window(loader);
	if (filler->sorted != NULL)
		options = gpusort_cpu_options_take(rows > 0 ? loader->rows : Min(loader->rows, GPUSORT_TWO_THREADS_ROWS));
	loader->stop = GPUSORT_FILL_CORE;
	if (options.threads > 1)
		gpusort_share_beside(write_beside, fill, rows, GPUSORT_WINDOW_PART, fetch, loader, &options);
	gpusort_cpu_options_give();
	if (loader->failed)
		PG_RE_THROW();
	if (options.threads == 1)
	{
		gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
		if (rows > 0)
			skip_window(&loader->windows[1 - loader->reading]);
	}
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
	loader->rows = loader->filler->sorted != NULL ? loader->filler->sorted->count : 0;
	loader->leaves = FIRST_LEAVES;
	begin_windows(loader);
	do
		run_round(loader);
	while (loader->stop != GPUSORT_FILL_ROWS || turn_window(loader));
	gpusort_tree_write(loader->tree, &loader->batches[1 - loader->filling]);
	last = &loader->batches[loader->filling];
	gpusort_tree_prepare(loader->tree, last, 1);
	gpusort_fill_end(loader->filler, last);
	gpusort_tree_write(loader->tree, last);
	gpusort_tree_end(loader->tree, &loader->filler->leaf);
	if (build->check != NULL)
		gpusort_index_check_end(build->check);
}
