/*-------------------------------------------------------------------------
 *
 * results.c
 *		Computes aggregates that sort, of gathered keys.
 *
 * Without groups, percentiles are found by selection; a mode and a number of distinct values take a sort.  Where keys
 * have been spilled, all of these are found in one pass over the sorted keys.  A group's keys, which fit the
 * processor's cache, are sorted, unless it is a large group, which is computed as if it was alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "base/fault.h"
#include "cpu/cpu.h"
#include "functions/functions.h"
#include "store/spill.h"

/* Evaluates the fractions, once.  has_rows: of the aggregate's values, there is one at least */
static void
evaluate_fractions(GpusortAggregates *node, GpusortAggregate *aggregate, bool has_rows)
{
	ResetExprContext(node->ps->ps_ExprContext);
	gpusort_fractions_evaluate(&aggregate->fractions, has_rows, node->ps->ps_ExprContext, node->cxt);
}

static bool
is_percentile(const GpusortAggregate *aggregate)
{
	return aggregate->kind == GPUSORT_AGGREGATE_CONT || aggregate->kind == GPUSORT_AGGREGATE_DISC;
}

Size
gpusort_aggregates_group_bytes(const GpusortAggregates *node)
{
	return node->nvalues * (GPUSORT_LISTS_GROUP_BYTES + sizeof(uint64));
}

/* Finds the places of the keys that a percentile needs: none if the result is NULL. */
static void
find_places(GpusortAggregates *node, GpusortAggregate *aggregate, uint64 rows)
{
	const GpusortValues *values = &node->values[aggregate->values];
	const GpusortType *type = values->keys.type;

	/* of misfits, see take_value() */
	if (values->misfits.sort != NULL)
		type = aggregate->kind == GPUSORT_AGGREGATE_CONT ? gpusort_type_get(FLOAT8OID) : NULL;
	evaluate_fractions(node, aggregate, rows > 0);
	aggregate->nplaces = 0;
	aggregate->percentiles = (GpusortPercentiles) {
		.type = type,
		.elemtype = exprType(values->expression),
		.fractions = &aggregate->fractions,
		.rows = rows,
		.discrete = aggregate->kind == GPUSORT_AGGREGATE_DISC,
		.descending = aggregate->descending,
	};
	if (rows == 0 || aggregate->fractions.null)
		return;
	aggregate->places = gpusort_percentile_places(&aggregate->percentiles, &aggregate->nplaces);
	aggregate->found = palloc(Max(aggregate->nplaces, 1) * sizeof(uint64));
}

/* Takes the next n keys in order, the first of which is at this place, behind the key last. */
static void
take_keys(GpusortAggregate *aggregate, const GpusortType *type, const uint64 *keys, uint64 n, uint64 place, uint64 last)
{
	for (int i = 0; i < aggregate->nplaces; i++)
	{
		if (aggregate->places[i] >= place && aggregate->places[i] < place + n)
			aggregate->found[i] = keys[aggregate->places[i] - place];
	}
	if (is_percentile(aggregate))
		return;
	for (uint64 i = 0; i < n; i++)
	{
		bool		repeated = (i > 0 || place > 0) && gpusort_group_same(type, i > 0 ? keys[i - 1] : last, keys[i]);

		if (aggregate->kind == GPUSORT_AGGREGATE_COUNT)
			aggregate->count += !repeated;
		else if (aggregate->kind == GPUSORT_AGGREGATE_SUM && !repeated)
		{
			NullableDatum value = {.value = gpusort_percentile_value(type, keys[i])};

			gpusort_states_advance(aggregate->sum, &value);
		}
		else if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
		{
			aggregate->count = repeated ? aggregate->count + 1 : 1;
			if (aggregate->count > aggregate->most || (aggregate->descending && aggregate->count == aggregate->most))
			{
				aggregate->most = aggregate->count;
				aggregate->mode = keys[i];
			}
		}
	}
}

