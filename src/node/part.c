/*-------------------------------------------------------------------------
 *
 * part.c
 *		Parallel workers gather rows, and the leader adopts them.
 *
 * In a worker, keys and rows go to shared memory (base/arena.h).  At the end the worker publishes
 * where they are, and the leader adopts them, without copying a row, and sorts all rows in one
 * key set.  If the worker's memory ends before, it sorts what it has, and writes a spilled run to a
 * file that the leader reads, and so on.  Then it publishes the runs, which the leader merges with
 * its own.  If they are many, the worker merges some before: it can write to its file again where it has read it.
 *
 * Equal rows stay in the order in which the leader adopts parts, behind the rows that it had before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"

#include "node/state.h"

void
gpusort_part_share(GpusortShared *shared, GpusortGather *gather, int processes)
{
	gpusort_spill_share(&shared->spill, gather->memory_limit, processes, gather->cxt);
	pg_atomic_init_u32(&shared->sample, 0);
	gather->shared = shared;
}

void
gpusort_part_take_back(GpusortPart *part)
{
	gpusort_arena_take_back(&part->file, !part->done);
}

void
gpusort_part_begin(GpusortPart *part, GpusortGather *gather, GpusortShared *shared)
{
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->arena = gpusort_arena_begin(&part->file);
	MemoryContextSwitchTo(old);
	gather->fed = true;
	gather->shared = shared;
}

void
gpusort_part_publish(GpusortPart *part, GpusortGather *gather)
{
	GpusortPublished *published = &part->published;

	memset(published, 0, sizeof(*published));
	published->nulls = gather->nulls;
	published->rows = gpusort_keyset_rows(gather->set);
	/* an arena may have no memory for a directory */
	if (gather->spill == NULL &&
		(published->rows == 0 ||
		 (gather->arena != NULL && gpusort_keyset_publish(gather->set, &published->keys) &&
		  (!gather->form->publish || gather->form->publish(gather, published)))))
		gpusort_keyset_end(gather->set);
	else
	{
		published->rows = 0;
		gpusort_gather_spill(gather);
		gpusort_gather_end_runs(gather);
		gpusort_spill_publish(gather->spill, &published->spilled);
		gpusort_spill_end(gather->spill);
		gather->spill = NULL;
	}
	gather->set = NULL;
	published->removed = gather->limit.removed;
	published->in = gather->check.in;
	published->dropped = gather->check.dropped;
	pg_write_barrier();
	part->done = true;
}

/* Returns the bytes of memory that the rows take. */
static Size
adopt_rows(GpusortGather *gather, GpusortPart *part)
{
	const GpusortPublished *published = &part->published;
	MemoryContext old;
	GpusortArena *arena;

	if (gpusort_keyset_rows(gather->set) + published->rows > gather->form->max_rows)
	{
		gpusort_gather_spill(gather);
		gpusort_gather_begin_set(gather);
	}
	old = MemoryContextSwitchTo(gather->set_cxt);
	arena = gpusort_arena_adopt(&part->file);
	MemoryContextSwitchTo(old);
	if (gather->form->adopt)
		gather->form->adopt(gather, arena, published);
	gpusort_keyset_adopt(gather->set, arena, published->keys);
	/* this process may fill as much memory of its own as without these rows */
	gather->adopted_bytes += part->file.used;
	gather->memory_limit += part->file.used;
	return part->file.used;
}

Size
gpusort_part_adopt(GpusortPart *part, GpusortGather *gather, int worker)
{
	const GpusortPublished *published = &part->published;

	gpusort_gather_choose(gather);
	gather->nulls += published->nulls;
	gather->limit.removed += published->removed;
	gpusort_checksum_join(&gather->check.in, &published->in);
	gpusort_checksum_join(&gather->check.dropped, &published->dropped);
	if (published->rows > 0)
		return adopt_rows(gather, part);
	gpusort_part_take_back(part);
	if (published->spilled.nruns > 0)
	{
		/* a run of the rows so far comes before those of the worker */
		gpusort_gather_spill(gather);
		gpusort_spill_adopt(gather->spill, &published->spilled, worker);
		/* the merge makes the words of the worker's rows again */
		if (published->spilled.lossy && gather->rows.key != NULL)
			gpusort_rowkey_end_few(gather->rows.key);
		gpusort_gather_begin_set(gather);
	}
	return 0;
}
