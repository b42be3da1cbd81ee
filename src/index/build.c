/*-------------------------------------------------------------------------
 *
 * build.c
 *		Builds a btree: reads the rows, sorts them, and loads them into pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "base/stat.h"
#include "compat.h"
#include "guc.h"
#include "index/btree.h"
#include "run/cpu_options.h"

/* A smaller table is core's: what a build needs at first takes as long as core's whole build. */
#define LEAST_BLOCKS	8

/* Returns why core must build the index, or NULL. */
static const char *
refuse(Relation heap, Relation index, const IndexInfo *info)
{
	if (!gpusort_enabled || !gpusort_index_builds)
		return "gpusort.index_build is off";
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return "the table is no heap";
	/* index tuples are made in buffers of that size */
	if (BLCKSZ <= INDEX_SIZE_MASK)
		return "the server's pages are smaller than 8 kB";
	if (!gpusort_force && RelationGetNumberOfBlocks(heap) < LEAST_BLOCKS)
		return "the table is small";
	return NULL;
}

/* Tells what is done now: subphase is one of core's. */
static void
report_phase(int64 subphase)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, subphase);
}

/* Ends the sort, counts the build, and leaves a report of it. */
static void
report_build(const GpusortIndexBuild *build, double total_ms)
{
	GpusortReport report;

	gpusort_stream_report(build->stream, &report);
	if (report.reason != NULL)
		report.reason = pstrdup(report.reason);
	/* the end leaves a report of the key set */
	gpusort_stream_end(build->stream);
	report.rows = build->rows;
	report.key_type = "index";
	report.return_ms = Max(total_ms - report.gather_ms - report.kernels_ms, 0);
	report.total_ms = total_ms;
	report.workers = build->workers;
	report.checked = build->check != NULL;
	gpusort_report_keep(&report);
	gpusort_stat_count(GPUSORT_STAT_INDEX, &report);
	ereport(DEBUG1,
			(errmsg_internal("gpusort has built index \"%s\" of %.0f rows", RelationGetRelationName(build->index), build->rows),
			 errdetail_internal("It took %.1f ms: %.1f ms to read, %.1f ms in the engine, %.1f ms to load; %d workers, %d spilled runs.",
								total_ms, report.gather_ms, report.kernels_ms, report.return_ms, build->workers, report.runs)));
}

static void
run(GpusortIndexBuild *build)
{
	int			workers = gpusort_index_plan_workers(build);
	GpusortStreamInput input = {
		.kind = GPUSORT_STAT_INDEX,
		.expected = build->expected,
		.limit = -1,
		.memory = maintenance_work_mem * (Size) 1024 / (workers + 1),
		.fed = workers > 0,
	};
	instr_time	begun;
	instr_time	now;
	const int	index[] = {PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_SCAN_BLOCKS_TOTAL, PROGRESS_SCAN_BLOCKS_DONE};

	INSTR_TIME_SET_CURRENT(begun);
	report_phase(PROGRESS_BTREE_PHASE_INDEXBUILD_TABLESCAN);
	(void) gpusort_stream_begin(build->stream, &input);
	gpusort_index_read(build, workers);
	pgstat_progress_update_multi_param(3, index, (const int64[]) {build->rows, 0, 0});

	report_phase(PROGRESS_BTREE_PHASE_PERFORMSORT_1);
	gpusort_stream_finish(build->stream);
	report_phase(PROGRESS_BTREE_PHASE_LEAF_LOAD);
	gpusort_index_load(build);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	report_build(build, INSTR_TIME_GET_MILLISEC(now));
}

/* Builds the index and returns NULL, or returns why core must do it. */
static const char *
build_or_refuse(Relation heap, Relation index, IndexInfo *info, IndexBuildResult *result)
{
	const char *refusal;
	GpusortIndexBuild *build = gpusort_index_begin(heap, index, info, &refusal);
	MemoryContext old = MemoryContextSwitchTo(build->estate->es_query_cxt);

	if (refusal == NULL)
	{
		gpusort_cpu_build_begin(CurrentMemoryContext);
		run(build);
	}
	MemoryContextSwitchTo(old);
	result->heap_tuples = build->tuples;
	result->index_tuples = build->rows;
	gpusort_index_end(build);
	return refusal;
}

IndexBuildResult *
gpusort_index_build(Relation heap, Relation index, IndexInfo *info)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	GpusortReport report = {.key_type = "index", .engine = "core"};
	const char *refusal;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	refusal = refuse(heap, index, info);
	if (refusal == NULL)
		refusal = build_or_refuse(heap, index, info, result);
	if (refusal == NULL)
		return result;
	report.reason = refusal;
	gpusort_report_keep(&report);
	gpusort_stat_count(GPUSORT_STAT_INDEX, &report);
	ereport(DEBUG1, (errmsg_internal("core builds index \"%s\": %s", RelationGetRelationName(index), refusal)));
	return btbuild(heap, index, info);
}
