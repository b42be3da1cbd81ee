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
#include "base/shmem.h"
#include "compat.h"
#include "guc.h"
#include "index/btree.h"
#include "run/run.h"

/* The least blocks of a range: to launch a worker takes as long as reading some hundred. */
#define LEAST_BLOCKS	2048

/* Keys of the shared memory's parts */
#define KEY_SHARED		UINT64CONST(1)
#define KEY_PARTS		UINT64CONST(2)
#define KEY_QUERY		UINT64CONST(3)

/* A worker's range, and what it has read beside the rows */
typedef struct Range
{
	BlockNumber begin;
	BlockNumber end;
	double		tuples;			/* as in GpusortIndexBuild */
	double		rows;
	bool		broken;			/* there are broken HOT chains */
	GpusortIndexNoted noted;
	BufferUsage buffers;
	WalUsage	wal;
} Range;

typedef struct Shared
{
	char		version[32];	/* of the leader's library */
	Oid			heap;
	Oid			index;
	int			n;
	Range		ranges[FLEXIBLE_ARRAY_MEMBER];
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
read_range(GpusortParts *parts, Range *range, Relation heap, Relation index)
{
	const char *refusal;
	GpusortIndexBuild *build = gpusort_index_begin(heap, index, BuildIndexInfo(index), &refusal);
	GpusortStreamInput input = {.expected = build->expected, .parts = parts};
	MemoryContext old;

	if (refusal != NULL)
		elog(ERROR, "a parallel worker cannot read index \"%s\": %s", RelationGetRelationName(index), refusal);
	old = MemoryContextSwitchTo(build->estate->es_query_cxt);
	(void) gpusort_stream_begin(build->stream, &input);
	gpusort_index_read_begin(build);
	gpusort_index_read_blocks(build, range->begin, range->end);
	gpusort_index_read_end(build);
	range->tuples = build->tuples;
	range->rows = build->rows;
	range->broken = build->info->ii_BrokenHotChain;
	range->noted = build->noted;
	gpusort_parts_publish(parts, build->stream);
	MemoryContextSwitchTo(old);
	gpusort_index_end(build);
}

extern PGDLLEXPORT void gpusort_index_worker(dsm_segment *segment, shm_toc *toc);

/* The main function of a worker */
void
gpusort_index_worker(dsm_segment *segment, shm_toc *toc)
{
	Shared	   *shared = shm_toc_lookup(toc, KEY_SHARED, false);
	Range	   *range = &shared->ranges[ParallelWorkerNumber];
	Relation	heap;
	Relation	index;

	gpusort_version_check(shared->version);
	debug_query_string = shm_toc_lookup(toc, KEY_QUERY, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	/* the leader's locks, which do not conflict with those of its workers */
	heap = table_open(shared->heap, ShareLock);
	index = index_open(shared->index, AccessExclusiveLock);
	InstrStartParallelQuery();
	read_range(shm_toc_lookup(toc, KEY_PARTS, false), range, heap, index);
	InstrEndParallelQuery(&range->buffers, &range->wal);
	index_close(index, AccessExclusiveLock);
	table_close(heap, ShareLock);
}

/* ---- the leader ---- */

static Size
shared_bytes(int workers)
{
	return offsetof(Shared, ranges) + workers * sizeof(Range);
}

static Shared *
init_shared(GpusortIndexBuild *build, ParallelContext *pcxt)
{
	Shared	   *shared = shm_toc_allocate(pcxt->toc, shared_bytes(pcxt->nworkers));
	uint64		blocks = RelationGetNumberOfBlocks(build->heap);

	memset(shared, 0, shared_bytes(pcxt->nworkers));
	strlcpy(shared->version, GPUSORT_VERSION, sizeof(shared->version));
	shared->heap = RelationGetRelid(build->heap);
	shared->index = RelationGetRelid(build->index);
	shared->n = pcxt->nworkers;
	for (int i = 0; i < shared->n; i++)
	{
		shared->ranges[i].begin = blocks * (i + 1) / (shared->n + 1);
		shared->ranges[i].end = blocks * (i + 2) / (shared->n + 1);
	}
	shm_toc_insert(pcxt->toc, KEY_SHARED, shared);
	return shared;
}

/* Adds what a worker has read, or reads its range. */
static void
end_range(GpusortIndexBuild *build, GpusortParts *parts, const Range *range, int worker)
{
	CHECK_FOR_INTERRUPTS();
	if (gpusort_parts_adopt(parts, build->stream, worker, NULL) != GPUSORT_PART_DONE)
	{
		gpusort_index_read_blocks(build, range->begin, range->end);
		/* core's leader would have read this range in its only scan */
		gpusort_count_scans(build->heap, -1);
		return;
	}
	build->tuples += range->tuples;
	build->rows += range->rows;
	build->info->ii_BrokenHotChain |= range->broken;
	gpusort_checksum_join(&build->noted.rows, &range->noted.rows);
	build->noted.dead += range->noted.dead;
	for (int i = 0; i < lengthof(build->noted.dead_bits); i++)
		build->noted.dead_bits[i] |= range->noted.dead_bits[i];
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, range->end);
}

static void
read_with_workers(GpusortIndexBuild *build, int workers)
{
	Size		query_bytes = debug_query_string != NULL ? strlen(debug_query_string) + 1 : 0;
	ParallelContext *pcxt;
	Shared	   *shared;
	GpusortParts *parts;

	EnterParallelMode();
	pcxt = CreateParallelContext(gpusort_library_name(MAXPGPATH), "gpusort_index_worker", workers);
	shm_toc_estimate_chunk(&pcxt->estimator, shared_bytes(workers));
	shm_toc_estimate_chunk(&pcxt->estimator, gpusort_parts_bytes(workers));
	shm_toc_estimate_chunk(&pcxt->estimator, query_bytes);
	shm_toc_estimate_keys(&pcxt->estimator, 3);
	InitializeParallelDSM(pcxt);
	shared = init_shared(build, pcxt);
	parts = shm_toc_allocate(pcxt->toc, gpusort_parts_bytes(pcxt->nworkers));
	gpusort_parts_init(parts, pcxt->nworkers, pcxt->seg);
	gpusort_parts_begin(parts, build->stream, workers);
	shm_toc_insert(pcxt->toc, KEY_PARTS, parts);
	if (query_bytes > 0)
		shm_toc_insert(pcxt->toc, KEY_QUERY,
					   memcpy(shm_toc_allocate(pcxt->toc, query_bytes), debug_query_string, query_bytes));
	LaunchParallelWorkers(pcxt);
	build->workers = pcxt->nworkers_launched;

	/* without shared memory there are no ranges */
	gpusort_index_read_blocks(build, 0, shared->n > 0 ? shared->ranges[0].begin : RelationGetNumberOfBlocks(build->heap));
	WaitForParallelWorkersToFinish(pcxt);
	for (int i = 0; i < shared->n; i++)
		end_range(build, parts, &shared->ranges[i], i);
	gpusort_parts_end(build->stream);
	for (int i = 0; i < pcxt->nworkers_launched; i++)
		InstrAccumParallelQuery(&shared->ranges[i].buffers, &shared->ranges[i].wal);
	DestroyParallelContext(pcxt);
	ExitParallelMode();
}

void
gpusort_index_read(GpusortIndexBuild *build, int workers)
{
	gpusort_index_read_begin(build);
	if (build->info->ii_Concurrent)
		gpusort_index_read_concurrently(build);
	else if (workers == 0)
		gpusort_index_read_blocks(build, 0, RelationGetNumberOfBlocks(build->heap));
	else
		read_with_workers(build, workers);
	gpusort_index_read_end(build);
}
