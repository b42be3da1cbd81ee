/*-------------------------------------------------------------------------
 *
 * order.c
 *		Rows in one order, for the aggregates that want them so.
 *
 * The columns of a row are evaluated when the child returns it: those of the groups, those by which aggregates sort, and other
 * arguments.  A row that fits in a word (pack.c) goes to a stream of words, any other one to a stream of rows.  Most orders have
 * nothing but words, or nothing but rows.
 *
 * The first rows wait as keys until they have shown how many bits each column needs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "aggregate/aggregate_state.h"
#include "node/node.h"
#include "compat.h"
#include "guc.h"

/* Rows that show how many bits columns need */
#define SAMPLE_ROWS		1024

/* Of an order with words, the part of the memory that is for rows without a word */
#define ROWS_PART		8

/* ---- columns ---- */

GpusortOrder *
gpusort_order_init(PlanState *ps, MemoryContext group_cxt, bool direct)
{
	GpusortOrder *order = palloc0(sizeof(GpusortOrder));

	order->ps = ps;
	order->group_cxt = group_cxt;
	order->direct = direct;
	order->columns = palloc(sizeof(GpusortOrderColumn));
	order->econtext = CreateExprContext(ps->state);
	return order;
}

static GpusortOrderColumn *
append_column(GpusortOrder *order, Expr *expr, int guard)
{
	GpusortOrderColumn *column;

	order->columns = repalloc(order->columns, (order->ncolumns + 1) * sizeof(GpusortOrderColumn));
	column = &order->columns[order->ncolumns++];
	*column = (GpusortOrderColumn) {.expr = expr, .guard = guard};
	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		column->attno = ((Var *) expr)->varattno;
	else
		column->state = ExecInitExpr(expr, order->ps);
	get_typlenbyval(exprType((Node *) expr), &column->length, &column->by_value);
	return column;
}

int
gpusort_order_add_column(GpusortOrder *order, Expr *expr, int guard)
{
	for (int i = 0; i < order->ncolumns; i++)
	{
		if (order->columns[i].guard == guard && equal(order->columns[i].expr, expr))
			return i;
	}
	append_column(order, expr, guard);
	return order->ncolumns - 1;
}

void
gpusort_order_add_sorted(GpusortOrder *order, const GpusortAggregateColumn *from)
{
	GpusortOrderColumn *column;
	const GpusortType *type = gpusort_type_find(exprType((Node *) from->expr));

	/* within a group, its columns do not differ */
	for (int i = 0; i < order->nsorted; i++)
	{
		if (gpusort_aggregate_same_family(order->columns[i].by.sort_operator, from->operator) &&
			equal(order->columns[i].expr, from->expr))
			return;
	}
	column = append_column(order, from->expr, -1);
	order->nsorted++;
	column->by = gpusort_aggregate_sort_column(from, order->nsorted);
	column->collation = exprCollation((Node *) from->expr);
	column->bitwise = type != NULL && type->kind != GPUSORT_KIND_FLOAT4 && type->kind != GPUSORT_KIND_FLOAT8 &&
		from->equals == lookup_type_cache(type->typid, TYPECACHE_EQ_OPR)->eq_opr;
	fmgr_info(get_opcode(from->equals), &column->function);
}

/* Describes a column's field of a word.  False if its values have no keys, or none in the order that is wanted. */
static bool
describe_field(const GpusortOrder *order, int i, GpusortField *field)
{
	const GpusortOrderColumn *column = &order->columns[i];

	*field = (GpusortField) {
		.type = gpusort_aggregate_type(column->expr),
		.nulls_first = column->by.nulls_first,
		.nullable = i != order->ngroups || !order->skips_nulls,
	};
	if (field->type == NULL)
		return false;
	if (i >= order->nsorted)
		return true;
	/* zeros differ in their bits, by which words are sorted: they may be last only */
	if (!column->bitwise && (i < order->ngroups || (i < order->nsorted - 1 && !gpusort_scaled_is(field->type))))
		return false;
	return gpusort_aggregate_default_order(column->by.sort_operator, exprType((Node *) column->expr), &field->descending);
}

