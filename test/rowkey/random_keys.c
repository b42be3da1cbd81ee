/*-------------------------------------------------------------------------
 *
 * random_keys.c
 *		Compares row keys of random values with the types' comparators.
 *
 * This file is part of the module of rowkey_test.c.  A seed determines an ORDER BY list
 * and rows of similar values (random_values.c).  The rows are encoded, and every pair is
 * compared.  The words must not contradict the types' btree comparators, the words of
 * equal rows must be equal, and the words of unequal rows may be equal only if the key is
 * lossy.  gpusort_rowkey_compare() must always agree with the comparators.
 *
 * The values lie in tuples, where short ones have short headers, or in virtual slots.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "random_values.h"
#include "compat.h"
#include "key/key.h"

PG_FUNCTION_INFO_V1(rowkey_random);

#define MAX_COLUMNS		4
#define MAX_ROWS		500

/* ---- the list and its rows ---- */

typedef struct OrderedRows
{
	int			ncolumns;
	int			kind[MAX_COLUMNS];	/* indexes of random_kinds */
	TypeCacheEntry *type[MAX_COLUMNS];
	GpusortSortColumn columns[MAX_COLUMNS];
	int			nrows;
	Datum	   *values;			/* ncolumns per row */
	bool	   *nulls;			/* ncolumns per row */
	GpusortRowKey *key;
	int			nwords;			/* words of a key */
	uint64	   *words;			/* nwords per row */
} OrderedRows;

/* Makes a list of one column of the wanted kind, or of several columns of any kind if wanted is NULL. */
static void
make_list(OrderedRows *ordered, Maker *maker, const char *wanted)
{
	ordered->ncolumns = wanted != NULL ? 1 : 2 + any(maker, MAX_COLUMNS - 1);
	for (int c = 0; c < ordered->ncolumns; c++)
	{
		int			kind = any(maker, RANDOM_KINDS);
		bool		descending = any(maker, 2);

		while (wanted != NULL && strcmp(random_kinds[kind].name, wanted) != 0)
			kind = (kind + 1) % RANDOM_KINDS;
		ordered->kind[c] = kind;
		ordered->type[c] = lookup_type_cache(random_kinds[kind].type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR | TYPECACHE_CMP_PROC_FINFO);
		ordered->columns[c].attno = c + 1;
		ordered->columns[c].sort_operator = descending ? ordered->type[c]->gt_opr : ordered->type[c]->lt_opr;
		ordered->columns[c].collation = random_kinds[kind].collation;
		ordered->columns[c].nulls_first = any(maker, 2);
		ordered->columns[c].type = random_kinds[kind].type;
	}
}

/* Makes random values for all rows. */
static void
make_rows(OrderedRows *ordered, Maker *maker)
{
	int			cells = ordered->nrows * ordered->ncolumns;

	ordered->values = palloc0(sizeof(Datum) * cells);
	ordered->nulls = palloc0(sizeof(bool) * cells);
	for (int c = 0; c < ordered->ncolumns; c++)
	{
		for (int row = 0; row < ordered->nrows; row++)
		{
			int			cell = row * ordered->ncolumns + c;
			int			other = any(maker, row + 1) * ordered->ncolumns + c;

			ordered->nulls[cell] = any(maker, 16) == 0;
			/* the first columns often repeat a value, so that later columns decide */
			if (other != cell && any(maker, 4) < ordered->ncolumns - 1 - c)
			{
				ordered->values[cell] = ordered->values[other];
				ordered->nulls[cell] = ordered->nulls[other];
			}
			else if (!ordered->nulls[cell])
				ordered->values[cell] = random_kinds[ordered->kind[c]].make(maker);
		}
	}
}

static TupleDesc
describe(const OrderedRows *ordered)
{
	TupleDesc	desc = CreateTemplateTupleDesc(ordered->ncolumns);

	for (int c = 0; c < ordered->ncolumns; c++)
	{
		TupleDescInitEntry(desc, c + 1, random_kinds[ordered->kind[c]].name, random_kinds[ordered->kind[c]].type, -1, 0);
		TupleDescInitEntryCollation(desc, c + 1, random_kinds[ordered->kind[c]].collation);
	}
	gpusort_finish_descriptor(desc);
	return desc;
}

/* Stores a row in a slot, as a tuple or as values. */
static void
store(const OrderedRows *ordered, int row, bool in_tuple, TupleTableSlot *slot)
{
	Datum	   *values = &ordered->values[row * ordered->ncolumns];
	bool	   *nulls = &ordered->nulls[row * ordered->ncolumns];

	ExecClearTuple(slot);
	if (in_tuple)
		ExecStoreHeapTuple(heap_form_tuple(slot->tts_tupleDescriptor, values, nulls), slot, true);
	else
	{
		memcpy(slot->tts_values, values, sizeof(Datum) * ordered->ncolumns);
		memcpy(slot->tts_isnull, nulls, sizeof(bool) * ordered->ncolumns);
		ExecStoreVirtualTuple(slot);
	}
}

