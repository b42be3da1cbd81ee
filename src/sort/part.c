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
 * The words of all processes must be comparable.  Where the first rows decide how keys are made, the process that has a
 * sample first puts it into shared memory, and all choose by the same rows.  The leader, if it has no sample when it has read
 * its last row, chooses when it adopts the first part: until then another process may have more rows.
 *
 * The files of the arenas are the leader's.  It takes back those that it has not adopted when it detaches from the
 * shared memory: whether the query ends, fails or is cancelled.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/atomics.h"

#include "base/arena.h"
#include "base/pages.h"
#include "sort/sort_steps.h"

/* States of the sample */
#define SAMPLE_WRITTEN		1
#define SAMPLE_COMPLETE		2

/* Microseconds between two looks at a sample that is being written, which takes some 100 us */
#define SAMPLE_WAIT			50

/* Adds the figures of one more sort: rows and ms are sums, the others are maxima. */
static void
add_figures(GpusortParticipant *participant, const GpusortParticipant *more)
{
	participant->sorts += more->sorts;
	participant->rows += more->rows;
	participant->memory = Max(participant->memory, more->memory);
	participant->disk = Max(participant->disk, more->disk);
	participant->runs = Max(participant->runs, more->runs);
	participant->ms += more->ms;
}

/* ---- the leader, before ---- */

Size
gpusort_parts_bytes(int workers)
{
	return offsetof(GpusortParts, parts) + workers * sizeof(GpusortPart);
}

/* Raises no error.  Also a callback of the segment. */
static void
take_back_files(dsm_segment *segment, Datum arg)
{
	GpusortParts *parts = (GpusortParts *) DatumGetPointer(arg);

	for (int i = 0; i < parts->n; i++)
		gpusort_arena_take_back(&parts->parts[i].file,
								parts->every ? pg_atomic_read_u32(&parts->readers) > 0 : !parts->parts[i].done);
}

void
gpusort_parts_init(GpusortParts *parts, int workers, dsm_segment *segment)
{
	memset(parts, 0, gpusort_parts_bytes(workers));
	parts->n = workers;
	parts->shared = segment != NULL;
	pg_atomic_init_u32(&parts->readers, 0);
	if (segment != NULL)
		on_dsm_detach(segment, take_back_files, PointerGetDatum(parts));
}

/* Lends a file to each process that publishes, and prepares what they share.  cxt: removes files of spilled runs */
static void
lend(GpusortParts *parts, MemoryContext cxt)
{
	for (int i = 0; i < parts->n; i++)
		gpusort_arena_lend(&parts->parts[i].file);
	gpusort_spill_share(&parts->all.spill, parts->memory, parts->n + 1, cxt);
	pg_atomic_init_u32(&parts->all.sample, 0);
}

void
gpusort_parts_begin(GpusortParts *parts, GpusortStream *stream, int planned)
{
	take_back_files(NULL, PointerGetDatum(parts));
	memset(parts->parts, 0, parts->n * sizeof(GpusortPart));
	parts->memory = stream->memory_limit;
	parts->verified = stream->check.on;
	parts->limit = stream->limit.rows;
	parts->sort = stream->activity.sort;
	stream->memory_limit += (planned - parts->n) * parts->memory;
	if (!parts->shared || stream->state == GPUSORT_STREAM_LEFT)
		return;
	lend(parts, stream->cxt);
	stream->shared = &parts->all;
}

void
gpusort_parts_open(GpusortParts *parts, const GpusortStreamInput *input, MemoryContext cxt)
{
	take_back_files(NULL, PointerGetDatum(parts));
	memset(parts->parts, 0, parts->n * sizeof(GpusortPart));
	pg_atomic_write_u32(&parts->readers, 0);
	parts->every = true;
	parts->memory = input->memory;
	parts->verified = input->verified;
	parts->limit = input->limit;
	parts->sort = gpusort_activity_new_sort(input->expected);
	lend(parts, cxt);
}

/* ---- a process that publishes ---- */

static GpusortPart *
own_part(GpusortParts *parts)
{
	return &parts->parts[IsParallelWorker() ? ParallelWorkerNumber : GPUSORT_PARTS_LEADER(parts)];
}

void
gpusort_parts_input(const GpusortParts *parts, GpusortStreamInput *input)
{
	input->verified = parts->verified;
	input->limit = parts->limit;
	input->memory = parts->memory;
	input->fed = true;
}