/* Can the columns be fields of a word, if there is room? */
static bool
describe_fields(GpusortOrder *order)
{
	int			bits = 0;

	if (order->ncolumns > GPUSORT_PACK_COLUMNS || order->stable)
		return false;
	order->packing.n = order->ncolumns;
	for (int i = 0; i < order->ncolumns; i++)
	{
		if (!describe_field(order, i, &order->packing.fields[i]))
			return false;
		bits += gpusort_pack_full_bits(&order->packing.fields[i]);
	}
	order->packing.narrow = bits <= 32;
	return true;
}

static GpusortStream *
make_stream(GpusortOrder *order, TupleDesc desc, GpusortSortColumn *columns, int n)
{
	GpusortSortSpec spec = {0};

	gpusort_spec_set(&spec, desc, columns, n);
	if (order->distinct)
		spec.groups = (GpusortGroups) {.count = GPUSORT_GROUP_ROWS, .columns = n};
	return gpusort_stream_init(&spec, order->ps->state, NULL);
}

static void
prepare_rows(GpusortOrder *order, TupleDesc desc)
{
	GpusortSortColumn *columns = palloc(order->nsorted * sizeof(GpusortSortColumn));

	for (int i = 0; i < order->nsorted; i++)
		columns[i] = order->columns[i].by;
	order->rows = make_stream(order, desc, columns, order->nsorted);
	order->comparators = palloc0(order->nsorted * sizeof(SortSupportData));
	for (int i = 0; i < order->nsorted; i++)
	{
		order->comparators[i].ssup_cxt = CurrentMemoryContext;
		order->comparators[i].ssup_collation = columns[i].collation;
		order->comparators[i].ssup_nulls_first = columns[i].nulls_first;
		PrepareSortSupportFromOrderingOp(columns[i].sort_operator, &order->comparators[i]);
	}
}

/* Words are numbers to their stream. */
static void
prepare_words(GpusortOrder *order)
{
	Oid			type = order->packing.narrow ? INT4OID : INT8OID;
	TupleDesc	desc = CreateTemplateTupleDesc(1);
	GpusortSortColumn *column = palloc(sizeof(GpusortSortColumn));

	TupleDescInitEntry(desc, 1, NULL, type, -1, 0);
	gpusort_finish_descriptor(desc);
	*column = (GpusortSortColumn) {
		.attno = 1,
		.sort_operator = order->packing.narrow ? Int4LessOperator : Int8LessOperator,
		.type = type,
	};
	order->words = make_stream(order, desc, column, 1);
	order->sample_keys = palloc(SAMPLE_ROWS * order->ncolumns * sizeof(uint64));
	order->sample_nulls = palloc(SAMPLE_ROWS * order->ncolumns * sizeof(bool));
}

void
gpusort_order_prepare(GpusortOrder *order)
{
	int			n = order->ncolumns;
	List	   *exprs = NIL;
	TupleDesc	desc;

	for (int i = 0; i < n; i++)
		exprs = lappend(exprs, order->columns[i].expr);
	desc = ExecTypeFromExprList(exprs);
	order->slot = ExecStoreAllNullTuple(ExecInitExtraTupleSlot(order->ps->state, desc, &TTSOpsVirtual));
	if (order->condition != NULL)
		order->filter = ExecInitQual(list_make1(order->condition), order->ps);
	order->group.values = palloc(n * sizeof(Datum));
	order->group.nulls = palloc(n * sizeof(bool));
	order->last.values = palloc(n * sizeof(Datum));
	order->last.nulls = palloc(n * sizeof(bool));
	if (order->direct)
		return;
	order->packs = describe_fields(order);
	if (order->packs)
		prepare_words(order);
	prepare_rows(order, desc);
	order->plain = order->condition == NULL;
	for (int i = 0; i < n; i++)
	{
		order->allocates |= !order->columns[i].by_value;
		order->plain &= order->columns[i].attno > 0 && order->columns[i].guard < 0;
	}
}

