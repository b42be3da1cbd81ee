/*-------------------------------------------------------------------------
 *
 * group_columns.c
 *		The columns of an Agg's groups, for GpuSort Aggregate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "plan/group_columns.h"
#include "plan/plan.h"

bool
gpusort_group_columns_find(const Agg *agg, const Sort *sort, bool hashed, GpusortGroupColumns *columns)
{
	int			n = agg->numCols;
	RegProcedure left;
	RegProcedure right;

	if (sort->numCols < n)
		return false;
	/* with room for add_columns() */
	*columns = gpusort_group_columns_alloc(n + list_length(sort->plan.targetlist));
	columns->n = n;
	for (int i = 0; i < n; i++)
	{
		AttrNumber	attno = sort->sortColIdx[i];
		Oid			equals = get_equality_op_for_ordering_op(sort->sortOperators[i], NULL);
		TargetEntry *entry = get_tle_by_resno(sort->plan.targetlist, attno);
		int			j = 0;

		/* a column may be there twice, as citext and as text */
		while (j < n && (agg->grpColIdx[j] != attno || agg->grpOperators[j] != equals))
			j++;
		if (j == n || agg->grpCollations[j] != sort->collations[i])
			return false;
		if (hashed && (!op_hashjoinable(agg->grpOperators[j], exprType((Node *) entry->expr)) ||
					   !get_op_hash_functions(agg->grpOperators[j], &left, &right) || left != right))
			return false;
		columns->attnos[i] = attno;
		columns->equals[i] = agg->grpOperators[j];
		columns->orders[i] = sort->sortOperators[i];
		columns->collations[i] = sort->collations[i];
		columns->nulls_first[i] = sort->nullsFirst[i];
	}
	return true;
}

/* A walker: adds the columns that an expression reads, outside of aggregates.  True if the node cannot compute the expression. */
static bool
add_columns(Node *node, GpusortGroupColumns *columns)
{
	if (node == NULL || IsA(node, Aggref))
		return false;
	if (!IsA(node, Var))
		return IsA(node, GroupingFunc) || expression_tree_walker(node, add_columns, columns);
	for (int i = 0; i < columns->n; i++)
	{
		if (columns->attnos[i] == ((Var *) node)->varattno)
			return false;
	}
	if (columns->n == 0)
		return true;
	columns->attnos[columns->n++] = ((Var *) node)->varattno;
	return false;
}

bool
gpusort_group_columns_add(const Agg *agg, GpusortGroupColumns *columns)
{
	return !add_columns((Node *) agg->plan.targetlist, columns) && !add_columns((Node *) agg->plan.qual, columns);
}

List *
gpusort_group_columns_pack(const GpusortGroupColumns *columns)
{
	if (columns->n == 0)
		return NIL;
	return lappend(gpusort_plan_order(columns->n, columns->attnos, columns->orders, columns->collations, columns->nulls_first),
				   gpusort_plan_oids(columns->equals, columns->n));
}