void
gpusort_parts_join(GpusortParts *parts, GpusortStream *stream)
{
	GpusortPart *part = own_part(parts);
	MemoryContext old = MemoryContextSwitchTo(stream->cxt);

	part->begun = true;
	stream->arena = gpusort_arena_begin(&part->file);
	MemoryContextSwitchTo(old);
	stream->shared = &parts->all;
	stream->number = part - parts->parts;
	stream->activity.sort = parts->sort;
}

/* Publishes rows in the arena.  Returns false if there are spilled ones, or if the arena has no memory for a directory. */
static bool
publish_rows(GpusortStream *stream, GpusortPublished *published)
{
	if (stream->spill != NULL)
		return false;
	published->rows = gpusort_keyset_rows(stream->set);
	if (published->rows == 0)
		return true;
	if (stream->arena == NULL || !gpusort_keyset_publish(stream->set, &published->keys))
		return false;
	if (stream->rows.key == NULL)
		return true;
	published->doubt = gpusort_rowkey_doubt(stream->rows.key);
	return gpusort_rowstore_publish(&stream->rows.store, &published->store);
}

void
gpusort_parts_publish(GpusortParts *parts, GpusortStream *stream)
{
	GpusortPart *part = own_part(parts);
	GpusortPublished  *published = &part->published;

	gpusort_gather_flush(stream, true);
	gpusort_gather_note_memory(stream, gpusort_gather_memory(stream, 0));
	gpusort_stream_participate(stream, &part->figures);
	memset(published, 0, sizeof(*published));
	published->nulls = stream->nulls;
	if (publish_rows(stream, published))
		gpusort_keyset_end(stream->set);
	else
	{
		published->rows = 0;
		gpusort_set_spill(stream);
		gpusort_set_end_runs(stream);
		gpusort_spill_publish(stream->spill, &published->spilled);
		part->figures.disk = gpusort_spill_bytes(stream->spill);
		gpusort_spill_end(stream->spill);
		stream->spill = NULL;
	}
	stream->set = NULL;
	published->removed = stream->limit.removed;
	published->in = stream->check.in;
	published->dropped = stream->check.dropped;
	part->figures.runs = published->spilled.nruns;
	pg_write_barrier();
	part->done = true;
	gpusort_activity_end(&stream->activity);
}

void
gpusort_parts_enter(GpusortParts *parts)
{
	if (IsParallelWorker())
		pg_atomic_fetch_add_u32(&parts->readers, 1);
}

void
gpusort_parts_leave(GpusortParts *parts)
{
	if (IsParallelWorker())
		pg_atomic_fetch_sub_u32(&parts->readers, 1);
}

void
gpusort_parts_count(const GpusortParts *parts, int number, GpusortParticipant *participant)
{
	if (parts->parts[number].done)
		add_figures(participant, &parts->parts[number].figures);
}

/* ---- the sample ---- */

/* Writes the rows of the store as the sample, as many as it has room for. */
static void
write_sample(GpusortShared *shared, const GpusortStream *stream)
{
	const GpusortRowStore *store = &stream->rows.store;
	Size		used = 0;

	shared->expected = stream->expected;
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
sample_row(void *arg, uint64 i)
{
	Sample	   *sample = arg;

	gpusort_row_put(sample->rows[i], sample->bare, sample->slot);
	return sample->slot;
}

void
gpusort_sample_settle(GpusortStream *stream)
{
	GpusortShared *shared = stream->shared;
	GpusortRowKey *key = stream->rows.key;
	Sample		sample = {.bare = stream->spec.bare, .slot = stream->left};
	uint32		state = 0;
	char	   *row = shared->data;

	if (stream->rows.store.rows > 0 && pg_atomic_compare_exchange_u32(&shared->sample, &state, SAMPLE_WRITTEN))
	{
		write_sample(shared, stream);
		pg_write_barrier();
		pg_atomic_write_u32(&shared->sample, SAMPLE_COMPLETE);
	}
	while (pg_atomic_read_u32(&shared->sample) == SAMPLE_WRITTEN)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(SAMPLE_WAIT);
	}
	/* if no process has had a row so far, this one needs no key */
	if (pg_atomic_read_u32(&shared->sample) != SAMPLE_COMPLETE)
		return;
	pg_read_barrier();
	sample.rows = palloc(shared->rows * sizeof(char *));
	for (uint32 i = 0; i < shared->rows; i++)
	{
		sample.rows[i] = row;
		row += MAXALIGN(gpusort_row_bytes(row, sample.bare));
	}
	gpusort_rowkey_settle(key, sample_row, &sample, shared->rows, shared->expected);
	gpusort_rowkey_keep_sample(key, sample_row, &sample, shared->rows);
	ExecClearTuple(stream->left);
	pfree(sample.rows);
}

