/*-------------------------------------------------------------------------
 *
 * shared_sample.c
 *		The sample by which the processes of one sort choose how keys are made.
 *
 * The words of all processes must be comparable.  Where the first rows decide how keys are made, the process that has a
 * sample first puts it into shared memory, and all choose by the same rows.  The leader, if it has no sample when it has read
 * its last row, chooses when it adopts the first part: until then another process may have more rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/atomics.h"

#include "sort/sort_state.h"

/* States of the sample */
#define SAMPLE_WRITTEN		1
#define SAMPLE_COMPLETE		2

/* Microseconds between two looks at a sample that is being written, which takes some 100 us */
#define SAMPLE_WAIT			50

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
