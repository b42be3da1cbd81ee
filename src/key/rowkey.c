/*-------------------------------------------------------------------------
 *
 * rowkey.c
 *		Makes the row key of a row: 64-bit words that sort as the ORDER BY list.
 *
 * The encoder runs once for every row, between the child's tuples and the
 * engine's keys, where single nanoseconds count.  It deforms the attributes
 * once, encodes fixed-width values inline by a switch on the column's kind, and
 * allocates nothing.
 *
 * key/column.h explains how a column becomes words, and what the encoder does
 * about values that the words of their column do not decide.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/uuid.h"

#include "key/keybits.h"
#include "key/packed.h"
#include "key/rowkey_state.h"

/* The words of the columns after one that has been encoded */
typedef enum LaterWords
{
	LATER_WORDS_EXACT,			/* are those of the row's values */
	LATER_WORDS_ZEROS,			/* must all be 0 */
	LATER_WORDS_ONES			/* must have all bits set that can vary */
} LaterWords;

TupleDesc
gpusort_rowkey_row_type(Expr *expr)
{
	RowExpr    *row = (RowExpr *) expr;

	return IsA(row, RowExpr) && row->row_typeid == RECORDOID ? ExecTypeFromExprList(row->args) : NULL;
}

/*
 * Plans all columns, or those up to the first one whose words never decide:
 * columns after that one have no words.  Sets *nencoded to the number of columns
 * with words, and *words to the number of words.  Fills in columns, if not NULL,
 * which has room for ncolumns, with all columns.  Returns NULL, or the reason why gpusort cannot order by the
 * list.
 */
static const char *
plan_columns(const GpusortSortColumn *from, int ncolumns, GpusortRowColumn *columns,
			 int *nencoded, int *words)
{
	bool		complete = false;

	*nencoded = 0;
	*words = 0;
	for (int i = 0; i < ncolumns; i++)
	{
		GpusortRowColumn column;
		const char *refusal = gpusort_rowtype_resolve(&from[i], i + 1, &column);

		if (refusal != NULL)
			return refusal;
		if (columns != NULL)
			columns[i] = column;
		if (complete)
			continue;
		/* a column that is always a prefix can do with its first word */
		if (column.always_prefix && *words == GPUSORT_MAX_WORDS - 1)
		{
			column.words = 1;
			column.bits = 64;
		}
		if (*words + column.words > GPUSORT_MAX_WORDS)
			return psprintf("the key of %d columns is longer than %d words",
							ncolumns, GPUSORT_MAX_WORDS);
		if (columns != NULL)
			columns[i] = column;
		*nencoded = i + 1;
		*words += column.words;
		complete = column.always_prefix;
	}
	return NULL;
}

const char *
gpusort_rowkey_refusal(const GpusortSortColumn *columns, int ncolumns)
{
	int			nencoded;
	int			words;

	return plan_columns(columns, ncolumns, NULL, &nencoded, &words);
}

int
gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns, bool *strings,
					GpusortComparison *comparison)
{
	GpusortRowColumn *planned = palloc0(sizeof(GpusortRowColumn) * ncolumns);
	int			nencoded;
	int			words;

	(void) plan_columns(columns, ncolumns, planned, &nencoded, &words);
	*strings = false;
	*comparison = planned[0].lowered ? GPUSORT_COMPARISON_CITEXT :
		planned[0].libc != NULL ? GPUSORT_COMPARISON_LIBC : GPUSORT_COMPARISON_FAST;
	for (int i = 0; i < nencoded; i++)
		*strings |= planned[i].kind == GPUSORT_ROW_TEXT || planned[i].kind == GPUSORT_ROW_BPCHAR ||
			planned[i].kind == GPUSORT_ROW_ABBREVIATED || planned[i].kind == GPUSORT_ROW_LIBC ||
			planned[i].kind == GPUSORT_ROW_NAME;
	pfree(planned);
	return words;
}

bool
gpusort_rowkey_shareable(const GpusortSortColumn *columns, int ncolumns)
{
	GpusortRowColumn *planned = palloc0(sizeof(GpusortRowColumn) * ncolumns);
	int			nencoded;
	int			words;
	bool		shareable = true;

	(void) plan_columns(columns, ncolumns, planned, &nencoded, &words);
	for (int i = 0; i < nencoded; i++)
	{
		switch (planned[i].kind)
		{
			case GPUSORT_ROW_BYTE:
			case GPUSORT_ROW_INT2:
			case GPUSORT_ROW_INT4:
			case GPUSORT_ROW_FLOAT4:
			case GPUSORT_ROW_ENUM:
			case GPUSORT_ROW_MACADDR:
			case GPUSORT_ROW_TID:
			case GPUSORT_ROW_FLOAT8:
			case GPUSORT_ROW_INT8:
			case GPUSORT_ROW_MACADDR8:
			case GPUSORT_ROW_UUID:
			case GPUSORT_ROW_NAME:
			case GPUSORT_ROW_NUMERIC:
			case GPUSORT_ROW_INTERVAL:
			case GPUSORT_ROW_TIMETZ:
				break;
			default:
				shareable = false;
		}
	}
	pfree(planned);
	return shareable;
}

