/*-------------------------------------------------------------------------
 *
 * workers.c
 *		Parallel workers read a table for a build.
 *
 * Each process reads a range of the table's blocks.  The leader reads the first one, and adopts
 * what the workers have read in the order of their ranges.  So rows come in the order of their
 * TIDs, as if one process had read them all.  Then the leader sorts and loads.
 *
 * If a sample of the rows decides how keys are made, as for strings, the leader reads it before
 * it launches workers, and they choose by the same sample.  The ranges are those of the blocks
 * behind it.
 *
 * Core decides how many workers there may be.  There are none if the rows of all processes will
 * probably not fit in memory: a worker writes no sorted runs.  If they do not fit all the same, or
 * if a worker is not launched, the leader reads its range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "tcop/tcopprot.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/arena.h"
#include "base/memory.h"
#include "base/shmem.h"
#include "gpu/start.h"
#include "guc.h"
#include "index/index.h"

/* The least blocks of a range: to launch a worker takes as long as reading some hundred. */
#define LEAST_BLOCKS	2048

/* The sort's memory for a row, beside its key and the row: 16 bytes of scratch memory and its number */
#define SORT_BYTES		20

/* Estimates are wrong by this factor at most, mostly. */
#define SURPLUS			1.25

/* Keys of the shared memory's parts */
#define KEY_SHARED		UINT64CONST(1)
#define KEY_QUERY		UINT64CONST(2)
#define KEY_BUFFERS		UINT64CONST(3)
#define KEY_WAL			UINT64CONST(4)
#define KEY_SAMPLE		UINT64CONST(5)

/*
 * Until there is a sample, the leader reads so many blocks at first, then twice as many and so on, but
 * not more than this part of the table: it chooses by the rows that are there then.
 */
#define SAMPLE_BLOCKS	64
#define SAMPLE_PART		16

/* A worker's range, and what it has read */
typedef struct Part
{
	BlockNumber begin;
	BlockNumber end;
	bool		done;			/* all of it has been read, and what follows is final */
	double		tuples;			/* as in GpusortIndexBuild */
	double		rows;
	bool		broken;			/* there are broken HOT chains */
	GpusortPublished published;
	GpusortArenaFile file;
} Part;

typedef struct Shared
{
	char		version[32];	/* of the leader's library */
	Oid			heap;
	Oid			index;
	Size		memory;			/* bytes for each process */
	double		expected;		/* rows of the index */
	uint32		sampled;		/* rows of the sample, if one decides how keys are made */
	GpusortActivitySort sort;	/* for gpusort_activity */
	int			nparts;
	Part		parts[FLEXIBLE_ARRAY_MEMBER];
} Shared;

/* ---- the decision ---- */

/* Do all rows fit in memory if the sort of one takes that many bytes? */
static bool
fit(const GpusortIndexBuild *build, double bytes)
{
	return build->gather.expected * bytes * SURPLUS <= maintenance_work_mem * 1024.0;
}

/* The bytes that the sort of a row takes, about, by the types of its columns */
static double
estimate_bytes(const GpusortIndexBuild *build)
{
	TupleDesc	desc = build->spec.desc;
	double		bytes = SORT_BYTES + sizeof(uint64);

	if (build->words != NULL)
		return bytes;
	bytes += MAXALIGN(SizeofMinimalTupleHeader) + build->gather.rows.plan.words * sizeof(uint64);
	for (int i = 0; i < desc->natts; i++)
		bytes += get_typavgwidth(TupleDescAttr(desc, i)->atttypid, TupleDescAttr(desc, i)->atttypmod);
	return bytes;
}

int
gpusort_index_plan_workers(const GpusortIndexBuild *build)
{
	int			most = RelationGetNumberOfBlocks(build->heap) / LEAST_BLOCKS - 1;

	if (gpusort_force)
		most = INT_MAX;
	if (build->info->ii_Concurrent || most < 1 || !gpusort_arena_available() ||
		!fit(build, estimate_bytes(build)))
		return 0;
	return Min(build->info->ii_ParallelWorkers, most);
}

/* ---- the sample: minimal tuples, one behind the other ---- */

static Size
sample_bytes(const GpusortIndexBuild *build)
{
	Size		bytes = 0;

	for (uint32 i = 0; i < build->sampled; i++)
		bytes += MAXALIGN(((MinimalTuple) gpusort_rowstore_row(&build->gather.rows.store, i))->t_len);
	return bytes;
}

static void
write_sample(const GpusortIndexBuild *build, char *to)
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

/* Chooses the words of a worker's keys as the leader has chosen its own. */
static void
choose_by_sample(GpusortGather *gather, const Shared *shared, char *from)
{
	Sample		sample = {palloc(shared->sampled * sizeof(MinimalTuple)), gather->left};

	for (uint32 i = 0; i < shared->sampled; i++)
	{
		sample.rows[i] = (MinimalTuple) from;
		from += MAXALIGN(sample.rows[i]->t_len);
	}
	gpusort_rows_choose(gather, sample_row, &sample, shared->sampled, shared->expected);
	/* the leader does not either, or would have launched no worker */
	gpusort_rowkey_keep_no_values(gather->rows.key);
	ExecClearTuple(gather->left);
	pfree(sample.rows);
}

