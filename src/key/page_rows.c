/*-------------------------------------------------------------------------
 *
 * page_rows.c
 *		Makes the keys of the rows of a heap page, column by column.
 *
 * If the rows have no NULLs, it is known where a value lies: at the same offset in all rows, or a walk
 * over each row finds it (key/tuple.h).  Then a loop for each column reads them there.  No slot is filled,
 * the kind of the column is looked at once, and the cache misses of several rows overlap.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"

#include "key/column.h"
#include "key/keybits.h"
#include "key/tuple.h"

/* Bytes of the header of a row without NULLs */
#define PLAIN_HEADER	((int) MAXALIGN(SizeofHeapTupleHeader))

/* Have all rows these columns, no NULL, and a header without anything else? */
static bool
have_plain_headers(const HeapTupleHeader *rows, int n, int natts)
{
	bool		plain = true;

	for (int i = 0; i < n; i++)
		plain &= (rows[i]->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(rows[i]) >= natts &&
			rows[i]->t_hoff == PLAIN_HEADER;
	return plain;
}

/* Does the column have strings, read by encode_strings()?  A name is no varlena. */
static bool
has_strings(const GpusortRowColumn *column)
{
	return column->kind == GPUSORT_ROW_TEXT || column->kind == GPUSORT_ROW_ABBREVIATED ||
		(column->kind == GPUSORT_ROW_LIBC && !column->libc.is_name);
}

/* Can the column's values be read by encode_column() or encode_uuids()? */
static bool
is_plain(const GpusortRowColumn *column)
{
	switch (column->kind)
	{
		case GPUSORT_ROW_BYTE:
		case GPUSORT_ROW_INT2:
		case GPUSORT_ROW_INT4:
		case GPUSORT_ROW_FLOAT4:
		case GPUSORT_ROW_FLOAT8:
		case GPUSORT_ROW_INT8:
		case GPUSORT_ROW_UUID:
			return true;
		default:
			return false;
	}
}

/* For each row: reads bits, a value at the offset from rows[i], and sets the word. */
#define ENCODE_LOOP(type, word) \
	do { \
		for (int i = 0; i < n; i++, words += stride) \
		{ \
			type		bits; \
\
			memcpy(&bits, rows[i] + offset, sizeof(bits)); \
			*words = (word); \
		} \
	} while (0)

/* The same for uuid, which has two words and shares them as a value of 64 bits does. */
static bool
encode_uuids(const GpusortRowColumn *column, int offset, const char *const *rows, int n,
			 uint64 *words, int stride)
{
	const GpusortMasks *masks = &column->masks;
	bool		crowded = false;

	for (int i = 0; i < n; i++, words += stride)
	{
		const char *value = rows[i] + offset;

		words[0] = gpusort_load_be64(value) ^ masks->flip[0];
		words[1] = gpusort_load_be64(value + 8) ^ masks->flip[1];
		crowded |= words[0] == masks->null[0] && (words[1] ^ masks->null[1]) <= 1;
	}
	return !crowded;
}

/*
 * The same for strings, in the last column that has words.  Sets *whole to false if the words of
 * a string do not decide.  Returns false if a string is toasted.
 */
static bool
encode_strings(GpusortRowColumn *column, int offset, const char *const *rows, int n,
			   uint64 *words, int stride, bool *whole)
{
	for (int i = 0; i < n; i++, words += stride)
	{
		const char *value = rows[i] + offset;

		if (gpusort_varlena_remote(value))
			return false;
		*whole &= column->few == NULL ? gpusort_rowstring_encode(column, PointerGetDatum(value), words) :
			gpusort_few_encode(column, PointerGetDatum(value), words);
	}
	return true;
}

/*
 * Writes the column's word of each row.  offset: of the value, from rows[i].  Returns false if a
 * value shares its word with another one (plan "crowded").
 */
static bool
encode_column(const GpusortRowColumn *column, int offset, const char *const *rows, int n,
			  uint64 *words, int stride)
{
	const uint64 flip = column->masks.flip[0];
	const uint64 base = column->masks.base;
	const uint64 null = column->masks.null[0];
	bool		crowded = false;

	switch (column->kind)
	{
		case GPUSORT_ROW_BYTE:
			ENCODE_LOOP(uint8, (bits ^ flip) | base);
			break;
		case GPUSORT_ROW_INT2:
			ENCODE_LOOP(uint16, (bits ^ flip) | base);
			break;
		case GPUSORT_ROW_INT4:
			ENCODE_LOOP(uint32, (bits ^ flip) | base);
			break;
		case GPUSORT_ROW_FLOAT4:
			ENCODE_LOOP(uint32, (gpusort_rank_float4(bits) ^ flip) | base);
			break;
		case GPUSORT_ROW_FLOAT8:
			ENCODE_LOOP(uint64, gpusort_column_float8(column, bits));
			break;
		default:
			ENCODE_LOOP(uint64, (crowded |= (bits ^ flip ^ null) <= 1, bits ^ flip));
			break;
	}
	return !crowded;
}

bool
gpusort_rowkey_encode_rows(GpusortRowKey *key, TupleDesc desc, const AttrNumber *attnos,
						   const HeapTupleHeader *rows, int n, uint64 *words)
{
	GpusortPlaces places;
	uint16		found[MaxHeapTuplesPerPage][GPUSORT_MAX_WORDS];
	const char *values[MaxHeapTuplesPerPage];
	int			natts = 0;

	gpusort_places_begin(&places, desc);
	for (int i = 0; i < key->nencoded; i++)
	{
		const GpusortRowColumn *column = &key->columns[i];
		AttrNumber	attno = attnos != NULL ? attnos[column->attribute] : column->attribute + 1;

		if (!gpusort_places_add(&places, attno - 1) ||
			!(is_plain(column) || (has_strings(column) && i + 1 == key->nencoded)))
			return false;
		natts = Max(natts, attno);
	}
	if (!have_plain_headers(rows, n, natts))
		return false;
	for (int row = 0; places.last > 0 && row < n; row++)
		gpusort_places_walk(&places, rows[row], found[row]);
	for (int i = 0; i < key->nencoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];
		const char *const *from = (const char *const *) rows;
		int			offset = PLAIN_HEADER;
		bool		whole = true;

		if (places.steps[i] < 0)
			offset += places.offsets[i];
		else
		{
			for (int row = 0; row < n; row++)
				values[row] = from[row] + found[row][i];
			from = values;
		}
		if (!(column->kind == GPUSORT_ROW_UUID ? encode_uuids(column, offset, from, n, words, key->words) :
			  has_strings(column) ? encode_strings(column, offset, from, n, words, key->words, &whole) :
			  encode_column(column, offset, from, n, words, key->words)))
			return false;
		if (!whole)
			key->undecided |= (uint32) 1 << i;
		words += column->words;
	}
	return true;
}