/* ---- the check ---- */

static int
sign_of(int number)
{
	return (number > 0) - (number < 0);
}

/* The order of two rows by the types' comparator of column c, DESC and NULLS FIRST included. */
static int
compare_column(const OrderedRows *ordered, int i, int j, int c)
{
	int			a = i * ordered->ncolumns + c;
	int			b = j * ordered->ncolumns + c;

	if (ordered->nulls[a] || ordered->nulls[b])
		return (ordered->nulls[a] - ordered->nulls[b]) * (ordered->columns[c].nulls_first ? -1 : 1);
	return sign_of(DatumGetInt32(FunctionCall2Coll(&ordered->type[c]->cmp_proc_finfo, ordered->columns[c].collation,
												   ordered->values[a], ordered->values[b]))) *
		(ordered->columns[c].sort_operator == ordered->type[c]->gt_opr ? -1 : 1);
}

static int
compare_by_types(const OrderedRows *ordered, int i, int j)
{
	int			order = 0;

	for (int c = 0; c < ordered->ncolumns && order == 0; c++)
		order = compare_column(ordered, i, j, c);
	return order;
}

static int
compare_by_words(const OrderedRows *ordered, int i, int j)
{
	const uint64 *a = &ordered->words[i * ordered->nwords];
	const uint64 *b = &ordered->words[j * ordered->nwords];

	for (int word = 0; word < ordered->nwords; word++)
	{
		if (a[word] != b[word])
			return a[word] < b[word] ? -1 : 1;
	}
	return 0;
}

/* Do the bytes of two values of column c compare as their type does, if it compares by bytes? */
static bool
bytes_agree(const OrderedRows *ordered, int i, int j, int c)
{
	int			a = i * ordered->ncolumns + c;
	int			b = j * ordered->ncolumns + c;
	const char *bytes[2];
	Size		length[2];
	int			by_bytes;

	if (!gpusort_rowkey_order(ordered->key, c).by_bytes || ordered->nulls[a] || ordered->nulls[b])
		return true;
	gpusort_rowkey_bytes(ordered->key, c, ordered->values[a], &bytes[0], &length[0]);
	gpusort_rowkey_bytes(ordered->key, c, ordered->values[b], &bytes[1], &length[1]);
	by_bytes = sign_of(memcmp(bytes[0], bytes[1], Min(length[0], length[1])));
	if (by_bytes == 0)
		by_bytes = length[0] < length[1] ? -1 : length[0] > length[1];
	return compare_column(ordered, i, j, c) == (gpusort_rowkey_order(ordered->key, c).descending ? -by_bytes : by_bytes);
}

/* Returns what is wrong with a pair of rows, or NULL. */
static const char *
check_pair(const OrderedRows *ordered, int i, int j, int compared, bool lossy)
{
	int			order = compare_by_types(ordered, i, j);
	int			word_order = compare_by_words(ordered, i, j);

	if (sign_of(compared) != order)
		return "gpusort_rowkey_compare() contradicts the types";
	for (int c = 0; c < ordered->ncolumns; c++)
	{
		if (!bytes_agree(ordered, i, j, c))
			return "the bytes contradict the types";
	}
	if (order == 0)
		return word_order != 0 ? "equal rows have different words" : NULL;
	if (word_order == 0)
		return lossy ? NULL : "unequal rows have equal words, and the key is not lossy";
	return word_order != order ? "the words contradict the types" : NULL;
}

static void
append_row(StringInfo to, const OrderedRows *ordered, int row)
{
	for (int c = 0; c < ordered->ncolumns; c++)
	{
		int			cell = row * ordered->ncolumns + c;
		Oid			output;
		bool		varlena;

		getTypeOutputInfo(random_kinds[ordered->kind[c]].type, &output, &varlena);
		appendStringInfo(to, "%s%s", c == 0 ? "(" : ", ",
						 ordered->nulls[cell] ? "NULL" : quote_literal_cstr(OidOutputFunctionCall(output, ordered->values[cell])));
	}
	appendStringInfoChar(to, ')');
}

static const char *
explain(const OrderedRows *ordered, int i, int j, const char *wrong)
{
	StringInfoData message;

	initStringInfo(&message);
	appendStringInfo(&message, "%s: ORDER BY ", wrong);
	for (int c = 0; c < ordered->ncolumns; c++)
		appendStringInfo(&message, "%s%s%s NULLS %s", c == 0 ? "" : ", ", random_kinds[ordered->kind[c]].name,
						 ordered->columns[c].sort_operator == ordered->type[c]->gt_opr ? " DESC" : "",
						 ordered->columns[c].nulls_first ? "FIRST" : "LAST");
	appendStringInfoString(&message, " of ");
	append_row(&message, ordered, i);
	appendStringInfoString(&message, " and ");
	append_row(&message, ordered, j);
	return message.data;
}