/* ---- a worker ---- */

static void
read_part(const Shared *shared, Part *part, char *sample, Relation heap, Relation index)
{
	const char *refusal;
	GpusortIndexBuild *build = gpusort_index_begin(heap, index, BuildIndexInfo(index), &refusal);
	GpusortGather *gather = &build->gather;
	MemoryContext old;

	if (refusal != NULL)
		elog(ERROR, "a parallel worker cannot read index \"%s\": %s", RelationGetRelationName(index), refusal);
	old = MemoryContextSwitchTo(gather->cxt);
	gather->arena = gpusort_arena_begin(&part->file);
	MemoryContextSwitchTo(build->estate->es_query_cxt);
	gather->fed = true;
	gpusort_activity_join(&gather->activity, gather->cxt, &shared->sort);
	gpusort_gather_begin(gather, shared->memory);
	if (gather->set == NULL)
		choose_by_sample(gather, shared, sample);
	gpusort_index_read_begin(build);
	gpusort_index_read_blocks(build, part->begin, part->end);
	if (!build->full && gpusort_gather_publish(gather, &part->published))
	{
		part->tuples = build->tuples;
		part->rows = build->rows;
		part->broken = build->info->ii_BrokenHotChain;
		part->done = true;
	}
	gpusort_keyset_end(gather->set);
	gpusort_index_read_end(build);
	gpusort_activity_end(&gather->activity);
	MemoryContextSwitchTo(old);
	gpusort_index_end(build);
}

extern PGDLLEXPORT void gpusort_index_worker(dsm_segment *segment, shm_toc *toc);

/* The main function of a worker */
void
gpusort_index_worker(dsm_segment *segment, shm_toc *toc)
{
	Shared	   *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	BufferUsage *buffers = shm_toc_lookup(toc, KEY_BUFFERS, false);
	WalUsage   *wal = shm_toc_lookup(toc, KEY_WAL, false);
	Relation	heap;
	Relation	index;

	gpusort_version_check(shared->version);
	debug_query_string = shm_toc_lookup(toc, KEY_QUERY, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	/* the leader's locks, which do not conflict with those of its workers */
	heap = table_open(shared->heap, ShareLock);
	index = index_open(shared->index, AccessExclusiveLock);
	InstrStartParallelQuery();
	read_part(shared, &shared->parts[ParallelWorkerNumber], shm_toc_lookup(toc, KEY_SAMPLE, true), heap, index);
	InstrEndParallelQuery(&buffers[ParallelWorkerNumber], &wal[ParallelWorkerNumber]);
	index_close(index, AccessExclusiveLock);
	table_close(heap, ShareLock);
}

/* ---- the leader ---- */

/* A callback of the shared memory */
static void
take_back_files(dsm_segment *segment, Datum arg)
{
	Shared	   *shared = (Shared *) DatumGetPointer(arg);

	for (int i = 0; i < shared->nparts; i++)
		gpusort_arena_take_back(&shared->parts[i].file);
}

/* first: the block from which on the processes share the table */
static Shared *
init_shared(const GpusortIndexBuild *build, ParallelContext *pcxt, Size memory, BlockNumber first)
{
	Shared	   *shared = shm_toc_allocate(pcxt->toc, offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part));
	uint64		blocks = RelationGetNumberOfBlocks(build->heap) - first;

	memset(shared, 0, offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part));
	strlcpy(shared->version, GPUSORT_VERSION, sizeof(shared->version));
	shared->heap = RelationGetRelid(build->heap);
	shared->index = RelationGetRelid(build->index);
	shared->memory = memory;
	shared->expected = build->gather.expected;
	shared->sampled = build->sampled;
	shared->sort = build->gather.activity.sort;
	shared->nparts = pcxt->nworkers;
	for (int i = 0; i < shared->nparts; i++)
	{
		shared->parts[i].begin = first + blocks * (i + 1) / (shared->nparts + 1);
		shared->parts[i].end = first + blocks * (i + 2) / (shared->nparts + 1);
	}
	if (pcxt->seg != NULL)
	{
		on_dsm_detach(pcxt->seg, take_back_files, PointerGetDatum(shared));
		for (int i = 0; i < shared->nparts; i++)
			gpusort_arena_lend(&shared->parts[i].file);
	}
	shm_toc_insert(pcxt->toc, KEY_SHARED, shared);
	return shared;
}

/* Allocates an array of this many bytes in the shared memory. */
static void *
add_array(ParallelContext *pcxt, uint64 key, Size bytes)
{
	void	   *array = memset(shm_toc_allocate(pcxt->toc, bytes), 0, bytes);

	shm_toc_insert(pcxt->toc, key, array);
	return array;
}

