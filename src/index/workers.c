/*-------------------------------------------------------------------------
 *
 * workers.c
 *		Parallel workers read a table for a build.
 *
 * Each process reads a range of the table's blocks.  The leader reads the first range, and adopts what
 * the workers have read in the order of their ranges.  So rows come in the order of their TIDs, as if
 * one process had read them all.  Then the leader sorts and loads.
 *
 * Core decides how many workers there may be.  If one is not launched, the leader reads its range.
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
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "tcop/tcopprot.h"
#include "utils/rel.h"

#include "base/arena.h"
#include "base/large_memory.h"
#include "base/library.h"
#include "base/shmem.h"
#include "compat.h"
#include "guc.h"
#include "index/btree.h"
#include "run/cpu_options.h"

/* The least blocks of a range: to launch a worker takes as long as reading some hundred. */
#define LEAST_BLOCKS	2048

/* Keys of the shared memory's parts */
#define KEY_SHARED		UINT64CONST(1)
#define KEY_QUERY		UINT64CONST(2)

/* A worker's range, and what it has read */
typedef struct Part
{
	BlockNumber begin;
	BlockNumber end;
	double		tuples;			/* as in GpusortIndexBuild */
	double		rows;
	bool		broken;			/* there are broken HOT chains */
	GpusortIndexNoted noted;
	BufferUsage buffers;
	WalUsage	wal;
	GpusortPart part;
} Part;

typedef struct Shared
{
	char		version[32];	/* of the leader's library */
	Oid			heap;
	Oid			index;
	Size		memory;			/* bytes for each process */
	GpusortActivitySort sort;	/* for gpusort_activity */
	GpusortShared all;
	int			nparts;
	Part		parts[FLEXIBLE_ARRAY_MEMBER];
} Shared;

/* ---- the decision ---- */

int
gpusort_index_plan_workers(const GpusortIndexBuild *build)
{
	int			most = RelationGetNumberOfBlocks(build->heap) / LEAST_BLOCKS - 1;

	most = Min(most, gpusort_cpu_build_workers(build->info->ii_ParallelWorkers));
	if (gpusort_force)
		most = build->info->ii_ParallelWorkers;
	if (build->info->ii_Concurrent || most < 1 || !gpusort_arena_available())
		return 0;
	return most;
}

/* ---- a worker ---- */

static void
read_part(Shared *shared, Part *part, Relation heap, Relation index)
{
	const char *refusal;
	GpusortIndexBuild *build = gpusort_index_begin(heap, index, BuildIndexInfo(index), &refusal);
	GpusortGather *gather = &build->gather;
	MemoryContext old;

	if (refusal != NULL)
		elog(ERROR, "a parallel worker cannot read index \"%s\": %s", RelationGetRelationName(index), refusal);
	old = MemoryContextSwitchTo(build->estate->es_query_cxt);
	gpusort_part_begin(&part->part, gather, &shared->all);
	gpusort_activity_begin(&gather->activity, gather->cxt, 0);
	gather->activity.sort = shared->sort;
	gpusort_gather_begin(gather, shared->memory);
	gpusort_index_read_begin(build);
	gpusort_index_read_blocks(build, part->begin, part->end);
	gpusort_index_read_end(build);
	part->tuples = build->tuples;
	part->rows = build->rows;
	part->broken = build->info->ii_BrokenHotChain;
	part->noted = build->noted;
	gpusort_part_publish(&part->part, gather);
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
	Part	   *part = &shared->parts[ParallelWorkerNumber];
	Relation	heap;
	Relation	index;

	gpusort_version_check(shared->version);
	debug_query_string = shm_toc_lookup(toc, KEY_QUERY, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	/* the leader's locks, which do not conflict with those of its workers */
	heap = table_open(shared->heap, ShareLock);
	index = index_open(shared->index, AccessExclusiveLock);
	InstrStartParallelQuery();
	read_part(shared, part, heap, index);
	InstrEndParallelQuery(&part->buffers, &part->wal);
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
		gpusort_part_take_back(&shared->parts[i].part);
}

static Shared *
init_shared(GpusortIndexBuild *build, ParallelContext *pcxt, Size memory)
{
	Shared	   *shared = shm_toc_allocate(pcxt->toc, offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part));
	uint64		blocks = RelationGetNumberOfBlocks(build->heap);

	memset(shared, 0, offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part));
	strlcpy(shared->version, GPUSORT_VERSION, sizeof(shared->version));
	shared->heap = RelationGetRelid(build->heap);
	shared->index = RelationGetRelid(build->index);
	shared->memory = memory;
	shared->sort = build->gather.activity.sort;
	shared->nparts = pcxt->nworkers;
	for (int i = 0; i < shared->nparts; i++)
	{
		shared->parts[i].begin = blocks * (i + 1) / (shared->nparts + 1);
		shared->parts[i].end = blocks * (i + 2) / (shared->nparts + 1);
	}
	if (pcxt->seg != NULL)
	{
		on_dsm_detach(pcxt->seg, take_back_files, PointerGetDatum(shared));
		for (int i = 0; i < shared->nparts; i++)
			gpusort_arena_lend(&shared->parts[i].part.file);
		gpusort_part_share(&shared->all, &build->gather, shared->nparts + 1);
	}
	shm_toc_insert(pcxt->toc, KEY_SHARED, shared);
	return shared;
}

