/*-------------------------------------------------------------------------
 *
 * spill_shared.c
 *		Hands the spilled runs of one process over to another process's spill.
 *
 * A parallel worker writes its runs to files of a set, and behind them a directory, which is
 * written as a run is.  The leader reads the directory, and merges the runs with its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/spill_state.h"

/* A callback of a memory context, which is called once: an interrupt would leave files behind. */
static void
remove_files(void *arg)
{
	HOLD_INTERRUPTS();
	FileSetDeleteAll(arg);
	RESUME_INTERRUPTS();
}

void
gpusort_spill_share(GpusortSpillShared *shared, MemoryContext cxt)
{
	MemoryContextCallback *callback = MemoryContextAlloc(cxt, sizeof(MemoryContextCallback));
	FileSet    *files = MemoryContextAlloc(cxt, sizeof(FileSet));

	FileSetInit(&shared->files);
	SpinLockInit(&shared->mutex);
	shared->adapted = false;
	/* the shared memory may end before the context */
	*files = shared->files;
	callback->func = remove_files;
	callback->arg = files;
	MemoryContextRegisterResetCallback(cxt, callback);
}

void
gpusort_spill_publish(GpusortSpill *spill, GpusortSpillPublished *published)
{
	const GpusortSpillFile *file = &spill->files[0];

	Assert(spill->nruns > 0);
	gpusort_spill_begin_run(spill);
	gpusort_spill_put_bytes(spill, spill->runs, spill->nruns * sizeof(GpusortSpillRun));
	gpusort_spill_close_output(spill);
	*published = (GpusortSpillPublished)
	{
		.nruns = spill->nruns,
			.directory = spill->out_run,
			.lossy = spill->lossy,
			.rows = spill->rows,
			.extent_bytes = file->extent_bytes,
			.nextents = file->nextents,
	};
}

void
gpusort_spill_adopt(GpusortSpill *spill, const GpusortSpillPublished *published, int worker)
{
	GpusortSpillRun directory = published->directory;
	int			number = spill->nfiles++;
	GpusortSpillInput input = {.buffer = spill->out_buffer};
	GpusortSpillFile *file;
	MemoryContext old = MemoryContextSwitchTo(spill->cxt);

	/* a merge has buffers for its own extents */
	if (published->extent_bytes > spill->files[0].extent_bytes)
		elog(ERROR, "the extents of a worker have %zu bytes instead of at most %zu", published->extent_bytes, spill->files[0].extent_bytes);
	spill->files = repalloc(spill->files, spill->nfiles * sizeof(GpusortSpillFile));
	file = &spill->files[number];
	gpusort_spillfile_begin(file, published->extent_bytes);
	gpusort_spillfile_share(file, &spill->shared->files, worker, true);
	file->nextents = published->nextents;
	MemoryContextSwitchTo(old);

	gpusort_spill_grow_runs(spill, published->nruns);
	directory.file = number;
	gpusort_spill_open_input(spill, &input, &directory);
	gpusort_spill_get_bytes(spill, &input, spill->runs + spill->nruns, published->nruns * sizeof(GpusortSpillRun));
	for (int i = 0; i < published->nruns; i++)
		spill->runs[spill->nruns + i].file = number;
	spill->nruns += published->nruns;
	spill->nwritten += published->nruns;
	spill->lossy |= published->lossy;
	spill->rows += published->rows;
}