/* ---- gathering ---- */

static void
begin_stream(const GpusortOrder *order, GpusortStream *stream, Size memory)
{
	GpusortStreamInput input = {
		.kind = order->kind,
		.name = order->kind == GPUSORT_STAT_FUNCTION ? "gpu_sort_agg()" : "GpuSort Aggregate",
		.node = order->ps,
		.verified = gpusort_verify,
		.expected = outerPlanState(order->ps)->plan->plan_rows,
		.limit = order->distinct ? 1 : -1,
		.memory = Max(memory, GPUSORT_LEAST_MEMORY),
	};

	(void) gpusort_stream_begin(stream, &input);
}

bool
gpusort_order_evaluate(GpusortOrder *order, GpusortPage *page, int i)
{
	ExprContext *econtext = order->econtext;
	TupleTableSlot *slot = order->slot;

	ResetExprContext(econtext);
	if (order->filter != NULL)
	{
		econtext->ecxt_outertuple = gpusort_page_slot(page, i);
		if (!ExecQual(order->filter, econtext))
			return false;
	}
	for (int c = 0; c < order->ncolumns; c++)
	{
		const GpusortOrderColumn *column = &order->columns[c];

		if (unlikely(column->guard >= 0) &&
			(slot->tts_isnull[column->guard] || !DatumGetBool(slot->tts_values[column->guard])))
		{
			slot->tts_isnull[c] = true;
			continue;
		}
		if (likely(column->attno > 0))
		{
			slot->tts_values[c] = gpusort_page_value(page, i, column->attno, &slot->tts_isnull[c]);
			continue;
		}
		econtext->ecxt_outertuple = gpusort_page_slot(page, i);
		slot->tts_values[c] = ExecEvalExprSwitchContext(column->state, econtext, &slot->tts_isnull[c]);
		/* several aggregates may take it */
		slot->tts_values[c] = MakeExpandedObjectReadOnly(slot->tts_values[c], slot->tts_isnull[c], column->length);
	}
	order->values = slot->tts_values;
	order->nulls = slot->tts_isnull;
	order->is_word = false;
	if (!order->skips_nulls || !slot->tts_isnull[order->ngroups])
		return true;
	order->skipped++;
	return false;
}

/* Puts the row in the slot. */
static void
put_row(GpusortOrder *order)
{
	if (!order->has_rows)
		begin_stream(order, order->rows, order->packs ? order->memory / ROWS_PART : order->memory);
	order->has_rows = true;
	gpusort_stream_put(order->rows, order->slot);
}

/* Hands the words that have been put over to the stream. */
static void
commit_words(GpusortOrder *order)
{
	gpusort_stream_commit(order->words, order->nput);
	order->nput = order->nreserved = 0;
}

static inline void
put_word(GpusortOrder *order, uint64 word)
{
	if (unlikely(order->nput == order->nreserved))
	{
		commit_words(order);
		order->reserved = gpusort_stream_reserve(order->words, &order->nreserved);
	}
	if (order->packing.narrow)
		((uint32 *) order->reserved)[order->nput++] = (uint32) word;
	else
		((uint64 *) order->reserved)[order->nput++] = word;
}

/* Makes the word of a row of these keys.  False if a column has no code. */
static bool
make_word(const GpusortPacking *packing, const uint64 *keys, const bool *nulls, uint64 *word)
{
	uint64		bits;

	*word = 0;
	for (int i = 0; i < packing->n; i++)
	{
		if (!gpusort_pack_code(&packing->fields[i], keys[i], nulls[i], &bits))
			return false;
		*word |= bits;
	}
	return true;
}

