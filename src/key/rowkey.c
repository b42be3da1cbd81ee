/*-------------------------------------------------------------------------
 *
 * rowkey.c
 *		What an ORDER BY list makes of a row: a few 64-bit words.
 *
 * The encoder is on the path of every row, between the child's tuples and the
 * engine's keys, where single nanoseconds count: the attributes are deformed
 * once, integers are encoded in line by a switch on the column's kind, and
 * nothing is allocated.
 *
 * How a column becomes words, and what is done about values that the words
 * hold only a part of, is told in rowkey_column.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "fmgr.h"
#include "storage/itemptr.h"
#include "utils/builtins.h"
#include "utils/inet.h"
#include "utils/uuid.h"

#include "key/column.h"
#include "key/keybits.h"

struct GpusortRowKey
{
	int			words;			/* of a key */
	int			bits;			/* of these that can vary */
	bool		lossy;			/* rows since the last reset may tie and differ */
	bool		truncated;		/* not all columns have words */
	int			encoded;		/* columns that have words: the first so many */
	int			last_encoded;	/* greatest attribute number among these */
	int			open_column;	/* that the last row's words ended with, if one did */
	int			ncolumns;
	int			last;			/* greatest attribute number of all */
	SortSupport comparators;	/* of all columns */
	GpusortRowColumn columns[FLEXIBLE_ARRAY_MEMBER];
};

/*
 * Plans columns until one ends the key or all are done; *encoded is set to how
 * many have words, *words to how many words.  NULL, or why not.
 */
static const char *
plan_columns(const GpusortSortColumn *from, int ncolumns, GpusortRowColumn *columns,
			 int *encoded, int *words)
{
	bool		ended = false;

	*encoded = 0;
	*words = 0;
	for (int i = 0; i < ncolumns; i++)
	{
		GpusortRowColumn column;
		const char *refusal = gpusort_rowtype_resolve(&from[i], i + 1, &column);

		if (refusal != NULL)
			return refusal;
		if (ended)
			continue;
		if (*words + column.words > GPUSORT_MAX_WORDS)
			return psprintf("the key of %d columns is longer than %d words",
							ncolumns, GPUSORT_MAX_WORDS);
		if (columns != NULL)
			columns[i] = column;
		*encoded = i + 1;
		*words += column.words;
		ended = column.prefix;
	}
	return NULL;
}

const char *
gpusort_rowkey_refusal(const GpusortSortColumn *columns, int ncolumns)
{
	int			encoded;
	int			words;

	return plan_columns(columns, ncolumns, NULL, &encoded, &words);
}

int
gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns, bool *strings)
{
	GpusortRowColumn *planned = palloc0(sizeof(GpusortRowColumn) * ncolumns);
	int			encoded;
	int			words;

	(void) plan_columns(columns, ncolumns, planned, &encoded, &words);
	*strings = false;
	for (int i = 0; i < encoded; i++)
		*strings |= planned[i].kind == GPUSORT_ROW_TEXT || planned[i].kind == GPUSORT_ROW_BPCHAR ||
			planned[i].kind == GPUSORT_ROW_ABBREVIATED || planned[i].kind == GPUSORT_ROW_NAME;
	pfree(planned);
	return words;
}

