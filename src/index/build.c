/*-------------------------------------------------------------------------
 *
 * build.c
 *		Builds a btree in core's place: reads the rows, sorts them, and loads them into pages.
 *
 * Core builds an index by the function ambuild of its access method, which it finds in the
 * index's relcache entry.  No hook stands in front of it.  But core first plans parallel workers
 * (plan_create_index_workers()), and for that asks for the size of the table as the planner does,
 * which calls a hook with the table.  The index is then the empty btree of the table that is
 * open.  Its entry gets a copy of the access method's functions, with an ambuild of gpusort's.
 *
 * That function puts the old functions back before anything else.  If it is never called,
 * the copy stays: its other functions are core's, and it is freed with the entry.  Core does not
 * call the hook in bootstrap mode and with max_parallel_maintenance_workers = 0, and builds the
 * index itself then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "nodes/pathnodes.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "compat.h"

#include GPUSORT_REL_HOOK_H

#include "base/stat.h"
#include "guc.h"
#include "index/btree.h"
#include "index/index.h"
#include "run/run.h"

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

/* The functions of an index that is about to be built */
typedef struct Functions
{
	IndexAmRoutine routine;		/* with gpusort's ambuild */
	GpusortIndexAm *core;		/* what the entry had before */
} Functions;

/* An ambuild: gives the index core's functions back, and builds it, or lets core do it.  Raises core's errors. */
static IndexBuildResult *
build(Relation heap, Relation index, IndexInfo *info)
{
	IndexBuildResult *result = palloc(sizeof(IndexBuildResult));
	GpusortReport report = {.key_type = "index", .engine = "core"};
	const char *refusal;

	/* another extension may have put its own functions there since */
	if (index->rd_indam->ambuild == build)
		index->rd_indam = ((const Functions *) index->rd_indam)->core;
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

/* ---- the way in ---- */

static gpusort_rel_hook_type previous_hook;

/* Is it the index that core is about to build, or at least one that could be? */
static bool
is_to_be_built(Relation index)
{
	/* one reference is this file's */
	return index->rd_refcnt > 1 && index->rd_rel->relkind == RELKIND_INDEX &&
		index->rd_rel->relam == BTREE_AM_OID && index->rd_indam->ambuild == btbuild &&
		RelationGetNumberOfBlocks(index) == 0;
}

static void
take_over(Relation index)
{
	Functions  *functions = MemoryContextAlloc(index->rd_indexcxt, sizeof(Functions));

	functions->routine = *index->rd_indam;
	functions->routine.ambuild = build;
	functions->core = index->rd_indam;
	index->rd_indam = &functions->routine;
}

/* A query of a user's has a join tree, and the dummy query of plan_create_index_workers() has none. */
static void
visit_table(PlannerInfo *root, Oid table)
{
	Relation	heap;
	List	   *indexes;
	ListCell   *cell;

	if (!gpusort_enabled || !gpusort_index_builds || root->parse->jointree != NULL || table < FirstNormalObjectId)
		return;
	heap = RelationIdGetRelation(table);
	if (!RelationIsValid(heap))
		return;
	indexes = RelationGetIndexList(heap);
	foreach(cell, indexes)
	{
		Relation	index = RelationIdGetRelation(lfirst_oid(cell));

		if (!RelationIsValid(index))
			continue;
		if (is_to_be_built(index))
			take_over(index);
		RelationClose(index);
	}
	list_free(indexes);
	RelationClose(heap);
}

GPUSORT_REL_HOOK(visit_rel, previous_hook, visit_table)

void
gpusort_takeover_init(void)
{
	previous_hook = gpusort_rel_hook;
	gpusort_rel_hook = visit_rel;
}