/* Chooses between words and rows by the first rows, and puts these. */
static void
choose(GpusortOrder *order)
{
	int			n = order->ncolumns;
	MemoryContext old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);

	order->packs = order->has_words = gpusort_pack_choose(&order->packing, order->sample_keys, order->sample_nulls, order->nsample);
	if (order->packs)
		begin_stream(order, order->words, order->memory - order->memory / ROWS_PART);
	for (int row = 0; row < order->nsample; row++)
	{
		const uint64 *keys = order->sample_keys + row * n;
		const bool *nulls = order->sample_nulls + row * n;
		uint64		word;

		if (order->packs)
		{
			(void) make_word(&order->packing, keys, nulls, &word);
			put_word(order, word);
			continue;
		}
		for (int i = 0; i < n; i++)
			order->slot->tts_values[i] = nulls[i] ? (Datum) 0 : gpusort_pack_decode(order->packing.fields[i].type, keys[i]);
		memcpy(order->slot->tts_isnull, nulls, n * sizeof(bool));
		put_row(order);
		ResetExprContext(order->econtext);
	}
	order->nsample = 0;
	MemoryContextSwitchTo(old);
}

/* Puts the current row as a word, or into the sample.  False if it has none. */
static bool
put_packed(GpusortOrder *order)
{
	const bool *nulls = order->nulls;
	uint64		keys[GPUSORT_PACK_COLUMNS];
	uint64		word;

	for (int i = 0; i < order->packing.n; i++)
	{
		keys[i] = 0;
		if (!nulls[i] && !gpusort_pack_key(&order->packing.fields[i], order->values[i], &keys[i]))
			return false;
	}
	if (order->has_words)
	{
		if (!make_word(&order->packing, keys, nulls, &word))
			return false;
		put_word(order, word);
		return true;
	}
	memcpy(order->sample_keys + order->nsample * order->ncolumns, keys, order->ncolumns * sizeof(uint64));
	memcpy(order->sample_nulls + order->nsample * order->ncolumns, nulls, order->ncolumns * sizeof(bool));
	if (++order->nsample == SAMPLE_ROWS)
		choose(order);
	return true;
}

/* Puts row i of a page, which is evaluated. */
static void
put_evaluated(GpusortOrder *order, GpusortPage *page, int i)
{
	if (!gpusort_order_evaluate(order, page, i))
		return;
	order->count++;
	if (!order->packs || !put_packed(order))
		put_row(order);
}

/* Adds the bits of a column to the words of a page's rows.  odd: rows that have no word, or are left out */
static pg_attribute_always_inline void
pack_kind(GpusortPage *page, AttrNumber attno, GpusortField field, uint64 *words, bool *odd)
{
	for (int i = 0; i < page->count; i++)
	{
		bool		isnull;
		Datum		value;
		uint64		key = 0;
		uint64		bits;

		if (page->slot != NULL || !gpusort_page_fetch(page, i, attno, &value, &isnull))
			value = slot_getattr(gpusort_page_slot(page, i), attno, &isnull);
		if (!isnull && !gpusort_pack_key(&field, value, &key))
			odd[i] = true;
		else if (gpusort_pack_code(&field, key, isnull, &bits))
			words[i] |= bits;
		else
			odd[i] = true;
	}
}

/* The same.  Integers have a loop of their own, since most columns are. */
static void
pack_column(GpusortOrder *order, GpusortPage *page, int c, uint64 *words, bool *odd)
{
	static const GpusortType integer = {.kind = GPUSORT_KIND_INT4, .key_bytes = sizeof(uint32)};
	GpusortField field = order->packing.fields[c];

	if (field.type->kind == GPUSORT_KIND_INT4)
	{
		field.type = &integer;
		pack_kind(page, order->columns[c].attno, field, words, odd);
	}
	else
		pack_kind(page, order->columns[c].attno, field, words, odd);
}

