/*-------------------------------------------------------------------------
 *
 * build.c
 *		Builds a btree: reads the rows, sorts them, and loads them into pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/plancat.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "base/memory.h"
#include "compat.h"
#include "guc.h"
#include "index/index.h"
#include "index/words.h"
#include "node/limit.h"

/* A smaller table is core's: what a build needs at first takes as long as core's whole build. */
#define LEAST_BLOCKS	8

/* The type of a column of the index before the operator class changes it */
static Oid
type_of_column(Relation heap, const IndexInfo *info, int column, ListCell **expression)
{
	AttrNumber	attno = info->ii_IndexAttrNumbers[column];
	Oid			type;

	if (attno > 0)
		return TupleDescAttr(RelationGetDescr(heap), attno - 1)->atttypid;
	if (attno < 0)
		return InvalidOid;
	type = exprType(lfirst(*expression));
	*expression = lnext(info->ii_Expressions, *expression);
	return type;
}

/*
 * Is a column of the index a name?  It is stored as a cstring, without the zeros behind it, which
 * are all that a name has more.
 */
static bool
is_name(Relation index, int column)
{
	return TupleDescAttr(RelationGetDescr(index), column)->atttypid == CSTRINGOID &&
		column < IndexRelationGetNumberOfKeyAttributes(index) && index->rd_opcintype[column] == NAMEOID;
}

/* Do all columns of the index have the types of their values?  Those of some operator classes have others. */
static bool
keeps_types(Relation heap, Relation index, const IndexInfo *info)
{
	ListCell   *expression = list_head(info->ii_Expressions);

	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		Oid			type = type_of_column(heap, info, i, &expression);

		if (type != TupleDescAttr(RelationGetDescr(index), i)->atttypid && !(type == NAMEOID && is_name(index, i)))
			return false;
	}
	return true;
}

/* Describes the order of the index. */
static void
make_spec(GpusortSortSpec *spec, Relation index)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	spec->ncolumns = n;
	spec->columns = palloc(n * sizeof(GpusortSortColumn));
	spec->attnos = palloc(n * sizeof(AttrNumber));
	spec->operators = palloc(n * sizeof(Oid));
	spec->collations = index->rd_indcollation;
	spec->nulls_first = palloc(n * sizeof(bool));
	spec->desc = RelationGetDescr(index);
	spec->form = &gpusort_rows;
	spec->padded = true;
	for (int i = 0; i < n; i++)
	{
		bool		descending = (index->rd_indoption[i] & INDOPTION_DESC) != 0;

		spec->attnos[i] = i + 1;
		spec->operators[i] = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i], index->rd_opcintype[i],
												 descending ? BTGreaterStrategyNumber : BTLessStrategyNumber);
		spec->nulls_first[i] = (index->rd_indoption[i] & INDOPTION_NULLS_FIRST) != 0;
		spec->columns[i] = (GpusortSortColumn)
		{
			.attno = i + 1,
				.sort_operator = spec->operators[i],
				.collation = spec->collations[i],
				.nulls_first = spec->nulls_first[i],
				.type = is_name(index, i) ? NAMEOID : TupleDescAttr(spec->desc, i)->atttypid,
		};
	}
}

/* The words of rows are sorted and spilled as single values of this type. */
static const GpusortType word_type = {
	.name = "index row",
	.kind = GPUSORT_KIND_INT8,
	.value_bytes = sizeof(uint64),
	.key_bytes = sizeof(uint64),
	.align = TYPALIGN_DOUBLE,
};

/*
 * If rows of the index can be words, says how, and makes the sort one of single values.  During a
 * concurrent build the table grows, and could get blocks for which a word has no room.
 */
static void
plan_words(GpusortIndexBuild *build)
{
	GpusortSortSpec *spec = &build->spec;
	const GpusortType *type = gpusort_type_find(TupleDescAttr(spec->desc, 0)->atttypid);

	if (spec->desc->natts != 1 || type == NULL || (type->kind != GPUSORT_KIND_INT2 && type->kind != GPUSORT_KIND_INT4) ||
		RelationGetNumberOfBlocks(build->heap) >= 1 << GPUSORT_WORD_BLOCK_BITS || build->info->ii_Concurrent)
		return;
	build->words = palloc(sizeof(GpusortIndexWords));
	build->words->type = type;
	build->words->flip = (build->index->rd_indoption[0] & INDOPTION_DESC) != 0 ? PG_UINT64_MAX : 0;
	build->words->nulls_first = spec->nulls_first[0];
	spec->value_type = &word_type;
	spec->form = build->gather.form = &gpusort_values;
}

/* Returns why core must build the index, or NULL. */
static const char *
refuse(Relation heap, Relation index, const IndexInfo *info)
{
	if (!gpusort_enabled || !gpusort_index_builds)
		return "gpusort.index_build is off";
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return "the table is no heap";
	if (!gpusort_force && RelationGetNumberOfBlocks(heap) < LEAST_BLOCKS)
		return "the table is small";
	if (!keeps_types(heap, index, info))
		return "an operator class stores another type";
	return NULL;
}