/* ---- the process that sorts: the leader, or any ---- */

/* Adds the rows of an arena. */
static void
adopt_rows(GpusortParts *parts, GpusortStream *stream, GpusortPart *part)
{
	const GpusortPublished *published = &part->published;
	MemoryContext old;
	GpusortArena *arena;

	if (gpusort_keyset_rows(stream->set) + published->rows > stream->form->max_rows)
	{
		gpusort_set_spill(stream);
		gpusort_set_begin(stream);
	}
	old = MemoryContextSwitchTo(stream->set_cxt);
	arena = parts->every ? gpusort_arena_attach(&part->file) : gpusort_arena_adopt(&part->file);
	MemoryContextSwitchTo(old);
	if (stream->rows.key != NULL)
	{
		gpusort_rowstore_adopt(&stream->rows.store, arena, published->store);
		gpusort_rowkey_add_doubt(stream->rows.key, &published->doubt);
	}
	gpusort_keyset_adopt(stream->set, arena, published->keys);
	/* this process may fill as much memory of its own as without these rows */
	stream->adopted_bytes += part->file.used;
	stream->memory_limit += part->file.used;
}

/* Adds spilled runs. */
static void
adopt_runs(GpusortStream *stream, const GpusortSpillPublished *spilled, int worker)
{
	/* a run of the rows so far comes before those of the worker */
	gpusort_set_spill(stream);
	gpusort_spill_adopt(stream->spill, spilled, worker);
	/* the merge makes the words of the worker's rows again */
	if (spilled->lossy && stream->rows.key != NULL)
		gpusort_rowkey_end_few(stream->rows.key);
	gpusort_set_begin(stream);
}

GpusortPartState
gpusort_parts_adopt(GpusortParts *parts, GpusortStream *stream, int worker, GpusortParticipant *participant)
{
	GpusortPart	   *part = &parts->parts[worker];
	const GpusortPublished *published = &part->published;
	Size		adopted = 0;

	if (part->done)
	{
		gpusort_gather_flush(stream, true);
		stream->nulls += published->nulls;
		stream->limit.removed += published->removed;
		gpusort_checksum_join(&stream->check.in, &published->in);
		gpusort_checksum_join(&stream->check.dropped, &published->dropped);
		if (participant != NULL)
			add_figures(participant, &part->figures);
	}
	if (part->done && published->rows > 0)
	{
		adopt_rows(parts, stream, part);
		adopted = part->file.used;
	}
	else
	{
		if (!parts->every)
			gpusort_arena_take_back(&part->file, !part->done);
		if (part->done && published->spilled.nruns > 0)
		{
			adopt_runs(stream, &published->spilled, worker);
			gpusort_large_give_back();
		}
	}
	/* the leader gets the memory that the worker has not used */
	stream->memory_limit += parts->memory - Min(parts->memory, adopted);
	return part->done ? GPUSORT_PART_DONE : part->begun ? GPUSORT_PART_BEGUN : GPUSORT_PART_UNUSED;
}

void
gpusort_parts_end(GpusortStream *stream)
{
	gpusort_gather_flush(stream, true);
	stream->shared = NULL;
}

void
gpusort_stream_participate(const GpusortStream *stream, GpusortParticipant *participant)
{
	GpusortParticipant figures = {
		.sorts = 1,
		.rows = gpusort_gather_rows(stream),
		.memory = Max(stream->sort.memory, stream->set != NULL ? gpusort_gather_memory(stream, 0) : stream->rows.store.bytes),
		.ms = stream->read_ms,
	};

	if (stream->spill != NULL)
	{
		figures.disk = gpusort_spill_bytes(stream->spill);
		figures.runs = gpusort_spill_runs(stream->spill);
	}
	add_figures(participant, &figures);
}