GpusortRowKey *
gpusort_rowkey_begin(const GpusortSortColumn *columns, int ncolumns)
{
	GpusortRowKey *key = palloc0(offsetof(GpusortRowKey, columns) +
								 sizeof(GpusortRowColumn) * ncolumns);
	const char *refusal = plan_columns(columns, ncolumns, key->columns,
									   &key->encoded, &key->words);

	if (refusal != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpusort cannot order by these columns: %s", refusal)));

	for (int i = 0; i < key->encoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];

		key->bits += column->bits;
		key->last_encoded = Max(key->last_encoded, columns[i].attno);
		if (column->kind == GPUSORT_ROW_ENUM)
			gpusort_rowenum_begin(column);
		else if (column->kind == GPUSORT_ROW_ABBREVIATED)
			gpusort_rowicu_begin(column, &columns[i]);
	}
	key->truncated = key->encoded < ncolumns;
	key->lossy = key->truncated;

	key->ncolumns = ncolumns;
	key->comparators = palloc0(sizeof(SortSupportData) * ncolumns);
	for (int i = 0; i < ncolumns; i++)
	{
		SortSupport ssup = &key->comparators[i];

		key->last = Max(key->last, columns[i].attno);
		ssup->ssup_cxt = CurrentMemoryContext;
		ssup->ssup_collation = columns[i].collation;
		ssup->ssup_nulls_first = columns[i].nulls_first;
		ssup->ssup_attno = columns[i].attno;
		PrepareSortSupportFromOrderingOp(columns[i].sort_operator, ssup);
	}
	return key;
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

/*
 * One of the two values that share a word next to NULL's.  True if all rows
 * that had this word so far had this value, and the words that follow may say
 * what they have to; else *above is whether this value is the greater.
 */
static pg_noinline bool
enter_crowd(GpusortRowColumn *column, bool outer, bool *above)
{
	int			which = outer ? GPUSORT_CROWD_OUTER : GPUSORT_CROWD_INNER;

	if (column->crowd == 0)
		column->crowd = which;

	/* the outer value is on NULL's side of the inner one */
	*above = outer != column->nulls_first;
	return column->crowd == which;
}

/*
 * Ends the key of a row that a column left open: what comes after this column
 * must not decide.
 */
static pg_noinline void
close_words(GpusortRowKey *key, GpusortRowColumn *column, uint64 *words, uint64 *end, bool above)
{
	key->lossy = true;
	key->open_column = column - key->columns;
	for (words += column->words, column++; words < end; words += column->words, column++)
	{
		words[0] = above ? column->greatest : 0;
		if (column->words > 1)
			words[1] = above ? column->greatest_next : 0;
	}
}

void
gpusort_rowkey_encode(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words)
{
	uint64	   *end = words + key->words;
	GpusortRowColumn *column = key->columns;

	slot_getsomeattrs(slot, key->last_encoded);

	for (; words < end; words += column->words, column++)
	{
		Datum		value = slot->tts_values[column->attribute];
		bool		whole = true;
		bool		above = false;
		uint64		part;
		const unsigned char *bytes;

		if (slot->tts_isnull[column->attribute])
		{
			words[0] = column->null_word;
			if (column->words > 1)
				words[1] = column->null_next;
			continue;
		}

		switch (column->kind)
		{
			case GPUSORT_ROW_INT4:
				words[0] = (DatumGetUInt32(value) ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_INT8:
				part = (uint64) DatumGetInt64(value) ^ column->flip;
		crowded:
				words[0] = part;
				if (unlikely((part ^ column->null_word) <= 1))
				{
					words[0] = column->null_word ^ 1;
					whole = enter_crowd(column, part == column->null_word, &above);
				}
				break;
			case GPUSORT_ROW_TEXT:
			case GPUSORT_ROW_BPCHAR:
				whole = gpusort_rowtext_encode(column, value, words);
				break;
			case GPUSORT_ROW_NUMERIC:
				whole = gpusort_rownumeric_encode(column, value, words);
				break;
			case GPUSORT_ROW_FLOAT8:
				/* the ranks leave room below NaN's: make it room at both ends */
				part = gpusort_rank_float8((uint64) DatumGetInt64(value));
				part = Min(part, PG_UINT64_MAX - 2) + 1;
				words[0] = part ^ column->flip;
				break;
			case GPUSORT_ROW_BYTE:
				words[0] = (DatumGetUInt8(value) ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_INT2:
				words[0] = (DatumGetUInt16(value) ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_FLOAT4:
				/* a float4 is passed as its bits */
				words[0] = (gpusort_rank_float4(DatumGetUInt32(value)) ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_ENUM:
				words[0] = gpusort_rowenum_encode(column, value);
				break;
			case GPUSORT_ROW_UUID:
				bytes = DatumGetUUIDP(value)->data;
				words[0] = gpusort_load_be64(bytes) ^ column->flip;
				words[1] = gpusort_load_be64(bytes + 8) ^ column->flip_next;
				if (unlikely(words[0] == column->null_word && (words[1] ^ column->null_next) <= 1))
				{
					bool		outer = words[1] == column->null_next;

					words[1] = column->null_next ^ 1;
					whole = enter_crowd(column, outer, &above);
				}
				break;
			case GPUSORT_ROW_NAME:
				whole = gpusort_rowname_encode(column, value, words);
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
			case GPUSORT_ROW_MACADDR:
				bytes = (const unsigned char *) DatumGetMacaddrP(value);
				part = (uint64) gpusort_load_be32(bytes) << 16 | gpusort_load_be16(bytes + 4);
				words[0] = (part ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_MACADDR8:
				part = gpusort_load_be64(DatumGetPointer(value)) ^ column->flip;
				goto crowded;
			case GPUSORT_ROW_TID:
				part = (uint64) ItemPointerGetBlockNumberNoCheck((ItemPointer) DatumGetPointer(value)) << 16 |
					ItemPointerGetOffsetNumberNoCheck((ItemPointer) DatumGetPointer(value));
				words[0] = (part ^ column->flip) | column->base;
				break;
			case GPUSORT_ROW_ABBREVIATED:
				gpusort_rowicu_encode(column, value, words);
				whole = false;
				break;
		}

		if (unlikely(!whole))
		{
			close_words(key, column, words, end, above);
			return;
		}
	}
}

bool
gpusort_rowkey_lossy(const GpusortRowKey *key)
{
	return key->lossy;
}

void
gpusort_rowkey_reset(GpusortRowKey *key)
{
	key->lossy = key->truncated;
}

int
gpusort_rowkey_compare_part(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b,
							int first, int past)
{
	slot_getsomeattrs(a, key->last);
	slot_getsomeattrs(b, key->last);

	for (int i = first; i < past; i++)
	{
		SortSupport ssup = &key->comparators[i];
		int			attribute = ssup->ssup_attno - 1;
		int			order = ApplySortComparator(a->tts_values[attribute], a->tts_isnull[attribute],
												b->tts_values[attribute], b->tts_isnull[attribute],
												ssup);

		if (order != 0)
			return order;
	}
	return 0;
}

int
gpusort_rowkey_compare(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b)
{
	return gpusort_rowkey_compare_part(key, a, b, 0, key->ncolumns);
}

int
gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot)
{
	uint64		words[GPUSORT_MAX_WORDS];

	key->open_column = key->truncated ? key->encoded : -1;
	gpusort_rowkey_encode(key, slot, words);
	return key->open_column;
}

bool
gpusort_rowkey_descends(const GpusortRowKey *key, int column)
{
	return key->comparators[column].ssup_reverse;
}

int
gpusort_rowkey_compare_values(GpusortRowKey *key, int column, Datum a, bool a_isnull,
							  Datum b, bool b_isnull)
{
	return ApplySortComparator(a, a_isnull, b, b_isnull, &key->comparators[column]);
}

bool
gpusort_rowkey_by_bytes(const GpusortRowKey *key, int column)
{
	GpusortRowKind kind = key->columns[column].kind;

	return column < key->encoded && (kind == GPUSORT_ROW_TEXT || kind == GPUSORT_ROW_BPCHAR);
}

void
gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
					 const char **bytes, Size *length)
{
	struct varlena *datum = PG_DETOAST_DATUM_PACKED(value);

	Assert(gpusort_rowkey_by_bytes(key, column));
	*bytes = VARDATA_ANY(datum);
	*length = VARSIZE_ANY_EXHDR(datum);
	if (key->columns[column].kind == GPUSORT_ROW_BPCHAR)
		*length = bpchartruelen((char *) *bytes, *length);
}

Size
gpusort_rowkey_remote_bytes(Datum value)
{
	return gpusort_varlena_remote(DatumGetPointer(value)) ? toast_raw_datum_size(value) : 0;
}
