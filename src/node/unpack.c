/*-------------------------------------------------------------------------
 *
 * unpack.c
 *		Unpacks the order of a GpuSort or a GpuSort Feed from its plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "parser/parsetree.h"

#include "compat.h"
#include "node/node.h"

GpusortSortColumn *
gpusort_node_columns(const CustomScan *scan, int *n)
{
	List	   *attnos = linitial(scan->custom_private);
	GpusortSortColumn *columns = palloc(list_length(attnos) * sizeof(GpusortSortColumn));

	for (*n = 0; *n < list_length(attnos); (*n)++)
	{
		AttrNumber	attno = list_nth_int(attnos, *n);

		columns[*n] = gpusort_rowkey_column(attno, list_nth_oid(lsecond(scan->custom_private), *n),
											list_nth_oid(lthird(scan->custom_private), *n),
											list_nth_int(lfourth(scan->custom_private), *n),
											get_tle_by_resno(outerPlan(scan)->targetlist, attno)->expr);
	}
	return columns;
}

/* Unpacks custom_private, which plan/make.c has packed. */
static void
read_plan(GpusortSortSpec *spec, CustomScanState *css)
{
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *numbers = list_nth(scan->custom_private, 4);
	int			n;
	GpusortSortColumn *columns = gpusort_node_columns(scan, &n);

	gpusort_spec_set(spec, css->ss.ss_ScanTupleSlot->tts_tupleDescriptor, columns, n);
	spec->processes = linitial_int(numbers);
	spec->limit_of_core = list_nth_int(numbers, 1);
	spec->limit_ties = list_nth_int(numbers, 2);
	spec->limit_below = list_nth_int(numbers, 3);
	spec->groups.count = (GpusortGroupCount) list_nth_int(numbers, 4);
	spec->groups.columns = list_nth_int(numbers, 5);
	spec->groups.peer_columns = list_nth_int(numbers, 6);
	spec->share_columns = list_nth_int(numbers, 7);
	if (scan->custom_exprs != NIL)
	{
		spec->limit_count = ExecInitExpr(linitial(scan->custom_exprs), &css->ss.ps);
		spec->limit_offset = ExecInitExpr(lsecond(scan->custom_exprs), &css->ss.ps);
	}
}

void
gpusort_node_unpack(GpusortSortSpec *spec, CustomScanState *css, bool random_access)
{
	spec->random_access = random_access;
	read_plan(spec, css);
	/* shares are of rows */
	if (spec->share_columns > 0)
		spec->value_type = NULL;
	/* 0 and -0 are equal, and so are all NaNs, but their keys are not */
	if ((spec->limit_ties || spec->groups.count > GPUSORT_GROUP_ROWS) && spec->value_type != NULL &&
		(spec->value_type->kind == GPUSORT_KIND_FLOAT4 || spec->value_type->kind == GPUSORT_KIND_FLOAT8))
		spec->limit_count = NULL;

	/*
	 * The slot of a custom scan holds virtual tuples by default.  The parents
	 * are initialized after this node and compile expressions for the kind of
	 * slot that it announces here.
	 */
	if (gpusort_spec_slots(spec) != &TTSOpsVirtual)
	{
		gpusort_init_scan_slot(css->ss.ps.state, &css->ss, spec->desc, gpusort_spec_slots(spec));
		ExecAssignScanProjectionInfoWithVarno(&css->ss, INDEX_VAR);
	}
	if (css->ss.ps.ps_ProjInfo != NULL)
		elog(ERROR, "the target list of %s differs from its input", css->methods->CustomName);
}

int64
gpusort_node_limit(const GpusortSortSpec *spec, ExprContext *context)
{
	bool		isnull;
	int64		count;
	int64		offset = 0;

	if (spec->limit_count == NULL)
		return -1;
	count = DatumGetInt64(ExecEvalExprSwitchContext(spec->limit_count, context, &isnull));
	if (isnull)
		return -1;
	if (spec->limit_offset != NULL)
	{
		offset = DatumGetInt64(ExecEvalExprSwitchContext(spec->limit_offset, context, &isnull));
		if (isnull)
			offset = 0;
	}
	ResetExprContext(context);
	/* nodeLimit.c has raised an error if one is negative; LIMIT 0 fetches nothing */
	count = Max(count, 1 + spec->limit_below) - spec->limit_below;
	offset = Max(offset, 0);
	return count > PG_INT64_MAX - offset ? -1 : count + offset;
}