/* Adds a worker's rows, or reads its range.  memory: bytes that the worker could use. */
static void
end_part(GpusortIndexBuild *build, Part *part, Size memory)
{
	Size		adopted;

	CHECK_FOR_INTERRUPTS();
	if (!part->done)
	{
		gpusort_arena_take_back(&part->file);
		gpusort_memory_give_back();
		build->gather.memory_limit += memory;
		gpusort_index_read_blocks(build, part->begin, part->end);
		return;
	}
	adopted = build->gather.adopted_bytes;
	gpusort_gather_adopt(&build->gather, &part->file, &part->published);
	/* the worker has left the rest of its memory */
	adopted = build->gather.adopted_bytes - adopted;
	build->gather.memory_limit += memory - Min(memory, adopted);
	build->tuples += part->tuples;
	build->rows += part->rows;
	build->info->ii_BrokenHotChain |= part->broken;
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, part->end);
}

/* Reads a sample from the first block on, if keys need one, and chooses by it.  Returns how many blocks it has read. */
static BlockNumber
read_sample(GpusortIndexBuild *build)
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

/*
 * Is the sample, if keys need one, such that workers help?  They do not if the rows turn out to be
 * too wide for the memory, or the leader keeps values, of which each process would have others.
 */
static bool
sample_allows_workers(const GpusortIndexBuild *build)
{
	const GpusortGather *gather = &build->gather;
	Size		bytes;

	if (gather->spill != NULL)
		return false;
	if (build->sampled == 0)
		return true;
	bytes = gpusort_gather_memory(gather, build->sampled) - gpusort_gather_memory(gather, 0) + sample_bytes(build);
	return fit(build, (double) bytes / build->sampled) && !gpusort_rowkey_keeps_values(gather->rows.key);
}

/* Reads the blocks from the first one on. */
static void
read_with_workers(GpusortIndexBuild *build, int workers, Size memory, BlockNumber first)
{
	Size		bytes = sample_bytes(build);
	Size		query_bytes = debug_query_string != NULL ? strlen(debug_query_string) + 1 : 0;
	ParallelContext *pcxt;
	Shared	   *shared;
	BufferUsage *buffers;
	WalUsage   *wal;

	EnterParallelMode();
	pcxt = CreateParallelContext(gpusort_library_name(MAXPGPATH), "gpusort_index_worker", workers);
	shm_toc_estimate_chunk(&pcxt->estimator, offsetof(Shared, parts) + workers * sizeof(Part));
	shm_toc_estimate_chunk(&pcxt->estimator, workers * sizeof(BufferUsage));
	shm_toc_estimate_chunk(&pcxt->estimator, workers * sizeof(WalUsage));
	shm_toc_estimate_chunk(&pcxt->estimator, query_bytes);
	shm_toc_estimate_chunk(&pcxt->estimator, bytes);
	shm_toc_estimate_keys(&pcxt->estimator, 5);
	InitializeParallelDSM(pcxt);
	shared = init_shared(build, pcxt, memory, first);
	buffers = add_array(pcxt, KEY_BUFFERS, workers * sizeof(BufferUsage));
	wal = add_array(pcxt, KEY_WAL, workers * sizeof(WalUsage));
	if (query_bytes > 0)
		memcpy(add_array(pcxt, KEY_QUERY, query_bytes), debug_query_string, query_bytes);
	if (bytes > 0)
		write_sample(build, add_array(pcxt, KEY_SAMPLE, bytes));
	LaunchParallelWorkers(pcxt);
	build->workers = pcxt->nworkers_launched;
	/* without shared memory there are no parts */
	build->gather.memory_limit += (workers - shared->nparts) * memory;

	gpusort_index_read_blocks(build, first, shared->nparts > 0 ? shared->parts[0].begin : RelationGetNumberOfBlocks(build->heap));
	WaitForParallelWorkersToFinish(pcxt);
	for (int i = 0; i < shared->nparts; i++)
		end_part(build, &shared->parts[i], memory);
	for (int i = 0; i < pcxt->nworkers_launched; i++)
		InstrAccumParallelQuery(&buffers[i], &wal[i]);
	DestroyParallelContext(pcxt);
	ExitParallelMode();
}

void
gpusort_index_read(GpusortIndexBuild *build, int workers, Size memory)
{
	gpusort_index_read_begin(build);
	if (build->info->ii_Concurrent)
		gpusort_index_read_concurrently(build);
	else if (workers == 0)
		gpusort_index_read_blocks(build, 0, RelationGetNumberOfBlocks(build->heap));
	else
	{
		BlockNumber first = read_sample(build);

		if (sample_allows_workers(build))
			read_with_workers(build, workers, memory, first);
		else
		{
			build->gather.memory_limit += workers * memory;
			gpusort_index_read_blocks(build, first, RelationGetNumberOfBlocks(build->heap));
		}
	}
	gpusort_index_read_end(build);
}
