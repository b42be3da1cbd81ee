/*-------------------------------------------------------------------------
 *
 * rowkey.c
 *		Makes the row key of a row: 64-bit words that sort as the ORDER BY list.
 *
 * The encoder runs once for every row, between the child's tuples and the engine's keys, where single nanoseconds
 * count.  It deforms the attributes once, encodes fixed-width values inline by a switch on the column's kind, and
 * allocates nothing.
 *
 * key/column.h explains how a column becomes words, and what the encoder does
 * about values that the words of their column do not decide.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "nodes/nodeFuncs.h"
#include "storage/itemptr.h"
#include "utils/inet.h"
#include "utils/uuid.h"

#include "key/column.h"

GpusortSortColumn
gpusort_rowkey_column(AttrNumber attno, Oid sort_operator, Oid collation, bool nulls_first, Expr *expr)
{
	return (GpusortSortColumn) {
		.attno = attno,
		.sort_operator = sort_operator,
		.collation = collation,
		.nulls_first = nulls_first,
		.type = exprType((Node *) expr),
	};
}

/* Gives a column words, behind those that the plan has. */
static void
plan_words(GpusortKeyPlan *plan, GpusortRowColumn *column)
{
	/* a column that is always a prefix can do with its first word */
	if (gpusort_column_is_prefix(column) && plan->words == GPUSORT_MAX_WORDS - 1)
	{
		column->words = 1;
		column->bits = 64;
	}
	if (plan->words + column->words > GPUSORT_MAX_WORDS)
		plan->refusal = psprintf("the key of %d columns is longer than %d words",
								 plan->ncolumns, GPUSORT_MAX_WORDS);
	plan->nencoded++;
	plan->words += column->words;
	plan->strings |= column->is_string || column->is_name || gpusort_column_is_prefix(column);
}

/* Columns after the first one whose words never decide have no words. */
GpusortKeyPlan
gpusort_rowkey_plan(const GpusortSortColumn *columns, int ncolumns)
{
	GpusortKeyPlan plan = {
		.from = columns,
		.ncolumns = ncolumns,
		.columns = palloc(sizeof(GpusortRowColumn) * ncolumns),
		.few_values = true,
	};
	bool		complete = false;

	for (int i = 0; i < ncolumns && plan.refusal == NULL; i++)
	{
		GpusortRowColumn *column = &plan.columns[i];

		plan.refusal = gpusort_rowtype_resolve(&columns[i], i + 1, column);
		if (plan.refusal != NULL)
			break;
		if (i == 0)
			plan.comparison = column->comparison;
		plan.few_values &= column->kind == GPUSORT_ROW_BYTE || column->kind == GPUSORT_ROW_ENUM;
		if (!complete)
			plan_words(&plan, column);
		complete |= gpusort_column_is_prefix(column);
	}
	return plan;
}

