/*-------------------------------------------------------------------------
 *
 * values.c
 *		Gathers the values of aggregates that sort.
 *
 * The values of each expression are gathered once, whatever aggregates need them.  Values beyond gpusort.memory_limit are
 * spilled.  An array of all values has to be in memory, so that without groups the values are, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "functions/functions.h"
#include "guc.h"
#include "key/key.h"

/* Returns the index of what an aggregate needs in the node's values, to which it is added if it is new. */
static int
find_values(GpusortAggregates *node, const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	GpusortValues wanted = {
		.expression = (Node *) gpusort_aggregate_argument(aggref),
		.condition = (Node *) aggref->aggfilter,
		.sorted = kind == GPUSORT_AGGREGATE_SORTED,
		.distinct = kind >= GPUSORT_AGGREGATE_COUNT,
	};

	for (int i = 0; i < node->nvalues; i++)
	{
		GpusortValues *values = &node->values[i];

		if (values->sorted == wanted.sorted &&
			equal(values->expression, wanted.expression) && equal(values->condition, wanted.condition))
		{
			values->distinct &= wanted.distinct;
			return i;
		}
	}
	wanted.value = gpusort_row_value_init((Expr *) wanted.expression, node->ps);
	if (wanted.condition != NULL)
		wanted.filter = ExecInitQual(list_make1(wanted.condition), node->ps);
	node->values[node->nvalues] = wanted;
	return node->nvalues++;
}

GpusortAggregates *
gpusort_aggregates_init(PlanState *ps, List *aggrefs, bool grouped, int sorts)
{
	GpusortAggregates *node = palloc0(sizeof(GpusortAggregates));
	ListCell   *lc;

	node->ps = ps;
	node->grouped = grouped;
	node->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort Aggregate", ALLOCSET_DEFAULT_SIZES);
	node->values = palloc0(list_length(aggrefs) * sizeof(GpusortValues));
	node->aggregates = palloc0(list_length(aggrefs) * sizeof(GpusortAggregate));
	foreach(lc, aggrefs)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		GpusortAggregate *aggregate = &node->aggregates[node->naggregates++];

		aggregate->kind = gpusort_aggregate_kind(aggref);
		get_typlenbyval(aggref->aggtype, &aggregate->length, &aggregate->by_value);
		aggregate->values = find_values(node, aggref);
		aggregate->descending = gpusort_aggregate_descends(aggref);
		if (aggregate->kind == GPUSORT_AGGREGATE_SUM)
			aggregate->sum = gpusort_states_init(ps, list_make1(aggref));
		gpusort_fractions_init(&aggregate->fractions, aggref, ps);
	}
	node->shares = sorts;
	for (int i = 0; i < node->nvalues; i++)
		node->shares += node->grouped || !node->values[i].sorted;
	/* groups take the other half */
	if (grouped)
		node->shares *= 2;
	return node;
}

Size
gpusort_aggregates_memory(const GpusortAggregates *node)
{
	return Max(gpusort_guc_memory_limit(1) / node->shares, GPUSORT_LEAST_MEMORY);
}

/* Begins to gather. */
static void
begin_gathering(GpusortAggregates *node)
{
	node->checked = gpusort_verify;
	for (int i = 0; i < node->nvalues; i++)
	{
		GpusortValues *values = &node->values[i];
		bool		limited = node->grouped || !values->sorted;

		/* several percentiles are found one after the other */
		gpusort_group_begin(&values->keys, values->sorted ? gpusort_type_get(exprType(values->expression)) :
							gpusort_aggregate_type((Expr *) values->expression), node->cxt, limited);
		if (node->checked)
			gpusort_check_keys_begin(&values->check, values->keys.type, false, GPUSORT_STAT_AGGREGATE, "GpuSort Aggregate", node->ps);
		if (limited)
		{
			values->limit = (GpusortGroupLimit) {
				.bytes = gpusort_aggregates_memory(node),
				.distinct = values->distinct,
				.check = node->checked ? &values->check : NULL,
			};
			values->keys.limit = &values->limit;
		}
		if (node->grouped)
			gpusort_lists_begin(&values->lists, values->keys.type, node->cxt, values->limit.bytes);
		values->nulls = (GpusortCounts) {0};
	}
}

/* Frees what expressions have allocated for the last row. */
static inline void
forget_row(GpusortAggregates *node, const GpusortValues *values)
{
	if (unlikely(values->filter != NULL || values->value.state != NULL))
		ResetExprContext(node->ps->ps_ExprContext);
}

/* Evaluates an expression for row i of the page.  False if the value has no key: then it is kept for the group. */
static inline bool
get_value(GpusortAggregates *node, GpusortValues *values, int i, uint32 group, Datum *value, bool *isnull)
{
	int64		scaled;

	*value = gpusort_row_value_get(&values->value, node->ps->ps_ExprContext, node->page, i, isnull);
	if (likely(!gpusort_scaled_is(values->keys.type)) || *isnull)
		return true;
	if (unlikely(!gpusort_scaled_from(values->keys.type, *value, &scaled)))
	{
		gpusort_misfits_add(&values->misfits, node->ps, node->cxt, group, *value);
		return false;
	}
	*value = Int64GetDatum(scaled);
	return true;
}

/* Raises an error if an array of the values would be too long. */
static void
check_size(const GpusortValues *values)
{
	if (values->sorted)
		gpusort_array_check_size(values->keys.type->value_bytes, gpusort_group_rows(&values->keys), values->nnulls);
}

