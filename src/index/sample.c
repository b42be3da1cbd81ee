/*-------------------------------------------------------------------------
 *
 * sample.c
 *		The sample by which parallel workers choose the words of keys.
 *
 * For strings and some other types, the first rows decide how keys are made.  So the leader reads
 * these before it launches workers.  They lie in the shared memory, as minimal tuples one behind
 * the other, and each worker makes the same choice by them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "index/index.h"

/*
 * The leader first reads SAMPLE_BLOCKS, and doubles them until there is a sample.  A partial index may
 * have few rows: behind 1/SAMPLE_PART of the table the leader chooses by those that it has.
 */
#define SAMPLE_BLOCKS	64
#define SAMPLE_PART		16

BlockNumber
gpusort_index_sample_read(GpusortIndexBuild *build)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(build->heap);
	BlockNumber done = 0;

	while (build->gather.set == NULL && done <= blocks / SAMPLE_PART && done < blocks)
	{
		BlockNumber end = Min(Max(2 * done, SAMPLE_BLOCKS), blocks);

		gpusort_index_read_blocks(build, done, end);
		done = end;
	}
	if (build->gather.set == NULL)
		gpusort_index_choose(build);
	return done;
}

bool
gpusort_index_sample_helps(const GpusortIndexBuild *build)
{
	const GpusortGather *gather = &build->gather;

	return build->sampled == 0 || (gather->spill == NULL && !gpusort_rowkey_keeps_values(gather->rows.key));
}

Size
gpusort_index_sample_bytes(const GpusortIndexBuild *build)
{
	Size		bytes = 0;

	for (uint32 i = 0; i < build->sampled; i++)
		bytes += MAXALIGN(((MinimalTuple) gpusort_rowstore_row(&build->gather.rows.store, i))->t_len);
	return bytes;
}

void
gpusort_index_sample_write(const GpusortIndexBuild *build, char *to)
{
	for (uint32 i = 0; i < build->sampled; i++)
	{
		MinimalTuple row = gpusort_rowstore_row(&build->gather.rows.store, i);

		memcpy(to, row, row->t_len);
		to += MAXALIGN(row->t_len);
	}
}

/* A worker's sample */
typedef struct Sample
{
	MinimalTuple *rows;
	TupleTableSlot *slot;		/* of minimal tuples */
} Sample;

/* A GpusortSampleRow */
static TupleTableSlot *
sample_row(void *arg, uint32 i)
{
	Sample	   *sample = arg;

	return ExecStoreMinimalTuple(sample->rows[i], sample->slot, false);
}

void
gpusort_index_sample_choose(GpusortGather *gather, char *from, uint32 rows, double expected)
{
	Sample		sample = {palloc(rows * sizeof(MinimalTuple)), gather->left};

	for (uint32 i = 0; i < rows; i++)
	{
		sample.rows[i] = (MinimalTuple) from;
		from += MAXALIGN(sample.rows[i]->t_len);
	}
	gpusort_rows_choose(gather, sample_row, &sample, rows, expected);
	/* the leader does not either, or would have launched no worker */
	gpusort_rowkey_keep_no_values(gather->rows.key);
	ExecClearTuple(gather->left);
	pfree(sample.rows);
}