/* Adds the rows of a worker, or reads its range.  memory: bytes that the worker could use. */
static void
end_part(GpusortIndexBuild *build, Part *part, int worker, Size memory)
{
	GpusortGather *gather = &build->gather;
	Size		adopted;

	CHECK_FOR_INTERRUPTS();
	if (!part->part.done)
	{
		gpusort_part_take_back(&part->part);
		gpusort_large_give_back();
		gather->memory_limit += memory;
		gpusort_index_read_blocks(build, part->begin, part->end);
		/* core's leader would have read this range in its only scan */
		gpusort_count_scans(build->heap, -1);
		return;
	}
	adopted = gpusort_part_adopt(&part->part, gather, worker);
	/* the leader gets what the worker has not used */
	if (adopted == 0)
		gpusort_large_give_back();
	gather->memory_limit += memory - Min(memory, adopted);
	build->tuples += part->tuples;
	build->rows += part->rows;
	build->info->ii_BrokenHotChain |= part->broken;
	gpusort_checksum_join(&build->noted.rows, &part->noted.rows);
	build->noted.dead += part->noted.dead;
	for (int i = 0; i < lengthof(build->noted.dead_bits); i++)
		build->noted.dead_bits[i] |= part->noted.dead_bits[i];
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, part->end);
}

static void
read_with_workers(GpusortIndexBuild *build, int workers, Size memory)
{
	Size		query_bytes = debug_query_string != NULL ? strlen(debug_query_string) + 1 : 0;
	ParallelContext *pcxt;
	Shared	   *shared;

	EnterParallelMode();
	pcxt = CreateParallelContext(gpusort_library_name(MAXPGPATH), "gpusort_index_worker", workers);
	shm_toc_estimate_chunk(&pcxt->estimator, offsetof(Shared, parts) + workers * sizeof(Part));
	shm_toc_estimate_chunk(&pcxt->estimator, query_bytes);
	shm_toc_estimate_keys(&pcxt->estimator, 2);
	InitializeParallelDSM(pcxt);
	shared = init_shared(build, pcxt, memory);
	if (query_bytes > 0)
		shm_toc_insert(pcxt->toc, KEY_QUERY,
					   memcpy(shm_toc_allocate(pcxt->toc, query_bytes), debug_query_string, query_bytes));
	LaunchParallelWorkers(pcxt);
	build->workers = pcxt->nworkers_launched;
	/* without shared memory there are no parts */
	build->gather.memory_limit += (workers - shared->nparts) * memory;

	gpusort_index_read_blocks(build, 0, shared->nparts > 0 ? shared->parts[0].begin : RelationGetNumberOfBlocks(build->heap));
	WaitForParallelWorkersToFinish(pcxt);
	for (int i = 0; i < shared->nparts; i++)
		end_part(build, &shared->parts[i], i, memory);
	build->gather.shared = NULL;
	for (int i = 0; i < pcxt->nworkers_launched; i++)
		InstrAccumParallelQuery(&shared->parts[i].buffers, &shared->parts[i].wal);
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
		read_with_workers(build, workers, memory);
	gpusort_index_read_end(build);
}