GpusortRowKey *
gpusort_rowkey_begin(const GpusortKeyPlan *plan)
{
	GpusortRowKey *key = palloc0(sizeof(GpusortRowKey));

	if (plan->refusal != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpusort cannot order by these columns: %s", plan->refusal)));

	key->columns = plan->columns;
	key->ncolumns = plan->ncolumns;
	key->nencoded = plan->nencoded;
	key->comparators = palloc0(sizeof(SortSupportData) * key->ncolumns);
	for (int i = 0; i < key->ncolumns; i++)
	{
		const GpusortSortColumn *from = &plan->from[i];
		SortSupport ssup = &key->comparators[i];

		if (i < key->nencoded)
			gpusort_rowtype_begin(from, &key->columns[i]);
		key->last_attno = Max(key->last_attno, from->attno);
		ssup->ssup_cxt = CurrentMemoryContext;
		/* the collation orders by bytes, for which strcoll() would take longer */
		ssup->ssup_collation = OidIsValid(from->collation) && key->columns[i].kind == GPUSORT_ROW_TEXT &&
			!key->columns[i].lowered ? C_COLLATION_OID : from->collation;
		ssup->ssup_nulls_first = from->nulls_first;
		ssup->ssup_attno = from->attno;
		PrepareSortSupportFromOrderingOp(from->sort_operator, ssup);
	}
	gpusort_rowkey_measure(key);
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
gpusort_rowkey_first_words(const GpusortRowKey *key, int columns)
{
	int			words = 0;

	for (int i = 0; i < Min(columns, key->nencoded); i++)
		words += key->columns[i].words;
	return words;
}

int
gpusort_rowkey_bits(const GpusortRowKey *key)
{
	return key->bits;
}

/* Encoders of fixed-width values.  They are inlined into encode_value(). */

/* The 48 bits of a macaddr and of a tid */
static inline uint64
macaddr_bits(const macaddr *address)
{
	return (uint64) gpusort_load_be32(address) << 16 | address->e << 8 | address->f;
}

static inline uint64
tid_bits(const ItemPointerData *tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 | ItemPointerGetOffsetNumberNoCheck(tid);
}

/* A value of 64 bits in plan "crowded".  Of the two that share words, those of the outer one decide, which is more frequent. */
static inline bool
encode_crowded_word(GpusortRowColumn *column, uint64 bits, uint64 *words)
{
	bits ^= column->masks.flip[0];
	words[0] = bits;
	if (likely((bits ^ column->masks.null[0]) > 1))
		return true;
	words[0] = column->masks.null[0] ^ 1;
	return bits == column->masks.null[0];
}

/* A value of 128 bits, big-endian, in plan "crowded" */
static inline bool
encode_crowded_pair(GpusortRowColumn *column, const unsigned char *bytes, uint64 *words)
{
	uint64		next = gpusort_load_be64(bytes + 8) ^ column->masks.flip[1];

	words[0] = gpusort_load_be64(bytes) ^ column->masks.flip[0];
	words[1] = next;
	if (likely(words[0] != column->masks.null[0] || (next ^ column->masks.null[1]) > 1))
		return true;
	words[1] = column->masks.null[1] ^ 1;
	return next == column->masks.null[1];
}

/* Writes the words of a value that is not NULL, in a column of this kind.  Returns false if they do not decide. */
static pg_attribute_always_inline bool
encode_value(GpusortRowColumn *column, GpusortRowKind kind, Datum value, uint64 *words)
{
	switch (kind)
	{
		case GPUSORT_ROW_BYTE:
			words[0] = gpusort_column_word(column, DatumGetUInt8(value));
			break;
		case GPUSORT_ROW_INT2:
			words[0] = gpusort_column_word(column, DatumGetUInt16(value));
			break;
		case GPUSORT_ROW_INT4:
			words[0] = gpusort_column_word(column, DatumGetUInt32(value));
			break;
		case GPUSORT_ROW_FLOAT4:
			/* a float4's Datum is its bits */
			words[0] = gpusort_column_word(column, gpusort_rank_float4(DatumGetUInt32(value)));
			break;
		case GPUSORT_ROW_MACADDR:
			words[0] = gpusort_column_word(column, macaddr_bits(DatumGetMacaddrP(value)));
			break;
		case GPUSORT_ROW_TID:
			words[0] = gpusort_column_word(column, tid_bits((ItemPointer) DatumGetPointer(value)));
			break;
		case GPUSORT_ROW_FLOAT8:
			words[0] = gpusort_column_float8(column, (uint64) DatumGetInt64(value));
			break;
		case GPUSORT_ROW_INT8:
			return encode_crowded_word(column, (uint64) DatumGetInt64(value), words);
		case GPUSORT_ROW_MACADDR8:
			return encode_crowded_word(column, gpusort_load_be64(DatumGetPointer(value)), words);
		case GPUSORT_ROW_UUID:
			return encode_crowded_pair(column, DatumGetUUIDP(value)->data, words);
		default:
			return column->encode(column, value, words);
	}
	return true;
}

/* Writes the words of a NULL. */
static inline void
encode_null(const GpusortRowColumn *column, uint64 *words)
{
	for (int i = 0; i < column->words; i++)
		words[i] = column->masks.null[i];
}

/* Fills a key from words to end, after a column that does not decide: later columns must not decide either. */
static pg_noinline void
fill_later_words(GpusortRowKey *key, GpusortRowColumn *column, uint64 *words, uint64 *end)
{
	/* NULL has taken the outer value's words, so that the inner one is on the other side of it */
	bool		ones = gpusort_column_is_crowded(column) && column->nulls_first;

	key->undecided |= (uint32) 1 << (column - key->columns);
	for (words += column->words, column++; words < end; words += column->words, column++)
	{
		for (int i = 0; i < column->words; i++)
			words[i] = ones ? column->masks.greatest[i] : 0;
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
		if (slot->tts_isnull[column->attribute])
		{
			encode_null(column, words);
			continue;
		}
		if (unlikely(!encode_value(column, column->kind, slot->tts_values[column->attribute], words)))
		{
			fill_later_words(key, column, words, end);
			return;
		}
	}
}

/* A column of rows */
typedef struct ColumnValues
{
	GpusortRowKey *key;
	GpusortRowColumn *column;
	const char *const *rows;	/* NULL: the value is NULL */
	int			offset;			/* of the value, from rows[i] */
	int			bytes;			/* -1: it is a varlena */
	bool		byval;
	int			n;
	uint64	   *words;			/* the column's of the first row; those of the next one lie key->words behind them */
	uint64	   *end;			/* behind the key of the first row */
	bool	   *filled;			/* of each row: its words have been written, as an earlier column has not decided */
} ColumnValues;

/* Writes the column's words of each row.  The compiler makes a loop for each kind, bytes and byval that it knows. */
static pg_attribute_always_inline void
encode_values(const ColumnValues *values, GpusortRowKind kind, int bytes, bool byval)
{
	GpusortRowColumn *column = values->column;
	const char *const *rows = values->rows;
	uint64	   *words = values->words;
	int			stride = values->key->words;

	for (int i = 0; i < values->n; i++, words += stride)
	{
		if (unlikely(values->filled[i]))
			continue;
		if (unlikely(rows[i] == NULL))
			encode_null(column, words);
		else if (unlikely(!encode_value(column, kind, fetch_att(rows[i] + values->offset, byval, bytes), words)))
		{
			fill_later_words(values->key, column, words, values->end + i * stride);
			values->filled[i] = true;
		}
	}
}

/*
 * A loop for each column reads the values from where they lie in the tuples (key/tuple.c).  No slot is filled, the
 * kind of the column is looked at once, and the cache misses of several rows overlap.
 */
void
gpusort_rowkey_encode_rows(GpusortRowKey *key, const GpusortPlaces *places, const AttrNumber *attnos,
						   const GpusortConstant *constants, const HeapTupleHeader *tuples, int first, int n,
						   uint64 *words)
{
	const char *found[MaxHeapTuplesPerPage];
	bool		filled[MaxHeapTuplesPerPage] = {false};
	ColumnValues values = {.key = key, .n = n, .end = words + key->words, .filled = filled};

	for (int i = 0; i < key->nencoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];
		int			c = (attnos != NULL ? attnos[column->attribute] : column->attribute + 1) - 1;
		const GpusortConstant *constant = c < 0 ? &constants[column->attribute] : NULL;
		bool		agree = constant == NULL && gpusort_places_agree(places, c);

		values.column = column;
		values.words = words;
		values.rows = agree ? (const char *const *) (tuples + first) : found;
		values.offset = agree ? places->offsets[c] : 0;
		for (int row = 0; row < n && !agree; row++)
			found[row] = constant != NULL ? constant->bytes : gpusort_places_value(places, tuples, first + row, c);
		switch (column->kind)
		{
			case GPUSORT_ROW_BYTE:
				encode_values(&values, GPUSORT_ROW_BYTE, 1, true);
				break;
			case GPUSORT_ROW_INT2:
				encode_values(&values, GPUSORT_ROW_INT2, 2, true);
				break;
			case GPUSORT_ROW_INT4:
				encode_values(&values, GPUSORT_ROW_INT4, 4, true);
				break;
			case GPUSORT_ROW_FLOAT4:
				encode_values(&values, GPUSORT_ROW_FLOAT4, 4, true);
				break;
			case GPUSORT_ROW_FLOAT8:
				encode_values(&values, GPUSORT_ROW_FLOAT8, 8, FLOAT8PASSBYVAL);
				break;
			case GPUSORT_ROW_INT8:
				encode_values(&values, GPUSORT_ROW_INT8, 8, FLOAT8PASSBYVAL);
				break;
			case GPUSORT_ROW_UUID:
				encode_values(&values, GPUSORT_ROW_UUID, UUID_LEN, false);
				break;
			default:
				encode_values(&values, column->kind, constant != NULL ? constant->length : places->columns[c].bytes,
							  constant != NULL ? constant->byval : GPUSORT_ATTRIBUTE(places->desc, c)->attbyval);
				break;
		}
		words += column->words;
	}
}

void
gpusort_rowkey_encode_column(GpusortRowColumn *column, Datum value, bool isnull, uint64 *words)
{
	if (isnull)
		encode_null(column, words);
	else
		(void) encode_value(column, column->kind, value, words);
}