/* Prepares the build in the current memory context, which is the estate's.  Returns why core must do it, or NULL. */
static const char *
prepare(GpusortIndexBuild *build)
{
	IndexInfo  *info = build->info;
	GpusortGather *gather = &build->gather;
	BlockNumber pages;
	double		all_visible;
	const char *refusal;

	make_spec(&build->spec, build->index);
	gpusort_gather_init(gather, &build->spec, &build->stats, build->estate);
	gpusort_limit_begin(gather, -1);
	estimate_rel_size(build->heap, NULL, &pages, &gather->expected, &all_visible);
	refusal = gather->form->plan(gather);
	if (refusal != NULL)
		return refusal;
	plan_words(build);

	build->heap_slot = gpusort_alloc_slot(&build->estate->es_tupleTable, RelationGetDescr(build->heap), &TTSOpsBufferHeapTuple);
	build->row = gpusort_alloc_slot(&build->estate->es_tupleTable, build->spec.desc, &TTSOpsVirtual);
	if (info->ii_Expressions == NIL && info->ii_Predicate == NIL)
		build->attnos = info->ii_IndexAttrNumbers;
	return NULL;
}

/* Tells what is done now: subphase is one of core's. */
static void
report_phase(int64 subphase)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, subphase);
}

/* Counts the build, and leaves a report of it. */
static void
report_build(const GpusortIndexBuild *build, double total_ms)
{
	const GpusortNodeStats *stats = &build->stats;
	GpusortReport report = {
		.rows = build->rows,
		.key_type = "index",
		.engine = stats->engine,
		.algorithm = stats->algorithm,
		.gather_ms = stats->gather_ms,
		.kernels_ms = stats->sort_ms,
		.return_ms = total_ms - stats->gather_ms - stats->sort_ms,
		.total_ms = total_ms,
		.reason = stats->engine_reason[0] != '\0' ? stats->engine_reason : NULL,
	};

	gpusort_report_keep(&report);
	gpusort_activity_count(GPUSORT_COUNT_INDEX, false, build->rows);
	ereport(DEBUG1,
			(errmsg_internal("gpusort has built index \"%s\" of %.0f rows", RelationGetRelationName(build->index), build->rows),
			 errdetail_internal("It took %.1f ms: %.1f ms to read, %.1f ms in the engine, %.1f ms to load; %d workers, %d spilled runs.",
								total_ms, report.gather_ms, report.kernels_ms, report.return_ms, build->workers, stats->runs)));
}

static void
run(GpusortIndexBuild *build)
{
	GpusortGather *gather = &build->gather;
	GpusortSorted sorted = {0};
	int			workers;
	Size		memory;
	instr_time	now;
	const int	index[] = {PROGRESS_CREATEIDX_TUPLES_TOTAL, PROGRESS_SCAN_BLOCKS_TOTAL, PROGRESS_SCAN_BLOCKS_DONE};

	INSTR_TIME_SET_CURRENT(gather->begun);
	gpusort_activity_begin(&gather->activity, gather->cxt, gather->expected);
	report_phase(PROGRESS_BTREE_PHASE_INDEXBUILD_TABLESCAN);
	workers = gpusort_index_plan_workers(build);
	memory = maintenance_work_mem * (Size) 1024 / (workers + 1);
	gather->fed = workers > 0;
	gpusort_gather_begin(gather, memory);
	gpusort_index_read(build, workers, memory);
	pgstat_progress_update_multi_param(3, index, (const int64[]) {build->rows, 0, 0});

	report_phase(PROGRESS_BTREE_PHASE_PERFORMSORT_1);
	gpusort_gather_end(gather, false, &sorted);
	report_phase(PROGRESS_BTREE_PHASE_LEAF_LOAD);
	gpusort_index_load(build, &sorted);
	if (gather->set != NULL)
		gpusort_gather_end_set(gather);
	if (gather->spill != NULL)
		gpusort_spill_end(gather->spill);
	gpusort_activity_end(&gather->activity);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, gather->begun);
	report_build(build, INSTR_TIME_GET_MILLISEC(now));
}

GpusortIndexBuild *
gpusort_index_begin(Relation heap, Relation index, IndexInfo *info, const char **refusal)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	GpusortIndexBuild *build = palloc0(sizeof(GpusortIndexBuild));

	build->heap = heap;
	build->index = index;
	build->info = info;
	build->estate = estate;
	*refusal = prepare(build);
	MemoryContextSwitchTo(old);
	if (*refusal != NULL)
		*refusal = pstrdup(*refusal);
	return build;
}

void
gpusort_index_end(GpusortIndexBuild *build)
{
	EState	   *estate = build->estate;

	ExecResetTupleTable(estate->es_tupleTable, false);
	FreeExecutorState(estate);
	gpusort_memory_give_back();
}

/* Builds the index and returns NULL, or returns why core must do it. */
static const char *
build_or_refuse(Relation heap, Relation index, IndexInfo *info, IndexBuildResult *result)
{
	const char *refusal;
	GpusortIndexBuild *build = gpusort_index_begin(heap, index, info, &refusal);
	MemoryContext old = MemoryContextSwitchTo(build->estate->es_query_cxt);

	if (refusal == NULL)
		run(build);
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
	const char *refusal;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	refusal = refuse(heap, index, info);
	if (refusal == NULL)
		refusal = build_or_refuse(heap, index, info, result);
	if (refusal == NULL)
		return result;
	gpusort_report_keep(&(GpusortReport) {.key_type = "index", .engine = "core", .reason = refusal});
	gpusort_activity_count(GPUSORT_COUNT_INDEX, true, 0);
	ereport(DEBUG1, (errmsg_internal("core builds index \"%s\": %s", RelationGetRelationName(index), refusal)));
	return btbuild(heap, index, info);
}
