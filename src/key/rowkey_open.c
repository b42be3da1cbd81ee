/*-------------------------------------------------------------------------
 *
 * rowkey_open.c
 *		What the words of row keys leave open, and how the columns decide it.
 *
 * Words leave a column open where they hold only the beginning of its value, where
 * two of its values share words, and in columns that have no words.  The words of
 * text under libc only propose an order, and none at all once the locale is
 * distrusted (key/libc_text.c).  This file tells the sort which columns these are.
 * It compares rows and values by the columns' comparators, or gives the bytes by
 * which values compare.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "executor/tuptable.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"

#include "key/citext.h"
#include "key/keybits.h"
#include "key/libc.h"
#include "key/rowkey_state.h"

GpusortKeyFlags
gpusort_rowkey_flags(const GpusortRowKey *key)
{
	GpusortKeyFlags flags = {.lossy = gpusort_rowkey_lossy(key)};

	for (int i = 0; i < key->nencoded; i++)
		flags.crowded |= (uint64) key->columns[i].seen.crowd_met << i;
	return flags;
}

void
gpusort_rowkey_add_flags(GpusortRowKey *key, GpusortKeyFlags flags)
{
	key->lossy |= flags.lossy;
	for (int i = 0; i < key->nencoded; i++)
		key->columns[i].seen.crowd_met |= flags.crowded >> i & 1;
}

/* The column whose words only propose an order, if its locale is distrusted; else -1 */
static inline int
distrusted_column(const GpusortRowKey *key)
{
	int			last = key->nencoded - 1;

	return last >= 0 && key->columns[last].kind == GPUSORT_ROW_LIBC &&
		key->columns[last].libc.locale->distrusted ? last : -1;
}

bool
gpusort_rowkey_lossy(const GpusortRowKey *key)
{
	return key->lossy || distrusted_column(key) >= 0;
}

int
gpusort_rowkey_trusted_words(const GpusortRowKey *key)
{
	int			distrusted = distrusted_column(key);

	return key->words - (distrusted >= 0 ? key->columns[distrusted].words : 0);
}

void
gpusort_rowkey_reset(GpusortRowKey *key)
{
	key->lossy = key->truncated;
}

bool
gpusort_rowkey_proposal(const GpusortRowKey *key, GpusortProposal *proposal)
{
	const GpusortRowColumn *column = &key->columns[key->nencoded - 1];

	if (key->nencoded == 0 || column->kind != GPUSORT_ROW_LIBC)
		return false;
	*proposal = (GpusortProposal)
	{
		.column = key->nencoded - 1,
			.first_word = key->words - column->words,
			.libc = column->libc.locale,
			.is_name = column->libc.is_name,
			.blank_padded = column->blank_padded,
			.lowered = column->lowered,
			.descending = column->descending,
	};
	return true;
}

int
gpusort_rowkey_deciding_words(const GpusortRowKey *key)
{
	GpusortProposal proposal;

	return gpusort_rowkey_proposal(key, &proposal) ? proposal.first_word : key->words;
}

int
gpusort_rowkey_stop_proposing(GpusortRowKey *key)
{
	GpusortProposal proposal;

	if (gpusort_rowkey_proposal(key, &proposal))
	{
		key->nencoded = proposal.column;
		key->truncated = key->lossy = true;
		gpusort_rowkey_measure(key);
	}
	return key->words;
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

int
gpusort_rowkey_open_column(GpusortRowKey *key, TupleTableSlot *slot)
{
	uint64		words[GPUSORT_MAX_WORDS];
	int			distrusted = distrusted_column(key);

	key->undecided_column = key->truncated ? key->nencoded : -1;
	gpusort_rowkey_encode(key, slot, words);
	if (distrusted >= 0 && (key->undecided_column < 0 || key->undecided_column > distrusted))
		return distrusted;
	return key->undecided_column;
}

bool
gpusort_rowkey_crowded(const GpusortRowKey *key, int column)
{
	for (int i = 0; i < Min(column, key->nencoded); i++)
	{
		if (key->columns[i].seen.crowd_met)
			return true;
	}
	return false;
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

	return kind == GPUSORT_ROW_TEXT || kind == GPUSORT_ROW_PACKED;
}

int
gpusort_rowkey_tied_strings(const GpusortRowKey *key, bool *blank_padded)
{
	const GpusortRowColumn *column = key->columns;
	const GpusortRowColumn *end = column + key->nencoded;

	while (column < end && !column->seen.undecided && !column->seen.crowd_met && !gpusort_column_is_prefix(column))
		column++;
	if (column == key->columns + key->ncolumns || column->lowered || column->kind != GPUSORT_ROW_TEXT)
		return -1;
	*blank_padded = column->blank_padded;
	return column - key->columns;
}

void
gpusort_rowkey_bytes(const GpusortRowKey *key, int column, Datum value,
					 const char **bytes, Size *length)
{
	struct varlena *datum;

	Assert(gpusort_rowkey_by_bytes(key, column));
	if (key->columns[column].kind == GPUSORT_ROW_PACKED)
	{
		*bytes = gpusort_rowpacked_bytes(&key->columns[column], value, length);
		return;
	}
	datum = PG_DETOAST_DATUM_PACKED(value);
	*bytes = VARDATA_ANY(datum);
	*length = VARSIZE_ANY_EXHDR(datum);
	if (key->columns[column].lowered)
		*bytes = gpusort_citext_lower(*bytes, *length, palloc(*length), *length, length);
	if (key->columns[column].blank_padded)
		*length = bpchartruelen((char *) *bytes, *length);
}

Size
gpusort_rowkey_copied_bytes(const GpusortRowKey *key, int column, Datum value)
{
	if (key->columns[column].kind == GPUSORT_ROW_PACKED)
		return gpusort_rowpacked_size(&key->columns[column], value);
	/* a chunk of memory of its own: a power of two, behind a header */
	if (key->columns[column].lowered && !gpusort_varlena_remote(DatumGetPointer(value)))
		return pg_nextpower2_size_t(Max(VARSIZE_ANY_EXHDR(DatumGetPointer(value)), 8)) + 2 * MAXIMUM_ALIGNOF;
	return gpusort_rowkey_remote_bytes(value);
}

Size
gpusort_rowkey_remote_bytes(Datum value)
{
	return gpusort_varlena_remote(DatumGetPointer(value)) ? toast_raw_datum_size(value) : 0;
}
