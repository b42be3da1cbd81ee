/*-------------------------------------------------------------------------
 *
 * part.c
 *		Parallel workers gather rows, and the leader adopts them.
 *
 * In a worker, keys and rows go to shared memory (base/arena.h).  At the end the worker publishes
 * where they are, and the leader adopts them, without copying a row, and sorts all rows in one
 * key set.  If the worker's memory ends before, it sorts what it has, and writes a spilled run to a
 * file that the leader reads, and so on.  Then it publishes the runs, which the leader merges with
 * its own.
 *
 * The words of their keys must be comparable.  Where a sample of rows decides how keys are made, it is that of the process
 * which has one first.  A worker without rows needs no key, and the leader chooses when it adopts the first part.
 *
 * Equal rows stay in the order in which the leader adopts parts, behind the rows that it had before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/atomics.h"

#include "base/arena.h"
#include "node/state.h"

/* States of the sample */
#define SAMPLE_WRITTEN		1
#define SAMPLE_COMPLETE		2

/* Microseconds between two looks at a sample that is being written, which takes some 100 us */
#define SAMPLE_WAIT			50

void
gpusort_part_share(GpusortShared *shared, GpusortGather *gather)
{
	gpusort_spill_share(&shared->spill, gather->cxt);
	pg_atomic_init_u32(&shared->sample, 0);
	gather->shared = shared;
}

/* Writes the rows of the store as the sample, as many as it has room for. */
static void
write_sample(GpusortShared *shared, const GpusortGather *gather, double expected)
{
	const GpusortRowStore *store = &gather->rows.store;
	Size		used = 0;

	shared->expected = expected;
	shared->rows = 0;
	while (shared->rows < store->rows)
	{
		const void *row = gpusort_rowstore_row(store, shared->rows);
		Size		bytes = gpusort_row_bytes(row, store->bare);

		if (used + bytes > GPUSORT_SAMPLE_BYTES)
			break;
		memcpy(shared->data + used, row, bytes);
		used += MAXALIGN(bytes);
		shared->rows++;
	}
}

/* The sample, and a slot for its rows */
typedef struct Sample
{
	char	  **rows;
	bool		bare;
	TupleTableSlot *slot;
} Sample;

/* A GpusortSampleRow */
static TupleTableSlot *
sample_row(void *arg, uint32 i)
{
	Sample	   *sample = arg;

	gpusort_row_put(sample->rows[i], sample->bare, sample->slot);
	return sample->slot;
}

void
gpusort_part_choose(GpusortGather *gather, double expected)
{
	GpusortShared *shared = gather->shared;
	Sample		sample = {.bare = gather->spec->bare, .slot = gather->left};
	uint32		state = 0;
	char	   *row = shared->data;

	if (gather->rows.store.rows > 0 && pg_atomic_compare_exchange_u32(&shared->sample, &state, SAMPLE_WRITTEN))
	{
		write_sample(shared, gather, expected);
		pg_write_barrier();
		pg_atomic_write_u32(&shared->sample, SAMPLE_COMPLETE);
	}
	while (pg_atomic_read_u32(&shared->sample) == SAMPLE_WRITTEN)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(SAMPLE_WAIT);
	}
	if (pg_atomic_read_u32(&shared->sample) != SAMPLE_COMPLETE)
	{
		/* no process has had a row so far */
		gpusort_rows_choose(gather, NULL, NULL, 0, 0);
		return;
	}
	pg_read_barrier();
	sample.rows = palloc(shared->rows * sizeof(char *));
	for (uint32 i = 0; i < shared->rows; i++)
	{
		sample.rows[i] = row;
		row += MAXALIGN(gpusort_row_bytes(row, sample.bare));
	}
	gpusort_rows_choose(gather, sample_row, &sample, shared->rows, shared->expected);
	if (gpusort_rowkey_keeps_values(gather->rows.key))
	{
		uint64		words[GPUSORT_MAX_WORDS];

		for (uint32 i = 0; i < shared->rows; i++)
			gpusort_rowkey_encode(gather->rows.key, sample_row(&sample, i), words);
		gpusort_rowkey_keep_no_more(gather->rows.key);
	}
	ExecClearTuple(gather->left);
	pfree(sample.rows);
}

void
gpusort_part_lend(GpusortPart *part)
{
	part->done = false;
	gpusort_arena_lend(&part->file);
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

/* Publishes rows in the arena.  Returns false if it has no memory for a directory. */
static bool
publish_rows(GpusortGather *gather, GpusortPublished *published)
{
	published->rows = gpusort_keyset_rows(gather->set);
	return published->rows == 0 ||
		(gather->arena != NULL && gpusort_keyset_publish(gather->set, &published->keys) &&
		 (!gather->form->publish || gather->form->publish(gather, published)));
}

void
gpusort_part_publish(GpusortPart *part, GpusortGather *gather)
{
	GpusortPublished *published = &part->published;

	memset(published, 0, sizeof(*published));
	published->nulls = gather->nulls;
	if (gather->spill == NULL && publish_rows(gather, published))
		gpusort_keyset_end(gather->set);
	else
	{
		published->rows = 0;
		gpusort_gather_spill(gather);
		gpusort_spill_publish(gather->spill, &published->spilled);
		gpusort_spill_end(gather->spill);
		gather->spill = NULL;
	}
	gather->set = NULL;
	published->removed = gather->limit.removed;
	pg_write_barrier();
	part->done = true;
}

/* Returns the bytes of memory that the rows take. */
static Size
adopt_rows(GpusortGather *gather, GpusortPart *part)
{
	const GpusortPublished *published = &part->published;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);
	GpusortArena *arena = gpusort_arena_read(&part->file);

	MemoryContextSwitchTo(old);
	if (gpusort_keyset_rows(gather->set) + published->rows > gather->form->max_rows)
	{
		gpusort_gather_spill(gather);
		gpusort_gather_begin_set(gather);
	}
	if (gather->form->adopt)
		gather->form->adopt(gather, arena, published);
	gpusort_keyset_adopt(gather->set, arena, published->keys);
	gpusort_arena_adopt(arena, gather->adopted_cxt);
	/* this process may fill as much memory of its own as without these rows */
	gather->adopted_bytes += gpusort_arena_bytes(arena);
	gather->memory_limit += gpusort_arena_bytes(arena);
	return gpusort_arena_bytes(arena);
}

Size
gpusort_part_adopt(GpusortPart *part, GpusortGather *gather, int worker)
{
	const GpusortPublished *published = &part->published;

	if (gather->set == NULL)
		gpusort_rows_settle(gather, false);
	gather->nulls += published->nulls;
	gather->limit.removed += published->removed;
	if (published->rows > 0)
		return adopt_rows(gather, part);
	gpusort_part_take_back(part);
	if (published->spilled.nruns > 0)
	{
		/* a run of the rows so far comes before those of the worker */
		gpusort_gather_spill(gather);
		gpusort_spill_adopt(gather->spill, &published->spilled, worker);
		gpusort_gather_begin_set(gather);
	}
	return 0;
}