/* Gathers the values of an expression for all rows of the page. */
static void
add_page(GpusortAggregates *node, GpusortValues *values)
{
	for (int i = 0; i < node->page->count; i++)
	{
		bool		isnull;
		Datum		value;

		forget_row(node, values);
		if (!gpusort_row_passes(values->filter, node->ps->ps_ExprContext, node->page, i))
			continue;
		if (unlikely(!get_value(node, values, i, 0, &value, &isnull)))
			continue;
		if (unlikely(isnull))
			values->nnulls++;
		else
		{
			if (unlikely(node->checked))
				gpusort_check_value(&values->check, value, 0);
			gpusort_group_add(&values->keys, value);
		}
	}
	check_size(values);
}

/* The same with groups. */
static void
add_page_to_lists(GpusortAggregates *node, GpusortValues *values, const uint32 *groups)
{
	for (int i = 0; i < node->page->count; i++)
	{
		bool		isnull;
		Datum		value;

		forget_row(node, values);
		if (groups[i] == GPUSORT_NUMBERS_NONE || !gpusort_row_passes(values->filter, node->ps->ps_ExprContext, node->page, i))
			continue;
		if (unlikely(!get_value(node, values, i, groups[i], &value, &isnull)))
			continue;
		if (!isnull)
		{
			if (unlikely(node->checked))
				gpusort_check_value(&values->check, value, groups[i]);
			gpusort_lists_add(&values->lists, groups[i], value);
		}
		else
		{
			values->nnulls++;
			if (values->sorted)
				gpusort_counts_add(&values->nulls, node->cxt, groups[i]);
		}
	}
}

void
gpusort_aggregates_add(GpusortAggregates *node, GpusortPage *page, const uint32 *groups)
{
	/* a type that gpusort does not sort is an error if there are rows */
	if (unlikely(!node->begun))
		begin_gathering(node);
	node->begun = true;
	node->page = page;
	for (int i = 0; i < node->nvalues; i++)
	{
		if (node->grouped)
			add_page_to_lists(node, &node->values[i], groups);
		else
			add_page(node, &node->values[i]);
	}
}

int
gpusort_aggregates_values(const GpusortAggregates *node)
{
	return node->nvalues;
}

bool
gpusort_aggregates_are_many(const GpusortAggregates *node, int number)
{
	return gpusort_lists_near_room(&node->values[number].lists, MaxHeapTuplesPerPage);
}

GpusortKeys
gpusort_aggregates_take(GpusortAggregates *node, int number)
{
	GpusortValues *values = &node->values[number];
	GpusortKeys keys = {
		.count = values->lists.count,
		.nnulls = values->nnulls,
		.groups = values->lists.groups,
		.keys = values->lists.keys,
		.key_bytes = values->lists.type->key_bytes,
		.checked = node->checked,
		.sum = values->check.in.sum,
	};

	values->check.in = (GpusortChecksum) {0};
	values->lists.count = 0;
	values->nnulls = 0;
	return keys;
}

/* Checks keys that another process has gathered, and adds them to those that come in. */
static void
check_keys(GpusortAggregates *node, GpusortCheckKeys *check, const uint32 *groups, const GpusortKeys *keys)
{
	GpusortChecksum sent = {keys->count, keys->sum};
	GpusortChecksum come = {0};

	for (uint32 i = 0; i < keys->count; i++)
	{
		int			bytes = check->type->key_bytes;
		uint64		key = 0;
		Datum		value;

		/* they may not be aligned */
		memcpy(&key, (const char *) keys->keys + (Size) i * bytes, bytes);
		value = gpusort_check_value_of(check, gpusort_type_key(check->type, &key, 0));
		gpusort_checksum_add(&come, gpusort_check_value_hash(check, value, node->grouped ? keys->groups[i] : 0));
		gpusort_check_value(check, value, node->grouped ? groups[keys->groups[i]] : 0);
	}
	if (keys->checked && !gpusort_checksum_equal(&sent, &come))
		gpusort_check_fail_rows(&check->subject, &sent, &come);
}

void
gpusort_aggregates_put(GpusortAggregates *node, int number, const uint32 *groups, GpusortKeys keys)
{
	GpusortValues *values = &node->values[number];

	if (!node->begun)
		begin_gathering(node);
	node->begun = true;
	values->nnulls += keys.nnulls;
	if (node->checked)
		check_keys(node, &values->check, groups, &keys);
	if (node->grouped)
		gpusort_lists_add_keys(&values->lists, groups, keys.groups, keys.keys, keys.count);
	else
		gpusort_group_add_keys(&values->keys, keys.keys, keys.count);
	check_size(values);
}

TupleTableSlot *
gpusort_aggregates_take_misfit(GpusortAggregates *node, int number)
{
	return gpusort_misfits_next(&node->values[number].misfits);
}

void
gpusort_aggregates_put_misfit(GpusortAggregates *node, int number, const uint32 *groups, MinimalTuple row)
{
	if (!node->begun)
		begin_gathering(node);
	node->begun = true;
	gpusort_misfits_add_row(&node->values[number].misfits, node->ps, node->cxt, groups, row);
}

void
gpusort_aggregates_forget(GpusortAggregates *node)
{
	for (int i = 0; i < node->nvalues && node->begun; i++)
	{
		gpusort_group_end_spill(&node->values[i].limit);
		gpusort_lists_end(&node->values[i].lists);
		gpusort_misfits_end(&node->values[i].misfits);
		node->values[i].nnulls = 0;
	}
	for (int i = 0; i < node->naggregates; i++)
	{
		node->aggregates[i].fractions.evaluated = false;
		if (node->aggregates[i].sum != NULL)
			gpusort_states_forget(node->aggregates[i].sum);
	}
	MemoryContextReset(node->cxt);
	node->begun = false;
}
