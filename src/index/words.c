/*-------------------------------------------------------------------------
 *
 * words.c
 *		The sort of an index's rows that fit a word each.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_index.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "compat.h"
#include "index/words.h"

static void
begin(GpusortGather *gather)
{
	gather->stats->key_bits = 64;
	gather->set_spec.key_type = "index row";
	gather->set_spec.key_bytes = sizeof(uint64);
	gpusort_gather_begin_set(gather);
}

static void
sort(GpusortGather *gather, bool want_whole, GpusortSorted *sorted)
{
	gpusort_sort_words(gather, want_whole, NULL, sorted);
}

static GpusortSpill *
begin_spill(GpusortGather *gather, const GpusortSorted *sorted)
{
	return gpusort_spill_begin(NULL, gather->memory_limit);
}

static void
spill(GpusortGather *gather, const GpusortSorted *sorted)
{
	for (uint64 i = 0; i < sorted->count; i++)
		gpusort_spill_write(gather->spill, (const uint64 *) sorted->block + i, NULL);
}

/* An index build has no LIMIT, no parallel feed, and core never takes it over. */
static const GpusortForm form = {
	.max_rows = PG_UINT64_MAX,
	.begin = begin,
	.sort = sort,
	.begin_spill = begin_spill,
	.spill = spill,
};

bool
gpusort_words_plan(GpusortIndexWords *words, GpusortSortSpec *spec, Relation heap, Relation index)
{
	const GpusortType *type = gpusort_type_find(TupleDescAttr(spec->desc, 0)->atttypid);

	if (spec->desc->natts != 1 || type == NULL || (type->kind != GPUSORT_KIND_INT2 && type->kind != GPUSORT_KIND_INT4) ||
		RelationGetNumberOfBlocks(heap) >= 1 << GPUSORT_WORD_BLOCK_BITS)
		return false;
	words->type = type;
	words->flip = (index->rd_indoption[0] & INDOPTION_DESC) != 0 ? PG_UINT64_MAX : 0;
	words->nulls_first = spec->nulls_first[0];
	spec->form = &form;
	return true;
}
