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

#include "sort/sort_state.h"

void
gpusort_part_share(GpusortShared *shared, GpusortStream *stream, int processes)
{
	gpusort_spill_share(&shared->spill, stream->memory_limit, processes, stream->cxt);
	pg_atomic_init_u32(&shared->sample, 0);
	stream->shared = shared;
}

void
gpusort_part_take_back(GpusortPart *part)
{
	gpusort_arena_take_back(&part->file, !part->done);
}

void
gpusort_part_begin(GpusortPart *part, GpusortStream *stream, GpusortShared *shared)
{
	MemoryContext old = MemoryContextSwitchTo(stream->cxt);

	stream->arena = gpusort_arena_begin(&part->file);
	MemoryContextSwitchTo(old);
	stream->fed = true;
	stream->shared = shared;
}

void
gpusort_part_publish(GpusortPart *part, GpusortStream *stream)
{
	GpusortPublished *published = &part->published;

	memset(published, 0, sizeof(*published));
	published->nulls = stream->nulls;
	published->rows = gpusort_keyset_rows(stream->set);
	/* an arena may have no memory for a directory */
	if (stream->spill == NULL &&
		(published->rows == 0 ||
		 (stream->arena != NULL && gpusort_keyset_publish(stream->set, &published->keys) &&
		  (!stream->form->publish || stream->form->publish(stream, published)))))
		gpusort_keyset_end(stream->set);
	else
	{
		published->rows = 0;
		gpusort_gather_spill(stream);
		gpusort_gather_end_runs(stream);
		gpusort_spill_publish(stream->spill, &published->spilled);
		gpusort_spill_end(stream->spill);
		stream->spill = NULL;
	}
	stream->set = NULL;
	published->removed = stream->limit.removed;
	published->in = stream->check.in;
	published->dropped = stream->check.dropped;
	pg_write_barrier();
	part->done = true;
}

/* Returns the bytes of memory that the rows take. */
static Size
adopt_rows(GpusortStream *stream, GpusortPart *part)
{
	const GpusortPublished *published = &part->published;
	MemoryContext old;
	GpusortArena *arena;

	if (gpusort_keyset_rows(stream->set) + published->rows > stream->form->max_rows)
	{
		gpusort_gather_spill(stream);
		gpusort_gather_begin_set(stream);
	}
	old = MemoryContextSwitchTo(stream->set_cxt);
	arena = gpusort_arena_adopt(&part->file);
	MemoryContextSwitchTo(old);
	if (stream->form->adopt)
		stream->form->adopt(stream, arena, published);
	gpusort_keyset_adopt(stream->set, arena, published->keys);
	/* this process may fill as much memory of its own as without these rows */
	stream->adopted_bytes += part->file.used;
	stream->memory_limit += part->file.used;
	return part->file.used;
}

Size
gpusort_part_adopt(GpusortPart *part, GpusortStream *stream, int worker)
{
	const GpusortPublished *published = &part->published;

	gpusort_gather_choose(stream);
	stream->nulls += published->nulls;
	stream->limit.removed += published->removed;
	gpusort_checksum_join(&stream->check.in, &published->in);
	gpusort_checksum_join(&stream->check.dropped, &published->dropped);
	if (published->rows > 0)
		return adopt_rows(stream, part);
	gpusort_part_take_back(part);
	if (published->spilled.nruns > 0)
	{
		/* a run of the rows so far comes before those of the worker */
		gpusort_gather_spill(stream);
		gpusort_spill_adopt(stream->spill, &published->spilled, worker);
		/* the merge makes the words of the worker's rows again */
		if (published->spilled.lossy && stream->rows.key != NULL)
			gpusort_rowkey_end_few(stream->rows.key);
		gpusort_gather_begin_set(stream);
	}
	return 0;
}