/* Puts the rows of a page, whose columns are the child's, column by column. */
static void
put_page(GpusortOrder *order, GpusortPage *page)
{
	uint64		words[MaxHeapTuplesPerPage] = {0};
	bool		odd[MaxHeapTuplesPerPage] = {false};

	for (int c = 0; c < order->ncolumns; c++)
		pack_column(order, page, c, words, odd);
	for (int i = 0; i < page->count; i++)
	{
		if (unlikely(odd[i]))
			put_evaluated(order, page, i);
		else
		{
			put_word(order, words[i]);
			order->count++;
		}
	}
}

void
gpusort_order_put(GpusortOrder *order, GpusortPage *page)
{
	if (order->plain && order->has_words)
	{
		put_page(order, page);
		return;
	}
	for (int i = 0; i < page->count; i++)
		put_evaluated(order, page, i);
}

/* All rows are there: finds how they can be compared. */
static void
find_fast(GpusortOrder *order)
{
	order->only_words = order->fast_repeats = order->has_words && !order->has_rows;
	for (int i = order->ngroups; i < order->nsorted && order->fast_repeats; i++)
		order->fast_repeats = order->columns[i].bitwise || gpusort_scaled_is(order->packing.fields[i].type);
}

void
gpusort_order_sort(GpusortOrder *order)
{
	if (order->nsample > 0)
		choose(order);
	if (order->has_words)
	{
		commit_words(order);
		gpusort_stream_finish(order->words);
	}
	if (order->has_rows)
		gpusort_stream_finish(order->rows);
	find_fast(order);
}

void
gpusort_order_take_words(GpusortOrder *order)
{
	const GpusortSortSpec *spec;

	order->words = gpusort_node_words(outerPlanState(order->ps), &spec);
	if (order->words == NULL)
		return;
	order->packing.n = 1;
	order->packing.narrow = spec->value_type->key_bytes == sizeof(uint32);
	order->packing.fields[0] = (GpusortField) {
		.type = spec->value_type,
		.descending = spec->descending,
		.most = PG_UINT64_MAX >> (64 - 8 * spec->value_type->key_bytes),
		.bits = 8 * spec->value_type->key_bytes,
	};
	order->direct = false;
	order->borrows = order->has_words = true;
	find_fast(order);
}

/* ---- reading ---- */

/* Makes the next word. */
static bool
next_word(GpusortOrder *order)
{
	if (unlikely(order->nnext == 0))
	{
		CHECK_FOR_INTERRUPTS();
		order->next_words = gpusort_stream_next_words(order->words, &order->nnext);
		if (order->next_words == NULL)
		{
			order->nnext = 0;
			return false;
		}
		order->count += order->borrows ? order->nnext : 0;
	}
	order->word = *order->next_words++;
	order->nnext--;
	return true;
}

/* Is the next word before the next row? */
static bool
word_is_first(GpusortOrder *order)
{
	MemoryContext old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);
	int			result = 0;

	for (int i = 0; i < order->nsorted && result == 0; i++)
	{
		bool		isnull;
		Datum		value = gpusort_pack_value(&order->packing.fields[i], order->word, &isnull);

		result = ApplySortComparator(value, isnull, order->row->tts_values[i], order->row->tts_isnull[i], &order->comparators[i]);
	}
	MemoryContextSwitchTo(old);
	return result <= 0;
}

bool
gpusort_order_step(GpusortOrder *order)
{
	ResetExprContext(order->econtext);
	if (order->has_words && !order->has_word)
		order->has_word = next_word(order);
	if (order->has_rows && order->row == NULL)
	{
		CHECK_FOR_INTERRUPTS();
		order->row = gpusort_stream_next(order->rows, true);
		if (!TupIsNull(order->row))
			slot_getallattrs(order->row);
		order->values = order->row->tts_values;
		order->nulls = order->row->tts_isnull;
	}
	order->is_word = order->has_word && (!order->has_rows || TupIsNull(order->row) || word_is_first(order));
	order->fetched = order->is_word || (order->has_rows && !TupIsNull(order->row));
	return order->fetched;
}

