/*-------------------------------------------------------------------------
 *
 * page_rows.c
 *		Makes the keys of the rows of a heap page, column by column.
 *
 * It is known where the values lie in the tuples (key/tuple.c).  A loop for each column reads them there.  No slot is filled,
 * the kind of the column is looked at once, and the cache misses of several rows overlap.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/column.h"

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
 * Writes the column's words of each row.  offset: of the value, from rows[i].  Returns false if the column's kind has no
 * loop here, or if a value shares its word with another one (plan "crowded").
 */
static bool
encode_fixed(const GpusortRowColumn *column, int offset, const char *const *rows, int n,
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
		case GPUSORT_ROW_INT8:
			ENCODE_LOOP(uint64, (crowded |= (bits ^ flip ^ null) <= 1, bits ^ flip));
			break;
		case GPUSORT_ROW_UUID:
			return encode_uuids(column, offset, rows, n, words, stride);
		default:
			return false;
	}
	return !crowded;
}

void
gpusort_rowkey_encode_rows(GpusortRowKey *key, const GpusortPlaces *places, const AttrNumber *attnos,
						   const GpusortConstant *constants, const HeapTupleHeader *tuples, int first, int n,
						   uint64 *words)
{
	const char *const *rows = (const char *const *) (tuples + first);
	const char *values[MaxHeapTuplesPerPage];
	bool		filled[MaxHeapTuplesPerPage];	/* rows whose later words have been written */
	bool		any_filled = false;

	for (int i = 0; i < key->nencoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];
		int			c = (attnos != NULL ? attnos[column->attribute] : column->attribute + 1) - 1;
		const GpusortConstant *constant = c < 0 ? &constants[column->attribute] : NULL;
		bool		fixed = places->plain && !any_filled && constant == NULL;
		bool		done = false;

		if (fixed && gpusort_places_agree(places, c))
			done = encode_fixed(column, places->offsets[c], rows, n, words, key->words);
		if (!done)
		{
			for (int row = 0; row < n; row++)
				values[row] = constant != NULL ? constant->bytes : gpusort_places_value(places, tuples, first + row, c);
			/* values that share a word must be met one by one */
			if (!(fixed && encode_fixed(column, 0, values, n, words, key->words)))
			{
				if (!any_filled)
					memset(filled, 0, sizeof(filled));
				any_filled |= constant != NULL ?
					gpusort_rowkey_encode_values(key, i, constant->length, constant->byval, values, n, words, filled) :
					gpusort_rowkey_encode_values(key, i, places->columns[c].bytes, GPUSORT_ATTRIBUTE(places->desc, c)->attbyval,
												 values, n, words, filled);
			}
		}
		words += column->words;
	}
}