/* Reads all values in order, for the aggregates that need them. */
static void
read_in_order(GpusortAggregates *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	struct GpusortSpill *spill;
	GpusortGroupScan scan;
	const uint64 *next;
	uint64		n;
	uint64		last = 0;
	GpusortCheckKeys *check = &node->values[number].check;

	gpusort_group_begin_scan(keys, &scan);
	spill = node->values[number].limit.spill;
	for (int i = 0; i < node->naggregates && spill != NULL; i++)
	{
		if (node->aggregates[i].values == number && is_percentile(&node->aggregates[i]))
			find_places(node, &node->aggregates[i], gpusort_spill_rows(spill));
	}
	if (node->checked)
		gpusort_check_keys_begin_read(check);
	for (uint64 place = 0; (next = gpusort_group_next(&scan, &n)) != NULL; place += n)
	{
		if (node->checked)
			gpusort_check_words_read(check, next, n);
		for (int i = 0; i < node->naggregates; i++)
		{
			if (node->aggregates[i].values == number)
				take_keys(&node->aggregates[i], keys->type, next, n, place, last);
		}
		last = next[n - 1];
	}
	if (node->checked)
		gpusort_check_keys_end_read(check);
	gpusort_group_end_scan(&scan);
	gpusort_group_end_spill(keys->limit);
}

/* Adds n keys of a group to the misfits, as the values that they are. */
static void
make_misfits(GpusortAggregates *node, GpusortValues *values, uint32 group, const uint64 *keys, uint64 n)
{
	ExprContext *econtext = node->ps->ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (uint64 i = 0; i < n; i++)
	{
		if (i % GPUSORT_GROUP_SCAN_KEYS == 0)
			CHECK_FOR_INTERRUPTS();
		gpusort_misfits_add(&values->misfits, node->ps, node->cxt, group, gpusort_percentile_value(values->keys.type, keys[i]));
		ResetExprContext(econtext);
	}
	MemoryContextSwitchTo(old);
}

/* The same of all keys of a large group, or of all rows. */
static void
make_all_misfits(GpusortAggregates *node, GpusortValues *values, uint32 group)
{
	GpusortGroupScan scan;
	const uint64 *next;
	uint64		n;

	gpusort_group_begin_scan(&values->keys, &scan);
	while ((next = gpusort_group_next(&scan, &n)) != NULL)
		make_misfits(node, values, group, next, n);
	gpusort_group_end_scan(&scan);
	gpusort_group_end_spill(&values->limit);
}

/* The key of a numeric's cast to double precision, which raises an error if the value has none. */
static uint64
cast_key(GpusortAggregates *node, Datum value)
{
	ExprContext *econtext = node->ps->ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	int64		bits;

	ResetExprContext(econtext);
	bits = DatumGetInt64(DirectFunctionCall1(numeric_float8, value));
	MemoryContextSwitchTo(old);
	return gpusort_key_float8((uint64) bits);
}

/* Takes a value of a group at this place of its order, the run-th one of equal ones, of which first is the first one. */
static void
take_value(GpusortAggregates *node, GpusortAggregate *aggregate, Datum value, Datum first, uint64 place, uint64 run)
{
	bool		cont = aggregate->kind == GPUSORT_AGGREGATE_CONT;
	/* core casts all values */
	uint64		key = cont ? cast_key(node, value) : 0;

	for (int i = 0; i < aggregate->nplaces; i++)
	{
		if (aggregate->places[i] == place)
			aggregate->found[i] = cont ? key : (uint64) datumCopy(value, false, -1);
	}
	if (aggregate->kind == GPUSORT_AGGREGATE_COUNT)
		aggregate->count += run == 1;
	if (aggregate->kind != GPUSORT_AGGREGATE_MODE || run < aggregate->most || (run == aggregate->most && !aggregate->descending))
		return;
	if (aggregate->most > 0)
		pfree(DatumGetPointer((Datum) aggregate->mode));
	aggregate->most = run;
	aggregate->mode = (uint64) datumCopy(first, false, -1);
}