/* Are these columns of the current row equal to those that were kept? */
static bool
equals(GpusortOrder *order, const GpusortKept *kept, int first, int end)
{
	MemoryContext old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);
	bool		equal = true;

	for (int i = first; i < end && equal; i++)
	{
		GpusortOrderColumn *column = &order->columns[i];
		bool		isnull;
		Datum		value = gpusort_order_value(order, i, &isnull);

		if (isnull || kept->nulls[i])
			equal = isnull == kept->nulls[i];
		else if (column->bitwise)
			equal = value == kept->values[i];
		else
			equal = DatumGetBool(FunctionCall2Coll(&column->function, column->collation, value, kept->values[i]));
	}
	MemoryContextSwitchTo(old);
	return equal;
}

/* Keeps these columns of the current row. */
static void
keep(GpusortOrder *order, GpusortKept *kept, int first, int end)
{
	MemoryContext old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);

	for (int i = first; i < end; i++)
	{
		const GpusortOrderColumn *column = &order->columns[i];

		if (kept->known && !kept->nulls[i] && !column->by_value)
			pfree(DatumGetPointer(kept->values[i]));
		kept->values[i] = gpusort_order_value(order, i, &kept->nulls[i]);
		if (kept->nulls[i] || column->by_value)
			continue;
		MemoryContextSwitchTo(order->group_cxt);
		kept->values[i] = datumCopy(kept->values[i], false, column->length);
		MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);
	}
	kept->known = true;
	MemoryContextSwitchTo(old);
}

void
gpusort_order_begin_group(GpusortOrder *order)
{
	/* their memory has been freed */
	order->group.known = order->last.known = false;
	if (order->ngroups == 0)
		return;
	keep(order, &order->group, 0, order->ngroups);
	if (order->only_words)
		order->group.word = gpusort_order_fields(order, order->ngroups);
}

bool
gpusort_order_joins_group(GpusortOrder *order, const GpusortOrder *other)
{
	return equals(order, &other->group, 0, order->ngroups);
}

bool
gpusort_order_keep_repeats(GpusortOrder *order)
{
	if (order->last.known && equals(order, &order->last, order->ngroups, order->nsorted))
		return true;
	keep(order, &order->last, order->ngroups, order->nsorted);
	return false;
}

const uint64 *
gpusort_order_stretch(GpusortOrder *order, uint64 *n)
{
	const uint64 *words = order->next_words - 1;
	uint64		most = order->nnext + 1;

	*n = order->ngroups > 0 ? 1 : most;
	while (*n < most && words[*n] >> order->packing.fields[order->ngroups - 1].shift == order->group.word)
		(*n)++;
	order->next_words = words + *n;
	order->nnext = most - *n;
	gpusort_order_take(order);
	return words;
}

void
gpusort_order_forget(GpusortOrder *order)
{
	GpusortReport report;

	if (order->kind == GPUSORT_STAT_FUNCTION && order->has_words)
	{
		gpusort_stream_report(order->words, &report);
		gpusort_stat_count(GPUSORT_STAT_FUNCTION, &report);
	}
	/* those of a GpuSort below are its own */
	if (order->words != NULL && !order->borrows)
		gpusort_stream_end(order->words);
	if (order->rows != NULL)
		gpusort_stream_end(order->rows);
	if (order->borrows)
	{
		order->direct = true;
		order->words = NULL;
	}
	order->borrows = false;
	order->packs = order->words != NULL;
	order->has_words = order->has_rows = order->fetched = order->has_word = order->only_words = false;
	order->row = NULL;
	order->nsample = order->nput = order->nreserved = 0;
	order->nnext = order->count = order->skipped = 0;
	order->group.known = order->last.known = false;
	ResetExprContext(order->econtext);
}