/* The sample: the first rows, again and again. */
typedef struct SampleRows
{
	OrderedRows *ordered;
	int			nrows;
	bool		in_tuples;
	TupleTableSlot *slot;
} SampleRows;

/* Returns row i of the sample in a slot: a GpusortSampleRow. */
static TupleTableSlot *
sample_row(void *arg, uint64 i)
{
	SampleRows *sample = arg;
	/* the slot keeps the tuple longer than the caller's context lives */
	MemoryContext old = MemoryContextSwitchTo(sample->slot->tts_mcxt);

	store(sample->ordered, i % sample->nrows, sample->in_tuples, sample->slot);
	MemoryContextSwitchTo(old);
	return sample->slot;
}

/* Encodes all rows and compares all pairs.  Returns what is wrong, or NULL. */
static const char *
check(OrderedRows *ordered, Maker *maker)
{
	TupleDesc	desc = describe(ordered);
	bool		in_tuples = any(maker, 2);
	const TupleTableSlotOps *ops = in_tuples ? &TTSOpsHeapTuple : &TTSOpsVirtual;
	TupleTableSlot *a = MakeSingleTupleTableSlot(desc, ops);
	TupleTableSlot *b = MakeSingleTupleTableSlot(desc, ops);
	int			reset_before = any(maker, ordered->nrows);
	GpusortKeyPlan plan = gpusort_rowkey_plan(ordered->columns, ordered->ncolumns);
	bool		lossy = false;
	const char *wrong = NULL;

	ordered->key = gpusort_rowkey_begin(&plan);
	if (any(maker, 2))
	{
		SampleRows	sample = {ordered, 1 + any(maker, ordered->nrows), in_tuples, a};

		gpusort_rowkey_settle(ordered->key, sample_row, &sample, Max(sample.nrows, 500), 0);
	}
	ordered->nwords = gpusort_rowkey_words(ordered->key);
	ordered->words = palloc(sizeof(uint64) * ordered->nwords * ordered->nrows);
	for (int row = 0; row < ordered->nrows; row++)
	{
		if (row == reset_before)
		{
			lossy = gpusort_rowkey_doubt(ordered->key).undecided != 0;
			gpusort_rowkey_reset(ordered->key);
		}
		store(ordered, row, in_tuples, a);
		gpusort_rowkey_encode(ordered->key, a, &ordered->words[row * ordered->nwords]);
	}
	lossy |= gpusort_rowkey_doubt(ordered->key).undecided != 0;

	for (int i = 1; i < ordered->nrows && wrong == NULL; i++)
	{
		CHECK_FOR_INTERRUPTS();
		store(ordered, i, in_tuples, a);
		for (int j = 0; j < i && wrong == NULL; j++)
		{
			store(ordered, j, in_tuples, b);
			wrong = check_pair(ordered, i, j, gpusort_rowkey_compare(ordered->key, a, b), lossy);
			if (wrong != NULL)
				wrong = explain(ordered, i, j, wrong);
		}
	}
	ExecDropSingleTupleTableSlot(a);
	ExecDropSingleTupleTableSlot(b);
	return wrong;
}

/*
 * rowkey_random(kind text, seed bigint, rows integer) returns text
 *
 * Returns what is wrong with the rows that the seed makes of one column of this kind, or of
 * several columns of any kind if kind is 'lists'.  Returns NULL if nothing is wrong.
 */
Datum
rowkey_random(PG_FUNCTION_ARGS)
{
	char	   *kind = text_to_cstring(PG_GETARG_TEXT_PP(0));
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext cxt = AllocSetContextCreate(caller, "random keys", ALLOCSET_DEFAULT_SIZES);
	Maker		maker = {0};
	OrderedRows ordered = {0};
	const char *wrong;
	text	   *result = NULL;
	bool		known = strcmp(kind, "lists") == 0;

	for (int i = 0; i < RANDOM_KINDS; i++)
		known |= strcmp(kind, random_kinds[i].name) == 0;
	ordered.nrows = PG_GETARG_INT32(2);
	if (!known || ordered.nrows < 2 || ordered.nrows > MAX_ROWS)
		elog(ERROR, "%d rows of kind \"%s\" cannot be made", ordered.nrows, kind);

	MemoryContextSwitchTo(cxt);
	pg_prng_seed(&maker.random, (uint64) PG_GETARG_INT64(1));
	make_list(&ordered, &maker, strcmp(kind, "lists") == 0 ? NULL : kind);
	make_rows(&ordered, &maker);
	wrong = check(&ordered, &maker);
	MemoryContextSwitchTo(caller);
	if (wrong != NULL)
		result = cstring_to_text(wrong);
	MemoryContextDelete(cxt);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(result);
}
