/*-------------------------------------------------------------------------
 *
 * takeover.c
 *		Makes core call gpusort where it is about to build a btree.
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
#include "access/nbtree.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "nodes/pathnodes.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "compat.h"

#include GPUSORT_REL_HOOK_H

#include "guc.h"
#include "index/btree.h"
#include "index/index.h"

/* The functions of an index that is about to be built */
typedef struct Functions
{
	IndexAmRoutine routine;		/* with gpusort's ambuild */
	GpusortIndexAm *core;		/* what the entry had before */
} Functions;

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

/* An ambuild: gives the index core's functions back, and builds it. */
static IndexBuildResult *
build(Relation heap, Relation index, IndexInfo *info)
{
	/* another extension may have put its own functions there since */
	if (index->rd_indam->ambuild == build)
		index->rd_indam = ((const Functions *) index->rd_indam)->core;
	return gpusort_index_build(heap, index, info);
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
