/*-------------------------------------------------------------------------
 *
 * doubt.c
 *		What the words of row keys leave undecided, and how the columns decide it.
 *
 * Words leave a column undecided where they hold only the beginning of its value, where two of its values share
 * words, and in columns that have no words.  The words of text under libc only propose an order, and none at all once
 * the locale is distrusted (key/weights.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "executor/tuptable.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"

#include "key/column.h"

/* The columns, as bits, that the words of no row decide */
static uint32
never_decided(const GpusortRowKey *key)
{
	int			last = key->nencoded - 1;
	uint32		columns = key->nencoded < key->ncolumns ? (uint32) 1 << key->nencoded : 0;

	if (last >= 0 && key->columns[last].kind == GPUSORT_ROW_LIBC && key->columns[last].weights.libc->distrusted)
		columns |= (uint32) 1 << last;
	return columns;
}

GpusortDoubt
gpusort_rowkey_doubt(const GpusortRowKey *key)
{
	int			last = key->nencoded - 1;
	GpusortDoubt doubt = {
		.undecided = key->undecided | never_decided(key),
		.words = key->words,
		.deciding = key->words,
		.proposed = -1,
	};

	for (int i = 0; i < key->nencoded; i++)
		doubt.crowded |= (uint32) gpusort_column_is_crowded(&key->columns[i]) << i & key->undecided;
	if (last >= 0 && key->columns[last].kind == GPUSORT_ROW_LIBC)
	{
		doubt.proposed = last;
		doubt.deciding -= key->columns[last].words;
		if (key->columns[last].weights.libc->distrusted)
			doubt.words = doubt.deciding;
	}
	return doubt;
}

void
gpusort_rowkey_add_doubt(GpusortRowKey *key, const GpusortDoubt *doubt)
{
	const GpusortRowColumn *last = &key->columns[key->ncolumns - 1];

	key->undecided |= doubt->undecided;
	if (last->few != NULL && (doubt->undecided >> (key->ncolumns - 1) & 1) != 0)
		gpusort_rowkey_end_few(key);
}

void
gpusort_rowkey_reset(GpusortRowKey *key)
{
	key->undecided = 0;
}

void
gpusort_rowkey_stop_proposing(GpusortRowKey *key)
{
	int			proposed = gpusort_rowkey_doubt(key).proposed;

	if (proposed >= 0)
	{
		key->nencoded = proposed;
		gpusort_rowkey_measure(key);
	}
}

/* Encodes a row, and returns the first column that its words do not decide, or -1. */
static int
encode_row(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words)
{
	uint32		of_all = key->undecided;
	uint32		of_row;

	key->undecided = 0;
	gpusort_rowkey_encode(key, slot, words);
	of_row = key->undecided | never_decided(key);
	key->undecided |= of_all;
	return of_row != 0 ? pg_rightmost_one_pos32(of_row) : -1;
}

int
gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot)
{
	uint64		words[GPUSORT_MAX_WORDS];

	return encode_row(key, slot, words);
}

GpusortColumnOrder
gpusort_rowkey_order(const GpusortRowKey *key, int number)
{
	const GpusortRowColumn *column = &key->columns[number];

	return (GpusortColumnOrder)
	{
		.descending = column->descending,
			.by_bytes = column->kind == GPUSORT_ROW_TEXT,
			.libc = column->kind == GPUSORT_ROW_LIBC ? column->weights.libc : NULL,
			.is_name = column->kind == GPUSORT_ROW_LIBC && column->is_name,
			.blank_padded = column->blank_padded,
			.lowered = column->lowered,
	};
}

int
gpusort_rowkey_compare_part(GpusortRowKey *key, TupleTableSlot *a, TupleTableSlot *b,
							int first, int past)
{
	slot_getsomeattrs(a, key->last_attno);
	slot_getsomeattrs(b, key->last_attno);

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

void
gpusort_rowkey_encode_entry(GpusortRowKey *key, TupleTableSlot *slot, uint64 *words, uint64 *tail, NullableDatum *values)
{
	int			open;

	slot_getsomeattrs(slot, key->last_attno);
	for (int i = 0; i < key->ncolumns; i++)
	{
		int			attribute = key->comparators[i].ssup_attno - 1;

		values[i].value = slot->tts_values[attribute];
		values[i].isnull = slot->tts_isnull[attribute];
	}
	open = encode_row(key, slot, words);

	/*
	 * Rows with equal words have the same open column.  If that is a string, their values before it are equal: the words of
	 * a string are neither all zeros nor all ones, as those behind a crowded value may be.
	 */
	if (open >= 0 && open < key->nencoded && key->columns[open].kind == GPUSORT_ROW_TEXT && !key->columns[open].lowered)
		gpusort_rowstring_tail(&key->columns[open], values[open].value, tail);
	else
		memset(tail, 0, GPUSORT_TAIL_WORDS * sizeof(uint64));
}

int
gpusort_rowkey_compare_taken(GpusortRowKey *key, const NullableDatum *a, const NullableDatum *b)
{
	int			order = 0;

	for (int i = 0; i < key->ncolumns && order == 0; i++)
		order = gpusort_rowkey_compare_values(key, i, a[i].value, a[i].isnull, b[i].value, b[i].isnull);
	return order;
}

int
gpusort_rowkey_compare_values(GpusortRowKey *key, int column, Datum a, bool a_isnull,
							  Datum b, bool b_isnull)
{
	return ApplySortComparator(a, a_isnull, b, b_isnull, &key->comparators[column]);
}

void
gpusort_rowkey_bytes(const GpusortRowKey *key, int number, Datum value,
					 const char **bytes, Size *length)
{
	const GpusortRowColumn *column = &key->columns[number];
	struct varlena *datum;

	Assert(column->kind == GPUSORT_ROW_TEXT);
	datum = PG_DETOAST_DATUM_PACKED(value);
	*bytes = VARDATA_ANY(datum);
	*length = VARSIZE_ANY_EXHDR(datum);
	if (column->lowered)
		*bytes = gpusort_citext_lower(*bytes, *length, palloc(*length), *length, length);
	if (column->blank_padded)
		*length = bpchartruelen((char *) *bytes, *length);
}

Size
gpusort_rowkey_copied_bytes(const GpusortRowKey *key, int number, Datum value)
{
	const GpusortRowColumn *column = &key->columns[number];

	/* a chunk of memory of its own: a power of two, behind a header */
	if (column->lowered && !gpusort_varlena_remote(DatumGetPointer(value)))
		return pg_nextpower2_size_t(Max(VARSIZE_ANY_EXHDR(DatumGetPointer(value)), 8)) + 2 * MAXIMUM_ALIGNOF;
	return gpusort_rowkey_remote_bytes(value);
}

Size
gpusort_rowkey_remote_bytes(Datum value)
{
	return gpusort_varlena_remote(DatumGetPointer(value)) ? toast_raw_datum_size(value) : 0;
}