/* Finds what the aggregates need of a group's values, some of which have no keys. */
static void
read_values(GpusortAggregates *node, int number, uint32 group)
{
	GpusortValues *values = &node->values[number];
	Datum		value;
	Datum		last = (Datum) 0;
	uint64		run = 0;

	for (int i = 0; i < node->naggregates; i++)
	{
		if (node->aggregates[i].values == number && is_percentile(&node->aggregates[i]))
			find_places(node, &node->aggregates[i], values->rows);
	}
	for (uint64 place = 0; gpusort_misfits_next_of(&values->misfits, group, &value); place++)
	{
		if (place > 0 && DatumGetBool(DirectFunctionCall2(numeric_eq, last, value)))
			run++;
		else
		{
			if (place > 0)
				pfree(DatumGetPointer(last));
			last = datumCopy(value, false, -1);
			run = 1;
		}
		for (int i = 0; i < node->naggregates; i++)
		{
			if (node->aggregates[i].values == number)
				take_value(node, &node->aggregates[i], value, last, place, run);
		}
	}
}

/* Finds what the aggregates need of these values. */
static void
find_keys(GpusortAggregates *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	bool		spilled = node->values[number].limit.spill != NULL;
	bool		in_order = spilled;

	for (int i = 0; i < node->naggregates; i++)
	{
		GpusortAggregate *aggregate = &node->aggregates[i];

		if (aggregate->values != number)
			continue;
		in_order |= aggregate->kind >= GPUSORT_AGGREGATE_MODE;
		if (!is_percentile(aggregate) || spilled)
			continue;
		find_places(node, aggregate, gpusort_group_rows(keys));
		gpusort_percentile_select(keys, aggregate->places, aggregate->nplaces, aggregate->found);
		for (int j = 0; j < aggregate->nplaces && node->checked; j++)
			gpusort_group_check_place(keys, &node->values[number].check, aggregate->places[j], aggregate->found[j]);
		aggregate->nplaces = 0;
	}
	if (in_order)
		read_in_order(node, number);
}

/* Returns a sum or an average of distinct values. */
static Datum
sum_of(const GpusortAggregates *node, const GpusortAggregate *aggregate, bool *isnull)
{
	ExprContext *econtext = node->ps->ps_ExprContext;
	Datum		value;

	ResetExprContext(econtext);
	gpusort_states_finish(aggregate->sum, 0, econtext, &value, isnull);
	return *isnull ? value : datumCopy(value, aggregate->by_value, aggregate->length);
}

/* Returns an array of all values, also of those that are NULL. */
static Datum
array_of(const GpusortAggregates *node, GpusortValues *values, bool *isnull)
{
	const GpusortType *type = values->keys.type;
	ArrayType  *array;
	char	   *to;

	*isnull = values->rows + values->nnulls == 0;
	if (*isnull)
		return (Datum) 0;
	if (values->rows > 0 && values->group_keys == NULL)
		return PointerGetDatum(gpusort_group_array(&values->keys, exprType(values->expression), values->nnulls,
												   node->checked ? &values->check : NULL));
	array = gpusort_array_build(exprType(values->expression), type->value_bytes, values->rows, values->nnulls, false, &to);
	gpusort_type_decode(type, values->group_keys, values->rows, false, to);
	if (node->checked && values->rows > 0)
		gpusort_check_values(&values->check, to, values->rows);
	return PointerGetDatum(array);
}

/* Returns discrete percentiles of values. */
static Datum
percentile_of_values(const GpusortAggregate *aggregate)
{
	Datum	   *found = palloc(Max(aggregate->nplaces, 1) * sizeof(Datum));

	for (int i = 0; i < aggregate->nplaces; i++)
		found[i] = (Datum) aggregate->found[i];
	return gpusort_percentile_pack(&aggregate->percentiles, found);
}