GpusortRowKey *
gpusort_rowkey_begin(const GpusortSortColumn *columns, int ncolumns)
{
	GpusortRowKey *key = palloc0(offsetof(GpusortRowKey, columns) +
								 sizeof(GpusortRowColumn) * ncolumns);
	const char *refusal = plan_columns(columns, ncolumns, key->columns,
									   &key->nencoded, &key->words);

	if (refusal != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpusort cannot order by these columns: %s", refusal)));

	gpusort_rowkey_measure(key);
	/* those without words, too: their values may be packed to break ties */
	for (int i = 0; i < ncolumns; i++)
		gpusort_rowtype_begin(&columns[i], &key->columns[i]);
	key->truncated = key->nencoded < ncolumns;
	key->lossy = key->truncated;

	key->ncolumns = ncolumns;
	key->comparators = palloc0(sizeof(SortSupportData) * ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		SortSupport ssup = &key->comparators[i];

		key->last_attno = Max(key->last_attno, columns[i].attno);
		ssup->ssup_cxt = CurrentMemoryContext;
		ssup->ssup_collation = columns[i].collation;
		ssup->ssup_nulls_first = columns[i].nulls_first;
		ssup->ssup_attno = columns[i].attno;
		PrepareSortSupportFromOrderingOp(columns[i].sort_operator, ssup);
	}
	return key;
}

void
gpusort_rowkey_measure(GpusortRowKey *key)
{
	key->words = key->bits = key->last_encoded_attno = 0;
	for (int i = 0; i < key->nencoded; i++)
	{
		key->words += key->columns[i].words;
		key->bits += key->columns[i].bits;
		key->last_encoded_attno = Max(key->last_encoded_attno, key->columns[i].attribute + 1);
	}
}

int
gpusort_rowkey_words(const GpusortRowKey *key)
{
	return key->words;
}

int
gpusort_rowkey_bits(const GpusortRowKey *key)
{
	return key->bits;
}

Size
gpusort_rowkey_memory(const GpusortRowKey *key)
{
	return key->dictionary != NULL ? gpusort_dictionary_bytes(key->dictionary) : 0;
}

/*
 * Encoders of fixed-width values.  They are inlined into encode_value().
 */

/* The first word of a value in plan "flag" */
static inline uint64
flagged_word(const GpusortRowColumn *column, uint64 bits)
{
	return (bits ^ column->flip) | column->base;
}

/*
 * The later words of a row with the outer or the inner value of a crowded
 * column.  Only the value that occurs first keeps exact later words.
 */
static pg_noinline LaterWords
enter_crowd(GpusortRowColumn *column, bool outer)
{
	int			which = outer ? GPUSORT_CROWD_OUTER : GPUSORT_CROWD_INNER;

	column->crowd_met = true;
	if (column->crowd_first == 0)
		column->crowd_first = which;
	if (column->crowd_first == which)
		return LATER_WORDS_EXACT;

	/* NULL has taken the outer value's words: it is on NULL's side of the inner one */
	return outer == column->nulls_first ? LATER_WORDS_ZEROS : LATER_WORDS_ONES;
}

/* A value of 64 bits in plan "crowded" */
static inline LaterWords
encode_crowded_word(GpusortRowColumn *column, uint64 bits, uint64 *words)
{
	bits ^= column->flip;
	words[0] = bits;
	if (likely((bits ^ column->null_word) > 1))
		return LATER_WORDS_EXACT;
	words[0] = column->null_word ^ 1;
	return enter_crowd(column, bits == column->null_word);
}

/* A value of 128 bits, big-endian, in plan "crowded" */
static inline LaterWords
encode_crowded_pair(GpusortRowColumn *column, const unsigned char *bytes, uint64 *words)
{
	uint64		next = gpusort_load_be64(bytes + 8) ^ column->flip_next;

	words[0] = gpusort_load_be64(bytes) ^ column->flip;
	words[1] = next;
	if (likely(words[0] != column->null_word || (next ^ column->null_next) > 1))
		return LATER_WORDS_EXACT;
	words[1] = column->null_next ^ 1;
	return enter_crowd(column, next == column->null_next);
}

/* float8 in plan "code": 0 and all ones must remain for NULL */
static inline uint64
float8_word(const GpusortRowColumn *column, uint64 bits)
{
	uint64		rank = gpusort_rank_float8(bits);

	/* Ranks begin at 0, and only NaN's, which is all ones, is greater than all ones - 2. */
	return (Min(rank, PG_UINT64_MAX - 2) + 1) ^ column->flip;
}

/* Writes the words of a string.  Returns whether they decide. */
static inline bool
encode_string(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	if (unlikely(column->lowered))
		return gpusort_rowcitext_encode(column, value, words);
	if (column->kind == GPUSORT_ROW_ABBREVIATED)
		return gpusort_rowicu_encode(column, value, words);
	if (column->kind == GPUSORT_ROW_LIBC)
		return gpusort_rowlibc_encode(column, value, words);
	return gpusort_rowtext_encode(column, value, words);
}

/* Writes the words of a value that is not NULL.  Returns the words that later columns must have. */
static pg_attribute_always_inline LaterWords
encode_value(GpusortRowColumn *column, Datum value, uint64 *words)
{
	bool		whole = true;	/* false: the words do not decide */

	switch (column->kind)
	{
		case GPUSORT_ROW_BYTE:
			words[0] = flagged_word(column, DatumGetUInt8(value));
			break;
		case GPUSORT_ROW_INT2:
			words[0] = flagged_word(column, DatumGetUInt16(value));
			break;
		case GPUSORT_ROW_INT4:
			words[0] = flagged_word(column, DatumGetUInt32(value));
			break;
		case GPUSORT_ROW_FLOAT4:
			/* a float4's Datum is its bits */
			words[0] = flagged_word(column, gpusort_rank_float4(DatumGetUInt32(value)));
			break;
		case GPUSORT_ROW_ENUM:
			words[0] = gpusort_rowenum_encode(column, value);
			break;
		case GPUSORT_ROW_MACADDR:
			words[0] = flagged_word(column, gpusort_macaddr_bits(DatumGetMacaddrP(value)));
			break;
		case GPUSORT_ROW_TID:
			words[0] = flagged_word(column, gpusort_tid_bits((ItemPointer) DatumGetPointer(value)));
			break;
		case GPUSORT_ROW_FLOAT8:
			words[0] = float8_word(column, (uint64) DatumGetInt64(value));
			break;
		case GPUSORT_ROW_INT8:
			return encode_crowded_word(column, (uint64) DatumGetInt64(value), words);
		case GPUSORT_ROW_MACADDR8:
			return encode_crowded_word(column, gpusort_load_be64(DatumGetPointer(value)), words);
		case GPUSORT_ROW_UUID:
			return encode_crowded_pair(column, DatumGetUUIDP(value)->data, words);
		case GPUSORT_ROW_TEXT:
		case GPUSORT_ROW_BPCHAR:
		case GPUSORT_ROW_ABBREVIATED:
		case GPUSORT_ROW_LIBC:
			whole = encode_string(column, value, words);
			break;
		case GPUSORT_ROW_NAME:
			whole = gpusort_rowname_encode(column, value, words);
			break;
		case GPUSORT_ROW_NUMERIC:
			whole = gpusort_rownumeric_encode(column, value, words);
			break;
		case GPUSORT_ROW_INTERVAL:
			gpusort_rowinterval_encode(column, value, words);
			break;
		case GPUSORT_ROW_TIMETZ:
			gpusort_rowtimetz_encode(column, value, words);
			break;
		case GPUSORT_ROW_INET:
			whole = gpusort_rowinet_encode(column, value, words);
			break;
		case GPUSORT_ROW_PACKED:
			whole = gpusort_rowpacked_encode(column, value, words);
			break;
	}
	return likely(whole) ? LATER_WORDS_EXACT : LATER_WORDS_ZEROS;
}

/* Writes the words of a NULL. */
static inline void
encode_null(const GpusortRowColumn *column, uint64 *words)
{
	words[0] = column->null_word;
	if (column->words > 1)
		words[1] = column->null_next;
	if (unlikely(column->words > 2))
		words[2] = 0;
}

/*
 * Fills a key from words to end, after a column that does not decide: later
 * columns must not decide either.
 */
static pg_noinline void
fill_later_words(GpusortRowKey *key, GpusortRowColumn *column, uint64 *words, uint64 *end,
				 LaterWords later)
{
	bool		ones = later == LATER_WORDS_ONES;

	key->lossy = true;
	key->undecided_column = column - key->columns;
	column->undecided = true;
	for (words += column->words, column++; words < end; words += column->words, column++)
	{
		words[0] = ones ? column->greatest : 0;
		if (column->words > 1)
			words[1] = ones ? column->greatest_next : 0;
		if (column->words > 2)
			words[2] = ones ? column->greatest_third : 0;
	}
}

void
gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words)
{
	uint64	   *end = words + key->words;
	GpusortRowColumn *column = key->columns;

	slot_getsomeattrs(slot, key->last_encoded_attno);

	for (; words < end; words += column->words, column++)
	{
		LaterWords	later;

		if (slot->tts_isnull[column->attribute])
		{
			encode_null(column, words);
			continue;
		}
		later = encode_value(column, slot->tts_values[column->attribute], words);
		if (unlikely(later != LATER_WORDS_EXACT))
		{
			fill_later_words(key, column, words, end, later);
			return;
		}
	}
}

void
gpusort_rowkey_encode_column(GpusortRowColumn *column, Datum value, bool isnull, uint64 *words)
{
	if (isnull)
		encode_null(column, words);
	else
		(void) encode_value(column, value, words);
}

void
gpusort_rowkey_share(GpusortRowKey *key)
{
	/* 'infinity' is more frequent than the microsecond before it; see enter_crowd() */
	for (int i = 0; i < key->nencoded; i++)
		key->columns[i].crowd_first = GPUSORT_CROWD_OUTER;
}
