/*-------------------------------------------------------------------------
 *
 * init.c
 *		Sets up the state of a GpuSort, or of a GpuSort Feed, from its plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "node/node.h"

/* Unpacks custom_private, which plan/make.c has packed. */
static void
read_plan(GpusortNode *node, CustomScan *scan)
{
	List	   *attnos = linitial(scan->custom_private);
	List	   *operators = lsecond(scan->custom_private);
	List	   *collations = lthird(scan->custom_private);
	List	   *nulls_first = lfourth(scan->custom_private);
	TupleDesc	desc = ExecGetResultType(outerPlanState(node));
	int			n = list_length(attnos);

	node->ncolumns = n;
	node->columns = palloc(n * sizeof(GpusortSortColumn));
	node->attnos = palloc(n * sizeof(AttrNumber));
	node->operators = palloc(n * sizeof(Oid));
	node->collations = palloc(n * sizeof(Oid));
	node->nulls_first = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		node->attnos[i] = list_nth_int(attnos, i);
		node->operators[i] = list_nth_oid(operators, i);
		node->collations[i] = list_nth_oid(collations, i);
		node->nulls_first[i] = list_nth_int(nulls_first, i);
		node->last_attno = Max(node->last_attno, node->attnos[i]);
		node->columns[i] = (GpusortSortColumn)
		{
			.attno = node->attnos[i],
				.sort_operator = node->operators[i],
				.collation = node->collations[i],
				.nulls_first = node->nulls_first[i],
				.type = TupleDescAttr(desc, node->attnos[i] - 1)->atttypid,
				.row = gpusort_rowkey_row_type(get_tle_by_resno(outerPlan(scan)->targetlist, node->attnos[i])->expr),
		};
	}
	node->limit.ties = linitial_int(list_nth(scan->custom_private, 4));
	if (scan->custom_exprs != NIL)
	{
		node->limit.count = ExecInitExpr(linitial(scan->custom_exprs), &node->css.ss.ps);
		node->limit.offset = ExecInitExpr(lsecond(scan->custom_exprs), &node->css.ss.ps);
	}
}

/*
 * If a row is a single pass-by-value column whose keys can be decoded, returns
 * its type and sets descending.  NULL in all other cases.
 */
static const GpusortType *
find_value_type(GpusortNode *node, TupleDesc desc)
{
	Oid			opfamily;
	Oid			opcintype;
	GPUSORT_ORDERING ordering;

	if (desc->natts != 1 || !TupleDescAttr(desc, 0)->attbyval)
		return NULL;
	if (!get_ordering_op_properties(node->operators[0], &opfamily, &opcintype, &ordering))
		return NULL;
	node->descending = (ordering == GPUSORT_ORDERING_DESC);
	return gpusort_type_find(TupleDescAttr(desc, 0)->atttypid);
}

void
gpusort_node_init(GpusortNode *node, EState *estate)
{
	CustomScanState *css = &node->css;
	TupleDesc	desc = css->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	const TupleTableSlotOps *slots;

	read_plan(node, (CustomScan *) css->ss.ps.plan);
	node->value_type = find_value_type(node, desc);
	node->bare = gpusort_row_bare(desc);
	slots = node->value_type != NULL || node->bare ? &TTSOpsVirtual : &TTSOpsMinimalTuple;

	/*
	 * The slot of a custom scan holds virtual tuples by default.  The parents
	 * are initialized after this node and compile expressions for the kind of
	 * slot that it announces here.
	 */
	if (slots != &TTSOpsVirtual)
	{
		gpusort_init_scan_slot(estate, &css->ss, desc, slots);
		ExecAssignScanProjectionInfoWithVarno(&css->ss, INDEX_VAR);
	}
	if (css->ss.ps.ps_ProjInfo != NULL)
		elog(ERROR, "the target list of %s differs from its input", css->methods->CustomName);
	node->slot = css->ss.ss_ScanTupleSlot;
	node->keys = ExecStoreAllNullTuple(gpusort_alloc_slot(&estate->es_tupleTable, desc, &TTSOpsVirtual));
	node->core_slot = node->bare ? gpusort_alloc_slot(&estate->es_tupleTable, desc, &TTSOpsMinimalTuple) : node->slot;
	node->left = gpusort_alloc_slot(&estate->es_tupleTable, desc, slots);
	node->right = gpusort_alloc_slot(&estate->es_tupleTable, desc, slots);
	node->limit.slot = gpusort_alloc_slot(&estate->es_tupleTable, desc, slots);
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort", ALLOCSET_DEFAULT_SIZES);
}