/* Returns the result of an aggregate, in the current memory context. */
static Datum
result_of(const GpusortAggregates *node, const GpusortAggregate *aggregate, bool *isnull)
{
	GpusortValues *values = &node->values[aggregate->values];

	*isnull = false;
	switch (aggregate->kind)
	{
		case GPUSORT_AGGREGATE_COUNT:
			return Int64GetDatum((int64) aggregate->count);
		case GPUSORT_AGGREGATE_SUM:
			return sum_of(node, aggregate, isnull);
		case GPUSORT_AGGREGATE_MODE:
			*isnull = aggregate->most == 0;
			if (!*isnull && values->misfits.sort != NULL)
				return (Datum) aggregate->mode;
			return *isnull ? (Datum) 0 : gpusort_percentile_value(values->keys.type, aggregate->mode);
		case GPUSORT_AGGREGATE_SORTED:
			return array_of(node, values, isnull);
		default:
			*isnull = aggregate->fractions.null || aggregate->percentiles.rows == 0;
			if (!*isnull && aggregate->percentiles.type == NULL)
				return percentile_of_values(aggregate);
			return *isnull ? (Datum) 0 : gpusort_percentile_result(&aggregate->percentiles, aggregate->found);
	}
}

/* Begins to compute the results of a group, or of all rows. */
static void
begin_results(GpusortAggregates *node)
{
	for (int i = 0; i < node->naggregates; i++)
	{
		GpusortAggregate *aggregate = &node->aggregates[i];

		aggregate->count = aggregate->most = aggregate->percentiles.rows = 0;
		if (aggregate->sum == NULL)
			continue;
		gpusort_states_forget(aggregate->sum);
		gpusort_states_begin(aggregate->sum, 1);
	}
}

/* Fractions may be errors also where there are no values. */
static void
check_fractions(GpusortAggregates *node)
{
	for (int i = 0; i < node->naggregates; i++)
	{
		if (is_percentile(&node->aggregates[i]))
			evaluate_fractions(node, &node->aggregates[i], false);
	}
}

void
gpusort_aggregates_finish(GpusortAggregates *node, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	begin_results(node);
	if (!node->begun)
		check_fractions(node);
	for (int i = 0; i < node->nvalues; i++)
	{
		GpusortValues *values = &node->values[i];

		values->rows = node->begun ? gpusort_group_rows(&values->keys) : 0;
		values->check.wanted = values->check.in;
		if (values->misfits.sort != NULL)
		{
			make_all_misfits(node, values, 0);
			values->rows = gpusort_counts_of(&values->misfits.counts, 0);
			read_values(node, i, 0);
		}
		else if (node->begun && !values->sorted)
			find_keys(node, i);
	}
	for (int i = 0; i < node->naggregates; i++)
		values[i] = result_of(node, &node->aggregates[i], &nulls[i]);
	MemoryContextSwitchTo(old);
}

/* Finds what the aggregates need of the sorted keys of a small group. */
static void
find_sorted_keys(GpusortAggregates *node, int number, const void *keys, uint64 n)
{
	const GpusortType *type = node->values[number].keys.type;
	uint64		words[GPUSORT_GROUP_SCAN_KEYS];

	for (int i = 0; i < node->naggregates; i++)
	{
		GpusortAggregate *aggregate = &node->aggregates[i];
		uint64		last = 0;

		if (aggregate->values != number)
			continue;
		if (is_percentile(aggregate))
		{
			find_places(node, aggregate, n);
			for (int j = 0; j < aggregate->nplaces; j++)
				aggregate->found[j] = gpusort_type_key(type, keys, aggregate->places[j]);
			continue;
		}
		for (uint64 place = 0; place < n; place += GPUSORT_GROUP_SCAN_KEYS)
		{
			uint64		count = Min(n - place, GPUSORT_GROUP_SCAN_KEYS);

			for (uint64 j = 0; j < count; j++)
				words[j] = gpusort_type_key(type, keys, place + j);
			take_keys(aggregate, type, words, count, place, last);
			last = words[count - 1];
		}
	}
}

/* Gathers the keys of a large group.  Memory for an array has no limit. */
static void
gather_large_group(GpusortAggregates *node, GpusortValues *values)
{
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	if (values->sorted)
		gpusort_array_check_size(values->lists.type->value_bytes, values->rows, values->nnulls);
	gpusort_group_begin(&values->keys, values->lists.type, node->cxt, !values->sorted);
	values->keys.limit = values->sorted ? NULL : &values->limit;
	gpusort_lists_copy(&values->lists, &values->keys, node->checked ? &values->check : NULL);
	MemoryContextSwitchTo(old);
	gpusort_checksum_join(&values->check.out, &values->check.wanted);
}

