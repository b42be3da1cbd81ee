/*-------------------------------------------------------------------------
 *
 * plan_build.c
 *		Plans a build: how the rows of an index are sorted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "optimizer/plancat.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "base/pages.h"
#include "index/btree.h"

/*
 * Returns why core must build an index with such columns, or NULL.  A name is the only type of which a btree stores another one.
 * If all columns of fixed width are narrow, they take a small part of a page together.
 */
static const char *
refuse_columns(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->atttypid == CSTRINGOID)
			return "a name is stored as another type";
		if (TupleDescAttr(desc, i)->attlen > NAMEDATALEN)
			return "a type of fixed width is wide";
	}
	return NULL;
}

/* Describes the order of the index. */
static void
make_spec(GpusortSortSpec *spec, Relation index, bool unique)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			n = IndexRelationGetNumberOfKeyAttributes(index);
	GpusortSortColumn *columns = palloc(n * sizeof(GpusortSortColumn));

	for (int i = 0; i < n; i++)
	{
		bool		descending = (index->rd_indoption[i] & INDOPTION_DESC) != 0;

		columns[i] = (GpusortSortColumn) {
			.attno = i + 1,
			.sort_operator = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i], index->rd_opcintype[i],
												 descending ? BTGreaterStrategyNumber : BTLessStrategyNumber),
			.collation = index->rd_indcollation[i],
			.nulls_first = (index->rd_indoption[i] & INDOPTION_NULLS_FIRST) != 0,
			.type = TupleDescAttr(desc, i)->atttypid,
		};
	}
	gpusort_spec_set(spec, desc, columns, n);
	/* rows are tagged, and no value is kept alone */
	spec->value_type = NULL;
	spec->descending = false;
	spec->bare = false;
	spec->tagged = true;
	spec->unique = unique;
}

/* The words of rows are sorted and spilled as single values of this type. */
static const GpusortType word_type = {
	.name = "index row",
	.kind = GPUSORT_KIND_INT8,
	.value_bytes = sizeof(uint64),
	.key_bytes = sizeof(uint64),
};

/*
 * If rows of the index can be words, says how, and makes the sort one of single values.  During a
 * concurrent build the table grows, and could get blocks for which a word has no room.
 */
static void
plan_words(GpusortIndexBuild *build)
{
	GpusortSortSpec *spec = &build->spec;
	Oid			type_id = build->index->rd_opcintype[0];
	const GpusortType *type = gpusort_type_find(type_id);
	bool		descending = (build->index->rd_indoption[0] & INDOPTION_DESC) != 0;
	TypeCacheEntry *entry;

	if (spec->desc->natts != 1 || type == NULL || (type->kind != GPUSORT_KIND_INT2 && type->kind != GPUSORT_KIND_INT4) ||
		RelationGetNumberOfBlocks(build->heap) >= 1 << GPUSORT_WORD_BLOCK_BITS || build->info->ii_Concurrent)
		return;
	/* a user's operator class may order the type in another way */
	entry = lookup_type_cache(type_id, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	if (spec->operators[0] != (descending ? entry->gt_opr : entry->lt_opr))
		return;
	build->words = palloc(sizeof(GpusortIndexWords));
	build->words->type = type;
	build->words->flip = descending ? PG_UINT64_MAX : 0;
	build->words->nulls_first = spec->nulls_first[0];
	spec->value_type = &word_type;
}

/* Prepares the build in the current memory context, which is the estate's.  Returns why core must do it, or NULL. */
static const char *
prepare(GpusortIndexBuild *build)
{
	IndexInfo  *info = build->info;
	List	  **slots = &build->estate->es_tupleTable;
	BlockNumber pages;
	double		all_visible;
	const char *refusal;

	refusal = refuse_columns(RelationGetDescr(build->index));
	if (refusal != NULL)
		return refusal;
	make_spec(&build->spec, build->index, info->ii_Unique);
	plan_words(build);
	build->stream = gpusort_stream_init(&build->spec, build->estate, NULL);
	estimate_rel_size(build->heap, NULL, &pages, &build->expected, &all_visible);
	refusal = gpusort_stream_refusal(build->stream);
	if (refusal != NULL)
		return refusal;

	build->heap_slot = gpusort_alloc_slot(slots, RelationGetDescr(build->heap), &TTSOpsBufferHeapTuple);
	build->row = gpusort_alloc_slot(slots, build->spec.desc, &TTSOpsVirtual);
	build->left = gpusort_alloc_slot(slots, build->spec.desc, &TTSOpsMinimalTuple);
	build->right = gpusort_alloc_slot(slots, build->spec.desc, &TTSOpsMinimalTuple);
	if (info->ii_Expressions == NIL && info->ii_Predicate == NIL)
		build->attnos = info->ii_IndexAttrNumbers;
	gpusort_index_check_begin(build);
	return NULL;
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
	gpusort_large_give_back();
}