/* Goes on to the next group that has keys. */
static void
next_group(GpusortAggregates *node, GpusortValues *values)
{
	if (values->keys.set != NULL)
		gpusort_keyset_end(values->keys.set);
	values->keys.set = NULL;
	if (!gpusort_lists_next(&values->lists, &values->group, &values->group_keys, &values->group_rows))
		values->group = GPUSORT_NUMBERS_NONE;
}

/* Makes misfits of the keys of all groups. */
static void
make_groups_misfits(GpusortAggregates *node, GpusortValues *values)
{
	for (; values->group != GPUSORT_NUMBERS_NONE; next_group(node, values))
	{
		if (values->group_keys != NULL)
		{
			make_misfits(node, values, values->group, values->group_keys, values->group_rows);
			continue;
		}
		gather_large_group(node, values);
		make_all_misfits(node, values, values->group);
	}
}

void
gpusort_aggregates_begin_groups(GpusortAggregates *node, uint32 ngroups)
{
	node->group_cxt = AllocSetContextCreate(node->cxt, "GpuSort group", ALLOCSET_DEFAULT_SIZES);
	if (ngroups > 0)
		check_fractions(node);
	for (int i = 0; i < node->nvalues && node->begun; i++)
	{
		gpusort_lists_begin_scan(&node->values[i].lists, ngroups);
		next_group(node, &node->values[i]);
		if (node->values[i].misfits.sort != NULL)
			make_groups_misfits(node, &node->values[i]);
	}
}

/* Checks the sorted keys of a small group, which begin the reading of its results. */
static void
check_group(GpusortCheckKeys *check, const void *keys, uint64 n)
{
	gpusort_check_keys_begin_read(check);
	gpusort_check_keys_read(check, keys, n);
	check->wanted = check->read;
	gpusort_checksum_join(&check->out, &check->read);
}

void
gpusort_aggregates_end_groups(GpusortAggregates *node)
{
	for (int i = 0; i < node->nvalues && node->begun && node->checked; i++)
	{
		/* core's sort has ordered values that do not fit their type */
		if (node->values[i].misfits.sort == NULL)
			gpusort_check_keys_end(&node->values[i].check);
	}
}

void
gpusort_aggregates_finish_group(GpusortAggregates *node, uint32 group, Datum *results, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(node->group_cxt);

	MemoryContextReset(node->group_cxt);
	begin_results(node);
	for (int i = 0; i < node->nvalues; i++)
	{
		GpusortValues *values = &node->values[i];

		values->nnulls = gpusort_counts_of(&values->nulls, group);
		values->rows = values->misfits.sort != NULL ? gpusort_counts_of(&values->misfits.counts, group) :
			values->group == group ? values->group_rows : 0;
		if (values->rows == 0)
			continue;
		values->check.group = group;
		values->check.wanted = values->check.dropped = (GpusortChecksum) {0};
		if (values->misfits.sort != NULL)
			read_values(node, i, group);
		else if (values->group_keys == NULL)
		{
			gather_large_group(node, values);
			if (!values->sorted)
				find_keys(node, i);
		}
		else
		{
			gpusort_cpu_sort_few(values->group_keys, values->rows, values->lists.type->key_bytes);
			GPUSORT_FAULT_BREAK(GROUP, values->group_keys, values->lists.type->key_bytes, &values->rows);
			if (node->checked)
				check_group(&values->check, values->group_keys, values->rows);
			if (!values->sorted)
				find_sorted_keys(node, i, values->group_keys, values->rows);
		}
	}
	for (int i = 0; i < node->naggregates; i++)
		results[i] = result_of(node, &node->aggregates[i], &nulls[i]);
	for (int i = 0; i < node->nvalues; i++)
	{
		if (node->values[i].group == group)
			next_group(node, &node->values[i]);
	}
	MemoryContextSwitchTo(old);
}
